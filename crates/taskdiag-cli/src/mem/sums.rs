//! Sums over processes: over all, or by program, user or cgroup.

use std::collections::HashMap;

use clap::ValueEnum;
use taskdiag::{Absent, Field, Task, Value};

use crate::choice::{self, SortBy, SumKey};
use crate::grouping::{self, Grouping, Name};
use crate::outcome::Failure;
use crate::output::Cell;

/// The grouping of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// File name of the executable; the name of the process if reading the executable is denied
    Program,
    /// Effective user
    User,
    /// Cgroup of the unified hierarchy
    Cgroup,
}

impl By {
    /// The grouping's name, keys and fields.
    pub fn grouping(self) -> &'static Grouping {
        match self {
            By::Program => &grouping::PROGRAM,
            By::User => &grouping::USER,
            By::Cgroup => &grouping::CGROUP,
        }
    }

    /// The group of a process.
    fn of(self, task: &Task<'_>) -> Result<Name, Absent> {
        match self {
            By::User => Ok(Name::User(task.euid()?)),
            By::Cgroup => Ok(Name::Text(task.cgroup()?.to_vec())),
            By::Program => Ok(Name::Text(grouping::program(task)?.to_vec())),
        }
    }
}

/// The fields that are added up. All come from the same walk of a process's page tables, so they
/// are consistent. The kernel's counters (`rss_bytes`, `swap_bytes`) would be from another moment.
pub const FIELDS: [Field; 6] = [
    Field::RollupSwapBytes,
    Field::UssBytes,
    Field::PssBytes,
    Field::RollupRssBytes,
    Field::PrivateHugetlbBytes,
    Field::SharedHugetlbBytes,
];

/// How many of [`FIELDS`] are before those about hugetlbfs.
pub const SIZES: usize = FIELDS.len() - 2;

/// A sum over processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Processes that have memory.
    processes: u64,
    /// The number of them that could not be read.
    missing: u64,
    /// Why the first of those could not be read.
    why: Option<Absent>,
    /// The bytes of the processes that could be read.
    bytes: [u64; FIELDS.len()],
}

impl Sum {
    /// The keys of the numbers of a sum.
    pub fn keys() -> [&'static str; 2 + FIELDS.len()] {
        let mut keys = ["processes_count", "missing_count"]
            .into_iter()
            .chain(FIELDS.map(Field::name));
        std::array::from_fn(|_| keys.next().expect("as many"))
    }

    /// Adds a process, if it has memory.
    pub fn add(&mut self, task: &Task<'_>) {
        if !has_memory(task) {
            return;
        }
        self.processes += 1;
        let mut all = self.bytes;
        for (sum, field) in all.iter_mut().zip(FIELDS) {
            match task.value(field) {
                Ok(Value::Unsigned(bytes)) => *sum += bytes,
                value => {
                    self.missing += 1;
                    self.why = self.why.or(value.err());
                    return;
                }
            }
        }
        self.bytes = all;
    }

    /// The sums of [`FIELDS`]; if no process could be read, the reason.
    pub fn bytes(&self) -> [Result<u64, Absent>; FIELDS.len()] {
        self.bytes.map(|bytes| match self.why {
            Some(why) if self.missing == self.processes => Err(why),
            _ => Ok(bytes),
        })
    }

    /// Whether a process has pages of hugetlbfs.
    pub fn has_hugetlb(&self) -> bool {
        self.bytes[SIZES..].iter().any(|&bytes| bytes > 0)
    }

    /// The numbers under [`Sum::keys`].
    fn numbers(&self) -> [Result<u64, Absent>; 2 + FIELDS.len()] {
        let mut numbers = [Ok(self.processes), Ok(self.missing)].into_iter().chain(self.bytes());
        std::array::from_fn(|_| numbers.next().expect("as many"))
    }

