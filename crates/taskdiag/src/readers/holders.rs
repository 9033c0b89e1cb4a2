//! Which processes, and which users, hold readers. All handles know them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use taskdiag_sys::owner::Owner;

use super::MOST_LOST;
use crate::mutex::lock;

/// What of a process may hold readers: its mappings. The bits below [`FILE_SYSTEMS`] are those of
/// [`Files`](taskdiag_core::field::Files).
pub(crate) const MAPPINGS: u32 = 1 << 31;
/// And what is in its memory, which some kernels read under the lock of its mappings and some do
/// not.
pub(crate) const MEMORY: u32 = 1 << 30;
/// And what the file systems of its open files say of these.
pub(crate) const FILE_SYSTEMS: u32 = 1 << 29;

/// Readers of this process that have been given up and have not come back.
static LOST: AtomicUsize = AtomicUsize::new(0);

static HOLDERS: Mutex<Vec<Holder>> = Mutex::new(Vec::new());

/// Users whose processes hold readers.
static HOLDING_USERS: Mutex<Vec<(u32, Hold)>> = Mutex::new(Vec::new());

/// A process that holds a reader.
struct Holder {
    pid: u32,
    /// What of it must not be read.
    what: u32,
    hold: Hold,
}

/// A reader that is being held.
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

/// What of a process holds a reader, as reported to [`holds`]; 0 if nothing does.
pub(crate) fn held(pid: u32) -> u32 {
    let mut holders = lock(&HOLDERS);
    if holders.is_empty() {
        return 0;
    }
    holders.retain(|holder| !holder.hold.is_over());
    let of_process = holders.iter().filter(|holder| holder.pid == pid);
    of_process.fold(0, |all, holder| all | holder.what)
}

/// Notes that a process holds a reader.
pub(crate) fn holds(pid: u32, what: u32, hold: &Hold) {
    lock(&HOLDERS).push(Holder {
        pid,
        what,
        hold: hold.clone(),
    });
}

/// Notes that a process of a user holds a reader.
pub(crate) fn user_holds(user: u32, hold: &Hold) {
    lock(&HOLDING_USERS).push((user, hold.clone()));
}

/// Whether a process of this user holds a reader.
pub(crate) fn does_user_hold(user: u32) -> bool {
    let mut users = lock(&HOLDING_USERS);
    users.retain(|(_, hold)| !hold.is_over());
    users.iter().any(|&(other, _)| other == user)
}

/// Whether so many readers are lost that users who hold some get no more: the rest is for everybody
/// else.
pub(crate) fn are_scarce() -> bool {
    lost() >= MOST_LOST / 2
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

/// In a child after fork(2): no reader of its own is lost.
pub(super) fn forget_lost() {
    LOST.store(0, Ordering::Relaxed);
}
