/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Processor time, page faults and context switches of a thread, or of all threads of a process. */
#ifndef TASKDIAG_TASK_TIMES_BPF_H
#define TASKDIAG_TASK_TIMES_BPF_H

#include "reader.bpf.h"

/*
 * Sums over the threads of a process, including those that have ended. Used for /proc/PID/stat, and
 * to see whether the process ran.
 */
struct sums {
	__u64 utime, stime, gtime, runtime;
	__u64 min_flt, maj_flt;
	__u64 switches;
	__u32 on_cpu, traced;
	struct list_head *node, *head;
};

/* Without CONFIG_SMP the kernel does not tell, so the task may be running. */
static __always_inline __u32 is_on_cpu(struct task_struct *task)
{
	return bpf_core_field_exists(task->on_cpu) ? task->on_cpu : 1;
}

static long add_thread(__u32 index, struct sums *sums)
{
	struct list_head *node = sums->node, *next = 0;
	struct task_struct *thread = (void *)node - bpf_core_field_offset(struct task_struct, thread_node);

	if (node == sums->head || bpf_core_read(&next, sizeof(next), &node->next))
		return 1;
	sums->utime += BPF_CORE_READ(thread, utime);
	sums->stime += BPF_CORE_READ(thread, stime);
	sums->gtime += BPF_CORE_READ(thread, gtime);
	sums->runtime += BPF_CORE_READ(thread, se.sum_exec_runtime);
	sums->min_flt += BPF_CORE_READ(thread, min_flt);
	sums->maj_flt += BPF_CORE_READ(thread, maj_flt);
	sums->switches += BPF_CORE_READ(thread, nvcsw) + BPF_CORE_READ(thread, nivcsw);
	sums->on_cpu |= bpf_core_field_exists(thread->on_cpu) ? BPF_CORE_READ(thread, on_cpu) : 1;
	sums->traced |= BPF_CORE_READ(thread, ptrace);
	sums->node = next;
	return 0;
}

static __always_inline void own_sums(struct sums *sums, struct task_struct *task)
{
	sums->utime = task->utime;
	sums->stime = task->stime;
	sums->gtime = task->gtime;
	sums->runtime = task->se.sum_exec_runtime;
	sums->min_flt = task->min_flt;
	sums->maj_flt = task->maj_flt;
	sums->switches = task->nvcsw + task->nivcsw;
	sums->on_cpu = is_on_cpu(task);
	sums->traced = task->ptrace;
}

/*
 * thread_group_cputime(), and the fault counts of do_task_stat(). False if a thread was released
 * during the read, or if there are too many.
 */
static __always_inline bool process_sums(struct td_reader *reader, struct sums *sums, struct task_struct *task)
{
	struct signal_struct *signal = untrusted(task)->signal;
	__u32 sequence = stats_sequence(signal), threads = signal->nr_threads;

	read_barrier(reader);
	if (threads == 1) {
		own_sums(sums, task);
	} else {
		if (threads > TD_THREADS_MAX)
			return false;
		__builtin_memset(sums, 0, sizeof(*sums));
		sums->head = (void *)signal + bpf_core_field_offset(struct signal_struct, thread_head);
		sums->node = signal->thread_head.next;
		add_steps(reader, bpf_loop(TD_THREADS_MAX + 1, add_thread, sums, 0));
		if (sums->node != sums->head)
			return false;
	}
	sums->utime += signal->utime;
	sums->stime += signal->stime;
	sums->gtime += signal->gtime;
	sums->runtime += signal->sum_sched_runtime;
	sums->min_flt += signal->min_flt;
	sums->maj_flt += signal->maj_flt;
	sums->switches += signal->nvcsw + signal->nivcsw;
	read_barrier(reader);
	return !(sequence & 1) && stats_sequence(signal) == sequence;
}

