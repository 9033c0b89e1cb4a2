//! Processes added up: all of them, or those of a program, a user, a cgroup.

use std::cmp::Ordering;
use std::collections::HashMap;

use clap::ValueEnum;
use taskdiag::{Absent, Field, Task, Value};

use crate::outcome::Failure;
use crate::output::named::Cell;

/// What processes are added up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Name of the executable; the process's name where that may not be seen
    Program,
    /// Effective user
    User,
    /// Cgroup of the unified hierarchy
    Cgroup,
}

impl By {
    /// Its name, in JSON and CSV.
    pub fn name(self) -> &'static str {
        match self {
            By::Program => "program",
            By::User => "user",
            By::Cgroup => "cgroup",
        }
    }

    /// What stands above the names of the groups.
    pub fn heading(self) -> &'static str {
        match self {
            By::Program => "PROGRAM",
            By::User => "USER",
            By::Cgroup => "CGROUP",
        }
    }

    /// The fields that tell the group of a process.
    pub fn fields(self) -> &'static [Field] {
        match self {
            By::Program => &[Field::Exe, Field::Comm],
            By::User => &[Field::Euid],
            By::Cgroup => &[Field::Cgroup],
        }
    }

    /// The group of a process.
    fn of(self, task: &Task<'_>) -> Result<Name, Absent> {
        match self {
            By::User => Ok(Name::User(task.euid()?)),
            By::Cgroup => Ok(Name::Text(task.cgroup()?.to_vec())),
            By::Program => {
                let path = match task.exe() {
                    Ok(path) => path.strip_suffix(b" (deleted)").unwrap_or(path),
                    Err(_) => task.comm()?,
                };
                let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
                Ok(Name::Text(name.to_vec()))
            }
        }
    }
}

/// What a group is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Name {
    /// A user id.
    User(u32),
    /// Any bytes.
    Text(Vec<u8>),
    /// Nothing tells.
    None(Absent),
}

/// The fields that are added up. They are all of one walk through a process's page tables, so that they go together: the kernel's
/// counters (`rss_bytes`, `swap_bytes`) are of another moment.
pub const FIELDS: [Field; 4] = [
    Field::RollupSwapBytes,
    Field::UssBytes,
    Field::PssBytes,
    Field::RollupRssBytes,
];

/// What processes add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Processes that have memory.
    processes: u64,
    /// Of those, the ones that could not be read.
    missing: u64,
    /// Why the first of these could not.
    why: Option<Absent>,
    /// What the others have, in bytes.
    bytes: [u64; FIELDS.len()],
}

impl Sum {
    /// What the numbers of a sum are called.
    pub fn keys() -> [&'static str; 6] {
        let [swap, uss, pss, rss] = FIELDS.map(Field::name);
        ["processes_count", "missing_count", swap, uss, pss, rss]
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

    /// The sums of [`FIELDS`]; why there are none, if nothing could be read of any process.
    pub fn bytes(&self) -> [Result<u64, Absent>; FIELDS.len()] {
        self.bytes.map(|bytes| match self.why {
            Some(why) if self.missing == self.processes => Err(why),
            _ => Ok(bytes),
        })
    }

    /// The numbers that [`Sum::keys`] are of.
    fn numbers(&self) -> [Result<u64, Absent>; 6] {
        let [swap, uss, pss, rss] = self.bytes();
        [Ok(self.processes), Ok(self.missing), swap, uss, pss, rss]
    }

    /// The same, for programs.
    pub fn cells(&self) -> [Cell<'static>; 6] {
        let cell = |number: Result<u64, Absent>| number.map(Value::Unsigned).map_err(Absent::as_str);
        self.numbers().map(cell)
    }

    /// How many processes are in the sums, and of how many if that is not all.
    pub fn count(&self) -> String {
        match self.missing {
            0 => self.processes.to_string(),
            missing => format!("{} of {}", self.processes - missing, self.processes),
        }
    }
}

/// Whether a task is a process with memory: no kernel thread, no zombie.
pub fn has_memory(task: &Task<'_>) -> bool {
    task.pss_bytes() != Err(Absent::NoMemory)
}

/// The sums of all groups, in no order.
pub fn sums(tasks: &[Task<'_>], by: By) -> Vec<(Name, Sum)> {
    let mut sums: HashMap<Name, Sum> = HashMap::new();
    for task in tasks.iter().filter(|task| has_memory(task)) {
        let name = by.of(task).unwrap_or_else(Name::None);
        sums.entry(name).or_default().add(task);
    }
    sums.into_iter().collect()
}

/// What sums are sorted by: one of their numbers, or their name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// None for the name.
    key: Option<usize>,
    descending: bool,
}

impl Order {
    /// What `--sort` says; the largest proportional size first if it says nothing.
    pub fn parse(lists: &[String], by: By) -> Result<Vec<Order>, Failure> {
        let names: Vec<&str> = match lists {
            [] => vec!["-pss_bytes"],
            lists => lists.iter().flat_map(|list| list.split(',')).collect(),
        };
        names.into_iter().map(|name| Order::one(name, by)).collect()
    }

