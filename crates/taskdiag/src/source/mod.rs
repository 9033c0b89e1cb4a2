//! Sources of task data: BPF, the broker and procfs.

mod bpf;
pub(crate) mod broker;
pub(crate) mod connector;
pub(crate) mod procfs;

use std::time::Duration;

use taskdiag_core::error::Result;
use taskdiag_core::field::{Fields, Groups};
use taskdiag_core::query::Query;
use taskdiag_core::record::KernelTest;
use taskdiag_core::snapshot::Snapshot;

/// One that reads tasks.
pub(crate) trait Source {
    /// Appends a record and a row for each task that is asked about. Returns whether it left out tasks that have not changed
    /// since it was last asked to.
    ///
    /// It may bring more tasks than are meant, of the same kind: the caller drops them.
    fn read_tasks(&mut self, asked: &TaskRequest<'_>, snapshot: &mut Snapshot) -> Result<bool>;
}

/// What a source is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskRequest<'a> {
    /// Which tasks, and what of them counts. Never descendants: those are listed.
    pub query: &'a Query,
    /// What to read of each.
    pub fields: Fields,
    /// The groups of that.
    pub groups: Groups,
    /// Tests that all tasks that are meant pass.
    pub tests: &'a [KernelTest],
    /// Tasks that have not changed may be left out.
    pub changed: bool,
    /// Whether listed processes are read one by one, rather than sought among all.
    pub one_by_one: bool,
    /// How long a process may keep a reader waiting in one system call.
    pub patience: Duration,
}