    /// The same numbers, for machine-readable output.
    pub fn cells(&self) -> [Cell<'static>; 2 + FIELDS.len()] {
        let cell = |number: Result<u64, Absent>| number.map(Value::Unsigned).map_err(Absent::as_str);
        self.numbers().map(cell)
    }

    /// The number of processes in the sums, followed by the total number if some are missing.
    pub fn count(&self) -> String {
        match self.missing {
            0 => self.processes.to_string(),
            missing => format!("{} of {}", self.processes - missing, self.processes),
        }
    }
}

/// Whether a task is a process with memory: not a kernel thread or zombie.
pub fn has_memory(task: &Task<'_>) -> bool {
    task.pss_bytes() != Err(Absent::NoMemory)
}

/// The sums of all groups, unordered.
pub fn sums(tasks: &[Task<'_>], by: By) -> Vec<(Name, Sum)> {
    let mut sums: HashMap<Name, Sum> = HashMap::new();
    for task in tasks.iter().filter(|task| has_memory(task)) {
        let name = by.of(task).unwrap_or_else(Name::None);
        sums.entry(name).or_default().add(task);
    }
    sums.into_iter().collect()
}

/// The keys that `--sort` options name; by default, the largest proportional size comes first.
pub fn sort_keys(lists: &[String], by: By) -> Result<Vec<SortBy<SumKey>>, Failure> {
    choice::sum_keys(lists, "-pss_bytes", by.grouping().name, &Sum::keys())
}

/// Sorts sums. A sum without a value comes last; equal sums are sorted by name.
pub fn sort(sums: &mut [(Name, Sum)], orders: &[SortBy<SumKey>]) {
    choice::sort_sums(sums, orders, Sum::numbers);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(pss_bytes: u64) -> Sum {
        Sum {
            processes: 1,
            bytes: [0, 0, pss_bytes, 0, 0, 0],
            ..Sum::default()
        }
    }

    fn missing(processes: u64, missing: u64) -> Sum {
        Sum {
            processes,
            missing,
            why: Some(Absent::Denied),
            ..Sum::default()
        }
    }

    /// Check that without `--sort` the largest comes first, that missing sums come last, and that
    /// unknown keys are errors.
    #[test]
    fn sums_are_sorted() {
        let name = |name: &str| Name::Text(name.into());
        let mut sums = vec![
            (name("d"), missing(9, 9)),
            (name("b"), sum(1)),
            (name("a"), sum(1)),
            (name("c"), sum(2)),
        ];
        let mut sorted = |orders: &[&str]| -> Vec<Name> {
            let orders: Vec<String> = orders.iter().map(|&order| order.to_owned()).collect();
            sort(&mut sums, &sort_keys(&orders, By::Program).expect("keys"));
            sums.iter().map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(sorted(&[]), ["c", "a", "b", "d"].map(name));
        assert_eq!(sorted(&["pss_bytes,-program"]), ["b", "a", "c", "d"].map(name));
        assert_eq!(sorted(&["program"]), ["a", "b", "c", "d"].map(name));
        assert_eq!(sorted(&["-processes_count"]), ["d", "a", "b", "c"].map(name));
        assert!(sort_keys(&["comm".to_owned()], By::Program).is_err());
    }

    /// Check that a sum is missing if no process could be read, that other sums show how many
    /// processes they cover, and that the sum over no processes is 0.
    #[test]
    fn sums_say_what_is_in_them() {
        assert_eq!(missing(3, 3).bytes(), [Err(Absent::Denied); FIELDS.len()]);
        assert_eq!(missing(3, 3).count(), "0 of 3");
        assert_eq!(missing(3, 2).bytes(), [Ok(0); FIELDS.len()]);
        assert_eq!(missing(3, 2).count(), "1 of 3");
        assert_eq!(Sum::default().bytes(), [Ok(0); FIELDS.len()]);
        assert_eq!(
            (Sum::default().count(), sum(1).count()),
            ("0".to_owned(), "1".to_owned())
        );
    }
}
