//! Which files of a task to read, and which parts of them.

use taskdiag_core::field::{files_for, Field, Fields, Files, Group, Groups};
use taskdiag_core::text::process::{Line, Lines, Positions};

/// How many of [`Files`] are files. The others are links and directories.
pub const FILES: usize = 16;

/// The links that are paths, in the order of [`RawTask::paths`](super::RawTask::paths).
pub const PATHS: [Files; 3] = [Files::EXE, Files::CWD, Files::ROOT];

/// The index of a file in [`RawTask::texts`](super::RawTask::texts).
pub const fn index(file: Files) -> usize {
    file.bits().trailing_zeros() as usize
}

pub fn contains(files: Files, index: usize) -> bool {
    files.bits() >> index & 1 != 0
}

/// What to read of each task.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub fields: Fields,
    pub(super) groups: Groups,
    pub files: Files,
    /// Bit `n` is set if the link `n` of [`NamespaceLink::NAMES`] is to be read.
    pub namespaces: u16,
    /// The numbers of `stat` to parse: all that the groups have there.
    pub(super) positions: Positions,
    /// The lines of `status` to parse.
    pub(super) lines: Lines,
    /// Some of the fields are of what the threads of a process share.
    pub reads_shared: bool,
    /// The caller ensures that the task is the intended one. Otherwise the first file is an anchor: see
    /// [`task`](super::super::task).
    pub is_sure: bool,
}

impl Plan {
    /// The smallest set of files that has all of `fields`, and the files `also`.
    pub fn new(fields: Fields, also: Files) -> Plan {
        let files = match files_for(fields) | also {
            Files::NONE => Files::NONE,
            files => files.anchored(),
        };
        Plan::of_files(fields, files, false)
    }

    /// As [`new`](Plan::new), but the caller ensures afterwards that the task is the intended one,
    /// so no anchor is needed.
    pub fn sure(fields: Fields) -> Plan {
        Plan::of_files(fields, files_for(fields), true)
    }

    fn of_files(fields: Fields, files: Files, is_sure: bool) -> Plan {
        let (mut namespaces, mut lines) = (0, Lines::NONE);
        for field in fields.iter() {
            let [place, _] = field.info().places;
            match place.file {
                Files::NS => namespaces |= 1 << place.at,
                Files::STAT if files.intersects(Files::STAT) => {}
                _ => lines = lines.or(lines_of(field)),
            }
        }
        let groups = Groups::of(fields);
        let of_groups = groups.iter().flat_map(|group| Fields::of_group(group).iter());
        let places = of_groups.flat_map(|field| field.info().places);
        let positions = places.filter(|place| place.file == Files::STAT);
        Plan {
            // Every record has its ids, and a filter may read only them.
            fields: fields | Field::Pid | Field::Tid,
            groups,
            files,
            namespaces,
            positions: positions.fold(Positions::BASIC, |positions, place| positions.with(place.at)),
            lines,
            reads_shared: fields.iter().any(Field::is_shared_by_threads),
            is_sure,
        }
    }

    /// The files to read if some can't be read. There must be an anchor among them.
    pub fn files_but(&self, held: Files) -> Files {
        let files = self.files.difference(held);
        if self.is_sure || self.files == Files::NONE {
            files
        } else {
            files.anchored()
        }
    }

    pub fn reads(&self, file: Files) -> bool {
        self.files.intersects(file)
    }
}

/// The lines of `status` that a field needs: the one that the table names, and those without which
/// the field can't be determined.
pub(super) fn lines_of(field: Field) -> Lines {
    let info = field.info();
    let places = info.places.iter().filter(|place| place.file == Files::STATUS);
    let named = places.fold(Lines::NONE, |lines, place| {
        lines.or(Lines::of(&[Line::ALL[usize::from(place.at)]]))
    });
    let more: &[Line] = match field {
        Field::Ppid | Field::State => &[Line::Threads],
        // The kernel adds up the three, and the reader of the record does the same.
        Field::RssBytes => return Lines::of(&[Line::VmSize, Line::RssAnon, Line::RssFile, Line::RssShmem]),
        _ if info.group == Group::Mem => &[Line::VmSize],
        _ => &[],
    };
    named.or(Lines::of(more))
}
