//! Rows of open files.

use taskdiag::files::{FileField, Row as FileRow, Use};
use taskdiag::{Absent, Value};

use super::detail;
use crate::output::cell::{formatted, Cells};
use crate::output::listing::{CompositeCell, ListingColumn};
use crate::output::relation::{columns_of, Cell, ColumnInfo, Row};
use crate::output::table::Align;

/// The columns of a row: [`FileField::ALL`].
pub const RELATION: [ColumnInfo; FileField::ALL.len()] = columns_of!(FileField::ALL);

// The indexes of columns in tables.
pub const PID: usize = FileField::Pid as usize;
pub const COMM: usize = FileField::Comm as usize;
const USE: usize = FileField::Use as usize;
const FD: usize = FileField::Fd as usize;
const KIND: usize = FileField::Kind as usize;
const ANON_KIND: usize = FileField::AnonKind as usize;
pub const ACCESS: usize = FileField::Access as usize;
pub const SIZE: usize = FileField::SizeBytes as usize;
pub const ALLOCATED: usize = FileField::AllocatedBytes as usize;
const MAJOR: usize = FileField::DevMajor as usize;
const MINOR: usize = FileField::DevMinor as usize;
pub const INODE: usize = FileField::Inode as usize;
const DETAIL: usize = FileField::Detail as usize;
const TID: usize = FileField::Tid as usize;
pub const NAME: usize = FileField::Name as usize;

impl Row for FileRow<'_> {
    fn cell(&self, column: usize) -> Cell<'_> {
        // Without a reason, the value does not apply: it is not a descriptor, or not a kernel
        // object.
        self.value(FileField::ALL[column]).map_err(Absent::as_str)
    }
}

/// The column of a table for a column that `-o` names.
pub fn shown(column: usize) -> ListingColumn {
    match column {
        DETAIL => ListingColumn::made(RELATION[DETAIL].name, &DETAIL_WORDS),
        column => ListingColumn::column(RELATION[column].name, column),
    }
}

/// Appends the cell of a column.
fn write(out: &mut Vec<u8>, row: &dyn Row, column: usize, cells: &mut Cells) {
    cells.cell(out, &RELATION[column], row.cell(column));
}

/// The descriptor number, or the use; after the thread, if it is only that thread's.
pub static FD_OR_USE: CompositeCell = CompositeCell {
    align: Align::Right,
    needs: &[USE, FD, TID],
    write: |out, row, cells| {
        if row.cell(TID).is_ok() {
            write(out, row, TID, cells);
            out.push(b'/');
        }
        let is_fd = row.cell(USE) == Ok(Value::Text(Use::Fd.name().as_bytes()));
        write(out, row, if is_fd { FD } else { USE }, cells);
    },
};

/// The kind; for a kernel object, which one.
pub static OBJECT_OR_KIND: CompositeCell = CompositeCell {
    align: Align::Left,
    needs: &[KIND, ANON_KIND],
    write: |out, row, cells| {
        let is_named = !matches!(row.cell(ANON_KIND), Ok(Value::Text(b"other")) | Err(_));
        write(out, row, if is_named { ANON_KIND } else { KIND }, cells);
    },
};

/// Both numbers of the device.
pub static DEVICE: CompositeCell = CompositeCell {
    align: Align::Right,
    needs: &[MAJOR, MINOR],
    write: |out, row, _| match (row.cell(MAJOR), row.cell(MINOR)) {
        (Ok(major), Ok(minor)) => formatted(out, format_args!("{major}:{minor}")),
        _ => out.push(b'-'),
    },
};

/// What there is to say about a kernel object, in words.
static DETAIL_WORDS: CompositeCell = CompositeCell {
    align: Align::Left,
    needs: &[DETAIL],
    write: |out, row, cells| match row.cell(DETAIL) {
        Ok(Value::Text(lines)) => {
            let words = detail::words(lines);
            let text = words.as_deref().map_or(lines, str::as_bytes);
            cells.value(out, &RELATION[DETAIL], Value::Text(text));
        }
        other => cells.cell(out, &RELATION[DETAIL], other),
    },
};
