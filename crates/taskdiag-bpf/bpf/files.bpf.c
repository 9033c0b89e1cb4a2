// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The files of processes: the program writes one record (td_file) for each file that a listed
 * process uses. It waits for nothing, takes no lock, and holds no reference.
 *
 * The kernel's iterator over files visits a shared table once for each thread, and does not name
 * sockets and similar objects. This program looks up each process and reads its table.
 */
#include "pid_idr.bpf.h"
#include "files/place.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define O_CLOEXEC 02000000

/* Starts an empty record. There must be room for one. */
static __always_inline struct td_file *begin_record(__u16 use)
{
	struct td_file *record = next_record();

	if (!record)
		return 0;
	__builtin_memset(record, 0, sizeof(*record));
	record->index = walk.next;
	record->used_as = use;
	return record;
}

/* Ends a record. The bytes after its text belong to an earlier record. */
static __always_inline void end_record(struct td_file *record)
{
	__u32 len = (sizeof(*record) + record->name_len + 7) & ~7u;

	record->len = len;
	*(volatile __u32 *)&walk.filled += len;
}

/* Whether the run must end: there is no room for a record, or RCU has waited long enough. */
static __always_inline bool has_to_end(void)
{
	if (walk.filled > TD_FILE_RECORDS - 4 * TD_FILE_ROOM)
		return true;
	/* Each run makes progress, however slow the machine is. */
	if (!walk.has_advanced || walk.steps < walk.next_check)
		return false;
	walk.next_check = walk.steps + walk.check_every;
	return bpf_ktime_get_ns() - walk.run_start_ns >= walk.max_run_ns;
}

/* The working directory or the root directory of a process. */
static __always_inline void put_directory(__u16 use, __u64 vfsmount, __u64 dentry)
{
	struct td_file *record;

	if (is_ruled_out(POINTER(dentry, dentry, d_inode)))
		return;
	record = begin_record(use);
	if (!record)
		return;
	record->flags = put_place(vfsmount, dentry, POINTER(dentry, dentry, d_inode));
	end_record(record);
}

/*
 * Who may dump the memory of a process, plus one: the lowest two bits of mm_flags(). 0 without
 * memory.
 */
static __always_inline __u32 dumpable(__u64 task)
{
	__u64 mm = POINTER(task_struct, task, mm);

	if (!mm)
		return 0;
	if (bpf_core_field_exists(((struct mm_struct___bitmap *)0)->flags.__mm_flags))
		return (GET(mm_struct___bitmap, mm, flags.__mm_flags[0]) & 3) + 1;
	return (GET(mm_struct, mm, flags) & 3) + 1;
}

/*
 * The directories and the program of a process. False if they changed during the read, or if the
 * process is not dumpable as `before`: a directory may belong to a time in which it could not be
 * traced.
 */
static __always_inline bool put_links(__u64 task, __u32 before)
{
	__u64 fs = POINTER(task_struct, task, fs), mm = 0, exe = 0, mnt, dentry;
	struct td_file *record;

	if (fs && walk.uses & (1u << TD_FILE_CWD)) {
		mnt = POINTER(fs_struct, fs, pwd.mnt);
		dentry = POINTER(fs_struct, fs, pwd.dentry);
		put_directory(TD_FILE_CWD, mnt, dentry);
		read_barrier();
		if (POINTER(fs_struct, fs, pwd.mnt) != mnt || POINTER(fs_struct, fs, pwd.dentry) != dentry || dumpable(task) != before)
			return false;
	}
	if (fs && walk.uses & (1u << TD_FILE_ROOT)) {
		mnt = POINTER(fs_struct, fs, root.mnt);
		dentry = POINTER(fs_struct, fs, root.dentry);
		put_directory(TD_FILE_ROOT, mnt, dentry);
		read_barrier();
		if (POINTER(fs_struct, fs, root.mnt) != mnt || POINTER(fs_struct, fs, root.dentry) != dentry || dumpable(task) != before)
			return false;
	}
	read_barrier();
	if (POINTER(task_struct, task, fs) != fs)
		return false;
	if (!(walk.uses & (1u << TD_FILE_EXE)) || GET(task_struct, task, flags) & PF_KTHREAD)
		return true;
	mm = POINTER(task_struct, task, mm);
	if (!mm)
		return true;
	exe = POINTER(mm_struct, mm, exe_file);
	if (exe && !is_ruled_out(POINTER(file, exe, f_inode))) {
		record = begin_record(TD_FILE_EXE);
		if (!record)
			return false;
		record->flags =
			put_place(POINTER(file, exe, f_path.mnt), POINTER(file, exe, f_path.dentry), POINTER(file, exe, f_inode));
		end_record(record);
	}
	read_barrier();
	return POINTER(mm_struct, mm, exe_file) == exe && POINTER(task_struct, task, mm) == mm;
}

