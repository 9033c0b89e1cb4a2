//! The sections of the page about one process, and the values of each.

use taskdiag::sockets::SocketField;
use taskdiag::{Field, Fields, Kind};

use crate::output::relation::{column, ColumnInfo};

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

/// The sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // each has its name
pub enum Section {
    Process,
    Parents,
    Credentials,
    Unit,
    Limits,
    Cgroup,
    CgroupUse,
    Pressure,
    Namespaces,
    Scheduling,
    Memory,
    Rollup,
    Mappings,
    Io,
    Files,
    Sockets,
    Threads,
    Signals,
    Environ,
}

/// All sections, in the order of the page.
pub const SECTIONS: [(Section, Info); 19] = [
    section(
        Section::Process,
        "process",
        "Process",
        "What it is.",
        Shape::Fields(PROCESS),
    ),
    section(
        Section::Parents,
        "parents",
        "Parents",
        "Its parent, the parent of that, and so on.",
        Shape::Tasks(PARENT),
    ),
    section(
        Section::Credentials,
        "credentials",
        "Credentials",
        "Its credentials and capabilities.",
        Shape::Fields(CREDENTIALS),
    ),
    section(
        Section::Unit,
        "unit",
        "What its systemd unit asked for",
        "The unit's settings for credentials, next to those of the process.",
        Shape::List(&UNIT),
    ),
    section(
        Section::Limits,
        "limits",
        "Limits",
        "Resource limits (getrlimit(2)), and how much of each is used.",
        Shape::List(&LIMITS),
    ),
    section(
        Section::Cgroup,
        "cgroup",
        "Control group",
        "Its place in the tree of cgroups.",
        Shape::Fields(CGROUP),
    ),
    section(
        Section::CgroupUse,
        "cgroup_use",
        "What the control group uses",
        "The use and limits of the cgroup, including the cgroups below it.",
        Shape::Values(&CGROUP_USE),
    ),
    section(
        Section::Pressure,
        "pressure",
        "What the control group waits for",
        "The share of time in which tasks of the cgroup waited for a resource (PSI).",
        Shape::List(&PRESSURE),
    ),
    section(
        Section::Namespaces,
        "namespaces",
        "Namespaces",
        "Its namespaces, and whether the caller is in the same.",
        Shape::List(&NAMESPACE),
    ),
    section(
        Section::Scheduling,
        "scheduling",
        "Scheduling",
        "How it runs.",
        Shape::Fields(SCHEDULING),
    ),
    section(
        Section::Memory,
        "memory",
        "Memory",
        "What it uses.",
        Shape::Fields(MEMORY),
    ),
    section(
        Section::Rollup,
        "rollup",
        "Its share of memory",
        "Sums over its page tables (smaps_rollup).",
        Shape::Fields(ROLLUP),
    ),
    section(
        Section::Mappings,
        "mappings",
        "Mappings",
        "Mapped files, and mappings without a file that have the same name, the largest first.",
        Shape::List(&MAPPING),
    ),
    section(
        Section::Io,
        "io",
        "Input and output",
        "What it read and wrote.",
        Shape::Fields(IO),
    ),
    section(
        Section::Files,
        "files",
        "Descriptors",
        "The number of its descriptors, by kind of file.",
        Shape::List(&FILES),
    ),
    section(
        Section::Sockets,
        "sockets",
        "Sockets",
        "The sockets that it has descriptors of.",
        Shape::List(&SOCKET),
    ),
    section(
        Section::Threads,
        "threads",
        "Threads",
        "Its threads, and what each waits for.",
        Shape::Tasks(THREAD),
    ),
    section(
        Section::Signals,
        "signals",
        "Signals",
        "Pending signals, and the actions for others.",
        Shape::Fields(SIGNALS),
    ),
    section(
        Section::Environ,
        "environ",
        "Environment",
        "The environment that it was started with. With --environ.",
        Shape::List(&ENVIRON),
    ),
];

const fn section(
    section: Section,
    key: &'static str,
    title: &'static str,
    meaning: &'static str,
    shape: Shape,
) -> (Section, Info) {
    let info = Info {
        key,
        title,
        meaning,
        shape,
    };
    (section, info)
}

#[rustfmt::skip]
const PROCESS: &[Field] = &[
    Field::Pid, Field::Ppid, Field::Comm, Field::Cmdline, Field::State, Field::StartTime, Field::ElapsedNs, Field::Sid,
    Field::Pgid, Field::Tty, Field::ThreadsCount, Field::TracerPid, Field::Exe, Field::Cwd, Field::Root,
];

