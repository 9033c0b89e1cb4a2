// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The files of processes: the program writes one record (files.h) for each file that a listed
 * process uses. It waits for nothing, takes no lock, and holds no reference.
 *
 * The kernel's iterator over files visits threads that share a table once for each, and builds no
 * names of sockets and the like. This program looks up each process and reads its table.
 */
#include "pid_idr.bpf.h"
#include "files.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct td_files_walk walk SEC(".bss");

#define NSEC_PER_SEC 1000000000ull
#define O_CLOEXEC 02000000
#define S_IFMT 0170000
#define S_IFREG 0100000

/* linux/magic.h */
#define SOCKFS_MAGIC 0x534f434b
#define PIPEFS_MAGIC 0x50495045
#define ANON_INODE_FS_MAGIC 0x09041934
#define PID_FS_MAGIC 0x50494446
#define TMPFS_MAGIC 0x01021994
#define HUGETLBFS_MAGIC 0x958458f6
#define SECRETMEM_MAGIC 0x5345434d
#define RAMFS_MAGIC 0x858458f6
#define EXT4_SUPER_MAGIC 0xef53
#define XFS_SUPER_MAGIC 0x58465342
#define F2FS_SUPER_MAGIC 0xf2f52010
#define DEVPTS_SUPER_MAGIC 0x1cd1

/* A member of a structure at an address. Before 6.2 there is no cast. */
#define GET(type, at, member)                                                                                            \
	({                                                                                                               \
		typeof(((struct type *)0)->member) value_;                                                               \
		if (bpf_rdonly_cast)                                                                                     \
			value_ = ((struct type *)bpf_rdonly_cast((void *)(at), bpf_core_type_id_kernel(struct type)))    \
					 ->member;                                                                       \
		else                                                                                                     \
			BPF_CORE_READ_INTO(&value_, (struct type *)(at), member);                                        \
		value_;                                                                                                  \
	})

/* A member that is a pointer, as a number. */
#define POINTER(type, at, member) address((void *)GET(type, at, member))

/*
 * A pointer as a number. It goes through memory, because the verifier forbids arithmetic on most
 * pointers.
 */
static __always_inline __u64 address(const void *pointer)
{
	walk.address = (__u64)pointer;
	barrier();
	return *(volatile __u64 *)&walk.address;
}

/* smp_rmb(). See task/reader.bpf.h. */
static __always_inline void read_barrier(void)
{
#ifdef __TARGET_ARCH_x86
	barrier();
#else
	asm volatile("" : : "r"(__sync_fetch_and_add(&walk.address, 1)));
#endif
}

static __always_inline __u64 mount_of(__u64 vfsmount)
{
	return vfsmount - bpf_core_field_offset(struct mount, mnt);
}

/* One iteration of prepend_path() of fs/d_path.c. */
static long walk_up(__u32 index, void *nothing)
{
	__u32 position = *(volatile __u32 *)&walk.position, sequence, len;
	__u64 dentry = walk.dentry, mount = walk.mount, parent, above, name;

	if (dentry == walk.root_dentry && mount == walk.root_mount)
		goto arrived;
	if (!dentry || !mount)
		return 1;
	if (dentry == POINTER(mount, mount, mnt.mnt_root)) {
		above = POINTER(mount, mount, mnt_parent);
		/* The root of a mount namespace, or of a mount that was detached. */
		if (above == mount)
			goto arrived;
		walk.dentry = POINTER(mount, mount, mnt_mountpoint);
		walk.mount = above;
		return POINTER(mount, mount, mnt_parent) != above;
	}
	sequence = GET(dentry, dentry, d_seq.seqcount.sequence);
	parent = POINTER(dentry, dentry, d_parent);
	len = GET(dentry, dentry, d_name.len);
	name = POINTER(dentry, dentry, d_name.name);
	if (parent == dentry || len > 255 || position <= len)
		return 1;
	position -= len + 1;
	/* Or clang computes it twice, and the verifier knows the bound of only one. */
	barrier_var(position);
	if (position >= TD_FILES_PATH)
		return 1;
	walk.path[position] = '/';
	if (bpf_probe_read_kernel(&walk.path[position + 1], len & 0xff, (void *)name))
		return 1;
	/* Renamed meanwhile? */
	read_barrier();
	if (sequence & 1 || GET(dentry, dentry, d_seq.seqcount.sequence) != sequence)
		return 1;
	*(volatile __u32 *)&walk.position = position;
	walk.dentry = parent;
	return 0;
arrived:
	walk.arrived = 1;
	return 1;
}

