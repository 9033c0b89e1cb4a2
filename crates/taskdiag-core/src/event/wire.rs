//! The bytes of an event: the Rust side of `bpf/event.h`.
//!
//! Any bytes are safe to decode. The structures have an alignment of 1.

// zerocopy's derives make helper types that have no Debug.
#![allow(missing_debug_implementations)]

use zerocopy::native_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The event is about one thread rather than a process.
pub const THREAD: u16 = 1 << 0;
/// The event is about a kernel thread.
pub const KERNEL_THREAD: u16 = 1 << 1;
/// The file name was too long and is left out.
pub const CUT: u16 = 1 << 2;
/// The event is from the proc connector, which sends fewer fields.
pub const CONNECTOR: u16 = 1 << 3;
/// The process ended before the fields that the connector does not send could be read from `/proc`.
pub const GONE: u16 = 1 << 4;
/// The processor time of an exit is left out, because the times of its threads could not be summed.
pub const NO_RUNTIME: u16 = 1 << 5;
/// The OOM killer chose the process that ended.
pub const OOM_VICTIM: u16 = 1 << 6;
/// What the process moved through sockets follows the exit: [`Net`](crate::record::Net).
pub const NET: u16 = 1 << 7;

/// The event is a fork.
pub const FORK: u16 = 1;
/// The event is an exec.
pub const EXEC: u16 = 2;
/// The event is an exit.
pub const EXIT: u16 = 3;

crate::wire! {
    /// `struct td_event`.
    Header {
        len: U32, kind: U16, flags: U16, time_ns: U64, start_ns: U64, cgroup_id: U64, pid: U32, tid: U32, ppid: U32, uid: U32, euid: U32,
        reserved: U32, comm: [u8; 16],
    }
    /// `struct td_event_fork`, without the header.
    Fork { caller_pid: U32, caller_tid: U32 }
    /// `struct td_event_exit`, without the header. `page_bytes` is 0 for pages of this machine; a
    /// recorded event has it, because other machines read it.
    Exit { status: I32, page_bytes: U32, runtime_ns: U64, peak_rss_pages: U64 }
}

impl Exit {
    /// The size of the pages of `peak_rss_pages`.
    pub(super) fn page_bytes(&self) -> u32 {
        match self.page_bytes.get() {
            0 => rustix::param::page_size() as u32,
            page_bytes => page_bytes,
        }
    }
}

/// The header of the event in `bytes`, and the bytes after it. `None` unless the event is complete.
pub fn split(bytes: &[u8]) -> Option<(&Header, &[u8])> {
    let (header, _) = Header::ref_from_prefix(bytes).ok()?;
    let event = bytes.get(..header.len.get() as usize)?;
    Some((header, event.get(size_of::<Header>()..)?))
}
