//! `/proc` as a source: the same records as from BPF, made of the kernel's texts.
//!
//! `place` and `task` open and read, `taskdiag_core::text` makes values of texts and `encode` makes records of values. A task costs one open,
//! read and close for each file that the fields need, and nothing else: no `fstat`, no seek, no second read to see the end.
//!
//! What may keep its reader waiting, and what is much, is given to readers (`spread`).

mod encode;
mod kernel;
mod place;
mod spread;
mod task;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, SeekFrom, CWD};
use taskdiag_core::absent::Absent;
use taskdiag_core::error::{Error, ErrorKind};
use taskdiag_core::field::{Field, Fields, Files};
use taskdiag_core::identity::Identity;
use taskdiag_core::query::{Query, Scope};
use taskdiag_core::snapshot::Snapshot;
use taskdiag_core::text::process;
use taskdiag_sys::owner::Owner;

use super::{Source, TaskRequest};
use crate::readers::{self, Wait};
use encode::Plan;
pub(crate) use kernel::cgroup_id;
use kernel::{Missing, Mount};
use place::Place;
use spread::{Meant, Part, Spread, Target, PART};
use task::{Lost, Only, Pass, Test, With, Worker};

const PROC_MAGIC: u64 = 0x9fa0;

/// So few tasks are read by who asks, if none of their files may keep it waiting: to wake a reader takes as long.
const FEW: usize = 16;

/// Reads `/proc`.
#[derive(Debug)]
pub(crate) struct Procfs {
    proc: Arc<OwnedFd>,
    /// The process that opened it. A child of it has the same descriptor, and with it the same place in the directory.
    owner: Owner,
    worker: Worker,
    missing: Missing,
    ticks_per_second: u64,
}

impl Source for Procfs {
    fn read_tasks(&mut self, asked: &TaskRequest<'_>, snapshot: &mut Snapshot) -> Result<bool, Error> {
        self.read(asked.query, asked.fields, asked.patience, snapshot)?;
        Ok(false)
    }
}

