/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A file to look for, by the kernel's device and inode numbers. */
#ifndef TASKDIAG_MATCH_H
#define TASKDIAG_MATCH_H

/* The maximum number of files to look for. */
#define TD_FILE_MATCHES 8

struct td_file_match {
	__u32 dev_major, dev_minor;
	__u64 inode;
};

#endif
