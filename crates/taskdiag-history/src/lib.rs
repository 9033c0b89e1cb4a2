//! Recordings: the processes of a machine over time, in files.
//!
//! This crate takes bytes and returns values. All file operations are behind the trait
//! [`Store`](store::Store), so that tests can truncate, tear and flip what is written.
//!
//! A recording is a directory of **segments**. A segment is a file: [`MAGIC`](piece::MAGIC), then
//! **pieces**, each with a length, a checksum and its time. The first piece describes the segment
//! ([`About`]); every other piece is a sample. The first sample of a segment is complete; each
//! later one has only changes ([`table`], [`figures`]). So damage costs at most the rest of its
//! segment, and reading one point in time reads one segment.
//!
//! A sample has new texts and then numbers (`coder`). All pieces form one zstd stream, flushed at
//! the end of each piece: a sample is complete as soon as it is written, and still uses the earlier
//! ones as compression context.
//!
//! Columns have names ([`tasks`]), so other versions with another record layout can read a
//! recording.

#![forbid(unsafe_code)]

pub mod about;
mod coder;
pub mod decode;
pub mod directory;
pub mod encode;
pub mod events;
pub mod figures;
pub mod piece;
pub mod recorder;
pub mod store;
pub mod table;
pub mod tasks;
mod texts;
mod varint;

use std::fmt;

pub use about::About;

/// Why bytes are not a valid recording. Recordings may come from anyone, so this is a normal
/// result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage(pub &'static str);

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl std::error::Error for Damage {}

/// The maximum size of a sample, in bytes before compression. A sample of 100,000 processes takes
/// less than a tenth of it.
pub const MAX_BYTES: usize = 256 << 20;

/// The maximum number of values in a sample: columns times processes. It allows fewer than 300,000
/// processes.
pub const MAX_VALUES: usize = 1 << 26;

/// The total length of the texts that a sample refers to, counted once per reference: a short
/// sample can refer to a long text very often.
#[derive(Debug, Default)]
pub(crate) struct Named(usize);

impl Named {
    /// Adds a reference to a text. Fails when the total is too large.
    pub(crate) fn add<'t>(&mut self, text: &'t [u8]) -> Result<&'t [u8], Damage> {
        self.0 = self.0.saturating_add(text.len());
        if self.0 > MAX_BYTES {
            return Err(Damage("the same texts are named more often than any recorder does"));
        }
        Ok(text)
    }
}
