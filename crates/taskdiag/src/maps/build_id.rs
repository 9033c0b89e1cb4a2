//! Build ids: as the kernel finds them in mapped files, or as the files contain them. Errands read
//! both ([`crate::errands`]), because the file system may not answer.
//!
//! A file counts as that of a mapping only if it has the mapping's inode number and, if it was
//! found by its path, also its device ([`Way`]). The key for remembered build ids is everything that changes
//! with a file's content: device, inode number, size and time of change. The build id of a file
//! that changed within the last seconds is not remembered: times of change are only as exact as the
//! kernel's clock ticks, so a second change could leave the same time.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CStr;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags, CWD};
use rustix::io::{retry_on_intr, Errno};
use taskdiag_core::absent::{Absent, Known};
use taskdiag_sys::isolated::{Failed, WorkFiles};
use taskdiag_sys::procmap::{self, QueryFlags, BUILD_ID_MAX};

use super::elf::{self, BuildId, ReadAt, Segment};
use super::{Device, Mapping, Mappings};
use crate::errands::{self, Errands, Look, Way};
use crate::readers;
use crate::source::procfs::Proc;

/// Whether every change of a file from now on is certain to show: the last one was some seconds ago.
fn is_settled(look: &Look) -> bool {
    const SECONDS: u64 = 3;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(look.changed.0).is_ok_and(|changed| changed.saturating_add(SECONDS) < now.as_secs())
}

/// The maximum number of remembered files. When it is reached, all are forgotten.
const MAX_FILES: usize = 4096;

/// Build ids that were read from files.
#[derive(Debug, Default)]
pub(super) struct BuildIds {
    /// By what differs between files, and changes with the content of a file.
    known: HashMap<Look, Known<Option<BuildId>>>,
}

impl BuildIds {
    /// Fills in the build ids of mapped files, each read once: as the kernel finds them, through
    /// the maps file of the process, or otherwise as the file contains them. `process` is its
    /// directory, if known.
    pub(super) fn fill(
        &mut self,
        process: Option<&Path>,
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
            errands.run_all(kernel_id, &about.collect::<Vec<_>>(), maps, |at, result| {
                ids[at] = match result.map_err(errands::absent) {
                    Ok(bytes) => Ok(parse_kernel_id(bytes, &found.get(firsts[at]))),
                    Err(Absent::NoAnswer) => Err(Absent::NoAnswer),
                    Err(_) => Ok(None),
                };
            });
        }
        for (id, &index) in ids.iter_mut().zip(&firsts) {
            if *id == Ok(None) {
                *id = self.read(&mut errands, process, &found.get(index));
            }
        }
        for index in 0..found.len() {
            let mapping = found.get(index);
            if mapping.is_file_backed() {
                found.set_build_id(index, ids[files[&(mapping.device, mapping.inode)]]);
            }
        }
    }

    /// The build id in a mapped file; `None` if it has none. `process` is the
    /// directory of the process, if known.
    pub(super) fn read(
        &mut self,
        errands: &mut Errands,
        process: Option<&Path>,
        mapping: &Mapping<'_>,
    ) -> Known<Option<BuildId>> {
        let look = find(errands, process, mapping)?;
        // Devices, and what the kernel itself maps, were not written by a linker.
        if !look.is_regular() {
            return Ok(None);
        }
        if let Some(&known) = self.known.get(&look) {
            return known;
        }
        let head = Head::read(errands).map_err(errands::absent)?;
        let found = elf::build_id(&head).map_err(absent)?;
        if is_settled(&look) {
            if self.known.len() >= MAX_FILES {
                self.known.clear();
            }
            self.known.insert(look, found);
        }
        found
    }
}

/// The build id of Go of a file.
pub(super) type GoBuildId = Known<Option<Vec<u8>>>;

/// Those of mapped files, each read once.
pub(super) fn go_build_ids(proc: &Proc, patience: Duration, found: &Mappings) -> HashMap<(Device, u64), GoBuildId> {
    let mut errands = Errands::new(patience);
    let mut ids: HashMap<(Device, u64), GoBuildId> = HashMap::new();
    for mapping in found.iter().filter(Mapping::is_file_backed) {
        let known = ids.entry((mapping.device, mapping.inode)).or_insert(Err(Absent::Gone));
        // Another process may lead to a file that this one does not.
        if known.is_err() {
            let process = mapping.pid.map(|pid| proc.join(pid.to_string()));
            *known = go_build_id(&mut errands, process.as_deref(), &mapping);
        }
    }
    ids
}

fn go_build_id(errands: &mut Errands, process: Option<&Path>, mapping: &Mapping<'_>) -> GoBuildId {
    match head(errands, process, mapping)? {
        Some(head) => elf::go_build_id(&head).map_err(absent)?,
        None => Ok(None),
    }
}

/// Why nothing is known of a file that could not be read. Only an errand that was silent has no number.
fn absent(error: io::Error) -> Absent {
    errands::absent(Errno::from_io_error(&error).map_or(Failed::Silent, Failed::Errno))
}

/// The build id in the result of [`kernel_id`], if it is about the file of a mapping.
fn parse_kernel_id(result: &[u8], mapping: &Mapping<'_>) -> Option<BuildId> {
    let expected = [mapping.device.to_raw(), mapping.inode].map(u64::to_ne_bytes).concat();
    result.strip_prefix(&expected[..]).and_then(BuildId::new)
}

