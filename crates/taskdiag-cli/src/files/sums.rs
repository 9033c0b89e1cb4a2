//! Sums of files: by what their processes have in common or by path, and of deleted files.

use std::collections::{HashMap, HashSet};

use taskdiag::files::{Device, FileField, OpenFile, Row};
use taskdiag::{Absent, Known, Task, Value};

use super::RELATION;
use crate::grouping::{self, sum_columns, Grouping, GroupingChoice, Name};
use crate::output::relation::ColumnInfo;

const fn of(field: FileField) -> ColumnInfo {
    RELATION[field as usize]
}

static PATH: Grouping = Grouping::own("NAME", &[of(FileField::Name)]);
static KIND: Grouping = Grouping::own("KIND", &[of(FileField::Kind)]);
static ANON_KIND: Grouping = Grouping::own("ANON-KIND", &[of(FileField::AnonKind)]);
static ACCESS: Grouping = Grouping::own("ACCESS", &[of(FileField::Access)]);

/// What files are added up by that is not of a process.
pub const OWN: [GroupingChoice; 4] = [
    ("path", &PATH, "Name of the file"),
    ("kind", &KIND, "Kind of file"),
    ("anon_kind", &ANON_KIND, "Kind of object, of files without a place"),
    ("access", &ACCESS, "Whether it is open for reading or writing"),
];

/// The field of a group that is not of a process.
pub fn field_of(by: &Grouping) -> Option<FileField> {
    let field = FileField::ALL.iter().find(|field| field.name() == by.name);
    field.copied().filter(|_| !by.is_of_process())
}

/// The group of a file that is not of a process.
pub fn own_name(by: &Grouping, row: &Row<'_>) -> Name {
    match field_of(by).map_or(Err(Absent::Unsupported), |field| row.value(field)) {
        Ok(Value::Text(name)) => Name::Text(name.to_vec()),
        value => Name::None(value.err().unwrap_or(Absent::NotApplicable).as_str()),
    }
}

/// A sum of files.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    /// The number of descriptors and other uses.
    opens: u64,
    processes: HashSet<u32>,
    /// Each file once, no matter how often it is open.
    files: HashSet<(Device, u64)>,
    /// The space that each deleted file holds. One process may show it where another does not.
    deleted: HashMap<(Device, u64), Known<u64>>,
    /// The number of uses of files whose device and inode number are unknown. Only `opens` and
    /// `processes` include them.
    pub unknown: u64,
}

impl Sum {
    /// Adds a file.
    pub fn add(&mut self, task: &Task<'_>, file: &OpenFile<'_>) {
        self.opens += 1;
        if let Ok(pid) = task.pid() {
            self.processes.insert(pid);
        }
        let (Ok(device), Ok(inode)) = (file.device, file.inode) else {
            self.unknown += 1;
            return;
        };
        self.files.insert((device, inode));
        if file.is_deleted() == Ok(true) {
            let space = self.deleted.entry((device, inode)).or_insert(file.allocated_bytes);
            *space = space.or(file.allocated_bytes);
        }
    }

    /// The numbers of opens, processes, files and deleted files.
    pub fn counts(&self) -> [u64; 4] {
        [
            self.opens,
            self.processes.len() as u64,
            self.files.len() as u64,
            self.deleted.len() as u64,
        ]
    }

    /// The space of the deleted files. It is unknown if that of one of them is.
    pub fn deleted_bytes(&self) -> Known<u64> {
        // File systems of users may claim any size.
        let mut spaces = self.deleted.values();
        spaces.try_fold(0, |sum: u64, space| Ok(sum.saturating_add((*space)?)))
    }
}

impl grouping::Sum for Sum {
    const COLUMNS: &'static [(ColumnInfo, &'static str)] = sum_columns! {
        "opens_count": Count, "OPEN", "The number of descriptors and other uses.";
        "processes_count": Count, "PROCESSES", "The number of processes.";
        "files_count": Count, "FILES", "The number of files, each once, no matter how often it is open.";
        "deleted_count": Count, "DELETED", "The number of those that are deleted.";
        "deleted_bytes": Bytes, "HELD", "The space that the deleted files hold.";
    };

    fn numbers(&self) -> Vec<Known<u64>> {
        let counts = self.counts().map(Ok);
        counts.into_iter().chain([self.deleted_bytes()]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::OrderOptions;
    use crate::grouping::SumLayout;

    const FILE: (Device, u64) = (Device { major: 8, minor: 1 }, 2);

    fn sum(opens: u64, deleted_bytes: Known<u64>) -> Sum {
        Sum {
            opens,
            deleted: HashMap::from([(FILE, deleted_bytes)]),
            ..Sum::default()
        }
    }

    /// Check that the space is unknown while that of one file is, and that no claim is too large.
    #[test]
    fn space_is_known_or_absent() {
        let mut sum = sum(1, Err(Absent::Denied));
        sum.deleted.insert((FILE.0, 3), Ok(u64::MAX));
        assert_eq!(sum.deleted_bytes(), Err(Absent::Denied));
        sum.deleted.insert(FILE, Ok(1));
        assert_eq!(sum.deleted_bytes(), Ok(u64::MAX));
        assert_eq!(Sum::default().deleted_bytes(), Ok(0));
    }

    /// Check the order of sums, and that unknown keys are errors.
    #[test]
    fn sums_are_sorted() {
        let layout = |orders: &[&str]| {
            let order = OrderOptions::sorted_by(orders);
            SumLayout::new::<Sum>(&[&grouping::PROGRAM], &order, "-opens_count")
        };
        let text = |name: &str| vec![Name::Text(name.into())];
        let sorted = |orders: &[&str]| -> Vec<Vec<Name>> {
            let sums = HashMap::from([
                (text("a"), sum(1, Ok(9))),
                (text("b"), sum(2, Err(Absent::Denied))),
                (text("c"), sum(2, Ok(1))),
            ]);
            let sorted = layout(orders).expect("keys").sort(sums);
            sorted.into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(sorted(&[]), ["b", "c", "a"].map(text));
        assert_eq!(sorted(&["-deleted_bytes"]), ["a", "c", "b"].map(text));
        assert_eq!(sorted(&["-program"]), ["c", "b", "a"].map(text));
        assert!(layout(&["comm"]).is_err());
    }
}
