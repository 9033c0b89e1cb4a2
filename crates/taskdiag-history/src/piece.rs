//! Pieces: the parts of a segment.

use std::cmp::Ordering;

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

/// The length of a piece's head: length of the body (4 bytes), checksum (4), wall clock (8), time
/// since boot (8), all little-endian.
pub const HEAD: usize = 24;

/// When a piece was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// By the wall clock: nanoseconds since 1970.
    pub wall_ns: i64,
    /// Nanoseconds since boot.
    pub boot_ns: u64,
}

/// The head of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The length of the body, in bytes.
    pub len: usize,
    checksum: u32,
    /// When it was written.
    pub time: Time,
}

impl Head {
    /// Decodes a head. `None` if there are too few bytes.
    pub fn decode(bytes: &[u8]) -> Option<Head> {
        let (head, _) = bytes.split_first_chunk::<HEAD>()?;
        let (len, rest) = head.split_first_chunk::<4>()?;
        let (checksum, rest) = rest.split_first_chunk::<4>()?;
        let (wall, rest) = rest.split_first_chunk::<8>()?;
        let (boot, _) = rest.split_first_chunk::<8>()?;
        Some(Head {
            len: u32::from_le_bytes(*len) as usize,
            checksum: u32::from_le_bytes(*checksum),
            time: Time {
                wall_ns: i64::from_le_bytes(*wall),
                boot_ns: u64::from_le_bytes(*boot),
            },
        })
    }
}

/// Appends a piece.
///
/// # Panics
///
/// If the body has 4 GiB or more.
pub fn append(out: &mut Vec<u8>, time: Time, body: &[u8]) {
    let len = u32::try_from(body.len()).expect("a body is smaller than the largest sample");
    let mut timed = [0; 16];
    timed[..8].copy_from_slice(&time.wall_ns.to_le_bytes());
    timed[8..].copy_from_slice(&time.boot_ns.to_le_bytes());
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&checksum(len, &timed, body).to_le_bytes());
    out.extend_from_slice(&timed);
    out.extend_from_slice(body);
}

fn checksum(len: u32, timed: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&len.to_le_bytes());
    hasher.update(timed);
    hasher.update(body);
    hasher.finalize()
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
    let Some(head) = Head::decode(bytes) else {
        return Ok(Next::Torn);
    };
    if head.len > MAX_BYTES {
        return Err(Damage("a piece is larger than any that is written"));
    }
    let Some((body, rest)) = bytes[HEAD..].split_at_checked(head.len) else {
        return Ok(Next::Torn);
    };
    if checksum(head.len as u32, &bytes[8..HEAD], body) != head.checksum {
        return Err(Damage("a checksum is wrong"));
    }
    Ok(Next::Piece(head.time, body, rest))
}
