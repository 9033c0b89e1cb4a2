//! The field table: every value that taskdiag knows, in one place.
//!
//! One row makes a field: its name everywhere (columns, JSON keys, sorting), its group, what it is, where `/proc` has it, and
//! how it is read out of a record. The variants of [`Field`] and the methods of [`Task`] come from the rows.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};
use std::str::FromStr;

use crate::absent::Absent;
use crate::record::{self, attr};
use crate::snapshot::Task;
use crate::value::{Arguments, CpuSet, Ids, Limits, Value};

macro_rules! groups {
    ($($id:ident $name:literal,)*) => {
        /// Fields that cost the kernel about the same and travel together.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum Group { $($id),* }

        impl Group {
            /// All groups, in the order of their bits in `td_config.groups`.
            pub const ALL: [Group; [$(Group::$id),*].len()] = [$(Group::$id),*];

            /// The name, as in a report's `sources`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Group::$id => $name),*
                }
            }
        }
    };
}

groups! {
    Base "base",
    Tty "tty",
    Cred "cred",
    Groups "groups",
    Cpu "cpu",
    Faults "faults",
    Mem "mem",
    Args "args",
    Oom "oom",
    Namespaces "namespaces",
    Cgroup "cgroup",
    Io "io",
    Signals "signals",
    Limits "limits",
    Env "env",
    Paths "paths",
    Fds "fds",
    Audit "audit",
    Layout "layout",
    Rollup "rollup",
}

impl Group {
    /// Whether only tasks with an address space have values of this group.
    fn needs_memory(self) -> bool {
        matches!(
            self,
            Group::Mem | Group::Args | Group::Env | Group::Layout | Group::Rollup
        )
    }
}

/// A set of groups: the bits are those of `td_config.groups` in `bpf/record.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Groups(pub u32);

impl Groups {
    /// No group.
    pub const NONE: Groups = Groups(0);

    /// Every group.
    pub const ALL: Groups = Groups((1 << Group::ALL.len()) - 1);

    /// Whether all of `other` is in the set.
    pub fn covers(self, other: Groups) -> bool {
        other.without(self).is_empty()
    }

    /// Whether `group` is in the set.
    pub fn contains(self, group: Group) -> bool {
        self.0 & 1 << group as u32 != 0
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many groups there are.
    pub fn len(self) -> u64 {
        self.0.count_ones().into()
    }

    /// The set with `group`.
    pub fn with(self, group: Group) -> Groups {
        Groups(self.0 | 1 << group as u32)
    }

    /// The set without those in `other`.
    pub fn without(self, other: Groups) -> Groups {
        Groups(self.0 & !other.0)
    }

    /// The groups in either set.
    pub fn or(self, other: Groups) -> Groups {
        Groups(self.0 | other.0)
    }

    /// The groups in both sets.
    pub fn and(self, other: Groups) -> Groups {
        Groups(self.0 & other.0)
    }

    /// Not a group: that a program can be given tests of tasks.
    pub const TESTABLE: Groups = Groups(crate::record::TESTABLE);

    /// Not a group of fields: what decides who may see a task.
    #[doc(hidden)]
    pub const ACCESS: Groups = Groups(crate::record::GROUP_ACCESS);

    /// Not a group of fields: what a task itself sees.
    #[doc(hidden)]
    pub const VIEW: Groups = Groups(crate::record::GROUP_VIEW);

    /// The groups that lie in the memory of processes. No program reads that: a process can make whoever does wait.
    pub const FROM_USER_MEMORY: Groups = Groups(1 << Group::Args as u32 | 1 << Group::Env as u32);

    /// Whether some group is in both sets.
    pub fn intersects(self, other: Groups) -> bool {
        !self.and(other).is_empty()
    }

    /// The groups in the set.
    pub fn iter(self) -> impl Iterator<Item = Group> {
        Group::ALL.into_iter().filter(move |&group| self.contains(group))
    }
}

/// What a field's values are: decides their unit and how they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A process, thread, user, group or device number, or another number that is not counted.
    Id,
    /// A user id.
    User,
    /// A group id.
    GroupId,
    /// A number of things.
    Count,
    /// A number that may be negative.
    Signed,
    /// A number of bytes.
    Bytes,
    /// A time in nanoseconds.
    Nanoseconds,
    /// Yes or no.
    Flag,
    /// One letter.
    Letter,
    /// Bytes, usually text.
    Text,
    /// A list of byte strings.
    Texts,
    /// A set of capabilities as a bit mask, written in hexadecimal.
    Capabilities,
    /// A set of signals as a bit mask, written in hexadecimal: signal N is bit N - 1.
    Signals,
    /// Flags as a bit mask, written in hexadecimal.
    Mask,
    /// An address, written in hexadecimal.
    Address,
    /// Permission bits: a number, which tables show in octal.
    Mode,
    /// A list of ids.
    Ids,
    /// A set of processors, written like `0-3,7`.
    Cpus,
    /// Resource limits, each soft and hard.
    Limits,
}

impl Kind {
    /// The kind and unit in a word or two, for documentation.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Id => "number",
            Kind::User => "user id",
            Kind::GroupId => "group id",
            Kind::Count => "count",
            Kind::Signed => "signed number",
            Kind::Bytes => "bytes",
            Kind::Nanoseconds => "nanoseconds",
            Kind::Flag => "true or false",
            Kind::Letter => "letter",
            Kind::Text => "text",
            Kind::Texts => "list of texts",
            Kind::Capabilities => "set of capabilities, in hexadecimal",
            Kind::Signals => "set of signals, in hexadecimal",
            Kind::Mask => "flags, in hexadecimal",
            Kind::Address => "address, in hexadecimal",
            Kind::Mode => "permission bits",
            Kind::Ids => "list of numbers",
            Kind::Cpus => "list of processors",
            Kind::Limits => "resource limits",
        }
    }

    /// Whether values are numbers, to be aligned on the right.
    pub fn is_number(self) -> bool {
        matches!(
            self,
            Kind::Id
                | Kind::User
                | Kind::GroupId
                | Kind::Mode
                | Kind::Count
                | Kind::Signed
                | Kind::Bytes
                | Kind::Nanoseconds
        )
    }
}

/// The files of `/proc/PID` that fields come from, as a set: any one of them has the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Files(pub u32);

