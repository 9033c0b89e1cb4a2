/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* For the broker: what decides who may see a task, and the namespaces and root of a task. */
#ifndef TASKDIAG_TASK_ACCESS_BPF_H
#define TASKDIAG_TASK_ACCESS_BPF_H

#include "cred.bpf.h"
#include "reader.bpf.h"

struct user_ns_walk {
	struct td_reader *reader;
	struct user_namespace *ns;
	__u32 count;
};

static long add_user_ns(__u32 index, struct user_ns_walk *walk)
{
	struct td_user_ns *out = next_payload(walk->reader);
	struct user_namespace *ns = walk->ns;

	if (index >= 32 || BPF_CORE_READ(ns, level) == 0)
		return 1;
	out[index].inode = BPF_CORE_READ(ns, ns.inum);
	out[index].owner = BPF_CORE_READ(ns, owner.val);
	walk->ns = BPF_CORE_READ(ns, parent);
	walk->count = index + 1;
	return 0;
}

static __always_inline void put_user_ns(struct td_reader *reader, __u16 type, struct user_namespace *ns)
{
	struct user_ns_walk walk = { .reader = reader, .ns = ns };

	bpf_loop(33, add_user_ns, &walk, 0);
	attribute_of(reader, type, (walk.count & 63) * sizeof(struct td_user_ns));
}

/*
 * Whether exec_update_lock is held for writing, as an exec does. True if this kernel's lock can't
 * be read.
 */
static __always_inline bool in_exec(struct task_struct *task)
{
	const __u64 writer = 1; /* RWSEM_WRITER_LOCKED */
	struct signal_struct *signal = untrusted(task)->signal;

	if (!bpf_core_field_exists(signal->exec_update_lock.count))
		return true;
	return signal->exec_update_lock.count.counter & writer;
}

/* The lowest two bits of mm_flags(), with a direct load, because each task needs this twice. */
static __always_inline __u32 dumpable_bits(struct mm_struct *mm)
{
	struct mm_struct___bitmap *bitmap = (void *)mm;

	return (bpf_core_field_exists(bitmap->flags.__mm_flags) ? bitmap->flags.__mm_flags[0] : mm->flags) & 3;
}

/*
 * get_dumpable() of linux/sched/coredump.h. Without an address space, what __ptrace_may_access()
 * checks instead.
 */
static __always_inline __u32 dumpable(struct task_struct *task, struct mm_struct *mm)
{
	if (mm)
		return dumpable_bits(mm);
	if (!bpf_core_field_exists(task->user_dumpable))
		return TD_DUMPABLE_NO_MM;
	return BPF_CORE_READ_BITFIELD_PROBED(task, user_dumpable) ? TD_DUMPABLE_USER : TD_DUMPABLE_NO_MM_INIT;
}

/* Reads what __ptrace_may_access() looks at. Writes all members of `out`. */
static __noinline void read_access(struct td_reader *reader, struct task_struct *task, struct td_access *out)
{
	struct cred *cred = untrusted(task)->real_cred;
	struct mm_struct *mm = untrusted(task)->mm;
	__u32 slot = reader->config.landlock;
	bool changing = in_exec(task);

	reader->cred = address(reader, cred);
	USERS_AND_GROUPS(out, cred);
	CAPABILITIES(out, cred, cap_permitted, cap_permitted);
	CAPABILITIES(out, cred, cap_effective, cap_effective);
	out->exec_id = task->self_exec_id;
	out->user_ns = cred->user_ns->ns.inum;
	out->user_ns_level = cred->user_ns->level;
	out->landlock = 0;
	if (bpf_core_field_exists(cred->security) && slot &&
	    bpf_probe_read_kernel(&out->landlock, sizeof(out->landlock), cred->security + (slot - 1) * sizeof(__u64)))
		changing = true;
	out->mm = address(reader, mm);
	out->mm_user_ns = 0;
	out->mm_user_ns_level = 0;
	if (mm) {
		out->mm_user_ns = mm->user_ns->ns.inum;
		out->mm_user_ns_level = mm->user_ns->level;
	}
	reader->dumpable = out->dumpable = dumpable(task, mm);
	out->flags = changing ? 0 : TD_ACCESS_STABLE;
}

static __always_inline void begin_access(struct td_reader *reader, struct task_struct *task)
{
	read_access(reader, task, attribute(reader, TD_ATTR_ACCESS, sizeof(struct td_access), 0));
}

/*
 * Whether what decides access has stayed the same since begin_access(). Credentials are replaced,
 * not changed, and under RCU no others can get the same address. An exec installs another address
 * space and other credentials.
 */
static __noinline bool access_is_unchanged(struct td_reader *reader, struct task_struct *task, struct td_access *before)
{
	struct mm_struct *mm = untrusted(task)->mm;

	return address(reader, untrusted(task)->real_cred) == reader->cred && address(reader, mm) == before->mm &&
	       task->self_exec_id == before->exec_id && dumpable(task, mm) == before->dumpable && !in_exec(task);
}

/*
 * Whether a directory that was just read may belong to a time in which the task could not be
 * traced. The whole record may take long enough for that time to begin and end.
 */
static __always_inline bool may_be_hidden(struct td_reader *reader, struct task_struct *task)
{
	return td_groups & TD_GROUP_ACCESS && reader->config.groups & TD_GROUP_ACCESS &&
	       dumpable(task, untrusted(task)->mm) != reader->dumpable;
}

static __always_inline void end_access(struct td_reader *reader, struct td_record *record, struct task_struct *task)
{
	struct td_access *access = (void *)(record + 1) + sizeof(struct td_attr);

	if (!access_is_unchanged(reader, task, access))
		access->flags = 0;
	if (access->user_ns_level)
		put_user_ns(reader, TD_ATTR_USER_NS, untrusted(task)->real_cred->user_ns);
	if (access->mm_user_ns_level && access->mm_user_ns != access->user_ns && access->mm)
		put_user_ns(reader, TD_ATTR_MM_USER_NS, untrusted(task)->mm->user_ns);
}

static __always_inline void put_view(struct td_reader *reader, struct task_struct *task)
{
	struct td_view *out = attribute(reader, TD_ATTR_VIEW, sizeof(*out), 0);
	struct nsproxy *nsproxy = untrusted(task)->nsproxy;
	struct fs_struct *fs = untrusted(task)->fs;
	struct pid *pid = untrusted(task)->thread_pid;
	struct cred *cred = untrusted(task)->real_cred;

	__builtin_memset(out, 0, sizeof(*out));
	out->task = (__u64)task;
	if (bpf_core_field_exists(cred->security))
		bpf_probe_read_kernel(out->security, sizeof(out->security), cred->security);
	if (!nsproxy || !fs || !pid)
		return;
	out->root_mount = (__u64)fs->root.mnt;
	out->root_dentry = (__u64)fs->root.dentry;
	out->boottime_ns = start_ns(task, task) - task->start_boottime;
	out->pid_ns = BPF_CORE_READ(active_pid_ns(pid), ns.inum);
	out->mnt_ns = nsproxy->mnt_ns->ns.inum;
	out->cgroup_ns = nsproxy->cgroup_ns->ns.inum;
	out->has_namespaces = TD_VIEW_WHOLE;
	if (!STILL_HAS(reader, task, nsproxy, nsproxy) || !STILL_HAS(reader, task, fs, fs))
		out->has_namespaces = TD_VIEW_CHANGED;
}

#endif
