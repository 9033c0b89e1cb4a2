// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Forks, execs and exits. For each, the programs write one event (events.rs in crates/taskdiag-core/src/record) to a ring buffer, which
 * the library reads.
 *
 * The programs run within the fork, exec or exit of a process, so they do little: they reserve no
 * event that the reader does not want. The kernel wakes the reader only for the first unread event.
 */
#include "compat.bpf.h"
#include "net.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define EEXIST 17
/* A flag of signal_struct.flags: group_exit_code is the exit code of the process. */
#define SIGNAL_GROUP_EXIT 0x4

/* ---- events, with what follows their header ---- */

struct fork_event {
	struct td_event event;
	struct td_event_fork fork;
};

struct exit_event {
	struct td_event event;
	struct td_event_exit exit;
};

/* Nearly all names of files fit this, and all fit the other: the kernel accepts PATH_MAX bytes. */
struct exec_event {
	struct td_event event;
	char filename[256];
};

struct long_exec_event {
	struct td_event event;
	char filename[4096 + 8];
};

/* Set by the library before it loads the programs. */
const volatile struct td_event_reader reader SEC(".rodata") = {};

struct td_event_state state SEC(".bss");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

/* Processes that already have an exit event: is_first_exit_event(). */
struct process {
	__u64 start_ns;
	__u64 pid;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct process);
	__type(value, __u64);
} ended SEC(".maps");

/* ---- ids in the reader's pid namespace ---- */

/* The number of `pid` in the reader's pid namespace, 0 if it has none there: pid_nr_ns(). */
static __always_inline __u32 pid_nr(struct pid *pid)
{
	struct upid upid;

	if (!pid || pid->level < reader.level ||
	    bpf_probe_read_kernel(&upid, sizeof(upid), (void *)pid->numbers + reader.level * sizeof(upid)) ||
	    (__u64)upid.ns != reader.pid_ns)
		return 0;
	/*
	 * Volatile. Otherwise clang merges this load with the one above, and the verifier rejects
	 * the result.
	 */
	return *(volatile int *)&upid.nr;
}

static __always_inline __u32 task_tgid_nr(struct task_struct *task)
{
	return reader.level ? pid_nr(task->signal->pids[PIDTYPE_TGID]) : task->tgid;
}

static __always_inline __u32 task_tid_nr(struct task_struct *task)
{
	return reader.level ? pid_nr(task->thread_pid) : task->pid;
}

/* ---- events ---- */

static __always_inline void *reserve_event(__u64 size)
{
	void *event = bpf_ringbuf_reserve(&events, size, 0);

	if (!event)
		__sync_fetch_and_add(&state.lost, 1);
	return event;
}

static __always_inline __u64 cgroup_id(struct task_struct *task)
{
	return bpf_core_field_exists(task->cgroups) ? task->cgroups->dfl_cgrp->kn->id : 0;
}

/* Fills in the header of an event. */
static __always_inline void fill_event(struct td_event *event, __u32 len, __u16 kind, __u16 flags, __u32 pid,
				       struct task_struct *task)
{
	struct cred *cred = task->real_cred;

	if (task->flags & PF_KTHREAD)
		flags |= TD_EVENT_KERNEL_THREAD;
	event->len = len;
	event->kind = kind;
	event->flags = flags;
	event->time_ns = bpf_ktime_get_boot_ns() + reader.boottime_ns;
	event->start_ns = task->start_boottime + reader.boottime_ns;
	event->cgroup_id = cgroup_id(task);
	event->pid = pid;
	event->tid = task_tid_nr(task);
	event->ppid = task_tgid_nr(task->real_parent);
	event->uid = cred->uid.val;
	event->euid = cred->euid.val;
	event->reserved = 0;
	bpf_probe_read_kernel(event->comm, sizeof(event->comm), task->comm);
}

SEC("tp_btf/sched_process_fork")
int on_fork(__u64 *ctx)
{
	struct task_struct *caller = untrusted((void *)ctx[0]), *task = untrusted((void *)ctx[1]);
	bool is_thread = task->pid != task->tgid;
	struct fork_event *fork;
	__u32 pid;

	if (is_thread && !reader.threads)
		return 0;
	pid = task_tgid_nr(task);
	if (!pid)
		return 0;
	fork = reserve_event(sizeof(*fork));
	if (!fork)
		return 0;
	fill_event(&fork->event, sizeof(*fork), TD_EVENT_FORK, is_thread ? TD_EVENT_THREAD : 0, pid, task);
	fork->fork.caller_pid = task_tgid_nr(caller);
	fork->fork.caller_tid = task_tid_nr(caller);
	bpf_ringbuf_submit(fork, 0);
	return 0;
}

