/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The memory of the program, and access to kernel memory. */
#ifndef TASKDIAG_FILES_STATE_BPF_H
#define TASKDIAG_FILES_STATE_BPF_H

#include "../compat.bpf.h"
#include "record_gen.h"

struct td_files_walk walk SEC(".bss");

/* A member of a structure at an address. Before 6.2 there is no cast. */
#define GET(type, at, member)                                                                                            \
	({                                                                                                               \
		typeof(((struct type *)0)->member) value_;                                                               \
		if (bpf_rdonly_cast)                                                                                     \
			value_ = ((struct type *)bpf_rdonly_cast((void *)(at), bpf_core_type_id_kernel(struct type)))    \
					 ->member;                                                                       \
		else                                                                                                     \
			BPF_CORE_READ_INTO(&value_, (struct type *)(at), member);                                        \
		value_;                                                                                                  \
	})

/* A member that is a pointer, as a number. */
#define POINTER(type, at, member) address((void *)GET(type, at, member))

/*
 * A pointer as a number. It goes through memory, because the verifier forbids arithmetic on most
 * pointers.
 */
static __always_inline __u64 address(const void *pointer)
{
	walk.address = (__u64)pointer;
	barrier();
	return *(volatile __u64 *)&walk.address;
}

/* smp_rmb(). See task/reader.bpf.h. */
static __always_inline void read_barrier(void)
{
#ifdef __TARGET_ARCH_x86
	barrier();
#else
	asm volatile("" : : "r"(__sync_fetch_and_add(&walk.address, 1)));
#endif
}

static __always_inline __u64 word_at(__u64 at)
{
	__u64 word = 0;

	bpf_probe_read_kernel(&word, sizeof(word), (void *)at);
	return word;
}

/*
 * The place for the next record. The verifier can't know the bound of a value in memory; the mask
 * gives it one.
 */
static __always_inline struct td_file *next_record(void)
{
	__u64 filled = *(volatile __u32 *)&walk.filled;

	asm volatile("%0 &= %1" : "+r"(filled) : "i"(TD_FILE_RECORDS - 1));
	if (filled > TD_FILE_RECORDS - TD_FILE_ROOM)
		return 0;
	return (void *)(walk.records + filled);
}

#endif
