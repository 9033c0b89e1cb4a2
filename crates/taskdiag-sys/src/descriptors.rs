//! Many descriptors at once: a table for one thread alone, and closing with few calls.

use std::ffi::c_uint;
use std::os::fd::{FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};

/// Gives the calling thread a table of descriptors of its own, an empty one: it keeps nothing open that others have opened.
/// False if the kernel can't (before Linux 5.9) or a filter forbids it: then the table is shared as before.
///
/// For a thread that was started for one piece of work and ends with it. It may have no descriptor yet, must use none of
/// those that other threads open, and hand them none of its own: the same number is something else in their table.
pub fn own_table() -> bool {
    // SAFETY: the numbers are closed in the new table only, where nobody has any.
    let result = unsafe { libc::syscall(libc::SYS_close_range, 0, c_uint::MAX, libc::CLOSE_RANGE_UNSHARE) };
    result == 0
}

/// Descriptors that nobody needs any more. They are closed together, with one call for each run of numbers.
#[derive(Debug, Default)]
pub struct Closing {
    numbers: Vec<RawFd>,
}

impl Closing {
    /// How many are kept for that.
    const MOST: usize = 16;

    /// Takes a descriptor, to be closed now or later.
    pub fn push(&mut self, descriptor: OwnedFd) {
        self.numbers.push(descriptor.into_raw_fd());
        if self.numbers.len() >= Closing::MOST {
            self.close();
        }
    }

    /// Whether all are closed.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Closes them all.
    pub fn close(&mut self) {
        self.numbers.sort_unstable();
        for run in self.numbers.chunk_by(|number, next| number + 1 == *next) {
            close_run(run);
        }
        self.numbers.clear();
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.close();
    }
}

/// Closes consecutive descriptors.
fn close_run(run: &[RawFd]) {
    if let [first, .., last] = run {
        // SAFETY: all numbers from the first to the last were given to us to be closed.
        if unsafe { libc::syscall(libc::SYS_close_range, *first, *last, 0) } == 0 {
            return;
        }
    }
    for &number in run {
        // SAFETY: it was given to us to be closed, which is done here and once.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }
}
