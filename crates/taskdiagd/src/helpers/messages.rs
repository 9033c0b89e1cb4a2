//! The messages between the loop, the keeper and the helpers. Messages from the loop have a fixed
//! size and hold only numbers.

use zerocopy::native_endian::{I32, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

/// The most items of one job.
pub const MAX_ITEMS: usize = 32;

/// What a reader is to read of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes)]
#[repr(u32)]
pub enum Kind {
    /// `/proc/PID/maps`, as payloads of attributes.
    Maps = 1,
    /// `/proc/PID/smaps`, as payloads of attributes.
    Smaps = 2,
    /// `/proc/PID/cmdline`.
    Cmdline = 3,
    /// `/proc/PID/maps`, opened.
    OpenMaps = 4,
    /// `/proc/PID/smaps`, opened.
    OpenSmaps = 5,
    /// What only `/proc` says about a client: [`crate::credentials::RawProcFacts`].
    ProcFacts = 6,
}

/// One thing to read.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Item {
    /// A [`Kind`]; 0 for no item.
    pub kind: U32,
    /// A task, by its id in this pid namespace.
    pub tid: U32,
}

/// What a reader is to read, in order.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Job {
    /// The items. The first one of kind 0 ends them.
    pub items: [Item; MAX_ITEMS],
}

impl Job {
    /// A job with at most [`MAX_ITEMS`] items.
    pub fn new(items: impl IntoIterator<Item = (Kind, u32)>) -> Job {
        let mut job = Job::default();
        for (item, (kind, tid)) in job.items.iter_mut().zip(items) {
            *item = Item {
                kind: U32::new(kind as u32),
                tid: U32::new(tid),
            };
        }
        job
    }
}

/// The start of a packet from a reader. The payload follows.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct PacketHeader {
    /// The index of the item in the job.
    pub item: U32,
    /// [`MORE`], [`LAST`], or a negative errno, which also ends the item.
    pub status: I32,
}

/// More packets of the same item follow.
pub const MORE: i32 = 1;
/// The last packet of an item.
pub const LAST: i32 = 0;

/// The longest packet from a reader.
pub const MAX_PACKET: usize = size_of::<PacketHeader>() + (60 << 10);

/// Splits a packet from a reader into its header and its payload.
pub fn split_packet(packet: &[u8]) -> Option<(PacketHeader, &[u8])> {
    PacketHeader::read_from_prefix(packet).ok()
}

/// To a closer: close this connection, whose descriptor is attached.
pub const CONNECTION: u8 = 1;
/// To a closer: the loop has closed its descriptor of the connection. Close the last one.
pub const CLOSE: u8 = 2;
/// From a closer: the connection is closed.
pub const CLOSED: u8 = 3;

/// What a helper does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromBytes)]
#[repr(u32)]
pub enum Role {
    /// It reads and opens files of `/proc`.
    Reader = 1,
    /// It closes connections.
    Closer = 2,
}

/// A message to or from the keeper.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct KeeperMessage {
    /// [`KILL`], [`ENDED`], or a [`Role`]: to the keeper, to start such a helper; from the keeper,
    /// that it was started, with its socket, or could not be started if the pid is 0.
    pub kind: U32,
    /// The pid of a helper.
    pub pid: U32,
}

/// To the keeper: kill a helper.
pub const KILL: u32 = 3;
/// From the keeper: a helper has ended.
pub const ENDED: u32 = 4;
