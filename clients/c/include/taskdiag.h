/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * taskdiag.h - asks a Linux kernel about processes, threads, sockets, open files, mappings and the
 * page cache, and tells what starts and ends.
 *
 *	td_handle *handle = td_handle_new();
 *	td_table *table = NULL;
 *	td_processes(handle, "pid,rss_bytes", "rss_bytes > 100M", &table, NULL);
 *	for (size_t row = 0; row < td_table_len(table); row++)
 *		printf("%ju\n", (uintmax_t)td_u64(table, row, TD_FIELD_PID, 0));
 *
 * ERRORS. A function that can fail returns a td_code, which is TD_OK (0) if it did not. Its last
 * argument says where to put a td_error with the text, which says what to do; NULL if the text is
 * not wanted. What was there before is overwritten, by NULL where there is no error. Errors are
 * freed with td_error_free(). No function prints anything or ends the process. (Two cannot be
 * helped: memory that the system refuses ends the process, and a defect of this library is
 * TD_INTERNAL and prints a line to standard error.)
 *
 * MISSING VALUES. A value that cannot be read is not 0. td_absent_of() has the reason, and whoever
 * reads a number says what stands for one that is missing.
 *
 * POINTERS. Objects (handles, queries, tables, events, errors) are made and freed by this library
 * alone. Every function takes NULL for one, does nothing then, and returns an error where it can. An
 * object that was freed must not be used. Texts given to the library end with a NUL. Texts that come
 * from it are a pointer and a length, unless it says "const char *", and may hold any bytes: processes
 * choose their names. What comes out of a table is valid until the table is freed or used for
 * another answer, whatever happens to the handle.
 *
 * THREADS. A handle may be shared: one thread at a time asks, the others wait. For answers at the
 * same time take several handles. Nobody waits for questions about the page cache. A table may be
 * read by any number of threads while none changes or frees it. A query may be used by several
 * threads while none changes it. One thread at a time takes events. Free an object when no other
 * thread uses it. The library starts threads of its own for reads that can be held up, with all
 * signals blocked, and stays in memory after dlclose(3).
 *
 * FORK. A child of fork(2) may use the handles, tables and queries of its parent. It does not share
 * BPF programs or connections with it: a handle begins afresh. Events are the parent's alone:
 * td_events_next() is TD_FORKED in a child. If another thread of the parent was asking at the moment of
 * fork(2), then the child gets TD_FORKED from every question. Descriptors are closed by execve(2).
 *
 * SIGNALS. No handler is installed and none is needed: a broker that has gone is an error, not
 * SIGPIPE. Call no function of this library from a signal handler.
 *
 * ABI. The symbols have a version, and numbers in this file do not change. Later versions add
 * functions, fields, reasons, codes and kinds: expect numbers that are not here.
 */
#ifndef TASKDIAG_H
#define TASKDIAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
/* Without this, numbers that are not here would be outside of the range of an enum. */
#define TD_ENUM : uint32_t
#else
#define TD_ENUM
#endif

typedef struct td_error td_error;
typedef struct td_events td_events;
typedef struct td_handle td_handle;
typedef struct td_query td_query;
typedef struct td_table td_table;

/* What came of a call. */
typedef enum td_code TD_ENUM {
	TD_OK = 0,
	/* There is no such process, or it is hidden from the caller. */
	TD_NO_SUCH_TASK = 1,
	/* The process has no memory of its own: it is a kernel thread or a zombie. */
	TD_NO_MEMORY = 2,
	/* The caller lacks a permission. */
	TD_DENIED = 3,
	/* This kernel or source cannot do it. */
	TD_UNSUPPORTED = 4,
	/* A process kept its reader waiting for longer than the patience. */
	TD_NO_ANSWER = 5,
	/* A source sent something that cannot be right. */
	TD_MALFORMED = 6,
	/* An argument is wrong: a name that no field has, a text that is not a filter, NULL. */
	TD_INVALID_INPUT = 7,
	/* A system call failed for another reason. */
	TD_SYSTEM = 8,
	/* Another thread was asking when this process was forked, or the events are the parent's. */
	TD_FORKED = 9,
	/* A defect of this library. */
	TD_INTERNAL = 10,
	/* No thread or process can be started to read what may wait. */
	TD_NO_THREAD = 11
} td_code;

/* What rows are about. */
typedef enum td_scope TD_ENUM {
	TD_PROCESSES = 1,
	TD_THREADS = 2,
	TD_SOCKETS = 3,
	/* What processes have open: descriptors, directories, programs, mapped files. */
	TD_FILES = 4,
	/* The mappings of a process. */
	TD_MAPS = 5,
	/* The page cache of files. */
	TD_CACHE = 6,
	/* Processes that start, execute programs and end. */
	TD_EVENTS = 7
} td_scope;

/* What the values of a field are in memory. */
typedef enum td_type TD_ENUM {
	/* uint64_t: numbers, sizes in bytes, times in nanoseconds, bit masks, addresses. */
	TD_TYPE_U64 = 1,
	/* int64_t: numbers that may be negative. */
	TD_TYPE_I64 = 2,
	/* double: percentages. */
	TD_TYPE_F64 = 3,
	/* uint8_t: 0 or 1, or a letter. */
	TD_TYPE_U8 = 4,
	/* Bytes, usually text. In a list of texts each ends with a NUL, the last perhaps without. */
	TD_TYPE_TEXT = 5,
	/* Lists of uint32_t. */
	TD_TYPE_IDS = 6,
	/* 32 of uint64_t: the soft and the hard limit of RLIMIT_CPU (0) to RLIMIT_RTTIME (15), UINT64_MAX
	 * for none. */
	TD_TYPE_LIMITS = 7
} td_type;

/* What the values of a field mean. */
typedef enum td_kind TD_ENUM {
	TD_KIND_NUMBER = 1,
	TD_KIND_USER = 2,
	TD_KIND_GROUP = 3,
	TD_KIND_COUNT = 4,
	TD_KIND_SIGNED = 5,
	TD_KIND_BYTES = 6,
	TD_KIND_NANOSECONDS = 7,
	TD_KIND_PERCENT = 8,
	TD_KIND_FLAG = 9,
	TD_KIND_LETTER = 10,
	TD_KIND_TEXT = 11,
	/* Text as in RFC 3339, in UTC. */
	TD_KIND_TIME = 12,
	TD_KIND_TEXTS = 13,
	/* Bit masks: of capabilities by their numbers, of signal N as bit N - 1, and of others. */
	TD_KIND_CAPABILITIES = 14,
	TD_KIND_SIGNALS = 15,
	TD_KIND_MASK = 16,
	TD_KIND_ADDRESS = 17,
	/* Permission bits. */
	TD_KIND_MODE = 18,
	TD_KIND_IDS = 19,
	/* Text such as 0-3,7. */
	TD_KIND_CPUS = 20,
	TD_KIND_LIMITS = 21
} td_kind;

