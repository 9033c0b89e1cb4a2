//! fork(2): a child has a copy of everything but the other threads.
//!
//! Those may have been in the middle of a query, and what they had locked stays locked in the child
//! for ever. So a fork of Python's waits a moment for queries that are under way. If some are not
//! ready by then, the child can not ask, and says so.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::errors;

/// Queries that are under way.
static RUNNING: AtomicUsize = AtomicUsize::new(0);
/// Threads that are about to fork: while there are any, no query begins.
static FORKING: AtomicUsize = AtomicUsize::new(0);
/// This process was forked in the middle of another thread's query.
static IS_TORN: AtomicBool = AtomicBool::new(false);

/// How long a fork waits for queries.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_micros(200);

/// A query that is under way.
#[derive(Debug)]
pub struct Running(());

impl Running {
    /// Begins a query. Waits for a fork that is under way, so the caller must have let go of the
    /// interpreter.
    pub fn begin() -> Running {
        loop {
            RUNNING.fetch_add(1, Ordering::SeqCst);
            if FORKING.load(Ordering::SeqCst) == 0 {
                return Running(());
            }
            RUNNING.fetch_sub(1, Ordering::SeqCst);
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs what asks the kernel without holding the interpreter, so that other threads run meanwhile.
///
/// # Errors
///
/// `Forked` in a child whose parent was asking when it forked.
pub fn ask<T: Send>(py: Python<'_>, ask: impl FnOnce() -> T + Send) -> PyResult<T> {
    if IS_TORN.load(Ordering::Relaxed) {
        return Err(errors::new(
            "Forked",
            "another thread was asking when this process was forked: use multiprocessing's \"spawn\" or \
             \"forkserver\", or fork while nothing is asked",
        ));
    }
    Ok(py.detach(|| {
        let _running = Running::begin();
        ask()
    }))
}

/// Called before a fork: waits for queries.
#[pyfunction]
pub fn _before_fork(py: Python<'_>) {
    py.detach(|| {
        FORKING.fetch_add(1, Ordering::SeqCst);
        let end = Instant::now() + PATIENCE;
        while RUNNING.load(Ordering::SeqCst) > 0 && Instant::now() < end {
            thread::sleep(PAUSE);
        }
    });
}

/// Called in the parent afterwards.
#[pyfunction]
pub fn _after_fork_in_parent() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

/// Called in the child.
#[pyfunction]
pub fn _after_fork_in_child() {
    if RUNNING.swap(0, Ordering::SeqCst) > 0 {
        IS_TORN.store(true, Ordering::SeqCst);
    }
    FORKING.store(0, Ordering::SeqCst);
}
