//! Relations: what the rows of all listings have in common.
//!
//! A relation is a table of columns. A row has a value in each column, or a word that says why not.

use taskdiag::{Absent, Event, EventField, Field, Group, Kind, Task, Value};

use super::names::NameKind;

/// Fields, or others of an enumeration, by their names alone.
macro_rules! list_of {
    ($all:ident: $($name:ident),* $(,)?) => {
        [$($all::$name),*]
    };
}
pub(crate) use list_of;

/// What is known about a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnInfo {
    /// The key in JSON, the heading in CSV and with `-o`, the name for `-o` and `--sort`.
    pub name: &'static str,
    /// The kind of the values.
    pub kind: Kind,
    /// Their meaning.
    pub meaning: &'static str,
    /// What stands for an empty text in tables.
    pub empty: &'static str,
}

/// What tables show for a task without a unit, a container, a terminal. ps' own columns have a dash.
pub const IN_NONE: &str = "(none)";

pub const fn column(name: &'static str, kind: Kind, meaning: &'static str) -> ColumnInfo {
    ColumnInfo {
        name,
        kind,
        meaning,
        empty: "\"\"",
    }
}

/// Columns, a line for each: its name, the kind of its values, and their meaning.
macro_rules! columns {
    ($($name:literal: $kind:ident, $meaning:literal;)*) => {
        [$($crate::output::relation::column($name, taskdiag::Kind::$kind, $meaning)),*]
    };
}
pub(crate) use columns;

/// The columns of rows whose fields are in a table of the library.
macro_rules! columns_of {
    ($fields:expr) => {{
        let mut columns = [$crate::output::relation::column("", $fields[0].kind(), ""); $fields.len()];
        let mut index = 0;
        while index < columns.len() {
            let field = $fields[index];
            columns[index] = $crate::output::relation::column(field.name(), field.kind(), field.meaning());
            index += 1;
        }
        columns
    }};
}
pub(crate) use columns_of;

impl ColumnInfo {
    pub fn of_task(field: Field) -> ColumnInfo {
        let info = field.info();
        ColumnInfo {
            // A derived field has an empty text for a task without a terminal, unit or container.
            empty: if field.group() == Group::Derived {
                IN_NONE
            } else {
                "\"\""
            },
            ..column(field.name(), info.kind, info.meaning)
        }
    }

    /// The kind of names that the values have, if they have names.
    pub fn names(&self) -> Option<NameKind> {
        match self.kind {
            Kind::User => Some(NameKind::User),
            Kind::GroupId => Some(NameKind::Group),
            Kind::Capabilities => Some(NameKind::Capabilities),
            Kind::Signals => Some(NameKind::Signals),
            _ if self.name == Field::Groups.name() => Some(NameKind::Groups),
            _ => None,
        }
    }

    /// The name of the column for these names.
    pub fn names_column(&self) -> Option<String> {
        let suffix = match self.names()? {
            NameKind::User | NameKind::Group => "name",
            NameKind::Groups | NameKind::Capabilities | NameKind::Signals => "names",
        };
        Some(format!("{}_{suffix}", self.name))
    }
}

/// A value of a row, or a word that says why it is missing.
pub type Cell<'a> = Result<Value<'a>, &'static str>;

/// The word for a value that does not apply to a row.
pub const NONE: &str = "none";

/// A text. An empty one does not apply to the row.
pub fn text_or_none(text: &str) -> Cell<'_> {
    match text {
        "" => Err(NONE),
        text => Ok(Value::Text(text.as_bytes())),
    }
}

/// A row of a relation.
pub trait Row {
    /// The value in a column, by the column's index in the relation.
    fn cell(&self, column: usize) -> Cell<'_>;
}

impl Row for Task<'_> {
    #[inline]
    fn cell(&self, column: usize) -> Cell<'_> {
        self.value(Field::ALL[column]).map_err(Absent::as_str)
    }
}

impl Row for Event<'_> {
    fn cell(&self, column: usize) -> Cell<'_> {
        self.value(EventField::ALL[column]).map_err(Absent::as_str)
    }
}

