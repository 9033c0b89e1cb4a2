//! The threads of a walk, and what they share.

use std::ffi::CStr;
use std::mem;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::fs::{fstat, fstatfs, openat, statat, statx, AtFlags, FileType, Mode, RawDir, Stat, StatxFlags, CWD};
use rustix::io::Errno;
use taskdiag_sys::descriptors::Closing;

use super::batch::{Batch, What};
use super::found::{FileId, Seen, Sum, Totals};
use super::{id, FileOutcome, Walk, DIRECTORY_FLAGS, FILE_FLAGS, ROOT_FLAGS};
use crate::mutex::lock;

/// The most directories that may wait in the lists of all threads. Each may keep a descriptor of
/// its parent open.
const MAX_WAITING: usize = 128;

/// How many levels a thread descends on its own, each with an open descriptor.
const LEVELS: usize = 16;

/// Room for the directory entries that one call returns.
const ENTRIES: usize = 32 << 10;

/// Shared by the threads of a walk.
pub(super) struct Shared<'a> {
    walk: Walk,
    /// The directory where the walk began.
    root: FileId,
    root_path: &'a [u8],
    /// How many directories may wait in the list of one thread, with descriptors.
    most_waiting: usize,
    /// Files with only one name may have been seen before.
    any_name: bool,
    seen: Mutex<&'a mut Seen>,
    list: Mutex<List>,
    /// A directory was given, or everything is done.
    changed: Condvar,
    /// How many threads wait for a directory.
    idle: AtomicUsize,
    stop: AtomicBool,
    files: AtomicU64,
}

/// The directories that threads have given to others.
struct List {
    /// The last one is read first.
    given: Vec<Waiting>,
    /// Threads that are reading directories and may give some away.
    busy: usize,
}

/// A directory that waits to be read.
struct Waiting {
    path: Vec<u8>,
    depth: usize,
    /// The device of the parent directory.
    device: u64,
}

impl<'a> Shared<'a> {
    pub(super) fn new(walk: Walk, root: &Stat, path: &'a [u8], seen: &'a mut Seen) -> Shared<'a> {
        Shared {
            walk,
            root: id(root),
            root_path: path,
            most_waiting: (MAX_WAITING / walk.threads).max(1),
            any_name: seen.any_name,
            seen: Mutex::new(seen),
            list: Mutex::new(List {
                given: vec![Waiting {
                    path: path.to_vec(),
                    depth: 0,
                    device: root.st_dev,
                }],
                busy: 0,
            }),
            changed: Condvar::new(),
            idle: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            files: AtomicU64::new(0),
        }
    }

    /// Opens the root for a thread that has nothing open yet. `None` if it is gone: the working
    /// directory may have changed, or another directory may have taken its name.
    pub(super) fn open_root(&self) -> Option<OwnedFd> {
        let root = openat(CWD, self.root_path, ROOT_FLAGS, Mode::empty()).ok()?;
        let stat = fstat(&root).ok()?;
        (id(&stat) == self.root).then_some(root)
    }

    /// How many files were asked about.
    pub(super) fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    fn list(&self) -> MutexGuard<'_, List> {
        lock(&self.list)
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // While this holds the lock, no thread is between its check and its wait.
        drop(self.list());
        self.changed.notify_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// A thread of a walk.
pub(super) struct Worker<'a> {
    shared: &'a Shared<'a>,
    sender: SyncSender<Batch>,
    batch: Batch,
    totals: Totals,
    root: OwnedFd,
    /// Directories that this thread has yet to read, the last one first. Each comes with its parent
    /// if that is still open.
    waiting: Vec<(Waiting, Option<Rc<OwnedFd>>)>,
    /// Files that were queried and are to be closed.
    closing: Closing,
    /// Buffers for entries, one for each level that the thread has descended.
    buffers: Vec<Buffer>,
}

/// A directory that is being read.
struct Open<'d> {
    directory: &'d Rc<OwnedFd>,
    stat: &'d Stat,
    depth: usize,
    /// How many more levels the thread may descend.
    levels: usize,
}

