//! The directory of a recording: a recorder writes to it, and commands read it.

use std::ffi::CStr;
use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{
    flock, fstatvfs, openat, statat, unlinkat, AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, CWD,
};
use rustix::io::Errno;
use taskdiag_history::directory::{parse, LOCK};
use taskdiag_history::piece::{check_magic, MAGIC, NOT_OURS};
use taskdiag_history::store::{RecordingFile, Space, Store};

use crate::outcome::Failure;

/// A directory to which only this process records. It stays the same directory, even if its path is
/// given to another.
#[derive(Debug)]
pub struct Disk {
    directory: File,
    /// Holds the lock while it is open.
    _lock: File,
}

/// A file that is being written.
#[derive(Debug)]
pub struct Written {
    file: File,
    name: String,
}

/// Only the owner may see what processes did.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Opens only the name itself, not a link's target, and never waits for the other end of a FIFO.
const CAREFUL: OFlags = OFlags::CLOEXEC
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

impl Disk {
    /// Creates the directory if it does not exist, and locks it for this process.
    pub fn open(path: &Path) -> Result<Disk, Failure> {
        let unusable = |what: &str| Failure::Unanswered(format!("{}: {what}", path.display()));
        let wrong = |what: &str, error: io::Error| unusable(&format!("{what}: {error}"));
        match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(wrong("making it", error)),
            Err(_) => {}
            // A loss of power must not take the directory with all that is in it. Not every
            // directory that may be written may be opened.
            Ok(()) => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let parent = File::open(parent.unwrap_or(Path::new(".")));
                let _ = parent.and_then(|parent| parent.sync_all());
            }
        }
        let directory = match open_directory(path) {
            Ok(directory) => File::from(directory),
            Err(Errno::NOTDIR) => return Err(unusable("it is not a directory")),
            Err(errno) => return Err(wrong("opening it", errno.into())),
        };
        let metadata = directory.metadata().map_err(|error| wrong("looking at it", error))?;
        if metadata.mode() & 0o077 != 0 {
            return Err(unusable(&format!(
                "others may look into it (mode {1:04o}), and a recording says what all processes did: name a new \
                 directory, such as {0}/recording; for one with recordings alone, chmod 700 {0}",
                path.display(),
                metadata.mode() & 0o7777
            )));
        }
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(unusable(&format!(
                "it belongs to another user ({}), who may look into it and change it: record to a directory of your own",
                metadata.uid()
            )));
        }
        let flags = CAREFUL | OFlags::RDWR | OFlags::CREATE;
        let lock =
            openat(&directory, LOCK, flags, FILE_MODE).map_err(|errno| wrong("opening its lock", errno.into()))?;
        let mut lock = File::from(lock);
        match try_lock(&lock) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                let _ = (&mut lock).take(32).read_to_string(&mut holder);
                return Err(unusable(&format!(
                    "another recorder writes here (process {}): stop it, or record to another directory",
                    holder.trim()
                )));
            }
            Err(errno) => return Err(wrong("locking it", errno.into())),
        }
        // A recording of two versions could be read whole by neither, and removing its oldest files is
        // not up to this version.
        let files = list_in(&directory, FileType::is_file).map_err(|error| wrong("listing it", error))?;
        for name in files.iter().map(|file| &file.name).filter(|name| parse(name).is_some()) {
            let mut magic = [0; MAGIC.len()];
            let file = openat(&directory, name, CAREFUL | OFlags::RDONLY, Mode::empty());
            // One that can't be read, or ends before, hides nothing.
            let is_read = file.is_ok_and(|file| File::from(file).read_exact(&mut magic).is_ok());
            match check_magic(magic) {
                Err(damage) if is_read && damage != NOT_OURS => return Err(unusable(&format!("{name}: {damage}"))),
                _ => {}
            }
        }
        // The lock's content only informs users, so errors do not matter.
        let _ = lock.set_len(0);
        let _ = lock.write_at(format!("{}\n", std::process::id()).as_bytes(), 0);
        Ok(Disk { directory, _lock: lock })
    }

    /// Checks that a file was not removed. It could be written to, but nobody could read it.
    fn check_there(&self, name: &str) -> io::Result<()> {
        match statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(()),
            Err(Errno::NOENT) if self.directory.metadata()?.nlink() == 0 => Err(io::Error::other(
                "the directory was removed: start the recorder again, which makes it",
            )),
            Err(Errno::NOENT) => Err(io::Error::other(format!("{name} was removed"))),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Locks a file. Waits a moment: when a recorder is killed, processes that it forked end shortly
/// after it.
fn try_lock(file: &File) -> rustix::io::Result<()> {
    const PATIENCE: Duration = Duration::from_secs(1);
    let began = Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if began.elapsed() < PATIENCE => sleep(Duration::from_millis(10)),
            result => return result,
        }
    }
}

fn open_directory(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty())
}

impl Store for Disk {
    type File = Written;

    fn list(&self) -> io::Result<Vec<RecordingFile>> {
        list_in(&self.directory, FileType::is_file)
    }

    fn create(&mut self, name: &str) -> io::Result<Written> {
        let flags = CAREFUL | OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
        let file = openat(&self.directory, name, flags, FILE_MODE)?;
        if let Err(error) = self.directory.sync_all() {
            // The recorder does not know that it is there.
            let _ = self.remove(name);
            return Err(error);
        }
        Ok(Written {
            file: file.into(),
            name: name.to_owned(),
        })
    }

    fn append(&mut self, written: &mut Written, bytes: &[u8]) -> io::Result<()> {
        self.check_there(&written.name)?;
        written.file.write_all(bytes)
    }

