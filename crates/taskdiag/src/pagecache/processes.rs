//! The regular files and block devices that a process has open or mapped, including deleted files
//! and memory files.
//!
//! They are reopened through the links in `/proc/PID/fd` (proc_pid_fd(5)) and `/proc/PID/map_files`
//! (proc_pid_map_files(5)), which lead to the file itself even if it was renamed or deleted.
//! Following the second kind requires `CAP_CHECKPOINT_RESTORE` or `CAP_SYS_ADMIN`. Without these, a
//! mapped file is opened by its path, if that still leads to the same file.
//!
//! A process can hold files of a file system that does not answer, and can keep others from reading
//! its mappings. So a watched thread reads its mappings, a separate process opens the files and
//! asks about them, and both are given up when the patience ends.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{fstat, openat, readlinkat, statx, AtFlags, FileType, Mode, OFlags, RawDir, StatxFlags};
use rustix::io::{retry_on_intr, Errno};
use taskdiag_core::absent::Absent;
use taskdiag_core::error::{Error, ErrorKind};
use taskdiag_core::text::maps::{self as text, Line};
use taskdiag_sys::isolated::{Failed, WorkFiles};
use taskdiag_sys::pagecache::Cachestat;

use super::walk::{File, FileId, Seen};
use super::{has_pages, size, ByteRange, Refusal, Source, Usage};
use crate::errands::{self, Errands, Way};
use crate::readers;
use crate::source::procfs::{self, Proc};

/// How long mincore(2) may take for one file, and for all files that take as long as that; for each
/// behind them, it may take the least. Anybody can make sparse files of any size.
const MAX_FILE_TIME: Duration = Duration::from_millis(500);
const MAX_FILES_TIME: Duration = Duration::from_secs(4);
const LEAST_FILE_TIME: Duration = Duration::from_millis(5);

/// Finds the files that processes hold, and asks about them.
#[derive(Debug)]
pub struct Finder {
    proc: Proc,
    /// Whether the ids of `proc` are known to be the caller's.
    is_own_proc: bool,
    source: Source,
    range: ByteRange,
    patience: Duration,
    errands: Errands,
    /// What is left of [`MAX_FILES_TIME`].
    time_left: Duration,
}

impl Finder {
    /// A finder that asks `source` about `range` of each file. `patience` is how long one system
    /// call about a process or a file may make no progress.
    pub fn new(source: Source, range: ByteRange, patience: Duration) -> Finder {
        Finder {
            proc: Proc::default(),
            is_own_proc: false,
            source,
            range,
            patience,
            errands: Errands::new(patience),
            time_left: MAX_FILES_TIME,
        }
    }

    /// Reads another procfs than `/proc`.
    pub fn with_proc(mut self, proc: Proc) -> Finder {
        self.proc = proc;
        self.is_own_proc = false;
        self
    }

    /// Calls `each` with the regular files and block devices that a process has open or mapped and
    /// that are not in `seen` yet.
    ///
    /// # Errors
    ///
    /// [`NoSuchTask`](ErrorKind::NoSuchTask) if there is no such process,
    /// [`Denied`](ErrorKind::Denied) if the caller may not see what it holds (ptrace(2),
    /// `PTRACE_MODE_READ_FSCREDS`), and [`NoAnswer`](ErrorKind::NoAnswer) if it did not let its
    /// mappings be read. `each` has then been called with the files that it has open.
    pub fn held_files(&mut self, pid: u32, seen: &mut Seen, each: &mut dyn FnMut(File<'_>)) -> Result<(), Error> {
        self.all_held_files(pid, seen, &mut |_, file| file.into_iter().for_each(&mut *each))
    }
}

/// For the other crates of this project.
#[doc(hidden)]
impl Finder {
    /// The ids of all processes.
    pub fn pids(&self) -> Result<Vec<u32>, Error> {
        procfs::pids(&self.proc)
    }

