/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Writing the record of a task. */
#ifndef TASKDIAG_TASK_RECORD_BPF_H
#define TASKDIAG_TASK_RECORD_BPF_H

#include "access.bpf.h"
#include "cred.bpf.h"
#include "files.bpf.h"
#include "identity.bpf.h"
#include "io.bpf.h"
#include "memory.bpf.h"
#include "namespaces.bpf.h"
#include "net.bpf.h"
#include "paths.bpf.h"
#include "reader.bpf.h"
#include "signals.bpf.h"
#include "tests.bpf.h"
#include "times.bpf.h"

/* Finds out the pid namespace of the reader. */
static __always_inline void identify_reader(struct td_reader *reader, struct task_struct *current)
{
	reader->level = current->thread_pid->level;
	reader->pid_ns = 0;
	if (current->thread_pid->level)
		reader->pid_ns = (__u64)active_pid_ns(current->thread_pid);
}

/*
 * The address of the task that a pid leads to: as a thread id or, without `thread`, as a process
 * id. 0 if there is none.
 */
static __always_inline __u64 task_of(struct td_reader *reader, struct pid *pid, bool thread)
{
	__u64 offset = bpf_core_field_offset(struct task_struct, pid_links), link;

	if (thread) {
		link = address(reader, BPF_CORE_READ(pid, tasks[PIDTYPE_PID].first));
	} else {
		link = address(reader, BPF_CORE_READ(pid, tasks[PIDTYPE_TGID].first));
		offset += PIDTYPE_TGID * bpf_core_type_size(struct hlist_node);
	}
	return link ? link - offset : 0;
}

/*
 * Whether a task is being released, or the last thread of its process was. Its pids are detached a
 * moment later, so some values may already be missing.
 */
static __always_inline bool is_released(struct task_struct *task)
{
	return *(volatile int *)&task->exit_state == EXIT_DEAD || !*(volatile int *)&task->signal->nr_threads;
}

/*
 * Writes a record that tells the library to read the process again in another way, because the pid
 * led to another task during the read.
 */
static __always_inline __u32 put_again(struct td_record *record, __u32 process)
{
	record->len = sizeof(*record);
	record->flags = TD_AGAIN;
	record->pid = process;
	record->tid = process;
	record->start_ns = 0;
	return sizeof(*record);
}

/*
 * Each part of a record is a separate function, so that the verifier does not combine the paths
 * through one part with those through all others. In a walk these are global functions, which the
 * verifier checks separately and once. Their arguments can only be numbers, so they use
 * `own_reader`.
 */
#if TD_WALKS

/* An untrusted pointer to the task at an address. */
static __always_inline struct task_struct *task_at(__u64 address)
{
	return bpf_rdonly_cast((void *)address, bpf_core_type_id_kernel(struct task_struct));
}

/* The task whose namespaces and root the record uses: the reader, or td_config.as_task. */
static __always_inline struct task_struct *standpoint(struct td_reader *reader)
{
	if (reader->config.as_task)
		return bpf_rdonly_cast((void *)reader->config.as_task, bpf_core_type_id_kernel(struct task_struct));
	return untrusted(bpf_get_current_task_btf());
}

#define PART(name, of_groups, put)                                                                                        \
	__noinline int name(__u64 at)                                                                                     \
	{                                                                                                                 \
		struct td_reader *reader = &own_reader;                                                                   \
		struct task_struct *task = task_at(at);                                                                   \
                                                                                                                          \
		if (td_groups & (of_groups))                                                                              \
			put;                                                                                              \
		return 0;                                                                                                 \
	}
#define PUT(part) part(at)
#define PUT_LIVE(part) part(*(volatile __u64 *)&reader->walk.live)

static long look_for_live(__u32 index, void *head)
{
	struct td_reader *reader = &own_reader;
	struct task_struct *thread;

	if (reader->walk.live_node == *(__u64 *)head)
		return 1;
	thread = task_at(reader->walk.live_node - bpf_core_field_offset(struct task_struct, thread_node));
	if (own_mm(thread)) {
		reader->walk.live = address(reader, thread);
		return 1;
	}
	reader->walk.live_node = address(reader, thread->thread_node.next);
	return 0;
}

