//! Processes added up: all of them, or those of a program, a user, a cgroup.

use std::collections::HashMap;

use clap::ValueEnum;
use taskdiag::{Absent, Field, Task};

use crate::outcome::Failure;

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

/// What processes add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Processes that have memory.
    pub processes: u64,
    /// Of those, the ones whose proportional and unique sizes are missing, and so not in the sum.
    pub missing: u64,
    /// Swapped-out memory, in bytes, each page as often as it is used.
    pub swap_bytes: u64,
    /// Unique sizes, in bytes.
    pub uss_bytes: u64,
    /// Proportional sizes, in bytes.
    pub pss_bytes: u64,
    /// Resident sizes, in bytes, each page as often as it is mapped.
    pub rss_bytes: u64,
}

/// The fields that are added up.
pub const FIELDS: [Field; 4] = [Field::SwapBytes, Field::UssBytes, Field::PssBytes, Field::RssBytes];

impl Sum {
    /// Adds a process, if it has memory.
    pub fn add(&mut self, task: &Task<'_>) {
        if !has_memory(task) {
            return;
        }
        self.processes += 1;
        self.swap_bytes += task.swap_bytes().unwrap_or(0);
        self.rss_bytes += task.rss_bytes().unwrap_or(0);
        match (task.uss_bytes(), task.pss_bytes()) {
            (Ok(uss), Ok(pss)) => {
                self.uss_bytes += uss;
                self.pss_bytes += pss;
            }
            _ => self.missing += 1,
        }
    }

    /// Its numbers with their names.
    pub fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("processes_count", self.processes),
            ("missing_count", self.missing),
            ("swap_bytes", self.swap_bytes),
            ("uss_bytes", self.uss_bytes),
            ("pss_bytes", self.pss_bytes),
            ("rss_bytes", self.rss_bytes),
        ]
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
        let keys = Sum::default().named();
        let key = keys.iter().position(|(key, _)| *key == name);
        if key.is_none() && name != by.name() {
            let keys: Vec<&str> = keys.iter().map(|(key, _)| *key).collect();
            return Err(Failure::Unanswered(format!(
                "sums can't be sorted by {name:?}; they have {}, {}",
                by.name(),
                keys.join(", ")
            )));
        }
        Ok(Order { key, descending })
    }
}

/// Sorts sums; equal ones by their names.
pub fn sort(sums: &mut [(Name, Sum)], orders: &[Order]) {
    sums.sort_by(|a, b| {
        let by_key = orders.iter().map(|order| {
            let compared = match order.key {
                Some(key) => a.1.named()[key].1.cmp(&b.1.named()[key].1),
                None => a.0.cmp(&b.0),
            };
            match order.descending {
                true => compared.reverse(),
                false => compared,
            }
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
            pss_bytes,
            ..Sum::default()
        }
    }

    /// Check that the largest comes first unless something else is asked for, and that what sums don't have is an error.
    #[test]
    fn sums_are_sorted() {
        let name = |name: &str| Name::Text(name.into());
        let mut sums = vec![(name("b"), sum(1)), (name("a"), sum(1)), (name("c"), sum(2))];
        let mut sorted = |orders: &[&str]| -> Vec<Name> {
            let orders: Vec<String> = orders.iter().map(|&order| order.to_owned()).collect();
            sort(&mut sums, &Order::parse(&orders, By::Program).expect("an order"));
            sums.iter().map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(sorted(&[]), [name("c"), name("a"), name("b")]);
        assert_eq!(sorted(&["pss_bytes,-program"]), [name("b"), name("a"), name("c")]);
        assert_eq!(sorted(&["program"]), [name("a"), name("b"), name("c")]);
        assert!(Order::parse(&["comm".to_owned()], By::Program).is_err());
    }
}
