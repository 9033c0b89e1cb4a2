//! Fields by their ids in C, which never change. `fields_gen` has the ids.

use taskdiag::{Field, Group, Kind};
use taskdiag_core::named_enum;

use crate::error::{Error, Result};
use crate::fields_gen::TABLES;
use crate::row::{FieldRef, Row};

/// The number of ids reserved for each table of fields: those of tasks begin at 1, those of sockets
/// here.
pub const TABLE: u32 = 4096;

named_enum! {
    /// What rows are about: `td_scope`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Scope {
        Processes => "processes",
        Threads => "threads",
        Sockets => "sockets",
        Files => "open files",
        Maps => "mappings",
        Cache => "cached files",
        Events => "events",
    }
    const ALL;
    /// What its rows are.
    pub fn rows;
}

impl Scope {
    /// The scope with this number.
    ///
    /// # Errors
    ///
    /// If there is no such scope.
    pub fn of(number: u32) -> Result<Scope> {
        let found = Scope::ALL.into_iter().zip(1..).find(|(_, known)| *known == number);
        let (scope, _) = found.ok_or_else(|| Error::invalid(format!("{number} is not a td_scope")))?;
        Ok(scope)
    }

    /// The index of its table of fields.
    fn table(self) -> u32 {
        match self {
            Scope::Processes | Scope::Threads => 0,
            Scope::Sockets => 1,
            Scope::Files => 2,
            Scope::Maps => 3,
            Scope::Cache => 4,
            Scope::Events => 5,
        }
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

/// The field with an id. `None` if it never existed, or exists no more.
pub fn row(id: u32) -> Option<&'static Row> {
    let table = TABLES.get((id / TABLE) as usize)?;
    table.get(place(id))?.as_ref()
}

/// The index of an id in its table.
pub fn place(id: u32) -> usize {
    (id % TABLE) as usize
}

/// The ids and fields of a table.
fn of_table(table: u32) -> impl Iterator<Item = (u32, &'static Row)> {
    let rows = TABLES.get(table as usize).copied().unwrap_or_default();
    let first = table * TABLE;
    (first..).zip(rows).filter_map(|(id, row)| Some((id, row.as_ref()?)))
}

/// The id after `id`. The first one for 0, and 0 after the last.
pub fn next(id: u32) -> u32 {
    let mut all = (0..TABLES.len() as u32).flat_map(of_table);
    all.find(|(other, _)| *other > id).map_or(0, |(id, _)| id)
}

/// The ids and fields of a scope.
fn of_scope(scope: Scope) -> impl Iterator<Item = (u32, &'static Row)> {
    of_table(scope.table())
}

/// Whether rows of this scope have the field.
pub fn is_in(scope: Scope, id: u32) -> bool {
    row(id).is_some() && id / TABLE == scope.table()
}

/// The id of the field with this name.
///
/// # Errors
///
/// If there is none; the error suggests similar names.
pub fn named(scope: Scope, name: &str) -> Result<u32> {
    if let Some((id, _)) = of_scope(scope).find(|(_, row)| row.name.to_bytes() == name.as_bytes()) {
        return Ok(id);
    }
    if scope.table() != 0 {
        let names = of_scope(scope).map(|(_, row)| row.name.to_string_lossy());
        let names = names.collect::<Vec<_>>().join(", ");
        let message = format!("{} have no field {name:?}; they have {names}", scope.rows());
        return Err(Error::invalid(message));
    }
    Err(match name.parse::<Field>() {
        Err(error) => error.into(),
        Ok(field) => Error::invalid(format!("this library does not have the field {field}")),
    })
}

/// Parses names of fields, names of groups, or `all`, separated by commas. Returns each id once. A
/// field takes precedence over a group of the same name.
///
/// # Errors
///
/// If a name is unknown, or there is none.
pub fn parse(scope: Scope, names: &str) -> Result<Vec<u32>> {
    let mut ids = Vec::new();
    for name in names.split(',').map(str::trim) {
        let group = Group::ALL.into_iter().find(|group| group.name() == name);
        let found: Vec<u32> = match named(scope, name) {
            Ok(id) => vec![id],
            Err(_) if name == "all" => of_scope(scope).map(|(id, _)| id).collect(),
            Err(error) => {
                let is_in_group = |row: &Row| matches!(row.of, FieldRef::Task(field) if Some(field.group()) == group);
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
    use taskdiag::files::FileField;
    use taskdiag::maps::MapField;
    use taskdiag::pagecache::Quantity;
    use taskdiag::sockets::SocketField;
    use taskdiag::EventField;

    use super::*;

    /// How many ids stand for a field of the library, and how many of them for a part of one.
    fn count(scope: Scope, of: FieldRef) -> (usize, usize) {
        let rows = || of_scope(scope).filter(|(_, row)| row.of == of);
        (rows().count(), rows().filter(|(_, row)| row.part.is_some()).count())
    }

    /// Check that every field of the library has one id under its name, and lists of descriptors
    /// three.
    #[test]
    fn all_fields_have_an_id() {
        for &field in Field::ALL {
            let id = named(Scope::Threads, field.name()).expect("it has an id");
            assert_eq!(row(id).expect("it has a row").of, FieldRef::Task(field));
            assert_eq!(count(Scope::Threads, FieldRef::Task(field)), (1, 0));
        }
        for &field in SocketField::ALL {
            let is_list = matches!(field, SocketField::Owners | SocketField::Peers);
            let expected = if is_list { (3, 3) } else { (1, 0) };
            assert_eq!(count(Scope::Sockets, FieldRef::Socket(field)), expected, "{field}");
        }
        for &field in FileField::ALL {
            let expected = if field == FileField::Peers { (3, 3) } else { (1, 0) };
            assert_eq!(count(Scope::Files, FieldRef::File(field)), expected, "{field}");
        }
        for &field in MapField::ALL {
            assert_eq!(count(Scope::Maps, FieldRef::Map(field)), (1, 0), "{field}");
        }
        for quantity in Quantity::ALL {
            let row = of_scope(Scope::Cache).find(|(_, row)| row.of == FieldRef::Cache(Some(quantity)));
            assert_eq!(row.expect("it has an id").1.name.to_str(), Ok(quantity.name()));
        }
        for &field in EventField::ALL {
            let id = named(Scope::Events, field.name()).expect("it has an id");
            assert_eq!(row(id).expect("it has a row").of, FieldRef::Event(field));
        }
    }

    /// Check that iteration finds all ids, and that other ids have no field.
    #[test]
    fn ids_follow_each_other() {
        let ids: Vec<u32> = std::iter::successors(Some(next(0)), |&id| Some(next(id)))
            .take_while(|&id| id != 0)
            .collect();
        let rows = TABLES.iter().copied().flatten().flatten().count();
        assert_eq!(ids.len(), rows);
        assert!(ids.iter().all(|&id| row(id).is_some()));
        for id in [0, TABLES[0].len() as u32, TABLE - 1, u32::MAX] {
            assert!(row(id).is_none(), "{id}");
            assert!(Scope::ALL.iter().all(|&scope| !is_in(scope, id)));
        }
        assert_eq!(next(u32::MAX), 0);
        for (scope, number) in Scope::ALL.into_iter().zip(1..) {
            assert_eq!(Scope::of(number).expect("it is a scope"), scope);
            assert!(of_scope(scope).all(|(id, _)| is_in(scope, id)));
        }
        assert!(Scope::of(0).is_err() && Scope::of(Scope::ALL.len() as u32 + 1).is_err());
    }

    /// Check that names of fields and groups are found, and others refused with suggestions.
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
        let error = names("pid,rss").expect_err("rss is not a field");
        assert!(error.message.to_string_lossy().contains("rss_bytes"), "{error:?}");
        assert!(names("").is_err() && names("pid,").is_err() && names("local_port").is_err());
        assert!(parse(Scope::Sockets, "local_port,owner_pids").is_ok());
        assert!(parse(Scope::Sockets, "pss_bytes").is_err() && parse(Scope::Sockets, "paths").is_err());
        let error = parse(Scope::Files, "path").expect_err("it is not a field");
        assert!(error.message.to_string_lossy().contains("open files have no field"));
    }
}
