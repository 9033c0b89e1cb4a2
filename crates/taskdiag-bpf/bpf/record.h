/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The record: how one task's answer looks in bytes, on all its way.
 *
 * The BPF programs write records, the procfs source writes the same ones, the library reads them in place, files and
 * sockets can carry them. A record is a header and attributes; each attribute is a header (type, length) and a payload.
 * Everything is in host byte order and a multiple of eight bytes long, so that payloads stay aligned. A reader skips
 * attribute types that it does not know. `src/record.rs` is the Rust side of this file; its layout tests compare the two.
 */
#ifndef TASKDIAG_RECORD_H
#define TASKDIAG_RECORD_H

/* Changes with any change of this file or of what a field means. It is part of the path that programs are pinned under. */
#define TD_ABI 5

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
#define TD_GROUP_ROLLUP (1u << 19) /* no program answers it: the library reads it afterwards */

/* For the broker, and no group of fields: what decides who may see a task, and what a task itself sees. */
#define TD_GROUP_VIEW (1u << 29)
#define TD_GROUP_ACCESS (1u << 30)

/* What no address space is needed for. */
#define TD_GROUPS_WITHOUT_MM                                                                                              \
	(TD_GROUP_BASE | TD_GROUP_TTY | TD_GROUP_CRED | TD_GROUP_GROUPS | TD_GROUP_CPU | TD_GROUP_FAULTS |               \
	 TD_GROUP_NAMESPACES | TD_GROUP_CGROUP | TD_GROUP_SIGNALS | TD_GROUP_LIMITS)

/* Flags of a record. */
#define TD_KERNEL_THREAD (1u << 0) /* PF_KTHREAD */
#define TD_NO_MM (1u << 1)	   /* no address space: kernel thread, zombie, dead leader; told with groups that may need one */
#define TD_DEFERRED (1u << 2)	   /* carries TD_ATTR_DEFER */
#define TD_HAS_ABSENT (1u << 3)	   /* carries TD_ATTR_ABSENT */
#define TD_AGAIN (1u << 4)	   /* no answer: while the task was read its number became another one's, or nobody's */
#define TD_NO_READER (1u << 5)	   /* not a task: the program found no td_reader for whoever reads, and says so */

/* In place of a number that this kernel was built without. Of those with 32 bits, the lower half. */
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
	__u16 type;
	__u16 flags;
};

enum td_attr_type {
	TD_ATTR_BASE = 1,
	TD_ATTR_NAME = 2, /* a kernel thread's name, where it is longer than comm */
	TD_ATTR_TTY = 3,
	TD_ATTR_CRED = 4,
	TD_ATTR_GROUPS = 5, /* __u32 gid[] */
	TD_ATTR_CPU = 6,
	TD_ATTR_AFFINITY = 7, /* __u64 mask[], processor 0 is bit 0 of mask[0] */
	TD_ATTR_FAULTS = 8,
	TD_ATTR_MEM = 9,
	TD_ATTR_ARGS = 10, /* the argument area, NULs included. No program copies it: it is the memory of another process */
	TD_ATTR_RUN = 11,  /* with TD_GROUP_ARGS, of a process whose arguments can't change unless this does */
	TD_ATTR_OOM = 12,
	TD_ATTR_NAMESPACES = 13,
	TD_ATTR_NSPIDS = 14, /* __u32 nr[], from the reader's pid namespace inward */
	TD_ATTR_CGROUP = 15,
	TD_ATTR_CGROUP_PATH = 16,
	TD_ATTR_DEFER = 17,  /* struct td_defer */
	TD_ATTR_ABSENT = 18, /* struct td_absent[], written by sources that meet refusals */
	TD_ATTR_IO = 20,
	TD_ATTR_SIGNALS = 21,
	TD_ATTR_LIMITS = 22,
	TD_ATTR_ENV = 23, /* the environment area, NULs included. No program copies it */
	TD_ATTR_EXE = 24, /* paths, without a NUL */
	TD_ATTR_CWD = 25,
	TD_ATTR_ROOT = 26,
	TD_ATTR_UMASK = 27, /* __u32 */
	TD_ATTR_FDS = 28,
	TD_ATTR_AUDIT = 29,
	TD_ATTR_LAYOUT = 30,
	TD_ATTR_PERSONALITY = 31, /* __u32 */
	TD_ATTR_ROLLUP = 32,
	/* With TD_GROUP_ACCESS, the first attribute; with TD_GROUP_VIEW, the second. They never leave the broker. */
	TD_ATTR_ACCESS = 1024,
	TD_ATTR_VIEW = 1025,
	TD_ATTR_USER_NS = 1026,	   /* struct td_user_ns[], from the credentials' user namespace outward, without the initial one */
	TD_ATTR_MM_USER_NS = 1027, /* the same of the address space's, where that is another one */
};

