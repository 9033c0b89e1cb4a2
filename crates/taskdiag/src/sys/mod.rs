//! Raw system calls: all of the unsafe code.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

pub mod bpf;
pub mod descriptors;
pub mod isolated;
pub mod pagecache;
pub mod pages;
pub mod procmap;
pub mod ring;
pub mod shared_file;
pub mod signals;

/// Reads from a place in a file, no more than `most` bytes, and appends them to `out`. Says how many there were.
pub fn append_from(file: BorrowedFd<'_>, out: &mut Vec<u8>, most: usize, offset: u64) -> Result<usize, Errno> {
    out.reserve(most);
    let (read, _) = rustix::io::pread(file, &mut out.spare_capacity_mut()[..most], offset)?;
    let read = read.len();
    // SAFETY: the kernel has just written so many bytes behind those that there were.
    unsafe { out.set_len(out.len() + read) };
    Ok(read)
}