/// The segments of a mapped ELF file; none if it is another kind of file.
pub(super) fn segments(errands: &mut Errands, process: Option<&Path>, mapping: &Mapping<'_>) -> Known<Vec<Segment>> {
    match head(errands, process, mapping)? {
        Some(head) => elf::loaded(&head).map_err(absent),
        None => Ok(Vec::new()),
    }
}

/// The beginning of the file of a mapping; `None` if it is no regular file.
fn head<'e>(errands: &'e mut Errands, process: Option<&Path>, mapping: &Mapping<'_>) -> Known<Option<Head<'e>>> {
    if !find(errands, process, mapping)?.is_regular() {
        return Ok(None);
    }
    Head::read(errands).map(Some).map_err(errands::absent)
}

/// An errand: writes device and inode number of the file that is mapped at an address, and its
/// build id.
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

/// Finds the file of a mapping, for later errands: through the process's link to it
/// (proc_pid_map_files(5)), which works for deleted files too but needs CAP_SYS_ADMIN or
/// CAP_CHECKPOINT_RESTORE, or by its path, from our root directory or from that of the process.
fn find(errands: &mut Errands, process: Option<&Path>, mapping: &Mapping<'_>) -> Known<Look> {
    let bytes = |path: PathBuf| path.into_os_string().into_vec();
    let link = format!("map_files/{:x}-{:x}", mapping.start, mapping.end);
    let link = process.map(|process| bytes(process.join(link)));
    let name = mapping.name.unwrap_or_default();
    let path = name.starts_with(b"/").then(|| name.to_vec());
    let inside = process.filter(|_| path.is_some());
    let inside = inside.map(|process| [&bytes(process.join("root")), name].concat());
    let mut reason = Absent::Gone;
    errands.about(Some(mapping.device.to_raw()));
    for (path, way) in [(link, Way::Link), (path, Way::OurRoot), (inside, Way::TheirRoot)] {
        let Some(path) = path else { continue };
        match errands.look(&path).map_err(errands::absent) {
            Ok(look) if is_same(&look, mapping, way) => return Ok(look),
            Err(reason @ (Absent::NoAnswer | Absent::NoThread)) => return Err(reason),
            Err(Absent::Denied) => reason = Absent::Denied,
            Ok(_) | Err(_) => {}
        }
    }
    Err(reason)
}

fn is_same(look: &Look, mapping: &Mapping<'_>, way: Way) -> bool {
    way.leads_to((mapping.device, mapping.inode), (look.device, look.inode))
}

/// Whether the path of a mapping leads to its file. The name of an existing file may end in "
/// (deleted)".
pub(super) fn path_leads_to(errands: &mut Errands, mapping: &Mapping<'_>) -> bool {
    errands.about(Some(mapping.device.to_raw()));
    let look = errands.look(mapping.name.unwrap_or_default());
    look.is_ok_and(|look| is_same(&look, mapping, Way::OurRoot))
}

/// The file that was found. Its beginning is read in one piece, because most files have all their
/// notes there.
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
            return self.bytes.as_slice().read_at(offset, buffer);
        }
        let read = self.errands.borrow_mut().read(offset, buffer);
        read.map_err(|failed| match failed {
            Failed::Silent => io::ErrorKind::TimedOut.into(),
            Failed::Errno(errno) => errno.into(),
        })
    }
}

/// Reads until the buffer is full, or to the end of the file.
fn read_whole(file: &OwnedFd, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        readers::beat();
        match retry_on_intr(|| rustix::io::pread(file.as_fd(), &mut buffer[len..], offset + len as u64))? {
            0 => break,
            more => len += more,
        }
    }
    Ok(len)
}

/// Fills in the build ids of the vdso, which is in the memory of processes and in no file.
pub(super) fn read_vdsos(proc: &Proc, patience: Duration, found: &mut Mappings) {
    let is_vdso = |mapping: &Mapping<'_>| mapping.name == Ok(super::VDSO) && !mapping.is_file_backed();
    let places: Vec<usize> = (0..found.len()).filter(|&at| is_vdso(&found.get(at))).collect();
    let about = places.iter().map(|&at| {
        let mapping = found.get(at);
        let pid = found.pid(at);
        // The process may be known only by a descriptor.
        let memory = (pid != 0).then(|| proc.join(format!("{pid}/mem")));
        (pid, (memory, mapping.start..mapping.end))
    });
    let ids = readers::each(proc, about.collect(), readers::MEMORY, patience, |(memory, range)| {
        vdso(memory.as_deref(), range.clone())
    });
    for (at, id) in places.into_iter().zip(ids) {
        found.set_build_id(at, id.unwrap_or_else(Err));
    }
}

/// The build id of the vdso of a process, whose memory contains it as a complete ELF file.
fn vdso(memory: Option<&Path>, range: Range<u64>) -> Known<Option<BuildId>> {
    let memory = memory.ok_or(Absent::Unsupported)?;
    /// Larger than the vdso of any kernel.
    const MAX_VDSO_BYTES: u64 = 64 << 10;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let image = rustix::fs::openat(CWD, memory, flags, Mode::empty())
        .map_err(io::Error::from)
        .and_then(|memory| {
            let mut image = vec![0; (range.end - range.start).min(MAX_VDSO_BYTES) as usize];
            // It can be read, or the process has other memory by now.
            let len = read_whole(&memory, range.start, &mut image).map_err(|_| Errno::SRCH)?;
            image.truncate(len);
            Ok(image)
        });
    elf::build_id(&image.map_err(absent)?.as_slice()).map_err(absent)?
}
