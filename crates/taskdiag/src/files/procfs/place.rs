//! Opens the files of `/proc` about a process, and reads texts and stat(2).

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, StatxFlags, CWD};
use rustix::io::{retry_on_intr, Errno};
use taskdiag_core::absent::{Absent, Known};
use taskdiag_core::identity::Identity;
use taskdiag_core::text::fdinfo::{fdinfo, FdInfo};
use taskdiag_core::text::process::{self, Positions};
use taskdiag_sys::descriptors::Part;
use taskdiag_sys::host::{OwnPath, StackPath};

use crate::files::{Device, OpenFile};
use crate::readers;
use crate::source::procfs::{ask_threads, is_exhausted, Proc};

/// Why a value is missing after a failed system call.
pub(in crate::files) fn absent(errno: Errno) -> Absent {
    match errno {
        Errno::ACCESS | Errno::PERM => Absent::Denied,
        Errno::NOENT | Errno::SRCH => Absent::Gone,
        Errno::NAMETOOLONG => Absent::Truncated,
        _ => Absent::Unsupported,
    }
}

/// A path below `/proc`.
pub(super) type Name = StackPath<64>;

/// Opens a directory of `/proc`.
pub(super) fn open(proc: &Proc, name: String) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, proc.join(name), flags, Mode::empty())
}

/// The directory of a thread below `/proc`.
pub(super) fn open_thread(proc: &Proc, pid: u32, tid: u32) -> Result<OwnedFd, Errno> {
    open(proc, format!("{pid}/task/{tid}"))
}

/// The directory of a process below `/proc`, if it is still the same process; or that of one of its
/// threads, if its first thread has ended. With the id of that thread, if there are others.
pub(super) fn open_process(proc: &Proc, identity: Identity) -> Result<(OwnedFd, Option<u32>), Errno> {
    let pid = identity.tid();
    let directory = open(proc, format!("{pid}"))?;
    let mut text = [0; 1024];
    let len = read_text(directory.as_fd(), c"stat", &mut text)?;
    let stat = process::stat(&text[..len], Positions::BASIC).ok_or(Errno::SRCH)?;
    if stat.start_ticks() != identity.start_ticks() || stat.is_released() {
        return Err(Errno::SRCH);
    }
    if stat.state != b'Z' || stat.threads_count() < 2 {
        return Ok((directory, (stat.threads_count() > 1).then_some(pid)));
    }
    let live = ask_threads(open(proc, ".".to_owned())?.as_fd(), pid, |tid| {
        match open_thread(proc, pid, tid) {
            Ok(thread) if has_files(thread.as_fd()) => Some(Ok((thread, Some(tid)))),
            Err(errno) if is_exhausted(errno) => Some(Err(errno)),
            Ok(_) | Err(_) => None,
        }
    })?;
    // If the process ended meanwhile, its id may have passed to another one.
    read_text(directory.as_fd(), c"stat", &mut text)?;
    live.unwrap_or(Ok((directory, None)))
}

/// Whether a task has files, and so has not ended. True if the caller may not know.
pub(super) fn has_files(task: BorrowedFd<'_>) -> bool {
    let cwd = rustix::fs::readlinkat_raw(task, c"cwd", &mut [0; 8][..]);
    !matches!(cwd, Err(Errno::NOENT | Errno::SRCH))
}

/// The names of what a task has, each with the number of the descriptor.
pub(super) fn names(task: BorrowedFd<'_>, part: Part) -> Result<Vec<(u32, CString)>, Errno> {
    let link = |directory: BorrowedFd<'_>, number, name: &CStr| {
        let target = rustix::fs::readlinkat(directory, name, Vec::new());
        // A directory that is gone, or a descriptor that was closed meanwhile.
        (number, target.unwrap_or_default())
    };
    if part == Part::Fs {
        return Ok(vec![link(task, 0, c"cwd"), link(task, 1, c"root")]);
    }
    let fds = open_descriptors(task)?;
    let names = Dir::read_from(&fds)?.filter_map(|entry| {
        let entry = entry.ok()?;
        let number = process::task_id(entry.file_name().to_bytes())?;
        Some(link(fds.as_fd(), number, entry.file_name()))
    });
    Ok(names.collect())
}

