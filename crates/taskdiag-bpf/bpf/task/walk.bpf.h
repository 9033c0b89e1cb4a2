/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The program finds the tasks itself (TD_WALKS=1).
 */
#ifndef TASKDIAG_TASK_WALK_BPF_H
#define TASKDIAG_TASK_WALK_BPF_H

#include "record.bpf.h"

/*
 * Most of a visit is waiting for memory: a task lies in some twenty places that no cache holds, in three steps (from its number
 * to the task, from there to its signal struct, credentials, address space). The processor waits for several places at once if
 * they are asked for together, before any is needed. What is loaded so is not used.
 */
#define LOAD(value) asm volatile("" : : "r"(value))

static __always_inline struct pid *pid_at(__u64 address)
{
	return bpf_rdonly_cast((void *)address, bpf_core_type_id_kernel(struct pid));
}

/* The struct pid of a number, 0 if there is none. */
static __always_inline __u64 find_pid(struct td_reader *reader, __u32 number)
{
	__u64 leaf = leaf_of_numbers(reader->walk.root, number, &reader->walk.behind);
	__u64 entry = leaf ? slot(leaf, number) : 0;

	/* Not in use, or no pointer. */
	return entry & 3 ? 0 : entry;
}

/* Puts a task down to be visited. `place` is where it was found: after the visit it is the last. */
static __always_inline void meet(struct td_reader *reader, __u64 pid, __u64 task, __u32 place)
{
	struct td_walk *walk = &reader->walk;
	__u32 at = *(volatile __u32 *)&walk->met & (SLOTS - 1);

	if (!task)
		return;
	walk->pids[at] = pid;
	walk->tasks[at] = task;
	walk->places[at] = place;
	*(volatile __u32 *)&walk->met = at + 1;
}

/* The number of a task that was met. */
static __always_inline __u32 number_met(struct td_reader *reader, __u32 index)
{
	struct td_walk *walk = &reader->walk;
	__u32 place = walk->places[index & (SLOTS - 1)];

	return walk->listed && !reader->config.threads ? walk->list[(place - 1) & (TD_LISTED - 1)] : place;
}

static long meet_number(__u32 index, void *nothing)
{
	struct td_reader *reader = &own_reader;
	struct td_walk *walk = &reader->walk;
	__u32 number = walk->last + 1 + index;
	__u64 entry;

	if (number >= walk->behind)
		return 1;
	entry = walk->slots[number & (SLOTS - 1)];
	if (entry && !(entry & 3))
		meet(reader, entry, task_of(reader, pid_at(entry), reader->config.threads), number);
	return 0;
}

static long meet_listed(__u32 index, void *nothing)
{
	struct td_reader *reader = &own_reader;
	struct td_walk *walk = &reader->walk;
	__u32 place = walk->last + 1 + index;
	__u64 pid;

	if (place > walk->listed)
		return 1;
	pid = find_pid(reader, walk->list[(place - 1) & (TD_LISTED - 1)]);
	if (pid)
		meet(reader, pid, task_of(reader, pid_at(pid), false), place);
	return 0;
}

static long meet_thread(__u32 index, void *nothing)
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
		meet(reader, pid, address(reader, task), task_tid_nr(reader, task));
	walk->node = address(reader, task->thread_node.next);
	return 0;
}

/* Where the threads of a process go on behind the last one visited. False if that is gone. */
static __always_inline bool find_threads(struct td_reader *reader)
{
	struct td_walk *walk = &reader->walk;
	__u64 pid = find_pid(reader, walk->list[0]), leader, thread;
	struct signal_struct *signal;

	walk->head = walk->node = 0;
	leader = pid ? task_of(reader, pid_at(pid), false) : 0;
	if (!leader)
		return !walk->last;
	signal = task_at(leader)->signal;
	walk->head = address(reader, signal) + bpf_core_field_offset(struct signal_struct, thread_head);
	if (!walk->last) {
		walk->node = address(reader, signal->thread_head.next);
		return true;
	}
	pid = find_pid(reader, walk->last);
	thread = pid ? task_of(reader, pid_at(pid), true) : 0;
	if (!thread)
		return false;
	walk->node = address(reader, task_at(thread)->thread_node.next);
	return task_at(thread)->signal == signal;
}

/* A word of the kernel's memory, 0 where there is none: the first of a structure that begins with a number. */
static __always_inline __u64 word_at(__u64 address)
{
	struct timespec64 *word = bpf_rdonly_cast((void *)address, bpf_core_type_id_kernel(struct timespec64));

	return word->tv_sec;
}

