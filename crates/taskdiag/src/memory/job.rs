//! Reading rollups: the job that [readers](crate::readers) are given.
//!
//! The cheapest processes come first. Those not read by the deadline are left out.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::io::{retry_on_intr, Errno};
use taskdiag_core::absent::Absent;
use taskdiag_core::record::Rollup;
use taskdiag_core::snapshot::SourceId;
use taskdiag_core::text::smaps::Sum;
use taskdiag_sys::isolated::{read_given, Failed, Runner, MAX_RESULT_BYTES};

use super::price::{Rate, Size};
use super::Progress;
use crate::mutex::lock;
use crate::readers::{self, Hold, Job, Pulse};
use crate::source::procfs::{ask_threads, is_exhausted, start_ticks, Place};

/// A walk that might take longer than this is made in a separate process: a thread in a walk keeps
/// its whole process from ending.
const ISOLATED_NS: u64 = 10_000_000;

/// Processes with at most this many pages take less than a millisecond, and their times say little
/// about larger ones.
const SMALL_PAGES: u64 = 2_048;
const SMALL_ENTRIES: u64 = 1 << 17;

/// A process to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process {
    pub pid: u32,
    /// The task to read. It differs from `pid` if the leader of the process has ended and other
    /// threads live.
    pub tid: u32,
    /// When that task started, in clock ticks. `None` if all processes are checked together
    /// afterwards.
    pub start_ticks: Option<u64>,
    pub size: Size,
}

/// The result of reading a process, or why there is none.
pub(super) type Outcome = Result<Walked, Missed>;

/// The result of a walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walked {
    pub rollup: Rollup,
    pub at: Instant,
    pub took_ns: u64,
}

/// Why there is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missed {
    Absent(Absent),
    /// The text is malformed.
    Malformed,
    /// This process ran out of a resource.
    Exhausted(Errno),
}

/// The processes of one answer.
#[derive(Debug)]
pub(super) struct RollupJob {
    pub proc: Arc<OwnedFd>,
    pub source: SourceId,
    pub deadline: Option<Instant>,
    pub processes: Vec<Process>,
    pub rate: Mutex<Rate>,
    pub progress: Arc<Progress>,
}

impl Job for RollupJob {
    /// Index into [`RollupJob::processes`].
    type Item = usize;
    type Done = Option<(usize, Outcome)>;
    type Tools = RollupTools;

    fn tools(&self) -> RollupTools {
        RollupTools {
            room: vec![0; MAX_RESULT_BYTES].into_boxed_slice(),
            sum: Sum::default(),
            turn: 0,
        }
    }

    fn read(&self, &index: &usize, tools: &mut RollupTools, pulse: &Pulse, done: &Mutex<Self::Done>) {
        let outcome = self.attempt(&self.processes[index], tools, pulse);
        *lock(done) = Some((index, outcome));
        self.progress.step();
    }

    fn rest_of(&self, &index: &usize, _: u64, _: &Hold, done: &mut Self::Done) -> Vec<usize> {
        done.get_or_insert((index, Err(Missed::Absent(Absent::NoAnswer))));
        Vec::new()
    }

    fn without_reader(&self, &index: &usize, reason: Absent, done: &mut Self::Done) {
        *done = Some((index, Err(Missed::Absent(reason))));
    }
}

impl RollupJob {
    /// The measured speed of this host.
    pub(super) fn rate(&self) -> Rate {
        *lock(&self.rate)
    }

    fn attempt(&self, process: &Process, tools: &mut RollupTools, pulse: &Pulse) -> Outcome {
        let began = Instant::now();
        let size = &process.size;
        let is_small = size.pages <= SMALL_PAGES && size.entries <= SMALL_ENTRIES;
        // A small process is read unless the deadline has passed.
        let mut is_isolated = false;
        let mut expected_ns = 0;
        if !is_small {
            let rate = self.rate();
            expected_ns = rate.expected_ns(size);
            is_isolated = rate.worst_ns(size) > ISOLATED_NS;
        }
        if let Some(deadline) = self.deadline {
            if began + Duration::from_nanos(expected_ns) >= deadline {
                return Err(Missed::Absent(Absent::OverBudget));
            }
        }
        let read = tools.read(self, process, is_isolated.then_some(pulse));
        let took_ns = began.elapsed().as_nanos() as u64;
        match read {
            Ok(Some(rollup)) => {
                if !is_small || tools.is_turn() {
                    lock(&self.rate).learn(size.pages, took_ns);
                }
                Ok(Walked {
                    rollup,
                    at: began,
                    took_ns,
                })
            }
            Ok(None) => Err(Missed::Malformed),
            Err(missed) => Err(missed),
        }
    }
}