impl Procfs {
    pub(crate) fn open() -> Result<Procfs, Error> {
        const MOUNT: &str = "mount it with: mount -t proc proc /proc";
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::openat(CWD, c"/proc", flags, Mode::empty())
            .map_err(|errno| Error::io(format!("can't open /proc ({MOUNT})"), errno))?;
        let kind = rustix::fs::fstatfs(&proc).map_err(|errno| Error::io("/proc", errno))?;
        if kind.f_type as u64 != PROC_MAGIC {
            let message = format!("/proc is not the kernel's: {MOUNT}");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        // All numbers in it are those of the pid namespace that it was mounted in. Ours has to be that one.
        let mut target = [0; 16];
        let len = rustix::fs::readlinkat_raw(&proc, c"self", &mut target[..]).unwrap_or(0);
        let own = process::task_id(&target[..len]);
        if own != Some(rustix::process::getpid().as_raw_nonzero().get() as u32) {
            let message = format!("/proc shows another pid namespace than the caller's: {MOUNT}");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let ticks_per_second = rustix::param::clock_ticks_per_second();
        Ok(Procfs {
            proc: Arc::new(proc),
            owner: Owner::this_process(),
            worker: Worker::new(ticks_per_second),
            missing: Missing::default(),
            ticks_per_second,
        })
    }

    /// The directory, for others who read in it.
    pub(crate) fn directory(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.proc)
    }

    /// Whether this process opened it.
    pub(crate) fn is_ours(&self) -> bool {
        self.owner.is_this_process()
    }

    /// Appends a record and a row for each task of the query's scope, by ascending ids, with the values of `fields` and no others,
    /// and counts the tasks that it lost.
    pub(crate) fn read(
        &mut self,
        query: &Query,
        fields: Fields,
        patience: Duration,
        snapshot: &mut Snapshot,
    ) -> Result<(), Error> {
        let scope = query.scope;
        let mut pass = match scope {
            Scope::Process(_) | Scope::Listed => self.pass(fields, Files::STAT, Only::Leader)?,
            Scope::ChildrenOf(pid) => self.pass(fields, Files::STAT, Only::ChildOf(pid))?,
            _ => self.pass(fields, Files::NONE, Only::Any)?,
        };
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
            // Who asks reads it, as long as that can't take long.
            (1..=FEW, false) if !pass.waits() => self.read_here(pids, &pass, snapshot),
            _ => {
                let meant = match scope {
                    Scope::Threads => Meant::Threads,
                    // The directory of any thread leads to all threads of its process: ask first whether this one is the leader.
                    Scope::ThreadsOf(_) | Scope::ThreadsOfListed => Meant::ThreadsOfLeader,
                    _ => Meant::Itself,
                };
                let targets = pids.iter().enumerate().map(|(index, &pid)| Target::new(index, pid));
                let reading = Reading {
                    passes: vec![pass],
                    meant,
                    targets: (scope.is_listed() || !pids.is_empty()).then(|| targets.collect()),
                };
                let mut ends = Vec::new();
                for mut part in self.run(reading, patience)? {
                    snapshot.take_in(&mut part.snapshot);
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
                Err(Lost::Gone | Lost::Other) => snapshot.missing.push(pid),
                Err(lost) => lost.count(snapshot).map_err(|lost| lost.about(pid))?,
                Ok(()) => {}
            }
        }
        snapshot.missing.sort_unstable();
        snapshot.rows[first..].sort_by_key(|row| row.tid);
        // Processes that ended after they were listed have no threads.
        if matches!(scope, Scope::ThreadsOf(_) | Scope::ThreadsOfListed) && !is_filtered {
            let mut found: Vec<u32> = snapshot.tasks().map(|task| task.record().header().pid.get()).collect();
            found.sort_unstable();
            let gone = |pid: &&u32| found.binary_search(pid).is_err() && snapshot.missing.binary_search(pid).is_err();
            let gone: Vec<u32> = pids.iter().filter(gone).copied().collect();
            match (scope, gone.first()) {
                (Scope::ThreadsOf(pid), Some(_)) => return Err(Lost::Gone.about(pid)),
                _ => snapshot.missing.extend(gone),
            }
            snapshot.missing.sort_unstable();
        }
        Ok(())
    }

    /// Reads processes in the thread that asks.
    fn read_here(&mut self, pids: &[u32], pass: &Pass, snapshot: &mut Snapshot) -> Ends {
        self.worker.cgroups.clear();
        let proc = self.proc.as_fd();
        let mut ends = Vec::new();
        for (index, &pid) in pids.iter().enumerate() {
            let place = Place::process(proc, pid);
            ends.push((index, self.worker.add(&place, pass, &With::default(), snapshot)));
        }
        ends
    }

    /// Has readers read all processes, or some.
    fn run(&mut self, reading: Reading, patience: Duration) -> Result<Vec<Part>, Error> {
        let Reading { passes, meant, targets } = reading;
        let wait = Wait {
            patience,
            deadline: None,
        };
        let mut is_of_all = targets.is_none();
        if is_of_all {
            rustix::fs::seek(&*self.proc, SeekFrom::Start(0)).map_err(|errno| Error::io("can't list /proc", errno))?;
        }
        let targets = targets.unwrap_or_default();
        let mut items: Vec<Vec<Target>> = targets.chunks(PART).map(<[Target]>::to_vec).collect();
        let mut expected = if is_of_all { usize::MAX } else { items.len() };
        let mut parts = Vec::new();
        loop {
            let job = Arc::new(Spread::new(
                Arc::clone(&self.proc),
                passes.clone(),
                meant,
                std::mem::take(&mut is_of_all),
                self.ticks_per_second,
            ));
            let mut done = readers::run(&job, items, expected, wait);
            if let Some(error) = job.unlisted() {
                return Err(error);
            }
            items = spread::postponed(&mut done);
            parts.append(&mut done);
            if items.is_empty() {
                break;
            }
            expected = items.len();
        }
        if let Some((pid, lost)) = parts.iter().find_map(Part::failed) {
            return Err(lost.about(pid));
        }
        Ok(parts)
    }

    /// Reads more of tasks that are known, each its own fields.
    ///
    /// One that did not start when it should have is gone. Times are compared in whole clock ticks, for that is all that the text has.
    pub(crate) fn supplement(&mut self, wanted: &[Wanted], patience: Duration) -> Result<Vec<Supplements>, Error> {
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
                    passes.push(self.pass_by(plan, Only::Any)?);
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
        let reading = Reading {
            passes,
            meant: Meant::Itself,
            targets: Some(targets),
        };
        let parts = self.run(reading, patience)?;
        let supplements = parts.into_iter().map(|part| Supplements {
            no_answer: part.snapshot.counters.no_answer,
            records: part.snapshot.records,
            of: part
                .ends
                .into_iter()
                .map(|(index, end)| (index, end.map_err(Lost::as_absent)))
                .collect(),
        });
        Ok(supplements.collect())
    }

    fn pass(&mut self, fields: Fields, also: Files, only: Only) -> Result<Pass, Error> {
        self.pass_by(Plan::new(fields, also), only)
    }

    fn pass_by(&mut self, plan: Plan, only: Only) -> Result<Pass, Error> {
        self.missing.probe(self.proc.as_fd(), &plan);
        let mount = if plan.fields.contains(Field::CgroupId) {
            Mount::find(self.proc.as_fd())?.map(Arc::new)
        } else {
            None
        };
        Ok(Pass {
            plan,
            only,
            missing: self.missing,
            mount,
            filter: None,
        })
    }
}

/// How the reading of tasks ended, by their places among those that were asked about.
type Ends = Vec<(usize, Result<(), Lost>)>;

/// What readers are to read.
struct Reading {
    passes: Vec<Pass>,
    meant: Meant,
    /// None: all processes.
    targets: Option<Vec<Target>>,
}

/// A task that more is to be read of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// What it is known by to who asks.
    pub row: usize,
    pub pid: u32,
    pub task: Identity,
    /// The thread is meant, and not the process.
    pub is_thread: bool,
    pub fields: Fields,
    /// Somebody else makes sure that it is still the one that is meant.
    pub is_sure: bool,
}

/// What was read of some tasks.
#[derive(Debug)]
pub(crate) struct Supplements {
    /// Records, one behind the other.
    pub records: Vec<u8>,
    /// For each of the tasks, by its place among them, where its record begins, or why it has none.
    pub of: Vec<(usize, Result<usize, Absent>)>,
    /// Tasks of which something did not answer.
    pub no_answer: u64,
}

/// When the task started that a `stat` is of, in clock ticks; none if it is gone, or the text makes no sense.
pub(crate) fn start_ticks(stat: &[u8]) -> Option<u64> {
    process::stat(stat)
        .filter(|stat| !stat.is_released())
        .map(|stat| stat.start_ticks)
}
