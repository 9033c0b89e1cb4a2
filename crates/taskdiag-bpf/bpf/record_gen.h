/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Made by `make records` from crates/taskdiag-core/src/record, which has the meanings. */

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
#define TD_GROUP_ROLLUP (1u << 19)
#define TD_GROUP_TEXT (1u << 20)
#define TD_GROUP_NET (1u << 21)

/* The version of the record. It changes with the record's layout and with the meaning of its
 * fields, and is part of the path where programs are pinned. */
#define TD_ABI 7u
/* A flag of a record: the task is a kernel thread (PF_KTHREAD). */
#define TD_KERNEL_THREAD (1u << 0)
/* The task has no address space: a kernel thread, a zombie, or a dead leader. */
#define TD_NO_MM (1u << 1)
/* The source could not answer some groups exactly; a `DEFER` attribute names them. */
#define TD_DEFERRED (1u << 2)
/* An `ABSENT` attribute names fields that are missing, each with its reason. */
#define TD_HAS_ABSENT (1u << 3)
/* The record has no values: while the task was being read, its id became free or went to
 * another task. The process must be read again, in another way. */
#define TD_AGAIN (1u << 4)
/* The record is not a task: the program found no `td_reader` for this thread. */
#define TD_NO_READER (1u << 5)
/* Stands for a number that the kernel does not have. For numbers of 32 bits, the lower half of
 * it. */
#define TD_NO_NUMBER 18446744073709551615ull
/* A flag of a `CPU` attribute: `utime_ns` and `stime_ns` are tick counts, not yet scaled to
 * the exact run time. */
#define TD_CPU_UNSCALED 1
/* The number of resource limits. */
#define TD_LIMITS 16
/* A flag of an `ACCESS` attribute: its values did not change while the record was written.
 * Without it, something changed or an exec was in progress: then it is unknown who may see the
 * record. */
#define TD_ACCESS_STABLE (1u << 0)
/* The length of `View::security`, in words. */
#define TD_SECURITY_WORDS 32
/* A bit of `groups`, for the broker: what a task itself can see. */
#define TD_GROUP_VIEW (1u << 29)
/* A bit of `groups`, for the broker: what decides who may see a task. */
#define TD_GROUP_ACCESS (1u << 30)
/* A bit of the program's constant `groups`: the program can be given tests. */
#define TD_TESTABLE (1u << 31)
/* The maximum number of tests of a pass. */
#define TD_TESTS 16

/* The types of attributes. */
enum td_attr_type {
	TD_ATTR_BASE = 1,
	/* The name of a kernel thread, if it is longer than `comm`. */
	TD_ATTR_NAME = 2,
	TD_ATTR_TTY = 3,
	TD_ATTR_CRED = 4,
	/* 32-bit group ids. */
	TD_ATTR_GROUPS = 5,
	TD_ATTR_CPU = 6,
	/* A mask in 64-bit words. Processor 0 is bit 0 of the first. */
	TD_ATTR_AFFINITY = 7,
	TD_ATTR_FAULTS = 8,
	TD_ATTR_MEM = 9,
	/* The argument area, with its NULs. Only procfs writes it: it is memory of the process. */
	TD_ATTR_ARGS = 10,
	/* With the group `args`: while this is unchanged, so are the arguments. */
	TD_ATTR_RUN = 11,
	TD_ATTR_OOM = 12,
	TD_ATTR_NAMESPACES = 13,
	/* 32-bit ids in the reader's pid namespace and its descendants, outermost first. */
	TD_ATTR_NSPIDS = 14,
	TD_ATTR_CGROUP = 15,
	TD_ATTR_CGROUP_PATH = 16,
	TD_ATTR_DEFER = 17,
	/* Many `AbsentField`, from sources that the kernel denies something. */
	TD_ATTR_ABSENT = 18,
	TD_ATTR_IO = 20,
	TD_ATTR_SIGNALS = 21,
	TD_ATTR_LIMITS = 22,
	/* The environment area, with its NULs. Only procfs writes it. */
	TD_ATTR_ENV = 23,
	/* A path, without a NUL. */
	TD_ATTR_EXE = 24,
	TD_ATTR_CWD = 25,
	TD_ATTR_ROOT = 26,
	/* A 32-bit number. */
	TD_ATTR_UMASK = 27,
	TD_ATTR_FDS = 28,
	TD_ATTR_AUDIT = 29,
	TD_ATTR_LAYOUT = 30,
	/* A 32-bit number. */
	TD_ATTR_PERSONALITY = 31,
	TD_ATTR_ROLLUP = 32,
	/* The symbol's name, without a NUL. No program writes it. */
	TD_ATTR_WCHAN = 33,
	/* The label, without a NUL or a newline. No program writes it. */
	TD_ATTR_SECURITY_LABEL = 34,
	/* The lines of `cgroup`. No program writes them. */
	TD_ATTR_CGROUPS = 35,
	TD_ATTR_NET = 36,
	/* The first attribute with `GROUP_ACCESS`. The broker never sends it, nor the next three. */
	TD_ATTR_ACCESS = 1024,
	/* The second attribute with `GROUP_VIEW`. */
	TD_ATTR_VIEW = 1025,
	/* Many `UserNs`: the namespace of the credentials and its ancestors, without the initial
	 * one. */
	TD_ATTR_USER_NS = 1026,
	/* The same for the namespace of the address space, if it is another one. */
	TD_ATTR_MM_USER_NS = 1027,
	/* The value of a derived field. The flags hold the field. Only the library makes these
	 * attributes; no other program's records have them. */
	TD_ATTR_DERIVED = 2048,
};

