//! Build ids, and where they come from when the kernel gives none: the file itself.
//!
//! A file is taken for a mapping's only if its inode number is the mapping's, and, where it was found by its path, its device
//! too. What is remembered of a file is remembered under all that changes when its content does: device, inode number, size
//! and time of change. A file that was changed within the last seconds is not remembered at all, since times of change are only as
//! exact as the kernel's clock ticks: a second change could leave the same time.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Mode, OFlags, Stat, CWD};
use rustix::io::Errno;

use super::elf::{self, ReadAt};
use super::{Device, Known, Mapping};
use crate::absent::Absent;
use crate::sys::procmap::BUILD_ID_MAX;

/// What a linker wrote into a file to tell it from every other one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BuildId {
    len: u8,
    bytes: [u8; BUILD_ID_MAX],
}

impl BuildId {
    /// A build id of 1 to 20 bytes, as the kernel knows them; `None` of others.
    pub fn new(id: &[u8]) -> Option<BuildId> {
        if id.is_empty() || id.len() > BUILD_ID_MAX {
            return None;
        }
        let mut bytes = [0; BUILD_ID_MAX];
        bytes[..id.len()].copy_from_slice(id);
        Some(BuildId {
            len: id.len() as u8,
            bytes,
        })
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({self})")
    }
}

/// What a file is known by. Another file, or the same one with another content, has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Identity {
    device: u64,
    inode: u64,
    size: i64,
    changed: (i64, u64),
}

impl Identity {
    fn new(stat: &Stat) -> Identity {
        Identity {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Whether a change from now on is certain to show: none has happened within the last seconds.
    fn is_settled(&self) -> bool {
        const SECONDS: u64 = 3;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(self.changed.0).is_ok_and(|changed| changed.saturating_add(SECONDS) < now.as_secs())
    }
}

/// The most files that are remembered; then all are forgotten.
const MOST_FILES: usize = 4096;

/// Build ids read from files.
#[derive(Debug, Default)]
pub(super) struct BuildIds {
    known: HashMap<Identity, Option<BuildId>>,
}

impl BuildIds {
    /// The build id of what is mapped there, `None` if it has none. `pid` is the process, where it is known.
    pub(super) fn read(&mut self, pid: Option<u32>, mapping: &Mapping<'_>) -> Known<Option<BuildId>> {
        if !mapping.is_file_backed() {
            return match (mapping.name, pid) {
                (Ok(super::VDSO), Some(pid)) => vdso(pid, mapping),
                (Ok(super::VDSO), None) => Err(Absent::Unsupported),
                _ => Ok(None),
            };
        }
        let (file, stat) = open(pid, mapping)?;
        // Devices, and the kernel's own objects that can be mapped: nothing that a linker wrote.
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let identity = Identity::new(&stat);
        if let Some(&known) = self.known.get(&identity) {
            return Ok(known);
        }
        let found = Head::read(&file)
            .and_then(|head| elf::build_id(&head))
            .map_err(absent)?;
        if identity.is_settled() {
            if self.known.len() >= MOST_FILES {
                self.known.clear();
            }
            self.known.insert(identity, found);
        }
        Ok(found)
    }
}

fn absent(error: io::Error) -> Absent {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => Absent::Denied,
        _ => Absent::Gone,
    }
}

/// Opens the file of a mapping, without effect on it: by the process's link to it, which leads to deleted files as well but
/// takes CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE, or by its path, as we see it or as the process does.
fn open(pid: Option<u32>, mapping: &Mapping<'_>) -> Known<(OwnedFd, Stat)> {
    let mut reason = Absent::Gone;
    let mut try_path = |path: &[u8], is_link: bool| {
        let opened = open_path(path).and_then(|file| Ok((rustix::fs::fstat(&file)?, file)));
        match opened {
            Ok((stat, file)) if is_same(&stat, mapping, is_link) => Some((file, stat)),
            Ok(_) => None,
            Err(Errno::ACCESS | Errno::PERM) => {
                reason = Absent::Denied;
                None
            }
            Err(_) => None,
        }
    };
    if let Some(pid) = pid {
        let link = format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end);
        if let Some(found) = try_path(link.as_bytes(), true) {
            return Ok(found);
        }
    }
    let name = mapping.name.unwrap_or_default();
    if name.starts_with(b"/") {
        if let Some(found) = try_path(name, false) {
            return Ok(found);
        }
        if let Some(pid) = pid {
            let path = [format!("/proc/{pid}/root").as_bytes(), name].concat();
            if let Some(found) = try_path(&path, false) {
                return Ok(found);
            }
        }
    }
    Err(reason)
}

fn open_path(path: &[u8]) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// Whether a file is the one that is mapped. Some file systems show another device in maps than for the file (btrfs, overlayfs),
/// so for what the kernel's own link leads to the inode number has to do.
fn is_same(stat: &Stat, mapping: &Mapping<'_>, is_link: bool) -> bool {
    let device = Device::from_raw(stat.st_dev);
    stat.st_ino == mapping.inode && (is_link || device == mapping.device)
}

/// Whether the path of a mapping leads to its file. So a name that ends in " (deleted)" can be that of a file which is there.
pub(super) fn path_leads_to(mapping: &Mapping<'_>) -> bool {
    let stat = rustix::fs::stat(mapping.name.unwrap_or_default());
    stat.is_ok_and(|stat| is_same(&stat, mapping, false))
}

/// A file whose beginning, where most have all that is asked for, is read in one piece.
struct Head {
    file: OwnedFd,
    bytes: Vec<u8>,
}

impl Head {
    const LEN: usize = 4096;

    /// `path` is a descriptor that names a file without being open for reading.
    fn read(path: &OwnedFd) -> io::Result<Head> {
        let link = format!("/proc/self/fd/{}", path.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let file = rustix::fs::openat(CWD, link, flags, Mode::empty())?;
        let mut bytes = vec![0; Head::LEN];
        let len = read_whole(&file, 0, &mut bytes)?;
        bytes.truncate(len);
        Ok(Head { file, bytes })
    }
}

impl ReadAt for Head {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let is_within = |end: u64| end <= self.bytes.len() as u64;
        let is_whole = self.bytes.len() < Head::LEN;
        if is_whole || offset.checked_add(buffer.len() as u64).is_some_and(is_within) {
            return self.bytes.read_at(offset, buffer);
        }
        read_whole(&self.file, offset, buffer)
    }
}

/// Reads until the buffer is full or the end.
fn read_whole(file: &OwnedFd, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    // No file has bytes there.
    if offset > i64::MAX as u64 - buffer.len() as u64 {
        return Ok(0);
    }
    let mut len = 0;
    while len < buffer.len() {
        match rustix::io::pread(file.as_fd(), &mut buffer[len..], offset + len as u64) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(len)
}

/// The kernel's library in a process's memory is an ELF file there, byte for byte.
fn vdso(pid: u32, mapping: &Mapping<'_>) -> Known<Option<BuildId>> {
    /// More than any kernel's.
    const MOST: u64 = 64 << 10;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let image = rustix::fs::openat(CWD, format!("/proc/{pid}/mem"), flags, Mode::empty())
        .map_err(io::Error::from)
        .and_then(|memory| {
            let mut image = vec![0; (mapping.end - mapping.start).min(MOST) as usize];
            let len = read_whole(&memory, mapping.start, &mut image)?;
            image.truncate(len);
            Ok(image)
        });
    elf::build_id(&image.map_err(absent)?[..]).map_err(absent)
}
