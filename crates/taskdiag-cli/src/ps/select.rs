//! Converts the options of ps(1) that select processes into a query.

use rustix::process::geteuid;
use taskdiag::{Field, Filter, Query};
use taskdiag_core::text::process::{self, Positions};
use taskdiag_sys::host::proc_file;

use super::options::{Choice, List, PsOptions, Threads};
use crate::outcome::Failure;

/// The calling process, as the options refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The effective user.
    pub euid: u32,
    /// The controlling terminal as a device number, 0 if there is none.
    pub tty: u32,
}

impl Caller {
    /// This process.
    pub fn new() -> Caller {
        let stat = std::fs::read(proc_file("self/stat")).unwrap_or_default();
        Caller {
            euid: geteuid().as_raw(),
            tty: process::stat(&stat, Positions::BASIC).map_or(0, |stat| stat.tty_nr()),
        }
    }
}

impl PsOptions {
    /// The query for the processes that the options select. If no option selects any: all
    /// processes, or with the name ps the caller's own.
    pub fn query(&self, is_threads: bool, caller: impl Fn() -> Caller) -> Result<Query, Failure> {
        let is_threads = is_threads || self.threads == Threads::Rows;
        let choice = &self.choice;
        let listed = match choice {
            Choice { quick, .. } if !quick.is_empty() => Some(quick.clone()),
            choice => choice.only_pids(),
        };
        let query = match (&listed, is_threads) {
            (Some(pids), true) => Query::threads_of_these(pids.iter().copied()),
            (Some(pids), false) => Query::these(pids.iter().copied()),
            (None, true) => Query::threads(),
            (None, false) => Query::processes(),
        };
        let expression = match listed {
            Some(_) => choice.running.then(|| RUNNING.to_owned()),
            None => self.expression(&caller),
        };
        match expression {
            Some(expression) => Ok(query.filter(parsed(&expression)?)),
            None => Ok(query),
        }
    }

    /// Limits a query to the processes that the options select.
    pub fn narrow(&self, query: Query, caller: impl Fn() -> Caller) -> Result<Query, Failure> {
        // The query has already selected processes. All of them are meant, whatever the name of the
        // command.
        let ps_options = PsOptions {
            is_called_ps: false,
            ..self.clone()
        };
        match ps_options.expression(&caller) {
            Some(expression) => Ok(query.filter(parsed(&expression)?)),
            None => Ok(query),
        }
    }

    /// The filter expression. `None` if all processes are selected.
    fn expression(&self, caller: &impl Fn() -> Caller) -> Option<String> {
        let choice = &self.choice;
        let is_default = choice.is_empty();
        let mut chosen = if is_default {
            self.default_expression(caller)
        } else {
            choice.expression(caller)
        };
        if choice.is_negated {
            chosen = match chosen {
                None if is_default => None,
                None => Some("pid == 0".to_owned()),
                Some(chosen) => Some(format!("not ({chosen})")),
            };
        }
        if !choice.running {
            return chosen;
        }
        Some(chosen.map_or_else(|| RUNNING.to_owned(), |chosen| format!("{RUNNING} and ({chosen})")))
    }

    /// The filter expression if no option selects processes.
    fn default_expression(&self, caller: &impl Fn() -> Caller) -> Option<String> {
        if !self.is_called_ps {
            None
        } else if self.is_bsd {
            Some(format!("tty_nr != 0 and euid == {}", caller().euid))
        } else {
            Some(format!("tty_nr == {} and euid == {}", caller().tty, caller().euid))
        }
    }
}

fn parsed(expression: &str) -> Result<Filter, Failure> {
    Filter::parse(expression).map_err(|error| Failure::Unanswered(error.to_string()))
}

/// The filter expression for running tasks.
const RUNNING: &str = "state in ('R', 'D')";

impl Choice {
    /// The process ids, if no option selects by anything else.
    fn only_pids(&self) -> Option<Vec<u32>> {
        let mut pids = Vec::new();
        for list in &self.lists {
            match list {
                List::OneOf(Field::Pid, more) => pids.extend(more),
                _ => return None,
            }
        }
        let rest = Choice {
            lists: Vec::new(),
            ..self.clone()
        };
        (!pids.is_empty() && !self.is_negated && rest.is_empty()).then_some(pids)
    }

    /// The filter expression for the options, which are alternatives. `None` if all processes are
    /// selected.
    fn expression(&self, caller: &impl Fn() -> Caller) -> Option<String> {
        if self.all || self.on_terminals && self.own {
            return None;
        }
        let mut parts: Vec<String> = Vec::new();
        if self.others {
            parts.push("pid != sid".to_owned());
        }
        if self.others_on_terminals && !self.others {
            parts.push("tty_nr != 0 and pid != sid".to_owned());
        }
        // As in ps, -ad also includes session leaders on terminals.
        if self.on_terminals || self.others_on_terminals && self.others {
            parts.push("tty_nr != 0".to_owned());
        }
        if self.own {
            parts.push(format!("euid == {}", caller().euid));
        }
        for list in &self.lists {
            match list {
                List::OneOf(field, numbers) => parts.push(one_of(*field, numbers)),
                List::OwnTerminal => parts.push(one_of(Field::TtyNr, &[caller().tty])),
                List::Names(names) => parts.extend(names.iter().map(|name| is_called(name))),
            }
        }
        let parts: Vec<String> = parts.into_iter().map(|part| format!("({part})")).collect();
        Some(parts.join(" or "))
    }
}

