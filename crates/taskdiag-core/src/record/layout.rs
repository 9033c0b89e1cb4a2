//! The constants and structures of records, for Rust and for C:
//! [`header`](super::header) writes them for the BPF programs.

use zerocopy::native_endian::{I32, I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::define::{constants, enumerations, structures};

constants! {
    prefix "TD_";
    /// The version of the record. It changes with the record's layout and with the meaning of its
    /// fields, and is part of the path where programs are pinned.
    ABI: u32 = 7;

    /// A flag of a record: the task is a kernel thread (PF_KTHREAD).
    KERNEL_THREAD: u32 = 1 << 0;
    /// The task has no address space: a kernel thread, a zombie, or a dead leader.
    NO_MM: u32 = 1 << 1;
    /// The source could not answer some groups exactly; a `DEFER` attribute names them.
    DEFERRED: u32 = 1 << 2;
    /// An `ABSENT` attribute names fields that are missing, each with its reason.
    HAS_ABSENT: u32 = 1 << 3;
    /// The record has no values: while the task was being read, its id became free or went to
    /// another task. The process must be read again, in another way.
    AGAIN: u32 = 1 << 4;
    /// The record is not a task: the program found no `td_reader` for this thread.
    NO_READER: u32 = 1 << 5;

    /// Stands for a number that the kernel does not have. For numbers of 32 bits, the lower half of
    /// it.
    NO_NUMBER: u64 = u64::MAX;

    /// A flag of a `CPU` attribute: `utime_ns` and `stime_ns` are tick counts, not yet scaled to
    /// the exact run time.
    CPU_UNSCALED: u16 = 1;
    /// The number of resource limits.
    LIMITS: usize = 16;
    /// A flag of an `ACCESS` attribute: its values did not change while the record was written.
    /// Without it, something changed or an exec was in progress: then it is unknown who may see the
    /// record.
    ACCESS_STABLE: u32 = 1;
    /// The length of `View::security`, in words.
    SECURITY_WORDS: usize = 32;

    /// A bit of `groups`, for the broker: what a task itself can see.
    GROUP_VIEW: u32 = 1 << 29;
    /// A bit of `groups`, for the broker: what decides who may see a task.
    GROUP_ACCESS: u32 = 1 << 30;
    /// A bit of the program's constant `groups`: the program can be given tests.
    TESTABLE: u32 = 1 << 31;
    /// The maximum number of tests of a pass.
    TESTS: usize = 16;
}

enumerations! {
    /// The types of attributes.
    enum td_attr_type "TD_ATTR_" as attr: u16 {
        BASE = 1,
        /// The name of a kernel thread, if it is longer than `comm`.
        NAME = 2,
        TTY = 3,
        CRED = 4,
        /// 32-bit group ids.
        GROUPS = 5,
        CPU = 6,
        /// A mask in 64-bit words. Processor 0 is bit 0 of the first.
        AFFINITY = 7,
        FAULTS = 8,
        MEM = 9,
        /// The argument area, with its NULs. Only procfs writes it: it is memory of the process.
        ARGS = 10,
        /// With the group `args`: while this is unchanged, so are the arguments.
        RUN = 11,
        OOM = 12,
        NAMESPACES = 13,
        /// 32-bit ids in the reader's pid namespace and its descendants, outermost first.
        NSPIDS = 14,
        CGROUP = 15,
        CGROUP_PATH = 16,
        DEFER = 17,
        /// Many `AbsentField`, from sources that the kernel denies something.
        ABSENT = 18,
        IO = 20,
        SIGNALS = 21,
        LIMITS = 22,
        /// The environment area, with its NULs. Only procfs writes it.
        ENV = 23,
        /// A path, without a NUL.
        EXE = 24,
        CWD = 25,
        ROOT = 26,
        /// A 32-bit number.
        UMASK = 27,
        FDS = 28,
        AUDIT = 29,
        LAYOUT = 30,
        /// A 32-bit number.
        PERSONALITY = 31,
        ROLLUP = 32,
        /// The symbol's name, without a NUL. No program writes it.
        WCHAN = 33,
        /// The label, without a NUL or a newline. No program writes it.
        SECURITY_LABEL = 34,
        /// The lines of `cgroup`. No program writes them.
        CGROUPS = 35,
        NET = 36,
        /// The first attribute with `GROUP_ACCESS`. The broker never sends it, nor the next three.
        ACCESS = 1024,
        /// The second attribute with `GROUP_VIEW`.
        VIEW = 1025,
        /// Many `UserNs`: the namespace of the credentials and its ancestors, without the initial
        /// one.
        USER_NS = 1026,
        /// The same for the namespace of the address space, if it is another one.
        MM_USER_NS = 1027,
        /// The value of a derived field. The flags hold the field. Only the library makes these
        /// attributes; no other program's records have them.
        DERIVED = 2048,
    }

    /// Who may dump the memory of a task, in an `ACCESS` attribute.
    enum td_dumpable "TD_DUMPABLE_" as dumpable: u32 {
        NOT = 0,
        /// SUID_DUMP_USER.
        USER = 1,
        ROOT = 2,
        /// No address space, on kernels that then check nothing else.
        NO_MM = 3,
        /// No address space, and not `user_dumpable`: it was not dumpable, or never had one.
        NO_MM_INIT = 4,
    }

    /// Whether a task kept its namespaces and files while its view was read.
    enum td_has_namespaces "TD_VIEW_" as has_namespaces: u32 {
        /// It is exiting and has given up its namespaces or files.
        NOWHERE = 0,
        WHOLE = 1,
        /// They changed during the read, so the values are invalid.
        CHANGED = 2,
    }

    /// The values that a test can examine.
    enum td_value "TD_VALUE_" as value: u32 {
        PID = 1,
        TID = 2,
        PPID = 3,
        PGID = 4,
        SID = 5,
        STATE = 6,
        COMM = 7,
        THREADS_COUNT = 8,
        KERNEL_THREAD = 9,
        TTY_NR = 10,
        UID = 11,
        EUID = 12,
        SUID = 13,
        FSUID = 14,
        GID = 15,
        EGID = 16,
        SGID = 17,
        FSGID = 18,
        NICE = 19,
        POLICY = 20,
        OOM_SCORE_ADJ = 21,
        CGROUP = 22,
    }
}

structures! {
    /// The start of a record.
    struct td_record as Header {
        /// Of the whole record.
        len: U32,
        flags: U32,
        /// The thread-group id.
        pid: U32,
        tid: U32,
        /// Since boot.
        start_ns: U64,
    }

    /// The start of an attribute.
    struct td_attr as AttrHeader {
        /// Of the payload, without the padding to eight bytes that follows it.
        len: U32,
        /// One of `attr`.
        kind: U16,
        flags: U16,
    }

    struct td_base as Base = BASE {
        ppid: U32, tracer_pid: U32, pgid: U32, sid: U32, exit_signal: I32, threads_count: U32,
        /// The letter of proc(5).
        state: u8,
        /// 0, as in all structures and in the padding after payloads. Readers ignore it.
        reserved: [u8; 3],
        /// PF_*.
        flags: U32,
        comm: [u8; 16],
    }

    struct td_tty as Tty = TTY { tty_nr: U32, tpgid: I32 }

    struct td_cred as Cred = CRED {
        uid: U32, euid: U32, suid: U32, fsuid: U32, gid: U32, egid: U32, sgid: U32, fsgid: U32,
        cap_inheritable: U64, cap_permitted: U64, cap_effective: U64, cap_bounding: U64, cap_ambient: U64,
        no_new_privs: U32, seccomp: U32, seccomp_filters_count: U32, reserved: U32,
    }

    /// With `CPU_UNSCALED` in the attribute's flags, `utime_ns` and `stime_ns` are tick counts, and
    /// the reader scales them to `sum_exec_runtime` as the kernel's cputime_adjust() does, never
    /// below `prev_utime` and `prev_stime`.
    struct td_cpu as Cpu = CPU {
        utime_ns: U64, stime_ns: U64, cutime_ns: U64, cstime_ns: U64, runtime_ns: U64, run_delay_ns: U64,
        voluntary_switches: U64, involuntary_switches: U64, nice: I32, priority: I32, rt_priority: U32, policy: U32,
        cpu: U32, reserved: U32, sum_exec_runtime: U64, prev_utime: U64, prev_stime: U64, guest_ns: U64, cguest_ns: U64,
        block_delay_ns: U64, timer_slack_ns: U64, timeslices_count: U64,
    }

    /// Sums over all threads, including those that have ended. At least one of the two grows
    /// whenever the process runs, and a process that has not run has not written to its memory.
    /// There is no such attribute if another process may write to that memory: a tracer, or one
    /// that shares it.
    struct td_run as Run { runtime_ns: U64, switches: U64 }

    struct td_faults as Faults = FAULTS { min_faults: U64, maj_faults: U64, child_min_faults: U64, child_maj_faults: U64 }

    struct td_mem as Mem = MEM {
        vsize_bytes: U64, rss_anon_bytes: U64, rss_file_bytes: U64, rss_shmem_bytes: U64, swap_bytes: U64,
        peak_vsize_bytes: U64, peak_rss_bytes: U64, text_bytes: U64, data_bytes: U64, stack_bytes: U64, lib_bytes: U64,
        locked_bytes: U64, pinned_bytes: U64, page_table_bytes: U64, hugetlb_bytes: U64,
    }

    struct td_oom as Oom = OOM { oom_score_adj: I32, oom_score: I32 }

    /// Inode numbers; 0 if the task has given up its namespaces.
    struct td_namespaces as Namespaces = NAMESPACES {
        ns_pid: U64, ns_pid_for_children: U64, ns_mnt: U64, ns_net: U64, ns_user: U64, ns_uts: U64, ns_ipc: U64,
        ns_cgroup: U64, ns_time: U64,
    }

    struct td_cgroup as Cgroup = CGROUP { cgroup_id: U64 }

    struct td_io as Io = IO {
        read_chars: U64, write_chars: U64, read_syscalls: U64, write_syscalls: U64, read_bytes: U64, write_bytes: U64,
        cancelled_write_bytes: U64,
    }

    /// What a process has sent and received through sockets.
    struct td_net as Net = NET {
        /// When counting began, or the process if that was later.
        net_since_ns: U64,
        /// In the entry about the counting: calls for which there was no room.
        uncounted: U64,
        net_sent_bytes: U64, net_received_bytes: U64, net_sent_count: U64, net_received_count: U64,
        loopback_sent_bytes: U64, loopback_received_bytes: U64, loopback_sent_count: U64, loopback_received_count: U64,
        unix_sent_bytes: U64, unix_received_bytes: U64, unix_sent_count: U64, unix_received_count: U64,
        net_tcp_sent_bytes: U64, net_tcp_received_bytes: U64, net_udp_sent_bytes: U64, net_udp_received_bytes: U64,
    }

    /// Signal sets: signal N is bit N - 1.
    struct td_signals as Signals = SIGNALS {
        sig_pending: U64, sig_shared_pending: U64, sig_blocked: U64, sig_ignored: U64, sig_caught: U64, sig_queued_count: U64,
    }

    /// A resource limit. There are `LIMITS` of them, in the order of RLIMIT_*.
    struct td_limit as Limit {
        /// All ones is unlimited.
        soft: U64,
        hard: U64,
    }

    /// An attribute that is one number: `UMASK`, `PERSONALITY`.
    struct td_number as Number { number: U32 }

    struct td_fds as Fds = FDS { fd_count: U32, fd_table_size: U32 }

    struct td_audit as Audit = AUDIT { loginuid: U32, audit_session: U32 }

    /// Addresses.
    struct td_layout as Layout = LAYOUT {
        start_code: U64, end_code: U64, start_data: U64, end_data: U64, start_brk: U64, start_stack: U64, arg_start: U64,
        arg_end: U64, env_start: U64, env_end: U64,
    }

    /// The lines of smaps_rollup, in bytes; all ones if the kernel does not have the line.
    struct td_rollup as Rollup = ROLLUP {
        rss_bytes: U64, pss_bytes: U64, pss_dirty_bytes: U64, pss_anon_bytes: U64, pss_file_bytes: U64, pss_shmem_bytes: U64,
        shared_clean_bytes: U64, shared_dirty_bytes: U64, private_clean_bytes: U64, private_dirty_bytes: U64,
        referenced_bytes: U64, anonymous_bytes: U64, ksm_bytes: U64, lazyfree_bytes: U64, anon_huge_bytes: U64,
        shmem_huge_bytes: U64, file_huge_bytes: U64, shared_hugetlb_bytes: U64, private_hugetlb_bytes: U64, swap_bytes: U64,
        swap_pss_bytes: U64, locked_bytes: U64,
        /// The time since they were read.
        age_ns: U64,
    }

    /// The groups that this source can't answer exactly for this task, but procfs can.
    struct td_defer as Defer { groups: U32, reserved: U32 }

    /// A field that is missing.
    struct td_absent as AbsentField { field: U16, reason: U16 }

    /// What __ptrace_may_access() of kernel/ptrace.c looks at. Ids are those of the initial user
    /// namespace.
    struct td_access as Access {
        uid: U32, euid: U32, suid: U32, fsuid: U32, gid: U32, egid: U32, sgid: U32, fsgid: U32,
        cap_permitted: U64, cap_effective: U64,
        /// task_struct.self_exec_id.
        exec_id: U64,
        /// Identifies the Landlock domain; 0 for none.
        landlock: U64,
        /// Identifies the address space; 0 for none.
        mm: U64,
        /// Inode numbers; `mm_user_ns` is 0 without an address space.
        user_ns: U32, mm_user_ns: U32,
        user_ns_level: U32, mm_user_ns_level: U32,
        /// One of `dumpable`.
        dumpable: U32,
        flags: U32,
    }

    struct td_user_ns as UserNs {
        inode: U32,
        /// A user id.
        owner: U32,
    }

    /// The place from which a task sees the system: its namespaces, its root, and what security
    /// modules store about it.
    struct td_view as View {
        /// For td_config.as_task.
        task: U64,
        root_mount: U64, root_dentry: U64,
        /// The offset of its time namespace.
        boottime_ns: I64,
        pid_ns: U32, mnt_ns: U32, cgroup_ns: U32,
        /// One of `has_namespaces`.
        has_namespaces: U32,
        /// The start of cred.security.
        security: [U64; SECURITY_WORDS],
    }

    /// A test of a task. It compares a value with `value[0]`, as signed numbers. Consecutive tests
    /// with the same clause are alternatives, and every clause must hold. For names, `value` and
    /// `mask` are 16 bytes, and a name matches if it equals the value under the mask. For cgroups,
    /// `value[0]` is the id of the task's cgroup or of an ancestor of it.
    struct td_test as KernelTest {
        /// One of `value`.
        what: U32,
        relation: U16, clause: U16, value: [U64; 2], mask: [U64; 2],
    }
}
