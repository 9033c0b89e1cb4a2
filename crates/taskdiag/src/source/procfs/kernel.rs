//! What this host has of `/proc`, and where its cgroups are.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{AtFlags, Mode, OFlags, CWD};
use rustix::io::Errno;
use taskdiag_core::absent::Absent;
use taskdiag_core::error::Error;
use taskdiag_core::field::Files;
use taskdiag_core::text::process;

use super::encode::{self, Plan};
use super::place::{Path, Place, NAMES, NAMESPACE_LINKS};
use super::task::reason;

const CGROUP2_MAGIC: u64 = 0x6367_7270;

/// The most that is read of the list of mounts at a time.
const ROOM: usize = 64 << 10;

/// What this kernel is known not to have, so that its absence is not taken for that of the task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing {
    pub(super) files: Files,
    pub(super) namespaces: u16,
    /// Of which of them it is known.
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
    /// Looks at the calling thread's own files, which it may read and which are there if the kernel has them at all.
    pub(super) fn probe(&mut self, proc: BorrowedFd<'_>, plan: &Plan) {
        let own = Place {
            directory: proc,
            path: Path::EMPTY.text("thread-self/"),
            up: "",
            pid: 0,
            tid: 0,
        };
        for file in [
            Files::SCHEDSTAT,
            Files::CGROUP,
            Files::IO,
            Files::LOGINUID,
            Files::SESSIONID,
        ] {
            if !plan.reads(file) || self.probed.0.intersects(file) {
                continue;
            }
            self.probed.0 = self.probed.0.or(file);
            let mut text = [0; 64];
            let read = own
                .open(NAMES[encode::index(file)])
                .and_then(|opened| rustix::io::read(opened, &mut text[..]));
            // A kernel that does not keep these times prints three zeros. A thread that runs has more.
            let idle = |len| file == Files::SCHEDSTAT && process::schedstat(&text[..len]) == Some([0; 3]);
            if read == Err(Errno::NOENT) || read.is_ok_and(idle) {
                self.files = self.files.or(file);
            }
        }
        for (which, name) in NAMESPACE_LINKS.iter().enumerate() {
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

/// Where the unified cgroup hierarchy is mounted. Kept for a pass only: an open file would keep it from being unmounted.
#[derive(Debug)]
pub(super) struct Mount {
    directory: OwnedFd,
    device: u64,
}

impl Mount {
    pub(super) fn find(proc: BorrowedFd<'_>) -> Result<Option<Mount>, Error> {
        let failed = |errno| Error::io("can't read /proc/thread-self/mountinfo", errno);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let path = c"thread-self/mountinfo";
        let file = rustix::fs::openat(proc, path, flags, Mode::empty()).map_err(failed)?;
        let mut text = vec![0; ROOM];
        let mut len = 0;
        // Unlike the files of a task this one comes in pieces.
        loop {
            match rustix::io::read(&file, &mut text[len..]) {
                Ok(0) => break,
                Ok(read) => len += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
            if len == text.len() {
                text.resize(len * 2, 0);
            }
        }
        // One that another file system was mounted over does not lead to cgroups.
        let mount = process::cgroup_mounts(&text[..len]).find_map(|place| {
            let place: Vec<u8> = process::unescape(place).collect();
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let place = OsStr::from_bytes(&place);
            let directory = rustix::fs::openat(CWD, place, flags, Mode::empty()).ok()?;
            let kind = rustix::fs::fstatfs(&directory).ok()?;
            let device = rustix::fs::fstat(&directory).ok()?.st_dev;
            (kind.f_type as u64 == CGROUP2_MAGIC).then_some(Mount { directory, device })
        });
        Ok(mount)
    }

    fn id(&self, path: &[u8]) -> Result<u64, Absent> {
        // Outside of the reader's cgroup namespace, and so of the mount. The path must not lead out of it.
        if path == b"/.." || path.starts_with(b"/../") {
            return Err(Absent::Unsupported);
        }
        // The cgroup of a zombie may be removed, and the kernel then says so here.
        if path.ends_with(b" (deleted)") {
            return Err(Absent::Gone);
        }
        let below = path.strip_prefix(b"/").ok_or(Absent::Unsupported)?;
        let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
        match rustix::fs::statat(&self.directory, OsStr::from_bytes(below), flags) {
            Ok(stat) if stat.st_dev == self.device => Ok(stat.st_ino),
            Ok(_) => Err(Absent::Unsupported),
            Err(errno) => Err(reason(errno).unwrap_or(Absent::Unsupported)),
        }
    }
}

/// The ids of cgroups that were met, by their paths.
pub(super) type Cgroups = HashMap<Box<[u8]>, Result<u64, Absent>>;

/// The id of a cgroup by its path.
pub(super) fn known_cgroup_id(known: &mut Cgroups, mount: Option<&Mount>, path: &[u8]) -> Result<u64, Absent> {
    let mount = mount.ok_or(Absent::Unsupported)?;
    if let Some(&id) = known.get(path) {
        return id;
    }
    let id = mount.id(path);
    known.insert(path.into(), id);
    id
}

/// The same, as far as the unified hierarchy can be seen.
pub(crate) fn cgroup_id(path: &[u8]) -> Option<u64> {
    let proc = rustix::fs::openat(CWD, c"/proc", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    Mount::find(proc.as_fd()).ok()??.id(path).ok()
}
