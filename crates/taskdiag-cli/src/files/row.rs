//! Rows of open files.

use taskdiag::files::{FileField, OpenFile, Row, Use};
use taskdiag::{Absent, Task, Value};

use crate::output::descriptors::{self, Item, Shown};
use crate::output::named::{keys_of, Cell, RowKey};

/// What rows have: [`FileField::ALL`].
pub const KEYS: [RowKey; FileField::ALL.len()] = keys_of!(FileField);

// The indexes of the keys that tables have.
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
pub const NAME: usize = FileField::Name as usize;

/// The values of a row, each under one of [`KEYS`].
pub type Cells<'a> = [Item<'a>; KEYS.len()];

/// The values of a file of a process.
pub fn cells<'a>(task: &Task<'a>, file: &OpenFile<'a>) -> Cells<'a> {
    let row = Row::new(task, file);
    std::array::from_fn(|key| {
        let field = FileField::ALL[key];
        let found = match row.descriptors(field) {
            Some(descriptors) => descriptors.map(|owners| owners.map(Shown::Descriptors)),
            None => row.value(field).map(|value| value.map(Shown::Plain)),
        };
        // Without a reason: it is no descriptor, or no object of the kernel.
        found.map_err(Absent::as_str)?.ok_or("none")
    })
}

/// The values of a row that is kept, to be sorted.
pub struct Kept(Vec<Result<descriptors::Kept, &'static str>>);

impl Kept {
    /// Keeps a row.
    pub fn new(cells: &Cells<'_>) -> Kept {
        Kept(cells.iter().map(|cell| cell.map(descriptors::Kept::new)).collect())
    }

    /// What is compared under one of [`KEYS`].
    pub fn compared(&self, key: usize) -> Cell<'_> {
        self.item(key)?.compared()
    }

    fn item(&self, key: usize) -> Item<'_> {
        let kept = self.0[key].as_ref();
        kept.map(descriptors::Kept::shown).map_err(|reason| *reason)
    }

    /// All values.
    pub fn cells(&self) -> Cells<'_> {
        std::array::from_fn(|key| self.item(key))
    }
}

/// The column that says what a file is used for: the number of the descriptor, or the use.
pub fn fd_or_use<'a>(cells: &Cells<'a>) -> Item<'a> {
    let is_fd = cells[USE] == Ok(Shown::Plain(Value::Text(Use::Fd.name().as_bytes())));
    if is_fd {
        cells[FD]
    } else {
        cells[USE]
    }
}

/// The column that says what a file is: the object of the kernel, if it is one.
pub fn object_or_kind<'a>(cells: &Cells<'a>) -> Item<'a> {
    match cells[ANON_KIND] {
        Ok(Shown::Plain(Value::Text(b"other"))) | Err(_) => cells[KIND],
        anon => anon,
    }
}
