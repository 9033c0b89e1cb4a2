//! Internal to taskdiag, without any promise to other programs: use the crate `taskdiag`.
//!
//! The crate holds the unsafe code of taskdiag: system calls that rustix does not have, shared
//! memory, and work in other processes. It also reads a few facts about the host.

pub mod bpf;
pub mod descriptors;
pub mod host;
pub mod isolated;
pub mod lock;
pub mod lookup;
mod mapping;
pub mod owner;
pub mod pagecache;
pub mod pages;
pub mod priority;
pub mod procmap;
pub mod ring;
pub mod signals;

/// The result of a system call that libc makes, which is negative if there is an error.
fn checked(result: impl Into<libc::c_long>) -> Result<libc::c_long, rustix::io::Errno> {
    match result.into() {
        ..0 => {
            Err(rustix::io::Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(rustix::io::Errno::INVAL))
        }
        result => Ok(result),
    }
}
