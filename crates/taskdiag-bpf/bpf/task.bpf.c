// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The task iterator: it writes one record (record.h) for each task of a pass.
 *
 * It is compiled in two shapes:
 *   TD_WALKS=1  the program finds its tasks itself, and keeps the records until the library fetches them. It belongs to one
 *               handle. Since 6.2;
 *   TD_WALKS=0  the kernel calls the program for each task, and it hands the record over at once. It serves many readers at a
 *               time, and can be pinned.
 *
 * It reads kernel memory only. The memory of another process may lie in a file whose file system never answers, and a program
 * that waits for it holds up whoever reads, and RCU.
 *
 * A program can be preempted, so that other readers run it meanwhile on the same processor. Per-CPU scratch memory would mix one
 * process's bytes into another's record; all scratch is the reader's own (td_reader).
 *
 * The verifier follows every path through a program, and two that meet are one only if all they carry along is alike. So
 * what outlives a group is kept in the reader's memory and not in variables: the verifier does not look at what is there.
 * That, and leaving out the groups that a handle never asked for (`td_constants`), is what loading time depends on.
 *
 * Nothing here takes a lock. What is freed without RCU (an mm, namespaces, a terminal) is read first and verified afterwards; a
 * value that could be torn is deferred: the record says so, and the library asks procfs for that group of that task.
 */
#include "compat.bpf.h"
#include "numbers.bpf.h"
#include "record.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define NSEC_PER_SEC 1000000000ull

const volatile struct td_constants td_constants SEC(".rodata") = { .groups = 0xffffffff, .page_shift = 12 };
#define td_groups (td_constants.groups)
#define PAGE_SHIFT (td_constants.page_shift)
#define PAGE_SIZE (1ul << PAGE_SHIFT)

#if TD_WALKS
struct td_reader own_reader SEC(".bss");

/* Entry N is for tasks whose number ends in N. */
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

/* One value, never written: where the kernel put it tells where each processor's data lie (add_cpu()). */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} per_cpu SEC(".maps");

/* ---- records ---- */

/* Where the next attribute goes. The mask tells the verifier a bound that it can't know of memory. */
static __always_inline struct td_attr *next_attribute(struct td_reader *reader)
{
	__u64 used = *(volatile __u32 *)&reader->used;

	asm volatile("%0 &= %1" : "+r"(used) : "i"(TD_SCRATCH_MASK));
	return (void *)(reader->scratch + used);
}

/* Where the payload of the next attribute will be, for those whose length is known only after it is written. */
static __always_inline void *next_payload(struct td_reader *reader)
{
	return next_attribute(reader) + 1;
}

/* Appends the header of an attribute, and returns its payload. Nothing of what lay there before is left behind the payload. */
static __always_inline void *put_header(struct td_reader *reader, __u16 type, __u32 len, __u16 flags)
{
	struct td_attr *attr = next_attribute(reader);

	attr->len = len;
	attr->type = type;
	attr->flags = flags;
	*(volatile __u32 *)&reader->used += sizeof(*attr) + ((len + 7) & ~7u);
	return attr + 1;
}

/* Appends an attribute of a length that is known when this is compiled. The caller writes all of the payload. */
static __always_inline void *attribute(struct td_reader *reader, __u16 type, __u32 len, __u16 flags)
{
	char *payload = put_header(reader, type, len, flags);

	if (len & 7)
		*(__u64 *)(payload + (len & ~7u)) = 0;
	return payload;
}

/* Appends an attribute whose payload has been written, `len` bytes of it. */
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

/* A pointer as a number: through memory, since the verifier does not let a program calculate with most pointers. */
static __always_inline __u64 address(struct td_reader *reader, const void *pointer)
{
	reader->address = (__u64)pointer;
	barrier();
	return *(volatile __u64 *)&reader->address;
}

/*
 * What is loaded before this is loaded before what is loaded behind it. Strongly ordered processors do that anyway; for others, BPF
 * has no barrier of its own, but atomic operations with a result are fully ordered.
 */
static __always_inline void read_barrier(struct td_reader *reader)
{
#ifdef __TARGET_ARCH_x86
	barrier();
#else
	asm volatile("" : : "r"(__sync_fetch_and_add(&reader->address, 1)));
#endif
}

/* Counts what a visit looks at besides the task itself. */
static __always_inline void add_steps(struct td_reader *reader, __u32 steps)
{
	*(volatile __u32 *)&reader->steps += steps;
}

/* Whether a pointer of the task is still the one that was followed. What it led to is freed without RCU. */
#define STILL_HAS(reader, task, member, pointer)                                                                          \
	({                                                                                                                \
		read_barrier(reader);                                                                                     \
		*(void *volatile *)&untrusted(task)->member == (void *)(pointer);                                         \
	})

/* ---- numbers as the reader sees them ---- */

/* The number of `pid` in the reader's pid namespace, 0 where it has none there: pid_nr_ns(). */
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
	/* volatile, or clang makes one load of this and the one above, which the verifier can't follow. */
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

/* The address space; none for a kernel thread, which may borrow one. */
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

/* ---- base ---- */

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
 * A kernel thread's name as /proc shows it: the full name instead of the 15 bytes of comm, and for a worker of a workqueue
 * what it does ("+") or did last ("-").
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
	/* The kernel's buffer for a name. */
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
	__builtin_memset(base->reserved, 0, sizeof(base->reserved));
	/* Behind the end of a name there may be some of the one before. */
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

/* ---- credentials ---- */

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

	out->uid = cred->uid.val;
	out->euid = cred->euid.val;
	out->suid = cred->suid.val;
	out->fsuid = cred->fsuid.val;
	out->gid = cred->gid.val;
	out->egid = cred->egid.val;
	out->sgid = cred->sgid.val;
	out->fsgid = cred->fsgid.val;
	CAPABILITIES(out, cred, cap_inheritable, cap_inheritable);
	CAPABILITIES(out, cred, cap_permitted, cap_permitted);
	CAPABILITIES(out, cred, cap_effective, cap_effective);
	CAPABILITIES(out, cred, cap_bounding, cap_bset);
	CAPABILITIES(out, cred, cap_ambient, cap_ambient);
	out->no_new_privs = task->atomic_flags & 1;
	out->seccomp = bpf_core_field_exists(task->seccomp.mode) ? (__u32)task->seccomp.mode : (__u32)TD_NO_NUMBER;
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

