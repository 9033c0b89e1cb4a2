//! The messages between the broker and its clients: task_diag's, as `docs/protocol.md` describes
//! them. No I/O: bytes in, values out.

// zerocopy's derives make helper types that have no Debug.
#![allow(missing_debug_implementations)]

mod answer;
mod request;
#[cfg(test)]
mod tests;

use taskdiag_core::field::{Group, Groups};
use taskdiag_core::record::{attr, wire};
use zerocopy::native_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use answer::{attributes, number_packet, put_done, put_error, Malformed, Message, MessageWriter, Messages};
pub use request::{uses, wants, BadRequest, FileMatch, Files, Request, Strategy};

/// The default path of the broker's socket.
pub const SOCKET: &str = "/run/taskdiag/taskdiag.sock";

/// The type of requests and of messages about tasks: `TASK_DIAG_CMD_GET`.
pub const TASK_DIAG: u16 = 0xd101;

/// `NLM_F_REQUEST`.
pub const FLAG_REQUEST: u16 = 1;
/// `NLM_F_MULTI`.
pub const FLAG_MULTI: u16 = 2;
/// `NLMSG_ERROR`.
pub const ERROR: u16 = 2;
/// `NLMSG_DONE`.
pub const DONE: u16 = 3;

/// A flag of a message about a task: the next message continues it.
pub const CONTINUED: u32 = 1;

/// A flag of the last message about a task: some mappings or the command line are missing, because
/// they could not be read in time or the task changed.
pub const INCOMPLETE: u32 = 2;

/// The bits of `show_flags`, which say what a request asks for.
#[allow(missing_docs)]
pub mod show {
    pub const BASE: u64 = 1 << 0;
    pub const CRED: u64 = 1 << 1;
    pub const VMA: u64 = 1 << 2;
    pub const VMA_STAT: u64 = 1 << 3;
    pub const STAT: u64 = 1 << 4;
    pub const STATM: u64 = 1 << 5;
    pub const CMDLINE: u64 = 1 << 6;
    /// The position of the first bit that stands for a group of fields.
    pub const GROUPS_SHIFT: u32 = 16;
    /// An open descriptor of `/proc/PID/maps`. No other bit may be set.
    pub const MAPS: u64 = 1 << 60;
    /// An open descriptor of `/proc/PID/smaps`. No other bit may be set.
    pub const SMAPS: u64 = 1 << 61;
    /// The files that processes use. No other bit may be set. [`Files`](super::Files) may follow
    /// the request.
    pub const FILES: u64 = 1 << 62;
    /// Asks which bits the broker knows, and nothing about tasks.
    pub const BITS: u64 = 1 << 63;

    /// The bits of task_diag.
    pub const TASK_DIAG: u64 = BASE | CRED | VMA | VMA_STAT | STAT | STATM | CMDLINE;
    /// The bits for which the broker reads the text of mappings.
    pub const MAPPINGS: u64 = VMA | VMA_STAT;
    /// The bits that the broker answers with an open file of `/proc`.
    pub const OPENED: u64 = MAPS | SMAPS;
}

/// The bit of network traffic. A broker that does not count it does not know the bit.
pub const NETWORK_BIT: u64 = 1 << (Group::Net as u32 + show::GROUPS_SHIFT);

/// The bits of all groups of fields but two that clients read from `/proc` themselves: rollups,
/// which take long, and texts.
pub const GROUP_BITS: u64 = {
    let others = 1 << Group::Rollup as u32 | 1 << Group::Text as u32;
    (Groups::ALL.0 as u64 & !others) << show::GROUPS_SHIFT
};

/// All known bits.
pub const ALL_BITS: u64 = show::TASK_DIAG | GROUP_BITS | show::OPENED | show::FILES | show::BITS;

/// The types of attributes.
#[allow(missing_docs)]
pub mod attribute {
    pub const BASE: u16 = 0;
    pub const CRED: u16 = 1;
    pub const VMA: u16 = 2;
    pub const STAT: u16 = 4;
    pub const STATM: u16 = 5;
    pub const CMDLINE: u16 = 6;
    /// A record of [`taskdiag_core::record`].
    pub const RECORD: u16 = 128;
    /// The bits that the broker knows: [`Bits`](super::Bits).
    pub const BITS: u16 = 129;
    /// The bit that asked for an open file of `/proc`. The descriptor is attached to the packet.
    pub const OPENED: u16 = 131;
    /// Records of `record/files.rs` in the core, one after the other.
    pub const FILES: u16 = 132;
}

/// The maximum length of a packet, in bytes.
pub const PACKET: usize = 64 << 10;