const PARENT: &[Field] = &[
    Field::Pid,
    Field::Comm,
    Field::User,
    Field::StartTime,
    Field::Unit,
    Field::Cmdline,
];

#[rustfmt::skip]
const CREDENTIALS: &[Field] = &[
    Field::User, Field::Uid, Field::Euid, Field::Suid, Field::Fsuid, Field::Group, Field::Gid, Field::Egid, Field::Sgid,
    Field::Fsgid, Field::Groups, Field::CapEffective, Field::CapPermitted, Field::CapInheritable, Field::CapBounding,
    Field::CapAmbient, Field::NoNewPrivs, Field::Seccomp, Field::SecurityLabel, Field::Loginuid,
];

#[rustfmt::skip]
const CGROUP: &[Field] = &[
    Field::Cgroup, Field::Unit, Field::UserUnit, Field::Slice, Field::ContainerName, Field::ContainerId,
    Field::ContainerRuntime, Field::PodUid,
];

#[rustfmt::skip]
const SCHEDULING: &[Field] = &[
    Field::Policy, Field::Priority, Field::Nice, Field::RtPriority, Field::Affinity, Field::Processor, Field::UtimeNs,
    Field::StimeNs, Field::RunDelayNs, Field::VoluntarySwitches, Field::InvoluntarySwitches,
];

#[rustfmt::skip]
const MEMORY: &[Field] = &[
    Field::VsizeBytes, Field::RssBytes, Field::RssAnonBytes, Field::RssFileBytes, Field::RssShmemBytes, Field::PeakRssBytes,
    Field::SwapBytes, Field::LockedBytes, Field::PageTableBytes, Field::MinFaults, Field::MajFaults, Field::OomScore,
    Field::OomScoreAdj,
];

const ROLLUP: &[Field] = &[
    Field::PssBytes,
    Field::UssBytes,
    Field::PssAnonBytes,
    Field::PssFileBytes,
    Field::PssShmemBytes,
    Field::SwapPssBytes,
];

const IO: &[Field] = &[
    Field::ReadBytes,
    Field::WriteBytes,
    Field::CancelledWriteBytes,
    Field::ReadChars,
    Field::WriteChars,
    Field::FdCount,
];

const THREAD: &[Field] = &[
    Field::Tid,
    Field::State,
    Field::Wchan,
    Field::Processor,
    Field::UtimeNs,
    Field::StimeNs,
    Field::Comm,
];

const SIGNALS: &[Field] = &[
    Field::SigPending,
    Field::SigSharedPending,
    Field::SigBlocked,
    Field::SigIgnored,
    Field::SigCaught,
];

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

const UNIT: [ColumnInfo; 4] = [
    column("setting", Kind::Text, "The setting, as systemd.exec(5) has it."),
    column("asked", Kind::Text, "What the unit's files say."),
    column("actual", Kind::Text, "What the process has."),
    column(
        "agrees",
        Kind::Flag,
        "Whether the process has what was requested, and no additional rights.",
    ),
];

const LIMITS: [ColumnInfo; 5] = [
    column("limit", Kind::Text, "The limit."),
    column("soft", Kind::Count, "The limit in force, or unlimited."),
    column(
        "hard",
        Kind::Count,
        "The maximum to which the process may raise it, or unlimited.",
    ),
    column("used", Kind::Count, "The use, in the limit's unit, if known."),
    column("used_percent", Kind::Percent, "The use in percent of the soft limit."),
];

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

