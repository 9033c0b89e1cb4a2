//! Mappings of this process that are unmapped when they are dropped.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{mmap, mmap_anonymous, munmap, MapFlags, ProtFlags};

/// A mapping that belongs to this value alone.
#[derive(Debug)]
pub(crate) struct OwnMapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to no particular thread.
unsafe impl Send for OwnMapping {}

impl OwnMapping {
    /// Maps `len` bytes of a file or BPF map from `offset`, a multiple of the page size.
    pub(crate) fn of_file(
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        access: ProtFlags,
        flags: MapFlags,
    ) -> Result<OwnMapping, Errno> {
        // SAFETY: the kernel chooses the address of the new mapping, so it replaces no other
        // memory.
        let start = unsafe { mmap(ptr::null_mut(), len, access, flags, file, offset)? };
        OwnMapping::new(start, len)
    }

    /// Maps `len` bytes of private memory for reading and writing.
    pub(crate) fn anonymous(len: usize, flags: MapFlags) -> Result<OwnMapping, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address of the new mapping, so it replaces no other
        // memory.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), len, access, MapFlags::PRIVATE | flags)? };
        OwnMapping::new(start, len)
    }

    fn new(start: *mut c_void, len: usize) -> Result<OwnMapping, Errno> {
        // The kernel never chooses address 0.
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(OwnMapping { start, len })
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for OwnMapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, which has this length, and any borrow of it borrows
        // this value.
        let result = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(result.is_ok(), "munmap: {result:?}");
    }
}
