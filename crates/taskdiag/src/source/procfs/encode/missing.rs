//! Why fields of a task are missing.

use taskdiag_core::absent::Absent;
use taskdiag_core::field::{Field, Files, Group, Kind, RecordPlace};
use taskdiag_core::text::process::{self, Line, Stat};

use super::plan::{contains, lines_of, Plan, FILES, PATHS};
use super::Task;

/// Files that every kernel has, with every field, and that everybody who may see the task may read.
const ALWAYS_THERE: Files = Files::STAT.union(Files::STATUS).union(Files::CMDLINE);

/// Whether everything that the plan reads was there, so that no field is missing for a reason of
/// its own.
pub(super) fn has_all(plan: &Plan, task: &Task<'_>) -> bool {
    (0..FILES).all(|file| !contains(plan.files, file) || task.raw.texts[file].is_ok())
        && task.status.is_none_or(|status| plan.lines.is_subset(status.found()))
        && ALWAYS_THERE.contains(plan.files)
        && !plan.groups.contains(Group::Layout)
}

/// Why a field of a task is missing, given that the task has what the field is about. `None` if it
/// is there.
pub(super) fn reason(field: Field, task: &Task<'_>) -> Option<Absent> {
    let (raw, info) = (task.raw, field.info());
    let [place, other] = &info.places;
    if info.kind == Kind::Address && task.stat.is_some_and(Stat::are_addresses_denied) {
        return Some(Absent::Denied);
    }
    let is_there = match place.file {
        Files::NONE => true,
        Files::STAT if task.stat.is_some() => true,
        Files::NS => return raw.namespaces[usize::from(place.at)].err(),
        Files::FD => return raw.fd_count.err(),
        Files::EXE | Files::CWD | Files::ROOT => {
            let which = PATHS.iter().position(|&path| path == place.file)?;
            return match raw.paths[which] {
                Err(Absent::Gone) if field == Field::Exe && task.no_memory => None,
                path => path.err(),
            };
        }
        Files::STAT | Files::STATUS => {
            let file = if other.file == Files::NONE {
                place.file
            } else {
                other.file
            };
            if let Err(reason) = raw.text(file) {
                return Some(reason);
            }
            // A task that ended has no such line.
            if field == Field::Umask && task.status_with(Line::Umask).is_none() {
                return Some(Absent::Gone);
            }
            let found = task.status.map(|status| status.found());
            found.is_some_and(|found| lines_of(field).is_subset(found))
        }
        file => {
            if let Err(reason) = raw.text(file) {
                return Some(reason);
            }
            match field {
                Field::CgroupId => return raw.cgroup_id.err(),
                Field::Cgroup => task.parsed(file, process::cgroup).is_some(),
                Field::Limits => task.parsed(file, process::limits).is_some(),
                _ => !matches!(info.record, RecordPlace::Member(_)) || task.number(place).is_some(),
            }
        }
    };
    (!is_there).then_some(Absent::Unsupported)
}
