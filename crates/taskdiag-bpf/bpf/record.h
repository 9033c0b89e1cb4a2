/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the programs that read tasks share with the library. Most constants and structures are defined
 * once, in crates/taskdiag-core/src/record, from which `make records` makes record_gen.h.
 */
#ifndef TASKDIAG_RECORD_H
#define TASKDIAG_RECORD_H

#include "record_gen.h"

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
enum td_relation {
	TD_EQUAL,
	TD_NOT_EQUAL,
	TD_LESS,
	TD_LESS_OR_EQUAL,
	TD_GREATER,
	TD_GREATER_OR_EQUAL,
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