/// What a reader keeps from one process to the next.
pub(super) struct RollupTools {
    /// Has room for a rollup in one read. Texts of `smaps` take several reads.
    room: Box<[u8]>,
    sum: Sum,
    /// Counts small processes.
    turn: u8,
}

fn missed(errno: Errno) -> Missed {
    Missed::Absent(match errno {
        Errno::ACCESS | Errno::PERM => Absent::Denied,
        Errno::NOENT | Errno::SRCH => Absent::Gone,
        Errno::TIMEDOUT => Absent::OverBudget,
        // The limit of processes is reached.
        errno if is_exhausted(errno) || errno == Errno::AGAIN => return Missed::Exhausted(errno),
        _ => Absent::Unsupported,
    })
}

impl RollupTools {
    /// True once in sixteen calls.
    fn is_turn(&mut self) -> bool {
        self.turn = self.turn.wrapping_add(1);
        self.turn % 16 == 0
    }

    /// Reads the rollup of a process, through another thread if the first one has ended. `None` if
    /// the text is malformed. `isolated`: another process reads in place of the reader with this pulse.
    fn read(&mut self, job: &RollupJob, process: &Process, isolated: Option<&Pulse>) -> Result<Option<Rollup>, Missed> {
        let read = self.read_task(job, process, isolated);
        if process.pid != process.tid || !matches!(read, Err(Missed::Absent(Absent::Gone))) {
            return read;
        }
        let live = ask_threads(job.proc.as_fd(), process.pid, |tid| {
            let thread = Process {
                tid,
                start_ticks: None,
                ..*process
            };
            let read = self.read_task(job, &thread, isolated);
            (!matches!(read, Err(Missed::Absent(Absent::Gone)))).then_some(read)
        });
        match live.map_err(missed)? {
            Some(live) => {
                self.check_identity(job, process)?;
                live
            }
            None => read,
        }
    }

    fn read_task(
        &mut self,
        job: &RollupJob,
        process: &Process,
        isolated: Option<&Pulse>,
    ) -> Result<Option<Rollup>, Missed> {
        let name = match job.source {
            SourceId::Smaps => "smaps",
            _ => "smaps_rollup",
        };
        let file = open(job, process, name).map_err(missed)?;
        self.sum.clear();
        let read = match isolated {
            Some(pulse) => self.read_isolated(&file, job.deadline, pulse),
            None => self.read_here(&file, job.source == SourceId::SmapsRollup),
        };
        read.map_err(missed)?;
        self.check_identity(job, process)?;
        if self.sum.is_empty() {
            Err(Missed::Absent(Absent::Gone))
        } else {
            Ok(self.sum.rollup())
        }
    }

    /// Checks that the intended task still has the id. Then it had it all the time, and an open file
    /// stays with its task.
    fn check_identity(&mut self, job: &RollupJob, process: &Process) -> Result<(), Missed> {
        if process.start_ticks.is_some() {
            let stat = open(job, process, "stat").map_err(missed)?;
            let len = rustix::io::read(&stat, &mut self.room[..]).map_err(missed)?;
            if start_ticks(&self.room[..len]) != process.start_ticks {
                return Err(Missed::Absent(Absent::Gone));
            }
        }
        Ok(())
    }

    /// Reads the file in this thread. `is_short` means that the text arrives in one piece.
    fn read_here(&mut self, file: &OwnedFd, is_short: bool) -> Result<(), Errno> {
        loop {
            readers::beat();
            let len = retry_on_intr(|| rustix::io::read(file, &mut self.room[..]))?;
            self.sum.add(&self.room[..len]);
            if len == 0 || is_short && len < self.room.len() {
                return Ok(());
            }
        }
    }

    /// Lets another process read the file, and gives it up at the deadline.
    fn read_isolated(&mut self, file: &OwnedFd, deadline: Option<Instant>, pulse: &Pulse) -> Result<(), Errno> {
        let runner = Runner::start().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        pulse.is_read_by(runner.pid());
        let end = loop {
            let sent = runner.send(read_given, [0; 3], c"", Some(file.as_fd()));
            let read = sent.map_err(Failed::from);
            match read.and_then(|()| runner.receive(&mut self.room, deadline)) {
                Ok(0) => break Ok(()),
                Ok(len) => self.sum.add(&self.room[..len]),
                Err(Failed::Silent) => break Err(Errno::TIMEDOUT),
                Err(Failed::Errno(errno)) => break Err(errno),
            }
        };
        // Dropping `runner` waits for the process. Until then this thread makes no progress.
        pulse.is_read_by(0);
        end
    }
}

fn open(job: &RollupJob, process: &Process, name: &str) -> Result<OwnedFd, Errno> {
    let proc = job.proc.as_fd();
    let place = if process.pid == process.tid {
        Place::process(proc, process.pid)
    } else {
        Place::thread(proc, process.pid, process.tid)
    };
    readers::beat();
    place.open(name)
}
