//! Handling many descriptors: a separate table for a thread, and closing with few system calls.

use std::ffi::c_uint;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};

use rustix::fs::{fstat, FileType};
use rustix::io::Errno;

use crate::checked;

/// Gives the calling thread an empty descriptor table of its own. False if the kernel can't (before
/// Linux 5.9) or a seccomp filter forbids it: the thread then still shares the table.
///
/// This is for a thread that does one piece of work and ends. It must not hold any descriptor yet,
/// and must not exchange descriptors with other threads: there, the same number means another file.
pub fn own_table() -> bool {
    // SAFETY: only the new table's descriptors are closed, and nothing owns any of them.
    let result = unsafe { libc::syscall(libc::SYS_close_range, 0, c_uint::MAX, libc::CLOSE_RANGE_UNSHARE) };
    result == 0
}

/// What the threads of a process usually share: a number of kcmp(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Part {
    /// The descriptor table.
    Files = 2,
    /// The directories.
    Fs = 3,
}

/// Whether two tasks share it. Not every kernel compares them, and seccomp filters may forbid it.
pub fn shares(one: u32, other: u32, part: Part) -> Result<bool, Errno> {
    // SAFETY: the call has no pointers.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, one, other, part as i32, 0_usize, 0_usize) };
    Ok(checked(order)? == 0)
}

/// Descriptors that are no longer needed. They are closed together, with one system call for each
/// run of consecutive numbers.
#[derive(Debug, Default)]
pub struct Closing {
    numbers: Vec<RawFd>,
}

impl Closing {
    /// How many are collected before they are closed.
    const MAX_COLLECTED: usize = 16;

    /// Closes a descriptor, now or together with later ones.
    pub fn push(&mut self, descriptor: OwnedFd) {
        self.numbers.push(descriptor.into_raw_fd());
        if self.numbers.len() >= Closing::MAX_COLLECTED {
            self.close();
        }
    }

    /// Whether all of them are closed.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Closes those that are still open.
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
        // SAFETY: we own all descriptors from the first to the last.
        if unsafe { libc::syscall(libc::SYS_close_range, *first, *last, 0) } == 0 {
            return;
        }
    }
    for &number in run {
        // SAFETY: we own it, and close it only here.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }
}

/// The network namespace of a socket: `SIOCGSKNS` (Linux 4.10), which needs `CAP_NET_ADMIN` there.
pub fn namespace_of(socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    // Another kind of file may have an ioctl with this number.
    if FileType::from_raw_mode(fstat(socket)?.st_mode) != FileType::Socket {
        return Err(Errno::NOTSOCK);
    }
    const SIOCGSKNS: u32 = 0x894C;
    // SAFETY: for a socket, the call has no argument.
    let namespace = checked(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSKNS as _) })?;
    // SAFETY: the descriptor is new.
    Ok(unsafe { OwnedFd::from_raw_fd(namespace as RawFd) })
}
