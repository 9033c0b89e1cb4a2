//! fork(2): a child has a copy of everything except the other threads.
//!
//! One of these threads may have been in the middle of a query. Its locks then stay locked in the
//! child for ever. So a fork by Python waits a moment for queries in progress. If some are not done
//! by then, the child cannot make queries, and gets an error instead.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use taskdiag::interruptible;

use crate::errors;

/// The number of queries in progress.
static RUNNING: AtomicUsize = AtomicUsize::new(0);
/// The number of threads that are about to fork. While it is not 0, no query begins.
static FORKING: AtomicUsize = AtomicUsize::new(0);
/// Whether this process was forked while another thread was in a query.
static IS_TORN: AtomicBool = AtomicBool::new(false);

/// How long a fork waits for queries.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_micros(200);

/// A query in progress.
#[derive(Debug)]
pub struct Running(());

impl Running {
    /// Begins a query. Waits for a fork in progress, so the caller must have released the
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

/// Runs a query without holding the interpreter, so that other Python threads can run. Python runs
/// signal handlers in the main thread, so a query there is interrupted for them. A handler may make
/// queries, too, and an exception that it raises ends the interrupted query.
///
/// # Errors
///
/// `Forked` in a child that was forked during a query, and the exceptions of signal handlers.
pub fn ask<T: Send>(py: Python<'_>, ask: impl FnOnce() -> T + Send) -> PyResult<T> {
    if IS_TORN.load(Ordering::Relaxed) {
        return Err(errors::new(
            "Forked",
            "another thread was asking when this process was forked: use multiprocessing's \"spawn\" or \
             \"forkserver\", or fork while nothing is asked",
        ));
    }
    let raised = Arc::new(Mutex::new(None));
    let into = Arc::clone(&raised);
    let answer = py.detach(|| {
        let _running = Running::begin();
        if !is_main_thread() {
            return Some(ask());
        }
        let is_over = move || {
            let error = Python::attach(|py| py.check_signals()).err();
            let is_over = error.is_some();
            *into.lock().unwrap_or_else(PoisonError::into_inner) = error;
            is_over
        };
        interruptible(is_over, ask)
    });
    answer.ok_or_else(|| {
        let raised = raised.lock().unwrap_or_else(PoisonError::into_inner).take();
        raised.unwrap_or_else(|| errors::new("Error", "the query was interrupted"))
    })
}

/// Whether this is the process's first thread. If Python's main thread is another one, signal
/// handlers wait until the query ends.
fn is_main_thread() -> bool {
    rustix::process::getpid() == rustix::thread::gettid()
}

/// Wait for queries in progress, before a fork.
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

/// Let queries begin again, in the parent after a fork.
#[pyfunction]
pub fn _after_fork_in_parent() {
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

/// Check whether a query was in progress, in the child after a fork.
#[pyfunction]
pub fn _after_fork_in_child() {
    if RUNNING.swap(0, Ordering::SeqCst) > 0 {
        IS_TORN.store(true, Ordering::SeqCst);
    }
    FORKING.store(0, Ordering::SeqCst);
}