/// A buffer for the entries of a directory.
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

/// Regular files to ask about, by ascending inode number. That is mostly the order of their
/// creation, and therefore of the kernel's data about them in memory and on disk. A file system
/// that hashes names lists files in another order.
#[derive(Default)]
struct Files {
    /// Inode numbers, and where the names are.
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
    pub(super) fn new(shared: &'a Shared<'a>, sender: SyncSender<Batch>, root: OwnedFd) -> Worker<'a> {
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

    pub(super) fn run(mut self) -> Totals {
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
        // Close the parent before descending.
        drop(above);
        match opened {
            Ok(directory) => self.directory(directory, &mut path, depth, device, LEVELS),
            Err(errno) => self.not_opened(&path, errno),
        }
    }

    /// A directory that another thread has given away. `None` when all are read or the walk was
    /// stopped.
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
            if !self.batch.is_empty() {
                // Otherwise the batch would wait as long as this thread.
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

    /// Gives directories to idle threads: those nearest to the root, which may have the most below
    /// them.
    fn give(&mut self) {
        if self.shared.idle.load(Ordering::Relaxed) == 0 || self.waiting.is_empty() {
            return;
        }
        let mut list = self.shared.list();
        if !list.given.is_empty() {
            // The idle threads have not taken these yet.
            return;
        }
        let half = self.waiting.len().div_ceil(2);
        list.given
            .extend(self.waiting.drain(..half).rev().map(|(waiting, _)| waiting));
        drop(list);
        self.shared.changed.notify_all();
    }

    /// Opens a directory by its path below the root, name by name, so that no link is followed and
    /// no path is too long.
    fn open_by_path(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let below = path.strip_prefix(self.shared.root_path).unwrap_or(path);
        let mut directory = openat(&self.root, c".", DIRECTORY_FLAGS, Mode::empty())?;
        for name in below.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            directory = openat(&directory, name, DIRECTORY_FLAGS, Mode::empty())?;
        }
        Ok(directory)
    }

