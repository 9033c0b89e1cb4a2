//! Every value in the text files of `/proc/PID`, with its field, or the reason why it has none.

use crate::field::Field;

/// Whether fields cover a value of `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// These fields have the value.
    By(&'static [Field]),
    /// No field has it, for this reason.
    Nowhere(&'static str),
}

use Coverage::{By, Nowhere};
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
    ("comm", By(&[F::Comm])),
    ("state", By(&[F::State])),
    ("ppid", By(&[F::Ppid])),
    ("pgrp", By(&[F::Pgid])),
    ("session", By(&[F::Sid])),
    ("tty_nr", By(&[F::TtyNr])),
    ("tpgid", By(&[F::Tpgid])),
    ("flags", By(&[F::Flags, F::KernelThread])),
    ("minflt", By(&[F::MinFaults])),
    ("cminflt", By(&[F::ChildMinFaults])),
    ("majflt", By(&[F::MajFaults])),
    ("cmajflt", By(&[F::ChildMajFaults])),
    ("utime", By(&[F::UtimeNs])),
    ("stime", By(&[F::StimeNs])),
    ("cutime", By(&[F::CutimeNs])),
    ("cstime", By(&[F::CstimeNs])),
    ("priority", By(&[F::Priority])),
    ("nice", By(&[F::Nice])),
    ("num_threads", By(&[F::ThreadsCount])),
    ("itrealvalue", Nowhere(ZERO)),
    ("starttime", By(&[F::StartNs])),
    ("vsize", By(&[F::VsizeBytes])),
    ("rss", By(&[F::RssBytes])),
    ("rsslim", By(&[F::Limits])),
    ("startcode", By(&[F::StartCode])),
    ("endcode", By(&[F::EndCode])),
    ("startstack", By(&[F::StartStack])),
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
    ("exit_signal", By(&[F::ExitSignal])),
    ("processor", By(&[F::Processor])),
    ("rt_priority", By(&[F::RtPriority])),
    ("policy", By(&[F::Policy])),
    ("delayacct_blkio_ticks", By(&[F::BlockDelayNs])),
    ("guest_time", By(&[F::GuestNs])),
    ("cguest_time", By(&[F::CguestNs])),
    ("start_data", By(&[F::StartData])),
    ("end_data", By(&[F::EndData])),
    ("start_brk", By(&[F::StartBrk])),
    ("arg_start", By(&[F::ArgStart])),
    ("arg_end", By(&[F::ArgEnd])),
    ("env_start", By(&[F::EnvStart])),
    ("env_end", By(&[F::EnvEnd])),
    (
        "exit_code",
        Nowhere("the text has a 0 for it, like for a task that ended well, wherever the reader may not trace the task"),
    ),
];