static __always_inline void put_cpu(struct td_reader *reader, struct task_struct *task, struct sums *sums)
{
	struct td_cpu *out = attribute(reader, TD_ATTR_CPU, sizeof(*out), TD_CPU_UNSCALED);
	struct signal_struct *signal = untrusted(task)->signal;
	__u32 affinity = reader->config.cpus + 63;
	void *mask;

	out->utime_ns = sums->utime;
	out->stime_ns = sums->stime;
	out->sum_exec_runtime = sums->runtime;
	if (reader->config.threads) {
		out->prev_utime = task->prev_cputime.utime;
		out->prev_stime = task->prev_cputime.stime;
	} else {
		out->prev_utime = signal->prev_cputime.utime;
		out->prev_stime = signal->prev_cputime.stime;
	}
	out->cutime_ns = signal->cutime;
	out->cstime_ns = signal->cstime;
	out->guest_ns = sums->gtime;
	out->cguest_ns = signal->cgtime;
	/* /proc prints 0 without CONFIG_TASK_DELAY_ACCT. */
	out->block_delay_ns = bpf_core_field_exists(task->delays) ? BPF_CORE_READ(task, delays, blkio_delay) : 0;
	out->timer_slack_ns = task->timer_slack_ns;
	out->runtime_ns = task->se.sum_exec_runtime;
	out->timeslices_count = TD_NO_NUMBER;
	out->run_delay_ns = TD_NO_NUMBER;
	if (bpf_core_field_exists(task->sched_info)) {
		out->timeslices_count = task->sched_info.pcount;
		out->run_delay_ns = task->sched_info.run_delay;
	}
	out->voluntary_switches = task->nvcsw;
	out->involuntary_switches = task->nivcsw;
	out->nice = task->static_prio - 120;
	out->priority = task->prio - 100;
	out->rt_priority = task->rt_priority;
	out->policy = task->policy;
	out->cpu = bpf_core_field_exists(task->thread_info.cpu) ? task->thread_info.cpu : 0;
	out->reserved = 0;

	affinity = affinity / 64 * 8;
	if (affinity > TD_AFFINITY_MAX_BYTES)
		return;
	mask = next_payload(reader);
	if (!bpf_probe_read_kernel(mask, affinity, (void *)task + bpf_core_field_offset(struct task_struct, cpus_mask)))
		attribute(reader, TD_ATTR_AFFINITY, affinity, 0);
}

static __always_inline void put_faults(struct td_reader *reader, struct task_struct *task, struct sums *sums)
{
	struct td_faults *out = attribute(reader, TD_ATTR_FAULTS, sizeof(*out), 0);
	struct signal_struct *signal = untrusted(task)->signal;

	out->min_faults = sums->min_flt;
	out->maj_faults = sums->maj_flt;
	out->child_min_faults = signal->cmin_flt;
	out->child_maj_faults = signal->cmaj_flt;
}

static __always_inline void put_sums(struct td_reader *reader, struct task_struct *task)
{
	__u32 groups = reader->config.groups;
	struct sums sums;

	if (reader->config.threads) {
		own_sums(&sums, task);
	} else if (!process_sums(reader, &sums, task)) {
		defer(reader, groups & (TD_GROUP_CPU | TD_GROUP_FAULTS));
		return;
	}
	if (td_groups & groups & TD_GROUP_CPU)
		put_cpu(reader, task, &sums);
	if (td_groups & groups & TD_GROUP_FAULTS)
		put_faults(reader, task, &sums);
}

/*
 * Writes td_run, which shows that a process has not run since its arguments were read. Writes
 * nothing if the process is running now, or if another process may write to its memory.
 */
static __always_inline void put_run(struct td_reader *reader, struct task_struct *task)
{
	struct mm_struct *mm = own_mm(task);
	struct td_run *out;
	struct sums sums;

	if (!mm || reader->config.threads || mm->mm_users.counter != untrusted(task)->signal->nr_threads ||
	    !process_sums(reader, &sums, task) || sums.on_cpu || sums.traced || !STILL_HAS(reader, task, mm, mm))
		return;
	out = attribute(reader, TD_ATTR_RUN, sizeof(*out), 0);
	out->runtime_ns = *(volatile __u64 *)&sums.runtime;
	out->switches = *(volatile __u64 *)&sums.switches;
}

#endif
