/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Network traffic, if somebody counts it. */
#ifndef TASKDIAG_TASK_NET_BPF_H
#define TASKDIAG_TASK_NET_BPF_H

#include "../net.h"
#include "reader.bpf.h"

static __always_inline void put_net(struct td_reader *reader, struct task_struct *task, struct task_struct *standpoint)
{
	__s64 start = untrusted(task)->group_leader->start_boottime;
	struct td_net_key key = { start, task->tgid };
	struct td_net *counted = bpf_map_lookup_elem(&net, &key), *whole = net_of_all();

	if (is_net_known(whole, counted, untrusted(task)))
		fill_net(attribute(reader, TD_ATTR_NET, sizeof(*whole), 0), whole, counted, start,
			 start_ns(task, standpoint) - task->start_boottime);
}

#endif
