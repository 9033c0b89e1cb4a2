// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Forks, execs and exits as they happen: one event (event.h) each, in a ring buffer that the library reads.
 *
 * These programs run within the fork, exec or exit of whoever does it, so they are short: no event that the reader does not
 * want is begun, and the reader is woken only by the event that it waits for, not by those behind.
 */
#include "compat.bpf.h"
#include "event.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define NSEC_PER_SEC 1000000000ull
#define EEXIST 17
/* In signal_struct.flags: group_exit_code is how the process ended. */
#define SIGNAL_GROUP_EXIT 0x4

/* Constants when the programs are loaded. */
const volatile struct td_event_reader reader SEC(".rodata") = {};

struct td_event_state state SEC(".bss");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

/* Processes of which the end has been told, see is_first_to_tell(). */
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

/* ---- numbers as the reader sees them ---- */

/* The number of `pid` in the reader's pid namespace, 0 where it has none there: pid_nr_ns(). */
static __always_inline __u32 pid_nr(struct pid *pid)
{
	struct upid upid;

	if (!pid || pid->level < reader.level ||
	    bpf_probe_read_kernel(&upid, sizeof(upid), (void *)pid->numbers + reader.level * sizeof(upid)) ||
	    (__u64)upid.ns != reader.pid_ns)
		return 0;
	/* volatile, or clang makes one load of this and the one above, which the verifier can't follow. */
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

static __always_inline void *begin(__u64 size)
{
	void *event = bpf_ringbuf_reserve(&events, size, 0);

	if (!event)
		__sync_fetch_and_add(&state.lost, 1);
	return event;
}

/* Fills in what all events have. */
static __always_inline void describe(struct td_event *event, __u32 len, __u16 kind, __u16 flags, __u32 pid,
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
	struct td_event_fork *fork;
	__u32 pid;

	if (is_thread && !reader.threads)
		return 0;
	pid = task_tgid_nr(task);
	if (!pid)
		return 0;
	fork = begin(sizeof(*fork));
	if (!fork)
		return 0;
	describe(&fork->event, sizeof(*fork), TD_EVENT_FORK, is_thread ? TD_EVENT_THREAD : 0, pid, task);
	fork->caller_pid = task_tgid_nr(caller);
	fork->caller_tid = task_tid_nr(caller);
	bpf_ringbuf_submit(fork, 0);
	return 0;
}

/* Puts the file name behind the event. Returns the event's length, or a negative number where the name does not fit. */
static __always_inline long put_filename(void *filename, __u32 room, struct linux_binprm *bprm)
{
	long n = bpf_probe_read_kernel_str(filename, room, BPF_CORE_READ(bprm, filename));

	/* n counts the NUL, and is the whole room also for a name that was cut. */
	if (n < 1 || n >= room)
		return -1;
	return sizeof(struct td_event) + n - 1;
}

SEC("tp_btf/sched_process_exec")
int on_exec(__u64 *ctx)
{
	struct task_struct *task = untrusted((void *)ctx[0]);
	struct linux_binprm *bprm = (void *)ctx[2];
	struct td_event_long_exec *whole;
	struct td_event_exec *exec;
	__u32 pid = task_tgid_nr(task);
	long len;

	if (!pid)
		return 0;
	exec = begin(sizeof(*exec));
	if (!exec)
		return 0;
	len = put_filename(exec->filename, sizeof(exec->filename), bprm);
	if (len > 0) {
		describe(&exec->event, len, TD_EVENT_EXEC, 0, pid, task);
		bpf_ringbuf_submit(exec, 0);
		return 0;
	}
	whole = bpf_ringbuf_reserve(&events, sizeof(*whole), 0);
	if (!whole) {
		describe(&exec->event, sizeof(exec->event), TD_EVENT_EXEC, TD_EVENT_CUT, pid, task);
		bpf_ringbuf_submit(exec, 0);
		return 0;
	}
	len = put_filename(whole->filename, sizeof(whole->filename), bprm);
	describe(&whole->event, len > 0 ? len : sizeof(whole->event), TD_EVENT_EXEC, len > 0 ? 0 : TD_EVENT_CUT, pid, task);
	bpf_ringbuf_discard(exec, 0);
	bpf_ringbuf_submit(whole, 0);
	return 0;
}

/*
 * Whether this is the first thread to tell of the end of its process. Of several that end at the same time each may find
 * that no thread is alive any more.
 *
 * A process that has one thread and never had one released needs no look-up. The order counts: a release begins the
 * sequence before it lowers the number.
 */
static __always_inline bool is_first_to_tell(struct task_struct *leader, struct signal_struct *signal)
{
	int threads = *(volatile int *)&signal->nr_threads;
	__u32 sequence = *(volatile __u32 *)&signal->stats_lock.seqcount.seqcount.sequence;
	struct process process = {};
	__u64 told = 1;

	if (threads == 1 && !sequence)
		return true;
	process.start_ns = leader->start_boottime;
	process.pid = leader->pid;
	/* An int until d7ba4cc900bf ("bpf: return long from bpf_map_ops funcs", 6.4): the upper half of the register means nothing. */
	return (int)bpf_map_update_elem(&ended, &process, &told, BPF_NOEXIST) != -EEXIST;
}

static __always_inline void tell_exit(struct task_struct *task, struct signal_struct *signal, __u16 flags)
{
	__u32 pid = task_tgid_nr(task);
	struct td_event_exit *exit;

	if (!pid)
		return;
	exit = begin(sizeof(*exit));
	if (!exit)
		return;
	describe(&exit->event, sizeof(*exit), TD_EVENT_EXIT, flags, pid, task);
	exit->status = task->exit_code;
	if (!(flags & TD_EVENT_THREAD) && signal->flags & SIGNAL_GROUP_EXIT)
		exit->status = signal->group_exit_code;
	exit->reserved = 0;
	exit->runtime_ns = task->se.sum_exec_runtime;
	exit->peak_rss_pages = signal->maxrss;
	bpf_ringbuf_submit(exit, 0);
}

SEC("tp_btf/sched_process_exit")
int on_exit(__u64 *ctx)
{
	struct task_struct *task = untrusted((void *)ctx[0]);
	struct signal_struct *signal = task->signal;
	bool is_last;

	if (reader.threads && task->pid != task->tgid)
		tell_exit(task, signal, TD_EVENT_THREAD);
	/* The tracepoint's second argument. */
	if (bpf_core_field_exists(struct trace_event_raw_sched_process_exit, group_dead))
		is_last = ctx[1];
	else
		is_last = !signal->live.counter && is_first_to_tell(task->group_leader, signal);
	if (is_last)
		tell_exit(task->group_leader, signal, 0);
	return 0;
}

/* ---- the reader ---- */

/* Runs in whoever reads the iterator, with a task or, at the end, without: notes who that is. */
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
