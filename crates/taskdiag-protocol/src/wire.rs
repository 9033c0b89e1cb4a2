//! The messages between the broker and its clients, which are task_diag's: pure, bytes in and values out. `docs/protocol.md`
//! describes them.

#![allow(missing_debug_implementations)]

use std::fmt;

use taskdiag_core::field::{Group, Groups};
use taskdiag_core::record::{attr, wire};
use zerocopy::native_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Where the broker listens unless told otherwise.
pub const SOCKET: &str = "/run/taskdiag/taskdiag.sock";

/// The type of requests and of the messages of answers: `TASK_DIAG_CMD_GET`.
pub const TASK_DIAG: u16 = 0xd101;

/// `NLM_F_REQUEST`.
pub const FLAG_REQUEST: u16 = 1;
/// `NLM_F_MULTI`.
pub const FLAG_MULTI: u16 = 2;
/// `NLMSG_ERROR`.
pub const ERROR: u16 = 2;
/// `NLMSG_DONE`.
pub const DONE: u16 = 3;

/// In the flags of a message: the task goes on in the next one.
pub const CONTINUED: u32 = 1;

/// What a request asks for: bits of `show_flags`.
#[allow(missing_docs)]
pub mod show {
    pub const BASE: u64 = 1 << 0;
    pub const CRED: u64 = 1 << 1;
    pub const VMA: u64 = 1 << 2;
    pub const VMA_STAT: u64 = 1 << 3;
    pub const STAT: u64 = 1 << 4;
    pub const STATM: u64 = 1 << 5;
    pub const CMDLINE: u64 = 1 << 6;
    /// The first of the bits that stand for groups of fields.
    pub const GROUPS_SHIFT: u32 = 16;
    /// `/proc/PID/maps` of one process, opened. Asked for alone.
    pub const MAPS: u64 = 1 << 60;
    /// The same with `smaps`.
    pub const SMAPS: u64 = 1 << 61;
    /// Which bits there are, and nothing about tasks.
    pub const BITS: u64 = 1 << 63;

    /// The bits of task_diag.
    pub const TASK_DIAG: u64 = BASE | CRED | VMA | VMA_STAT | STAT | STATM | CMDLINE;
    /// Those for which the texts of mappings are read.
    pub const MAPPINGS: u64 = VMA | VMA_STAT;
    /// Those that are answered with an open file of `/proc`.
    pub const OPENED: u64 = MAPS | SMAPS;
}

/// All bits of groups of fields. Rollups a client reads itself, which takes long and is decided by its own `/proc`.
pub const GROUP_BITS: u64 = (Groups::ALL.0 as u64 & !(1 << Group::Rollup as u32)) << show::GROUPS_SHIFT;

/// All bits that there are.
pub const ALL_BITS: u64 = show::TASK_DIAG | GROUP_BITS | show::OPENED | show::BITS;

/// The types of attributes.
#[allow(missing_docs)]
pub mod attribute {
    pub const BASE: u16 = 0;
    pub const CRED: u16 = 1;
    pub const VMA: u16 = 2;
    pub const STAT: u16 = 4;
    pub const STATM: u16 = 5;
    pub const CMDLINE: u16 = 6;
    /// A record, as `bpf/record.h` has it.
    pub const RECORD: u16 = 128;
    /// Which bits there are.
    pub const BITS: u16 = 129;
    /// An open file of `/proc` comes with the packet: the bit that asked for it.
    pub const OPENED: u16 = 131;
}

/// The most that a packet holds.
pub const PACKET: usize = 64 << 10;

/// The longest packet that may be a request.
pub const REQUEST_MAX: usize = size_of::<MessageHeader>() + size_of::<TaskDiagPid>();