/// The cells of all columns.
impl Row for &[Cell<'_>] {
    fn cell(&self, column: usize) -> Cell<'_> {
        self[column]
    }
}

/// Counts missing values by column and reason, if it is one of [`Absent::REMOVABLE`], while rows are
/// written.
#[derive(Clone, Debug, Default)]
pub struct Absences {
    counts: Vec<[u32; Absent::REMOVABLE.len()]>,
}

impl Absences {
    /// The value in a column. Counts a missing value.
    #[inline]
    pub fn value<'a, R: Row + ?Sized>(&mut self, row: &'a R, column: usize) -> Cell<'a> {
        let cell = row.cell(column);
        if let Err(reason) = cell {
            self.count(column, reason);
        }
        cell
    }

    /// Counts a missing value.
    #[cold]
    pub fn count(&mut self, column: usize, reason: &'static str) {
        if let Some(index) = Absent::REMOVABLE
            .iter()
            .position(|reported| reported.as_str() == reason)
        {
            if self.counts.len() <= column {
                self.counts.resize(column + 1, [0; Absent::REMOVABLE.len()]);
            }
            self.counts[column][index] += 1;
        }
    }

    /// The counts, except for some fields of tasks.
    pub fn without(mut self, fields: &[Field]) -> Absences {
        for field in fields {
            if let Some(counts) = self.counts.get_mut(*field as usize) {
                *counts = [0; Absent::REMOVABLE.len()];
            }
        }
        self
    }

    /// Columns that are missing for the same reason in the same number of rows, with that reason
    /// and number.
    pub fn summary(&self) -> Vec<(Vec<usize>, Absent, u32)> {
        let mut summary: Vec<(Vec<usize>, Absent, u32)> = Vec::new();
        for (column, counts) in self.counts.iter().enumerate() {
            for (reason, &count) in Absent::REMOVABLE.into_iter().zip(counts) {
                if count == 0 {
                    continue;
                }
                match summary.iter_mut().find(|entry| (entry.1, entry.2) == (reason, count)) {
                    Some((columns, ..)) => columns.push(column),
                    None => summary.push((vec![column], reason, count)),
                }
            }
        }
        summary
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A task with values from a test.
    pub struct TestRow<'a>(pub Vec<(Field, Result<Value<'a>, Absent>)>);

    impl Row for TestRow<'_> {
        fn cell(&self, column: usize) -> Cell<'_> {
            let found = self.0.iter().find(|(has, _)| *has as usize == column);
            let value = found.map_or(Err(Absent::NotAsked), |(_, value)| *value);
            value.map_err(Absent::as_str)
        }
    }

    /// Check that a summary has only reasons that are reported, and joins fields with the same
    /// reason and number.
    #[test]
    fn absences_are_summarised_by_reason_and_count() {
        let mut absences = Absences::default();
        let row = TestRow(vec![
            (Field::NsNet, Err(Absent::Denied)),
            (Field::NsMnt, Err(Absent::Denied)),
            (Field::Cmdline, Err(Absent::NoMemory)),
            (Field::Pid, Ok(Value::Unsigned(1))),
        ]);
        for field in [Field::NsNet, Field::NsMnt, Field::Cmdline, Field::Pid] {
            let _ = absences.value(&row, field as usize);
        }
        assert_eq!(
            absences.summary(),
            [(vec![Field::NsMnt as usize, Field::NsNet as usize], Absent::Denied, 1)]
        );
    }

    /// Check the columns of names, and that none of them has the name of a field.
    #[test]
    fn names_have_columns() {
        let names = |field| ColumnInfo::of_task(field).names_column();
        assert_eq!(names(Field::Uid).as_deref(), Some("uid_name"));
        assert_eq!(names(Field::SigCaught).as_deref(), Some("sig_caught_names"));
        assert_eq!(names(Field::Groups).as_deref(), Some("groups_names"));
        assert_eq!(names(Field::Pid), None);
        for name in Field::ALL.iter().filter_map(|&field| names(field)) {
            assert!(name.parse::<Field>().is_err(), "{name}");
        }
    }
}