/*
 * The place for the next record. The mask gives the verifier a bound, which it can't know for a
 * value in memory.
 */
static __always_inline struct td_file *next_record(void)
{
	__u64 filled = *(volatile __u32 *)&walk.filled;

	asm volatile("%0 &= %1" : "+r"(filled) : "i"(TD_FILES_RECORDS - 1));
	if (filled > TD_FILES_RECORDS - TD_FILES_ROOM)
		return 0;
	return (void *)(walk.records + filled);
}

/* d_path() of fs/d_path.c. Returns the length of the path, 0 if procfs has to answer. */
__noinline int put_path(__u64 vfsmount, __u64 dentry)
{
	struct td_file *record = next_record();
	__u32 end = TD_FILES_PATH, position, len;

	if (!record)
		return 0;
	walk.mount = mount_of(vfsmount);
	walk.dentry = dentry;
	walk.arrived = 0;
	if (!POINTER(dentry, dentry, d_hash.pprev) && POINTER(dentry, dentry, d_parent) != dentry) {
		end -= 10;
		__builtin_memcpy(&walk.path[TD_FILES_PATH - 10], " (deleted)", 10);
	}
	*(volatile __u32 *)&walk.position = end;
	walk.steps += (__u32)bpf_loop(512, walk_up, 0, 0) / 8;
	if (!walk.arrived)
		return 0;
	position = *(volatile __u32 *)&walk.position;
	/* The file is the root itself. */
	if (position == end)
		position--;
	if (position >= TD_FILES_PATH)
		return 0;
	walk.path[position] = '/';
	len = TD_FILES_PATH - position;
	if (bpf_probe_read_kernel(record + 1, len, &walk.path[position]))
		return 0;
	record->name = TD_NAME_WHOLE;
	record->name_len = len;
	return len;
}

/* The name of the dentry alone. */
static __always_inline bool put_short_name(struct td_file *record, __u64 dentry, __u8 name)
{
	__u32 len = GET(dentry, dentry, d_name.len);

	if (len > 255)
		return false;
	record->name = name;
	record->name_len = len;
	return !bpf_probe_read_kernel(record + 1, len & 0xff, (void *)POINTER(dentry, dentry, d_name.name));
}

/* The name of what a link of /proc/PID leads to: do_proc_readlink(). */
static __always_inline bool put_name(struct td_file *record, __u64 vfsmount, __u64 dentry, unsigned long magic)
{
	__u64 operations = POINTER(dentry, dentry, d_op);

	if (!operations || !POINTER(dentry_operations, operations, d_dname))
		return put_path(vfsmount, dentry);
	/* File systems that generate names. */
	switch (magic) {
	case SOCKFS_MAGIC:
		record->name = TD_NAME_SOCKET;
		return true;
	case PIPEFS_MAGIC:
		record->name = TD_NAME_PIPE;
		return true;
	case ANON_INODE_FS_MAGIC:
		return put_short_name(record, dentry, TD_NAME_ANON);
	case TMPFS_MAGIC:
	case HUGETLBFS_MAGIC:
	case SECRETMEM_MAGIC:
		return put_short_name(record, dentry, TD_NAME_SIMPLE);
	}
	return false;
}

/*
 * Whether stat(2) shows what the kernel's inode has. Others, like btrfs and overlayfs, show numbers
 * of their own, or sizes that they have elsewhere.
 */
static __always_inline bool has_plain_stat(unsigned long magic, __u16 mode)
{
	switch (magic) {
	case SOCKFS_MAGIC:
	case PIPEFS_MAGIC:
	case ANON_INODE_FS_MAGIC:
	case TMPFS_MAGIC:
	case HUGETLBFS_MAGIC:
	case RAMFS_MAGIC:
	case EXT4_SUPER_MAGIC:
	case F2FS_SUPER_MAGIC:
	case DEVPTS_SUPER_MAGIC:
		return true;
	case XFS_SUPER_MAGIC:
		return (mode & S_IFMT) == S_IFREG;
	}
	return false;
}

