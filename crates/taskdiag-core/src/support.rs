//! Facts about this host, probed once: what works, what does not, and why.

use std::borrow::Cow;
use std::fmt;

use crate::error::ErrorKind;
use crate::field::Groups;

crate::named_enum! {
    /// Whether a statement is true, as far as the probe could tell.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Verdict {
        /// It is true.
        Yes => "yes",
        /// It is not true.
        No => "no",
        /// The probe could not tell.
        Unknown => "unknown",
    }
    /// The verdict in a word.
    pub fn as_str;
    impl Display;
}

/// A verdict with its reason. Displays as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fact {
    /// Whether it is true.
    pub verdict: Verdict,
    /// How this is known, or why it is not true.
    pub why: Cow<'static, str>,
    /// What to do about it; empty if nothing can be done.
    pub remedy: Cow<'static, str>,
    /// Whether it would be true for a caller with more rights.
    is_denied: bool,
}

impl Fact {
    /// Whether it is certainly true.
    pub fn is_yes(&self) -> bool {
        self.verdict == Verdict::Yes
    }
}

/// For the other crates of this project.
#[doc(hidden)]
impl Fact {
    pub fn yes(why: impl Into<Cow<'static, str>>) -> Fact {
        Fact {
            verdict: Verdict::Yes,
            why: why.into(),
            remedy: Cow::Borrowed(""),
            is_denied: false,
        }
    }

    /// The same for a reason that is known when this is compiled.
    pub const fn missing(why: &'static str) -> Fact {
        Fact {
            verdict: Verdict::No,
            why: Cow::Borrowed(why),
            remedy: Cow::Borrowed(""),
            is_denied: false,
        }
    }

    pub fn no(why: impl Into<Cow<'static, str>>, remedy: impl Into<Cow<'static, str>>) -> Fact {
        Fact {
            verdict: Verdict::No,
            why: why.into(),
            remedy: remedy.into(),
            is_denied: false,
        }
    }

    /// It is not true because the caller lacks a right.
    pub fn denied(why: impl Into<Cow<'static, str>>, remedy: impl Into<Cow<'static, str>>) -> Fact {
        Fact {
            is_denied: true,
            ..Fact::no(why, remedy)
        }
    }

    pub fn unknown(why: impl Into<Cow<'static, str>>) -> Fact {
        Fact {
            verdict: Verdict::Unknown,
            why: why.into(),
            remedy: Cow::Borrowed(""),
            is_denied: false,
        }
    }

    /// The reason, with the remedy in parentheses if there is one.
    pub fn sentence(&self) -> String {
        if self.remedy.is_empty() {
            self.why.to_string()
        } else {
            format!("{} ({})", self.why, self.remedy)
        }
    }
}

impl Default for Fact {
    /// Unknown.
    fn default() -> Fact {
        Fact::unknown("not tried yet")
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.verdict, self.sentence())
    }
}

/// The kind of the error that these facts cause: denied if a right would help.
pub fn refusal_kind(facts: &[&Fact]) -> ErrorKind {
    if facts.iter().any(|fact| fact.is_denied) {
        ErrorKind::Denied
    } else {
        ErrorKind::Unsupported
    }
}

/// What this host can answer with. `Default` knows nothing.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Support {
    /// `/proc` is mounted and shows the caller's own pid namespace.
    pub procfs: Fact,
    /// `/proc` shows every task: no mount option `hidepid` or `subset=pid` hides any from the
    /// caller.
    pub procfs_complete: Fact,
    /// The caller may trace every task, so `/proc` denies it no values (`CAP_SYS_PTRACE`,
    /// ptrace(2)). BPF does not need this.
    pub may_trace: Fact,
    /// taskdiag was built with its BPF programs.
    pub bpf_built: Fact,
    /// The kernel has type information, `/sys/kernel/btf/vmlinux` (`CONFIG_DEBUG_INFO_BTF`).
    pub btf: Fact,
    /// The caller may load BPF programs: it has `CAP_BPF` and `CAP_PERFMON` in the initial user
    /// namespace (capabilities(7)).
    pub bpf_load: Fact,
    /// The kernel has task iterators and everything else that the BPF programs need (Linux 5.17).
    pub task_iterator: Fact,
    /// Iterators can be limited to one process (Linux 6.1).
    pub iterator_by_pid: Fact,
    /// Programs can find tasks themselves (Linux 6.2). Pinned programs never do.
    pub task_walk: Fact,
    /// There are pinned programs that the caller may use.
    pub pinned: Fact,
    /// A broker (`taskdiagd`) listens and answers. Probed only when a query may need it.
    pub broker: Fact,
    /// The groups that the broker shows for every task, even for tasks that the caller may not
    /// trace. Known once the broker has been tried.
    #[doc(hidden)]
    pub broker_shows: Groups,
    /// The unified cgroup hierarchy exists (cgroups(7)).
    pub cgroup2: Fact,
    /// The caller can use cachestat(2) (Linux 6.5).
    pub cachestat: Fact,
    /// The kernel has the `PROCMAP_QUERY` ioctl on `/proc/PID/maps` (Linux 6.11).
    pub procmap_query: Fact,
    /// The kernel has `/proc/PID/smaps_rollup` (Linux 4.14).
    pub smaps_rollup: Fact,
    /// The kernel has `/proc/PID/smaps` (`CONFIG_PROC_PAGE_MONITOR`).
    pub smaps: Fact,
    /// BPF programs can read the processor times of tasks: no processor runs without ticks
    /// (`nohz_full`).
    pub plain_times: Fact,
    /// The number of tasks on this machine when it was probed, threads included, if known.
    pub tasks: Option<u32>,
    /// The number of processes on this machine when it was probed, if known.
    pub processes: Option<u32>,
    /// How many processors the caller may use.
    pub processors: u32,
}

impl Support {
    /// All facts with their names, in the order of a report.
    pub fn facts(&self) -> impl Iterator<Item = (&'static str, &Fact)> {
        let facts = [
            ("procfs", &self.procfs),
            ("procfs-complete", &self.procfs_complete),
            ("may-trace", &self.may_trace),
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
        ];
        facts.into_iter()
    }
}
