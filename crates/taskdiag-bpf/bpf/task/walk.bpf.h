/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The walk, in which the program finds the tasks itself (TD_WALKS=1). */
#ifndef TASKDIAG_TASK_WALK_BPF_H
#define TASKDIAG_TASK_WALK_BPF_H

#include "record.bpf.h"

static __always_inline struct pid *pid_at(__u64 address)
{
	return bpf_rdonly_cast((void *)address, bpf_core_type_id_kernel(struct pid));
}

/* The struct pid that has this number, 0 if there is none. */
static __always_inline __u64 find_pid(struct td_reader *reader, __u32 number)
{
	__u64 leaf = pid_idr_leaf(reader->walk.root, number, &reader->walk.leaf_end);
	__u64 entry = leaf ? xa_slot(leaf, number) : 0;

	return xa_is_pointer(entry) ? entry : 0;
}

/* Adds a task to visit. `cursor` is the walk's cursor after the visit. */
static __always_inline void add_found(struct td_reader *reader, __u64 pid, __u64 task, __u32 cursor)
{
	struct td_walk *walk = &reader->walk;
	__u32 at = *(volatile __u32 *)&walk->found & (SLOTS - 1);

	if (!task)
		return;
	walk->pids[at] = pid;
	walk->tasks[at] = task;
	walk->cursors[at] = cursor;
	*(volatile __u32 *)&walk->found = at + 1;
}

/* The pid number by which a task was found. */
static __always_inline __u32 found_number(struct td_reader *reader, __u32 index)
{
	struct td_walk *walk = &reader->walk;
	__u32 cursor = walk->cursors[index & (SLOTS - 1)];

	return walk->listed && !reader->config.threads ? walk->list[(cursor - 1) & (TD_LISTED - 1)] : cursor;
}

static long collect_number(__u32 index, void *nothing)
{
	struct td_reader *reader = &own_reader;
	struct td_walk *walk = &reader->walk;
	__u32 number = walk->cursor + 1 + index;
	__u64 entry;

	if (number >= walk->leaf_end)
		return 1;
	entry = walk->slots[number & (SLOTS - 1)];
	if (xa_is_pointer(entry))
		add_found(reader, entry, task_of(reader, pid_at(entry), reader->config.threads), number);
	return 0;
}

static long collect_listed(__u32 index, void *nothing)
{
	struct td_reader *reader = &own_reader;
	struct td_walk *walk = &reader->walk;
	__u32 cursor = walk->cursor + 1 + index;
	__u64 pid;

	if (cursor > walk->listed)
		return 1;
	pid = find_pid(reader, walk->list[(cursor - 1) & (TD_LISTED - 1)]);
	if (pid)
		add_found(reader, pid, task_of(reader, pid_at(pid), false), cursor);
	return 0;
}

static long collect_thread(__u32 index, void *nothing)
{
	struct td_reader *reader = &own_reader;
	struct td_walk *walk = &reader->walk;
	struct task_struct *task;
	__u64 pid;

	if (walk->node == walk->head)
		return 1;
	task = task_at(walk->node - bpf_core_field_offset(struct task_struct, thread_node));
	pid = address(reader, task->thread_pid);
	if (pid)
		add_found(reader, pid, address(reader, task), task_tid_nr(reader, task));
	walk->node = address(reader, task->thread_node.next);
	return 0;
}

/*
 * Finds the thread after the last one visited in the process's thread list. False if the last one
 * is gone.
 */
static __always_inline bool find_thread_list(struct td_reader *reader)
{
	struct td_walk *walk = &reader->walk;
	__u64 pid = find_pid(reader, walk->list[0]), leader, thread;
	struct signal_struct *signal;

	walk->head = walk->node = 0;
	leader = pid ? task_of(reader, pid_at(pid), false) : 0;
	if (!leader)
		return !walk->cursor;
	signal = task_at(leader)->signal;
	walk->head = address(reader, signal) + bpf_core_field_offset(struct signal_struct, thread_head);
	if (!walk->cursor) {
		walk->node = address(reader, signal->thread_head.next);
		return true;
	}
	pid = find_pid(reader, walk->cursor);
	thread = pid ? task_of(reader, pid_at(pid), true) : 0;
	if (!thread)
		return false;
	walk->node = address(reader, task_at(thread)->thread_node.next);
	return task_at(thread)->signal == signal;
}

