/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Signals and resource limits. */
#ifndef TASKDIAG_TASK_SIGNALS_BPF_H
#define TASKDIAG_TASK_SIGNALS_BPF_H

#include "reader.bpf.h"

/* task_sig() of fs/proc/array.c. */
static __always_inline void put_signals(struct td_reader *reader, struct task_struct *task)
{
	const __u64 first = bpf_core_field_offset(struct sighand_struct, action[0].sa.sa_handler);
	const __u64 stride = bpf_core_field_offset(struct sighand_struct, action[1].sa.sa_handler) - first;
	struct sighand_struct *sighand = untrusted(task)->sighand;
	struct ucounts *ucounts = untrusted(task)->real_cred->ucounts;
	struct td_signals *out = next_payload(reader);
	char *handlers = (void *)(out + 1);

	if (!sighand || !bpf_core_field_exists(ucounts->rlimit) || stride > 64 ||
	    bpf_probe_read_kernel(handlers, 63 * stride + sizeof(__u64), (void *)sighand + first))
		return defer(reader, TD_GROUP_SIGNALS);
	out->sig_ignored = 0;
	out->sig_caught = 0;
	/*
	 * The sets are kept in memory: before 6.2 the verifier treats paths as different if any
	 * number in a register differs.
	 */
#pragma nounroll
	for (int i = 0; i < 64; i++) {
		__u64 handler = *(__u64 *)(handlers + i * stride);

		if (handler == 1)
			*(volatile __u64 *)&out->sig_ignored |= 1ull << i;
		else if (handler)
			*(volatile __u64 *)&out->sig_caught |= 1ull << i;
	}
	out->sig_pending = task->pending.signal.sig[0];
	out->sig_shared_pending = untrusted(task)->signal->shared_pending.signal.sig[0];
	out->sig_blocked = task->blocked.sig[0];
	/* Not a direct load: the verifier of 6.1 can't follow typedefs in arrays. */
	out->sig_queued_count = BPF_CORE_READ(ucounts, rlimit[UCOUNT_RLIMIT_SIGPENDING].counter);
	/* It was replaced during the read, so the values may be anything. */
	if (!STILL_HAS(reader, task, sighand, sighand))
		return defer(reader, TD_GROUP_SIGNALS);
	put_header(reader, TD_ATTR_SIGNALS, sizeof(*out), 0);
}

static __always_inline void put_limits(struct td_reader *reader, struct task_struct *task)
{
	struct td_limits *out = next_payload(reader);

	if (bpf_core_read(out, sizeof(*out), &untrusted(task)->signal->rlim))
		defer(reader, TD_GROUP_LIMITS);
	else
		put_header(reader, TD_ATTR_LIMITS, sizeof(*out), 0);
}

#endif
