//! The page cache of files: how much of them is cached, dirty, being written back, or has been
//! evicted.
//!
//! The kernel's call for this is cachestat(2) (Linux 6.5). Older kernels have mincore(2), which
//! knows only which pages are cached. [`Source`] stands for one of the two calls. The default is
//! mincore only where cachestat does not exist, and for files whose pages belong to other files;
//! never where cachestat was denied. [`residency`] answers the question of a database: how much of
//! this file, or of this part of it, is in memory? It takes two system calls and allocates nothing.
//! [`Walk`] asks about whole trees, [`map`] about the parts of a file, and [`Finder`] finds the
//! files that processes hold.
//!
//! ```
//! use std::fs::File;
//! use taskdiag::pagecache::{residency, ByteRange};
//!
//! let table = File::open("Cargo.toml")?;
//! let in_memory = residency(&table, ByteRange::ALL)?;
//! println!("{:.0} % of {} pages", in_memory.fraction() * 100.0, in_memory.pages);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is counted
//!
//! Whole pages are counted. The last page of a file counts in full, and so does a huge page that
//! extends beyond the end of its file. So the cached part of a file can be larger than the file.
//!
//! # Who may ask
//!
//! Since Linux 6.14 (and 6.12.12, 6.13.1), cachestat requires the right to change the file: a
//! descriptor that is open for writing, ownership of the file, `CAP_FOWNER`, or permission to write
//! to it. mincore has required that right since 5.2, but without it reports all pages as resident
//! rather than failing. [`Source::Mincore`] detects this, and fails with
//! [`Denied`](crate::ErrorKind::Denied).

mod map;
mod mincore;
mod processes;
mod walk;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{LazyLock, OnceLock};
use std::time::Instant;

use rustix::fs::{fstat, fstatfs, FileType, Stat};
use rustix::io::Errno;
use taskdiag_core::absent::Absent;
use taskdiag_core::error::{Error, ErrorKind, Result};
use taskdiag_core::support::Fact;
use taskdiag_sys::pagecache as sys;

pub use map::{map, Run, State};
pub use processes::Finder;
pub use walk::{File, Found, Seen, Sum, Totals, Walk};

/// A part of a file, in bytes. It stands for all pages that it touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    offset: u64,
    len: u64,
}

impl ByteRange {
    /// The whole file.
    pub const ALL: ByteRange = ByteRange { offset: 0, len: 0 };

    /// `len` bytes from `offset`. As for the kernel, a length of 0 extends to the end of the file.
    /// `None` if the end does not fit into 64 bits: the kernel would answer with zeros.
    pub fn new(offset: u64, len: u64) -> Option<ByteRange> {
        offset.checked_add(len)?;
        Some(ByteRange { offset, len })
    }

    /// The pages that it touches in a file of this size in bytes: the index of the first, and their
    /// number.
    pub fn pages(self, file_size: u64) -> (u64, u64) {
        let page_size = page_size();
        let end = match self.len {
            0 => file_size,
            len => file_size.min(self.offset + len),
        };
        let first = self.offset / page_size;
        (first, end.div_ceil(page_size).saturating_sub(first))
    }
}

/// Why the kernel does not answer about the page cache of a file. Walks meet many of these, so the
/// type allocates nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The kernel has no such call (`ENOSYS`).
    NoSuchCall,
    /// The caller may not change the file (`EPERM`).
    Denied,
    /// The file's pages are in no page cache that can be queried: hugetlbfs (`EOPNOTSUPP`).
    NoPageCache,
    /// Another error.
    Other(Errno),
}

