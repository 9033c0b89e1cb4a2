/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The IDR of a pid namespace, which maps each pid number to its struct pid. Read it under RCU. */
#ifndef TASKDIAG_PID_IDR_BPF_H
#define TASKDIAG_PID_IDR_BPF_H

#include "compat.bpf.h"

/* XA_CHUNK_SIZE of include/linux/xarray.h, unless CONFIG_BASE_SMALL is set. */
#define SLOTS_SHIFT 6
#define SLOTS (1 << SLOTS_SHIFT)

static __always_inline struct pid_namespace *active_pid_ns(struct pid *pid)
{
	struct pid_namespace *ns = 0;

	bpf_probe_read_kernel(&ns, sizeof(ns),
			      (void *)pid->numbers + pid->level * sizeof(struct upid) + bpf_core_field_offset(struct upid, ns));
	return ns;
}

/*
 * The root of the current task's IDR. It is valid only until the RCU read section ends: the IDR
 * gets another root when its height changes.
 */
static __always_inline __u64 pid_idr_root(void)
{
	struct task_struct *current = untrusted(bpf_get_current_task_btf());

	return (__u64)BPF_CORE_READ(active_pid_ns(current->thread_pid), idr.idr_rt.xa_head);
}

static __always_inline __u64 xa_slot(__u64 node, __u32 index)
{
	__u64 entry = 0;

	bpf_probe_read_kernel(&entry, sizeof(entry),
			      (void *)(node + bpf_core_field_offset(struct xa_node, slots) + (index & (SLOTS - 1)) * sizeof(entry)));
	return entry;
}

/* Whether an entry is a pointer: it is not empty, xa_is_value() or xa_is_internal(). */
static __always_inline bool xa_is_pointer(__u64 entry)
{
	return entry && !(entry & 3);
}

/*
 * Finds the leaf with the slot of a number, as xas_descend() of lib/xarray.c does; 0 if there is
 * none. Sets `end` to the number after the last one of that leaf, or of the gap in its place; 0 if
 * no leaf follows.
 */
static __noinline __attribute__((unused)) __u64 pid_idr_leaf(__u64 root, __u32 number, __u32 *end)
{
	__u64 entry = root, node;
	__u8 shift = 0;
	__u32 level;

	*end = 0;
#pragma nounroll
	for (level = 0; level < 6; level++) {
		/* xa_is_node() */
		if ((entry & 3) != 2 || entry < 4096)
			break;
		node = entry & ~3ull;
		if (bpf_probe_read_kernel(&shift, 1, (void *)(node + bpf_core_field_offset(struct xa_node, shift))))
			break;
		if (shift > 30 - SLOTS_SHIFT || (level == 0 && number >> shift >> SLOTS_SHIFT))
			break;
		if (shift == 0) {
			*end = (number | (SLOTS - 1)) + 1;
			return node;
		}
		*end = ((number >> shift) + 1) << shift;
		entry = xa_slot(node, number >> shift);
	}
	return 0;
}

#endif
