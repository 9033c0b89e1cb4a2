//! The ring buffer that BPF programs write to and we read in place: `BPF_MAP_TYPE_RINGBUF`.
//!
//! Two counters run on for ever, each on a page of its own: how far the programs have reserved, and how far we have read.
//! Between the two lie records, each behind a header of eight bytes. The data are mapped twice, one copy behind the other, so
//! that a record that runs over the end goes on in the second copy.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::ptr;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::mm::{mmap, munmap, MapFlags as MmapFlags, ProtFlags};
use rustix::param::page_size;

use crate::bpf::{Map, MapFlags, MapKind, MapSpec};

/// Bytes before a record: its length with two flags, and where it lies.
const HEADER: u64 = 8;
/// The program is still writing it.
const BUSY: u32 = 1 << 31;
/// The program has thrown it away.
const DISCARDED: u32 = 1 << 30;

/// What a header says about what lies behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// A record of that length, and the place behind it.
    Record(usize, u64),
    /// A record that was given up, and the place behind it.
    Nothing(u64),
    /// A record that is not written yet.
    NotYet,
    /// Something that can't be.
    Broken,
}

/// The ring has something in it that can't be: it is not to be read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

/// What a header at `at` says, if the programs have reserved up to `end` in a ring of `size` bytes.
fn understand(header: u32, at: u64, end: u64, size: u64) -> Found {
    if header & BUSY != 0 {
        return Found::NotYet;
    }
    let len = u64::from(header & !DISCARDED);
    let next = at.checked_add(HEADER + len);
    let Some(next) = next.and_then(|next| next.checked_next_multiple_of(8)) else {
        return Found::Broken;
    };
    if next > end || next - at > size {
        return Found::Broken;
    }
    if header & DISCARDED != 0 {
        Found::Nothing(next)
    } else {
        Found::Record(len as usize, next)
    }
}

/// A ring buffer and its mapping.
#[derive(Debug)]
pub struct RingBuffer {
    map: Map,
    /// A page that we write: how far we have read.
    consumer: NonNull<AtomicU64>,
    /// A page that the kernel writes, how far the programs have reserved, and behind it the data, twice.
    producer: NonNull<AtomicU64>,
    size: u64,
    /// How far records have been handed out.
    taken: Cell<u64>,
    /// How far the programs had reserved at the last turn.
    end: u64,
}

// SAFETY: the mappings belong to this value alone and to no particular thread.
unsafe impl Send for RingBuffer {}

impl RingBuffer {
    /// Makes one with room for `size` bytes, a power of two and at least a page.
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
        let consumer = map_part(map.as_fd(), page, ProtFlags::READ | ProtFlags::WRITE, 0)?;
        let producer = match map_part(map.as_fd(), page + 2 * size as usize, ProtFlags::READ, page as u64) {
            Ok(producer) => producer,
            Err(error) => {
                unmap(consumer, page);
                return Err(error);
            }
        };
        Ok(RingBuffer {
            map,
            consumer,
            producer,
            size: size.into(),
            taken: Cell::new(0),
            end: 0,
        })
    }

    /// Its map, which polls as readable while there is something behind what we have read.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Gives the records that were handed out back to the programs, and finds out how far these have got meanwhile.
    pub fn turn(&mut self) {
        // SAFETY: both are pages of ours for as long as we live. The first only we write; the second the kernel changes, by
        // whole aligned words.
        let (consumer, producer) = unsafe { (self.consumer.as_ref(), self.producer.as_ref()) };
        consumer.store(self.taken.get(), Ordering::Release);
        self.end = producer.load(Ordering::Acquire);
    }

    /// The next record of those that were there at the last turn, if it has been written. It lasts until the next turn.
    pub fn next(&self) -> Option<Result<&[u8], Broken>> {
        let (mut at, end) = (self.taken.get(), self.end);
        while at < end {
            if at % HEADER != 0 || end - at > self.size {
                return Some(Err(Broken));
            }
            // SAFETY: `at` modulo the size, which is a power of two and a page at least, is a multiple of 8 within the first
            // copy of the data, so all of the header is.
            let header = unsafe {
                let data = self.producer.as_ptr().cast::<u8>().add(page_size());
                data.add((at % self.size) as usize)
            };
            // SAFETY: aligned and within the mapping, as said; the kernel changes it by whole aligned words.
            let word = unsafe { &*header.cast::<AtomicU32>() }.load(Ordering::Acquire);
            match understand(word, at, end, self.size) {
                Found::Record(len, next) => {
                    self.taken.set(next);
                    // SAFETY: header and record are no longer than the ring, so within the two copies, in the first of which
                    // they begin. The program is done with the record, and the kernel gives the memory to no other before
                    // turn(), which needs us alone and so comes after the slice's life.
                    return Some(Ok(unsafe { slice::from_raw_parts(header.add(HEADER as usize), len) }));
                }
                Found::Nothing(next) => {
                    self.taken.set(next);
                    at = next;
                }
                Found::NotYet => return None,
                Found::Broken => return Some(Err(Broken)),
            }
        }
        None
    }
}

impl Drop for RingBuffer {
    fn drop(&mut self) {
        unmap(self.consumer, page_size());
        unmap(self.producer, page_size() + 2 * self.size as usize);
    }
}

/// Maps a part of a map that begins with a counter.
fn map_part(fd: BorrowedFd<'_>, len: usize, access: ProtFlags, offset: u64) -> io::Result<NonNull<AtomicU64>> {
    // SAFETY: a new mapping, at an address of the kernel's choice; it touches no memory in use.
    let start = unsafe { mmap(ptr::null_mut(), len, access, MmapFlags::SHARED, fd, offset)? };
    NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

fn unmap(start: NonNull<AtomicU64>, len: usize) {
    // SAFETY: called once for each mapping, by its only owner, who lends nothing beyond its own life.
    let result = unsafe { munmap(start.as_ptr().cast(), len) };
    debug_assert!(result.is_ok(), "munmap: {result:?}");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZE: u64 = 4096;

    /// Check what each form of header means.
    #[test]
    fn headers_are_understood() {
        assert_eq!(understand(20, 0, 4096, SIZE), Found::Record(20, 32));
        assert_eq!(understand(24, 8192, 8224, SIZE), Found::Record(24, 8224));
        assert_eq!(understand(20 | DISCARDED, 0, 32, SIZE), Found::Nothing(32));
        assert_eq!(understand(20 | BUSY, 0, 32, SIZE), Found::NotYet);
        assert_eq!(
            understand(20, 0, 24, SIZE),
            Found::Broken,
            "runs past what was reserved"
        );
        assert_eq!(
            understand(4096, 0, 1 << 20, SIZE),
            Found::Broken,
            "longer than the ring"
        );
        assert_eq!(
            understand(!BUSY & !DISCARDED, u64::MAX - 7, u64::MAX, SIZE),
            Found::Broken
        );
    }

    proptest! {
        /// Check that any header leads forward, and to nothing outside of what was reserved or longer than the ring.
        #[test]
        fn any_header_stays_within_the_ring(header: u32, at in 0..u64::MAX / 16, reserved in 1..=SIZE / 8) {
            let (at, end) = (at * 8, at * 8 + reserved * 8);
            match understand(header, at, end, SIZE) {
                Found::Record(len, next) => {
                    prop_assert!(next > at && next <= end && at + HEADER + len as u64 <= next);
                }
                Found::Nothing(next) => prop_assert!(next > at && next <= end),
                Found::NotYet => prop_assert!(header & BUSY != 0),
                Found::Broken => {}
            }
        }
    }
}