/* ---- times and faults ---- */

/* What /proc/PID/stat adds up over the live threads of a process and those that ended, and what tells whether it ran. */
struct sums {
	__u64 utime, stime, gtime, runtime;
	__u64 min_flt, maj_flt;
	__u64 switches;
	__u32 on_cpu, traced;
	struct list_head *node, *head;
};

/* Where a kernel does not tell, for there is one processor alone: it may be. */
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
 * A thread that ends adds its numbers to the signal struct within a write section of stats_lock, so an unchanged even
 * sequence means that no thread was released while we walked.
 */
static __always_inline __u32 stats_sequence(struct signal_struct *signal)
{
	return *(volatile __u32 *)&signal->stats_lock.seqcount.seqcount.sequence;
}

/*
 * thread_group_cputime() and the fault counts of do_task_stat(). Returns false if a thread was released meanwhile, or there are too
 * many of them.
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
	/* /proc prints 0 where nobody counts. */
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
 * What tells that a process has not run since: who has read its arguments need not read them again. Nothing is told where somebody
 * else may write to its memory, or it is running now.
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

/* ---- memory ---- */

/* The per-processor pointer behind the map's value: the value of one processor lies at this plus that processor's offset. */
static __always_inline __u64 per_cpu_base(struct td_reader *reader)
{
	struct bpf_array *array = (void *)address(reader, &per_cpu);
	__u64 base = 0;

	bpf_core_read(&base, sizeof(base), &array->pptrs[0]);
	return base;
}

struct adding {
	struct td_reader *reader;
	struct mm_struct *mm;
};

static long find_offset(__u32 cpu, struct adding *adding)
{
	struct td_reader *reader = adding->reader;
	__u32 first = 0;
	void *value = bpf_map_lookup_percpu_elem(&per_cpu, &first, cpu);

	if (!value)
		return 1;
	reader->offsets[cpu & (TD_CPUS_MAX - 1)] = address(reader, value) - reader->per_cpu;
	return 0;
}

static long add_cpu(__u32 cpu, struct adding *adding)
{
	struct td_counters *counters = &adding->reader->counters;
	__u64 offset = adding->reader->offsets[cpu & (TD_CPUS_MAX - 1)];
	__s32 part;

#pragma unroll
	for (int i = 0; i < 4; i++)
		if (!bpf_probe_read_kernel(&part, sizeof(part), (void *)(counters->parts[i] + offset)))
			counters->pages[i] += part;
	return 0;
}

/* Each by itself: the offset in an array is fitted to the kernel only where the index is a constant when this is compiled. */
static __always_inline void read_central(__s64 *to, struct mm_struct *mm)
{
	to[0] = mm->rss_stat[0].count;
	to[1] = mm->rss_stat[1].count;
	to[2] = mm->rss_stat[2].count;
	to[3] = mm->rss_stat[3].count;
}

/*
 * Adds up a process's counters over the processors. Who moves a processor's part into the whole does so under a lock, in two steps.
 * So a sum counts if no whole changed while it was made. Two moves of opposite signs would not show: where several threads change
 * the same counters, a sum counts once it is like the one before.
 */
static long add_up(__u32 attempt, struct adding *adding)
{
	struct td_reader *reader = adding->reader;
	struct td_counters *counters = &reader->counters;
	struct mm_struct *mm = adding->mm;
	const __s64 alike = 16;
	__u32 is_settled = 1;

	read_central(counters->central, mm);
#pragma unroll
	for (int i = 0; i < 4; i++) {
		counters->before[i] = counters->pages[i];
		counters->pages[i] = counters->central[i];
	}
	read_barrier(reader);
	add_steps(reader, (__u32)bpf_loop(reader->config.cpus, add_cpu, adding, 0) / 8);
	read_barrier(reader);
	read_central(counters->again, mm);
#pragma unroll
	for (int i = 0; i < 4; i++) {
		__s64 moved = counters->pages[i] - counters->before[i];

		if (counters->again[i] != counters->central[i])
			is_settled = 0;
		if (mm->mm_users.counter > 1 && (!attempt || moved > alike || moved < -alike))
			is_settled = 0;
	}
	counters->is_settled = is_settled;
	return is_settled;
}

/*
 * Reads the memory counters, in pages: what they are without the parts of processors, and if wanted with them. Never below 0, as /proc
 * never shows them. False if they can't be added up.
 */
static __always_inline bool read_counters(struct td_reader *reader, struct mm_struct *mm, bool sum)
{
	struct td_counters *counters = &reader->counters;
	struct adding adding = { .reader = reader, .mm = mm };
	__u32 cpus = reader->config.cpus;

	if (bpf_core_type_exists(struct mm_rss_stat)) {
		struct mm_struct___pre62 *old = (void *)mm;

		counters->central[0] = BPF_CORE_READ(old, rss_stat.count[0].counter);
		counters->central[1] = BPF_CORE_READ(old, rss_stat.count[1].counter);
		counters->central[2] = BPF_CORE_READ(old, rss_stat.count[2].counter);
		counters->central[3] = BPF_CORE_READ(old, rss_stat.count[3].counter);
		sum = false;
	} else if (!sum || !bpf_core_field_exists(mm->rss_stat[0].counters)) {
		read_central(counters->central, mm);
		sum = false;
	} else {
		if (cpus > TD_CPUS_MAX)
			return false;
		if (!reader->per_cpu) {
			reader->per_cpu = per_cpu_base(reader);
			bpf_loop(cpus, find_offset, &adding, 0);
		}
		counters->parts[0] = (__u64)mm->rss_stat[0].counters;
		counters->parts[1] = (__u64)mm->rss_stat[1].counters;
		counters->parts[2] = (__u64)mm->rss_stat[2].counters;
		counters->parts[3] = (__u64)mm->rss_stat[3].counters;
		bpf_loop(8, add_up, &adding, 0);
		if (!*(volatile __u32 *)&counters->is_settled)
			return false;
	}
#pragma unroll
	for (int i = 0; i < 4; i++) {
		if (!sum)
			counters->pages[i] = counters->central[i];
		if (counters->pages[i] < 0)
			counters->pages[i] = 0;
		if (counters->central[i] < 0)
			counters->central[i] = 0;
	}
	return true;
}

