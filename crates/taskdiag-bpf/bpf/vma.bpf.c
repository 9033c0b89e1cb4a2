// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Mappings: one record (vma.h) for each. A system call runs the program, which finds processes and mappings itself, since 6.11. It
 * waits for nothing and takes no lock of a process.
 *
 * Most files are mapped by many processes, and making a path of one is what takes longest. So a name has a number in a pass, and the
 * library finds out what it is.
 */
#include "compat.bpf.h"
#include "numbers.bpf.h"
#include "vma.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define PAGE_SHIFT (pass.page_shift & 31)
#define PAGE_SIZE (1ull << PAGE_SHIFT)
/* Below this there is nothing in memory: numbers that are no pointers. The same on all hosts. */
#define FIRST_POINTER 4096u

#define VM_MAYSHARE 0x80ul
#define VM_HUGETLB 0x400000ul
#define S_IFMT 0170000
#define S_IFCHR 0020000

struct td_vma_walk walk SEC(".bss");
#define pass walk.pass

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, struct td_vma_name_key);
	__type(value, struct td_vma_name);
} names SEC(".maps");

/* Names of what has no file: get_vma_name() of fs/proc/task_mmu.c. Returns the length with its NUL, 0 for none. */
static __always_inline long anonymous_name(struct vm_area_struct *vma, char *out)
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

/* The name that the process gave to its memory, in brackets. Returns the length with its NUL, 0 for none. */
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

/* vma_kernel_pagesize(). Only the devices of persistent memory have page sizes that we can't tell. */
static __always_inline __u64 page_size(struct vm_area_struct *vma, struct file *file, unsigned long flags)
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

/* What the filter tests; a mapping's own flags first, before any memory is looked at that no cache holds. */
static __always_inline bool passes(struct vm_area_struct *vma, unsigned long vm_flags, struct file **file, __u32 *flags)
{
	*flags = vm_flags & (TD_VMA_READ | TD_VMA_WRITE | TD_VMA_EXEC);
	if (vm_flags & VM_MAYSHARE)
		*flags |= TD_VMA_SHARED;
	if ((pass.filter & ~TD_VMA_FILE) & ~*flags)
		return false;
	*file = vma->vm_file;
	if (*file)
		*flags |= TD_VMA_FILE;
	return !(pass.filter & ~*flags);
}

/* Fills in a record, but for its process, its length, its flags and the number of its name. */
static __always_inline void describe(struct td_vma *record, struct vm_area_struct *vma, struct file *file, unsigned long vm_flags)
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

/* Names of what has no file, and those that shared memory was given. Returns the length with its NUL, 0 for none. */
static __always_inline long other_name(struct vm_area_struct *vma, struct file *file, char *out)
{
	long n;

	if (file)
		return given_name(vma, out, true);
	n = anonymous_name(vma, out);
	return n ? n : given_name(vma, out, false);
}

/* A number of pointer size, at an address. */
#define AT(type, address) ((struct type *)bpf_rdonly_cast((void *)(address), bpf_core_type_id_kernel(struct type)))
/* What is loaded before it is needed, so that the processor waits for several places in memory at once. */
#define LOAD(value) asm volatile("" : : "r"(value))

/* A pointer as a number: through memory, since the verifier does not let a program calculate with most pointers. */
static __always_inline __u64 address(const void *pointer)
{
	walk.address = (__u64)pointer;
	barrier();
	return *(volatile __u64 *)&walk.address;
}

/* Nothing that is read before it is read after it, and the other way round. */
static __always_inline void fence(void)
{
	LOAD(__sync_fetch_and_add(&walk.address, 1));
}

/* ---- the tree of mappings ---- */

/*
 * Who changes how memory is mapped holds mmap_lock for writing, and counts that in mm_lock_seq: when it begins and when it ends, or
 * (before 6.14) only when it ends. So what was read between two looks at both is what was mapped all the time, if no writer was there
 * at either and the count is the same. What is no longer mapped stays readable under RCU, or is at worst another mapping: the count
 * tells. The lock is looked at first: a writer that ends between the two shows in the count.
 */
