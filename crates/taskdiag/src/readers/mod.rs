//! Threads that do reads which a process can block.
//!
//! The kernel reads a process's arguments, environment, mappings and page tables under locks of
//! that process, and a process can hold these for as long as it likes: for example, with a page of
//! a file system that never answers. The reading thread then waits, and only a fatal signal ends
//! the wait. So the calling thread does not do such reads. It gives the work to *readers*, and
//! watches them. A reader is given up if it has not come back from a system call within the
//! patience, and is not running either. [`Job::rest_of`] gets what it was reading, and other
//! readers do the rest. The thread itself is left alone, and ends when its system call returns.
//!
//! At most [`MAX_LOST`] readers are lost like that. From half of that number on, processes of
//! users who block readers are no longer read where that may wait, so that one user can't block all
//! readers. Once all are lost, no process is read that way until some readers have come back. All
//! handles share the idle readers, and what is known about processes that block readers.
//!
//! `pulse` is a reader's sign of life, `pool` has the threads, `holders` knows which processes
//! block readers, `watch` gives work to readers and gives them up, `each` is the job that most
//! callers need.

mod each;
mod holders;
mod pool;
mod pulse;
mod watch;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use taskdiag_core::absent::Absent;

pub(crate) use each::{call, each};
pub(crate) use holders::{
    are_scarce, does_user_hold, held, holds, user_holds, Hold, Suspects, FILE_SYSTEMS, MAPPINGS, MEMORY,
};
pub(crate) use pulse::{beat, is_running, Pulse};
pub(crate) use watch::run;

/// The maximum number of lost readers.
const MAX_LOST: usize = 48;

/// How many readers work on a batch: more would only wait for each other.
const MAX_READERS: usize = 8;

/// How long a system call of a reader may make no progress, unless the caller says otherwise.
pub(crate) const PATIENCE: Duration = Duration::from_millis(200);

/// How long the texts of one task may take in total, even if each piece of them comes in time.
pub(crate) const MAX_TASK_TIME: Duration = Duration::from_secs(5);

/// Work for readers, item by item.
pub(crate) trait Job: Send + Sync + 'static {
    /// What one reader does in one go.
    type Item: Send + Sync + 'static;
    /// The result of an item. It grows while the item is read; if the reader is given up, the part
    /// that exists by then counts.
    type Done: Default + Send + 'static;
    /// What a reader keeps from one item to the next.
    type Tools;

    /// Makes the tools of a new reader.
    fn tools(&self) -> Self::Tools;

    /// The next item after those that were given to [`run`], if there is one. It must not wait.
    fn more(&self) -> Option<Self::Item> {
        None
    }

    /// Reads an item.
    fn read(&self, item: &Self::Item, tools: &mut Self::Tools, pulse: &Pulse, done: &Mutex<Self::Done>);

    /// What remains of an item whose reader was given up at the last mark of its pulse.
    fn rest_of(&self, item: &Self::Item, mark: u64, hold: &Hold, done: &mut Self::Done) -> Vec<Self::Item>;

    /// Does the part of an item that needs no reader. `reason` is why there is none.
    fn without_reader(&self, item: &Self::Item, reason: Absent, done: &mut Self::Done);
}

/// How long to wait for readers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// For a reader that makes no progress.
    pub patience: Duration,
    /// For all of them.
    pub deadline: Option<Instant>,
}

/// Whether a reader can be started, or is there.
pub(crate) fn can_start() -> bool {
    pool::Reader::take().map(pool::Reader::give_back).is_some()
}
