//! The contenders: one table for running, reporting and comparing.

use taskdiag::SourceId;

use crate::commands::{self, Answer, Program, Shell};
use crate::library::{self, Ask};
use crate::loops::{self, Visit};
use crate::run::Runner;
use crate::tools::Tools;
use crate::{floor, procfs_crate, Result};

/// The tasks that a contender lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lists {
    /// Processes.
    Processes,
    /// Threads.
    Threads,
    /// Every task, in any query.
    Anything,
}

/// How to run a contender.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// In this process.
    Call(fn() -> Result<Runner>),
    /// As a command.
    Command(Shell),
    /// In a long-running Python process that measures the time itself.
    Psutil(&'static str),
}

/// A contender.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    /// Its name, for `--filter` and `--once`.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// The tasks that it lists.
    pub lists: Lists,
    /// How to run it.
    pub way: Way,
}

impl Contender {
    /// Prepares the contender. An error says why it can't take part.
    pub fn prepare(&self, tools: &Tools) -> Result<Runner> {
        match self.way {
            Way::Call(prepare) => prepare(),
            Way::Command(shell) => commands::timed(shell, tools),
            Way::Psutil(what) => commands::psutil(what, tools),
        }
    }
}

const BPF: Ask = Ask {
    source: SourceId::Bpf,
    threads: false,
    args: false,
};
const BPF_ARGS: Ask = Ask { args: true, ..BPF };
const BPF_THREADS: Ask = Ask { threads: true, ..BPF };
const PROCFS: Ask = Ask {
    source: SourceId::Procfs,
    ..BPF
};
const PROCFS_ARGS: Ask = Ask {
    source: SourceId::Procfs,
    ..BPF_ARGS
};
const PROCFS_THREADS: Ask = Ask {
    source: SourceId::Procfs,
    ..BPF_THREADS
};

/// A contender that runs in this process.
pub const fn call(name: &'static str, lists: Lists, about: &'static str, prepare: fn() -> Result<Runner>) -> Contender {
    Contender {
        name,
        about,
        lists,
        way: Way::Call(prepare),
    }
}

/// A contender that is a command.
pub const fn command(
    name: &'static str,
    lists: Lists,
    about: &'static str,
    program: Program,
    args: &'static [&'static str],
) -> Contender {
    let shell = Shell {
        program,
        args,
        pinned: false,
        answer: Answer::Lines,
    };
    Contender {
        name,
        about,
        lists,
        way: Way::Command(shell),
    }
}

const fn pinned(contender: Contender) -> Contender {
    match contender.way {
        Way::Command(shell) => Contender {
            way: Way::Command(Shell { pinned: true, ..shell }),
            ..contender
        },
        _ => contender,
    }
}

const fn json(contender: Contender) -> Contender {
    match contender.way {
        Way::Command(shell) => Contender {
            way: Way::Command(Shell {
                answer: Answer::Json,
                ..shell
            }),
            ..contender
        },
        _ => contender,
    }
}

/// The columns of ps that are closest to the groups base and cred.
const PS_COLUMNS: &str = "pid,ppid,pgid,sid,stat,nlwp,ruid,euid,suid,fuid,rgid,egid,sgid,fgid,comm";

/// All files that contain fields.
const ALL_FILES: &[Visit] = &[
    Read("stat"),
    Read("status"),
    Read("schedstat"),
    Read("cmdline"),
    Read("oom_score_adj"),
    Read("oom_score"),
    Read("cgroup"),
    Read("io"),
    Read("limits"),
    Read("environ"),
    Read("loginuid"),
    Read("sessionid"),
    Read("personality"),
    Read("timerslack_ns"),
    Link("exe"),
    Link("cwd"),
    Link("root"),
    Link("ns/pid"),
    Link("ns/pid_for_children"),
    Link("ns/mnt"),
    Link("ns/net"),
    Link("ns/user"),
    Link("ns/uts"),
    Link("ns/ipc"),
    Link("ns/cgroup"),
    Link("ns/time"),
    Look("fd"),
];

use Lists::{Anything, Processes, Threads};
use Program::{Ps, Python, Taskdiag};
use Visit::{Link, Look, Open, Read};