/* Who may dump the memory of a task, in an `ACCESS` attribute. */
enum td_dumpable {
	TD_DUMPABLE_NOT = 0,
	/* SUID_DUMP_USER. */
	TD_DUMPABLE_USER = 1,
	TD_DUMPABLE_ROOT = 2,
	/* No address space, on kernels that then check nothing else. */
	TD_DUMPABLE_NO_MM = 3,
	/* No address space, and not `user_dumpable`: it was not dumpable, or never had one. */
	TD_DUMPABLE_NO_MM_INIT = 4,
};

/* Whether a task kept its namespaces and files while its view was read. */
enum td_has_namespaces {
	/* It is exiting and has given up its namespaces or files. */
	TD_VIEW_NOWHERE = 0,
	TD_VIEW_WHOLE = 1,
	/* They changed during the read, so the values are invalid. */
	TD_VIEW_CHANGED = 2,
};

/* The values that a test can examine. */
enum td_value {
	TD_VALUE_PID = 1,
	TD_VALUE_TID = 2,
	TD_VALUE_PPID = 3,
	TD_VALUE_PGID = 4,
	TD_VALUE_SID = 5,
	TD_VALUE_STATE = 6,
	TD_VALUE_COMM = 7,
	TD_VALUE_THREADS_COUNT = 8,
	TD_VALUE_KERNEL_THREAD = 9,
	TD_VALUE_TTY_NR = 10,
	TD_VALUE_UID = 11,
	TD_VALUE_EUID = 12,
	TD_VALUE_SUID = 13,
	TD_VALUE_FSUID = 14,
	TD_VALUE_GID = 15,
	TD_VALUE_EGID = 16,
	TD_VALUE_SGID = 17,
	TD_VALUE_FSGID = 18,
	TD_VALUE_NICE = 19,
	TD_VALUE_POLICY = 20,
	TD_VALUE_OOM_SCORE_ADJ = 21,
	TD_VALUE_CGROUP = 22,
};

/* The start of a record. */
struct td_record {
	/* Of the whole record. */
	__u32 len;
	__u32 flags;
	/* The thread-group id. */
	__u32 pid;
	__u32 tid;
	/* Since boot. */
	__u64 start_ns;
};

/* The start of an attribute. */
struct td_attr {
	/* Of the payload, without the padding to eight bytes that follows it. */
	__u32 len;
	/* One of `attr`. */
	__u16 kind;
	__u16 flags;
};

struct td_base {
	__u32 ppid;
	__u32 tracer_pid;
	__u32 pgid;
	__u32 sid;
	__s32 exit_signal;
	__u32 threads_count;
	/* The letter of proc(5). */
	__u8 state;
	/* 0, as in all structures and in the padding after payloads. Readers ignore it. */
	char reserved[3];
	/* PF_*. */
	__u32 flags;
	char comm[16];
};

struct td_tty {
	__u32 tty_nr;
	__s32 tpgid;
};

struct td_cred {
	__u32 uid;
	__u32 euid;
	__u32 suid;
	__u32 fsuid;
	__u32 gid;
	__u32 egid;
	__u32 sgid;
	__u32 fsgid;
	__u64 cap_inheritable;
	__u64 cap_permitted;
	__u64 cap_effective;
	__u64 cap_bounding;
	__u64 cap_ambient;
	__u32 no_new_privs;
	__u32 seccomp;
	__u32 seccomp_filters_count;
	__u32 reserved;
};

