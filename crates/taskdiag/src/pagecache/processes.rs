//! The regular files that a process has open or mapped, deleted ones and memory files too.
//!
//! They are opened again through the links below `/proc/PID/fd` and `/proc/PID/map_files`, which lead to the file itself
//! whatever became of its name. The second directory is for callers with `CAP_CHECKPOINT_RESTORE` or `CAP_SYS_ADMIN` only;
//! others get a mapped file by its path, if that still leads to the same file.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{fstat, major, minor, openat, readlinkat, statat, AtFlags, FileType, Mode, OFlags, RawDir, CWD};
use rustix::io::Errno;

use super::walk::{FileId, Seen};
use crate::absent::Absent;
use crate::error::{Error, ErrorKind};

/// A file that a process holds.
#[derive(Debug)]
pub struct Held<'a> {
    /// Its name as the kernel writes it: with " (deleted)" if it has none any more.
    pub path: &'a [u8],
    /// Its size, if it could be looked at.
    pub size_bytes: Result<u64, Absent>,
    /// It, opened for reading; or why it could not be.
    pub file: Result<OwnedFd, Absent>,
}

/// Calls `each` with the regular files that a process has open or mapped, those that were not seen before.
///
/// # Errors
///
/// When there is no such process, or the caller may not see what it holds.
pub fn held_files(pid: u32, seen: &mut Seen, each: &mut dyn FnMut(Held<'_>)) -> Result<(), Error> {
    let about = |errno: Errno| match errno {
        Errno::NOENT | Errno::SRCH => Error::new(ErrorKind::NoSuchTask, format!("pid {pid}: no such process")),
        Errno::ACCESS | Errno::PERM => {
            let message = format!("pid {pid}: you may not see the files it holds");
            Error::new(ErrorKind::Denied, message)
        }
        errno => Error::io(format!("pid {pid}: the files it holds"), errno),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let process = openat(CWD, format!("/proc/{pid}"), flags, Mode::empty()).map_err(about)?;
    let mut holder = Holder { process, seen, each };
    holder.open_files().map_err(about)?;
    holder.mapped_files().map_err(about)
}

/// The ids of all processes.
pub fn all() -> Result<Vec<u32>, Error> {
    let entries = fs::read_dir("/proc").map_err(|error| Error::io("can't read /proc (mount it)", error))?;
    Ok(entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect())
}

struct Holder<'a> {
    process: OwnedFd,
    seen: &'a mut Seen,
    each: &'a mut dyn FnMut(Held<'_>),
}

impl Holder<'_> {
    fn open_files(&mut self) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(&self.process, c"fd", flags, Mode::empty())?;
        let mut buffer = Vec::with_capacity(8 << 10);
        let mut entries = RawDir::new(directory.as_fd(), buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            if entry.file_type() == FileType::Symlink {
                let link = entry.file_name();
                let name =
                    readlinkat(&directory, link, Vec::new()).map_or_else(|_| Vec::new(), |name| name.into_bytes());
                self.through_link(&directory, OsStr::from_bytes(link.to_bytes()), &name);
            }
        }
        Ok(())
    }

    fn mapped_files(&mut self) -> Result<(), Errno> {
        let maps = openat(&self.process, c"maps", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let mut text = Vec::new();
        match maps.map(|maps| File::from(maps).read_to_end(&mut text)) {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            // A kernel thread, or a process that has just ended.
            Err(Errno::SRCH) => return Ok(()),
            Err(errno) => return Err(errno),
        }
        let links = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let links = openat(&self.process, c"map_files", links, Mode::empty());
        // Whether links can be followed is a matter of the caller's rights, the same for all of them.
        let mut followed = links.as_ref().ok();
        let mut before = HashSet::new();
        for mapped in text.split(|&byte| byte == b'\n').filter_map(mapped) {
            if !before.insert((mapped.device, mapped.inode, mapped.path)) {
                continue;
            }
            let name = unescaped(mapped.path);
            if let Some(directory) = followed {
                match statat(directory, mapped.link().as_str(), AtFlags::empty()) {
                    Err(Errno::PERM | Errno::ACCESS) => followed = None,
                    _ => {
                        self.through_link(directory, OsStr::new(&mapped.link()), &name);
                        continue;
                    }
                }
            }
            self.by_path(&mapped, &name);
        }
        Ok(())
    }

    /// A file behind a link of `/proc`. What vanishes meanwhile was not to be held any more.
    fn through_link(&mut self, directory: &OwnedFd, link: &OsStr, name: &[u8]) {
        // Following the link opens nothing yet: what is a FIFO or a device is left alone.
        let Ok(stat) = statat(directory, link, AtFlags::empty()) else {
            return;
        };
        self.file(
            stat.st_mode,
            (stat.st_dev, stat.st_ino),
            stat.st_size as u64,
            name,
            || openat(directory, link, READ, Mode::empty()),
        );
    }

    /// A mapped file under the path it was mapped by, if it is still the same.
    fn by_path(&mut self, mapped: &Mapped<'_>, name: &[u8]) {
        // In the process's own root directory, which need not be ours.
        let below_root = name.strip_prefix(b"/").unwrap_or(name);
        let path = Path::new("root").join(OsStr::from_bytes(below_root));
        match statat(&self.process, &path, AtFlags::empty()) {
            Ok(stat) if mapped.is(stat.st_dev, stat.st_ino) => {
                let process = self.process.as_fd().try_clone_to_owned();
                self.file(
                    stat.st_mode,
                    (stat.st_dev, stat.st_ino),
                    stat.st_size as u64,
                    name,
                    || {
                        let process = process.map_err(|_| Errno::MFILE)?;
                        let file = openat(&process, &path, READ, Mode::empty())?;
                        let opened = fstat(&file)?;
                        match mapped.is(opened.st_dev, opened.st_ino) {
                            true => Ok(file),
                            false => Err(Errno::NOENT),
                        }
                    },
                );
            }
            // Deleted, replaced, or out of reach: only its name is known.
            _ => (self.each)(Held {
                path: name,
                size_bytes: Err(Absent::Denied),
                file: Err(Absent::Denied),
            }),
        }
    }

    fn file(
        &mut self,
        mode: u32,
        id: FileId,
        size_bytes: u64,
        path: &[u8],
        open: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) {
        if FileType::from_raw_mode(mode) != FileType::RegularFile || !self.seen.add_file(id) {
            return;
        }
        let file = match open() {
            Ok(file) => Ok(file),
            Err(Errno::NOENT | Errno::SRCH) => return,
            Err(Errno::ACCESS | Errno::PERM) => Err(Absent::Denied),
            Err(_) => Err(Absent::Unsupported),
        };
        (self.each)(Held {
            path,
            size_bytes: Ok(size_bytes),
            file,
        });
    }
}