struct td_base {
	__u32 ppid;
	__u32 tracer_pid;
	__u32 pgid;
	__u32 sid;
	__s32 exit_signal;
	__u32 threads_count;
	__u8 state; /* the letter of proc(5) */
	__u8 reserved[7]; /* 0, as all that is reserved, and the padding behind payloads: who reads it looks at none of it */
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
 * Times in nanoseconds. With TD_CPU_UNSCALED in the attribute's flags, utime and stime are the sums of what ticks saw,
 * and the reader scales them to sum_exec_runtime as the kernel's cputime_adjust() does, never below prev_*.
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
 * Of all threads, those that ended included: both grow when a process runs, and a process that has not run has not written to its memory.
 * (Others may: a tracer, who shares the memory. A process with such has no TD_ATTR_RUN.)
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

/* Inode numbers; 0 where the task has none any more. */
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

/* Sets of signals: signal N is bit N - 1. */
struct td_signals {
	__u64 sig_pending, sig_shared_pending, sig_blocked, sig_ignored, sig_caught;
	__u64 sig_queued_count;
};

#define TD_LIMITS 16
struct td_limits {
	struct {
		__u64 soft, hard; /* all ones: unlimited */
	} limits[TD_LIMITS]; /* by RLIMIT_ number */
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

/* The lines of smaps_rollup, in bytes; all ones where the kernel has no such line. */
struct td_rollup {
	__u64 rss_bytes;
	__u64 pss_bytes, pss_dirty_bytes, pss_anon_bytes, pss_file_bytes, pss_shmem_bytes;
	__u64 shared_clean_bytes, shared_dirty_bytes, private_clean_bytes, private_dirty_bytes;
	__u64 referenced_bytes, anonymous_bytes, ksm_bytes, lazyfree_bytes;
	__u64 anon_huge_bytes, shmem_huge_bytes, file_huge_bytes;
	__u64 shared_hugetlb_bytes, private_hugetlb_bytes;
	__u64 swap_bytes, swap_pss_bytes;
	__u64 locked_bytes;
	__u64 age_ns; /* since the kernel was asked */
};

/* Groups that this source met but can't answer exactly for this task; procfs can. */
struct td_defer {
	__u32 groups;
	__u32 reserved;
};

struct td_absent {
	__u16 field;
	__u16 reason;
};

/*
 * What __ptrace_may_access() of kernel/ptrace.c looks at. The kernel's own ids, not those of a reader. Without TD_ACCESS_STABLE
 * something of it changed while the record was written, or an exec was going on: nobody can say then who may see the rest.
 */
#define TD_ACCESS_STABLE 1
enum td_dumpable {
	TD_DUMPABLE_NOT = 0,
	TD_DUMPABLE_USER = 1, /* SUID_DUMP_USER */
	TD_DUMPABLE_ROOT = 2,
	TD_DUMPABLE_NO_MM = 3,	    /* no address space, on a kernel that asks no further */
	TD_DUMPABLE_NO_MM_INIT = 4, /* none, on a kernel that remembers: it was not dumpable, or never had one */
};
struct td_access {
	__u32 uid, euid, suid, fsuid;
	__u32 gid, egid, sgid, fsgid;
	__u64 cap_permitted, cap_effective;
	__u64 exec_id;
	__u64 landlock; /* which domain, 0 for none */
	__u64 mm;
	__u32 user_ns, mm_user_ns; /* inode numbers; the latter 0 where there is no address space */
	__u32 user_ns_level, mm_user_ns_level;
	__u32 dumpable; /* enum td_dumpable */
	__u32 flags;
};

struct td_user_ns {
	__u32 inode;
	__u32 owner; /* user id */
};

/* Where a task stands, to see what it would see. */
#define TD_SECURITY_WORDS 32
enum td_has_namespaces {
	TD_VIEW_NOWHERE, /* it is ending, and has given up its namespaces or files */
	TD_VIEW_WHOLE,
	TD_VIEW_CHANGED, /* it went somewhere else meanwhile: none of this is known */
};
struct td_view {
	__u64 task; /* for td_config.as_task */
	__u64 root_mount, root_dentry;
	__s64 boottime_ns; /* what its time namespace adds */
	__u32 pid_ns, mnt_ns, cgroup_ns, has_namespaces; /* the last: enum td_has_namespaces */
	__u64 security[TD_SECURITY_WORDS]; /* of its credentials: what security modules keep there */
};

/*
 * ---- between the library and its BPF programs ----
 */

/* Records are built here. All attributes begin within TD_SCRATCH_MASK; none is longer than what lies behind that. */
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
 * How much of one task is looked at under RCU. Of a process with more threads, or with a longer table of files, what is added up over
 * them is deferred.
 */
#define TD_THREADS_MAX 512
#define TD_FD_WORDS_MAX 4096
/* Processors whose parts of the memory counters are added up. On a machine with more, they are deferred. */
#define TD_CPUS_MAX 512

/* What is constant when a program is loaded. */
struct td_constants {
	__u32 groups; /* that it can be asked for: the others cost nothing */
	__u32 page_shift;
};

/* In td_constants.groups: the program can be given tests. Not a group of fields. */
#define TD_TESTABLE (1u << 31)

/* What a test looks at. */
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
 * A test of a task: value RELATION number, signed. Of tests with the same clause in a row, one has to hold; of all clauses,
 * each. Names are compared under a mask, 16 bytes; of cgroups the one with the id `value` or one below it is meant.
 */
struct td_test {
	__u32 what; /* enum td_value */
	__u16 relation;
	__u16 clause;
	__u64 value[2];
	__u64 mask[2];
};

#define TD_TESTS 16

/* What to do, written by the library before a pass. */
struct td_config {
	__u32 groups;
	__u32 threads;	   /* 1: a record for every thread; 0: one for every process */
	__u32 ppid;	   /* not 0: only children of this process, in the reader's numbers */
	__u32 rss_sum;	   /* 1: /proc adds up the per-processor parts of the memory counters */
	__u32 cpus;	   /* possible processors */
	__u32 full_names;  /* 1: /proc shows workqueue workers with their full names (Linux 6.11) */
	__u64 total_pages; /* memory and swap, for oom_score */
	__u32 tests_count;
	__u32 changed;	   /* 1: only tasks that used processor time since this handle last asked so */
	__u32 changed_epoch; /* what was seen under another epoch is forgotten */
	__u32 seen_mask;   /* entries of `seen`, less one */
	__u32 landlock;	   /* one more than the word of td_view.security that names the Landlock domain; 0 if that is not wanted */
	__u32 reserved;
	__u64 as_task;	   /* not 0: answer in the numbers and paths of this task's namespaces, not the reader's (Linux 6.2) */
	struct td_test tests[TD_TESTS];
};

/* How many processes a walk can be told of. */
#define TD_LISTED 1024
/* How many tasks it looks at together. */
#define TD_BLOCK 64

enum td_walk_state {
	TD_WALK_NOWHERE, /* the program did not run, or did not find the tree of numbers */
	TD_WALK_GOES_ON, /* there is more: fetch the records and run it again */
	TD_WALK_ENDED,
	TD_WALK_LOST, /* the thread after which to go on is gone: begin again */
};

/* Where a program stands that finds its tasks itself. */
struct td_walk {
	__u32 state;  /* enum td_walk_state */
	__u32 listed; /* processes in `list`, and no others are meant; 0: all. Of threads: 1 */
	__u32 last;   /* number visited last; of listed processes its place in the list, from 1; at the beginning 0 */
	__u32 filled; /* bytes of scratch with records */
	__u32 met;    /* how many of `tasks` are to be visited */
	__u32 at;     /* how many of them have been */
	__u32 tries;  /* how often the next of them has been read in vain */
	__u32 gone;   /* tasks that were met, and whose numbers led to nobody when they were visited */
	__u32 behind; /* leaf_of_numbers() */
	__u32 spent;  /* steps of this run: a visit is one, and what is looked at besides */
	__u32 every;  /* steps between two looks at the clock */
	__u32 look;   /* when it is looked at next */
	__u64 stretch_ns; /* how long one run may be under RCU; it pauses at the first look behind that */
	__u64 began_ns;
	__u64 longest_ns; /* the longest run so far */
	__u64 root;	  /* of the tree of numbers */
	__u64 head, node; /* of the list of a process's threads */
	__u64 slots[TD_BLOCK];
	__u64 pids[TD_BLOCK];  /* the struct pid by which a task was met */
	__u64 tasks[TD_BLOCK];
	__u32 places[TD_BLOCK];
	__u32 list[TD_LISTED];
};

/* A process's memory counters while they are added up. */
struct td_counters {
	__s64 pages[4];
	__s64 central[4]; /* without the parts of processors */
	__s64 again[4];   /* the same, a moment later */
	__s64 before[4];  /* as they were when they were last added up */
	__u64 parts[4];	  /* where the parts are */
	__u32 is_settled; /* nothing was moved from a part to the whole meanwhile */
	__u32 reserved;
};

/* All that a program keeps for one reader. Private to it: two readers never share one. */
struct td_reader {
	struct td_config config;
	__u64 address;
	__u64 pid_ns;	/* the reader's pid namespace; 0 for the initial one */
	__u32 level;	/* of that namespace */
	__u32 used;	/* bytes of the record in scratch */
	__u32 deferred; /* groups */
	__u32 position; /* in path */
	__u32 clause;	/* of the test before */
	__u32 holds;	/* whether a test of that clause did */
	__u32 number;	/* of the task: of two that differ in this, neither knows what is remembered of the other */
	__u32 steps;	/* that the visit took besides */
	__u64 cred;	/* that access was read from */
	struct td_counters counters;
	__u64 per_cpu; /* what `offsets` were found by; 0: not yet */
	__u64 offsets[TD_CPUS_MAX]; /* from a per-processor pointer to each processor's own data */
	char scratch[TD_SCRATCH_SIZE];
	char path[TD_PATH_MAX + 256];
	char name[256];
#if TD_WALKS
	struct td_walk walk;
#endif
};

/* Who reads, in the terms that a reader knows of itself: the key to its td_reader in programs that are called. */
struct td_reader_key {
	__u32 pid_ns; /* inode number */
	__u32 tid;    /* in that namespace */
};

/* What is remembered of a task's processor time. */
struct td_seen {
	__u64 start;
	__u64 runtime; /* of all threads, ended ones included */
	__u32 epoch;
	__u32 reserved;
};

#endif
