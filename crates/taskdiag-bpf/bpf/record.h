/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The record: the bytes that describe one task, in every source, message and snapshot.
 *
 * The BPF programs and the procfs source write records, the broker sends them, and the library
 * reads them in place. A record is a header followed by attributes; an attribute is a header
 * (length, type) followed by a payload. Everything is in host byte order and a multiple of eight
 * bytes long, so that payloads stay aligned. Readers skip attributes of unknown types.
 * crates/taskdiag-core/src/record.rs is the Rust side of this file; tests/layout.rs compares the
 * two.
 */
#ifndef TASKDIAG_RECORD_H
#define TASKDIAG_RECORD_H

/*
 * The version: changes with this file and with the meaning of fields. Part of the path under which
 * programs are pinned.
 */
#define TD_ABI 6

/* Groups of fields, as bits of td_config.groups and td_defer.groups. */
#define TD_GROUP_BASE (1u << 0)
#define TD_GROUP_TTY (1u << 1)
#define TD_GROUP_CRED (1u << 2)
#define TD_GROUP_GROUPS (1u << 3)
#define TD_GROUP_CPU (1u << 4)
#define TD_GROUP_FAULTS (1u << 5)
#define TD_GROUP_MEM (1u << 6)
#define TD_GROUP_ARGS (1u << 7)
#define TD_GROUP_OOM (1u << 8)
#define TD_GROUP_NAMESPACES (1u << 9)
#define TD_GROUP_CGROUP (1u << 10)
#define TD_GROUP_IO (1u << 11)
#define TD_GROUP_SIGNALS (1u << 12)
#define TD_GROUP_LIMITS (1u << 13)
#define TD_GROUP_ENV (1u << 14)
#define TD_GROUP_PATHS (1u << 15)
#define TD_GROUP_FDS (1u << 16)
#define TD_GROUP_AUDIT (1u << 17)
#define TD_GROUP_LAYOUT (1u << 18)
#define TD_GROUP_ROLLUP (1u << 19) /* not answered by programs: the library reads smaps_rollup */
#define TD_GROUP_TEXT (1u << 20)   /* no program answers it: only /proc has it */

/*
 * Not groups of fields, but for the broker: what a task itself can see, and what decides who may
 * see it.
 */
#define TD_GROUP_VIEW (1u << 29)
#define TD_GROUP_ACCESS (1u << 30)

/* The groups that do not depend on the address space. */
#define TD_GROUPS_WITHOUT_MM                                                                                              \
	(TD_GROUP_BASE | TD_GROUP_TTY | TD_GROUP_CRED | TD_GROUP_GROUPS | TD_GROUP_CPU | TD_GROUP_FAULTS |               \
	 TD_GROUP_NAMESPACES | TD_GROUP_CGROUP | TD_GROUP_SIGNALS | TD_GROUP_LIMITS)

/* Flags of a record. */
#define TD_KERNEL_THREAD (1u << 0) /* PF_KTHREAD */
/* No address space: a kernel thread, a zombie, or a dead leader */
#define TD_NO_MM (1u << 1)
#define TD_DEFERRED (1u << 2)	   /* has a TD_ATTR_DEFER */
#define TD_HAS_ABSENT (1u << 3)	   /* has a TD_ATTR_ABSENT */
/* No values: while the task was read, its id became free or another task's */
#define TD_AGAIN (1u << 4)
#define TD_NO_READER (1u << 5)	   /* not a task: the program found no td_reader for this thread */

/*
 * Stands for a number that the kernel does not have. In a number of 32 bits, the lower half does.
 */
#define TD_NO_NUMBER ~0ull

struct td_record {
	__u32 len; /* of the whole record */
	__u32 flags;
	__u32 pid; /* thread-group id */
	__u32 tid;
	__u64 start_ns; /* since boot */
};

struct td_attr {
	__u32 len; /* of the payload, without the padding to eight bytes that follows it */
	__u16 kind; /* enum td_attr_type */
	__u16 flags;
};