#[allow(missing_docs)]
impl Files {
    pub const NONE: Files = Files(0);
    pub const STAT: Files = Files(1 << 0);
    pub const STATUS: Files = Files(1 << 1);
    pub const SCHEDSTAT: Files = Files(1 << 2);
    pub const CMDLINE: Files = Files(1 << 3);
    pub const OOM_SCORE_ADJ: Files = Files(1 << 4);
    pub const OOM_SCORE: Files = Files(1 << 5);
    pub const CGROUP: Files = Files(1 << 6);
    pub const IO: Files = Files(1 << 7);
    pub const LIMITS: Files = Files(1 << 8);
    pub const ENVIRON: Files = Files(1 << 9);
    pub const LOGINUID: Files = Files(1 << 10);
    pub const SESSIONID: Files = Files(1 << 11);
    pub const PERSONALITY: Files = Files(1 << 12);
    pub const TIMERSLACK_NS: Files = Files(1 << 13);
    /// Not a file but a directory of links.
    pub const NS: Files = Files(1 << 14);
    /// Links.
    pub const EXE: Files = Files(1 << 15);
    pub const CWD: Files = Files(1 << 16);
    pub const ROOT: Files = Files(1 << 17);
    /// A directory.
    pub const FD: Files = Files(1 << 18);
    /// Read by `taskdiag::memory`, after all others.
    pub const SMAPS_ROLLUP: Files = Files(1 << 19);

    /// Every file.
    pub const ALL: Files = Files(u32::MAX);

    /// Files that may be read by everybody who may see the task. Where files are opened by a number, one of these tells whose they are.
    const ANCHORS: Files = Files::STAT
        .or(Files::STATUS)
        .or(Files::SCHEDSTAT)
        .or(Files::CMDLINE)
        .or(Files::OOM_SCORE_ADJ)
        .or(Files::OOM_SCORE)
        .or(Files::CGROUP);

    /// The same with one that tells whose they are.
    pub const fn anchored(self) -> Files {
        if self.intersects(Files::ANCHORS) {
            self
        } else {
            self.or(Files::STAT)
        }
    }

    pub const fn or(self, other: Files) -> Files {
        Files(self.0 | other.0)
    }

    pub const fn without(self, other: Files) -> Files {
        Files(self.0 & !other.0)
    }

    pub const fn intersects(self, other: Files) -> bool {
        self.0 & other.0 != 0
    }

    pub const fn is_subset(self, other: Files) -> bool {
        self.0 & !other.0 == 0
    }
}

/// Either of the two files has the field.
const STAT_OR_STATUS: Files = Files::STAT.or(Files::STATUS);

/// All that the table says about a field.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The name.
    pub name: &'static str,
    /// The group.
    pub group: Group,
    /// What its values are.
    pub kind: Kind,
    /// The files that procfs has it in.
    pub files: Files,
    /// The place in `/proc`, for people.
    pub origin: &'static str,
    /// The first kernel that has it through procfs; empty if all that we support do.
    pub since: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

impl Info {
    /// What a caller needs to see the field of another user's task through procfs: nothing, the right to trace it, or
    /// `CAP_SYS_NICE`.
    pub fn access(&self) -> &'static str {
        const TRACE: Files = Files::NS
            .or(Files::IO)
            .or(Files::ENVIRON)
            .or(Files::PERSONALITY)
            .or(Files::EXE)
            .or(Files::CWD)
            .or(Files::ROOT)
            .or(Files::SMAPS_ROLLUP);
        if self.files.is_subset(TRACE) && self.files != Files::NONE || self.kind == Kind::Address {
            "trace"
        } else if self.files == Files::TIMERSLACK_NS {
            "nice"
        } else {
            ""
        }
    }
}

/// The fewest files that have all of `fields`, nearly: those that some field is in alone, then the first that has the rest.
#[doc(hidden)]
pub fn files_for(fields: Fields) -> Files {
    let wanted = || {
        fields
            .iter()
            .map(|field| field.info().files)
            .filter(|&files| files != Files::NONE)
    };
    let is_single = |files: &Files| files.0.is_power_of_two();
    let needed = wanted().filter(is_single).fold(Files::NONE, Files::or);
    wanted().fold(needed, |needed, files| {
        if needed.intersects(files) {
            needed
        } else {
            needed.or(Files(1 << files.0.trailing_zeros()))
        }
    })
}

macro_rules! fields {
    ($($id:ident $name:ident: $ty:ty, $group:ident $kind:ident, $files:expr, $origin:literal, $since:literal, $meaning:literal,
        |$task:ident| $read:expr;)*) => {
        /// A field. See `docs/fields.md` for the whole table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Field { $(#[doc = $meaning] $id),* }

        const TABLE: &[Info] = &[$(Info {
            name: stringify!($name),
            group: Group::$group,
            kind: Kind::$kind,
            files: $files,
            origin: $origin,
            since: $since,
            meaning: $meaning,
        }),*];

        impl Field {
            /// All fields, in the order of the table.
            pub const ALL: &'static [Field] = &[$(Field::$id),*];
        }

        impl<'a> Task<'a> {
            $(
                #[doc = $meaning]
                #[doc = ""]
                #[doc = concat!("In `/proc`: ", $origin, ".")]
                pub fn $name(&self) -> Result<$ty, Absent> {
                    self.check(Field::$id)?;
                    let $task = self;
                    $read
                }
            )*

            /// The value of any field.
            pub fn value(&self, field: Field) -> Result<Value<'a>, Absent> {
                match field {
                    $(Field::$id => Ok(Value::from(self.$name()?))),*
                }
            }
        }
    };
}

macro_rules! part {
    ($task:ident, $field:ident, $kind:ident, $ty:ident) => {
        $task.part::<record::$ty>(Field::$field, attr::$kind)
    };
}

