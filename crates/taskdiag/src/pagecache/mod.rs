//! The page cache of files: how much of them is cached, dirty, being written back, or was evicted.
//!
//! [`cachestat`] is the kernel's own call (Linux 6.5) with its exact semantics. [`mincore()`] is what there was before: it
//! knows which pages are cached, and nothing else. [`Source`] chooses between them: mincore only where cachestat does not
//! exist, never where it was denied. [`residency`] is the question of a database: how much of this file, or of this part of
//! it, is in memory? It takes two system calls and allocates nothing. [`Walk`] asks about whole trees, [`map`] about the parts
//! of a file, and [`processes`] finds the files that processes hold.
//!
//! # What is counted
//!
//! Pages, and whole ones: the last page of a file counts in full, and a huge page that reaches beyond the end of its file
//! counts with all that is asked about. So what is cached of a file can be more than its size.
//!
//! # Who may ask
//!
//! Since Linux 6.14 (and 6.12.12, 6.13.1), cachestat wants the right to change the file: a descriptor that is open for
//! writing, ownership of the file, `CAP_FOWNER`, or permission to write to it. mincore has wanted that since 5.2, but where it
//! is missing it says "all resident" instead of "no". [`mincore()`] notices and reports [`Refusal::Denied`].

mod map;
mod mincore;
pub mod processes;
mod walk;

use std::fmt;
use std::ops::AddAssign;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{LazyLock, OnceLock};

use rustix::io::Errno;
use taskdiag_core::absent::Absent;
use taskdiag_core::support::Fact;
use taskdiag_sys::pagecache as sys;

pub use map::{map, Run, State};
pub use mincore::mincore;
pub use walk::{Directory, Failed, File, FileId, Found, Seen, Sum, Totals, Walk};

/// A part of a file, in bytes. All pages are meant that it touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    offset: u64,
    len: u64,
}

impl ByteRange {
    /// The whole file.
    pub const ALL: ByteRange = ByteRange { offset: 0, len: 0 };

    /// `len` bytes from `offset`; as for the kernel, a length of 0 is all up to the end of the file. `None` if the end is
    /// beyond what 64 bits can say, for which the kernel would answer with zeros.
    pub fn new(offset: u64, len: u64) -> Option<ByteRange> {
        offset.checked_add(len)?;
        Some(ByteRange { offset, len })
    }

    /// Where it begins.
    pub fn offset(self) -> u64 {
        self.offset
    }

    /// The pages of a file of this size that it touches: the index of the first, and how many there are.
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

/// Pages of a file by what the kernel knows of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// In the cache, read or not: also those that are just being read from disk.
    pub cached: u64,
    /// Cached and changed since they were written to disk. Always 0 on tmpfs, which has no disk to write to.
    pub dirty: u64,
    /// Cached and being written to disk.
    pub writeback: u64,
    /// Once cached and evicted because memory was short. Pages that were dropped on request (`POSIX_FADV_DONTNEED`, a
    /// truncated file) leave no trace and are not counted.
    pub evicted: u64,
    /// Evicted so recently that memory for it was too short: reading it again would make it active at once.
    pub recently_evicted: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.cached += other.cached;
        self.dirty += other.dirty;
        self.writeback += other.writeback;
        self.evicted += other.evicted;
        self.recently_evicted += other.recently_evicted;
    }
}

/// Counts the pages of a file: cachestat(2), without flags, of which there are none.
///
/// The kernel looks, in this order, at the descriptor (`EBADF`; also for one opened with `O_PATH`), at the file system
/// (`EOPNOTSUPP` for hugetlbfs), at the caller's rights (`EPERM`), and then counts. It counts pages in any state between the
/// first and the last that `range` touches, beyond the end of the file too. What has no page cache, such as a directory, a
/// pipe, a socket or a device, has zero of everything: ask about regular files only.
pub fn cachestat(file: impl AsFd, range: ByteRange) -> Result<Counts, Refusal> {
    let range = sys::CachestatRange {
        off: range.offset,
        len: range.len,
    };
    let counts = sys::cachestat(file.as_fd(), &range)?;
    Ok(Counts {
        cached: counts.nr_cache,
        dirty: counts.nr_dirty,
        writeback: counts.nr_writeback,
        evicted: counts.nr_evicted,
        recently_evicted: counts.nr_recently_evicted,
    })
}