/*
 * Writes the file name after the event. Returns the length of the event, or a negative number if
 * the name does not fit.
 */
static __always_inline long put_filename(void *filename, __u32 size, struct linux_binprm *bprm)
{
	long n = bpf_probe_read_kernel_str(filename, size, BPF_CORE_READ(bprm, filename));

	/* n includes the NUL, and equals size if the name was cut off. */
	if (n < 1 || n >= size)
		return -1;
	return sizeof(struct td_event) + n - 1;
}

SEC("tp_btf/sched_process_exec")
int on_exec(__u64 *ctx)
{
	struct task_struct *task = untrusted((void *)ctx[0]);
	struct linux_binprm *bprm = (void *)ctx[2];
	struct long_exec_event *whole;
	struct exec_event *exec;
	__u32 pid = task_tgid_nr(task);
	long len;

	if (!pid)
		return 0;
	exec = reserve_event(sizeof(*exec));
	if (!exec)
		return 0;
	len = put_filename(exec->filename, sizeof(exec->filename), bprm);
	if (len > 0) {
		fill_event(&exec->event, len, TD_EVENT_EXEC, 0, pid, task);
		bpf_ringbuf_submit(exec, 0);
		return 0;
	}
	whole = bpf_ringbuf_reserve(&events, sizeof(*whole), 0);
	if (!whole) {
		fill_event(&exec->event, sizeof(exec->event), TD_EVENT_EXEC, TD_EVENT_CUT, pid, task);
		bpf_ringbuf_submit(exec, 0);
		return 0;
	}
	len = put_filename(whole->filename, sizeof(whole->filename), bprm);
	fill_event(&whole->event, len > 0 ? len : sizeof(whole->event), TD_EVENT_EXEC, len > 0 ? 0 : TD_EVENT_CUT, pid, task);
	bpf_ringbuf_discard(exec, 0);
	bpf_ringbuf_submit(whole, 0);
	return 0;
}

/*
 * Whether a process has no exit event yet. If several threads exit at the same time, each of them
 * may find that no thread is alive.
 *
 * A process with one thread, in which no thread was ever released, needs no lookup. The order of
 * the loads matters: __exit_signal() changes the sequence before it decrements nr_threads.
 */
static __always_inline bool is_first_exit_event(struct task_struct *leader, struct signal_struct *signal)
{
	int threads = *(volatile int *)&signal->nr_threads;
	__u32 sequence = stats_sequence(signal);
	struct process process = {};
	__u64 value = 1;

	if (threads == 1 && !sequence)
		return true;
	process.start_ns = leader->start_boottime;
	process.pid = leader->pid;
	/*
	 * Before d7ba4cc900bf ("bpf: return long from bpf_map_ops funcs", 6.4) the upper half of
	 * the register is undefined.
	 */
	return (int)bpf_map_update_elem(&ended, &process, &value, BPF_NOEXIST) != -EEXIST;
}

/* ---- processor time ---- */

/* The maximum number of unreleased threads to add up. */
#define THREADS_MAX 4096
/* How often to try again if a thread is released in between. */
#define ATTEMPTS 4

struct runtime {
	__u64 ns;
	__u64 scratch;
	struct list_head *node, *head;
};

static long add_thread(__u32 index, struct runtime *runtime)
{
	struct list_head *node = runtime->node, *next = 0;
	struct task_struct *thread = (void *)node - bpf_core_field_offset(struct task_struct, thread_node);

	if (node == runtime->head || bpf_core_read(&next, sizeof(next), &node->next))
		return 1;
	runtime->ns += BPF_CORE_READ(thread, se.sum_exec_runtime);
	runtime->node = next;
	return 0;
}

/*
 * The processor time of a process whose last thread ends, summed as in thread_group_cputime(). The
 * time of released threads is in the signal struct. The others are in its list: the leader, until
 * its parent waits for it, and threads that end at the same time.
 */