fields! {
    Pid pid: u32, Base Id, Files::NONE, "the directory's name", "",
        "Process id: the thread-group id.", |t| Ok(t.record().header().pid.get());
    Tid tid: u32, Base Id, Files::NONE, "the directory's name in task/", "",
        "Thread id. In an answer about processes it is the process id.", |t| Ok(t.record().header().tid.get());
    Ppid ppid: u32, Base Id, STAT_OR_STATUS, "stat ppid", "",
        "Process id of the parent; 0 if it has none in the reader's pid namespace.", |t| Ok(part!(t, Ppid, BASE, Base)?.ppid.get());
    TracerPid tracer_pid: u32, Base Id, Files::STATUS, "status TracerPid", "",
        "Thread id of the tracer; 0 if the task is not traced.", |t| Ok(part!(t, TracerPid, BASE, Base)?.tracer_pid.get());
    Pgid pgid: u32, Base Id, Files::STAT, "stat pgrp", "",
        "Process group id.", |t| Ok(part!(t, Pgid, BASE, Base)?.pgid.get());
    Sid sid: u32, Base Id, Files::STAT, "stat session", "",
        "Session id.", |t| Ok(part!(t, Sid, BASE, Base)?.sid.get());
    State state: char, Base Letter, STAT_OR_STATUS, "stat state", "",
        "State: R running, S sleeping, D uninterruptible, I idle, T stopped, t tracing stop, P parked, Z zombie, X dead.",
        |t| Ok(part!(t, State, BASE, Base)?.state as char);
    Comm comm: &'a [u8], Base Text, Files::STAT, "stat comm", "",
        "Name of the executable or thread: 15 bytes at most, for kernel threads up to 63. Any bytes.", |t| t.comm_bytes();
    StartNs start_ns: u64, Base Nanoseconds, Files::STAT, "stat starttime", "",
        "Start time since boot. procfs gives it in whole clock ticks (10 ms), BPF in nanoseconds.", |t| Ok(t.record().header().start_ns.get());
    ThreadsCount threads_count: u32, Base Count, STAT_OR_STATUS, "stat num_threads", "",
        "Threads of the process.", |t| Ok(part!(t, ThreadsCount, BASE, Base)?.threads_count.get());
    KernelThread kernel_thread: bool, Base Flag, Files::STAT, "stat flags, PF_KTHREAD", "",
        "Whether it is a kernel thread.", |t| Ok(t.record().has(record::KERNEL_THREAD));
    ExitSignal exit_signal: i32, Base Signed, Files::STAT, "stat exit_signal", "",
        "Signal that the parent gets when the task ends; -1 for a thread that is not its process's leader.",
        |t| Ok(part!(t, ExitSignal, BASE, Base)?.exit_signal.get());

    TtyNr tty_nr: u32, Tty Id, Files::STAT, "stat tty_nr", "",
        "Controlling terminal as a device number, 0 if none.", |t| Ok(part!(t, TtyNr, TTY, Tty)?.tty_nr.get());
    Tpgid tpgid: i32, Tty Signed, Files::STAT, "stat tpgid", "",
        "Foreground process group of the controlling terminal, -1 if there is no terminal.", |t| Ok(part!(t, Tpgid, TTY, Tty)?.tpgid.get());

    Uid uid: u32, Cred User, Files::STATUS, "status Uid", "", "Real user id.", |t| Ok(part!(t, Uid, CRED, Cred)?.uid.get());
    Euid euid: u32, Cred User, Files::STATUS, "status Uid", "", "Effective user id.", |t| Ok(part!(t, Euid, CRED, Cred)?.euid.get());
    Suid suid: u32, Cred User, Files::STATUS, "status Uid", "", "Saved user id.", |t| Ok(part!(t, Suid, CRED, Cred)?.suid.get());
    Fsuid fsuid: u32, Cred User, Files::STATUS, "status Uid", "", "File-system user id.", |t| Ok(part!(t, Fsuid, CRED, Cred)?.fsuid.get());
    Gid gid: u32, Cred GroupId, Files::STATUS, "status Gid", "", "Real group id.", |t| Ok(part!(t, Gid, CRED, Cred)?.gid.get());
    Egid egid: u32, Cred GroupId, Files::STATUS, "status Gid", "", "Effective group id.", |t| Ok(part!(t, Egid, CRED, Cred)?.egid.get());
    Sgid sgid: u32, Cred GroupId, Files::STATUS, "status Gid", "", "Saved group id.", |t| Ok(part!(t, Sgid, CRED, Cred)?.sgid.get());
    Fsgid fsgid: u32, Cred GroupId, Files::STATUS, "status Gid", "", "File-system group id.", |t| Ok(part!(t, Fsgid, CRED, Cred)?.fsgid.get());
    CapInheritable cap_inheritable: Mask, Cred Capabilities, Files::STATUS, "status CapInh", "",
        "Inheritable capabilities.", |t| Ok(Mask(part!(t, CapInheritable, CRED, Cred)?.cap_inheritable.get()));
    CapPermitted cap_permitted: Mask, Cred Capabilities, Files::STATUS, "status CapPrm", "",
        "Permitted capabilities.", |t| Ok(Mask(part!(t, CapPermitted, CRED, Cred)?.cap_permitted.get()));
    CapEffective cap_effective: Mask, Cred Capabilities, Files::STATUS, "status CapEff", "",
        "Effective capabilities.", |t| Ok(Mask(part!(t, CapEffective, CRED, Cred)?.cap_effective.get()));
    CapBounding cap_bounding: Mask, Cred Capabilities, Files::STATUS, "status CapBnd", "",
        "Capability bounding set.", |t| Ok(Mask(part!(t, CapBounding, CRED, Cred)?.cap_bounding.get()));
    CapAmbient cap_ambient: Mask, Cred Capabilities, Files::STATUS, "status CapAmb", "4.3",
        "Ambient capabilities.", |t| Ok(Mask(part!(t, CapAmbient, CRED, Cred)?.cap_ambient.get()));
    NoNewPrivs no_new_privs: bool, Cred Flag, Files::STATUS, "status NoNewPrivs", "4.10",
        "Whether exec can't grant privileges any more.", |t| Ok(part!(t, NoNewPrivs, CRED, Cred)?.no_new_privs.get() != 0);
    Seccomp seccomp: u32, Cred Id, Files::STATUS, "status Seccomp", "3.8",
        "Seccomp mode: 0 off, 1 strict, 2 filter.", |t| t.small_number(part!(t, Seccomp, CRED, Cred)?.seccomp);

    Groups groups: Ids<'a>, Groups Ids, Files::STATUS, "status Groups", "",
        "Supplementary group ids.", |t| Ok(Ids::new(t.payload(Field::Groups, attr::GROUPS)?));

    UtimeNs utime_ns: u64, Cpu Nanoseconds, Files::STAT, "stat utime", "",
        "Time in user mode, of all threads, ended ones included. procfs gives it in whole clock ticks.",
        |t| Ok(part!(t, UtimeNs, CPU, Cpu)?.scaled_times().0);
    StimeNs stime_ns: u64, Cpu Nanoseconds, Files::STAT, "stat stime", "",
        "Time in kernel mode, of all threads, ended ones included. procfs gives it in whole clock ticks.",
        |t| Ok(part!(t, StimeNs, CPU, Cpu)?.scaled_times().1);
    CutimeNs cutime_ns: u64, Cpu Nanoseconds, Files::STAT, "stat cutime", "",
        "User time of children that were waited for.", |t| Ok(part!(t, CutimeNs, CPU, Cpu)?.cutime_ns.get());
    CstimeNs cstime_ns: u64, Cpu Nanoseconds, Files::STAT, "stat cstime", "",
        "Kernel time of children that were waited for.", |t| Ok(part!(t, CstimeNs, CPU, Cpu)?.cstime_ns.get());
    RuntimeNs runtime_ns: u64, Cpu Nanoseconds, Files::SCHEDSTAT, "schedstat", "",
        "Time on a processor, of this thread alone (of the leader, for a process).", |t| Ok(part!(t, RuntimeNs, CPU, Cpu)?.runtime_ns.get());
    RunDelayNs run_delay_ns: u64, Cpu Nanoseconds, Files::SCHEDSTAT, "schedstat", "",
        "Time spent waiting for a processor, of this thread alone.", |t| t.number(part!(t, RunDelayNs, CPU, Cpu)?.run_delay_ns);
    Nice nice: i32, Cpu Signed, Files::STAT, "stat nice", "", "Nice value.", |t| Ok(part!(t, Nice, CPU, Cpu)?.nice.get());
    Priority priority: i32, Cpu Signed, Files::STAT, "stat priority", "",
        "Priority as the scheduler has it: nice + 20, or -2 to -100 for real-time tasks.", |t| Ok(part!(t, Priority, CPU, Cpu)?.priority.get());
    RtPriority rt_priority: u32, Cpu Id, Files::STAT, "stat rt_priority", "",
        "Real-time priority, 1 to 99, 0 for others.", |t| Ok(part!(t, RtPriority, CPU, Cpu)?.rt_priority.get());
    Policy policy: u32, Cpu Id, Files::STAT, "stat policy", "",
        "Scheduling policy: 0 other, 1 fifo, 2 rr, 3 batch, 5 idle, 6 deadline, 7 ext.", |t| Ok(part!(t, Policy, CPU, Cpu)?.policy.get());
    Processor cpu: u32, Cpu Id, Files::STAT, "stat processor", "",
        "Processor that it ran on last.", |t| Ok(part!(t, Processor, CPU, Cpu)?.cpu.get());
    Affinity affinity: CpuSet<'a>, Cpu Cpus, Files::STATUS, "status Cpus_allowed_list", "",
        "Processors that it may run on.", |t| Ok(CpuSet::new(t.payload(Field::Affinity, attr::AFFINITY)?));
    VoluntarySwitches voluntary_switches: u64, Cpu Count, Files::STATUS, "status voluntary_ctxt_switches", "",
        "Voluntary context switches, of this thread alone.", |t| Ok(part!(t, VoluntarySwitches, CPU, Cpu)?.voluntary_switches.get());
    InvoluntarySwitches involuntary_switches: u64, Cpu Count, Files::STATUS, "status nonvoluntary_ctxt_switches", "",
        "Involuntary context switches, of this thread alone.", |t| Ok(part!(t, InvoluntarySwitches, CPU, Cpu)?.involuntary_switches.get());

    GuestNs guest_ns: u64, Cpu Nanoseconds, Files::STAT, "stat guest_time", "",
        "Time spent running virtual processors, part of utime_ns. procfs gives it in whole clock ticks.", |t| Ok(part!(t, GuestNs, CPU, Cpu)?.guest_ns.get());
    CguestNs cguest_ns: u64, Cpu Nanoseconds, Files::STAT, "stat cguest_time", "",
        "The same of children that were waited for.", |t| Ok(part!(t, CguestNs, CPU, Cpu)?.cguest_ns.get());
    BlockDelayNs block_delay_ns: u64, Cpu Nanoseconds, Files::STAT, "stat delayacct_blkio_ticks", "",
        "Time spent waiting for block devices, of this thread alone; 0 where delay accounting is off. procfs gives it in whole clock ticks.",
        |t| Ok(part!(t, BlockDelayNs, CPU, Cpu)?.block_delay_ns.get());
    TimerSlackNs timer_slack_ns: u64, Cpu Nanoseconds, Files::TIMERSLACK_NS, "timerslack_ns", "4.6",
        "How much later than asked its timers may fire.", |t| Ok(part!(t, TimerSlackNs, CPU, Cpu)?.timer_slack_ns.get());
    TimeslicesCount timeslices_count: u64, Cpu Count, Files::SCHEDSTAT, "schedstat", "",
        "How often it got a processor, of this thread alone.", |t| t.number(part!(t, TimeslicesCount, CPU, Cpu)?.timeslices_count);

    MinFaults min_faults: u64, Faults Count, Files::STAT, "stat minflt", "",
        "Page faults that needed no I/O, of all threads, ended ones included.", |t| Ok(part!(t, MinFaults, FAULTS, Faults)?.min_faults.get());
    MajFaults maj_faults: u64, Faults Count, Files::STAT, "stat majflt", "",
        "Page faults that needed I/O, of all threads, ended ones included.", |t| Ok(part!(t, MajFaults, FAULTS, Faults)?.maj_faults.get());
    ChildMinFaults child_min_faults: u64, Faults Count, Files::STAT, "stat cminflt", "",
        "Page faults without I/O of children that were waited for.", |t| Ok(part!(t, ChildMinFaults, FAULTS, Faults)?.child_min_faults.get());
    ChildMajFaults child_maj_faults: u64, Faults Count, Files::STAT, "stat cmajflt", "",
        "Page faults with I/O of children that were waited for.", |t| Ok(part!(t, ChildMajFaults, FAULTS, Faults)?.child_maj_faults.get());

    VsizeBytes vsize_bytes: u64, Mem Bytes, Files::STATUS, "status VmSize", "",
        "Virtual memory.", |t| Ok(part!(t, VsizeBytes, MEM, Mem)?.vsize_bytes.get());
    RssBytes rss_bytes: u64, Mem Bytes, Files::STATUS, "status VmRSS", "",
        "Resident memory: the sum of the three below.", |t| {
            let mem = part!(t, RssBytes, MEM, Mem)?;
            Ok(mem.rss_anon_bytes.get() + mem.rss_file_bytes.get() + mem.rss_shmem_bytes.get())
        };
    RssAnonBytes rss_anon_bytes: u64, Mem Bytes, Files::STATUS, "status RssAnon", "4.5",
        "Resident anonymous memory.", |t| Ok(part!(t, RssAnonBytes, MEM, Mem)?.rss_anon_bytes.get());
    RssFileBytes rss_file_bytes: u64, Mem Bytes, Files::STATUS, "status RssFile", "4.5",
        "Resident file mappings.", |t| Ok(part!(t, RssFileBytes, MEM, Mem)?.rss_file_bytes.get());
    RssShmemBytes rss_shmem_bytes: u64, Mem Bytes, Files::STATUS, "status RssShmem", "4.5",
        "Resident shared memory.", |t| Ok(part!(t, RssShmemBytes, MEM, Mem)?.rss_shmem_bytes.get());
    SwapBytes swap_bytes: u64, Mem Bytes, Files::STATUS, "status VmSwap", "",
        "Swapped-out anonymous memory.", |t| Ok(part!(t, SwapBytes, MEM, Mem)?.swap_bytes.get());
    PeakVsizeBytes peak_vsize_bytes: u64, Mem Bytes, Files::STATUS, "status VmPeak", "",
        "Most virtual memory it ever had.", |t| Ok(part!(t, PeakVsizeBytes, MEM, Mem)?.peak_vsize_bytes.get());
    PeakRssBytes peak_rss_bytes: u64, Mem Bytes, Files::STATUS, "status VmHWM", "",
        "Most resident memory it ever had.", |t| Ok(part!(t, PeakRssBytes, MEM, Mem)?.peak_rss_bytes.get());
    TextBytes text_bytes: u64, Mem Bytes, Files::STATUS, "status VmExe", "",
        "Code of the executable.", |t| Ok(part!(t, TextBytes, MEM, Mem)?.text_bytes.get());
    DataBytes data_bytes: u64, Mem Bytes, Files::STATUS, "status VmData", "",
        "Private writable memory, stack excluded.", |t| Ok(part!(t, DataBytes, MEM, Mem)?.data_bytes.get());
    StackBytes stack_bytes: u64, Mem Bytes, Files::STATUS, "status VmStk", "",
        "Stack.", |t| Ok(part!(t, StackBytes, MEM, Mem)?.stack_bytes.get());
    LibBytes lib_bytes: u64, Mem Bytes, Files::STATUS, "status VmLib", "",
        "Code of shared libraries.", |t| Ok(part!(t, LibBytes, MEM, Mem)?.lib_bytes.get());
    LockedBytes locked_bytes: u64, Mem Bytes, Files::STATUS, "status VmLck", "",
        "Memory locked by mlock(2).", |t| Ok(part!(t, LockedBytes, MEM, Mem)?.locked_bytes.get());
    PinnedBytes pinned_bytes: u64, Mem Bytes, Files::STATUS, "status VmPin", "",
        "Memory pinned for direct access by devices.", |t| Ok(part!(t, PinnedBytes, MEM, Mem)?.pinned_bytes.get());
    PageTableBytes page_table_bytes: u64, Mem Bytes, Files::STATUS, "status VmPTE", "",
        "Page tables.", |t| Ok(part!(t, PageTableBytes, MEM, Mem)?.page_table_bytes.get());
    HugetlbBytes hugetlb_bytes: u64, Mem Bytes, Files::STATUS, "status HugetlbPages", "4.4",
        "Resident pages of hugetlbfs, which are in no other count.", |t| t.number(part!(t, HugetlbBytes, MEM, Mem)?.hugetlb_bytes);

    Cmdline cmdline: Arguments<'a>, Args Texts, Files::CMDLINE, "cmdline", "",
        "Command line, or what the process made of it.", |t| Ok(Arguments::new(t.args()?));

    OomScoreAdj oom_score_adj: i32, Oom Signed, Files::OOM_SCORE_ADJ, "oom_score_adj", "",
        "How much the task asks to be preferred when memory runs out: -1000 never, 1000 first.", |t| Ok(part!(t, OomScoreAdj, OOM, Oom)?.oom_score_adj.get());
    OomScore oom_score: i32, Oom Signed, Files::OOM_SCORE, "oom_score", "",
        "How likely the kernel is to kill it when memory runs out.", |t| Ok(part!(t, OomScore, OOM, Oom)?.oom_score.get());

    NsPid ns_pid: u64, Namespaces Id, Files::NS, "ns/pid", "", "Its pid namespace, an inode number.", |t| t.namespace(Field::NsPid, |n| n.ns_pid);
    NsPidForChildren ns_pid_for_children: u64, Namespaces Id, Files::NS, "ns/pid_for_children", "4.12",
        "The pid namespace that its children start in.", |t| t.namespace(Field::NsPidForChildren, |n| n.ns_pid_for_children);
    NsMnt ns_mnt: u64, Namespaces Id, Files::NS, "ns/mnt", "", "Its mount namespace.", |t| t.namespace(Field::NsMnt, |n| n.ns_mnt);
    NsNet ns_net: u64, Namespaces Id, Files::NS, "ns/net", "", "Its network namespace.", |t| t.namespace(Field::NsNet, |n| n.ns_net);
    NsUser ns_user: u64, Namespaces Id, Files::NS, "ns/user", "", "Its user namespace.", |t| t.namespace(Field::NsUser, |n| n.ns_user);
    NsUts ns_uts: u64, Namespaces Id, Files::NS, "ns/uts", "", "Its UTS namespace.", |t| t.namespace(Field::NsUts, |n| n.ns_uts);
    NsIpc ns_ipc: u64, Namespaces Id, Files::NS, "ns/ipc", "", "Its IPC namespace.", |t| t.namespace(Field::NsIpc, |n| n.ns_ipc);
    NsCgroup ns_cgroup: u64, Namespaces Id, Files::NS, "ns/cgroup", "4.6", "Its cgroup namespace.", |t| t.namespace(Field::NsCgroup, |n| n.ns_cgroup);
    NsTime ns_time: u64, Namespaces Id, Files::NS, "ns/time", "5.6", "Its time namespace.", |t| t.namespace(Field::NsTime, |n| n.ns_time);
    Nspids nspids: Ids<'a>, Namespaces Ids, Files::STATUS, "status NSpid", "4.1",
        "Its thread ids in the reader's pid namespace and in each one below, down to its own.", |t| Ok(Ids::new(t.payload(Field::Nspids, attr::NSPIDS)?));

    CgroupId cgroup_id: u64, Cgroup Id, Files::CGROUP, "the inode of its cgroup directory", "",
        "Id of its cgroup in the unified (version 2) hierarchy.", |t| Ok(part!(t, CgroupId, CGROUP, Cgroup)?.cgroup_id.get());
    Cgroup cgroup: &'a [u8], Cgroup Text, Files::CGROUP, "cgroup, the line of hierarchy 0", "",
        "Path of its cgroup in the unified (version 2) hierarchy, from the reader's cgroup namespace.", |t| t.payload(Field::Cgroup, attr::CGROUP_PATH);

    ReadChars read_chars: u64, Io Bytes, Files::IO, "io rchar", "",
        "Bytes that read system calls returned, of all threads, ended ones included.", |t| Ok(part!(t, ReadChars, IO, Io)?.read_chars.get());
    WriteChars write_chars: u64, Io Bytes, Files::IO, "io wchar", "",
        "Bytes that write system calls took.", |t| Ok(part!(t, WriteChars, IO, Io)?.write_chars.get());
    ReadSyscalls read_syscalls: u64, Io Count, Files::IO, "io syscr", "",
        "Read system calls.", |t| Ok(part!(t, ReadSyscalls, IO, Io)?.read_syscalls.get());
    WriteSyscalls write_syscalls: u64, Io Count, Files::IO, "io syscw", "",
        "Write system calls.", |t| Ok(part!(t, WriteSyscalls, IO, Io)?.write_syscalls.get());
    ReadBytes read_bytes: u64, Io Bytes, Files::IO, "io read_bytes", "",
        "Bytes fetched from storage.", |t| Ok(part!(t, ReadBytes, IO, Io)?.read_bytes.get());
    WriteBytes write_bytes: u64, Io Bytes, Files::IO, "io write_bytes", "",
        "Bytes sent, or to be sent, to storage.", |t| Ok(part!(t, WriteBytes, IO, Io)?.write_bytes.get());
    CancelledWriteBytes cancelled_write_bytes: u64, Io Bytes, Files::IO, "io cancelled_write_bytes", "",
        "Bytes of write_bytes that were not sent because the file was truncated before.",
        |t| Ok(part!(t, CancelledWriteBytes, IO, Io)?.cancelled_write_bytes.get());

    SigPending sig_pending: Mask, Signals Signals, Files::STATUS, "status SigPnd", "",
        "Signals pending for this thread.", |t| Ok(Mask(part!(t, SigPending, SIGNALS, Signals)?.sig_pending.get()));
    SigSharedPending sig_shared_pending: Mask, Signals Signals, Files::STATUS, "status ShdPnd", "",
        "Signals pending for the process.", |t| Ok(Mask(part!(t, SigSharedPending, SIGNALS, Signals)?.sig_shared_pending.get()));
    SigBlocked sig_blocked: Mask, Signals Signals, Files::STATUS, "status SigBlk", "",
        "Blocked signals, of this thread.", |t| Ok(Mask(part!(t, SigBlocked, SIGNALS, Signals)?.sig_blocked.get()));
    SigIgnored sig_ignored: Mask, Signals Signals, Files::STATUS, "status SigIgn", "",
        "Ignored signals.", |t| Ok(Mask(part!(t, SigIgnored, SIGNALS, Signals)?.sig_ignored.get()));
    SigCaught sig_caught: Mask, Signals Signals, Files::STATUS, "status SigCgt", "",
        "Signals with a handler.", |t| Ok(Mask(part!(t, SigCaught, SIGNALS, Signals)?.sig_caught.get()));
    SigQueuedCount sig_queued_count: u64, Signals Count, Files::STATUS, "status SigQ", "",
        "Signals queued for all processes of its real user. The limit is that of pending signals in limits.",
        |t| Ok(part!(t, SigQueuedCount, SIGNALS, Signals)?.sig_queued_count.get());

    Limits limits: Limits<'a>, Limits Limits, Files::LIMITS, "limits", "",
        "The 16 resource limits, each soft and hard.", |t| Ok(Limits::new(t.payload(Field::Limits, attr::LIMITS)?));

    Environ environ: Arguments<'a>, Env Texts, Files::ENVIRON, "environ", "",
        "Its environment, as the process left it: byte strings such as NAME=value.", |t| Ok(Arguments::new(t.payload(Field::Environ, attr::ENV)?));

    Exe exe: &'a [u8], Paths Text, Files::EXE, "exe", "",
        "Path of its executable, with \" (deleted)\" behind it if it has none any more.", |t| t.executable();
    Cwd cwd: &'a [u8], Paths Text, Files::CWD, "cwd", "",
        "Its current directory.", |t| t.payload(Field::Cwd, attr::CWD);
    Root root: &'a [u8], Paths Text, Files::ROOT, "root", "",
        "Its root directory.", |t| t.payload(Field::Root, attr::ROOT);
    Umask umask: u32, Paths Mode, Files::STATUS, "status Umask", "4.7",
        "Permissions that it takes from the files it creates.", |t| Ok(part!(t, Umask, UMASK, Number)?.number.get());

    FdCount fd_count: u32, Fds Count, Files::FD, "the entries of fd", "",
        "Open file descriptors.", |t| Ok(part!(t, FdCount, FDS, Fds)?.fd_count.get());
    FdTableSize fd_table_size: u32, Fds Count, Files::STATUS, "status FDSize", "",
        "Size of its table of file descriptors.", |t| Ok(part!(t, FdTableSize, FDS, Fds)?.fd_table_size.get());

    Loginuid loginuid: u32, Audit User, Files::LOGINUID, "loginuid", "",
        "User that logged in to begin its session; 4294967295 if nobody did.", |t| Ok(part!(t, Loginuid, AUDIT, Audit)?.loginuid.get());
    AuditSession audit_session: u32, Audit Id, Files::SESSIONID, "sessionid", "",
        "Number of that session; 4294967295 if there is none.", |t| Ok(part!(t, AuditSession, AUDIT, Audit)?.audit_session.get());

    StartCode start_code: Mask, Layout Address, Files::STAT, "stat startcode", "",
        "Where its code begins.", |t| Ok(Mask(part!(t, StartCode, LAYOUT, Layout)?.start_code.get()));
    EndCode end_code: Mask, Layout Address, Files::STAT, "stat endcode", "",
        "Where its code ends.", |t| Ok(Mask(part!(t, EndCode, LAYOUT, Layout)?.end_code.get()));
    StartData start_data: Mask, Layout Address, Files::STAT, "stat start_data", "3.3",
        "Where its initialized data begin.", |t| Ok(Mask(part!(t, StartData, LAYOUT, Layout)?.start_data.get()));
    EndData end_data: Mask, Layout Address, Files::STAT, "stat end_data", "3.3",
        "Where they end.", |t| Ok(Mask(part!(t, EndData, LAYOUT, Layout)?.end_data.get()));
    StartBrk start_brk: Mask, Layout Address, Files::STAT, "stat start_brk", "3.3",
        "Where its heap begins.", |t| Ok(Mask(part!(t, StartBrk, LAYOUT, Layout)?.start_brk.get()));
    StartStack start_stack: Mask, Layout Address, Files::STAT, "stat startstack", "",
        "Where its stack begins.", |t| Ok(Mask(part!(t, StartStack, LAYOUT, Layout)?.start_stack.get()));
    ArgStart arg_start: Mask, Layout Address, Files::STAT, "stat arg_start", "3.5",
        "Where its arguments begin.", |t| Ok(Mask(part!(t, ArgStart, LAYOUT, Layout)?.arg_start.get()));
    ArgEnd arg_end: Mask, Layout Address, Files::STAT, "stat arg_end", "3.5",
        "Where they end.", |t| Ok(Mask(part!(t, ArgEnd, LAYOUT, Layout)?.arg_end.get()));
    EnvStart env_start: Mask, Layout Address, Files::STAT, "stat env_start", "3.5",
        "Where its environment begins.", |t| Ok(Mask(part!(t, EnvStart, LAYOUT, Layout)?.env_start.get()));
    EnvEnd env_end: Mask, Layout Address, Files::STAT, "stat env_end", "3.5",
        "Where it ends.", |t| Ok(Mask(part!(t, EnvEnd, LAYOUT, Layout)?.env_end.get()));
    Personality personality: Mask, Layout Mask, Files::PERSONALITY, "personality", "",
        "Execution domain and flags of personality(2).", |t| Ok(Mask(part!(t, Personality, PERSONALITY, Number)?.number.get().into()));

    PssBytes pss_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup Pss", "4.14",
        "Proportional set size: resident memory, each page divided by the number of processes that have it mapped. The kernel adds it up in smaps_rollup; summed from smaps (before 4.14) up to 1 KiB is lost for each mapping.",
        |t| t.number(part!(t, PssBytes, ROLLUP, Rollup)?.pss_bytes);
    UssBytes uss_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup Private_Clean + Private_Dirty + Private_Hugetlb", "4.14",
        "Unique set size: resident memory that no other process has mapped.",
        |t| t.uss();
    PssDirtyBytes pss_dirty_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup Pss_Dirty", "6.0",
        "The part of pss_bytes that is dirty.",
        |t| t.number(part!(t, PssDirtyBytes, ROLLUP, Rollup)?.pss_dirty_bytes);
    PssAnonBytes pss_anon_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup Pss_Anon", "5.3",
        "The part of pss_bytes that is anonymous.",
        |t| t.number(part!(t, PssAnonBytes, ROLLUP, Rollup)?.pss_anon_bytes);
    PssFileBytes pss_file_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup Pss_File", "5.3",
        "The part of pss_bytes that is page cache of files.",
        |t| t.number(part!(t, PssFileBytes, ROLLUP, Rollup)?.pss_file_bytes);
    PssShmemBytes pss_shmem_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup Pss_Shmem", "5.3",
        "The part of pss_bytes that is shared memory and tmpfs.",
        |t| t.number(part!(t, PssShmemBytes, ROLLUP, Rollup)?.pss_shmem_bytes);
    SharedCleanBytes shared_clean_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup Shared_Clean", "4.14",
        "Clean resident pages that are mapped more than once.",
        |t| t.number(part!(t, SharedCleanBytes, ROLLUP, Rollup)?.shared_clean_bytes);
    SharedDirtyBytes shared_dirty_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup Shared_Dirty", "4.14",
        "Dirty resident pages that are mapped more than once.",
        |t| t.number(part!(t, SharedDirtyBytes, ROLLUP, Rollup)?.shared_dirty_bytes);
    PrivateCleanBytes private_clean_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup Private_Clean", "4.14",
        "Clean resident pages that are mapped once.",
        |t| t.number(part!(t, PrivateCleanBytes, ROLLUP, Rollup)?.private_clean_bytes);
    PrivateDirtyBytes private_dirty_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup Private_Dirty", "4.14",
        "Dirty resident pages that are mapped once.",
        |t| t.number(part!(t, PrivateDirtyBytes, ROLLUP, Rollup)?.private_dirty_bytes);
    ReferencedBytes referenced_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup Referenced", "4.14",
        "Resident pages marked as referenced.",
        |t| t.number(part!(t, ReferencedBytes, ROLLUP, Rollup)?.referenced_bytes);
    AnonymousBytes anonymous_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup Anonymous", "4.14",
        "Resident pages that belong to no file.",
        |t| t.number(part!(t, AnonymousBytes, ROLLUP, Rollup)?.anonymous_bytes);
    KsmBytes ksm_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup KSM", "6.7",
        "Resident pages that are merged with equal ones (KSM).",
        |t| t.number(part!(t, KsmBytes, ROLLUP, Rollup)?.ksm_bytes);
    LazyfreeBytes lazyfree_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup LazyFree", "4.14",
        "Pages given back with MADV_FREE that the kernel has not taken yet.",
        |t| t.number(part!(t, LazyfreeBytes, ROLLUP, Rollup)?.lazyfree_bytes);
    AnonHugeBytes anon_huge_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup AnonHugePages", "4.14",
        "Anonymous memory in transparent huge pages.",
        |t| t.number(part!(t, AnonHugeBytes, ROLLUP, Rollup)?.anon_huge_bytes);
    ShmemHugeBytes shmem_huge_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup ShmemPmdMapped", "4.14",
        "Shared memory mapped by huge pages.",
        |t| t.number(part!(t, ShmemHugeBytes, ROLLUP, Rollup)?.shmem_huge_bytes);
    FileHugeBytes file_huge_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup FilePmdMapped", "5.4",
        "Page cache of files mapped by huge pages.",
        |t| t.number(part!(t, FileHugeBytes, ROLLUP, Rollup)?.file_huge_bytes);
    SharedHugetlbBytes shared_hugetlb_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup Shared_Hugetlb", "4.14",
        "Pages of hugetlbfs that are mapped more than once. They are in no other of these sums.",
        |t| t.number(part!(t, SharedHugetlbBytes, ROLLUP, Rollup)?.shared_hugetlb_bytes);
    PrivateHugetlbBytes private_hugetlb_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup Private_Hugetlb", "4.14",
        "Pages of hugetlbfs that are mapped once. They are in no other of these sums but uss_bytes.",
        |t| t.number(part!(t, PrivateHugetlbBytes, ROLLUP, Rollup)?.private_hugetlb_bytes);
    SwapPssBytes swap_pss_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup SwapPss", "4.14",
        "Swapped-out memory, each page divided by the number of those that share it.",
        |t| t.number(part!(t, SwapPssBytes, ROLLUP, Rollup)?.swap_pss_bytes);
    RollupRssBytes rollup_rss_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup Rss", "4.14",
        "Resident memory as the page tables have it when they are walked; rss_bytes is what the kernel's counters say.",
        |t| t.number(part!(t, RollupRssBytes, ROLLUP, Rollup)?.rss_bytes);
    RollupSwapBytes rollup_swap_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup Swap", "4.14",
        "Swapped-out memory as the page tables have it.",
        |t| t.number(part!(t, RollupSwapBytes, ROLLUP, Rollup)?.swap_bytes);
    RollupLockedBytes rollup_locked_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup Locked", "4.14",
        "The part of pss_bytes that lies in locked mappings.",
        |t| t.number(part!(t, RollupLockedBytes, ROLLUP, Rollup)?.locked_bytes);
    RollupAgeNs rollup_age_ns: u64, Rollup Nanoseconds, Files::SMAPS_ROLLUP, "", "",
        "How long before the end of the answer the values of this group were read: those of a process without signs of change are kept for a while.",
        |t| Ok(part!(t, RollupAgeNs, ROLLUP, Rollup)?.age_ns.get());
}

