//! The sections of the page about one process, and the values of each.

use taskdiag::sockets::SocketField;
use taskdiag::{Field, Fields};

use super::cgroup::CGROUP_USE;
use crate::output::relation::{columns, columns_of, list_of, ColumnInfo};

/// What is known about a section before a process is queried.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The key in JSON.
    pub key: &'static str,
    /// The title on the page.
    pub title: &'static str,
    /// Its content.
    pub meaning: &'static str,
    /// Its values.
    pub shape: Shape,
}

/// The shape of a section's values.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// Fields of the process.
    Fields(&'static [Field]),
    /// Fields of other tasks, one row each.
    Tasks(&'static [Field]),
    /// Values with their own keys.
    Values(&'static [ColumnInfo]),
    /// Rows of values with their own keys.
    List(&'static [ColumnInfo]),
}

/// The sections, in the order of the page: the key in JSON, the title, the values, and what they are.
macro_rules! sections {
    ($($section:ident: $key:literal, $title:literal, $shape:ident($values:expr), $meaning:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // each has its name
        pub enum Section {
            $($section),*
        }

        /// All sections, in the order of the page.
        pub const SECTIONS: [(Section, Info); [$($key),*].len()] = [$((
            Section::$section,
            Info {
                key: $key,
                title: $title,
                meaning: $meaning,
                shape: Shape::$shape($values),
            },
        )),*];
    };
}

sections! {
    Process: "process", "Process", Fields(PROCESS), "What it is.";
    Parents: "parents", "Parents", Tasks(PARENT), "Its parent, the parent of that, and so on.";
    Credentials: "credentials", "Credentials", Fields(CREDENTIALS),
        "Its credentials and capabilities.";
    Unit: "unit", "What its systemd unit asked for", List(&UNIT),
        "The unit's settings for credentials, next to those of the process.";
    Limits: "limits", "Limits", List(&LIMITS),
        "Resource limits (getrlimit(2)), and how much of each is used.";
    Cgroup: "cgroup", "Control group", Fields(CGROUP), "Its place in the tree of cgroups.";
    CgroupUse: "cgroup_use", "What the control group uses", Values(&CGROUP_USE),
        "The use and limits of the cgroup, including the cgroups below it.";
    Pressure: "pressure", "What the control group waits for", List(&PRESSURE),
        "The share of time in which tasks of the cgroup waited for a resource (PSI).";
    Namespaces: "namespaces", "Namespaces", List(&NAMESPACE),
        "Its namespaces, and whether the caller is in the same.";
    Scheduling: "scheduling", "Scheduling", Fields(SCHEDULING), "How it runs.";
    Memory: "memory", "Memory", Fields(MEMORY), "What it uses.";
    Rollup: "rollup", "Its share of memory", Fields(ROLLUP),
        "Sums over its page tables (smaps_rollup).";
    Mappings: "mappings", "Mappings", List(&MAPPING),
        "Mapped files, and mappings without a file that have the same name, the largest first.";
    Io: "io", "Input and output", Fields(IO), "What it read and wrote.";
    Network: "network", "Network traffic", Fields(NETWORK),
        "What it has sent and received through sockets, where somebody counts that.";
    Files: "files", "Descriptors", List(&FILES), "The number of its descriptors, by kind of file.";
    Sockets: "sockets", "Sockets", List(&SOCKET), "The sockets that it has descriptors of.";
    Threads: "threads", "Threads", Tasks(THREAD), "Its threads, and what each waits for.";
    Signals: "signals", "Signals", Fields(SIGNALS), "Pending signals, and the actions for others.";
    Environ: "environ", "Environment", List(&ENVIRON),
        "The environment that it was started with. With --environ.";
}

const PROCESS: &[Field] = &list_of! {
    Field: Pid, Ppid, Comm, Cmdline, State, StartTime, ElapsedNs, Sid, Pgid, Tty, ThreadsCount, TracerPid, Exe, Cwd,
    Root,
};

const PARENT: &[Field] = &list_of! { Field: Pid, Comm, User, StartTime, Unit, Cmdline };

const CREDENTIALS: &[Field] = &list_of! {
    Field: User, Uid, Euid, Suid, Fsuid, Group, Gid, Egid, Sgid, Fsgid, Groups, CapEffective, CapPermitted,
    CapInheritable, CapBounding, CapAmbient, NoNewPrivs, Seccomp, SeccompFiltersCount, SecurityLabel, Loginuid,
};

const CGROUP: &[Field] = &list_of! {
    Field: Cgroup, Cgroups, Unit, UserUnit, Slice, ContainerName, ContainerId, ContainerRuntime, PodUid,
};

const SCHEDULING: &[Field] = &list_of! {
    Field: Policy, Priority, Nice, RtPriority, Affinity, Processor, UtimeNs, StimeNs, RunDelayNs, VoluntarySwitches,
    InvoluntarySwitches,
};

const MEMORY: &[Field] = &list_of! {
    Field: VsizeBytes, RssBytes, RssAnonBytes, RssFileBytes, RssShmemBytes, PeakRssBytes, SwapBytes, LockedBytes,
    PageTableBytes, MinFaults, MajFaults, OomScore, OomScoreAdj,
};

const ROLLUP: &[Field] = &list_of! {
    Field: PssBytes, UssBytes, PssAnonBytes, PssFileBytes, PssShmemBytes, SwapPssBytes,
};

const IO: &[Field] = &list_of! { Field: ReadBytes, WriteBytes, CancelledWriteBytes, ReadChars, WriteChars, FdCount };

const NETWORK: &[Field] = &list_of! {
    Field: NetSentBytes, NetReceivedBytes, NetTcpSentBytes, NetTcpReceivedBytes, NetUdpSentBytes, NetUdpReceivedBytes,
    LoopbackSentBytes, LoopbackReceivedBytes, UnixSentBytes, UnixReceivedBytes, NetSinceNs,
};

const THREAD: &[Field] = &list_of! { Field: Tid, State, Wchan, Processor, UtimeNs, StimeNs, Comm };

const SIGNALS: &[Field] = &list_of! { Field: SigPending, SigSharedPending, SigBlocked, SigIgnored, SigCaught };

/// The namespaces, each with its name.
pub const NAMESPACES: [(&str, Field); 9] = [
    ("pid", Field::NsPid),
    ("pid_for_children", Field::NsPidForChildren),
    ("mnt", Field::NsMnt),
    ("net", Field::NsNet),
    ("user", Field::NsUser),
    ("uts", Field::NsUts),
    ("ipc", Field::NsIpc),
    ("cgroup", Field::NsCgroup),
    ("time", Field::NsTime),
];

const UNIT: [ColumnInfo; 4] = columns! {
    "setting": Text, "The setting, as systemd.exec(5) has it.";
    "asked": Text, "What the unit's files say.";
    "actual": Text, "What the process has.";
    "agrees": Flag, "Whether the process has what was requested, and no additional rights.";
};

const LIMITS: [ColumnInfo; 5] = columns! {
    "limit": Text, "The limit.";
    "soft": Count, "The limit in force, or unlimited.";
    "hard": Count, "The maximum to which the process may raise it, or unlimited.";
    "used": Count, "The use, in the limit's unit, if known.";
    "used_percent": Percent, "The use in percent of the soft limit.";
};

/// Values that can be `unlimited`, which is not a number.
pub const LIMITED: [&str; 7] = [
    "soft",
    "hard",
    "memory_high_bytes",
    "memory_max_bytes",
    "swap_max_bytes",
    "cpu_max_percent",
    "tasks_max_count",
];

const PRESSURE: [ColumnInfo; 6] = columns! {
    "resource": Text, "cpu, memory or io.";
    "waiting": Text, "some: any task waited; full: all tasks did.";
    "avg10_percent": Percent, "Of the last 10 seconds.";
    "avg60_percent": Percent, "Of the last minute.";
    "avg300_percent": Percent, "Of the last five minutes.";
    "total_ns": Nanoseconds, "In all.";
};

const NAMESPACE: [ColumnInfo; 3] = columns! {
    "namespace": Text, "Which namespace.";
    "inode": Id, "Its number, as in /proc/PID/ns.";
    "own": Flag, "Whether it is also the caller's.";
};

const MAPPING: [ColumnInfo; 6] = columns! {
    "rss_bytes": Bytes, "The resident part, without pages of hugetlbfs.";
    "size_bytes": Bytes, "Their size.";
    "dirty_bytes": Bytes, "The part that was written to.";
    "hugetlb_bytes": Bytes, "Resident pages of hugetlbfs.";
    "mappings_count": Count, "How many mappings.";
    "name": Text, "The file, or the kernel's name for a mapping without one.";
};

const FILES: [ColumnInfo; 3] = columns! {
    "kind": Text, "The kind of file, or the object of the kernel: as in files, kind or anon_kind.";
    "descriptors_count": Count, "How many descriptors.";
    "deleted_count": Count, "The number of those whose file has no name.";
};

const ENVIRON: [ColumnInfo; 2] = columns! {
    "name": Text, "The text before the first equals sign.";
    "value": Text, "The text after it; absent if there is none.";
};

/// The fields shown for sockets.
pub const SOCKET_FIELDS: [SocketField; 18] = list_of! {
    SocketField: Family, Type, Protocol, State, RecvQueueBytes, SendQueueBytes, AckedBytes, ReceivedBytes, LocalAddr,
    LocalPort, RemoteAddr, RemotePort, Ipv6Only, Path, Inode, Netns, Owners, Peers,
};

const SOCKET: [ColumnInfo; SOCKET_FIELDS.len()] = columns_of!(SOCKET_FIELDS);

impl Section {
    /// What is known about the section.
    pub fn info(self) -> &'static Info {
        &SECTIONS[self as usize].1
    }

    /// The columns of its rows.
    pub fn columns(self) -> Vec<ColumnInfo> {
        match self.info().shape {
            Shape::Fields(fields) | Shape::Tasks(fields) => {
                fields.iter().map(|&field| ColumnInfo::of_task(field)).collect()
            }
            Shape::Values(keys) | Shape::List(keys) => keys.to_vec(),
        }
    }

    /// The fields of tasks that the section shows.
    pub fn fields(self) -> &'static [Field] {
        match self.info().shape {
            Shape::Fields(fields) | Shape::Tasks(fields) => fields,
            Shape::Values(_) | Shape::List(_) => &[],
        }
    }
}

/// The fields of the process itself that the page needs, except for its environment.
pub fn fields_of_process() -> Fields {
    let shown = SECTIONS.iter().filter_map(|(_, info)| match info.shape {
        Shape::Fields(fields) => Some(fields.iter().copied()),
        _ => None,
    });
    let namespaces = NAMESPACES.iter().map(|(_, field)| *field);
    // The values that limits are compared with, and those that identify the process.
    let others = list_of! { Field: StartNs, Limits, DataBytes, StackBytes, SigQueuedCount };
    shown.flatten().chain(namespaces).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that sections are found by their number, and have unique keys.
    #[test]
    fn sections_have_keys() {
        for (index, (section, info)) in SECTIONS.iter().enumerate() {
            assert_eq!(*section as usize, index);
            assert!(SECTIONS[..index].iter().all(|(_, other)| other.key != info.key));
            assert!(!info.meaning.is_empty() && !info.title.is_empty());
        }
        assert!(fields_of_process().contains(Field::PssBytes) && !fields_of_process().contains(Field::Environ));
    }
}
