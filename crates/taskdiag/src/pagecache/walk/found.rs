//! What a walk finds.

use std::collections::HashSet;
use std::ops::AddAssign;

use rustix::fs::Stat;
use taskdiag_core::absent::Absent;
use taskdiag_core::error::Error;

use super::id;
use crate::pagecache::{Source, Usage};

/// Identifies a file: its device and inode number from stat(2).
pub(crate) type FileId = (u64, u64);

/// A regular file.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct File<'a> {
    /// Its path, which begins with the path of the walk.
    pub path: &'a [u8],
    /// Its size in bytes, if it could be read.
    pub size_bytes: Result<u64, Absent>,
    /// What is known about its page cache.
    pub usage: Result<Usage, Absent>,
}

/// What a walk finds, in no certain order.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Found<'a> {
    /// A regular file, if the walk reports each file.
    File(File<'a>),
    /// A directory that has been read, if the walk does not report files.
    #[non_exhaustive]
    Directory {
        /// Its path, beginning with that of the walk.
        path: &'a [u8],
        /// How many levels it is below the directory where the walk began.
        depth: usize,
        /// The sum of the regular files in it, without those in directories below.
        sum: Sum,
    },
    /// A directory that can't be read, or a file that can't be asked about.
    #[non_exhaustive]
    Failed {
        /// Its path, beginning with that of the walk.
        path: &'a [u8],
        /// Why. The error's source is the [`io::Error`](std::io::Error) of the system call.
        error: &'a Error,
    },
    /// The walk goes on, and has looked at so many files. Comes every tenth of a second or so.
    Tick(u64),
}

/// Totals of several files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sum {
    /// The number of files.
    pub files: u64,
    /// Their sizes, in bytes. A sum that does not fit is `u64::MAX`: files can be nearly empty and
    /// still have a size of 2^63-1.
    pub size_bytes: u64,
    /// The number of files about which the kernel answered.
    pub answered: u64,
    /// The page cache of those files, if there are any.
    usage: Option<Usage>,
    /// The number of files that the caller may not ask about.
    pub denied: u64,
}

impl Sum {
    /// Adds a file.
    #[doc(hidden)]
    pub fn add(&mut self, size_bytes: Result<u64, Absent>, usage: Result<Usage, Absent>) {
        self.files += 1;
        self.size_bytes = self.size_bytes.saturating_add(size_bytes.unwrap_or(0));
        match usage {
            Ok(usage) => {
                self.answered += 1;
                self.add_usage(Some(usage));
            }
            Err(Absent::Denied) => self.denied += 1,
            Err(_) => {}
        }
    }

    fn add_usage(&mut self, other: Option<Usage>) {
        match (&mut self.usage, other) {
            (Some(usage), Some(other)) => usage.add(other),
            (usage @ None, other) => *usage = other,
            (Some(_), None) => {}
        }
    }

    /// The page cache of all the files, as `source` counted it. Absent if the kernel answered about
    /// none of them. A quantity that is unknown of some of the others is absent.
    pub fn usage(&self, source: Source) -> Result<Usage, Absent> {
        match (self.usage, self.files, self.denied) {
            (Some(usage), ..) => Ok(usage),
            (None, 1.., 1..) => Err(Absent::Denied),
            (None, 1.., 0) => Err(Absent::Unsupported),
            (None, 0, _) => Ok(Usage::of_nothing(source)),
        }
    }
}

impl AddAssign for Sum {
    fn add_assign(&mut self, other: Sum) {
        self.files += other.files;
        self.size_bytes = self.size_bytes.saturating_add(other.size_bytes);
        self.answered += other.answered;
        self.add_usage(other.usage);
        self.denied += other.denied;
    }
}

/// The totals of a walk, and what it left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// The regular files.
    pub sum: Sum,
    /// Directories that were read.
    pub directories: u64,
    /// Files that vanished, or were replaced by something else, before they could be queried.
    pub gone: u64,
    /// Directories that can't be read, and files that can't be queried for a reason other than a
    /// missing right.
    pub failed: u64,
    /// Additional names of files that were already counted.
    pub linked: u64,
    /// Directories that were already read, because they are mounted at several places.
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
    /// `files` may also contain files with only one name.
    pub(super) any_name: bool,
}

impl Seen {
    pub(crate) fn has_file(&self, id: FileId) -> bool {
        self.files.contains(&id)
    }

    /// Records a file that was not found by a walk. False if it was seen before.
    pub(crate) fn add_file(&mut self, id: FileId) -> bool {
        self.any_name = true;
        self.files.insert(id)
    }

    /// Whether a file is seen for the first time. Of the files that walks find, only those with
    /// several names are recorded.
    pub(super) fn is_new_file(&mut self, stat: &Stat) -> bool {
        if stat.st_nlink > 1 {
            self.files.insert(id(stat))
        } else {
            !self.files.contains(&id(stat))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that sizes whose sum does not fit are no error.
    #[test]
    fn sizes_may_exceed_the_sum() {
        let mut sum = Sum::default();
        for _ in 0..3 {
            sum.add(Ok(i64::MAX as u64), Err(Absent::Denied));
        }
        sum += sum;
        assert_eq!((sum.files, sum.size_bytes), (6, u64::MAX));
    }
}
