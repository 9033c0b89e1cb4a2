//! Which files of `/proc` this kernel has, and where its cgroups are mounted.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{AtFlags, Mode, OFlags, CWD};
use rustix::io::{retry_on_intr, Errno};
use taskdiag_core::absent::Absent;
use taskdiag_core::error::Error;
use taskdiag_core::field::Files;
use taskdiag_core::text::process::{self, NamespaceLink};
use taskdiag_sys::host::{own_proc, proc_file};

use super::encode::Plan;
use super::place::{Base, Place};
use super::task_failure::reason;

const CGROUP_MAGIC: u64 = 0x0027_e0eb;
const CGROUP2_MAGIC: u64 = 0x6367_7270;

/// The most bytes of the list of mounts to read at a time.
const MOUNTS_BYTES: usize = 64 << 10;

/// Files that this kernel does not have. Their absence says nothing about a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing {
    pub(super) files: Files,
    pub(super) namespaces: u16,
    /// The files and namespaces that were probed.
    probed: (Files, u16),
}

impl Default for Missing {
    fn default() -> Missing {
        Missing {
            files: Files::NONE,
            namespaces: 0,
            probed: (Files::NONE, 0),
        }
    }
}

impl Missing {
    /// Probes the calling thread's own files. It may read them, and they exist if the kernel has
    /// them at all.
    pub(super) fn probe(&mut self, proc: BorrowedFd<'_>, plan: &Plan) {
        let own = Place {
            directory: proc,
            base: Base::Own,
            pid: 0,
            tid: 0,
        };
        for file in [
            Files::SCHEDSTAT,
            Files::CGROUP,
            Files::IO,
            Files::LOGINUID,
            Files::SESSIONID,
            Files::WCHAN,
            Files::SECURITY_LABEL,
        ] {
            if !plan.reads(file) || self.probed.0.intersects(file) {
                continue;
            }
            self.probed.0 |= file;
            let mut text = [0; 64];
            let read = own
                .open(file.name())
                .and_then(|opened| rustix::io::read(opened, &mut text[..]));
            // A kernel that does not keep these times prints three zeros. A running thread has used
            // some time.
            let idle = |len| file == Files::SCHEDSTAT && process::schedstat(&text[..len]) == Some([0; 3]);
            if read == Err(Errno::NOENT) || read.is_ok_and(idle) {
                self.files |= file;
            }
        }
        for (which, name) in NamespaceLink::NAMES.iter().enumerate() {
            let bit = 1 << which;
            if plan.namespaces & bit == 0 || self.probed.1 & bit != 0 {
                continue;
            }
            self.probed.1 |= bit;
            if own.namespace(name) == Err(Errno::NOENT) {
                self.namespaces |= bit;
            }
        }
    }
}

/// Where a cgroup hierarchy is mounted. It is kept for one pass only: an open directory would prevent
/// unmounting.
#[derive(Debug)]
pub(super) struct Mount {
    directory: OwnedFd,
    device: u64,
}

impl Mount {
    /// The unified hierarchy, or the one of version 1 with a controller.
    pub(super) fn find(proc: BorrowedFd<'_>, controller: Option<&str>) -> Result<Option<Mount>, Error> {
        let failed = |errno| Error::io("can't read thread-self/mountinfo in the procfs", errno);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let path = c"thread-self/mountinfo";
        let file = rustix::fs::openat(proc, path, flags, Mode::empty()).map_err(failed)?;
        let mut text = vec![0; MOUNTS_BYTES];
        let mut len = 0;
        // Unlike a task's files, this file arrives in pieces.
        loop {
            match retry_on_intr(|| rustix::io::read(&file, &mut text[len..])).map_err(failed)? {
                0 => break,
                read => len += read,
            }
            if len == text.len() {
                text.resize(len * 2, 0);
            }
        }
        // A mount that is covered by another file system does not lead to cgroups.
        let mount = process::cgroup_mounts(&text[..len], controller).find_map(|place| {
            let place: Vec<u8> = process::unescape(place).collect();
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let place = OsStr::from_bytes(&place);
            let directory = rustix::fs::openat(CWD, place, flags, Mode::empty()).ok()?;
            let kind = rustix::fs::fstatfs(&directory).ok()?;
            let device = rustix::fs::fstat(&directory).ok()?.st_dev;
            let magic = controller.map_or(CGROUP2_MAGIC, |_| CGROUP_MAGIC);
            (kind.f_type as u64 == magic).then_some(Mount { directory, device })
        });
        Ok(mount)
    }

    /// The path of a cgroup below the mount.
    fn below(path: &[u8]) -> Result<&[u8], Absent> {
        // Outside the reader's cgroup namespace, and therefore outside the mount.
        if path == b"/.." || path.starts_with(b"/../") {
            return Err(Absent::Unsupported);
        }
        // The cgroup of a zombie may have been removed.
        if path.ends_with(b" (deleted)") {
            return Err(Absent::Gone);
        }
        path.strip_prefix(b"/").ok_or(Absent::Unsupported)
    }