/// A bit mask, such as a capability set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask(pub u64);

impl Field {
    /// What the table says about it.
    pub fn info(self) -> &'static Info {
        &TABLE[self as usize]
    }

    /// The name.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// The group.
    pub fn group(self) -> Group {
        self.info().group
    }

    /// Whether only tasks with an address space have a value.
    #[doc(hidden)]
    pub fn needs_memory(self) -> bool {
        self.group().needs_memory() && self != Field::Personality
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no field has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownField {
    /// The name asked for.
    pub name: String,
    /// Names that are near it, the nearest first.
    pub near: Vec<&'static str>,
}

impl fmt::Display for UnknownField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown field {:?}", self.name)?;
        match self.near.as_slice() {
            [] => Ok(()),
            near => write!(f, "; near it are: {}", near.join(", ")),
        }
    }
}

impl std::error::Error for UnknownField {}

impl FromStr for Field {
    type Err = UnknownField;

    fn from_str(name: &str) -> Result<Field, UnknownField> {
        let found = Field::ALL.iter().find(|field| field.name() == name);
        found.copied().ok_or_else(|| UnknownField {
            name: name.to_owned(),
            near: near_names(name),
        })
    }
}

/// The names of fields that `name` may have been meant to be.
fn near_names(name: &str) -> Vec<&'static str> {
    let name = name.to_ascii_lowercase();
    let mut near: Vec<(usize, usize, &str)> = Field::ALL
        .iter()
        .map(|field| {
            let candidate = field.name();
            let distance = match name.len() >= 3 {
                true if candidate.starts_with(&name) => 0,
                true if candidate.contains(&name) || name.contains(candidate) => 1,
                _ => edit_distance(&name, candidate),
            };
            (distance, candidate.len(), candidate)
        })
        .filter(|&(distance, len, _)| distance <= 1 + len / 4)
        .collect();
    near.sort();
    near.into_iter().take(5).map(|(_, _, candidate)| candidate).collect()
}