/* task_mem() of fs/proc/task_mmu.c. */
static __always_inline void put_mem(struct td_reader *reader, struct task_struct *task)
{
	struct td_counters *counters = &reader->counters;
	struct mm_struct *mm = own_mm(task);
	__u32 start = reader->used;
	struct td_mem *out;
	unsigned long total_vm, hiwater, rss, text, exec;

	if (!mm)
		return;
	if (!read_counters(reader, mm, reader->config.rss_sum))
		return defer(reader, TD_GROUP_MEM);
	out = attribute(reader, TD_ATTR_MEM, sizeof(*out), 0);
	total_vm = mm->total_vm;
	exec = mm->exec_vm << PAGE_SHIFT;
	out->rss_file_bytes = counters->pages[MM_FILEPAGES] << PAGE_SHIFT;
	out->rss_anon_bytes = counters->pages[MM_ANONPAGES] << PAGE_SHIFT;
	out->rss_shmem_bytes = counters->pages[MM_SHMEMPAGES] << PAGE_SHIFT;
	out->swap_bytes = counters->pages[MM_SWAPENTS] << PAGE_SHIFT;
	rss = counters->pages[MM_FILEPAGES] + counters->pages[MM_ANONPAGES] + counters->pages[MM_SHMEMPAGES];
	hiwater = mm->hiwater_rss;
	out->peak_rss_bytes = (hiwater > rss ? hiwater : rss) << PAGE_SHIFT;
	hiwater = mm->hiwater_vm;
	out->peak_vsize_bytes = (hiwater > total_vm ? hiwater : total_vm) << PAGE_SHIFT;
	out->vsize_bytes = total_vm << PAGE_SHIFT;
	text = ((mm->end_code + PAGE_SIZE - 1) & ~(PAGE_SIZE - 1)) - (mm->start_code & ~(PAGE_SIZE - 1));
	if (text > exec)
		text = exec;
	out->text_bytes = text;
	out->lib_bytes = exec - text;
	out->data_bytes = mm->data_vm << PAGE_SHIFT;
	out->stack_bytes = mm->stack_vm << PAGE_SHIFT;
	out->locked_bytes = mm->locked_vm << PAGE_SHIFT;
	out->pinned_bytes = mm->pinned_vm.counter << PAGE_SHIFT;
	out->page_table_bytes = mm->pgtables_bytes.counter;
	out->hugetlb_bytes = TD_NO_NUMBER;
	if (bpf_core_field_exists(mm->hugetlb_usage))
		out->hugetlb_bytes = mm->hugetlb_usage.counter << PAGE_SHIFT;
	/* A task that lost this mm meanwhile: all that we read may be another's. */
	if (!STILL_HAS(reader, task, mm, mm)) {
		*(volatile __u32 *)&reader->used = start;
		defer(reader, TD_GROUP_MEM);
	}
}

static __always_inline void put_layout(struct td_reader *reader, struct task_struct *task)
{
	struct mm_struct *mm = own_mm(task);
	__u32 start = reader->used;
	struct td_layout *out;
	__u32 *personality = attribute(reader, TD_ATTR_PERSONALITY, sizeof(*personality), 0);

	*personality = task->personality;
	if (!mm)
		return;
	out = attribute(reader, TD_ATTR_LAYOUT, sizeof(*out), 0);
	out->start_code = mm->start_code;
	out->end_code = mm->end_code;
	out->start_data = mm->start_data;
	out->end_data = mm->end_data;
	out->start_brk = mm->start_brk;
	out->start_stack = mm->start_stack;
	out->arg_start = mm->arg_start;
	out->arg_end = mm->arg_end;
	out->env_start = mm->env_start;
	out->env_end = mm->env_end;
	if (!STILL_HAS(reader, task, mm, mm)) {
		*(volatile __u32 *)&reader->used = start;
		defer(reader, TD_GROUP_LAYOUT);
	}
}

/* ---- input and output, signals, limits ---- */

#define IO_VALUES (sizeof(struct td_io) / sizeof(__u64))

/* A process's threads, whose input and output is summed up in the payload of the next attribute. */
struct io_sums {
	struct td_reader *reader;
	struct list_head *node, *head;
};

/* Both struct task_io_accounting and struct td_io are these values. They are read to behind the sums. */
static __always_inline long add_io_of(struct td_reader *reader, const void *accounting)
{
	__u64 *sums = next_payload(reader), *values = sums + IO_VALUES;

	if (bpf_probe_read_kernel(values, IO_VALUES * sizeof(*values), accounting))
		return 1;
#pragma unroll
	for (int i = 0; i < IO_VALUES; i++)
		sums[i] += values[i];
	return 0;
}

static long add_thread_io(__u32 index, struct io_sums *sums)
{
	struct list_head *node = sums->node, *next = 0;
	void *thread = (void *)node - bpf_core_field_offset(struct task_struct, thread_node);

	if (node == sums->head || bpf_core_read(&next, sizeof(next), &node->next) ||
	    add_io_of(sums->reader, thread + bpf_core_field_offset(struct task_struct, ioac)))
		return 1;
	sums->node = next;
	return 0;
}

/* do_io_accounting() of fs/proc/base.c. */
static __always_inline void put_io(struct td_reader *reader, struct task_struct *task)
{
	const void *own = (void *)task + bpf_core_field_offset(struct task_struct, ioac);
	struct signal_struct *signal = untrusted(task)->signal;
	struct io_sums sums = { .reader = reader };
	__u32 sequence;

	if (!bpf_core_field_exists(task->ioac.rchar) || !bpf_core_field_exists(task->ioac.read_bytes))
		return defer(reader, TD_GROUP_IO);
	__builtin_memset(next_payload(reader), 0, sizeof(struct td_io));
	sequence = stats_sequence(signal);
	read_barrier(reader);
	if (reader->config.threads || signal->nr_threads == 1) {
		add_io_of(reader, own);
	} else {
		if (signal->nr_threads > TD_THREADS_MAX)
			return defer(reader, TD_GROUP_IO);
		sums.head = (void *)signal + bpf_core_field_offset(struct signal_struct, thread_head);
		sums.node = signal->thread_head.next;
		add_steps(reader, bpf_loop(TD_THREADS_MAX + 1, add_thread_io, &sums, 0));
		if (sums.node != sums.head)
			return defer(reader, TD_GROUP_IO);
	}
	if (!reader->config.threads) {
		add_io_of(reader, (void *)signal + bpf_core_field_offset(struct signal_struct, ioac));
		read_barrier(reader);
		if (sequence & 1 || stats_sequence(signal) != sequence)
			return defer(reader, TD_GROUP_IO);
	}
	put_header(reader, TD_ATTR_IO, sizeof(struct td_io), 0);
}

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
	/* Gathered in memory: before 6.2 the verifier tells ways through a function apart by every number in its registers. */
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
	/* 6.1 can't follow typedefs in arrays. */
	out->sig_queued_count = BPF_CORE_READ(ucounts, rlimit[UCOUNT_RLIMIT_SIGPENDING].counter);
	/* Another one since: what we read of this one may be anything. */
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