/// The lines of `status` (proc_pid_status(5)). Not all kernels have all of them.
pub const STATUS: [(&str, Coverage); 62] = [
    ("Name", By(&[F::Comm])),
    ("Umask", By(&[F::Umask])),
    ("State", By(&[F::State])),
    ("Tgid", By(&[F::Pid])),
    (
        "Ngid",
        Nowhere("a group that NUMA balancing makes up; no other interface knows it"),
    ),
    ("Pid", By(&[F::Tid])),
    ("PPid", By(&[F::Ppid])),
    ("TracerPid", By(&[F::TracerPid])),
    ("Uid", By(&[F::Uid, F::Euid, F::Suid, F::Fsuid])),
    ("Gid", By(&[F::Gid, F::Egid, F::Sgid, F::Fsgid])),
    ("FDSize", By(&[F::FdTableSize])),
    ("Groups", By(&[F::Groups])),
    (
        "NStgid",
        Nowhere("nspids has the thread ids, of which the leader's are the process's"),
    ),
    ("NSpid", By(&[F::Nspids])),
    ("NSpgid", Nowhere("pgid has it as the reader's namespace sees it")),
    ("NSsid", Nowhere("sid has it as the reader's namespace sees it")),
    ("Kthread", By(&[F::KernelThread])),
    ("VmPeak", By(&[F::PeakVsizeBytes])),
    ("VmSize", By(&[F::VsizeBytes])),
    ("VmLck", By(&[F::LockedBytes])),
    ("VmPin", By(&[F::PinnedBytes])),
    ("VmHWM", By(&[F::PeakRssBytes])),
    ("VmRSS", By(&[F::RssBytes])),
    ("RssAnon", By(&[F::RssAnonBytes])),
    ("RssFile", By(&[F::RssFileBytes])),
    ("RssShmem", By(&[F::RssShmemBytes])),
    ("VmData", By(&[F::DataBytes])),
    ("VmStk", By(&[F::StackBytes])),
    ("VmExe", By(&[F::TextBytes])),
    ("VmLib", By(&[F::LibBytes])),
    ("VmPTE", By(&[F::PageTableBytes])),
    ("VmPMD", Nowhere("part of VmPTE since 4.15")),
    ("VmSwap", By(&[F::SwapBytes])),
    ("HugetlbPages", By(&[F::HugetlbBytes])),
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
    ("SigPnd", By(&[F::SigPending])),
    ("ShdPnd", By(&[F::SigSharedPending])),
    ("SigBlk", By(&[F::SigBlocked])),
    ("SigIgn", By(&[F::SigIgnored])),
    ("SigCgt", By(&[F::SigCaught])),
    ("CapInh", By(&[F::CapInheritable])),
    ("CapPrm", By(&[F::CapPermitted])),
    ("CapEff", By(&[F::CapEffective])),
    ("CapBnd", By(&[F::CapBounding])),
    ("CapAmb", By(&[F::CapAmbient])),
    ("NoNewPrivs", By(&[F::NoNewPrivs])),
    ("Seccomp", By(&[F::Seccomp])),
    (
        "Seccomp_filters",
        Nowhere("how many programs the filter is made of; seccomp says whether there is one"),
    ),
    ("Speculation_Store_Bypass", Nowhere(SPECULATION)),
    ("SpeculationIndirectBranch", Nowhere(SPECULATION)),
    ("Cpus_allowed", By(&[F::Affinity])),
    ("Cpus_allowed_list", By(&[F::Affinity])),
    ("Mems_allowed", Nowhere("the nodes of its cpuset, which its cgroup has")),
    ("Mems_allowed_list", Nowhere(DISPLAY)),
    ("voluntary_ctxt_switches", By(&[F::VoluntarySwitches])),
    ("nonvoluntary_ctxt_switches", By(&[F::InvoluntarySwitches])),
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
    ("io", "rchar", By(&[F::ReadChars])),
    ("io", "wchar", By(&[F::WriteChars])),
    ("io", "syscr", By(&[F::ReadSyscalls])),
    ("io", "syscw", By(&[F::WriteSyscalls])),
    ("io", "read_bytes", By(&[F::ReadBytes])),
    ("io", "write_bytes", By(&[F::WriteBytes])),
    ("io", "cancelled_write_bytes", By(&[F::CancelledWriteBytes])),
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
    (
        "cgroup",
        "the other lines",
        Nowhere("hierarchies of version 1, one for each controller, which new systems do not mount"),
    ),
    ("limits", "16 limits, soft and hard", By(&[F::Limits])),
    ("oom_score", "", By(&[F::OomScore])),
    ("oom_score_adj", "", By(&[F::OomScoreAdj])),
    ("oom_adj", "", Nowhere("oom_score_adj on an older scale")),
    ("loginuid", "", By(&[F::Loginuid])),
    ("sessionid", "", By(&[F::AuditSession])),
    ("timerslack_ns", "", By(&[F::TimerSlackNs])),
    ("personality", "", By(&[F::Personality])),
    ("cmdline", "", By(&[F::Cmdline])),
    ("wchan", "", By(&[F::Wchan])),
    ("attr/current", "", By(&[F::SecurityLabel])),
    ("environ", "", By(&[F::Environ])),
    ("smaps_rollup", "Rss", By(&[F::RollupRssBytes])),
    ("smaps_rollup", "Pss", By(&[F::PssBytes])),
    ("smaps_rollup", "Pss_Dirty", By(&[F::PssDirtyBytes])),
    ("smaps_rollup", "Pss_Anon", By(&[F::PssAnonBytes])),
    ("smaps_rollup", "Pss_File", By(&[F::PssFileBytes])),
    ("smaps_rollup", "Pss_Shmem", By(&[F::PssShmemBytes])),
    ("smaps_rollup", "Shared_Clean", By(&[F::SharedCleanBytes])),
    ("smaps_rollup", "Shared_Dirty", By(&[F::SharedDirtyBytes])),
    ("smaps_rollup", "Private_Clean", By(&[F::PrivateCleanBytes])),
    ("smaps_rollup", "Private_Dirty", By(&[F::PrivateDirtyBytes])),
    ("smaps_rollup", "Referenced", By(&[F::ReferencedBytes])),
    ("smaps_rollup", "Anonymous", By(&[F::AnonymousBytes])),
    ("smaps_rollup", "KSM", By(&[F::KsmBytes])),
    ("smaps_rollup", "LazyFree", By(&[F::LazyfreeBytes])),
    ("smaps_rollup", "AnonHugePages", By(&[F::AnonHugeBytes])),
    ("smaps_rollup", "ShmemPmdMapped", By(&[F::ShmemHugeBytes])),
    ("smaps_rollup", "FilePmdMapped", By(&[F::FileHugeBytes])),
    ("smaps_rollup", "Shared_Hugetlb", By(&[F::SharedHugetlbBytes])),
    ("smaps_rollup", "Private_Hugetlb", By(&[F::PrivateHugetlbBytes])),
    ("smaps_rollup", "Swap", By(&[F::RollupSwapBytes])),
    ("smaps_rollup", "SwapPss", By(&[F::SwapPssBytes])),
    ("smaps_rollup", "Locked", By(&[F::RollupLockedBytes])),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(file: &str, value: &str, field: Field) -> bool {
        let stat = STAT.iter().map(|&(name, told)| ("stat", name, told));
        let status = STATUS.iter().map(|&(name, told)| ("status", name, told));
        stat.chain(status)
            .chain(FILES)
            .any(|row| matches!(row, (f, v, By(fields)) if (f, v) == (file, value) && fields.contains(&field)))
    }

    /// Check that the value that the field table names is said to have that field.
    #[test]
    fn every_field_has_its_value() {
        let mut count = 0;
        for &field in Field::ALL {
            let origin = field.info().origin.split(',').next().unwrap_or_default();
            let Some((file @ ("stat" | "status" | "io"), value)) = origin.split_once(' ') else {
                continue;
            };
            assert!(covers(file, value, field), "{field}: {origin}");
            count += 1;
        }
        assert!(count > 80, "{count}");
    }
}