/* Made by clients/generate.py from the field table: begin */
/* Why a value is missing. */
typedef enum td_absent TD_ENUM {
	/* There is a value. */
	TD_PRESENT = 0,
	/* The query did not ask for the field. */
	TD_ABSENT_NOT_ASKED = 1,
	/* This kernel, or the source that answered, does not have it. */
	TD_ABSENT_UNSUPPORTED = 2,
	/* The caller may not see it (`EACCES`, `EPERM`). */
	TD_ABSENT_DENIED = 3,
	/* The task has no memory: it is a kernel thread, a zombie, or a thread that has ended before
	 * others of its process. */
	TD_ABSENT_NO_MEMORY = 4,
	/* While it was being read, the task ended or lost what was asked for. */
	TD_ABSENT_GONE = 5,
	/* Only a part could be read. */
	TD_ABSENT_TRUNCATED = 6,
	/* Reading it would take longer than the query's Budget allows. */
	TD_ABSENT_OVER_BUDGET = 7,
	/* The process could not be read within patience: it held a lock that reading takes. */
	TD_ABSENT_NO_ANSWER = 8,
	/* Reading it may wait for a process or a file system, so a thread of its own would have to do
	 * it, and none can be started (`EAGAIN`, `EPERM`: limits of threads, seccomp(2)). */
	TD_ABSENT_NO_THREAD = 9,
	/* Nobody counts it, or there was no room to count it for this process. */
	TD_ABSENT_NOT_COUNTED = 10,
	/* Such a row has no such value: a UNIX socket has no port, a working directory no descriptor. */
	TD_ABSENT_NONE = 100
} td_absent;