/// Room that one message has for attributes, so that it fits into a packet.
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
    /// `struct task_diag_creds`. Each set of capabilities is two words, the lower first.
    Creds {
        cap_inheritable: [U32; 2], cap_permitted: [U32; 2], cap_effective: [U32; 2], cap_bset: [U32; 2],
        uid: U32, euid: U32, suid: U32, fsuid: U32, gid: U32, egid: U32, sgid: U32, fsgid: U32,
    }
    /// `struct task_diag_vma`. `vma_len` leads to the next one.
    Vma {
        start: U64, end: U64, vm_flags: U64, pgoff: U64, major: U32, minor: U32, inode: U64, generation: U32, vma_len: U16,
        name_off: U16, name_len: U16, stat_off: U16, stat_len: U16, padding: U16,
    }
    /// `struct task_diag_vma_stat`: bytes, and pss in 4096ths of one.
    VmaStat {
        resident: U64, shared_clean: U64, shared_dirty: U64, private_clean: U64, private_dirty: U64, referenced: U64,
        anonymous: U64, anonymous_thp: U64, swap: U64, pss: U64,
    }
    /// `struct task_diag_stat`. Times are in clock ticks.
    Stat {
        minflt: U64, cminflt: U64, majflt: U64, cmajflt: U64, utime: U64, stime: U64, cutime: U64, cstime: U64, threads: U32,
        padding: U32,
    }
    /// `struct task_diag_statm`: pages, and bytes of page tables.
    Statm {
        anon: U64, file: U64, shmem: U64, hiwater_vm: U64, hiwater_rss: U64, text: U64, lib: U64, swap: U64, ptes: U64,
        total_rss: U64, total_vm: U64, data_vm: U64, stack_vm: U64, locked_vm: U64, pinned_vm: U64,
    }
}

/// In [`Bits::flags`]: the client sees every task.
pub const SEES_ALL: u32 = 1;

/// The version that [`Bits`] has: of the records.
pub const VERSION: u32 = taskdiag_core::record::ABI;

/// Which tasks are asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Strategy {
    /// Every process.
    All = 0,
    /// One process.
    One = 1,
    /// Every thread of every process.
    AllThreads = 2,
    /// The children of one process.
    Children = 3,
    /// The threads of one process.
    Thread = 4,
}

impl Strategy {
    fn from_wire(number: u64) -> Option<Strategy> {
        Some(match number {
            0 => Strategy::All,
            1 => Strategy::One,
            2 => Strategy::AllThreads,
            3 => Strategy::Children,
            4 => Strategy::Thread,
            _ => return None,
        })
    }

    /// Whether it asks about threads rather than processes.
    pub fn is_threads(self) -> bool {
        matches!(self, Strategy::AllThreads | Strategy::Thread)
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The number that its answer will carry.
    pub seq: u32,
    /// What of each task: bits of [`show`].
    pub show: u64,
    /// Which tasks.
    pub strategy: Strategy,
    /// The process that a strategy is about.
    pub pid: u32,
}

/// A request that is none: its number, if it has one, and the error to answer with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRequest {
    /// The number, or 0.
    pub seq: u32,
    /// A number of errno.
    pub errno: i32,
}

impl Request {
    /// What a packet asks.
    pub fn parse(packet: &[u8]) -> Result<Request, BadRequest> {
        let bad = |seq, errno| Err(BadRequest { seq, errno });
        let Ok((header, body)) = MessageHeader::ref_from_prefix(packet) else {
            return bad(0, libc::EINVAL);
        };
        let seq = header.seq.get();
        if header.kind.get() != TASK_DIAG || header.flags.get() & FLAG_REQUEST == 0 {
            return bad(seq, libc::EINVAL);
        }
        // The last four bytes are the padding that C gives the structure.
        const FULL: usize = size_of::<TaskDiagPid>();
        const SHORT: usize = FULL - 4;
        if header.len.get() as usize != packet.len() || !matches!(body.len(), FULL | SHORT) {
            return bad(seq, libc::EINVAL);
        }
        let word = |at: usize| u64::from_ne_bytes(body[at..at + 8].try_into().expect("eight bytes"));
        let pid = u32::from_ne_bytes(body[16..20].try_into().expect("four bytes"));
        let show = word(0);
        let Some(strategy) = Strategy::from_wire(word(8)) else {
            return bad(seq, libc::EINVAL);
        };
        if show & !ALL_BITS != 0 {
            return bad(seq, libc::EINVAL);
        }
        let may_be_opened = show.count_ones() == 1 && matches!(strategy, Strategy::One | Strategy::Thread);
        if show & show::OPENED != 0 && !may_be_opened && show & show::BITS == 0 {
            return bad(seq, libc::EINVAL);
        }
        let is_about_one = matches!(strategy, Strategy::One | Strategy::Children | Strategy::Thread);
        if is_about_one && (pid == 0 || pid > i32::MAX as u32) && show & show::BITS == 0 {
            return bad(seq, libc::ESRCH);
        }
        Ok(Request {
            seq,
            show,
            strategy,
            pid: if is_about_one { pid } else { 0 },
        })
    }