/* With `CPU_UNSCALED` in the attribute's flags, `utime_ns` and `stime_ns` are tick counts, and
 * the reader scales them to `sum_exec_runtime` as the kernel's cputime_adjust() does, never
 * below `prev_utime` and `prev_stime`. */
struct td_cpu {
	__u64 utime_ns;
	__u64 stime_ns;
	__u64 cutime_ns;
	__u64 cstime_ns;
	__u64 runtime_ns;
	__u64 run_delay_ns;
	__u64 voluntary_switches;
	__u64 involuntary_switches;
	__s32 nice;
	__s32 priority;
	__u32 rt_priority;
	__u32 policy;
	__u32 cpu;
	__u32 reserved;
	__u64 sum_exec_runtime;
	__u64 prev_utime;
	__u64 prev_stime;
	__u64 guest_ns;
	__u64 cguest_ns;
	__u64 block_delay_ns;
	__u64 timer_slack_ns;
	__u64 timeslices_count;
};

/* Sums over all threads, including those that have ended. At least one of the two grows
 * whenever the process runs, and a process that has not run has not written to its memory.
 * There is no such attribute if another process may write to that memory: a tracer, or one
 * that shares it. */
struct td_run {
	__u64 runtime_ns;
	__u64 switches;
};

struct td_faults {
	__u64 min_faults;
	__u64 maj_faults;
	__u64 child_min_faults;
	__u64 child_maj_faults;
};

struct td_mem {
	__u64 vsize_bytes;
	__u64 rss_anon_bytes;
	__u64 rss_file_bytes;
	__u64 rss_shmem_bytes;
	__u64 swap_bytes;
	__u64 peak_vsize_bytes;
	__u64 peak_rss_bytes;
	__u64 text_bytes;
	__u64 data_bytes;
	__u64 stack_bytes;
	__u64 lib_bytes;
	__u64 locked_bytes;
	__u64 pinned_bytes;
	__u64 page_table_bytes;
	__u64 hugetlb_bytes;
};

struct td_oom {
	__s32 oom_score_adj;
	__s32 oom_score;
};

/* Inode numbers; 0 if the task has given up its namespaces. */
struct td_namespaces {
	__u64 ns_pid;
	__u64 ns_pid_for_children;
	__u64 ns_mnt;
	__u64 ns_net;
	__u64 ns_user;
	__u64 ns_uts;
	__u64 ns_ipc;
	__u64 ns_cgroup;
	__u64 ns_time;
};

struct td_cgroup {
	__u64 cgroup_id;
};

struct td_io {
	__u64 read_chars;
	__u64 write_chars;
	__u64 read_syscalls;
	__u64 write_syscalls;
	__u64 read_bytes;
	__u64 write_bytes;
	__u64 cancelled_write_bytes;
};

/* What a process has sent and received through sockets. */
struct td_net {
	/* When counting began, or the process if that was later. */
	__u64 net_since_ns;
	/* In the entry about the counting: calls for which there was no room. */
	__u64 uncounted;
	__u64 net_sent_bytes;
	__u64 net_received_bytes;
	__u64 net_sent_count;
	__u64 net_received_count;
	__u64 loopback_sent_bytes;
	__u64 loopback_received_bytes;
	__u64 loopback_sent_count;
	__u64 loopback_received_count;
	__u64 unix_sent_bytes;
	__u64 unix_received_bytes;
	__u64 unix_sent_count;
	__u64 unix_received_count;
	__u64 net_tcp_sent_bytes;
	__u64 net_tcp_received_bytes;
	__u64 net_udp_sent_bytes;
	__u64 net_udp_received_bytes;
};

/* Signal sets: signal N is bit N - 1. */
struct td_signals {
	__u64 sig_pending;
	__u64 sig_shared_pending;
	__u64 sig_blocked;
	__u64 sig_ignored;
	__u64 sig_caught;
	__u64 sig_queued_count;
};

/* A resource limit. There are `LIMITS` of them, in the order of RLIMIT_*. */
struct td_limit {
	/* All ones is unlimited. */
	__u64 soft;
	__u64 hard;
};

