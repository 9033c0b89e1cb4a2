// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A program for the tests of the loader. It uses everything that the loader supports. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define KERNEL __attribute__((preserve_access_index))

struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
} KERNEL;
struct cred {
	struct {
		__u32 val;
	} uid;
} KERNEL;
struct task_struct {
	int pid;
	int tgid;
	char comm[16];
	unsigned in_execve : 1;
	struct task_struct *real_parent;
	const struct cred *real_cred;
} KERNEL;
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} KERNEL;

/* Types and members that no kernel has. */
struct task_struct___nowhere {
	int no_such_field;
} KERNEL;
struct nowhere {
	int field;
} KERNEL;
enum bpf_map_type___here {
	BPF_MAP_TYPE_TASK_STORAGE___here = 1,
	NO_SUCH_ENUMERATOR = 7,
};

extern const unsigned long this_cpu_off __ksym __weak;
extern const unsigned long no_such_variable __ksym __weak;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} counter SEC(".maps");

__u64 tasks_seen;
__u64 loop_sum;
const volatile __u32 only_tgid = 0;

/* Facts about the kernel, which the tests compare with other sources. */
struct {
	__u32 bit_field_offset, bit_field_left, bit_field_right, bit_field_signed;
	__u32 has_pid, has_nowhere, has_type, lacks_type;
	__u32 task_size, storage_type, has_enumerator, lacks_enumerator;
	__u32 comm_size, comm_element_offset, has_this_cpu, lacks_variable;
} facts;

struct record {
	__u32 pid, tgid, parent, uid;
};

static long add(__u64 index, void *context)
{
	*(__u64 *)context += index;
	return 0;
}

static __attribute__((noinline)) __u32 parent_of(struct task_struct *task)
{
	return task->real_parent->tgid;
}

static void find_facts(struct task_struct *task)
{
	struct task_struct___nowhere *nowhere = (void *)task;

	facts.bit_field_offset = __builtin_preserve_field_info(task->in_execve, BPF_FIELD_BYTE_OFFSET);
	facts.bit_field_left = __builtin_preserve_field_info(task->in_execve, BPF_FIELD_LSHIFT_U64);
	facts.bit_field_right = __builtin_preserve_field_info(task->in_execve, BPF_FIELD_RSHIFT_U64);
	facts.bit_field_signed = __builtin_preserve_field_info(task->pid, BPF_FIELD_SIGNED);
	facts.has_pid = bpf_core_field_exists(task->pid);
	facts.has_nowhere = bpf_core_field_exists(nowhere->no_such_field);
	if (facts.has_nowhere)
		facts.has_nowhere = nowhere->no_such_field;
	facts.has_type = bpf_core_type_exists(struct task_struct);
	facts.lacks_type = !bpf_core_type_exists(struct nowhere);
	facts.task_size = bpf_core_type_size(struct task_struct);
	facts.storage_type = bpf_core_enum_value(enum bpf_map_type___here, BPF_MAP_TYPE_TASK_STORAGE___here);
	facts.has_enumerator = bpf_core_enum_value_exists(enum bpf_map_type___here, BPF_MAP_TYPE_TASK_STORAGE___here);
	facts.lacks_enumerator = !bpf_core_enum_value_exists(enum bpf_map_type___here, NO_SUCH_ENUMERATOR);
	facts.comm_size = bpf_core_field_size(task->comm);
	facts.comm_element_offset = bpf_core_field_offset(struct task_struct, comm[3]);
	facts.has_this_cpu = &this_cpu_off != 0;
	facts.lacks_variable = &no_such_variable == 0;
}

SEC("iter/task")
int ids(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct record record = {};
	__u32 zero = 0;
	__u64 sum = 0;
	__u64 *count;

	if (!task)
		return 0;
	if (only_tgid && task->tgid != only_tgid)
		return 0;
	if (!tasks_seen) {
		find_facts(task);
		bpf_loop(10, add, &sum, 0);
		loop_sum = sum;
	}
	tasks_seen++;
	count = bpf_map_lookup_elem(&counter, &zero);
	if (count)
		__sync_fetch_and_add(count, 1);
	record.pid = task->pid;
	record.tgid = task->tgid;
	record.parent = parent_of(task);
	record.uid = task->real_cred->uid.val;
	bpf_seq_write(ctx->meta->seq, &record, sizeof(record));
	return 0;
}

SEC("iter/task")
int does_nothing(struct bpf_iter__task *ctx)
{
	return 0;
}

SEC("iter/task")
int reads_what_is_not_there(struct bpf_iter__task *ctx)
{
	struct task_struct___nowhere *task = (void *)ctx->task;

	if (!task)
		return 0;
	tasks_seen = task->no_such_field;
	return 0;
}

SEC("iter/task")
int is_refused(struct bpf_iter__task *ctx)
{
	return *(volatile int *)(long)tasks_seen;
}
