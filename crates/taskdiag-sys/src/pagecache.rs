//! cachestat(2), which Linux has since 6.5, and mincore(2).

use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::ptr;

use rustix::io::Errno;
use rustix::ioctl::{ioctl, opcode, Getter, Opcode};
use rustix::mm::{MapFlags, ProtFlags};

use crate::checked;
use crate::mapping::OwnMapping;

/// The number of cachestat(2), which libc does not have on all architectures. Since Linux 5.1, the
/// numbers of new system calls are the same distance apart on every architecture.
const SYS_CACHESTAT: libc::c_long = libc::SYS_pidfd_open + 17;

/// `struct cachestat_range`, in bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CachestatRange {
    /// The offset of its first byte.
    pub off: u64,
    /// The length; 0 extends to the end of the file.
    pub len: u64,
}

/// `struct cachestat`, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Cachestat {
    /// Cached pages.
    pub nr_cache: u64,
    /// Cached pages that are dirty.
    pub nr_dirty: u64,
    /// Cached pages that are being written back.
    pub nr_writeback: u64,
    /// Pages that were cached and have been evicted.
    pub nr_evicted: u64,
    /// Evicted pages whose eviction was so recent that reading them again would make them active.
    pub nr_recently_evicted: u64,
}

const _: () = assert!(size_of::<CachestatRange>() == 16 && size_of::<Cachestat>() == 40);

/// Calls cachestat(2) (Linux 6.5).
///
/// # Errors
///
/// - `ENOSYS`: the kernel lacks the call.
/// - `EOPNOTSUPP`: the file is on hugetlbfs.
/// - `EPERM`: the caller neither owns the file nor may write to it (Linux 6.14, and its
///   back-ports).
pub fn cachestat(file: BorrowedFd<'_>, range: &CachestatRange) -> Result<Cachestat, Errno> {
    call_cachestat(file.as_raw_fd(), range)
}

/// The error of cachestat(2) for an invalid descriptor. If the kernel has the call, this is
/// `EBADF`: it checks the descriptor first.
pub fn cachestat_of_nothing() -> Errno {
    let range = CachestatRange { off: 0, len: 0 };
    call_cachestat(-1, &range).err().unwrap_or(Errno::BADF)
}

fn call_cachestat(file: RawFd, range: &CachestatRange) -> Result<Cachestat, Errno> {
    let mut counts = Cachestat::default();
    // SAFETY: the kernel reads one range and writes one structure of counts, which have its layout.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file as libc::c_uint,
            ptr::from_ref(range),
            ptr::from_mut(&mut counts),
            0_u32,
        )
    };
    checked(result).map(|_| counts)
}

/// The size of an open block device in bytes: `BLKGETSIZE64` of ioctl_list(2). Seeking to its end
/// would move the caller's offset.
pub fn device_size(device: BorrowedFd<'_>) -> Result<u64, Errno> {
    const BLKGETSIZE64: Opcode = opcode::read::<usize>(0x12, 114);
    // SAFETY: the kernel writes 64 bits, whatever the size of `size_t` that is part of the number.
    // No other kind of file has an ioctl with this number.
    unsafe { ioctl(device, Getter::<BLKGETSIZE64, u64>::new()) }
}

/// A part of a file that is mapped only for mincore(2): its pages can't be accessed.
#[derive(Debug)]
pub struct Mapping(OwnMapping);

impl Mapping {
    /// Maps `len` bytes from `offset`, a multiple of the page size. They may extend past the end of
    /// the file.
    pub fn new(file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Mapping, Errno> {
        let mapping = OwnMapping::of_file(file, offset, len, ProtFlags::empty(), MapFlags::SHARED)?;
        Ok(Mapping(mapping))
    }

    /// Calls mincore(2) for as many pages as `resident` has bytes, starting at page `first`. Bit 0 of
    /// a byte is set if the page is in the page cache; if the caller neither owns the file nor may
    /// write to it, the kernel sets it for every page (Linux 5.2).
    ///
    /// # Panics
    ///
    /// If the mapping has fewer pages.
    pub fn mincore(&self, first: usize, resident: &mut [u8]) -> Result<(), Errno> {
        let page_size = rustix::param::page_size();
        assert!((first + resident.len()) * page_size <= self.0.len().next_multiple_of(page_size));
        // SAFETY: the pages are within the mapping, and the kernel writes one byte for each of
        // them.
        let result = unsafe {
            libc::mincore(
                self.0.as_ptr().add(first * page_size).cast(),
                resident.len() * page_size,
                resident.as_mut_ptr(),
            )
        };
        checked(result).map(drop)
    }
}
