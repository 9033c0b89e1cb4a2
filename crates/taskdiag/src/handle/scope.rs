//! Which tasks a query is about, whichever source answers.

use std::collections::{BTreeSet, HashMap};

use taskdiag_core::error::{Error, Result};
use taskdiag_core::identity::Identity;
use taskdiag_core::query::{Query, Scope};
use taskdiag_core::record::{self, attr};
use taskdiag_core::snapshot::{Snapshot, Task};

/// Whether the answer has every existing task.
pub(super) fn is_of_all(query: &Query) -> bool {
    matches!(query.scope, Scope::Processes | Scope::Threads) && query.filter.is_none() && !query.changed
}

/// Whether the answer can contain a process, or threads of it, judging by its id.
pub(super) fn can_have(query: &Query, pid: u32) -> bool {
    match query.scope {
        Scope::Process(asked) | Scope::ThreadsOf(asked) => asked == pid,
        Scope::Listed | Scope::ThreadsOfListed => query.pids.binary_search(&pid).is_ok(),
        Scope::Processes | Scope::Threads | Scope::ChildrenOf(_) | Scope::DescendantsOf(_) => true,
    }
}

/// Drops what is out of a query's scope from a list of all processes.
pub(super) fn retain(query: &Query, snapshot: &mut Snapshot) -> Result<()> {
    match query.scope {
        Scope::Process(asked) => snapshot.retain(|task| pid(task) == asked),
        Scope::Listed => retain_listed(query, snapshot),
        Scope::DescendantsOf(pid) => {
            let descendants = descendants(snapshot, pid)?;
            snapshot.retain(|task| descendants.contains(&identity(task)));
        }
        Scope::ChildrenOf(pid) => {
            if !snapshot.rows.iter().any(|row| row.tid == pid) {
                return Err(Error::no_such_process(pid));
            }
            retain_children(query, snapshot);
        }
        Scope::Processes | Scope::Threads | Scope::ThreadsOf(_) | Scope::ThreadsOfListed => {}
    }
    Ok(())
}

/// Drops the tasks of unlisted processes, and records which listed processes are missing.
pub(super) fn retain_listed(query: &Query, snapshot: &mut Snapshot) {
    snapshot.retain(|task| query.pids.binary_search(&pid(task)).is_ok());
    let mut found: Vec<u32> = snapshot.tasks().map(|task| pid(&task)).collect();
    found.sort_unstable();
    let is_missing = |pid: &&u32| found.binary_search(pid).is_err();
    snapshot.missing = query.pids.iter().filter(is_missing).copied().collect();
}

/// If the query is about the children of a process, drops all tasks that are not its children.
pub(super) fn retain_children(query: &Query, snapshot: &mut Snapshot) {
    if let Scope::ChildrenOf(parent) = query.scope {
        snapshot.retain(|task| {
            let base = task.record().get::<record::Base>(attr::BASE);
            base.is_some_and(|base| base.ppid.get() == parent)
        });
    }
}

/// Finds the descendants of a process among all processes.
pub(super) fn descendants(all: &Snapshot, pid: u32) -> Result<BTreeSet<Identity>> {
    let mut children: HashMap<u32, Vec<Identity>> = HashMap::new();
    let mut exists = false;
    for task in all.tasks() {
        let child = identity(&task);
        exists |= child.tid() == pid;
        if let Ok(parent) = task.ppid() {
            children.entry(parent).or_default().push(child);
        }
    }
    if !exists {
        return Err(Error::no_such_process(pid));
    }
    let mut descendants = BTreeSet::new();
    let mut left = vec![pid];
    while let Some(parent) = left.pop() {
        let found = children.remove(&parent).unwrap_or_default();
        left.extend(found.iter().map(|child| child.tid()));
        descendants.extend(found);
    }
    Ok(descendants)
}

pub(super) fn identity(task: &Task<'_>) -> Identity {
    Identity::of(task.record().header())
}

pub(super) fn pid(task: &Task<'_>) -> u32 {
    task.record().header().pid.get()
}
