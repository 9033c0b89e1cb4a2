//! Completes the answer of BPF or the broker: adds tasks that the source does not show, drops tasks
//! that are out of scope, and lets procfs read the rest.

use std::collections::HashSet;
use std::time::Duration;

use taskdiag_core::error::Result;
use taskdiag_core::field::{Field, Fields, Groups};
use taskdiag_core::plan::Plan;
use taskdiag_core::query::{Query, Scope};
use taskdiag_core::snapshot::Snapshot;

use super::hidden::Hidden;
use super::remembered::Remembered;
use super::scope;
use super::sources::Sources;

/// What is needed to complete an answer.
pub(super) struct Completion<'a> {
    pub(super) query: &'a Query,
    pub(super) plan: &'a Plan,
    pub(super) patience: Duration,
    /// No other query will follow, so nothing need be remembered.
    pub(super) is_last: bool,
    pub(super) sources: &'a mut Sources,
    pub(super) hidden: &'a mut Hidden,
    pub(super) remembered: &'a mut Remembered,
}

impl Completion<'_> {
    pub(super) fn complete(&mut self, snapshot: &mut Snapshot) -> Result<()> {
        if let Some((_, groups)) = self.plan.bpf {
            self.add_hidden(groups, snapshot)?;
            self.read_again(groups, snapshot)?;
        }
        if self.query.scope.is_listed() {
            scope::retain_listed(self.query, snapshot);
        }
        snapshot.sort();
        if let Some(filter) = &self.query.filter {
            // Values that procfs has yet to read may make it true.
            snapshot.retain(|task| filter.decide(task) != Some(false));
        }
        self.supplement(snapshot)?;
        if let Some(filter) = &self.query.filter {
            filter.retain(snapshot);
        }
        Ok(())
    }

    /// Adds the processes that this kernel hides from BPF. Without them the answer would differ
    /// from that of procfs.
    fn add_hidden(&mut self, groups: Groups, snapshot: &mut Snapshot) -> Result<()> {
        let hidden = self.hidden.find(self.sources, self.patience)?;
        let hidden: Vec<u32> = hidden
            .iter()
            .copied()
            .filter(|&pid| scope::can_have(self.query, pid))
            .collect();
        snapshot.counters.hidden = self.add_by_procfs(hidden, groups, snapshot)? as u64;
        Ok(())
    }

    /// Reads the processes again whose ids passed to other tasks while BPF read them, as when a
    /// thread calls execve(2).
    fn read_again(&mut self, groups: Groups, snapshot: &mut Snapshot) -> Result<()> {
        let mut again = std::mem::take(&mut snapshot.again);
        again.sort_unstable();
        again.dedup();
        if again.is_empty() {
            return Ok(());
        }
        let known = snapshot.rows.len();
        let asked = again.len();
        let added = self.add_by_procfs(again, groups, snapshot)?;
        snapshot.counters.gone += asked.saturating_sub(added) as u64;
        // Most of the threads were read before.
        let mut seen: HashSet<u32> = snapshot.rows[..known].iter().map(|row| row.tid).collect();
        let mut new = snapshot.rows.split_off(known);
        new.retain(|row| seen.insert(row.tid));
        snapshot.rows.append(&mut new);
        Ok(())
    }

    /// Lets procfs read some processes, or their threads. Returns how many rows this added.
    fn add_by_procfs(&mut self, pids: Vec<u32>, groups: Groups, snapshot: &mut Snapshot) -> Result<usize> {
        if pids.is_empty() {
            return Ok(0);
        }
        let mut fields = fields_of(snapshot.fields, groups);
        if let Scope::ChildrenOf(_) = self.query.scope {
            fields |= Field::Ppid;
        }
        let asked = if self.query.scope.is_threads() {
            Query::threads_of_these(pids)
        } else {
            Query::these(pids)
        };
        let mut found = Snapshot::default();
        found.clear(fields);
        self.sources.read_procfs(&asked, fields, self.patience, &mut found)?;
        scope::retain_children(self.query, &mut found);
        let added = found.rows.len();
        snapshot.append(&mut found);
        Ok(added)
    }
}

/// The fields in `fields` that belong to some groups, and the ids.
pub(super) fn fields_of(fields: Fields, groups: Groups) -> Fields {
    let is_wanted = |field: &Field| matches!(field, Field::Pid | Field::Tid) || groups.contains(field.group());
    if groups.is_empty() {
        Fields::NONE
    } else {
        fields.iter().filter(is_wanted).collect()
    }
}