enum td_attr_type {
	TD_ATTR_BASE = 1,
	TD_ATTR_NAME = 2, /* the name of a kernel thread, if it is longer than comm */
	TD_ATTR_TTY = 3,
	TD_ATTR_CRED = 4,
	TD_ATTR_GROUPS = 5, /* __u32 gid[] */
	TD_ATTR_CPU = 6,
	TD_ATTR_AFFINITY = 7, /* __u64 mask[], processor 0 is bit 0 of mask[0] */
	TD_ATTR_FAULTS = 8,
	TD_ATTR_MEM = 9,
	/* The argument area, with its NULs. Only procfs writes it: it is memory of the process */
	TD_ATTR_ARGS = 10,
	TD_ATTR_RUN = 11,  /* with TD_GROUP_ARGS: while this is unchanged, so are the arguments */
	TD_ATTR_OOM = 12,
	TD_ATTR_NAMESPACES = 13,
	/* __u32 nr[], in the reader's pid namespace and its descendants, outermost first */
	TD_ATTR_NSPIDS = 14,
	TD_ATTR_CGROUP = 15,
	TD_ATTR_CGROUP_PATH = 16,
	TD_ATTR_DEFER = 17,  /* struct td_defer */
	TD_ATTR_ABSENT = 18, /* struct td_absent[], from sources that the kernel denies something */
	TD_ATTR_IO = 20,
	TD_ATTR_SIGNALS = 21,
	TD_ATTR_LIMITS = 22,
	TD_ATTR_ENV = 23, /* the environment area, with its NULs. Only procfs writes it */
	TD_ATTR_EXE = 24, /* paths, without a NUL */
	TD_ATTR_CWD = 25,
	TD_ATTR_ROOT = 26,
	TD_ATTR_UMASK = 27, /* __u32 */
	TD_ATTR_FDS = 28,
	TD_ATTR_AUDIT = 29,
	TD_ATTR_LAYOUT = 30,
	TD_ATTR_PERSONALITY = 31, /* __u32 */
	TD_ATTR_ROLLUP = 32,
	TD_ATTR_WCHAN = 33,	     /* the symbol's name, without a NUL. No program writes it */
	TD_ATTR_SECURITY_LABEL = 34, /* the label, without a NUL or a newline. No program writes it */
	/*
	 * The broker never sends these. With TD_GROUP_ACCESS, the first attribute; with
	 * TD_GROUP_VIEW, the second.
	 */
	TD_ATTR_ACCESS = 1024,
	TD_ATTR_VIEW = 1025,
	/*
	 * struct td_user_ns[]: that of the credentials and its ancestors, without the initial one
	 */
	TD_ATTR_USER_NS = 1026,
	/* The same for that of the address space, if it is another one */
	TD_ATTR_MM_USER_NS = 1027,
};

struct td_base {
	__u32 ppid;
	__u32 tracer_pid;
	__u32 pgid;
	__u32 sid;
	__s32 exit_signal;
	__u32 threads_count;
	__u8 state; /* the letter of proc(5) */
	/* 0, as in all structures, and as the padding after payloads; readers ignore it */
	__u8 reserved[3];
	__u32 flags; /* PF_* */
	char comm[16];
};

struct td_tty {
	__u32 tty_nr;
	__s32 tpgid;
};

struct td_cred {
	__u32 uid, euid, suid, fsuid;
	__u32 gid, egid, sgid, fsgid;
	__u64 cap_inheritable, cap_permitted, cap_effective, cap_bounding, cap_ambient;
	__u32 no_new_privs;
	__u32 seccomp;
};

/*
 * Times in nanoseconds. With TD_CPU_UNSCALED in the attribute's flags, utime and stime are tick
 * counts, and the reader scales them to sum_exec_runtime as the kernel's cputime_adjust() does,
 * never below prev_*.
 */
#define TD_CPU_UNSCALED 1
struct td_cpu {
	__u64 utime_ns, stime_ns;
	__u64 cutime_ns, cstime_ns;
	__u64 runtime_ns, run_delay_ns;
	__u64 voluntary_switches, involuntary_switches;
	__s32 nice, priority;
	__u32 rt_priority, policy;
	__u32 cpu;
	__u32 reserved;
	__u64 sum_exec_runtime;
	__u64 prev_utime, prev_stime;
	__u64 guest_ns, cguest_ns;
	__u64 block_delay_ns;
	__u64 timer_slack_ns;
	__u64 timeslices_count;
};

/*
 * Sums over all threads, including those that have ended. At least one of the two grows whenever
 * the process runs, and a process that has not run has not written to its memory. If another
 * process may write to it (a tracer, or one that shares the memory), there is no TD_ATTR_RUN.
 */
struct td_run {
	__u64 runtime_ns;
	__u64 switches;
};

struct td_faults {
	__u64 min_faults, maj_faults;
	__u64 child_min_faults, child_maj_faults;
};