fn one_of(field: Field, numbers: &[u32]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
    format!("{field} in ({})", numbers.join(", "))
}

/// The number of bytes of a process's name that the kernel keeps.
const NAME: usize = 15;

/// The filter expression for a name. ps compares 15 bytes; for kernel threads it compares the whole
/// name.
fn is_called(name: &str) -> String {
    match name.get(..NAME) {
        Some(begin) if name.len() > NAME => format!("{} or {}", has_name(name), has_name(begin)),
        _ => has_name(name),
    }
}

/// A comparison with a name. A text in an expression can't contain both kinds of quotes, but a
/// regular expression can.
fn has_name(name: &str) -> String {
    if !name.contains('\'') {
        return format!("comm == '{name}'");
    }
    if !name.contains('"') {
        return format!("comm == \"{name}\"");
    }
    let mut pattern = String::new();
    for character in name.chars() {
        match character {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '\u{80}'.. => pattern.push(character),
            _ => pattern.push_str(&format!("\\x{:02x}", u32::from(character))),
        }
    }
    format!("comm ~ '^{pattern}$'")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLER: Caller = Caller { euid: 7, tty: 34_816 };

    fn expression(choice: Choice) -> Option<String> {
        let ps_options = PsOptions {
            choice,
            ..PsOptions::default()
        };
        ps_options.expression(&|| CALLER)
    }

    fn called_ps(is_bsd: bool, choice: Choice) -> Option<String> {
        let ps_options = PsOptions {
            choice,
            is_bsd,
            is_called_ps: true,
            ..PsOptions::default()
        };
        ps_options.expression(&|| CALLER)
    }

    /// Check that options add up, and that all processes are selected where no or every option is
    /// given.
    #[test]
    fn options_add_up() {
        assert_eq!(expression(Choice::default()), None);
        let all = Choice {
            all: true,
            lists: vec![List::OneOf(Field::Pid, vec![1])],
            ..Choice::default()
        };
        assert_eq!(expression(all.clone()), None);
        let none = Choice {
            is_negated: true,
            ..all
        };
        assert_eq!(expression(none).as_deref(), Some("pid == 0"));
        let both = Choice {
            on_terminals: true,
            own: true,
            ..Choice::default()
        };
        assert_eq!(expression(both), None);
        let some = Choice {
            own: true,
            lists: vec![List::OneOf(Field::Pid, vec![1, 2]), List::OwnTerminal],
            ..Choice::default()
        };
        let text = "(euid == 7) or (pid in (1, 2)) or (tty_nr in (34816))";
        assert_eq!(expression(some.clone()).as_deref(), Some(text));
        let others = Choice {
            is_negated: true,
            running: true,
            ..some
        };
        assert_eq!(expression(others), Some(format!("{RUNNING} and (not ({text}))")));
    }

    /// Check what ps shows if no option selects processes.
    #[test]
    fn ps_means_the_callers_processes() {
        let none = Choice::default;
        assert_eq!(
            called_ps(false, none()).as_deref(),
            Some("tty_nr == 34816 and euid == 7")
        );
        assert_eq!(called_ps(true, none()).as_deref(), Some("tty_nr != 0 and euid == 7"));
        let all = Choice { all: true, ..none() };
        assert_eq!(called_ps(false, all), None);
    }

    /// Check that processes that are selected only by id are queried by id.
    #[test]
    fn ids_alone_are_asked_for() {
        let choice = |lists: Vec<List>| Choice {
            lists,
            ..Choice::default()
        };
        let pids = || List::OneOf(Field::Pid, vec![3, 1]);
        assert_eq!(choice(vec![pids(), pids()]).only_pids(), Some(vec![3, 1, 3, 1]));
        assert_eq!(choice(vec![pids(), List::OwnTerminal]).only_pids(), None);
        assert_eq!(choice(vec![]).only_pids(), None);
        let negated = Choice {
            is_negated: true,
            ..choice(vec![pids()])
        };
        assert_eq!(negated.only_pids(), None);
        let more = Choice {
            own: true,
            ..choice(vec![pids()])
        };
        assert_eq!(more.only_pids(), None);
    }

    /// Check that any name gives an expression that parses and matches the name.
    #[test]
    fn names_can_have_quotes() {
        assert_eq!(has_name("bash"), "comm == 'bash'");
        assert_eq!(has_name("it's"), "comm == \"it's\"");
        assert_eq!(has_name("'\"ü"), "comm ~ '^\\x27\\x22ü$'");
        assert_eq!(
            is_called("0123456789abcdefg"),
            "comm == '0123456789abcdefg' or comm == '0123456789abcde'"
        );
        for name in ["bash", "it's", "\"", "'\"", "a b", "(x)", "\\", "日本語"] {
            assert!(Filter::parse(&is_called(name)).is_ok(), "{name}");
        }
    }
}
