/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel types that the programs read, and every difference between kernels.
 *
 * Only the names and types of members matter here: offsets are relocated when a program is loaded
 * (CO-RE). A type with a ___suffix is an older or newer form of the type without the suffix. Its
 * comment names the commit that changed it.
 */
#ifndef TASKDIAG_COMPAT_BPF_H
#define TASKDIAG_COMPAT_BPF_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
};
enum { BPF_F_NO_PREALLOC = 1 };
enum { BPF_NOEXIST = 1 };

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct list_head {
	struct list_head *next;
};

typedef struct {
	int counter;
} atomic_t;

typedef struct {
	__s64 counter;
} atomic64_t;

typedef struct {
	unsigned int val;
} kuid_t;

typedef struct {
	unsigned int val;
} kgid_t;

typedef struct {
	__u64 val;
} kernel_cap_t;

struct ns_common {
	unsigned int inum;
};

struct user_namespace {
	struct user_namespace *parent;
	int level;
	kuid_t owner;
	struct ns_common ns;
};

typedef struct {
	long counter;
} atomic_long_t;

enum { UCOUNT_RLIMIT_SIGPENDING = 2 };

/*
 * Has an array for rlimits since de399236e240 ("ucounts: Split rlimit and ucount values and max
 * values", 6.0).
 */
struct ucounts {
	atomic_long_t rlimit[4];
};

struct group_info {
	int ngroups;
	kgid_t gid[0];
};

struct cred {
	kuid_t uid, suid, euid, fsuid;
	kgid_t gid, sgid, egid, fsgid;
	kernel_cap_t cap_inheritable, cap_permitted, cap_effective, cap_bset, cap_ambient;
	struct user_namespace *user_ns;
	struct ucounts *ucounts;
	struct group_info *group_info;
	void *security;
};

/* Before f122a08b197d ("capability: just use a 'u64' instead of a 'u32[2]' array", 6.3). */
struct kernel_cap_struct {
	__u32 cap[2];
};
typedef struct kernel_cap_struct kernel_cap_t___pre63;
struct cred___pre63 {
	kernel_cap_t___pre63 cap_inheritable, cap_permitted, cap_effective, cap_bset, cap_ambient;
};

struct xarray {
	void *xa_head;
};

struct xa_node {
	unsigned char shift;
	void *slots[64];
};

struct idr {
	struct xarray idr_rt;
};