static __always_inline bool is_quiet(struct mm_struct *mm, __u64 *sequence)
{
	const __u64 writer = 1; /* RWSEM_WRITER_LOCKED */
	__u64 count = *(volatile long *)&mm->mmap_lock.count.counter;

	fence();
	if (bpf_core_field_exists(mm->mm_lock_seq.sequence)) {
		*sequence = *(volatile unsigned int *)&mm->mm_lock_seq.sequence;
		return !(count & writer) && !(*sequence & 1);
	}
	*sequence = BPF_CORE_READ((struct mm_struct___pre614 *)mm, mm_lock_seq);
	return !(count & writer);
}

/* Whether this kernel has trees of mappings as we know them, and counts who changes them. */
static __always_inline bool is_known_kernel(void)
{
	struct maple_range_64 *leaf = 0;
	struct maple_arange_64 *branch = 0;
	struct mm_struct___pre614 *old = 0;
	struct mm_struct *mm = 0;

	return bpf_core_field_size(leaf->pivot) == 15 * sizeof(__u64) && bpf_core_field_size(leaf->slot) == 16 * sizeof(__u64) &&
	       bpf_core_field_size(branch->pivot) == 9 * sizeof(__u64) && bpf_core_field_size(branch->slot) == 10 * sizeof(__u64) &&
	       (bpf_core_field_exists(mm->mm_lock_seq.sequence) || bpf_core_field_exists(old->mm_lock_seq)) &&
	       bpf_core_field_exists(mm->mmap_lock.count);
}

#define NODE_SIZE 256
/* enum maple_type */
#define MAPLE_LEAF_64 1
#define MAPLE_ARANGE_64 3

/* A pointer to a node carries its type in the lower bits. */
static __always_inline __u32 node_type(__u64 entry)
{
	return entry >> 3 & 15;
}

static __always_inline __u64 word_in(const __u64 *node, __u32 offset, __u32 index)
{
	return *(const __u64 *)((const char *)node + offset + (index & 15) * sizeof(__u64));
}

#define PIVOT(node, type, index) word_in(node, bpf_core_field_offset(struct type, pivot), index)
#define SLOT(node, type, index) word_in(node, bpf_core_field_offset(struct type, slot), index)
#define LAST_SLOT(node, type) (*(const __u8 *)((const char *)(node) + bpf_core_field_offset(struct type, meta.end)))

static __always_inline bool copy_node(__u64 *copy, __u64 entry)
{
	return entry >= FIRST_POINTER && !bpf_probe_read_kernel(copy, NODE_SIZE, (void *)(entry & ~(NODE_SIZE - 1ull)));
}

/* 1 if a is below b, else 0: without a branch, each of which the verifier would follow. */
static __always_inline __u64 below(__u64 a, __u64 b)
{
	__u64 difference = a - b;

	/* Or clang makes a branch of it. */
	barrier_var(difference);
	return ((~a & b) | (~(a ^ b) & difference)) >> 63;
}

/* The slot for an address in a copy of a node: the first whose pivot is not below it, or the last. */
#define SLOT_FOR(place, node, type, pivots, last, address)                                                                \
	do {                                                                                                              \
		(place) = 0;                                                                                              \
		_Pragma("unroll") for (int pivot_ = 0; pivot_ < (pivots); pivot_++)(place) +=                              \
			below(pivot_, last) & below(PIVOT(node, type, pivot_), address);                                  \
	} while (0)

/*
 * Copies the leaf for an address, as mtree_range_walk() of lib/maple_tree.c finds it, and the node above it. False where there is
 * nothing like it: the tree is empty, or being changed.
 */
