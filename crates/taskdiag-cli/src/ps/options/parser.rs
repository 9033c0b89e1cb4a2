//! The grammar of the options of ps(1).

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::lists::{groups, ids, terminals};
use super::meant::{Choice, Instead, List, Meant, Threads};
use super::table::{PsOption, Takes, NOTHING, OPTIONS};
use crate::outcome::Failure;
use crate::ps::{columns, presets, sort};

/// Parses arguments.
#[derive(Clone, Debug, Default)]
pub struct Parser {
    pub(super) meant: Meant,
    /// What is left to clap.
    left: Vec<OsString>,
    /// Whether columns were named.
    has_columns: bool,
}

/// Parses the options of ps(1), and returns the other arguments, which are for clap. `takes_value`
/// says which of our own long options take a value. With the name ps, `-h` is the option of ps
/// rather than a call for help.
pub fn take(
    arguments: impl IntoIterator<Item = OsString>,
    takes_value: impl Fn(&str) -> bool,
    is_called_ps: bool,
) -> Result<(Meant, Vec<OsString>), Failure> {
    let mut parser = Parser::default();
    parser.meant.is_called_ps = is_called_ps;
    let mut rest: VecDeque<OsString> = arguments.into_iter().collect();
    while let Some(word) = rest.pop_front() {
        let bytes = word.as_bytes();
        if let Some(long) = bytes.strip_prefix(b"--") {
            parser.long(&word, long, &mut rest, &takes_value)?;
        } else if matches!(bytes, b"-h") && !is_called_ps {
            parser.left.push(word);
        } else if let Some(cluster) = bytes.strip_prefix(b"-") {
            let (before, words_left) = (parser.clone(), rest.len());
            match parser.cluster(&word, cluster, Style::Unix, &mut rest) {
                Ok(()) => {}
                // Many people write `ps -aux` and `ps -axo pid`.
                Err(failure) => {
                    parser = before;
                    // An error in the next argument has nothing to do with the style.
                    let is_here = rest.len() == words_left;
                    let as_bsd =
                        is_here && is_bsd(cluster) && parser.cluster(&word, cluster, Style::Bsd, &mut rest).is_ok();
                    if !as_bsd {
                        return Err(failure);
                    }
                }
            }
        } else {
            parser.cluster(&word, bytes, Style::Bsd, &mut rest)?;
        }
    }
    parser.check()?;
    Ok((parser.meant, parser.left))
}

/// Whether all letters of a cluster are BSD options. Only the last one may take a value: the next
/// argument.
fn is_bsd(cluster: &[u8]) -> bool {
    let option = |byte: &u8| OPTIONS.iter().find(|option| option.bsd == Some(char::from(*byte)));
    match cluster.split_last() {
        Some((last, others)) => {
            option(last).is_some()
                && others
                    .iter()
                    .all(|byte| option(byte).is_some_and(|option| option.takes == NOTHING))
        }
        None => false,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Unix,
    Bsd,
}

impl Style {
    fn dash(self) -> &'static str {
        match self {
            Style::Unix => "-",
            Style::Bsd => "",
        }
    }

    fn letter(self, option: &PsOption) -> Option<char> {
        match self {
            Style::Unix => option.unix,
            Style::Bsd => option.bsd,
        }
    }
}

impl Parser {
    /// One long option.
    fn long(
        &mut self,
        word: &OsStr,
        long: &[u8],
        rest: &mut VecDeque<OsString>,
        takes_value: &impl Fn(&str) -> bool,
    ) -> Result<(), Failure> {
        let (name, attached) = match long.iter().position(|&byte| byte == b'=') {
            Some(at) => (&long[..at], Some(&long[at + 1..])),
            None => (long, None),
        };
        let name = String::from_utf8_lossy(name);
        let Some(option) = OPTIONS.iter().find(|option| option.long.contains(&name.as_ref())) else {
            self.left.push(word.to_owned());
            if attached.is_none() && takes_value(&name) {
                self.left.extend(rest.pop_front());
            }
            return Ok(());
        };
        let value = match (option.takes, attached) {
            (Takes::Nothing, None) => String::new(),
            (Takes::Nothing, Some(_)) => return Err(wrong(format!("--{name} takes no value\n{SEE_HELP}"))),
            (_, Some(value)) => text(value, &format!("--{name}"))?,
            (_, None) => match rest.pop_front() {
                Some(value) => text(value.as_bytes(), &format!("--{name}"))?,
                None => return Err(wrong(format!("--{name} needs a value\n{SEE_HELP}"))),
            },
        };
        self.apply(option, &value, &format!("--{name}"))
    }