/* An attribute that is one number: `UMASK`, `PERSONALITY`. */
struct td_number {
	__u32 number;
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
	__u64 start_code;
	__u64 end_code;
	__u64 start_data;
	__u64 end_data;
	__u64 start_brk;
	__u64 start_stack;
	__u64 arg_start;
	__u64 arg_end;
	__u64 env_start;
	__u64 env_end;
};

/* The lines of smaps_rollup, in bytes; all ones if the kernel does not have the line. */
struct td_rollup {
	__u64 rss_bytes;
	__u64 pss_bytes;
	__u64 pss_dirty_bytes;
	__u64 pss_anon_bytes;
	__u64 pss_file_bytes;
	__u64 pss_shmem_bytes;
	__u64 shared_clean_bytes;
	__u64 shared_dirty_bytes;
	__u64 private_clean_bytes;
	__u64 private_dirty_bytes;
	__u64 referenced_bytes;
	__u64 anonymous_bytes;
	__u64 ksm_bytes;
	__u64 lazyfree_bytes;
	__u64 anon_huge_bytes;
	__u64 shmem_huge_bytes;
	__u64 file_huge_bytes;
	__u64 shared_hugetlb_bytes;
	__u64 private_hugetlb_bytes;
	__u64 swap_bytes;
	__u64 swap_pss_bytes;
	__u64 locked_bytes;
	/* The time since they were read. */
	__u64 age_ns;
};

/* The groups that this source can't answer exactly for this task, but procfs can. */
struct td_defer {
	__u32 groups;
	__u32 reserved;
};

/* A field that is missing. */
struct td_absent {
	__u16 field;
	__u16 reason;
};

/* What __ptrace_may_access() of kernel/ptrace.c looks at. Ids are those of the initial user
 * namespace. */
struct td_access {
	__u32 uid;
	__u32 euid;
	__u32 suid;
	__u32 fsuid;
	__u32 gid;
	__u32 egid;
	__u32 sgid;
	__u32 fsgid;
	__u64 cap_permitted;
	__u64 cap_effective;
	/* task_struct.self_exec_id. */
	__u64 exec_id;
	/* Identifies the Landlock domain; 0 for none. */
	__u64 landlock;
	/* Identifies the address space; 0 for none. */
	__u64 mm;
	/* Inode numbers; `mm_user_ns` is 0 without an address space. */
	__u32 user_ns;
	__u32 mm_user_ns;
	__u32 user_ns_level;
	__u32 mm_user_ns_level;
	/* One of `dumpable`. */
	__u32 dumpable;
	__u32 flags;
};

struct td_user_ns {
	__u32 inode;
	/* A user id. */
	__u32 owner;
};

/* The place from which a task sees the system: its namespaces, its root, and what security
 * modules store about it. */
struct td_view {
	/* For td_config.as_task. */
	__u64 task;
	__u64 root_mount;
	__u64 root_dentry;
	/* The offset of its time namespace. */
	__s64 boottime_ns;
	__u32 pid_ns;
	__u32 mnt_ns;
	__u32 cgroup_ns;
	/* One of `has_namespaces`. */
	__u32 has_namespaces;
	/* The start of cred.security. */
	__u64 security[32];
};

/* A test of a task. It compares a value with `value[0]`, as signed numbers. Consecutive tests
 * with the same clause are alternatives, and every clause must hold. For names, `value` and
 * `mask` are 16 bytes, and a name matches if it equals the value under the mask. For cgroups,
 * `value[0]` is the id of the task's cgroup or of an ancestor of it. */
struct td_test {
	/* One of `value`. */
	__u32 what;
	__u16 relation;
	__u16 clause;
	__u64 value[2];
	__u64 mask[2];
};

/* A flag: the event is about one thread rather than a process. */
#define TD_EVENT_THREAD 1
/* A flag: the event is about a kernel thread. */
#define TD_EVENT_KERNEL_THREAD 2
/* A flag: the file name was too long and is left out. */
#define TD_EVENT_CUT 4
/* A flag: the event is from the proc connector, which sends fewer fields. */
#define TD_EVENT_CONNECTOR 8
/* A flag: the process ended before the fields that the connector does not send could be read
 * from `/proc`. */
#define TD_EVENT_GONE 16
/* A flag: the processor time of an exit is left out, because the times of its threads could not
 * be summed. */