    /// Reads a directory. `path` is unchanged afterwards.
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
            let mut seen = lock(&self.shared.seen);
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
        let open = Open {
            directory: &directory,
            stat: &stat,
            depth,
            levels,
        };
        let mut sum = Sum::default();
        let read = self.entries(&open, path, &mut buffer, &mut sum);
        self.files(&open, &mut buffer.files, path, &mut sum);
        path.truncate(path_len);
        self.closing.close();
        self.buffers.push(buffer);
        self.totals.directories += 1;
        self.totals.sum += sum;
        if !self.shared.walk.each_file {
            self.found(path, What::Directory(depth, sum));
        }
        if let Err(errno) = read {
            self.not_opened(path, errno);
        }
        if self.batch.is_old() {
            self.send();
        }
    }

    /// Reads the entries of a directory. `path` is its path with a slash at the end.
    fn entries(
        &mut self,
        open: &Open<'_>,
        path: &mut Vec<u8>,
        buffer: &mut Buffer,
        sum: &mut Sum,
    ) -> Result<(), Errno> {
        let prefix_len = path.len();
        let mut entries = RawDir::new(open.directory.as_fd(), buffer.entries.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if self.shared.is_stopped() {
                break;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => match statat(open.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
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
                    self.below(open, name, path);
                    path.truncate(prefix_len);
                }
                _ => {}
            }
            if entries.is_buffer_empty() {
                self.files(open, &mut buffer.files, path, sum);
                self.give();
            }
        }
        Ok(())
    }

    /// Whether a directory on another file system than its parent is excluded from this walk.
    fn is_left_out(&self, directory: &OwnedFd, stat: &Stat) -> bool {
        if self.shared.walk.one_file_system {
            stat.st_dev != self.shared.root.0
        } else {
            fstatfs(directory).is_ok_and(|fs| is_uncached(fs.f_type as u64))
        }
    }

    /// Leaves a directory for later, or reads it at once if too many wait.
    fn below(&mut self, above: &Open<'_>, name: &CStr, path: &mut Vec<u8>) {
        let (depth, device) = (above.depth + 1, above.stat.st_dev);
        let has_room = self.waiting.len() < self.shared.most_waiting;
        if !has_room && above.levels > 0 {
            self.closing.close();
            return match openat(above.directory, name, DIRECTORY_FLAGS, Mode::empty()) {
                Ok(directory) => self.directory(directory, path, depth, device, above.levels - 1),
                Err(errno) => self.not_opened(path, errno),
            };
        }
        let above = has_room.then(|| Rc::clone(above.directory));
        let path = path.clone();
        self.waiting.push((Waiting { path, depth, device }, above));
        self.give();
    }

    /// Asks about files of a directory. `path` is its path with a slash at the end.
    fn files(&mut self, open: &Open<'_>, files: &mut Files, path: &mut Vec<u8>, sum: &mut Sum) {
        let (before, prefix_len) = (sum.files, path.len());
        files.take(|name| {
            if !self.shared.is_stopped() {
                path.extend_from_slice(name.to_bytes());
                self.file(open, name, path, sum);
                path.truncate(prefix_len);
            }
        });
        self.shared.files.fetch_add(sum.files - before, Ordering::Relaxed);
    }

    fn file(&mut self, open: &Open<'_>, name: &CStr, path: &[u8], sum: &mut Sum) {
        let shared = self.shared;
        let mut is_elsewhere = false;
        let closing = &mut self.closing;
        let asked = shared
            .walk
            .ask(open.directory.as_fd(), name, FILE_FLAGS, closing, |stat| {
                // A single file can be a mount point too. Not only that has another device than its
                // directory: overlayfs has one for each file system that its files come from.
                is_elsewhere = shared.walk.one_file_system
                    && stat.st_dev != open.stat.st_dev
                    && !is_in_mount_of(open.directory.as_fd(), name);
                if is_elsewhere {
                    return false;
                }
                if stat.st_nlink == 1 && !shared.any_name {
                    return true;
                }
                let mut seen = lock(&shared.seen);
                seen.is_new_file(stat)
            });
        match asked {
            FileOutcome::Answered(size_bytes, usage) => {
                sum.add(size_bytes, usage);
                if shared.walk.each_file {
                    self.found(path, What::File(size_bytes, usage));
                }
            }
            FileOutcome::Gone => self.totals.gone += 1,
            FileOutcome::Unwanted if is_elsewhere => self.totals.other_file_systems += 1,
            FileOutcome::Unwanted => self.totals.linked += 1,
            FileOutcome::Failed(errno) => self.failed(path, errno),
        }
    }

    /// Records a directory that could not be opened. A directory that no longer exists does not
    /// count as a failure.
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
        if self.batch.add(path, what) {
            self.send();
        }
    }

    /// Sends the results. Waits while the caller has not received earlier batches.
    fn send(&mut self) {
        self.closing.close();
        let batch = mem::take(&mut self.batch);
        if !batch.is_empty() && self.sender.send(batch).is_err() {
            self.shared.stop();
        }
    }
}

/// Whether a file is in the same mount as its directory. False on kernels before 5.8, which do not
/// say it.
fn is_in_mount_of(directory: BorrowedFd<'_>, name: &CStr) -> bool {
    let mount = |name, flags| {
        let status = statx(directory, name, flags, StatxFlags::MNT_ID).ok()?;
        (status.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(status.stx_mnt_id)
    };
    let of_file = mount(name, AtFlags::SYMLINK_NOFOLLOW);
    of_file.is_some() && of_file == mount(c"", AtFlags::EMPTY_PATH)
}

/// The last name of a path.
fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// Whether a file system generates the content of files when they are read, so that the page cache
/// holds nothing of them. Opening all of them would take long, and opening some has side effects.
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
