//! Fresh memory of a known number of pages.

use std::io;
use std::ptr;

use rustix::mm::{madvise, mmap_anonymous, munmap, Advice, MapFlags, ProtFlags};
use rustix::param::page_size;

/// Pages that are resident from the moment they are made, and belong to nobody else.
#[derive(Debug)]
pub struct FreshPages {
    start: *mut std::ffi::c_void,
    len: usize,
}

impl FreshPages {
    /// Maps `count` pages and touches each.
    pub fn new(count: usize) -> io::Result<FreshPages> {
        FreshPages::map(count * page_size(), MapFlags::PRIVATE | MapFlags::POPULATE)
    }

    /// The same, each page with an entry of its own in the page table, also where the kernel likes huge ones.
    pub fn small(count: usize) -> io::Result<FreshPages> {
        let pages = FreshPages::map(count * page_size(), MapFlags::PRIVATE)?;
        let FreshPages { start, len } = pages;
        // SAFETY: advice about our own mapping. Kernels without huge pages refuse it, and need none.
        let _ = unsafe { madvise(start, len, Advice::LinuxNoHugepage) };
        for offset in (0..len).step_by(page_size()) {
            // SAFETY: within the mapping, which is writable and nobody else's.
            unsafe { start.cast::<u8>().add(offset).write_volatile(1) };
        }
        Ok(pages)
    }

    fn map(len: usize, flags: MapFlags) -> io::Result<FreshPages> {
        // SAFETY: a new mapping, at an address of the kernel's choice; it touches no memory in use.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        Ok(FreshPages { start, len })
    }
}

impl Drop for FreshPages {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of this length, which nobody borrows from.
        let result = unsafe { munmap(self.start, self.len) };
        debug_assert!(result.is_ok(), "munmap: {result:?}");
    }
}
