//! The rows of the field table.

use super::{Files, Group, Kind};

/// What the field table has about a field.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The name.
    pub name: &'static str,
    /// The group.
    pub group: Group,
    /// What its values are.
    pub kind: Kind,
    /// The files in which procfs has it: see [`files_of`](super::files_of).
    pub(super) files: Files,
    /// The place in `/proc`, for people. Empty for a derived field.
    pub origin: &'static str,
    /// The fields that a derived field is made of. Empty for other fields.
    pub made_of: &'static [Field],
    /// The first kernel that has it in `/proc`. Empty if all supported kernels have it.
    pub since: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

impl Field {
    /// The row of the field table.
    pub fn info(self) -> &'static Info {
        &TABLE[self as usize]
    }
}

/// Either of the two files has the field.
const STAT_OR_STATUS: Files = Files::STAT.union(Files::STATUS);

/// Makes the fields and their rows of the table.
macro_rules! fields {
    (
        read {
            $($id:ident $name:ident: $ty:ty, $group:ident $kind:ident, $files:expr, $origin:literal, $since:literal,
                $meaning:literal, |$task:ident| $read:expr;)*
        }
        derived {
            $($derived_id:ident $derived_name:ident: $derived_ty:ty, $derived_kind:ident [$($made_of:ident)*],
                $derived_meaning:literal;)*
        }
    ) => {
        /// A field. See `docs/fields.md` for the whole table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Field {
            $(#[doc = $meaning] $id,)*
            $(#[doc = $derived_meaning] $derived_id,)*
        }

        const TABLE: &[Info] = &[
            $(Info {
                name: stringify!($name),
                group: Group::$group,
                kind: Kind::$kind,
                files: $files,
                origin: $origin,
                made_of: &[],
                since: $since,
                meaning: $meaning,
            },)*
            $(Info {
                name: stringify!($derived_name),
                group: Group::Derived,
                kind: Kind::$derived_kind,
                files: Files::NONE,
                origin: "",
                made_of: &[$(Field::$made_of),*],
                since: "",
                meaning: $derived_meaning,
            },)*
        ];

        impl Field {
            /// All fields, in the order of the table.
            pub const ALL: &'static [Field] = &[$(Field::$id,)* $(Field::$derived_id,)*];
        }
    };
}

/// Passes the rows to a macro: that for the fields here, or that for the methods of a task that
/// read them in [`crate::snapshot`].
macro_rules! with_rows {
    ($make:ident) => { $make! {
    read {
        Pid pid: u32, Base Id, Files::NONE, "the directory's name", "",
            "Process id: the thread-group id.", |t| Ok(t.record().header().pid.get());
        Tid tid: u32, Base Id, Files::NONE, "the directory's name in task/", "",
            "Thread id. In an answer about processes, the process id.", |t| Ok(t.record().header().tid.get());
        Ppid ppid: u32, Base Id, STAT_OR_STATUS, "stat ppid", "",
            "Process id of the parent. 0 if it has no parent in the reader's pid namespace.", |t| Ok(part!(t, Ppid, BASE, Base)?.ppid.get());
        TracerPid tracer_pid: u32, Base Id, Files::STATUS, "status TracerPid", "",
            "Thread id of the tracer. 0 if the task is not traced.", |t| Ok(part!(t, TracerPid, BASE, Base)?.tracer_pid.get());
        Pgid pgid: u32, Base Id, Files::STAT, "stat pgrp", "",
            "Process group id.", |t| Ok(part!(t, Pgid, BASE, Base)?.pgid.get());
        Sid sid: u32, Base Id, Files::STAT, "stat session", "",
            "Session id.", |t| Ok(part!(t, Sid, BASE, Base)?.sid.get());
        State state: char, Base Letter, STAT_OR_STATUS, "stat state", "",
            "State: R running, S sleeping, D uninterruptible sleep, I idle kernel thread, T stopped, t stopped by a tracer, P parked, Z zombie, X dead.",
            |t| Ok(part!(t, State, BASE, Base)?.state as char);
        Comm comm: &'a [u8], Base Text, Files::STAT, "stat comm", "",
            "Name of the program or thread, any bytes but NUL: at most 15, for kernel threads at most 63.", |t| t.comm_bytes();
        StartNs start_ns: i64, Base Nanoseconds, Files::STAT, "stat starttime", "",
            "Time from boot to the start of the task. BPF gives nanoseconds, procfs whole clock ticks (10 ms). Negative for a task that is older than the zero of the reader's time namespace; unsupported in clients whose numbers are unsigned (C, Go, Python).",
            |t| Ok(t.record().header().start_ns.get() as i64);
        ThreadsCount threads_count: u32, Base Count, STAT_OR_STATUS, "stat num_threads", "",
            "Number of threads in the process.", |t| Ok(part!(t, ThreadsCount, BASE, Base)?.threads_count.get());
        KernelThread kernel_thread: bool, Base Flag, Files::STAT, "stat flags, PF_KTHREAD", "",
            "Whether the task is a kernel thread.", |t| Ok(t.record().has(record::KERNEL_THREAD));
        Flags flags: Mask, Base Mask, Files::STAT, "stat flags", "",
            "Flags of the kernel: the PF_ constants of include/linux/sched.h, which change between kernels.",
            |t| Ok(Mask(part!(t, Flags, BASE, Base)?.flags.get().into()));
        ExitSignal exit_signal: i32, Base Signed, Files::STAT, "stat exit_signal", "",
            "Signal that the parent gets when the task ends. -1 for a thread that does not lead its process.",
            |t| Ok(part!(t, ExitSignal, BASE, Base)?.exit_signal.get());

        TtyNr tty_nr: u32, Tty Id, Files::STAT, "stat tty_nr", "",
            "Device number of the controlling terminal. 0 if it has none.", |t| Ok(part!(t, TtyNr, TTY, Tty)?.tty_nr.get());
        Tpgid tpgid: i32, Tty Signed, Files::STAT, "stat tpgid", "",
            "Foreground process group of the controlling terminal. -1 if it has none.", |t| Ok(part!(t, Tpgid, TTY, Tty)?.tpgid.get());

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
            "Whether execve(2) can no longer grant privileges.", |t| Ok(part!(t, NoNewPrivs, CRED, Cred)?.no_new_privs.get() != 0);
        Seccomp seccomp: u32, Cred Id, Files::STATUS, "status Seccomp", "3.8",
            "Seccomp mode: 0 off, 1 strict, 2 filter.", |t| t.small_number(part!(t, Seccomp, CRED, Cred)?.seccomp);

        Groups groups: Ids<'a>, Groups Ids, Files::STATUS, "status Groups", "",
            "Supplementary group ids.", |t| Ok(Ids::new(t.payload(Field::Groups, attr::GROUPS)?));

        UtimeNs utime_ns: u64, Cpu Nanoseconds, Files::STAT, "stat utime", "",
            "Processor time in user mode, of all threads of the process, also of those that ended. In an answer about threads, of the one thread. procfs gives whole clock ticks.",
            |t| Ok(part!(t, UtimeNs, CPU, Cpu)?.scaled_times().0);
        StimeNs stime_ns: u64, Cpu Nanoseconds, Files::STAT, "stat stime", "",
            "Processor time in kernel mode, of all threads of the process, also of those that ended. In an answer about threads, of the one thread. procfs gives whole clock ticks.",
            |t| Ok(part!(t, StimeNs, CPU, Cpu)?.scaled_times().1);
        CutimeNs cutime_ns: u64, Cpu Nanoseconds, Files::STAT, "stat cutime", "",
            "Processor time in user mode of children that ended and were waited for.", |t| Ok(part!(t, CutimeNs, CPU, Cpu)?.cutime_ns.get());
        CstimeNs cstime_ns: u64, Cpu Nanoseconds, Files::STAT, "stat cstime", "",
            "Processor time in kernel mode of children that ended and were waited for.", |t| Ok(part!(t, CstimeNs, CPU, Cpu)?.cstime_ns.get());
        RuntimeNs runtime_ns: u64, Cpu Nanoseconds, Files::SCHEDSTAT, "schedstat", "",
            "Time on a processor, of this thread alone. For a process, of its first thread.", |t| Ok(part!(t, RuntimeNs, CPU, Cpu)?.runtime_ns.get());
        RunDelayNs run_delay_ns: u64, Cpu Nanoseconds, Files::SCHEDSTAT, "schedstat", "",
            "Time spent waiting for a processor, of this thread alone.", |t| t.number(part!(t, RunDelayNs, CPU, Cpu)?.run_delay_ns);
        Nice nice: i32, Cpu Signed, Files::STAT, "stat nice", "", "Nice value.", |t| Ok(part!(t, Nice, CPU, Cpu)?.nice.get());
        Priority priority: i32, Cpu Signed, Files::STAT, "stat priority", "",
            "The scheduler's priority: nice + 20, or -2 to -100 for real-time tasks.", |t| Ok(part!(t, Priority, CPU, Cpu)?.priority.get());
        RtPriority rt_priority: u32, Cpu Id, Files::STAT, "stat rt_priority", "",
            "Real-time priority: 1 to 99. 0 for other tasks.", |t| Ok(part!(t, RtPriority, CPU, Cpu)?.rt_priority.get());
        Policy policy: u32, Cpu Id, Files::STAT, "stat policy", "",
            "Scheduling policy: 0 other, 1 fifo, 2 rr, 3 batch, 5 idle, 6 deadline, 7 ext.", |t| Ok(part!(t, Policy, CPU, Cpu)?.policy.get());
        Processor cpu: u32, Cpu Id, Files::STAT, "stat processor", "",
            "Processor on which the task ran last.", |t| Ok(part!(t, Processor, CPU, Cpu)?.cpu.get());
        Affinity affinity: CpuSet<'a>, Cpu Cpus, Files::STATUS, "status Cpus_allowed", "",
            "Processors on which the task may run.", |t| Ok(CpuSet::new(t.payload(Field::Affinity, attr::AFFINITY)?));
        VoluntarySwitches voluntary_switches: u64, Cpu Count, Files::STATUS, "status voluntary_ctxt_switches", "",
            "Voluntary context switches, of this thread alone.", |t| Ok(part!(t, VoluntarySwitches, CPU, Cpu)?.voluntary_switches.get());
        InvoluntarySwitches involuntary_switches: u64, Cpu Count, Files::STATUS, "status nonvoluntary_ctxt_switches", "",
            "Involuntary context switches, of this thread alone.", |t| Ok(part!(t, InvoluntarySwitches, CPU, Cpu)?.involuntary_switches.get());

        GuestNs guest_ns: u64, Cpu Nanoseconds, Files::STAT, "stat guest_time", "",
            "Time spent running virtual processors, which utime_ns includes. procfs gives whole clock ticks.", |t| Ok(part!(t, GuestNs, CPU, Cpu)?.guest_ns.get());
        CguestNs cguest_ns: u64, Cpu Nanoseconds, Files::STAT, "stat cguest_time", "",
            "Time spent running virtual processors, of children that ended and were waited for. procfs gives whole clock ticks.", |t| Ok(part!(t, CguestNs, CPU, Cpu)?.cguest_ns.get());
        BlockDelayNs block_delay_ns: u64, Cpu Nanoseconds, Files::STAT, "stat delayacct_blkio_ticks", "",
            "Time spent waiting for block devices, of this thread alone. 0 where delay accounting is off. procfs gives whole clock ticks.",
            |t| Ok(part!(t, BlockDelayNs, CPU, Cpu)?.block_delay_ns.get());
        TimerSlackNs timer_slack_ns: u64, Cpu Nanoseconds, Files::TIMERSLACK_NS, "timerslack_ns", "4.6",
            "By how much timers of the task may be late.", |t| Ok(part!(t, TimerSlackNs, CPU, Cpu)?.timer_slack_ns.get());
        TimeslicesCount timeslices_count: u64, Cpu Count, Files::SCHEDSTAT, "schedstat", "",
            "How many times this thread got a processor.", |t| t.number(part!(t, TimeslicesCount, CPU, Cpu)?.timeslices_count);

        MinFaults min_faults: u64, Faults Count, Files::STAT, "stat minflt", "",
            "Page faults without I/O, of all threads of the process, also of those that ended. In an answer about threads, of the one thread.", |t| Ok(part!(t, MinFaults, FAULTS, Faults)?.min_faults.get());
        MajFaults maj_faults: u64, Faults Count, Files::STAT, "stat majflt", "",
            "Page faults with I/O, of all threads of the process, also of those that ended. In an answer about threads, of the one thread.", |t| Ok(part!(t, MajFaults, FAULTS, Faults)?.maj_faults.get());
        ChildMinFaults child_min_faults: u64, Faults Count, Files::STAT, "stat cminflt", "",
            "Page faults without I/O of children that ended and were waited for.", |t| Ok(part!(t, ChildMinFaults, FAULTS, Faults)?.child_min_faults.get());
        ChildMajFaults child_maj_faults: u64, Faults Count, Files::STAT, "stat cmajflt", "",
            "Page faults with I/O of children that ended and were waited for.", |t| Ok(part!(t, ChildMajFaults, FAULTS, Faults)?.child_maj_faults.get());

        VsizeBytes vsize_bytes: u64, Mem Bytes, Files::STATUS, "status VmSize", "",
            "Virtual memory: the size of all mappings.", |t| Ok(part!(t, VsizeBytes, MEM, Mem)?.vsize_bytes.get());
        RssBytes rss_bytes: u64, Mem Bytes, Files::STATUS, "status VmRSS", "",
            "Resident memory: the sum of rss_anon_bytes, rss_file_bytes and rss_shmem_bytes.",
            |t| Ok(part!(t, RssBytes, MEM, Mem)?.rss_bytes());
        RssAnonBytes rss_anon_bytes: u64, Mem Bytes, Files::STATUS, "status RssAnon", "4.5",
            "Resident anonymous memory.", |t| Ok(part!(t, RssAnonBytes, MEM, Mem)?.rss_anon_bytes.get());
        RssFileBytes rss_file_bytes: u64, Mem Bytes, Files::STATUS, "status RssFile", "4.5",
            "Resident memory mapped from files.", |t| Ok(part!(t, RssFileBytes, MEM, Mem)?.rss_file_bytes.get());
        RssShmemBytes rss_shmem_bytes: u64, Mem Bytes, Files::STATUS, "status RssShmem", "4.5",
            "Resident shared memory.", |t| Ok(part!(t, RssShmemBytes, MEM, Mem)?.rss_shmem_bytes.get());
        SwapBytes swap_bytes: u64, Mem Bytes, Files::STATUS, "status VmSwap", "",
            "Swapped-out anonymous memory.", |t| Ok(part!(t, SwapBytes, MEM, Mem)?.swap_bytes.get());
        PeakVsizeBytes peak_vsize_bytes: u64, Mem Bytes, Files::STATUS, "status VmPeak", "",
            "The most virtual memory that the process has had.", |t| Ok(part!(t, PeakVsizeBytes, MEM, Mem)?.peak_vsize_bytes.get());
        PeakRssBytes peak_rss_bytes: u64, Mem Bytes, Files::STATUS, "status VmHWM", "",
            "The most resident memory that the process has had.", |t| Ok(part!(t, PeakRssBytes, MEM, Mem)?.peak_rss_bytes.get());
        TextBytes text_bytes: u64, Mem Bytes, Files::STATUS, "status VmExe", "",
            "Size of the code of the executable.", |t| Ok(part!(t, TextBytes, MEM, Mem)?.text_bytes.get());
        DataBytes data_bytes: u64, Mem Bytes, Files::STATUS, "status VmData", "",
            "Size of private writable mappings, without the stack.", |t| Ok(part!(t, DataBytes, MEM, Mem)?.data_bytes.get());
        StackBytes stack_bytes: u64, Mem Bytes, Files::STATUS, "status VmStk", "",
            "Size of the stack.", |t| Ok(part!(t, StackBytes, MEM, Mem)?.stack_bytes.get());
        LibBytes lib_bytes: u64, Mem Bytes, Files::STATUS, "status VmLib", "",
            "Size of the code of shared libraries.", |t| Ok(part!(t, LibBytes, MEM, Mem)?.lib_bytes.get());
        LockedBytes locked_bytes: u64, Mem Bytes, Files::STATUS, "status VmLck", "",
            "Memory locked by mlock(2).", |t| Ok(part!(t, LockedBytes, MEM, Mem)?.locked_bytes.get());
        PinnedBytes pinned_bytes: u64, Mem Bytes, Files::STATUS, "status VmPin", "",
            "Memory pinned for direct access by devices.", |t| Ok(part!(t, PinnedBytes, MEM, Mem)?.pinned_bytes.get());
        PageTableBytes page_table_bytes: u64, Mem Bytes, Files::STATUS, "status VmPTE", "",
            "Size of the page tables.", |t| Ok(part!(t, PageTableBytes, MEM, Mem)?.page_table_bytes.get());
        HugetlbBytes hugetlb_bytes: u64, Mem Bytes, Files::STATUS, "status HugetlbPages", "4.4",
            "Resident pages of hugetlbfs. No other field includes them.", |t| t.number(part!(t, HugetlbBytes, MEM, Mem)?.hugetlb_bytes);

        Cmdline cmdline: Arguments<'a>, Args Texts, Files::CMDLINE, "cmdline", "",
            "Command line. The process can change it: a title and nothing but NULs behind it is one argument.", |t| Ok(Arguments::new(t.args()?));

        OomScoreAdj oom_score_adj: i32, Oom Signed, Files::OOM_SCORE_ADJ, "oom_score_adj", "",
            "Adjustment of oom_score: -1000 never kill the process, 1000 kill it first.", |t| Ok(part!(t, OomScoreAdj, OOM, Oom)?.oom_score_adj.get());
        OomScore oom_score: i32, Oom Signed, Files::OOM_SCORE, "oom_score", "",
            "How likely the kernel is to kill the process when memory runs out.", |t| Ok(part!(t, OomScore, OOM, Oom)?.oom_score.get());

        NsPid ns_pid: u64, Namespaces Id, Files::NS, "ns/pid", "", "Inode number of its pid namespace.", |t| t.namespace(Field::NsPid, |n| n.ns_pid);
        NsPidForChildren ns_pid_for_children: u64, Namespaces Id, Files::NS, "ns/pid_for_children", "4.12",
            "Inode number of the pid namespace in which its children start.", |t| t.namespace(Field::NsPidForChildren, |n| n.ns_pid_for_children);
        NsMnt ns_mnt: u64, Namespaces Id, Files::NS, "ns/mnt", "", "Inode number of its mount namespace.", |t| t.namespace(Field::NsMnt, |n| n.ns_mnt);
        NsNet ns_net: u64, Namespaces Id, Files::NS, "ns/net", "", "Inode number of its network namespace.", |t| t.namespace(Field::NsNet, |n| n.ns_net);
        NsUser ns_user: u64, Namespaces Id, Files::NS, "ns/user", "", "Inode number of its user namespace.", |t| t.namespace(Field::NsUser, |n| n.ns_user);
        NsUts ns_uts: u64, Namespaces Id, Files::NS, "ns/uts", "", "Inode number of its UTS namespace.", |t| t.namespace(Field::NsUts, |n| n.ns_uts);
        NsIpc ns_ipc: u64, Namespaces Id, Files::NS, "ns/ipc", "", "Inode number of its IPC namespace.", |t| t.namespace(Field::NsIpc, |n| n.ns_ipc);
        NsCgroup ns_cgroup: u64, Namespaces Id, Files::NS, "ns/cgroup", "4.6", "Inode number of its cgroup namespace.", |t| t.namespace(Field::NsCgroup, |n| n.ns_cgroup);
        NsTime ns_time: u64, Namespaces Id, Files::NS, "ns/time", "5.6", "Inode number of its time namespace.", |t| t.namespace(Field::NsTime, |n| n.ns_time);
        Nspids nspids: Ids<'a>, Namespaces Ids, Files::STATUS, "status NSpid", "4.1",
            "Its thread ids, one for each pid namespace from the reader's down to its own.", |t| Ok(Ids::new(t.payload(Field::Nspids, attr::NSPIDS)?));

        CgroupId cgroup_id: u64, Cgroup Id, Files::CGROUP, "the inode of its cgroup directory", "",
            "Id of its cgroup in the unified (version 2) hierarchy.", |t| Ok(part!(t, CgroupId, CGROUP, Cgroup)?.cgroup_id.get());
        Cgroup cgroup: &'a [u8], Cgroup Text, Files::CGROUP, "cgroup, the line of hierarchy 0", "",
            "Path of its cgroup in the unified (version 2) hierarchy, as seen from the reader's cgroup namespace.", |t| t.payload(Field::Cgroup, attr::CGROUP_PATH);

        ReadChars read_chars: u64, Io Bytes, Files::IO, "io rchar", "",
            "Bytes that read system calls returned, of all threads of the process, also of those that ended. In an answer about threads, of the one thread.", |t| Ok(part!(t, ReadChars, IO, Io)?.read_chars.get());
        WriteChars write_chars: u64, Io Bytes, Files::IO, "io wchar", "",
            "Bytes that write system calls accepted.", |t| Ok(part!(t, WriteChars, IO, Io)?.write_chars.get());
        ReadSyscalls read_syscalls: u64, Io Count, Files::IO, "io syscr", "",
            "Number of read system calls.", |t| Ok(part!(t, ReadSyscalls, IO, Io)?.read_syscalls.get());
        WriteSyscalls write_syscalls: u64, Io Count, Files::IO, "io syscw", "",
            "Number of write system calls.", |t| Ok(part!(t, WriteSyscalls, IO, Io)?.write_syscalls.get());
        ReadBytes read_bytes: u64, Io Bytes, Files::IO, "io read_bytes", "",
            "Bytes read from storage.", |t| Ok(part!(t, ReadBytes, IO, Io)?.read_bytes.get());
        WriteBytes write_bytes: u64, Io Bytes, Files::IO, "io write_bytes", "",
            "Bytes that it caused to be written to storage, counted when the page cache becomes dirty.", |t| Ok(part!(t, WriteBytes, IO, Io)?.write_bytes.get());
        CancelledWriteBytes cancelled_write_bytes: u64, Io Bytes, Files::IO, "io cancelled_write_bytes", "",
            "Bytes of write_bytes that never reached storage, because a file was truncated first.",
            |t| Ok(part!(t, CancelledWriteBytes, IO, Io)?.cancelled_write_bytes.get());

        SigPending sig_pending: Mask, Signals Signals, Files::STATUS, "status SigPnd", "",
            "Signals pending for this thread.", |t| Ok(Mask(part!(t, SigPending, SIGNALS, Signals)?.sig_pending.get()));
        SigSharedPending sig_shared_pending: Mask, Signals Signals, Files::STATUS, "status ShdPnd", "",
            "Signals pending for the process.", |t| Ok(Mask(part!(t, SigSharedPending, SIGNALS, Signals)?.sig_shared_pending.get()));
        SigBlocked sig_blocked: Mask, Signals Signals, Files::STATUS, "status SigBlk", "",
            "Signals that this thread blocks.", |t| Ok(Mask(part!(t, SigBlocked, SIGNALS, Signals)?.sig_blocked.get()));
        SigIgnored sig_ignored: Mask, Signals Signals, Files::STATUS, "status SigIgn", "",
            "Signals that the process ignores.", |t| Ok(Mask(part!(t, SigIgnored, SIGNALS, Signals)?.sig_ignored.get()));
        SigCaught sig_caught: Mask, Signals Signals, Files::STATUS, "status SigCgt", "",
            "Signals for which the process has a handler.", |t| Ok(Mask(part!(t, SigCaught, SIGNALS, Signals)?.sig_caught.get()));
        SigQueuedCount sig_queued_count: u64, Signals Count, Files::STATUS, "status SigQ", "",
            "Signals queued for all processes of its real user. Their limit is limits.sigpending.",
            |t| Ok(part!(t, SigQueuedCount, SIGNALS, Signals)?.sig_queued_count.get());

        Limits limits: Limits<'a>, Limits Limits, Files::LIMITS, "limits", "",
            "The 16 resource limits, each soft and hard.", |t| Ok(Limits::new(t.payload(Field::Limits, attr::LIMITS)?));

        Environ environ: Arguments<'a>, Env Texts, Files::ENVIRON, "environ", "",
            "Environment that the process was started with: byte strings such as NAME=value. The process can change it.", |t| Ok(Arguments::new(t.payload(Field::Environ, attr::ENV)?));

        Exe exe: &'a [u8], Paths Text, Files::EXE, "exe", "",
            "Path of the executable. It ends with \" (deleted)\" if the file was deleted.", |t| t.executable();
        Cwd cwd: &'a [u8], Paths Text, Files::CWD, "cwd", "",
            "Current directory.", |t| t.payload(Field::Cwd, attr::CWD);
        Root root: &'a [u8], Paths Text, Files::ROOT, "root", "",
            "Root directory.", |t| t.payload(Field::Root, attr::ROOT);
        Umask umask: u32, Paths Mode, Files::STATUS, "status Umask", "4.7",
            "Permissions that new files of the process do not get.", |t| Ok(part!(t, Umask, UMASK, Number)?.number.get());

        FdCount fd_count: u32, Fds Count, Files::FD, "the entries of fd", "",
            "Number of open file descriptors.", |t| Ok(part!(t, FdCount, FDS, Fds)?.fd_count.get());
        FdTableSize fd_table_size: u32, Fds Count, Files::STATUS, "status FDSize", "",
            "Number of slots in the table of file descriptors.", |t| Ok(part!(t, FdTableSize, FDS, Fds)?.fd_table_size.get());

        Loginuid loginuid: u32, Audit User, Files::LOGINUID, "loginuid", "",
            "User who logged in to begin the audit session. 4294967295 if there is none.", |t| Ok(part!(t, Loginuid, AUDIT, Audit)?.loginuid.get());
        AuditSession audit_session: u32, Audit Id, Files::SESSIONID, "sessionid", "",
            "Number of the audit session. 4294967295 if there is none.", |t| Ok(part!(t, AuditSession, AUDIT, Audit)?.audit_session.get());

        StartCode start_code: Mask, Layout Address, Files::STAT, "stat startcode", "",
            "Address at which the code begins.", |t| Ok(Mask(part!(t, StartCode, LAYOUT, Layout)?.start_code.get()));
        EndCode end_code: Mask, Layout Address, Files::STAT, "stat endcode", "",
            "Address at which the code ends.", |t| Ok(Mask(part!(t, EndCode, LAYOUT, Layout)?.end_code.get()));
        StartData start_data: Mask, Layout Address, Files::STAT, "stat start_data", "3.3",
            "Address at which initialized data begins.", |t| Ok(Mask(part!(t, StartData, LAYOUT, Layout)?.start_data.get()));
        EndData end_data: Mask, Layout Address, Files::STAT, "stat end_data", "3.3",
            "Address at which initialized data ends.", |t| Ok(Mask(part!(t, EndData, LAYOUT, Layout)?.end_data.get()));
        StartBrk start_brk: Mask, Layout Address, Files::STAT, "stat start_brk", "3.3",
            "Address at which the heap begins.", |t| Ok(Mask(part!(t, StartBrk, LAYOUT, Layout)?.start_brk.get()));
        StartStack start_stack: Mask, Layout Address, Files::STAT, "stat startstack", "",
            "Address at which the stack begins.", |t| Ok(Mask(part!(t, StartStack, LAYOUT, Layout)?.start_stack.get()));
        ArgStart arg_start: Mask, Layout Address, Files::STAT, "stat arg_start", "3.5",
            "Address at which the arguments begin.", |t| Ok(Mask(part!(t, ArgStart, LAYOUT, Layout)?.arg_start.get()));
        ArgEnd arg_end: Mask, Layout Address, Files::STAT, "stat arg_end", "3.5",
            "Address at which the arguments end.", |t| Ok(Mask(part!(t, ArgEnd, LAYOUT, Layout)?.arg_end.get()));
        EnvStart env_start: Mask, Layout Address, Files::STAT, "stat env_start", "3.5",
            "Address at which the environment begins.", |t| Ok(Mask(part!(t, EnvStart, LAYOUT, Layout)?.env_start.get()));
        EnvEnd env_end: Mask, Layout Address, Files::STAT, "stat env_end", "3.5",
            "Address at which the environment ends.", |t| Ok(Mask(part!(t, EnvEnd, LAYOUT, Layout)?.env_end.get()));
        Personality personality: Mask, Layout Mask, Files::PERSONALITY, "personality", "",
            "Execution domain and flags of personality(2).", |t| Ok(Mask(part!(t, Personality, PERSONALITY, Number)?.number.get().into()));

        Wchan wchan: &'a [u8], Text Text, Files::WCHAN, "wchan", "",
            "Kernel function that it waits in. Empty if it does not wait, or if the kernel has no name for the function.",
            |t| t.payload(Field::Wchan, attr::WCHAN);
        SecurityLabel security_label: &'a [u8], Text Text, Files::SECURITY_LABEL, "attr/current", "",
            "Label of the security module: AppArmor's profile or SELinux's context.",
            |t| t.payload(Field::SecurityLabel, attr::SECURITY_LABEL);
        Cgroups cgroups: &'a [u8], Text Text, Files::CGROUP, "cgroup", "",
            "Its cgroup in each hierarchy, as the kernel prints it: a line for each, with the hierarchy's number, the controllers or the name of a version 1 hierarchy, and the path.",
            |t| t.payload(Field::Cgroups, attr::CGROUPS);

        PssBytes pss_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup Pss", "4.14",
            "Proportional set size: resident memory, with each page divided by the number of processes that map it. Without smaps_rollup (before 4.14) the sum over smaps loses up to 1 KiB for each mapping.",
            |t| t.number(part!(t, PssBytes, ROLLUP, Rollup)?.pss_bytes);
        UssBytes uss_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup Private_Clean + Private_Dirty", "4.14",
            "Unique set size: resident memory that no other process maps.",
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
            "Resident pages that are marked as referenced.",
            |t| t.number(part!(t, ReferencedBytes, ROLLUP, Rollup)?.referenced_bytes);
        AnonymousBytes anonymous_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup Anonymous", "4.14",
            "Resident pages that belong to no file.",
            |t| t.number(part!(t, AnonymousBytes, ROLLUP, Rollup)?.anonymous_bytes);
        KsmBytes ksm_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup KSM", "6.7",
            "Resident pages that are merged with equal ones (KSM).",
            |t| t.number(part!(t, KsmBytes, ROLLUP, Rollup)?.ksm_bytes);
        LazyfreeBytes lazyfree_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup LazyFree", "4.14",
            "Pages freed with MADV_FREE that the kernel has not reclaimed yet.",
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
            "Resident pages of hugetlbfs that are mapped more than once. No other sum includes them.",
            |t| t.number(part!(t, SharedHugetlbBytes, ROLLUP, Rollup)?.shared_hugetlb_bytes);
        PrivateHugetlbBytes private_hugetlb_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup Private_Hugetlb", "4.14",
            "Resident pages of hugetlbfs that are mapped once. No other sum includes them.",
            |t| t.number(part!(t, PrivateHugetlbBytes, ROLLUP, Rollup)?.private_hugetlb_bytes);
        SwapPssBytes swap_pss_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup SwapPss", "4.14",
            "Swapped-out memory, with each page divided by the number of processes that share it.",
            |t| t.number(part!(t, SwapPssBytes, ROLLUP, Rollup)?.swap_pss_bytes);
        RollupRssBytes rollup_rss_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup Rss", "4.14",
            "Resident memory according to the page tables. rss_bytes is from the kernel's counters.",
            |t| t.number(part!(t, RollupRssBytes, ROLLUP, Rollup)?.rss_bytes);
        RollupSwapBytes rollup_swap_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup Swap", "4.14",
            "Swapped-out memory according to the page tables.",
            |t| t.number(part!(t, RollupSwapBytes, ROLLUP, Rollup)?.swap_bytes);
        RollupLockedBytes rollup_locked_bytes: u64, Rollup Bytes, Files::SMAPS_ROLLUP, "smaps_rollup Locked", "4.14",
            "The part of pss_bytes that is in locked mappings.",
            |t| t.number(part!(t, RollupLockedBytes, ROLLUP, Rollup)?.locked_bytes);
        RollupAgeNs rollup_age_ns: u64, Rollup Nanoseconds, Files::SMAPS_ROLLUP, "", "",
            "Age of the values of this group at the end of the answer. Values of a process that shows no sign of change are kept for a while.",
            |t| Ok(part!(t, RollupAgeNs, ROLLUP, Rollup)?.age_ns.get());
    }

    derived {
        User user: &'a [u8], Text [Euid],
            "Name of the effective user, from the user database of this host. The number if it has no name there.";
        Group group: &'a [u8], Text [Egid],
            "Name of the effective group, from the user database of this host. The number if it has no name there.";
        CpuPercent cpu_percent: f64, Percent [StartNs UtimeNs StimeNs],
            "Processor time in percent of the time since the task started. More than 100 if it used several processors.";
        MemPercent mem_percent: f64, Percent [RssBytes],
            "Resident memory in percent of the memory of this machine (MemTotal of /proc/meminfo).";
        ElapsedNs elapsed_ns: u64, Nanoseconds [StartNs],
            "Time since the task started. Time in which the machine was suspended counts.";
        StartTime start_time: &'a [u8], Time [StartNs],
            "When the task started, by the clock as it is set now: RFC 3339, in UTC and whole seconds.";
        Stat stat: &'a [u8], Text [State Nice LockedBytes Pid Sid ThreadsCount Pgid Tpgid],
            "State as ps(1) shows it in STAT: the letter of state, then < high priority (nice < 0), N low priority (nice > 0), L has locked memory, s leads its session, l has several threads, + is in the foreground process group.";
        Tty tty: &'a [u8], Text [TtyNr],
            "Name of the controlling terminal, without /dev/. Empty if it has none.";
        Unit unit: &'a [u8], Text [Cgroup],
            "systemd unit of the system manager that it is in, by its cgroup. Empty if it is in none.";
        UserUnit user_unit: &'a [u8], Text [Cgroup],
            "systemd unit of a user's manager that it is in, by its cgroup. Empty if it is in none.";
        Slice slice: &'a [u8], Text [Cgroup],
            "Innermost systemd slice that unit is in, by its cgroup. -.slice, the root slice, if its cgroup is in no other.";
        ContainerId container_id: &'a [u8], Text [Cgroup],
            "Id of the innermost container that it is in, by its cgroup. The name where the runtime has no ids (systemd-nspawn, LXC). Empty if it is in none.";
        ContainerName container_name: &'a [u8], Text [Cgroup],
            "Name of that container, by its cgroup or by the runtime's files. Empty if it is in none.";
        ContainerRuntime container_runtime: &'a [u8], Text [Cgroup],
            "Runtime of that container, by its cgroup or by the runtime's files: docker, containerd, cri-o, podman, systemd-nspawn or lxc. Empty if it is in none.";
        PodUid pod_uid: &'a [u8], Text [Cgroup],
            "UID of the Kubernetes pod that it is in, by its cgroup. Empty if it is in none.";
    }
    }};
}

pub(crate) use with_rows;

with_rows!(fields);