static __always_inline void put_audit(struct td_reader *reader, struct task_struct *task)
{
	struct td_audit *out;

	if (!bpf_core_field_exists(task->loginuid) || !bpf_core_field_exists(task->sessionid))
		return defer(reader, TD_GROUP_AUDIT);
	out = attribute(reader, TD_ATTR_AUDIT, sizeof(*out), 0);
	out->loginuid = task->loginuid.val;
	out->audit_session = task->sessionid;
}

/* ---- oom ---- */

static __always_inline __u64 mm_flags(struct mm_struct *mm)
{
	struct mm_struct___bitmap *bitmap = (void *)mm;

	if (bpf_core_field_exists(bitmap->flags.__mm_flags))
		return BPF_CORE_READ(bitmap, flags.__mm_flags[0]);
	return BPF_CORE_READ(mm, flags);
}

/* The score of a process with so many pages, by proc_oom_score() and oom_badness(). BPF divides unsigned only; the kernel rounds to 0. */
static __always_inline __s32 oom_score(struct td_reader *reader, __s64 pages, __s32 adj)
{
	__s64 total = reader->config.total_pages, points = pages + adj * (__s64)(reader->config.total_pages / 1000), scaled;

	scaled = points < 0 ? -(__s64)((__u64)(-points * 1000) / (__u64)total) : (__s64)((__u64)(points * 1000) / (__u64)total);
	scaled = (1000 + scaled) * 2;
	return scaled < 0 ? -(__s64)((__u64)-scaled / 3) : (__s64)((__u64)scaled / 3);
}

/* Asks to be deferred for a process whose leader alone has no memory any more. */
static __always_inline void put_oom(struct td_reader *reader, struct task_struct *task)
{
	const __u32 mmf_oom_skip = 21;
	struct td_counters *counters = &reader->counters;
	struct mm_struct *mm = own_mm(task);
	struct signal_struct *signal = untrusted(task)->signal;
	__s32 adj = signal->oom_score_adj, score = 0;
	__s64 tables;
	struct td_oom *out;

	if (!mm && !(task->flags & PF_KTHREAD) && signal->nr_threads > 1)
		return defer(reader, TD_GROUP_OOM);
	if (mm && task->tgid != 1 && adj != -1000 && reader->config.total_pages && !(mm_flags(mm) >> mmf_oom_skip & 1) &&
	    !(untrusted(task)->vfork_done && untrusted(task)->real_parent->mm == mm)) {
		/* Some kernels add the counters up for this, others take them as they are. Where that makes a difference, /proc knows. */
		if (!read_counters(reader, mm, true))
			return defer(reader, TD_GROUP_OOM);
		tables = mm->pgtables_bytes.counter >> PAGE_SHIFT;
		score = oom_score(reader, counters->pages[0] + counters->pages[1] + counters->pages[2] + counters->pages[3] + tables, adj);
		if (score != oom_score(reader, counters->central[0] + counters->central[1] + counters->central[2] +
					       counters->central[3] + tables, adj))
			return defer(reader, TD_GROUP_OOM);
	}
	if (mm && !STILL_HAS(reader, task, mm, mm))
		return defer(reader, TD_GROUP_OOM);
	out = attribute(reader, TD_ATTR_OOM, sizeof(*out), 0);
	out->oom_score_adj = adj;
	out->oom_score = score;
}

/* ---- namespaces, cgroup ---- */

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
	struct pid_numbers numbers = { .reader = reader, .level = reader->level };
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
	if (!pid)
		return;
	out->ns_pid = BPF_CORE_READ(active_pid_ns(pid), ns.inum);
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

/* A path is built from its end. */
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
	/* n counts the NUL, whose place the slash takes. */
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

/* The cgroup of the unified hierarchy, its path as seen from the reader's cgroup namespace. */
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

/* ---- files ---- */

struct open_files {
	unsigned long *words;
	__u32 count;
};

static long add_word(__u32 index, struct open_files *files)
{
	__u64 word;

	if (bpf_probe_read_kernel(&word, sizeof(word), files->words + index))
		return 1;
	files->count += __builtin_popcountll(word);
	return 0;
}

/* A task that ended has no files: 0 descriptors in a table of 0, as the text says. */
static __always_inline void put_fds(struct td_reader *reader, struct task_struct *task)
{
	struct files_struct *files = untrusted(task)->files;
	struct open_files open = {};
	__u32 size = 0, words;
	struct fdtable *table;
	struct td_fds *out;

	if (files) {
		table = files->fdt;
		size = table->max_fds;
		open.words = table->open_fds;
		words = (size + 63) / 64;
		if (words > TD_FD_WORDS_MAX || bpf_loop(words, add_word, &open, 0) != words)
			return defer(reader, TD_GROUP_FDS);
		add_steps(reader, words / 8);
		read_barrier(reader);
		if (files->fdt != table)
			return defer(reader, TD_GROUP_FDS);
	}
	if (!STILL_HAS(reader, task, files, files))
		return defer(reader, TD_GROUP_FDS);
	out = attribute(reader, TD_ATTR_FDS, sizeof(*out), 0);
	out->fd_count = open.count;
	out->fd_table_size = size;
}

/* A way up from a place to the reader's root, or to where there is nothing above. */
struct walk {
	struct td_reader *reader;
	struct mount *mount, *root_mount;
	struct dentry *dentry, *root_dentry;
	__u32 arrived;
};

static __always_inline struct mount *mount_of(struct vfsmount *mnt)
{
	return (void *)mnt - bpf_core_field_offset(struct mount, mnt);
}

