//! Fresh memory with a known number of pages.

use std::io;

use rustix::mm::{madvise, Advice, MapFlags};
use rustix::param::page_size;

use crate::mapping::OwnMapping;

/// Pages that are resident from the start.
#[derive(Debug)]
pub struct FreshPages {
    _mapping: OwnMapping,
}

impl FreshPages {
    /// Maps `count` pages and populates them.
    pub fn new(count: usize) -> io::Result<FreshPages> {
        let mapping = OwnMapping::anonymous(count * page_size(), MapFlags::POPULATE)?;
        Ok(FreshPages { _mapping: mapping })
    }

    /// Maps `count` pages and writes to each. Each has its own page-table entry: the kernel may not
    /// use huge pages.
    pub fn small(count: usize) -> io::Result<FreshPages> {
        let mapping = OwnMapping::anonymous(count * page_size(), MapFlags::empty())?;
        // SAFETY: the advice is about a mapping of ours. Kernels without huge pages refuse it and
        // do not need it.
        let _ = unsafe { madvise(mapping.as_ptr().cast(), mapping.len(), Advice::LinuxNoHugepage) };
        for offset in (0..mapping.len()).step_by(page_size()) {
            // SAFETY: the byte is within the mapping, which is writable and which nothing else
            // uses.
            unsafe { mapping.as_ptr().add(offset).write_volatile(1) };
        }
        Ok(FreshPages { _mapping: mapping })
    }
}
