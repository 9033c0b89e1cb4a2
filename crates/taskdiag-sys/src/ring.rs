//! The ring buffer that BPF programs write to and this process reads in place:
//! `BPF_MAP_TYPE_RINGBUF`.
//!
//! Two positions, each on a page of its own, only ever increase: the producer position, up to which
//! the programs have reserved memory, and the consumer position, up to which this process has read.
//! Between them are records, each after a header of eight bytes. The data are mapped twice in a
//! row, so a record that continues past the end of the ring is contiguous in memory.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::{MapFlags as MmapFlags, ProtFlags};
use rustix::param::page_size;

use crate::bpf::{Map, MapFlags, MapKind, MapSpec};
use crate::mapping::OwnMapping;

/// The size of a record's header: its length with two flags, and a page offset for the kernel's
/// use.
const HEADER: u64 = 8;
/// The program is still writing the record.
const BUSY: u32 = 1 << 31;
/// The program has discarded the record.
const DISCARDED: u32 = 1 << 30;

/// The meaning of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// A record of this length, and the position after it.
    Record(usize, u64),
    /// A discarded record, and the position after it.
    Discarded(u64),
    /// A record that is not complete yet.
    NotYet,
    /// A header that no program writes.
    Broken,
}

/// The ring is corrupt, and must not be read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// Decodes the header at position `at` of a ring of `size` bytes, whose producer position is `end`.
fn decode(header: u32, at: u64, end: u64, size: u64) -> Meaning {
    if header & BUSY != 0 {
        return Meaning::NotYet;
    }
    let len = u64::from(header & !DISCARDED);
    let next = at.checked_add(HEADER + len);
    let Some(next) = next.and_then(|next| next.checked_next_multiple_of(8)) else {
        return Meaning::Broken;
    };
    if next > end || next - at > size {
        return Meaning::Broken;
    }
    if header & DISCARDED != 0 {
        Meaning::Discarded(next)
    } else {
        Meaning::Record(len as usize, next)
    }
}

/// A ring buffer and its mappings.
#[derive(Debug)]
pub struct RingBuffer {
    map: Map,
    /// The page of the consumer position, which this process writes.
    consumer: OwnMapping,
    /// The page of the producer position, which the kernel writes, followed by the data, twice.
    producer: OwnMapping,
    size: u64,
    /// The position after the last record that next() returned.
    taken: Cell<u64>,
    /// The producer position at the last turn().
    end: u64,
}

impl RingBuffer {
    /// Creates a ring of `size` bytes, a power of two and at least a page.
    pub fn create(name: &str, size: u32) -> io::Result<RingBuffer> {
        let map = Map::create(&MapSpec {
            kind: MapKind::RingBuffer,
            name,
            key_size: 0,
            value_size: 0,
            max_entries: size,
            flags: MapFlags::empty(),
        })?;
        let page = page_size();
        let share = |offset: usize, len, access| {
            OwnMapping::of_file(map.as_fd(), offset as u64, len, access, MmapFlags::SHARED)
        };
        let consumer = share(0, page, ProtFlags::READ | ProtFlags::WRITE)?;
        let producer = share(page, page + 2 * size as usize, ProtFlags::READ)?;
        Ok(RingBuffer {
            map,
            consumer,
            producer,
            size: size.into(),
            taken: Cell::new(0),
            end: 0,
        })
    }

    /// The descriptor of its map, which is readable while there are records after the consumer
    /// position.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Gives the memory of the records that were read back to the programs, and makes the records
    /// that they have written since available.
    pub fn turn(&mut self) {
        // SAFETY: both mappings live as long as `self` and start with a page-aligned position. Only
        // we write the first; the kernel writes the second as a whole.
        let (consumer, producer) = unsafe {
            (
                &*self.consumer.as_ptr().cast::<AtomicU64>(),
                &*self.producer.as_ptr().cast::<AtomicU64>(),
            )
        };
        consumer.store(self.taken.get(), Ordering::Release);
        self.end = producer.load(Ordering::Acquire);
    }

    /// The next record that was available at the last turn(), if it is complete.
    pub fn next(&self) -> Option<Result<&[u8], Broken>> {
        let (mut at, end) = (self.taken.get(), self.end);
        while at < end {
            if at % HEADER != 0 || end - at > self.size {
                return Some(Err(Broken));
            }
            // SAFETY: the size is a power of two and at least a page, and `at` is a multiple of 8.
            // So the header is within the first copy of the data.
            let header = unsafe { self.producer.as_ptr().add(page_size()).add((at % self.size) as usize) };
            // SAFETY: the header is within the mapping and aligned, and the kernel writes it as a
            // whole.
            let word = unsafe { &*header.cast::<AtomicU32>() }.load(Ordering::Acquire);
            match decode(word, at, end, self.size) {
                Meaning::Record(len, next) => {
                    self.taken.set(next);
                    // SAFETY: header and record are no longer than the ring and start in the first
                    // copy of the data, so they are within both copies. The program has finished
                    // the record, and the kernel does not reuse its memory before turn(), which
                    // can't be called while the slice lives.
                    return Some(Ok(unsafe { slice::from_raw_parts(header.add(HEADER as usize), len) }));
                }
                Meaning::Discarded(next) => {
                    self.taken.set(next);
                    at = next;
                }
                Meaning::NotYet => return None,
                Meaning::Broken => return Some(Err(Broken)),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZE: u64 = 4096;

    /// Check what each kind of header means.
    #[test]
    fn headers_are_decoded() {
        assert_eq!(decode(20, 0, 4096, SIZE), Meaning::Record(20, 32));
        assert_eq!(decode(24, 8192, 8224, SIZE), Meaning::Record(24, 8224));
        assert_eq!(decode(20 | DISCARDED, 0, 32, SIZE), Meaning::Discarded(32));
        assert_eq!(decode(20 | BUSY, 0, 32, SIZE), Meaning::NotYet);
        assert_eq!(decode(20, 0, 24, SIZE), Meaning::Broken, "after the producer position");
        assert_eq!(decode(4096, 0, 1 << 20, SIZE), Meaning::Broken, "longer than the ring");
        assert_eq!(
            decode(!BUSY & !DISCARDED, u64::MAX - 7, u64::MAX, SIZE),
            Meaning::Broken,
            "an overflow"
        );
    }

    proptest! {
        /// Check that any header leads forward, not past the producer position, and to no record
        /// longer than the ring.
        #[test]
        fn any_header_stays_within_the_ring(header: u32, at in 0..u64::MAX / 16, reserved in 1..=SIZE / 8) {
            let (at, end) = (at * 8, at * 8 + reserved * 8);
            match decode(header, at, end, SIZE) {
                Meaning::Record(len, next) => {
                    prop_assert!(next > at && next <= end && at + HEADER + len as u64 <= next);
                }
                Meaning::Discarded(next) => prop_assert!(next > at && next <= end),
                Meaning::NotYet => prop_assert!(header & BUSY != 0),
                Meaning::Broken => {}
            }
        }
    }
}
