//! `/proc` as a source: the same records as from BPF, made from the kernel's texts.
//!
//! `place` and `task` open and read files, `taskdiag_core::text` parses texts, and `encode` makes
//! records. A task takes one open, read and close for each file that the fields need, and nothing
//! else: no `fstat`, no seek, no second read to find the end.
//!
//! Readers are used for files that may wait, and for many tasks (`spread`).

mod encode;
mod kernel;
mod mount;
mod place;
mod spread;
mod task;
mod task_failure;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::fs::SeekFrom;
use taskdiag_core::absent::Absent;
use taskdiag_core::error::Error;
use taskdiag_core::field::{Field, Fields, Files, Group};
use taskdiag_core::identity::Identity;
use taskdiag_core::query::{Query, Scope};
use taskdiag_core::snapshot::Snapshot;
use taskdiag_core::text::process::{self, Positions};
use taskdiag_sys::owner::Owner;

use super::{Source, TaskRequest};
use crate::mutex::lock;
use crate::readers::{self, Suspects, Wait};
use encode::Plan;
pub(crate) use kernel::{cgroup_files, cgroup_id, is_cgroup};
use kernel::{Missing, Mount};
pub use mount::Proc;
pub(crate) use mount::{namespaces, SHARE};
use place::Listing;
pub(crate) use place::{ask_threads, live_directory, threads, Place};
use spread::{Expand, Share, Spread, Target, TASKS_AT_ONCE};
use task::{Pass, ReadOptions, TaskMatch, Test, Worker};
pub(crate) use task_failure::is_exhausted;
use task_failure::TaskFailure;

/// Up to this many tasks are read by the calling thread, if reading them can't wait: waking a
/// reader takes as long.
const MAX_READ_HERE: usize = 16;

/// Reads `/proc`.
#[derive(Debug)]
pub(crate) struct Procfs {
    proc: Arc<OwnedFd>,
    is_outer: bool,
    /// The process that opened it. A child after fork(2) shares the descriptor and its offset in
    /// the directory.
    owner: Owner,
    worker: Worker,
    missing: Missing,
    ticks_per_second: u64,
    /// How much memory the records of an answer take before long texts are absent as truncated.
    pub(crate) max_records: usize,
}

impl Source for Procfs {
    fn read_tasks(&mut self, request: &TaskRequest<'_>, snapshot: &mut Snapshot) -> Result<bool, Error> {
        self.read(request.query, request.fields, request.patience, snapshot)?;
        Ok(false)
    }
}

impl Procfs {
    pub(crate) fn open(proc: &Proc) -> Result<Procfs, Error> {
        const MAX_RECORDS: usize = 128 << 20;
        let ticks_per_second = rustix::param::clock_ticks_per_second();
        Ok(Procfs {
            proc: Arc::new(proc.open()?),
            is_outer: proc.is_outer(),
            owner: Owner::this_process(),
            worker: Worker::new(ticks_per_second),
            missing: Missing::default(),
            ticks_per_second,
            max_records: MAX_RECORDS,
        })
    }