/// All contenders.
#[rustfmt::skip]
pub const ALL: &[Contender] = &[
    call("loop/stat-open", Processes, "open, close /proc/PID/stat",
        || Ok(loops::processes(&[Open("stat")]))),
    call("loop/stat", Processes, "open, read, close /proc/PID/stat",
        || Ok(loops::processes(&[Read("stat")]))),
    call("loop/status", Processes, "open, read, close /proc/PID/status",
        || Ok(loops::processes(&[Read("status")]))),
    call("loop/status+cmdline", Processes, "the same, and cmdline",
        || Ok(loops::processes(&[Read("status"), Read("cmdline")]))),
    call("loop/thread-stat", Threads, "open, read, close /proc/PID/task/TID/stat",
        || Ok(loops::threads(Read("stat")))),
    call("loop/thread-status", Threads, "open, read, close /proc/PID/task/TID/status",
        || Ok(loops::threads(Read("status")))),

    call("iterator/empty", Anything, "BPF task iterator, `return 0`: the floor",
        floor::walk),
    call("library/bpf", Processes, "base+cred, the snapshot's memory used again",
        || library::again(BPF)),
    call("library/bpf-fresh", Processes, "base+cred, a new snapshot each time",
        || library::fresh_snapshot(BPF)),
    call("library/bpf-first", Processes, "base+cred, a new handle: with loading",
        || library::first_query_and_loading(BPF)),
    call("library/bpf+args-cold", Processes, "base+cred+args, loaded, nothing read before",
        || library::first_query(BPF_ARGS, false)),
    call("library/bpf+args-one-shot", Processes, "the same, and nothing kept for a next query",
        || library::first_query(BPF_ARGS, true)),
    call("library/bpf+args-again", Processes, "base+cred+args, asked again",
        || library::again(BPF_ARGS)),
    call("library/procfs", Processes, "base+cred from procfs",
        || library::again(PROCFS)),
    call("library/procfs+args", Processes, "base+cred+args from procfs",
        || library::again(PROCFS_ARGS)),
    call("library/bpf-threads", Threads, "base+cred of threads",
        || library::again(BPF_THREADS)),
    call("library/procfs-threads", Threads, "base+cred of threads from procfs",
        || library::again(PROCFS_THREADS)),

    call("loop/all-files", Processes, "all files, links and directories that have our fields",
        || Ok(loops::processes(ALL_FILES))),
    call("library/bpf-all", Processes, "all groups",
        library::all_groups),
    call("library/bpf-base", Processes, "base alone",
        library::base),
    call("library/bpf-where-uid", Anything, "base+io+args of 1 % of the processes, by uid",
        library::one_user),
    call("library/bpf-ten", Anything, "base+cred of ten processes, listed by pid",
        library::ten),
    call("library/bpf-watch-all", Processes, "base+cred+cpu+faults+io, 200 processes active",
        || library::watch(false)),
    call("library/bpf-watch-changed", Anything, "the same, only what changed",
        || library::watch(true)),

    call("procfs-crate/all_processes", Processes, "all_processes(), stat(), status()",
        || Ok(procfs_crate::all_processes(false))),
    call("procfs-crate/from_file", Processes, "Stat::from_file, Status::from_file",
        || Ok(procfs_crate::from_file())),
    call("procfs-crate/args", Processes, "all_processes(), stat(), status(), cmdline()",
        || Ok(procfs_crate::all_processes(true))),
    call("procfs-crate/threads", Threads, "tasks(), stat(), status()",
        || Ok(procfs_crate::threads())),
    Contender { name: "psutil/base+cred", about: "process_iter(8 attributes), interpreter running", lists: Processes,
        way: Way::Psutil("base+cred") },
    Contender { name: "psutil/base+cred+args", about: "the same, and cmdline", lists: Processes,
        way: Way::Psutil("base+cred+args") },

    command("command/psutil", Processes, "python3, psutil.process_iter(8 attributes)", Python, &["base+cred"]),
    command("command/ps-eo", Processes, "ps -eo, columns of base+cred", Ps, &["-eo", PS_COLUMNS]),
    command("command/ps-aux", Processes, "ps aux", Ps, &["aux"]),
    command("command/taskdiag", Processes, "taskdiag ps, nothing pinned", Taskdiag, &["ps"]),
    pinned(command("command/taskdiag-pinned", Processes, "taskdiag ps after taskdiag pin", Taskdiag, &["ps"])),
    command("command/taskdiag-procfs", Processes, "taskdiag ps --source procfs", Taskdiag,
        &["ps", "--source", "procfs"]),
    command("command/taskdiag-base+cred", Processes, "taskdiag ps -o base,cred", Taskdiag, &["ps", "-o", "base,cred"]),
    json(command("command/taskdiag-all-json", Processes, "taskdiag ps -o all --json", Taskdiag,
        &["ps", "-o", "all", "--json"])),
    command("command/ps-eLo", Threads, "ps -eLo, columns of base+cred", Ps, &["-eLo", PS_COLUMNS]),
    command("command/taskdiag-threads", Threads, "taskdiag ps -T", Taskdiag, &["ps", "-T"]),
];
