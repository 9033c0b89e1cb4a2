//! The processes and users that block readers. All handles share this knowledge.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use taskdiag_sys::owner::Owner;

use super::MAX_LOST;
use crate::mutex::lock;

/// What in a process may block readers: its mappings. The bits below [`FILE_SYSTEMS`] are those of
/// [`Files`](taskdiag_core::field::Files).
pub(crate) const MAPPINGS: u32 = 1 << 31;
/// The contents of its memory, which some kernels read under the lock of its mappings and others do
/// not.
pub(crate) const MEMORY: u32 = 1 << 30;
/// What file systems report about its open files.
pub(crate) const FILE_SYSTEMS: u32 = 1 << 29;

/// Readers of this process that were given up and have not come back.
static LOST: AtomicUsize = AtomicUsize::new(0);

static HOLDERS: Mutex<Vec<Holder>> = Mutex::new(Vec::new());

/// Users whose processes block readers.
static HOLDING_USERS: Mutex<Vec<(u32, Hold)>> = Mutex::new(Vec::new());

/// A process that blocks a reader.
struct Holder {
    pid: u32,
    /// What must not be read of it.
    what: u32,
    hold: Hold,
}

/// A reader that is blocked.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    has_ended: Arc<AtomicBool>,
    /// The process of the reader: after fork(2) the child has no readers.
    owner: Owner,
}

impl Hold {
    pub(super) fn new(has_ended: Arc<AtomicBool>) -> Hold {
        Hold {
            has_ended,
            owner: Owner::this_process(),
        }
    }

    /// Whether the reader has come back.
    fn is_over(&self) -> bool {
        self.has_ended.load(Ordering::Acquire) || !self.owner.is_this_process()
    }
}

/// Users whose processes block readers of a job. Such a user may have many such processes, so their
/// other processes are read last.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    users: Mutex<Vec<u32>>,
    has_any: AtomicBool,
}

impl Suspects {
    pub(crate) fn add(&self, user: u32) {
        lock(&self.users).push(user);
        self.has_any.store(true, Ordering::Relaxed);
    }

    /// Whether `user` finds one of them. It is not called if there are none.
    pub(crate) fn has(&self, user: impl FnOnce() -> Option<u32>) -> bool {
        self.has_any.load(Ordering::Relaxed) && user().is_some_and(|user| lock(&self.users).contains(&user))
    }
}

/// What in a process blocks a reader, as reported to [`holds`]; 0 if nothing does.
pub(crate) fn held(pid: u32) -> u32 {
    let mut holders = lock(&HOLDERS);
    if holders.is_empty() {
        return 0;
    }
    holders.retain(|holder| !holder.hold.is_over());
    let of_process = holders.iter().filter(|holder| holder.pid == pid);
    of_process.fold(0, |all, holder| all | holder.what)
}

/// Notes that a process blocks a reader.
pub(crate) fn holds(pid: u32, what: u32, hold: &Hold) {
    lock(&HOLDERS).push(Holder {
        pid,
        what,
        hold: hold.clone(),
    });
}

/// Notes that a process of a user blocks a reader.
pub(crate) fn user_holds(user: u32, hold: &Hold) {
    lock(&HOLDING_USERS).push((user, hold.clone()));
}

/// Whether a process of this user blocks a reader.
pub(crate) fn does_user_hold(user: u32) -> bool {
    let mut users = lock(&HOLDING_USERS);
    users.retain(|(_, hold)| !hold.is_over());
    users.iter().any(|&(other, _)| other == user)
}

/// Whether so many readers are lost that users who block some get no more: the rest is for all
/// other users.
pub(crate) fn are_scarce() -> bool {
    lost() >= MAX_LOST / 2
}

pub(super) fn lost() -> usize {
    LOST.load(Ordering::Relaxed)
}

pub(super) fn note_lost() {
    LOST.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn note_returned() {
    LOST.fetch_sub(1, Ordering::Relaxed);
}

/// Called in a child after fork(2): it has lost no reader of its own.
pub(super) fn forget_lost() {
    LOST.store(0, Ordering::Relaxed);
}
