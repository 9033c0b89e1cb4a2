//! The sources of task data: BPF, the broker and procfs.

mod bpf;
pub(crate) mod broker;
pub(crate) mod procfs;

use std::time::Duration;

use taskdiag_core::error::Result;
use taskdiag_core::field::{Fields, Groups};
use taskdiag_core::query::Query;
use taskdiag_core::record::KernelTest;
use taskdiag_core::snapshot::Snapshot;

/// Something that reads tasks.
pub(crate) trait Source {
    /// Appends a record and a row for each task of the request. Returns whether it left out the
    /// tasks that have not changed since the last such request.
    ///
    /// It may add more tasks of the same kind than the query is about. The caller drops them.
    fn read_tasks(&mut self, request: &TaskRequest<'_>, snapshot: &mut Snapshot) -> Result<bool>;
}

/// What a source must read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskRequest<'a> {
    /// The query. Its scope selects the tasks; descendants have already been replaced by listed
    /// processes.
    pub query: &'a Query,
    /// The fields to read of each task.
    pub fields: Fields,
    /// The groups of these fields.
    pub groups: Groups,
    /// Tests that every task of the answer must pass.
    pub tests: &'a [KernelTest],
    /// Tasks that have not changed may be left out.
    pub changed: bool,
    /// Listed processes are to be read one by one, rather than found among all processes.
    pub one_by_one: bool,
    /// How long one system call about a process may make no progress.
    pub patience: Duration,
}
