//! The record: the bytes that describe one task, in every source, message and snapshot.
//!
//! The BPF programs and the procfs source write records, the broker sends them, and the library
//! reads them in place. A record is a header followed by attributes; an attribute is a header
//! (length, type) followed by a payload. Everything is in host byte order and a multiple of eight
//! bytes long, so that payloads stay aligned. Readers skip attributes of unknown types.
//!
//! Decoding takes bytes and returns references into them. Any bytes are safe to decode: invalid
//! parts are left out. The structures have an alignment of 1, so a record may be at any address.

// zerocopy's derives make helper types that have no Debug.
#![allow(missing_debug_implementations)]

pub mod c;
mod define;
pub mod events;
pub mod files;
pub mod header;
mod layout;
pub mod mappings;
pub mod walk;

use zerocopy::native_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Defines structures without padding or alignment, which BPF programs write.
#[macro_export]
macro_rules! wire {
    ($($(#[$meta:meta])* $name:ident { $($(#[$member:meta])* $field:ident: $ty:ty),* $(,)? })*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        #[allow(missing_docs)]
        pub struct $name { $($(#[$member])* pub $field: $ty),* }

        impl $name {
            /// The members and their offsets, for the test that compares them with the C structure.
            pub const MEMBERS: &'static [(&'static str, usize)] =
                &[$((stringify!($field), std::mem::offset_of!($name, $field))),*];
        }
    )* };
}
pub use crate::wire;
pub use layout::*;

impl Mem {
    /// The sum of the resident parts. It saturates, because any broker may have written the parts.
    pub fn rss_bytes(&self) -> u64 {
        let parts = [self.rss_anon_bytes, self.rss_file_bytes, self.rss_shmem_bytes];
        parts.iter().fold(0, |sum, part| part.get().saturating_add(sum))
    }
}

impl Cpu {
    /// User and system time as the kernel reports them.
    ///
    /// This is `cputime_adjust()` of `kernel/sched/cputime.c`: the exact run time is divided into
    /// user and system time in the ratio of the ticks, and neither part may decrease.
    pub fn scaled_times(&self) -> (u64, u64) {
        let (prev_utime, prev_stime) = (self.prev_utime.get(), self.prev_stime.get());
        let runtime = self.sum_exec_runtime.get();
        if prev_utime.saturating_add(prev_stime) >= runtime {
            return (prev_utime, prev_stime);
        }
        let (utime, stime) = (self.utime_ns.get(), self.stime_ns.get());
        let scaled = match (utime, stime) {
            (_, 0) => 0,
            (0, _) => runtime,
            _ => (u128::from(stime) * u128::from(runtime) / (u128::from(stime) + u128::from(utime))) as u64,
        };
        let stime = scaled.min(runtime).max(prev_stime);
        let utime = runtime.saturating_sub(stime);
        if utime < prev_utime {
            return (prev_utime, runtime - prev_utime);
        }
        (utime, stime)
    }
}

/// One record: a header, followed by attributes.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    bytes: &'a [u8],
    header: &'a Header,
    attributes: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record at the start of `bytes`, and the bytes after it. `None` unless the record is
    /// complete.
    pub fn split_first(bytes: &'a [u8]) -> Option<(Record<'a>, &'a [u8])> {
        let (header, _) = Header::ref_from_prefix(bytes).ok()?;
        let len = header.len.get() as usize;
        if len < size_of::<Header>() || len % 8 != 0 || len > bytes.len() {
            return None;
        }
        let (record, rest) = bytes.split_at(len);
        let attributes = &record[size_of::<Header>()..];
        let found = Record {
            bytes: record,
            header,
            attributes,
        };
        Some((found, rest))
    }

    /// The records in `bytes`. Ends before the first incomplete record.
    pub fn each(bytes: &'a [u8]) -> impl Iterator<Item = Record<'a>> {
        let mut rest = bytes;
        std::iter::from_fn(move || {
            let (record, after) = Record::split_first(rest)?;
            rest = after;
            Some(record)
        })
    }

    /// The bytes of the whole record.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The header.
    pub fn header(&self) -> &'a Header {
        self.header
    }

    /// Whether any of `flags` is set.
    pub fn has(&self, flags: u32) -> bool {
        self.header.flags.get() & flags != 0
    }

    /// All attributes, in order.
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes { bytes: self.attributes }
    }

    /// The first attribute of this type.
    pub fn attribute(&self, kind: u16) -> Option<Attribute<'a>> {
        self.attributes().find(|attribute| attribute.kind == kind)
    }

    /// The payload of the first attribute of this type, as a `T`. A newer writer's payload may be
    /// longer.
    pub fn get<T: FromBytes + KnownLayout + Immutable + Unaligned>(&self, kind: u16) -> Option<&'a T> {
        Some(T::ref_from_prefix(self.attribute(kind)?.payload).ok()?.0)
    }
}

