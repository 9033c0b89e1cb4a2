/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Records, and what the programs share with the library. The constants and structures of records
 * are defined once, in crates/taskdiag-core/src/record/layout.rs, from which the build makes
 * record_layout.h: cargo run --package taskdiag-core --example record_h prints it.
 */
#ifndef TASKDIAG_RECORD_H
#define TASKDIAG_RECORD_H

#include "record_layout.h"

/* The groups that do not depend on the address space. */
#define TD_GROUPS_WITHOUT_MM                                                                                              \
	(TD_GROUP_BASE | TD_GROUP_TTY | TD_GROUP_CRED | TD_GROUP_GROUPS | TD_GROUP_CPU | TD_GROUP_FAULTS |               \
	 TD_GROUP_NAMESPACES | TD_GROUP_CGROUP | TD_GROUP_SIGNALS | TD_GROUP_LIMITS)

/* The groups of what a task loses when it ends, while the other threads of its process keep it. */
#define TD_GROUPS_OF_LIVE                                                                                                 \
	(TD_GROUP_MEM | TD_GROUP_NAMESPACES | TD_GROUP_PATHS | TD_GROUP_FDS | TD_GROUP_LAYOUT)

struct td_limits {
	struct td_limit limits[TD_LIMITS];
};

/*
 * The size of the memory for records. Attributes start within TD_SCRATCH_MASK, and none is longer
 * than the memory after it.
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
 * Limits for the time under RCU. If a process has more threads or a longer descriptor table, the
 * values that are summed over these are deferred.
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

enum td_relation {
	TD_EQUAL,
	TD_NOT_EQUAL,
	TD_LESS,
	TD_LESS_OR_EQUAL,
	TD_GREATER,
	TD_GREATER_OR_EQUAL,
};

/* What the library asks for. It is written before a pass. */
struct td_config {
	__u32 groups;
	__u32 threads;	   /* 1: a record for every thread; 0: one for every process */
	/* Not 0: only children of this process, whose id is one of the reader's pid namespace */
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
 * The number of tasks that are read together, so that the processor's waits for their memory
 * overlap.
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
	/* The work of this run: a visit is one step, plus some for what it iterates over */
	__u32 steps;
	__u32 check_every; /* steps between two looks at the clock */
	__u32 next_check;  /* the steps at which to look at the clock next */
	/* How long a run may keep RCU waiting; it ends when the clock shows more */
	__u64 max_run_ns;
	__u64 run_start_ns;
	__u64 longest_run_ns;
	__u64 root;	  /* of the pid IDR */
	__u64 head, node; /* of the thread list of a process */
	/*
	 * The task whose memory, files and namespaces are read: the visited one or, if that is the
	 * first thread of a process and has ended, another thread
	 */
	__u64 live;
	__u64 live_node; /* in the thread list: the next one that may be it */
	__u64 slots[TD_BLOCK];
	__u64 pids[TD_BLOCK]; /* the struct pid through which each task was found */
	__u64 tasks[TD_BLOCK];
	__u32 cursors[TD_BLOCK]; /* `cursor` once that task was visited */
	__u32 list[TD_LISTED];
};

/* The memory counters of a process while they are being summed. */
struct td_counters {
	__s64 pages[4];
	__s64 central[4];	/* without the per-processor parts */
	__s64 central_again[4]; /* the same, read after the parts */
	__s64 previous[4];	/* the sums of the previous attempt */
	__u64 parts[4];		/* the per-processor pointers */
	__u32 is_stable;	/* no part was moved to the central counter in between */
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
	__u32 dumpable; /* of td_access */
	__u32 reserved;
	struct td_counters counters;
	/* The per-processor pointer that `offsets` were computed from; 0 if not yet */
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

/* The processor time of a task when it was last visited. */
struct td_seen {
	__u64 start;
	__u64 runtime; /* of all threads, including those that have ended */
	__u32 epoch;
	__u32 reserved;
};

#endif
