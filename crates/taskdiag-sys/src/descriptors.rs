//! Handling many descriptors: a separate table for a thread, closing with few system calls, and
//! passing a file to another process.

use std::ffi::c_uint;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, IntoRawFd as _, OwnedFd, RawFd};

use rustix::fs::{fstat, FileType};
use rustix::io::{retry_on_intr, Errno};
use rustix::net::{
    recvmsg, sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

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

/// Sends a packet, and a file with it. Waits unless `flags` has `DONTWAIT`. Makes only system calls.
pub fn send_with_file(
    socket: impl AsFd,
    packet: &[u8],
    file: Option<BorrowedFd<'_>>,
    flags: SendFlags,
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = file.as_slice();
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(files));
    }
    let parts = [IoSlice::new(packet)];
    retry_on_intr(|| sendmsg(&socket, &parts, &mut control, flags | SendFlags::NOSIGNAL)).map(drop)
}

/// Receives a packet, of which it cuts off what has no room, and the file that may come with it.
/// Makes only system calls.
pub fn receive_with_file(socket: impl AsFd, packet: &mut [u8]) -> Result<(usize, Option<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let parts = &mut [IoSliceMut::new(packet)];
    let received = recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok((received.bytes, files.last()))
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
