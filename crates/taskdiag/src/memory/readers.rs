//! Threads that read rollups.
//!
//! The thread that asks never reads a rollup itself: a target that holds its own lock would hold it up for as long as it
//! likes. It gives a batch of jobs to readers and waits until all are done, or until the deadline. A reader that has not come
//! back by then is left to itself; its result is thrown away and it ends.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::parse::Sum;
use super::price::{Rate, Size};
use super::Progress;
use crate::absent::Absent;
use crate::record::Rollup;
use crate::snapshot::SourceId;
use crate::source::procfs::start_ticks;
use crate::sys::isolated::Reader;

/// A walk that might take longer than this is made by a process of its own: a thread that is in one keeps the whole process
/// from ending.
const ISOLATED_NS: u64 = 10_000_000;

/// Processes with no more than this take less than a millisecond, and what they take says little of larger ones.
const SMALL_PAGES: u64 = 2_048;
const SMALL_ENTRIES: u64 = 1 << 17;

/// More readers than this only wait for each other.
const MOST_READERS: usize = 8;

/// So many readers may be stuck before there are no new ones.
const MOST_STUCK: usize = 32;

/// Room for a rollup in one read; texts of `smaps` come in as many as it takes.
const ROOM: usize = 32 << 10;

/// One process to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub pid: u32,
    /// Not `pid` where the leader of the process has ended and other threads live.
    pub tid: u32,
    /// When that task started, in clock ticks; none if it is found out for all jobs at once whether they were of the right ones.
    pub start_ticks: Option<u64>,
    pub size: Size,
}

/// What came of a job.
pub(super) type Outcome = Result<Walked, Missed>;

/// What a walk found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walked {
    pub rollup: Rollup,
    pub at: Instant,
    pub took_ns: u64,
}

/// Why there is nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missed {
    Absent(Absent),
    /// The text was not of the kind that it should be.
    Malformed,
}

/// Jobs that belong to one answer, the cheapest first.
#[derive(Debug)]
pub(super) struct Batch {
    pub proc: Arc<OwnedFd>,
    pub source: SourceId,
    pub deadline: Option<Instant>,
    pub jobs: Vec<Job>,
    pub outcomes: Vec<OnceLock<Outcome>>,
    pub rate: Mutex<Rate>,
    pub progress: Arc<Progress>,
    next: AtomicUsize,
    left: AtomicUsize,
    /// Set when nobody waits for it any more.
    is_closed: AtomicBool,
    is_done: Mutex<bool>,
    done: Condvar,
}

