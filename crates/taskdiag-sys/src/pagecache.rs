//! cachestat(2) and mincore(2).

use std::ffi::c_void;
use std::mem;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::ptr;

use rustix::io::Errno;
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};

/// cachestat's number. Calls that are younger than 5.0 have the same distance from each other on every architecture.
const SYS_CACHESTAT: libc::c_long = libc::SYS_pidfd_open + 17;

/// `struct cachestat_range`, in bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CachestatRange {
    /// Where it begins.
    pub off: u64,
    /// How long it is; 0 is to the end of the file.
    pub len: u64,
}

/// `struct cachestat`, in pages.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Cachestat {
    /// Pages that are cached.
    pub nr_cache: u64,
    /// Those of them that are dirty.
    pub nr_dirty: u64,
    /// Those of them that are being written back.
    pub nr_writeback: u64,
    /// Pages that were cached and have been evicted.
    pub nr_evicted: u64,
    /// Those of them whose eviction was so recent that reading them again would make them active.
    pub nr_recently_evicted: u64,
}

const _: () = assert!(mem::size_of::<CachestatRange>() == 16 && mem::size_of::<Cachestat>() == 40);

/// Calls cachestat(2).
pub fn cachestat(file: BorrowedFd<'_>, range: &CachestatRange) -> Result<Cachestat, Errno> {
    call_cachestat(file.as_raw_fd(), range)
}

/// What cachestat(2) says of a descriptor that is none: `EBADF` where it exists, since that is the first thing it looks at.
pub fn cachestat_of_nothing() -> Errno {
    let range = CachestatRange { off: 0, len: 0 };
    call_cachestat(-1, &range).err().unwrap_or(Errno::BADF)
}

fn call_cachestat(file: RawFd, range: &CachestatRange) -> Result<Cachestat, Errno> {
    let mut counts = Cachestat::default();
    // SAFETY: the kernel reads one range and writes one structure of counts, both laid out as its own.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file as libc::c_uint,
            ptr::from_ref(range),
            ptr::from_mut(&mut counts),
            0_u32,
        )
    };
    match result {
        0 => Ok(counts),
        _ => Err(last_errno()),
    }
}

/// A piece of a file mapped without the right to touch it: what mincore(2) asks about.
#[derive(Debug)]
pub struct Mapping {
    start: *mut c_void,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes from `offset`, a multiple of the size of a page. They may lie beyond the end of the file.
    pub fn new(file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Mapping, Errno> {
        // SAFETY: a new mapping, at an address of the kernel's choice; it touches no memory in use.
        let start = unsafe { mmap(ptr::null_mut(), len, ProtFlags::empty(), MapFlags::SHARED, file, offset)? };
        Ok(Mapping { start, len })
    }

    /// Calls mincore(2) for the pages from the `first` one on, as many as there is room for.
    pub fn mincore(&self, first: usize, resident: &mut [u8]) -> Result<(), Errno> {
        let page_size = rustix::param::page_size();
        assert!((first + resident.len()) * page_size <= self.len.next_multiple_of(page_size));
        // SAFETY: the pages are within our own mapping, and the kernel writes a byte for each of them.
        let result = unsafe {
            libc::mincore(
                self.start.byte_add(first * page_size),
                resident.len() * page_size,
                resident.as_mut_ptr(),
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(last_errno()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of this length, which nobody borrows from.
        let result = unsafe { munmap(self.start, self.len) };
        debug_assert!(result.is_ok(), "munmap: {result:?}");
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}
