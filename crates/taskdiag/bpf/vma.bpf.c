// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The iterator over mappings: called by the kernel once for each mapping of each process, it writes one record (vma.h).
 *
 * The kernel visits the mappings of every task whose open files are not its leader's. That is meant to leave out threads, but
 * shows the mappings of a process once for each thread when its leader has ended, and again for threads with files of their
 * own. Only leaders are recorded here, and threads without a living leader: the library takes the first one of those.
 *
 * Making a path of a file is what takes longest, and most files are mapped by many processes. So a path is made once in a
 * pass, and later records tell the number it was given.
 */
#include "compat.bpf.h"
#include "vma.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define PAGE_SIZE 4096u
#define PAGE_SHIFT 12

#define VM_MAYSHARE 0x80ul
#define VM_HUGETLB 0x400000ul
#define S_IFMT 0170000
#define S_IFCHR 0020000

struct td_vma_reader reader SEC(".bss");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct td_vma_name_key);
	__type(value, struct td_vma_name);
} names SEC(".maps");

/* The number of a process in the pid namespace of whoever reads. */
static __always_inline __u32 reader_pid(struct task_struct *task)
{
	struct task_struct *current = untrusted(bpf_get_current_task_btf());
	__u32 level = current->thread_pid->level;
	struct pid *pid;
	struct upid upid;

	if (level == 0)
		return task->tgid;
	pid = untrusted(task)->signal->pids[PIDTYPE_TGID];
	if (!pid || pid->level < level ||
	    bpf_probe_read_kernel(&upid, sizeof(upid), (void *)pid->numbers + level * sizeof(upid)))
		return 0;
	return *(volatile int *)&upid.nr;
}

/* Names of what has no file: get_vma_name() of fs/proc/task_mmu.c. Returns the length with its NUL, 0 for none. */
static __always_inline long anonymous_name(struct vm_area_struct *vma)
{
	struct vm_operations_struct *ops = vma->vm_ops;
	struct mm_struct *mm = vma->vm_mm;
	unsigned long start = vma->vm_start, end = vma->vm_end;
	bool is_heap;

	if (ops && ops->name) {
		struct vm_special_mapping *special = vma->vm_private_data;
		const char *name = 0;

		BPF_CORE_READ_INTO(&name, special, name);
		return name ? bpf_probe_read_kernel_str(reader.name, 64, name) : 0;
	}
	is_heap = reader.touching_heap ? start <= mm->brk && end >= mm->start_brk : start < mm->brk && end > mm->start_brk;
	if (is_heap) {
		__builtin_memcpy(reader.name, "[heap]", 7);
		return 7;
	}
	if (start <= mm->start_stack && end >= mm->start_stack) {
		__builtin_memcpy(reader.name, "[stack]", 8);
		return 8;
	}
	return 0;
}

/* The name that the process gave to its memory, in brackets. Returns the length with its NUL, 0 for none. */
static __always_inline long given_name(struct vm_area_struct *vma, bool is_shared)
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
		__builtin_memcpy(reader.name, "[anon_shmem:", 12);
	else
		__builtin_memcpy(reader.name, "[anon:", 6);
	n = bpf_probe_read_kernel_str(reader.name + at, 128, name);
	if (n < 1 || n > 128)
		return 0;
	reader.name[at + n - 1] = ']';
	return at + n + 1;
}

/* vma_kernel_pagesize(). Only the devices of persistent memory have page sizes that we can't tell. */
static __always_inline __u32 page_size(struct vm_area_struct *vma, struct file *file, unsigned long flags)
{
	struct vm_operations_struct *ops = vma->vm_ops;

	if (!file)
		return PAGE_SIZE;
	if (flags & VM_HUGETLB) {
		struct hugetlbfs_sb_info *info = file->f_inode->i_sb->s_fs_info;

		return PAGE_SIZE << (BPF_CORE_READ(info, hstate, order) & 31);
	}
	return ops && ops->pagesize && (file->f_inode->i_mode & S_IFMT) == S_IFCHR ? 0 : PAGE_SIZE;
}

SEC("iter/task_vma")
int vma_record(struct bpf_iter__task_vma *ctx)
{
	struct vm_area_struct *vma = ctx->vma;
	struct task_struct *task = ctx->task;
	struct td_vma *record = &reader.record;
	struct td_vma_name_key key = {};
	struct td_vma_name *known, fresh = {};
	unsigned long vm_flags;
	struct file *file;
	__u32 flags, len;
	long n = 0;

	if (!task || !vma)
		return 0;
	if (reader.tgid != task->tgid) {
		reader.tgid = task->tgid;
		reader.processes++;
		reader.pid = reader_pid(task);
		if (reader.pid == 1)
			reader.saw_first = 1;
	}
	vm_flags = vma->vm_flags;
	flags = vm_flags & (TD_VMA_READ | TD_VMA_WRITE | TD_VMA_EXEC);
	if (vm_flags & VM_MAYSHARE)
		flags |= TD_VMA_SHARED;
	/* Most mappings end here, before any memory is looked at that no cache holds. */
	if ((reader.filter & ~TD_VMA_FILE) & ~flags || !reader.pid)
		return 0;
	file = vma->vm_file;
	if (file)
		flags |= TD_VMA_FILE;
	if (reader.filter & ~flags)
		return 0;
	if (task->pid != task->tgid && untrusted(task)->group_leader->mm)
		return 0;

	record->pid = reader.pid;
	record->tid = task->pid == task->tgid ? reader.pid : task->pid | TD_VMA_OTHER_THREAD;
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
		if (file->f_mode & reader.backing_mode)
			flags |= TD_VMA_DEFER;
		else if (reader.names) {
			if (reader.shared_names)
				n = given_name(vma, true);
			if (n == 0) {
				struct dentry *dentry = file->f_path.dentry;

				key.mount = (__u64)file->f_path.mnt;
				key.dentry = (__u64)dentry;
				key.parent = (__u64)dentry->d_parent;
				BPF_CORE_READ_INTO(&key.hash_len, dentry, d_name.hash_len);
				key.unhashed = !dentry->d_hash.pprev;
				key.inode = record->inode;
				key.device = device;
				known = bpf_map_lookup_elem(&names, &key);
				if (known && known->epoch == reader.epoch) {
					record->name_id = known->id;
				} else {
					n = bpf_d_path(&file->f_path, reader.name, TD_VMA_NAME_MAX);
					if (n < 0) {
						flags |= TD_VMA_LONG_NAME;
						n = 0;
					} else {
						fresh.epoch = reader.epoch;
						fresh.id = ++reader.next_name;
						if (!bpf_map_update_elem(&names, &key, &fresh, 0))
							record->name_id = fresh.id;
						else
							fresh.id = 0;
					}
				}
			}
		}
	} else {
		record->offset = 0;
		record->inode = 0;
		record->dev_major = 0;
		record->dev_minor = 0;
		if (reader.names) {
			n = anonymous_name(vma);
			if (n == 0)
				n = given_name(vma, false);
		}
	}

	record->flags = flags;
	/* Without its NUL, which then is padding. */
	n = n > 0 ? n - 1 : 0;
	if (n > TD_VMA_NAME_MAX)
		return 0;
	record->name_len = n;
	len = (sizeof(*record) + n + 7) & ~7u;
	record->len = len;
	/* The buffer is full: the kernel drops what we wrote and calls again for this mapping at the next read. */
	if (bpf_seq_write(ctx->meta->seq, record, len) && fresh.id)
		bpf_map_delete_elem(&names, &key);
	return 0;
}
