//! The page cache of all files below a directory.
//!
//! Each thread has a list of directories that it is still to read, and gives the half that it came upon first to threads that
//! have nothing to do. A regular file costs a little more than three system calls: it is opened relative to its directory,
//! looked at, asked about, and closed together with others. What was found goes in batches through a short queue to the
//! caller, on the caller's thread; when the caller is slow, the threads wait.
//!
//! # Descriptors
//!
//! Threads that open and close in the same table of descriptors wait for each other. So all but the first one, which keeps
//! the caller's table, have one of their own. No descriptor goes from one to another: a directory is given away by its path,
//! and each thread opens the root itself. A thread whose root is not the one that was meant ends at once.
//!
//! # Bounds
//!
//! However wide or deep a tree is, the lists of waiting directories are short: when its list is full, a thread goes down into
//! a directory at once, before the rest of the one it is reading. That keeps a descriptor open at each level, so it goes down
//! a few levels only; what is deeper is put on the list by its path, without a descriptor. What does grow with the tree is
//! the memory of directories, and of files with several names, that were seen: 16 bytes each.
//!
//! # Trees that change
//!
//! What vanishes is counted and left out. A name that was a file's when the directory was read and is a FIFO's when it is
//! opened does not block the walk, and is left out too.

use std::any::Any;
use std::collections::HashSet;
use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::mem;
use std::ops::{AddAssign, ControlFlow, Range};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{fstat, fstatfs, openat, statat, AtFlags, FileType, Mode, OFlags, RawDir, Stat, CWD};
use rustix::io::Errno;
use taskdiag_core::absent::Absent;
use taskdiag_sys::descriptors::{own_table, Closing};

use super::{ByteRange, Counts, Refusal, Source, Usage};

/// Directories that may wait in the lists of all threads, each of which may keep a descriptor of the one above it open.
const WAITING: usize = 128;

/// Levels that a thread goes down by itself, each with an open descriptor.
const LEVELS: usize = 16;

/// Threads beyond this number only wait for the kernel's locks, and open descriptors.
const MOST_THREADS: usize = 16;

/// Room for the directory entries that one call returns.
const ENTRIES: usize = 32 << 10;

/// A batch is sent when it has so many items, or so many bytes of names, or is so old.
const BATCH_ITEMS: usize = 2048;
const BATCH_BYTES: usize = 64 << 10;
const BATCH_AGE: Duration = Duration::from_millis(50);

/// How many items come between two looks at the clock.
const BATCH_LOOKS: usize = 32;

/// How often the caller hears of a walk that finds nothing.
const TICK: Duration = Duration::from_millis(100);

/// How regular files are opened: none is ever waited for, and none becomes the controlling terminal.
const FILE_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

const DIRECTORY_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::DIRECTORY);

/// What tells a file from all others: device and inode number.
pub type FileId = (u64, u64);

fn id(stat: &Stat) -> FileId {
    (stat.st_dev, stat.st_ino)
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// How a walk is made.
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    /// Who is asked.
    pub source: Source,
    /// About which part of each file.
    pub range: ByteRange,
    /// Stay on the file system of the directory it starts from.
    pub one_file_system: bool,
    /// Report each file, rather than the sum of the files in each directory.
    pub each_file: bool,
    /// How many threads.
    pub threads: usize,
}

impl Walk {
    /// A walk that reports each file, and asks about the whole of it whoever answers on this host.
    pub fn new() -> Walk {
        Walk {
            source: Source::of_this_host(),
            range: ByteRange::ALL,
            one_file_system: false,
            each_file: true,
            threads: thread::available_parallelism().map_or(1, |count| count.get().min(MOST_THREADS)),
        }
    }
}

impl Default for Walk {
    fn default() -> Walk {
        Walk::new()
    }
}

/// A regular file.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    /// Its path, beginning with that of the walk.
    pub path: &'a [u8],
    /// Its size, if it could be looked at.
    pub size_bytes: Result<u64, Absent>,
    /// What is known of its page cache.
    pub usage: Result<Usage, Absent>,
}

/// A directory that has been read.
#[derive(Clone, Copy, Debug)]
pub struct Directory<'a> {
    /// Its path, beginning with that of the walk.
    pub path: &'a [u8],
    /// How many levels it is below where the walk began.
    pub depth: usize,
    /// The sum of the regular files in it, without those in directories below.
    pub sum: Sum,
}