static __noinline bool find_leaf(__u64 address)
{
	__u64 entry = *(volatile __u64 *)&walk.root, max = ~0ull;
	__u64 index, end;
	__u32 level;

	if (walk.has_branch && address <= walk.branch_max) {
		entry = 0;
		max = walk.branch_max;
	} else {
		walk.has_branch = 0;
	}
#pragma nounroll
	for (level = 0; level < 10; level++) {
		if (entry) {
			if (node_type(entry) == MAPLE_LEAF_64)
				break;
			if (node_type(entry) != MAPLE_ARANGE_64 || !copy_node(walk.branch, entry))
				return false;
			walk.has_branch = 1;
			walk.branch_max = max;
		}
		end = LAST_SLOT(walk.branch, maple_arange_64);
		SLOT_FOR(index, walk.branch, maple_arange_64, 9, end, address);
		if (index < end)
			max = PIVOT(walk.branch, maple_arange_64, index);
		entry = SLOT(walk.branch, maple_arange_64, index);
	}
	if (node_type(entry) != MAPLE_LEAF_64 || !copy_node(walk.leaf, entry))
		return false;
	walk.leaf_max = max;
	/* ma_data_end() */
	max ^= PIVOT(walk.leaf, maple_range_64, 14);
	if (max == walk.leaf_max)
		walk.leaf_end = LAST_SLOT(walk.leaf, maple_range_64) & 15;
	else
		walk.leaf_end = max ? 15 : 14;
	return true;
}

/* ---- records ---- */

/* Where the next record goes. The mask tells the verifier a bound that it can't know of memory. */
static __always_inline struct td_vma *next_record(void)
{
	__u64 filled = *(volatile __u32 *)&walk.filled;

	asm volatile("%0 &= %1" : "+r"(filled) : "i"(TD_VMA_RECORDS - 1));
	if (filled > TD_VMA_RECORDS - TD_VMA_ROOM)
		return 0;
	return (void *)(walk.records + filled);
}

/* Puts down that the text has to be asked about a process. There is room for this behind each process. */
static __always_inline void put_deferred(void)
{
	struct td_vma *record = next_record();

	if (!record)
		return;
	__builtin_memset(record, 0, sizeof(*record));
	record->len = sizeof(*record);
	record->pid = pass.pid;
	record->flags = TD_VMA_DEFER;
	walk.filled += sizeof(*record);
}

/* The number of a file's name in this pass. */
static __always_inline __u32 name_id(struct file *file, const struct td_vma *record)
{
	struct td_vma_name_key key = {};
	struct td_vma_name *known, fresh = {};
	struct td_vma_recent *recent;

	make_key(&key, file, record);
	/* Structs of dentries lie 192 bytes apart, or some more. */
	recent = &walk.recent[(key.dentry >> 6 ^ key.dentry >> 13) & (TD_VMA_RECENT - 1)];
	if (recent->name.epoch == pass.epoch && recent->key.mount == key.mount && recent->key.dentry == key.dentry &&
	    recent->key.parent == key.parent && recent->key.hash_len == key.hash_len && recent->key.inode == key.inode &&
	    recent->key.device == key.device && recent->key.unhashed == key.unhashed)
		return recent->name.id;
	known = bpf_map_lookup_elem(&names, &key);
	if (known && known->epoch == pass.epoch) {
		fresh = *known;
	} else {
		fresh.epoch = pass.epoch;
		fresh.id = ++pass.next_name;
		/* Where there is no more room some mappings have a number of their own. */
		bpf_map_update_elem(&names, &key, &fresh, 0);
	}
	recent->key = key;
	recent->name = fresh;
	return fresh.id;
}

/* Makes the record of a mapping. False where there is no room for it. */
static __always_inline bool put_mapping(__u64 at)
{
	struct vm_area_struct *vma = AT(vm_area_struct, at);
	unsigned long vm_flags = vma->vm_flags;
	struct td_vma *record;
	struct file *file = 0;
	__u32 flags, len;
	long n = 0;

	if (!passes(vma, vm_flags, &file, &flags))
		return true;
	record = next_record();
	if (!record)
		return false;
	describe(record, vma, file, vm_flags);
	if (file && file->f_mode & pass.backing_mode)
		flags |= TD_VMA_DEFER;
	else if (pass.names) {
		n = other_name(vma, file, (char *)(record + 1));
		if (file && n == 0)
			record->name_id = name_id(file, record);
	}
	record->pid = pass.pid;
	record->flags = flags;
	/* Without its NUL, which then is padding. */
	n = n > 0 && n < 256 ? n - 1 : 0;
	record->name_len = n;
	len = (sizeof(*record) + n + 7) & ~7u;
	record->len = len;
	walk.filled += len;
	return true;
}

