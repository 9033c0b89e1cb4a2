//! The files of `/proc/PID` that fields are read from.

#![allow(missing_docs)] // the files have their own names

use bitflags::bitflags;

use super::{Field, Fields};

bitflags! {
    /// A set of files of `/proc/PID`. In the field table, any one of them has the field.
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
        /// A link, as are the next two.
        const EXE = 1 << 17;
        const CWD = 1 << 18;
        const ROOT = 1 << 19;
        /// A directory.
        const FD = 1 << 20;
        /// `taskdiag::memory` reads it, after all others.
        const SMAPS_ROLLUP = 1 << 21;
        // Whoever keeps such a set as a number may give the other bits a meaning. `all()` has these
        // too.
        const _ = !0;
    }
}

impl Files {
    /// No file.
    pub const NONE: Files = Files::empty();

    /// Files that everybody may read who may see the task. Where files are opened by number, one of
    /// these shows whether the number was the same task's all the time.
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

/// The files that procfs has a field in: any one of them.
pub fn files_of(field: Field) -> Files {
    field.info().files
}

/// A small set of files that has all of `fields`: files that alone have some field first, then for
/// each field that is left the first of its files.
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

    /// Check that few files are read: one that has several fields is read once, and either of two
    /// for a field that both have.
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

    /// Check that a set always has a file which everybody may read.
    #[test]
    fn anchors_are_added() {
        assert_eq!(Files::IO.anchored(), Files::IO | Files::STAT);
        assert_eq!((Files::IO | Files::CGROUP).anchored(), Files::IO | Files::CGROUP);
    }
}