    /// The directory.
    pub(crate) fn directory(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.proc)
    }

    /// Whether this process opened it.
    pub(crate) fn is_ours(&self) -> bool {
        self.owner.is_this_process()
    }

    /// Appends a record and a row for each task of the query, by ascending id, with exactly the
    /// values of `fields`. Counts the tasks that ended or are hidden.
    pub(crate) fn read(
        &mut self,
        query: &Query,
        fields: Fields,
        patience: Duration,
        snapshot: &mut Snapshot,
    ) -> Result<(), Error> {
        let scope = query.scope;
        let mut pass = match scope {
            Scope::Process(_) | Scope::Listed => self.pass(fields, Files::STAT, TaskMatch::Leader)?,
            Scope::ChildrenOf(pid) => self.pass(fields, Files::STAT, TaskMatch::ChildOf(pid))?,
            _ => self.pass(fields, Files::NONE, TaskMatch::Any)?,
        };
        pass.asked = (snapshot.fields, snapshot.answers);
        pass.filter = query.filter.as_ref().map(|filter| Test::new(filter, pass.only));
        let pids: &[u32] = match &scope {
            Scope::Process(pid) | Scope::ThreadsOf(pid) => std::slice::from_ref(pid),
            Scope::Listed | Scope::ThreadsOfListed => &query.pids,
            _ => &[],
        };
        if let Scope::ChildrenOf(pid) = scope {
            self.worker
                .leader(self.proc.as_fd(), pid)
                .map_err(|lost| lost.about(pid))?;
        }
        let is_filtered = pass.filter.is_some();
        let first = snapshot.rows.len();
        let ends = match (pids.len(), scope.is_threads()) {
            (1..=MAX_READ_HERE, false) if !pass.waits() => self.read_here(pids, &pass, snapshot),
            _ => {
                let expand = match scope {
                    Scope::Threads => Expand::Threads,
                    // The directory of any thread leads to all threads of its process, so check
                    // first whether this task is the leader.
                    Scope::ThreadsOf(_) | Scope::ThreadsOfListed => Expand::ThreadsOfLeader,
                    _ => Expand::Itself,
                };
                let targets = pids.iter().enumerate().map(|(index, &pid)| Target::new(index, pid));
                let targets = (scope.is_listed() || !pids.is_empty()).then(|| targets.collect());
                let mut ends = Vec::new();
                for mut part in self.run(vec![pass], expand, targets, patience)? {
                    snapshot.append(&mut part.snapshot);
                    ends.extend(part.ends.into_iter().map(|(index, end)| (index, end.map(drop))));
                }
                ends
            }
        };
        for (index, end) in ends {
            let Some(&pid) = pids.get(index) else {
                if let Err(lost) = end {
                    lost.count(snapshot).map_err(|lost| lost.about(index as u32))?;
                }
                continue;
            };
            match end {
                Err(lost) if !scope.is_listed() => return Err(lost.about(pid)),
                Err(TaskFailure::Gone | TaskFailure::Other) => snapshot.missing.push(pid),
                Err(lost) => lost.count(snapshot).map_err(|lost| lost.about(pid))?,
                Ok(()) => {}
            }
        }
        snapshot.missing.sort_unstable();
        snapshot.rows[first..].sort_by_key(|row| row.tid);
        // A process that has ended since it was opened has no threads.
        if matches!(scope, Scope::ThreadsOf(_) | Scope::ThreadsOfListed) && !is_filtered {
            let mut found: Vec<u32> = snapshot.tasks().map(|task| task.record().header().pid.get()).collect();
            found.sort_unstable();
            let gone = |pid: &&u32| found.binary_search(pid).is_err() && snapshot.missing.binary_search(pid).is_err();
            let gone: Vec<u32> = pids.iter().filter(gone).copied().collect();
            match (scope, gone.first()) {
                (Scope::ThreadsOf(pid), Some(_)) => return Err(TaskFailure::Gone.about(pid)),
                _ => snapshot.missing.extend(gone),
            }
            snapshot.missing.sort_unstable();
        }
        Ok(())
    }

    /// Reads processes in the calling thread.
    fn read_here(&mut self, pids: &[u32], pass: &Pass, snapshot: &mut Snapshot) -> Ends {
        self.worker.cgroups.clear();
        let proc = self.proc.as_fd();
        let mut ends = Vec::new();
        for (index, &pid) in pids.iter().enumerate() {
            let place = Place::process(proc, pid);
            ends.push((index, self.worker.add(&place, pass, &ReadOptions::default(), snapshot)));
        }
        ends
    }

    /// Lets readers read these tasks; `None`: all processes.
    fn run(
        &mut self,
        passes: Vec<Pass>,
        expand: Expand,
        targets: Option<Vec<Target>>,
        patience: Duration,
    ) -> Result<Vec<Share>, Error> {
        let wait = Wait {
            patience,
            deadline: None,
        };
        let mut is_of_all = targets.is_none();
        if is_of_all {
            rustix::fs::seek(&*self.proc, SeekFrom::Start(0))
                .map_err(|errno| Error::io("can't list the procfs", errno))?;
        }
        let targets = targets.unwrap_or_default();
        let mut items: Vec<Vec<Target>> = targets.chunks(TASKS_AT_ONCE).map(<[Target]>::to_vec).collect();
        let mut expected = if is_of_all { usize::MAX } else { items.len() };
        let mut parts = Vec::new();
        loop {
            let job = Arc::new(Spread {
                proc: Arc::clone(&self.proc),
                passes: passes.clone(),
                expand,
                listing: std::mem::take(&mut is_of_all).then(Mutex::default),
                ticks_per_second: self.ticks_per_second,
                unlisted: Mutex::default(),
                suspects: Suspects::default(),
                read: AtomicUsize::new(0),
                max_records: self.max_records,
            });
            let mut done = readers::run(&job, items, expected, wait);
            if let Some(error) = lock(&job.unlisted).take() {
                return Err(error);
            }
            items = spread::postponed(&mut done);
            parts.append(&mut done);
            if items.is_empty() {
                break;
            }
            expected = items.len();
        }
        if let Some((pid, lost)) = parts.iter().find_map(|part| part.failed) {
            return Err(lost.about(pid));
        }
        Ok(parts)
    }

    /// Reads more fields of known tasks. The fields may differ between tasks.
    ///
    /// A task whose start time differs from the known one is another task: the known one is gone.
    pub(crate) fn supplement(
        &mut self,
        wanted: &[SupplementTarget],
        patience: Duration,
    ) -> Result<Vec<Supplements>, Error> {
        let mut kinds: Vec<(Fields, bool)> = Vec::new();
        let mut passes = Vec::new();
        let mut targets = Vec::with_capacity(wanted.len());
        for (index, task) in wanted.iter().enumerate() {
            let kind = match kinds.iter().position(|&kind| kind == (task.fields, task.is_sure)) {
                Some(kind) => kind,
                None => {
                    kinds.push((task.fields, task.is_sure));
                    let plan = if task.is_sure {
                        Plan::sure(task.fields)
                    } else {
                        Plan::new(task.fields, Files::STAT)
                    };
                    passes.push(self.pass_by(plan, TaskMatch::Any)?);
                    kinds.len() - 1
                }
            };
            targets.push(Target {
                pass: kind,
                tid: if task.is_thread { task.task.tid() } else { 0 },
                started: (!task.is_sure).then(|| task.task.start_ticks()),
                ..Target::new(index, task.pid)
            });
        }
        if targets.is_empty() {
            return Ok(Vec::new());
        }
        let parts = self.run(passes, Expand::Itself, Some(targets), patience)?;
        let supplements = parts.into_iter().map(|part| Supplements {
            no_answer: part.snapshot.counters.no_answer,
            records: part.snapshot.records,
            of: part
                .ends
                .into_iter()
                .map(|(index, end)| (index, end.map_err(TaskFailure::as_absent)))
                .collect(),
        });
        Ok(supplements.collect())
    }

    fn pass(&mut self, fields: Fields, also: Files, only: TaskMatch) -> Result<Pass, Error> {
        self.pass_by(Plan::new(fields, also), only)
    }

    fn pass_by(&mut self, plan: Plan, only: TaskMatch) -> Result<Pass, Error> {
        self.missing.probe(self.proc.as_fd(), &plan);
        let mount = if plan.fields.contains(Field::CgroupId) {
            Mount::find(self.proc.as_fd(), None)?.map(Arc::new)
        } else {
            None
        };
        Ok(Pass {
            plan,
            only,
            missing: self.missing,
            is_outer: self.is_outer,
            mount,
            filter: None,
            asked: (Fields::NONE, [None; Group::ALL.len()]),
        })
    }
}