#define TD_EVENT_NO_RUNTIME 32
/* A flag: the OOM killer chose the process that ended. */
#define TD_EVENT_OOM_VICTIM 64
/* A flag: what the process moved through sockets follows the exit: [`Net`](super::Net). */
#define TD_EVENT_NET 128
/* A kind: the event is a fork. */
#define TD_EVENT_FORK 1
/* A kind: the event is an exec. */
#define TD_EVENT_EXEC 2
/* A kind: the event is an exit. */
#define TD_EVENT_EXIT 3

/* What every event begins with. */
struct td_event {
	/* Of the whole event; its ring record may be longer. */
	__u32 len;
	__u16 kind;
	__u16 flags;
	/* Since boot. */
	__u64 time_ns;
	/* Since boot. */
	__u64 start_ns;
	/* In the unified hierarchy; 0 if the kernel has no cgroups. */
	__u64 cgroup_id;
	/* The thread-group id. */
	__u32 pid;
	__u32 tid;
	__u32 ppid;
	__u32 uid;
	__u32 euid;
	__u32 reserved;
	char comm[16];
};

/* The thread that called fork. With CLONE_PARENT, its process is not the parent. */
struct td_event_fork {
	__u32 caller_pid;
	__u32 caller_tid;
};

/* How a process or a thread ended. */
struct td_event_exit {
	/* As wait(2) reports it. */
	__s32 status;
	/* 0 for pages of this machine; a recorded event has it, because other machines read it. */
	__u32 page_bytes;
	/* Of all threads of a process, also of those that ended before. */
	__u64 runtime_ns;
	__u64 peak_rss_pages;
};

/* The reader. A program that runs in the reader finds these facts. They become constants of the
 * programs that run in the processes whose events they write. */
struct td_event_reader {
	/* The address of its pid namespace; 0 for the initial one. */
	__u64 pid_ns;
	/* The offset of its time namespace. */
	__u64 boottime_ns;
	/* The level of its pid namespace. */
	__u32 level;
	/* 1 if it wants events about threads too. */
	__u32 threads;
};

/* The variables of the programs. */
struct td_event_state {
	struct td_event_reader reader;
	/* Events that did not fit into the ring. */
	__u64 lost;
};

/* A flag of a record: only procfs has the right stat(2) values. */
#define TD_FILE_DEFER_STAT 1
/* A flag of a record: only procfs has the right name. */
#define TD_FILE_DEFER_NAME 2
/* A flag of a record: only procfs has the right values; nothing else in the record is valid. In
 * the record of a process: for all its files, and no records follow. */
#define TD_FILE_DEFER_ALL 4
/* A flag of a record: only procfs knows how much space the file takes. */
#define TD_FILE_DEFER_SPACE 8
/* A flag of a record that ends a process: threads may have directories or descriptors of their
 * own. */
#define TD_FILE_DEFER_THREADS 16
/* The maximum number of files to look for. */
#define TD_FILE_MATCHES 8
/* The maximum number of processes in a list. */
#define TD_FILE_LISTED 1024
/* The longest path that the program builds. */
#define TD_FILE_PATH 1024
/* The size of the memory for records. */
#define TD_FILE_RECORDS 524288
/* The room there that is kept free for the next record: more than any takes. */
#define TD_FILE_ROOM 2048

/* What a record is about. */
enum td_file_use {
	TD_FILE_FD = 0,
	TD_FILE_CWD = 1,
	TD_FILE_ROOT = 2,
	TD_FILE_EXE = 3,
	/* The records of a process begin, or continue in another run. It started at `start_ns`. */
	TD_FILE_PROCESS = 16,
	/* The records of a process are complete, except `DEFER_THREADS`. */
	TD_FILE_END = 17,
};

/* What to read about a file. */
enum td_file_wants {
	TD_FILE_NAMES = 1,
	TD_FILE_FLAGS = 2,
	TD_FILE_STAT = 4,
	TD_FILE_SPACE = 16,
};

/* How the text that follows a record becomes the name of the file. */
enum td_file_name {
	TD_NAME_NONE = 0,
	/* It is the name. */
	TD_NAME_WHOLE = 1,
	/* "socket:[", inode, "]". */
	TD_NAME_SOCKET = 2,
	/* "pipe:[", inode, "]". */
	TD_NAME_PIPE = 3,
	/* "anon_inode:", text. */
	TD_NAME_ANON = 4,
	/* "/", text, " (deleted)". */
	TD_NAME_SIMPLE = 5,
};

/* How a run ended. */
enum td_files_state {
	/* The structures of this kernel are not as expected. */
	TD_FILES_NOWHERE = 0,
	/* There is more: fetch the records and run the program again. */
	TD_FILES_GOES_ON = 1,
	TD_FILES_ENDED = 2,
};