/* The fields. */
typedef enum td_field TD_ENUM {
	TD_FIELD_NONE = 0,

	/* Fields of processes and threads: docs/fields.md. */
	/* Process id: the thread-group id. */
	TD_FIELD_PID = 1,
	/* Thread id. In an answer about processes, the process id. */
	TD_FIELD_TID = 2,
	/* Process id of the parent. 0 if it has no parent in the reader's pid namespace. */
	TD_FIELD_PPID = 3,
	/* Thread id of the tracer. 0 if the task is not traced. */
	TD_FIELD_TRACER_PID = 4,
	/* Process group id. */
	TD_FIELD_PGID = 5,
	/* Session id. */
	TD_FIELD_SID = 6,
	/* State: R running, S sleeping, D uninterruptible sleep, I idle kernel thread, T stopped, t
	 * stopped by a tracer, P parked, Z zombie, X dead. */
	TD_FIELD_STATE = 7,
	/* Name of the program or thread, any bytes but NUL: at most 15, for kernel threads at most 63. */
	TD_FIELD_COMM = 8,
	/* Time from boot to the start of the task. BPF gives nanoseconds, procfs whole clock ticks (10
	 * ms). Negative for a task that is older than the zero of the reader's time namespace;
	 * unsupported in clients whose numbers are unsigned (C, Go, Python). */
	TD_FIELD_START_NS = 9,
	/* Number of threads in the process. */
	TD_FIELD_THREADS_COUNT = 10,
	/* Whether the task is a kernel thread. */
	TD_FIELD_KERNEL_THREAD = 11,
	/* Flags of the kernel: the PF_ constants of include/linux/sched.h, which change between
	 * kernels. */
	TD_FIELD_FLAGS = 12,
	/* Signal that the parent gets when the task ends. -1 for a thread that does not lead its
	 * process. */
	TD_FIELD_EXIT_SIGNAL = 13,
	/* Device number of the controlling terminal. 0 if it has none. */
	TD_FIELD_TTY_NR = 14,
	/* Foreground process group of the controlling terminal. -1 if it has none. */
	TD_FIELD_TPGID = 15,
	/* Real user id. */
	TD_FIELD_UID = 16,
	/* Effective user id. */
	TD_FIELD_EUID = 17,
	/* Saved user id. */
	TD_FIELD_SUID = 18,
	/* File-system user id. */
	TD_FIELD_FSUID = 19,
	/* Real group id. */
	TD_FIELD_GID = 20,
	/* Effective group id. */
	TD_FIELD_EGID = 21,
	/* Saved group id. */
	TD_FIELD_SGID = 22,
	/* File-system group id. */
	TD_FIELD_FSGID = 23,
	/* Inheritable capabilities. */
	TD_FIELD_CAP_INHERITABLE = 24,
	/* Permitted capabilities. */
	TD_FIELD_CAP_PERMITTED = 25,
	/* Effective capabilities. */
	TD_FIELD_CAP_EFFECTIVE = 26,
	/* Capability bounding set. */
	TD_FIELD_CAP_BOUNDING = 27,
	/* Ambient capabilities. */
	TD_FIELD_CAP_AMBIENT = 28,
	/* Whether execve(2) can no longer grant privileges. */
	TD_FIELD_NO_NEW_PRIVS = 29,
	/* Seccomp mode: 0 off, 1 strict, 2 filter. */
	TD_FIELD_SECCOMP = 30,
	/* Supplementary group ids. */
	TD_FIELD_GROUPS = 31,
	/* Processor time in user mode, of all threads of the process, also of those that ended. In an
	 * answer about threads, of the one thread. procfs gives whole clock ticks. */
	TD_FIELD_UTIME_NS = 32,
	/* Processor time in kernel mode, of all threads of the process, also of those that ended. In
	 * an answer about threads, of the one thread. procfs gives whole clock ticks. */
	TD_FIELD_STIME_NS = 33,
	/* Processor time in user mode of children that ended and were waited for. */
	TD_FIELD_CUTIME_NS = 34,
	/* Processor time in kernel mode of children that ended and were waited for. */
	TD_FIELD_CSTIME_NS = 35,
	/* Time on a processor, of this thread alone. For a process, of its first thread. */
	TD_FIELD_RUNTIME_NS = 36,
	/* Time spent waiting for a processor, of this thread alone. */
	TD_FIELD_RUN_DELAY_NS = 37,
	/* Nice value. */
	TD_FIELD_NICE = 38,
	/* The scheduler's priority: nice + 20, or -2 to -100 for real-time tasks. */
	TD_FIELD_PRIORITY = 39,
	/* Real-time priority: 1 to 99. 0 for other tasks. */
	TD_FIELD_RT_PRIORITY = 40,
	/* Scheduling policy: 0 other, 1 fifo, 2 rr, 3 batch, 5 idle, 6 deadline, 7 ext. */
	TD_FIELD_POLICY = 41,
	/* Processor on which the task ran last. */
	TD_FIELD_CPU = 42,
	/* Processors on which the task may run. */
	TD_FIELD_AFFINITY = 43,
	/* Voluntary context switches, of this thread alone. */
	TD_FIELD_VOLUNTARY_SWITCHES = 44,
	/* Involuntary context switches, of this thread alone. */
	TD_FIELD_INVOLUNTARY_SWITCHES = 45,
	/* Time spent running virtual processors, which utime_ns includes. procfs gives whole clock
	 * ticks. */
	TD_FIELD_GUEST_NS = 46,
	/* Time spent running virtual processors, of children that ended and were waited for. procfs
	 * gives whole clock ticks. */
	TD_FIELD_CGUEST_NS = 47,
	/* Time spent waiting for block devices, of this thread alone. 0 where delay accounting is off.
	 * procfs gives whole clock ticks. */
	TD_FIELD_BLOCK_DELAY_NS = 48,
	/* By how much timers of the task may be late. */
	TD_FIELD_TIMER_SLACK_NS = 49,
	/* How many times this thread got a processor. */
	TD_FIELD_TIMESLICES_COUNT = 50,
	/* Page faults without I/O, of all threads of the process, also of those that ended. In an
	 * answer about threads, of the one thread. */
	TD_FIELD_MIN_FAULTS = 51,
	/* Page faults with I/O, of all threads of the process, also of those that ended. In an answer
	 * about threads, of the one thread. */
	TD_FIELD_MAJ_FAULTS = 52,
	/* Page faults without I/O of children that ended and were waited for. */
	TD_FIELD_CHILD_MIN_FAULTS = 53,
	/* Page faults with I/O of children that ended and were waited for. */
	TD_FIELD_CHILD_MAJ_FAULTS = 54,
	/* Virtual memory: the size of all mappings. */
	TD_FIELD_VSIZE_BYTES = 55,
	/* Resident memory: the sum of rss_anon_bytes, rss_file_bytes and rss_shmem_bytes. */
	TD_FIELD_RSS_BYTES = 56,
	/* Resident anonymous memory. */
	TD_FIELD_RSS_ANON_BYTES = 57,
	/* Resident memory mapped from files. */
	TD_FIELD_RSS_FILE_BYTES = 58,
	/* Resident shared memory. */
	TD_FIELD_RSS_SHMEM_BYTES = 59,
	/* Swapped-out anonymous memory. */
	TD_FIELD_SWAP_BYTES = 60,
	/* The most virtual memory that the process has had. */
	TD_FIELD_PEAK_VSIZE_BYTES = 61,
	/* The most resident memory that the process has had. */
	TD_FIELD_PEAK_RSS_BYTES = 62,
	/* Size of the code of the executable. */
	TD_FIELD_TEXT_BYTES = 63,
	/* Size of private writable mappings, without the stack. */
	TD_FIELD_DATA_BYTES = 64,
	/* Size of the stack. */
	TD_FIELD_STACK_BYTES = 65,
	/* Size of the code of shared libraries. */
	TD_FIELD_LIB_BYTES = 66,
	/* Memory locked by mlock(2). */
	TD_FIELD_LOCKED_BYTES = 67,
	/* Memory pinned for direct access by devices. */
	TD_FIELD_PINNED_BYTES = 68,
	/* Size of the page tables. */
	TD_FIELD_PAGE_TABLE_BYTES = 69,
	/* Resident pages of hugetlbfs. No other field includes them. */
	TD_FIELD_HUGETLB_BYTES = 70,
	/* Command line. The process can change it: a title and nothing but NULs behind it is one
	 * argument. */
	TD_FIELD_CMDLINE = 71,
	/* Adjustment of oom_score: -1000 never kill the process, 1000 kill it first. */
	TD_FIELD_OOM_SCORE_ADJ = 72,
	/* How likely the kernel is to kill the process when memory runs out. */
	TD_FIELD_OOM_SCORE = 73,
	/* Inode number of its pid namespace. */
	TD_FIELD_NS_PID = 74,
	/* Inode number of the pid namespace in which its children start. */
	TD_FIELD_NS_PID_FOR_CHILDREN = 75,
	/* Inode number of its mount namespace. */
	TD_FIELD_NS_MNT = 76,
	/* Inode number of its network namespace. */
	TD_FIELD_NS_NET = 77,
	/* Inode number of its user namespace. */
	TD_FIELD_NS_USER = 78,
	/* Inode number of its UTS namespace. */
	TD_FIELD_NS_UTS = 79,
	/* Inode number of its IPC namespace. */
	TD_FIELD_NS_IPC = 80,
	/* Inode number of its cgroup namespace. */
	TD_FIELD_NS_CGROUP = 81,
	/* Inode number of its time namespace. */
	TD_FIELD_NS_TIME = 82,
	/* Its thread ids, one for each pid namespace from the reader's down to its own. */
	TD_FIELD_NSPIDS = 83,
	/* Id of its cgroup in the unified (version 2) hierarchy. */
	TD_FIELD_CGROUP_ID = 84,
	/* Path of its cgroup in the unified (version 2) hierarchy, as seen from the reader's cgroup
	 * namespace. */
	TD_FIELD_CGROUP = 85,
	/* Bytes that read system calls returned, of all threads of the process, also of those that
	 * ended, and, as all numbers of this group, of children that it waited for. In an answer about
	 * threads, of the one thread. */
	TD_FIELD_READ_CHARS = 86,
	/* Bytes that write system calls accepted. */
	TD_FIELD_WRITE_CHARS = 87,
	/* Number of read system calls. */
	TD_FIELD_READ_SYSCALLS = 88,
	/* Number of write system calls. */
	TD_FIELD_WRITE_SYSCALLS = 89,
	/* Bytes read from storage. */
	TD_FIELD_READ_BYTES = 90,
	/* Bytes that it caused to be written to storage, counted when the page cache becomes dirty. */
	TD_FIELD_WRITE_BYTES = 91,
	/* Bytes of write_bytes that never reached storage, because a file was truncated first. */
	TD_FIELD_CANCELLED_WRITE_BYTES = 92,
	/* Signals pending for this thread. */
	TD_FIELD_SIG_PENDING = 93,
	/* Signals pending for the process. */
	TD_FIELD_SIG_SHARED_PENDING = 94,
	/* Signals that this thread blocks. */
	TD_FIELD_SIG_BLOCKED = 95,
	/* Signals that the process ignores. */
	TD_FIELD_SIG_IGNORED = 96,
	/* Signals for which the process has a handler. */
	TD_FIELD_SIG_CAUGHT = 97,
	/* Signals queued for all processes of its real user. Their limit is limits.sigpending. */
	TD_FIELD_SIG_QUEUED_COUNT = 98,
	/* The 16 resource limits, each soft and hard. */
	TD_FIELD_LIMITS = 99,
	/* Environment that the process was started with: byte strings such as NAME=value. The process
	 * can change it. */
	TD_FIELD_ENVIRON = 100,
	/* Path of the executable. It ends with " (deleted)" if the file was deleted. */
	TD_FIELD_EXE = 101,
	/* Current directory. */
	TD_FIELD_CWD = 102,
	/* Root directory. */
	TD_FIELD_ROOT = 103,
	/* Permissions that new files of the process do not get. */
	TD_FIELD_UMASK = 104,
	/* Number of open file descriptors. */
	TD_FIELD_FD_COUNT = 105,
	/* Number of slots in the table of file descriptors. */
	TD_FIELD_FD_TABLE_SIZE = 106,
	/* User who logged in to begin the audit session. 4294967295 if there is none. */
	TD_FIELD_LOGINUID = 107,
	/* Number of the audit session. 4294967295 if there is none. */
	TD_FIELD_AUDIT_SESSION = 108,
	/* Address at which the code begins. */
	TD_FIELD_START_CODE = 109,
	/* Address at which the code ends. */
	TD_FIELD_END_CODE = 110,
	/* Address at which initialized data begins. */
	TD_FIELD_START_DATA = 111,
	/* Address at which initialized data ends. */
	TD_FIELD_END_DATA = 112,
	/* Address at which the heap begins. */
	TD_FIELD_START_BRK = 113,
	/* Address at which the stack begins. */
	TD_FIELD_START_STACK = 114,
	/* Address at which the arguments begin. */
	TD_FIELD_ARG_START = 115,
	/* Address at which the arguments end. */
	TD_FIELD_ARG_END = 116,
	/* Address at which the environment begins. */
	TD_FIELD_ENV_START = 117,
	/* Address at which the environment ends. */
	TD_FIELD_ENV_END = 118,
	/* Execution domain and flags of personality(2). */
	TD_FIELD_PERSONALITY = 119,
	/* Kernel function that it waits in. Empty if it does not wait, or if the kernel has no name
	 * for the function. */
	TD_FIELD_WCHAN = 120,
	/* Label of the security module: AppArmor's profile or SELinux's context. */
	TD_FIELD_SECURITY_LABEL = 121,
	/* Proportional set size: resident memory, with each page divided by the number of processes
	 * that map it. Without smaps_rollup (before 4.14) the sum over smaps loses up to 1 KiB for
	 * each mapping. */
	TD_FIELD_PSS_BYTES = 122,
	/* Unique set size: resident memory that no other process maps. */
	TD_FIELD_USS_BYTES = 123,
	/* The part of pss_bytes that is dirty. */
	TD_FIELD_PSS_DIRTY_BYTES = 124,
	/* The part of pss_bytes that is anonymous. */
	TD_FIELD_PSS_ANON_BYTES = 125,
	/* The part of pss_bytes that is page cache of files. */
	TD_FIELD_PSS_FILE_BYTES = 126,
	/* The part of pss_bytes that is shared memory and tmpfs. */
	TD_FIELD_PSS_SHMEM_BYTES = 127,
	/* Clean resident pages that are mapped more than once. */
	TD_FIELD_SHARED_CLEAN_BYTES = 128,
	/* Dirty resident pages that are mapped more than once. */
	TD_FIELD_SHARED_DIRTY_BYTES = 129,
	/* Clean resident pages that are mapped once. */
	TD_FIELD_PRIVATE_CLEAN_BYTES = 130,
	/* Dirty resident pages that are mapped once. */
	TD_FIELD_PRIVATE_DIRTY_BYTES = 131,
	/* Resident pages that are marked as referenced. */
	TD_FIELD_REFERENCED_BYTES = 132,
	/* Resident pages that belong to no file. */
	TD_FIELD_ANONYMOUS_BYTES = 133,
	/* Resident pages that are merged with equal ones (KSM). */
	TD_FIELD_KSM_BYTES = 134,
	/* Pages freed with MADV_FREE that the kernel has not reclaimed yet. */
	TD_FIELD_LAZYFREE_BYTES = 135,
	/* Anonymous memory in transparent huge pages. */
	TD_FIELD_ANON_HUGE_BYTES = 136,
	/* Shared memory mapped by huge pages. */
	TD_FIELD_SHMEM_HUGE_BYTES = 137,
	/* Page cache of files mapped by huge pages. */
	TD_FIELD_FILE_HUGE_BYTES = 138,
	/* Resident pages of hugetlbfs that are mapped more than once. No other sum includes them. */
	TD_FIELD_SHARED_HUGETLB_BYTES = 139,
	/* Resident pages of hugetlbfs that are mapped once. No other sum includes them. */
	TD_FIELD_PRIVATE_HUGETLB_BYTES = 140,
	/* Swapped-out memory, with each page divided by the number of processes that share it. */
	TD_FIELD_SWAP_PSS_BYTES = 141,
	/* Resident memory according to the page tables. rss_bytes is from the kernel's counters. */
	TD_FIELD_ROLLUP_RSS_BYTES = 142,
	/* Swapped-out memory according to the page tables. */
	TD_FIELD_ROLLUP_SWAP_BYTES = 143,
	/* The part of pss_bytes that is in locked mappings. */
	TD_FIELD_ROLLUP_LOCKED_BYTES = 144,
	/* Age of the values of this group at the end of the answer. Values of a process that shows no
	 * sign of change are kept for a while. */
	TD_FIELD_ROLLUP_AGE_NS = 145,
	/* Name of the effective user, from the user database of this host. The number if it has no
	 * name there. */
	TD_FIELD_USER = 146,
	/* Name of the effective group, from the user database of this host. The number if it has no
	 * name there. */
	TD_FIELD_GROUP = 147,
	/* Processor time in percent of the time since the task started. More than 100 if it used
	 * several processors. */
	TD_FIELD_CPU_PERCENT = 148,
	/* Resident memory in percent of the memory of this machine (MemTotal of /proc/meminfo). */
	TD_FIELD_MEM_PERCENT = 149,
	/* Time since the task started. Time in which the machine was suspended counts. */
	TD_FIELD_ELAPSED_NS = 150,
	/* When the task started, by the clock as it is set now: RFC 3339, in UTC and whole seconds. */
	TD_FIELD_START_TIME = 151,
	/* State as ps(1) shows it in STAT: the letter of state, then < high priority (nice < 0), N low
	 * priority (nice > 0), L has locked memory, s leads its session, l has several threads, + is
	 * in the foreground process group. */
	TD_FIELD_STAT = 152,
	/* Name of the controlling terminal, without /dev/. Empty if it has none. */
	TD_FIELD_TTY = 153,
	/* systemd unit of the system manager that it is in, by its cgroup. Empty if it is in none. */
	TD_FIELD_UNIT = 154,
	/* systemd unit of a user's manager that it is in, by its cgroup. Empty if it is in none. */
	TD_FIELD_USER_UNIT = 155,
	/* Innermost systemd slice that unit is in, by its cgroup. -.slice, the root slice, if its
	 * cgroup is in no other. */
	TD_FIELD_SLICE = 156,
	/* Id of the innermost container that it is in, by its cgroup. The name where the runtime has
	 * no ids (systemd-nspawn, LXC). Empty if it is in none. */
	TD_FIELD_CONTAINER_ID = 157,
	/* Name of that container, by its cgroup or by the runtime's files. Empty if it is in none. */
	TD_FIELD_CONTAINER_NAME = 158,
	/* Runtime of that container, by its cgroup or by the runtime's files: docker, containerd,
	 * cri-o, podman, systemd-nspawn or lxc. Empty if it is in none. */
	TD_FIELD_CONTAINER_RUNTIME = 159,
	/* UID of the Kubernetes pod that it is in, by its cgroup. Empty if it is in none. */
	TD_FIELD_POD_UID = 160,
	/* Its cgroup in each hierarchy, as the kernel prints it: a line for each, with the hierarchy's
	 * number, the controllers or the name of a version 1 hierarchy, and the path. */
	TD_FIELD_CGROUPS = 161,
	/* Since when the network fields count, as a time from boot: when counting began, or the
	 * process, whichever is later. At least 0, the zero of the reader's time namespace. */
	TD_FIELD_NET_SINCE_NS = 162,
	/* Payload that the process has sent through sockets of IP that lead to other machines. */
	TD_FIELD_NET_SENT_BYTES = 163,
	/* Payload that the process has received through sockets of IP that lead to other machines. */
	TD_FIELD_NET_RECEIVED_BYTES = 164,
	/* Calls by which the process has sent through sockets of IP that lead to other machines. */
	TD_FIELD_NET_SENT_COUNT = 165,
	/* Calls by which the process has received through sockets of IP that lead to other machines. */
	TD_FIELD_NET_RECEIVED_COUNT = 166,
	/* Payload that the process has sent through sockets of IP that lead to this machine. */
	TD_FIELD_LOOPBACK_SENT_BYTES = 167,
	/* Payload that the process has received through sockets of IP that lead to this machine. */
	TD_FIELD_LOOPBACK_RECEIVED_BYTES = 168,
	/* Calls by which the process has sent through sockets of IP that lead to this machine. */
	TD_FIELD_LOOPBACK_SENT_COUNT = 169,
	/* Calls by which the process has received through sockets of IP that lead to this machine. */
	TD_FIELD_LOOPBACK_RECEIVED_COUNT = 170,
	/* Payload that the process has sent through UNIX sockets. */
	TD_FIELD_UNIX_SENT_BYTES = 171,
	/* Payload that the process has received through UNIX sockets. */
	TD_FIELD_UNIX_RECEIVED_BYTES = 172,
	/* Calls by which the process has sent through UNIX sockets. */
	TD_FIELD_UNIX_SENT_COUNT = 173,
	/* Calls by which the process has received through UNIX sockets. */
	TD_FIELD_UNIX_RECEIVED_COUNT = 174,
	/* The part of net_sent_bytes that went over TCP. */
	TD_FIELD_NET_TCP_SENT_BYTES = 175,
	/* The part of net_received_bytes that went over TCP. */
	TD_FIELD_NET_TCP_RECEIVED_BYTES = 176,
	/* The part of net_sent_bytes that went over UDP. */
	TD_FIELD_NET_UDP_SENT_BYTES = 177,
	/* The part of net_received_bytes that went over UDP. */
	TD_FIELD_NET_UDP_RECEIVED_BYTES = 178,
	/* Number of seccomp filters, each of which looks at every system call. */
	TD_FIELD_SECCOMP_FILTERS_COUNT = 179,

	/* Fields of sockets: docs/sockets.md. */
	/* The family of its addresses: inet, inet6, unix, netlink, packet, vsock. */
	TD_SOCKET_FAMILY = 4096,
	/* stream, dgram, raw, seqpacket, packet (obsolete), other. */
	TD_SOCKET_TYPE = 4097,
	/* The protocol by its name, such as tcp, udp, icmp, or route of netlink, or by its number. */
	TD_SOCKET_PROTOCOL = 4098,
	/* The state, as ss(8) has it: ESTAB, LISTEN, UNCONN, TIME-WAIT and so on. */
	TD_SOCKET_STATE = 4099,
	/* The address that it is bound to; of vsock the number of the machine. */
	TD_SOCKET_LOCAL_ADDR = 4100,
	/* The port that it is bound to; of netlink the port id. */
	TD_SOCKET_LOCAL_PORT = 4101,
	/* The address that it is connected to. */
	TD_SOCKET_REMOTE_ADDR = 4102,
	/* The port that it is connected to. */
	TD_SOCKET_REMOTE_PORT = 4103,
	/* The network interface that it is bound to. */
	TD_SOCKET_INTERFACE = 4104,
	/* The name of a UNIX socket. An abstract name begins with @ in place of its first NUL; a path
	 * that begins with @ is written as ./@. */
	TD_SOCKET_PATH = 4105,
	/* The inode number of the UNIX socket at the other end. */
	TD_SOCKET_PEER_INODE = 4106,
	/* The inode number, which readlink(2) shows of its descriptors. */
	TD_SOCKET_INODE = 4107,
	/* The user who created it. */
	TD_SOCKET_UID = 4108,
	/* The inode number of its network namespace. */
	TD_SOCKET_NETNS = 4109,
	/* What was received and not read. */
	TD_SOCKET_RECV_QUEUE_BYTES = 4110,
	/* What was sent, and not confirmed or not taken by the other side. */
	TD_SOCKET_SEND_QUEUE_BYTES = 4111,
	/* Of a socket that listens: the number of connections that were not accepted. */
	TD_SOCKET_BACKLOG_COUNT = 4112,
	/* Of a socket that listens: the number of connections that can wait. */
	TD_SOCKET_BACKLOG_LIMIT_COUNT = 4113,
	/* The timer that runs, as ss(8) has it: on (sending again), keepalive, timewait, persist. */
	TD_SOCKET_TIMER = 4114,
	/* The time that is left of the timer. */
	TD_SOCKET_TIMER_NS = 4115,
	/* How often the timer has run out in a row. */
	TD_SOCKET_RETRANSMITS_COUNT = 4116,
	/* The mark of its packets (SO_MARK). It takes CAP_NET_ADMIN to see it. */
	TD_SOCKET_MARK = 4117,
	/* The id of the cgroup that it was created in. */
	TD_SOCKET_CGROUP_ID = 4118,
	/* TCP: the round trip time, smoothed. */
	TD_SOCKET_RTT_NS = 4119,
	/* TCP: how much the round trip time varies. */
	TD_SOCKET_RTT_VAR_NS = 4120,
	/* TCP: the shortest round trip time. */
	TD_SOCKET_MIN_RTT_NS = 4121,
	/* TCP: how long it waits for a confirmation before it sends again. */
	TD_SOCKET_RTO_NS = 4122,
	/* TCP: the length of what it sends in one packet. */
	TD_SOCKET_MSS_BYTES = 4123,
	/* TCP: the congestion window, in packets. */
	TD_SOCKET_CWND_COUNT = 4124,
	/* TCP: the slow start threshold, in packets. */
	TD_SOCKET_SSTHRESH_COUNT = 4125,
	/* TCP: packets that were sent and not confirmed. */
	TD_SOCKET_UNACKED_COUNT = 4126,
	/* TCP: packets that are thought to be lost. */
	TD_SOCKET_LOST_COUNT = 4127,
	/* TCP: packets that were sent again, in all. */
	TD_SOCKET_RETRANSMITTED_COUNT = 4128,
	/* TCP: what was sent, also again. */
	TD_SOCKET_SENT_BYTES = 4129,
	/* TCP: what was sent again. */
	TD_SOCKET_RETRANSMITTED_BYTES = 4130,
	/* TCP: what the other side has confirmed. */
	TD_SOCKET_ACKED_BYTES = 4131,
	/* TCP: what was received. */
	TD_SOCKET_RECEIVED_BYTES = 4132,
	/* TCP: what it was given and has not sent. */
	TD_SOCKET_NOTSENT_BYTES = 4133,
	/* TCP: how much arrived at the other side in a second. */
	TD_SOCKET_DELIVERY_RATE_BYTES = 4134,
	/* TCP: the algorithm of congestion control. */
	TD_SOCKET_CONGESTION = 4135,
	/* The descriptors of the socket at the other end: pids. */
	TD_SOCKET_PEER_PIDS = 4136,
	/* The descriptors of the socket at the other end: comms. */
	TD_SOCKET_PEER_COMMS = 4137,
	/* The descriptors of the socket at the other end: fds. */
	TD_SOCKET_PEER_FDS = 4138,
	/* The descriptors that processes have of it: pids. */
	TD_SOCKET_OWNER_PIDS = 4139,
	/* The descriptors that processes have of it: comms. */
	TD_SOCKET_OWNER_COMMS = 4140,
	/* The descriptors that processes have of it: fds. */
	TD_SOCKET_OWNER_FDS = 4141,
	/* Of IPv6, not connected: whether it takes IPv6 only (IPV6_V6ONLY), or IPv4 as well. */
	TD_SOCKET_IPV6_ONLY = 4142,
	/* Which directions are closed, by shutdown(2) or by the other side: receive, send, both; empty
	 * for none. */
	TD_SOCKET_SHUTDOWN = 4143,
	/* The numbers of the multicast groups that a netlink socket has joined. */
	TD_SOCKET_NETLINK_GROUPS = 4144,

	/* Fields of open files: docs/files.md. */
	/* The process. */
	TD_FILE_PID = 8192,
	/* The name of the process. */
	TD_FILE_COMM = 8193,
	/* What it has the file for: fd, cwd, root, exe, map. */
	TD_FILE_USE = 8194,
	/* The number of the descriptor. */
	TD_FILE_FD = 8195,
	/* What the file is: file, dir, char, block, fifo, socket, link, anon. */
	TD_FILE_KIND = 8196,
	/* What it is if it is anon: eventfd, epoll, timerfd, signalfd, inotify, pidfd, bpf, io_uring,
	 * userfaultfd, perf, dmabuf, other. */
	TD_FILE_ANON_KIND = 8197,
	/* What the descriptor was opened for: r, w, rw, path (O_PATH), ioctl (mode 3). */
	TD_FILE_ACCESS = 8198,
	/* The flags of open(2), with O_CLOEXEC if the descriptor is closed on execve(2). */
	TD_FILE_OPEN_FLAGS = 8199,
	/* Where the next read or write begins. */
	TD_FILE_OFFSET_BYTES = 8200,
	/* The length of the file. */
	TD_FILE_SIZE_BYTES = 8201,
	/* What the file occupies. */
	TD_FILE_ALLOCATED_BYTES = 8202,
	/* Major number of the device that the file is on, as stat(2) has it. */
	TD_FILE_DEV_MAJOR = 8203,
	/* Minor number of that device. */
	TD_FILE_DEV_MINOR = 8204,
	/* Inode number, as stat(2) has it. */
	TD_FILE_INODE = 8205,
	/* How many names the file has. */
	TD_FILE_NLINK = 8206,
	/* Whether it has no name: it was deleted, or never had one. */
	TD_FILE_DELETED = 8207,
	/* The mount that it was opened on, as in /proc/PID/mountinfo. */
	TD_FILE_MNT_ID = 8208,
	/* What readlink(2) says of /proc/PID/fd/FD: a path, with " (deleted)" if it is gone, or the
	 * kernel's word. */
	TD_FILE_NAME = 8209,
	/* The lines of /proc/PID/fdinfo/FD that not all files have. */
	TD_FILE_DETAIL = 8210,
	/* The effective user of the process, by name. */
	TD_FILE_USER = 8211,
	/* The descriptors at the other end of a pipe or a socket: pids. */
	TD_FILE_PEER_PIDS = 8212,
	/* The descriptors at the other end of a pipe or a socket: comms. */
	TD_FILE_PEER_COMMS = 8213,
	/* The descriptors at the other end of a pipe or a socket: fds. */
	TD_FILE_PEER_FDS = 8214,
	/* What kind of map, program or link of bpf(2) it is, as bpftool(8) has it: hash, array,
	 * tracing and so on. */
	TD_FILE_BPF_TYPE = 8215,
	/* The name that its creator gave a map or a program of bpf(2), of at most 15 bytes. */
	TD_FILE_BPF_NAME = 8216,
	/* The thread that has it for itself, and does not share it with the process. */
	TD_FILE_TID = 8217,

	/* Fields of mappings: docs/maps.md. */
	/* The process. */
	TD_MAP_PID = 12288,
	/* The first address. */
	TD_MAP_START = 12289,
	/* The first address behind it. */
	TD_MAP_END = 12290,
	/* Its length. */
	TD_MAP_SIZE_BYTES = 12291,
	/* Permissions as /proc/PID/maps has them: r, w, x, and p (private) or s (shared). */
	TD_MAP_PERMS = 12292,
	/* Where it begins in its file. */
	TD_MAP_OFFSET_BYTES = 12293,
	/* Major number of the device of its file; 0 without a file. */
	TD_MAP_DEV_MAJOR = 12294,
	/* Minor number of that device. */
	TD_MAP_DEV_MINOR = 12295,
	/* Inode number of its file; 0 without a file. */
	TD_MAP_INODE = 12296,
	/* The kernel's own text: a path, with " (deleted)" if it is gone, or a word in brackets. */
	TD_MAP_NAME = 12297,
	/* Build id of its file, in hexadecimal. */
	TD_MAP_BUILD_ID = 12298,
	/* Size of its pages. */
	TD_MAP_PAGE_SIZE_BYTES = 12299,
	/* What of it is in memory, without pages of hugetlbfs. */
	TD_MAP_RSS_BYTES = 12300,
	/* What of that is dirty. */
	TD_MAP_DIRTY_BYTES = 12301,
	/* What of it is in memory as pages of hugetlbfs. */
	TD_MAP_HUGETLB_BYTES = 12302,
	/* Build id that Go's linker wrote into its file, as `go tool buildid` has it. */
	TD_MAP_GO_BUILD_ID = 12303,

	/* Fields of the page cache of files: docs/pagecache.md. */
	/* The path, beginning with the one asked about. */
	TD_CACHE_PATH = 16384,
	/* The size of the file. */
	TD_CACHE_SIZE_BYTES = 16385,
	/* What of it is in the cache, in whole pages. */
	TD_CACHE_CACHED_BYTES = 16386,
	/* What of that was changed and not written to disk. Always 0 on tmpfs, which has no disk. */
	TD_CACHE_DIRTY_BYTES = 16387,
	/* What of it is being written to disk. */
	TD_CACHE_WRITEBACK_BYTES = 16388,
	/* What was in the cache, and was evicted because memory was short. */
	TD_CACHE_EVICTED_BYTES = 16389,
	/* What of that was evicted so recently that memory is too short for it. */
	TD_CACHE_RECENTLY_EVICTED_BYTES = 16390,

	/* Fields of events: docs/events.md. */
	/* What happened: fork, exec or exit. */
	TD_EVENT_EVENT = 20480,
	/* When it happened, since boot. */
	TD_EVENT_TIME_NS = 20481,
	/* Process id: the thread-group id. */
	TD_EVENT_PID = 20482,
	/* Thread id; in an event about a process, the process id. */
	TD_EVENT_TID = 20483,
	/* Whether it is about one thread, not about the process. */
	TD_EVENT_THREAD = 20484,
	/* Process id of the parent; 0 if the parent is not in the reader's pid namespace. */
	TD_EVENT_PPID = 20485,
	/* When the process, or the thread, started, since boot. Negative if it is older than the zero
	 * of the reader's time namespace; unsupported in clients whose numbers are unsigned. */
	TD_EVENT_START_NS = 20486,
	/* Real user id. */
	TD_EVENT_UID = 20487,
	/* Effective user id. */
	TD_EVENT_EUID = 20488,
	/* Name of the executable or thread: at most 15 bytes, of any value. For an exec: the new name. */
	TD_EVENT_COMM = 20489,
	/* Whether it is a kernel thread. */
	TD_EVENT_KERNEL_THREAD = 20490,
	/* Id of its cgroup in the unified (version 2) hierarchy. */
	TD_EVENT_CGROUP_ID = 20491,
	/* For a fork: the process that called it. It is also the parent, unless it called clone(2)
	 * with CLONE_PARENT. */
	TD_EVENT_CALLER_PID = 20492,
	/* For a fork: the thread that called it. */
	TD_EVENT_CALLER_TID = 20493,
	/* For an exec: the file name that was passed to execve(2), for a script the script's. Any
	 * bytes. */
	TD_EVENT_FILENAME = 20494,
	/* For an exit: the exit code, unless a signal killed the process. */
	TD_EVENT_EXIT_CODE = 20495,
	/* For an exit: the signal that killed the process, if one did. */
	TD_EVENT_TERM_SIGNAL = 20496,
	/* For an exit by a signal: whether the kernel wrote a core file. */
	TD_EVENT_CORE_DUMPED = 20497,
	/* For an exit: the time that this thread, or all threads of this process, spent on a
	 * processor. The time since the kernel last updated the value, at most a clock tick, is
	 * missing. */
	TD_EVENT_RUNTIME_NS = 20498,
	/* For the exit of a process: its peak resident memory, as in ru_maxrss of getrusage(2),
	 * including that from before exec. */
	TD_EVENT_PEAK_RSS_BYTES = 20499,
	/* For the exit of a process by a signal: whether the OOM killer had chosen it. Of processes
	 * that share their memory it kills all and chooses one. */
	TD_EVENT_OOM_KILLED = 20500,
	/* For the exit of a process: what it sent to other machines. */
	TD_EVENT_NET_SENT_BYTES = 20501,
	/* For the exit of a process: what it received from other machines. */
	TD_EVENT_NET_RECEIVED_BYTES = 20502,
	/* For the exit of a process: what it sent to this machine. */
	TD_EVENT_LOOPBACK_SENT_BYTES = 20503,
	/* For the exit of a process: what it received from this machine. */
	TD_EVENT_LOOPBACK_RECEIVED_BYTES = 20504,
	/* For the exit of a process: what it sent through UNIX sockets. */
	TD_EVENT_UNIX_SENT_BYTES = 20505,
	/* For the exit of a process: what it received through UNIX sockets. */
	TD_EVENT_UNIX_RECEIVED_BYTES = 20506
} td_field;
/* Made by clients/generate.py from the field table: end */

