//! Iterators: how passes start and read them.

use std::fs::File;
use std::os::fd::BorrowedFd;

use rustix::buffer::Buffer;
use rustix::io::Errno;
use taskdiag_core::error::{Error, Result};
use taskdiag_sys::bpf;

/// Starts an iterator over the tasks of a link.
pub(crate) fn start(link: BorrowedFd<'_>) -> Result<File> {
    bpf::iterate(link).map_err(|error| Error::io("starting a BPF iterator", error))
}

/// Reads once. `None` means that nothing was read but there may be more: the kernel returns EAGAIN
/// after a million tasks without a record.
pub(crate) fn read<B: Buffer<u8>>(pass: &File, buffer: B) -> Result<Option<B::Output>> {
    match rustix::io::read(pass, buffer) {
        Ok(read) => Ok(Some(read)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(Error::io("reading a BPF iterator", error)),
    }
}

/// Runs a program that the kernel calls at the end of its iterator and that writes nothing to it.
pub(crate) fn run_at_end(link: BorrowedFd<'_>) -> Result<()> {
    let pass = start(link)?;
    while read(&pass, &mut [0; 8][..])?.is_none() {}
    Ok(())
}