/* A file to look for, by the kernel's device and inode numbers. */
struct td_file_match {
	__u32 dev_major;
	__u32 dev_minor;
	__u64 inode;
};

/* A file that a process uses, followed by a text. */
struct td_file {
	/* Of the whole record, a multiple of eight. */
	__u32 len;
	/* Of the process in the list. */
	__u32 index;
	__u32 fd;
	/* One of `used_as`. */
	__u16 used_as;
	__u16 flags;
	/* Of a descriptor, with O_CLOEXEC; of a process whether it is dumpable, plus 1. */
	__u32 open_flags;
	__u32 mnt_id;
	/* Of a descriptor. */
	__s64 offset;
	__u64 size;
	__u64 inode;
	__u32 dev_major;
	__u32 dev_minor;
	__u32 nlink;
	/* As stat(2) returns it. */
	__u16 mode;
	/* One of `name`. */
	__u8 name;
	__u8 reserved;
	/* Of the text that follows. */
	__u32 name_len;
	__u32 reserved2;
	__u64 start_ns;
};

/* The memory of the program. It belongs to one handle, and serves one reader at a time. */
struct td_files_walk {
	/* Bits of `wants`. This and the next members are set by the library. */
	__u32 wants;
	/* A bit for each of `used_as`. */
	__u32 uses;
	/* How many processes are listed. */
	__u32 listed;
	/* The number of steps between two looks at the clock. */
	__u32 check_every;
	__u64 max_run_ns;
	/* A test that rules out files: a bit for each type, S_IFMT >> 12, and 0 for none. This and
	 * `deleted` are not tested where stat(2) may differ from the inode. `matches` are always
	 * tested: they name only files on file systems where the two agree. */
	__u32 types;
	/* 1: only files without a link. */
	__u32 deleted;
	__u32 matches_count;
	/* 1: this run has read something. Set by the program. */
	__u32 has_advanced;
	struct td_file_match matches[8];
	/* Where to continue: the process, an index of `list`. */
	__u32 next;
	/* Its next descriptor. */
	__u32 fd;
	/* 1: its other files have been read. */
	__u32 has_links;
	/* One of `state`. This and the next members are set by the program. */
	__u32 state;
	/* Bytes of records. */
	__u32 filled;
	__u32 steps;
	__u32 next_check;
	__u32 attempts;
	__u64 run_start_ns;
	__u64 longest_run_ns;
	__u64 address;
	/* The descriptors of the process that is being read. */
	__u64 slots;
	__u64 open_fds;
	__u64 close_on_exec;
	/* Of `open_fds`. */
	__u64 word;
	__u32 max_fds;
	__u32 leaf_end;
	__u32 process_filled;
	__u32 process_fd;
	__u32 process_has_links;
	/* In the path that is being built, starting at its end. */
	__u32 position;
	__u64 mount;
	__u64 dentry;
	__u64 root_mount;
	__u64 root_dentry;
	__u32 arrived;
	__u32 reserved;
	/* Set by the library. Not 0: pids, times and paths are those that this task sees instead of
	 * the caller (Linux 6.2). */
	__u64 as_task;
	/* For a word of `open_fds`: the slots, read twice, and the inodes that they lead to. */
	__u64 word_slots[64];
	__u64 word_again[64];
	__u64 word_inodes[64];
	/* The inode that this run looked at last and that is not in `matches`. */
	__u64 other_inode;
	char path[1280];
	__u32 list[1024];
	char records[524288];
};

/* A flag of a record. The first four are those of PROCMAP_QUERY. */
#define TD_VMA_READ 1
/* A flag of a record. */
#define TD_VMA_WRITE 2
/* A flag of a record. */
#define TD_VMA_EXEC 4
/* A flag of a record: VM_MAYSHARE. */
#define TD_VMA_SHARED 8
/* A flag of a record: the mapping is of a file. The lower bits are its permissions. */
#define TD_VMA_FILE 32
/* A flag of a record: only the text of the maps file has the right values. Read it for all
 * mappings of the process. */
#define TD_VMA_DEFER 512
/* A flag of a record: it is not a mapping. Apart from the mappings that have records, the
 * process maps none of the files to look for. */
#define TD_VMA_NO_OTHER 1024
/* The number of processes that are read together, so that the processor's waits for their
 * memory overlap. */