/// The directory of the descriptors of a process.
pub(super) fn open_descriptors(directory: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(directory, c"fd", flags, Mode::empty())
}

/// Reads a short text; cuts off a longer one.
pub(super) fn read_text(directory: BorrowedFd<'_>, name: &CStr, text: &mut [u8]) -> Result<usize, Errno> {
    let file = rustix::fs::openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut len = 0;
    while len < text.len() {
        match retry_on_intr(|| rustix::io::read(&file, &mut text[len..]))? {
            0 => break,
            more => len += more,
        }
    }
    Ok(len)
}

/// Reads the text of the link of one of our own descriptors, and returns its length.
pub(in crate::files) fn own_link(fd: &OwnedFd, text: &mut [u8]) -> Result<usize, Errno> {
    let name = OwnPath::of(format_args!("self/fd/{}", fd.as_raw_fd()));
    rustix::fs::readlinkat_raw(CWD, name.as_c_str(), text)
}

/// The kernel makes no longer names: PATH_MAX.
pub(super) const LONGEST_NAME: usize = 4096;

/// The result of statx(2).
#[derive(Clone, Copy, Debug)]
pub(super) struct Stat {
    pub(super) mode: u32,
    pub(super) size_bytes: u64,
    pub(super) allocated_bytes: u64,
    pub(super) device: Device,
    pub(super) inode: u64,
    pub(super) nlink: u32,
    pub(super) mnt_id: Known<u32>,
}

pub(super) fn stat(place: BorrowedFd<'_>) -> Result<Stat, Errno> {
    readers::beat();
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(place, c"", flags, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)?;
    let has_mount = stat.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    Ok(Stat {
        mode: stat.stx_mode.into(),
        size_bytes: stat.stx_size,
        allocated_bytes: stat.stx_blocks.saturating_mul(512),
        device: Device {
            major: stat.stx_dev_major,
            minor: stat.stx_dev_minor,
        },
        inode: stat.stx_ino,
        nlink: stat.stx_nlink,
        mnt_id: if has_mount {
            u32::try_from(stat.stx_mnt_id).map_err(|_| Absent::Unsupported)
        } else {
            Err(Absent::Unsupported)
        },
    })
}

/// Whether the fdinfo of a descriptor belongs to the file that was found there.
pub(super) fn is_same(info: &FdInfo<'_>, file: &OpenFile<'_>, place: Option<&OwnedFd>) -> Result<bool, Errno> {
    let Some(place) = place else { return Ok(true) };
    // The stat decides most cases.
    if info.inode.is_some() && info.inode == file.inode.ok() && info.mnt_id == file.mnt_id.ok() {
        return Ok(true);
    }
    // Some file systems report other inode numbers than the kernel has.
    let name = OwnPath::of(format_args!("self/fdinfo/{}", place.as_raw_fd()));
    let mut text = [0; 256];
    let len = match read_text(CWD, name.as_c_str(), &mut text) {
        Ok(len) => len,
        Err(errno) if is_exhausted(errno) => return Err(errno),
        Err(_) => return Ok(false),
    };
    Ok(fdinfo(&text[..len]).is_some_and(|own| (own.inode, own.mnt_id) == (info.inode, info.mnt_id)))
}

/// Reads all of a text. That of an epoll or inotify has a line for each of its targets.
pub(super) fn read_whole(directory: BorrowedFd<'_>, name: &CStr, text: &mut Vec<u8>) -> Result<(), Errno> {
    readers::beat();
    let file = rustix::fs::openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    text.clear();
    loop {
        text.reserve(1024);
        let read = retry_on_intr(|| rustix::io::read(&file, rustix::buffer::spare_capacity(text)))?;
        if read == 0 {
            return Ok(());
        }
    }
}