/* Bytes; data is never NULL. */
typedef struct td_text {
	const char *data;
	size_t len;
} td_text;

/* Numbers. */
typedef struct td_ids {
	const uint32_t *data;
	size_t len;
} td_ids;

/* The texts of a column: that of a row is from bytes + offsets[row] to bytes + offsets[row + 1]. */
typedef struct td_texts {
	const uint64_t *offsets;
	const char *bytes;
} td_texts;

/* The lists of a column: that of a row is from ids + offsets[row] to ids + offsets[row + 1]. */
typedef struct td_id_lists {
	const uint64_t *offsets;
	const uint32_t *ids;
} td_id_lists;

/* The version of the library that runs, such as "0.1.0". */
const char *td_version(void);

/*
 * Errors
 */

/* The code of an error; TD_OK of NULL. */
td_code td_error_code(const td_error *error);
/* The text of an error: one line of UTF-8 without control characters; "" of NULL. */
const char *td_error_message(const td_error *error);
void td_error_free(td_error *error);
/* A code in a few words, such as "no such task". */
const char *td_code_name(td_code code);

/*
 * Fields
 */

/* Puts the field with this name into *field. Fails with TD_INVALID_INPUT, and names near ones. */
td_code td_field_by_name(td_scope scope, const char *name, td_field *field, td_error **error);
/* The field behind this one, in the order of numbers; the first of 0, and 0 of the last. */
td_field td_field_next(td_field field);
/* The name and the meaning of a field; NULL if no field has this number. */
const char *td_field_name(td_field field);
const char *td_field_meaning(td_field field);
/* What the values of a field are; 0 if no field has this number. */
td_kind td_field_kind(td_field field);
td_type td_field_type(td_field field);
/* A reason in a few words, such as "no memory". */
const char *td_absent_name(td_absent reason);

