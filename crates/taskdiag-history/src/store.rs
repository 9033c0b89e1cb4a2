//! Where a recording is: the few operations on files that a recorder needs.

use std::io;

/// The room on a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All.
    pub total: u64,
    /// What may still be written.
    pub available: u64,
}

/// A file of a recording.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
}

/// A directory that a recorder writes to.
pub trait Store {
    /// A file that is open for writing.
    type File;

    /// The files in it.
    fn list(&self) -> io::Result<Vec<Listed>>;
    /// Makes a file, which must not exist. It is there after a loss of power once the directory is
    /// synchronised.
    fn create(&mut self, name: &str) -> io::Result<Self::File>;
    /// Appends to a file, all or not all.
    fn append(&mut self, file: &mut Self::File, bytes: &[u8]) -> io::Result<()>;
    /// Waits until what was appended survives a loss of power.
    fn sync(&mut self, file: &mut Self::File) -> io::Result<()>;
    /// Cuts a file off behind so many bytes.
    fn truncate(&mut self, file: &mut Self::File, bytes: u64) -> io::Result<()>;
    /// Removes a file.
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// The room that is left.
    fn space(&self) -> io::Result<Space>;
}