impl Refusal {
    /// The same as a reason for a missing value.
    pub(crate) fn absent(self) -> Absent {
        match self {
            Refusal::Denied => Absent::Denied,
            _ => Absent::Unsupported,
        }
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Refusal {
        match errno {
            Errno::NOSYS => Refusal::NoSuchCall,
            Errno::PERM => Refusal::Denied,
            Errno::OPNOTSUPP => Refusal::NoPageCache,
            other => Refusal::Other(other),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        match refusal {
            Refusal::NoSuchCall => Error::new(
                ErrorKind::Unsupported,
                "this kernel does not have the system call that asks about the page cache",
            ),
            Refusal::Denied => Error::new(
                ErrorKind::Denied,
                "the kernel answers about the page cache of a file only to its owner and to callers who may write to it",
            ),
            Refusal::NoPageCache => Error::new(ErrorKind::Unsupported, "the file system does not use the page cache"),
            Refusal::Other(errno) => Error::io("asking about the page cache", errno),
        }
    }
}

taskdiag_core::named_enum! {
    /// A value of a file, or of several together, in bytes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[non_exhaustive]
    #[repr(u8)]
    pub enum Quantity {
        /// The size of the file.
        Size => "size_bytes",
        /// Pages in the cache, including those that are being read from disk.
        Cached => "cached_bytes",
        /// Cached pages that were changed since they were written to disk. Always 0 on tmpfs, which
        /// has no disk.
        Dirty => "dirty_bytes",
        /// Cached pages that are being written to disk.
        Writeback => "writeback_bytes",
        /// Pages that were cached, and were evicted because memory was short. Pages that were
        /// dropped on request (`POSIX_FADV_DONTNEED`, a truncated file) are not counted: the kernel
        /// keeps no trace of them.
        Evicted => "evicted_bytes",
        /// Pages that were evicted so recently that reading them again would make them active at
        /// once: memory is too short for them.
        RecentlyEvicted => "recently_evicted_bytes",
    }
    /// All quantities, in the order of a report.
    pub const ALL;
    /// Its name with its unit: a key in reports.
    pub fn name;
    impl Display;
}

taskdiag_core::named_enum! {
    /// The system call that reports on the page cache.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum Source {
        /// cachestat(2) (Linux 6.5). It has no flags.
        ///
        /// The kernel checks, in this order, the descriptor (`EBADF`, also for one opened with
        /// `O_PATH`), the file system (`EOPNOTSUPP` for hugetlbfs) and the caller's rights
        /// (`EPERM`), and then counts (`mm/filemap.c`). It counts pages in any state between the
        /// first and the last page that the range touches, even beyond the end of the file. For
        /// files without a page cache, such as directories, pipes, sockets and character devices,
        /// all counts are zero: ask about regular files and block devices only.
        ///
        /// All counts are also zero for a file whose pages belong to another file below it, as with
        /// overlayfs. Then a mapping of the file knows better, and mincore answers.
        Cachestat => "cachestat",
        /// mincore(2) on a mapping of the file. It returns a byte for each page, up to the end of
        /// the file. The file must be open for reading.
        ///
        /// It knows which pages are cached, but not which are dirty, under writeback, or evicted.
        /// Unlike cachestat, it counts a page only once it has been read.
        Mincore => "mincore",
    }
    /// The name, as in reports: `cachestat`, `mincore`.
    pub fn name;
    impl Display;
}

impl Source {
    /// The source for this host: mincore where cachestat does not exist. Determined once.
    pub fn of_this_host() -> Source {
        static SOURCE: OnceLock<Source> = OnceLock::new();
        *SOURCE.get_or_init(|| match sys::cachestat_of_nothing() {
            Errno::NOSYS => Source::Mincore,
            _ => Source::Cachestat,
        })
    }

    /// Whether the source knows this quantity.
    pub fn gives(self, quantity: Quantity) -> bool {
        self == Source::Cachestat || matches!(quantity, Quantity::Size | Quantity::Cached)
    }

    /// Asks about a file.
    pub(crate) fn usage(self, file: BorrowedFd<'_>, range: ByteRange) -> std::result::Result<Usage, Refusal> {
        self.usage_until(file, range, None)
    }

    /// Asks about a file. Fails with `TIMEDOUT` if mincore does not end until then.
    fn usage_until(
        self,
        file: BorrowedFd<'_>,
        range: ByteRange,
        end: Option<Instant>,
    ) -> std::result::Result<Usage, Refusal> {
        if self == Source::Cachestat {
            let asked = sys::CachestatRange {
                off: range.offset,
                len: range.len,
            };
            let counts = sys::cachestat(file, &asked)?;
            if counts != sys::Cachestat::default() || !may_have_its_pages_elsewhere(file, range)? {
                return Ok(Usage {
                    cached: counts.nr_cache,
                    all: Some(counts),
                });
            }
        }
        match mincore::cached_pages(file, range, end) {
            Ok(cached) => Ok(Usage { cached, all: None }),
            // A file that can't be mapped leads to no other.
            Err(Refusal::Other(Errno::NODEV)) if self == Source::Cachestat => Ok(Usage::of_nothing(self)),
            Err(refusal) => Err(refusal),
        }
    }

