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
#define TD_VMA_DEFER (1u << 9)	   /* the text alone tells what it is of: ask that for all mappings of the process */

struct td_vma {
	__u32 len; /* of the whole record, a multiple of eight */
	__u32 pid; /* thread-group id */
	__u32 name_id; /* not 0: the number of its name, which does not follow then */
	__u16 flags;
	__u16 name_len; /* bytes of the name that follows */
	__u64 start, end;
	__u64 offset;
	__u64 inode;
	__u32 dev_major, dev_minor;
	__u64 page_size; /* 0: unknown */
};

/* What the program is told, and tells. */
struct td_vma_pass {
	/* Set by the library before a pass. */
	__u32 filter;	   /* of the flags above: all of these */
	__u32 epoch;	   /* names remembered under another one are forgotten */
	__u32 names;	   /* 1: names are wanted */
	__u32 page_shift;  /* of this host */
	__u32 backing_mode;  /* FMODE_BACKING: a file that stands behind the one of another file system that was opened */
	/* Set by the program. */
	__u32 saw_first; /* 1: the pass met process 1 */
	__u32 next_name;
	__u32 pid; /* the process that was met last */
};

/* What the program is to do. */
enum td_vma_question {
	TD_VMA_MACHINE = 0, /* the mappings of all processes */
	TD_VMA_LIST = 1,    /* those of the memory that an open maps file is of */
	TD_VMA_LOOK_UP = 2, /* those that some addresses lie in */
	TD_VMA_CHECK = 3,   /* nothing: whether that memory is still mapped as when the last question was answered */
};

/* What became of it. */
enum td_vma_state {
	TD_VMA_NOWHERE = 0, /* this kernel is not as the program takes it to be */
	TD_VMA_GOES_ON = 1, /* to be run again, once the records were fetched */
	TD_VMA_ENDED = 2,
	TD_VMA_CHANGED = 3, /* the memory was mapped anew meanwhile: the records mean nothing */
	TD_VMA_GONE = 4,    /* there is no memory behind the file any more */
};

/* Processes that are looked at together. */
#define TD_VMA_BLOCK 64
/* The most addresses of one run. */
#define TD_VMA_ADDRESSES 4096
/* Room for records, and what is left free behind the last: more than any record takes. */
#define TD_VMA_RECORDS (1u << 19)
#define TD_VMA_ROOM 1024

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

/* Names that it met lately, where it looks first. */
#define TD_VMA_RECENT 128
struct td_vma_recent {
	struct td_vma_name_key key;
	struct td_vma_name name;
};

/* All that it keeps. It belongs to one handle, and serves one reader at a time. */
struct td_vma_walk {
	struct td_vma_pass pass;
	__u32 question;
	__u32 fd;	 /* of the maps file */
	__u32 count;	 /* of addresses */
	__u32 blocks;	 /* of processes, before a pause */
	__u32 state;
	__u32 filled;	 /* bytes of records */
	__u32 last;	 /* the number of the process that was visited last */
	__u32 met;	 /* processes of a block */
	__u32 behind;	 /* the first number that is not in the leaf of the tree of numbers */
	__u32 begun;	 /* where the records of the process that is read begin */
	__u32 leaf_end;	 /* the last slot in use of the leaf of the tree of mappings */
	__u32 has_branch; /* the node above it is there, too */
	__u32 leaves;	 /* that may still be read in this run */
	__u32 has_leaf;
	__u32 slot, slots_count; /* which of its slots are asked for */
	__u64 address;
	/* The memory that is read: whose it is, and how often it was mapped anew. */
	__u64 task, mm, start_ns, exec_id, sequence;
	/* Where in there to go on; 0: at the beginning. */
	__u64 from;
	__u64 root, branch_max, leaf_max;
	/* The end of the mapping or gap that was looked up last. */
	__u64 looked_up;
	__u64 tasks[TD_VMA_BLOCK];
	__u64 slots[TD_VMA_BLOCK];
	__u32 pids[TD_VMA_BLOCK];
	/* Copies of two nodes of the tree of mappings. */
	__u64 branch[32], leaf[32];
	struct td_vma_recent recent[TD_VMA_RECENT];
	/* In order. */
	__u64 addresses[TD_VMA_ADDRESSES];
	char records[TD_VMA_RECORDS];
};

#endif