    /// The same, but calls `each` with all files: those in `seen` are not asked about again, and have
    /// only an id. A file may come several times.
    pub fn all_held_files(
        &mut self,
        pid: u32,
        seen: &mut Seen,
        each: &mut dyn FnMut(FileId, Option<File<'_>>),
    ) -> Result<(), Error> {
        let about = |errno: Errno| match errno {
            Errno::NOENT | Errno::SRCH => Error::new(ErrorKind::NoSuchTask, format!("pid {pid}: no such process")),
            Errno::ACCESS | Errno::PERM => {
                let message = format!("pid {pid}: you may not see the files it holds");
                Error::new(ErrorKind::Denied, message)
            }
            Errno::TIMEDOUT => Error::no_answer(Some(pid)),
            Errno::AGAIN => Error::not_read(Some(pid), Absent::NoThread),
            errno => Error::io(format!("pid {pid}: the files it holds"), errno),
        };
        // Its ids may be those of other processes.
        if !self.is_own_proc {
            self.proc.open()?;
            self.is_own_proc = true;
        }
        let process = procfs::live_directory(&self.proc, pid).map_err(about)?;
        let mut holder = Holder {
            pid,
            process,
            finder: self,
            seen,
            each,
        };
        holder.open_files().map_err(about)?;
        holder.mapped_files().map_err(about)
    }
}

/// The id of the file behind a link of `/proc`; `None` for FIFOs, character devices and the like.
/// Following the link opens nothing, and with `STATX_DONT_SYNC` its file system is not asked.
fn id_of(process: BorrowedFd<'_>, path: &CStr) -> Result<Option<FileId>, Errno> {
    let stat = statx(
        process,
        path,
        AtFlags::STATX_DONT_SYNC,
        StatxFlags::TYPE | StatxFlags::INO,
    )?;
    let kind = FileType::from_raw_mode(stat.stx_mode.into());
    let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    Ok(matches!(kind, FileType::RegularFile | FileType::BlockDevice).then_some((device, stat.stx_ino)))
}

/// The mappings of files.
fn mapped_lines(bytes: &[u8]) -> impl Iterator<Item = Line<'_>> {
    let lines = bytes.split(|&byte| byte == b'\n').filter_map(text::line);
    lines.filter(|line| line.inode != 0)
}

/// The link to the file of a mapping.
fn map_link(mapped: &Line<'_>) -> CString {
    CString::new(format!("map_files/{:x}-{:x}", mapped.start, mapped.end)).unwrap_or_default()
}

/// The ids of mapped files, of those that are mapped several times by their first mapping that is
/// there. It may wait for the memory of the process.
fn mapped_ids(process: BorrowedFd<'_>, bytes: &[u8]) -> Vec<Result<Option<FileId>, Errno>> {
    let mut known: HashMap<_, Result<Option<FileId>, Errno>> = HashMap::new();
    let mut denied = None;
    let ids = mapped_lines(bytes).map(|mapped| {
        // Whoever may follow one link may follow all of them.
        if let Some(errno) = denied {
            return Err(errno);
        }
        let id = known
            .entry((mapped.device, mapped.inode, mapped.name))
            .or_insert(Err(Errno::NOENT));
        if id.is_err() {
            readers::beat();
            *id = id_of(process, &map_link(&mapped));
        }
        denied = id.err().filter(|errno| matches!(*errno, Errno::PERM | Errno::ACCESS));
        *id
    });
    ids.collect()
}

struct Holder<'a> {
    pid: u32,
    process: OwnedFd,
    finder: &'a mut Finder,
    seen: &'a mut Seen,
    each: &'a mut dyn FnMut(FileId, Option<File<'_>>),
}

