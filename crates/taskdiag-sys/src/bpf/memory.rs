//! Memory shared with BPF programs or with other processes.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::slice;

use rustix::mm::{MapFlags, ProtFlags};
use zerocopy::{FromBytes, IntoBytes};

use crate::mapping::OwnMapping;

/// The memory of an array map, shared with the programs that use it, or of a file, shared with the
/// processes that map it.
///
/// A program may change it whenever it runs, so single values are read and written as volatile. It
/// is not `Sync`, because writes are not atomic. If a file gets shorter, using the memory after its
/// end kills this process (`SIGBUS`).
#[derive(Debug)]
pub struct SharedMemory {
    mapping: OwnMapping,
}

impl SharedMemory {
    /// Maps a part of a map or file for reading and writing. `offset` must be a multiple of the
    /// page size.
    pub fn map(fd: BorrowedFd<'_>, offset: usize, len: usize) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let mapping = OwnMapping::of_file(fd, offset as u64, len, access, MapFlags::SHARED)?;
        Ok(Self { mapping })
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Whether it has no bytes, which the kernel does not allow.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of its first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.mapping.as_ptr()
    }

    /// The address of a `T` at `offset`. `None` if it is not within the memory, or not aligned.
    fn address_of<T>(&self, offset: usize) -> Option<*mut T> {
        let end = offset.checked_add(size_of::<T>())?;
        if end > self.len() || offset % align_of::<T>() != 0 {
            return None;
        }
        Some(self.as_ptr().wrapping_add(offset).cast())
    }

    /// Reads the value at `offset`.
    pub fn read<T: FromBytes>(&self, offset: usize) -> Option<T> {
        let address = self.address_of(offset)?;
        // SAFETY: address_of() has checked that it is within the mapping, whose start is
        // page-aligned, and that it is aligned. Any bytes are a `T`.
        Some(unsafe { ptr::read_volatile(address) })
    }

    /// Writes a value at `offset`. `None` if it does not fit there.
    pub fn write<T: IntoBytes>(&mut self, offset: usize, value: T) -> Option<()> {
        let address = self.address_of(offset)?;
        // SAFETY: address_of() has checked that it is within the mapping and aligned. `T` has no
        // padding that would leak other bytes of ours.
        unsafe { ptr::write_volatile(address, value) };
        Some(())
    }

    /// Writes bytes at `offset`. `None`, and nothing is written, if they do not fit there.
    pub fn write_bytes(&mut self, offset: usize, bytes: &[u8]) -> Option<()> {
        if offset > self.len() || bytes.len() > self.len() - offset {
            return None;
        }
        // SAFETY: the bytes are within the mapping, and it is borrowed mutably, so no slice of it
        // exists.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.as_ptr().add(offset), bytes.len()) };
        Some(())
    }

    /// The bytes of `range`. `None` if they are not within the memory.
    ///
    /// # Safety
    ///
    /// No program may write to the range while the slice lives: either no program runs, or those
    /// that run write elsewhere.
    pub unsafe fn bytes(&self, range: Range<usize>) -> Option<&[u8]> {
        if range.start > range.end || range.end > self.len() {
            return None;
        }
        // SAFETY: the range is within the mapping, which lives as long as `self`. The caller
        // guarantees that nothing writes to it.
        Some(unsafe { slice::from_raw_parts(self.as_ptr().add(range.start), range.len()) })
    }
}
