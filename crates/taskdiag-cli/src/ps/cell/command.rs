//! Cells of names, command lines and environments.

use taskdiag::{Arguments, Field, Value};

use super::{plain, Cell};
use crate::ps::lines::prefix;

impl Cell<'_> {
    /// The name; in a forest, preceded by its branches.
    pub fn comm(&mut self) {
        self.out.extend_from_slice(self.branches);
        self.bare_comm();
        self.environment_behind();
    }

    fn bare_comm(&mut self) {
        match self.value(Field::Comm) {
            Ok(Value::Text(name)) => self.plain(name),
            _ => self.out.push(b'?'),
        }
    }

    /// As much of the name as fits into eight columns.
    pub fn short_comm(&mut self) {
        match self.value(Field::Comm) {
            Ok(Value::Text(name)) => {
                let mut text = Vec::new();
                plain(&mut text, name, self.host.is_utf8);
                self.out.extend_from_slice(prefix(&text, 8).0);
            }
            _ => self.dash(),
        }
    }

    /// The command line. A task without one is shown by its name in brackets.
    pub fn args(&mut self) {
        if self.host.modifiers.true_name {
            return self.comm();
        }
        self.out.extend_from_slice(self.branches);
        match self.value(Field::Cmdline) {
            Ok(Value::Texts(arguments)) if !arguments.is_empty() => self.joined(arguments),
            _ => {
                self.out.push(b'[');
                self.bare_comm();
                self.out.push(b']');
                if self.letter(Field::State) == Ok('Z') {
                    self.out.extend_from_slice(b" <defunct>");
                }
            }
        }
        self.environment_behind();
    }

    /// With the modifier `e`, appends the environment.
    fn environment_behind(&mut self) {
        if self.host.modifiers.environment {
            if let Ok(Value::Texts(environment)) = self.value(Field::Environ) {
                if !environment.is_empty() {
                    self.out.push(b' ');
                    self.joined(environment);
                }
            }
        }
    }

    /// The environment.
    pub fn environ(&mut self) {
        match self.value(Field::Environ) {
            Ok(Value::Texts(environment)) if !environment.is_empty() => self.joined(environment),
            _ => self.dash(),
        }
    }

    /// Appends strings with spaces between them. Like ps, shows newlines as spaces, drops empty
    /// strings at the end, and shows `?` if all are empty.
    fn joined(&mut self, strings: Arguments<'_>) {
        let bytes = strings.as_bytes();
        let len = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let mut text = bytes[..len].to_vec();
        for byte in &mut text {
            if matches!(byte, b'\0' | b'\n') {
                *byte = b' ';
            }
        }
        match len {
            0 => self.out.push(b'?'),
            _ => self.plain(&text),
        }
    }
}
