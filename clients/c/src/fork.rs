//! fork(2): a child has a copy of everything except the other threads.
//!
//! One of these threads may have been in the middle of a query. Its locks then stay locked in the
//! child for ever. Such a child cannot make queries, and gets an error instead.

use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Code, Error, Result};

/// The process id (upper half), and the number of its threads in a query (lower half).
static ASKING: AtomicU64 = AtomicU64::new(0);
/// Whether this process was forked while another thread was in a query.
static IS_TORN: AtomicBool = AtomicBool::new(false);

/// A query in progress.
#[derive(Debug)]
pub struct Asking(());

/// The new value of [`ASKING`] when a thread begins a query, and whether the process was forked
/// while a thread of its parent was in one.
fn begun(before: u64, process: u32) -> (u64, bool) {
    let (owner, count) = ((before >> 32) as u32, before as u32);
    if owner == process {
        return (before + 1, false);
    }
    (u64::from(process) << 32 | 1, count > 0)
}

impl Asking {
    /// Begins a query.
    ///
    /// # Errors
    ///
    /// [`Code::Forked`] in a child that was forked during a query.
    pub fn begin() -> Result<Asking> {
        let process = process::id();
        let next = |before| Some(begun(before, process).0);
        let before = match ASKING.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next) {
            Ok(before) | Err(before) => before,
        };
        let asking = Asking(());
        if begun(before, process).1 {
            IS_TORN.store(true, Ordering::SeqCst);
        }
        if is_torn() {
            return Err(Error::new(
                Code::Forked,
                "another thread was asking when this process was forked: fork while nothing is asked, or call \
                 execve(2) first",
            ));
        }
        Ok(asking)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        ASKING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether the library's objects cannot be used any more, not even freed.
pub fn is_torn() -> bool {
    let before = ASKING.load(Ordering::SeqCst);
    IS_TORN.load(Ordering::SeqCst) || begun(before, process::id()).1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only a child of a process in a query is torn.
    #[test]
    fn a_child_of_one_that_asks_is_torn() {
        let idle = |process: u64| process << 32;
        assert_eq!(begun(0, 7), (idle(7) + 1, false));
        assert_eq!(begun(idle(7) + 1, 7), (idle(7) + 2, false));
        assert_eq!(begun(idle(7), 8), (idle(8) + 1, false));
        assert_eq!(begun(idle(7) + 2, 8), (idle(8) + 1, true));
    }
}
