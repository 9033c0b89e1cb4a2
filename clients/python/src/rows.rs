//! Tables whose rows are not tasks: the names and kinds of their columns, and how to fill them.

use std::ops::ControlFlow;

use taskdiag::{is_interrupted, Kind, Value};
use taskdiag_core::column::{Column as Memory, Reason, Type};

use crate::column::{type_of, Column};
use crate::errors;
use crate::table::{About, Table};
use pyo3::prelude::*;

/// A possible column.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The name, as in the command's JSON.
    pub name: &'static str,
    /// The kind of the values.
    pub kind: Kind,
    /// The type of the values in memory.
    pub of: Type,
}

/// A possible column.
pub const fn key(name: &'static str, kind: Kind) -> Key {
    Key {
        name,
        kind,
        of: type_of(kind),
    }
}

/// A possible column of lists of descriptors.
pub const fn descriptors(name: &'static str) -> Key {
    Key {
        of: Type::Owners,
        ..key(name, Kind::Texts)
    }
}

/// Makes the keys from a field table of the library. Some are lists of descriptors.
macro_rules! keys {
    ($fields:ident $(: $($list:ident)|+)?) => {{
        let mut keys = [$crate::rows::key("", $fields::ALL[0].kind()); $fields::ALL.len()];
        let mut index = 0;
        while index < keys.len() {
            let field = $fields::ALL[index];
            keys[index] = match field {
                $($($fields::$list)|+ => $crate::rows::descriptors(field.name()),)?
                _ => $crate::rows::key(field.name(), field.kind()),
            };
            index += 1;
        }
        keys
    }};
}
pub(crate) use keys;

/// A value of a row, or the reason for its absence.
pub type Cell<'a> = Result<Value<'a>, Reason>;

/// A table under construction, with some of the possible columns.
#[derive(Debug)]
pub struct Rows {
    chosen: Vec<usize>,
    columns: Vec<Column>,
    len: usize,
}

impl Rows {
    /// An empty table with these columns.
    pub fn new(keys: &[Key], chosen: &[usize]) -> Rows {
        let column = |Key { name, kind, of }| Column::new(name, kind, of, 0);
        Rows {
            columns: chosen.iter().map(|&index| keys[index]).map(column).collect(),
            chosen: chosen.to_vec(),
            len: 0,
        }
    }

    /// Appends a row with the value of each chosen column.
    pub fn push<'a>(&mut self, cell: impl Fn(usize) -> Cell<'a>) {
        self.push_with(|column, index| column.push(cell(index)));
    }

    /// Appends a row: `put` appends the value of each chosen column to its builder.
    pub fn push_with(&mut self, put: impl Fn(&mut Memory<i32>, usize)) {
        for (column, &index) in self.columns.iter_mut().zip(&self.chosen) {
            put(&mut column.memory, index);
        }
        self.len += 1;
    }

    /// Whether to continue: Ctrl-C ends a long list.
    pub fn goes_on(&self) -> ControlFlow<()> {
        const ROWS: usize = 256;
        if self.len % ROWS == 0 && is_interrupted() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// Completes the table.
    pub fn finish(self, about: About) -> Table {
        let columns = self.columns.into_iter().map(Column::finish);
        Table::new(columns.collect(), self.len, about)
    }
}

/// Parses names of columns: those of `usual` without any name, all for `all`.
///
/// # Errors
///
/// `UnknownField` if a name is unknown.
pub fn chosen(names: Option<&Bound<'_, PyAny>>, keys: &[Key], usual: &[usize]) -> PyResult<Vec<usize>> {
    let Some(names) = names else {
        return Ok(usual.to_vec());
    };
    let mut chosen = Vec::new();
    for name in crate::query::names(names)? {
        let found: Vec<usize> = match name.as_str() {
            "all" => (0..keys.len()).collect(),
            name => keys.iter().position(|key| key.name == name).into_iter().collect(),
        };
        if found.is_empty() {
            return Err(errors::no_column(&name, keys.iter().map(|key| key.name)));
        }
        let is_new: Vec<usize> = found.into_iter().filter(|index| !chosen.contains(index)).collect();
        chosen.extend(is_new);
    }
    if chosen.is_empty() {
        return Err(errors::invalid("fields: name at least one"));
    }
    Ok(chosen)
}
