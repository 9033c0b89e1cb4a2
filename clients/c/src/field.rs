//! Fields by their ids of C, which never change: `fields_gen` has them.

use std::ffi::CStr;

use taskdiag::sockets::SocketField;
use taskdiag::{Field, Group, Kind};

use crate::column::Type;
use crate::error::{Error, Result};
use crate::fields_gen::{SOCKETS, TASKS};

/// The id of the first field of sockets. Those of tasks begin at 1.
pub const FIRST_OF_SOCKETS: u32 = 4096;

/// What a row is about: `td_scope`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Processes,
    Threads,
    Sockets,
}

impl Scope {
    /// The scope with this number.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn of(number: u32) -> Result<Scope> {
        match number {
            1 => Ok(Scope::Processes),
            2 => Ok(Scope::Threads),
            3 => Ok(Scope::Sockets),
            _ => Err(Error::invalid(format!("{number} is no td_scope"))),
        }
    }
}

/// A part of a list of descriptors, which C has as lists of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Pids,
    Comms,
    Fds,
}

/// Where the values of a field come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// A field of processes and threads.
    Task(Field),
    /// A field of sockets.
    Socket(SocketField),
    /// A part of a field of sockets that is a list of descriptors.
    Descriptors(SocketField, Part),
}

/// What is known of a field.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Where its values come from.
    pub of: Of,
    /// Its name.
    pub name: &'static CStr,
    /// What it means.
    pub meaning: &'static CStr,
}

impl Row {
    /// What its values are.
    pub fn kind(&self) -> Kind {
        match self.of {
            Of::Task(field) => field.info().kind,
            Of::Socket(field) => field.kind(),
            Of::Descriptors(_, Part::Comms) => Kind::Texts,
            Of::Descriptors(..) => Kind::Ids,
        }
    }

    /// What its values are in memory.
    pub fn value_type(&self) -> Type {
        Type::of(self.kind())
    }
}

/// The number of a kind: `td_kind`.
pub fn kind_number(kind: Kind) -> u32 {
    match kind {
        Kind::Id => 1,
        Kind::User => 2,
        Kind::GroupId => 3,
        Kind::Count => 4,
        Kind::Signed => 5,
        Kind::Bytes => 6,
        Kind::Nanoseconds => 7,
        Kind::Percent => 8,
        Kind::Flag => 9,
        Kind::Letter => 10,
        Kind::Text => 11,
        Kind::Time => 12,
        Kind::Texts => 13,
        Kind::Capabilities => 14,
        Kind::Signals => 15,
        Kind::Mask => 16,
        Kind::Address => 17,
        Kind::Mode => 18,
        Kind::Ids => 19,
        Kind::Cpus => 20,
        Kind::Limits => 21,
    }
}

/// The field with an id. `None` if there is none, or none any more.
pub fn row(id: u32) -> Option<&'static Row> {
    let (table, first) = match id {
        0..FIRST_OF_SOCKETS => (TASKS, 1),
        _ => (SOCKETS, FIRST_OF_SOCKETS),
    };
    let index = id.checked_sub(first)?;
    table.get(index as usize)?.as_ref()
}

/// The id behind `id`; the first for 0, and 0 behind the last.
pub fn next(id: u32) -> u32 {
    let ids = id.saturating_add(1)..FIRST_OF_SOCKETS + SOCKETS.len() as u32;
    ids.into_iter().find(|&id| row(id).is_some()).unwrap_or(0)
}

/// The ids and fields of a scope.
fn of_scope(scope: Scope) -> impl Iterator<Item = (u32, &'static Row)> {
    let (table, first) = match scope {
        Scope::Sockets => (SOCKETS, FIRST_OF_SOCKETS),
        Scope::Processes | Scope::Threads => (TASKS, 1),
    };
    (first..).zip(table).filter_map(|(id, row)| Some((id, row.as_ref()?)))
}

/// Whether rows of this scope have the field.
pub fn is_in(scope: Scope, id: u32) -> bool {
    row(id).is_some() && (id >= FIRST_OF_SOCKETS) == (scope == Scope::Sockets)
}

