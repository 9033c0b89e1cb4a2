//! The rows of the field table.

use std::mem::offset_of;

use super::place::{origin, place, places, record_place, Place, RecordPlace};
use super::{files, Files, Group, Kind};
use crate::record::{self, attr};
use crate::text::process::{IoLine, Line, NamespaceLink, Word};
use crate::text::smaps::SmapsLine;

/// What the field table has about a field.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The name.
    pub name: &'static str,
    /// The group.
    pub group: Group,
    /// What its values are.
    pub kind: Kind,
    /// Where procfs has it. Any one of the places is enough.
    #[doc(hidden)]
    pub places: [Place; 2],
    /// Where a record has it.
    #[doc(hidden)]
    pub record: RecordPlace,
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

/// Makes the fields and their rows of the table.
macro_rules! fields {
    (
        read {
            $($id:ident $name:ident: $ty:ty, $group:ident $kind:ident, $place:tt $(since $since:literal)?,
                $meaning:literal $(, $read:tt)?;)*
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

        pub(crate) const TABLE: &[Info] = &[
            $(Info {
                name: stringify!($name),
                group: Group::$group,
                kind: Kind::$kind,
                places: places!($place),
                record: record_place!($group $name $($read)?),
                origin: origin!($place),
                made_of: &[],
                since: concat!($($since)?),
                meaning: $meaning,
            },)*
            $(Info {
                name: stringify!($derived_name),
                group: Group::Derived,
                kind: Kind::$derived_kind,
                places: [Place::NOWHERE; 2],
                record: RecordPlace::Other,
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
///
/// In brackets is the place in procfs: the file and the name of its word or line there, or the
/// number of the word, and the word of a line with several; a text if people need other words. The
/// last brackets say how to read the value from a record. By default it is the member of the
/// group's structure that has the name of the field.
macro_rules! with_rows {
    ($make:ident) => { $make! {
    read {
        Pid pid: u32, Base Id, ["the directory's name"], "Process id: the thread-group id.", [|t| Ok(t.record().header().pid.get())];
        Tid tid: u32, Base Id, ["the directory's name in task/"],
            "Thread id. In an answer about processes, the process id.", [|t| Ok(t.record().header().tid.get())];
        Ppid ppid: u32, Base Id, [stat ppid | status PPid],
            "Process id of the parent. 0 if it has no parent in the reader's pid namespace.";
        TracerPid tracer_pid: u32, Base Id, [status TracerPid], "Thread id of the tracer. 0 if the task is not traced.";
        Pgid pgid: u32, Base Id, [stat pgrp], "Process group id.";
        Sid sid: u32, Base Id, [stat session], "Session id.";
        State state: char, Base Letter, [stat state | status State],
            "State: R running, S sleeping, D uninterruptible sleep, I idle kernel thread, T stopped, t stopped by a tracer, P parked, Z zombie, X dead.";
        Comm comm: &'a [u8], Base Text, [stat comm],
            "Name of the program or thread, any bytes but NUL: at most 15, for kernel threads at most 63.", [|t| t.comm_bytes()];
        StartNs start_ns: i64, Base Nanoseconds, [stat starttime],
            "Time from boot to the start of the task. BPF gives nanoseconds, procfs whole clock ticks (10 ms). Negative for a task that is older than the zero of the reader's time namespace; unsupported in clients whose numbers are unsigned (C, Go, Python).", [|t| Ok(t.record().header().start_ns.get() as i64)];
        ThreadsCount threads_count: u32, Base Count, [stat num_threads | status Threads], "Number of threads in the process.";
        KernelThread kernel_thread: bool, Base Flag, [stat flags: "stat flags, PF_KTHREAD"],
            "Whether the task is a kernel thread.", [|t| Ok(t.record().has(record::KERNEL_THREAD))];
        Flags flags: Mask, Base Mask, [stat flags],
            "Flags of the kernel: the PF_ constants of include/linux/sched.h, which change between kernels.";
        ExitSignal exit_signal: i32, Base Signed, [stat exit_signal],
            "Signal that the parent gets when the task ends. -1 for a thread that does not lead its process.";

        TtyNr tty_nr: u32, Tty Id, [stat tty_nr], "Device number of the controlling terminal. 0 if it has none.";
        Tpgid tpgid: i32, Tty Signed, [stat tpgid], "Foreground process group of the controlling terminal.", [none];

        Uid uid: u32, Cred User, [status Uid 0], "Real user id.";
        Euid euid: u32, Cred User, [status Uid 1], "Effective user id.";
        Suid suid: u32, Cred User, [status Uid 2], "Saved user id.";
        Fsuid fsuid: u32, Cred User, [status Uid 3], "File-system user id.";
        Gid gid: u32, Cred GroupId, [status Gid 0], "Real group id.";
        Egid egid: u32, Cred GroupId, [status Gid 1], "Effective group id.";
        Sgid sgid: u32, Cred GroupId, [status Gid 2], "Saved group id.";
        Fsgid fsgid: u32, Cred GroupId, [status Gid 3], "File-system group id.";
        CapInheritable cap_inheritable: Mask, Cred Capabilities, [status CapInh], "Inheritable capabilities.";
        CapPermitted cap_permitted: Mask, Cred Capabilities, [status CapPrm], "Permitted capabilities.";
        CapEffective cap_effective: Mask, Cred Capabilities, [status CapEff], "Effective capabilities.";
        CapBounding cap_bounding: Mask, Cred Capabilities, [status CapBnd], "Capability bounding set.";
        CapAmbient cap_ambient: Mask, Cred Capabilities, [status CapAmb] since "4.3", "Ambient capabilities.";
        NoNewPrivs no_new_privs: bool, Cred Flag, [status NoNewPrivs] since "4.10", "Whether execve(2) can no longer grant privileges.";
        Seccomp seccomp: u32, Cred Id, [status Seccomp] since "3.8", "Seccomp mode: 0 off, 1 strict, 2 filter.", [maybe];
        SeccompFiltersCount seccomp_filters_count: u32, Cred Count, [status Seccomp_filters] since "5.9", "Number of seccomp filters, each of which looks at every system call.", [maybe];

        Groups groups: Ids<'a>, Groups Ids, [status Groups], "Supplementary group ids.", [attr GROUPS as Ids];

        UtimeNs utime_ns: u64, Cpu Nanoseconds, [stat utime],
            "Processor time in user mode, of all threads of the process, also of those that ended. In an answer about threads, of the one thread. procfs gives whole clock ticks.", [utime_ns |t| Ok(t.part::<record::Cpu>(Field::UtimeNs, attr::CPU)?.scaled_times().0)];
        StimeNs stime_ns: u64, Cpu Nanoseconds, [stat stime],
            "Processor time in kernel mode, of all threads of the process, also of those that ended. In an answer about threads, of the one thread. procfs gives whole clock ticks.", [stime_ns |t| Ok(t.part::<record::Cpu>(Field::StimeNs, attr::CPU)?.scaled_times().1)];
        CutimeNs cutime_ns: u64, Cpu Nanoseconds, [stat cutime], "Processor time in user mode of children that ended and were waited for.";
        CstimeNs cstime_ns: u64, Cpu Nanoseconds, [stat cstime],
            "Processor time in kernel mode of children that ended and were waited for.";
        RuntimeNs runtime_ns: u64, Cpu Nanoseconds, [schedstat 0],
            "Time on a processor, of this thread alone. For a process, of its first thread.";
        RunDelayNs run_delay_ns: u64, Cpu Nanoseconds, [schedstat 1], "Time spent waiting for a processor, of this thread alone.", [maybe];
        Nice nice: i32, Cpu Signed, [stat nice], "Nice value.";
        Priority priority: i32, Cpu Signed, [stat priority], "The scheduler's priority: nice + 20, -2 to -100 for real-time tasks, -101 for SCHED_DEADLINE.";
        RtPriority rt_priority: u32, Cpu Id, [stat rt_priority], "Real-time priority: 1 to 99. 0 for other tasks.";
        Policy policy: u32, Cpu Id, [stat policy], "Scheduling policy: 0 other, 1 fifo, 2 rr, 3 batch, 5 idle, 6 deadline, 7 ext.";
        Processor cpu: u32, Cpu Id, [stat processor], "Processor on which the task ran last.";
        Affinity affinity: CpuSet<'a>, Cpu Cpus, [status Cpus_allowed], "Processors on which the task may run.", [attr AFFINITY as CpuSet];
        VoluntarySwitches voluntary_switches: u64, Cpu Count, [status voluntary_ctxt_switches],
            "Voluntary context switches, of this thread alone.";
        InvoluntarySwitches involuntary_switches: u64, Cpu Count, [status nonvoluntary_ctxt_switches],
            "Involuntary context switches, of this thread alone.";

        GuestNs guest_ns: u64, Cpu Nanoseconds, [stat guest_time],
            "Time spent running virtual processors, which utime_ns includes. procfs gives whole clock ticks.";
        CguestNs cguest_ns: u64, Cpu Nanoseconds, [stat cguest_time],
            "Time spent running virtual processors, of children that ended and were waited for. procfs gives whole clock ticks.";
        BlockDelayNs block_delay_ns: u64, Cpu Nanoseconds, [stat delayacct_blkio_ticks],
            "Time spent waiting for block devices, of this thread alone. 0 where delay accounting is off. procfs gives whole clock ticks.";
        TimerSlackNs timer_slack_ns: u64, Cpu Nanoseconds, [timerslack_ns] since "4.6", "By how much timers of the task may be late.";
        TimeslicesCount timeslices_count: u64, Cpu Count, [schedstat 2], "How many times this thread got a processor.", [maybe];

        MinFaults min_faults: u64, Faults Count, [stat minflt],
            "Page faults without I/O, of all threads of the process, also of those that ended. In an answer about threads, of the one thread.";
        MajFaults maj_faults: u64, Faults Count, [stat majflt],
            "Page faults with I/O, of all threads of the process, also of those that ended. In an answer about threads, of the one thread.";
        ChildMinFaults child_min_faults: u64, Faults Count, [stat cminflt],
            "Page faults without I/O of children that ended and were waited for.";
        ChildMajFaults child_maj_faults: u64, Faults Count, [stat cmajflt],
            "Page faults with I/O of children that ended and were waited for.";

        VsizeBytes vsize_bytes: u64, Mem Bytes, [status VmSize], "Virtual memory: the size of all mappings.";
        RssBytes rss_bytes: u64, Mem Bytes, [status VmRSS],
            "Resident memory: the sum of rss_anon_bytes, rss_file_bytes and rss_shmem_bytes.", [|t| Ok(t.part::<record::Mem>(Field::RssBytes, attr::MEM)?.rss_bytes())];
        RssAnonBytes rss_anon_bytes: u64, Mem Bytes, [status RssAnon] since "4.5", "Resident anonymous memory.";
        RssFileBytes rss_file_bytes: u64, Mem Bytes, [status RssFile] since "4.5", "Resident memory mapped from files.";
        RssShmemBytes rss_shmem_bytes: u64, Mem Bytes, [status RssShmem] since "4.5", "Resident shared memory.";
        SwapBytes swap_bytes: u64, Mem Bytes, [status VmSwap], "Swapped-out anonymous memory.";
        PeakVsizeBytes peak_vsize_bytes: u64, Mem Bytes, [status VmPeak], "The most virtual memory that the process has had.";
        PeakRssBytes peak_rss_bytes: u64, Mem Bytes, [status VmHWM], "The most resident memory that the process has had.";
        TextBytes text_bytes: u64, Mem Bytes, [status VmExe], "Size of the code of the executable.";
        DataBytes data_bytes: u64, Mem Bytes, [status VmData], "Size of private writable mappings, without the stack.";
        StackBytes stack_bytes: u64, Mem Bytes, [status VmStk], "Size of the stack.";
        LibBytes lib_bytes: u64, Mem Bytes, [status VmLib], "Size of the code of shared libraries.";
        LockedBytes locked_bytes: u64, Mem Bytes, [status VmLck], "Memory locked by mlock(2).";
        PinnedBytes pinned_bytes: u64, Mem Bytes, [status VmPin], "Memory pinned for direct access by devices.";
        PageTableBytes page_table_bytes: u64, Mem Bytes, [status VmPTE], "Size of the page tables.";
        HugetlbBytes hugetlb_bytes: u64, Mem Bytes, [status HugetlbPages] since "4.4",
            "Resident pages of hugetlbfs. No other field includes them.", [maybe];

        Cmdline cmdline: Arguments<'a>, Args Texts, [cmdline],
            "Command line. The process can change it: a title and nothing but NULs behind it is one argument.", [attr ARGS |t| Ok(Arguments::new(t.args()?))];

        OomScoreAdj oom_score_adj: i32, Oom Signed, [oom_score_adj],
            "Adjustment of oom_score: -1000 never kill the process, 1000 kill it first.";
        OomScore oom_score: i32, Oom Signed, [oom_score], "How likely the kernel is to kill the process when memory runs out.";

        NsPid ns_pid: u64, Namespaces Id, [ns/pid], "Inode number of its pid namespace.", [namespace];
        NsPidForChildren ns_pid_for_children: u64, Namespaces Id, [ns/pid_for_children] since "4.12",
            "Inode number of the pid namespace in which its children start.", [namespace];
        NsMnt ns_mnt: u64, Namespaces Id, [ns/mnt], "Inode number of its mount namespace.", [namespace];
        NsNet ns_net: u64, Namespaces Id, [ns/net], "Inode number of its network namespace.", [namespace];
        NsUser ns_user: u64, Namespaces Id, [ns/user], "Inode number of its user namespace.", [namespace];
        NsUts ns_uts: u64, Namespaces Id, [ns/uts], "Inode number of its UTS namespace.", [namespace];
        NsIpc ns_ipc: u64, Namespaces Id, [ns/ipc], "Inode number of its IPC namespace.", [namespace];
        NsCgroup ns_cgroup: u64, Namespaces Id, [ns/cgroup] since "4.6", "Inode number of its cgroup namespace.", [namespace];
        NsTime ns_time: u64, Namespaces Id, [ns/time] since "5.6", "Inode number of its time namespace.", [namespace];
        Nspids nspids: Ids<'a>, Namespaces Ids, [status NSpid] since "4.1",
            "Its thread ids, one for each pid namespace from the reader's down to its own.", [attr NSPIDS as Ids];

        CgroupId cgroup_id: u64, Cgroup Id, [cgroup: "the inode of its cgroup directory"],
            "Id of its cgroup in the unified (version 2) hierarchy.";
        Cgroup cgroup: &'a [u8], Cgroup Text, [cgroup: "cgroup, the line of hierarchy 0"],
            "Path of its cgroup in the unified (version 2) hierarchy, as seen from the reader's cgroup namespace.", [attr CGROUP_PATH];

        ReadChars read_chars: u64, Io Bytes, [io rchar],
            "Bytes that read system calls returned, of all threads of the process, also of those that ended, and, as all numbers of this group, of children that have ended and that it waited for. In an answer about threads, of the one thread.";
        WriteChars write_chars: u64, Io Bytes, [io wchar], "Bytes that write system calls accepted, those of children that it waited for, too.";
        ReadSyscalls read_syscalls: u64, Io Count, [io syscr], "Number of read system calls, of children that it waited for, too.";
        WriteSyscalls write_syscalls: u64, Io Count, [io syscw], "Number of write system calls, of children that it waited for, too.";
        ReadBytes read_bytes: u64, Io Bytes, [io read_bytes], "Bytes read from storage, by children that it waited for, too.";
        WriteBytes write_bytes: u64, Io Bytes, [io write_bytes],
            "Bytes that it, or children that it waited for, caused to be written to storage, counted when the page cache becomes dirty.";
        CancelledWriteBytes cancelled_write_bytes: u64, Io Bytes, [io cancelled_write_bytes],
            "Bytes of write_bytes that never reached storage, because a file was truncated first. Those of children that it waited for count, too.";

        SigPending sig_pending: Mask, Signals Signals, [status SigPnd], "Signals pending for this thread.";
        SigSharedPending sig_shared_pending: Mask, Signals Signals, [status ShdPnd], "Signals pending for the process.";
        SigBlocked sig_blocked: Mask, Signals Signals, [status SigBlk], "Signals that this thread blocks.";
        SigIgnored sig_ignored: Mask, Signals Signals, [status SigIgn], "Signals that the process ignores.";
        SigCaught sig_caught: Mask, Signals Signals, [status SigCgt], "Signals for which the process has a handler.";
        SigQueuedCount sig_queued_count: u64, Signals Count, [status SigQ],
            "Signals queued for all processes of its real user. Their limit is limits.sigpending.";

        Limits limits: Limits<'a>, Limits Limits, [limits], "The 16 resource limits, each soft and hard.", [attr LIMITS as Limits];

        Environ environ: Arguments<'a>, Env Texts, [environ],
            "Environment that the process was started with: byte strings such as NAME=value. The process can change it.", [attr ENV as Arguments];

        Exe exe: &'a [u8], Paths Text, [exe],
            "Path of the executable. It ends with \" (deleted)\" if the file was deleted.", [attr EXE |t| t.executable()];
        Cwd cwd: &'a [u8], Paths Text, [cwd], "Current directory.", [attr CWD];
        Root root: &'a [u8], Paths Text, [root], "Root directory.", [attr ROOT];
        Umask umask: u32, Paths Mode, [status Umask] since "4.7",
            "Permissions that new files of the process do not get.", [UMASK Number.number];

        FdCount fd_count: u32, Fds Count, [fd: "the entries of fd"], "Number of open file descriptors.";
        FdTableSize fd_table_size: u32, Fds Count, [status FDSize], "Number of slots in the table of file descriptors.";

        Loginuid loginuid: u32, Audit User, [loginuid], "User who logged in to begin the audit session.", [none];
        AuditSession audit_session: u32, Audit Id, [sessionid], "Number of the audit session.", [none];

        StartCode start_code: Mask, Layout Address, [stat startcode], "Address at which the code begins.";
        EndCode end_code: Mask, Layout Address, [stat endcode], "Address at which the code ends.";
        StartData start_data: Mask, Layout Address, [stat start_data] since "3.3", "Address at which initialized data begins.";
        EndData end_data: Mask, Layout Address, [stat end_data] since "3.3", "Address at which initialized data ends.";
        StartBrk start_brk: Mask, Layout Address, [stat start_brk] since "3.3", "Address at which the heap begins.";
        StartStack start_stack: Mask, Layout Address, [stat startstack], "Address at which the stack begins.";
        ArgStart arg_start: Mask, Layout Address, [stat arg_start] since "3.5", "Address at which the arguments begin.";
        ArgEnd arg_end: Mask, Layout Address, [stat arg_end] since "3.5", "Address at which the arguments end.";
        EnvStart env_start: Mask, Layout Address, [stat env_start] since "3.5", "Address at which the environment begins.";
        EnvEnd env_end: Mask, Layout Address, [stat env_end] since "3.5", "Address at which the environment ends.";
        Personality personality: Mask, Layout Mask, [personality],
            "Execution domain and flags of personality(2).", [PERSONALITY Number.number];

        Wchan wchan: &'a [u8], Text Text, [wchan],
            "Kernel function that it waits in. Empty if it does not wait, or if the kernel has no name for the function.", [attr WCHAN];
        SecurityLabel security_label: &'a [u8], Text Text, [attr/current],
            "Label of the security module: AppArmor's profile or SELinux's context.", [attr SECURITY_LABEL];
        Cgroups cgroups: &'a [u8], Text Text, [cgroup],
            "Its cgroup in each hierarchy, as the kernel prints it: a line for each, with the hierarchy's number, the controllers or the name of a version 1 hierarchy, and the path.", [attr CGROUPS];

        PssBytes pss_bytes: u64, Rollup Bytes, [smaps_rollup Pss] since "4.14",
            "Proportional set size: resident memory, with each page divided by the number of processes that map it. Without smaps_rollup (before 4.14) the sum over smaps loses up to 1 KiB for each mapping.", [maybe];
        UssBytes uss_bytes: u64, Rollup Bytes, [smaps_rollup: "smaps_rollup Private_Clean + Private_Dirty"] since "4.14",
            "Unique set size: resident memory that no other process maps.", [|t| t.uss()];
        PssDirtyBytes pss_dirty_bytes: u64, Rollup Bytes, [smaps_rollup Pss_Dirty] since "6.0",
            "The part of pss_bytes that is dirty.", [maybe];
        PssAnonBytes pss_anon_bytes: u64, Rollup Bytes, [smaps_rollup Pss_Anon] since "5.3",
            "The part of pss_bytes that is anonymous.", [maybe];
        PssFileBytes pss_file_bytes: u64, Rollup Bytes, [smaps_rollup Pss_File] since "5.3",
            "The part of pss_bytes that is page cache of files.", [maybe];
        PssShmemBytes pss_shmem_bytes: u64, Rollup Bytes, [smaps_rollup Pss_Shmem] since "5.3",
            "The part of pss_bytes that is shared memory and tmpfs.", [maybe];
        SharedCleanBytes shared_clean_bytes: u64, Rollup Bytes, [smaps_rollup Shared_Clean] since "4.14",
            "Clean resident pages that are mapped more than once.", [maybe];
        SharedDirtyBytes shared_dirty_bytes: u64, Rollup Bytes, [smaps_rollup Shared_Dirty] since "4.14",
            "Dirty resident pages that are mapped more than once.", [maybe];
        PrivateCleanBytes private_clean_bytes: u64, Rollup Bytes, [smaps_rollup Private_Clean] since "4.14",
            "Clean resident pages that are mapped once.", [maybe];
        PrivateDirtyBytes private_dirty_bytes: u64, Rollup Bytes, [smaps_rollup Private_Dirty] since "4.14",
            "Dirty resident pages that are mapped once.", [maybe];
        ReferencedBytes referenced_bytes: u64, Rollup Bytes, [smaps_rollup Referenced] since "4.14",
            "Resident pages that are marked as referenced.", [maybe];
        AnonymousBytes anonymous_bytes: u64, Rollup Bytes, [smaps_rollup Anonymous] since "4.14",
            "Resident pages that belong to no file.", [maybe];
        KsmBytes ksm_bytes: u64, Rollup Bytes, [smaps_rollup KSM] since "6.7",
            "Resident pages that are merged with equal ones (KSM).", [maybe];
        LazyfreeBytes lazyfree_bytes: u64, Rollup Bytes, [smaps_rollup LazyFree] since "4.14",
            "Pages freed with MADV_FREE that the kernel has not reclaimed yet.", [maybe];
        AnonHugeBytes anon_huge_bytes: u64, Rollup Bytes, [smaps_rollup AnonHugePages] since "4.14",
            "Anonymous memory in transparent huge pages.", [maybe];
        ShmemHugeBytes shmem_huge_bytes: u64, Rollup Bytes, [smaps_rollup ShmemPmdMapped] since "4.14",
            "Shared memory mapped by huge pages.", [maybe];
        FileHugeBytes file_huge_bytes: u64, Rollup Bytes, [smaps_rollup FilePmdMapped] since "5.4",
            "Page cache of files mapped by huge pages.", [maybe];
        SharedHugetlbBytes shared_hugetlb_bytes: u64, Rollup Bytes, [smaps_rollup Shared_Hugetlb] since "4.14",
            "Resident pages of hugetlbfs that are mapped more than once. No other sum includes them.", [maybe];
        PrivateHugetlbBytes private_hugetlb_bytes: u64, Rollup Bytes, [smaps_rollup Private_Hugetlb] since "4.14",
            "Resident pages of hugetlbfs that are mapped once. No other sum includes them.", [maybe];
        SwapPssBytes swap_pss_bytes: u64, Rollup Bytes, [smaps_rollup SwapPss] since "4.14",
            "Swapped-out memory, with each page divided by the number of processes that share it.", [maybe];
        RollupRssBytes rollup_rss_bytes: u64, Rollup Bytes, [smaps_rollup Rss] since "4.14",
            "Resident memory according to the page tables. rss_bytes is from the kernel's counters.", [maybe rss_bytes];
        RollupSwapBytes rollup_swap_bytes: u64, Rollup Bytes, [smaps_rollup Swap] since "4.14",
            "Swapped-out memory according to the page tables.", [maybe swap_bytes];
        RollupLockedBytes rollup_locked_bytes: u64, Rollup Bytes, [smaps_rollup Locked] since "4.14",
            "The part of pss_bytes that is in locked mappings.", [maybe locked_bytes];
        RollupAgeNs rollup_age_ns: u64, Rollup Nanoseconds, [smaps_rollup: ""],
            "Age of the values of this group at the end of the answer. Values of a process that shows no sign of change are kept for a while.", [age_ns];

        NetSinceNs net_since_ns: u64, Net Nanoseconds, ["counted by a BPF program"],
            "Since when the network fields count, as a time from boot: when counting began, or the process, whichever is later. At least 0, the zero of the reader's time namespace.";
        NetSentBytes net_sent_bytes: u64, Net Bytes, ["counted by a BPF program"], "Payload that the process has sent through sockets of IP that lead to other machines.";
        NetReceivedBytes net_received_bytes: u64, Net Bytes, ["counted by a BPF program"], "Payload that the process has received through sockets of IP that lead to other machines.";
        NetSentCount net_sent_count: u64, Net Count, ["counted by a BPF program"], "Calls by which the process has sent through sockets of IP that lead to other machines.";
        NetReceivedCount net_received_count: u64, Net Count, ["counted by a BPF program"], "Calls by which the process has received through sockets of IP that lead to other machines.";
        LoopbackSentBytes loopback_sent_bytes: u64, Net Bytes, ["counted by a BPF program"], "Payload that the process has sent through sockets of IP that lead to this machine.";
        LoopbackReceivedBytes loopback_received_bytes: u64, Net Bytes, ["counted by a BPF program"], "Payload that the process has received through sockets of IP that lead to this machine.";
        LoopbackSentCount loopback_sent_count: u64, Net Count, ["counted by a BPF program"], "Calls by which the process has sent through sockets of IP that lead to this machine.";
        LoopbackReceivedCount loopback_received_count: u64, Net Count, ["counted by a BPF program"], "Calls by which the process has received through sockets of IP that lead to this machine.";
        UnixSentBytes unix_sent_bytes: u64, Net Bytes, ["counted by a BPF program"], "Payload that the process has sent through UNIX sockets.";
        UnixReceivedBytes unix_received_bytes: u64, Net Bytes, ["counted by a BPF program"], "Payload that the process has received through UNIX sockets.";
        UnixSentCount unix_sent_count: u64, Net Count, ["counted by a BPF program"], "Calls by which the process has sent through UNIX sockets.";
        UnixReceivedCount unix_received_count: u64, Net Count, ["counted by a BPF program"], "Calls by which the process has received through UNIX sockets.";
        NetTcpSentBytes net_tcp_sent_bytes: u64, Net Bytes, ["counted by a BPF program"], "The part of net_sent_bytes that went over TCP.";
        NetTcpReceivedBytes net_tcp_received_bytes: u64, Net Bytes, ["counted by a BPF program"], "The part of net_received_bytes that went over TCP.";
        NetUdpSentBytes net_udp_sent_bytes: u64, Net Bytes, ["counted by a BPF program"], "The part of net_sent_bytes that went over UDP.";
        NetUdpReceivedBytes net_udp_received_bytes: u64, Net Bytes, ["counted by a BPF program"], "The part of net_received_bytes that went over UDP.";
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
        ElapsedNs elapsed_ns: u64, Nanoseconds [StartNs], "Time since the task started. Time in which the machine was suspended counts.";
        StartTime start_time: &'a [u8], Time [StartNs],
            "When the task started, by the clock as it is set now: RFC 3339, in UTC and whole seconds.";
        Stat stat: &'a [u8], Text [State Nice LockedBytes Pid Sid ThreadsCount Pgid Tpgid],
            "State as ps(1) shows it in STAT: the letter of state, then < high priority (nice < 0), N low priority (nice > 0), L has locked memory, s leads its session, l has several threads, + is in the foreground process group.";
        Tty tty: &'a [u8], Text [TtyNr], "Name of the controlling terminal, without /dev/. Empty if it has none.";
        Unit unit: &'a [u8], Text [Cgroup], "systemd unit of the system manager that it is in, by its cgroup. Empty if it is in none.";
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
        PodUid pod_uid: &'a [u8], Text [Cgroup], "UID of the Kubernetes pod that it is in, by its cgroup. Empty if it is in none.";
    }
    }};
}

pub(crate) use with_rows;

with_rows!(fields);