/// A lock whose holder panicked guards nothing that could be half done here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Batch {
    pub(super) fn new(
        proc: Arc<OwnedFd>,
        source: SourceId,
        deadline: Option<Instant>,
        jobs: Vec<Job>,
        rate: Rate,
        progress: Arc<Progress>,
    ) -> Batch {
        progress.begin(jobs.len());
        Batch {
            proc,
            source,
            deadline,
            outcomes: jobs.iter().map(|_| OnceLock::new()).collect(),
            rate: Mutex::new(rate),
            progress,
            next: AtomicUsize::new(0),
            left: AtomicUsize::new(jobs.len()),
            is_closed: AtomicBool::new(false),
            is_done: Mutex::new(jobs.is_empty()),
            done: Condvar::new(),
            jobs,
        }
    }

    /// What was learnt about this host.
    pub(super) fn rate(&self) -> Rate {
        *lock(&self.rate)
    }

    /// Replaces what was learnt by what was measured.
    pub(super) fn set_rate(&self, rate: Rate) {
        *lock(&self.rate) = rate;
    }

    /// Does jobs until there are none, or nobody waits for them any more.
    fn work(&self, hands: &mut Hands, is_reading: &AtomicBool) {
        while !self.is_closed.load(Ordering::Acquire) {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = self.jobs.get(index) else {
                return;
            };
            is_reading.store(true, Ordering::Release);
            let outcome = self.attempt(job, hands);
            // Before the outcome is told: who then asks again finds this reader at hand.
            is_reading.store(false, Ordering::Release);
            let _ = self.outcomes[index].set(outcome);
            self.progress.step();
            if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                *lock(&self.is_done) = true;
                self.done.notify_all();
            }
        }
    }

    fn attempt(&self, job: &Job, hands: &mut Hands) -> Outcome {
        let began = Instant::now();
        let is_small = job.size.pages <= SMALL_PAGES && job.size.entries <= SMALL_ENTRIES;
        // There is always time for a small one, until there is none.
        let mut is_isolated = false;
        let mut expected_ns = 0;
        if !is_small {
            let rate = self.rate();
            expected_ns = rate.expected_ns(&job.size);
            is_isolated = rate.worst_ns(&job.size) > ISOLATED_NS;
        }
        if let Some(deadline) = self.deadline {
            if began + Duration::from_nanos(expected_ns) >= deadline {
                return Err(Missed::Absent(Absent::OverBudget));
            }
        }
        let read = hands.read(self, job, is_isolated);
        let took_ns = began.elapsed().as_nanos() as u64;
        match read {
            Ok(Some(rollup)) => {
                if !is_small || hands.is_turn() {
                    lock(&self.rate).learn(job.size.pages, took_ns);
                }
                Ok(Walked {
                    rollup,
                    at: began,
                    took_ns,
                })
            }
            Ok(None) => Err(Missed::Malformed),
            Err(reason) => Err(Missed::Absent(reason)),
        }
    }

    /// Waits until all is done, or the deadline has come.
    pub(super) fn wait(&self) {
        let mut is_done = lock(&self.is_done);
        while !*is_done {
            let Some(deadline) = self.deadline else {
                is_done = self.done.wait(is_done).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.done.wait_timeout(is_done, left);
            is_done = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(is_done);
        self.is_closed.store(true, Ordering::Release);
    }
}

/// What a reader reads with.
struct Hands {
    room: Box<[u8]>,
    sum: Sum,
    /// Counts small processes.
    turn: u8,
}

fn reason(errno: Errno) -> Absent {
    match errno {
        Errno::ACCESS | Errno::PERM => Absent::Denied,
        Errno::NOENT | Errno::SRCH => Absent::Gone,
        Errno::TIMEDOUT => Absent::OverBudget,
        _ => Absent::Unsupported,
    }
}

impl Hands {
    /// True for one in sixteen.
    fn is_turn(&mut self) -> bool {
        self.turn = self.turn.wrapping_add(1);
        self.turn % 16 == 0
    }

    /// Reads the rollup of a process; none if it makes no sense.
    fn read(&mut self, batch: &Batch, job: &Job, is_isolated: bool) -> Result<Option<Rollup>, Absent> {
        let name = match batch.source {
            SourceId::Smaps => "smaps",
            _ => "smaps_rollup",
        };
        let file = open(batch, job, name).map_err(reason)?;
        self.sum.clear();
        let read = match is_isolated {
            true => self.read_isolated(&file, batch.deadline),
            false => self.read_here(&file, batch.source == SourceId::SmapsRollup),
        };
        read.map_err(reason)?;
        // The file stays with the task that it was opened for. It is the one that is meant if that one is still there.
        if job.start_ticks.is_some() {
            let stat = open(batch, job, "stat").map_err(|_| Absent::Gone)?;
            let len = rustix::io::read(&stat, &mut self.room[..]).map_err(|_| Absent::Gone)?;
            if start_ticks(&self.room[..len]) != job.start_ticks {
                return Err(Absent::Gone);
            }
        }
        match self.sum.is_empty() {
            // What smaps has of a task that lost its memory.
            true => Err(Absent::Gone),
            false => Ok(self.sum.rollup()),
        }
    }

    /// `is_short` says that the text comes in one piece.
    fn read_here(&mut self, file: &OwnedFd, is_short: bool) -> Result<(), Errno> {
        loop {
            match rustix::io::read(file, &mut self.room[..]) {
                Ok(0) => return Ok(()),
                Ok(len) => {
                    self.sum.add(&self.room[..len]);
                    if is_short && len < self.room.len() {
                        return Ok(());
                    }
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Lets another process read the file, and goes without if that is not done at the deadline.
    fn read_isolated(&mut self, file: &OwnedFd, deadline: Option<Instant>) -> Result<(), Errno> {
        let reader = Reader::start(file.as_fd(), &mut self.room)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        while let Some(pipe) = reader.pipe() {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let left = left.map(|left| Timespec {
                tv_sec: left.as_secs() as _,
                tv_nsec: left.subsec_nanos().into(),
            });
            match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], left.as_ref()) {
                // Dropping the reader waits for it, which is why this thread then counts as stuck.
                Ok(0) => return Err(Errno::TIMEDOUT),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno),
            }
            match rustix::io::read(pipe, &mut self.room[..]) {
                Ok(0) => break,
                Ok(len) => self.sum.add(&self.room[..len]),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        reader.finish()
    }
}

fn open(batch: &Batch, job: &Job, name: &str) -> Result<OwnedFd, Errno> {
    use std::io::Write as _;

    let mut path = [0; 64];
    let room = path.len();
    let mut rest = &mut path[..];
    let written = match job.pid == job.tid {
        true => write!(rest, "{}/{name}", job.pid),
        false => write!(rest, "{}/task/{}/{name}", job.pid, job.tid),
    };
    written.map_err(|_| Errno::NAMETOOLONG)?;
    let len = room - rest.len();
    let path = &path[..len];
    rustix::fs::openat(&*batch.proc, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

#[derive(Debug)]
struct Worker {
    batches: Sender<Arc<Batch>>,
    is_reading: Arc<AtomicBool>,
}

/// The readers of a handle.
#[derive(Debug, Default)]
pub(super) struct Pool {
    workers: Vec<Worker>,
    /// Readers that have not ended.
    alive: Arc<AtomicUsize>,
}

impl Pool {
    /// Has a batch done. Says whether there is anything to wait for.
    pub(super) fn begin(&mut self, batch: &Arc<Batch>) -> bool {
        if batch.jobs.is_empty() {
            return false;
        }
        // Those that have not come back end when they do.
        self.workers.retain(|worker| !worker.is_reading.load(Ordering::Acquire));
        let cpus = thread::available_parallelism().map_or(1, |count| count.get());
        let wanted = cpus.min(MOST_READERS).min(batch.jobs.len());
        while self.workers.len() < wanted && self.alive.load(Ordering::Relaxed) < MOST_STUCK + MOST_READERS {
            let Some(worker) = Worker::start(&self.alive) else {
                break;
            };
            self.workers.push(worker);
        }
        let mut is_given = false;
        for worker in self.workers.iter().take(wanted) {
            is_given |= worker.batches.send(batch.clone()).is_ok();
        }
        is_given
    }
}

impl Worker {
    fn start(alive: &Arc<AtomicUsize>) -> Option<Worker> {
        let (batches, received): (Sender<Arc<Batch>>, Receiver<Arc<Batch>>) = channel();
        let is_reading = Arc::new(AtomicBool::new(false));
        let (reading, alive) = (is_reading.clone(), alive.clone());
        alive.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(alive);
        let started = thread::Builder::new()
            .name("taskdiag-memory".to_owned())
            .stack_size(128 << 10)
            .spawn(move || {
                let _counted = counted;
                let mut hands = Hands {
                    room: vec![0; ROOM].into_boxed_slice(),
                    sum: Sum::new(),
                    turn: 0,
                };
                while let Ok(batch) = received.recv() {
                    batch.work(&mut hands, &reading);
                }
            });
        started.ok()?;
        Some(Worker { batches, is_reading })
    }
}

/// A reader that has not ended.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