/* One turn of prepend_path() of fs/d_path.c. */
static long walk_up(__u32 index, struct walk *walk)
{
	struct td_reader *reader = walk->reader;
	__u32 position = *(volatile __u32 *)&reader->position, sequence, len;
	struct dentry *dentry = walk->dentry, *parent;
	struct mount *mount = walk->mount, *above;
	const unsigned char *name;

	if (dentry == walk->root_dentry && mount == walk->root_mount)
		goto arrived;
	if (!dentry || !mount)
		return 1;
	if (dentry == BPF_CORE_READ(mount, mnt.mnt_root)) {
		above = BPF_CORE_READ(mount, mnt_parent);
		/* The root of another mount namespace than the reader's, or one that the reader's own root lies below. */
		if (above == mount)
			goto arrived;
		walk->dentry = BPF_CORE_READ(mount, mnt_mountpoint);
		walk->mount = above;
		return BPF_CORE_READ(mount, mnt_parent) != above;
	}
	sequence = BPF_CORE_READ(dentry, d_seq.seqcount.sequence);
	parent = BPF_CORE_READ(dentry, d_parent);
	len = BPF_CORE_READ(dentry, d_name.len);
	name = BPF_CORE_READ(dentry, d_name.name);
	if (parent == dentry || len > 255 || position <= len)
		return 1;
	position -= len + 1;
	/* One register, or clang calculates it twice and the verifier knows the bound of only one. */
	barrier_var(position);
	if (position >= TD_PATH_MAX)
		return 1;
	reader->path[position] = '/';
	if (bpf_probe_read_kernel(&reader->path[position + 1], len & 0xff, name))
		return 1;
	/* Renamed meanwhile? */
	read_barrier(reader);
	if (sequence & 1 || BPF_CORE_READ(dentry, d_seq.seqcount.sequence) != sequence)
		return 1;
	*(volatile __u32 *)&reader->position = position;
	walk->dentry = parent;
	return 0;
arrived:
	walk->arrived = 1;
	return 1;
}