#define TD_VMA_BLOCK 64
/* The maximum number of addresses of a run. */
#define TD_VMA_ADDRESSES 4096
/* The size of the memory for records. */
#define TD_VMA_RECORDS 524288
/* The room there that is kept free for the next record: more than any takes. */
#define TD_VMA_ROOM 1024
/* The length of the cache of recent names, before the map `names`. */
#define TD_VMA_RECENT 128

/* What the program does. */
enum td_vma_op {
	/* List the mappings of all processes. */
	TD_VMA_MACHINE = 0,
	/* List the mappings of the address space of an open maps file. */
	TD_VMA_LIST = 1,
	/* Look up the mappings there that contain some addresses. */
	TD_VMA_LOOK_UP = 2,
	/* Check that the mappings there have not changed since the last operation. */
	TD_VMA_CHECK = 3,
};

/* How a run ended. */
enum td_vma_state {
	/* The structures of this kernel are not as expected. */
	TD_VMA_NOWHERE = 0,
	/* There is more: fetch the records and run the program again. */
	TD_VMA_GOES_ON = 1,
	TD_VMA_ENDED = 2,
	/* Mappings changed during the run, so the records are invalid. */
	TD_VMA_CHANGED = 3,
	/* The address space of the maps file is gone. */
	TD_VMA_GONE = 4,
};

/* A mapping, followed by its name. */
struct td_vma {
	/* Of the whole record, a multiple of eight. */
	__u32 len;
	/* Thread-group id. */
	__u32 pid;
	/* Not 0: the id of its name, which does not follow then. */
	__u32 name_id;
	__u16 flags;
	/* Of the name that follows. */
	__u16 name_len;
	__u64 start;
	__u64 end;
	__u64 offset;
	__u64 inode;
	__u32 dev_major;
	__u32 dev_minor;
	/* 0: unknown. */
	__u64 page_size;
};

/* What identifies the name of a file during a pass. */
struct td_vma_name_key {
	__u64 mount;
	__u64 dentry;
	__u64 parent;
	/* Of the last component of the path. */
	__u64 hash_len;
	__u64 inode;
	__u32 device;
	/* 1: deleted. */
	__u32 unhashed;
};

struct td_vma_name {
	__u32 epoch;
	__u32 id;
};

struct td_vma_recent {
	struct td_vma_name_key key;
	struct td_vma_name name;
};

/* The memory of the program: the settings and results of a pass, and the state of a walk. It
 * belongs to one handle, and serves one reader at a time. */
struct td_vma_walk {
	/* Only mappings with all of these flags. This and the next members are set by the library
	 * before a pass. */
	__u32 filter;
	/* Entries of `names` with another epoch are outdated. */
	__u32 epoch;
	/* 1: names are wanted. */
	__u32 names;
	/* Of this host. */
	__u32 page_shift;
	/* FMODE_BACKING of this kernel: a file with it backs an open file of another file system. */
	__u32 backing_mode;
	/* 1: the pass found process 1. This and the next members are set by the program. */
	__u32 saw_init;
	__u32 next_name;
	/* The process that is read. */
	__u32 pid;
	/* Set by the library. If there are any, mappings of other files have no records, and each
	 * process that was read has a record with `NO_OTHER` at its end. */
	__u32 matches_count;
	__u32 reserved;
	struct td_file_match matches[8];
	/* One of `op`. */
	__u32 op;
	/* Of the maps file. */
	__u32 fd;
	/* Of addresses. */
	__u32 count;
	/* The number of blocks of processes to read in a run. */
	__u32 blocks;
	/* One of `state`. */
	__u32 state;
	/* Bytes of records. */
	__u32 filled;
	/* The process that was visited last. */
	__u32 cursor;
	/* The number of entries of `tasks`. */
	__u32 found;
	/* For pid_idr_leaf(). */
	__u32 pid_leaf_end;
	/* Where the records of the current process start. */
	__u32 process_start;
	/* The index of the last slot in use of `leaf`. */
	__u32 leaf_end;
	/* 1: `branch` is the parent of `leaf`. */
	__u32 has_branch;
	/* How many may still be read in this run. */
	__u32 leaves;
	__u32 has_leaf;
	/* Which slots of `leaf` are read. */
	__u32 slot;
	__u32 slots_count;
	__u64 address;
	/* The process and the address space that are being read, and the sequence of mmap_lock at
	 * the start. */
	__u64 task;
	__u64 mm;
	__u64 start_ns;
	__u64 exec_id;
	__u64 sequence;
	/* The address at which to continue; 0 at the start. */
	__u64 from;
	__u64 root;
	__u64 branch_max;
	__u64 leaf_max;
	/* The end of the mapping or gap that was read last. */
	__u64 looked_up;
	__u64 tasks[64];
	__u64 slots[64];
	__u32 pids[64];
	/* Copies of two nodes of the maple tree. */
	__u64 branch[32];
	__u64 leaf[32];
	struct td_vma_recent recent[128];
	/* In ascending order. */
	__u64 addresses[4096];
	char records[524288];
};

