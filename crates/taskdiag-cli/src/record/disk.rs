//! The directory of a recording.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{flock, fstatvfs, FlockOperation};
use rustix::io::Errno;
use taskdiag_history::directory::LOCK;
use taskdiag_history::store::{Listed, Space, Store};

use crate::outcome::Failure;

/// A directory that this process alone records to.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
    directory: File,
    /// The lock is held as long as this is open.
    _lock: File,
}

/// Only the owner may look at what processes did.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

impl Disk {
    /// Makes the directory if there is none, and locks it.
    pub fn open(path: &Path) -> Result<Disk, Failure> {
        let wrong = |what: &str, error: io::Error| Failure::Unanswered(format!("{}: {what}: {error}", path.display()));
        match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(wrong("making it", error)),
            _ => {}
        }
        let directory = File::open(path).map_err(|error| wrong("opening it", error))?;
        let metadata = directory.metadata().map_err(|error| wrong("looking at it", error))?;
        if !metadata.is_dir() {
            return Err(Failure::Unanswered(format!("{}: it is no directory", path.display())));
        }
        if metadata.mode() & 0o077 != 0 {
            return Err(Failure::Unanswered(format!(
                "{0}: others may look into it (mode {1:04o}), and a recording says what all processes did: chmod 700 {0}",
                path.display(),
                metadata.mode() & 0o7777
            )));
        }
        let mut options = OpenOptions::new();
        let options = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE);
        let lock = options
            .open(path.join(LOCK))
            .map_err(|error| wrong("opening its lock", error))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let holder = fs::read_to_string(path.join(LOCK)).unwrap_or_default();
                return Err(Failure::Unanswered(format!(
                    "{}: another recorder writes here (process {}): stop it, or record to another directory",
                    path.display(),
                    holder.trim()
                )));
            }
            Err(errno) => return Err(wrong("locking it", errno.into())),
        }
        // Who it is helps people only.
        let _ = lock.set_len(0);
        let _ = lock.write_at(format!("{}\n", std::process::id()).as_bytes(), 0);
        Ok(Disk {
            path: path.to_owned(),
            directory,
            _lock: lock,
        })
    }
}

impl Store for Disk {
    type File = File;

    fn list(&self) -> io::Result<Vec<Listed>> {
        list(&self.path)
    }

    fn create(&mut self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let file = options
            .append(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(self.path.join(name))?;
        self.directory.sync_all()?;
        Ok(file)
    }

    fn append(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        file.write_all(bytes)
    }

    fn sync(&mut self, file: &mut File) -> io::Result<()> {
        file.sync_data()
    }

    fn truncate(&mut self, file: &mut File, bytes: u64) -> io::Result<()> {
        file.set_len(bytes)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn space(&self) -> io::Result<Space> {
        let stat = fstatvfs(&self.directory)?;
        Ok(Space {
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
            available: stat.f_bavail.saturating_mul(stat.f_frsize),
        })
    }
}

/// The files in a directory, in the order of their names.
pub fn list(path: &Path) -> io::Result<Vec<Listed>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        // One that was removed meanwhile is none.
        let Ok(metadata) = entry.metadata() else { continue };
        if let (true, Ok(name)) = (metadata.is_file(), entry.file_name().into_string()) {
            files.push(Listed {
                name,
                bytes: metadata.len(),
            });
        }
    }
    files.sort();
    Ok(files)
}
