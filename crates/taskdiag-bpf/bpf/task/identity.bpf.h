/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Name, state, related processes, and the controlling terminal. */
#ifndef TASKDIAG_TASK_IDENTITY_BPF_H
#define TASKDIAG_TASK_IDENTITY_BPF_H

#include "reader.bpf.h"

/* task_state_index(), whose masks have been the same since 5.14. */
static __always_inline __u8 state_letter(struct task_struct *task)
{
	const __u32 report = 0x7f, idle = 0x402, rtlock_wait = 0x1000, frozen = 0x8000;
	__u32 running = task->__state;
	__u32 state = (running | task->exit_state) & report;

	if ((running & idle) == idle)
		return 'I';
	if (running & (rtlock_wait | frozen))
		return 'D';
	if (state & 0x40)
		return 'P';
	if (state & 0x20)
		return 'Z';
	if (state & 0x10)
		return 'X';
	if (state & 0x08)
		return 't';
	if (state & 0x04)
		return 'T';
	if (state & 0x02)
		return 'D';
	if (state & 0x01)
		return 'S';
	return 'R';
}

/*
 * The name of a kernel thread as /proc shows it, proc_task_name(): the full name instead of the 15
 * bytes of comm; for a workqueue worker, also what it works on ("+") or worked on last ("-").
 */
static __always_inline void put_kernel_thread_name(struct td_reader *reader, struct task_struct *task)
{
	struct kthread *kthread = task->worker_private;
	__u32 is_worker = task->flags & PF_WQ_WORKER;
	struct worker *worker = 0;
	void *full_name = 0, *pool = 0, *work = 0;
	char *text = next_payload(reader);
	long n = 0, desc;

	if (!kthread || !bpf_core_field_exists(kthread->full_name))
		return;
	if (!is_worker || reader->config.full_names)
		BPF_CORE_READ_INTO(&full_name, kthread, full_name);
	if (!full_name && !is_worker)
		return;
	if (full_name)
		n = bpf_probe_read_kernel_str(text, 64, full_name);
	else
		n = bpf_probe_read_kernel_str(text, 16, task->comm);
	if (n < 1 || n > 64)
		return;
	n--;
	if (is_worker) {
		BPF_CORE_READ_INTO(&worker, kthread, data);
		BPF_CORE_READ_INTO(&pool, worker, pool);
		BPF_CORE_READ_INTO(&work, worker, current_work);
		desc = pool ? bpf_probe_read_kernel_str(text + n + 1, 32, (char *)worker + bpf_core_field_offset(worker->desc)) : 0;
		if (desc > 1 && desc <= 32) {
			text[n] = work ? '+' : '-';
			n += desc;
		}
	}
	/* The size of the kernel's buffer for the name. */
	if (n > 63)
		n = 63;
	attribute_of(reader, TD_ATTR_NAME, n & 63);
}

static __always_inline void put_base(struct td_reader *reader, struct task_struct *task)
{
	struct td_base *base = attribute(reader, TD_ATTR_BASE, sizeof(*base), 0);
	struct signal_struct *signal = untrusted(task)->signal;

	base->ppid = task_tgid_nr(reader, untrusted(task)->real_parent);
	base->tracer_pid = task->ptrace ? task_tid_nr(reader, untrusted(task)->parent) : 0;
	base->pgid = pid_nr(reader, signal->pids[PIDTYPE_PGID]);
	base->sid = pid_nr(reader, signal->pids[PIDTYPE_SID]);
	base->exit_signal = task->exit_signal;
	base->threads_count = signal->nr_threads;
	base->state = state_letter(task);
	base->flags = task->flags;
	__builtin_memset(base->reserved, 0, sizeof(base->reserved));
	/* After the NUL of a name, comm may have bytes of an earlier one. */
	__builtin_memset(base->comm, 0, sizeof(base->comm));
	bpf_probe_read_kernel_str(base->comm, sizeof(base->comm), task->comm);
	if (task->flags & PF_KTHREAD)
		put_kernel_thread_name(reader, task);
}

static __always_inline __u32 tty_nr(struct tty_struct *tty)
{
	struct tty_driver *driver = tty->driver;
	__u32 minor = driver->minor_start + tty->index;

	/* new_encode_dev() */
	return (minor & 0xff) | ((__u32)driver->major << 8) | ((minor & ~0xff) << 12);
}

static __always_inline void put_tty(struct td_reader *reader, struct task_struct *task)
{
	struct tty_struct *tty = untrusted(task)->signal->tty;
	struct td_tty found = { .tpgid = -1 }, *out;

	if (tty) {
		found.tty_nr = tty_nr(tty);
		found.tpgid = pid_nr(reader, tty->ctrl.pgrp);
	}
	if (!STILL_HAS(reader, task, signal->tty, tty))
		return defer(reader, TD_GROUP_TTY);
	out = attribute(reader, TD_ATTR_TTY, sizeof(*out), 0);
	*out = found;
}

#endif