static __always_inline bool is_without_space(unsigned long magic)
{
	return magic == SOCKFS_MAGIC || magic == PIPEFS_MAGIC || magic == ANON_INODE_FS_MAGIC;
}

/* Whether a file is none of those that are asked for. */
__noinline int is_ruled_out(__u64 inode)
{
	__u32 count = walk.matches_count, device, type, i;
	unsigned long magic;
	__u64 super, number;
	__u16 mode;

	if (!inode || !(walk.types | walk.deleted | count))
		return 0;
	super = POINTER(inode, inode, i_sb);
	magic = GET(super_block, super, s_magic);
	mode = GET(inode, inode, i_mode);
	if (count) {
		device = GET(super_block, super, s_dev);
		number = GET(inode, inode, i_ino);
#pragma nounroll
		for (i = 0; i < TD_FILE_MATCHES; i++) {
			if (i >= count)
				return 1;
			if (walk.matches[i].inode == number && walk.matches[i].dev_major == device >> 20 &&
			    walk.matches[i].dev_minor == (device & 0xfffff))
				break;
		}
	}
	if (!has_plain_stat(magic, mode))
		return 0;
	type = magic == ANON_INODE_FS_MAGIC ? 0 : mode >> 12;
	if (walk.types && !(walk.types >> type & 1))
		return 1;
	return walk.deleted && GET(inode, inode, __i_nlink) != 0;
}

/* Fills in what a record says of a file. Returns what is deferred. */
__noinline int put_place(__u64 vfsmount, __u64 dentry, __u64 inode)
{
	struct td_file *record = next_record();
	unsigned long magic;
	__u32 deferred = 0;
	__u64 super;
	__u16 mode;

	if (!record || !vfsmount || !dentry || !inode)
		return TD_FILE_DEFER_ALL;
	super = POINTER(inode, inode, i_sb);
	magic = GET(super_block, super, s_magic);
	mode = GET(inode, inode, i_mode);
	record->mnt_id = GET(mount, mount_of(vfsmount), mnt_id);
	record->inode = GET(inode, inode, i_ino);
	if (walk.wants & TD_FILE_STAT) {
		__u32 device = GET(super_block, super, s_dev);

		record->dev_major = device >> 20;
		record->dev_minor = device & 0xfffff;
		record->size = GET(inode, inode, i_size);
		record->nlink = GET(inode, inode, __i_nlink);
		/*
		 * Objects of the kernel have no type for us. Since cfd86ef7e8e7 ("anon_inode: use a proper
		 * mode internally", 6.16) their inodes have one, and those of pidfds since cb12fd8e0dab
		 * ("pidfd: add pidfs", 6.9).
		 */
		record->mode = magic == ANON_INODE_FS_MAGIC || magic == PID_FS_MAGIC ? mode & ~S_IFMT : mode;
		if (!has_plain_stat(magic, mode))
			deferred |= TD_FILE_DEFER_STAT;
	}
	/* What a file occupies is not for the inode alone to say. */
	if (walk.wants & TD_FILE_SPACE && !is_without_space(magic))
		deferred |= TD_FILE_DEFER_SPACE;
	/* The name tells which object of the kernel it is. */
	if (walk.wants & TD_FILE_NAMES || (walk.wants & TD_FILE_STAT && magic == ANON_INODE_FS_MAGIC)) {
		if (!put_name(record, vfsmount, dentry, magic)) {
			record->name = TD_NAME_NONE;
			record->name_len = 0;
			deferred |= TD_FILE_DEFER_NAME;
		}
	}
	return deferred;
}

/* Starts a record about nothing. There must be room for it. */
static __always_inline struct td_file *begin_record(__u16 use)
{
	struct td_file *record = next_record();

	if (!record)
		return 0;
	__builtin_memset(record, 0, sizeof(*record));
	record->index = walk.next;
	record->use = use;
	return record;
}

/* Ends a record. The bytes after its text are those of an earlier record. */
static __always_inline void end_record(struct td_file *record)
{
	__u32 len = (sizeof(*record) + record->name_len + 7) & ~7u;

	record->len = len;
	*(volatile __u32 *)&walk.filled += len;
}