/*
 * Handles
 *
 * A handle keeps what it has loaded: keep it. Making one is free.
 */

/* A handle that chooses itself whom it asks. */
td_handle *td_handle_new(void);
void td_handle_free(td_handle *handle);
/* Lets only one source answer: "bpf", "procfs" or "broker". "auto" is as if this was never called. */
td_code td_handle_source(td_handle *handle, const char *source, td_error **error);
/* The path of the broker's socket. Unless td_handle_source() names another source, only the broker
 * answers then. */
td_code td_handle_socket(td_handle *handle, const char *path, td_error **error);
/* How long one process may keep its reader waiting, in seconds: 0.2 if it is not said. */
td_code td_handle_patience(td_handle *handle, double seconds, td_error **error);
/* Loads the BPF programs that can answer a query of tasks, also its conditions and
 * td_query_only_changed(). This takes CAP_BPF and CAP_PERFMON.
 * If only the broker may answer, connects to it.
 * Without this they are loaded when they have become worth it. */
td_code td_handle_prepare(td_handle *handle, const td_query *query, td_error **error);

/*
 * Queries
 *
 * A query can be asked any number of times, with any handle.
 */

/* A query for all rows of a scope, so far without columns; NULL if there is no such scope. */
td_query *td_query_new(td_scope scope);
void td_query_free(td_query *query);
/* Asks for fields, besides those asked for before: names of fields or groups with commas between
 * them, or "all". Only what is asked for is read. */