/* How often to read a descriptor again if it leads to another file in between. */
#define MAX_ATTEMPTS 4

/*
 * Writes the record of a descriptor. The memory of a closed file may become another file at once
 * (0ede61d8589c, "file: convert to SLAB_TYPESAFE_BY_RCU", 6.7), so everything reached from it is
 * read before and after.
 */
__noinline int put_descriptor(__u32 fd)
{
	__u64 slot = walk.slots + (__u64)fd * sizeof(__u64), file, mnt, dentry, inode;
	struct td_file *record;
	__u32 attempt;
	bool is_out;

#pragma nounroll
	for (attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
		file = word_at(slot);
		/* Closed, or reserved for a file that is being opened. */
		if (!file)
			return 0;
		record = begin_record(TD_FILE_FD);
		if (!record)
			return 0;
		record->fd = fd;
		mnt = POINTER(file, file, f_path.mnt);
		dentry = POINTER(file, file, f_path.dentry);
		inode = POINTER(file, file, f_inode);
		is_out = is_ruled_out(inode);
		record->offset = GET(file, file, f_pos);
		record->open_flags = GET(file, file, f_flags);
		if (word_at(walk.close_on_exec + (fd / 64) * sizeof(__u64)) >> (fd & 63) & 1)
			record->open_flags |= O_CLOEXEC;
		/* If only the numbers of descriptors are wanted, nothing of the file is read. */
		if (walk.wants && !is_out)
			record->flags = put_place(mnt, dentry, inode);
		read_barrier();
		if (word_at(slot) == file && POINTER(file, file, f_path.mnt) == mnt &&
		    POINTER(file, file, f_path.dentry) == dentry && POINTER(file, file, f_inode) == inode) {
			if (!is_out)
				end_record(record);
			return 0;
		}
	}
	/* The descriptor kept changing. */
	record = begin_record(TD_FILE_FD);
	if (!record)
		return 0;
	record->fd = fd;
	record->flags = TD_FILE_DEFER_ALL;
	end_record(record);
	return 0;
}

static long visit_bit(__u32 index, void *nothing)
{
	__u32 fd = walk.fd;

	if (!(walk.word >> (fd & 63)) || fd >= walk.max_fds)
		return 1;
	if (walk.word >> (fd & 63) & 1) {
		if (has_to_end()) {
			walk.state = TD_FILES_GOES_ON;
			return 1;
		}
		walk.steps++;
		put_descriptor(fd);
		walk.has_advanced = 1;
	}
	walk.fd = fd + 1;
	/* The next word begins. */
	return !(walk.fd & 63);
}

/*
 * Reads which inode a descriptor leads to. The inodes of a whole word are read before any is
 * compared.
 */
static long find_inode(__u32 index, void *nothing)
{
	__u64 file = walk.word_slots[index & 63];

	walk.word_inodes[index & 63] = file ? POINTER(file, file, f_inode) : 0;
	return 0;
}

/* Removes a descriptor from the word if it leads to a file that is not among `matches`. */
static long rule_out(__u32 index, void *nothing)
{
	__u64 inode = walk.word_inodes[index & 63], number;
	__u32 count = walk.matches_count, i;

	if (walk.word_slots[index & 63] != walk.word_again[index & 63])
		return 0;
	if (inode && inode != walk.other_inode) {
		number = GET(inode, inode, i_ino);
#pragma nounroll
		for (i = 0; i < TD_FILE_MATCHES && i < count; i++) {
			if (walk.matches[i].inode == number)
				return 0;
		}
		walk.other_inode = inode;
	}
	walk.word &= ~(1ull << (index & 63));
	return 0;
}

/*
 * Removes the descriptors that lead to none of `matches` from the word. A descriptor that leads to
 * one of them all the time stays: its slot has the same file before and after.
 */
static __noinline int rule_out_others(__u64 slots)
{
	if (bpf_probe_read_kernel(walk.word_slots, sizeof(walk.word_slots), (void *)slots))
		return 0;
	bpf_loop(64, find_inode, 0, 0);
	read_barrier();
	if (bpf_probe_read_kernel(walk.word_again, sizeof(walk.word_again), (void *)slots))
		return 0;
	bpf_loop(64, rule_out, 0, 0);
	walk.steps += 8;
	return 0;
}