/* Finds a thread of a process that has memory. */
__noinline int find_live(__u64 at)
{
	struct td_reader *reader = &own_reader;
	struct signal_struct *signal = task_at(at)->signal;
	__u64 head = address(reader, signal) + bpf_core_field_offset(struct signal_struct, thread_head);

	reader->walk.live_node = address(reader, signal->thread_head.next);
	add_steps(reader, (__u32)bpf_loop(TD_THREADS_MAX + 1, look_for_live, &head, 0) / 8);
	return 0;
}

#else

static __always_inline struct task_struct *standpoint(struct td_reader *reader)
{
	return untrusted(bpf_get_current_task_btf());
}

#define PART(name, of_groups, put)                                                                                        \
	static __noinline int name(struct td_reader *reader, struct task_struct *task)                                    \
	{                                                                                                                 \
		put;                                                                                                      \
		return 0;                                                                                                 \
	}
#define PUT(part) part(reader, task)
#define PUT_LIVE(part) PUT(part)

#endif

/* Whether this is the first thread of a process, which has ended, and other threads are left. */
static __always_inline bool is_survived(struct td_reader *reader, struct task_struct *task)
{
	return !reader->config.threads && !untrusted(task)->mm && !(task->flags & PF_KTHREAD) &&
	       untrusted(task)->signal->nr_threads > 1;
}

PART(part_access, TD_GROUP_ACCESS, begin_access(reader, task))
PART(part_view, TD_GROUP_VIEW, put_view(reader, task))
PART(part_base, TD_GROUP_BASE, put_base(reader, task))
PART(part_tty, TD_GROUP_TTY, put_tty(reader, task))
PART(part_cred, TD_GROUP_CRED, put_cred(reader, task))
PART(part_groups, TD_GROUP_GROUPS, put_groups(reader, task))
PART(part_sums, TD_GROUP_CPU | TD_GROUP_FAULTS, put_sums(reader, task))
PART(part_mem, TD_GROUP_MEM, put_mem(reader, task))
PART(part_run, TD_GROUP_ARGS, put_run(reader, task))
PART(part_oom, TD_GROUP_OOM, put_oom(reader, task))
PART(part_namespaces, TD_GROUP_NAMESPACES, put_namespaces(reader, task))
PART(part_nspids, TD_GROUP_NAMESPACES, put_nspids(reader, task))
PART(part_cgroup, TD_GROUP_CGROUP, put_cgroup(reader, task, standpoint(reader)))
PART(part_io, TD_GROUP_IO, put_io(reader, task))
PART(part_signals, TD_GROUP_SIGNALS, put_signals(reader, task))
PART(part_limits, TD_GROUP_LIMITS, put_limits(reader, task))
PART(part_paths, TD_GROUP_PATHS, put_paths(reader, task, standpoint(reader)))
PART(part_fds, TD_GROUP_FDS, put_fds(reader, task))
PART(part_audit, TD_GROUP_AUDIT, put_audit(reader, task))
PART(part_layout, TD_GROUP_LAYOUT, put_layout(reader, task))
PART(part_personality, TD_GROUP_LAYOUT, put_personality(reader, task))
PART(part_net, TD_GROUP_NET, put_net(reader, task, standpoint(reader)))
PART(part_tests, TD_TESTABLE, return passes_tests(reader, task))
#if TD_WALKS
PART(part_changed, TD_TESTABLE, return has_changed(reader, task))
#endif

/*
 * Whether what other threads of a process have is left to procfs: by a program that can't look for
 * them, and for the broker. Another thread may be somebody else's, so the client reads it by its own
 * rights.
 */
static __always_inline bool leaves_live(struct td_reader *reader)
{
	return !TD_WALKS || reader->config.groups & TD_GROUP_ACCESS;
}

/*
 * Writes the record of a task, `filled` bytes after the start of scratch. Returns its length, or 0
 * if the task is not asked for. `number` is its thread id or process id in the reader's pid
 * namespace.
 */
static __always_inline __u32 put_task(struct td_reader *reader, struct td_record *record, __u32 filled,
				      struct task_struct *task, __u32 number, struct task_struct *current)
{
	__u32 groups = reader->config.groups, len;
#if TD_WALKS
	__u64 at = address(reader, task);
#endif

