//! What procfs adds to rows of another source.

use std::error::Error as _;
use std::sync::Arc;

use rustix::io::Errno;
use taskdiag_bpf::pass::deferred;
use taskdiag_core::absent::Absent;
use taskdiag_core::error::{Error, Result};
use taskdiag_core::field::{Field, Fields};
use taskdiag_core::identity::Identity;
use taskdiag_core::record::{self, attr, Record};
use taskdiag_core::snapshot::{Place, Snapshot};

use super::complete::{fields_of, Completion};
use super::scope::is_of_all;
use super::sources::all_shown;
use crate::absences::Absences;
use crate::source::procfs::{is_exhausted, SupplementTarget, Supplements};

/// For this many tasks, listing all tasks is faster than checking each one's identity.
const MANY: usize = 50;

impl Completion<'_> {
    /// Lets procfs read the groups that the plan leaves to it, and what the other source could not
    /// answer exactly. Arguments are not read again if the process has not run since an earlier
    /// answer.
    pub(super) fn supplement(&mut self, snapshot: &mut Snapshot) -> Result<()> {
        let part = fields_of(snapshot.fields, self.plan.procfs);
        if part == Fields::NONE && snapshot.deferred.is_empty() {
            return Ok(());
        }
        // What has run since may have changed them.
        let keeps_arguments = part.contains(Field::Cmdline) && !self.is_last && !self.query.changed;
        if keeps_arguments {
            self.remembered.arguments.begin_answer(snapshot);
        }
        let mut wanted = self.wanted(part, keeps_arguments, snapshot);
        let is_threads = self.query.scope.is_threads();
        let lists_all = wanted.len() >= MANY && !is_threads && self.plan.bpf.is_some();
        if lists_all {
            let hidden = self.hidden.known();
            wanted
                .iter_mut()
                .for_each(|task| task.is_sure = !hidden.contains(&task.pid));
        }
        let mut supplements = self.read_supplements(&wanted)?;
        // A task that procfs does not find has ended, or `/proc` hides it.
        let lacks_some =
            |supplements: &Supplements| supplements.of.iter().any(|(_, offset)| *offset == Err(Absent::Gone));
        let existing = if self.plan.bpf.is_some() && (lists_all || supplements.iter().any(lacks_some)) {
            all_shown(&mut self.sources.bpf, is_threads)
        } else {
            Some(Snapshot::default())
        };
        if existing.is_none() && lists_all {
            // Then each one's identity is checked.
            wanted.iter_mut().for_each(|task| task.is_sure = false);
            supplements = self.read_supplements(&wanted)?;
        }
        let existing = existing.unwrap_or_default();
        let mut absences = Absences::default();
        let mut is_read = vec![false; wanted.len()];
        for mut part in supplements {
            part.of.iter_mut().for_each(|(index, offset)| {
                let task = &wanted[*index];
                is_read[*index] = true;
                *offset = match *offset {
                    Ok(_) if task.is_sure && !existing.has(task.task) => Err(Absent::Gone),
                    Err(Absent::Gone) if existing.has(task.task) => Err(Absent::Denied),
                    offset => offset,
                };
            });
            self.take_in(part, &wanted, keeps_arguments, &mut absences, snapshot);
        }
        // What was not read at all can't be read without `/proc`.
        for (task, _) in wanted.iter().zip(is_read).filter(|(_, is_read)| !is_read) {
            let offset = absences.offset(task.fields, Absent::Unsupported, &mut snapshot.records);
            snapshot.rows[task.row].more(&mut snapshot.more).supplement = Some(Place::own(offset));
        }
        if keeps_arguments {
            self.remembered.arguments.end_answer(snapshot, is_of_all(self.query));
        }
        Ok(())
    }

    /// What procfs reads about rows: nothing if there is no `/proc`. Fails if this process ran out of
    /// a resource, which says nothing about the rows.
    fn read_supplements(&mut self, wanted: &[SupplementTarget]) -> Result<Vec<Supplements>> {
        let patience = self.patience;
        let procfs = self.sources.procfs();
        let read = procfs.and_then(|procfs| procfs.supplement(wanted, patience));
        let cause = |error: &Error| {
            error
                .source()
                .and_then(|cause| Errno::from_io_error(cause.downcast_ref()?))
        };
        match read {
            Err(error) if cause(&error).is_some_and(is_exhausted) => Err(error),
            read => Ok(read.unwrap_or_default()),
        }
    }

    /// The rows that procfs must complete, and the fields to read for each.
    fn wanted(&mut self, part: Fields, keeps_arguments: bool, snapshot: &mut Snapshot) -> Vec<SupplementTarget> {
        let is_thread = self.query.scope.is_threads();
        let mut wanted = Vec::new();
        for index in 0..snapshot.rows.len() {
            let is_deferred = snapshot.is_deferred(index);
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
                if let Some(place) = self.remembered.arguments.find(record) {
                    fields = fields.without(Field::Cmdline);
                    snapshot.rows[index].more(&mut snapshot.more).args = Some(place);
                    snapshot.counters.remembered += 1;
                }
            }
            let ids = Field::Pid | Field::Tid;
            if fields.without(ids) != Fields::NONE {
                wanted.push(SupplementTarget {
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

    /// Adds what was read about some tasks to their rows.
    fn take_in(
        &mut self,
        part: Supplements,
        wanted: &[SupplementTarget],
        keeps_arguments: bool,
        absences: &mut Absences,
        snapshot: &mut Snapshot,
    ) {
        let Supplements {
            mut records,
            of,
            no_answer,
        } = part;
        let chunk = snapshot.chunks.len() as u32 + 1;
        snapshot.counters.no_answer += no_answer;
        for (index, offset) in of {
            let task = &wanted[index];
            let place = match offset {
                Ok(offset) => Place { chunk, offset },
                Err(reason) => Place::own(absences.offset(task.fields, reason, &mut snapshot.records)),
            };
            let row = &mut snapshot.rows[task.row];
            row.more(&mut snapshot.more).supplement = Some(place);
            let Ok(offset) = offset else { continue };
            if let Some(cpu) = record::part_mut(&mut records[offset..], attr::CPU) {
                self.remembered.times(self.query).raise(task.task, cpu);
            }
            let read = Record::split_first(&records[offset..]);
            let first = Record::split_first(&snapshot.records[row.record..]);
            if let (true, Some((read, _)), Some((first, _))) = (keeps_arguments, read, first) {
                if read.attribute(attr::ARGS).is_some() {
                    self.remembered.arguments.keep(first, place);
                }
            }
        }
        snapshot.chunks.push(Arc::new(records));
    }
}