/* Reads the descriptors of a word of open_fds. */
static long visit_word(__u32 index, void *nothing)
{
	__u32 fd = walk.fd;

	if (fd >= walk.max_fds)
		return 1;
	if (has_to_end()) {
		walk.state = TD_FILES_GOES_ON;
		return 1;
	}
	walk.word = word_at(walk.open_fds + (fd / 64) * sizeof(__u64));
	if (walk.word && walk.matches_count)
		rule_out_others(walk.slots + (fd & ~63u) * sizeof(__u64));
	bpf_loop(64, visit_bit, 0, 0);
	if (walk.state == TD_FILES_GOES_ON)
		return 1;
	/* The rest of the word is empty. */
	if (walk.fd & 63 || walk.fd == fd)
		walk.fd = (fd | 63) + 1;
	walk.steps++;
	walk.has_advanced = 1;
	return 0;
}

/* The most words in a table: sysctl_nr_open is 2^20 by default, and at most 2^30. */
#define WORDS_MAX (1 << 22)

/* The descriptors of a process. False if the process changed during the read. */
static __always_inline bool put_descriptors(__u64 task)
{
	__u64 files = POINTER(task_struct, task, files), table;

	if (!files)
		return true;
	table = POINTER(files_struct, files, fdt);
	walk.max_fds = GET(fdtable, table, max_fds);
	walk.slots = POINTER(fdtable, table, fd);
	walk.open_fds = POINTER(fdtable, table, open_fds);
	walk.close_on_exec = POINTER(fdtable, table, close_on_exec);
	bpf_loop(WORDS_MAX, visit_word, 0, 0);
	read_barrier();
	return POINTER(task_struct, task, files) == files && POINTER(files_struct, files, fdt) == table;
}

/* The maximum number of threads to compare: more would keep RCU waiting. procfs compares them. */
#define THREADS_MAX 512

struct comparison {
	__u64 node, head, fs, files;
};

/* Compares a thread with the first one. Ends with a node that is not the head if they differ. */
static long compare_thread(__u32 index, struct comparison *with)
{
	__u64 thread = with->node - bpf_core_field_offset(struct task_struct, thread_node), fs, files;

	if (with->node == with->head)
		return 1;
	fs = POINTER(task_struct, thread, fs);
	files = POINTER(task_struct, thread, files);
	/* A thread that is ending has neither. */
	if ((fs && fs != with->fs) || (files && files != with->files))
		return 1;
	with->node = POINTER(task_struct, thread, thread_node.next);
	walk.steps++;
	return 0;
}

/* Whether threads of a process may have directories or descriptors of their own. */
static __always_inline bool may_have_own(__u64 task, __u64 signal)
{
	struct comparison with = {
		.head = signal + bpf_core_field_offset(struct signal_struct, thread_head),
		.fs = POINTER(task_struct, task, fs),
		.files = POINTER(task_struct, task, files),
	};

	if (GET(signal_struct, signal, nr_threads) < 2 ||
	    !(walk.uses & (1u << TD_FILE_FD | 1u << TD_FILE_CWD | 1u << TD_FILE_ROOT)))
		return false;
	with.node = POINTER(signal_struct, signal, thread_head.next);
	bpf_loop(THREADS_MAX, compare_thread, &with, 0);
	return with.node != with.head;
}

/* The task from whose point of view the records are written. */
static __always_inline __u64 standpoint(void)
{
	return walk.as_task ? walk.as_task : address(untrusted(bpf_get_current_task_btf()));
}

/* The root of the IDR of that task's pid namespace. */
static __always_inline __u64 numbers_root(void)
{
	__u64 pid = POINTER(task_struct, standpoint(), thread_pid), ns;
	__u64 last = pid + bpf_core_field_offset(struct pid, numbers) + GET(pid, pid, level) * bpf_core_type_size(struct upid);

	ns = word_at(last + bpf_core_field_offset(struct upid, ns));
	return POINTER(pid_namespace, ns, idr.idr_rt.xa_head);
}

/* The leader of the process that has this number in that namespace, 0 if there is none. */
static __always_inline __u64 find_process(__u32 number)
{
	__u64 leaf = pid_idr_leaf(numbers_root(), number, &walk.leaf_end), entry, link;

	if (!leaf)
		return 0;
	entry = xa_slot(leaf, number);
	if (!xa_is_pointer(entry))
		return 0;
	link = POINTER(pid, entry, tasks[PIDTYPE_TGID].first);
	if (!link)
		return 0;
	return link - bpf_core_field_offset(struct task_struct, pid_links) - PIDTYPE_TGID * bpf_core_type_size(struct hlist_node);
}