    /// Asks about a file.
    ///
    /// # Errors
    ///
    /// - [`Denied`](ErrorKind::Denied) if the caller may not change the file (with mincore, since
    ///   Linux 5.2; see above).
    /// - [`Unsupported`](ErrorKind::Unsupported) if the kernel has no such call, or the file has no
    ///   page cache that it counts (hugetlbfs).
    /// - [`System`](ErrorKind::System) otherwise, for example if the file can't be mapped.
    pub fn ask(self, file: impl AsFd, range: ByteRange) -> Result<Usage> {
        Ok(self.usage(file.as_fd(), range)?)
    }
}

/// The page cache of one or several files, as a source counted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    cached: u64,
    /// All counts of cachestat(2), which [`Quantity`] describes. `None` if mincore(2) answered, about
    /// one of the files at least.
    all: Option<sys::Cachestat>,
}

impl Usage {
    /// That of no file, as a source counts it.
    pub(crate) fn of_nothing(source: Source) -> Usage {
        Usage {
            cached: 0,
            all: (source == Source::Cachestat).then(sys::Cachestat::default),
        }
    }

    /// Adds that of other files.
    pub(crate) fn add(&mut self, other: Usage) {
        self.cached += other.cached;
        self.all = self.all.zip(other.all).map(|(a, b)| sys::Cachestat {
            nr_cache: a.nr_cache + b.nr_cache,
            nr_dirty: a.nr_dirty + b.nr_dirty,
            nr_writeback: a.nr_writeback + b.nr_writeback,
            nr_evicted: a.nr_evicted + b.nr_evicted,
            nr_recently_evicted: a.nr_recently_evicted + b.nr_recently_evicted,
        });
    }

    /// The number of cached pages, which every source knows.
    pub fn cached_pages(&self) -> u64 {
        self.cached
    }

    /// A quantity in bytes. The size of the file is [`Absent::NotAsked`]: sources do not count it.
    pub fn bytes(&self, quantity: Quantity) -> std::result::Result<u64, Absent> {
        let all = self.all.ok_or(Absent::Unsupported);
        let pages = match quantity {
            Quantity::Size => return Err(Absent::NotAsked),
            Quantity::Cached => self.cached,
            Quantity::Dirty => all?.nr_dirty,
            Quantity::Writeback => all?.nr_writeback,
            Quantity::Evicted => all?.nr_evicted,
            Quantity::RecentlyEvicted => all?.nr_recently_evicted,
        };
        Ok(pages * page_size())
    }
}

/// How much of a file, or of a part of it, is cached: see [`residency`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Residency {
    /// The number of cached pages.
    pub cached_pages: u64,
    /// The number of pages, up to the end of the file.
    pub pages: u64,
}

impl Residency {
    /// The cached fraction, from 0 to 1. For a part of a file without pages it is 1: nothing needs
    /// to be read.
    pub fn fraction(&self) -> f64 {
        match self.pages {
            0 => 1.0,
            pages => self.cached_pages.min(pages) as f64 / pages as f64,
        }
    }
}

/// How much of a file is cached, in the part that `range` touches. Takes two system calls where
/// cachestat exists, and allocates nothing: a query planner may ask for each table and index.
///
/// # Errors
///
/// As [`Source::ask`].
pub fn residency(file: impl AsFd, range: ByteRange) -> Result<Residency> {
    let file = file.as_fd();
    let stat = fstat(file).map_err(Refusal::from)?;
    let (_, pages) = range.pages(size(file, &stat).map_err(Refusal::from)?);
    Ok(Residency {
        cached_pages: Source::of_this_host().usage(file, range)?.cached,
        pages,
    })
}

/// Whether a file with this status has pages in the page cache: a regular file or a block device.
pub(crate) fn has_pages(stat: &Stat) -> bool {
    let kind = FileType::from_raw_mode(stat.st_mode);
    matches!(kind, FileType::RegularFile | FileType::BlockDevice)
}

