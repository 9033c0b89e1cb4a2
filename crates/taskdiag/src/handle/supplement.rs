//! What procfs adds to rows that another source brought.

use std::collections::HashMap;
use std::sync::Arc;

use taskdiag_bpf::pass::{deferred, Bpf, PassRequest};
use taskdiag_core::absent::Absent;
use taskdiag_core::field::{Field, Fields};
use taskdiag_core::identity::Identity;
use taskdiag_core::plan::Plan;
use taskdiag_core::query::{Query, Scope};
use taskdiag_core::record::{self, attr, Record};
use taskdiag_core::snapshot::{Place, Snapshot};

use super::{fields_of, is_of_all, Handle};
use crate::memory::absent_record;
use crate::source::procfs::{Supplements, Wanted};

impl Handle {
    /// Asks procfs for the groups that are its part, and for what the other source met but could not answer exactly. Arguments that
    /// were read for an earlier answer, and of a process that has not run since, are not read again.
    pub(super) fn fill_in(&mut self, query: &Query, plan: &Plan, snapshot: &mut Snapshot) {
        let part = fields_of(snapshot.fields, plan.procfs);
        if part == Fields::NONE && snapshot.unsettled.is_empty() {
            return;
        }
        let is_of_all = is_of_all(query);
        let keeps_arguments = part.contains(Field::Cmdline) && !self.one_shot;
        if keeps_arguments {
            self.arguments.begin(snapshot);
        }
        let mut wanted = self.wanted(query, part, keeps_arguments, snapshot);
        let lists_all = wanted.len() >= MANY && !query.scope.is_threads() && plan.bpf.is_some();
        if lists_all {
            let hidden = self.hidden.as_deref().unwrap_or_default();
            wanted
                .iter_mut()
                .for_each(|task| task.is_sure = !hidden.contains(&task.pid));
        }
        let patience = self.patience(query);
        let supplements = match self.procfs() {
            Ok(procfs) => procfs.supplement(&wanted, patience),
            Err(error) => Err(error),
        };
        let supplements = supplements.unwrap_or_default();
        // Who is not found in /proc has ended, or is hidden there.
        let is_missing =
            |supplements: &Supplements| supplements.of.iter().any(|(_, offset)| *offset == Err(Absent::Gone));
        let there = match plan.bpf {
            Some(_) if lists_all || supplements.iter().any(is_missing) => {
                ids_of_all(&mut self.bpf, query.scope.is_threads()).unwrap_or_default()
            }
            _ => Snapshot::default(),
        };
        let times = &mut self.times[usize::from(query.scope.is_threads())];
        let mut absent: HashMap<(Fields, Absent), Place> = HashMap::new();
        let mut is_filled = vec![false; wanted.len()];
        for supplements in supplements {
            let chunk = snapshot.chunks.len() as u32 + 1;
            let Supplements {
                mut records,
                of,
                no_answer,
            } = supplements;
            snapshot.counters.no_answer += no_answer;
            for (index, offset) in of {
                let task = &wanted[index];
                is_filled[index] = true;
                let offset = match offset {
                    Ok(_) if task.is_sure && !there.has(task.task) => Err(Absent::Gone),
                    Err(Absent::Gone) if there.has(task.task) => Err(Absent::Denied),
                    offset => offset,
                };
                let place = match offset {
                    Ok(offset) => Place { chunk, offset },
                    Err(reason) => absent_place(task.fields, reason, &mut absent, snapshot),
                };
                let row = &mut snapshot.rows[task.row];
                row.more(&mut snapshot.more).supplement = Some(place);
                let Ok(offset) = offset else { continue };
                if let Some(cpu) = record::part_mut(&mut records[offset..], attr::CPU) {
                    times.raise(task.task, cpu);
                }
                let read = Record::split_first(&records[offset..]);
                let first = Record::split_first(&snapshot.records[row.record..]);
                if let (true, Some((read, _)), Some((first, _))) = (keeps_arguments, read, first) {
                    if read.attribute(attr::ARGS).is_some() {
                        self.arguments.keep(first, place);
                    }
                }
            }
            snapshot.chunks.push(Arc::new(records));
        }
        // Without /proc, nobody can tell.
        for (task, _) in wanted.iter().zip(is_filled).filter(|(_, is_filled)| !is_filled) {
            let place = absent_place(task.fields, Absent::Unsupported, &mut absent, snapshot);
            snapshot.rows[task.row].more(&mut snapshot.more).supplement = Some(place);
        }
        if keeps_arguments {
            self.arguments.settle(snapshot, is_of_all);
        }
    }

    /// The rows of which procfs has to be asked for something, and for what.
    pub(super) fn wanted(
        &mut self,
        query: &Query,
        part: Fields,
        keeps_arguments: bool,
        snapshot: &mut Snapshot,
    ) -> Vec<Wanted> {
        let is_thread = query.scope.is_threads();
        let mut wanted = Vec::new();
        for index in 0..snapshot.rows.len() {
            let is_deferred = snapshot.is_unsettled(index);
            if part == Fields::NONE && !is_deferred {
                continue;
            }
            let Some((record, _)) = Record::split_first(&snapshot.records[snapshot.rows[index].record..]) else {
                continue;
            };
            let mut fields = part;
            if is_deferred {
                let of_record = fields_of(snapshot.fields, deferred(record));
                snapshot.counters.deferred += u64::from(of_record != Fields::NONE);
                fields |= of_record;
            }
            if record.has(record::NO_MM) {
                fields = fields.iter().filter(|field| !field.needs_memory()).collect();
            }
            let header = record.header();
            if keeps_arguments && fields.contains(Field::Cmdline) {
                if let Some(place) = self.arguments.find(record) {
                    fields = fields.without(Field::Cmdline);
                    snapshot.rows[index].more(&mut snapshot.more).args = Some(place);
                    snapshot.counters.remembered += 1;
                }
            }
            let ids = Field::Pid | Field::Tid;
            if fields.without(ids) != Fields::NONE {
                wanted.push(Wanted {
                    row: index,
                    pid: header.pid.get(),
                    task: Identity::of(header),
                    is_thread,
                    fields,
                    is_sure: false,
                });
            }
        }
        wanted
    }
}

/// For so many tasks a list of all is cheaper than to look at each whether it is still the same.
const MANY: usize = 50;

/// The tasks that there are, by ids; none if that is not known.
pub(super) fn ids_of_all(bpf: &mut Bpf, threads: bool) -> Option<Snapshot> {
    let mut ids = Snapshot::default();
    let scope = if threads { Scope::Threads } else { Scope::Processes };
    bpf.read(&PassRequest::ids(scope), &mut ids).ok()?;
    ids.put_in_order();
    Some(ids)
}

/// Where a record lies that says why fields are absent.
fn absent_place(
    fields: Fields,
    reason: Absent,
    known: &mut HashMap<(Fields, Absent), Place>,
    snapshot: &mut Snapshot,
) -> Place {
    *known
        .entry((fields, reason))
        .or_insert_with(|| Place::own(absent_record(fields, reason, &mut snapshot.records)))
}
