//! Every value in the text files of `/proc/PID`, with its fields, or the reason why it has no field.

use crate::field::Field;
use crate::text::process::{IoLine, Line, Word};
use crate::text::smaps::SmapsLine;

/// The fields that have a value of `/proc`, or the reason why none has it.
type Coverage = Result<&'static [Field], &'static str>;

const ZERO: &str = "always 0, kept so that the others stay in their places";
const CORE: &str = "0 but for a task that is dumping core";
const SPECULATION: &str =
    "a word that depends on the processor and changes with kernels: what a task is exposed to, not what it does";
const ONE_ARCHITECTURE: &str = "shadow stacks and the like: names of one architecture";

macro_rules! others {
    ($($file:literal $value:literal $coverage:tt;)*) => {
        /// The values that no row of the field table names, or whose fields it does not name all: file,
        /// value, and coverage.
        const OTHERS: &[(&str, &str, Coverage)] = &[$(($file, $value, coverage!($coverage))),*];
    };
}

macro_rules! coverage {
    ([$($field:ident)*]) => { Ok(&[$(Field::$field),*]) };
    ($reason:tt) => { Err($reason) };
}

others! {
    "stat" "pid" [Pid Tid];
    "stat" "flags" [Flags KernelThread];
    "stat" "itrealvalue" ZERO;
    "stat" "vsize" [VsizeBytes];
    "stat" "rss" [RssBytes];
    "stat" "rsslim" [Limits];
    "stat" "kstkesp" CORE;
    "stat" "kstkeip" CORE;
    "stat" "signal" [SigPending SigBlocked SigIgnored SigCaught];
    "stat" "blocked" [SigPending SigBlocked SigIgnored SigCaught];
    "stat" "sigignore" [SigPending SigBlocked SigIgnored SigCaught];
    "stat" "sigcatch" [SigPending SigBlocked SigIgnored SigCaught];
    "stat" "wchan" "1 for a task that waits in the kernel, which its state says; the file wchan has the place";
    "stat" "nswap" ZERO;
    "stat" "cnswap" ZERO;
    "stat" "exit_code" "the text has a 0 for it, like for a task that ended well, wherever the reader may not trace the task";
    "status" "Name" [Comm];
    "status" "Tgid" [Pid];
    "status" "Ngid" "a group that NUMA balancing makes up; no other interface knows it";
    "status" "Pid" [Tid];
    "status" "NStgid" "nspids has the thread ids, of which the leader's are the process's";
    "status" "NSpgid" "pgid has it as the reader's namespace sees it";
    "status" "NSsid" "sid has it as the reader's namespace sees it";
    "status" "Kthread" [KernelThread];
    "status" "VmPMD" "part of VmPTE since 4.15";
    "status" "CoreDumping" "true for the moment of a dump only";
    "status" "THP_enabled" "a switch of prctl(2) for huge pages; how many there are is what matters";
    "status" "untag_mask" "the same for all tasks of a machine, but for those that use tagged addresses";
    "status" "SigQ" [SigQueuedCount Limits];
    "status" "Speculation_Store_Bypass" SPECULATION;
    "status" "SpeculationIndirectBranch" SPECULATION;
    "status" "Cpus_allowed_list" [Affinity];
    "status" "Mems_allowed" "the nodes of its cpuset, which its cgroup has";
    "status" "Mems_allowed_list" "another form of a value above";
    "status" "x86_Thread_features" ONE_ARCHITECTURE;
    "status" "x86_Thread_features_locked" ONE_ARCHITECTURE;
    "statm" "size" [VsizeBytes];
    "statm" "resident" [RssBytes];
    "statm" "shared" [RssFileBytes RssShmemBytes];
    "statm" "text" [TextBytes];
    "statm" "lib" ZERO;
    "statm" "data" [DataBytes StackBytes];
    "statm" "dt" ZERO;
    "schedstat" "time on a processor" [RuntimeNs];
    "schedstat" "time waiting for one" [RunDelayNs];
    "schedstat" "timeslices" [TimeslicesCount];
    "sched" "se.sum_exec_runtime" [RuntimeNs];
    "sched" "nr_voluntary_switches" [VoluntarySwitches];
    "sched" "nr_involuntary_switches" [InvoluntarySwitches];
    "sched" "policy" [Policy];
    "sched" "prio" [Priority];
    "sched" "all others" "the scheduler's own numbers, for debugging it: other kernels have others";
    "cgroup" "the line of hierarchy 0" [Cgroup];
    "cgroup" "all lines" [Cgroups];
    "limits" "16 limits, soft and hard" [Limits];
    "oom_adj" "" "oom_score_adj on an older scale";
}

/// Files that are one value.
const FILES: [&str; 11] = [
    "oom_score",
    "oom_score_adj",
    "oom_adj",
    "loginuid",
    "sessionid",
    "timerslack_ns",
    "personality",
    "cmdline",
    "wchan",
    "attr/current",
    "environ",
];

/// The file, the value, and the fields that have it, or why none has it.
pub type ProcValue = (&'static str, &'static str, Result<Vec<Field>, &'static str>);

/// All values in these files.
pub fn all() -> Vec<ProcValue> {
    let others = |file| {
        OTHERS
            .iter()
            .filter(move |other| other.0 == file)
            .map(|&(file, value, _)| (file, value))
    };
    let named = |file: &'static str, names: &'static [&'static str]| names.iter().map(move |&name| (file, name));
    let values = named("stat", &Word::NAMES)
        .chain(named("status", &Line::NAMES))
        .chain(others("statm"))
        .chain(named("io", &IoLine::NAMES))
        .chain(["schedstat", "sched", "cgroup", "limits"].into_iter().flat_map(others))
        .chain(FILES.map(|file| (file, "")))
        .chain(named("smaps_rollup", &SmapsLine::NAMES));
    let with_coverage = |(file, value)| {
        let other = OTHERS.iter().find(|other| (other.0, other.1) == (file, value));
        let fields = other.map_or_else(|| Ok(fields_of(file, value)), |other| other.2.map(<[Field]>::to_vec));
        (file, value, fields)
    };
    values.map(with_coverage).collect()
}

/// The fields whose rows of the table name this place.
fn fields_of(file: &str, value: &str) -> Vec<Field> {
    let is_of = |field: &&Field| {
        let mut places = field.info().places.iter();
        places.any(|place| (place.file.name(), place.key) == (file, value))
    };
    Field::ALL.iter().filter(is_of).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each value has a field or a reason, and only one of both, and that no value is
    /// listed twice.
    #[test]
    fn every_value_is_covered() {
        let all = all();
        assert_eq!(all.len(), 173);
        for (file, value, coverage) in &all {
            let fields = fields_of(file, value);
            let is_right = match coverage {
                Ok(covering) => !covering.is_empty() && fields.iter().all(|field| covering.contains(field)),
                Err(_) => fields.is_empty(),
            };
            assert!(is_right, "{file} {value}: {coverage:?}, {fields:?}");
            let count = all.iter().filter(|other| (other.0, other.1) == (*file, *value)).count();
            assert_eq!(count, 1, "{file} {value}");
        }
        for (file, value, _) in OTHERS {
            assert!(
                all.iter().any(|row| (row.0, row.1) == (*file, *value)),
                "{file} {value}"
            );
        }
    }
}
