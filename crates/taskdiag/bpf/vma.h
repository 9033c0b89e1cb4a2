/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * One mapping of one process, as the BPF program writes it. `src/source/bpf/vma.rs` is the Rust side of this file; its
 * layout is checked with that of record.h.
 */
#ifndef TASKDIAG_VMA_H
#define TASKDIAG_VMA_H

/* Flags of a mapping. The first four are those of PROCMAP_QUERY. */
#define TD_VMA_READ (1u << 0)
#define TD_VMA_WRITE (1u << 1)
#define TD_VMA_EXEC (1u << 2)
#define TD_VMA_SHARED (1u << 3) /* VM_MAYSHARE */
#define TD_VMA_FILE (1u << 5)
#define TD_VMA_LONG_NAME (1u << 8) /* its name is too long to be told */
#define TD_VMA_DEFER (1u << 9)	   /* the text alone tells what it is of: ask that for all mappings of the process */

/* In the number of a thread that is not the first one of its process: no thread has so high a number. */
#define TD_VMA_OTHER_THREAD (1u << 31)

/* With its NUL. */
#define TD_VMA_NAME_MAX 4096

struct td_vma {
	__u32 len; /* of the whole record, a multiple of eight */
	__u32 pid; /* thread-group id */
	__u32 tid; /* of the thread that was visited: pid, or a number that tells it from the others */
	__u16 flags;
	__u16 name_len; /* bytes of the name that follows */
	__u64 start, end;
	__u64 offset;
	__u64 inode;
	__u32 dev_major, dev_minor;
	__u32 page_size; /* 0: unknown */
	__u32 name_id;	 /* not 0: the name, where none follows, is that of an earlier record with this number */
};

/* All that the program keeps. It belongs to one handle, and serves one reader at a time. */
struct td_vma_reader {
	/* Set by the library before a pass. */
	__u32 filter;	   /* of the flags above: all of these */
	__u32 epoch;	   /* names remembered under another one are forgotten */
	__u32 names;	   /* 1: names are wanted */
	__u32 touching_heap; /* 1: what only touches the heap is called [heap] too (before Linux 6.6) */
	__u32 shared_names;  /* 1: shared memory can have names (Linux 6.2) */
	__u32 backing_mode;  /* FMODE_BACKING: a file that stands behind the one of another file system that was opened */
	/* Set by the program. */
	__u32 saw_first; /* 1: the pass met process 1 */
	__u32 processes; /* that were met, whether or not the filter let any of their mappings through */
	__u32 next_name;
	/* The process that was met last, by its global number, and its number for the reader. */
	__u32 tgid, pid;
	__u32 reserved;
	/* The record. Its name may go on behind, as far as its padding. */
	struct td_vma record;
	char name[TD_VMA_NAME_MAX + 8];
};

/* What a name depends on, as long as a pass takes. */
struct td_vma_name_key {
	__u64 mount, dentry, parent;
	__u64 hash_len; /* of the last part of the path */
	__u64 inode;
	__u32 device;
	__u32 unhashed; /* 1: deleted */
};

struct td_vma_name {
	__u32 epoch;
	__u32 id;
};

#endif