struct td_mem {
	__u64 vsize_bytes;
	__u64 rss_anon_bytes, rss_file_bytes, rss_shmem_bytes;
	__u64 swap_bytes;
	__u64 peak_vsize_bytes, peak_rss_bytes;
	__u64 text_bytes, data_bytes, stack_bytes, lib_bytes;
	__u64 locked_bytes, pinned_bytes;
	__u64 page_table_bytes;
	__u64 hugetlb_bytes;
};

struct td_oom {
	__s32 oom_score_adj;
	__s32 oom_score;
};

/* Inode numbers; 0 if the task has given up its namespaces. */
struct td_namespaces {
	__u64 ns_pid, ns_pid_for_children, ns_mnt, ns_net, ns_user, ns_uts, ns_ipc, ns_cgroup, ns_time;
};

struct td_cgroup {
	__u64 cgroup_id;
};

struct td_io {
	__u64 read_chars, write_chars;
	__u64 read_syscalls, write_syscalls;
	__u64 read_bytes, write_bytes;
	__u64 cancelled_write_bytes;
};

/* Signal sets: signal N is bit N - 1. */
struct td_signals {
	__u64 sig_pending, sig_shared_pending, sig_blocked, sig_ignored, sig_caught;
	__u64 sig_queued_count;
};

#define TD_LIMITS 16
struct td_limits {
	struct {
		__u64 soft, hard; /* all ones is unlimited */
	} limits[TD_LIMITS]; /* in the order of RLIMIT_* */
};

struct td_fds {
	__u32 fd_count;
	__u32 fd_table_size;
};

struct td_audit {
	__u32 loginuid;
	__u32 audit_session;
};

/* Addresses. */
struct td_layout {
	__u64 start_code, end_code;
	__u64 start_data, end_data;
	__u64 start_brk;
	__u64 start_stack;
	__u64 arg_start, arg_end;
	__u64 env_start, env_end;
};

/* The lines of smaps_rollup, in bytes; all ones if the kernel does not have the line. */
struct td_rollup {
	__u64 rss_bytes;
	__u64 pss_bytes, pss_dirty_bytes, pss_anon_bytes, pss_file_bytes, pss_shmem_bytes;
	__u64 shared_clean_bytes, shared_dirty_bytes, private_clean_bytes, private_dirty_bytes;
	__u64 referenced_bytes, anonymous_bytes, ksm_bytes, lazyfree_bytes;
	__u64 anon_huge_bytes, shmem_huge_bytes, file_huge_bytes;
	__u64 shared_hugetlb_bytes, private_hugetlb_bytes;
	__u64 swap_bytes, swap_pss_bytes;
	__u64 locked_bytes;
	__u64 age_ns; /* time since they were read */
};

/* The groups that this source can't answer exactly for this task. procfs can. */
struct td_defer {
	__u32 groups;
	__u32 reserved;
};

struct td_absent {
	__u16 field;
	__u16 reason;
};

/*
 * What __ptrace_may_access() of kernel/ptrace.c looks at. Ids are those of the initial user
 * namespace. Without TD_ACCESS_STABLE, something changed while the record was written, or an exec
 * was in progress: it is then unknown who may see the record.
 */
#define TD_ACCESS_STABLE 1
enum td_dumpable {
	TD_DUMPABLE_NOT = 0,
	TD_DUMPABLE_USER = 1, /* SUID_DUMP_USER */
	TD_DUMPABLE_ROOT = 2,
	TD_DUMPABLE_NO_MM = 3,	    /* no address space, on kernels that then check nothing else */
	/* No address space, and not user_dumpable: it was not dumpable, or never had one */
	TD_DUMPABLE_NO_MM_INIT = 4,
};
struct td_access {
	__u32 uid, euid, suid, fsuid;
	__u32 gid, egid, sgid, fsgid;
	__u64 cap_permitted, cap_effective;
	__u64 exec_id;	/* task_struct.self_exec_id */
	__u64 landlock; /* identifies the Landlock domain; 0 for none */
	__u64 mm;	/* identifies the address space; 0 for none */
	__u32 user_ns, mm_user_ns; /* inode numbers; mm_user_ns is 0 without an address space */
	__u32 user_ns_level, mm_user_ns_level;
	__u32 dumpable; /* enum td_dumpable */
	__u32 flags;
};

struct td_user_ns {
	__u32 inode;
	__u32 owner; /* user id */
};