    /// The text of a file of a cgroup.
    fn read(&self, path: &[u8], name: &str) -> Result<Vec<u8>, Absent> {
        let absent = |errno| reason(errno).unwrap_or(Absent::Unsupported);
        let below = [Mount::below(path)?, &b"/."[..]].concat();
        let below = below.strip_prefix(b"/").unwrap_or(&below);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let cgroup = rustix::fs::openat(&self.directory, OsStr::from_bytes(below), flags, Mode::empty());
        let cgroup = cgroup.map_err(absent)?;
        if rustix::fs::fstat(&cgroup).map_err(absent)?.st_dev != self.device {
            return Err(Absent::Unsupported);
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&cgroup, name, flags, Mode::empty()) {
            // The cgroup has no such controller, or it is the root.
            Err(Errno::NOENT) => return Err(Absent::Unsupported),
            file => file.map_err(absent)?,
        };
        let mut text = Vec::new();
        let read = std::io::Read::read_to_end(&mut std::fs::File::from(file), &mut text);
        match read.map_err(|error| Errno::from_io_error(&error)) {
            Ok(_) => Ok(text),
            Err(Some(Errno::NODEV | Errno::NOENT)) => Err(Absent::Gone),
            Err(_) => Err(Absent::Unsupported),
        }
    }

    fn id(&self, path: &[u8]) -> Result<u64, Absent> {
        let below = Mount::below(path)?;
        let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
        match rustix::fs::statat(&self.directory, OsStr::from_bytes(below), flags) {
            Ok(stat) if stat.st_dev == self.device => Ok(stat.st_ino),
            Ok(_) => Err(Absent::Unsupported),
            Err(errno) => Err(reason(errno).unwrap_or(Absent::Unsupported)),
        }
    }
}

/// The ids of the cgroups of one pass, by path.
pub(super) type Cgroups = HashMap<Box<[u8]>, Result<u64, Absent>>;

/// The id of a cgroup.
pub(super) fn known_cgroup_id(known: &mut Cgroups, mount: Option<&Mount>, path: &[u8]) -> Result<u64, Absent> {
    let mount = mount.ok_or(Absent::Unsupported)?;
    if let Some(&id) = known.get(path) {
        return id;
    }
    let id = mount.id(path);
    known.insert(path.into(), id);
    id
}

/// The id of a cgroup, if the unified hierarchy is mounted and has it.
pub(crate) fn cgroup_id(path: &[u8]) -> Option<u64> {
    let proc = rustix::fs::openat(CWD, own_proc(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    Mount::find(proc.as_fd(), None).ok()??.id(path).ok()
}

/// Whether a hierarchy that is mounted has a cgroup.
pub(crate) fn is_cgroup(path: &[u8]) -> bool {
    let own = std::fs::read(proc_file("self/cgroup")).unwrap_or_default();
    let Ok(proc) = rustix::fs::openat(CWD, own_proc(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) else {
        return false;
    };
    let is_in = |list: &[u8]| {
        let first = list
            .split(|&byte| byte == b',')
            .next()
            .and_then(|name| std::str::from_utf8(name).ok());
        let controller = first.filter(|name| !name.is_empty());
        let mount = Mount::find(proc.as_fd(), controller).ok().flatten();
        mount.is_some_and(|mount| mount.id(path).is_ok())
    };
    let mut hierarchies = process::hierarchies(&own);
    hierarchies.any(|(list, _)| is_in(list))
}

/// The texts of files of a task's cgroups. `lines` have the form of [`Field::Cgroups`]. A file is read
/// in the unified hierarchy, or in the version 1 hierarchy of the controller that its name begins
/// with: in the root, which has the figures of the whole machine, only if there is no other.
pub(crate) fn cgroup_files(lines: &[u8], names: &[&str]) -> Vec<Result<Vec<u8>, Absent>> {
    let proc = rustix::fs::openat(CWD, own_proc(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let mut mounts: HashMap<Option<&str>, Option<Mount>> = HashMap::new();
    let mut texts = Vec::new();
    for &name in names {
        let controller = name.split('.').next();
        let mut text = Err(Absent::Unsupported);
        for (controller, is_root) in [(None, false), (controller, false), (None, true), (controller, true)] {
            let is_of = |list: &[u8]| match controller {
                None => list.is_empty(),
                Some(controller) => process::has_controller(list, controller),
            };
            let mut hierarchies = process::hierarchies(lines);
            let of_task = hierarchies.find(|(list, path)| is_of(list) && (*path == b"/") == is_root);
            let Some((_, path)) = of_task else { continue };
            let find = || Mount::find(proc.as_ref().ok()?.as_fd(), controller).ok().flatten();
            if let Some(mount) = mounts.entry(controller).or_insert_with(find) {
                text = mount.read(path, name);
            }
            if text != Err(Absent::Unsupported) {
                break;
            }
        }
        texts.push(text);
    }
    texts
}