td_code td_query_fields(td_query *query, const char *names, td_error **error);
/* The same by number. */
td_code td_query_field(td_query *query, td_field field, td_error **error);
/* Only rows for which an expression is true, such as "uid == 0 and rss_bytes > 100M"; of open files
 * only those of processes for which it is. A second one narrows the first; a query of sockets takes
 * one, and one of mappings, cached files or events none. */
td_code td_query_where(td_query *query, const char *expression, td_error **error);
/* Only these processes, or their threads, sockets or files. td_table_missing() has those that are
 * not there. A query of mappings takes one process. Called again, it replaces the processes. */
td_code td_query_pids(td_query *query, const uint32_t *pids, size_t len, td_error **error);
/* Only the children of a process; and theirs, too. Of processes, and of their sockets and files. A
 * query takes only one of td_query_pids() and these two. */
td_code td_query_children_of(td_query *query, uint32_t pid, td_error **error);
td_code td_query_descendants_of(td_query *query, uint32_t pid, td_error **error);
/* For queries of open files: only what processes have for these uses, with commas between them: "fd",
 * "cwd", "root", "exe", "map", or "all". Without this all but mapped files, and these, too, for
 * td_query_deleted() and td_query_path(). */
td_code td_query_uses(td_query *query, const char *names, td_error **error);
/* Only files of these kinds: "file", "dir", "char", "block", "fifo", "socket", "link", "anon", or one
 * of "eventfd", "epoll", "timerfd", "signalfd", "inotify", "pidfd", "bpf", "io_uring", "userfaultfd",
 * "perf", "dmabuf", "other". For queries of events: "fork", "exec", "exit". */
