//! fork(2): a child has a copy of everything except the other threads.
//!
//! One of these threads may have been in the middle of a query. Its locks then stay locked in the
//! child for ever. So a fork by Python waits a moment for queries in progress. If some are not done
//! by then, the child cannot make queries, and gets an error instead.

use std::cell::Cell;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use taskdiag::interruptible;

use crate::errors;

/// The number of queries in progress. Above it, in units of [`FORK`], the number of threads that
/// are about to fork: meanwhile no query begins.
static STATE: AtomicU64 = AtomicU64::new(0);
const FORK: u64 = 1 << 32;
/// Whether this process was forked while another thread was in a query.
static IS_TORN: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The queries in progress in this thread: several if a signal handler interrupts one.
    static OWN: Cell<u64> = const { Cell::new(0) };
    /// The process in which this thread is about to fork. Other hooks of the fork may query.
    static FORKS: Cell<Option<u32>> = const { Cell::new(None) };
}

/// How long a fork waits for queries.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_micros(200);

/// A query in progress.
#[derive(Debug)]
pub struct Running(());

impl Running {
    /// Begins a query. Waits for another thread's fork, so the caller must have released the
    /// interpreter. A fork waits for a thread in a query, so that does not wait for the fork.
    pub fn begin() -> Running {
        let waits = OWN.get() == 0 && FORKS.get().is_none();
        let begun = |state| (!waits || state < FORK).then_some(state + 1);
        while STATE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, begun).is_err() {
            thread::sleep(PAUSE);
        }
        OWN.set(OWN.get() + 1);
        Running(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        STATE.fetch_sub(1, Ordering::SeqCst);
        OWN.set(OWN.get() - 1);
    }
}

/// Whether other threads are in queries.
fn others_ask() -> bool {
    STATE.load(Ordering::SeqCst) % FORK > OWN.get()
}

/// Runs a query without holding the interpreter, so that other Python threads can run. Python runs
/// signal handlers in the main thread, so a query there is interrupted for them. A handler may make
/// queries, too, and an exception that it raises ends the interrupted query.
///
/// # Errors
///
/// `Forked` in a child that was forked during a query, and the exceptions of signal handlers.
pub fn ask<T: Send>(py: Python<'_>, ask: impl FnOnce() -> T + Send) -> PyResult<T> {
    if FORKS.get().is_some_and(|parent| parent != process::id()) {
        // A hook of the fork that comes before ours.
        _after_fork_in_child();
    }
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
        STATE.fetch_add(FORK, Ordering::SeqCst);
        let end = Instant::now() + PATIENCE;
        while others_ask() && Instant::now() < end {
            thread::sleep(PAUSE);
        }
    });
    FORKS.set(Some(process::id()));
}

/// Let queries begin again, in the parent after a fork.
#[pyfunction]
pub fn _after_fork_in_parent() {
    FORKS.set(None);
    STATE.fetch_sub(FORK, Ordering::SeqCst);
}

/// Check whether a query of another thread was in progress, in the child after a fork.
#[pyfunction]
pub fn _after_fork_in_child() {
    if FORKS.take().is_none() {
        // An earlier hook has asked.
        return;
    }
    if others_ask() {
        IS_TORN.store(true, Ordering::SeqCst);
    }
    STATE.store(OWN.get(), Ordering::SeqCst);
}
