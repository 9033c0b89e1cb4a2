/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Namespaces and the cgroup. */
#ifndef TASKDIAG_TASK_NAMESPACES_BPF_H
#define TASKDIAG_TASK_NAMESPACES_BPF_H

#include "reader.bpf.h"

struct pid_numbers {
	struct td_reader *reader;
	void *numbers;
	__u32 level, count;
};

static long add_number(__u32 index, struct pid_numbers *pid)
{
	__u32 *out = next_payload(pid->reader);
	struct upid upid;

	if (index >= 32 || bpf_probe_read_kernel(&upid, sizeof(upid), pid->numbers + (pid->level + index) * sizeof(upid)))
		return 1;
	out[index] = upid.nr;
	pid->count = index + 1;
	return 0;
}

static __always_inline void put_namespaces(struct td_reader *reader, struct task_struct *task)
{
	struct td_namespaces *out = attribute(reader, TD_ATTR_NAMESPACES, sizeof(*out), 0);
	struct nsproxy *nsproxy = untrusted(task)->nsproxy;
	struct pid *pid = untrusted(task)->thread_pid;
	__u32 start = *(volatile __u32 *)&reader->used - sizeof(struct td_attr) - sizeof(*out);

	__builtin_memset(out, 0, sizeof(*out));
	out->ns_user = untrusted(task)->real_cred->user_ns->ns.inum;
	if (nsproxy) {
		out->ns_pid_for_children = nsproxy->pid_ns_for_children->ns.inum;
		out->ns_mnt = nsproxy->mnt_ns->ns.inum;
		out->ns_net = nsproxy->net_ns->ns.inum;
		out->ns_uts = nsproxy->uts_ns->ns.inum;
		out->ns_ipc = nsproxy->ipc_ns->ns.inum;
		out->ns_cgroup = nsproxy->cgroup_ns->ns.inum;
		out->ns_time = nsproxy->time_ns->ns.inum;
	}
	if (!STILL_HAS(reader, task, nsproxy, nsproxy)) {
		*(volatile __u32 *)&reader->used = start;
		return defer(reader, TD_GROUP_NAMESPACES);
	}
	if (pid)
		out->ns_pid = BPF_CORE_READ(active_pid_ns(pid), ns.inum);
}

static __always_inline void put_nspids(struct td_reader *reader, struct task_struct *task)
{
	struct pid_numbers numbers = { .reader = reader, .level = reader->level };
	struct pid *pid = untrusted(task)->thread_pid;

	if (!pid)
		return;
	numbers.numbers = (void *)pid->numbers;
	if (pid->level < numbers.level)
		return;
	bpf_loop(pid->level - numbers.level + 1, add_number, &numbers, 0);
	attribute_of(reader, TD_ATTR_NSPIDS, (numbers.count & 63) * sizeof(__u32));
}

static __always_inline struct kernfs_node *kernfs_parent(struct kernfs_node *node)
{
	struct kernfs_node___pre615 *old = (void *)node;

	if (bpf_core_field_exists(node->__parent))
		return BPF_CORE_READ(node, __parent);
	return (void *)BPF_CORE_READ(old, parent);
}

/* Iterates from a cgroup's node to the root. The path is written backwards from its end. */
struct climb {
	struct td_reader *reader;
	struct kernfs_node *node, *root;
};

static long climb_up(__u32 index, struct climb *climb)
{
	struct td_reader *reader = climb->reader;
	__u32 position = *(volatile __u32 *)&reader->position;
	struct kernfs_node *node = climb->node, *parent;
	long n;

	if (node == climb->root)
		return 1;
	parent = kernfs_parent(node);
	if (!parent)
		return 1;
	n = bpf_probe_read_kernel_str(reader->name, sizeof(reader->name), BPF_CORE_READ(node, name));
	if (n < 2 || n > 256 || position < n)
		return 1;
	/* n includes the NUL, which the slash replaces. */
	position -= n;
	if (position >= TD_PATH_MAX)
		return 1;
	reader->path[position] = '/';
	if (bpf_probe_read_kernel(&reader->path[position + 1], (n - 1) & 0xff, reader->name))
		return 1;
	*(volatile __u32 *)&reader->position = position;
	climb->node = parent;
	return 0;
}

/* The cgroup in the unified hierarchy, with its path in the reader's cgroup namespace. */
static __always_inline void put_cgroup(struct td_reader *reader, struct task_struct *task, struct task_struct *current)
{
	const __u32 css_online = 1 << 1;
	struct nsproxy *nsproxy = current->nsproxy;
	struct cgroup *cgroup;
	struct climb climb = { .reader = reader };
	struct td_cgroup *out;
	__u32 position;
	char *path;

	if (!bpf_core_field_exists(task->cgroups) || !nsproxy)
		return defer(reader, TD_GROUP_CGROUP);
	cgroup = untrusted(task)->cgroups->dfl_cgrp;
	if (!(cgroup->self.flags & css_online))
		return defer(reader, TD_GROUP_CGROUP);
	climb.node = cgroup->kn;
	climb.root = nsproxy->cgroup_ns->root_cset->dfl_cgrp->kn;
	*(volatile __u32 *)&reader->position = TD_PATH_MAX;
	add_steps(reader, (__u32)bpf_loop(256, climb_up, &climb, 0) / 8);
	position = *(volatile __u32 *)&reader->position;
	if (climb.node != climb.root || position > TD_PATH_MAX)
		return defer(reader, TD_GROUP_CGROUP);
	if (position == TD_PATH_MAX)
		reader->path[--position] = '/';
	out = attribute(reader, TD_ATTR_CGROUP, sizeof(*out), 0);
	out->cgroup_id = cgroup->kn->id;
	path = next_payload(reader);
	if (bpf_probe_read_kernel(path, TD_PATH_MAX - position, &reader->path[position]))
		return;
	attribute_of(reader, TD_ATTR_CGROUP_PATH, TD_PATH_MAX - position);
}

#endif
