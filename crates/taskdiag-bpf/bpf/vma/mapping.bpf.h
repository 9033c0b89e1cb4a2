/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The record of a mapping. */
#ifndef TASKDIAG_VMA_MAPPING_BPF_H
#define TASKDIAG_VMA_MAPPING_BPF_H

#include "state.bpf.h"

#define VM_MAYSHARE 0x80ul
#define VM_HUGETLB 0x400000ul
#define S_IFCHR 0020000

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct td_vma_name_key);
	__type(value, struct td_vma_name);
} names SEC(".maps");

/*
 * The name of a mapping without a file: get_vma_name() of fs/proc/task_mmu.c. Returns its length
 * with the NUL, 0 for none.
 */
static __always_inline long special_name(struct vm_area_struct *vma, char *out)
{
	struct vm_operations_struct *ops = vma->vm_ops;
	struct mm_struct *mm = vma->vm_mm;
	unsigned long start = vma->vm_start, end = vma->vm_end;

	if (ops && ops->name) {
		struct vm_special_mapping *special = vma->vm_private_data;
		const char *name = 0;

		BPF_CORE_READ_INTO(&name, special, name);
		return name ? bpf_probe_read_kernel_str(out, 64, name) : 0;
	}
	if (start < mm->brk && end > mm->start_brk) {
		__builtin_memcpy(out, "[heap]", 7);
		return 7;
	}
	if (start <= mm->start_stack && end >= mm->start_stack) {
		__builtin_memcpy(out, "[stack]", 8);
		return 8;
	}
	return 0;
}

/*
 * The name that the process gave to anonymous memory (PR_SET_VMA_ANON_NAME). Returns its length
 * with the NUL, 0 for none.
 */
static __always_inline long given_name(struct vm_area_struct *vma, char *out, bool is_shared)
{
	const char *name;
	long n, at = is_shared ? 12 : 6;

	if (!bpf_core_field_exists(vma->anon_name))
		return 0;
	name = (void *)vma->anon_name;
	if (!name)
		return 0;
	name += bpf_core_field_offset(struct anon_vma_name, name);
	if (is_shared)
		__builtin_memcpy(out, "[anon_shmem:", 12);
	else
		__builtin_memcpy(out, "[anon:", 6);
	n = bpf_probe_read_kernel_str(out + at, 128, name);
	if (n < 1 || n > 128)
		return 0;
	out[at + n - 1] = ']';
	return at + n + 1;
}

/*
 * vma_kernel_pagesize(). 0 for devices that have a function for it (DAX), which can't be called.
 * Without CONFIG_HUGETLBFS no mapping has VM_HUGETLB.
 */
static __always_inline __u64 page_size(struct vm_area_struct *vma, struct file *file, unsigned long flags)
{
	struct vm_operations_struct *ops = vma->vm_ops;

	if (!file)
		return PAGE_SIZE;
	if (flags & VM_HUGETLB) {
		struct hugetlbfs_sb_info *info = file->f_inode->i_sb->s_fs_info;

		if (!bpf_core_field_exists(info->hstate))
			return 0;
		return PAGE_SIZE << (BPF_CORE_READ(info, hstate, order) & 31);
	}
	return ops && ops->pagesize && (file->f_inode->i_mode & S_IFMT) == S_IFCHR ? 0 : PAGE_SIZE;
}

/* Whether a mapping passes the filter. Tests vm_flags first, before it reads other memory. */
static __always_inline bool passes_filter(struct vm_area_struct *vma, unsigned long vm_flags, struct file **file, __u32 *flags)
{
	*flags = vm_flags & (TD_VMA_READ | TD_VMA_WRITE | TD_VMA_EXEC);
	if (vm_flags & VM_MAYSHARE)
		*flags |= TD_VMA_SHARED;
	if ((walk.filter & ~TD_VMA_FILE) & ~*flags)
		return false;
	*file = vma->vm_file;
	if (*file)
		*flags |= TD_VMA_FILE;
	return !(walk.filter & ~*flags);
}

/* Whether a file is in `matches`. */
static __always_inline bool is_looked_for(struct file *file)
{
	struct inode *inode = file->f_inode;
	__u32 count = walk.matches_count, device, i;
	__u64 number = inode->i_ino;

#pragma nounroll
	for (i = 0; i < TD_FILE_MATCHES && i < count; i++) {
		if (walk.matches[i].inode != number)
			continue;
		device = inode->i_sb->s_dev;
		if (walk.matches[i].dev_major == device >> 20 && walk.matches[i].dev_minor == (device & 0xfffff))
			return true;
	}
	return false;
}

