//! The grammar of the options of ps(1).

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use taskdiag::Field;

use super::given::Given;
use super::lists::{ids, terminals};
use super::ps_options::{List, PsOptions};
use super::table::{PsOption, Takes, NOTHING, OPTIONS};
use crate::outcome::Failure;

/// Parses the options of ps(1), and returns the other arguments, which are for clap. `takes_value`
/// says which of the project's own long options take a value; `None` of one that is not known: what
/// follows it may be its value, and clap has the error. With the name ps, `-h` is the option
/// of ps rather than a request for help.
pub fn take(
    arguments: impl IntoIterator<Item = OsString>,
    takes_value: impl Fn(&str) -> Option<bool>,
    is_called_ps: bool,
) -> Result<(PsOptions, Vec<OsString>), Failure> {
    let mut given = Given::default();
    given.ps_options.is_called_ps = is_called_ps;
    let personality = std::env::var("PS_PERSONALITY").unwrap_or_default();
    given.ps_options.is_bsd = is_called_ps && ["bsd", "old"].contains(&personality.as_str());
    let mut rest: VecDeque<OsString> = arguments.into_iter().collect();
    while let Some(word) = rest.pop_front() {
        let bytes = word.as_bytes();
        if bytes == b"--" {
            // ps(1) refuses it too: words without a dash are options.
            return Err(format!("\"--\" is not an option\n{SEE_HELP}").into());
        } else if let Some(long) = bytes.strip_prefix(b"--") {
            given.long(&word, long, &mut rest, &takes_value)?;
        } else if matches!(bytes, b"-h") && !is_called_ps {
            given.left.push(word);
        } else if let Some(cluster) = bytes.strip_prefix(b"-") {
            let (before, words_left) = (given.clone(), rest.len());
            match given.cluster(&word, cluster, Style::Unix, &mut rest) {
                Ok(()) => {}
                // Many people write `ps -aux` and `ps -axo pid`.
                Err(failure) => {
                    given = before;
                    // An error in the next argument has nothing to do with the style.
                    let is_here = rest.len() == words_left;
                    let as_bsd =
                        is_here && is_bsd(cluster) && given.cluster(&word, cluster, Style::Bsd, &mut rest).is_ok();
                    if !as_bsd {
                        return Err(failure);
                    }
                }
            }
        } else {
            given.cluster(&word, bytes, Style::Bsd, &mut rest)?;
        }
    }
    given.check()?;
    Ok((given.ps_options, given.left))
}

/// Whether all letters of a cluster are BSD options. Only the last one may take a value, which is
/// the next argument.
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

impl Given {
    /// One long option.
    fn long(
        &mut self,
        word: &OsStr,
        long: &[u8],
        rest: &mut VecDeque<OsString>,
        takes_value: &impl Fn(&str) -> Option<bool>,
    ) -> Result<(), Failure> {
        let (name, attached) = match long.iter().position(|&byte| byte == b'=') {
            Some(at) => (&long[..at], Some(&long[at + 1..])),
            None => (long, None),
        };
        let name = String::from_utf8_lossy(name);
        let Some(option) = OPTIONS.iter().find(|option| option.long.contains(&name.as_ref())) else {
            self.left.push(word.to_owned());
            match takes_value(&name) {
                Some(true) if attached.is_none() => self.left.extend(rest.pop_front()),
                Some(_) => {}
                None => self.left.extend(rest.drain(..)),
            }
            return Ok(());
        };
        let value = match (option.takes, attached) {
            (Takes::Nothing, None) => String::new(),
            (Takes::Nothing, Some(_)) => return Err(format!("--{name} takes no value\n{SEE_HELP}").into()),
            (_, Some(value)) => text(value, &format!("--{name}"))?,
            (_, None) => match rest.pop_front() {
                Some(value) => text(value.as_bytes(), &format!("--{name}"))?,
                None => return Err(format!("--{name} needs a value\n{SEE_HELP}").into()),
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
            (self.ps_options.is_given, self.ps_options.is_bsd) = (true, true);
            let pids = ids(&cluster).map_err(|message| format!("{word:?}: {message}"))?;
            self.ps_options.choice.lists.push(List::OneOf(Field::Pid, pids));
            return Ok(());
        }
        if cluster.is_empty() {
            return Err(format!("{word:?} is neither an option nor a process id\n{SEE_HELP}").into());
        }
        self.ps_options.is_bsd |= style == Style::Bsd;
        for (at, letter) in cluster.char_indices() {
            let spelt = format!("{}{letter}", style.dash());
            let of = match cluster.chars().count() {
                1 => String::new(),
                _ => format!(" (of {word:?})"),
            };
            let Some(option) = OPTIONS.iter().find(|option| style.letter(option) == Some(letter)) else {
                return Err(format!("unknown option {spelt:?}{of}\n{SEE_HELP}").into());
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
                    None => return Err(format!("{spelt}{of} needs a value\n{SEE_HELP}").into()),
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
        // These also exist in this command, and belong to its own table.
        let is_ours =
            option.long.contains(&"sort") || option.long.contains(&"no-headers") || option.long.contains(&"format");
        self.ps_options.is_given |= !is_ours;
        Ok((option.does)(self, value).map_err(|message| format!("{spelt}: {message}"))?)
    }
}

/// A value as text.
fn text(bytes: &[u8], option: &str) -> Result<String, String> {
    let text = std::str::from_utf8(bytes).map(str::to_owned);
    text.map_err(|_| format!("{option}: {:?} is not UTF-8", String::from_utf8_lossy(bytes)))
}

const SEE_HELP: &str = "`taskdiag ps --help` lists the options";