    /// The packet that asks it.
    pub fn encode(&self) -> [u8; REQUEST_MAX] {
        let header = MessageHeader {
            len: U32::new(REQUEST_MAX as u32),
            kind: U16::new(TASK_DIAG),
            flags: U16::new(FLAG_REQUEST),
            seq: U32::new(self.seq),
            port: U32::new(0),
        };
        let body = TaskDiagPid {
            show_flags: U64::new(self.show),
            dump_strategy: U64::new(self.strategy as u64),
            pid: U32::new(self.pid),
            padding: U32::new(0),
        };
        let mut packet = [0; REQUEST_MAX];
        packet[..size_of::<MessageHeader>()].copy_from_slice(header.as_bytes());
        packet[size_of::<MessageHeader>()..].copy_from_slice(body.as_bytes());
        packet
    }

    /// The groups that are asked for as they are.
    pub fn groups(&self) -> Groups {
        Groups((self.show >> show::GROUPS_SHIFT) as u32 & Groups::ALL.0)
    }
}

/// The group that an attribute of a record is of; `None` for those that are about the record.
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
        attr::SIGNALS => Group::Signals,
        attr::LIMITS => Group::Limits,
        attr::ENV => Group::Env,
        attr::EXE | attr::CWD | attr::ROOT | attr::UMASK => Group::Paths,
        attr::FDS => Group::Fds,
        attr::AUDIT => Group::Audit,
        attr::LAYOUT | attr::PERSONALITY => Group::Layout,
        _ => return None,
    })
}

