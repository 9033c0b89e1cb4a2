//! The event in bytes: the Rust side of `bpf/event.h`.
//!
//! Bytes from anywhere are safe to decode. The structures have no alignment of their own.

// zerocopy's derives make helper types that have no Debug.
#![allow(missing_debug_implementations)]

use zerocopy::native_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The event is about one thread, not about a process.
pub const THREAD: u16 = 1 << 0;
/// It is a kernel thread.
pub const KERNEL_THREAD: u16 = 1 << 1;
/// The file name is longer than there was room for.
pub const CUT: u16 = 1 << 2;
/// The event is from the proc connector, which knows less.
pub const CONNECTOR: u16 = 1 << 3;
/// And `/proc` did not have the rest any more.
pub const GONE: u16 = 1 << 4;

/// The event is a fork.
pub const FORK: u16 = 1;
/// The event is an exec.
pub const EXEC: u16 = 2;
/// The event is an exit.
pub const EXIT: u16 = 3;

crate::wire! {
    /// `struct td_event`.
    Header {
        len: U32, kind: U16, flags: U16, time_ns: U64, start_ns: U64, pid: U32, tid: U32, ppid: U32, uid: U32, euid: U32,
        reserved: U32, comm: [u8; 16],
    }
    /// What `struct td_event_fork` has besides.
    Fork { caller_pid: U32, caller_tid: U32 }
    /// What `struct td_event_exit` has besides.
    Exit { status: I32, reserved: U32, runtime_ns: U64, peak_rss_pages: U64 }
}

/// The header of the event in `bytes`, and what lies behind it. `None` if there is no whole event.
pub fn split(bytes: &[u8]) -> Option<(&Header, &[u8])> {
    let (header, _) = Header::ref_from_prefix(bytes).ok()?;
    let event = bytes.get(..header.len.get() as usize)?;
    Some((header, event.get(size_of::<Header>()..)?))
}
