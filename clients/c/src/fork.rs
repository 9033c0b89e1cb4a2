//! fork(2): a child has a copy of everything but the other threads.
//!
//! Those may have been in the middle of a query, and what they had locked stays locked in the child
//! for ever. A child that was forked at such a moment can't ask, and says so.

use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Code, Error, Result};

/// The process (upper half), and how many of its threads are asking (lower half).
static ASKING: AtomicU64 = AtomicU64::new(0);
/// This process was forked in the middle of another thread's query.
static IS_TORN: AtomicBool = AtomicBool::new(false);

/// A query that is under way.
#[derive(Debug)]
pub struct Asking(());

/// What [`ASKING`] becomes when a thread of this process begins to ask, and whether the process was
/// forked while a thread of its parent was asking.
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
    /// [`Code::Forked`] in a child whose parent was asking when it forked.
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

/// Whether what the library has can't be used any more, not even to free it.
pub fn is_torn() -> bool {
    let before = ASKING.load(Ordering::SeqCst);
    IS_TORN.load(Ordering::SeqCst) || begun(before, process::id()).1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that only a child of a process that was asking is torn.
    #[test]
    fn a_child_of_one_that_asks_is_torn() {
        let idle = |process: u64| process << 32;
        assert_eq!(begun(0, 7), (idle(7) + 1, false));
        assert_eq!(begun(idle(7) + 1, 7), (idle(7) + 2, false));
        assert_eq!(begun(idle(7), 8), (idle(8) + 1, false));
        assert_eq!(begun(idle(7) + 2, 8), (idle(8) + 1, true));
    }
}
