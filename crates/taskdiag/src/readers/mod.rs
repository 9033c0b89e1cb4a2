//! Threads that read what a process can keep from being read.
//!
//! The kernel reads a process's arguments, environment, mappings and page tables under locks of
//! that process, and a process can hold these for as long as it likes: with a page of a file system
//! that never answers, for one. The thread that reads then waits, and only a fatal signal ends
//! that. So the thread that asks does not read any of these. It gives the work to *readers*, and
//! watches them. A reader that has not come back from a system call within the patience, and is not
//! running either, is given up. [`Job::rest_of`] gets what it was reading, and other readers do the
//! rest. The thread itself is left alone, and ends when its system call returns.
//!
//! We lose [`MOST_LOST`] readers like that at most. From half of that on, processes of users who hold
//! readers are not read any more as far as that may wait, so that one user can't hold all. With all
//! of them lost, nobody's processes are, until some readers have come back. All handles share the
//! readers that have nothing to do, and what is known of processes that hold readers.
//!
//! `pulse` is a reader's sign of life, `pool` has the threads, `holders` knows who holds readers,
//! `watch` gives work to readers and gives them up, `each` is the job that most callers need.

mod each;
mod holders;
mod pool;
mod pulse;
mod watch;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(crate) use each::{call, each};
pub(crate) use holders::{are_scarce, does_user_hold, held, holds, user_holds, Hold, FILE_SYSTEMS, MAPPINGS, MEMORY};
pub(crate) use pulse::{beat, is_running, Pulse};

/// How many readers may be lost at a time.
const MOST_LOST: usize = 48;

/// How many readers work on a batch: more would only wait for each other.
const MOST_READERS: usize = 8;

/// How long a system call of a reader may take without progress, unless the caller says otherwise.
pub(crate) const PATIENCE: Duration = Duration::from_millis(200);

/// How long the texts of one task may take in all, even if each piece of them comes in time.
pub(crate) const LONGEST: Duration = Duration::from_secs(5);

/// Work for readers, item by item.
pub(crate) trait Job: Send + Sync + 'static {
    /// What one reader does in one go.
    type Item: Send + Sync + 'static;
    /// The result of an item. It grows while the item is being read; what it has when its reader is
    /// given up counts.
    type Done: Default + Send + 'static;
    /// What a reader keeps from one item to the next.
    type Tools;

    /// The tools of a reader that begins.
    fn tools(&self) -> Self::Tools;

    /// The next item after those that were given to [`run`], if there is one. It must not wait.
    fn more(&self) -> Option<Self::Item> {
        None
    }

    /// Reads an item.
    fn read(&self, item: &Self::Item, tools: &mut Self::Tools, pulse: &Pulse, done: &Mutex<Self::Done>);

    /// What is left of an item whose reader was given up at the last mark of its pulse.
    fn rest_of(&self, item: &Self::Item, mark: u64, hold: &Hold, done: &mut Self::Done) -> Vec<Self::Item>;

    /// Does what can be done of an item without a reader.
    fn without_reader(&self, item: &Self::Item, done: &mut Self::Done);
}

/// How long readers are waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// For a reader that makes no progress.
    pub patience: Duration,
    /// For all of them.
    pub deadline: Option<Instant>,
}

/// Does a job, and returns the results of its items, in no certain order. Items that are not done
/// at the deadline are left out. `items` are the first ones, [`Job::more`] has the others; there
/// are about `expected` of them.
pub(crate) fn run<J: Job>(job: &Arc<J>, items: Vec<J::Item>, expected: usize, wait: Wait) -> Vec<J::Done> {
    watch::run(job, items, expected, wait)
}
