//! Requests.

use taskdiag_core::field::Groups;
use zerocopy::native_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

use super::{
    show, AttributeHeader, MessageHeader, TaskDiagPid, ALL_BITS, FILES_REQUEST, FLAG_REQUEST, REQUEST_MAX, TASK_DIAG,
};

/// Which tasks a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, TryFromBytes)]
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
    /// Every thread of one process.
    Thread = 4,
}

impl Strategy {
    /// Whether it asks about threads rather than processes.
    pub fn is_threads(self) -> bool {
        matches!(self, Strategy::AllThreads | Strategy::Thread)
    }
}

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The sequence number, which all messages of its answer repeat.
    pub seq: u32,
    /// What it asks about each task: bits of [`show`].
    pub show: u64,
    /// Which tasks it is about.
    pub strategy: Strategy,
    /// The process that the strategy is about; 0 if it is about all.
    pub pid: u32,
}

/// Bits of [`Files::uses`]: the numbers of `enum td_file_use` of `record/files.rs` in the core.
#[allow(missing_docs)]
pub mod uses {
    pub const FD: u32 = 1 << 0;
    pub const CWD: u32 = 1 << 1;
    pub const ROOT: u32 = 1 << 2;
    pub const EXE: u32 = 1 << 3;
    pub const ALL: u32 = FD | CWD | ROOT | EXE;
}

/// Bits of [`Files::wants`]: `TD_FILE_NAMES` and so on of `record/files.rs` in the core.
#[allow(missing_docs)]
pub mod wants {
    pub const NAMES: u32 = 1 << 0;
    pub const FLAGS: u32 = 1 << 1;
    pub const STAT: u32 = 1 << 2;
    pub const SPACE: u32 = 1 << 4;
    pub const ALL: u32 = NAMES | FLAGS | STAT | SPACE;
}

/// A file to look for, with the kernel's device and inode numbers. On some file systems stat(2)
/// gives other numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct FileMatch {
    pub dev_major: U32,
    pub dev_minor: U32,
    pub inode: U64,
}

/// Which files a request with [`show::FILES`] asks about, and which facts about them. It follows
/// the request. Where only the file system knows a value, the broker makes no test, so the client
/// must test too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Files {
    /// The uses of files that are asked for: bits of [`uses`].
    pub uses: U32,
    /// What to read about the files: bits of [`wants`].
    pub wants: U32,
    /// A bit for each type of file, `st_mode >> 12`; 0 for all types.
    pub types: U32,
    /// 1: only files without a link.
    pub deleted: U32,
    /// The files to look for. The first entry with device and inode number 0 ends the list. An
    /// empty list means all files.
    pub matches: [FileMatch; Files::MATCHES],
}

impl Default for Files {
    fn default() -> Files {
        Files {
            uses: U32::new(uses::ALL),
            wants: U32::new(wants::NAMES | wants::FLAGS | wants::STAT),
            types: U32::new(0),
            deleted: U32::new(0),
            matches: [FileMatch::default(); Files::MATCHES],
        }
    }
}

impl Files {
    /// The maximum number of files to look for.
    pub const MATCHES: usize = 8;

    /// Decodes what follows a request that [`Request::parse`] accepts. Returns the default if
    /// nothing follows.
    pub fn parse(packet: &[u8]) -> Files {
        let rest = packet.get(REQUEST_MAX..).unwrap_or_default();
        Files::read_from_bytes(rest).unwrap_or_default()
    }

    fn is_valid(&self) -> bool {
        let is_within = |set: U32, known: u32| set.get() & !known == 0;
        is_within(self.uses, uses::ALL)
            && is_within(self.wants, wants::ALL)
            && is_within(self.types, 0xffff)
            && self.deleted.get() <= 1
    }
}

/// An invalid request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRequest {
    /// Its sequence number, or 0 if it is too short to have one.
    pub seq: u32,
    /// The error to answer with, a number of errno(3).
    pub errno: i32,
}

impl Request {
    /// Decodes a packet.
    pub fn parse(packet: &[u8]) -> Result<Request, BadRequest> {
        let bad = |seq, errno| Err(BadRequest { seq, errno });
        let Ok((header, body)) = MessageHeader::ref_from_prefix(packet) else {
            return bad(0, libc::EINVAL);
        };
        let seq = header.seq.get();
        // C pads the structure with four bytes. A client may leave them out.
        const FULL: usize = size_of::<TaskDiagPid>();
        const SHORT: usize = FULL - 4;
        const WITH_FILES: usize = FULL + size_of::<Files>();
        // The test program of task_diag's patches counts the header of an attribute too, writes
        // none, and leaves type and flags 0.
        const OF_PATCHES: usize = FULL + size_of::<AttributeHeader>();
        if header.len.get() as usize != packet.len() || !matches!(body.len(), FULL | SHORT | WITH_FILES | OF_PATCHES) {
            return bad(seq, libc::EINVAL);
        }
        let (kind, flags) = (header.kind.get(), header.flags.get());
        let is_of_patches = body.len() == OF_PATCHES;
        let has_type = kind == TASK_DIAG && flags & FLAG_REQUEST != 0;
        let has_none = is_of_patches && kind == 0 && flags == 0;
        if !has_type && !has_none {
            return bad(seq, libc::EINVAL);
        }
        let show = u64::from_ne_bytes(body[..8].try_into().expect("the range has eight bytes"));
        let pid = u32::from_ne_bytes(body[16..20].try_into().expect("the range has four bytes"));
        let Ok(strategy) = Strategy::try_read_from_bytes(&body[8..16]) else {
            return bad(seq, libc::EINVAL);
        };
        if show & !(if is_of_patches { show::TASK_DIAG } else { ALL_BITS }) != 0 {
            return bad(seq, libc::EINVAL);
        }
        let may_be_opened = show.count_ones() == 1 && matches!(strategy, Strategy::One | Strategy::Thread);
        if show & show::OPENED != 0 && !may_be_opened && show & show::BITS == 0 {
            return bad(seq, libc::EINVAL);
        }
        let is_about_files = show & show::FILES != 0 && show & show::BITS == 0;
        if is_about_files && (show != show::FILES || strategy.is_threads()) {
            return bad(seq, libc::EINVAL);
        }
        let has_files = body.len() == WITH_FILES;
        if has_files && (!is_about_files || !Files::parse(packet).is_valid()) {
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

    /// Encodes it as a packet.
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

    /// Encodes it as a packet about files.
    pub fn encode_with(&self, files: &Files) -> [u8; FILES_REQUEST] {
        let mut packet = [0; FILES_REQUEST];
        packet[..REQUEST_MAX].copy_from_slice(&self.encode());
        packet[..4].copy_from_slice(&(FILES_REQUEST as u32).to_ne_bytes());
        packet[REQUEST_MAX..].copy_from_slice(files.as_bytes());
        packet
    }

    /// The groups of fields that it asks for.
    pub fn groups(&self) -> Groups {
        Groups((self.show >> show::GROUPS_SHIFT) as u32 & Groups::ALL.0)
    }
}
