//! The threads of readers. An idle one waits a while for more work, from any handle of the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use taskdiag_sys::owner::Owner;
use taskdiag_sys::signals::SignalsBlocked;

use super::holders::{forget_lost, note_lost, note_returned, Hold};
use super::pulse::{adopt, Pulse};
use super::MAX_READERS;
use crate::mutex::lock;

/// How long a reader waits for work before it ends.
const IDLE_FOR: Duration = Duration::from_secs(10);

/// Work for readers.
pub(super) trait Work: Send + Sync {
    fn work(&self, pulse: &Pulse);
}

/// A reader.
pub(super) struct Reader {
    batches: Sender<Arc<dyn Work>>,
    pub(super) pulse: Arc<Pulse>,
    is_lost: Arc<AtomicBool>,
    has_ended: Arc<AtomicBool>,
}

/// Readers without work.
struct Idle {
    readers: Vec<Reader>,
    /// The process of these threads: after fork(2) the child has none of them.
    owner: Option<Owner>,
}

static IDLE: Mutex<Idle> = Mutex::new(Idle {
    readers: Vec::new(),
    owner: None,
});

impl Idle {
    /// The idle readers of this process.
    fn of_this_process() -> MutexGuard<'static, Idle> {
        let mut idle = lock(&IDLE);
        let this_process = Some(Owner::this_process());
        if idle.owner != this_process {
            // The child lacks these threads, which may hold locks in there.
            std::mem::forget(std::mem::take(&mut idle.readers));
            idle.owner = this_process;
            forget_lost();
        }
        idle
    }
}

/// Forgets the readers of the parent in a child after fork(2), and how many of them were lost.
pub(super) fn forget_parents() {
    drop(Idle::of_this_process());
}

impl Reader {
    /// Takes an idle reader, or makes a new one. `None` if no thread can be started.
    pub(super) fn take() -> Option<Reader> {
        let idle = Idle::of_this_process().readers.pop();
        idle.or_else(Reader::start)
    }

    /// Makes the reader available to others.
    pub(super) fn give_back(self) {
        let mut idle = Idle::of_this_process();
        if idle.readers.len() < MAX_READERS {
            idle.readers.push(self);
        }
    }

    /// Gives it work. False if its thread has just ended.
    pub(super) fn send(&self, work: Arc<dyn Work>) -> bool {
        self.batches.send(work).is_ok()
    }

    /// Leaves the thread alone, in the system call that does not return.
    pub(super) fn lose(&self) {
        note_lost();
        self.is_lost.store(true, Ordering::Release);
    }

    /// What tells whether it has come back.
    pub(super) fn hold(&self) -> Hold {
        Hold::new(Arc::clone(&self.has_ended))
    }

    fn start() -> Option<Reader> {
        let (batches, received) = channel::<Arc<dyn Work>>();
        let pulse = Arc::new(Pulse::default());
        let is_lost = Arc::new(AtomicBool::new(false));
        let has_ended = Arc::new(AtomicBool::new(false));
        let (own, is_given_up, ended) = (Arc::clone(&pulse), Arc::clone(&is_lost), Arc::clone(&has_ended));
        let (send_ready, ready) = channel();
        // The thread inherits this: the caller's signals are for the caller's threads.
        let _blocked = SignalsBlocked::begin();
        let started = thread::Builder::new()
            .name("taskdiag-reader".to_owned())
            .stack_size(128 << 10)
            .spawn(move || {
                adopt(&own);
                let _ = send_ready.send(());
                loop {
                    match received.recv_timeout(IDLE_FOR) {
                        Ok(batch) => batch.work(&own),
                        Err(RecvTimeoutError::Disconnected) => break,
                        Err(RecvTimeoutError::Timeout) => {
                            let mut idle = Idle::of_this_process();
                            let is_own = |reader: &Reader| Arc::ptr_eq(&reader.pulse, &own);
                            // If it is not idle, it has just been taken.
                            if let Some(at) = idle.readers.iter().position(is_own) {
                                idle.readers.swap_remove(at);
                                break;
                            }
                        }
                    }
                    if is_given_up.load(Ordering::Acquire) {
                        break;
                    }
                }
                ended.store(true, Ordering::Release);
                if is_given_up.load(Ordering::Acquire) {
                    note_returned();
                }
            });
        started.ok()?;
        // Its pulse has its thread id from then on.
        ready.recv().ok()?;
        Some(Reader {
            batches,
            pulse,
            is_lost,
            has_ended,
        })
    }
}