	if (reader->config.ppid && reader->config.ppid != task_tgid_nr(reader, untrusted(task)->real_parent))
		return 0;
	if (td_groups & TD_TESTABLE && reader->config.tests_count && !PUT(part_tests))
		return 0;
#if TD_WALKS
	if (td_groups & TD_TESTABLE && reader->config.changed && !PUT(part_changed))
		return 0;
#endif

	reader->used = filled + sizeof(*record);
	reader->deferred = 0;
#if TD_WALKS
	reader->walk.live = at;
#endif
	if (is_survived(reader, task)) {
		if (leaves_live(reader)) {
			defer(reader, groups & TD_GROUPS_OF_LIVE);
			groups &= ~TD_GROUPS_OF_LIVE;
		}
#if TD_WALKS
		else
			find_live(at);
#endif
	}
	record->flags = 0;
	record->pid = reader->config.threads ? task_tgid_nr(reader, task) : number;
	record->tid = number;
	record->start_ns = start_ns(task, current);
	if (task->flags & PF_KTHREAD)
		record->flags |= TD_KERNEL_THREAD;

	if (td_groups & groups & TD_GROUP_ACCESS)
		PUT(part_access);
	if (td_groups & groups & TD_GROUP_VIEW)
		PUT(part_view);
	if (td_groups & groups & TD_GROUP_BASE)
		PUT(part_base);
	if (td_groups & groups & TD_GROUP_TTY)
		PUT(part_tty);
	if (td_groups & groups & TD_GROUP_CRED)
		PUT(part_cred);
	if (td_groups & groups & TD_GROUP_GROUPS)
		PUT(part_groups);
	if (td_groups & groups & (TD_GROUP_CPU | TD_GROUP_FAULTS))
		PUT(part_sums);
	if (td_groups & groups & TD_GROUP_MEM)
		PUT_LIVE(part_mem);
	if (td_groups & groups & TD_GROUP_ARGS)
		PUT(part_run);
	if (td_groups & groups & TD_GROUP_OOM)
		PUT_LIVE(part_oom);
	if (td_groups & groups & TD_GROUP_NAMESPACES) {
		PUT_LIVE(part_namespaces);
		PUT(part_nspids);
	}
	if (td_groups & groups & TD_GROUP_CGROUP)
		PUT(part_cgroup);
	if (td_groups & groups & TD_GROUP_IO)
		PUT(part_io);
	if (td_groups & groups & TD_GROUP_SIGNALS)
		PUT(part_signals);
	if (td_groups & groups & TD_GROUP_LIMITS)
		PUT(part_limits);
	if (td_groups & groups & TD_GROUP_PATHS)
		PUT_LIVE(part_paths);
	if (td_groups & groups & TD_GROUP_FDS)
		PUT_LIVE(part_fds);
	if (td_groups & groups & TD_GROUP_AUDIT)
		PUT(part_audit);
	if (td_groups & groups & TD_GROUP_LAYOUT) {
		PUT_LIVE(part_layout);
		PUT(part_personality);
	}
	if (td_groups & groups & TD_GROUP_NET)
		PUT(part_net);
	if (td_groups & groups & TD_GROUP_ACCESS)
		end_access(reader, record, task);
#if TD_WALKS
	task = task_at(*(volatile __u64 *)&reader->walk.live);
#endif
	if (reader->deferred) {
		struct td_defer *out = attribute(reader, TD_ATTR_DEFER, sizeof(*out), 0);

		out->groups = reader->deferred;
		out->reserved = 0;
		record->flags |= TD_DEFERRED;
	}
	/*
	 * Checked last, because it explains missing values. An mm that is gone does not come
	 * back.
	 */
	if (!own_mm(task) && !(leaves_live(reader) && is_survived(reader, task)))
		record->flags |= TD_NO_MM;
#if TD_WALKS
	/* The thread that was read has ended. Another may have what it had. */
	if (record->flags & TD_NO_MM && *(volatile __u64 *)&reader->walk.live != at)
		return put_again(record, record->pid);
#endif
	len = *(volatile __u32 *)&reader->used - filled;
	record->len = len;
	return len > TD_RECORD_MAX ? 0 : len;
}

#endif
