/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The mappings of one process. */
#ifndef TASKDIAG_VMA_ADDRESS_SPACE_BPF_H
#define TASKDIAG_VMA_ADDRESS_SPACE_BPF_H

#include "mapping.bpf.h"
#include "tree.bpf.h"

static long put_slot(__u32 index, void *nothing)
{
	__u64 vma = SLOT(walk.leaf, maple_range_64, walk.slot + index);

	/* A gap, or not a pointer. */
	if (vma < FIRST_POINTER || vma & 3)
		return 0;
	/* A continued read may start in the middle of a leaf. */
	if (walk.from && AT(vm_area_struct, vma)->vm_end <= walk.from)
		return 0;
	if (put_mapping(vma))
		return 0;
	walk.from = AT(vm_area_struct, vma)->vm_start;
	walk.state = TD_VMA_GOES_ON;
	return 1;
}

/* Reads the next leaf: all its slots, or the slot of the next address. Addresses are ascending. */
static long put_leaf(__u32 index, void *nothing)
{
	__u64 address = walk.looked_up, place, end;

	walk.slot = 0;
	walk.slots_count = 0;
	if (walk.op == TD_VMA_LOOK_UP) {
		if (index >= walk.count) {
			walk.state = TD_VMA_ENDED;
			return 1;
		}
		address = walk.addresses[index & (TD_VMA_ADDRESSES - 1)];
		if (address < walk.looked_up)
			return 0;
	} else if (!walk.leaves) {
		walk.from = walk.looked_up;
		walk.state = TD_VMA_GOES_ON;
		return 1;
	} else {
		walk.leaves--;
	}
	if (!walk.has_leaf || walk.leaf_max < address || walk.op != TD_VMA_LOOK_UP) {
		walk.has_leaf = 0;
		if (!find_leaf(address)) {
			walk.state = TD_VMA_CHANGED;
			return 1;
		}
		walk.has_leaf = 1;
	}
	end = walk.leaf_end;
	walk.looked_up = walk.leaf_max == ~0ull ? walk.leaf_max : walk.leaf_max + 1;
	if (walk.op == TD_VMA_LOOK_UP) {
		SLOT_FOR(place, walk.leaf, maple_range_64, 15, end, address);
		walk.slot = place;
		walk.slots_count = 1;
		/* The end of the mapping or gap. */
		if (place < end)
			walk.looked_up = PIVOT(walk.leaf, maple_range_64, place) + 1;
	} else {
		walk.slots_count = end + 1;
#pragma unroll
		for (int i = 0; i < 16; i++) {
			struct vm_area_struct *vma = AT(vm_area_struct, SLOT(walk.leaf, maple_range_64, i));

			PREFETCH(vma->vm_flags);
			PREFETCH(vma->vm_file);
		}
	}
	bpf_loop(walk.slots_count, put_slot, 0, 0);
	if (walk.state != TD_VMA_NOWHERE)
		return 1;
	if (walk.op != TD_VMA_LOOK_UP && walk.leaf_max == ~0ull) {
		walk.state = TD_VMA_ENDED;
		return 1;
	}
	return 0;
}

/* The maximum number of leaves in a run. They take some milliseconds in an RCU read section. */
#define LEAVES 16384

/* Reads what walk.op asks for from an address space. Sets walk.state. */
static __always_inline void read_memory(struct mm_struct *mm)
{
	__u64 sequence;

	walk.process_start = walk.filled;
	walk.state = TD_VMA_CHANGED;
	if (!read_mmap_seq(mm, &sequence))
		return;
	if (!walk.from && walk.op != TD_VMA_CHECK) {
		walk.sequence = sequence;
	} else if (walk.sequence != sequence) {
		return;
	}
	if (walk.op == TD_VMA_CHECK) {
		walk.state = TD_VMA_ENDED;
		return;
	}
	fence();
	walk.root = address(mm->mm_mt.ma_root);
	walk.has_branch = 0;
	walk.has_leaf = 0;
	walk.looked_up = walk.from;
	walk.state = TD_VMA_NOWHERE;
	bpf_loop(LEAVES + 1, put_leaf, 0, 0);
	if (walk.state == TD_VMA_ENDED)
		walk.from = 0;
	fence();
	if (!read_mmap_seq(mm, &sequence) || walk.sequence != sequence)
		walk.state = TD_VMA_CHANGED;
}

/*
 * Finds the address space of a maps file of the calling process. False if there is none, or if it
 * is not the same as before.
 */
static __always_inline bool find_file(void)
{
	struct files_struct *files = untrusted(bpf_get_current_task_btf())->files;
	struct proc_maps_private *private;
	struct seq_file___open *seq;
	struct mm_struct *mm;
	__u64 file = 0, open;

	bpf_probe_read_kernel(&file, sizeof(file), (void *)(address(files->fdt->fd) + (__u64)walk.fd * sizeof(file)));
	seq = AT(file, file)->private_data;
	open = address(BPF_CORE_READ(seq, private));
	private = (void *)open;
	if (bpf_core_field_exists(private->lock_ctx))
		mm = BPF_CORE_READ(private, lock_ctx.mm);
	else
		mm = BPF_CORE_READ((struct proc_maps_private___pre618 *)open, mm);
	if (!walk.from && walk.op != TD_VMA_CHECK)
		walk.mm = address(mm);
	return mm && walk.mm == address(mm);
}

#endif