    fn sync(&mut self, written: &mut Written) -> io::Result<()> {
        written.file.sync_data()
    }

    fn truncate(&mut self, written: &mut Written, bytes: u64) -> io::Result<()> {
        written.file.set_len(bytes)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.directory, name, AtFlags::empty())?)
    }

    fn space(&self) -> io::Result<Space> {
        let stat = fstatvfs(&self.directory)?;
        Ok(Space {
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
            available: stat.f_bavail.saturating_mul(stat.f_frsize),
        })
    }
}

/// What is in a directory, sorted by name, also what is no file and can't be read: who reads a recording
/// must learn that a part of it is missing.
pub fn list(path: &Path) -> io::Result<Vec<RecordingFile>> {
    list_in(open_directory(path)?, |_| true)
}

fn list_in(directory: impl AsFd, is_listed: fn(FileType) -> bool) -> io::Result<Vec<RecordingFile>> {
    let mut files = Vec::new();
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name: &CStr = entry.file_name();
        let (kind, bytes) = match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => (FileType::from_raw_mode(stat.st_mode), stat.st_size as u64),
            // It was removed meanwhile.
            Err(Errno::NOENT) => continue,
            Err(_) => (FileType::Unknown, 0),
        };
        if let (true, Ok(name)) = (is_listed(kind), name.to_str()) {
            let name = name.to_owned();
            files.push(RecordingFile { name, bytes });
        }
    }
    files.sort();
    Ok(files)
}

/// Recorders write no file as large as this.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// Reads a file of a recording. Of a file that is not one, reads only the beginning: it may be
/// anything. Fails if it is not a regular file, or larger than any that a recorder writes.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let is_irregular = || io::Error::other("it is not a regular file");
    let mut file = match openat(CWD, path, CAREFUL | OFlags::RDONLY, Mode::empty()) {
        Err(Errno::LOOP) => return Err(is_irregular()),
        opened => File::from(opened?),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(is_irregular());
    }
    if metadata.len() > MAX_FILE_BYTES {
        return Err(io::Error::other("it is larger than any that is written"));
    }
    let mut bytes = Vec::new();
    (&mut file).take(MAGIC.len() as u64).read_to_end(&mut bytes)?;
    if bytes == MAGIC {
        // It may grow meanwhile.
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::mknodat;
    use taskdiag_testkit::temporary::Directory;

    use super::*;

    fn make_fifo(path: &Path) {
        mknodat(CWD, path, FileType::Fifo, FILE_MODE, 0).expect("a FIFO");
    }

    /// Check that recording goes on in a directory that was moved, whatever takes its path.
    #[test]
    fn a_moved_directory_stays_the_same() {
        let place = Directory::new("disk-moved");
        let (path, moved) = (place.join("here"), place.join("there"));
        let mut disk = Disk::open(&path).expect("a directory");
        fs::rename(&path, &moved).expect("it is ours");
        symlink("/proc", &path).expect("it is ours");
        let mut file = disk.create("full-1.tdh").expect("a file");
        disk.append(&mut file, b"bytes").expect("room");
        assert_eq!(fs::read(moved.join("full-1.tdh")).expect("it is there"), b"bytes");
        let listed = disk.list().expect("a list");
        let names: Vec<&str> = listed.iter().map(|file| file.name.as_str()).collect();
        assert_eq!((names, listed[0].bytes), (vec!["full-1.tdh", LOCK], 5));
        disk.remove("full-1.tdh").expect("it is ours");
        assert!(!moved.join("full-1.tdh").exists());
    }

    /// Check that another user's directory is refused, and so is a lock that is a link or a FIFO.
    #[test]
    fn what_others_made_is_refused() {
        let place = Directory::new("disk-others");
        let refused = |path: &Path| match Disk::open(path) {
            Err(failure) => format!("{failure:?}"),
            Ok(_) => panic!("{} is recorded to", path.display()),
        };
        let path = place.join("lock-is-a-link");
        drop(Disk::open(&path).expect("a directory"));
        fs::remove_file(path.join(LOCK)).expect("it is ours");
        symlink(place.join("elsewhere"), path.join(LOCK)).expect("it is ours");
        assert!(refused(&path).contains("opening its lock"));
        assert!(!place.join("elsewhere").exists());
        let fifo = place.join("fifo");
        make_fifo(&fifo);
        assert!(refused(&fifo).contains("it is not a directory"));
        if rustix::process::geteuid().is_root() {
            let path = place.join("of-nobody");
            drop(Disk::open(&path).expect("a directory"));
            std::os::unix::fs::chown(&path, Some(65534), None).expect("as root");
            assert!(refused(&path).contains("another user (65534)"));
        }
    }

    /// Check that other kinds of files, and files that are far too large, do not block a reader.
    #[test]
    fn strange_files_are_not_read() {
        let place = Directory::new("disk-strange");
        let path = |name: &str| place.join(name);
        make_fifo(&path("fifo"));
        symlink("/proc/self/stat", path("link")).expect("it is ours");
        for name in ["fifo", "link", "."] {
            read(&path(name)).expect_err(name);
        }
        for (name, bytes) in [("long", 1 << 40), ("zeros", MAX_FILE_BYTES)] {
            let file = File::create(path(name)).expect("a file");
            file.set_len(bytes).expect("a hole");
        }
        assert!(read(&path("long")).is_err_and(|error| error.to_string().contains("larger")));
        assert_eq!(read(&path("zeros")).expect("it is a file"), [0; 8]);
        fs::write(path("real"), [&MAGIC[..], b"rest"].concat()).expect("room");
        assert_eq!(read(&path("real")).expect("it is a file").len(), 12);
    }
}