/*
 * The word at a kernel address, 0 if it can't be read. timespec64 stands for any structure that
 * starts with a 64-bit number.
 */
static __always_inline __u64 word_at(__u64 address)
{
	struct timespec64 *word = bpf_rdonly_cast((void *)address, bpf_core_type_id_kernel(struct timespec64));

	return word->tv_sec;
}

/*
 * A visit mostly waits for memory, about twenty cache lines of a task: the task itself, and what it
 * points to, such as its signal struct, credentials and mm. So the tasks of a block are prefetched
 * first, then what they point to, and then they are visited.
 *
 * Returns the groups whose memory is worth it: those that this pass asks for. A pass for changed
 * tasks returns few tasks, so it prefetches only what it compares.
 */
static __always_inline __u32 prefetched_groups(struct td_reader *reader)
{
	__u32 groups = reader->config.groups;

	if (reader->config.changed)
		groups = TD_TESTABLE;
	else if (reader->config.tests_count)
		groups |= TD_TESTABLE;
	return td_groups & groups;
}

static long prefetch_task(__u32 index, void *nothing)
{
	struct td_walk *walk = &own_reader.walk;
	struct task_struct *task = task_at(walk->tasks[index & (SLOTS - 1)]);
	__u32 groups = prefetched_groups(&own_reader);

	PREFETCH(task->flags);
	PREFETCH(task->start_boottime);
	if (own_reader.config.threads)
		PREFETCH(task->pid);
	if (groups & ~(TD_GROUPS_WITHOUT_MM | TD_TESTABLE))
		PREFETCH(task->mm);
	if (groups & (TD_GROUP_BASE | TD_TESTABLE)) {
		PREFETCH(task->exit_state);
		PREFETCH(task->real_parent);
		PREFETCH(task->signal);
		PREFETCH(task->real_cred);
	}
	if (groups & (TD_GROUP_NAMESPACES | TD_GROUP_IO | TD_GROUP_SIGNALS)) {
		PREFETCH(task->nsproxy);
		PREFETCH(task->blocked);
	}
	if (groups & TD_GROUP_CRED && bpf_core_field_exists(task->seccomp.mode))
		PREFETCH(task->seccomp.mode);
	if (groups & TD_GROUP_ACCESS)
		PREFETCH(task->self_exec_id);
	if (groups & (TD_GROUP_CPU | TD_GROUP_FAULTS | TD_GROUP_ARGS | TD_TESTABLE)) {
		PREFETCH(task->se.sum_exec_runtime);
		PREFETCH(task->nvcsw);
	}
	return 0;
}