/// What could not be looked at.
#[derive(Clone, Copy, Debug)]
pub struct Failed<'a> {
    /// Its path.
    pub path: &'a [u8],
    /// Why.
    pub errno: Errno,
}

/// What a walk comes upon, in no certain order.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    /// A regular file, if each is to be reported.
    File(File<'a>),
    /// A directory has been read, if files are not reported.
    Directory(Directory<'a>),
    /// A directory that can't be read or a file that can't be asked about.
    Failed(Failed<'a>),
    /// The walk goes on: so many files so far. Every tenth of a second or so.
    Tick(u64),
}

/// Several files together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many files.
    pub files: u64,
    /// Their sizes.
    pub size_bytes: u64,
    /// How many of them were told about.
    pub answered: u64,
    /// What was told of those.
    counts: Counts,
    /// How many may not be told about.
    pub denied: u64,
}

impl Sum {
    /// Adds a file.
    pub fn add(&mut self, size_bytes: Result<u64, Absent>, usage: Result<Usage, Absent>) {
        self.files += 1;
        self.size_bytes += size_bytes.unwrap_or(0);
        match usage {
            Ok(usage) => {
                self.answered += 1;
                self.counts += usage.counts;
            }
            Err(Absent::Denied) => self.denied += 1,
            Err(_) => {}
        }
    }

    /// What `source` told of the files together; why there is nothing, if it told of none of them.
    pub fn usage(&self, source: Source) -> Result<Usage, Absent> {
        match (self.answered, self.files, self.denied) {
            (0, 1.., 1..) => Err(Absent::Denied),
            (0, 1.., 0) => Err(Absent::Unsupported),
            _ => Ok(Usage {
                source,
                counts: self.counts,
            }),
        }
    }
}

impl AddAssign for Sum {
    fn add_assign(&mut self, other: Sum) {
        self.files += other.files;
        self.size_bytes += other.size_bytes;
        self.answered += other.answered;
        self.counts += other.counts;
        self.denied += other.denied;
    }
}

/// What a walk came to, and what it left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The regular files.
    pub sum: Sum,
    /// Directories that were read.
    pub directories: u64,
    /// Files that vanished or became something else before they could be asked about.
    pub gone: u64,
    /// Directories that can't be read, and files that can't be asked about for another reason than a missing right.
    pub failed: u64,
    /// Further names of files that were counted before.
    pub linked: u64,
    /// Directories that were read before: they are mounted at several places.
    pub again: u64,
    /// Directories and files on other file systems, and directories of file systems without files that are cached, such as `/proc`.
    pub other_file_systems: u64,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Totals) {
        self.sum += other.sum;
        self.directories += other.directories;
        self.gone += other.gone;
        self.failed += other.failed;
        self.linked += other.linked;
        self.again += other.again;
        self.other_file_systems += other.other_file_systems;
    }
}

/// What was seen, for walks that are to count a file once between them.
#[derive(Debug, Default)]
pub struct Seen {
    directories: HashSet<FileId>,
    files: HashSet<FileId>,
    /// Files were added that may have one name only.
    any_name: bool,
}

impl Seen {
    /// Notes a file that was found in another way than by a walk. False if it was seen before.
    pub fn add_file(&mut self, id: FileId) -> bool {
        self.any_name = true;
        self.files.insert(id)
    }

    /// Whether a file is met for the first time. Only files with several names are remembered.
    fn is_new_file(&mut self, stat: &Stat) -> bool {
        if stat.st_nlink > 1 {
            self.files.insert(id(stat))
        } else {
            !self.files.contains(&id(stat))
        }
    }
}

