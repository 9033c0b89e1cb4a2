//! The page cache of all files below a directory.
//!
//! Each thread has a list of directories to read. It gives half of them, the ones that it found
//! first, to idle threads. A regular file takes a little more than three system calls: openat(2)
//! relative to its directory, fstat(2), the query, and a share of closing it together with others.
//! Results go in batches through a short queue to the caller, on the caller's thread. If the caller
//! is slow, the threads wait.
//!
//! # Descriptors
//!
//! Threads that open and close files in the same descriptor table wait for each other. So every
//! thread but the first, which keeps the caller's table, has its own table. No descriptor is passed
//! between threads: a directory is given away by its path, and each thread opens the root itself. A
//! thread that finds another directory at the path of the root ends at once.
//!
//! # Bounds
//!
//! The lists of waiting directories are short, however wide or deep a tree is: when its list is
//! full, a thread descends into a directory at once, before it has read the rest of the parent.
//! That keeps a descriptor open at each level, so it descends only a few levels. Deeper directories
//! are put on the list by their paths, without a descriptor. Only the set of directories, and of
//! files with several names, that were seen grows with the tree: 16 bytes for each.
//!
//! # Trees that change
//!
//! Files that vanish are counted and left out. A file that has become a FIFO since its directory
//! was read does not block the walk, and is also left out.

mod batch;
mod found;
mod worker;

use std::any::Any;
use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rustix::fs::{fstat, openat, statat, AtFlags, FileType, Mode, OFlags, Stat, CWD};
use rustix::io::Errno;
use taskdiag_core::absent::Absent;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_sys::descriptors::{own_table, Closing};
use taskdiag_sys::signals::SignalsBlocked;

use super::{has_pages, size, ByteRange, Refusal, Source, Usage};
use batch::Batch;
use worker::{Shared, Worker};

pub(crate) use found::FileId;
pub use found::{File, Found, Seen, Sum, Totals};

/// More threads than this only wait for the kernel's locks, and hold descriptors.
const MAX_THREADS: usize = 16;

/// How often the caller gets a sign of life from a walk that finds nothing.
const TICK: Duration = Duration::from_millis(100);

/// How regular files are opened: without waiting, and without acquiring a controlling terminal.
const FILE_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

const DIRECTORY_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::DIRECTORY);

/// How the root is opened. It may be a symbolic link.
const ROOT_FLAGS: OFlags = DIRECTORY_FLAGS.difference(OFlags::NOFOLLOW);

fn id(stat: &Stat) -> FileId {
    (stat.st_dev, stat.st_ino)
}

/// Asks about a file or block device, or about all files below a directory.
///
/// ```
/// use std::ops::ControlFlow;
/// use std::sync::atomic::AtomicBool;
/// use taskdiag::pagecache::{Found, Quantity, Seen, Walk};
///
/// let mut cached_bytes = 0;
/// let mut visit = |found: Found<'_>| {
///     if let Found::File(file) = found {
///         cached_bytes += file.usage.and_then(|usage| usage.bytes(Quantity::Cached)).unwrap_or(0);
///     }
///     ControlFlow::Continue(())
/// };
/// let walk = Walk::new().one_file_system(true);
/// let totals = walk.run("src".as_ref(), &mut Seen::default(), &AtomicBool::new(false), &mut visit)?;
/// println!("{} files, {cached_bytes} bytes are cached", totals.sum.files);
/// # Ok::<(), taskdiag::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    source: Source,
    range: ByteRange,
    one_file_system: bool,
    each_file: bool,
    threads: usize,
}

impl Walk {
    /// A walk that reports each file, and asks this host's source about the whole file.
    pub fn new() -> Walk {
        Walk {
            source: Source::of_this_host(),
            range: ByteRange::ALL,
            one_file_system: false,
            each_file: true,
            threads: thread::available_parallelism().map_or(1, |count| count.get().min(MAX_THREADS)),
        }
    }

    /// Sets the source to ask.
    pub fn source(mut self, source: Source) -> Walk {
        self.source = source;
        self
    }

    /// Sets the part of each file to ask about.
    pub fn range(mut self, range: ByteRange) -> Walk {
        self.range = range;
        self
    }

    /// Whether to stay on the file system of the directory where the walk begins. The default is
    /// not to.
    pub fn one_file_system(mut self, stays: bool) -> Walk {
        self.one_file_system = stays;
        self
    }

    /// Whether to report each file rather than the sum of the files in each directory.
    pub fn each_file(mut self, reports: bool) -> Walk {
        self.each_file = reports;
        self
    }

