//! The files of `/proc/PID` that fields are read from.

#![allow(missing_docs)] // the files have their own names

use bitflags::bitflags;

use super::{Field, Fields, Kind};

/// Makes the files: the bit, the constant, the name, its path if that is another, and the right that it
/// takes to read that of another user's task.
macro_rules! files {
    ($($bit:literal $file:ident $name:ident $(($path:literal))? $right:literal;)*) => {
        bitflags! {
            /// A set of files of `/proc/PID`. In the field table, each file of the set has the field.
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub struct Files: u32 {
                $(const $file = 1 << $bit;)*
                // Code that keeps such a set as a number may give the other bits a meaning. `all()`
                // has these too.
                const _ = !0;
            }
        }

        /// The files by their names.
        #[allow(dead_code, non_upper_case_globals)] // rows name some files in another way
        pub(super) mod named {
            $(pub(in super::super) const $name: super::Files = super::Files::$file;)*
        }

        const ROWS: [(&str, &str); [$($bit),*].len()] = [$(([$($path,)? stringify!($name)][0], $right)),*];
    };
}

files! {
    0 STAT stat "";
    1 STATUS status "";
    2 SCHEDSTAT schedstat "";
    3 CMDLINE cmdline "";
    4 OOM_SCORE_ADJ oom_score_adj "";
    5 OOM_SCORE oom_score "";
    6 CGROUP cgroup "";
    7 IO io "trace";
    8 LIMITS limits "";
    9 ENVIRON environ "trace";
    10 LOGINUID loginuid "";
    11 SESSIONID sessionid "";
    12 PERSONALITY personality "trace";
    13 TIMERSLACK_NS timerslack_ns "nice";
    14 WCHAN wchan "";
    15 SECURITY_LABEL security_label ("attr/current") "";
    // A directory of links.
    16 NS ns "trace";
    // A link, like the next two.
    17 EXE exe "trace";
    18 CWD cwd "trace";
    19 ROOT root "trace";
    // A directory. Before 6.2, counting its entries takes the right to trace.
    20 FD fd "";
    // `taskdiag::memory` reads it, after all other files.
    21 SMAPS_ROLLUP smaps_rollup "trace";
}

impl Files {
    /// No file.
    pub const NONE: Files = Files::empty();

    /// The name of the first file. Empty if there is none.
    pub fn name(self) -> &'static str {
        ROWS.get(self.bits().trailing_zeros() as usize).map_or("", |row| row.0)
    }

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
    let [first, other] = field.info().places;
    first.file | other.file
}

impl Field {
    /// The right that it takes to see the value of another user's task: `trace`, to trace the task,
    /// `nice`, which is `CAP_SYS_NICE`, or none.
    pub fn right(self) -> &'static str {
        let info = self.info();
        let row = ROWS.get(info.places[0].file.bits().trailing_zeros() as usize);
        match info.kind {
            Kind::Address => "trace",
            _ => row.map_or("", |row| row.1),
        }
    }
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
