//! Where the files of a task are, and lists of tasks. This module opens files and lists
//! directories; [`task`](super::task) reads files.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Access, AtFlags, Mode, OFlags, RawDir, SeekFrom, CWD};
use rustix::io::{retry_on_intr, Errno};
use taskdiag_core::field::Files;
use taskdiag_core::text::process::{self, NamespaceLink, Stat};

use super::mount::Proc;

/// Room for the names of 10000 threads. They are listed in one call: if some end between calls, it
/// is not certain where a list of threads continues. Memory that is not needed is never touched.
const DIRECTORY: usize = 256 << 10;

/// A path below `/proc`, on the stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// Ends with at least one NUL.
    bytes: [u8; 56],
    len: usize,
}

impl Path {
    pub(super) const EMPTY: Path = Path { bytes: [0; 56], len: 0 };

    pub(super) fn text(mut self, text: &str) -> Path {
        // The longest is 4294967295/task/4294967295/ns/pid_for_children.
        let room = &mut self.bytes[self.len..55];
        let len = room.len().min(text.len());
        room[..len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        self
    }

    pub(super) fn number(mut self, number: u32) -> Path {
        let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
        let mut rest = number;
        for place in self.bytes[self.len..self.len + digits].iter_mut().rev() {
            *place = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.len += digits;
        self
    }

    pub(super) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

/// The location of a task's files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) directory: BorrowedFd<'a>,
    /// Ends with a slash.
    pub(super) path: Path,
    /// The path from `directory` to `/proc`.
    pub(super) up: &'static str,
    pub(super) pid: u32,
    pub(super) tid: u32,
    /// It is the directory of the whole process.
    pub(super) is_process: bool,
}

impl<'a> Place<'a> {
    pub(super) fn process(proc: BorrowedFd<'a>, pid: u32) -> Place<'a> {
        Place {
            directory: proc,
            path: Path::EMPTY.number(pid).text("/"),
            up: "",
            pid,
            tid: pid,
            is_process: true,
        }
    }

    pub(super) fn thread(proc: BorrowedFd<'a>, pid: u32, tid: u32) -> Place<'a> {
        Place {
            directory: proc,
            path: Path::EMPTY.number(pid).text("/task/").number(tid).text("/"),
            up: "",
            pid,
            tid,
            is_process: false,
        }
    }

    /// A thread, below the process's `task` directory.
    pub(super) fn thread_in(task: BorrowedFd<'a>, pid: u32, tid: u32) -> Place<'a> {
        Place {
            directory: task,
            path: Path::EMPTY.number(tid).text("/"),
            up: "../../",
            pid,
            tid,
            is_process: false,
        }
    }

    /// Whether its id belongs to a task.
    pub(super) fn exists(&self) -> bool {
        rustix::fs::accessat(self.directory, self.path.as_c_str(), Access::EXISTS, AtFlags::empty())
            != Err(Errno::NOENT)
    }

    pub(super) fn open(&self, name: &str) -> Result<OwnedFd, Errno> {
        self.open_as(self.path.text(name), OFlags::RDONLY)
    }

    pub(super) fn open_as(&self, path: Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        rustix::fs::openat(self.directory, path.as_c_str(), flags | OFlags::CLOEXEC, Mode::empty())
    }

    /// Opens the file with this bit of [`Files`].
    pub(super) fn open_file(&self, file: usize) -> Result<OwnedFd, Errno> {
        match Files::from_bits_retain(1 << file).name() {
            // The directories of threads do not have it, but each thread also has a directory like
            // that of a process.
            name @ "timerslack_ns" => {
                let path = Path::EMPTY.text(self.up).number(self.tid).text("/").text(name);
                self.open_as(path, OFlags::RDONLY)
            }
            name => self.open(name),
        }
    }

    /// The number of open files. Since f1f1f2569901 ("proc: report open files as size in stat() for
    /// /proc/pid/fd", 6.2) it is the size of the directory, which everybody may read. Before that,
    /// the directory must be listed.
    pub(super) fn fd_count(&self, is_size: bool, listing: &mut Listing) -> Result<u32, Errno> {
        let path = self.path.text("fd");
        if is_size {
            let stat = rustix::fs::statat(self.directory, path.as_c_str(), AtFlags::empty())?;
            return u32::try_from(stat.st_size).or(Err(Errno::INVAL));
        }
        let directory = self.open_as(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        listing.all(directory.as_fd())?;
        Ok(listing.ids.len() as u32)
    }

    /// The inode number in the target of a link in `ns/`.
    pub(super) fn namespace(&self, name: &str) -> Result<u64, Errno> {
        let path = self.path.text("ns/").text(name);
        let mut target = [0; 64];
        let len = rustix::fs::readlinkat_raw(self.directory, path.as_c_str(), &mut target[..])?;
        process::namespace(&target[..len]).ok_or(Errno::INVAL)
    }
}

/// A process can keep any number of threads that have ended, by tracing them: no more are looked at
/// for one that lives. BPF programs have the same limit (`TD_THREADS_MAX`).
const OTHER_THREADS: usize = 512;

/// Threads of a process other than the first. Those that the caller may trace come first: each thread
/// can have a user of its own.
pub(super) fn other_threads(proc: BorrowedFd<'_>, pid: u32) -> Result<Vec<u32>, Errno> {
    let mut tids = threads(proc, pid)?;
    tids.retain(|&tid| tid != pid);
    tids.truncate(OTHER_THREADS);
    let is_denied = |tid: &u32| {
        let thread = Place::thread(proc, pid, *tid);
        matches!(
            thread.namespace(NamespaceLink::NAMES[0]),
            Err(Errno::ACCESS | Errno::PERM)
        )
    };
    tids.sort_by_cached_key(is_denied);
    Ok(tids)
}

/// The threads of a process, ascending.
pub(crate) fn threads(proc: BorrowedFd<'_>, pid: u32) -> Result<Vec<u32>, Errno> {
    let mut listing = Listing::default();
    let task = Place::process(proc, pid).open("task")?;
    listing.threads(task.as_fd())?;
    Ok(listing.ids)
}

/// How often the threads of a process are listed to find one that lives.
const LISTINGS: usize = 32;

/// Asks the threads of a process other than the first, until one answers. All that were listed may
/// have ended while others live: then lists again. `None` if there are no others; fails with `ESRCH`
/// if they end as fast as they are listed.
pub(crate) fn ask_threads<T>(
    proc: BorrowedFd<'_>,
    pid: u32,
    mut ask: impl FnMut(u32) -> Option<T>,
) -> Result<Option<T>, Errno> {
    let mut before = Vec::new();
    for _ in 0..LISTINGS {
        let tids = other_threads(proc, pid)?;
        if let Some(answer) = tids.iter().copied().find_map(&mut ask) {
            return Ok(Some(answer));
        }
        // A process can keep threads that have ended, by tracing them.
        let are_kept = !tids.is_empty() && tids == before;
        if are_kept || stat(&Place::process(proc, pid), |stat| stat.threads_count())? < 2 {
            return Ok(None);
        }
        before = tids;
    }
    Err(Errno::SRCH)
}

fn stat<T>(place: &Place<'_>, of: impl FnOnce(Stat<'_>) -> T) -> Result<T, Errno> {
    let mut text = [0; 1024];
    let len = retry_on_intr(|| rustix::io::read(&place.open("stat")?, &mut text[..]))?;
    process::stat(&text[..len]).map(of).ok_or(Errno::SRCH)
}

/// The directory of a process or, if its first thread has ended, that of another one which has
/// memory: each thread has a directory like that of a process, which is not listed.
pub(crate) fn live_directory(proc: &Proc, pid: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |path: String| rustix::fs::openat(CWD, proc.join(path), flags, Mode::empty());
    let process = open(pid.to_string())?;
    let root = open(".".to_owned())?;
    let root = root.as_fd();
    let has_ended = stat(&Place::process(root, pid), |stat| {
        stat.state == b'Z' && stat.threads_count() > 1
    });
    if has_ended != Ok(true) {
        return Ok(process);
    }
    let live = ask_threads(root, pid, |tid| {
        let thread = open(tid.to_string()).ok()?;
        // The id is that of the thread as long as this lives.
        let has_memory = stat(&Place::thread(root, pid, tid), |stat| stat.has_memory());
        (has_memory == Ok(true)).then_some(thread)
    })?;
    Ok(live.unwrap_or(process))
}

/// The ids that a directory lists.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Only its spare capacity is used.
    buffer: Vec<u8>,
    pub(super) ids: Vec<u32>,
    /// Those of the listing before.
    before: Vec<u32>,
}

/// How often threads are listed while some end.
const THREAD_LISTINGS: usize = 4;

impl Listing {
    /// Sets `ids` to the next part of the directory: as much as the kernel returns in `room` bytes.
    /// False at the end.
    pub(super) fn part(&mut self, directory: BorrowedFd<'_>, room: usize) -> Result<bool, Errno> {
        self.ids.clear();
        self.more(directory, room)
    }

    /// Sets `ids` to the whole directory, sorted.
    pub(super) fn all(&mut self, directory: BorrowedFd<'_>) -> Result<(), Errno> {
        self.ids.clear();
        while self.more(directory, DIRECTORY)? {}
        // Threads are listed in the order in which they started.
        self.ids.sort_unstable();
        self.ids.dedup();
        Ok(())
    }

    /// Sets `ids` to the threads of a `task` directory, sorted. If the thread that is next ends, the
    /// kernel omits one that lives (`next_tid` in `fs/proc/base.c`): all are there if none has ended
    /// when they are listed again. Who starts and ends threads all the time is listed a few times.
    pub(super) fn threads(&mut self, task: BorrowedFd<'_>) -> Result<(), Errno> {
        self.all(task)?;
        for _ in 1..THREAD_LISTINGS {
            if self.ids.len() == 1 {
                break;
            }
            self.before.clone_from(&self.ids);
            rustix::fs::seek(task, SeekFrom::Start(0))?;
            self.all(task)?;
            let has_all = self.before.iter().all(|tid| self.ids.binary_search(tid).is_ok());
            self.ids.extend_from_slice(&self.before);
            self.ids.sort_unstable();
            self.ids.dedup();
            if has_all {
                break;
            }
        }
        Ok(())
    }

    fn more(&mut self, directory: BorrowedFd<'_>, room: usize) -> Result<bool, Errno> {
        self.buffer.reserve(room);
        let mut entries = RawDir::new(directory, &mut self.buffer.spare_capacity_mut()[..room]);
        while let Some(entry) = entries.next() {
            self.ids.extend(process::task_id(entry?.file_name().to_bytes()));
            if entries.is_buffer_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