/* ---- one process ---- */

static long put_slot(__u32 index, void *nothing)
{
	__u64 vma = SLOT(walk.leaf, maple_range_64, walk.slot + index);

	/* A gap, or a mark. */
	if (vma < FIRST_POINTER || vma & 3)
		return 0;
	/* Where it went on, this leaf may begin before. */
	if (walk.from && AT(vm_area_struct, vma)->vm_end <= walk.from)
		return 0;
	if (put_mapping(vma))
		return 0;
	walk.from = AT(vm_area_struct, vma)->vm_start;
	walk.state = TD_VMA_GOES_ON;
	return 1;
}

/* Finds the next leaf to be read, and which of its slots: all, or that of an address; addresses come in order. */
static long put_leaf(__u32 index, void *nothing)
{
	__u64 address = walk.looked_up, place, end;

	walk.slot = 0;
	walk.slots_count = 0;
	if (walk.question == TD_VMA_LOOK_UP) {
		if (index >= walk.count) {
			walk.state = TD_VMA_ENDED;
			return 1;
		}
		address = walk.addresses[index & (TD_VMA_ADDRESSES - 1)];
		if (address < walk.looked_up)
			return 0;
	} else if (!walk.leaves) {
		walk.from = walk.looked_up;
		walk.state = TD_VMA_GOES_ON;
		return 1;
	} else {
		walk.leaves--;
	}
	if (!walk.has_leaf || walk.leaf_max < address || walk.question != TD_VMA_LOOK_UP) {
		walk.has_leaf = 0;
		if (!find_leaf(address)) {
			walk.state = TD_VMA_CHANGED;
			return 1;
		}
		walk.has_leaf = 1;
	}
	end = walk.leaf_end;
	walk.looked_up = walk.leaf_max == ~0ull ? walk.leaf_max : walk.leaf_max + 1;
	if (walk.question == TD_VMA_LOOK_UP) {
		SLOT_FOR(place, walk.leaf, maple_range_64, 15, end, address);
		walk.slot = place;
		walk.slots_count = 1;
		/* The end of the mapping, or of the gap. */
		if (place < end)
			walk.looked_up = PIVOT(walk.leaf, maple_range_64, place) + 1;
	} else {
		walk.slots_count = end + 1;
#pragma unroll
		for (int i = 0; i < 16; i++) {
			struct vm_area_struct *vma = AT(vm_area_struct, SLOT(walk.leaf, maple_range_64, i));

			LOAD(vma->vm_flags);
			LOAD(vma->vm_file);
		}
	}
	bpf_loop(walk.slots_count, put_slot, 0, 0);
	if (walk.state != TD_VMA_NOWHERE)
		return 1;
	if (walk.question != TD_VMA_LOOK_UP && walk.leaf_max == ~0ull) {
		walk.state = TD_VMA_ENDED;
		return 1;
	}
	return 0;
}

/* The most leaves that are read in a run: the program is under RCU meanwhile, for some milliseconds. */
#define LEAVES 16384

/* Reads what is asked for of the memory that `walk` names. It says in `walk.state` what became of it. */
static __always_inline void read_memory(struct mm_struct *mm)
{
	__u64 sequence;

	walk.begun = walk.filled;
	walk.state = TD_VMA_CHANGED;
	if (!is_quiet(mm, &sequence))
		return;
	if (!walk.from && walk.question != TD_VMA_CHECK) {
		walk.sequence = sequence;
	} else if (walk.sequence != sequence) {
		return;
	}
	if (walk.question == TD_VMA_CHECK) {
		walk.state = TD_VMA_ENDED;
		return;
	}
	fence();
	walk.root = address(mm->mm_mt.ma_root);
	walk.has_branch = 0;
	walk.has_leaf = 0;
	walk.looked_up = walk.from;
	walk.state = TD_VMA_NOWHERE;
	bpf_loop(LEAVES + 1, put_leaf, 0, 0);
	if (walk.state == TD_VMA_ENDED)
		walk.from = 0;
	fence();
	if (!is_quiet(mm, &sequence) || walk.sequence != sequence)
		walk.state = TD_VMA_CHANGED;
}

