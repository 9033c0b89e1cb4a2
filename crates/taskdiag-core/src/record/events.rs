//! The event: the bytes that describe one fork, exec or exit. Everything is in host byte order.
//!
//! The BPF programs (`bpf/events.bpf.c` of `taskdiag-bpf`) write events to their ring buffer, and the
//! library converts messages of the proc connector to the same events. An event is a header, and
//! after it a structure for its kind; an exec has the name of the file, without a NUL.
//!
//! Any bytes are safe to decode. The structures have an alignment of 1.

use zerocopy::native_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::define::{constants, structures};

constants! {
    prefix "TD_EVENT_";

    /// A flag: the event is about one thread rather than a process.
    THREAD: u16 = 1 << 0;
    /// A flag: the event is about a kernel thread.
    KERNEL_THREAD: u16 = 1 << 1;
    /// A flag: the file name was too long and is left out.
    CUT: u16 = 1 << 2;
    /// A flag: the event is from the proc connector, which sends fewer fields.
    CONNECTOR: u16 = 1 << 3;
    /// A flag: the process ended before the fields that the connector does not send could be read
    /// from `/proc`.
    GONE: u16 = 1 << 4;
    /// A flag: the processor time of an exit is left out, because the times of its threads could not
    /// be summed.
    NO_RUNTIME: u16 = 1 << 5;
    /// A flag: the OOM killer chose the process that ended.
    OOM_VICTIM: u16 = 1 << 6;
    /// A flag: what the process moved through sockets follows the exit: [`Net`](super::Net).
    NET: u16 = 1 << 7;

    /// A kind: the event is a fork.
    FORK: u16 = 1;
    /// A kind: the event is an exec.
    EXEC: u16 = 2;
    /// A kind: the event is an exit.
    EXIT: u16 = 3;
}

structures! {
    /// What every event begins with.
    struct td_event as Header {
        /// Of the whole event; its ring record may be longer.
        len: U32,
        kind: U16,
        flags: U16,
        /// Since boot.
        time_ns: U64,
        /// Since boot.
        start_ns: U64,
        /// In the unified hierarchy; 0 if the kernel has no cgroups.
        cgroup_id: U64,
        /// The thread-group id.
        pid: U32,
        tid: U32,
        ppid: U32,
        uid: U32,
        euid: U32,
        reserved: U32,
        comm: [u8; 16],
    }

    /// The thread that called fork. With CLONE_PARENT, its process is not the parent.
    struct td_event_fork as Fork {
        caller_pid: U32,
        caller_tid: U32,
    }

    /// How a process or a thread ended.
    struct td_event_exit as Exit {
        /// As wait(2) reports it.
        status: I32,
        /// 0 for pages of this machine; a recorded event has it, because other machines read it.
        page_bytes: U32,
        /// Of all threads of a process, also of those that ended before.
        runtime_ns: U64,
        peak_rss_pages: U64,
    }

    /// The reader. A program that runs in the reader finds these facts. They become constants of the
    /// programs that run in the processes whose events they write.
    struct td_event_reader as Reader {
        /// The address of its pid namespace; 0 for the initial one.
        pid_ns: U64,
        /// The offset of its time namespace.
        boottime_ns: U64,
        /// The level of its pid namespace.
        level: U32,
        /// 1 if it wants events about threads too.
        threads: U32,
    }

    /// The variables of the programs.
    struct td_event_state as State {
        reader: Reader,
        /// Events that did not fit into the ring.
        lost: U64,
    }
}

impl Exit {
    /// The size of the pages of `peak_rss_pages`.
    pub(crate) fn page_bytes(&self) -> u32 {
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