static long prefetch_parts(__u32 index, void *nothing)
{
	struct td_walk *walk = &own_reader.walk;
	struct task_struct *task = task_at(walk->tasks[index & (SLOTS - 1)]);
	__u32 groups = prefetched_groups(&own_reader);
	struct signal_struct *signal = task->signal;
	struct cred *cred = task->real_cred;
	struct mm_struct *mm = task->mm;

	if (groups & (TD_GROUP_BASE | TD_TESTABLE))
		PREFETCH(signal->nr_threads);
	if (groups & TD_GROUP_BASE) {
		PREFETCH(signal->pids[PIDTYPE_PGID]);
		PREFETCH(signal->pids[PIDTYPE_SID]);
	}
	if (groups & TD_GROUP_CRED) {
		PREFETCH(cred->uid.val);
		if (bpf_core_field_exists(cred->cap_ambient.val))
			PREFETCH(cred->cap_ambient.val);
	}
	if (groups & TD_GROUP_ACCESS) {
		PREFETCH(cred->user_ns);
		PREFETCH(mm->user_ns);
		PREFETCH(dumpable_bits(mm));
		if (bpf_core_field_exists(signal->exec_update_lock.count))
			PREFETCH(signal->exec_update_lock.count.counter);
	}
	if (groups & (TD_GROUP_CPU | TD_GROUP_FAULTS | TD_GROUP_ARGS))
		PREFETCH(signal->min_flt);
	if (groups & (TD_GROUP_SIGNALS | TD_GROUP_LIMITS)) {
		PREFETCH(task->sighand->action[0].sa.sa_handler);
		PREFETCH(signal->rlim[0].rlim_cur);
	}
	if (groups & TD_GROUP_PATHS) {
		PREFETCH(task->fs->umask);
		PREFETCH(mm->exe_file->f_path.dentry);
	}
	if (groups & TD_GROUP_FDS)
		PREFETCH(task->files->fdt);
	if (groups & (TD_GROUP_MEM | TD_GROUP_ARGS)) {
		PREFETCH(mm->total_vm);
		PREFETCH(mm->mm_users.counter);
	}
	return 0;
}

/* Prefetches cred.security, which is allocated separately. */
static long prefetch_security(__u32 index, void *nothing)
{
	struct td_reader *reader = &own_reader;
	struct task_struct *task = task_at(reader->walk.tasks[index & (SLOTS - 1)]);
	struct cred *cred = task->real_cred;

	if (!bpf_core_field_exists(cred->security))
		return 1;
	PREFETCH(word_at(address(reader, cred->security) + (reader->config.landlock - 1) * sizeof(__u64)));
	return 0;
}

/*
 * Whether the run must end so that RCU can make progress. Reads the clock only after every
 * `check_every` steps.
 */
static __always_inline bool is_time_up(struct td_walk *walk)
{
	if (walk->steps < walk->next_check)
		return false;
	walk->next_check = walk->steps + walk->check_every;
	return bpf_ktime_get_ns() - walk->run_start_ns >= walk->max_run_ns;
}

/* How often a task is read again if its pid led to another one during the read. */
#define MAX_ATTEMPTS 4

/*
 * Writes the record of the next task. A pid leads to the task that is asked for, but this can
 * change: a thread that calls exec takes the leader's place, and a task that is released loses its
 * pid. So the pid is looked up before and after, and the record is valid if it led to the same task
 * both times.
 */
static long visit(__u32 index, void *nothing)
{
	struct td_reader *reader = &own_reader;
	struct td_walk *walk = &reader->walk;
	__u64 filled = *(volatile __u32 *)&walk->filled;
	__u32 at = *(volatile __u32 *)&walk->next, number, len = 0;
	struct task_struct *current;
	struct td_record *record;
	struct pid *pid;
	__u64 task;

	if (at >= walk->found)
		return 1;
	at &= SLOTS - 1;
	if (filled > TD_SCRATCH_MASK + 1 - TD_RECORD_MAX || is_time_up(walk)) {
		walk->state = TD_WALK_GOES_ON;
		return 1;
	}
	current = standpoint(reader);
	number = reader->number = found_number(reader, at);
	asm volatile("%0 &= %1" : "+r"(filled) : "i"(TD_SCRATCH_MASK));
	record = (void *)(reader->scratch + filled);
	pid = pid_at(walk->pids[at]);
	task = task_of(reader, pid, reader->config.threads);
	if (!task) {
		walk->gone++;
	} else {
		/* The pid was found in the reader's own namespace. */
		if (reader->config.as_task)
			number = pid_nr(reader, pid);
		*(volatile __u32 *)&reader->steps = 1;
		if (number)
			len = put_task(reader, record, filled, task_at(task), number, current);
		walk->steps += *(volatile __u32 *)&reader->steps;
		read_barrier(reader);
		if (task_of(reader, pid, reader->config.threads) != task) {
			if (td_groups & TD_TESTABLE && reader->config.changed)
				forget_seen(reader);
			if (++walk->attempts < MAX_ATTEMPTS)
				return 0;
			len = put_again(record, task_tgid_nr(reader, task_at(task)));
		} else if (is_released(task_at(task))) {
			walk->gone++;
			len = 0;
		}
	}
	walk->attempts = 0;
	walk->cursor = walk->cursors[at];
	*(volatile __u32 *)&walk->next = at + 1;
	*(volatile __u32 *)&walk->filled = filled + len;
	return 0;
}

