//! The files of `/proc/PID` that fields are read from.

#![allow(missing_docs)] // the files have their own names

use bitflags::bitflags;

use super::{Field, Fields};

bitflags! {
    /// A set of files of `/proc/PID`. In the field table, each file of the set has the field.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Files: u32 {
        const STAT = 1 << 0;
        const STATUS = 1 << 1;
        const SCHEDSTAT = 1 << 2;
        const CMDLINE = 1 << 3;
        const OOM_SCORE_ADJ = 1 << 4;
        const OOM_SCORE = 1 << 5;
        const CGROUP = 1 << 6;
        const IO = 1 << 7;
        const LIMITS = 1 << 8;
        const ENVIRON = 1 << 9;
        const LOGINUID = 1 << 10;
        const SESSIONID = 1 << 11;
        const PERSONALITY = 1 << 12;
        const TIMERSLACK_NS = 1 << 13;
        const WCHAN = 1 << 14;
        /// `attr/current`.
        const SECURITY_LABEL = 1 << 15;
        /// A directory of links.
        const NS = 1 << 16;
        /// A link, like the next two.
        const EXE = 1 << 17;
        const CWD = 1 << 18;
        const ROOT = 1 << 19;
        /// A directory.
        const FD = 1 << 20;
        /// `taskdiag::memory` reads it, after all other files.
        const SMAPS_ROLLUP = 1 << 21;
        // Code that keeps such a set as a number may give the other bits a meaning. `all()` has
        // these too.
        const _ = !0;
    }
}

impl Files {
    /// No file.
    pub const NONE: Files = Files::empty();

    /// Files that everybody who may see the task may read. If files are opened by task id, one of
    /// these shows whether the id belonged to the same task all the time.
    const ANCHORS: Files = Files::STAT
        .union(Files::STATUS)
        .union(Files::SCHEDSTAT)
        .union(Files::CMDLINE)
        .union(Files::OOM_SCORE_ADJ)
        .union(Files::OOM_SCORE)
        .union(Files::CGROUP);

    /// The set, with `stat` if it has no anchor of its own.
    pub const fn anchored(self) -> Files {
        if self.intersects(Files::ANCHORS) {
            self
        } else {
            self.union(Files::STAT)
        }
    }
}

/// The files in which procfs has a field; any one of them is enough.
pub fn files_of(field: Field) -> Files {
    field.info().files
}

/// A small set of files that has all of `fields`: first the files that alone have some field, then
/// the first file of each remaining field.
pub fn files_for(fields: Fields) -> Files {
    let wanted = || fields.iter().map(files_of).filter(|files| !files.is_empty());
    let is_single = |files: &Files| files.bits().is_power_of_two();
    let needed = wanted().filter(is_single).fold(Files::NONE, Files::union);
    wanted().fold(needed, |needed, files| {
        if needed.intersects(files) {
            needed
        } else {
            needed | Files::from_bits_retain(1 << files.bits().trailing_zeros())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that few files are read: a file with several fields is read once, and only one of two
    /// files that both have a field is read.
    #[test]
    fn few_files_are_read() {
        let files = |fields: Fields| files_for(fields);
        assert_eq!(files(Field::Pid | Field::Tid), Files::NONE);
        assert_eq!(files(Field::Ppid.into()), Files::STAT);
        assert_eq!(files(Field::Ppid | Field::Uid), Files::STATUS);
        assert_eq!(
            files(Field::Ppid | Field::Uid | Field::Comm),
            Files::STAT | Files::STATUS
        );
    }

    /// Check that a set always has a file that everybody may read.
    #[test]
    fn anchors_are_added() {
        assert_eq!(Files::IO.anchored(), Files::IO | Files::STAT);
        assert_eq!((Files::IO | Files::CGROUP).anchored(), Files::IO | Files::CGROUP);
    }
}