td_code td_query_kinds(td_query *query, const char *names, td_error **error);
/* Only files that have no name any more. */
td_code td_query_deleted(td_query *query, td_error **error);
/* Only the file that a path leads to, by whatever name; of a directory also what is below it; of one
 * where a file system is mounted all that is on that. Several calls let each of these through. The
 * path is looked up when the query is asked, which fails if it leads nowhere. A query of the page cache
 * takes paths, too: of files, and of directories for all regular files below them. */
td_code td_query_path(td_query *query, const char *path, td_error **error);
/* For queries of events: those of single threads, too. */
td_code td_query_threads(td_query *query, td_error **error);
/* Only tasks that have used processor time or started since the handle was last asked for such, or
 * the files of such processes; not for sockets. */
td_code td_query_only_changed(td_query *query, td_error **error);
/* How long one process may keep its reader waiting, in seconds. */
td_code td_query_patience(td_query *query, double seconds, td_error **error);
/* What sums of page tables (pss_bytes, uss_bytes ...) may cost: at most so many seconds (5 if it is
 * not said, INFINITY for no end), and none of processes with more memory than this (16 GiB,
 * UINT64_MAX for no limit). What does not fit is TD_ABSENT_OVER_BUDGET. Whatever the budget, a process
 * that shows no sign of change may have sums that the handle read up to 10 seconds ago: ask for
 * rollup_age_ns, or a new handle, which has none. */
