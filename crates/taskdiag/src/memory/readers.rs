//! Reading rollups: what [`Readers`](crate::readers) are given to do.
//!
//! The cheapest come first. What is not read at the deadline is left out.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use taskdiag_core::absent::Absent;
use taskdiag_core::record::Rollup;
use taskdiag_core::snapshot::SourceId;
use taskdiag_core::text::smaps::Sum;
use taskdiag_sys::isolated::Reader;

use super::price::{Rate, Size};
use super::Progress;
use crate::readers::{Hold, Job as ReadersJob, Pulse};
use crate::source::procfs::start_ticks;

/// A walk that might take longer than this is made by a process of its own: a thread that is in one keeps the whole process
/// from ending.
const ISOLATED_NS: u64 = 10_000_000;

/// Processes with no more than this take less than a millisecond, and what they take says little of larger ones.
const SMALL_PAGES: u64 = 2_048;
const SMALL_ENTRIES: u64 = 1 << 17;

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

/// The processes that belong to one answer.
#[derive(Debug)]
pub(super) struct Batch {
    pub proc: Arc<OwnedFd>,
    pub source: SourceId,
    pub deadline: Option<Instant>,
    pub jobs: Vec<Job>,
    pub rate: Mutex<Rate>,
    pub progress: Arc<Progress>,
}

/// A lock whose holder panicked guards nothing that could be half done here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReadersJob for Batch {
    /// By its place in [`Batch::jobs`].
    type Item = usize;
    type Done = Option<(usize, Outcome)>;
    type Tools = RollupTools;

    fn tools(&self) -> RollupTools {
        RollupTools {
            room: vec![0; ROOM].into_boxed_slice(),
            sum: Sum::default(),
            turn: 0,
        }
    }

    fn read(&self, &index: &usize, tools: &mut RollupTools, pulse: &Pulse, done: &Mutex<Self::Done>) {
        let outcome = self.attempt(&self.jobs[index], tools, pulse);
        *lock(done) = Some((index, outcome));
        self.progress.step();
    }

    fn go_on_behind(&self, &index: &usize, _: u64, _: &Hold, done: &mut Self::Done) -> Vec<usize> {
        done.get_or_insert((index, Err(Missed::Absent(Absent::NoAnswer))));
        Vec::new()
    }

    fn without_reader(&self, &index: &usize, done: &mut Self::Done) {
        *done = Some((index, Err(Missed::Absent(Absent::NoAnswer))));
    }
}

impl Batch {
    /// What was learnt about this host.
    pub(super) fn rate(&self) -> Rate {
        *lock(&self.rate)
    }

    fn attempt(&self, job: &Job, tools: &mut RollupTools, pulse: &Pulse) -> Outcome {
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
        let read = tools.read(self, job, is_isolated, pulse);
        let took_ns = began.elapsed().as_nanos() as u64;
        match read {
            Ok(Some(rollup)) => {
                if !is_small || tools.is_turn() {
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
}

/// What a reader reads with.
pub(super) struct RollupTools {
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

impl RollupTools {
    /// True for one in sixteen.
    fn is_turn(&mut self) -> bool {
        self.turn = self.turn.wrapping_add(1);
        self.turn % 16 == 0
    }

    /// Reads the rollup of a process; none if it makes no sense.
    fn read(&mut self, batch: &Batch, job: &Job, is_isolated: bool, pulse: &Pulse) -> Result<Option<Rollup>, Absent> {
        let name = match batch.source {
            SourceId::Smaps => "smaps",
            _ => "smaps_rollup",
        };
        let file = open(batch, job, name).map_err(reason)?;
        self.sum.clear();
        let read = if is_isolated {
            self.read_isolated(&file, batch.deadline, pulse)
        } else {
            self.read_here(&file, batch.source == SourceId::SmapsRollup)
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
        if self.sum.is_empty() {
            Err(Absent::Gone)
        } else {
            Ok(self.sum.rollup())
        }
    }

    /// `is_short` says that the text comes in one piece.
    fn read_here(&mut self, file: &OwnedFd, is_short: bool) -> Result<(), Errno> {
        loop {
            crate::readers::beat();
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
    fn read_isolated(&mut self, file: &OwnedFd, deadline: Option<Instant>, pulse: &Pulse) -> Result<(), Errno> {
        let reader = Reader::start(file.as_fd(), &mut self.room)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        pulse.is_read_by(reader.pid());
        while let Some(pipe) = reader.pipe() {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let left = left.map(|left| Timespec {
                tv_sec: left.as_secs() as _,
                tv_nsec: left.subsec_nanos().into(),
            });
            match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], left.as_ref()) {
                // Dropping the reader waits for it, which is why this thread then counts as stuck.
                Ok(0) => {
                    pulse.is_read_by(0);
                    return Err(Errno::TIMEDOUT);
                }
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
        pulse.is_read_by(0);
        reader.finish()
    }
}

fn open(batch: &Batch, job: &Job, name: &str) -> Result<OwnedFd, Errno> {
    use std::io::Write as _;

    let mut path = [0; 64];
    let room = path.len();
    let mut rest = &mut path[..];
    let written = if job.pid == job.tid {
        write!(rest, "{}/{name}", job.pid)
    } else {
        write!(rest, "{}/task/{}/{name}", job.pid, job.tid)
    };
    written.map_err(|_| Errno::NAMETOOLONG)?;
    let len = room - rest.len();
    let path = &path[..len];
    crate::readers::beat();
    rustix::fs::openat(&*batch.proc, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}