/// How many bytes have to be inserted, removed or replaced to make `b` of `a`.
fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// A set of fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fields([u64; 4]);

impl Fields {
    /// No field.
    pub const NONE: Fields = Fields([0; 4]);

    /// Every field but those of [`Group::Rollup`], for which the kernel walks page tables: they cost more the more memory a
    /// process has, and so have to be named. See `taskdiag::memory`.
    pub fn all() -> Fields {
        let is_cheap = |field: &Field| field.group() != Group::Rollup;
        Field::ALL.iter().copied().filter(is_cheap).collect()
    }

    /// The fields of a group.
    pub fn of_group(group: Group) -> Fields {
        Field::ALL
            .iter()
            .copied()
            .filter(|field| field.group() == group)
            .collect()
    }

    /// The set without those of a group.
    pub fn without_group(self, group: Group) -> Fields {
        self.iter().filter(|field| field.group() != group).collect()
    }

    /// The set without those of another.
    pub fn without(self, other: impl Into<Fields>) -> Fields {
        let other: Fields = other.into();
        let mut words = self.0;
        words.iter_mut().zip(other.0).for_each(|(word, other)| *word &= !other);
        Fields(words)
    }

    /// Whether `field` is in the set.
    pub fn contains(&self, field: Field) -> bool {
        let bit = field as usize;
        self.0[bit / 64] >> (bit % 64) & 1 != 0
    }

