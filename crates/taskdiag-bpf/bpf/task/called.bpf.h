/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel calls the program for each task (TD_WALKS=0).
 */
#ifndef TASKDIAG_TASK_CALLED_BPF_H
#define TASKDIAG_TASK_CALLED_BPF_H

#include "record.bpf.h"

static __always_inline struct td_reader *find_reader(struct task_struct *current)
{
	struct pid *pid = current->thread_pid;
	struct td_reader_key key = {};
	struct upid upid;

	if (bpf_probe_read_kernel(&upid, sizeof(upid), (void *)pid->numbers + pid->level * sizeof(upid)))
		return 0;
	key.pid_ns = BPF_CORE_READ(upid.ns, ns.inum);
	key.tid = upid.nr;
	return bpf_map_lookup_elem(&readers, &key);
}

/*
 * Called by the kernel for each task. It has a reference to the task, but the number may be another one's by now: see visit(). Here the
 * number is not looked up again, for the iterator goes on behind it; the library asks about it.
 */
static __always_inline int write_records(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task, *current;
	struct seq_file *seq = ctx->meta->seq;
	struct td_reader *reader;
	struct td_record *record;
	struct pid *pid;
	__u32 number, process, len;

	if (!task)
		return 0;
	current = untrusted(bpf_get_current_task_btf());
	reader = find_reader(current);
	if (!reader) {
		struct td_record complaint = { .len = sizeof(complaint), .flags = TD_NO_READER };

		bpf_seq_write(seq, &complaint, sizeof(complaint));
		return 0;
	}
	/* The first thread of a process that another one took the place of has its number. */
	if (!reader->config.threads && task->pid != task->tgid && task->exit_state != EXIT_DEAD)
		return 0;
	look_at(reader, current);
	record = (void *)reader->scratch;
	pid = untrusted(task)->thread_pid;
	process = task_tgid_nr(reader, task);
	number = reader->config.threads ? task_tid_nr(reader, task) : process;
	len = number ? put_task(reader, record, 0, task, number, current) : 0;
	read_barrier(reader);
	if (!pid || task_of(reader, pid, reader->config.threads) != address(reader, task) || is_released(untrusted(task)))
		len = put_again(record, process);
	/* Once more in the verifier's words: clang makes a sum of the test behind it. */
	barrier_var(len);
	if (!len || len > TD_RECORD_MAX)
		return 0;
	/* Where the buffer is full, the kernel drops what we wrote and calls again for this task at the next read. */
	bpf_seq_write(seq, reader->scratch, len);
	return 0;
}

#endif
