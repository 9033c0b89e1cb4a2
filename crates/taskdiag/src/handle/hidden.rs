//! Processes that this kernel does not show to BPF.
//!
//! Some kernels hide processes from iterators that `/proc` shows, such as the first process of a
//! sandbox.

use std::collections::HashSet;
use std::time::Duration;

use taskdiag_core::error::Result;
use taskdiag_core::field::Fields;
use taskdiag_core::query::{Query, Scope};
use taskdiag_core::snapshot::Snapshot;
use taskdiag_sys::host;

use super::scope::pid;
use super::sources::{shown, Sources};

/// The hidden processes, after a search for them.
#[derive(Debug, Default)]
pub(super) struct Hidden {
    pids: Option<Vec<u32>>,
}

impl Hidden {
    /// The known ones.
    pub(super) fn known(&self) -> &[u32] {
        self.pids.as_deref().unwrap_or_default()
    }

    /// Searches for them, once.
    pub(super) fn find(&mut self, sources: &mut Sources, patience: Duration) -> Result<&[u32]> {
        if self.pids.is_none() {
            self.pids = Some(search(sources, patience)?);
        }
        Ok(self.known())
    }

    /// Whether a process exists: BPF shows it, or it is known to be hidden.
    pub(super) fn or_shown(&self, sources: &mut Sources, pid: u32) -> Result<bool> {
        Ok(self.known().contains(&pid) || is_shown(sources, pid)?)
    }
}

fn is_shown(sources: &mut Sources, pid: u32) -> Result<bool> {
    Ok(!shown(&mut sources.bpf, Scope::Process(pid))?.is_empty())
}

fn search(sources: &mut Sources, patience: Duration) -> Result<Vec<u32>> {
    // The first process of a pid namespace always exists: a kernel that shows it hides no process.
    if is_shown(sources, 1)? || sources.procfs().is_err() {
        return Ok(Vec::new());
    }
    if hides_the_first_alone(sources, patience).unwrap_or(false) {
        return Ok(vec![1]);
    }
    let mut listed = Snapshot::default();
    sources.read_procfs(&Query::processes(), Fields::NONE, patience, &mut listed)?;
    let shown = shown(&mut sources.bpf, Scope::Processes)?;
    let shown: HashSet<u32> = shown.tasks().map(|task| pid(&task)).collect();
    let mut hidden = Vec::new();
    for pid in listed.tasks().map(|task| pid(&task)).filter(|pid| !shown.contains(pid)) {
        // Most have just ended. A hidden one still exists, and is still not shown.
        let mut found = Snapshot::default();
        if !is_shown(sources, pid)?
            && sources
                .read_procfs(&Query::process(pid), Fields::NONE, patience, &mut found)
                .is_ok()
        {
            hidden.push(pid);
        }
    }
    Ok(hidden)
}

/// Whether the kernel's count of threads equals the threads that it shows plus those of process 1.
/// This is faster than listing `/proc`. False if it is not known: in a pid namespace, or while
/// tasks start and end.
fn hides_the_first_alone(sources: &mut Sources, patience: Duration) -> Result<bool> {
    let counted = host::threads();
    let mut threads = shown(&mut sources.bpf, Scope::Threads)?;
    sources.read_procfs(&Query::threads_of(1), Fields::NONE, patience, &mut threads)?;
    Ok(counted == threads.len() as u16 && counted == host::threads())
}
