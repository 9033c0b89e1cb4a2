//! What a handle remembers about tasks from one answer to the next.

use std::collections::HashMap;

use taskdiag_core::identity::Identity;
use taskdiag_core::kept::{Arguments, Times};
use taskdiag_core::query::Query;
use taskdiag_core::record::{self, attr, Record};
use taskdiag_core::snapshot::Snapshot;

use super::scope::is_of_all;

#[derive(Debug, Default)]
pub(super) struct Remembered {
    /// Command lines of processes that have not run since they were read.
    pub(super) arguments: Arguments,
    /// The reported processor times, of processes and of threads.
    times: [Times; 2],
    /// The processor times, in nanoseconds, of the last answer about changed tasks.
    before: HashMap<Identity, u64>,
}

impl Remembered {
    /// The reported processor times of the kind of task that a query is about.
    pub(super) fn times(&mut self, query: &Query) -> &mut Times {
        &mut self.times[usize::from(query.scope.is_threads())]
    }

    /// Raises the times of tasks to those that this handle reported before: the times of a task
    /// never decrease from one answer to the next.
    pub(super) fn raise_times(&mut self, query: &Query, snapshot: &mut Snapshot) {
        let times = self.times(query);
        for row in &snapshot.rows {
            let bytes = &mut snapshot.records[row.record..];
            let Some((record, _)) = Record::split_first(bytes) else {
                continue;
            };
            let task = Identity::of(record.header());
            if let Some(cpu) = record::part_mut(bytes, attr::CPU) {
                times.raise(task, cpu);
            }
        }
        times.end_answer(is_of_all(query));
    }

    /// Drops the tasks that have used no processor time since the last answer about changed tasks.
    pub(super) fn retain_changed(&mut self, snapshot: &mut Snapshot) {
        let before = std::mem::take(&mut self.before);
        snapshot.retain(|task| {
            let (Ok(utime), Ok(stime)) = (task.utime_ns(), task.stime_ns()) else {
                return true;
            };
            let (identity, now) = (Identity::of(task.record().header()), utime.saturating_add(stime));
            self.before.insert(identity, now);
            before.get(&identity) != Some(&now)
        });
    }
}
