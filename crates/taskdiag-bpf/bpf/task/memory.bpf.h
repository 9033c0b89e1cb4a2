/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The memory of a process: counters, layout, OOM score. */
#ifndef TASKDIAG_TASK_MEMORY_BPF_H
#define TASKDIAG_TASK_MEMORY_BPF_H

#include "reader.bpf.h"

/*
 * The per-processor pointer of the map's value. Adding the offset of a processor gives the address
 * of that processor's value.
 */
static __always_inline __u64 per_cpu_base(struct td_reader *reader)
{
	struct bpf_array *array = (void *)address(reader, &per_cpu);
	__u64 base = 0;

	bpf_core_read(&base, sizeof(base), &array->pptrs[0]);
	return base;
}

struct cpu_walk {
	struct td_reader *reader;
	struct mm_struct *mm;
};

static long find_offset(__u32 cpu, struct cpu_walk *walk)
{
	struct td_reader *reader = walk->reader;
	__u32 first = 0;
	void *value = bpf_map_lookup_percpu_elem(&per_cpu, &first, cpu);

	if (!value)
		return 1;
	reader->offsets[cpu & (TD_CPUS_MAX - 1)] = address(reader, value) - reader->per_cpu;
	return 0;
}

static long add_cpu(__u32 cpu, struct cpu_walk *walk)
{
	struct td_counters *counters = &walk->reader->counters;
	__u64 offset = walk->reader->offsets[cpu & (TD_CPUS_MAX - 1)];
	__u64 first = counters->parts[0];
	__s32 parts[4];

	/* Since 6.6 they are beside each other: percpu_counter_init_many(). */
	if (counters->parts[1] == first + sizeof(parts[0]) && counters->parts[2] == first + 2 * sizeof(parts[0]) &&
	    counters->parts[3] == first + 3 * sizeof(parts[0])) {
		if (bpf_probe_read_kernel(parts, sizeof(parts), (void *)(first + offset)))
			return 0;
	} else {
#pragma unroll
		for (int i = 0; i < 4; i++)
			if (bpf_probe_read_kernel(&parts[i], sizeof(parts[i]), (void *)(counters->parts[i] + offset)))
				parts[i] = 0;
	}
#pragma unroll
	for (int i = 0; i < 4; i++)
		counters->pages[i] += parts[i];
	return 0;
}

/* Not a loop, because CO-RE relocates an offset in an array only if the index is a constant. */
static __always_inline void read_central(__s64 *to, struct mm_struct *mm)
{
	to[0] = mm->rss_stat[0].count;
	to[1] = mm->rss_stat[1].count;
	to[2] = mm->rss_stat[2].count;
	to[3] = mm->rss_stat[3].count;
}

/*
 * Sums the counters of a process over all processors: percpu_counter_sum(), without its lock. A
 * part is moved to the central counter under that lock in two steps, so a sum is right if no
 * central counter changed in between. Two moves of opposite signs would not show. So if several
 * threads change the counters, a sum must also be about the same as the previous one.
 */
static long add_up(__u32 attempt, struct cpu_walk *walk)
{
	struct td_reader *reader = walk->reader;
	struct td_counters *counters = &reader->counters;
	struct mm_struct *mm = walk->mm;
	const __s64 tolerance = 16;
	__u32 is_stable = 1;

	read_central(counters->central, mm);
#pragma unroll
	for (int i = 0; i < 4; i++) {
		counters->previous[i] = counters->pages[i];
		counters->pages[i] = counters->central[i];
	}
	read_barrier(reader);
	add_steps(reader, (__u32)bpf_loop(reader->config.cpus, add_cpu, walk, 0) / 8);
	read_barrier(reader);
	read_central(counters->central_again, mm);
#pragma unroll
	for (int i = 0; i < 4; i++) {
		__s64 moved = counters->pages[i] - counters->previous[i];

		if (counters->central_again[i] != counters->central[i])
			is_stable = 0;
		if (mm->mm_users.counter > 1 && (!attempt || moved > tolerance || moved < -tolerance))
			is_stable = 0;
	}
	counters->is_stable = is_stable;
	return is_stable;
}

/*
 * Reads the memory counters, in pages: the central ones and, with `sum`, also the sums over all
 * processors. They are never negative, as in /proc. False if they can't be summed.
 */
static __always_inline bool read_counters(struct td_reader *reader, struct mm_struct *mm, bool sum)
{
	struct td_counters *counters = &reader->counters;
	struct cpu_walk walk = { .reader = reader, .mm = mm };
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
			bpf_loop(cpus, find_offset, &walk, 0);
		}
		counters->parts[0] = (__u64)mm->rss_stat[0].counters;
		counters->parts[1] = (__u64)mm->rss_stat[1].counters;
		counters->parts[2] = (__u64)mm->rss_stat[2].counters;
		counters->parts[3] = (__u64)mm->rss_stat[3].counters;
		bpf_loop(8, add_up, &walk, 0);
		if (!*(volatile __u32 *)&counters->is_stable)
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
	/* If the task has lost this mm, the values may be those of another mm. */
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

static __always_inline void put_personality(struct td_reader *reader, struct task_struct *task)
{
	__u32 *out = attribute(reader, TD_ATTR_PERSONALITY, sizeof(*out), 0);

	*out = task->personality;
}

static __always_inline __u64 mm_flags(struct mm_struct *mm)
{
	struct mm_struct___bitmap *bitmap = (void *)mm;

	if (bpf_core_field_exists(bitmap->flags.__mm_flags))
		return BPF_CORE_READ(bitmap, flags.__mm_flags[0]);
	return BPF_CORE_READ(mm, flags);
}

/*
 * proc_oom_score() and oom_badness() for a number of pages. Kernel divisions round to 0; BPF has
 * only unsigned ones.
 */
static __always_inline __s32 oom_score(struct td_reader *reader, __s64 pages, __s32 adj)
{
	__s64 total = reader->config.total_pages, points = pages + adj * (__s64)(reader->config.total_pages / 1000), scaled;

	scaled = points < 0 ? -(__s64)((__u64)(-points * 1000) / (__u64)total) : (__s64)((__u64)(points * 1000) / (__u64)total);
	scaled = (1000 + scaled) * 2;
	return scaled < 0 ? -(__s64)((__u64)-scaled / 3) : (__s64)((__u64)scaled / 3);
}

/* The kernel uses the mm of any thread, also for a thread that has ended. */
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
		/*
		 * Some kernels sum the counters for this, others use the central ones. If the two
		 * differ, the score is deferred.
		 */
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

#endif