static __always_inline bool add_threads(struct signal_struct *signal, struct runtime *runtime)
{
	__u32 sequence = stats_sequence(signal);

	order_reads(&runtime->scratch);
	runtime->ns = 0;
	runtime->head = (void *)signal + bpf_core_field_offset(struct signal_struct, thread_head);
	runtime->node = signal->thread_head.next;
	bpf_loop(THREADS_MAX + 1, add_thread, runtime, 0);
	if (runtime->node != runtime->head)
		return false;
	runtime->ns += signal->sum_sched_runtime;
	order_reads(&runtime->scratch);
	return !(sequence & 1) && stats_sequence(signal) == sequence;
}

static __always_inline bool process_runtime(struct signal_struct *signal, struct runtime *runtime)
{
	for (int attempt = 0; attempt < ATTEMPTS; attempt++)
		if (add_threads(signal, runtime))
			return true;
	return false;
}

static __always_inline void put_exit(struct task_struct *task, struct signal_struct *signal, __u16 flags)
{
	__u32 pid = task_tgid_nr(task);
	struct td_net_key key = { task->start_boottime, task->tgid };
	struct td_net *counted = 0, *whole = 0;
	struct runtime runtime = {};
	struct exit_event *exit;
	__u32 len = sizeof(*exit);

	if (!pid)
		return;
	if (flags & TD_EVENT_THREAD)
		runtime.ns = task->se.sum_exec_runtime;
	else if (!process_runtime(signal, &runtime))
		flags |= TD_EVENT_NO_RUNTIME;
	/* tsk_is_oom_victim() */
	if (!(flags & TD_EVENT_THREAD) && signal->oom_mm)
		flags |= TD_EVENT_OOM_VICTIM;
	if (!(flags & TD_EVENT_THREAD)) {
		counted = bpf_map_lookup_elem(&net, &key);
		whole = net_of_all();
	}
	if (is_net_known(whole, counted, task)) {
		exit = reserve_event(sizeof(*exit) + sizeof(struct td_net));
		len += sizeof(struct td_net);
		flags |= TD_EVENT_NET;
		if (exit)
			fill_net((void *)(exit + 1), whole, counted, key.start_ns, reader.boottime_ns);
	} else {
		exit = reserve_event(sizeof(*exit));
	}
	if (!exit)
		return;
	fill_event(&exit->event, len, TD_EVENT_EXIT, flags, pid, task);
	exit->exit.status = task->exit_code;
	if (!(flags & TD_EVENT_THREAD) && signal->flags & SIGNAL_GROUP_EXIT)
		exit->exit.status = signal->group_exit_code;
	exit->exit.page_bytes = 0;
	exit->exit.runtime_ns = flags & TD_EVENT_NO_RUNTIME ? 0 : runtime.ns;
	exit->exit.peak_rss_pages = signal->maxrss;
	bpf_ringbuf_submit(exit, 0);
}

SEC("tp_btf/sched_process_exit")
int on_exit(__u64 *ctx)
{
	struct task_struct *task = untrusted((void *)ctx[0]);
	struct signal_struct *signal = task->signal;
	bool is_last;

	if (reader.threads && task->pid != task->tgid)
		put_exit(task, signal, TD_EVENT_THREAD);
	/* ctx[1] is group_dead, the second argument of the tracepoint. */
	if (bpf_core_field_exists(struct trace_event_raw_sched_process_exit, group_dead))
		is_last = ctx[1];
	else
		is_last = !signal->live.counter && is_first_exit_event(task->group_leader, signal);
	if (is_last)
		put_exit(task->group_leader, signal, 0);
	return 0;
}

/* ---- the reader ---- */

/* Runs in the process that reads the iterator, and writes its namespaces to `state`. */
SEC("iter/task")
int find_reader(struct bpf_iter__task *ctx)
{
	struct task_struct *current = untrusted(bpf_get_current_task_btf());
	struct nsproxy *nsproxy = current->nsproxy;
	struct pid *pid = current->thread_pid;
	struct time_namespace *time_ns;
	struct upid upid;

	if (bpf_probe_read_kernel(&upid, sizeof(upid), (void *)pid->numbers + pid->level * sizeof(upid)))
		return 0;
	state.reader.level = pid->level;
	state.reader.pid_ns = pid->level ? (__u64)upid.ns : 0;
	time_ns = nsproxy ? nsproxy->time_ns : 0;
	if (time_ns)
		state.reader.boottime_ns = time_ns->offsets.boottime.tv_sec * NSEC_PER_SEC + time_ns->offsets.boottime.tv_nsec;
	return 0;
}