/* d_path() of fs/d_path.c. False where the path has to be asked of procfs. */
#if TD_WALKS
__noinline int put_path_at(__u64 type, __u64 from_address, __u64 root_address)
{
	struct td_reader *reader = &own_reader;
	const struct path *from = (void *)from_address, *root = (void *)root_address;
#else
static __noinline bool put_path(struct td_reader *reader, __u16 type, const struct path *from, const struct path *root)
{
#endif
	struct walk walk = { .reader = reader };
	struct dentry *dentry;
	struct vfsmount *mnt;
	__u32 end = TD_PATH_MAX, position;

	walk.root_dentry = BPF_CORE_READ(root, dentry);
	walk.root_mount = mount_of(BPF_CORE_READ(root, mnt));
	walk.dentry = dentry = BPF_CORE_READ(from, dentry);
	mnt = BPF_CORE_READ(from, mnt);
	walk.mount = mount_of(mnt);
	/* Sockets, pipes and memory files make up their names. */
	if (BPF_CORE_READ(dentry, d_op, d_dname))
		return false;
	if (!BPF_CORE_READ(dentry, d_hash.pprev) && BPF_CORE_READ(dentry, d_parent) != dentry) {
		end -= 10;
		__builtin_memcpy(&reader->path[TD_PATH_MAX - 10], " (deleted)", 10);
	}
	*(volatile __u32 *)&reader->position = end;
	add_steps(reader, (__u32)bpf_loop(512, walk_up, &walk, 0) / 8);
	read_barrier(reader);
	if (!walk.arrived || BPF_CORE_READ(from, dentry) != dentry || BPF_CORE_READ(from, mnt) != mnt)
		return false;
	position = *(volatile __u32 *)&reader->position;
	/* The place is the root itself. */
	if (position == end)
		position--;
	if (position >= TD_PATH_MAX)
		return false;
	reader->path[position] = '/';
	if (bpf_probe_read_kernel(next_payload(reader), TD_PATH_MAX - position, &reader->path[position]))
		return false;
	attribute_of(reader, type, TD_PATH_MAX - position);
	return true;
}

#if TD_WALKS
static __always_inline bool put_path(struct td_reader *reader, __u16 type, const struct path *from, const struct path *root)
{
	__u64 from_address = address(reader, from);

	return td_groups & TD_GROUP_PATHS && put_path_at(type, from_address, address(reader, root));
}
#endif

static __always_inline void put_paths(struct td_reader *reader, struct task_struct *task, struct task_struct *current)
{
	struct fs_struct *fs = untrusted(task)->fs;
	struct mm_struct *mm = own_mm(task);
	struct path *root = &current->fs->root;
	__u32 start = reader->used, *umask;
	struct file *exe = 0;
	bool done = true;

	if (mm) {
		exe = mm->exe_file;
		if (exe)
			done = put_path(reader, TD_ATTR_EXE, &exe->f_path, root) && mm->exe_file == exe &&
			       STILL_HAS(reader, task, mm, mm);
	}
	if (fs && done) {
		umask = attribute(reader, TD_ATTR_UMASK, sizeof(*umask), 0);
		*umask = fs->umask;
		done = put_path(reader, TD_ATTR_CWD, &fs->pwd, root) && put_path(reader, TD_ATTR_ROOT, &fs->root, root) &&
		       STILL_HAS(reader, task, fs, fs);
	}
	if (!done) {
		*(volatile __u32 *)&reader->used = start;
		defer(reader, TD_GROUP_PATHS);
	}
}

/* ---- access ---- */

struct outward {
	struct td_reader *reader;
	struct user_namespace *ns;
	__u32 count;
};

static long add_user_ns(__u32 index, struct outward *outward)
{
	struct td_user_ns *out = next_payload(outward->reader);
	struct user_namespace *ns = outward->ns;

	if (index >= 32 || BPF_CORE_READ(ns, level) == 0)
		return 1;
	out[index].inode = BPF_CORE_READ(ns, ns.inum);
	out[index].owner = BPF_CORE_READ(ns, owner.val);
	outward->ns = BPF_CORE_READ(ns, parent);
	outward->count = index + 1;
	return 0;
}

static __always_inline void put_user_ns(struct td_reader *reader, __u16 type, struct user_namespace *ns)
{
	struct outward outward = { .reader = reader, .ns = ns };

	bpf_loop(33, add_user_ns, &outward, 0);
	attribute_of(reader, type, (outward.count & 63) * sizeof(struct td_user_ns));
}

/* Whether somebody holds exec_update_lock to change what a task is. Where that can't be seen, somebody may. */
static __always_inline bool in_exec(struct task_struct *task)
{
	const __u64 writer = 1; /* RWSEM_WRITER_LOCKED */
	struct signal_struct *signal = untrusted(task)->signal;

	if (!bpf_core_field_exists(signal->exec_update_lock.count))
		return true;
	return signal->exec_update_lock.count.counter & writer;
}

/* What mm_flags() says of the lowest two, loaded at once: this is done twice for each task. */
static __always_inline __u32 dumpable_bits(struct mm_struct *mm)
{
	struct mm_struct___bitmap *bitmap = (void *)mm;

	return (bpf_core_field_exists(bitmap->flags.__mm_flags) ? bitmap->flags.__mm_flags[0] : mm->flags) & 3;
}

/* What get_dumpable() of linux/sched/coredump.h says of the address space, or what the kernel goes by where there is none. */
static __always_inline __u32 dumpable(struct task_struct *task, struct mm_struct *mm)
{
	if (mm)
		return dumpable_bits(mm);
	if (!bpf_core_field_exists(task->user_dumpable))
		return TD_DUMPABLE_NO_MM;
	return BPF_CORE_READ_BITFIELD_PROBED(task, user_dumpable) ? TD_DUMPABLE_USER : TD_DUMPABLE_NO_MM_INIT;
}

/* Credentials and address space as __ptrace_may_access() sees them. All of what is read comes to lie in `out`. */
static __noinline void read_access(struct td_reader *reader, struct task_struct *task, struct td_access *out)
{
	struct cred *cred = untrusted(task)->real_cred;
	struct mm_struct *mm = untrusted(task)->mm;
	__u32 slot = reader->config.landlock;
	bool changing = in_exec(task);

	reader->cred = address(reader, cred);
	out->uid = cred->uid.val;
	out->euid = cred->euid.val;
	out->suid = cred->suid.val;
	out->fsuid = cred->fsuid.val;
	out->gid = cred->gid.val;
	out->egid = cred->egid.val;
	out->sgid = cred->sgid.val;
	out->fsgid = cred->fsgid.val;
	CAPABILITIES(out, cred, cap_permitted, cap_permitted);
	CAPABILITIES(out, cred, cap_effective, cap_effective);
	out->exec_id = task->self_exec_id;
	out->user_ns = cred->user_ns->ns.inum;
	out->user_ns_level = cred->user_ns->level;
	out->landlock = 0;
	if (slot && bpf_probe_read_kernel(&out->landlock, sizeof(out->landlock), cred->security + (slot - 1) * sizeof(__u64)))
		changing = true;
	out->mm = address(reader, mm);
	out->mm_user_ns = 0;
	out->mm_user_ns_level = 0;
	if (mm) {
		out->mm_user_ns = mm->user_ns->ns.inum;
		out->mm_user_ns_level = mm->user_ns->level;
	}
	out->dumpable = dumpable(task, mm);
	out->flags = changing ? 0 : TD_ACCESS_STABLE;
}

static __always_inline void begin_access(struct td_reader *reader, struct task_struct *task)
{
	read_access(reader, task, attribute(reader, TD_ATTR_ACCESS, sizeof(struct td_access), 0));
}

/*
 * Whether what decides about access is what it was when the record was begun, and so was meanwhile. Credentials are never changed
 * but for others, and under RCU those at one address remain the same. An exec takes another address space and other credentials.
 */
static __noinline bool is_as_before(struct td_reader *reader, struct task_struct *task, struct td_access *before)
{
	struct mm_struct *mm = untrusted(task)->mm;

	return address(reader, untrusted(task)->real_cred) == reader->cred && address(reader, mm) == before->mm &&
	       task->self_exec_id == before->exec_id && dumpable(task, mm) == before->dumpable && !in_exec(task);
}

static __always_inline void end_access(struct td_reader *reader, struct td_record *record, struct task_struct *task)
{
	struct td_access *access = (void *)(record + 1) + sizeof(struct td_attr);

	if (!is_as_before(reader, task, access))
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

	__builtin_memset(out, 0, sizeof(*out));
	out->task = (__u64)task;
	bpf_probe_read_kernel(out->security, sizeof(out->security), untrusted(task)->real_cred->security);
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

/* ---- tests ---- */

struct ancestry {
	struct cgroup_subsys_state *css;
	__u64 id;
	__u32 found;
};

static long look_above(__u32 index, struct ancestry *ancestry)
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
 * Tests of a task, clause by clause. What one test leaves to the next is in the reader's memory: before 6.7 the verifier takes
 * a callback to be called once, knows what was on the stack then, and removes what can only happen the second time.
 */
struct trial {
	struct td_reader *reader;
	struct task_struct *task;
};

static __always_inline bool test_holds(struct td_reader *reader, struct task_struct *task, const struct td_test *test)
{
	struct ancestry ancestry = {};
	__s64 value, number = test->value[0];
	__u64 comm[2];

	if (test->what == TD_VALUE_COMM) {
		bpf_probe_read_kernel(comm, sizeof(comm), task->comm);
		return !((comm[0] ^ test->value[0]) & test->mask[0]) && !((comm[1] ^ test->value[1]) & test->mask[1]);
	}
	if (test->what == TD_VALUE_CGROUP) {
		ancestry.id = test->value[0];
		ancestry.css = (void *)untrusted(task)->cgroups->dfl_cgrp + bpf_core_field_offset(struct cgroup, self);
		add_steps(reader, (__u32)bpf_loop(256, look_above, &ancestry, 0) / 8);
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

static long try_test(__u32 index, struct trial *trial)
{
	struct td_reader *reader = trial->reader;
	const struct td_test *test = &reader->config.tests[index & (TD_TESTS - 1)];

	if (test->clause != reader->clause) {
		if (!reader->holds)
			return 1;
		reader->clause = test->clause;
		reader->holds = 0;
	}
	if (!reader->holds)
		reader->holds = test_holds(reader, trial->task, test);
	return 0;
}

/* Whether the reader may want this task: what it can test itself, it tests again. */
static __always_inline bool passes(struct td_reader *reader, struct task_struct *task)
{
	struct trial trial = { .reader = reader, .task = task };

	reader->clause = 0;
	reader->holds = 0;
	bpf_loop(reader->config.tests_count, try_test, &trial, 0);
	return reader->holds;
}

#if TD_WALKS
/* Whether the task used processor time since it was last seen here, or was not seen; from now on it was. */
static __always_inline bool has_changed(struct td_reader *reader, struct task_struct *task)
{
	__u32 entry = reader->number & reader->config.seen_mask, epoch = reader->config.changed_epoch;
	struct td_seen *then = bpf_map_lookup_elem(&seen, &entry);
	__u64 runtime = task->se.sum_exec_runtime;
	struct sums sums;

	if (!then)
		return true;
	if (!reader->config.threads && untrusted(task)->signal->nr_threads > 1)
		/* volatile, or clang makes one load of this and others, whose addresses are of different kinds. */
		runtime = process_sums(reader, &sums, task) ? *(volatile __u64 *)&sums.runtime : ~0ull;
	if (then->start == task->start_boottime && then->runtime == runtime && then->epoch == epoch && runtime != ~0ull &&
	    !is_on_cpu(task))
		return false;
	then->start = task->start_boottime;
	then->runtime = runtime;
	then->epoch = epoch;
	return true;
}

/* What was seen is not told. */
static __always_inline void forget_seen(struct td_reader *reader)
{
	__u32 entry = reader->number & reader->config.seen_mask;
	struct td_seen *then = bpf_map_lookup_elem(&seen, &entry);

	if (then)
		then->epoch = 0;
}
#endif

/* ---- the program ---- */

/* Finds out who reads. */
static __always_inline void look_at(struct td_reader *reader, struct task_struct *current)
{
	reader->level = current->thread_pid->level;
	reader->pid_ns = 0;
	if (current->thread_pid->level)
		reader->pid_ns = (__u64)active_pid_ns(current->thread_pid);
}

/* The address of the task that a number leads to: a thread, or else a process; 0 if there is none. */
static __always_inline __u64 task_of(struct td_reader *reader, struct pid *pid, bool thread)
{
	__u64 offset = bpf_core_field_offset(struct task_struct, pid_links), link;

	if (thread) {
		link = address(reader, BPF_CORE_READ(pid, tasks[PIDTYPE_PID].first));
	} else {
		link = address(reader, BPF_CORE_READ(pid, tasks[PIDTYPE_TGID].first));
		offset += PIDTYPE_TGID * bpf_core_type_size(struct hlist_node);
	}
	return link ? link - offset : 0;
}

/*
 * Whether a task is being released, or the last thread of its process has been. Its numbers go a moment later, and so may already be
 * gone from what was read.
 */
static __always_inline bool is_released(struct task_struct *task)
{
	return *(volatile int *)&task->exit_state == EXIT_DEAD || !*(volatile int *)&task->signal->nr_threads;
}

/* The record of a process whose number, or a thread's, became another task's: it is to be asked about in another way. */
static __always_inline __u32 put_again(struct td_record *record, __u32 process)
{
	record->len = sizeof(*record);
	record->flags = TD_AGAIN;
	record->pid = process;
	record->tid = process;
	record->start_ns = 0;
	return sizeof(*record);
}

/*
 * The parts of a record, each a function of its own: then the verifier does not follow each of their ways together with each of all
 * others'. Where the program finds its tasks itself they are global functions, which it looks at once and one by one. Those can be
 * handed numbers alone, and have to know their reader.
 */
#if TD_WALKS

/* The task at an address. */
static __always_inline struct task_struct *task_at(__u64 address)
{
	return bpf_rdonly_cast((void *)address, bpf_core_type_id_kernel(struct task_struct));
}

/* In whose numbers and paths the answer is to be: who reads, unless another task is named. */
static __always_inline struct task_struct *standpoint(struct td_reader *reader)
{
	if (reader->config.as_task)
		return bpf_rdonly_cast((void *)reader->config.as_task, bpf_core_type_id_kernel(struct task_struct));
	return untrusted(bpf_get_current_task_btf());
}

#define PART(name, of_groups, put)                                                                                        \
	__noinline int name(__u64 at)                                                                                     \
	{                                                                                                                 \
		struct td_reader *reader = &own_reader;                                                                   \
		struct task_struct *task = task_at(at);                                                                   \
                                                                                                                          \
		if (td_groups & (of_groups))                                                                              \
			put;                                                                                              \
		return 0;                                                                                                 \
	}
#define PUT(part) part(at)

#else

static __always_inline struct task_struct *standpoint(struct td_reader *reader)
{
	return untrusted(bpf_get_current_task_btf());
}

#define PART(name, of_groups, put)                                                                                        \
	static __noinline int name(struct td_reader *reader, struct task_struct *task)                                    \
	{                                                                                                                 \
		put;                                                                                                      \
		return 0;                                                                                                 \
	}
#define PUT(part) part(reader, task)

#endif

PART(part_access, TD_GROUP_ACCESS, begin_access(reader, task))
PART(part_view, TD_GROUP_VIEW, put_view(reader, task))
PART(part_base, TD_GROUP_BASE, put_base(reader, task))
PART(part_tty, TD_GROUP_TTY, put_tty(reader, task))
PART(part_cred, TD_GROUP_CRED, put_cred(reader, task))
PART(part_groups, TD_GROUP_GROUPS, put_groups(reader, task))
PART(part_sums, TD_GROUP_CPU | TD_GROUP_FAULTS, put_sums(reader, task))
PART(part_mem, TD_GROUP_MEM, put_mem(reader, task))
PART(part_run, TD_GROUP_ARGS, put_run(reader, task))
PART(part_oom, TD_GROUP_OOM, put_oom(reader, task))
PART(part_namespaces, TD_GROUP_NAMESPACES, put_namespaces(reader, task))
PART(part_cgroup, TD_GROUP_CGROUP, put_cgroup(reader, task, standpoint(reader)))
PART(part_io, TD_GROUP_IO, put_io(reader, task))
PART(part_signals, TD_GROUP_SIGNALS, put_signals(reader, task))
PART(part_limits, TD_GROUP_LIMITS, put_limits(reader, task))
PART(part_paths, TD_GROUP_PATHS, put_paths(reader, task, standpoint(reader)))
PART(part_fds, TD_GROUP_FDS, put_fds(reader, task))
PART(part_audit, TD_GROUP_AUDIT, put_audit(reader, task))
PART(part_layout, TD_GROUP_LAYOUT, put_layout(reader, task))
PART(part_passes, TD_TESTABLE, return passes(reader, task))
#if TD_WALKS
PART(part_changed, TD_TESTABLE, return has_changed(reader, task))
#endif

/*
 * Makes the record of a task, `filled` bytes behind the start of scratch. Returns its length, 0 where none is wanted. `number` is
 * the reader's number for the task, a thread or else a process.
 */
static __always_inline __u32 put_task(struct td_reader *reader, struct td_record *record, __u32 filled,
				      struct task_struct *task, __u32 number, struct task_struct *current)
{
	__u32 groups = reader->config.groups, len;
#if TD_WALKS
	__u64 at = address(reader, task);
#endif

	if (reader->config.ppid && reader->config.ppid != task_tgid_nr(reader, untrusted(task)->real_parent))
		return 0;
	if (td_groups & TD_TESTABLE && reader->config.tests_count && !PUT(part_passes))
		return 0;
#if TD_WALKS
	if (td_groups & TD_TESTABLE && reader->config.changed && !PUT(part_changed))
		return 0;
#endif

	reader->used = filled + sizeof(*record);
	reader->deferred = 0;
	record->flags = 0;
	record->pid = reader->config.threads ? task_tgid_nr(reader, task) : number;
	record->tid = number;
	record->start_ns = start_ns(task, current);
	if (task->flags & PF_KTHREAD)
		record->flags |= TD_KERNEL_THREAD;

	if (td_groups & groups & TD_GROUP_ACCESS)
		PUT(part_access);
	if (td_groups & groups & TD_GROUP_VIEW)
		PUT(part_view);
	if (td_groups & groups & TD_GROUP_BASE)
		PUT(part_base);
	if (td_groups & groups & TD_GROUP_TTY)
		PUT(part_tty);
	if (td_groups & groups & TD_GROUP_CRED)
		PUT(part_cred);
	if (td_groups & groups & TD_GROUP_GROUPS)
		PUT(part_groups);
	if (td_groups & groups & (TD_GROUP_CPU | TD_GROUP_FAULTS))
		PUT(part_sums);
	if (td_groups & groups & TD_GROUP_MEM)
		PUT(part_mem);
	if (td_groups & groups & TD_GROUP_ARGS)
		PUT(part_run);
	if (td_groups & groups & TD_GROUP_OOM)
		PUT(part_oom);
	if (td_groups & groups & TD_GROUP_NAMESPACES)
		PUT(part_namespaces);
	if (td_groups & groups & TD_GROUP_CGROUP)
		PUT(part_cgroup);
	if (td_groups & groups & TD_GROUP_IO)
		PUT(part_io);
	if (td_groups & groups & TD_GROUP_SIGNALS)
		PUT(part_signals);
	if (td_groups & groups & TD_GROUP_LIMITS)
		PUT(part_limits);
	if (td_groups & groups & TD_GROUP_PATHS)
		PUT(part_paths);
	if (td_groups & groups & TD_GROUP_FDS)
		PUT(part_fds);
	if (td_groups & groups & TD_GROUP_AUDIT)
		PUT(part_audit);
	if (td_groups & groups & TD_GROUP_LAYOUT)
		PUT(part_layout);
	if (td_groups & groups & TD_GROUP_ACCESS)
		end_access(reader, record, task);
	if (reader->deferred) {
		struct td_defer *out = attribute(reader, TD_ATTR_DEFER, sizeof(*out), 0);

		out->groups = reader->deferred;
		out->reserved = 0;
		record->flags |= TD_DEFERRED;
	}
	/* Last, so that it says why what is missing is missing: memory that is gone does not come back. */
	if (!own_mm(task))
		record->flags |= TD_NO_MM;
	len = *(volatile __u32 *)&reader->used - filled;
	record->len = len;
	return len > TD_RECORD_MAX ? 0 : len;
}

#if TD_WALKS

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
SEC("iter/task")
int task_record(struct bpf_iter__task *ctx)
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

#else

static __always_inline struct td_reader *find_reader(struct task_struct *current)
{
	struct pid *pid = current->thread_pid;
	struct td_reader_key key = {};
	struct upid upid;

	if (bpf_probe_read_kernel(&upid, sizeof(upid), (void *)pid->numbers + pid->level * sizeof(upid)))
		return 0;
	key.pid_ns = BPF_CORE_READ(upid.ns, ns.inum);
	key.tid = upid.nr;
	return bpf_map_lookup_elem(&readers, &key);
}

/*
 * Called by the kernel for each task. It has a reference to the task, but the number may be another one's by now: see visit(). Here the
 * number is not looked up again, for the iterator goes on behind it; the library asks about it.
 */
SEC("iter/task")
int task_record(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task, *current;
	struct seq_file *seq = ctx->meta->seq;
	struct td_reader *reader;
	struct td_record *record;
	struct pid *pid;
	__u32 number, process, len;

	if (!task)
		return 0;
	current = untrusted(bpf_get_current_task_btf());
	reader = find_reader(current);
	if (!reader) {
		struct td_record complaint = { .len = sizeof(complaint), .flags = TD_NO_READER };

		bpf_seq_write(seq, &complaint, sizeof(complaint));
		return 0;
	}
	/* The first thread of a process that another one took the place of has its number. */
	if (!reader->config.threads && task->pid != task->tgid && task->exit_state != EXIT_DEAD)
		return 0;
	look_at(reader, current);
	record = (void *)reader->scratch;
	pid = untrusted(task)->thread_pid;
	process = task_tgid_nr(reader, task);
	number = reader->config.threads ? task_tid_nr(reader, task) : process;
	len = number ? put_task(reader, record, 0, task, number, current) : 0;
	read_barrier(reader);
	if (!pid || task_of(reader, pid, reader->config.threads) != address(reader, task) || is_released(untrusted(task)))
		len = put_again(record, process);
	/* Once more in the verifier's words: clang makes a sum of the test behind it. */
	barrier_var(len);
	if (!len || len > TD_RECORD_MAX)
		return 0;
	/* Where the buffer is full, the kernel drops what we wrote and calls again for this task at the next read. */
	bpf_seq_write(seq, reader->scratch, len);
	return 0;
}

#endif