    /// Sets the number of threads, at least 1. The default is one for each processor, at most 16.
    pub fn threads(mut self, threads: usize) -> Walk {
        self.threads = threads.max(1);
        self
    }

    /// Walks, and calls `visit` on this thread for each result. Follows a symbolic link if `path`
    /// is one, but none below it. The walk ends early if `visit` breaks or `cancel` is set.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](ErrorKind::InvalidInput) if `path` is something else than a regular file, a
    /// block device or a directory; [`Denied`](ErrorKind::Denied) or [`System`](ErrorKind::System)
    /// if it can't be opened or does not exist; [`NoThread`](ErrorKind::NoThread) if no thread can be
    /// started. A part of the tree that can't be read is not an error but [`Found::Failed`].
    pub fn run(
        &self,
        path: &Path,
        seen: &mut Seen,
        cancel: &AtomicBool,
        visit: &mut dyn FnMut(Found<'_>) -> ControlFlow<()>,
    ) -> Result<Totals> {
        let failed = |errno: Errno| Error::io(path.display().to_string(), errno);
        let name = path.as_os_str().as_bytes();
        // Opening a FIFO or a character device could wait or have side effects, so check the type
        // first.
        let stat = statat(CWD, path, AtFlags::empty()).map_err(failed)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let root = openat(CWD, path, ROOT_FLAGS, Mode::empty()).map_err(failed)?;
                let walked = self.tree(root, name, seen, cancel, visit).map_err(failed)?;
                let no_thread = || std::io::Error::other(Error::NO_THREAD);
                walked.ok_or_else(|| Error::new(ErrorKind::NoThread, path.display().to_string()).caused_by(no_thread()))
            }
            _ if has_pages(&stat) => self.file(name, seen, visit).map_err(failed),
            _ => Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "{}: neither a regular file nor a directory nor a block device",
                    path.display()
                ),
            )),
        }
    }

    fn file(
        &self,
        name: &[u8],
        seen: &mut Seen,
        visit: &mut dyn FnMut(Found<'_>) -> ControlFlow<()>,
    ) -> std::result::Result<Totals, Errno> {
        let mut totals = Totals::default();
        let path = CString::new(name).map_err(|_| Errno::INVAL)?;
        let flags = FILE_FLAGS.difference(OFlags::NOFOLLOW);
        let is_new = |stat: &Stat| seen.is_new_file(stat);
        match self.ask(CWD, &path, flags, &mut Closing::default(), is_new) {
            FileOutcome::Answered(size_bytes, usage) => {
                totals.sum.add(size_bytes, usage);
                // This is the only result.
                let _ = visit(Found::File(File {
                    path: name,
                    size_bytes,
                    usage,
                }));
            }
            FileOutcome::Gone => return Err(Errno::NOENT),
            FileOutcome::Unwanted => totals.linked += 1,
            FileOutcome::Failed(errno) => return Err(errno),
        }
        Ok(totals)
    }

    /// `None` if no thread can be started.
    fn tree(
        &self,
        root: OwnedFd,
        path: &[u8],
        seen: &mut Seen,
        cancel: &AtomicBool,
        visit: &mut dyn FnMut(Found<'_>) -> ControlFlow<()>,
    ) -> std::result::Result<Option<Totals>, Errno> {
        let shared = Shared::new(*self, &fstat(&root)?, path, seen);
        let (sender, receiver) = sync_channel(2 * self.threads);
        // Each thread drops its copy once it has its own descriptor table.
        let (starting, all_started) = sync_channel::<Infallible>(0);
        thread::scope(|scope| {
            let mut root = Some(root);
            // The threads inherit this: the caller's signals are for the caller's threads.
            let blocked = SignalsBlocked::begin();
            // If no more threads can be started, those that run do all.
            let workers: std::result::Result<Vec<_>, _> = (0..self.threads)
                .map_while(|index| {
                    let (shared, sender, starting, root) = (&shared, sender.clone(), starting.clone(), root.take());
                    let builder = thread::Builder::new();
                    let started = builder.spawn_scoped(scope, move || {
                        if root.is_none() {
                            own_table();
                        }
                        drop(starting);
                        match root.or_else(|| shared.open_root()) {
                            Some(root) => Worker::new(shared, sender, root).run(),
                            None => Totals::default(),
                        }
                    });
                    (index == 0 || started.is_ok()).then_some(started)
                })
                .collect();
            drop((sender, starting, blocked));
            let Ok(workers) = workers else { return Ok(None) };
            // A new table holds every descriptor of the caller until the kernel empties it. A file
            // that the caller closed before that would stay open.
            let _ = all_started.recv();
            deliver(&receiver, &shared, cancel, visit);
            // Threads that still send find that nobody receives.
            drop(receiver);
            let mut totals = Totals::default();
            for worker in workers {
                match worker.join() {
                    Ok(part) => totals += part,
                    Err(panic) => panic_again(&*panic),
                }
            }
            Ok(Some(totals))
        })
    }

    /// Opens a file, reads its status, and asks about it if `is_wanted` accepts it. Leaves
    /// closing it to `closing`.
    fn ask(
        &self,
        directory: BorrowedFd<'_>,
        name: &CStr,
        flags: OFlags,
        closing: &mut Closing,
        is_wanted: impl FnOnce(&Stat) -> bool,
    ) -> FileOutcome {
        let mut opened = openat(directory, name, flags, Mode::empty());
        if matches!(opened, Err(Errno::MFILE | Errno::NFILE)) && !closing.is_empty() {
            closing.close();
            opened = openat(directory, name, flags, Mode::empty());
        }
        let file = match opened {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return FileOutcome::Gone,
            Err(Errno::ACCESS | Errno::PERM) => {
                let follow = if flags.contains(OFlags::NOFOLLOW) {
                    AtFlags::SYMLINK_NOFOLLOW
                } else {
                    AtFlags::empty()
                };
                return match statat(directory, name, follow) {
                    Ok(stat) if !has_pages(&stat) => FileOutcome::Gone,
                    Ok(stat) if !is_wanted(&stat) => FileOutcome::Unwanted,
                    Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                        FileOutcome::Answered(Ok(stat.st_size as u64), Err(Absent::Denied))
                    }
                    Ok(_) | Err(_) => FileOutcome::Answered(Err(Absent::Denied), Err(Absent::Denied)),
                };
            }
            Err(errno) => return FileOutcome::Failed(errno),
        };
        let asked = self.ask_open(file.as_fd(), is_wanted);
        closing.push(file);
        asked
    }

    /// Reads the status of an open file, and asks about the file if `is_wanted` accepts it.
    fn ask_open(&self, file: BorrowedFd<'_>, is_wanted: impl FnOnce(&Stat) -> bool) -> FileOutcome {
        let stat = match fstat(file) {
            Ok(stat) => stat,
            Err(errno) => return FileOutcome::Failed(errno),
        };
        if !has_pages(&stat) {
            return FileOutcome::Gone;
        }
        if !is_wanted(&stat) {
            return FileOutcome::Unwanted;
        }
        let size_bytes = match size(file, &stat) {
            Ok(size_bytes) => Ok(size_bytes),
            Err(errno) => return FileOutcome::Failed(errno),
        };
        match self.source.usage(file, self.range) {
            Ok(usage) => FileOutcome::Answered(size_bytes, Ok(usage)),
            Err(Refusal::Other(errno)) => FileOutcome::Failed(errno),
            Err(refusal) => FileOutcome::Answered(size_bytes, Err(refusal.absent())),
        }
    }
}

