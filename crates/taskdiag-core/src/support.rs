//! Facts about this host: what can answer, probed once.

use std::borrow::Cow;

use crate::error::ErrorKind;

/// Whether something is so, as far as could be found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is.
    Yes,
    /// It is not.
    No,
    /// It could not be found out.
    Unknown,
}

impl Verdict {
    /// The verdict in a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Yes => "yes",
            Verdict::No => "no",
            Verdict::Unknown => "unknown",
        }
    }
}

/// A verdict with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Whether it is so.
    pub verdict: Verdict,
    /// How we know, or why it is not so.
    pub why: Cow<'static, str>,
    /// What to do about it; empty if there is nothing to do.
    pub remedy: Cow<'static, str>,
}

impl Fact {
    /// It is so.
    pub fn yes(why: impl Into<Cow<'static, str>>) -> Fact {
        Fact {
            verdict: Verdict::Yes,
            why: why.into(),
            remedy: Cow::Borrowed(""),
        }
    }

    /// It is not so, and what would make it so.
    pub fn no(why: impl Into<Cow<'static, str>>, remedy: impl Into<Cow<'static, str>>) -> Fact {
        Fact {
            verdict: Verdict::No,
            why: why.into(),
            remedy: remedy.into(),
        }
    }

    /// It could not be found out.
    pub fn unknown(why: impl Into<Cow<'static, str>>) -> Fact {
        Fact {
            verdict: Verdict::Unknown,
            why: why.into(),
            remedy: Cow::Borrowed(""),
        }
    }

    /// Whether it is so for certain.
    pub fn is_yes(&self) -> bool {
        self.verdict == Verdict::Yes
    }

    /// Why it is so or not, and what to do about it.
    #[doc(hidden)]
    pub fn sentence(&self) -> String {
        if self.remedy.is_empty() {
            self.why.to_string()
        } else {
            format!("{} ({})", self.why, self.remedy)
        }
    }
}

/// The kind of an error that these facts are the reason of: with a capability it would be possible, or it is not.
#[doc(hidden)]
pub fn refusal_kind(facts: &[&Fact]) -> ErrorKind {
    if facts.iter().any(|fact| fact.why.contains("CAP_")) {
        ErrorKind::Denied
    } else {
        ErrorKind::Unsupported
    }
}

/// What this host can answer with.
#[derive(Clone, Debug)]
pub struct Support {
    /// `/proc` is mounted and shows the caller's own pid namespace.
    pub procfs: Fact,
    /// `/proc` shows every task: not mounted with `hidepid` or `subset=pid` against the caller.
    pub procfs_complete: Fact,
    /// taskdiag was built with its BPF programs.
    pub bpf_built: Fact,
    /// The kernel's type information, `/sys/kernel/btf/vmlinux`.
    pub btf: Fact,
    /// The caller may load BPF programs: `CAP_BPF` and `CAP_PERFMON` in the initial user namespace.
    pub bpf_load: Fact,
    /// The kernel has task iterators and all that our programs need (Linux 5.17).
    pub task_iterator: Fact,
    /// Iterators can be told to visit one process only (Linux 6.1).
    pub iterator_by_pid: Fact,
    /// Programs can find their tasks themselves (Linux 6.2). Pinned ones never do.
    pub task_walk: Fact,
    /// Programs are pinned that the caller may use.
    pub pinned: Fact,
    /// A broker (`taskdiagd`) listens and answers. Not tried until a query may need it.
    pub broker: Fact,
    /// The groups that the broker shows of every task, whether or not the caller may trace it; asked when it is tried.
    pub broker_shows: crate::field::Groups,
    /// The unified cgroup hierarchy exists.
    pub cgroup2: Fact,
    /// cachestat(2) can be called (Linux 6.5).
    pub cachestat: Fact,
    /// Mappings can be looked up by the `PROCMAP_QUERY` ioctl (Linux 6.11).
    pub procmap_query: Fact,
    /// `/proc/PID/smaps_rollup` is there (Linux 4.14).
    pub smaps_rollup: Fact,
    /// `/proc/PID/smaps` is there: the kernel was built with `CONFIG_PROC_PAGE_MONITOR`.
    pub smaps: Fact,
    /// The kernel counts the times of tasks as BPF programs can read them: it has no processors without ticks (`nohz_full`).
    pub plain_times: Fact,
    /// Tasks on this machine when it was probed, threads included, if known.
    pub tasks: Option<u32>,
    /// Processes on this machine when it was probed, if known.
    pub processes: Option<u32>,
    /// Processors that the caller may use.
    pub processors: u32,
}

impl Support {
    /// All facts with their names, for a report.
    pub fn facts(&self) -> [(&'static str, &Fact); 16] {
        [
            ("procfs", &self.procfs),
            ("procfs-complete", &self.procfs_complete),
            ("bpf-built", &self.bpf_built),
            ("btf", &self.btf),
            ("bpf-load", &self.bpf_load),
            ("task-iterator", &self.task_iterator),
            ("iterator-by-pid", &self.iterator_by_pid),
            ("task-walk", &self.task_walk),
            ("pinned", &self.pinned),
            ("broker", &self.broker),
            ("cgroup2", &self.cgroup2),
            ("cachestat", &self.cachestat),
            ("procmap-query", &self.procmap_query),
            ("smaps-rollup", &self.smaps_rollup),
            ("smaps", &self.smaps),
            ("plain-times", &self.plain_times),
        ]
    }
}
