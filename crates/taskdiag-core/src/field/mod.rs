//! The field table: every value that taskdiag knows, in one place.
//!
//! One row of `table` makes a field: its name everywhere (columns, JSON keys, sorting), its group,
//! its meaning, its place in `/proc`, and how to read it from a record. Rows of derived fields
//! instead name the fields they are made of; [`crate::derived`] computes their values. The rows
//! make the variants of [`Field`] and the methods of [`Task`](crate::snapshot::Task).

mod files;
mod group;
mod kind;
mod near;
mod place;
mod rows;
mod set;
mod table;
mod usual;

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};
use crate::filter::or_near;

pub use files::{files_for, files_of, Files};
pub use group::{Group, Groups};
pub use kind::Kind;
pub use near::near;
pub(crate) use near::shortened;
pub(crate) use place::origin;
pub use place::{Member, Place, RecordPlace};
pub use set::{has_group, with_made_of, Fields};
pub(crate) use table::{with_rows, TABLE};
pub use table::{Field, Info};
pub use usual::{named, MEMORY_FIELDS, PROCESS_FIELDS, THREAD_FIELDS, TREE_FIELDS};

pub use crate::value::Mask;

impl Field {
    /// The name.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// The group.
    pub fn group(self) -> Group {
        self.info().group
    }
}

/// For the other crates of this project.
#[doc(hidden)]
impl Field {
    /// Whether only tasks with an address space have a value.
    pub fn needs_memory(self) -> bool {
        self.group().needs_memory() && self != Field::Personality
    }

    /// Whether the value is of something that the threads of a process share, and that a thread
    /// loses when it ends: memory, files, and namespaces.
    pub fn is_shared_by_threads(self) -> bool {
        let is_shared = match self.group() {
            Group::Namespaces => self != Field::Nspids,
            group => matches!(group, Group::Paths | Group::Fds),
        };
        is_shared || self.needs_memory()
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no field has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownField {
    /// The unknown name.
    pub name: String,
    /// Similar names, the nearest first.
    pub near: Vec<&'static str>,
}

impl UnknownField {
    /// The error for a name that is not in `known`.
    #[doc(hidden)]
    pub fn new(name: &str, known: impl Iterator<Item = &'static str>) -> UnknownField {
        UnknownField {
            name: name.to_owned(),
            near: near(name, known),
        }
    }
}

impl fmt::Display for UnknownField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown field {:?}{}", shortened(&self.name), or_near(&self.near))
    }
}

impl std::error::Error for UnknownField {}

impl From<UnknownField> for Error {
    fn from(error: UnknownField) -> Error {
        Error::new(ErrorKind::InvalidInput, "not a field").caused_by(error)
    }
}

impl FromStr for Field {
    type Err = UnknownField;

    fn from_str(name: &str) -> Result<Field, UnknownField> {
        let found = Field::ALL.iter().find(|field| field.name() == name);
        found
            .copied()
            .ok_or_else(|| UnknownField::new(name, Field::ALL.iter().map(|field| field.name())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names are unique and lead back to their fields.
    #[test]
    fn names_lead_to_their_fields() {
        for &field in Field::ALL {
            assert_eq!(field.name().parse(), Ok(field));
        }
        assert!(Field::ALL.len() <= 256);
    }

    /// Check that a misspelt or shortened name finds the right one.
    #[test]
    fn unknown_names_find_near_ones() {
        for (wrong, right) in [
            ("rss", "rss_bytes"),
            ("cmd_line", "cmdline"),
            ("pidd", "pid"),
            ("UID", "uid"),
        ] {
            let error = wrong.parse::<Field>().unwrap_err();
            assert_eq!(error.near[0], right, "{error}");
        }
        assert!("zzzzzzzz".parse::<Field>().unwrap_err().near.is_empty());
    }
}
