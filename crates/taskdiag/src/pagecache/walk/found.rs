//! What a walk finds.

use std::collections::HashSet;
use std::ops::AddAssign;

use rustix::fs::Stat;
use taskdiag_core::absent::Absent;
use taskdiag_core::error::Error;

use super::id;
use crate::pagecache::{Counts, Source, Usage};

/// Which file it is: device and inode number, as stat(2) has them.
pub(crate) type FileId = (u64, u64);

/// A regular file.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct File<'a> {
    /// Its path, beginning with that of the walk.
    pub path: &'a [u8],
    /// Its size in bytes, if the walk could look at it.
    pub size_bytes: Result<u64, Absent>,
    /// What is known of its page cache.
    pub usage: Result<Usage, Absent>,
}

/// A directory that has been read.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Directory<'a> {
    /// Its path, beginning with that of the walk.
    pub path: &'a [u8],
    /// How many levels it is below the directory where the walk began.
    pub depth: usize,
    /// The sum of the regular files in it, without those in directories below.
    pub sum: Sum,
}

/// Something that the walk could not look at.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Failed<'a> {
    /// Its path, beginning with that of the walk.
    pub path: &'a [u8],
    /// Why. The error's source is the [`io::Error`](std::io::Error) of the system call.
    pub error: &'a Error,
}

/// What a walk finds, in no certain order.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Found<'a> {
    /// A regular file, if the walk reports each file.
    File(File<'a>),
    /// A directory that has been read, if the walk does not report files.
    Directory(Directory<'a>),
    /// A directory that can't be read, or a file that can't be asked about.
    Failed(Failed<'a>),
    /// The walk goes on, and has looked at so many files. Comes every tenth of a second or so.
    Tick(u64),
}

/// Several files together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sum {
    /// How many files.
    pub files: u64,
    /// Their sizes, in bytes.
    pub size_bytes: u64,
    /// How many of them the kernel answered about.
    pub answered: u64,
    /// The counts of those.
    counts: Counts,
    /// How many of them the caller may not ask about.
    pub denied: u64,
}

impl Sum {
    /// Adds a file.
    #[doc(hidden)]
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

    /// The page cache of the files together, as `source` counted it. Absent if the kernel answered
    /// about none of them.
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

/// What a walk added up, and what it left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// The regular files.
    pub sum: Sum,
    /// Directories that were read.
    pub directories: u64,
    /// Files that vanished, or became something else, before they could be asked about.
    pub gone: u64,
    /// Directories that can't be read, and files that can't be asked about for another reason than
    /// a missing right.
    pub failed: u64,
    /// Further names of files that were counted before.
    pub linked: u64,
    /// Directories that were read before, because they are mounted at several places.
    pub again: u64,
    /// Directories and files on other file systems, and directories of file systems without a page
    /// cache, such as `/proc`.
    pub other_file_systems: u64,
}

impl Totals {
    /// The counters with their names, in the order of a report.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let named = [
            ("files", self.sum.files),
            ("directories", self.directories),
            ("denied", self.sum.denied),
            ("gone", self.gone),
            ("failed", self.failed),
            ("linked", self.linked),
            ("again", self.again),
            ("other_file_systems", self.other_file_systems),
        ];
        named.into_iter()
    }
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

/// The files and directories that were seen. Walks that share it count each of them once.
#[derive(Debug, Default)]
pub struct Seen {
    pub(super) directories: HashSet<FileId>,
    files: HashSet<FileId>,
    /// Files with only one name may be among `files`.
    pub(super) any_name: bool,
}

impl Seen {
    /// Notes a file that was found in another way than by a walk. False if it was seen before.
    pub(crate) fn add_file(&mut self, id: FileId) -> bool {
        self.any_name = true;
        self.files.insert(id)
    }

    /// Whether a file is seen for the first time. Of the files that walks find, only those with
    /// several names are noted.
    pub(super) fn is_new_file(&mut self, stat: &Stat) -> bool {
        if stat.st_nlink > 1 {
            self.files.insert(id(stat))
        } else {
            !self.files.contains(&id(stat))
        }
    }
}
