/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The reader: its memory, the record that is being written there, and ids in the reader's pid
 * namespace.
 */
#ifndef TASKDIAG_TASK_READER_BPF_H
#define TASKDIAG_TASK_READER_BPF_H

#include "../compat.bpf.h"
#include "../pid_idr.bpf.h"
#include "../record.h"

const volatile struct td_constants td_constants SEC(".rodata") = { .groups = 0xffffffff, .page_shift = 12 };
#define td_groups (td_constants.groups)
#define PAGE_SHIFT (td_constants.page_shift)
#define PAGE_SIZE (1ul << PAGE_SHIFT)

#if TD_WALKS
struct td_reader own_reader SEC(".bss");

/* A task's entry is at its id, masked with td_config.seen_mask. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct td_seen);
} seen SEC(".maps");
#else
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct td_reader_key);
	__type(value, struct td_reader);
} readers SEC(".maps");
#endif

/*
 * One value, never written. Its addresses show the offset of each processor's data: find_offset().
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} per_cpu SEC(".maps");

/*
 * The place for the next attribute. The verifier can't know the bound of a value in memory; the
 * mask gives it one.
 */
static __always_inline struct td_attr *next_attribute(struct td_reader *reader)
{
	__u64 used = *(volatile __u32 *)&reader->used;

	asm volatile("%0 &= %1" : "+r"(used) : "i"(TD_SCRATCH_MASK));
	return (void *)(reader->scratch + used);
}

/*
 * The place for the payload of the next attribute, for payloads whose length is known only after
 * writing.
 */
static __always_inline void *next_payload(struct td_reader *reader)
{
	return next_attribute(reader) + 1;
}

/* Appends the header of an attribute and returns its payload. */
static __always_inline void *put_header(struct td_reader *reader, __u16 type, __u32 len, __u16 flags)
{
	struct td_attr *attr = next_attribute(reader);

	attr->len = len;
	attr->kind = type;
	attr->flags = flags;
	*(volatile __u32 *)&reader->used += sizeof(*attr) + ((len + 7) & ~7u);
	return attr + 1;
}

/*
 * Appends an attribute whose length is a constant, and clears the padding. The caller must write
 * the whole payload.
 */
static __always_inline void *attribute(struct td_reader *reader, __u16 type, __u32 len, __u16 flags)
{
	char *payload = put_header(reader, type, len, flags);

	if (len & 7)
		*(__u64 *)(payload + (len & ~7u)) = 0;
	return payload;
}

/* Appends an attribute whose payload of `len` bytes was already written, and clears the padding. */
static __always_inline void attribute_of(struct td_reader *reader, __u16 type, __u32 len)
{
	__u64 last = len & 0xff8;
	char *payload = put_header(reader, type, len, 0);

	if (len & 7)
		*(__u64 *)(payload + last) &= (1ull << 8 * (len & 7)) - 1;
}

static __always_inline void defer(struct td_reader *reader, __u32 groups)
{
	*(volatile __u32 *)&reader->deferred |= groups;
}

/*
 * A pointer as a number. It goes through memory, because the verifier forbids arithmetic on most
 * pointers.
 */
static __always_inline __u64 address(struct td_reader *reader, const void *pointer)
{
	reader->address = (__u64)pointer;
	barrier();
	return *(volatile __u64 *)&reader->address;
}

static __always_inline void read_barrier(struct td_reader *reader)
{
	order_reads(&reader->address);
}

/* Adds the work that a visit does for what it iterates over. */
static __always_inline void add_steps(struct td_reader *reader, __u32 steps)
{
	*(volatile __u32 *)&reader->steps += steps;
}

/*
 * Whether a member of the task still is the pointer through which memory that is freed without RCU
 * was read.
 */
#define STILL_HAS(reader, task, member, pointer)                                                                          \
	({                                                                                                                \
		read_barrier(reader);                                                                                     \
		*(void *volatile *)&untrusted(task)->member == (void *)(pointer);                                         \
	})

/* The number of `pid` in the reader's pid namespace, 0 if it has none there: pid_nr_ns(). */
static __always_inline __u32 pid_nr(struct td_reader *reader, struct pid *pid)
{
	__u32 level = *(volatile __u32 *)&reader->level;
	struct upid upid;

	if (!pid)
		return 0;
	if (level == 0)
		return pid->numbers[0].nr;
	if (pid->level < level)
		return 0;
	if (bpf_probe_read_kernel(&upid, sizeof(upid), (void *)pid->numbers + level * sizeof(upid)) ||
	    (__u64)upid.ns != reader->pid_ns)
		return 0;
	/*
	 * Volatile. Otherwise clang merges this load with the one above, and the verifier rejects
	 * the result.
	 */
	return *(volatile int *)&upid.nr;
}

static __always_inline __u32 task_tgid_nr(struct td_reader *reader, struct task_struct *task)
{
	if (*(volatile __u32 *)&reader->level == 0)
		return task->tgid;
	return pid_nr(reader, untrusted(task)->signal->pids[PIDTYPE_TGID]);
}

static __always_inline __u32 task_tid_nr(struct td_reader *reader, struct task_struct *task)
{
	if (*(volatile __u32 *)&reader->level == 0)
		return task->pid;
	return pid_nr(reader, untrusted(task)->thread_pid);
}

/* The address space; none for a kernel thread, even if it borrows one. */
static __always_inline struct mm_struct *own_mm(struct task_struct *task)
{
	return task->flags & PF_KTHREAD ? 0 : untrusted(task)->mm;
}

static __always_inline __u64 start_ns(struct task_struct *task, struct task_struct *current)
{
	struct nsproxy *nsproxy = current->nsproxy;
	struct time_namespace *time_ns;

	if (!nsproxy)
		return task->start_boottime;
	time_ns = nsproxy->time_ns;
	if (!time_ns)
		return task->start_boottime;
	return task->start_boottime + time_ns->offsets.boottime.tv_sec * NSEC_PER_SEC + time_ns->offsets.boottime.tv_nsec;
}

#endif
