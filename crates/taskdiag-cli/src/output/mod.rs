//! Writes answers. The formats fill one buffer, which is written in large pieces.

pub mod cell;
mod closed;
#[cfg(feature = "arrow")]
pub mod columnar;
pub mod csv;
pub mod document;
pub mod format;
pub mod json;
pub mod listing;
pub mod names;
pub mod owned;
pub mod people;
pub mod relation;
pub mod rows;
pub mod table;
pub mod tasks;
pub mod terminal;
pub mod text;

use std::io;

use rustix::io::Errno;

/// How much to write at once: enough for the system calls not to matter, and little enough for the
/// processor's cache.
const WRITE_BYTES: usize = 256 << 10;

/// Fails if standard output was closed when the program started.
pub fn check_open() -> io::Result<()> {
    if closed::is_closed() {
        return Err(Errno::BADF.into());
    }
    Ok(())
}

/// Standard output.
#[derive(Debug, Default)]
pub struct Output {
    /// What is not written yet.
    pub buffer: Vec<u8>,
}

impl Output {
    /// Writes the buffer if it is large enough. Call it after each row.
    pub fn row_ended(&mut self) -> io::Result<()> {
        if self.buffer.len() >= WRITE_BYTES {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Writes the rest of the buffer.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()
    }

    /// Writes the buffer. This does not use `std::io::stdout`, which searches all of it for line
    /// ends. Fails, too, if standard output is closed and there is something to write.
    pub fn flush(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            check_open()?;
        }
        let stdout = rustix::stdio::stdout();
        let mut rest = self.buffer.as_slice();
        while !rest.is_empty() {
            match rustix::io::write(stdout, rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        self.buffer.clear();
        Ok(())
    }
}
