//! Spreads the reading of many tasks, or of tasks that may wait, over [readers](crate::readers).

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use taskdiag_core::absent::Absent;
use taskdiag_core::error::Error;
use taskdiag_core::field::Files;
use taskdiag_core::snapshot::Snapshot;

use super::place::{Listing, Place};
use super::task::{held_with, unmark, Pass, ReadOptions, Worker, WAITS};
use super::task_failure::TaskFailure;
use crate::mutex::lock;
use crate::readers::{self, Hold, Job, Pulse, Suspects};

/// Room for the names of some hundred processes. They are read before more are listed, while the
/// memory that the kernel touched to list them is still in the processor's cache. A list of
/// processes continues at the id where it was interrupted.
const PROCESSES: usize = 8 << 10;

/// How many of the requested tasks one reader reads in one go.
pub(super) const TASKS_AT_ONCE: usize = 64;

/// A task to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    /// Its index among the requested tasks.
    pub(super) index: usize,
    /// Index into [`Spread::passes`].
    pub(super) pass: usize,
    pub(super) pid: u32,
    /// The thread; 0 for the process.
    pub(super) tid: u32,
    /// Its start time in clock ticks. Another task with its id is not the intended one.
    pub(super) started: Option<u64>,
    /// If each thread of the process is requested: the first one to read.
    pub(super) from: u32,
    /// Files that must not be read, because a reader is stuck at one of them.
    pub(super) held: Files,
    /// It is read even if other processes of its user hold readers.
    pub(super) is_last: bool,
}

impl Target {
    pub(super) fn new(index: usize, pid: u32) -> Target {
        Target {
            index,
            pass: 0,
            pid,
            tid: 0,
            started: None,
            from: 0,
            held: Files::NONE,
            is_last: false,
        }
    }
}

/// Which tasks a target stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expand {
    /// The process or thread itself.
    Itself,
    /// Each thread of the process.
    Threads,
    /// Each thread of the process, if the id is that of a process rather than of another thread.
    ThreadsOfLeader,
}

/// The results for some targets.
#[derive(Debug, Default)]
pub(super) struct Share {
    /// Rows of tasks.
    pub(super) snapshot: Snapshot,
    /// For each target, by its index, where its records begin, or why it has none.
    pub(super) ends: Vec<(usize, Result<usize, TaskFailure>)>,
    /// Targets to read after all others.
    postponed: Vec<Target>,
    /// The process at which this process ran out of a resource, and which one.
    pub(super) failed: Option<(u32, TaskFailure)>,
}

/// Tasks to read.
#[derive(Debug)]
pub(super) struct Spread {
    pub(super) proc: Arc<OwnedFd>,
    pub(super) passes: Vec<Pass>,
    pub(super) expand: Expand,
    /// The list of all processes, if all are to be read.
    pub(super) listing: Option<Mutex<Listing>>,
    pub(super) ticks_per_second: u64,
    /// Why the list of processes is incomplete.
    pub(super) unlisted: Mutex<Option<Error>>,
    pub(super) suspects: Suspects,
    /// How many bytes the records take so far.
    pub(super) read: AtomicUsize,
    /// How many they take before long texts are absent as truncated.
    pub(super) max_records: usize,
}

impl Spread {
    /// Reads one target, and adds its tasks to a part one by one.
    fn read_one(
        &self,
        target: &Target,
        with: ReadOptions<'_>,
        worker: &mut Worker,
        own: &mut Snapshot,
        done: &Mutex<Share>,
    ) {
        let pass = &self.passes[target.pass];
        let mut held = target.held | with.held | Files::from_bits_retain(readers::held(target.pid));
        if readers::are_scarce() && pass.waits() {
            let user = worker.user(self.proc.as_fd(), target.pid);
            if user.is_some_and(readers::does_user_hold) {
                held |= WAITS;
            }
        }
        let with = ReadOptions {
            held,
            started: target.started,
            is_full: self.read.load(Ordering::Relaxed) > self.max_records,
            ..with
        };
        let proc = self.proc.as_fd();
        pass.begin(own);
        let mut hand_over = |own: &mut Snapshot, tid: u32| {
            self.read.fetch_add(own.records.len(), Ordering::Relaxed);
            let mut done = lock(done);
            done.snapshot.append(own);
            with.mark_next_thread(tid);
            drop(done);
            pass.begin(own);
        };
        let read = match self.expand {
            Expand::Itself => {
                let place = match target.tid {
                    0 => Place::process(proc, target.pid),
                    tid => Place::thread(proc, target.pid, tid),
                };
                worker.add(&place, pass, &with, own)
            }
            Expand::Threads => worker.threads((proc, target.pid, target.from), pass, &with, own, &mut hand_over),
            Expand::ThreadsOfLeader => worker
                .leader(proc, target.pid)
                .and_then(|()| worker.threads((proc, target.pid, target.from), pass, &with, own, &mut hand_over)),
        };
        let mut done = lock(done);
        if let Err(lost @ TaskFailure::System(_)) = read {
            done.failed.get_or_insert((target.pid, lost));
        }
        let start = done.snapshot.records.len();
        self.read.fetch_add(own.records.len(), Ordering::Relaxed);
        done.snapshot.append(own);
        done.ends.push((target.index, read.map(|()| start)));
        with.mark_next_task();
    }