/// The payload of an attribute in the record at the start of `bytes`, for changes in place.
pub fn part_mut<T: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned>(
    bytes: &mut [u8],
    kind: u16,
) -> Option<&mut T> {
    let (record, _) = Record::split_first(bytes)?;
    let start = record.as_bytes().as_ptr() as usize;
    let payload = record.attribute(kind)?.payload;
    let at = payload.as_ptr() as usize - start;
    // A short payload has other parts behind it, or another record.
    let payload = at..at + payload.len();
    Some(T::mut_from_prefix(&mut bytes[payload]).ok()?.0)
}

/// One attribute.
#[derive(Clone, Copy, Debug)]
pub struct Attribute<'a> {
    /// The type, one of [`attr`].
    pub kind: u16,
    /// The flags, whose meaning depends on the type.
    pub flags: u16,
    /// The payload, without padding.
    pub payload: &'a [u8],
}

/// Iterates over attributes. Ends before the first incomplete one.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    fn next(&mut self) -> Option<Attribute<'a>> {
        let (header, rest) = AttrHeader::ref_from_prefix(self.bytes).ok()?;
        let len = header.len.get() as usize;
        let payload = rest.get(..len)?;
        self.bytes = rest.get(len.next_multiple_of(8)..).unwrap_or_default();
        Some(Attribute {
            kind: header.kind.get(),
            flags: header.flags.get(),
            payload,
        })
    }
}

