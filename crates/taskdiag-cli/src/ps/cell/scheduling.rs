//! Cells of states, priorities and processors.

use taskdiag::{Field, Value};

use super::Cell;
use crate::output::people;
use crate::output::relation::NONE;

impl Cell<'_> {
    /// The state's letter.
    pub fn state(&mut self) {
        let letter = self.letter(Field::State);
        self.write_or_dash(letter, |cell, letter| cell.write(format_args!("{letter}")));
    }

    /// The state, and the additional letters that ps(1) lists under PROCESS STATE CODES.
    pub fn stat(&mut self) {
        let Ok(state) = self.letter(Field::State) else {
            return self.dash();
        };
        self.write(format_args!("{state}"));
        match self.signed(Field::Nice) {
            Ok(nice) if nice < 0 => self.out.push(b'<'),
            Ok(nice) if nice > 0 => self.out.push(b'N'),
            _ => {}
        }
        if self.memory(Field::LockedBytes).is_ok_and(|bytes| bytes > 0) {
            self.out.push(b'L');
        }
        let (pid, pgid) = (self.unsigned(Field::Pid), self.unsigned(Field::Pgid));
        if pid.is_ok() && self.unsigned(Field::Sid) == pid {
            self.out.push(b's');
        }
        if self.unsigned(Field::ThreadsCount).is_ok_and(|threads| threads > 1) {
            self.out.push(b'l');
        }
        if pgid.is_ok_and(|pgid| self.signed(Field::Tpgid) == Ok(pgid as i64)) {
            self.out.push(b'+');
        }
    }

    /// The foreground process group of the terminal. -1 stands for none, as in the kernel's text.
    pub fn foreground(&mut self) -> Result<i64, &'static str> {
        match self.signed(Field::Tpgid) {
            Err(NONE) => Ok(-1),
            tpgid => tpgid,
        }
    }

    /// The same as a column.
    pub fn foreground_group(&mut self) {
        let group = self.foreground();
        self.number_or_dash(group);
    }

    /// The flags of PROCESS FLAGS in ps(1): 1 is `PF_FORKNOEXEC`, 4 is `PF_SUPERPRIV`.
    pub fn kernel_flags(&mut self) {
        let flags = self.unsigned(Field::Flags).map(|flags| flags >> 6 & 7);
        self.number_or_dash(flags);
    }

    /// The scheduling class.
    pub fn class(&mut self) {
        const CLASSES: [&str; 7] = ["TS", "FF", "RR", "B", "ISO", "IDL", "DLN"];
        let policy = self.unsigned(Field::Policy);
        self.write_or_dash(policy, |cell, policy| match CLASSES.get(policy as usize) {
            Some(class) => cell.out.extend_from_slice(class.as_bytes()),
            None => cell.write(format_args!("#{policy}")),
        });
    }

    /// The nice value. Only the classes TS and B use it.
    pub fn nice(&mut self) {
        match (self.unsigned(Field::Policy), self.signed(Field::Nice)) {
            (Ok(0 | 3), Ok(nice)) => people::number(self.out, nice),
            _ => self.dash(),
        }
    }

    /// The real-time priority. The class TS has none.
    pub fn rt_priority(&mut self) {
        match (self.unsigned(Field::Policy), self.unsigned(Field::RtPriority)) {
            (Ok(1..), Ok(priority)) => people::number(self.out, priority),
            _ => self.dash(),
        }
    }

    /// The kernel's priority on one of ps's scales.
    pub fn priority(&mut self, zero: i64, sign: i64) {
        let priority = self.signed(Field::Priority).map(|priority| zero + sign * priority);
        self.number_or_dash(priority);
    }

    /// The processor that it runs on; a star if it is not running.
    pub fn running_on(&mut self) {
        match self.letter(Field::State) {
            Ok('R') => self.number(Field::Processor),
            _ => self.out.push(b'*'),
        }
    }

    /// The memory node of the processor that it last ran on.
    pub fn numa_node(&mut self) {
        let node = self
            .unsigned(Field::Processor)
            .map(|processor| self.host.node_of(processor));
        self.number_or_dash(node);
    }

    /// The kernel function in which it waits. Like ps, leaves out leading underscores.
    pub fn wait_channel(&mut self) {
        match self.value(Field::Wchan) {
            Ok(Value::Text(name)) if !name.is_empty() => {
                let underscores = name.iter().take_while(|&&byte| byte == b'_').count();
                self.plain(&name[underscores..]);
            }
            _ => self.dash(),
        }
    }
}