/*
 * From where a task sees the system: its namespaces, its root, and what security modules keep of
 * it.
 */
#define TD_SECURITY_WORDS 32
enum td_has_namespaces {
	TD_VIEW_NOWHERE, /* it is exiting and has given up its namespaces or files */
	TD_VIEW_WHOLE,
	TD_VIEW_CHANGED, /* they changed meanwhile, so the values mean nothing */
};
struct td_view {
	__u64 task; /* for td_config.as_task */
	__u64 root_mount, root_dentry;
	__s64 boottime_ns; /* the offset of its time namespace */
	__u32 pid_ns, mnt_ns, cgroup_ns;
	__u32 has_namespaces; /* enum td_has_namespaces */
	__u64 security[TD_SECURITY_WORDS]; /* the start of cred.security */
};

/* ---- between the library and its BPF programs ---- */

/*
 * The size of the memory for records. Attributes start within TD_SCRATCH_MASK, and none is longer
 * than the memory after that.
 */
#define TD_RECORD_MAX 0x8000
#if TD_WALKS
#define TD_SCRATCH_MASK 0x7ffff /* many records */
#else
#define TD_SCRATCH_MASK 0x7fff
#endif
#define TD_SCRATCH_SIZE (TD_SCRATCH_MASK + 1 + 0x2000)
#define TD_GROUPS_MAX 256
#define TD_AFFINITY_MAX_BYTES 1024
#define TD_PATH_MAX 1024

/*
 * Bounds for the time under RCU. For a process with more threads, or with a longer descriptor
 * table, the values that are summed up over them are deferred.
 */
#define TD_THREADS_MAX 512
#define TD_FD_WORDS_MAX 4096
/*
 * The maximum number of processors for summing up memory counters. With more, memory counters are
 * deferred.
 */
#define TD_CPUS_MAX 512

/* Constants that the library sets before it loads a program. */
struct td_constants {
	__u32 groups; /* the groups that it can be asked for: code for the others is dead */
	__u32 page_shift;
};

/* Not a group of fields, but in td_constants.groups: the program can be given tests. */
#define TD_TESTABLE (1u << 31)

/* The value that a test looks at. */
enum td_value {
	TD_VALUE_PID = 1,
	TD_VALUE_TID,
	TD_VALUE_PPID,
	TD_VALUE_PGID,
	TD_VALUE_SID,
	TD_VALUE_STATE,
	TD_VALUE_COMM,
	TD_VALUE_THREADS_COUNT,
	TD_VALUE_KERNEL_THREAD,
	TD_VALUE_TTY_NR,
	TD_VALUE_UID,
	TD_VALUE_EUID,
	TD_VALUE_SUID,
	TD_VALUE_FSUID,
	TD_VALUE_GID,
	TD_VALUE_EGID,
	TD_VALUE_SGID,
	TD_VALUE_FSGID,
	TD_VALUE_NICE,
	TD_VALUE_POLICY,
	TD_VALUE_OOM_SCORE_ADJ,
	TD_VALUE_CGROUP,
};

enum td_relation {
	TD_EQUAL,
	TD_NOT_EQUAL,
	TD_LESS,
	TD_LESS_OR_EQUAL,
	TD_GREATER,
	TD_GREATER_OR_EQUAL,
};

/*
 * A test of a task: it compares a value, signed, with value[0]. Consecutive tests with the same
 * clause are alternatives, and every clause must hold. For names, value and mask are 16 bytes, and
 * a name matches if it equals the value under the mask. For cgroups, value[0] is the id of the
 * task's cgroup or of an ancestor of it.
 */
struct td_test {
	__u32 what; /* enum td_value */
	__u16 relation;
	__u16 clause;
	__u64 value[2];
	__u64 mask[2];
};

#define TD_TESTS 16

/* What the library asks for, written before a pass. */
struct td_config {
	__u32 groups;
	__u32 threads;	   /* 1: a record for every thread; 0: one for every process */
	/* Not 0: only children of this process, an id of the reader's pid namespace */
	__u32 ppid;
	__u32 rss_sum;	   /* 1: /proc adds the per-processor parts to the memory counters */
	__u32 cpus;	   /* possible processors */
	__u32 full_names;  /* 1: /proc shows the full names of workqueue workers (Linux 6.11) */
	__u64 total_pages; /* of memory and swap, for oom_score */
	__u32 tests_count;
	/* 1: only tasks that used processor time since the handle's last pass with this set */
	__u32 changed;
	__u32 changed_epoch; /* entries of `seen` with another epoch are outdated */
	__u32 seen_mask;   /* the number of entries of `seen`, minus one */
	/* The index in td_view.security of the Landlock domain, plus one; 0 if it is not wanted */
	__u32 landlock;
	__u32 reserved;
	/* Not 0: use the namespaces and root of this task instead of the reader's (Linux 6.2) */
	__u64 as_task;
	struct td_test tests[TD_TESTS];
};