/* Finds the memory that a maps file of the calling process is of. False if there is none, or it is another than before. */
static __always_inline bool find_file(void)
{
	struct files_struct *files = untrusted(bpf_get_current_task_btf())->files;
	struct proc_maps_private *private;
	struct seq_file___open *seq;
	struct mm_struct *mm;
	__u64 file = 0, open;

	bpf_probe_read_kernel(&file, sizeof(file), (void *)(address(files->fdt->fd) + (__u64)walk.fd * sizeof(file)));
	seq = AT(file, file)->private_data;
	open = address(BPF_CORE_READ(seq, private));
	private = (void *)open;
	if (bpf_core_field_exists(private->lock_ctx))
		mm = BPF_CORE_READ(private, lock_ctx.mm);
	else
		mm = BPF_CORE_READ((struct proc_maps_private___pre618 *)open, mm);
	if (!walk.from && walk.question != TD_VMA_CHECK)
		walk.mm = address(mm);
	return mm && walk.mm == address(mm);
}

/* ---- all processes ---- */

static long meet_process(__u32 index, void *nothing)
{
	__u64 offset = bpf_core_field_offset(struct task_struct, pid_links) + PIDTYPE_TGID * bpf_core_type_size(struct hlist_node);
	__u32 number = walk.last + 1 + index, at = *(volatile __u32 *)&walk.met & (TD_VMA_BLOCK - 1);
	__u64 entry, link;

	if (number >= walk.behind)
		return 1;
	entry = walk.slots[number & (SLOTS - 1)];
	/* Not in use, or no pointer. */
	if (!entry || entry & 3)
		return 0;
	link = address(AT(pid, entry)->tasks[PIDTYPE_TGID].first);
	if (!link)
		return 0;
	walk.tasks[at] = link - offset;
	walk.pids[at] = number;
	walk.met = at + 1;
	return 0;
}

static __always_inline struct task_struct *met(__u32 index)
{
	return AT(task_struct, walk.tasks[index & (TD_VMA_BLOCK - 1)]);
}

static long warm_task(__u32 index, void *nothing)
{
	struct task_struct *task = met(index);

	LOAD(task->flags);
	LOAD(task->mm);
	LOAD(task->start_boottime);
	LOAD(task->self_exec_id);
	return 0;
}

static long warm_mm(__u32 index, void *nothing)
{
	struct mm_struct *mm = met(index)->mm;

	LOAD(mm->mm_mt.ma_root);
	LOAD(mm->mmap_lock.count.counter);
	LOAD(mm->start_stack);
	return 0;
}

static long warm_root(__u32 index, void *nothing)
{
	__u64 node = address(met(index)->mm->mm_mt.ma_root) & ~(NODE_SIZE - 1ull);

#pragma unroll
	for (int line = 0; line < 4; line++)
		LOAD(AT(timespec64, node + line * 64)->tv_sec);
	return 0;
}

/* Whether there is something to be read of a process that was met. */
static __always_inline bool begin_process(__u32 index)
{
	struct task_struct *task = met(index);
	__u64 mm = address(*(struct mm_struct *volatile *)&task->mm);

	if (task->flags & PF_KTHREAD)
		return false;
	/* The one that was not read to its end is no longer there, or of another program. */
	if (walk.from && (walk.task != address(task) || walk.mm != mm || walk.start_ns != task->start_boottime ||
			  walk.exec_id != task->self_exec_id)) {
		put_deferred();
		walk.from = 0;
	}
	pass.pid = walk.pids[index & (TD_VMA_BLOCK - 1)];
	if (!walk.from) {
		walk.task = address(task);
		walk.mm = mm;
		walk.start_ns = task->start_boottime;
		walk.exec_id = task->self_exec_id;
	}
	/* Some systems shield the first process from all others: procfs knows. Or the first thread has ended, or not begun. */
	if (pass.pid == 1 || (!mm && task->signal->nr_threads > 1)) {
		pass.saw_first |= pass.pid == 1;
		put_deferred();
		mm = 0;
	}
	if (!mm)
		walk.last = pass.pid;
	return mm;
}

