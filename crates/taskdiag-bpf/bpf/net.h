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

#endif
