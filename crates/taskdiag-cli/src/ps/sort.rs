//! The order of rows: `--sort`, `k` and `O` of ps(1).

use taskdiag::{Absent, Field, Fields, Task};

use super::cell::Cell;
use super::columns::{unknown, Vocabulary};
use super::host::Host;
use super::specifiers::{Order, Specifier};
use crate::choice::{Key, SortBy};
use crate::outcome::Failure;
use crate::output::relation::Absences;
use crate::selection;

/// What tasks are sorted by.
#[derive(Clone, Copy, Debug)]
pub enum PsKey {
    /// A column of ps.
    Specifier(&'static Specifier),
    Field(Field),
}

/// The one-letter keys of ps's option `O`.
const SHORT: [(char, &str); 25] = [
    ('c', "cmd"),
    ('C', "pcpu"),
    ('f', "flags"),
    ('g', "pgrp"),
    ('G', "tpgid"),
    ('j', "cutime"),
    ('J', "cstime"),
    ('k', "utime"),
    ('m', "min_flt"),
    ('M', "maj_flt"),
    ('n', "cmin_flt"),
    ('N', "cmaj_flt"),
    ('o', "session"),
    ('p', "pid"),
    ('P', "ppid"),
    ('r', "rss"),
    ('R', "resident"),
    ('s', "size"),
    ('S', "share"),
    ('t', "tty"),
    ('T', "start_time"),
    ('U', "uid"),
    ('u', "user"),
    ('v', "vsize"),
    ('y', "priority"),
];

/// Sort keys of ps that have no column.
const ONLY_SORTED_BY: [(&str, Field); 7] = [
    ("cutime", Field::CutimeNs),
    ("cstime", Field::CstimeNs),
    ("utime", Field::UtimeNs),
    ("cmin_flt", Field::ChildMinFaults),
    ("cmaj_flt", Field::ChildMajFaults),
    ("resident", Field::RssBytes),
    ("share", Field::RssFileBytes),
];

/// The names for a list of one-letter keys. `None` for any other list.
pub fn short_keys(letters: &str) -> Option<String> {
    let mut keys: Vec<String> = Vec::new();
    let mut sign = "";
    for letter in letters.chars() {
        match letter {
            '+' => sign = "+",
            '-' => sign = "-",
            ',' => {}
            _ => {
                let (_, name) = SHORT.iter().find(|(has, _)| *has == letter)?;
                keys.push(format!("{sign}{name}"));
                sign = "";
            }
        }
    }
    (!keys.is_empty()).then(|| keys.join(","))
}

/// The keys that `--sort` options name.
pub fn keys(lists: &[String], vocabulary: Vocabulary) -> Result<Vec<SortBy<PsKey>>, Failure> {
    let whole = |list: &String| list.strip_suffix(',').unwrap_or(list).to_owned();
    let lists: Vec<String> = lists.iter().map(whole).collect();
    SortBy::parse(&lists, |name| key(name, vocabulary))
}

fn key(name: &str, vocabulary: Vocabulary) -> Result<PsKey, Failure> {
    let specifier = Specifier::named(name).map(PsKey::Specifier);
    let field = name.parse::<Field>();
    let found = match (vocabulary, &field) {
        (Vocabulary::Ps, _) => specifier.or(field.as_ref().ok().map(|&field| PsKey::Field(field))),
        (Vocabulary::Fields, Ok(field)) => Some(PsKey::Field(*field)),
        (Vocabulary::Fields, Err(_)) => specifier,
    };
    let only_sorted_by = || {
        ONLY_SORTED_BY
            .iter()
            .find(|(has, _)| *has == name)
            .map(|&(_, field)| PsKey::Field(field))
    };
    match found.or_else(only_sorted_by) {
        Some(by) => Ok(by),
        None => {
            let keys = selection::sort_keys(&[name.to_owned()]).map_err(|_| unknown(name))?;
            Ok(PsKey::Field(keys[0].key))
        }
    }
}

impl PsKey {
    /// The field, if it is one.
    pub fn field(&self) -> Option<Field> {
        match self {
            PsKey::Specifier(_) => None,
            PsKey::Field(field) => Some(*field),
        }
    }

    pub fn needs(&self) -> Fields {
        match self {
            PsKey::Specifier(specifier) => specifier.needs().collect(),
            PsKey::Field(field) => (*field).into(),
        }
    }
}

/// Sorts tasks: numbers by value, text by its bytes, and tasks without a value last. Specifiers of
/// memory are 0 for kernel threads and zombies, which have none. Equal tasks keep their order.
pub fn sort<'a>(tasks: &mut Vec<Task<'a>>, by: &[SortBy<PsKey>], host: &mut Host, absences: &mut Absences) {
    selection::sort_by(tasks, by, |task, key| {
        let specifier = match key {
            PsKey::Field(by) => return selection::key(task, by, absences),
            PsKey::Specifier(specifier) => specifier,
        };
        let mut text = Vec::new();
        let mut cell = Cell {
            out: &mut text,
            task,
            host,
            missing: Some(&mut *absences),
            branches: &[],
        };
        match specifier.order {
            Order::Field => specifier.fields.first().and_then(|&by| {
                // The column shows 0 for tasks without memory.
                let has_no_memory = task.value(by).err() == Some(Absent::NoMemory);
                selection::key(task, by, absences).or_else(|| has_no_memory.then_some(Key::Number(0)))
            }),
            Order::Number(number) => number(&mut cell).map(Key::Number),
            Order::Text => {
                (specifier.show)(&mut cell);
                Some(Key::Text(text.into()))
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the letters of the option O with directions, and that anything else is not such a
    /// list.
    #[test]
    fn letters_stand_for_names() {
        assert_eq!(short_keys("p").as_deref(), Some("pid"));
        assert_eq!(short_keys("-p").as_deref(), Some("-pid"));
        assert_eq!(short_keys("u-r+p").as_deref(), Some("user,-rss,+pid"));
        assert_eq!(short_keys("vsz"), None);
        assert_eq!(short_keys("-"), None);
        assert_eq!(short_keys(""), None);
    }

    /// Check that each letter stands for something that can be sorted by.
    #[test]
    fn all_letters_can_be_sorted_by() {
        for (_, name) in SHORT {
            assert!(keys(&[name.to_owned()], Vocabulary::Ps).is_ok(), "{name}");
        }
    }

    /// Check directions, several lists, and invalid names.
    #[test]
    fn keys_have_directions() {
        let keys_of = |lists: &[&str]| {
            let lists: Vec<String> = lists.iter().map(|&list| list.to_owned()).collect();
            keys(&lists, Vocabulary::Ps).map(|keys| keys.iter().map(|by| by.descending).collect::<Vec<_>>())
        };
        assert_eq!(keys_of(&["-rss,+pid", "%cpu,"]).expect("names"), [true, false, false]);
        assert!(keys_of(&["rss_bytes"]).is_ok());
        for wrong in ["nosuch", "", "pid,,rss", "pid=3"] {
            assert!(keys_of(&[wrong]).is_err(), "{wrong:?}");
        }
    }
}
