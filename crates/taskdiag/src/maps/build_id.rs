//! Build ids: as the kernel finds them in mapped files, or as they stand in the files. Both are read by errands ([`crate::errands`]),
//! since a file can be of a file system that does not answer.
//!
//! A file is taken for a mapping's only if its inode number is the mapping's, and, where it was found by its path, its device
//! too. What is remembered of a file is remembered under all that changes when its content does: device, inode number, size
//! and time of change. A file that was changed within the last seconds is not remembered at all, since times of change are only as
//! exact as the kernel's clock ticks: a second change could leave the same time.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags, CWD};
use rustix::io::Errno;
use taskdiag_core::absent::Absent;
use taskdiag_sys::isolated::{Failed, WorkFiles};
use taskdiag_sys::procmap::{self, QueryFlags, BUILD_ID_MAX};

use super::elf::{self, ReadAt};
use super::{Device, Known, Mapping, Mappings};
use crate::errands::{self, Errands, Look};
use crate::readers;

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
    size: u64,
    changed: (i64, u64),
}

impl Identity {
    fn new(look: &Look) -> Identity {
        Identity {
            device: look.device,
            inode: look.inode,
            size: look.size,
            changed: look.changed,
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
    /// Fills in the build ids of mapped files, each once: as the kernel finds them, by the maps file of the process, or else as they
    /// stand in the file. `pid` is the process, where it is known.
    pub(super) fn fill(
        &mut self,
        pid: Option<u32>,
        maps: Option<BorrowedFd<'_>>,
        patience: Duration,
        found: &mut Mappings,
    ) {
        let mut errands = Errands::new(patience);
        // The first mapping of each file.
        let mut files: HashMap<(Device, u64), usize> = HashMap::new();
        let mut firsts = Vec::new();
        for (index, mapping) in found.iter().enumerate().filter(|(_, mapping)| mapping.is_file_backed()) {
            files.entry((mapping.device, mapping.inode)).or_insert_with(|| {
                firsts.push(index);
                firsts.len() - 1
            });
        }
        let mut ids = vec![Ok(None); firsts.len()];
        if let Some(maps) = maps {
            let about = firsts.iter().map(|&index| {
                let mapping = found.get(index);
                (mapping.device.to_raw(), mapping.start)
            });
            errands.run_all(kernel_id, &about.collect::<Vec<_>>(), maps, |at, told| {
                ids[at] = match told.map_err(errands::absent) {
                    Ok(told) => Ok(kernels_id(told, &found.get(firsts[at]))),
                    Err(Absent::NoAnswer) => Err(Absent::NoAnswer),
                    Err(_) => Ok(None),
                };
            });
        }
        for (id, &index) in ids.iter_mut().zip(&firsts) {
            if *id == Ok(None) {
                *id = self.read(&mut errands, pid, &found.get(index));
            }
        }
        for index in 0..found.len() {
            let mapping = found.get(index);
            if mapping.is_file_backed() {
                found.set_build_id(index, ids[files[&(mapping.device, mapping.inode)]]);
            }
        }
    }

    /// The build id that stands in a mapped file, `None` if there is none. `pid` is the process, where it is known.
    pub(super) fn read(
        &mut self,
        errands: &mut Errands,
        pid: Option<u32>,
        mapping: &Mapping<'_>,
    ) -> Known<Option<BuildId>> {
        let look = find(errands, pid, mapping)?;
        // Devices, and the kernel's own objects that can be mapped: nothing that a linker wrote.
        if !look.is_regular() {
            return Ok(None);
        }
        let identity = Identity::new(&look);
        if let Some(&known) = self.known.get(&identity) {
            return Ok(known);
        }
        let head = Head::read(errands).map_err(errands::absent)?;
        let found = elf::build_id(&head).map_err(absent)?;
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
    match error.kind() {
        io::ErrorKind::PermissionDenied => Absent::Denied,
        io::ErrorKind::TimedOut => Absent::NoAnswer,
        _ => Absent::Gone,
    }
}

/// The build id among what [`kernel_id`] told, if it was told of the file of a mapping.
fn kernels_id(told: &[u8], mapping: &Mapping<'_>) -> Option<BuildId> {
    let expected = [mapping.device.to_raw(), mapping.inode].map(u64::to_ne_bytes).concat();
    told.strip_prefix(&expected[..]).and_then(BuildId::new)
}

/// Device and inode number of the file that is mapped at an address, and its build id.
fn kernel_id(files: &mut WorkFiles, [address, _, _]: [u64; 3], _: &CStr, room: &mut [u8]) -> Result<usize, Errno> {
    let maps = files.given.as_ref().ok_or(Errno::BADF)?;
    let mut id = [0; BUILD_ID_MAX];
    let vma = procmap::query(maps.as_fd(), address, QueryFlags::empty(), &mut [], &mut id)?;
    let device = rustix::fs::makedev(vma.dev_major, vma.dev_minor);
    room[..8].copy_from_slice(&device.to_ne_bytes());
    room[8..16].copy_from_slice(&vma.inode.to_ne_bytes());
    let id = &id[..vma.build_id_len];
    room[16..][..id.len()].copy_from_slice(id);
    Ok(16 + id.len())
}

/// Finds the file of a mapping, for errands to it: by the process's link to it, which leads to deleted files as well but
/// takes CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE, or by its path, as we see it or as the process does.
fn find(errands: &mut Errands, pid: Option<u32>, mapping: &Mapping<'_>) -> Known<Look> {
    let link = pid.map(|pid| format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end).into_bytes());
    let name = mapping.name.unwrap_or_default();
    let path = name.starts_with(b"/").then(|| name.to_vec());
    let inside = pid.filter(|_| path.is_some());
    let inside = inside.map(|pid| [format!("/proc/{pid}/root").as_bytes(), name].concat());
    let mut reason = Absent::Gone;
    errands.about(Some(mapping.device.to_raw()));
    for (path, is_link) in [(link, true), (path, false), (inside, false)] {
        let Some(path) = path else { continue };
        match errands.look(&path).map_err(errands::absent) {
            Ok(look) if is_same(&look, mapping, is_link) => return Ok(look),
            Err(Absent::NoAnswer) => return Err(Absent::NoAnswer),
            Err(Absent::Denied) => reason = Absent::Denied,
            Ok(_) | Err(_) => {}
        }
    }
    Err(reason)
}

/// Whether a file is the one that is mapped. Some file systems show another device in maps than for the file (btrfs, overlayfs),
/// so for what the kernel's own link leads to the inode number has to do.
fn is_same(look: &Look, mapping: &Mapping<'_>, is_link: bool) -> bool {
    look.inode == mapping.inode && (is_link || Device::from_raw(look.device) == mapping.device)
}

/// Whether the path of a mapping leads to its file. So a name that ends in " (deleted)" can be that of a file which is there.
pub(super) fn path_leads_to(errands: &mut Errands, mapping: &Mapping<'_>) -> bool {
    errands.about(Some(mapping.device.to_raw()));
    let look = errands.look(mapping.name.unwrap_or_default());
    look.is_ok_and(|look| is_same(&look, mapping, false))
}

/// The file that was found, whose beginning, where most have all that is asked for, is read in one piece.
struct Head<'a> {
    errands: RefCell<&'a mut Errands>,
    bytes: Vec<u8>,
}

impl Head<'_> {
    const LEN: usize = 4096;