/// For each task, by its index among the requested ones, whether it has a row, or why not.
type Ends = Vec<(usize, Result<(), TaskFailure>)>;

/// A known task of which more fields are to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SupplementTarget {
    /// Its row in the snapshot.
    pub row: usize,
    pub pid: u32,
    pub task: Identity,
    /// It is a thread rather than a process.
    pub is_thread: bool,
    pub fields: Fields,
    /// The caller ensures afterwards that it is still the same task.
    pub is_sure: bool,
}

/// The additional records of some tasks.
#[derive(Debug)]
pub(crate) struct Supplements {
    /// Records, one after the other.
    pub records: Vec<u8>,
    /// For each task, by its index among the requested ones, where its record begins, or why it has
    /// none.
    pub of: Vec<(usize, Result<usize, Absent>)>,
    /// How many tasks have a value that could not be read within the patience.
    pub no_answer: u64,
}

/// The error for a process that `/proc` does not have: it does not exist, or `/proc` is not of the
/// caller's namespace.
pub(crate) fn missing(proc: &Proc, pid: u32) -> Error {
    Procfs::open(proc).err().unwrap_or_else(|| Error::no_such_process(pid))
}

/// The processes that `/proc` lists, ascending.
pub(crate) fn pids(proc: &Proc) -> Result<Vec<u32>, Error> {
    let proc = Procfs::open(proc)?.directory();
    let mut listing = Listing::default();
    let listed = listing.all(proc.as_fd());
    listed.map_err(|errno| Error::io("can't list the procfs", errno))?;
    Ok(listing.ids)
}

/// The start time in a `stat`, in clock ticks. `None` if the task is gone or the text is malformed.
pub(crate) fn start_ticks(stat: &[u8]) -> Option<u64> {
    process::stat(stat, Positions::BASIC)
        .filter(|stat| !stat.is_released())
        .map(|stat| stat.start_ticks())
}