/// Why the page cache of a file is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The kernel has no such call (`ENOSYS`).
    NoSuchCall,
    /// The caller may not change the file (`EPERM`).
    Denied,
    /// The file's pages are in no page cache that could be asked: hugetlbfs (`EOPNOTSUPP`).
    NoPageCache,
    /// Another error.
    Other(Errno),
}

impl Refusal {
    /// The reason as that of a missing value.
    pub fn absent(self) -> Absent {
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

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoSuchCall => f.write_str("this kernel does not have the system call"),
            Refusal::Denied => f.write_str("the page cache of a file is told to its owner and to who may write to it"),
            Refusal::NoPageCache => f.write_str("the file system does not use the page cache"),
            Refusal::Other(errno) => errno.fmt(f),
        }
    }
}

impl std::error::Error for Refusal {}

/// A value of a file, or of several together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Quantity {
    /// The size of the file.
    Size,
    /// [`Counts::cached`].
    Cached,
    /// [`Counts::dirty`].
    Dirty,
    /// [`Counts::writeback`].
    Writeback,
    /// [`Counts::evicted`].
    Evicted,
    /// [`Counts::recently_evicted`].
    RecentlyEvicted,
}

impl Quantity {
    /// All of them.
    pub const ALL: [Quantity; 6] = [
        Quantity::Size,
        Quantity::Cached,
        Quantity::Dirty,
        Quantity::Writeback,
        Quantity::Evicted,
        Quantity::RecentlyEvicted,
    ];

    /// Its name, with its unit.
    pub fn name(self) -> &'static str {
        match self {
            Quantity::Size => "size_bytes",
            Quantity::Cached => "cached_bytes",
            Quantity::Dirty => "dirty_bytes",
            Quantity::Writeback => "writeback_bytes",
            Quantity::Evicted => "evicted_bytes",
            Quantity::RecentlyEvicted => "recently_evicted_bytes",
        }
    }
}

/// Who tells of the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// cachestat(2).
    Cachestat,
    /// mincore(2): knows what is cached, and nothing else.
    Mincore,
}

impl Source {
    /// The one to ask on this host: mincore where cachestat does not exist. Found out once.
    pub fn of_this_host() -> Source {
        static SOURCE: OnceLock<Source> = OnceLock::new();
        *SOURCE.get_or_init(|| match sys::cachestat_of_nothing() {
            Errno::NOSYS => Source::Mincore,
            _ => Source::Cachestat,
        })
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Source::Cachestat => "cachestat",
            Source::Mincore => "mincore",
        }
    }

    /// Whether it can tell this of a file.
    pub fn gives(self, quantity: Quantity) -> bool {
        self == Source::Cachestat || matches!(quantity, Quantity::Size | Quantity::Cached)
    }

    /// Asks about a file. Of the counts, only those mean something that the source gives.
    pub(crate) fn counts(self, file: BorrowedFd<'_>, range: ByteRange) -> Result<Counts, Refusal> {
        match self {
            Source::Cachestat => cachestat(file, range),
            Source::Mincore => Ok(Counts {
                cached: mincore(file, range)?,
                ..Counts::default()
            }),
        }
    }

    /// Asks about a file.
    pub fn ask(self, file: impl AsFd, range: ByteRange) -> Result<Usage, Refusal> {
        let counts = self.counts(file.as_fd(), range)?;
        Ok(Usage { source: self, counts })
    }
}

/// What a source told of a file, or of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    source: Source,
    counts: Counts,
}

impl Usage {
    /// All counts, if cachestat gave them.
    pub fn counts(&self) -> Result<Counts, Absent> {
        match self.source {
            Source::Cachestat => Ok(self.counts),
            Source::Mincore => Err(Absent::Unsupported),
        }
    }

    /// Cached pages, which every source knows.
    pub fn cached_pages(&self) -> u64 {
        self.counts.cached
    }

