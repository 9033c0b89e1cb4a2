//! Dumps in memory that are handed over as a file.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;

/// A dump. Whoever has its file can read it and nobody can change it, until the dump is dropped: then the file is empty, so that
/// a client that keeps it keeps no memory of ours. That is why it is not sealed against becoming shorter.
#[derive(Debug)]
pub struct Dump {
    writer: OwnedFd,
    reader: OwnedFd,
}

impl Dump {
    /// An empty file.
    pub fn new() -> Result<Dump, Errno> {
        let writer = rustix::fs::memfd_create("taskdiag", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        // Who gets it can't open it again for writing, through a link in /proc.
        rustix::fs::fchmod(&writer, Mode::RUSR)?;
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        let reader = rustix::fs::openat(rustix::fs::CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Dump { writer, reader })
    }

    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::io::write(&self.writer, rest) {
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Nothing is changed from now on.
    pub fn seal(&mut self) -> Result<(), Errno> {
        rustix::fs::fcntl_add_seals(&self.writer, SealFlags::WRITE | SealFlags::GROW)?;
        rustix::fs::fcntl_add_seals(&self.writer, SealFlags::SEAL)
    }

    /// What is handed over.
    pub fn reader(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

impl Drop for Dump {
    fn drop(&mut self) {
        let _ = rustix::fs::ftruncate(&self.writer, 0);
    }
}
