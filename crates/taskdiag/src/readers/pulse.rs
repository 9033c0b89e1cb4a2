//! A reader's sign of life.

use std::cell::OnceCell;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use taskdiag_sys::host::OwnPath;

/// The sign of life of a reader.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    beats: AtomicU64,
    mark: AtomicU64,
    /// The thread id of the reader.
    tid: AtomicU32,
    /// The process that reads in its place; 0 if none does.
    other: AtomicU32,
}

impl Pulse {
    /// To be called before each system call that may wait, and after the last one.
    pub(crate) fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// Reports where in its item the reader is; 0: at its beginning. Under the lock of the results,
    /// this tells how much is done.
    pub(crate) fn mark(&self, mark: u64) {
        self.mark.store(mark, Ordering::Relaxed);
        self.beat();
    }

    /// Reports that another process reads in its place; 0: no longer.
    pub(crate) fn is_read_by(&self, pid: u32) {
        self.other.store(pid, Ordering::Relaxed);
        self.beat();
    }

    pub(super) fn beats(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }

    pub(super) fn last_mark(&self) -> u64 {
        self.mark.load(Ordering::Relaxed)
    }

    pub(super) fn tid(&self) -> u32 {
        self.tid.load(Ordering::Relaxed)
    }

    /// Whether the reader, or the process in its place, is running or waits for a processor: then
    /// it is slow, but not blocked.
    pub(super) fn is_running(&self) -> bool {
        match self.other.load(Ordering::Relaxed) {
            0 => is_in_state_r(format_args!("self/task/{}/stat", self.tid())),
            pid => is_running(pid),
        }
    }
}

/// Whether a process is running or waits for a processor.
pub(crate) fn is_running(pid: u32) -> bool {
    is_in_state_r(format_args!("{pid}/stat"))
}

/// Allocates nothing: readers are watched while a query waits for them.
fn is_in_state_r(name: fmt::Arguments<'_>) -> bool {
    let (path, mut stat) = (OwnPath::of(name), [0; 128]);
    let file = rustix::fs::open(path.as_c_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let Ok(len) = file.and_then(|file| rustix::io::read(file, &mut stat)) else {
        return false;
    };
    let stat = &stat[..len];
    let name_end = stat.iter().rposition(|&byte| byte == b')');
    name_end.and_then(|at| stat.get(at + 2)) == Some(&b'R')
}

thread_local! {
    /// The pulse of this thread, if it is a reader.
    static OWN: OnceCell<Arc<Pulse>> = const { OnceCell::new() };
}

/// Makes this thread a reader with a pulse.
pub(super) fn adopt(pulse: &Arc<Pulse>) {
    let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    pulse.tid.store(tid, Ordering::Relaxed);
    OWN.with(|own| own.set(Arc::clone(pulse)).ok());
}

/// Like [`Pulse::beat`], for code that does not know whether a reader runs it.
pub(crate) fn beat() {
    OWN.with(|own| {
        if let Some(pulse) = own.get() {
            pulse.beat();
        }
    });
}