impl Walk {
    /// Asks about a file, or about all files below a directory, and tells `visit` of them on this thread. A symbolic link
    /// is followed if `path` is one, but none below. `visit` ends the walk by breaking; so does setting `cancel`.
    ///
    /// # Errors
    ///
    /// When there is nothing at `path`, or it is neither a regular file nor a directory that can be opened (`EINVAL`).
    pub fn run(
        &self,
        path: &Path,
        seen: &mut Seen,
        cancel: &AtomicBool,
        visit: &mut dyn FnMut(Found<'_>) -> ControlFlow<()>,
    ) -> Result<Totals, Errno> {
        let name = path.as_os_str().as_bytes();
        // A FIFO or a device must not be opened even to see what it is.
        let stat = statat(CWD, path, AtFlags::empty())?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let flags = DIRECTORY_FLAGS.difference(OFlags::NOFOLLOW);
                let root = openat(CWD, path, flags, Mode::empty())?;
                self.tree(root, name, seen, cancel, visit)
            }
            FileType::RegularFile => {
                let mut totals = Totals::default();
                let path = CString::new(name).map_err(|_| Errno::INVAL)?;
                let flags = FILE_FLAGS.difference(OFlags::NOFOLLOW);
                match self.ask(CWD, &path, flags, &mut Closing::default(), |stat| {
                    seen.is_new_file(stat)
                }) {
                    Asked::Answered(size_bytes, usage) => {
                        totals.sum.add(size_bytes, usage);
                        let _ = visit(Found::File(File {
                            path: name,
                            size_bytes,
                            usage,
                        }));
                    }
                    Asked::Gone => return Err(Errno::NOENT),
                    Asked::Unwanted => totals.linked += 1,
                    Asked::Failed(errno) => return Err(errno),
                }
                Ok(totals)
            }
            _ => Err(Errno::INVAL),
        }
    }

    fn tree(
        &self,
        root: OwnedFd,
        path: &[u8],
        seen: &mut Seen,
        cancel: &AtomicBool,
        visit: &mut dyn FnMut(Found<'_>) -> ControlFlow<()>,
    ) -> Result<Totals, Errno> {
        let stat = fstat(&root)?;
        let threads = self.threads.max(1);
        let shared = Shared {
            walk: *self,
            root: id(&stat),
            root_path: path,
            most_waiting: (WAITING / threads).max(1),
            any_name: seen.any_name,
            seen: Mutex::new(seen),
            list: Mutex::new(List {
                given: vec![Waiting {
                    path: path.to_vec(),
                    depth: 0,
                    device: stat.st_dev,
                }],
                busy: 0,
            }),
            changed: Condvar::new(),
            idle: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            files: AtomicU64::new(0),
        };
        let (sender, receiver) = sync_channel(2 * threads);
        // Dropped by each thread once its table of descriptors is its own.
        let (starting, all_started) = sync_channel::<Infallible>(0);
        thread::scope(|scope| {
            let mut root = Some(root);
            let workers: Vec<_> = (0..threads)
                .map(|_| {
                    let (shared, sender, starting, root) = (&shared, sender.clone(), starting.clone(), root.take());
                    scope.spawn(move || {
                        if root.is_none() {
                            own_table();
                        }
                        drop(starting);
                        match root.or_else(|| shared.open_root()) {
                            Some(root) => Worker::new(shared, sender, root).run(),
                            None => Totals::default(),
                        }
                    })
                })
                .collect();
            drop((sender, starting));
            // Before the kernel empties a new table, it has all that the caller has open in it: what the caller closes while it
            // is told of files would not be closed yet.
            let _ = all_started.recv();
            deliver(&receiver, &shared, cancel, visit);
            // Whoever still sends is told that nobody listens.
            drop(receiver);
            let mut totals = Totals::default();
            for worker in workers {
                match worker.join() {
                    Ok(part) => totals += part,
                    Err(panic) => panic_again(&*panic),
                }
            }
            Ok(totals)
        })
    }

    /// Opens a regular file, looks at it and asks about it, if `is_wanted`. It is left to be closed with others.
    fn ask(
        &self,
        directory: BorrowedFd<'_>,
        name: &CStr,
        flags: OFlags,
        closing: &mut Closing,
        is_wanted: impl FnOnce(&Stat) -> bool,
    ) -> Asked {
        let mut opened = openat(directory, name, flags, Mode::empty());
        if matches!(opened, Err(Errno::MFILE | Errno::NFILE)) && !closing.is_empty() {
            closing.close();
            opened = openat(directory, name, flags, Mode::empty());
        }
        let file = match opened {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Asked::Gone,
            Err(Errno::ACCESS | Errno::PERM) => {
                let follow = if flags.contains(OFlags::NOFOLLOW) {
                    AtFlags::SYMLINK_NOFOLLOW
                } else {
                    AtFlags::empty()
                };
                return match statat(directory, name, follow) {
                    Ok(stat) if !is_regular(&stat) => Asked::Gone,
                    Ok(stat) if !is_wanted(&stat) => Asked::Unwanted,
                    Ok(stat) => Asked::Answered(Ok(stat.st_size as u64), Err(Absent::Denied)),
                    Err(_) => Asked::Answered(Err(Absent::Denied), Err(Absent::Denied)),
                };
            }
            Err(errno) => return Asked::Failed(errno),
        };
        let asked = self.ask_open(file.as_fd(), is_wanted);
        closing.push(file);
        asked
    }

    /// Looks at an open file and asks about it, if `is_wanted`.
    fn ask_open(&self, file: BorrowedFd<'_>, is_wanted: impl FnOnce(&Stat) -> bool) -> Asked {
        let stat = match fstat(file) {
            Ok(stat) => stat,
            Err(errno) => return Asked::Failed(errno),
        };
        if !is_regular(&stat) {
            return Asked::Gone;
        }
        if !is_wanted(&stat) {
            return Asked::Unwanted;
        }
        match self.source.ask(file, self.range) {
            Ok(usage) => Asked::Answered(Ok(stat.st_size as u64), Ok(usage)),
            Err(Refusal::Other(errno)) => Asked::Failed(errno),
            Err(refusal) => Asked::Answered(Ok(stat.st_size as u64), Err(refusal.absent())),
        }
    }
}

