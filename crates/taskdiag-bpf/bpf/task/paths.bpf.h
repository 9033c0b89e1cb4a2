/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Paths of the executable, the working directory and the root. */
#ifndef TASKDIAG_TASK_PATHS_BPF_H
#define TASKDIAG_TASK_PATHS_BPF_H

#include "access.bpf.h"
#include "reader.bpf.h"

/*
 * Iterates from a file to the reader's root, or to the root of the mount tree. The path is written
 * backwards from its end.
 */
struct walk {
	struct td_reader *reader;
	struct mount *mount, *root_mount;
	struct dentry *dentry, *root_dentry;
	__u32 arrived;
};

static __always_inline struct mount *mount_of(struct vfsmount *mnt)
{
	return (void *)mnt - bpf_core_field_offset(struct mount, mnt);
}

/* One iteration of prepend_path() of fs/d_path.c. */
static long walk_up(__u32 index, struct walk *walk)
{
	struct td_reader *reader = walk->reader;
	__u32 position = *(volatile __u32 *)&reader->position, sequence, len;
	struct dentry *dentry = walk->dentry, *parent;
	struct mount *mount = walk->mount, *above;
	const unsigned char *name;

	if (dentry == walk->root_dentry && mount == walk->root_mount)
		goto arrived;
	if (!dentry || !mount)
		return 1;
	if (dentry == BPF_CORE_READ(mount, mnt.mnt_root)) {
		above = BPF_CORE_READ(mount, mnt_parent);
		/*
		 * The root of a mount namespace: not the reader's namespace, or one in which the
		 * reader's root is not an ancestor.
		 */
		if (above == mount)
			goto arrived;
		walk->dentry = BPF_CORE_READ(mount, mnt_mountpoint);
		walk->mount = above;
		return BPF_CORE_READ(mount, mnt_parent) != above;
	}
	sequence = BPF_CORE_READ(dentry, d_seq.seqcount.sequence);
	parent = BPF_CORE_READ(dentry, d_parent);
	len = BPF_CORE_READ(dentry, d_name.len);
	name = BPF_CORE_READ(dentry, d_name.name);
	if (parent == dentry || len > 255 || position <= len)
		return 1;
	position -= len + 1;
	/* Otherwise clang computes it twice, and the verifier knows the bound of only one. */
	barrier_var(position);
	if (position >= TD_PATH_MAX)
		return 1;
	reader->path[position] = '/';
	if (bpf_probe_read_kernel(&reader->path[position + 1], len & 0xff, name))
		return 1;
	/* Renamed during the read? */
	read_barrier(reader);
	if (sequence & 1 || BPF_CORE_READ(dentry, d_seq.seqcount.sequence) != sequence)
		return 1;
	*(volatile __u32 *)&reader->position = position;
	walk->dentry = parent;
	return 0;
arrived:
	walk->arrived = 1;
	return 1;
}

/* d_path() of fs/d_path.c. False if only procfs can answer. */
#if TD_WALKS
__noinline int put_path_at(__u64 type, __u64 from_address, __u64 root_address)
{
	struct td_reader *reader = &own_reader;
	const struct path *from = (void *)from_address, *root = (void *)root_address;
#else
static __noinline bool put_path(struct td_reader *reader, __u16 type, const struct path *from, const struct path *root)
{
#endif
	struct walk walk = { .reader = reader };
	struct dentry *dentry;
	struct vfsmount *mnt;
	__u32 end = TD_PATH_MAX, position;

	walk.root_dentry = BPF_CORE_READ(root, dentry);
	walk.root_mount = mount_of(BPF_CORE_READ(root, mnt));
	walk.dentry = dentry = BPF_CORE_READ(from, dentry);
	mnt = BPF_CORE_READ(from, mnt);
	walk.mount = mount_of(mnt);
	/* Sockets, pipes and memfds generate their names. */
	if (BPF_CORE_READ(dentry, d_op, d_dname))
		return false;
	if (!BPF_CORE_READ(dentry, d_hash.pprev) && BPF_CORE_READ(dentry, d_parent) != dentry) {
		end -= 10;
		__builtin_memcpy(&reader->path[TD_PATH_MAX - 10], " (deleted)", 10);
	}
	*(volatile __u32 *)&reader->position = end;
	add_steps(reader, (__u32)bpf_loop(512, walk_up, &walk, 0) / 8);
	read_barrier(reader);
	if (!walk.arrived || BPF_CORE_READ(from, dentry) != dentry || BPF_CORE_READ(from, mnt) != mnt)
		return false;
	position = *(volatile __u32 *)&reader->position;
	/* The file is the root itself. */
	if (position == end)
		position--;
	if (position >= TD_PATH_MAX)
		return false;
	reader->path[position] = '/';
	if (bpf_probe_read_kernel(next_payload(reader), TD_PATH_MAX - position, &reader->path[position]))
		return false;
	attribute_of(reader, type, TD_PATH_MAX - position);
	return true;
}

#if TD_WALKS
static __always_inline bool put_path(struct td_reader *reader, __u16 type, const struct path *from, const struct path *root)
{
	__u64 from_address = address(reader, from);

	return td_groups & TD_GROUP_PATHS && put_path_at(type, from_address, address(reader, root));
}
#endif

static __always_inline void put_paths(struct td_reader *reader, struct task_struct *task, struct task_struct *current)
{
	struct fs_struct *fs = untrusted(task)->fs;
	struct mm_struct *mm = own_mm(task);
	struct path *root = &current->fs->root;
	__u32 start = reader->used, *umask;
	struct file *exe = 0;
	bool done = true;

	if (mm) {
		exe = mm->exe_file;
		if (exe)
			done = put_path(reader, TD_ATTR_EXE, &exe->f_path, root) && mm->exe_file == exe &&
			       STILL_HAS(reader, task, mm, mm);
	}
	if (fs && done) {
		umask = attribute(reader, TD_ATTR_UMASK, sizeof(*umask), 0);
		*umask = fs->umask;
		done = put_path(reader, TD_ATTR_CWD, &fs->pwd, root) && !may_be_hidden(reader, task) &&
		       put_path(reader, TD_ATTR_ROOT, &fs->root, root) && !may_be_hidden(reader, task) &&
		       STILL_HAS(reader, task, fs, fs);
	}
	if (!done) {
		*(volatile __u32 *)&reader->used = start;
		defer(reader, TD_GROUP_PATHS);
	}
}

#endif
