//! Sums over processes: over all, or over those of a group.

use std::collections::HashMap;

use taskdiag::{Absent, Field, Known, Task, Value};

use crate::grouping::{self, sum_columns, Name, SumLayout};
use crate::history;
use crate::output::listing::Form;
use crate::output::relation::{list_of, ColumnInfo};

/// The fields that are added up. All come from the same walk of a process's page tables, so they
/// are consistent. The kernel's counters (`rss_bytes`, `swap_bytes`) would be from another moment.
pub const FIELDS: [Field; 6] = list_of! {
    Field: RollupSwapBytes, UssBytes, PssBytes, RollupRssBytes, PrivateHugetlbBytes, SharedHugetlbBytes,
};

/// The same with the kernel's counters, as far as it has some: for recordings without PSS.
pub const COUNTERS: [Field; 6] = list_of! {
    Field: SwapBytes, UssBytes, PssBytes, RssBytes, PrivateHugetlbBytes, SharedHugetlbBytes,
};

/// How many of [`FIELDS`] are before those about hugetlbfs.
pub const SIZES: usize = FIELDS.len() - 2;

/// A sum over processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Processes that have memory.
    pub processes: u64,
    /// The number of them that could not be read, for each of the sizes.
    missing: [u64; FIELDS.len()],
    /// Why the first of those could not be read.
    why: Option<Absent>,
    /// The bytes of the processes that could be read.
    bytes: [u64; FIELDS.len()],
}

impl Sum {
    /// Adds a process, if it has memory.
    pub fn add(&mut self, task: &Task<'_>) {
        if !has_memory(task) {
            return;
        }
        self.processes += 1;
        let is_counted = task.pss_bytes().is_err() && history::shown().is_some();
        for (index, field) in if is_counted { COUNTERS } else { FIELDS }.into_iter().enumerate() {
            match task.value(field) {
                Ok(Value::Unsigned(bytes)) => self.bytes[index] += bytes,
                value => {
                    self.missing[index] += 1;
                    self.why = self.why.or(value.err());
                }
            }
        }
    }

    /// The sums of [`FIELDS`]; if no process could be read, the reason.
    pub fn bytes(&self) -> [Result<u64, Absent>; FIELDS.len()] {
        std::array::from_fn(|index| match self.why {
            Some(why) if self.missing[index] == self.processes => Err(why),
            _ => Ok(self.bytes[index]),
        })
    }

    /// The fields that it sums.
    pub fn fields(&self) -> [Field; 6] {
        if self.has_counters() {
            COUNTERS
        } else {
            FIELDS
        }
    }

    /// Whether there are only the kernel's counters.
    pub fn has_counters(&self) -> bool {
        history::shown().is_some() && self.bytes()[2].is_err()
    }

    /// Whether a process has pages of hugetlbfs.
    pub fn has_hugetlb(&self) -> bool {
        self.bytes[SIZES..].iter().any(|&bytes| bytes > 0)
    }

    /// How many processes are missing from the sums that there are.
    fn missing(&self) -> u64 {
        let some = self.missing.iter().copied().filter(|&missing| missing < self.processes);
        some.max().unwrap_or(self.processes)
    }

    /// The number of processes in the sums, followed by the total number if some are missing.
    pub fn count(&self) -> String {
        match self.missing() {
            0 => self.processes.to_string(),
            missing => format!("{} of {}", self.processes - missing, self.processes),
        }
    }
}

impl grouping::Sum for Sum {
    const COLUMNS: &'static [(ColumnInfo, &'static str)] = sum_columns! {
        "processes_count": Count, "PROCESSES", "The number of processes that have memory.";
        "missing_count": Count, "", "How many of them are missing from the sizes.";
        "rollup_swap_bytes": Bytes, "SWAP", "Swapped out; of a recording without PSS, as the kernel counts it.";
        "uss_bytes": Bytes, "USS", "Pages that no other process has mapped.";
        "pss_bytes": Bytes, "PSS", "Resident pages, each divided by the number of processes that have it mapped.";
        "rollup_rss_bytes": Bytes, "RSS", "Resident pages; of a recording without PSS, as the kernel counts them.";
        "private_hugetlb_bytes": Bytes, "HUGETLB", "Pages of hugetlbfs of one process.";
        "shared_hugetlb_bytes": Bytes, "SHARED-HUGETLB", "Pages of hugetlbfs of several processes.";
    };

    fn numbers(&self) -> Vec<Known<u64>> {
        let counts = [Ok(self.processes), Ok(self.missing())];
        counts.into_iter().chain(self.bytes()).collect()
    }

    fn write(&self, out: &mut Vec<u8>, column: usize, form: &mut Form) {
        match self.numbers()[column] {
            _ if column == 0 => out.extend_from_slice(self.count().as_bytes()),
            Ok(bytes) => form.cells.size(out, bytes),
            Err(_) => out.push(b'-'),
        }
    }

    /// The sizes of hugetlbfs stand there if a process has some.
    fn has(&self, column: usize) -> bool {
        !Self::COLUMNS[column].1.is_empty() && (column < 2 + SIZES || self.has_hugetlb())
    }
}

/// Whether a task is a process with memory: not a kernel thread or zombie.
pub fn has_memory(task: &Task<'_>) -> bool {
    ![task.pss_bytes(), task.rss_bytes()].contains(&Err(Absent::NoMemory))
}

/// The sums of all groups.
pub fn sums(tasks: &[Task<'_>], layout: &SumLayout) -> HashMap<Vec<Name>, Sum> {
    let mut sums: HashMap<Vec<Name>, Sum> = HashMap::new();
    for task in tasks.iter().filter(|task| has_memory(task)) {
        let names = layout.names(task, |_| Name::None(Absent::Unsupported.as_str()));
        sums.entry(names).or_default().add(task);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::OrderOptions;

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
            missing: [missing; FIELDS.len()],
            why: Some(Absent::Denied),
            ..Sum::default()
        }
    }

    /// Check that without `--sort` the largest comes first, that missing sums come last, and that
    /// unknown keys are errors.
    #[test]
    fn sums_are_sorted() {
        let name = |name: &str| vec![Name::Text(name.into())];
        let layout = |orders: &[&str]| {
            let order = OrderOptions::sorted_by(orders);
            SumLayout::new::<Sum>(&[&grouping::PROGRAM], &order, "-pss_bytes")
        };
        let sorted = |orders: &[&str]| -> Vec<Vec<Name>> {
            let sums = HashMap::from([
                (name("d"), missing(9, 9)),
                (name("b"), sum(1)),
                (name("a"), sum(1)),
                (name("c"), sum(2)),
            ]);
            let sorted = layout(orders).expect("keys").sort(sums);
            sorted.into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(sorted(&[]), ["c", "a", "b", "d"].map(name));
        assert_eq!(sorted(&["pss_bytes,-program"]), ["b", "a", "c", "d"].map(name));
        assert_eq!(sorted(&["program"]), ["a", "b", "c", "d"].map(name));
        assert_eq!(sorted(&["-processes_count"]), ["d", "a", "b", "c"].map(name));
        assert!(layout(&["comm"]).is_err());
    }

    /// Check that the sizes of a sum are those fields.
    #[test]
    fn sizes_are_fields() {
        let columns = <Sum as grouping::Sum>::columns();
        let names = columns[2..].iter().map(|column| column.name);
        assert!(names.eq(FIELDS.map(Field::name)));
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