/// What became of a file.
enum Asked {
    /// Its size and what is cached, as far as they are told.
    Answered(Result<u64, Absent>, Result<Usage, Absent>),
    /// It vanished, or is no regular file any more.
    Gone,
    /// It was counted before, or is not of this walk.
    Unwanted,
    /// An error that says something about the host rather than about the caller's rights.
    Failed(Errno),
}

/// What the threads of a walk share.
struct Shared<'a> {
    walk: Walk,
    /// The directory the walk began at.
    root: FileId,
    root_path: &'a [u8],
    /// How many directories may wait in the list of a thread, with descriptors.
    most_waiting: usize,
    /// Whether files with one name may have been seen as well.
    any_name: bool,
    seen: Mutex<&'a mut Seen>,
    list: Mutex<List>,
    /// A directory was given, or all is done.
    changed: Condvar,
    /// Threads that wait for one.
    idle: AtomicUsize,
    stop: AtomicBool,
    files: AtomicU64,
}

impl Shared<'_> {
    /// Opens the root for a thread that has nothing open yet. `None` if that is not to be had: the working directory may have
    /// changed, or another directory have got the name.
    fn open_root(&self) -> Option<OwnedFd> {
        let flags = DIRECTORY_FLAGS.difference(OFlags::NOFOLLOW);
        let root = openat(CWD, self.root_path, flags, Mode::empty()).ok()?;
        let stat = fstat(&root).ok()?;
        (id(&stat) == self.root).then_some(root)
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // The lock makes sure that no thread is between looking and waiting.
        drop(self.list());
        self.changed.notify_all();
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// The directories that threads have left to others.
struct List {
    /// The last one is read first.
    given: Vec<Waiting>,
    /// Threads that read directories, and may give some.
    busy: usize,
}

/// A directory that waits to be read.
struct Waiting {
    path: Vec<u8>,
    depth: usize,
    /// The device of the directory above.
    device: u64,
}

/// Tells of what the threads send, until all of them have ended or the caller has had enough.
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
            ControlFlow::Continue(()) => visit(Found::Tick(shared.files.load(Ordering::Relaxed))),
            broken => broken,
        };
        if flow.is_break() {
            return shared.stop();
        }
        if cancel.load(Ordering::Relaxed) && !shared.is_stopped() {
            // What has been found is still told.
            shared.stop();
        }
    }
}

/// Things found, with their paths in one piece of memory.
#[derive(Default)]
struct Batch {
    text: Vec<u8>,
    items: Vec<Item>,
    since: Option<Instant>,
}

struct Item {
    /// Where its path ends in the text; it begins where that of the item before ends.
    path_end: usize,
    what: What,
}

enum What {
    File(Result<u64, Absent>, Result<Usage, Absent>),
    Directory(usize, Sum),
    Failed(Errno),
}