/// The figures of a cgroup. [`super::cgroup`] has the source of each.
pub const CGROUP_USE: [ColumnInfo; 20] = [
    column(
        "frozen",
        Kind::Flag,
        "Whether all its tasks are frozen: cgroup.events, frozen.",
    ),
    column("memory_bytes", Kind::Bytes, "memory.current"),
    column("memory_peak_bytes", Kind::Bytes, "memory.peak"),
    column(
        "memory_high_bytes",
        Kind::Bytes,
        "memory.high: above it, processes are throttled.",
    ),
    column(
        "memory_max_bytes",
        Kind::Bytes,
        "memory.max: above, processes are killed.",
    ),
    column("swap_bytes", Kind::Bytes, "memory.swap.current"),
    column("swap_max_bytes", Kind::Bytes, "memory.swap.max"),
    column("oom_kills_count", Kind::Count, "memory.events, oom_kill"),
    column("cpu_ns", Kind::Nanoseconds, "cpu.stat, usage_usec"),
    column("cpu_user_ns", Kind::Nanoseconds, "cpu.stat, user_usec"),
    column("cpu_system_ns", Kind::Nanoseconds, "cpu.stat, system_usec"),
    column("cpu_max_percent", Kind::Percent, "cpu.max, in percent of one processor"),
    column("throttled_count", Kind::Count, "cpu.stat, nr_throttled"),
    column("throttled_ns", Kind::Nanoseconds, "cpu.stat, throttled_usec"),
    column("read_bytes", Kind::Bytes, "io.stat, rbytes of all devices"),
    column("write_bytes", Kind::Bytes, "io.stat, wbytes of all devices"),
    column("read_count", Kind::Count, "io.stat, rios of all devices"),
    column("write_count", Kind::Count, "io.stat, wios of all devices"),
    column("tasks_count", Kind::Count, "pids.current"),
    column("tasks_max_count", Kind::Count, "pids.max"),
];

const PRESSURE: [ColumnInfo; 6] = [
    column("resource", Kind::Text, "cpu, memory or io."),
    column("waiting", Kind::Text, "some: any task waited; full: all tasks did."),
    column("avg10_percent", Kind::Percent, "Of the last 10 seconds."),
    column("avg60_percent", Kind::Percent, "Of the last minute."),
    column("avg300_percent", Kind::Percent, "Of the last five minutes."),
    column("total_ns", Kind::Nanoseconds, "In all."),
];

const NAMESPACE: [ColumnInfo; 3] = [
    column("namespace", Kind::Text, "Which namespace."),
    column("inode", Kind::Id, "Its number, as in /proc/PID/ns."),
    column("own", Kind::Flag, "Whether it is also the caller's."),
];

const MAPPING: [ColumnInfo; 6] = [
    column(
        "rss_bytes",
        Kind::Bytes,
        "The resident part, without pages of hugetlbfs.",
    ),
    column("size_bytes", Kind::Bytes, "Their size."),
    column("dirty_bytes", Kind::Bytes, "The part that was written to."),
    column("hugetlb_bytes", Kind::Bytes, "Resident pages of hugetlbfs."),
    column("mappings_count", Kind::Count, "How many mappings."),
    column(
        "name",
        Kind::Text,
        "The file, or the kernel's name for a mapping without one.",
    ),
];

const FILES: [ColumnInfo; 3] = [
    column(
        "kind",
        Kind::Text,
        "The kind of file, or the object of the kernel: as in files, kind or anon_kind.",
    ),
    column("descriptors_count", Kind::Count, "How many descriptors."),
    column(
        "deleted_count",
        Kind::Count,
        "The number of those whose file has no name.",
    ),
];

const ENVIRON: [ColumnInfo; 2] = [
    column("name", Kind::Text, "The text before the first equals sign."),
    column("value", Kind::Text, "The text after it; absent if there is none."),
];

/// The fields shown for sockets.
pub const SOCKET_FIELDS: [SocketField; 16] = [
    SocketField::Family,
    SocketField::Type,
    SocketField::Protocol,
    SocketField::State,
    SocketField::RecvQueueBytes,
    SocketField::SendQueueBytes,
    SocketField::LocalAddr,
    SocketField::LocalPort,
    SocketField::RemoteAddr,
    SocketField::RemotePort,
    SocketField::Ipv6Only,
    SocketField::Path,
    SocketField::Inode,
    SocketField::Netns,
    SocketField::Owners,
    SocketField::Peers,
];

const SOCKET: [ColumnInfo; SOCKET_FIELDS.len()] = {
    let mut keys = [column("", Kind::Id, ""); SOCKET_FIELDS.len()];
    let mut index = 0;
    while index < keys.len() {
        let field = SOCKET_FIELDS[index];
        keys[index] = column(field.name(), field.kind(), field.meaning());
        index += 1;
    }
    keys
};

impl Section {
    /// What is known about the section.
    pub fn info(self) -> &'static Info {
        &SECTIONS[self as usize].1
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
    let others = [
        Field::StartNs,
        Field::Limits,
        Field::DataBytes,
        Field::StackBytes,
        Field::SigQueuedCount,
    ];
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
