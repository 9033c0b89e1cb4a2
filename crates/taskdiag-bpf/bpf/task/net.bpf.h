/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Network traffic, if somebody counts it. */
#ifndef TASKDIAG_TASK_NET_BPF_H
#define TASKDIAG_TASK_NET_BPF_H

#include "../net.h"
#include "reader.bpf.h"

/*
 * A process without an entry has moved nothing, unless it has ended, or some could not be counted.
 * The time is one of the reader's time namespace.
 */
static __always_inline void put_net(struct td_reader *reader, struct task_struct *task, struct task_struct *standpoint)
{
	__s64 start = untrusted(task)->group_leader->start_boottime, since_ns;
	__s64 offset_ns = start_ns(task, standpoint) - task->start_boottime;
	struct td_net_key key = { start, task->tgid };
	struct td_net *counted = bpf_map_lookup_elem(&net, &key), *whole = net_of_all(), *out;

	if (!whole || (!counted && (whole->uncounted || !untrusted(task)->signal->live.counter)))
		return;
	out = attribute(reader, TD_ATTR_NET, sizeof(*out), 0);
	if (counted)
		__builtin_memcpy(out, counted, sizeof(*out));
	else
		__builtin_memset(out, 0, sizeof(*out));
	since_ns = ((__s64)whole->net_since_ns > start ? (__s64)whole->net_since_ns : start) + offset_ns;
	out->net_since_ns = since_ns < 0 ? 0 : since_ns;
}

#endif