    fn read(errands: &mut Errands) -> Result<Head<'_>, Failed> {
        let mut bytes = vec![0; Head::LEN];
        let len = errands.read(0, &mut bytes)?;
        bytes.truncate(len);
        Ok(Head {
            errands: RefCell::new(errands),
            bytes,
        })
    }
}

impl ReadAt for Head<'_> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let is_within = |end: u64| end <= self.bytes.len() as u64;
        let is_whole = self.bytes.len() < Head::LEN;
        if is_whole || offset.checked_add(buffer.len() as u64).is_some_and(is_within) {
            return self.bytes.read_at(offset, buffer);
        }
        let read = self.errands.borrow_mut().read(offset, buffer);
        read.map_err(|failed| match failed {
            Failed::Silent => io::ErrorKind::TimedOut.into(),
            Failed::Errno(errno) => errno.into(),
        })
    }
}

/// Reads until the buffer is full or the end.
fn read_whole(file: &OwnedFd, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        readers::beat();
        match rustix::io::pread(file.as_fd(), &mut buffer[len..], offset + len as u64) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(len)
}

/// Fills in the build ids of the kernel's library, which is in the memory of processes and in no file.
pub(super) fn read_vdsos(patience: Duration, found: &mut Mappings) {
    let is_vdso = |mapping: &Mapping<'_>| mapping.name == Ok(super::VDSO) && !mapping.is_file_backed();
    let places: Vec<usize> = (0..found.len()).filter(|&at| is_vdso(&found.get(at))).collect();
    let about = places.iter().map(|&at| {
        let mapping = found.get(at);
        (found.pid(at), (found.pid(at), mapping.start..mapping.end))
    });
    let ids = readers::each(about.collect(), readers::MEMORY, patience, |(pid, range)| {
        vdso(*pid, range.clone())
    });
    for (at, id) in places.into_iter().zip(ids) {
        found.set_build_id(at, id.unwrap_or(Err(Absent::NoAnswer)));
    }
}

/// The library in a process's memory is an ELF file there, byte for byte.
fn vdso(pid: u32, range: Range<u64>) -> Known<Option<BuildId>> {
    // Only a descriptor is known of the process.
    if pid == 0 {
        return Err(Absent::Unsupported);
    }
    /// More than any kernel's.
    const MOST: u64 = 64 << 10;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let image = rustix::fs::openat(CWD, format!("/proc/{pid}/mem"), flags, Mode::empty())
        .map_err(io::Error::from)
        .and_then(|memory| {
            let mut image = vec![0; (range.end - range.start).min(MOST) as usize];
            let len = read_whole(&memory, range.start, &mut image)?;
            image.truncate(len);
            Ok(image)
        });
    elf::build_id(&image.map_err(absent)?[..]).map_err(absent)
}
