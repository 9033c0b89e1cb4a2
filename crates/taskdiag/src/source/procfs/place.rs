//! Where the files of a task are, and lists of tasks. This module opens files and lists
//! directories; [`task`](super::task) reads files.

use std::fmt::Display;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Access, AtFlags, Mode, OFlags, RawDir, SeekFrom, CWD};
use rustix::io::{retry_on_intr, Errno};
use taskdiag_core::field::Files;
use taskdiag_core::text::process::{self, NamespaceLink, Positions, Stat};
use taskdiag_sys::host::StackPath;

use super::mount::Proc;

/// Room for the names of 10000 threads. They are listed in one call: if some end between calls, it
/// is not certain where a list of threads continues. Memory that is not needed is never touched.
const DIRECTORY: usize = 256 << 10;

/// How the path of a file of a task begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// `PID`
    Process,
    /// `PID/task/TID`
    Thread,
    /// `TID`, below the `task` directory of the process.
    InTask,
    /// `thread-self`
    Own,
}

/// The location of a task's files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// `/proc`, or the `task` directory of a process.
    pub(super) directory: BorrowedFd<'a>,
    pub(super) base: Base,
    pub(super) pid: u32,
    pub(super) tid: u32,
}

impl<'a> Place<'a> {
    pub(crate) fn process(proc: BorrowedFd<'a>, pid: u32) -> Place<'a> {
        Place {
            directory: proc,
            base: Base::Process,
            pid,
            tid: pid,
        }
    }

    pub(crate) fn thread(proc: BorrowedFd<'a>, pid: u32, tid: u32) -> Place<'a> {
        Place {
            directory: proc,
            base: Base::Thread,
            pid,
            tid,
        }
    }

    /// The path of a file from `directory`. The longest is
    /// 4294967295/task/4294967295/../../../4294967295/timerslack_ns.
    pub(super) fn path(&self, name: impl Display) -> StackPath<64> {
        let Place { pid, tid, .. } = self;
        match self.base {
            Base::Process => StackPath::new(format_args!("{pid}/{name}")),
            Base::Thread => StackPath::new(format_args!("{pid}/task/{tid}/{name}")),
            Base::InTask => StackPath::new(format_args!("{tid}/{name}")),
            Base::Own => StackPath::new(format_args!("thread-self/{name}")),
        }
    }

    /// Whether its id belongs to a task.
    pub(super) fn exists(&self) -> bool {
        rustix::fs::accessat(
            self.directory,
            self.path("").as_c_str(),
            Access::EXISTS,
            AtFlags::empty(),
        ) != Err(Errno::NOENT)
    }

    pub(crate) fn open(&self, name: impl Display) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::openat(self.directory, self.path(name).as_c_str(), flags, Mode::empty())
    }

    /// Opens the file with this bit of [`Files`].
    pub(super) fn open_file(&self, file: usize) -> Result<OwnedFd, Errno> {
        match Files::from_bits_retain(1 << file).name() {
            // The directories of threads do not have it, but each thread also has a directory like
            // that of a process.
            name @ "timerslack_ns" if self.base != Base::Process => {
                self.open(format_args!("../../../{}/{name}", self.tid))
            }
            name => self.open(name),
        }
    }

    /// The number of open files. Since f1f1f2569901 ("proc: report open files as size in stat() for
    /// /proc/pid/fd", 6.2) it is the size of the directory, which everybody may read. Before that,
    /// the directory must be listed.
    pub(super) fn fd_count(&self, is_size: bool, listing: &mut Listing) -> Result<u32, Errno> {
        if is_size {
            let stat = rustix::fs::statat(self.directory, self.path("fd").as_c_str(), AtFlags::empty())?;
            return u32::try_from(stat.st_size).or(Err(Errno::INVAL));
        }
        let directory = self.open("fd")?;
        listing.all(directory.as_fd())?;
        Ok(listing.ids.len() as u32)
    }

    /// The inode number in the target of a link in `ns/`.
    pub(super) fn namespace(&self, name: &str) -> Result<u64, Errno> {
        let path = self.path(format_args!("ns/{name}"));
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
    process::stat(&text[..len], Positions::BASIC).map(of).ok_or(Errno::SRCH)
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
