/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The table of network traffic, which one program fills and another reads. */
#ifndef TASKDIAG_NET_H
#define TASKDIAG_NET_H

#include "record.h"

/*
 * A process. Its start tells it from another with its id. The entry without an id is about the
 * counting: when it began, and what could not be counted.
 */
struct td_net_key {
	__u64 start_ns;
	__u64 pid;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct td_net_key);
	__type(value, struct td_net);
} net SEC(".maps");

/* The entry about the counting. There is none if nobody counts. */
static __always_inline struct td_net *net_of_all(void)
{
	struct td_net_key key = {};

	return bpf_map_lookup_elem(&net, &key);
}

/*
 * Whether it is known what the process of a thread moved. One without an entry has moved nothing,
 * unless some could not be counted, or the entry is gone because the process is.
 */
static __always_inline bool is_net_known(struct td_net *whole, struct td_net *counted, struct task_struct *task)
{
	return whole && (counted || (!whole->uncounted && task->group_leader->sighand));
}

/* Writes it. `start` and the offset of the reader's time namespace are in nanoseconds. */
static __always_inline void fill_net(struct td_net *out, struct td_net *whole, struct td_net *counted, __s64 start, __s64 offset)
{
	__s64 since;

	if (counted)
		__builtin_memcpy(out, counted, sizeof(*out));
	else
		__builtin_memset(out, 0, sizeof(*out));
	since = ((__s64)whole->net_since_ns > start ? (__s64)whole->net_since_ns : start) + offset;
	out->net_since_ns = since < 0 ? 0 : since;
}

#endif