impl Default for Walk {
    fn default() -> Walk {
        Walk::new()
    }
}

/// The outcome for a file.
enum FileOutcome {
    /// Its size, and its page cache.
    Answered(std::result::Result<u64, Absent>, std::result::Result<Usage, Absent>),
    /// It vanished, or is not a regular file any more.
    Gone,
    /// It was already counted, or does not belong to this walk.
    Unwanted,
    /// An error that is not about the caller's rights.
    Failed(Errno),
}

/// Calls `visit` with the results that the threads send, until all threads have ended or the caller
/// breaks.
fn deliver(
    receiver: &Receiver<Batch>,
    shared: &Shared<'_>,
    cancel: &AtomicBool,
    visit: &mut dyn FnMut(Found<'_>) -> ControlFlow<()>,
) {
    loop {
        let flow = match receiver.recv_timeout(TICK) {
            Ok(batch) => batch.visit(visit),
            Err(RecvTimeoutError::Timeout) => ControlFlow::Continue(()),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let flow = match flow {
            ControlFlow::Continue(()) => visit(Found::Tick(shared.files())),
            broken => broken,
        };
        if flow.is_break() {
            return shared.stop();
        }
        if cancel.load(Ordering::Relaxed) && !shared.is_stopped() {
            // Results that were already found are still delivered.
            shared.stop();
        }
    }
}

/// Panics with the text of a thread's panic. A thread with its own descriptor table has no standard
/// error to print it to.
fn panic_again(panic: &(dyn Any + Send)) -> ! {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    panic!("a thread of a walk: {}", text.unwrap_or("no text"))
}
