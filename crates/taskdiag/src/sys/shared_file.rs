//! Files that another process writes, mapped for reading.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::fs::{fcntl_get_seals, fstat, fstatfs, SealFlags};
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};

/// `TMPFS_MAGIC`: what memfd_create(2) makes files in, unless asked for huge pages.
const TMPFS: u64 = 0x0102_1994;

/// A mapped file, whose bytes may change at any time.
#[derive(Debug)]
pub struct SharedFile {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone and to no particular thread.
unsafe impl Send for SharedFile {}

impl SharedFile {
    /// Maps a whole file, if it is memory that is sealed against becoming shorter: else reading it could end the process.
    pub fn map(file: BorrowedFd<'_>) -> io::Result<SharedFile> {
        let is_safe = fstatfs(file)?.f_type as u64 == TMPFS && fcntl_get_seals(file)?.contains(SealFlags::SHRINK);
        if !is_safe {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let len = usize::try_from(fstat(file)?.st_size).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping, at an address of the kernel's choice; it touches no memory in use.
        let start = unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, 0)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(SharedFile { start, len })
    }

    /// Appends a copy of the bytes of `range` to `out`; `None` if it is not within.
    pub fn append_to(&self, range: Range<usize>, out: &mut Vec<u8>) -> Option<()> {
        if range.start > range.end || range.end > self.len {
            return None;
        }
        let count = range.len();
        out.reserve(count);
        // SAFETY: the source is within the mapping, which lives as long as `self`, and there is room for as much behind what `out` has.
        // Somebody may write there meanwhile: then any bytes are copied, which is what is looked at afterwards.
        unsafe {
            let from = self.start.as_ptr().add(range.start);
            ptr::copy_nonoverlapping(from, out.as_mut_ptr().add(out.len()), count);
            out.set_len(out.len() + count);
        }
        Some(())
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of this length, which nobody borrows from.
        let result = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(result.is_ok(), "munmap: {result:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use rustix::fs::{fcntl_add_seals, ftruncate, memfd_create, MemfdFlags};

    use super::*;

    /// Check that what is written is seen, within the file, and that only sealed memory is mapped.
    #[test]
    fn sealed_files_are_mapped() {
        let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 10_000).unwrap();
        assert!(SharedFile::map(file.as_fd()).is_err());
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        let mapped = SharedFile::map(file.as_fd()).unwrap();
        rustix::io::pwrite(&file, b"bytes", 9_995).unwrap();
        let mut out = b"some ".to_vec();
        assert_eq!(mapped.append_to(9_995..10_000, &mut out), Some(()));
        assert_eq!(out, b"some bytes");
        assert_eq!(mapped.append_to(9_995..10_001, &mut out), None);
        assert!(SharedFile::map(std::fs::File::open("/proc/self/maps").unwrap().as_fd()).is_err());
    }
}
