/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What a record holds about a file: its name, and what stat(2) returns. */
#ifndef TASKDIAG_FILES_PLACE_BPF_H
#define TASKDIAG_FILES_PLACE_BPF_H

#include "state.bpf.h"

#define S_IFREG 0100000

/* linux/magic.h */
#define SOCKFS_MAGIC 0x534f434b
#define PIPEFS_MAGIC 0x50495045
#define ANON_INODE_FS_MAGIC 0x09041934
#define PID_FS_MAGIC 0x50494446
#define TMPFS_MAGIC 0x01021994
#define HUGETLBFS_MAGIC 0x958458f6
#define SECRETMEM_MAGIC 0x5345434d
#define RAMFS_MAGIC 0x858458f6
#define EXT4_SUPER_MAGIC 0xef53
#define XFS_SUPER_MAGIC 0x58465342
#define F2FS_SUPER_MAGIC 0xf2f52010
#define DEVPTS_SUPER_MAGIC 0x1cd1

static __always_inline __u64 mount_of(__u64 vfsmount)
{
	return vfsmount - bpf_core_field_offset(struct mount, mnt);
}

/* One iteration of prepend_path() of fs/d_path.c. */
static long walk_up(__u32 index, void *nothing)
{
	__u32 position = *(volatile __u32 *)&walk.position, sequence, len;
	__u64 dentry = walk.dentry, mount = walk.mount, parent, above, name;

	if (dentry == walk.root_dentry && mount == walk.root_mount)
		goto arrived;
	if (!dentry || !mount)
		return 1;
	if (dentry == POINTER(mount, mount, mnt.mnt_root)) {
		above = POINTER(mount, mount, mnt_parent);
		/* The root of a mount namespace, or of a mount that was detached. */
		if (above == mount)
			goto arrived;
		walk.dentry = POINTER(mount, mount, mnt_mountpoint);
		walk.mount = above;
		return POINTER(mount, mount, mnt_parent) != above;
	}
	sequence = GET(dentry, dentry, d_seq.seqcount.sequence);
	parent = POINTER(dentry, dentry, d_parent);
	len = GET(dentry, dentry, d_name.len);
	name = POINTER(dentry, dentry, d_name.name);
	if (parent == dentry || len > 255 || position <= len)
		return 1;
	position -= len + 1;
	/* Otherwise clang computes it twice, and the verifier knows the bound of only one. */
	barrier_var(position);
	if (position >= TD_FILE_PATH)
		return 1;
	walk.path[position] = '/';
	if (bpf_probe_read_kernel(&walk.path[position + 1], len & 0xff, (void *)name))
		return 1;
	/* Renamed during the read? */
	read_barrier();
	if (sequence & 1 || GET(dentry, dentry, d_seq.seqcount.sequence) != sequence)
		return 1;
	*(volatile __u32 *)&walk.position = position;
	walk.dentry = parent;
	return 0;
arrived:
	walk.arrived = 1;
	return 1;
}

/* d_path() of fs/d_path.c. Returns the length of the path, 0 if only procfs can answer. */
__noinline int put_path(__u64 vfsmount, __u64 dentry)
{
	struct td_file *record = next_record();
	__u32 end = TD_FILE_PATH, position, len;

	if (!record)
		return 0;
	walk.mount = mount_of(vfsmount);
	walk.dentry = dentry;
	walk.arrived = 0;
	if (!POINTER(dentry, dentry, d_hash.pprev) && POINTER(dentry, dentry, d_parent) != dentry) {
		end -= 10;
		__builtin_memcpy(&walk.path[TD_FILE_PATH - 10], " (deleted)", 10);
	}
	*(volatile __u32 *)&walk.position = end;
	walk.steps += (__u32)bpf_loop(512, walk_up, 0, 0) / 8;
	if (!walk.arrived)
		return 0;
	position = *(volatile __u32 *)&walk.position;
	/* The file is the root itself. */
	if (position == end)
		position--;
	if (position >= TD_FILE_PATH)
		return 0;
	walk.path[position] = '/';
	len = TD_FILE_PATH - position;
	if (bpf_probe_read_kernel(record + 1, len, &walk.path[position]))
		return 0;
	record->name = TD_NAME_WHOLE;
	record->name_len = len;
	return len;
}

/* The name of the dentry alone. */
static __always_inline bool put_short_name(struct td_file *record, __u64 dentry, __u8 name)
{
	__u32 len = GET(dentry, dentry, d_name.len);

	if (len > 255)
		return false;
	record->name = name;
	record->name_len = len;
	return !bpf_probe_read_kernel(record + 1, len & 0xff, (void *)POINTER(dentry, dentry, d_name.name));
}

