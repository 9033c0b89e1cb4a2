/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The memory of the program, and access to kernel memory. */
#ifndef TASKDIAG_VMA_STATE_BPF_H
#define TASKDIAG_VMA_STATE_BPF_H

#include "../compat.bpf.h"
#include "record_gen.h"

#define PAGE_SHIFT (walk.page_shift & 31)
#define PAGE_SIZE (1ull << PAGE_SHIFT)
/* Smaller numbers are no pointers, whatever the page size. */
#define FIRST_POINTER 4096u

struct td_vma_walk walk SEC(".bss");

/* An untrusted pointer to a structure at an address. */
#define AT(type, address) ((struct type *)bpf_rdonly_cast((void *)(address), bpf_core_type_id_kernel(struct type)))

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

/* smp_mb(). BPF has no barriers, but atomic operations that return a value are fully ordered. */
static __always_inline void fence(void)
{
	PREFETCH(__sync_fetch_and_add(&walk.address, 1));
}

#endif
