//! Rows of open files.

use taskdiag::files::{FileField, OpenFile, Row, Use};
use taskdiag::{Absent, Task, Value};

use crate::output::named::{self, keys_of, sorted_by, RowKey};
use crate::output::Cell;

/// The keys of a row: [`FileField::ALL`].
pub const KEYS: [RowKey; FileField::ALL.len()] = keys_of!(FileField);

// The indexes of keys in tables.
pub const PID: usize = FileField::Pid as usize;
pub const COMM: usize = FileField::Comm as usize;
pub const USE: usize = FileField::Use as usize;
pub const FD: usize = FileField::Fd as usize;
pub const KIND: usize = FileField::Kind as usize;
pub const ANON_KIND: usize = FileField::AnonKind as usize;
pub const ACCESS: usize = FileField::Access as usize;
pub const SIZE: usize = FileField::SizeBytes as usize;
pub const ALLOCATED: usize = FileField::AllocatedBytes as usize;
pub const MAJOR: usize = FileField::DevMajor as usize;
pub const MINOR: usize = FileField::DevMinor as usize;
pub const INODE: usize = FileField::Inode as usize;
pub const DETAIL: usize = FileField::Detail as usize;
pub const TID: usize = FileField::Tid as usize;
pub const NAME: usize = FileField::Name as usize;

/// The values of a row, one for each of [`KEYS`].
pub type Cells<'a> = [Cell<'a>; KEYS.len()];

/// The values for a file of a process.
pub fn cells<'a>(task: &Task<'a>, file: &OpenFile<'a>) -> Cells<'a> {
    let row = Row::new(task, file);
    std::array::from_fn(|key| {
        let found = row.value(FileField::ALL[key]).map_err(Absent::as_str)?;
        // Without a reason, the value does not apply: it is not a descriptor, or not a kernel
        // object.
        found.ok_or("none")
    })
}

/// The values of a row kept for sorting.
pub struct OwnedCells(Vec<Result<named::OwnedValue, &'static str>>);

impl OwnedCells {
    /// Copies a row.
    pub fn new(cells: &Cells<'_>) -> OwnedCells {
        OwnedCells(cells.iter().map(|cell| cell.map(named::OwnedValue::new)).collect())
    }

    /// The value to compare for one of [`KEYS`].
    pub fn compared(&self, key: usize) -> Cell<'_> {
        sorted_by(self.cell(key)?)
    }

    fn cell(&self, key: usize) -> Cell<'_> {
        let kept = self.0[key].as_ref();
        kept.map(named::OwnedValue::value).map_err(|reason| *reason)
    }

    /// All values.
    pub fn cells(&self) -> Cells<'_> {
        std::array::from_fn(|key| self.cell(key))
    }
}

/// The column that shows how a file is used: the descriptor number, or the use.
pub fn fd_or_use<'a>(cells: &Cells<'a>) -> Cell<'a> {
    let is_fd = cells[USE] == Ok(Value::Text(Use::Fd.name().as_bytes()));
    if is_fd {
        cells[FD]
    } else {
        cells[USE]
    }
}

/// The column that shows what a file is: the kernel object, if it is one.
pub fn object_or_kind<'a>(cells: &Cells<'a>) -> Cell<'a> {
    match cells[ANON_KIND] {
        Ok(Value::Text(b"other")) | Err(_) => cells[KIND],
        anon => anon,
    }
}
