/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The number of open files. */
#ifndef TASKDIAG_TASK_FILES_BPF_H
#define TASKDIAG_TASK_FILES_BPF_H

#include "reader.bpf.h"

struct open_files {
	unsigned long *words;
	__u32 count;
};

static long add_word(__u32 index, struct open_files *files)
{
	__u64 word;

	if (bpf_probe_read_kernel(&word, sizeof(word), files->words + index))
		return 1;
	files->count += __builtin_popcountll(word);
	return 0;
}

/* A task that has exited has 0 descriptors in a table of size 0, as in /proc/PID/status. */
static __always_inline void put_fds(struct td_reader *reader, struct task_struct *task)
{
	struct files_struct *files = untrusted(task)->files;
	struct open_files open = {};
	__u32 size = 0, words;
	struct fdtable *table;
	struct td_fds *out;

	if (files) {
		table = files->fdt;
		size = table->max_fds;
		open.words = table->open_fds;
		words = (size + 63) / 64;
		if (words > TD_FD_WORDS_MAX || bpf_loop(words, add_word, &open, 0) != words)
			return defer(reader, TD_GROUP_FDS);
		add_steps(reader, words / 8);
		read_barrier(reader);
		if (files->fdt != table)
			return defer(reader, TD_GROUP_FDS);
	}
	if (!STILL_HAS(reader, task, files, files))
		return defer(reader, TD_GROUP_FDS);
	out = attribute(reader, TD_ATTR_FDS, sizeof(*out), 0);
	out->fd_count = open.count;
	out->fd_table_size = size;
}

#endif
