/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A file that is looked for, by the kernel's own numbers. */
#ifndef TASKDIAG_MATCH_H
#define TASKDIAG_MATCH_H

/* The maximum number of files that are looked for. */
#define TD_FILE_MATCHES 8

struct td_file_match {
	__u32 dev_major, dev_minor;
	__u64 inode;
};

#endif
