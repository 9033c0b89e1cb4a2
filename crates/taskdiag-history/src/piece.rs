//! Pieces: the parts of a segment.

use std::cmp::Ordering;

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Damage, MAX_BYTES};

/// The first bytes of a segment. The last one is the version of the format.
pub const MAGIC: [u8; 8] = *b"tdhist\0\x03";

/// Why a segment is not one of this version: it is of another program or another version.
pub const NOT_OURS: Damage = Damage("it is not a file of a recording");
pub(crate) const EARLIER: Damage = Damage(
    "it was written by an earlier development version of taskdiag, and only that reads it: record to another directory",
);
pub(crate) const LATER: Damage =
    Damage("it was written by a later version of taskdiag, and only that reads it: record to another directory");

/// Checks the first bytes of a segment.
///
/// # Errors
///
/// If they are not [`MAGIC`].
pub fn check_magic(magic: [u8; 8]) -> Result<(), Damage> {
    let ([name @ .., version], [our_name @ .., our_version]) = (magic, MAGIC);
    if name != our_name {
        return Err(NOT_OURS);
    }
    match version.cmp(&our_version) {
        Ordering::Equal => Ok(()),
        Ordering::Less => Err(EARLIER),
        Ordering::Greater => Err(LATER),
    }
}

/// When a piece was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// By the wall clock: nanoseconds since 1970.
    pub wall_ns: i64,
    /// Nanoseconds since boot.
    pub boot_ns: u64,
}

/// The head of a piece.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    /// The length of the body, in bytes.
    len: U32,
    checksum: U32,
    /// When it was written: the members of [`Time`].
    wall_ns: I64,
    boot_ns: U64,
}

impl Head {
    /// The checksum of the other members and the body.
    fn checksum(&self, body: &[u8]) -> U32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(self.len.as_bytes());
        hasher.update(self.wall_ns.as_bytes());
        hasher.update(self.boot_ns.as_bytes());
        hasher.update(body);
        U32::new(hasher.finalize())
    }
}

/// Appends a piece.
///
/// # Panics
///
/// If the body has 4 GiB or more.
pub fn append(out: &mut Vec<u8>, time: Time, body: &[u8]) {
    let len = u32::try_from(body.len()).expect("a body is smaller than the largest sample");
    let mut head = Head {
        len: U32::new(len),
        checksum: U32::ZERO,
        wall_ns: I64::new(time.wall_ns),
        boot_ns: U64::new(time.boot_ns),
    };
    head.checksum = head.checksum(body);
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(body);
}

/// What some bytes begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// Nothing: the segment ends here.
    End,
    /// A piece: when it was written, its body, and the bytes after it.
    Piece(Time, &'a [u8], &'a [u8]),
    /// An incomplete piece: the machine or the recorder stopped while writing it.
    Torn,
}

/// Splits off the first piece.
///
/// # Errors
///
/// If the checksum is wrong, or the piece is too large.
pub fn split(bytes: &[u8]) -> Result<Next<'_>, Damage> {
    if bytes.is_empty() {
        return Ok(Next::End);
    }
    let Ok((head, rest)) = Head::ref_from_prefix(bytes) else {
        return Ok(Next::Torn);
    };
    let len = head.len.get() as usize;
    if len > MAX_BYTES {
        return Err(Damage("a piece is larger than any that is written"));
    }
    let Some((body, rest)) = rest.split_at_checked(len) else {
        return Ok(Next::Torn);
    };
    if head.checksum(body) != head.checksum {
        return Err(Damage("a checksum is wrong"));
    }
    let time = Time {
        wall_ns: head.wall_ns.get(),
        boot_ns: head.boot_ns.get(),
    };
    Ok(Next::Piece(time, body, rest))
}
