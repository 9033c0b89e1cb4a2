/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The event: the bytes that describe one fork, exec or exit.
 *
 * The BPF programs write events to their ring buffer, and the library converts messages of the proc
 * connector to the same events. Everything is in host byte order; every structure is a multiple of
 * eight bytes long, without hidden padding. crates/taskdiag-core/src/event/wire.rs is the Rust side
 * of this file; tests/layout.rs compares the two.
 */
#ifndef TASKDIAG_EVENT_H
#define TASKDIAG_EVENT_H

enum td_event_kind {
	TD_EVENT_FORK = 1,
	TD_EVENT_EXEC = 2,
	TD_EVENT_EXIT = 3,
};

/* Flags of an event. */
#define TD_EVENT_THREAD (1u << 0)	 /* about one thread, not about a process */
#define TD_EVENT_KERNEL_THREAD (1u << 1) /* PF_KTHREAD */
#define TD_EVENT_CUT (1u << 2)		 /* the file name was too long and is left out */
#define TD_EVENT_CONNECTOR (1u << 3)	 /* from the proc connector, which sends fewer fields */
/* The process ended before the other fields could be read from /proc */
#define TD_EVENT_GONE (1u << 4)
#define TD_EVENT_NO_RUNTIME (1u << 5)	 /* the times of its threads could not be added up */
#define TD_EVENT_OOM_VICTIM (1u << 6)	 /* the OOM killer chose the process */
#define TD_EVENT_NET (1u << 7)		 /* struct td_net follows the exit */

struct td_event {
	__u32 len; /* of the whole event; its ring record may be longer */
	__u16 kind;
	__u16 flags;
	__u64 time_ns;	/* since boot */
	__u64 start_ns; /* since boot */
	__u64 cgroup_id; /* in the unified hierarchy; 0 if the kernel has no cgroups */
	__u32 pid;	/* thread-group id */
	__u32 tid;
	__u32 ppid;
	__u32 uid;
	__u32 euid;
	__u32 reserved;
	char comm[16];
};

struct td_event_fork {
	struct td_event event;
	/* The thread that called fork. With CLONE_PARENT, its process is not the parent */
	__u32 caller_pid, caller_tid;
};

struct td_event_exit {
	struct td_event event;
	__s32 status; /* as wait(2) reports it */
	__u32 page_bytes; /* 0: pages have the size of this machine's */
	__u64 runtime_ns; /* of all threads of a process, also of those that ended before */
	__u64 peak_rss_pages;
};

/*
 * The sizes of buffers for file names. Nearly all names fit the first, and all fit the second: the
 * kernel accepts PATH_MAX bytes.
 */
#define TD_EVENT_NAME 256
#define TD_EVENT_LONG_NAME (4096 + 8)

struct td_event_exec {
	struct td_event event;
	char filename[TD_EVENT_NAME]; /* without a NUL: `len` says where it ends */
};

struct td_event_long_exec {
	struct td_event event;
	char filename[TD_EVENT_LONG_NAME];
};

/* ---- between the library and its BPF programs ---- */

/*
 * The reader. A program that runs in the reader finds these facts. They become constants of the
 * programs that run in the processes whose events they write.
 */
struct td_event_reader {
	__u64 pid_ns;	   /* its pid namespace; 0 for the initial one */
	__u64 boottime_ns; /* the offset of its time namespace */
	__u32 level;	   /* of the pid namespace */
	__u32 threads;	   /* 1: also write events about threads */
};

struct td_event_state {
	struct td_event_reader reader;
	__u64 lost; /* events that did not fit into the ring */
};

#endif
