//! Why fields of a task are missing.

use taskdiag_core::absent::Absent;
use taskdiag_core::field::{files_of, Field, Files, Group, Kind};
use taskdiag_core::text::process::{self, LateNumbers, Line};

use super::plan::{contains, lines_of, Plan, FILES, NAMESPACES, PATHS};
use super::Task;

/// Files that every kernel has, with every field, and that everybody who may see the task may read.
const ALWAYS_THERE: Files = Files::STAT.union(Files::STATUS).union(Files::CMDLINE);

/// Whether everything that the plan reads was there, so that no field is missing for a reason of
/// its own.
pub(super) fn has_all(plan: &Plan, task: &Task<'_>) -> bool {
    (0..FILES).all(|file| !contains(plan.files, file) || task.raw.texts[file].is_ok())
        && task
            .status
            .as_ref()
            .is_none_or(|status| plan.lines.is_subset(status.found()))
        && ALWAYS_THERE.contains(plan.files)
        && !plan.groups.contains(Group::Layout)
}

/// Why a field of a task is missing, given that the task has what the field is about. `None` if it
/// is there.
pub(super) fn reason(field: Field, task: &Task<'_>, late: Option<LateNumbers>) -> Option<Absent> {
    let (raw, files) = (task.raw, files_of(field));
    if field.info().kind == Kind::Address && late.is_some_and(|late| late.are_addresses_denied()) {
        return Some(Absent::Denied);
    }
    if files == Files::NONE || raw.text(Files::STAT).is_ok() && files.intersects(Files::STAT) {
        return None;
    }
    if files == Files::NS {
        let which = NAMESPACES.iter().position(|&namespace| namespace == field)?;
        return raw.namespaces[which].err();
    }
    if let Some(which) = PATHS.iter().position(|&(_, path, _)| path == field) {
        return match raw.paths[which] {
            Err(Absent::Gone) if field == Field::Exe && task.no_memory => None,
            path => path.err(),
        };
    }
    if files == Files::FD {
        return raw.fd_count.err();
    }
    // Fields of both files are in `status` here: with `stat` they would have been found above.
    let file = if files.intersects(Files::STATUS) {
        Files::STATUS
    } else {
        files
    };
    if let Err(reason) = raw.text(file) {
        return Some(reason);
    }
    // A task that ended has no such line.
    if field == Field::Umask && task.status.is_some() && task.status_with(Line::Umask).is_none() {
        return Some(Absent::Gone);
    }
    let is_there = match file {
        Files::STATUS => {
            let lines = lines_of(field);
            task.status
                .as_ref()
                .is_some_and(|status| lines.is_subset(status.found()))
        }
        Files::SCHEDSTAT => task.parsed(file, process::schedstat).is_some(),
        Files::OOM_SCORE | Files::OOM_SCORE_ADJ => task.parsed(file, process::number::<i32>).is_some(),
        Files::TIMERSLACK_NS => task.parsed(file, process::number::<i64>).is_some(),
        Files::LOGINUID | Files::SESSIONID => task.parsed(file, process::number::<u32>).is_some(),
        Files::PERSONALITY => task.parsed(file, process::mask).is_some(),
        Files::IO => task.parsed(file, process::io).is_some(),
        Files::LIMITS => task.parsed(file, process::limits).is_some(),
        Files::CGROUP if field == Field::CgroupId => return raw.cgroup_id.err(),
        Files::CGROUP if field == Field::Cgroup => task.parsed(file, process::cgroup).is_some(),
        _ => true,
    };
    (!is_there).then_some(Absent::Unsupported)
}
