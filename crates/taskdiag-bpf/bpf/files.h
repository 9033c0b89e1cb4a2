/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The record of a file that a process uses, and the memory of the program that writes it.
 * src/files.rs is the Rust side of this file; tests/layout.rs compares the two.
 */
#ifndef TASKDIAG_FILES_H
#define TASKDIAG_FILES_H

#include "match.h"

/* What a record is about. */
enum td_file_use {
	TD_FILE_FD = 0,
	TD_FILE_CWD = 1,
	TD_FILE_ROOT = 2,
	TD_FILE_EXE = 3,
	/* The records of a process begin, or continue in another run. It started at `start_ns` */
	TD_FILE_PROCESS = 16,
	/* The records of a process are complete, except TD_FILE_DEFER_THREADS */
	TD_FILE_END = 17,
};

/* Flags of a record. Deferred: only procfs has the right value. */
#define TD_FILE_DEFER_STAT (1u << 0)
#define TD_FILE_DEFER_NAME (1u << 1)
/*
 * Nothing else in the record is valid. In TD_FILE_PROCESS: all files of the process are deferred,
 * and no records follow.
 */
#define TD_FILE_DEFER_ALL (1u << 2)
#define TD_FILE_DEFER_SPACE (1u << 3) /* the space that it occupies */
/* In TD_FILE_END: threads may have directories or descriptors of their own */
#define TD_FILE_DEFER_THREADS (1u << 4)

/* What to read about a file. */
#define TD_FILE_NAMES (1u << 0)
#define TD_FILE_FLAGS (1u << 1)
#define TD_FILE_STAT (1u << 2)
#define TD_FILE_SPACE (1u << 4)

/* How the text that follows a record becomes the name of the file. */
enum td_file_name {
	TD_NAME_NONE = 0,
	TD_NAME_WHOLE = 1,  /* it is the name */
	TD_NAME_SOCKET = 2, /* "socket:[", inode, "]" */
	TD_NAME_PIPE = 3,   /* "pipe:[", inode, "]" */
	TD_NAME_ANON = 4,   /* "anon_inode:", text */
	TD_NAME_SIMPLE = 5, /* "/", text, " (deleted)" */
};

struct td_file {
	__u32 len;   /* of the whole record, a multiple of eight */
	__u32 index; /* of the process in the list */
	__u32 fd;
	__u16 use;   /* enum td_file_use */
	__u16 flags;
	__u32 open_flags; /* of a descriptor, with O_CLOEXEC; of a process whether it is dumpable, plus 1 */
	__u32 mnt_id;
	__u64 offset; /* of a descriptor */
	__u64 size, inode;
	__u32 dev_major, dev_minor;
	__u32 nlink;
	__u16 mode; /* as stat(2) returns it */
	__u8 name;  /* enum td_file_name */
	__u8 reserved;
	__u32 name_len; /* of the text that follows */
	__u32 reserved2;
	__u64 start_ns;
};

enum td_files_state {
	TD_FILES_NOWHERE = 0, /* the structures of this kernel are not as expected */
	TD_FILES_GOES_ON = 1, /* there is more: fetch the records and run the program again */
	TD_FILES_ENDED = 2,
};

/* The maximum number of processes in a list. */
#define TD_FILES_LISTED 1024
/* The longest path that the program builds. */
#define TD_FILES_PATH 1024
/*
 * The size of the memory for records, and the room that is kept free for the next one: more than
 * any record takes.
 */
#define TD_FILES_RECORDS (1u << 19)
#define TD_FILES_ROOM 2048

/* The memory of the program. It belongs to one handle, and serves one reader at a time. */
struct td_files_walk {
	/* Set by the library. */
	__u32 wants;  /* TD_FILE_NAMES and so on */
	__u32 uses;   /* one bit for each enum td_file_use */
	__u32 listed; /* how many processes are listed */
	__u32 check_every; /* the number of steps between two looks at the clock */
	__u64 max_run_ns;
	/*
	 * Tests that rule out files; 0: none. `types` and `deleted` are not tested where stat(2)
	 * may differ from the inode. `matches` are always tested: they name only files on file
	 * systems where the two agree.
	 */
	__u32 types;   /* one bit for each type of file, S_IFMT >> 12, and 0 for none */
	__u32 deleted; /* 1: only files without a link */
	__u32 matches_count;
	__u32 has_advanced; /* 1: this run has read something. Set by the program */
	struct td_file_match matches[TD_FILE_MATCHES];
	/* Where to continue. */
	__u32 next; /* the process, an index of `list` */
	__u32 fd;   /* its next descriptor */
	__u32 has_links; /* 1: its other files have been read */
	/* Set by the program. */
	__u32 state; /* enum td_files_state */
	__u32 filled; /* bytes of records */
	__u32 steps, next_check;
	__u32 attempts;
	__u64 run_start_ns, longest_run_ns;
	__u64 address;
	/* The process that is being read. */
	__u64 slots, open_fds, close_on_exec;
	__u64 word; /* of open_fds */
	__u32 max_fds;
	__u32 leaf_end;
	__u32 process_filled, process_fd, process_has_links;
	/* The path that is being built, starting at its end. */
	__u32 position;
	__u64 mount, dentry, root_mount, root_dentry;
	__u32 arrived;
	__u32 reserved;
	/*
	 * Set by the library. Not 0: pids, times and paths are those that this task sees instead of
	 * the caller (Linux 6.2)
	 */
	__u64 as_task;
	/* For a word of open_fds: the slots, read twice, and the inodes that they lead to. */
	__u64 word_slots[64], word_again[64], word_inodes[64];
	/* The inode that this run looked at last and that is not in `matches`. */
	__u64 other_inode;
	char path[TD_FILES_PATH + 256];
	__u32 list[TD_FILES_LISTED];
	char records[TD_FILES_RECORDS];
};

#endif