static long visit(__u32 index, void *nothing)
{
	struct task_struct *task = met(index);
	struct mm_struct *mm;

	if (walk.question == TD_VMA_MACHINE) {
		/* Without the room for one that can't be told of, which is always needed. */
		if (walk.filled > TD_VMA_RECORDS - 2 * TD_VMA_ROOM) {
			walk.state = TD_VMA_GOES_ON;
			return 1;
		}
		if (!begin_process(index))
			return 0;
	}
	mm = AT(mm_struct, walk.mm);
	read_memory(mm);
	if (walk.question != TD_VMA_MACHINE) {
		/* The file keeps the struct, but not what is mapped: that goes with its last user. */
		if (*(volatile int *)&mm->mm_users.counter < 1)
			walk.state = TD_VMA_GONE;
		return 1;
	}
	/* Of another program, or of nobody any more? */
	if (address(*(struct mm_struct *volatile *)&task->mm) != walk.mm ||
	    *(volatile __u64 *)&task->self_exec_id != walk.exec_id)
		walk.state = TD_VMA_CHANGED;
	if (walk.state == TD_VMA_GOES_ON)
		return 1;
	if (walk.state != TD_VMA_ENDED) {
		walk.from = 0;
		walk.filled = walk.begun;
		put_deferred();
	}
	walk.last = pass.pid;
	walk.state = TD_VMA_ENDED;
	return 0;
}

/* Finds the processes among the next SLOTS numbers, and loads what leads to their mappings. Returns the last number that is done with. */
static __always_inline __u32 meet_processes(void)
{
	__u64 leaf;

	leaf = leaf_of_numbers(root_of_numbers(), walk.last + 1, &walk.behind);
	if (leaf) {
		bpf_probe_read_kernel(walk.slots, sizeof(walk.slots), (void *)(leaf + bpf_core_field_offset(struct xa_node, slots)));
		bpf_loop(SLOTS, meet_process, 0, 0);
	}
	bpf_loop(walk.met, warm_task, 0, 0);
	bpf_loop(walk.met, warm_mm, 0, 0);
	bpf_loop(walk.met, warm_root, 0, 0);
	return walk.behind ? walk.behind - 1 : 0;
}

/* Visits those processes, or the memory behind a file. */
static long visit_some(__u32 index, void *nothing)
{
	__u32 end = 0;

	walk.met = 0;
	walk.state = TD_VMA_ENDED;
	bpf_rcu_read_lock();
	if (walk.question == TD_VMA_MACHINE) {
		end = meet_processes();
	} else {
		walk.state = TD_VMA_GONE;
		walk.met = find_file();
	}
	bpf_loop(walk.met, visit, 0, 0);
	bpf_rcu_read_unlock();
	if (walk.question != TD_VMA_MACHINE || walk.state == TD_VMA_GOES_ON || !end)
		return 1;
	walk.state = TD_VMA_GOES_ON;
	walk.last = end;
	return 0;
}

/*
 * Run by a system call. The kernel's iterator over mappings waits for the lock of a process's memory, which the process can keep, and
 * holds up RCU meanwhile; PROCMAP_QUERY is a system call for each mapping. Here the tree is read as it lies in memory, and checked
 * afterwards that it stayed as it was. Names of files are not made here: the library asks PROCMAP_QUERY for one of each.
 */
SEC("syscall")
int vma_walk(void *ctx)
{
	walk.filled = 0;
	walk.leaves = LEAVES;
	walk.state = TD_VMA_NOWHERE;
	if (!is_known_kernel())
		return 0;
	if (bpf_core_field_size(((struct xa_node *)0)->slots) != SLOTS * sizeof(void *))
		return 0;
	walk.state = TD_VMA_ENDED;
	bpf_loop(walk.blocks, visit_some, 0, 0);
	if (walk.question == TD_VMA_MACHINE && walk.state == TD_VMA_ENDED && walk.from)
		put_deferred();
	return 0;
}