impl Holder<'_> {
    fn open_files(&mut self) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(&self.process, c"fd", flags, Mode::empty())?;
        let mut buffer = Vec::with_capacity(8 << 10);
        let mut entries = RawDir::new(directory.as_fd(), buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            if entry.file_type() == FileType::Symlink {
                let link = entry.file_name();
                let name =
                    readlinkat(&directory, link, Vec::new()).map_or_else(|_| Vec::new(), |name| name.into_bytes());
                let path = CString::new([b"fd/", link.to_bytes()].concat()).map_err(|_| Errno::INVAL)?;
                // A file that vanishes in between is not held any more.
                if let Ok(Some(id)) = id_of(self.process.as_fd(), &path) {
                    let _ = self.through_link(&path, id, &name);
                }
            }
        }
        Ok(())
    }

    fn mapped_files(&mut self) -> Result<(), Errno> {
        let process = self.process.try_clone().map_err(|_| Errno::MFILE)?;
        let read = readers::call(
            &self.finder.proc,
            self.pid,
            readers::MAPPINGS,
            self.finder.patience,
            move || {
                let bytes = read_maps(process.as_fd())?;
                // Links may wait for the memory of the process although its mappings did not.
                let ids = mapped_ids(process.as_fd(), &bytes);
                Ok((bytes, ids))
            },
        );
        let silent = |reason| match reason {
            Absent::NoThread => Err(Errno::AGAIN),
            _ => Err(Errno::TIMEDOUT),
        };
        let (bytes, ids) = match read.unwrap_or_else(silent) {
            // A kernel thread, or a process that has just ended.
            Err(Errno::SRCH) => return Ok(()),
            result => result?,
        };
        let mut before = HashSet::new();
        for (mapped, id) in mapped_lines(&bytes).zip(ids) {
            let file = (mapped.device, mapped.inode, mapped.name);
            if before.contains(&file) {
                continue;
            }
            let mut name = Vec::new();
            text::unescape(mapped.name, &mut name);
            let asked = match id {
                Ok(Some(id)) => self.through_link(&map_link(&mapped), id, &name),
                Ok(None) => Ok(()),
                Err(Errno::PERM | Errno::ACCESS) => {
                    self.by_path(&mapped, &name);
                    Ok(())
                }
                Err(errno) => Err(errno),
            };
            // A file whose first mapping is gone may have others.
            if asked.is_ok() {
                before.insert(file);
            }
        }
        Ok(())
    }

    /// Asks about a file with this id through a link of `/proc`, unless it was seen before.
    fn through_link(&mut self, path: &CStr, id: FileId, name: &[u8]) -> Result<(), Errno> {
        if self.seen.has_file(id) {
            (self.each)(id, None);
            return Ok(());
        }
        let asked = self.ask(path, id.0, |opened| opened == id);
        if let Err(Failed::Errno(errno @ (Errno::NOENT | Errno::SRCH))) = asked {
            return Err(errno);
        }
        self.seen.add_file(id);
        self.report(id, name, asked.map(|(_, answer)| answer));
        Ok(())
    }

    /// Asks about a mapped file by the path of the mapping, if the path still leads to the same
    /// file.
    fn by_path(&mut self, mapped: &Line<'_>, name: &[u8]) {
        // The process's root directory need not be the caller's.
        let below_root = name.strip_prefix(b"/").unwrap_or(name);
        let Ok(path) = CString::new([b"root/", below_root].concat()) else {
            return;
        };
        let device = rustix::fs::makedev(mapped.device.major, mapped.device.minor);
        let is_meant = |found| Way::TheirRoot.leads_to((mapped.device, mapped.inode), found);
        match self.ask(&path, device, is_meant) {
            Ok((id, answer)) => {
                if self.seen.add_file(id) {
                    self.report(id, name, Ok(answer));
                } else {
                    (self.each)(id, None);
                }
            }
            Err(Failed::Silent) => self.report((device, mapped.inode), name, Err(Failed::Silent)),
            // Deleted, replaced, or out of reach: only its name is known.
            Err(Failed::Errno(_)) => self.report((device, mapped.inode), name, Err(Failed::Errno(Errno::ACCESS))),
        }
    }

    /// Asks about the file at a path below the process's directory, if `is_meant` accepts it.
    fn ask(
        &mut self,
        path: &CStr,
        device: u64,
        is_meant: impl FnOnce(FileId) -> bool,
    ) -> Result<(FileId, SizeAndUsage), Failed> {
        let Finder {
            source,
            range,
            errands,
            time_left,
            ..
        } = &mut *self.finder;
        errands.about(Some(device));
        let time = (*time_left).clamp(LEAST_FILE_TIME, MAX_FILE_TIME);
        let how = u64::from(*source == Source::Mincore) | (time.as_micros() as u64) << 1;
        let numbers = [how, range.offset, range.len];
        let bytes = errands.run(count, numbers, path, Some(self.process.as_fd()))?;
        let [device, inode, size_bytes, outcome, nr_cache, nr_dirty, nr_writeback, nr_evicted, nr_recently_evicted] =
            errands::numbers(bytes).ok_or(Errno::IO)?;
        if !is_meant((device, inode)) {
            return Err(Errno::NOENT.into());
        }
        let counts = Cachestat {
            nr_cache,
            nr_dirty,
            nr_writeback,
            nr_evicted,
            nr_recently_evicted,
        };
        let all = match outcome {
            ALL => Ok(Some(counts)),
            ONLY_CACHED => Ok(None),
            DENIED => Err(Absent::Denied),
            TOO_LONG => {
                *time_left = time_left.saturating_sub(time);
                Err(Absent::OverBudget)
            }
            _ => Err(Absent::Unsupported),
        };
        let usage = all.map(|all| Usage { cached: nr_cache, all });
        let size_bytes = match size_bytes {
            NO_SIZE => Err(usage.err().unwrap_or(Absent::Unsupported)),
            size_bytes => Ok(size_bytes),
        };
        Ok(((device, inode), (size_bytes, usage)))
    }

    fn report(&mut self, id: FileId, path: &[u8], answer: Result<SizeAndUsage, Failed>) {
        let (size_bytes, usage) = answer.unwrap_or_else(|failed| {
            let reason = match errands::absent(failed) {
                Absent::Gone => Absent::Unsupported,
                reason => reason,
            };
            (Err(reason), Err(reason))
        });
        let file = File {
            path,
            size_bytes,
            usage,
        };
        (self.each)(id, Some(file));
    }
}