/// The maximum length of a request about tasks, in bytes.
pub const REQUEST_MAX: usize = size_of::<MessageHeader>() + size_of::<TaskDiagPid>();

/// The length of a request about files, in bytes: the longest request.
pub const FILES_REQUEST: usize = REQUEST_MAX + size_of::<Files>();

/// The maximum length of the attributes of one message, in bytes. Such a message fits into a
/// packet.
pub const MESSAGE_ROOM: usize = PACKET - size_of::<MessageHeader>() - size_of::<TaskHeader>();

wire! {
    /// `struct nlmsghdr`.
    MessageHeader { len: U32, kind: U16, flags: U16, seq: U32, port: U32 }
    /// `struct task_diag_msg`.
    TaskHeader { pid: U32, tgid: U32, flags: U32 }
    /// `struct nlattr`.
    AttributeHeader { len: U16, kind: U16 }
    /// `struct task_diag_pid`.
    TaskDiagPid { show_flags: U64, dump_strategy: U64, pid: U32, padding: U32 }
    /// The payload of [`attribute::BITS`].
    Bits { bits: U64, of_all: U64, version: U32, flags: U32 }
    /// `struct task_diag_base`.
    Base { tgid: U32, pid: U32, ppid: U32, tpid: U32, sid: U32, pgid: U32, state: u8, comm: [u8; 16], padding: [u8; 3] }
    /// `struct task_diag_creds`. Each set of capabilities is two words, the low one first.
    Creds {
        cap_inheritable: [U32; 2], cap_permitted: [U32; 2], cap_effective: [U32; 2], cap_bset: [U32; 2],
        uid: U32, euid: U32, suid: U32, fsuid: U32, gid: U32, egid: U32, sgid: U32, fsgid: U32,
    }
    /// `struct task_diag_vma`. The next one starts `vma_len` bytes later.
    Vma {
        start: U64, end: U64, vm_flags: U64, pgoff: U64, major: U32, minor: U32, inode: U64, generation: U32, vma_len: U16,
        name_off: U16, name_len: U16, stat_off: U16, stat_len: U16, padding: U16,
    }
    /// `struct task_diag_vma_stat`. Sizes are in bytes, `pss` in units of 1/4096 byte.
    VmaStat {
        resident: U64, shared_clean: U64, shared_dirty: U64, private_clean: U64, private_dirty: U64, referenced: U64,
        anonymous: U64, anonymous_thp: U64, swap: U64, pss: U64,
    }
    /// `struct task_diag_stat`. Times are in clock ticks.
    Stat {
        minflt: U64, cminflt: U64, majflt: U64, cmajflt: U64, utime: U64, stime: U64, cutime: U64, cstime: U64, threads: U32,
        padding: U32,
    }
    /// `struct task_diag_statm`. Sizes are in pages, `ptes` in bytes.
    Statm {
        anon: U64, file: U64, shmem: U64, hiwater_vm: U64, hiwater_rss: U64, text: U64, lib: U64, swap: U64, ptes: U64,
        total_rss: U64, total_vm: U64, data_vm: U64, stack_vm: U64, locked_vm: U64, pinned_vm: U64,
    }
}

/// A flag of [`Bits::flags`]: the client may see every task.
pub const SEES_ALL: u32 = 1;

/// The version in [`Bits`]: the version of records.
pub const VERSION: u32 = taskdiag_core::record::ABI;

/// The group of a record's attribute. `None` for attributes that belong to no group.
pub fn group_of(kind: u16) -> Option<Group> {
    Some(match kind {
        attr::BASE | attr::NAME => Group::Base,
        attr::TTY => Group::Tty,
        attr::CRED => Group::Cred,
        attr::GROUPS => Group::Groups,
        attr::CPU | attr::AFFINITY => Group::Cpu,
        attr::FAULTS => Group::Faults,
        attr::MEM => Group::Mem,
        attr::ARGS => Group::Args,
        attr::OOM => Group::Oom,
        attr::NAMESPACES | attr::NSPIDS => Group::Namespaces,
        attr::CGROUP | attr::CGROUP_PATH => Group::Cgroup,
        attr::IO => Group::Io,
        attr::NET => Group::Net,
        attr::SIGNALS => Group::Signals,
        attr::LIMITS => Group::Limits,
        attr::ENV => Group::Env,
        attr::EXE | attr::CWD | attr::ROOT | attr::UMASK => Group::Paths,
        attr::FDS => Group::Fds,
        attr::AUDIT => Group::Audit,
        attr::LAYOUT | attr::PERSONALITY => Group::Layout,
        attr::WCHAN | attr::SECURITY_LABEL | attr::CGROUPS => Group::Text,
        _ => return None,
    })
}
