//! Fresh memory of a known number of pages.

use std::io;
use std::ptr;

use rustix::mm::{mmap_anonymous, munmap, MapFlags, ProtFlags};

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
}

impl Drop for FreshPages {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of this length, which nobody borrows from.
        let result = unsafe { munmap(self.start, self.len) };
        debug_assert!(result.is_ok(), "munmap: {result:?}");
    }
}