/* The name that a link of /proc/PID shows: do_proc_readlink(). */
static __always_inline bool put_name(struct td_file *record, __u64 vfsmount, __u64 dentry, unsigned long magic)
{
	__u64 operations = POINTER(dentry, dentry, d_op);

	if (!operations || !POINTER(dentry_operations, operations, d_dname))
		return put_path(vfsmount, dentry);
	/* File systems that generate names. */
	switch (magic) {
	case SOCKFS_MAGIC:
		record->name = TD_NAME_SOCKET;
		return true;
	case PIPEFS_MAGIC:
		record->name = TD_NAME_PIPE;
		return true;
	case ANON_INODE_FS_MAGIC:
		return put_short_name(record, dentry, TD_NAME_ANON);
	case TMPFS_MAGIC:
	case HUGETLBFS_MAGIC:
	case SECRETMEM_MAGIC:
		return put_short_name(record, dentry, TD_NAME_SIMPLE);
	}
	return false;
}

/*
 * Whether stat(2) returns what the kernel's inode holds. Other file systems, such as btrfs and
 * overlayfs, return their own numbers, or sizes that they keep elsewhere.
 */
static __always_inline bool has_plain_stat(unsigned long magic, __u16 mode)
{
	switch (magic) {
	case SOCKFS_MAGIC:
	case PIPEFS_MAGIC:
	case ANON_INODE_FS_MAGIC:
	case TMPFS_MAGIC:
	case HUGETLBFS_MAGIC:
	case RAMFS_MAGIC:
	case EXT4_SUPER_MAGIC:
	case F2FS_SUPER_MAGIC:
	case DEVPTS_SUPER_MAGIC:
		return true;
	case XFS_SUPER_MAGIC:
		return (mode & S_IFMT) == S_IFREG;
	}
	return false;
}

/* Whether files of this kind take no space on a file system. */
static __always_inline bool is_without_space(unsigned long magic)
{
	return magic == SOCKFS_MAGIC || magic == PIPEFS_MAGIC || magic == ANON_INODE_FS_MAGIC;
}

/* Whether the request excludes a file. */
__noinline int is_ruled_out(__u64 inode)
{
	__u32 count = walk.matches_count, device, type, i;
	unsigned long magic;
	__u64 super, number;
	__u16 mode;

	if (!inode || !(walk.types | walk.deleted | count))
		return 0;
	super = POINTER(inode, inode, i_sb);
	magic = GET(super_block, super, s_magic);
	mode = GET(inode, inode, i_mode);
	if (count) {
		device = GET(super_block, super, s_dev);
		number = GET(inode, inode, i_ino);
#pragma nounroll
		for (i = 0; i < TD_FILE_MATCHES; i++) {
			if (i >= count)
				return 1;
			if (walk.matches[i].inode == number && walk.matches[i].dev_major == device >> 20 &&
			    walk.matches[i].dev_minor == (device & 0xfffff))
				break;
		}
	}
	if (!has_plain_stat(magic, mode))
		return 0;
	type = magic == ANON_INODE_FS_MAGIC ? 0 : mode >> 12;
	if (walk.types && !(walk.types >> type & 1))
		return 1;
	return walk.deleted && GET(inode, inode, __i_nlink) != 0;
}

/* Fills in what a record holds about a file. Returns what is deferred. */
__noinline int put_place(__u64 vfsmount, __u64 dentry, __u64 inode)
{
	struct td_file *record = next_record();
	unsigned long magic;
	__u32 deferred = 0;
	__u64 super;
	__u16 mode;

	if (!record || !vfsmount || !dentry || !inode)
		return TD_FILE_DEFER_ALL;
	super = POINTER(inode, inode, i_sb);
	magic = GET(super_block, super, s_magic);
	mode = GET(inode, inode, i_mode);
	record->mnt_id = GET(mount, mount_of(vfsmount), mnt_id);
	record->inode = GET(inode, inode, i_ino);
	if (walk.wants & TD_FILE_STAT) {
		__u32 device = GET(super_block, super, s_dev);

		record->dev_major = device >> 20;
		record->dev_minor = device & 0xfffff;
		record->size = GET(inode, inode, i_size);
		record->nlink = GET(inode, inode, __i_nlink);
		/*
		 * Objects of the kernel have no type for us. Their inodes have one since
		 * cfd86ef7e8e7 ("anon_inode: use a proper mode internally", 6.16), and those of
		 * pidfds since cb12fd8e0dab ("pidfd: add pidfs", 6.9).
		 */
		record->mode = magic == ANON_INODE_FS_MAGIC || magic == PID_FS_MAGIC ? mode & ~S_IFMT : mode;
		if (!has_plain_stat(magic, mode))
			deferred |= TD_FILE_DEFER_STAT;
	}
	/* The inode alone does not tell how much space a file takes. */
	if (walk.wants & TD_FILE_SPACE && !is_without_space(magic))
		deferred |= TD_FILE_DEFER_SPACE;
	/* The name of a kernel object tells which one it is. */
	if (walk.wants & TD_FILE_NAMES || (walk.wants & TD_FILE_STAT && magic == ANON_INODE_FS_MAGIC)) {
		if (!put_name(record, vfsmount, dentry, magic)) {
			record->name = TD_NAME_NONE;
			record->name_len = 0;
			deferred |= TD_FILE_DEFER_NAME;
		}
	}
	return deferred;
}

#endif
