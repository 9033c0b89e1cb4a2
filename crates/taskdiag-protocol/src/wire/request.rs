//! Requests.

use taskdiag_core::field::Groups;
use zerocopy::native_endian::{U16, U32, U64};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::{show, MessageHeader, TaskDiagPid, ALL_BITS, FLAG_REQUEST, REQUEST_MAX, TASK_DIAG};

/// Which tasks a request is about.
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
    /// Every thread of one process.
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

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The sequence number, which all messages of its answer repeat.
    pub seq: u32,
    /// What it asks of each task: bits of [`show`].
    pub show: u64,
    /// Which tasks it is about.
    pub strategy: Strategy,
    /// The process that the strategy is about; 0 if it is about all.
    pub pid: u32,
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
        if header.kind.get() != TASK_DIAG || header.flags.get() & FLAG_REQUEST == 0 {
            return bad(seq, libc::EINVAL);
        }
        // C pads the structure with four bytes, which a client may leave out.
        const FULL: usize = size_of::<TaskDiagPid>();
        const SHORT: usize = FULL - 4;
        if header.len.get() as usize != packet.len() || !matches!(body.len(), FULL | SHORT) {
            return bad(seq, libc::EINVAL);
        }
        let word = |at: usize| u64::from_ne_bytes(body[at..at + 8].try_into().expect("the range has eight bytes"));
        let pid = u32::from_ne_bytes(body[16..20].try_into().expect("the range has four bytes"));
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

    /// The groups of fields that it asks for.
    pub fn groups(&self) -> Groups {
        Groups((self.show >> show::GROUPS_SHIFT) as u32 & Groups::ALL.0)
    }
}
