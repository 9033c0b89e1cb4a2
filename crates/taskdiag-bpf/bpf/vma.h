/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The record of a mapping of a process, and the memory of the program that writes it. src/vma.rs
 * and src/vma_walk.rs are the Rust side of this file; tests/layout.rs compares the two.
 */
#ifndef TASKDIAG_VMA_H
#define TASKDIAG_VMA_H

#include "match.h"

/* Flags of a mapping. The first four are those of PROCMAP_QUERY. */
#define TD_VMA_READ (1u << 0)
#define TD_VMA_WRITE (1u << 1)
#define TD_VMA_EXEC (1u << 2)
#define TD_VMA_SHARED (1u << 3) /* VM_MAYSHARE */
#define TD_VMA_FILE (1u << 5)
/* Only the text has the right values: read it for all mappings of the process */
#define TD_VMA_DEFER (1u << 9)
/* Not a mapping: apart from the mappings that have records, the process maps none of `matches` */
#define TD_VMA_NO_OTHER (1u << 10)

struct td_vma {
	__u32 len; /* of the whole record, a multiple of eight */
	__u32 pid; /* thread-group id */
	__u32 name_id; /* not 0: the id of its name, which does not follow then */
	__u16 flags;
	__u16 name_len; /* of the name that follows */
	__u64 start, end;
	__u64 offset;
	__u64 inode;
	__u32 dev_major, dev_minor;
	__u64 page_size; /* 0: unknown */
};

/* The settings and results of a pass. */
struct td_vma_pass {
	/* Set by the library before a pass. */
	__u32 filter;	    /* only mappings with all of these flags */
	__u32 epoch;	    /* entries of `names` with another epoch are outdated */
	__u32 names;	    /* 1: names are wanted */
	__u32 page_shift;   /* of this host */
	/* FMODE_BACKING of this kernel: a file with it backs an open file of another file system */
	__u32 backing_mode;
	/* Set by the program. */
	__u32 saw_init; /* 1: the pass found process 1 */
	__u32 next_name;
	__u32 pid; /* the process that is read */
	/*
	 * Set by the library. If there are any, mappings of other files have no records, and each
	 * process that was read has a record with TD_VMA_NO_OTHER at its end.
	 */
	__u32 matches_count;
	__u32 reserved;
	struct td_file_match matches[TD_FILE_MATCHES];
};

/* What the program does. */
enum td_vma_op {
	TD_VMA_MACHINE = 0, /* list the mappings of all processes */
	TD_VMA_LIST = 1,    /* list the mappings of the address space of an open maps file */
	TD_VMA_LOOK_UP = 2, /* look up the mappings there that contain some addresses */
	/* Check that the mappings there have not changed since the last operation */
	TD_VMA_CHECK = 3,
};

/* How a run ended. */
enum td_vma_state {
	TD_VMA_NOWHERE = 0, /* the structures of this kernel are not as expected */
	TD_VMA_GOES_ON = 1, /* there is more: fetch the records and run the program again */
	TD_VMA_ENDED = 2,
	TD_VMA_CHANGED = 3, /* mappings changed during the run, so the records are invalid */
	TD_VMA_GONE = 4,    /* the address space of the maps file is gone */
};

/*
 * The number of processes that are read together, so that the processor's waits for their memory
 * overlap.
 */
#define TD_VMA_BLOCK 64
/* The maximum number of addresses in a run. */
#define TD_VMA_ADDRESSES 4096
/*
 * The size of the memory for records, and the room that is kept free for the next one: more than
 * any record takes.
 */
#define TD_VMA_RECORDS (1u << 19)
#define TD_VMA_ROOM 1024

/* What identifies the name of a file during a pass. */
struct td_vma_name_key {
	__u64 mount, dentry, parent;
	__u64 hash_len; /* of the last component of the path */
	__u64 inode;
	__u32 device;
	__u32 unhashed; /* 1: deleted */
};

struct td_vma_name {
	__u32 epoch;
	__u32 id;
};

/* A cache of recent names, before the map `names`. */
#define TD_VMA_RECENT 128
struct td_vma_recent {
	struct td_vma_name_key key;
	struct td_vma_name name;
};

/* The memory of the program. It belongs to one handle, and serves one reader at a time. */
struct td_vma_walk {
	struct td_vma_pass pass;
	__u32 op;	   /* enum td_vma_op */
	__u32 fd;	   /* of the maps file */
	__u32 count;	   /* of addresses */
	__u32 blocks;	   /* the number of blocks of processes to read in a run */
	__u32 state;	   /* enum td_vma_state */
	__u32 filled;	   /* bytes of records */
	__u32 cursor;	   /* the process that was visited last */
	__u32 found;	   /* the number of entries of `tasks` */
	__u32 pid_leaf_end; /* pid_idr_leaf() */
	__u32 process_start; /* where the records of the current process start */
	__u32 leaf_end;	   /* the index of the last slot in use of `leaf` */
	__u32 has_branch;  /* 1: `branch` is the parent of `leaf` */
	__u32 leaves;	   /* how many may still be read in this run */
	__u32 has_leaf;
	__u32 slot, slots_count; /* which slots of `leaf` are read */
	__u64 address;
	/*
	 * The process and the address space that are being read, and the sequence of mmap_lock at
	 * the start.
	 */
	__u64 task, mm, start_ns, exec_id, sequence;
	/* The address at which to continue; 0 at the start. */
	__u64 from;
	__u64 root, branch_max, leaf_max;
	/* The end of the mapping or gap that was read last. */
	__u64 looked_up;
	__u64 tasks[TD_VMA_BLOCK];
	__u64 slots[TD_VMA_BLOCK];
	__u32 pids[TD_VMA_BLOCK];
	/* Copies of two nodes of the maple tree. */
	__u64 branch[32], leaf[32];
	struct td_vma_recent recent[TD_VMA_RECENT];
	/* In ascending order. */
	__u64 addresses[TD_VMA_ADDRESSES];
	char records[TD_VMA_RECORDS];
};

#endif