    /// A cluster of letters, each an option; or process ids.
    fn cluster(
        &mut self,
        word: &OsStr,
        cluster: &[u8],
        style: Style,
        rest: &mut VecDeque<OsString>,
    ) -> Result<(), Failure> {
        let cluster = text(cluster, &word.to_string_lossy())?;
        if cluster.starts_with(|first: char| first.is_ascii_digit()) {
            (self.meant.is_given, self.meant.is_bsd) = (true, true);
            let pids = ids(&cluster).map_err(|message| wrong(format!("{word:?}: {message}")))?;
            self.meant.choice.lists.push(List::Pids(pids));
            return Ok(());
        }
        if cluster.is_empty() {
            return Err(wrong(format!(
                "{word:?} is neither an option nor a process id\n{SEE_HELP}"
            )));
        }
        self.meant.is_bsd |= style == Style::Bsd;
        for (at, letter) in cluster.char_indices() {
            let spelt = format!("{}{letter}", style.dash());
            let Some(option) = OPTIONS.iter().find(|option| style.letter(option) == Some(letter)) else {
                let of = if cluster.chars().count() > 1 {
                    format!(" (of {word:?})")
                } else {
                    String::new()
                };
                return Err(wrong(format!("unknown option {spelt:?}{of}\n{SEE_HELP}")));
            };
            let attached = &cluster[at + letter.len_utf8()..];
            let value = match option.takes {
                Takes::Nothing => {
                    self.apply(option, "", &spelt)?;
                    continue;
                }
                _ if !attached.is_empty() => attached.to_owned(),
                Takes::Value(_) => match rest.pop_front() {
                    Some(value) => text(value.as_bytes(), &spelt)?,
                    None => return Err(wrong(format!("{spelt} needs a value\n{SEE_HELP}"))),
                },
                Takes::Terminal => {
                    let next = rest.front().and_then(|next| next.to_str());
                    let named = next.filter(|next| terminals(next).is_ok()).map(str::to_owned);
                    if named.is_some() {
                        rest.pop_front();
                    }
                    named.unwrap_or_default()
                }
            };
            return self.apply(option, &value, &spelt);
        }
        Ok(())
    }

    fn apply(&mut self, option: &PsOption, value: &str, spelt: &str) -> Result<(), Failure> {
        // These are also ours, and go with our own table.
        let is_ours =
            option.long.contains(&"sort") || option.long.contains(&"no-headers") || option.long.contains(&"format");
        self.meant.is_given |= !is_ours;
        (option.does)(self, value).map_err(|message| wrong(format!("{spelt}: {message}")))
    }

    pub(super) fn own(&mut self, option: &str) -> Result<(), String> {
        self.left.push(option.into());
        Ok(())
    }

    pub(super) fn list(&mut self, list: List) -> Result<(), String> {
        self.meant.choice.lists.push(list);
        Ok(())
    }

    pub(super) fn quick(&mut self, value: &str) -> Result<(), String> {
        if !self.meant.choice.quick.is_empty() {
            return Err("it can be given once only: -p takes any number of lists".to_owned());
        }
        self.meant.choice.quick = ids(value)?;
        Ok(())
    }

    /// Numbers are sessions. With a name among them, all are groups.
    pub(super) fn sessions_or_groups(&mut self, value: &str) -> Result<(), String> {
        match ids(value) {
            Ok(sessions) => self.list(List::Sessions(sessions)),
            Err(_) => self.list(List::Groups(groups(value)?)),
        }
    }

    pub(super) fn terminals_or_own(&mut self, value: &str) -> Result<(), String> {
        match value {
            "" => self.list(List::OwnTerminal),
            value => self.list(List::Terminals(terminals(value)?)),
        }
    }

    pub(super) fn unix_format(&mut self, set: impl Fn(&mut presets::Unix)) -> Result<(), String> {
        set(&mut self.meant.preset.unix);
        Ok(())
    }

    pub(super) fn bsd_format(&mut self, format: presets::Bsd) -> Result<(), String> {
        match self.meant.preset.bsd.replace(format) {
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
        // A list with a plus adds to a format.
        self.has_columns |= !value.starts_with('+');
        self.left.push(format!("--fields={value}").into());
        Ok(())
    }

    pub(super) fn preloaded(&mut self, value: &str, last: &str) -> Result<(), String> {
        if self.has_columns {
            return Err("it comes before other columns: -o can add some behind it".to_owned());
        }
        self.meant.preset.preloaded = Some(format!("pid,{value},state,tname,time,{last}"));
        self.has_columns = true;
        Ok(())
    }

    pub(super) fn order_or_preloaded(&mut self, value: &str) -> Result<(), String> {
        // A letter alone is a key, even if it is also a specifier.
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
        if self.meant.threads != Threads::Below {
            self.meant.threads = threads;
        }
        Ok(())
    }

    pub(super) fn instead(&mut self, instead: Instead) -> Result<(), String> {
        self.meant.instead = Some(instead);
        Ok(())
    }

    /// Rejects options that exclude each other.
    fn check(&self) -> Result<(), Failure> {
        let meant = &self.meant;
        if meant.forest.is_some() && meant.threads != Threads::No {
            return Err(wrong(
                "a forest has processes only: leave out either the forest or the threads",
            ));
        }
        let quick = Choice {
            quick: meant.choice.quick.clone(),
            running: meant.choice.running,
            ..Choice::default()
        };
        if !quick.quick.is_empty() && meant.choice != quick {
            return Err(wrong(
                "-q can't be combined with other options that select processes: -p can",
            ));
        }
        if self.has_columns && meant.preset.bsd.is_some() {
            return Err(wrong(format!(
                "columns are named and there is the format {}: leave out either",
                meant.preset.bsd.map_or(String::new(), |format| format.to_string())
            )));
        }
        meant.preset.check().map_err(wrong)
    }
}

/// A value as text.
fn text(bytes: &[u8], option: &str) -> Result<String, Failure> {
    let text = std::str::from_utf8(bytes).map(str::to_owned);
    text.map_err(|_| wrong(format!("{option}: {:?} is not UTF-8", String::from_utf8_lossy(bytes))))
}

fn wrong(message: impl Into<String>) -> Failure {
    Failure::Unanswered(message.into())
}

const SEE_HELP: &str = "`taskdiag ps --help` lists the options";
