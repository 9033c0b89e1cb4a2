/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The mappings of a process, which are in a maple tree. */
#ifndef TASKDIAG_VMA_TREE_BPF_H
#define TASKDIAG_VMA_TREE_BPF_H

#include "state.bpf.h"

/*
 * Reads mm_lock_seq, before and after reading the tree. False if a writer holds mmap_lock.
 *
 * A writer holds mmap_lock, and increments mm_lock_seq at the start and at the end; before 6.14
 * only at the end. So the tree did not change if no writer held the lock at either time and the
 * sequence is the same. Under RCU, mappings that were removed stay readable or become other
 * mappings; then the sequence differs. The lock is read before the sequence, so that a writer that
 * finishes between the two reads changes the sequence.
 */
static __always_inline bool read_mmap_seq(struct mm_struct *mm, __u64 *sequence)
{
	const __u64 writer = 1; /* RWSEM_WRITER_LOCKED */
	__u64 count = *(volatile long *)&mm->mmap_lock.count.counter;

	fence();
	if (bpf_core_field_exists(mm->mm_lock_seq.sequence)) {
		*sequence = *(volatile unsigned int *)&mm->mm_lock_seq.sequence;
		return !(count & writer) && !(*sequence & 1);
	}
	*sequence = BPF_CORE_READ((struct mm_struct___pre614 *)mm, mm_lock_seq);
	return !(count & writer);
}

/*
 * Whether this kernel's maple trees are as expected, and whether it has the lock and the sequence
 * that read_mmap_seq() needs.
 */
static __always_inline bool is_known_kernel(void)
{
	struct maple_range_64 *leaf = 0;
	struct maple_arange_64 *branch = 0;
	struct mm_struct___pre614 *old = 0;
	struct mm_struct *mm = 0;

	return bpf_core_field_size(leaf->pivot) == 15 * sizeof(__u64) && bpf_core_field_size(leaf->slot) == 16 * sizeof(__u64) &&
	       bpf_core_field_size(branch->pivot) == 9 * sizeof(__u64) && bpf_core_field_size(branch->slot) == 10 * sizeof(__u64) &&
	       (bpf_core_field_exists(mm->mm_lock_seq.sequence) || bpf_core_field_exists(old->mm_lock_seq)) &&
	       bpf_core_field_exists(mm->mmap_lock.count);
}

#define NODE_SIZE 256
/* enum maple_type */
#define MAPLE_LEAF_64 1
#define MAPLE_ARANGE_64 3

/* mte_node_type(): a pointer to a node has the node's type in its low bits. */
static __always_inline __u32 node_type(__u64 entry)
{
	return entry >> 3 & 15;
}

static __always_inline __u64 word_in(const __u64 *node, __u32 offset, __u32 index)
{
	return *(const __u64 *)((const char *)node + offset + (index & 15) * sizeof(__u64));
}

#define PIVOT(node, type, index) word_in(node, bpf_core_field_offset(struct type, pivot), index)
#define SLOT(node, type, index) word_in(node, bpf_core_field_offset(struct type, slot), index)
#define LAST_SLOT(node, type) (*(const __u8 *)((const char *)(node) + bpf_core_field_offset(struct type, meta.end)))

static __always_inline bool copy_node(__u64 *copy, __u64 entry)
{
	return entry >= FIRST_POINTER && !bpf_probe_read_kernel(copy, NODE_SIZE, (void *)(entry & ~(NODE_SIZE - 1ull)));
}

/* 1 if a < b, else 0. It has no branch, because the verifier would follow each side. */
static __always_inline __u64 below(__u64 a, __u64 b)
{
	__u64 difference = a - b;

	/* Otherwise clang makes it a branch. */
	barrier_var(difference);
	return ((~a & b) | (~(a ^ b) & difference)) >> 63;
}

/*
 * Finds the slot for an address in a copy of a node: the first whose pivot is not below the
 * address, or the last.
 */
#define SLOT_FOR(place, node, type, pivots, last, address)                                                                \
	do {                                                                                                              \
		(place) = 0;                                                                                              \
		_Pragma("unroll") for (int pivot_ = 0; pivot_ < (pivots); pivot_++)(place) +=                              \
			below(pivot_, last) & below(PIVOT(node, type, pivot_), address);                                  \
	} while (0)

/*
 * Copies the leaf for an address, as mtree_range_walk() of lib/maple_tree.c finds it, and its
 * parent. False if there is none, because the tree is empty or changing.
 */
static __noinline bool find_leaf(__u64 address)
{
	__u64 entry = *(volatile __u64 *)&walk.root, max = ~0ull;
	__u64 index, end;
	__u32 level;

	/* Addresses only grow. Up to branch_max, the copy of the previous leaf's parent serves again. */
	if (walk.has_branch && address <= walk.branch_max) {
		entry = 0;
		max = walk.branch_max;
	} else {
		walk.has_branch = 0;
	}
#pragma nounroll
	for (level = 0; level < 10; level++) {
		if (entry) {
			if (node_type(entry) == MAPLE_LEAF_64)
				break;
			if (node_type(entry) != MAPLE_ARANGE_64 || !copy_node(walk.branch, entry))
				return false;
			walk.has_branch = 1;
			walk.branch_max = max;
		}
		end = LAST_SLOT(walk.branch, maple_arange_64);
		SLOT_FOR(index, walk.branch, maple_arange_64, 9, end, address);
		if (index < end)
			max = PIVOT(walk.branch, maple_arange_64, index);
		entry = SLOT(walk.branch, maple_arange_64, index);
	}
	if (node_type(entry) != MAPLE_LEAF_64 || !copy_node(walk.leaf, entry))
		return false;
	walk.leaf_max = max;
	/*
	 * ma_data_end(): the last pivot is 0 if the node has room, and then the node says where its
	 * data end. Otherwise the last pivot ends the node, or one more slot follows it.
	 */
	max ^= PIVOT(walk.leaf, maple_range_64, 14);
	if (max == walk.leaf_max)
		walk.leaf_end = LAST_SLOT(walk.leaf, maple_range_64) & 15;
	else
		walk.leaf_end = max ? 15 : 14;
	return true;
}

#endif