td_code td_query_budget(td_query *query, double seconds, uint64_t max_rss_bytes, td_error **error);

/*
 * Asking
 *
 * If *table is NULL, a table is made for the answer. Otherwise it is a table whose memory is used
 * again; what it had is lost, also after an error, and then it has no rows.
 */

td_code td_ask(td_handle *handle, const td_query *query, td_table **table, td_error **error);
/* A query of fields, and of a condition unless that is NULL, asked once. */
td_code td_processes(td_handle *handle, const char *fields, const char *where, td_table **table, td_error **error);
td_code td_threads(td_handle *handle, const char *fields, const char *where, td_table **table, td_error **error);
td_code td_sockets(td_handle *handle, const char *fields, const char *where, td_table **table, td_error **error);
td_code td_files(td_handle *handle, const char *fields, const char *where, td_table **table, td_error **error);
/* The mappings of a process. Fails with TD_NO_SUCH_TASK, TD_DENIED, TD_NO_ANSWER, and TD_NO_MEMORY for
 * kernel threads and zombies. */
td_code td_maps(td_handle *handle, uint32_t pid, const char *fields, td_table **table, td_error **error);
/* The page cache of a file, or of all regular files below a directory. It waits for the file system,
 * however long that takes: patience is about processes. */
td_code td_cachestat(td_handle *handle, const char *path, const char *fields, td_table **table, td_error **error);

/*
 * Events
 *
 *	td_query *query = td_query_new(TD_EVENTS);
 *	td_query_kinds(query, "exec", NULL);
 *	td_query_fields(query, "pid,comm,filename", NULL);
 *	if (td_events_open(query, NULL, &events, &error) == TD_OK)
 *		while (td_events_next(events, INFINITY, &table, &error) == TD_OK)
 *			...
 */

/* Begins to watch for the events of a query, in the caller's pid namespace and those below, without
 * td_query_kinds() of all kinds. The source is "bpf" (CAP_BPF and CAP_PERFMON), "connector" (the proc
 * connector, CAP_NET_ADMIN before Linux 6.6), or NULL or "auto" for what works. */
td_code td_events_open(const td_query *query, const char *source, td_events **events, td_error **error);
/* Puts the events that have come since the last call into a table, as td_ask() does. If there are none
 * it waits, at most so many seconds or with INFINITY without end. It may wake up early: then, and in
 * the end, the table has no rows. Signals do not end the wait. The counter "lost" of the table says
 * how many events were lost since the beginning, at least. */
td_code td_events_next(td_events *events, double timeout, td_table **table, td_error **error);
/* A descriptor that poll(2) finds readable while there are events that td_events_next() has not
 * returned; for nothing else. The kernel may still be writing one: an event loop passes that the
 * timeout 0. -1 of NULL. */
int td_events_fd(const td_events *events);
void td_events_free(td_events *events);

/*
 * Tables
 *
 * Processes are in the order of their ids, threads and files of processes too; mappings in that of
 * addresses, cached files in that of paths, and the events of a process as they happened. Sockets of a network namespace are together.
 */

void td_table_free(td_table *table);
/* The number of rows. */
size_t td_table_len(const td_table *table);
/* The fields, in the order in which they were asked for, and how many these are. */
const td_field *td_table_fields(const td_table *table, size_t *len);
/* Processes that the query named and that are not there. */
const uint32_t *td_table_missing(const td_table *table, size_t *len);
/* Who answered for a field: "bpf", "procfs", "broker", "smaps_rollup" or "smaps"; about mappings
 * "procmap", too, about the page cache "cachestat" or "mincore", about events "bpf" or "connector".
 * NULL if nobody could, it was not asked for, or rows are sockets. */
const char *td_table_source(const td_table *table, td_field field);
/* A number that says what happened on the way, such as "hidden" or "deferred" (docs/output.md has the
 * names); `otherwise` if there is none of this name. */
uint64_t td_table_counter(const td_table *table, const char *name, uint64_t otherwise);

/*
 * Values of rows
 *
 * A row or a field that the table does not have is TD_ABSENT_NOT_ASKED. Whoever asks for a value of
 * another type than the field's gets what stands for a missing one.
 */

/* Why a value is missing; TD_PRESENT if it is not. */
td_absent td_absent_of(const td_table *table, size_t row, td_field field);
/* The number; `otherwise` if it is missing. td_u64() takes flags and letters, too. */
uint64_t td_u64(const td_table *table, size_t row, td_field field, uint64_t otherwise);
int64_t td_i64(const td_table *table, size_t row, td_field field, int64_t otherwise);
double td_f64(const td_table *table, size_t row, td_field field, double otherwise);
/* The bytes; none if it is missing, so look at td_absent_of(). */
td_text td_text_of(const td_table *table, size_t row, td_field field);
/* The list; empty if it is missing. */
td_ids td_ids_of(const td_table *table, size_t row, td_field field);
/* The 32 numbers of resource limits; NULL if they are missing. */
const uint64_t *td_limits_of(const td_table *table, size_t row, td_field field);
/* Takes the first text off a list of texts (cmdline, environ): puts it into *item and leaves the
 * others in *rest. False if there is none. */
bool td_text_next(td_text *rest, td_text *item);

/*
 * Columns
 *
 * A column has as many values as the table has rows. Those of rows without a value are 0 or empty
 * and mean nothing. NULL if the table has no such column, or one of another type.
 */

/* The reason of each row, as td_absent; 0 where there is a value. */
const uint8_t *td_column_absent(const td_table *table, td_field field);
/* How many values are missing. */
size_t td_column_absent_count(const td_table *table, td_field field);
const uint64_t *td_column_u64(const td_table *table, td_field field);
const int64_t *td_column_i64(const td_table *table, td_field field);
const double *td_column_f64(const td_table *table, td_field field);
const uint8_t *td_column_u8(const td_table *table, td_field field);
/* There is one offset more than there are rows. */
td_texts td_column_texts(const td_table *table, td_field field);
td_id_lists td_column_ids(const td_table *table, td_field field);
/* 32 numbers for each row. */
const uint64_t *td_column_limits(const td_table *table, td_field field);

#undef TD_ENUM
#ifdef __cplusplus
}
#endif

#endif