impl Batch {
    fn visit(&self, visit: &mut dyn FnMut(Found<'_>) -> ControlFlow<()>) -> ControlFlow<()> {
        let mut start = 0;
        for item in &self.items {
            let path = &self.text[mem::replace(&mut start, item.path_end)..item.path_end];
            visit(match item.what {
                What::File(size_bytes, usage) => Found::File(File {
                    path,
                    size_bytes,
                    usage,
                }),
                What::Directory(depth, sum) => Found::Directory(Directory { path, depth, sum }),
                What::Failed(errno) => Found::Failed(Failed { path, errno }),
            })?;
        }
        ControlFlow::Continue(())
    }

    fn is_full(&self) -> bool {
        self.items.len() >= BATCH_ITEMS || self.text.len() >= BATCH_BYTES
    }
}

/// A thread of a walk.
struct Worker<'a> {
    shared: &'a Shared<'a>,
    sender: SyncSender<Batch>,
    batch: Batch,
    totals: Totals,
    root: OwnedFd,
    /// Directories that it is to read, the last one first, each with the one above it if that is still open.
    waiting: Vec<(Waiting, Option<Rc<OwnedFd>>)>,
    /// Files that were asked about.
    closing: Closing,
    /// Room for entries, one for each level that the thread is in.
    buffers: Vec<Buffer>,
}

/// Room for the entries of a directory.
struct Buffer {
    /// As the kernel writes them.
    entries: Vec<u8>,
    files: Files,
}

impl Buffer {
    fn new() -> Buffer {
        Buffer {
            entries: Vec::with_capacity(ENTRIES),
            files: Files::default(),
        }
    }
}

/// Regular files that are to be asked about, in the order of their inode numbers: mostly the order in which they were made, in
/// which what the kernel keeps of them lies in memory and on disk. A file system that hashes names lists them in another one.
#[derive(Default)]
struct Files {
    /// Inode numbers, and where the names lie.
    files: Vec<(u64, Range<usize>)>,
    /// With their NULs.
    names: Vec<u8>,
}

impl Files {
    fn add(&mut self, inode: u64, name: &CStr) {
        let start = self.names.len();
        self.names.extend_from_slice(name.to_bytes_with_nul());
        self.files.push((inode, start..self.names.len()));
    }

    fn take(&mut self, mut take: impl FnMut(&CStr)) {
        self.files.sort_unstable_by_key(|&(inode, _)| inode);
        for (_, name) in self.files.drain(..) {
            take(CStr::from_bytes_with_nul(&self.names[name]).expect("names end in NUL"));
        }
        self.names.clear();
    }
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared<'a>, sender: SyncSender<Batch>, root: OwnedFd) -> Worker<'a> {
        Worker {
            shared,
            sender,
            batch: Batch::default(),
            totals: Totals::default(),
            root,
            waiting: Vec::new(),
            closing: Closing::default(),
            buffers: Vec::new(),
        }
    }

    fn run(mut self) -> Totals {
        while let Some(given) = self.next() {
            self.waiting.push((given, None));
            while let Some((waiting, above)) = self.waiting.pop() {
                if self.shared.is_stopped() {
                    break;
                }
                self.give();
                self.read(waiting, above);
            }
            self.done();
        }
        self.send();
        self.totals
    }

    fn read(&mut self, waiting: Waiting, above: Option<Rc<OwnedFd>>) {
        let Waiting {
            mut path,
            depth,
            device,
        } = waiting;
        let opened = match &above {
            Some(above) => openat(above, last_name(&path), DIRECTORY_FLAGS, Mode::empty()),
            None => self.open_by_path(&path),
        };
        // Gives back the descriptor of the directory above before going down.
        drop(above);
        match opened {
            Ok(directory) => self.directory(directory, &mut path, depth, device, LEVELS),
            Err(errno) => self.not_opened(&path, errno),
        }
    }

