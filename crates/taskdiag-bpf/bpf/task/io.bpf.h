/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Input and output counters. */
#ifndef TASKDIAG_TASK_IO_BPF_H
#define TASKDIAG_TASK_IO_BPF_H

#include "reader.bpf.h"
#include "times.bpf.h"

#define IO_VALUES (sizeof(struct td_io) / sizeof(__u64))

/* Iterates over the threads of a process. The sums are in the payload of the next attribute. */
struct io_sums {
	struct td_reader *reader;
	struct list_head *node, *head;
};

/* task_io_accounting and td_io have the same values. They are read to the memory after the sums. */
static __always_inline long add_io_of(struct td_reader *reader, const void *accounting)
{
	__u64 *sums = next_payload(reader), *values = sums + IO_VALUES;

	if (bpf_probe_read_kernel(values, IO_VALUES * sizeof(*values), accounting))
		return 1;
#pragma unroll
	for (int i = 0; i < IO_VALUES; i++)
		sums[i] += values[i];
	return 0;
}

static long add_thread_io(__u32 index, struct io_sums *sums)
{
	struct list_head *node = sums->node, *next = 0;
	void *thread = (void *)node - bpf_core_field_offset(struct task_struct, thread_node);

	if (node == sums->head || bpf_core_read(&next, sizeof(next), &node->next) ||
	    add_io_of(sums->reader, thread + bpf_core_field_offset(struct task_struct, ioac)))
		return 1;
	sums->node = next;
	return 0;
}

/* do_io_accounting() of fs/proc/base.c. */
static __always_inline void put_io(struct td_reader *reader, struct task_struct *task)
{
	const void *own = (void *)task + bpf_core_field_offset(struct task_struct, ioac);
	struct signal_struct *signal = untrusted(task)->signal;
	struct io_sums sums = { .reader = reader };
	__u32 sequence;

	if (!bpf_core_field_exists(task->ioac.rchar) || !bpf_core_field_exists(task->ioac.read_bytes))
		return defer(reader, TD_GROUP_IO);
	__builtin_memset(next_payload(reader), 0, sizeof(struct td_io));
	sequence = stats_sequence(signal);
	read_barrier(reader);
	if (reader->config.threads || signal->nr_threads == 1) {
		add_io_of(reader, own);
	} else {
		if (signal->nr_threads > TD_THREADS_MAX)
			return defer(reader, TD_GROUP_IO);
		sums.head = (void *)signal + bpf_core_field_offset(struct signal_struct, thread_head);
		sums.node = signal->thread_head.next;
		add_steps(reader, bpf_loop(TD_THREADS_MAX + 1, add_thread_io, &sums, 0));
		if (sums.node != sums.head)
			return defer(reader, TD_GROUP_IO);
	}
	if (!reader->config.threads) {
		add_io_of(reader, (void *)signal + bpf_core_field_offset(struct signal_struct, ioac));
		read_barrier(reader);
		if (sequence & 1 || stats_sequence(signal) != sequence)
			return defer(reader, TD_GROUP_IO);
	}
	put_header(reader, TD_ATTR_IO, sizeof(struct td_io), 0);
}

#endif
