/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel's tree of process numbers: for each number of a pid namespace its struct pid. To be read under RCU.
 */
#ifndef TASKDIAG_NUMBERS_BPF_H
#define TASKDIAG_NUMBERS_BPF_H

#include "compat.bpf.h"

/* XA_CHUNK_SIZE of include/linux/xarray.h, on all but the smallest kernels. */
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
 * The root of the tree for who runs the program. To be found anew in each stretch under RCU: the tree gets another one when numbers
 * become longer, and loses it when no long ones are left.
 */
static __always_inline __u64 root_of_numbers(void)
{
	struct task_struct *current = untrusted(bpf_get_current_task_btf());

	return (__u64)BPF_CORE_READ(active_pid_ns(current->thread_pid), idr.idr_rt.xa_head);
}

static __always_inline __u64 slot(__u64 node, __u32 index)
{
	__u64 entry = 0;

	bpf_probe_read_kernel(&entry, sizeof(entry),
			      (void *)(node + bpf_core_field_offset(struct xa_node, slots) + (index & (SLOTS - 1)) * sizeof(entry)));
	return entry;
}

/*
 * The leaf with the slot of a number, as xas_descend() of lib/xarray.c finds it; 0 if there is none. `behind` becomes the first number
 * that is not in that leaf, or in the gap in its place; 0 if no more follow.
 */
static __noinline __attribute__((unused)) __u64 leaf_of_numbers(__u64 root, __u32 number, __u32 *behind)
{
	__u64 entry = root, node;
	__u8 shift = 0;
	__u32 level;

	*behind = 0;
#pragma nounroll
	for (level = 0; level < 6; level++) {
		/* Pointers to nodes are marked. */
		if ((entry & 3) != 2 || entry < 4096)
			break;
		node = entry & ~3ull;
		if (bpf_probe_read_kernel(&shift, 1, (void *)(node + bpf_core_field_offset(struct xa_node, shift))))
			break;
		if (shift > 30 - SLOTS_SHIFT || (level == 0 && number >> shift >> SLOTS_SHIFT))
			break;
		if (shift == 0) {
			*behind = (number | (SLOTS - 1)) + 1;
			return node;
		}
		*behind = ((number >> shift) + 1) << shift;
		entry = slot(node, number >> shift);
	}
	return 0;
}

#endif