/// The id of the field with this name.
///
/// # Errors
///
/// If there is none, with near ones.
pub fn named(scope: Scope, name: &str) -> Result<u32> {
    if let Some((id, _)) = of_scope(scope).find(|(_, row)| row.name.to_bytes() == name.as_bytes()) {
        return Ok(id);
    }
    Err(match (scope, name.parse::<Field>()) {
        (Scope::Sockets, _) => {
            let names = of_scope(scope).map(|(_, row)| row.name.to_string_lossy());
            let names = names.collect::<Vec<_>>().join(", ");
            Error::invalid(format!("sockets have no field {name:?}; they have {names}"))
        }
        (_, Err(error)) => error.into(),
        (_, Ok(field)) => Error::invalid(format!("this library does not have the field {field}")),
    })
}

/// The ids that names with commas between them stand for, each once: names of fields, of groups, or
/// `all`. A field comes before a group of the same name.
///
/// # Errors
///
/// If there is no such name, or none at all.
pub fn parse(scope: Scope, names: &str) -> Result<Vec<u32>> {
    let mut ids = Vec::new();
    for name in names.split(',').map(str::trim) {
        let group = Group::ALL.into_iter().find(|group| group.name() == name);
        let found: Vec<u32> = match named(scope, name) {
            Ok(id) => vec![id],
            Err(_) if name == "all" => of_scope(scope).map(|(id, _)| id).collect(),
            Err(error) => {
                let is_in_group = |row: &Row| matches!(row.of, Of::Task(field) if Some(field.group()) == group);
                let found = of_scope(scope).filter(|(_, row)| is_in_group(row));
                let found: Vec<u32> = found.map(|(id, _)| id).collect();
                if found.is_empty() {
                    return Err(error);
                }
                found
            }
        };
        let new: Vec<u32> = found.into_iter().filter(|id| !ids.contains(id)).collect();
        ids.extend(new);
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every field of the library has one id, and its name.
    #[test]
    fn all_fields_have_an_id() {
        for &field in Field::ALL {
            let id = named(Scope::Threads, field.name()).expect("it has an id");
            assert_eq!(row(id).expect("it has a row").of, Of::Task(field));
        }
        let tasks = TASKS.iter().flatten().count();
        assert_eq!(tasks, Field::ALL.len());
        for &field in SocketField::ALL {
            let rows = of_scope(Scope::Sockets).filter(|(_, row)| match row.of {
                Of::Task(_) => false,
                Of::Socket(other) | Of::Descriptors(other, _) => other == field,
            });
            let expected = if matches!(field, SocketField::Owners | SocketField::Peers) {
                3
            } else {
                1
            };
            assert_eq!(rows.count(), expected, "{field}");
        }
    }

    /// Check that ids are found one after the other, and that others have no field.
    #[test]
    fn ids_follow_each_other() {
        let ids: Vec<u32> = std::iter::successors(Some(next(0)), |&id| Some(next(id)))
            .take_while(|&id| id != 0)
            .collect();
        let rows = TASKS.iter().chain(SOCKETS).flatten().count();
        assert_eq!(ids.len(), rows);
        assert!(ids.iter().all(|&id| row(id).is_some()));
        for id in [0, TASKS.len() as u32 + 1, FIRST_OF_SOCKETS - 1, u32::MAX] {
            assert!(row(id).is_none(), "{id}");
            assert!(!is_in(Scope::Processes, id) && !is_in(Scope::Sockets, id));
        }
        assert_eq!(next(u32::MAX), 0);
    }

    /// Check that names of fields and groups are found, and others refused with near ones.
    #[test]
    fn names_are_fields_and_groups() {
        let names = |names: &str| -> Result<Vec<&str>> {
            let ids = parse(Scope::Processes, names)?;
            Ok(ids.iter().filter_map(|&id| row(id)?.name.to_str().ok()).collect())
        };
        assert_eq!(names("pid, comm,pid").expect("they are names"), ["pid", "comm"]);
        assert_eq!(
            names("paths,exe").expect("it is a group"),
            ["exe", "cwd", "root", "umask"]
        );
        assert_eq!(names("all").expect("all").len(), Field::ALL.len());
        let error = names("pid,rss").expect_err("rss is no field");
        assert!(error.message.to_string_lossy().contains("rss_bytes"), "{error:?}");
        assert!(names("").is_err() && names("pid,").is_err() && names("local_port").is_err());
        assert!(parse(Scope::Sockets, "local_port,owner_pids").is_ok());
        assert!(parse(Scope::Sockets, "pss_bytes").is_err() && parse(Scope::Sockets, "paths").is_err());
    }
}