/* Visits the tasks of the next SLOTS pid numbers, or the next SLOTS of those listed. */
static long visit_block(__u32 index, void *nothing)
{
	struct td_reader *reader = &own_reader;
	struct td_walk *walk = &reader->walk;
	__u32 end = 0;
	__u64 leaf;

	walk->found = 0;
	walk->next = 0;
	walk->state = TD_WALK_ENDED;
	walk->root = pid_idr_root();
	if (!walk->listed) {
		leaf = pid_idr_leaf(walk->root, walk->cursor + 1, &walk->leaf_end);
		if (walk->leaf_end)
			end = walk->leaf_end - 1;
		if (leaf) {
			bpf_probe_read_kernel(walk->slots, sizeof(walk->slots),
					      (void *)(leaf + bpf_core_field_offset(struct xa_node, slots)));
			bpf_loop(SLOTS, collect_number, 0, 0);
		}
	} else if (!reader->config.threads) {
		bpf_loop(SLOTS, collect_listed, 0, 0);
	} else if (find_thread_list(reader)) {
		bpf_loop(SLOTS, collect_thread, 0, 0);
	} else {
		walk->state = TD_WALK_LOST;
	}
	bpf_loop(walk->found, prefetch_task, 0, 0);
	bpf_loop(walk->found, prefetch_parts, 0, 0);
	if (td_groups & TD_GROUP_ACCESS && reader->config.landlock)
		bpf_loop(walk->found, prefetch_security, 0, 0);
	if (!walk->found && !end)
		return 1;
	bpf_loop(MAX_ATTEMPTS * SLOTS, visit, 0, 0);
	if (walk->state == TD_WALK_GOES_ON)
		return 1;
	walk->state = TD_WALK_GOES_ON;
	walk->steps++;
	if (end)
		walk->cursor = end;
	return is_time_up(walk);
}

/*
 * The kernel's iterator looks up pid numbers one by one, and takes and drops a reference to each
 * task, which takes longer than most visits. So the program reads the IDR itself, which leads to
 * many tasks at once.
 *
 * The program runs in an RCU read section, so these tasks stay valid while it runs, but it may not
 * run for long. It returns after `max_run_ns`, and the next run continues after the last pid
 * number. A task that exists throughout the walk is visited exactly once.
 */
static __always_inline int write_records(struct bpf_iter__task *ctx)
{
	struct td_reader *reader = &own_reader;
	struct td_walk *walk = &reader->walk;
	__u64 took_ns;

	/*
	 * The iterator visits a single task. The walk is done in the call at its end, which has no
	 * task.
	 */
	if (ctx->task)
		return 0;
	identify_reader(reader, standpoint(reader));
	walk->filled = 0;
	walk->steps = 0;
	walk->gone = 0;
	walk->attempts = 0;
	walk->next_check = walk->check_every;
	walk->run_start_ns = bpf_ktime_get_ns();
	walk->state = TD_WALK_NOWHERE;
	if (bpf_core_field_size(((struct xa_node *)0)->slots) != SLOTS * sizeof(void *))
		return 0;
	bpf_loop(1 << 22, visit_block, 0, 0);
	took_ns = bpf_ktime_get_ns() - walk->run_start_ns;
	if (walk->longest_run_ns < took_ns)
		walk->longest_run_ns = took_ns;
	return 0;
}

#endif