    /// Adds `field`.
    pub fn insert(&mut self, field: Field) {
        let bit = field as usize;
        self.0[bit / 64] |= 1 << (bit % 64);
    }

    /// The fields, in the order of the table.
    pub fn iter(self) -> impl Iterator<Item = Field> {
        Field::ALL.iter().copied().filter(move |&field| self.contains(field))
    }

    /// The groups that the fields belong to. [`Field::Pid`] and [`Field::Tid`] alone, which every record has, need none.
    pub fn groups(self) -> Groups {
        self.iter()
            .filter(|field| !matches!(field, Field::Pid | Field::Tid))
            .fold(Groups::NONE, |groups, field| groups.with(field.group()))
    }
}

impl From<Field> for Fields {
    fn from(field: Field) -> Fields {
        let mut fields = Fields::NONE;
        fields.insert(field);
        fields
    }
}

impl FromIterator<Field> for Fields {
    fn from_iter<I: IntoIterator<Item = Field>>(iter: I) -> Fields {
        let mut fields = Fields::NONE;
        iter.into_iter().for_each(|field| fields.insert(field));
        fields
    }
}

impl<T: Into<Fields>> BitOr<T> for Fields {
    type Output = Fields;

    fn bitor(mut self, other: T) -> Fields {
        self |= other;
        self
    }
}