const READ: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// A line of `/proc/PID/maps` that is about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapped<'a> {
    start: u64,
    end: u64,
    /// Major and minor number.
    device: (u32, u32),
    inode: u64,
    /// As it stands there: a newline is `\012`.
    path: &'a [u8],
}

impl Mapped<'_> {
    /// Its name below `map_files`.
    fn link(&self) -> String {
        format!("{:x}-{:x}", self.start, self.end)
    }

    /// Whether it is the file of this device and inode. Some file systems (btrfs, overlay) have a device of their own for
    /// stat(2), which has no other in maps than the major number 0.
    fn is(&self, device: u64, inode: u64) -> bool {
        let same_device = self.device == (major(device), minor(device));
        inode == self.inode && (same_device || self.device.0 == 0 && major(device) == 0)
    }
}

/// What a line of maps says of a file; `None` for memory without one.
fn mapped(line: &[u8]) -> Option<Mapped<'_>> {
    let mut rest = line;
    let mut word = || {
        let start = rest.iter().position(|&byte| byte != b' ')?;
        let end = rest[start..]
            .iter()
            .position(|&byte| byte == b' ')
            .map_or(rest.len(), |len| start + len);
        let word = std::str::from_utf8(&rest[start..end]).ok();
        rest = &rest[end..];
        word
    };
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = word()?.split_once('-')?;
    let (_permissions, _offset) = (word()?, word()?);
    let (major, minor) = word()?.split_once(':')?;
    let inode: u64 = word()?.parse().ok()?;
    let path = rest.get(rest.iter().position(|&byte| byte != b' ')?..)?;
    let mapped = Mapped {
        start: hex(start)?,
        end: hex(end)?,
        device: (
            u32::from_str_radix(major, 16).ok()?,
            u32::from_str_radix(minor, 16).ok()?,
        ),
        inode,
        path,
    };
    (inode != 0).then_some(mapped)
}

/// A path as it is: maps writes a newline as `\012`, and nothing else differently.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut whole = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, others)) = rest.split_first() {
        match rest.strip_prefix(b"\\012") {
            Some(after) => {
                whole.push(b'\n');
                rest = after;
            }
            None => {
                whole.push(byte);
                rest = others;
            }
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Check lines about files, with strange names, and about other memory.
    #[test]
    fn lines_of_maps_are_understood() {
        let line = b"7f01a000-7f01b000 r--p 00001000 fe:00 1234                       /tmp/a b\\012 (deleted)";
        let found = mapped(line).expect("a file");
        let expected = Mapped {
            start: 0x7f01_a000,
            end: 0x7f01_b000,
            device: (0xfe, 0),
            inode: 1234,
            path: b"/tmp/a b\\012 (deleted)",
        };
        assert_eq!(found, expected);
        assert_eq!(found.link(), "7f01a000-7f01b000");
        assert_eq!(unescaped(found.path), b"/tmp/a b\n (deleted)");
        for line in [
            &b"7f01a000-7f01b000 rw-p 00000000 00:00 0 "[..],
            b"7f01a000-7f01b000 rw-p 00000000 00:00 0                          [stack]",
            b"",
        ] {
            assert_eq!(mapped(line), None);
        }
    }

    proptest! {
        /// Check that no line is too strange.
        #[test]
        fn any_line_is_read(line in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = mapped(&line);
        }

        /// Check that a path is what it was before newlines were escaped.
        #[test]
        fn newlines_come_back(parts in prop::collection::vec("[a-z\\\\01]{0,4}", 1..6)) {
            prop_assume!(parts.iter().all(|part| !part.contains("\\01")));
            prop_assert_eq!(unescaped(parts.join("\\012").as_bytes()), parts.join("\n").into_bytes());
        }
    }
}
