//! Recordings: what a machine's processes were, over time, in files.
//!
//! Everything here takes bytes and returns values. What touches files is behind the trait
//! [`Store`](store::Store), so that tests can cut, tear and flip what is written.
//!
//! A recording is a directory of **segments**. A segment is a file: [`MAGIC`](piece::MAGIC), then
//! **pieces**, each with a length, a checksum and its time. The first piece says what the segment is
//! about ([`About`]), every other piece is a sample. The bodies of all pieces are one zstd stream that
//! is flushed at the end of each, so that a sample is whole once it is written, and yet is
//! compressed with what was before it. The first sample of a segment has everything, each later one
//! what has changed ([`table`], [`figures`]). So what is damaged costs at most the rest of its
//! segment, and reading one moment reads one segment.
//!
//! Columns have names ([`tasks`]): a recording can be read by later versions, whose records are laid
//! out in another way.

#![forbid(unsafe_code)]

pub mod about;
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

/// Why bytes are not those of a recording. Recordings come from anyone: this is an ordinary answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage(pub &'static str);

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl std::error::Error for Damage {}

/// The largest sample, in bytes before compression. A sample of 100,000 processes has less than a
/// tenth of it.
pub const MOST_BYTES: usize = 256 << 20;

/// The largest number of values that the processes of a sample have, and so of columns times processes.
/// With it, 300,000 processes are too many.
pub const MOST_VALUES: usize = 1 << 26;

/// The bytes that texts take which are named in a sample, each time that they are named: a short sample
/// can name a long text very often.
#[derive(Debug, Default)]
pub(crate) struct Named(usize);

impl Named {
    /// Adds a text, unless there are too many.
    pub(crate) fn add<'t>(&mut self, text: &'t [u8]) -> Result<&'t [u8], Damage> {
        self.0 = self.0.saturating_add(text.len());
        if self.0 > MOST_BYTES {
            return Err(Damage("the same texts are named more often than any recorder does"));
        }
        Ok(text)
    }
}
