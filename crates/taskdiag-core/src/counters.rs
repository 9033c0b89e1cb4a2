//! Counts of what a query took and lost.

use std::ops::AddAssign;

use crate::absent::Absent;
#[cfg(doc)]
use crate::field::Group;

/// How many rows a filter left out because a value that it needs is absent, by the reason of that.
/// Where a row lacks several values, the last reason in the order of [`Absent`] counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Undecided([(u64, &'static str); Absent::EVERY.len() + 1]);

impl Undecided {
    /// The rows left out for this reason.
    pub fn of(&self, reason: Absent) -> u64 {
        self.0[reason as usize].0
    }

    /// All rows left out.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|(rows, _)| rows).sum()
    }
}

/// For the other crates of this project.
#[doc(hidden)]
impl Undecided {
    /// Counts a row without these values, for these reasons. It was only undecided if the caller may be
    /// able to remove one of them.
    pub fn count(&mut self, lacks: impl IntoIterator<Item = (Absent, &'static str)>) {
        let removable = lacks
            .into_iter()
            .filter(|(reason, _)| Absent::REMOVABLE.contains(reason));
        if let Some((reason, field)) = removable.max() {
            let (rows, _) = self.0[reason as usize];
            self.0[reason as usize] = (rows + 1, field);
        }
    }

    /// One of the values that are absent for this reason.
    pub fn field(&self, reason: Absent) -> &'static str {
        self.0[reason as usize].1
    }

    /// Without so many rows left out for this reason.
    #[must_use]
    pub fn without(mut self, reason: Absent, rows: u64) -> Undecided {
        self.0[reason as usize].0 = self.of(reason).saturating_sub(rows);
        self
    }

    /// The total, and what of it could be removed in one way, with the names of counters.
    pub fn named(&self) -> [(&'static str, Option<u64>); 3] {
        [
            ("undecided", Some(self.total())),
            ("undecided_denied", Some(self.of(Absent::Denied))),
            ("undecided_no_thread", Some(self.of(Absent::NoThread))),
        ]
    }
}

impl AddAssign for Undecided {
    fn add_assign(&mut self, other: Undecided) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count = (count.0 + more.0, count.1.max(more.1));
        }
    }
}

/// Members of a structure that count something, with their names: a number, or `None` where nobody
/// counted.
#[doc(hidden)]
#[macro_export]
macro_rules! counts {
    ($of:ident: $($name:ident),*) => { [$((stringify!($name), Option::<u64>::from($of.$name))),*] };
}

pub use counts;

/// Counts of what answering the query took, and of what was lost on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Tasks in the snapshot.
    pub tasks: u64,
    /// Bytes of records that came from BPF, the broker or a recording. `None` if none of them
    /// answered.
    pub record_bytes: Option<u64>,
    /// read(2) calls on BPF iterators, or packets received from the broker. `None` if neither
    /// answered.
    pub reads: Option<u64>,
    /// Tasks that are not in the snapshot because they ended while they were being read.
    pub gone: u64,
    /// Tasks that are not in the snapshot because the caller may not see them.
    pub denied: u64,
    /// Tasks for which procfs had to answer a group because the chosen source could not answer it
    /// exactly.
    pub deferred: u64,
    /// Tasks that this kernel does not show to iterators, so that procfs answered for them.
    pub hidden: u64,
    /// Tasks for which the whole filter was evaluated. Tasks that a part of it ruled out before are
    /// not counted.
    pub candidates: u64,
    /// Tasks left out because the filter looks at a value that is denied, unsupported, truncated,
    /// over budget, without an answer or without a thread.
    pub undecided: Undecided,
    /// Tasks whose arguments were not read again, because the process has not run since an earlier
    /// snapshot.
    pub remembered: u64,
    /// Tasks with a value that is [`Absent::NoAnswer`].
    pub no_answer: u64,
    /// Processes whose [`Group::Rollup`] is [`Absent::OverBudget`].
    pub over_budget: u64,
    /// Processes whose page tables were walked for [`Group::Rollup`].
    pub walked: u64,
    /// Processes without a sign of change, whose values of [`Group::Rollup`] come from an earlier
    /// answer.
    pub unchanged: u64,
    /// The longest run of a BPF program, in nanoseconds, for which RCU had to wait. `None` if
    /// none ran, or where the kernel calls the program once for each task.
    pub longest_run_ns: Option<u64>,
    /// Malformed records, which were left out. Anything but 0 is a defect.
    pub malformed: u64,
}

impl Counters {
    /// Counts a read from BPF or the broker.
    #[doc(hidden)]
    pub fn count_read(&mut self) {
        *self.reads.get_or_insert(0) += 1;
        self.record_bytes.get_or_insert(0);
    }

    /// The counters with their names, in the order of a report. Those that nobody counted are left
    /// out.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let before = counts!(self: tasks, record_bytes, reads, gone, denied, deferred, hidden, candidates);
        let after = counts!(self: remembered, no_answer, over_budget, walked, unchanged, longest_run_ns, malformed);
        let named = before.into_iter().chain(self.undecided.named()).chain(after);
        named.filter_map(|(name, count)| Some((name, count?)))
    }
}
