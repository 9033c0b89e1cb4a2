//! Sums of files: by user, program, unit, container or path, and of deleted files.

use std::collections::{HashMap, HashSet};

use clap::ValueEnum;
use taskdiag::files::{Device, OpenFile};
use taskdiag::{Absent, Task, Value};

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
    deleted: u64,
    deleted_bytes: u64,
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
        let is_new = self.files.insert((device, inode));
        if is_new && file.is_deleted() == Ok(true) {
            self.deleted += 1;
            self.deleted_bytes += file.allocated_bytes.unwrap_or(0);
        }
    }

    /// The numbers for [`Sum::KEYS`].
    pub fn numbers(&self) -> [u64; 5] {
        [
            self.opens,
            self.processes.len() as u64,
            self.files.len() as u64,
            self.deleted,
            self.deleted_bytes,
        ]
    }

    /// The numbers as cells of machine-readable output.
    pub fn cells(&self) -> [Cell<'static>; 5] {
        self.numbers().map(|number| Ok(Value::Unsigned(number)))
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
        choice::sort_sums(&mut sums, orders, |sum| sum.numbers().map(Ok::<_, Absent>));
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

    fn sum(opens: u64, deleted_bytes: u64) -> Sum {
        Sum {
            opens,
            deleted_bytes,
            ..Sum::default()
        }
    }

    /// Check the order of sums, and that unknown keys are errors.
    #[test]
    fn sums_are_sorted() {
        let text = |name: &str| Name::Text(name.into());
        let sorted = |orders: &[&str]| -> Vec<Name> {
            let orders: Vec<String> = orders.iter().map(|&order| order.to_owned()).collect();
            let sums = Sums {
                by: By::Program,
                groups: HashMap::from([(text("a"), sum(1, 9)), (text("b"), sum(2, 0)), (text("c"), sum(2, 1))]),
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
