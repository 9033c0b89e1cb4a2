//! Tasks that BPF did not bring: those that this kernel does not show to iterators, and those whose numbers passed to others
//! meanwhile. Procfs reads them.

use std::collections::HashSet;

use taskdiag_bpf::pass::PassRequest;
use taskdiag_core::error::Result;
use taskdiag_core::field::{Field, Fields, Groups};
use taskdiag_core::query::{Query, Scope};
use taskdiag_core::record::{self, attr, Record};
use taskdiag_core::snapshot::Snapshot;
use taskdiag_sys::host;

use super::{fields_of, pids, Handle};

impl Handle {
    /// Some kernels keep processes from iterators that `/proc` shows, such as the first process of a sandbox. An answer
    /// without them would not be the same from both sources, so procfs adds them.
    pub(super) fn add_hidden(&mut self, query: &Query, groups: Groups, snapshot: &mut Snapshot) -> Result<()> {
        self.find_hidden()?;
        let hidden = self.hidden.clone().unwrap_or_default();
        let is_asked = |pid: &u32| match query.scope {
            Scope::Process(asked) | Scope::ThreadsOf(asked) => asked == *pid,
            Scope::Listed | Scope::ThreadsOfListed => query.pids.contains(pid),
            _ => true,
        };
        let added = self.add_by_procfs(hidden.into_iter().filter(is_asked), query, groups, snapshot)?;
        snapshot.counters.hidden = added as u64;
        Ok(())
    }

    /// Asks procfs about processes whose numbers passed to other tasks while BPF read them, as in an exec.
    pub(super) fn ask_again(&mut self, query: &Query, groups: Groups, snapshot: &mut Snapshot) -> Result<()> {
        let mut again = std::mem::take(&mut snapshot.again);
        again.sort_unstable();
        again.dedup();
        if again.is_empty() {
            return Ok(());
        }
        let known = snapshot.rows.len();
        let asked = again.len();
        let added = self.add_by_procfs(again, query, groups, snapshot)?;
        snapshot.counters.gone += asked.saturating_sub(added) as u64;
        // Of threads, most had been read already.
        let mut seen: HashSet<u32> = snapshot.rows[..known].iter().map(|row| row.tid).collect();
        let mut fresh = snapshot.rows.split_off(known);
        fresh.retain(|row| seen.insert(row.tid));
        snapshot.rows.append(&mut fresh);
        Ok(())
    }

    /// Adds rows of procfs for some processes, or for their threads. Returns how many there are.
    pub(super) fn add_by_procfs(
        &mut self,
        pids: impl IntoIterator<Item = u32>,
        query: &Query,
        groups: Groups,
        snapshot: &mut Snapshot,
    ) -> Result<usize> {
        let mut fields = fields_of(snapshot.fields, groups);
        if let Scope::ChildrenOf(_) = query.scope {
            fields |= Field::Ppid;
        }
        let asked = if query.scope.is_threads() {
            Query::threads_of_these(pids)
        } else {
            Query::these(pids)
        };
        if asked.pids.is_empty() {
            return Ok(0);
        }
        let mut found = Snapshot::default();
        found.clear(fields);
        self.read_procfs(&asked.patience(self.patience(query)), fields, &mut found)?;
        if let Scope::ChildrenOf(parent) = query.scope {
            found.retain(|task| parent_of(task.record().as_bytes()) == Some(parent));
        }
        let added = found.rows.len();
        snapshot.take_in(&mut found);
        Ok(added)
    }

    /// Finds the processes that procfs lists and iterators pass over, once in a handle. The first process of a pid namespace
    /// always exists: where iterators show that one they hide none.
    pub(super) fn find_hidden(&mut self) -> Result<()> {
        if self.hidden.is_some() {
            return Ok(());
        }
        let mut shown = Snapshot::default();
        self.bpf.read(&PassRequest::ids(Scope::Process(1)), &mut shown)?;
        if !shown.is_empty() || self.procfs().is_err() {
            self.hidden = Some(Vec::new());
            return Ok(());
        }
        if self.shows_all_but_the_first().unwrap_or(false) {
            self.hidden = Some(vec![1]);
            return Ok(());
        }
        let mut listed = Snapshot::default();
        self.read_procfs(&Query::processes(), Fields::NONE, &mut listed)?;
        self.bpf.read(&PassRequest::ids(Scope::Processes), &mut shown)?;
        let shown: HashSet<u32> = pids(&shown).collect();
        let mut hidden = Vec::new();
        for pid in pids(&listed).filter(|pid| !shown.contains(pid)) {
            // Most have just ended. One that is hidden is there, and still not shown.
            let mut found = Snapshot::default();
            self.bpf.read(&PassRequest::ids(Scope::Process(pid)), &mut found)?;
            let is_shown = !found.is_empty();
            if !is_shown && self.read_procfs(&Query::process(pid), Fields::NONE, &mut found).is_ok() {
                hidden.push(pid);
            }
        }
        self.hidden = Some(hidden);
        Ok(())
    }

    /// Whether all threads that the kernel counts are those that it shows and those of process 1. To list `/proc` takes longer than
    /// all else. In a pid namespace, or where tasks come and go meanwhile, this is not known, and false.
    pub(super) fn shows_all_but_the_first(&mut self) -> Result<bool> {
        let counted = host::threads();
        let mut threads = Snapshot::default();
        self.bpf.read(&PassRequest::ids(Scope::Threads), &mut threads)?;
        self.read_procfs(&Query::threads_of(1), Fields::NONE, &mut threads)?;
        Ok(counted == threads.len() as u16 && counted == host::threads())
    }

    /// Whether there is a process of this number, as far as iterators and procfs, which fills in for them, can tell.
    pub(super) fn iterators_show(&mut self, pid: u32) -> Result<bool> {
        let mut found = Snapshot::default();
        self.bpf.read(&PassRequest::ids(Scope::Process(pid)), &mut found)?;
        let is_hidden = self.hidden.as_ref().is_some_and(|hidden| hidden.contains(&pid));
        Ok(is_hidden || !found.is_empty())
    }
}

fn parent_of(record: &[u8]) -> Option<u32> {
    let (record, _) = Record::split_first(record)?;
    Some(record.get::<record::Base>(attr::BASE)?.ppid.get())
}
