/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Credentials, and the audit session. */
#ifndef TASKDIAG_TASK_CRED_BPF_H
#define TASKDIAG_TASK_CRED_BPF_H

#include "reader.bpf.h"

#define USERS_AND_GROUPS(out, cred)                                                                                       \
	do {                                                                                                              \
		(out)->uid = (cred)->uid.val;                                                                             \
		(out)->euid = (cred)->euid.val;                                                                           \
		(out)->suid = (cred)->suid.val;                                                                           \
		(out)->fsuid = (cred)->fsuid.val;                                                                         \
		(out)->gid = (cred)->gid.val;                                                                             \
		(out)->egid = (cred)->egid.val;                                                                           \
		(out)->sgid = (cred)->sgid.val;                                                                           \
		(out)->fsgid = (cred)->fsgid.val;                                                                         \
	} while (0)

#define CAPABILITIES(out, cred, set, member)                                                                              \
	do {                                                                                                              \
		if (bpf_core_field_exists((cred)->member.val)) {                                                          \
			(out)->set = (cred)->member.val;                                                                  \
		} else {                                                                                                  \
			struct cred___pre63 *old = (void *)(cred);                                                        \
			(out)->set = BPF_CORE_READ(old, member.cap[0]) | (__u64)BPF_CORE_READ(old, member.cap[1]) << 32;  \
		}                                                                                                         \
	} while (0)

static __always_inline void put_cred(struct td_reader *reader, struct task_struct *task)
{
	struct td_cred *out = attribute(reader, TD_ATTR_CRED, sizeof(*out), 0);
	struct cred *cred = untrusted(task)->real_cred;

	USERS_AND_GROUPS(out, cred);
	CAPABILITIES(out, cred, cap_inheritable, cap_inheritable);
	CAPABILITIES(out, cred, cap_permitted, cap_permitted);
	CAPABILITIES(out, cred, cap_effective, cap_effective);
	CAPABILITIES(out, cred, cap_bounding, cap_bset);
	CAPABILITIES(out, cred, cap_ambient, cap_ambient);
	out->no_new_privs = task->atomic_flags & 1;
	out->seccomp = bpf_core_field_exists(task->seccomp.mode) ? (__u32)task->seccomp.mode : (__u32)TD_NO_NUMBER;
	out->seccomp_filters_count = bpf_core_field_exists(task->seccomp.filter_count) ?
		(__u32)task->seccomp.filter_count.counter : (__u32)TD_NO_NUMBER;
	out->reserved = 0;
}

static __always_inline void put_groups(struct td_reader *reader, struct task_struct *task)
{
	struct cred *cred = untrusted(task)->real_cred;
	struct group_info *info = cred->group_info;
	__u32 n = info->ngroups;
	__u32 *gids;

	gids = next_payload(reader);
	if (n > TD_GROUPS_MAX || (n && bpf_probe_read_kernel(gids, n * sizeof(*gids), info->gid)))
		defer(reader, TD_GROUP_GROUPS);
	else
		attribute_of(reader, TD_ATTR_GROUPS, n * sizeof(*gids));
}

static __always_inline void put_audit(struct td_reader *reader, struct task_struct *task)
{
	struct td_audit *out;

	if (!bpf_core_field_exists(task->loginuid) || !bpf_core_field_exists(task->sessionid))
		return defer(reader, TD_GROUP_AUDIT);
	out = attribute(reader, TD_ATTR_AUDIT, sizeof(*out), 0);
	out->loginuid = task->loginuid.val;
	out->audit_session = task->sessionid;
}

#endif
