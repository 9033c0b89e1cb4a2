//! The combined meaning of the options given so far.

use std::ffi::OsString;

use taskdiag::Field;

use super::lists::{groups, ids, terminals};
use super::ps_options::{Choice, Instead, List, PsOptions, Threads};
use crate::outcome::Failure;
use crate::ps::{columns, presets, sort};

/// The combined meaning of the options given so far.
#[derive(Clone, Debug, Default)]
pub struct Given {
    pub(super) ps_options: PsOptions,
    /// The arguments that are left for clap.
    pub(super) left: Vec<OsString>,
    /// Whether columns were named.
    has_columns: bool,
}

impl Given {
    pub(super) fn own(&mut self, option: &str) -> Result<(), String> {
        self.left.push(option.into());
        Ok(())
    }

    pub(super) fn list(&mut self, list: List) -> Result<(), String> {
        self.ps_options.choice.lists.push(list);
        Ok(())
    }

    pub(super) fn quick(&mut self, value: &str) -> Result<(), String> {
        if !self.ps_options.choice.quick.is_empty() {
            return Err("it can be given once only: -p takes any number of lists".to_owned());
        }
        self.ps_options.choice.quick = ids(value)?;
        Ok(())
    }

    /// Numbers are sessions. If there is a name among them, all are groups.
    pub(super) fn sessions_or_groups(&mut self, value: &str) -> Result<(), String> {
        match ids(value) {
            Ok(sessions) => self.list(List::OneOf(Field::Sid, sessions)),
            Err(_) => self.list(List::OneOf(Field::Egid, groups(value)?)),
        }
    }

    pub(super) fn terminals_or_own(&mut self, value: &str) -> Result<(), String> {
        match value {
            "" => self.list(List::OwnTerminal),
            value => self.list(List::OneOf(Field::TtyNr, terminals(value)?)),
        }
    }

    pub(super) fn unix_format(&mut self, set: impl Fn(&mut presets::Unix)) -> Result<(), String> {
        set(&mut self.ps_options.preset.unix);
        Ok(())
    }

    pub(super) fn bsd_format(&mut self, format: presets::Bsd) -> Result<(), String> {
        match self.ps_options.preset.bsd.replace(format) {
            Some(other) if other != format => {
                Err(format!("there can be one such format only, and {other} is one already"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn format(&mut self, value: &str) -> Result<(), String> {
        if value.is_empty() {
            return Err("it needs names of columns: `taskdiag ps L` and `taskdiag fields` list them".to_owned());
        }
        // A list that starts with a plus adds to a format.
        self.has_columns |= !value.starts_with('+');
        self.left.push(format!("--fields={value}").into());
        Ok(())
    }

    pub(super) fn preloaded(&mut self, value: &str, last: &str) -> Result<(), String> {
        if self.has_columns {
            return Err("it comes before other columns: -o can add some behind it".to_owned());
        }
        self.ps_options.preset.preloaded = Some(format!("pid,{value},state,tname,time,{last}"));
        self.has_columns = true;
        Ok(())
    }

    pub(super) fn order_or_preloaded(&mut self, value: &str) -> Result<(), String> {
        // A single letter is a key, even if it is also a specifier.
        let is_letter = value.trim_start_matches(['+', '-']).len() == 1;
        match sort::short_keys(value) {
            Some(keys) if is_letter || !columns::is_list(value) => self.sort(&keys),
            _ => self.preloaded(value, "comm"),
        }
    }

    pub(super) fn sort(&mut self, value: &str) -> Result<(), String> {
        if value.is_empty() {
            return Err("it needs names to sort by".to_owned());
        }
        self.left.push(format!("--sort={value}").into());
        Ok(())
    }

    pub(super) fn threads(&mut self, threads: Threads) -> Result<(), String> {
        // -L and -T add a column to the rows that -m makes.
        if self.ps_options.threads != Threads::Below {
            self.ps_options.threads = threads;
        }
        Ok(())
    }

    pub(super) fn instead(&mut self, instead: Instead) -> Result<(), String> {
        self.ps_options.instead = Some(instead);
        Ok(())
    }

    /// Rejects options that exclude each other.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let ps_options = &self.ps_options;
        if ps_options.forest.is_some() && ps_options.threads != Threads::No {
            return Err("a forest has processes only: leave out either the forest or the threads".into());
        }
        let quick = Choice {
            quick: ps_options.choice.quick.clone(),
            running: ps_options.choice.running,
            ..Choice::default()
        };
        if !quick.quick.is_empty() && ps_options.choice != quick {
            return Err("-q can't be combined with other options that select processes: -p can".into());
        }
        if self.has_columns && ps_options.preset.bsd.is_some() {
            let bsd = ps_options.preset.bsd.map_or(String::new(), |format| format.to_string());
            return Err(format!("columns are named and there is the format {bsd}: leave out either").into());
        }
        Ok(ps_options.preset.check()?)
    }
}
