/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Tests of tasks: a task gets no record if it fails them. */
#ifndef TASKDIAG_TASK_TESTS_BPF_H
#define TASKDIAG_TASK_TESTS_BPF_H

#include "reader.bpf.h"
#include "times.bpf.h"

struct ancestry {
	struct cgroup_subsys_state *css;
	__u64 id;
	__u32 found;
};

static long match_ancestor(__u32 index, struct ancestry *ancestry)
{
	struct cgroup_subsys_state *css = ancestry->css;
	struct cgroup *cgroup = (void *)css - bpf_core_field_offset(struct cgroup, self);

	if (!css)
		return 1;
	if (BPF_CORE_READ(cgroup, kn, id) == ancestry->id) {
		ancestry->found = 1;
		return 1;
	}
	ancestry->css = BPF_CORE_READ(css, parent);
	return 0;
}

static __always_inline __s64 value_of(struct td_reader *reader, struct task_struct *task, __u32 what)
{
	struct signal_struct *signal = untrusted(task)->signal;
	struct cred *cred = untrusted(task)->real_cred;
	struct tty_struct *tty;

	switch (what) {
	case TD_VALUE_PID:
		return task_tgid_nr(reader, task);
	case TD_VALUE_TID:
		return task_tid_nr(reader, task);
	case TD_VALUE_PPID:
		return task_tgid_nr(reader, untrusted(task)->real_parent);
	case TD_VALUE_PGID:
		return pid_nr(reader, signal->pids[PIDTYPE_PGID]);
	case TD_VALUE_SID:
		return pid_nr(reader, signal->pids[PIDTYPE_SID]);
	case TD_VALUE_STATE:
		return state_letter(task);
	case TD_VALUE_THREADS_COUNT:
		return signal->nr_threads;
	case TD_VALUE_KERNEL_THREAD:
		return !!(task->flags & PF_KTHREAD);
	case TD_VALUE_TTY_NR:
		tty = signal->tty;
		return tty ? tty_nr(tty) : 0;
	case TD_VALUE_UID:
		return cred->uid.val;
	case TD_VALUE_EUID:
		return cred->euid.val;
	case TD_VALUE_SUID:
		return cred->suid.val;
	case TD_VALUE_FSUID:
		return cred->fsuid.val;
	case TD_VALUE_GID:
		return cred->gid.val;
	case TD_VALUE_EGID:
		return cred->egid.val;
	case TD_VALUE_SGID:
		return cred->sgid.val;
	case TD_VALUE_FSGID:
		return cred->fsgid.val;
	case TD_VALUE_NICE:
		return (__s32)task->static_prio - 120;
	case TD_VALUE_POLICY:
		return task->policy;
	case TD_VALUE_OOM_SCORE_ADJ:
		return signal->oom_score_adj;
	}
	return 0;
}

/*
 * The task to test. The state between tests is in the reader's memory: before 6.7 the verifier
 * assumes that a callback is called once, tracks the values on the stack at that call, and removes
 * code that only runs in later calls.
 */
struct test_context {
	struct td_reader *reader;
	struct task_struct *task;
};

static __always_inline bool test_holds(struct td_reader *reader, struct task_struct *task, const struct td_test *test)
{
	struct ancestry ancestry = {};
	__s64 value, number = test->value[0];
	__u64 comm[2];

	if (test->what == TD_VALUE_COMM) {
		/* Its name has more than comm: see put_kernel_thread_name(). */
		if (task->flags & PF_WQ_WORKER)
			return true;
		bpf_probe_read_kernel(comm, sizeof(comm), task->comm);
		return !((comm[0] ^ test->value[0]) & test->mask[0]) && !((comm[1] ^ test->value[1]) & test->mask[1]);
	}
	if (test->what == TD_VALUE_CGROUP) {
		ancestry.id = test->value[0];
		ancestry.css = (void *)untrusted(task)->cgroups->dfl_cgrp + bpf_core_field_offset(struct cgroup, self);
		add_steps(reader, (__u32)bpf_loop(256, match_ancestor, &ancestry, 0) / 8);
		return ancestry.found;
	}
	value = value_of(reader, task, test->what);
	switch (test->relation) {
	case TD_EQUAL:
		return value == number;
	case TD_NOT_EQUAL:
		return value != number;
	case TD_LESS:
		return value < number;
	case TD_LESS_OR_EQUAL:
		return value <= number;
	case TD_GREATER:
		return value > number;
	}
	return value >= number;
}

static long run_test(__u32 index, struct test_context *context)
{
	struct td_reader *reader = context->reader;
	const struct td_test *test = &reader->config.tests[index & (TD_TESTS - 1)];

	if (test->clause != reader->clause) {
		if (!reader->clause_holds)
			return 1;
		reader->clause = test->clause;
		reader->clause_holds = 0;
	}
	if (!reader->clause_holds)
		reader->clause_holds = test_holds(reader, context->task, test);
	return 0;
}

/*
 * Whether a task passes all tests. The library evaluates the whole filter afterwards, so passing
 * too many tasks does no harm.
 */
static __always_inline bool passes_tests(struct td_reader *reader, struct task_struct *task)
{
	struct test_context context = { .reader = reader, .task = task };

	reader->clause = 0;
	reader->clause_holds = 0;
	bpf_loop(reader->config.tests_count, run_test, &context, 0);
	return reader->clause_holds;
}

#if TD_WALKS
/*
 * Whether the task used processor time since its last visit, or was not visited before. Updates
 * `seen`.
 */
static __always_inline bool has_changed(struct td_reader *reader, struct task_struct *task)
{
	__u32 entry = reader->number & reader->config.seen_mask, epoch = reader->config.changed_epoch;
	struct td_seen *last = bpf_map_lookup_elem(&seen, &entry);
	__u64 runtime = task->se.sum_exec_runtime;
	struct sums sums;

	if (!last)
		return true;
	if (!reader->config.threads && untrusted(task)->signal->nr_threads > 1)
		/*
		 * Volatile. Otherwise clang merges this load with that of another kind of
		 * address.
		 */
		runtime = process_sums(reader, &sums, task) ? *(volatile __u64 *)&sums.runtime : ~0ull;
	if (last->start == task->start_boottime && last->runtime == runtime && last->epoch == epoch && runtime != ~0ull &&
	    !is_on_cpu(task))
		return false;
	last->start = task->start_boottime;
	last->runtime = runtime;
	last->epoch = epoch;
	return true;
}

/* Forgets the visit of a task whose record turned out to be invalid. */
static __always_inline void forget_seen(struct td_reader *reader)
{
	__u32 entry = reader->number & reader->config.seen_mask;
	struct td_seen *last = bpf_map_lookup_elem(&seen, &entry);

	if (last)
		last->epoch = 0;
}
#endif

#endif