/// The size of an open file, which fstat(2) does not know of a block device.
pub(crate) fn size(file: BorrowedFd<'_>, stat: &Stat) -> std::result::Result<u64, Errno> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => sys::device_size(file),
        _ => Ok(stat.st_size as u64),
    }
}

/// Whether the pages of a file of which cachestat(2) counts none may belong to another file, which
/// a mapping of this one leads to. overlayfs passes the files of other file systems on like that,
/// FUSE can do so, and the kernel says it of no file. File systems on a block device have pages of
/// their own, and so have the listed ones. The list spares their files a mapping, which takes long
/// for a vast file; one that it lacks has no wrong answer, but fewer values.
fn may_have_its_pages_elsewhere(file: BorrowedFd<'_>, range: ByteRange) -> std::result::Result<bool, Errno> {
    const OWN_PAGES: [u64; 10] = [
        0x0102_1994, // tmpfs
        0x8584_58f6, // ramfs
        0x9123_683e, // btrfs
        0xca45_1a4e, // bcachefs
        0x2fc1_2fc1, // zfs
        0x6969,      // nfs
        0xff53_4d42, // cifs
        0xfe53_4d42, // smb2
        0x00c3_6400, // ceph
        0x0102_1997, // 9p
    ];
    let stat = fstat(file)?;
    let is_regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_regular || rustix::fs::major(stat.st_dev) != 0 || range.pages(stat.st_size as u64).1 == 0 {
        return Ok(false);
    }
    Ok(!OWN_PAGES.contains(&(fstatfs(file)?.f_type as u64 & 0xffff_ffff)))
}

/// Whether the caller can use cachestat, for [`Support`](crate::Support).
pub(crate) fn probe() -> Fact {
    match sys::cachestat_of_nothing() {
        Errno::BADF => Fact::yes("cachestat(2) exists"),
        Errno::NOSYS => Fact::no(
            "the kernel has no cachestat(2), which came with Linux 6.5",
            "mincore(2) answers instead: which pages are cached, and nothing else",
        ),
        Errno::PERM | Errno::ACCESS => Fact::no(
            "a filter of system calls (seccomp) forbids cachestat(2)",
            "allow it in the container's profile, or choose mincore(2)",
        ),
        errno => Fact::unknown(format!("cachestat(2) of no file: {errno}")),
    }
}

pub(crate) fn page_size() -> u64 {
    // The C library looks it up each time.
    static PAGE_SIZE: LazyLock<u64> = LazyLock::new(|| rustix::param::page_size() as u64);
    *PAGE_SIZE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check which pages ranges touch in files of any size, and that no range ends beyond 64 bits.
    #[test]
    fn ranges_touch_whole_pages() {
        let page = page_size();
        assert_eq!(ByteRange::new(u64::MAX, 0).map(|range| range.offset), Some(u64::MAX));
        assert_eq!(ByteRange::new(u64::MAX, 1), None);
        let pages = |offset, len, size| ByteRange::new(offset, len).expect("a range").pages(size);
        assert_eq!(pages(0, 0, 0), (0, 0));
        assert_eq!(pages(0, 0, 1), (0, 1));
        assert_eq!(pages(0, 0, page + 1), (0, 2));
        assert_eq!(pages(page - 1, 2, 10 * page), (0, 2));
        assert_eq!(pages(page, page, 10 * page), (1, 1));
        assert_eq!(pages(5 * page, 100 * page, 8 * page), (5, 3));
        assert_eq!(pages(9 * page, 0, 8 * page).1, 0);
        assert_eq!(pages(u64::MAX, 0, u64::MAX).1, 1);
    }

    /// Check that counts that a source does not know are absent rather than 0.
    #[test]
    fn mincore_knows_only_what_is_cached() {
        let usage = |source| {
            let mut usage = Usage::of_nothing(source);
            usage.cached = 3;
            usage
        };
        assert_eq!(usage(Source::Mincore).bytes(Quantity::Cached), Ok(3 * page_size()));
        for quantity in [
            Quantity::Dirty,
            Quantity::Writeback,
            Quantity::Evicted,
            Quantity::RecentlyEvicted,
        ] {
            assert!(!Source::Mincore.gives(quantity));
            assert_eq!(usage(Source::Mincore).bytes(quantity), Err(Absent::Unsupported));
            assert_eq!(usage(Source::Cachestat).bytes(quantity), Ok(0));
        }
    }
}