/* Fills in a record, except pid, len, flags and name. */
static __always_inline void fill_mapping(struct td_vma *record, struct vm_area_struct *vma, struct file *file, unsigned long vm_flags)
{
	record->start = vma->vm_start;
	record->end = vma->vm_end;
	record->page_size = page_size(vma, file, vm_flags);
	record->name_id = 0;
	if (file) {
		struct inode *inode = file->f_inode;
		__u32 device = inode->i_sb->s_dev;

		record->offset = (__u64)vma->vm_pgoff << PAGE_SHIFT;
		record->inode = inode->i_ino;
		record->dev_major = device >> 20;
		record->dev_minor = device & 0xfffff;
	} else {
		record->offset = 0;
		record->inode = 0;
		record->dev_major = 0;
		record->dev_minor = 0;
	}
}

static __always_inline void make_key(struct td_vma_name_key *key, struct file *file, const struct td_vma *record)
{
	struct dentry *dentry = file->f_path.dentry;

	key->mount = (__u64)file->f_path.mnt;
	key->dentry = (__u64)dentry;
	key->parent = (__u64)dentry->d_parent;
	BPF_CORE_READ_INTO(&key->hash_len, dentry, d_name.hash_len);
	key->unhashed = !dentry->d_hash.pprev;
	key->inode = record->inode;
	key->device = record->dev_major << 20 | record->dev_minor;
}

/* The name of a mapping if it is not a file's path. Returns its length with the NUL, 0 for none. */
static __always_inline long name_of_memory(struct vm_area_struct *vma, struct file *file, char *out)
{
	long n;

	if (file)
		return given_name(vma, out, true);
	n = special_name(vma, out);
	return n ? n : given_name(vma, out, false);
}

/*
 * The place for the next record. The verifier can't know the bound of a value in memory; the mask
 * gives it one.
 */
static __always_inline struct td_vma *next_record(void)
{
	__u64 filled = *(volatile __u32 *)&walk.filled;

	asm volatile("%0 &= %1" : "+r"(filled) : "i"(TD_VMA_RECORDS - 1));
	if (filled > TD_VMA_RECORDS - TD_VMA_ROOM)
		return 0;
	return (void *)(walk.records + filled);
}

/* Appends a record about a process. There is always room for one. */
static __always_inline void put_about_process(__u16 flags)
{
	struct td_vma *record = next_record();

	if (!record)
		return;
	__builtin_memset(record, 0, sizeof(*record));
	record->len = sizeof(*record);
	record->pid = walk.pid;
	record->flags = flags;
	walk.filled += sizeof(*record);
}

/* Defers a process to the text of its maps file. */
static __always_inline void put_deferred(void)
{
	put_about_process(TD_VMA_DEFER);
}

/* The id of a file's name in this pass. */
static __always_inline __u32 name_id(struct file *file, const struct td_vma *record)
{
	struct td_vma_name_key key = {};
	struct td_vma_name *known, fresh = {};
	struct td_vma_recent *recent;

	make_key(&key, file, record);
	/* Dentries are at least 192 bytes apart. */
	recent = &walk.recent[(key.dentry >> 6 ^ key.dentry >> 13) & (TD_VMA_RECENT - 1)];
	if (recent->name.epoch == walk.epoch && recent->key.mount == key.mount && recent->key.dentry == key.dentry &&
	    recent->key.parent == key.parent && recent->key.hash_len == key.hash_len && recent->key.inode == key.inode &&
	    recent->key.device == key.device && recent->key.unhashed == key.unhashed)
		return recent->name.id;
	known = bpf_map_lookup_elem(&names, &key);
	if (known && known->epoch == walk.epoch) {
		fresh = *known;
	} else {
		fresh.epoch = walk.epoch;
		fresh.id = ++walk.next_name;
		/* If the map is full, mappings of the same file get several ids. */
		bpf_map_update_elem(&names, &key, &fresh, 0);
	}
	recent->key = key;
	recent->name = fresh;
	return fresh.id;
}

/* Appends the record of a mapping. False if there is no room for it. */
static __always_inline bool put_mapping(__u64 at)
{
	struct vm_area_struct *vma = AT(vm_area_struct, at);
	unsigned long vm_flags = vma->vm_flags;
	struct td_vma *record;
	struct file *file = 0;
	__u32 flags, len;
	long n = 0;

	if (!passes_filter(vma, vm_flags, &file, &flags))
		return true;
	if (walk.matches_count && (!file || (!(file->f_mode & walk.backing_mode) && !is_looked_for(file))))
		return true;
	record = next_record();
	if (!record)
		return false;
	fill_mapping(record, vma, file, vm_flags);
	if (file && file->f_mode & walk.backing_mode)
		flags |= TD_VMA_DEFER;
	else if (walk.names) {
		n = name_of_memory(vma, file, (char *)(record + 1));
		if (file && n == 0)
			record->name_id = name_id(file, record);
	}
	record->pid = walk.pid;
	record->flags = flags;
	/* Without the NUL, which becomes padding. */
	n = n > 0 && n < 256 ? n - 1 : 0;
	record->name_len = n;
	len = (sizeof(*record) + n + 7) & ~7u;
	record->len = len;
	walk.filled += len;
	return true;
}

#endif