/* The maximum number of processes in the list of a walk. */
#define TD_LISTED 1024
/* The number of tasks that are read together, so that the processor's waits for their memory
 * overlap. */
#define TD_BLOCK 64
/* The maximum number of processors for summing up memory counters. With more, memory counters
 * are deferred. */
#define TD_CPUS_MAX 512

/* How a run of a walk ended. */
enum td_walk_state {
	/* The program did not run, or this kernel's IDR is not as expected. */
	TD_WALK_NOWHERE = 0,
	/* There is more: fetch the records and run the program again. */
	TD_WALK_GOES_ON = 1,
	TD_WALK_ENDED = 2,
	/* The thread after which to continue has ended: start again. */
	TD_WALK_LOST = 3,
};

/* Constants that the library sets before it loads a program. */
struct td_constants {
	/* The groups that it can be asked for: code for the others is dead. */
	__u32 groups;
	__u32 page_shift;
};

/* What the library asks for. It is written before a pass. */
struct td_config {
	__u32 groups;
	/* 1: a record for every thread; 0: one for every process. */
	__u32 threads;
	/* Not 0: only children of this process, whose id is one of the reader's pid namespace. */
	__u32 ppid;
	/* 1: /proc adds the per-processor parts to the memory counters. */
	__u32 rss_sum;
	/* Possible processors. */
	__u32 cpus;
	/* 1: /proc shows the full names of workqueue workers (Linux 6.11). */
	__u32 full_names;
	/* Of memory and swap, for oom_score. */
	__u64 total_pages;
	__u32 tests_count;
	/* 1: only tasks that used processor time since the handle's last pass with this set. */
	__u32 changed;
	/* Entries of `seen` with another epoch are outdated. */
	__u32 changed_epoch;
	/* The number of entries of `seen`, minus one. */
	__u32 seen_mask;
	/* The index in `View::security` of the Landlock domain, plus one; 0 if it is not wanted. */
	__u32 landlock;
	__u32 reserved;
	/* Not 0: use the namespaces and root of this task instead of the reader's (Linux 6.2). */
	__u64 as_task;
	struct td_test tests[16];
};

/* The state of a walk, in which the program finds its tasks itself. */
struct td_walk {
	/* One of `state`. */
	__u32 state;
	/* The number of processes in `list`; 0 visits all. For threads, 1. */
	__u32 listed;
	/* The id visited last; for listed processes, the position in the list, from 1. 0 at the
	 * start. */
	__u32 cursor;
	/* Bytes of records in `scratch`. */
	__u32 filled;
	/* The number of entries of `tasks`. */
	__u32 found;
	/* The index of the next to be visited. */
	__u32 next;
	/* How often reading that one failed. */
	__u32 attempts;
	/* Tasks whose pid led to none when they were visited. */
	__u32 gone;
	/* For pid_idr_leaf(). */
	__u32 leaf_end;
	/* The work of this run: a visit is one step, plus some for what it iterates over. */
	__u32 steps;
	/* Steps between two looks at the clock. */
	__u32 check_every;
	/* The steps at which to look at the clock next. */
	__u32 next_check;
	/* How long a run may keep RCU waiting; it ends when the clock shows more. */
	__u64 max_run_ns;
	__u64 run_start_ns;
	__u64 longest_run_ns;
	/* Of the pid IDR. */
	__u64 root;
	/* Of the thread list of a process. */
	__u64 head;
	__u64 node;
	/* The task whose memory, files and namespaces are read: the visited one or, if that is the
	 * first thread of a process and has ended, another thread. */
	__u64 live;
	/* In the thread list: the next one that may be it. */
	__u64 live_node;
	__u64 slots[64];
	/* The struct pid through which each task was found. */
	__u64 pids[64];
	__u64 tasks[64];
	/* `cursor` once that task was visited. */
	__u32 cursors[64];
	__u32 list[1024];
};