/* The maximum number of processes in the list of a walk. */
#define TD_LISTED 1024
/*
 * The number of tasks that are read together, so that the processor waits for their memory
 * together.
 */
#define TD_BLOCK 64

enum td_walk_state {
	TD_WALK_NOWHERE, /* the program did not run, or this kernel's IDR is not as expected */
	TD_WALK_GOES_ON, /* there is more: fetch the records and run the program again */
	TD_WALK_ENDED,
	TD_WALK_LOST, /* the thread after which to continue has ended: start again */
};

/* The state of a walk, in which the program finds its tasks itself. */
struct td_walk {
	__u32 state;  /* enum td_walk_state */
	__u32 listed; /* the number of processes in `list`; 0 visits all. For threads, 1 */
	/*
	 * The id visited last; for listed processes, the position in the list, from 1. 0 at the
	 * start
	 */
	__u32 cursor;
	__u32 filled; /* bytes of records in scratch */
	__u32 found;  /* the number of entries of `tasks` */
	__u32 next;   /* the index of the next to be visited */
	__u32 attempts;	   /* how often reading that one failed */
	__u32 gone;	   /* tasks whose pid led to none when they were visited */
	__u32 leaf_end;	   /* pid_idr_leaf() */
	/* The work of this run: a visit is one step, and what it iterates over adds some */
	__u32 steps;
	__u32 check_every; /* steps between two looks at the clock */
	__u32 next_check;  /* the steps at which to look at the clock next */
	/* How long a run may keep RCU waiting; it ends when the clock shows more */
	__u64 max_run_ns;
	__u64 run_start_ns;
	__u64 longest_run_ns;
	__u64 root;	  /* of the pid IDR */
	__u64 head, node; /* of the thread list of a process */
	__u64 slots[TD_BLOCK];
	__u64 pids[TD_BLOCK]; /* the struct pid through which each task was found */
	__u64 tasks[TD_BLOCK];
	__u32 cursors[TD_BLOCK]; /* `cursor` once that task was visited */
	__u32 list[TD_LISTED];
};

/* The memory counters of a process while they are summed up. */
struct td_counters {
	__s64 pages[4];
	__s64 central[4];	/* without the per-processor parts */
	__s64 central_again[4]; /* the same, read after the parts */
	__s64 previous[4];	/* the sums of the previous attempt */
	__u64 parts[4];		/* the per-processor pointers */
	__u32 is_stable;	/* no part was moved to the central counter meanwhile */
	__u32 reserved;
};

/* The memory of one reader. Readers never share it. */
struct td_reader {
	struct td_config config;
	__u64 address;
	__u64 pid_ns;	/* the reader's pid namespace; 0 for the initial one */
	__u32 level;	/* of that namespace */
	__u32 used;	/* bytes of scratch in use */
	__u32 deferred; /* groups */
	__u32 position; /* in `path` */
	__u32 clause;	/* of the previous test */
	__u32 clause_holds; /* whether a test of that clause holds */
	__u32 number;	/* the id by which the task was found, which selects its entry of `seen` */
	__u32 steps;	/* of the current visit */
	__u64 cred;	/* the credentials that td_access was read from */
	struct td_counters counters;
	/* The per-processor pointer that `offsets` were computed with; 0 if not yet */
	__u64 per_cpu;
	__u64 offsets[TD_CPUS_MAX]; /* from a per-processor pointer to the data of each processor */
	char scratch[TD_SCRATCH_SIZE];
	char path[TD_PATH_MAX + 256];
	char name[256];
#if TD_WALKS
	struct td_walk walk;
#endif
};

/* The key of a thread's td_reader in `readers`. */
struct td_reader_key {
	__u32 pid_ns; /* the inode number of its pid namespace */
	__u32 tid;    /* in that namespace */
};

/* The processor time of a task when it was last seen. */
struct td_seen {
	__u64 start;
	__u64 runtime; /* of all threads, including those that have ended */
	__u32 epoch;
	__u32 reserved;
};

#endif
