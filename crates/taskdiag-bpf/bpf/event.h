/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The event: how one fork, exec or exit looks in bytes.
 *
 * The BPF programs write events into their ring buffer, the proc connector's messages are turned into the same ones. In host
 * byte order; every structure is a multiple of eight bytes long and has no hidden padding. `src/events/wire.rs` is the Rust
 * side of this file; its layout tests compare the two.
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
#define TD_EVENT_CUT (1u << 2)		 /* the file name is longer than there was room for */
#define TD_EVENT_CONNECTOR (1u << 3)	 /* from the proc connector, which knows less */
#define TD_EVENT_GONE (1u << 4)		 /* and /proc did not have the rest any more */

struct td_event {
	__u32 len; /* of the whole event, behind which its ring record may have unused bytes */
	__u16 kind;
	__u16 flags;
	__u64 time_ns;	/* since boot */
	__u64 start_ns; /* since boot */
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
	__u32 caller_pid, caller_tid; /* the thread that called fork; not the parent where that asked for its own */
};

struct td_event_exit {
	struct td_event event;
	__s32 status; /* as wait(2) reports it */
	__u32 reserved;
	__u64 runtime_ns;
	__u64 peak_rss_pages;
};

/* Room for file names. Nearly all fit into the first, and all into the second: the kernel takes PATH_MAX, a NUL included. */
#define TD_EVENT_NAME 256
#define TD_EVENT_LONG_NAME (4096 + 8)

struct td_event_exec {
	struct td_event event;
	char filename[TD_EVENT_NAME]; /* without a NUL: `len` tells where it ends */
};

struct td_event_long_exec {
	struct td_event event;
	char filename[TD_EVENT_LONG_NAME];
};

/*
 * ---- between the library and its BPF programs ----
 */

/* Who reads. Found out by a program that runs in the reader, and made a constant of those that run in others. */
struct td_event_reader {
	__u64 pid_ns;	   /* its pid namespace; 0 for the initial one */
	__u64 boottime_ns; /* what its time namespace adds to times since boot */
	__u32 level;	   /* of the pid namespace */
	__u32 threads;	   /* 1: events about threads too */
};

struct td_event_state {
	struct td_event_reader reader;
	__u64 lost; /* events that there was no room for */
};

#endif
