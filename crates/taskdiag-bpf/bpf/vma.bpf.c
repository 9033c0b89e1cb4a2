// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Mappings: the program writes one record (td_vma) for each. A system call runs the program, which
 * finds processes and mappings itself. It needs Linux 6.11, waits for nothing and takes no lock.
 *
 * Most files are mapped by many processes, and building their paths would take the most time. So
 * each name has an id within a pass, and the library looks up the path of each id.
 */
#include "pid_idr.bpf.h"
#include "vma/address_space.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static long collect_process(__u32 index, void *nothing)
{
	__u64 offset = bpf_core_field_offset(struct task_struct, pid_links) + PIDTYPE_TGID * bpf_core_type_size(struct hlist_node);
	__u32 number = walk.cursor + 1 + index, at = *(volatile __u32 *)&walk.found & (TD_VMA_BLOCK - 1);
	__u64 entry, link;

	if (number >= walk.pid_leaf_end)
		return 1;
	entry = walk.slots[number & (SLOTS - 1)];
	if (!xa_is_pointer(entry))
		return 0;
	link = address(AT(pid, entry)->tasks[PIDTYPE_TGID].first);
	if (!link)
		return 0;
	walk.tasks[at] = link - offset;
	walk.pids[at] = number;
	walk.found = at + 1;
	return 0;
}

static __always_inline struct task_struct *found_task(__u32 index)
{
	return AT(task_struct, walk.tasks[index & (TD_VMA_BLOCK - 1)]);
}

static long prefetch_task(__u32 index, void *nothing)
{
	struct task_struct *task = found_task(index);

	PREFETCH(task->flags);
	PREFETCH(task->mm);
	PREFETCH(task->start_boottime);
	PREFETCH(task->self_exec_id);
	return 0;
}

static long prefetch_mm(__u32 index, void *nothing)
{
	struct mm_struct *mm = found_task(index)->mm;

	PREFETCH(mm->mm_mt.ma_root);
	PREFETCH(mm->mmap_lock.count.counter);
	PREFETCH(mm->start_stack);
	return 0;
}

static long prefetch_root(__u32 index, void *nothing)
{
	__u64 node = address(found_task(index)->mm->mm_mt.ma_root) & ~(NODE_SIZE - 1ull);

#pragma unroll
	for (int line = 0; line < 4; line++)
		PREFETCH(AT(timespec64, node + line * 64)->tv_sec);
	return 0;
}

/* Whether a process has mappings to read. */
static __always_inline bool begin_process(__u32 index)
{
	struct task_struct *task = found_task(index);
	__u64 mm = address(*(struct mm_struct *volatile *)&task->mm);

	if (task->flags & PF_KTHREAD) {
		if (walk.matches_count) {
			walk.pid = walk.pids[index & (TD_VMA_BLOCK - 1)];
			put_about_process(TD_VMA_NO_OTHER);
		}
		return false;
	}
	/* The process that was being read has ended or executed a program. */
	if (walk.from && (walk.task != address(task) || walk.mm != mm || walk.start_ns != task->start_boottime ||
			  walk.exec_id != task->self_exec_id)) {
		put_deferred();
		walk.from = 0;
	}
	walk.pid = walk.pids[index & (TD_VMA_BLOCK - 1)];
	if (!walk.from) {
		walk.task = address(task);
		walk.mm = mm;
		walk.start_ns = task->start_boottime;
		walk.exec_id = task->self_exec_id;
	}
	/*
	 * Some systems hide process 1 from everybody, and only procfs knows it. A leader that has
	 * exited has no mm.
	 */
	if (walk.pid == 1 || (!mm && task->signal->nr_threads > 1)) {
		walk.saw_init |= walk.pid == 1;
		put_deferred();
		mm = 0;
	}
	if (!mm)
		walk.cursor = walk.pid;
	return mm;
}

static long visit(__u32 index, void *nothing)
{
	struct task_struct *task = found_task(index);
	struct mm_struct *mm;

	if (walk.op == TD_VMA_MACHINE) {
		/* Keep room for one more deferred record. */
		if (walk.filled > TD_VMA_RECORDS - 2 * TD_VMA_ROOM) {
			walk.state = TD_VMA_GOES_ON;
			return 1;
		}
		if (!begin_process(index))
			return 0;
	}
	mm = AT(mm_struct, walk.mm);
	read_memory(mm);
	if (walk.op != TD_VMA_MACHINE) {
		/*
		 * The maps file holds a reference to the mm, but the mappings go away with the last
		 * user of the mm.
		 */
		if (*(volatile int *)&mm->mm_users.counter < 1)
			walk.state = TD_VMA_GONE;
		return 1;
	}
	/* The process may have executed a program, or exited. */
	if (address(*(struct mm_struct *volatile *)&task->mm) != walk.mm ||
	    *(volatile __u64 *)&task->self_exec_id != walk.exec_id)
		walk.state = TD_VMA_CHANGED;
	if (walk.state == TD_VMA_GOES_ON)
		return 1;
	if (walk.state != TD_VMA_ENDED) {
		walk.from = 0;
		walk.filled = walk.process_start;
		put_deferred();
	} else if (walk.matches_count) {
		put_about_process(TD_VMA_NO_OTHER);
	}
	walk.cursor = walk.pid;
	walk.state = TD_VMA_ENDED;
	return 0;
}

/*
 * Finds the processes of the next SLOTS pid numbers, and prefetches the memory that leads to their
 * mappings. Returns the last of those numbers.
 */
static __always_inline __u32 find_processes(void)
{
	__u64 leaf;

	leaf = pid_idr_leaf(pid_idr_root(), walk.cursor + 1, &walk.pid_leaf_end);
	if (leaf) {
		bpf_probe_read_kernel(walk.slots, sizeof(walk.slots), (void *)(leaf + bpf_core_field_offset(struct xa_node, slots)));
		bpf_loop(SLOTS, collect_process, 0, 0);
	}
	bpf_loop(walk.found, prefetch_task, 0, 0);
	bpf_loop(walk.found, prefetch_mm, 0, 0);
	bpf_loop(walk.found, prefetch_root, 0, 0);
	return walk.pid_leaf_end ? walk.pid_leaf_end - 1 : 0;
}

/* Visits these processes, or the address space of a maps file. */
static long visit_block(__u32 index, void *nothing)
{
	__u32 end = 0;

	walk.found = 0;
	walk.state = TD_VMA_ENDED;
	bpf_rcu_read_lock();
	if (walk.op == TD_VMA_MACHINE) {
		end = find_processes();
	} else {
		walk.state = TD_VMA_GONE;
		walk.found = find_file();
	}
	bpf_loop(walk.found, visit, 0, 0);
	bpf_rcu_read_unlock();
	if (walk.op != TD_VMA_MACHINE || walk.state == TD_VMA_GOES_ON || !end)
		return 1;
	walk.state = TD_VMA_GOES_ON;
	walk.cursor = end;
	return 0;
}

/*
 * Run by a system call. The kernel's iterator over mappings waits for mmap_lock, which the process
 * can hold, and holds up RCU while it waits. PROCMAP_QUERY takes a system call for each mapping.
 * This program reads the tree without the lock, and checks afterwards that it did not change. It
 * builds no paths of files: for each name, the library calls PROCMAP_QUERY once.
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
	bpf_loop(walk.blocks, visit_block, 0, 0);
	if (walk.op == TD_VMA_MACHINE && walk.state == TD_VMA_ENDED && walk.from)
		put_deferred();
	return 0;
}