    /// Whether to postpone a target because other processes of its user hold readers.
    fn is_suspect(&self, target: &Target, worker: &mut Worker) -> bool {
        let may_wait = !target.is_last && self.passes[target.pass].waits();
        may_wait && self.suspects.has(|| worker.user(self.proc.as_fd(), target.pid))
    }
}

impl Job for Spread {
    type Item = Vec<Target>;
    type Done = Share;
    type Tools = (Worker, Snapshot);

    fn tools(&self) -> (Worker, Snapshot) {
        (Worker::new(self.ticks_per_second), Snapshot::default())
    }

    fn more(&self) -> Option<Vec<Target>> {
        let mut listing = lock(self.listing.as_ref()?);
        match listing.part(self.proc.as_fd(), PROCESSES) {
            Ok(true) => Some(listing.ids.iter().map(|&pid| Target::new(0, pid)).collect()),
            Ok(false) => None,
            Err(errno) => {
                *lock(&self.unlisted) = Some(Error::io("can't list the procfs", errno));
                None
            }
        }
    }

    fn read(&self, targets: &Vec<Target>, (worker, own): &mut (Worker, Snapshot), pulse: &Pulse, done: &Mutex<Share>) {
        for (index, target) in targets.iter().enumerate() {
            let with = ReadOptions {
                pulse: Some((pulse, index)),
                ..ReadOptions::default()
            };
            if self.is_suspect(target, worker) {
                let mut done = lock(done);
                done.postponed.push(*target);
                with.mark_next_task();
                continue;
            }
            self.read_one(target, with, worker, own, done);
        }
    }

    fn rest_of(&self, targets: &Vec<Target>, mark: u64, hold: &Hold, _: &mut Share) -> Vec<Vec<Target>> {
        let (index, tid, file) = unmark(mark);
        let Some((target, rest)) = targets.get(index..).and_then(<[Target]>::split_first) else {
            return Vec::new();
        };
        let files = held_with(file);
        if let Some(user) = Worker::new(self.ticks_per_second).user(self.proc.as_fd(), target.pid) {
            self.suspects.add(user);
            readers::user_holds(user, hold);
        }
        readers::holds(target.pid, files.bits(), hold);
        let once_more = Target {
            held: target.held | files,
            from: tid.max(target.from),
            is_last: true,
            ..*target
        };
        let parts = [vec![once_more], rest.to_vec()];
        parts.into_iter().filter(|part| !part.is_empty()).collect()
    }

    fn without_reader(&self, targets: &Vec<Target>, reason: Absent, done: &mut Share) {
        let (mut worker, mut own) = self.tools();
        let part = Mutex::new(std::mem::take(done));
        for target in targets {
            let with = ReadOptions {
                held: WAITS,
                reason,
                ..ReadOptions::default()
            };
            self.read_one(target, with, &mut worker, &mut own, &part);
        }
        *done = part.into_inner().unwrap_or_else(PoisonError::into_inner);
    }
}

/// Takes the postponed targets out of parts. Each is to be read separately.
pub(super) fn postponed(parts: &mut [Share]) -> Vec<Vec<Target>> {
    let left = parts.iter_mut().flat_map(|part| std::mem::take(&mut part.postponed));
    left.map(|target| {
        vec![Target {
            is_last: true,
            ..target
        }]
    })
    .collect()
}