/// Appends a record to a buffer.
#[derive(Debug)]
pub struct Writer<'a> {
    buffer: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Writer<'a> {
    /// Begins a record at the end of `buffer`.
    pub fn new(buffer: &'a mut Vec<u8>) -> Writer<'a> {
        let start = buffer.len();
        buffer.extend_from_slice(Header::default().as_bytes());
        Writer { buffer, start }
    }

    /// Appends an attribute.
    pub fn put(&mut self, kind: u16, flags: u16, payload: &[u8]) {
        let header = AttrHeader {
            len: U32::new(payload.len() as u32),
            kind: U16::new(kind),
            flags: U16::new(flags),
        };
        self.buffer.extend_from_slice(header.as_bytes());
        self.buffer.extend_from_slice(payload);
        let len = self.buffer.len() - self.start;
        self.buffer.resize(self.start + len.next_multiple_of(8), 0);
    }

    /// Writes the header, with the length filled in. This ends the record.
    pub fn finish(self, mut header: Header) {
        header.len = U32::new((self.buffer.len() - self.start) as u32);
        self.buffer[self.start..][..size_of::<Header>()].copy_from_slice(header.as_bytes());
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use zerocopy::native_endian::U64;

    use super::*;

    pub(crate) fn cpu(utime: u64, stime: u64, runtime: u64, prev_utime: u64, prev_stime: u64) -> Cpu {
        Cpu {
            utime_ns: U64::new(utime),
            stime_ns: U64::new(stime),
            sum_exec_runtime: U64::new(runtime),
            prev_utime: U64::new(prev_utime),
            prev_stime: U64::new(prev_stime),
            ..Cpu::default()
        }
    }

    /// Check the corner cases of `cputime_adjust()`.
    #[test]
    fn ticks_are_scaled_to_run_time() {
        assert_eq!(cpu(0, 0, 100, 0, 0).scaled_times(), (100, 0));
        assert_eq!(cpu(4, 0, 100, 0, 0).scaled_times(), (100, 0));
        assert_eq!(cpu(0, 4, 100, 0, 0).scaled_times(), (0, 100));
        assert_eq!(cpu(3, 1, 100, 0, 0).scaled_times(), (75, 25));
        assert_eq!(cpu(3, 1, 100, 0, 60).scaled_times(), (40, 60));
        assert_eq!(cpu(1, 3, 100, 60, 0).scaled_times(), (60, 40));
        assert_eq!(cpu(3, 1, 100, 60, 40).scaled_times(), (60, 40));
        assert_eq!(cpu(3, 1, 90, 60, 40).scaled_times(), (60, 40));
    }

    proptest! {
        /// Check that times never decrease, and add up to the run time.
        #[test]
        fn times_never_decrease(utime: u64, stime: u64, runtime: u64, prev_utime in 0..u64::MAX / 2, prev_stime in 0..u64::MAX / 2) {
            let (user, system) = cpu(utime, stime, runtime, prev_utime, prev_stime).scaled_times();
            prop_assert!(user >= prev_utime);
            prop_assert!(system >= prev_stime);
            prop_assert_eq!(user + system, runtime.max(prev_utime + prev_stime));
        }

        /// Check that any bytes can be decoded: invalid parts are left out, and decoding ends.
        #[test]
        fn any_bytes_decode(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            let mut rest = &bytes[..];
            while let Some((record, after)) = Record::split_first(rest) {
                prop_assert!(after.len() < rest.len());
                for attribute in record.attributes() {
                    prop_assert!(attribute.payload.len() <= bytes.len());
                }
                let _ = (record.get::<Cred>(attr::CRED), record.get::<Cpu>(attr::CPU));
                rest = after;
            }
        }

        /// Check that a record with a broken length decodes, though attributes may be missing.
        #[test]
        fn broken_lengths_decode(at in 0..200_usize, byte: u8) {
            let mut bytes = sample();
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Some((record, _)) = Record::split_first(&bytes) {
                let _ = record.attributes().count();
            }
        }

        /// Check that a record decodes to what was written, even with attributes of unknown types.
        #[test]
        fn written_records_are_read(payloads in proptest::collection::vec((any::<u16>(), proptest::collection::vec(any::<u8>(), 0..40)), 0..8)) {
            let mut bytes = vec![1, 2, 3];
            let mut writer = Writer::new(&mut bytes);
            for (kind, payload) in &payloads {
                writer.put(*kind, 7, payload);
            }
            writer.finish(Header { pid: U32::new(42), ..Header::default() });
            let (record, rest) = Record::split_first(&bytes[3..]).unwrap();
            prop_assert!(rest.is_empty());
            prop_assert_eq!(record.header().pid.get(), 42);
            let read: Vec<_> = record.attributes().map(|attribute| (attribute.kind, attribute.payload.to_vec())).collect();
            prop_assert_eq!(read, payloads);
        }
    }

    /// Check that a change in place stays in the payload, however short that is.
    #[test]
    fn short_payloads_are_not_changed() {
        let mut bytes = Vec::new();
        for payload in [&Cpu::default().as_bytes()[..8], Cpu::default().as_bytes()] {
            let mut writer = Writer::new(&mut bytes);
            writer.put(attr::CPU, 0, payload);
            writer.finish(Header::default());
        }
        let short = Record::split_first(&bytes).unwrap().0.as_bytes().len();
        assert!(part_mut::<Cpu>(&mut bytes, attr::CPU).is_none());
        assert!(part_mut::<Cpu>(&mut bytes[short..], attr::CPU).is_some());
    }

    fn sample() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.put(attr::BASE, 0, Base::default().as_bytes());
        writer.put(attr::ARGS, 0, b"sleep\x00100\x00");
        writer.put(attr::CRED, 0, Cred::default().as_bytes());
        writer.finish(Header::default());
        bytes
    }
}
