//! The few file operations that a recorder needs.

use std::io;

/// The space of a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// In total.
    pub total: u64,
    /// Available for writing.
    pub available: u64,
}

/// A file of a recording.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordingFile {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
}

/// A directory for a recording.
pub trait Store {
    /// A file that is open for writing.
    type File;

    /// Lists the files.
    fn list(&self) -> io::Result<Vec<RecordingFile>>;
    /// Creates a file, which must not exist. The file survives a power loss once the directory is
    /// synchronised.
    fn create(&mut self, name: &str) -> io::Result<Self::File>;
    /// Appends to a file. After an error, a part of the bytes may have been written.
    fn append(&mut self, file: &mut Self::File, bytes: &[u8]) -> io::Result<()>;
    /// Waits until the appended data survives a power loss.
    fn sync(&mut self, file: &mut Self::File) -> io::Result<()>;
    /// Truncates a file to this many bytes.
    fn truncate(&mut self, file: &mut Self::File, bytes: u64) -> io::Result<()>;
    /// Removes a file.
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// The space of the file system.
    fn space(&self) -> io::Result<Space>;
}