    /// A value in bytes. The size of the file is not among what a source tells.
    pub fn bytes(&self, quantity: Quantity) -> Result<u64, Absent> {
        if !self.source.gives(quantity) {
            return Err(Absent::Unsupported);
        }
        let pages = match quantity {
            Quantity::Size => return Err(Absent::NotAsked),
            Quantity::Cached => self.counts.cached,
            Quantity::Dirty => self.counts.dirty,
            Quantity::Writeback => self.counts.writeback,
            Quantity::Evicted => self.counts.evicted,
            Quantity::RecentlyEvicted => self.counts.recently_evicted,
        };
        Ok(pages * page_size())
    }
}

/// How much of a file, or of a part of it, is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Residency {
    /// Pages that are cached.
    pub cached_pages: u64,
    /// Pages there are, up to the end of the file.
    pub pages: u64,
}

impl Residency {
    /// The cached part of it, from 0 to 1; 1 for a part without pages, for which nothing has to be read.
    pub fn fraction(&self) -> f64 {
        match self.pages {
            0 => 1.0,
            pages => self.cached_pages.min(pages) as f64 / pages as f64,
        }
    }
}

/// How much of a file is cached, of the part that `range` touches. Two system calls where cachestat exists, and no
/// allocation: a query planner may ask for each table and index.
pub fn residency(file: impl AsFd, range: ByteRange) -> Result<Residency, Refusal> {
    let file = file.as_fd();
    let size = rustix::fs::fstat(file)?.st_size as u64;
    let (_, pages) = range.pages(size);
    Ok(Residency {
        cached_pages: Source::of_this_host().counts(file, range)?.cached,
        pages,
    })
}

/// The page cache of this machine: `Cached` in `/proc/meminfo`, which is files and shared memory, without what block devices
/// have cached of themselves. `None` if that can't be read.
pub fn machine_cached_bytes() -> Option<u64> {
    meminfo_cached_bytes(&std::fs::read("/proc/meminfo").ok()?)
}

fn meminfo_cached_bytes(meminfo: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(meminfo).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Cached:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Whether cachestat can be called on this host, for [`Support`](crate::Support).
pub(crate) fn probe() -> Fact {
    match sys::cachestat_of_nothing() {
        Errno::BADF => Fact::yes("cachestat(2) exists"),
        Errno::NOSYS => Fact::no(
            "the kernel has no cachestat(2), which came with Linux 6.5",
            "mincore(2) answers instead: which pages are cached, and nothing else",
        ),
        Errno::PERM | Errno::ACCESS => Fact::no(
            "a filter of system calls (seccomp) forbids cachestat(2)",
            "allow it in the container's profile; mincore(2) can be asked for by name",
        ),
        errno => Fact::unknown(format!("cachestat(2) of no file: {errno}")),
    }
}

pub(crate) fn page_size() -> u64 {
    // The C library looks for it anew each time.
    static PAGE_SIZE: LazyLock<u64> = LazyLock::new(|| rustix::param::page_size() as u64);
    *PAGE_SIZE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that ranges end where 64 bits do, and which pages they touch of files of any size.
    #[test]
    fn ranges_touch_whole_pages() {
        let page = page_size();
        assert_eq!(ByteRange::new(u64::MAX, 0).map(ByteRange::offset), Some(u64::MAX));
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

    /// Check that the machine's page cache is found in its place, and nothing else taken for it.
    #[test]
    fn meminfo_has_the_page_cache() {
        let text = b"MemFree:  1 kB\nSwapCached:  2 kB\nCached:         1590123 kB\nUnevictable: 3 kB\n";
        assert_eq!(meminfo_cached_bytes(text), Some(1_590_123 * 1024));
        for text in [
            &b"SwapCached: 2 kB\n"[..],
            b"Cached: 1\n",
            b"Cached: 99999999999999999999 kB",
            b"\xff",
        ] {
            assert_eq!(meminfo_cached_bytes(text), None);
        }
    }

    /// Check that a source is never asked for what it can't give.
    #[test]
    fn mincore_gives_what_is_cached_alone() {
        let counts = Counts {
            cached: 3,
            ..Counts::default()
        };
        let usage = |source| Usage { source, counts };
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
        assert_eq!(usage(Source::Mincore).counts(), Err(Absent::Unsupported));
    }
}