    fn one(name: &str, by: By) -> Result<Order, Failure> {
        let descending = name.starts_with('-');
        let name = name.strip_prefix(['-', '+']).unwrap_or(name);
        let keys = Sum::keys();
        let key = keys.iter().position(|key| *key == name);
        if key.is_none() && name != by.name() {
            return Err(Failure::Unanswered(format!(
                "sums can't be sorted by {name:?}; they have {}, {}",
                by.name(),
                keys.join(", ")
            )));
        }
        Ok(Order { key, descending })
    }
}

/// Sorts sums, those that are missing last; equal ones by their names.
pub fn sort(sums: &mut [(Name, Sum)], orders: &[Order]) {
    let directed = |order: Ordering, descending: bool| if descending { order.reverse() } else { order };
    sums.sort_by(|a, b| {
        let by_key = orders.iter().map(|order| match order.key {
            Some(key) => match (a.1.numbers()[key], b.1.numbers()[key]) {
                (Ok(a), Ok(b)) => directed(a.cmp(&b), order.descending),
                // Whichever way the others go.
                (a, b) => b.is_ok().cmp(&a.is_ok()),
            },
            None => directed(a.0.cmp(&b.0), order.descending),
        });
        by_key
            .into_iter()
            .find(|order| order.is_ne())
            .unwrap_or_else(|| a.0.cmp(&b.0))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(pss_bytes: u64) -> Sum {
        Sum {
            processes: 1,
            bytes: [0, 0, pss_bytes, 0],
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

    /// Check that the largest comes first unless something else is asked for, that what is missing comes last, and that what
    /// sums don't have is an error.
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
            sort(&mut sums, &Order::parse(&orders, By::Program).expect("an order"));
            sums.iter().map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(sorted(&[]), ["c", "a", "b", "d"].map(name));
        assert_eq!(sorted(&["pss_bytes,-program"]), ["b", "a", "c", "d"].map(name));
        assert_eq!(sorted(&["program"]), ["a", "b", "c", "d"].map(name));
        assert_eq!(sorted(&["-processes_count"]), ["d", "a", "b", "c"].map(name));
        assert!(Order::parse(&["comm".to_owned()], By::Program).is_err());
    }

    /// Check that sums of nothing that could be read are missing, that others say how much is in them, and that no process has
    /// no memory.
    #[test]
    fn sums_say_what_is_in_them() {
        assert_eq!(missing(3, 3).bytes(), [Err(Absent::Denied); 4]);
        assert_eq!(missing(3, 3).count(), "0 of 3");
        assert_eq!(missing(3, 2).bytes(), [Ok(0); 4]);
        assert_eq!(missing(3, 2).count(), "1 of 3");
        assert_eq!(Sum::default().bytes(), [Ok(0); 4]);
        assert_eq!(
            (Sum::default().count(), sum(1).count()),
            ("0".to_owned(), "1".to_owned())
        );
    }
}