impl<T: Into<Fields>> BitOrAssign<T> for Fields {
    fn bitor_assign(&mut self, other: T) {
        let other = other.into();
        self.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(mine, theirs)| *mine |= theirs);
    }
}

impl<T: Into<Fields>> BitOr<T> for Field {
    type Output = Fields;

    fn bitor(self, other: T) -> Fields {
        Fields::from(self) | other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names are unique and lead back to their fields.
    #[test]
    fn names_lead_to_their_fields() {
        for &field in Field::ALL {
            assert_eq!(field.name().parse(), Ok(field));
        }
        assert!(Field::ALL.len() <= 256);
    }

    /// Check that a misspelt or shortened name finds the right one.
    #[test]
    fn unknown_names_find_near_ones() {
        for (wrong, right) in [
            ("rss", "rss_bytes"),
            ("cmd_line", "cmdline"),
            ("pidd", "pid"),
            ("UID", "uid"),
        ] {
            let error = wrong.parse::<Field>().unwrap_err();
            assert_eq!(error.near[0], right, "{error}");
        }
        assert!("zzzzzzzz".parse::<Field>().unwrap_err().near.is_empty());
    }

    /// Check that sets of fields know their groups.
    #[test]
    fn fields_need_their_groups() {
        assert_eq!((Field::Pid | Field::Tid).groups(), Groups::NONE);
        let groups = (Field::Uid | Field::Cmdline | Field::Comm).groups();
        assert_eq!(
            groups.iter().collect::<Vec<_>>(),
            [Group::Base, Group::Cred, Group::Args]
        );
    }
}