/// Appends one message at a time to a buffer.
#[derive(Debug)]
pub struct MessageWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> MessageWriter<'a> {
    /// Begins a message about a task.
    pub fn task(out: &'a mut Vec<u8>, seq: u32, task: TaskHeader) -> MessageWriter<'a> {
        let mut writer = MessageWriter::begin(out, TASK_DIAG, seq);
        writer.out.extend_from_slice(task.as_bytes());
        writer.flags(FLAG_MULTI);
        writer
    }

    fn begin(out: &'a mut Vec<u8>, kind: u16, seq: u32) -> MessageWriter<'a> {
        let start = out.len();
        let header = MessageHeader {
            kind: U16::new(kind),
            seq: U32::new(seq),
            ..MessageHeader::default()
        };
        out.extend_from_slice(header.as_bytes());
        MessageWriter { out, start }
    }

    fn flags(&mut self, flags: u16) {
        self.out[self.start + 6..self.start + 8].copy_from_slice(&flags.to_ne_bytes());
    }

    /// Appends an attribute that `write` appends the payload of. Payloads are shorter than 64 KiB.
    pub fn attribute(&mut self, kind: u16, write: impl FnOnce(&mut Vec<u8>)) {
        let at = self.out.len();
        self.out.extend_from_slice(&[0; size_of::<AttributeHeader>()]);
        write(self.out);
        let header = AttributeHeader {
            len: U16::new((self.out.len() - at) as u16),
            kind: U16::new(kind),
        };
        self.out[at..at + size_of::<AttributeHeader>()].copy_from_slice(header.as_bytes());
        let len = self.out.len() - self.start;
        self.out.resize(self.start + len.next_multiple_of(4), 0);
    }

    /// Says that the task goes on in the next message.
    pub fn continued(&mut self) {
        let at = self.start + size_of::<MessageHeader>() + 8;
        self.out[at..at + 4].copy_from_slice(&CONTINUED.to_ne_bytes());
    }

    /// How long the message is.
    pub fn len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Whether it has no attribute.
    pub fn is_empty(&self) -> bool {
        self.len() <= size_of::<MessageHeader>() + size_of::<TaskHeader>()
    }

    /// Ends it.
    pub fn finish(self) {
        let len = (self.out.len() - self.start) as u32;
        self.out[self.start..self.start + 4].copy_from_slice(&len.to_ne_bytes());
    }
}

/// Appends the message that ends an answer.
pub fn put_done(out: &mut Vec<u8>, seq: u32) {
    let mut writer = MessageWriter::begin(out, DONE, seq);
    writer.flags(FLAG_MULTI);
    writer.out.extend_from_slice(&0_i32.to_ne_bytes());
    writer.finish();
}

/// Appends the message that takes the place of an answer, or ends what of it was sent.
pub fn put_error(out: &mut Vec<u8>, seq: u32, errno: i32) {
    let writer = MessageWriter::begin(out, ERROR, seq);
    writer.out.extend_from_slice(&(-errno).to_ne_bytes());
    // `struct nlmsgerr` goes on with the header of what was asked.
    let asked = MessageHeader {
        kind: U16::new(TASK_DIAG),
        flags: U16::new(FLAG_REQUEST),
        seq: U32::new(seq),
        ..MessageHeader::default()
    };
    writer.out.extend_from_slice(asked.as_bytes());
    writer.finish();
}

/// The whole messages at the start of `messages`, as many as fit into one packet, now with the number of a request. None if a
/// message makes no sense.
pub fn number_packet(messages: &mut [u8], seq: u32) -> &[u8] {
    let mut end = 0;
    while let Ok((header, rest)) = MessageHeader::mut_from_prefix(&mut messages[end..]) {
        let len = header.len.get() as usize;
        let most = (PACKET - end).min(size_of::<MessageHeader>() + rest.len());
        if len < size_of::<MessageHeader>() || len % 4 != 0 || len > most {
            break;
        }
        header.seq = U32::new(seq);
        end += len;
    }
    &messages[..end]
}

/// A message of an answer.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// About a task, or the answer itself.
    Task {
        /// The task, and whether it goes on.
        header: &'a TaskHeader,
        /// What is said of it.
        attributes: &'a [u8],
        /// Where these stand in the bytes that the message was read from.
        offset: usize,
    },
    /// The end.
    Done,
    /// A number of errno: the end as well.
    Error(i32),
}

/// An answer that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The messages of a packet or a file. Ends after the first that makes no sense.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    bytes: &'a [u8],
    at: usize,
    seq: u32,
}

impl<'a> Messages<'a> {
    /// Those in `bytes`, which all have to answer request `seq`.
    pub fn new(bytes: &'a [u8], seq: u32) -> Messages<'a> {
        Messages { bytes, at: 0, seq }
    }

    fn take(&mut self) -> Result<Message<'a>, Malformed> {
        let bytes: &'a [u8] = &self.bytes[self.at..];
        let (header, _) =
            MessageHeader::ref_from_prefix(bytes).map_err(|_| Malformed("a message without its header"))?;
        let len = header.len.get() as usize;
        if len < size_of::<MessageHeader>() || len > bytes.len() {
            return Err(Malformed("a message of a length that can't be"));
        }
        if header.seq.get() != self.seq {
            return Err(Malformed("an answer to another request"));
        }
        let body: &'a [u8] = &bytes[size_of::<MessageHeader>()..len];
        let at = self.at + size_of::<MessageHeader>();
        self.at = (self.at + len.next_multiple_of(4)).min(self.bytes.len());
        let number = || Some(i32::from_ne_bytes(body.get(..4)?.try_into().ok()?));
        match header.kind.get() {
            TASK_DIAG => {
                let (task, attributes) =
                    TaskHeader::ref_from_prefix(body).map_err(|_| Malformed("a message without its task"))?;
                Ok(Message::Task {
                    header: task,
                    attributes,
                    offset: at + size_of::<TaskHeader>(),
                })
            }
            DONE => Ok(Message::Done),
            ERROR => match number() {
                Some(errno) if errno < 0 => Ok(Message::Error(errno.checked_neg().unwrap_or(libc::EIO))),
                _ => Err(Malformed("an error without a number")),
            },
            _ => Err(Malformed("a message of an unknown type")),
        }
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let taken = self.take();
        if taken.is_err() {
            self.at = self.bytes.len();
        }
        Some(taken)
    }
}

