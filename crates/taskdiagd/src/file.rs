//! Dumps in memory that are handed over as a file.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;

use taskdiag::sys::bpf::SharedMemory;

/// A dump. Whoever has its file can read it and may not change it, until the dump is dropped: then the file has nothing in it, so
/// that a client that keeps it keeps no memory of ours. It stays as long as it was, so that a client can map it: that is why it
/// is not sealed against being written. To open it for writing takes its owner, which is us, or root.
///
/// The kernel takes longer to find, charge and give back memory than we take to fill it, so a dump can be written again. What its
/// file had in it before and what it will have is for the same clients.
#[derive(Debug)]
pub struct Dump {
    id: u64,
    writer: OwnedFd,
    reader: OwnedFd,
    /// By which it is written once it is sealed.
    memory: Option<SharedMemory>,
    len: usize,
    held: usize,
}

impl Dump {
    /// An empty file.
    pub fn new() -> Result<Dump, Errno> {
        let writer = rustix::fs::memfd_create("taskdiag", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        // Who gets it can't open it again for writing, through a link in /proc.
        rustix::fs::fchmod(&writer, Mode::RUSR)?;
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        let reader = rustix::fs::openat(rustix::fs::CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Ok(Dump {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            writer,
            reader,
            memory: None,
            len: 0,
            held: 0,
        })
    }

    /// Its number, which no other one has had.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// How long it is.
    pub fn len(&self) -> usize {
        self.len
    }

    /// How many bytes of memory it takes: as many as it ever had.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        match &mut self.memory {
            Some(memory) => memory.write_bytes(self.len, bytes).ok_or(Errno::NOSPC)?,
            None => self.write(bytes)?,
        }
        self.len += bytes.len();
        self.held = self.held.max(self.len);
        Ok(())
    }

    fn write(&self, bytes: &[u8]) -> Result<(), Errno> {
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

    /// From now on it keeps its length, which is `capacity` at least.
    pub fn seal(&mut self, capacity: usize) -> Result<(), Errno> {
        if self.memory.is_none() {
            let capacity = capacity.max(self.len);
            rustix::fs::ftruncate(&self.writer, capacity as u64)?;
            let memory = SharedMemory::map(self.writer.as_fd(), 0, capacity);
            self.memory = Some(memory.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?);
            rustix::fs::fcntl_add_seals(&self.writer, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        }
        Ok(())
    }

    /// Begins it anew.
    pub fn rewind(&mut self) {
        self.len = 0;
    }

    /// What is in it.
    #[cfg(test)]
    pub fn content(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        let len = rustix::io::pread(&self.reader, &mut bytes, 0).unwrap();
        assert_eq!(len, bytes.len());
        bytes
    }

    /// What is handed over.
    pub fn reader(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

impl Drop for Dump {
    fn drop(&mut self) {
        self.memory = None;
        let all = u64::MAX >> 1;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = rustix::fs::fallocate(&self.writer, flags, 0, all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a dump that was handed over can be written again by us, not beyond its end, and by nobody who has its file.
    #[test]
    fn dumps_are_written_again() {
        let mut dump = Dump::new().unwrap();
        dump.append(b"first").unwrap();
        dump.seal(10).unwrap();
        assert_eq!((dump.content(), dump.held()), (b"first".to_vec(), 5));
        dump.rewind();
        dump.append(b"second").unwrap();
        dump.append(b"4567").unwrap();
        assert_eq!(dump.append(b"8"), Err(Errno::NOSPC));
        dump.seal(20).unwrap();
        assert_eq!((dump.content(), dump.held()), (b"second4567".to_vec(), 10));
        assert_eq!(rustix::io::pwrite(dump.reader(), b"x", 0), Err(Errno::BADF));
        // By who may open any file for writing, it can't be made longer or shorter.
        let path = format!("/proc/self/fd/{}", dump.reader().as_raw_fd());
        if let Ok(writable) = rustix::fs::openat(rustix::fs::CWD, path, OFlags::RDWR, Mode::empty()) {
            for len in [4096, 0] {
                assert_eq!(rustix::fs::ftruncate(&writable, len), Err(Errno::PERM));
            }
        }
        let kept = dump.reader().try_clone_to_owned().unwrap();
        drop(dump);
        let stat = rustix::fs::fstat(&kept).unwrap();
        assert_eq!((stat.st_size, stat.st_blocks), (10, 0));
    }
}