/* Whether the run has to end: there is no room for a record, or RCU has waited for long enough. */
static __always_inline bool has_to_end(void)
{
	if (walk.filled > TD_FILES_RECORDS - 4 * TD_FILES_ROOM)
		return true;
	/* However slow this machine is, each run comes further. */
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

/* False if the process has changed meanwhile. */
static __always_inline bool put_links(__u64 task)
{
	__u64 fs = POINTER(task_struct, task, fs), mm = 0, exe = 0, mnt, dentry;
	struct td_file *record;

	if (fs && walk.uses & (1u << TD_FILE_CWD)) {
		mnt = POINTER(fs_struct, fs, pwd.mnt);
		dentry = POINTER(fs_struct, fs, pwd.dentry);
		put_directory(TD_FILE_CWD, mnt, dentry);
		read_barrier();
		if (POINTER(fs_struct, fs, pwd.mnt) != mnt || POINTER(fs_struct, fs, pwd.dentry) != dentry)
			return false;
	}
	if (fs && walk.uses & (1u << TD_FILE_ROOT)) {
		mnt = POINTER(fs_struct, fs, root.mnt);
		dentry = POINTER(fs_struct, fs, root.dentry);
		put_directory(TD_FILE_ROOT, mnt, dentry);
		read_barrier();
		if (POINTER(fs_struct, fs, root.mnt) != mnt || POINTER(fs_struct, fs, root.dentry) != dentry)
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

static __always_inline __u64 word_at(__u64 at)
{
	__u64 word = 0;

	bpf_probe_read_kernel(&word, sizeof(word), (void *)at);
	return word;
}

/* How often a file is read again if the descriptor leads to another one meanwhile. */
#define MAX_ATTEMPTS 4

/*
 * Writes the record of a descriptor. The memory of a file that was closed may be that of another
 * file at once (0ede61d8589c, "file: convert to SLAB_TYPESAFE_BY_RCU", 6.7), so all that leads from
 * it is read before and after.
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
		/* If only numbers of descriptors are wanted, nothing is read of the file. */
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
	/* It is never quiet. */
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

/* Reads which inode a descriptor leads to. All of a word are read before one is looked at. */
static long find_inode(__u32 index, void *nothing)
{
	__u64 file = walk.word_slots[index & 63];

	walk.word_inodes[index & 63] = file ? POINTER(file, file, f_inode) : 0;
	return 0;
}

/* Takes a descriptor out of the word if it leads to another file than one of `matches`. */
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
 * Takes the descriptors out of the word that lead to none of `matches`. A descriptor that led there
 * all the time stays: its slot has the same file before and after.
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

/* The most words that a table can have: sysctl_nr_open is 2^20 by default, and 2^30 at most. */
#define WORDS_MAX (1 << 22)

/* False if the process has changed meanwhile. */
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

/* The task whose view of the system the records have. */
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

/* The leader of the process with a number in that namespace, 0 if there is none. */
static __always_inline __u64 find_process(__u32 number)
{
	__u64 leaf = pid_idr_leaf(numbers_root(), number, &walk.leaf_end), entry, link;

	if (!leaf)
		return 0;
	entry = xa_slot(leaf, number);
	/* xa_is_value() and xa_is_internal() entries are no pointers. */
	if (!entry || entry & 3)
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
	__u64 task, signal;

	if (walk.next >= walk.listed)
		return 1;
	if (has_to_end()) {
		walk.state = TD_FILES_GOES_ON;
		return 1;
	}
	walk.steps++;
	task = find_process(walk.list[walk.next & (TD_FILES_LISTED - 1)]);
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
	signal = POINTER(task_struct, task, signal);
	/* A leader that has exited has no files, and its threads do. */
	if (walk.attempts >= MAX_ATTEMPTS || (!POINTER(task_struct, task, files) && GET(signal_struct, signal, nr_threads) > 1)) {
		record->flags = TD_FILE_DEFER_ALL;
		end_record(record);
		next_process();
		return 0;
	}
	end_record(record);
	is_same = true;
	if (!walk.has_links) {
		is_same = put_links(task);
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
	end_record(record);
	next_process();
	return 0;
}

/*
 * Runs at the end of an iterator over a single task, within an RCU read section, so the structures
 * that are freed after a grace period stay valid. It may not run for long: it returns after
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
