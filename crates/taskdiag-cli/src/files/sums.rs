//! Sums of files: by user, program, unit, container or path, and of deleted files.

use std::collections::{HashMap, HashSet};

use clap::ValueEnum;
use taskdiag::files::{Device, OpenFile};
use taskdiag::{Absent, Known, Task, Value};

use crate::choice::{self, SortBy, SumKey};
use crate::grouping::{self, Grouping, Name};
use crate::outcome::Failure;
use crate::output::Cell;

/// The ways to group files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Effective user of the process
    User,
    /// File name of the process's executable; the name of the process where that is denied
    Program,
    /// The process's systemd unit, of the system or of a user
    Unit,
    /// The process's container
    Container,
    /// Name of the file
    Path,
}

impl By {
    /// How rows name their group.
    pub fn grouping(self) -> &'static Grouping {
        static PATH: Grouping = Grouping {
            name: "name",
            keys: &["name"],
            heading: "NAME",
            fields: &[],
        };
        match self {
            By::User => &grouping::USER,
            By::Program => &grouping::PROGRAM,
            By::Unit => &grouping::UNIT,
            By::Container => &grouping::CONTAINER,
            By::Path => &PATH,
        }
    }

    /// The group of a process's file.
    fn of(self, task: &Task<'_>, file: &OpenFile<'_>) -> Result<Name, Absent> {
        let text = match self {
            By::User => return Ok(Name::User(task.euid()?)),
            By::Unit => grouping::unit(task),
            By::Container => grouping::container(task),
            By::Path => file.name,
            By::Program => grouping::program(task),
        };
        Ok(Name::Text(text?.to_vec()))
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
    /// The number of uses of unknown files.
    unknown: u64,
}

impl Sum {
    /// The keys of a sum's numbers.
    pub const KEYS: [&'static str; 5] = [
        "opens_count",
        "processes_count",
        "files_count",
        "deleted_count",
        "deleted_bytes",
    ];

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

    /// The numbers for [`Sum::KEYS`].
    fn numbers(&self) -> [Known<u64>; 5] {
        let [opens, processes, files, deleted] = self.counts().map(Ok);
        [opens, processes, files, deleted, self.deleted_bytes()]
    }

    /// The numbers as cells of machine-readable output.
    pub fn cells(&self) -> [Cell<'static>; 5] {
        self.numbers()
            .map(|number| number.map(Value::Unsigned).map_err(Absent::as_str))
    }

    /// The number of uses of files whose device and inode number are unknown. Only the first two
    /// numbers include them.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }
}

/// Sums by group.
pub struct Sums {
    by: By,
    groups: HashMap<Name, Sum>,
}

impl Sums {
    /// Creates empty sums.
    pub fn new(by: By) -> Sums {
        Sums {
            by,
            groups: HashMap::new(),
        }
    }

    /// Adds a file to its group.
    pub fn add(&mut self, task: &Task<'_>, file: &OpenFile<'_>) {
        let name = self.by.of(task, file).unwrap_or_else(Name::None);
        self.groups.entry(name).or_default().add(task, file);
    }

    /// The groups, sorted.
    pub fn sorted(self, orders: &[SortBy<SumKey>]) -> Vec<(Name, Sum)> {
        let mut sums: Vec<(Name, Sum)> = self.groups.into_iter().collect();
        choice::sort_sums(&mut sums, orders, Sum::numbers);
        sums
    }
}

/// Parses `--sort` options. By default, the group with the most uses comes first.
pub fn sort_keys(lists: &[String], by: By) -> Result<Vec<SortBy<SumKey>>, Failure> {
    choice::sum_keys(lists, "-opens_count", by.grouping().name, &Sum::KEYS)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let text = |name: &str| Name::Text(name.into());
        let sorted = |orders: &[&str]| -> Vec<Name> {
            let orders: Vec<String> = orders.iter().map(|&order| order.to_owned()).collect();
            let sums = Sums {
                by: By::Program,
                groups: HashMap::from([
                    (text("a"), sum(1, Ok(9))),
                    (text("b"), sum(2, Err(Absent::Denied))),
                    (text("c"), sum(2, Ok(1))),
                ]),
            };
            let sorted = sums.sorted(&sort_keys(&orders, By::Program).expect("keys"));
            sorted.into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(sorted(&[]), ["b", "c", "a"].map(text));
        assert_eq!(sorted(&["-deleted_bytes"]), ["a", "c", "b"].map(text));
        assert_eq!(sorted(&["-program"]), ["c", "b", "a"].map(text));
        assert!(sort_keys(&["comm".to_owned()], By::Program).is_err());
    }
}
