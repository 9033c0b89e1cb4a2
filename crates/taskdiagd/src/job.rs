//! What the loop and its helpers tell each other: numbers of one size to them, packets back.

use zerocopy::native_endian::{I32, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The most that one job asks for.
pub const ITEMS: usize = 32;

/// What is to be read of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// `/proc/PID/maps`, as payloads of attributes.
    Maps = 1,
    /// The same of `smaps`.
    Smaps = 2,
    /// `/proc/PID/cmdline`.
    Cmdline = 3,
    /// `maps`, opened.
    OpenMaps = 4,
    /// `smaps`, opened.
    OpenSmaps = 5,
    /// What decides about a client that the kernel tells in files only: [`crate::facts::Particulars`].
    Client = 6,
}

impl Kind {
    /// That of a number.
    pub fn from_wire(number: u32) -> Option<Kind> {
        [
            Kind::Maps,
            Kind::Smaps,
            Kind::Cmdline,
            Kind::OpenMaps,
            Kind::OpenSmaps,
            Kind::Client,
        ]
        .into_iter()
        .find(|kind| *kind as u32 == number)
    }
}

/// One thing to read.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Item {
    /// A [`Kind`]; 0: nothing.
    pub kind: U32,
    /// A task, in the numbers of this namespace.
    pub tid: U32,
}

/// What a reader is asked for, in order.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Job {
    /// One behind the other, the rest is nothing.
    pub items: [Item; ITEMS],
}

impl Job {
    /// One with these, of which there are no more than [`ITEMS`].
    pub fn of(wanted: impl IntoIterator<Item = (Kind, u32)>) -> Job {
        let mut job = Job::default();
        for (item, (kind, tid)) in job.items.iter_mut().zip(wanted) {
            *item = Item {
                kind: U32::new(kind as u32),
                tid: U32::new(tid),
            };
        }
        job
    }
}

/// What a packet from a reader begins with.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct PacketHead {
    /// Which item of the job.
    pub index: U32,
    /// [`MORE`], [`LAST`], or a negative number of errno, which is the last as well.
    pub status: I32,
}

/// More of the same item follows.
pub const MORE: i32 = 1;
/// Nothing more of this item.
pub const LAST: i32 = 0;

/// The longest packet.
pub const PACKET: usize = size_of::<PacketHead>() + (60 << 10);

/// What the keeper is asked for, and what it says.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Word {
    /// One of [`word`].
    pub what: U32,
    /// A process.
    pub pid: U32,
}

/// What a [`Word`] is about.
#[allow(missing_docs)]
pub mod word {
    pub const START_READER: u32 = 1;
    pub const START_CLOSER: u32 = 2;
    pub const KILL: u32 = 3;
    /// With its socket; process 0: none could be started.
    pub const READER: u32 = 4;
    pub const CLOSER: u32 = 5;
    pub const ENDED: u32 = 6;
}
