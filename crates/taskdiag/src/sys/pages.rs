//! Fresh memory of a known number of pages.

use std::io;
use std::ptr;

use rustix::mm::{madvise, mmap_anonymous, munmap, Advice, MapFlags, ProtFlags};

/// Pages that are resident from the moment they are made, and belong to nobody else.
#[derive(Debug)]
pub struct FreshPages {
    start: *mut std::ffi::c_void,
    len: usize,
}

impl FreshPages {
    /// Maps `count` pages and touches each.
    pub fn new(count: usize) -> io::Result<FreshPages> {
        let len = count * rustix::param::page_size();
        // SAFETY: a new mapping, at an address of the kernel's choice; it touches no memory in use.
        let start = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::POPULATE,
            )?
        };
        Ok(FreshPages { start, len })
    }

    /// The same, each page with an entry of its own in the page table, also where the kernel likes huge ones.
    pub fn small(count: usize) -> io::Result<FreshPages> {
        let page = rustix::param::page_size();
        let len = count * page;
        // SAFETY: a new mapping, at an address of the kernel's choice; it touches no memory in use.
        let start = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        let pages = FreshPages { start, len };
        // SAFETY: advice about our own mapping. Kernels without huge pages refuse it, and need none.
        let _ = unsafe { madvise(start, len, Advice::LinuxNoHugepage) };
        for offset in (0..len).step_by(page) {
            // SAFETY: within the mapping, which is writable and nobody else's.
            unsafe { start.cast::<u8>().add(offset).write_volatile(1) };
        }
        Ok(pages)
    }
}

impl Drop for FreshPages {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of this length, which nobody borrows from.
        let result = unsafe { munmap(self.start, self.len) };
        debug_assert!(result.is_ok(), "munmap: {result:?}");
    }
}