/* Each step is made for all tasks of a block. */
static long warm_task(__u32 index, void *nothing)
{
	struct td_walk *walk = &own_reader.walk;
	struct task_struct *task = task_at(walk->tasks[index & (SLOTS - 1)]);

	LOAD(task->flags);
	LOAD(task->start_boottime);
	if (own_reader.config.threads)
		LOAD(task->pid);
	if (td_groups & ~TD_GROUPS_WITHOUT_MM)
		LOAD(task->mm);
	if (td_groups & (TD_GROUP_BASE | TD_TESTABLE)) {
		LOAD(task->exit_state);
		LOAD(task->real_parent);
		LOAD(task->signal);
		LOAD(task->real_cred);
	}
	if (td_groups & (TD_GROUP_NAMESPACES | TD_GROUP_IO | TD_GROUP_SIGNALS)) {
		LOAD(task->nsproxy);
		LOAD(task->blocked);
	}
	if (td_groups & TD_GROUP_CRED && bpf_core_field_exists(task->seccomp.mode))
		LOAD(task->seccomp.mode);
	if (td_groups & TD_GROUP_ACCESS)
		LOAD(task->self_exec_id);
	if (td_groups & (TD_GROUP_CPU | TD_GROUP_FAULTS | TD_GROUP_ARGS | TD_TESTABLE)) {
		LOAD(task->se.sum_exec_runtime);
		LOAD(task->nvcsw);
	}
	return 0;
}

static long warm_parts(__u32 index, void *nothing)
{
	struct td_walk *walk = &own_reader.walk;
	struct task_struct *task = task_at(walk->tasks[index & (SLOTS - 1)]);
	struct signal_struct *signal = task->signal;
	struct cred *cred = task->real_cred;
	struct mm_struct *mm = task->mm;

	if (td_groups & TD_GROUP_BASE) {
		LOAD(signal->nr_threads);
		LOAD(signal->pids[PIDTYPE_PGID]);
		LOAD(signal->pids[PIDTYPE_SID]);
	}
	if (td_groups & TD_GROUP_CRED) {
		LOAD(cred->uid.val);
		if (bpf_core_field_exists(cred->cap_ambient.val))
			LOAD(cred->cap_ambient.val);
	}
	if (td_groups & TD_GROUP_ACCESS) {
		LOAD(cred->user_ns);
		LOAD(mm->user_ns);
		LOAD(dumpable_bits(mm));
		if (bpf_core_field_exists(signal->exec_update_lock.count))
			LOAD(signal->exec_update_lock.count.counter);
	}
	if (td_groups & (TD_GROUP_CPU | TD_GROUP_FAULTS | TD_GROUP_ARGS))
		LOAD(signal->min_flt);
	if (td_groups & (TD_GROUP_SIGNALS | TD_GROUP_LIMITS)) {
		LOAD(task->sighand->action[0].sa.sa_handler);
		LOAD(signal->rlim[0].rlim_cur);
	}
	if (td_groups & TD_GROUP_PATHS) {
		LOAD(task->fs->umask);
		LOAD(mm->exe_file->f_path.dentry);
	}
	if (td_groups & TD_GROUP_FDS)
		LOAD(task->files->fdt);
	if (td_groups & (TD_GROUP_MEM | TD_GROUP_ARGS)) {
		LOAD(mm->total_vm);
		LOAD(mm->mm_users.counter);
	}
	return 0;
}

/* What security modules keep in a task's credentials, a structure of its own. */
static long warm_security(__u32 index, void *nothing)
{
	struct td_reader *reader = &own_reader;
	struct task_struct *task = task_at(reader->walk.tasks[index & (SLOTS - 1)]);

	LOAD(word_at(address(reader, task->real_cred->security) + (reader->config.landlock - 1) * sizeof(__u64)));
	return 0;
}

/* Whether it is time to let RCU go on. The clock is looked at only now and then. */
static __always_inline bool is_time_up(struct td_walk *walk)
{
	if (walk->spent < walk->look)
		return false;
	walk->look = walk->spent + walk->every;
	return bpf_ktime_get_ns() - walk->began_ns >= walk->stretch_ns;
}

/* How often a number is looked up again whose task lost it while it was read. */
#define TRIES 4

/*
 * Makes the record of the next task that was met. The number counts, not the task: in an exec, another thread can take the place of
 * the first one, and one that has ended lends its number to nobody. So it is looked up before, and the answer counts if it leads to the
 * same task behind.
 */
