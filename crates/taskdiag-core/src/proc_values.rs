//! Every value in the text files of `/proc/PID`, with its field, or the reason why it has no field.

use crate::field::Field;

/// Whether fields cover a value of `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// The fields whose rows of the table name this place.
    Named,
    /// These fields have the value. The rows of some name another place.
    By(&'static [Field]),
    /// No field has it, for this reason.
    Nowhere(&'static str),
}

use Coverage::{By, Named, Nowhere};
use Field as F;

const ZERO: &str = "always 0, kept so that the others stay in their places";
const DISPLAY: &str = "another form of a value above";
const OLD_SIGNALS: Coverage = By(&[F::SigPending, F::SigBlocked, F::SigIgnored, F::SigCaught]);
const SPECULATION: &str =
    "a word that depends on the processor and changes with kernels: what a task is exposed to, not what it does";
const ONE_ARCHITECTURE: &str = "shadow stacks and the like: names of one architecture";

/// The values of `stat`, in order (proc_pid_stat(5)).
pub const STAT: [(&str, Coverage); 52] = [
    ("pid", By(&[F::Pid, F::Tid])),
    ("comm", Named),
    ("state", Named),
    ("ppid", Named),
    ("pgrp", Named),
    ("session", Named),
    ("tty_nr", Named),
    ("tpgid", Named),
    ("flags", By(&[F::Flags, F::KernelThread])),
    ("minflt", Named),
    ("cminflt", Named),
    ("majflt", Named),
    ("cmajflt", Named),
    ("utime", Named),
    ("stime", Named),
    ("cutime", Named),
    ("cstime", Named),
    ("priority", Named),
    ("nice", Named),
    ("num_threads", Named),
    ("itrealvalue", Nowhere(ZERO)),
    ("starttime", Named),
    ("vsize", By(&[F::VsizeBytes])),
    ("rss", By(&[F::RssBytes])),
    ("rsslim", By(&[F::Limits])),
    ("startcode", Named),
    ("endcode", Named),
    ("startstack", Named),
    ("kstkesp", Nowhere("0 but for a task that is dumping core")),
    ("kstkeip", Nowhere("0 but for a task that is dumping core")),
    ("signal", OLD_SIGNALS),
    ("blocked", OLD_SIGNALS),
    ("sigignore", OLD_SIGNALS),
    ("sigcatch", OLD_SIGNALS),
    (
        "wchan",
        Nowhere("1 for a task that waits in the kernel, which its state says; the file wchan has the place"),
    ),
    ("nswap", Nowhere(ZERO)),
    ("cnswap", Nowhere(ZERO)),
    ("exit_signal", Named),
    ("processor", Named),
    ("rt_priority", Named),
    ("policy", Named),
    ("delayacct_blkio_ticks", Named),
    ("guest_time", Named),
    ("cguest_time", Named),
    ("start_data", Named),
    ("end_data", Named),
    ("start_brk", Named),
    ("arg_start", Named),
    ("arg_end", Named),
    ("env_start", Named),
    ("env_end", Named),
    (
        "exit_code",
        Nowhere("the text has a 0 for it, like for a task that ended well, wherever the reader may not trace the task"),
    ),
];

/// The lines of `status` (proc_pid_status(5)). Not all kernels have all of them.
pub const STATUS: [(&str, Coverage); 62] = [
    ("Name", By(&[F::Comm])),
    ("Umask", Named),
    ("State", By(&[F::State])),
    ("Tgid", By(&[F::Pid])),
    (
        "Ngid",
        Nowhere("a group that NUMA balancing makes up; no other interface knows it"),
    ),
    ("Pid", By(&[F::Tid])),
    ("PPid", By(&[F::Ppid])),
    ("TracerPid", Named),
    ("Uid", Named),
    ("Gid", Named),
    ("FDSize", Named),
    ("Groups", Named),
    (
        "NStgid",
        Nowhere("nspids has the thread ids, of which the leader's are the process's"),
    ),
    ("NSpid", Named),
    ("NSpgid", Nowhere("pgid has it as the reader's namespace sees it")),
    ("NSsid", Nowhere("sid has it as the reader's namespace sees it")),
    ("Kthread", By(&[F::KernelThread])),
    ("VmPeak", Named),
    ("VmSize", Named),
    ("VmLck", Named),
    ("VmPin", Named),
    ("VmHWM", Named),
    ("VmRSS", Named),
    ("RssAnon", Named),
    ("RssFile", Named),
    ("RssShmem", Named),
    ("VmData", Named),
    ("VmStk", Named),
    ("VmExe", Named),
    ("VmLib", Named),
    ("VmPTE", Named),
    ("VmPMD", Nowhere("part of VmPTE since 4.15")),
    ("VmSwap", Named),
    ("HugetlbPages", Named),
    ("CoreDumping", Nowhere("true for the moment of a dump only")),
    (
        "THP_enabled",
        Nowhere("a switch of prctl(2) for huge pages; how many there are is what matters"),
    ),
    (
        "untag_mask",
        Nowhere("the same for all tasks of a machine, but for those that use tagged addresses"),
    ),
    ("Threads", By(&[F::ThreadsCount])),
    ("SigQ", By(&[F::SigQueuedCount, F::Limits])),
    ("SigPnd", Named),
    ("ShdPnd", Named),
    ("SigBlk", Named),
    ("SigIgn", Named),
    ("SigCgt", Named),
    ("CapInh", Named),
    ("CapPrm", Named),
    ("CapEff", Named),
    ("CapBnd", Named),
    ("CapAmb", Named),
    ("NoNewPrivs", Named),
    ("Seccomp", Named),
    (
        "Seccomp_filters",
        Nowhere("how many programs the filter is made of; seccomp says whether there is one"),
    ),
    ("Speculation_Store_Bypass", Nowhere(SPECULATION)),
    ("SpeculationIndirectBranch", Nowhere(SPECULATION)),
    ("Cpus_allowed", Named),
    ("Cpus_allowed_list", By(&[F::Affinity])),
    ("Mems_allowed", Nowhere("the nodes of its cpuset, which its cgroup has")),
    ("Mems_allowed_list", Nowhere(DISPLAY)),
    ("voluntary_ctxt_switches", Named),
    ("nonvoluntary_ctxt_switches", Named),
    ("x86_Thread_features", Nowhere(ONE_ARCHITECTURE)),
    ("x86_Thread_features_locked", Nowhere(ONE_ARCHITECTURE)),
];

/// The other files: file, part, and coverage.
pub const FILES: [(&str, &str, Coverage); 59] = [
    ("statm", "size", By(&[F::VsizeBytes])),
    ("statm", "resident", By(&[F::RssBytes])),
    ("statm", "shared", By(&[F::RssFileBytes, F::RssShmemBytes])),
    ("statm", "text", By(&[F::TextBytes])),
    ("statm", "lib", Nowhere(ZERO)),
    ("statm", "data", By(&[F::DataBytes, F::StackBytes])),
    ("statm", "dt", Nowhere(ZERO)),
    ("io", "rchar", Named),
    ("io", "wchar", Named),
    ("io", "syscr", Named),
    ("io", "syscw", Named),
    ("io", "read_bytes", Named),
    ("io", "write_bytes", Named),
    ("io", "cancelled_write_bytes", Named),
    ("schedstat", "time on a processor", By(&[F::RuntimeNs])),
    ("schedstat", "time waiting for one", By(&[F::RunDelayNs])),
    ("schedstat", "timeslices", By(&[F::TimeslicesCount])),
    ("sched", "se.sum_exec_runtime", By(&[F::RuntimeNs])),
    ("sched", "nr_voluntary_switches", By(&[F::VoluntarySwitches])),
    ("sched", "nr_involuntary_switches", By(&[F::InvoluntarySwitches])),
    ("sched", "policy", By(&[F::Policy])),
    ("sched", "prio", By(&[F::Priority])),
    (
        "sched",
        "all others",
        Nowhere("the scheduler's own numbers, for debugging it: other kernels have others"),
    ),
    ("cgroup", "the line of hierarchy 0", By(&[F::Cgroup])),
    ("cgroup", "all lines", By(&[F::Cgroups])),
    ("limits", "16 limits, soft and hard", By(&[F::Limits])),
    ("oom_score", "", Named),
    ("oom_score_adj", "", Named),
    ("oom_adj", "", Nowhere("oom_score_adj on an older scale")),
    ("loginuid", "", Named),
    ("sessionid", "", Named),
    ("timerslack_ns", "", Named),
    ("personality", "", Named),
    ("cmdline", "", Named),
    ("wchan", "", Named),
    ("attr/current", "", Named),
    ("environ", "", Named),
    ("smaps_rollup", "Rss", Named),
    ("smaps_rollup", "Pss", Named),
    ("smaps_rollup", "Pss_Dirty", Named),
    ("smaps_rollup", "Pss_Anon", Named),
    ("smaps_rollup", "Pss_File", Named),
    ("smaps_rollup", "Pss_Shmem", Named),
    ("smaps_rollup", "Shared_Clean", Named),
    ("smaps_rollup", "Shared_Dirty", Named),
    ("smaps_rollup", "Private_Clean", Named),
    ("smaps_rollup", "Private_Dirty", Named),
    ("smaps_rollup", "Referenced", Named),
    ("smaps_rollup", "Anonymous", Named),
    ("smaps_rollup", "KSM", Named),
    ("smaps_rollup", "LazyFree", Named),
    ("smaps_rollup", "AnonHugePages", Named),
    ("smaps_rollup", "ShmemPmdMapped", Named),
    ("smaps_rollup", "FilePmdMapped", Named),
    ("smaps_rollup", "Shared_Hugetlb", Named),
    ("smaps_rollup", "Private_Hugetlb", Named),
    ("smaps_rollup", "Swap", Named),
    ("smaps_rollup", "SwapPss", Named),
    ("smaps_rollup", "Locked", Named),
];

/// All values in these files: file, value, and coverage.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str, Coverage)> {
    let of = |file| move |&(value, coverage): &(&'static str, Coverage)| (file, value, coverage);
    let stat = STAT.iter().map(of("stat"));
    let status = STATUS.iter().map(of("status"));
    stat.chain(status).chain(FILES)
}

/// The fields whose rows of the table name this place.
pub fn named(file: &str, value: &str) -> Vec<Field> {
    let is_named = |field: &&Field| {
        let origin = field.info().origin.split(',').next().unwrap_or_default();
        origin.split_once(' ').unwrap_or((origin, "")) == (file, value)
    };
    Field::ALL.iter().filter(is_named).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each place that the field table names is listed, and that each value that is said
    /// to have a field has one.
    #[test]
    fn every_field_has_its_value() {
        let mut count = 0;
        for &field in Field::ALL {
            let origin = field.info().origin.split(',').next().unwrap_or_default();
            let Some((file @ ("stat" | "status" | "io"), value)) = origin.split_once(' ') else {
                continue;
            };
            assert!(all().any(|row| (row.0, row.1) == (file, value)), "{field}: {origin}");
            count += 1;
        }
        assert!(count > 80, "{count}");
        for (file, value, coverage) in all() {
            let named = named(file, value);
            let is_right = match coverage {
                Named => !named.is_empty(),
                By(fields) => named.iter().all(|field| fields.contains(field)),
                Nowhere(_) => named.is_empty(),
            };
            assert!(is_right, "{file} {value}: {coverage:?}, {named:?}");
        }
    }
}
