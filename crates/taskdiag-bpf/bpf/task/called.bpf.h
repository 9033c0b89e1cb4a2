/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The program that the kernel calls for each task (TD_WALKS=0). */
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
 * Called by the kernel for each task. The iterator has a reference to the task, but its pid may
 * already lead to another task, as in visit() of walk.bpf.h. The iterator continues after this pid
 * number, so the program can't try again. The library does.
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
		struct td_record no_reader = { .len = sizeof(no_reader), .flags = TD_NO_READER };

		bpf_seq_write(seq, &no_reader, sizeof(no_reader));
		return 0;
	}
	/*
	 * Not a leader. A leader whose place another thread took in an exec after the iterator
	 * found it is EXIT_DEAD, and is read again.
	 */
	if (!reader->config.threads && task->pid != task->tgid && task->exit_state != EXIT_DEAD)
		return 0;
	identify_reader(reader, current);
	record = (void *)reader->scratch;
	pid = untrusted(task)->thread_pid;
	process = task_tgid_nr(reader, task);
	number = reader->config.threads ? task_tid_nr(reader, task) : process;
	len = number ? put_task(reader, record, 0, task, number, current) : 0;
	read_barrier(reader);
	if (!pid || task_of(reader, pid, reader->config.threads) != address(reader, task) || is_released(untrusted(task)))
		len = put_again(record, process);
	/*
	 * Checks the bounds again in a form that the verifier understands: clang optimizes the
	 * earlier checks away.
	 */
	barrier_var(len);
	if (!len || len > TD_RECORD_MAX)
		return 0;
	/*
	 * If the buffer is full, the kernel drops what was written, and calls the program for this
	 * task again at the next read.
	 */
	bpf_seq_write(seq, reader->scratch, len);
	return 0;
}

#endif
