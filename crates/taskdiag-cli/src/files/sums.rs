//! Files added up: by user, program, unit, container or path, and those that are deleted.

use std::collections::{HashMap, HashSet};

use clap::ValueEnum;
use taskdiag::files::{Device, OpenFile};
use taskdiag::{Absent, Task, Value};

use crate::choice::{self, SortBy, SumKey};
use crate::grouping::{self, Grouping, Name};
use crate::outcome::Failure;
use crate::output::named::Cell;

/// What files are added up by.
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
    /// All of them.
    pub const ALL: [By; 5] = [By::User, By::Program, By::Unit, By::Container, By::Path];

    /// How rows say what they are of.
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

    /// The group of a file of a process.
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

/// Some files added up.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    /// How many descriptors and other uses there are.
    opens: u64,
    processes: HashSet<u32>,
    /// Each once, however often it is open.
    files: HashSet<(Device, u64)>,
    deleted: u64,
    deleted_bytes: u64,
    /// How many uses are of files that are not known.
    unknown: u64,
}

impl Sum {
    /// The keys of the numbers of a sum.
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

    /// The numbers under [`Sum::KEYS`].
    pub fn numbers(&self) -> [u64; 5] {
        [
            self.opens,
            self.processes.len() as u64,
            self.files.len() as u64,
            self.deleted,
            self.deleted_bytes,
        ]
    }

    /// The same, for programs.
    pub fn cells(&self) -> [Cell<'static>; 5] {
        self.numbers().map(|number| Ok(Value::Unsigned(number)))
    }

    /// How many uses are of files whose device and inode number are not known. They are in no
    /// number but the first two.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }
}

/// The sums of groups.
pub struct Sums {
    by: By,
    groups: HashMap<Name, Sum>,
}

impl Sums {
    /// Sums of nothing.
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

/// The keys that `--sort` options name; without, the group with the most uses comes first.
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

    /// Check the orders of sums, and that unknown keys are errors.
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