    /// A directory that another thread has left; `None` when all are read or the walk was stopped.
    fn next(&mut self) -> Option<Waiting> {
        let shared = self.shared;
        let mut list = shared.list();
        loop {
            if shared.is_stopped() {
                return None;
            }
            if let Some(given) = list.given.pop() {
                list.busy += 1;
                return Some(given);
            }
            if list.busy == 0 {
                shared.changed.notify_all();
                return None;
            }
            if !self.batch.items.is_empty() {
                // It would wait as long as this thread.
                drop(list);
                self.send();
                list = shared.list();
                continue;
            }
            shared.idle.fetch_add(1, Ordering::Relaxed);
            list = shared.changed.wait(list).unwrap_or_else(PoisonError::into_inner);
            shared.idle.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn done(&mut self) {
        let mut list = self.shared.list();
        list.busy -= 1;
        if list.busy == 0 && list.given.is_empty() {
            self.shared.changed.notify_all();
        }
    }

    /// Leaves directories to threads that have none: those nearest to the root, below which there may be most.
    fn give(&mut self) {
        if self.shared.idle.load(Ordering::Relaxed) == 0 || self.waiting.is_empty() {
            return;
        }
        let mut list = self.shared.list();
        if !list.given.is_empty() {
            // They have not come to take these yet.
            return;
        }
        let half = self.waiting.len().div_ceil(2);
        list.given
            .extend(self.waiting.drain(..half).rev().map(|(waiting, _)| waiting));
        drop(list);
        self.shared.changed.notify_all();
    }

    /// Opens a directory by its path below the root, name by name, so that no link is followed and no path is too long.
    fn open_by_path(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let below = path.strip_prefix(self.shared.root_path).unwrap_or(path);
        let mut directory = openat(&self.root, c".", DIRECTORY_FLAGS, Mode::empty())?;
        for name in below.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            directory = openat(&directory, name, DIRECTORY_FLAGS, Mode::empty())?;
        }
        Ok(directory)
    }

    /// Reads a directory. `path` is the same again afterwards.
    fn directory(&mut self, directory: OwnedFd, path: &mut Vec<u8>, depth: usize, device_above: u64, levels: usize) {
        let stat = match fstat(&directory) {
            Ok(stat) => stat,
            Err(errno) => return self.failed(path, errno),
        };
        if stat.st_dev != device_above && self.is_left_out(&directory, &stat) {
            self.totals.other_file_systems += 1;
            return;
        }
        let is_new = {
            let mut seen = self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.directories.insert(id(&stat))
        };
        if !is_new {
            self.totals.again += 1;
            return;
        }
        let mut buffer = self.buffers.pop().unwrap_or_else(Buffer::new);
        let directory = Rc::new(directory);
        let path_len = path.len();
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        let prefix_len = path.len();
        let mut sum = Sum::default();
        let mut failure = None;
        let mut entries = RawDir::new(directory.as_fd(), buffer.entries.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(errno) => {
                    failure = Some(errno);
                    break;
                }
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if self.shared.is_stopped() {
                break;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                    Err(_) => {
                        self.totals.gone += 1;
                        continue;
                    }
                },
                known => known,
            };
            match kind {
                FileType::RegularFile => buffer.files.add(entry.ino(), name),
                FileType::Directory => {
                    path.extend_from_slice(name.to_bytes());
                    self.below(&directory, name, path, depth + 1, stat.st_dev, levels);
                    path.truncate(prefix_len);
                }
                _ => {}
            }
            if entries.is_buffer_empty() {
                self.files(&mut buffer.files, &directory, path, &stat, &mut sum);
                self.give();
            }
        }
        self.files(&mut buffer.files, &directory, path, &stat, &mut sum);
        path.truncate(path_len);
        self.closing.close();
        self.buffers.push(buffer);
        self.totals.directories += 1;
        self.totals.sum += sum;
        if !self.shared.walk.each_file {
            self.found(path, What::Directory(depth, sum));
        }
        if let Some(errno) = failure {
            self.not_opened(path, errno);
        }
        if self.batch.since.is_some_and(|since| since.elapsed() > BATCH_AGE) {
            self.send();
        }
    }

    /// Whether a directory on another file system than the one above it is not for this walk.
    fn is_left_out(&self, directory: &OwnedFd, stat: &Stat) -> bool {
        if self.shared.walk.one_file_system {
            stat.st_dev != self.shared.root.0
        } else {
            fstatfs(directory).is_ok_and(|fs| is_uncached(fs.f_type as u64))
        }
    }

    /// Leaves a directory for later, or reads it at once if too many wait.
    fn below(
        &mut self,
        above: &Rc<OwnedFd>,
        name: &CStr,
        path: &mut Vec<u8>,
        depth: usize,
        device: u64,
        levels: usize,
    ) {
        let above = match self.waiting.len() < self.shared.most_waiting {
            true => Some(above.clone()),
            false if levels == 0 => None,
            false => {
                self.closing.close();
                return match openat(above, name, DIRECTORY_FLAGS, Mode::empty()) {
                    Ok(directory) => self.directory(directory, path, depth, device, levels - 1),
                    Err(errno) => self.not_opened(path, errno),
                };
            }
        };
        let path = path.clone();
        self.waiting.push((Waiting { path, depth, device }, above));
        self.give();
    }