struct pid_namespace {
	struct idr idr;
	unsigned int level;
	struct ns_common ns;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct hlist_node {
	struct hlist_node *next, **pprev;
};

struct hlist_head {
	struct hlist_node *first;
};

struct pid {
	unsigned int level;
	struct hlist_head tasks[4];
	struct upid numbers[1];
};

enum { PIDTYPE_PID, PIDTYPE_TGID, PIDTYPE_PGID, PIDTYPE_SID };

struct tty_driver {
	int major;
	int minor_start;
};

struct tty_struct {
	struct tty_driver *driver;
	int index;
	struct {
		struct pid *pgrp;
	/* Since 64d608db38ff ("tty: cumulate and document tty_struct::ctrl* members", 5.14) */
	} ctrl;
};

typedef struct seqcount {
	unsigned int sequence;
} seqcount_t;

struct seqcount_spinlock {
	seqcount_t seqcount;
};

typedef struct {
	struct seqcount_spinlock seqcount;
} seqlock_t;

struct prev_cputime {
	__u64 utime;
	__u64 stime;
};

typedef struct {
	unsigned long sig[1];
} sigset_t;

struct sigpending {
	sigset_t signal;
};

struct sigaction {
	void *sa_handler;
};

struct k_sigaction {
	struct sigaction sa;
};

struct sighand_struct {
	struct k_sigaction action[64];
};

struct rlimit {
	unsigned long rlim_cur, rlim_max;
};

/* All members, in the kernel's order: the structure is copied as a whole. */
struct task_io_accounting {
	__u64 rchar, wchar, syscr, syscw;
	__u64 read_bytes, write_bytes, cancelled_write_bytes;
};

/* Without CONFIG_PREEMPT_RT. */
struct rw_semaphore {
	atomic_long_t count;
};

struct signal_struct {
	atomic_t live;
	int nr_threads;
	struct sigpending shared_pending;
	struct rlimit rlim[16];
	struct task_io_accounting ioac;
	__u64 gtime, cgtime;
	struct list_head thread_head;
	struct pid *pids[4];
	struct tty_struct *tty;
	seqlock_t stats_lock;
	__u64 utime, stime, cutime, cstime;
	struct prev_cputime prev_cputime;
	unsigned long nvcsw, nivcsw;
	unsigned long min_flt, maj_flt, cmin_flt, cmaj_flt;
	unsigned long long sum_sched_runtime;
	unsigned long maxrss;
	int group_exit_code;
	unsigned int flags;
	short oom_score_adj;
	struct mm_struct *oom_mm;
	/* Since f7cfd871ae0c ("exec: Transform exec_update_mutex into a rw_semaphore", 5.11) */
	struct rw_semaphore exec_update_lock;
};

/*
 * Counts resident pages since f1a7941243c1 ("mm: convert mm's rss stats into percpu_counter", 6.2).
 */
struct percpu_counter {
	__s64 count;
	__s32 *counters;
};

typedef struct {
	unsigned long __mm_flags[1];
} mm_flags_t;

struct dentry;

struct super_block {
	unsigned int s_dev;
	unsigned long s_magic;
	void *s_fs_info;
};

struct inode {
	unsigned short i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	unsigned int __i_nlink;
	__s64 i_size;
};

struct vfsmount;

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct file {
	unsigned int f_mode;
	unsigned int f_flags;
	__s64 f_pos;
	void *private_data;
	struct path f_path;
	struct inode *f_inode;
};

struct hstate {
	unsigned int order;
};

struct hugetlbfs_sb_info {
	struct hstate *hstate;
};

struct dentry_operations {
	void *d_dname;
};

struct hlist_bl_node {
	struct hlist_bl_node *next, **pprev;
};

struct qstr {
	__u64 hash_len;
	__u32 len;
	const unsigned char *name;
};

struct dentry {
	struct seqcount_spinlock d_seq;
	struct hlist_bl_node d_hash;
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
	const struct dentry_operations *d_op;
};

struct vfsmount {
	struct dentry *mnt_root;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
	int mnt_id;
};

struct fs_struct {
	int umask;
	struct path root, pwd;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
	unsigned long *open_fds, *close_on_exec;
};

struct files_struct {
	struct fdtable *fdt;
};

struct task_delay_info {
	__u64 blkio_delay;
};

/* Since 524e00b36e8c ("mm: remove rb tree.", 6.1). */
struct maple_tree {
	void *ma_root;
};

/* Of 64-bit kernels. Nodes are aligned to their size, 256 bytes. */
struct maple_metadata {
	unsigned char end;
};

struct maple_range_64 {
	unsigned long pivot[15];
	void *slot[16];
	struct maple_metadata meta;
};

struct maple_arange_64 {
	unsigned long pivot[9];
	void *slot[10];
	struct maple_metadata meta;
};

struct mm_struct {
	struct maple_tree mm_mt;
	atomic_t mm_users;
	struct rw_semaphore mmap_lock;
	seqcount_t mm_lock_seq;
	atomic64_t pgtables_bytes;
	unsigned long hiwater_rss, hiwater_vm, total_vm, locked_vm, data_vm, exec_vm, stack_vm;
	atomic64_t pinned_vm;
	unsigned long start_code, end_code, start_data, end_data, start_brk, brk, start_stack;
	atomic_long_t hugetlb_usage;
	struct file *exe_file;
	unsigned long arg_start, arg_end, env_start, env_end;
	struct percpu_counter rss_stat[4];
	unsigned long flags;
	struct user_namespace *user_ns;
};

/* Before f1a7941243c1 ("mm: convert mm's rss stats into percpu_counter", 6.2). */
struct mm_rss_stat {
	atomic64_t count[4];
};
struct mm_struct___pre62 {
	struct mm_rss_stat rss_stat;
};

/*
 * Counts writers that have finished, from 5e31275cc997 ("mm: add per-VMA lock and helper functions
 * to control it", 6.4) until eb449bd96954 ("mm: convert mm_lock_seq to a proper seqcount", 6.14).
 */
struct mm_struct___pre614 {
	int mm_lock_seq;
};

/* Since "mm: convert core mm to mm_flags_*() accessors" (6.18). */
struct mm_struct___bitmap {
	mm_flags_t flags;
};

enum { MM_FILEPAGES, MM_ANONPAGES, MM_SWAPENTS, MM_SHMEMPAGES };

/*
 * With CONFIG_ANON_VMA_NAME, since 9a10064f5625 ("mm: add a field to store names for private
 * anonymous memory", 5.17).
 */
struct anon_vma_name {
	char name[0];
};

struct vm_operations_struct {
	void *name, *pagesize;
};

/*
 * The private data of an open maps file leads to the mm, since 6.18 through a structure of its
 * own.
 */
struct seq_file___open {
	void *private;
};

struct proc_maps_locking_ctx {
	struct mm_struct *mm;
};

struct proc_maps_private {
	struct proc_maps_locking_ctx lock_ctx;
};

struct proc_maps_private___pre618 {
	struct mm_struct *mm;
};

struct vm_special_mapping {
	const char *name;
};

struct vm_area_struct {
	unsigned long vm_start, vm_end;
	struct mm_struct *vm_mm;
	unsigned long vm_flags;
	struct anon_vma_name *anon_name;
	struct vm_operations_struct *vm_ops;
	unsigned long vm_pgoff;
	struct file *vm_file;
	void *vm_private_data;
};

struct thread_info {
	__u32 cpu;
};

struct sched_entity {
	__u64 sum_exec_runtime;
};

struct sched_info {
	unsigned long pcount;
	unsigned long long run_delay;
};

struct seccomp {
	int mode;
	atomic_t filter_count;
};

struct cpumask {
	unsigned long bits[1];
};
typedef struct cpumask cpumask_t;

struct timespec64 {
	__s64 tv_sec;
	long tv_nsec;
};

struct timens_offsets {
	struct timespec64 boottime;
};

struct uts_namespace {
	struct ns_common ns;
};
struct ipc_namespace {
	struct ns_common ns;
};
struct mnt_namespace {
	struct ns_common ns;
};
struct net {
	struct ns_common ns;
};
struct time_namespace {
	struct ns_common ns;
	struct timens_offsets offsets;
};

/* `parent` until 633488947ef6 ("kernfs: Use RCU to access kernfs_node::parent.", 6.15). */
struct kernfs_node {
	struct kernfs_node *__parent;
	const char *name;
	__u64 id;
};
struct kernfs_node___pre615 {
	struct kernfs_node *parent;
};

struct cgroup_subsys_state {
	unsigned int flags;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct cgroup_namespace {
	struct ns_common ns;
	struct css_set *root_cset;
};

struct nsproxy {
	struct uts_namespace *uts_ns;
	struct ipc_namespace *ipc_ns;
	struct mnt_namespace *mnt_ns;
	struct pid_namespace *pid_ns_for_children;
	struct net *net_ns;
	struct time_namespace *time_ns;
	struct cgroup_namespace *cgroup_ns;
};

struct kthread {
	void *data;
	/*
	 * Since d6986ce24fc0 ("kthread: dynamically allocate memory to store kthread's full name",
	 * 5.17)
	 */
	char *full_name;
};

struct worker_pool;

struct worker {
	void *current_work;
	struct worker_pool *pool;
	char desc[24];
};

struct completion;

struct bpf_array {
	void *pptrs[1];
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state; /* since 2f064a59a11f ("sched: Change task_struct::state", 5.14) */
	int exit_state;
	int exit_code;
	unsigned int flags;
	unsigned int ptrace;
	int on_cpu;
	int prio, static_prio;
	unsigned int rt_priority;
	unsigned int policy;
	struct sched_entity se;
	struct sched_info sched_info;
	cpumask_t cpus_mask;
	struct mm_struct *mm;
	unsigned long atomic_flags;
	int pid, tgid;
	struct task_struct *real_parent, *parent, *group_leader;
	struct list_head tasks;
	struct list_head thread_node;
	struct pid *thread_pid;
	struct hlist_node pid_links[4];
	struct completion *vfork_done;
	/*
	 * A kthread's struct kthread, since e32cf5dfbe22 ("kthread: Generalize pf_io_worker so it
	 * can point to struct kthread", 5.17)
	 */
	void *worker_private;
	__u64 utime, stime;
	struct prev_cputime prev_cputime;
	unsigned long nvcsw, nivcsw;
	__u64 start_boottime;
	unsigned long min_flt, maj_flt;
	struct cred *real_cred;
	char comm[16];
	struct nsproxy *nsproxy;
	struct signal_struct *signal;
	struct seccomp seccomp;
	struct css_set *cgroups;
	int exit_signal;
	struct task_io_accounting ioac;
	struct sigpending pending;
	sigset_t blocked;
	struct sighand_struct *sighand;
	struct fs_struct *fs;
	struct files_struct *files;
	kuid_t loginuid;
	unsigned int sessionid;
	unsigned int personality;
	__u64 gtime;
	__u64 timer_slack_ns;
	struct task_delay_info *delays;
	__u64 self_exec_id;
	/* Since "ptrace: slightly saner 'get_dumpable()' logic", also in stable kernels (6.18) */
	unsigned int user_dumpable : 1;
};

struct in6_addr {
	__be32 u6_addr32[4];
};

struct sock_common {
	__be32 skc_daddr, skc_rcv_saddr;
	__be16 skc_dport;
	unsigned short skc_family;
	struct in6_addr skc_v6_daddr, skc_v6_rcv_saddr;
};

struct net_device {
	unsigned int flags;
};

struct dst_entry {
	struct net_device *dev;
};

struct sock {
	struct sock_common __sk_common;
	struct dst_entry *sk_dst_cache;
	__u16 sk_protocol;
};

struct linux_binprm {
	const char *filename;
};

/*
 * Since "exit: move and extend sched_process_exit() tracepoint" (6.16), which added an argument:
 * whether the last thread of the process exits.
 */
struct trace_event_raw_sched_process_exit {
	bool group_dead;
};

#pragma clang attribute pop

/* The context of an iter/task program. Its offsets are UAPI, so they are not relocated. */
struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
	__u64 seq_num;
};
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

/* Since a35b9af4ec2c ("bpf: Add a kfunc for generic type cast", 6.2). */
extern void *bpf_rdonly_cast(void *obj, __u32 btf_id) __ksym __weak;
/* Since 9bb00b2895cb ("bpf: Add kfunc bpf_rcu_read_lock/unlock()", 6.2). */
extern void bpf_rcu_read_lock(void) __ksym __weak;
extern void bpf_rcu_read_unlock(void) __ksym __weak;

/*
 * An untrusted pointer to the same task, from which to load pointers. For each pointer loaded from
 * a trusted one, the verifier (6.2 and later) searches the kernel's whole BTF several times, which
 * made loading take 200 ms. Load other values from the trusted pointer: that needs no check of the
 * address.
 */
static __always_inline struct task_struct *untrusted(struct task_struct *task)
{
	if (bpf_rdonly_cast)
		return bpf_rdonly_cast(task, bpf_core_type_id_kernel(struct task_struct));
	return task;
}

/*
 * smp_rmb(). BPF has no barriers, but atomic operations that return a value are fully ordered. This
 * one adds to `scratch`, which may be any memory of the program. x86 does not reorder loads.
 */
static __always_inline void order_reads(__u64 *scratch)
{
#ifdef __TARGET_ARCH_x86
	barrier();
#else
	asm volatile("" : : "r"(__sync_fetch_and_add(scratch, 1)));
#endif
}

/*
 * __exit_signal() adds a thread's values to the signal struct in a write section of stats_lock. So
 * if the sequence is even and unchanged, no thread was released in between.
 */
static __always_inline __u32 stats_sequence(struct signal_struct *signal)
{
	return *(volatile __u32 *)&signal->stats_lock.seqcount.seqcount.sequence;
}

#define EXIT_DEAD 0x10
#define PF_WQ_WORKER 0x00000020
#define PF_KTHREAD 0x00200000
#define S_IFMT 0170000
#define NSEC_PER_SEC 1000000000ull

/*
 * Loads a value without using it, so that it is in the cache later. If all lines are prefetched
 * before any is needed, the processor waits for several of them at once.
 */
#define PREFETCH(value) asm volatile("" : : "r"(value))

#endif