/// A file's size, and its page cache.
type SizeAndUsage = (Result<u64, Absent>, Result<Usage, Absent>);

/// Reads the text of a process's mappings.
fn read_maps(process: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    let began = Instant::now();
    readers::beat();
    let maps = openat(process, c"maps", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        readers::beat();
        match retry_on_intr(|| rustix::io::read(&maps, &mut piece[..]))? {
            0 => return Ok(text),
            len => text.extend_from_slice(&piece[..len]),
        }
        if began.elapsed() > readers::MAX_TASK_TIME {
            return Err(Errno::TIMEDOUT);
        }
    }
}

/// What an errand found out: all counts, only how much is cached, or why nothing.
const ALL: u64 = 0;
const ONLY_CACHED: u64 = 1;
const DENIED: u64 = 2;
const UNSUPPORTED: u64 = 3;
const TOO_LONG: u64 = 4;

/// In place of the size of a block device that can't be opened.
const NO_SIZE: u64 = u64::MAX;

/// An errand: opens a file below the directory that was handed over, and asks about it. `how` has the
/// time for mincore in microseconds, and in bit 0 whether that is the source. Returns its device, inode
/// number and size, what was found out, and the counts.
fn count(files: &mut WorkFiles, [how, offset, len]: [u64; 3], path: &CStr, room: &mut [u8]) -> Result<usize, Errno> {
    let process = files.given.as_ref().ok_or(Errno::BADF)?;
    // A FIFO or a character device must not be opened.
    files.file = None;
    files.path = Some(openat(process, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?);
    let stat = files.path.as_ref().map_or(Err(Errno::BADF), fstat)?;
    if !has_pages(&stat) {
        return Err(Errno::NOENT);
    }
    let end = Instant::now() + Duration::from_micros(how >> 1);
    let source = if how & 1 == 0 {
        Source::Cachestat
    } else {
        Source::Mincore
    };
    let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let mut size_bytes = if is_regular { stat.st_size as u64 } else { NO_SIZE };
    let counted = match errands::opened(files) {
        Ok(file) => {
            size_bytes = size(file, &stat)?;
            source.usage_until(file, ByteRange { offset, len }, Some(end))
        }
        Err(Errno::ACCESS | Errno::PERM) => Err(Refusal::Denied),
        Err(errno) => Err(Refusal::Other(errno)),
    };
    let outcome = match counted {
        Ok(Usage { all: Some(_), .. }) => ALL,
        Ok(Usage { all: None, .. }) => ONLY_CACHED,
        Err(Refusal::Denied) => DENIED,
        Err(Refusal::Other(Errno::TIMEDOUT)) => TOO_LONG,
        Err(_) => UNSUPPORTED,
    };
    let Usage { cached, all } = counted.unwrap_or(Usage::of_nothing(source));
    let all = all.unwrap_or_default();
    let numbers = [
        stat.st_dev,
        stat.st_ino,
        size_bytes,
        outcome,
        cached,
        all.nr_dirty,
        all.nr_writeback,
        all.nr_evicted,
        all.nr_recently_evicted,
    ];
    Ok(errands::put_numbers(numbers, room))
}