    /// Asks about files of a directory, whose path with a slash at its end is `path`.
    fn files(&mut self, files: &mut Files, directory: &OwnedFd, path: &mut Vec<u8>, above: &Stat, sum: &mut Sum) {
        let (told, prefix_len) = (sum.files, path.len());
        files.take(|name| {
            if !self.shared.is_stopped() {
                path.extend_from_slice(name.to_bytes());
                self.file(directory, name, path, above, sum);
                path.truncate(prefix_len);
            }
        });
        self.shared.files.fetch_add(sum.files - told, Ordering::Relaxed);
    }

    fn file(&mut self, directory: &OwnedFd, name: &CStr, path: &[u8], above: &Stat, sum: &mut Sum) {
        let shared = self.shared;
        let mut elsewhere = false;
        let closing = &mut self.closing;
        let asked = shared.walk.ask(directory.as_fd(), name, FILE_FLAGS, closing, |stat| {
            // A single file can be a mount too.
            elsewhere = shared.walk.one_file_system && stat.st_dev != above.st_dev;
            if elsewhere {
                return false;
            }
            if stat.st_nlink == 1 && !shared.any_name {
                return true;
            }
            let mut seen = shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.is_new_file(stat)
        });
        match asked {
            Asked::Answered(size_bytes, usage) => {
                sum.add(size_bytes, usage);
                if shared.walk.each_file {
                    self.found(path, What::File(size_bytes, usage));
                }
            }
            Asked::Gone => self.totals.gone += 1,
            Asked::Unwanted if elsewhere => self.totals.other_file_systems += 1,
            Asked::Unwanted => self.totals.linked += 1,
            Asked::Failed(errno) => self.failed(path, errno),
        }
    }

    /// A directory that could not be opened: if it is one no more, that is no failure.
    fn not_opened(&mut self, path: &[u8], errno: Errno) {
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => self.totals.gone += 1,
            errno => self.failed(path, errno),
        }
    }

    fn failed(&mut self, path: &[u8], errno: Errno) {
        self.totals.failed += 1;
        self.found(path, What::Failed(errno));
    }

    fn found(&mut self, path: &[u8], what: What) {
        self.batch.text.extend_from_slice(path);
        self.batch.items.push(Item {
            path_end: self.batch.text.len(),
            what,
        });
        let since = *self.batch.since.get_or_insert_with(Instant::now);
        if self.batch.is_full() || (self.batch.items.len() % BATCH_LOOKS == 0 && since.elapsed() > BATCH_AGE) {
            self.send();
        }
    }

    /// Sends what was found, and waits while the caller has not taken what was sent before.
    fn send(&mut self) {
        self.closing.close();
        let batch = mem::take(&mut self.batch);
        if !batch.items.is_empty() && self.sender.send(batch).is_err() {
            self.shared.stop();
        }
    }
}

/// Goes on with the panic of a thread. In a table of its own it had no standard error to say anything on.
fn panic_again(panic: &(dyn Any + Send)) -> ! {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    panic!("a thread of a walk: {}", text.unwrap_or("no text"))
}

/// The last name of a path.
fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// Whether a file system's files are made up when they are read, so that nothing of them is in the page cache. Opening all of
/// them would be long work, and for some not without effect.
fn is_uncached(magic: u64) -> bool {
    const UNCACHED: [u64; 17] = [
        0x9fa0,      // proc
        0x6265_6572, // sysfs
        0x6462_6720, // debugfs
        0x7472_6163, // tracefs
        0x0027_e0eb, // cgroup
        0x6367_7270, // cgroup2
        0x7363_6673, // securityfs
        0xcafe_4a11, // bpf
        0x1cd1,      // devpts
        0x6265_6570, // configfs
        0xf97c_ff8c, // selinux
        0xde5e_81e4, // efivarfs
        0x6165_676c, // pstore
        0x6573_5543, // fusectl
        0x4249_4e4d, // binfmt_misc
        0x1980_0202, // mqueue
        0x6759_6969, // rpc_pipefs
    ];
    UNCACHED.contains(&(magic & 0xffff_ffff))
}