static long visit(__u32 index, void *nothing)
{
	struct td_reader *reader = &own_reader;
	struct td_walk *walk = &reader->walk;
	__u64 filled = *(volatile __u32 *)&walk->filled;
	__u32 at = *(volatile __u32 *)&walk->at, number, len = 0;
	struct task_struct *current;
	struct td_record *record;
	struct pid *pid;
	__u64 task;

	if (at >= walk->met)
		return 1;
	at &= SLOTS - 1;
	if (filled > TD_SCRATCH_MASK + 1 - TD_RECORD_MAX || is_time_up(walk)) {
		walk->state = TD_WALK_GOES_ON;
		return 1;
	}
	current = standpoint(reader);
	number = reader->number = number_met(reader, at);
	asm volatile("%0 &= %1" : "+r"(filled) : "i"(TD_SCRATCH_MASK));
	record = (void *)(reader->scratch + filled);
	pid = pid_at(walk->pids[at]);
	task = task_of(reader, pid, reader->config.threads);
	if (!task) {
		walk->gone++;
	} else {
		/* The tree is that of the reader's own namespace. */
		if (reader->config.as_task)
			number = pid_nr(reader, pid);
		*(volatile __u32 *)&reader->steps = 1;
		if (number)
			len = put_task(reader, record, filled, task_at(task), number, current);
		walk->spent += *(volatile __u32 *)&reader->steps;
		read_barrier(reader);
		if (task_of(reader, pid, reader->config.threads) != task) {
			if (td_groups & TD_TESTABLE && reader->config.changed)
				forget_seen(reader);
			if (++walk->tries < TRIES)
				return 0;
			len = put_again(record, task_tgid_nr(reader, task_at(task)));
		} else if (is_released(task_at(task))) {
			walk->gone++;
			len = 0;
		}
	}
	walk->tries = 0;
	walk->last = walk->places[at];
	*(volatile __u32 *)&walk->at = at + 1;
	*(volatile __u32 *)&walk->filled = filled + len;
	return 0;
}

/* Visits the tasks with the next SLOTS numbers, or the next as many of those that are asked for. */
static long visit_some(__u32 index, void *nothing)
{
	struct td_reader *reader = &own_reader;
	struct td_walk *walk = &reader->walk;
	__u32 end = 0;
	__u64 leaf;

	walk->met = 0;
	walk->at = 0;
	walk->state = TD_WALK_ENDED;
	walk->root = root_of_numbers();
	if (!walk->listed) {
		leaf = leaf_of_numbers(walk->root, walk->last + 1, &walk->behind);
		if (walk->behind)
			end = walk->behind - 1;
		if (leaf) {
			bpf_probe_read_kernel(walk->slots, sizeof(walk->slots),
					      (void *)(leaf + bpf_core_field_offset(struct xa_node, slots)));
			bpf_loop(SLOTS, meet_number, 0, 0);
		}
	} else if (!reader->config.threads) {
		bpf_loop(SLOTS, meet_listed, 0, 0);
	} else if (find_threads(reader)) {
		bpf_loop(SLOTS, meet_thread, 0, 0);
	} else {
		walk->state = TD_WALK_LOST;
	}
	bpf_loop(walk->met, warm_task, 0, 0);
	bpf_loop(walk->met, warm_parts, 0, 0);
	if (td_groups & TD_GROUP_ACCESS && reader->config.landlock)
		bpf_loop(walk->met, warm_security, 0, 0);
	if (!walk->met && !end)
		return 1;
	bpf_loop(TRIES * SLOTS, visit, 0, 0);
	if (walk->state == TD_WALK_GOES_ON)
		return 1;
	walk->state = TD_WALK_GOES_ON;
	walk->spent++;
	if (end)
		walk->last = end;
	return is_time_up(walk);
}

/*
 * The kernel's iterator finds one number after the other, and takes and gives back a reference to each task: it takes longer
 * than most of our visits. So we read the tree of numbers ourselves, which leads to many tasks at once.
 *
 * What that leads to stays valid as long as the program runs, which is under RCU; and so it may not run for long. It pauses after
 * `stretch_ns` and is run again, to go on behind the last number: what lives all the time is visited once.
 */
static __always_inline int write_records(struct bpf_iter__task *ctx)
{
	struct td_reader *reader = &own_reader;
	struct td_walk *walk = &reader->walk;
	__u64 took_ns;

	/* The iterator is one of a single task, and we need none. Its end, where there is no task, comes in any case. */
	if (ctx->task)
		return 0;
	look_at(reader, standpoint(reader));
	walk->filled = 0;
	walk->spent = 0;
	walk->gone = 0;
	walk->tries = 0;
	walk->look = walk->every;
	walk->began_ns = bpf_ktime_get_ns();
	walk->state = TD_WALK_NOWHERE;
	if (bpf_core_field_size(((struct xa_node *)0)->slots) != SLOTS * sizeof(void *))
		return 0;
	bpf_loop(1 << 22, visit_some, 0, 0);
	took_ns = bpf_ktime_get_ns() - walk->began_ns;
	if (walk->longest_ns < took_ns)
		walk->longest_ns = took_ns;
	return 0;
}

#endif