/* When a task started, on the clock of the standpoint's time namespace. */
static __always_inline __u64 start_ns(__u64 task)
{
	__u64 start = GET(task_struct, task, start_boottime), proxy, time_ns;

	proxy = POINTER(task_struct, standpoint(), nsproxy);
	time_ns = proxy ? POINTER(nsproxy, proxy, time_ns) : 0;
	if (!time_ns)
		return start;
	return start + GET(time_namespace, time_ns, offsets.boottime.tv_sec) * NSEC_PER_SEC +
	       GET(time_namespace, time_ns, offsets.boottime.tv_nsec);
}

static __always_inline void next_process(void)
{
	walk.next++;
	walk.has_advanced = 1;
	walk.fd = 0;
	walk.has_links = 0;
	walk.attempts = 0;
}

/* Writes the records of the next process. */
static long visit(__u32 index, void *nothing)
{
	struct td_file *record;
	bool is_same;
	__u32 before;
	__u64 task, signal;

	if (walk.next >= walk.listed)
		return 1;
	if (has_to_end()) {
		walk.state = TD_FILES_GOES_ON;
		return 1;
	}
	walk.steps++;
	task = find_process(walk.list[walk.next & (TD_FILE_LISTED - 1)]);
	if (!task) {
		next_process();
		return 0;
	}
	walk.process_filled = walk.filled;
	walk.process_fd = walk.fd;
	walk.process_has_links = walk.has_links;
	record = begin_record(TD_FILE_PROCESS);
	if (!record)
		return 1;
	record->start_ns = start_ns(task);
	before = record->open_flags = dumpable(task);
	signal = POINTER(task_struct, task, signal);
	/* A leader that has exited has no files, but its threads have. */
	if (walk.attempts >= MAX_ATTEMPTS || (!POINTER(task_struct, task, files) && GET(signal_struct, signal, nr_threads) > 1)) {
		record->flags = TD_FILE_DEFER_ALL;
		end_record(record);
		next_process();
		return 0;
	}
	end_record(record);
	is_same = true;
	if (!walk.has_links) {
		is_same = put_links(task, before);
		walk.has_links = 1;
	}
	if (is_same && walk.uses & (1u << TD_FILE_FD))
		is_same = put_descriptors(task);
	if (!is_same) {
		/* Read it again. */
		*(volatile __u32 *)&walk.filled = walk.process_filled;
		walk.fd = walk.process_fd;
		walk.has_links = walk.process_has_links;
		walk.attempts++;
		walk.state = TD_FILES_ENDED;
		return 0;
	}
	if (walk.state == TD_FILES_GOES_ON)
		return 1;
	record = begin_record(TD_FILE_END);
	if (!record)
		return 1;
	if (may_have_own(task, signal))
		record->flags = TD_FILE_DEFER_THREADS;
	end_record(record);
	next_process();
	return 0;
}

/*
 * Runs at the end of an iterator over a single task, within an RCU read section: structures that
 * are freed after a grace period stay valid. It may not run for long, so it returns after
 * `max_run_ns`, and the next run continues.
 */
SEC("iter/task")
int files_walk(struct bpf_iter__task *ctx)
{
	__u64 fs, took_ns;

	if (ctx->task)
		return 0;
	walk.filled = 0;
	walk.steps = 0;
	walk.has_advanced = 0;
	walk.other_inode = 0;
	walk.next_check = walk.check_every;
	walk.run_start_ns = bpf_ktime_get_ns();
	walk.state = TD_FILES_NOWHERE;
	if (bpf_core_field_size(((struct xa_node *)0)->slots) != SLOTS * sizeof(void *))
		return 0;
	fs = POINTER(task_struct, standpoint(), fs);
	walk.root_mount = mount_of(POINTER(fs_struct, fs, root.mnt));
	walk.root_dentry = POINTER(fs_struct, fs, root.dentry);
	walk.state = TD_FILES_ENDED;
	bpf_loop(1 << 22, visit, 0, 0);
	took_ns = bpf_ktime_get_ns() - walk.run_start_ns;
	if (walk.longest_run_ns < took_ns)
		walk.longest_run_ns = took_ns;
	return 0;
}