/// The attributes of a message: type, payload, and where that stands in the message's attributes. Ends at the first that is not
/// whole.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8], usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (header, _) = AttributeHeader::ref_from_prefix(bytes.get(at..)?).ok()?;
        let len = usize::from(header.len.get());
        let start = at + size_of::<AttributeHeader>();
        let payload = bytes.get(start..at + len)?;
        at += len.next_multiple_of(4);
        Some((header.kind.get(), payload, start))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Strategy;
    use super::*;

    fn request() -> Request {
        Request {
            seq: 7,
            show: show::BASE | show::CRED | 1 << 16,
            strategy: Strategy::One,
            pid: 42,
        }
    }

    /// Check that structures have the sizes that C gives them.
    #[test]
    fn structures_are_those_of_c() {
        assert_eq!(size_of::<TaskDiagPid>(), 24);
        assert_eq!(size_of::<Base>(), 44);
        assert_eq!(size_of::<Creds>(), 64);
        assert_eq!(size_of::<Vma>(), 64);
        assert_eq!(size_of::<VmaStat>(), 80);
        assert_eq!(size_of::<Stat>(), 72);
        assert_eq!(size_of::<Statm>(), 120);
    }

    /// Check the bytes of an error and of an end: `struct nlmsgerr` goes on with the header of what was asked (netlink(7)).
    #[test]
    fn errors_are_those_of_netlink() {
        let header = |len: u32, kind: u16, flags: u16| {
            let header = MessageHeader {
                len: U32::new(len),
                kind: U16::new(kind),
                flags: U16::new(flags),
                seq: U32::new(7),
                ..MessageHeader::default()
            };
            header.as_bytes().to_vec()
        };
        let mut out = Vec::new();
        put_error(&mut out, 7, libc::EPERM);
        let error = (-libc::EPERM).to_ne_bytes().to_vec();
        assert_eq!(out, [header(36, 2, 0), error, header(0, 0xd101, 1)].concat());
        out.clear();
        put_done(&mut out, 7);
        assert_eq!(out, [header(20, 3, 2), 0_i32.to_ne_bytes().to_vec()].concat());
    }

    /// Check every number that docs/protocol.md gives.
    #[test]
    fn numbers_are_those_of_the_document() {
        let bits = [
            show::BASE,
            show::CRED,
            show::VMA,
            show::VMA_STAT,
            show::STAT,
            show::STATM,
            show::CMDLINE,
        ];
        assert_eq!(bits, [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(show::TASK_DIAG, 0x7f);
        assert_eq!(show::MAPPINGS, 0xc);
        assert_eq!(show::MAPS, 0x1000_0000_0000_0000);
        assert_eq!(show::SMAPS, 0x2000_0000_0000_0000);
        assert_eq!(show::OPENED, 0x3000_0000_0000_0000);
        assert_eq!(show::BITS, 0x8000_0000_0000_0000);
        // Of 20 groups the last, rollups, is not to be had.
        assert_eq!(GROUP_BITS, 0x7_ffff_0000);
        assert_eq!(ALL_BITS, 0xb000_0007_ffff_007f);
        assert_eq!((PACKET, REQUEST_MAX, MESSAGE_ROOM), (65_536, 40, 65_508));
    }

    /// Check that strategies have the numbers of task_diag, and which of them are about threads.
    #[test]
    fn strategies_come_back() {
        let all = [
            (0, Strategy::All, false),
            (1, Strategy::One, false),
            (2, Strategy::AllThreads, true),
            (3, Strategy::Children, false),
            (4, Strategy::Thread, true),
        ];
        for (number, strategy, is_threads) in all {
            assert_eq!(strategy as u64, number);
            assert_eq!(strategy.is_threads(), is_threads, "{strategy:?}");
            let asked = Request {
                strategy,
                pid: if matches!(number, 0 | 2) { 0 } else { i32::MAX as u32 },
                ..request()
            };
            assert_eq!(Request::parse(&asked.encode()), Ok(asked));
        }
    }

    /// Check which groups a request asks for, and that each attribute of a record belongs to the group whose fields are made of it.
    #[test]
    fn groups_are_those_of_the_records() {
        let asked = Request {
            show: show::BASE | 1 << 16 | 1 << 18 | show::MAPS,
            ..request()
        };
        assert_eq!(asked.groups(), Groups(0b101));
        let kinds = [
            (Group::Base, vec![attr::BASE, attr::NAME]),
            (Group::Tty, vec![attr::TTY]),
            (Group::Cred, vec![attr::CRED]),
            (Group::Groups, vec![attr::GROUPS]),
            (Group::Cpu, vec![attr::CPU, attr::AFFINITY]),
            (Group::Faults, vec![attr::FAULTS]),
            (Group::Mem, vec![attr::MEM]),
            (Group::Args, vec![attr::ARGS]),
            (Group::Oom, vec![attr::OOM]),
            (Group::Namespaces, vec![attr::NAMESPACES, attr::NSPIDS]),
            (Group::Cgroup, vec![attr::CGROUP, attr::CGROUP_PATH]),
            (Group::Io, vec![attr::IO]),
            (Group::Signals, vec![attr::SIGNALS]),
            (Group::Limits, vec![attr::LIMITS]),
            (Group::Env, vec![attr::ENV]),
            (Group::Paths, vec![attr::EXE, attr::CWD, attr::ROOT, attr::UMASK]),
            (Group::Fds, vec![attr::FDS]),
            (Group::Audit, vec![attr::AUDIT]),
            (Group::Layout, vec![attr::LAYOUT, attr::PERSONALITY]),
        ];
        for kind in 0..=u16::MAX {
            let of = kinds.iter().find(|(_, kinds)| kinds.contains(&kind));
            assert_eq!(group_of(kind), of.map(|(group, _)| *group), "{kind}");
        }
    }

    /// Check what a message knows of itself, and that it can say that its task goes on.
    #[test]
    fn messages_know_their_length() {
        let mut out = vec![0; 8];
        let task = TaskHeader {
            pid: U32::new(1),
            tgid: U32::new(2),
            flags: U32::new(0),
        };
        let mut message = MessageWriter::task(&mut out, 7, task);
        assert!(message.is_empty());
        assert_eq!(message.len(), 28);
        message.attribute(attribute::CMDLINE, |out| out.push(b'x'));
        assert!(!message.is_empty());
        assert_eq!(message.len(), 36);
        message.continued();
        message.finish();
        let Some(Ok(Message::Task {
            header,
            attributes: list,
            ..
        })) = Messages::new(&out[8..], 7).next()
        else {
            panic!("{out:?}");
        };
        assert_eq!(
            (header.pid.get(), header.tgid.get(), header.flags.get()),
            (1, 2, CONTINUED)
        );
        assert_eq!(
            attributes(list).collect::<Vec<_>>(),
            [(attribute::CMDLINE, &b"x"[..], 4)]
        );
    }

    /// A message of so many bytes that says another length.
    fn of_length(said: u32, kind: u16, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let writer = MessageWriter::begin(&mut out, kind, 7);
        writer.out.extend_from_slice(body);
        out[..4].copy_from_slice(&said.to_ne_bytes());
        out
    }

    /// Check that messages of lengths that can't be end an answer, and those of the least length do not.
    #[test]
    fn lengths_that_can_not_be_end_an_answer() {
        let short = of_length(16, DONE, &[]);
        assert!(matches!(Messages::new(&short, 7).next(), Some(Ok(Message::Done))));
        for said in [0, 15, 17, 21, u32::MAX] {
            let wrong = of_length(said, DONE, &[]);
            let told = Messages::new(&wrong, 7).next();
            let reason = told
                .expect("a message")
                .expect_err("a length that can't be")
                .to_string();
            assert_eq!(reason, "a message of a length that can't be", "{said}");
            let mut both = [short.clone(), wrong].concat();
            assert_eq!(number_packet(&mut both, 9).len(), 16, "{said}");
        }
        let mut two = [short.clone(), short].concat();
        assert_eq!(number_packet(&mut two, 9).len(), 32);
    }

    /// Check that an error has a number below 0.
    #[test]
    fn errors_have_a_number() {
        for (number, errno) in [
            (-libc::EPERM, Some(libc::EPERM)),
            (i32::MIN, Some(libc::EIO)),
            (0, None),
            (1, None),
        ] {
            let message = of_length(20, ERROR, &number.to_ne_bytes());
            let told = match Messages::new(&message, 7).next() {
                Some(Ok(Message::Error(errno))) => Some(errno),
                _ => None,
            };
            assert_eq!(told, errno, "{number}");
        }
    }

    /// Check that a request comes back, with and without the padding of its structure, and whatever the padding holds.
    #[test]
    fn requests_come_back() {
        let mut packet = request().encode();
        assert_eq!(Request::parse(&packet), Ok(request()));
        packet[36..].fill(0xff);
        assert_eq!(Request::parse(&packet), Ok(request()));
        packet[..4].copy_from_slice(&36_u32.to_ne_bytes());
        assert_eq!(Request::parse(&packet[..36]), Ok(request()));
    }

    /// Check that every other length, type, strategy and unknown bit is refused, with the request's number where it has one.
    #[test]
    fn what_is_no_request_is_refused() {
        let packet = request().encode();
        for len in 0..packet.len() {
            let seq = if len >= 16 { 7 } else { 0 };
            let refused = Err(BadRequest {
                seq,
                errno: libc::EINVAL,
            });
            assert_eq!(Request::parse(&packet[..len]), refused, "{len}");
        }
        for (at, value) in [(4, 0), (6, 0), (6, 2), (24, 5), (31, 1), (21, 0x80), (0, 41)] {
            let mut packet = packet;
            packet[at] = value;
            let refused = BadRequest {
                seq: 7,
                errno: libc::EINVAL,
            };
            assert_eq!(Request::parse(&packet), Err(refused), "{at}");
        }
        for (show, strategy, is_one) in [
            (show::MAPS, Strategy::One, true),
            (show::SMAPS, Strategy::Thread, true),
            (show::MAPS, Strategy::All, false),
            (show::SMAPS, Strategy::Children, false),
            (show::OPENED, Strategy::One, false),
            (show::MAPS | show::BASE, Strategy::One, false),
            (1 << 59, Strategy::All, false),
            (1 << 62, Strategy::All, false),
        ] {
            let asked = Request {
                show,
                strategy,
                ..request()
            };
            assert_eq!(Request::parse(&asked.encode()).is_ok(), is_one, "{asked:?}");
        }
        for pid in [0, 1 << 31, u32::MAX] {
            let asked = Request { pid, ..request() };
            assert_eq!(Request::parse(&asked.encode()).unwrap_err().errno, libc::ESRCH);
        }
    }

    fn sample() -> Vec<u8> {
        let mut out = Vec::new();
        for pid in 1..4 {
            let task = TaskHeader {
                pid: U32::new(pid),
                tgid: U32::new(pid),
                flags: U32::new(0),
            };
            let mut message = MessageWriter::task(&mut out, 0, task);
            message.attribute(attribute::CMDLINE, |out| out.extend_from_slice(b"sleep\x00100"));
            message.attribute(attribute::BASE, |out| out.extend_from_slice(Base::default().as_bytes()));
            message.finish();
        }
        put_done(&mut out, 0);
        out
    }

    /// Check that what was written is read, in packets of whole messages with the request's number.
    #[test]
    fn messages_come_back() {
        let mut bytes = sample();
        let len = bytes.len();
        let packet = number_packet(&mut bytes, 9);
        assert_eq!(packet.len(), len);
        let messages: Vec<_> = Messages::new(packet, 9).collect::<Result<_, _>>().unwrap();
        assert_eq!(messages.len(), 4);
        let Message::Task {
            header,
            attributes: list,
            offset,
        } = messages[2]
        else {
            panic!("{messages:?}");
        };
        assert_eq!(header.pid.get(), 3);
        let list: Vec<_> = attributes(list).collect();
        assert_eq!(list[0].1, b"sleep\x00100");
        assert_eq!(&packet[offset + list[0].2..][..5], b"sleep");
        assert_eq!(list[1].0, attribute::BASE);
        assert!(matches!(messages[3], Message::Done));
        assert!(Messages::new(packet, 8).next().unwrap().is_err());
    }

    proptest! {
        /// Check that any bytes are a request or refused.
        #[test]
        fn any_packet_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Request::parse(&bytes);
        }

        /// Check that requests with one byte changed are survived, and that nothing unknown gets through.
        #[test]
        fn changed_requests_are_survived(at in 0..REQUEST_MAX, byte: u8) {
            let mut packet = request().encode();
            packet[at] = byte;
            if let Ok(request) = Request::parse(&packet) {
                prop_assert_eq!(request.show & !ALL_BITS, 0);
                prop_assert!(request.pid <= i32::MAX as u32);
            }
        }

        /// Check that any bytes can be read as messages, and that reading them ends.
        #[test]
        fn any_answer_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..512), seq in 0..3_u32) {
            for message in Messages::new(&bytes, seq) {
                if let Ok(Message::Task { attributes: list, offset, .. }) = message {
                    prop_assert_eq!(&bytes[offset..offset + list.len()], list);
                    for (_, payload, at) in attributes(list) {
                        prop_assert_eq!(&list[at..at + payload.len()], payload);
                    }
                }
            }
        }

        /// Check that answers with some bytes changed are survived.
        #[test]
        fn changed_answers_are_survived(changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..4)) {
            let mut bytes = sample();
            for (at, byte) in changes {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            for message in Messages::new(&bytes, 0).flatten() {
                if let Message::Task { attributes: list, .. } = message {
                    prop_assert!(attributes(list).count() <= bytes.len());
                }
            }
            let len = bytes.len();
            let packet = number_packet(&mut bytes, 1);
            prop_assert!(packet.len() <= len.min(PACKET));
        }

        /// Check that packets hold whole messages, no more of them than fit, and lose none.
        #[test]
        fn packets_are_whole(lens in proptest::collection::vec(0..30_000_usize, 0..20)) {
            let mut bytes = Vec::new();
            for &len in &lens {
                let mut message = MessageWriter::task(&mut bytes, 0, TaskHeader::default());
                message.attribute(attribute::RECORD, |out| out.resize(out.len() + len, 1));
                message.finish();
            }
            let (mut at, mut count) = (0, 0);
            while at < bytes.len() {
                let packet = number_packet(&mut bytes[at..], 3);
                prop_assert!(!packet.is_empty() && packet.len() <= PACKET);
                for message in Messages::new(packet, 3) {
                    prop_assert!(message.is_ok());
                    count += 1;
                }
                at += packet.len();
            }
            prop_assert_eq!(count, lens.len());
        }
    }
}
