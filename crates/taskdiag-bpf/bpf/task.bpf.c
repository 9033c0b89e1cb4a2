// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The task iterator, which writes one record (record.h) for each task of a pass.
 *
 * It is compiled in two forms:
 *
 * - TD_WALKS=1: the program finds its tasks itself, and keeps the records until the library fetches
 *   them. It belongs to one handle and needs Linux 6.2.
 * - TD_WALKS=0: the kernel calls the program for each task, and it returns the record at once. It
 *   can be pinned and serve many readers at the same time.
 *
 * It reads only kernel memory. The memory of another process may be mapped from a file whose file
 * system never answers. A program that waited for it would hold up its reader and RCU.
 *
 * A program can be preempted, and another reader may then run it on the same processor. Per-CPU
 * scratch memory would mix the bytes of two processes, so each reader has its own scratch memory
 * (td_reader).
 *
 * The verifier follows every path through a program, and treats two paths that meet as one only if
 * all their variables are alike. So values that outlive a group are kept in the reader's memory,
 * which the verifier does not track, and not in variables. Loading is fast because of this, and
 * because groups that the handle never asked for are left out (td_constants).
 *
 * Nothing here takes a lock. Whatever is freed without RCU (an mm, namespaces, a terminal) is read
 * first and checked afterwards. A value that may be torn is deferred: the record says so, and the
 * library reads that group of that task from procfs.
 */
#if TD_WALKS
#include "task/walk.bpf.h"
#else
#include "task/called.bpf.h"
#endif

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("iter/task")
int task_record(struct bpf_iter__task *ctx)
{
	return write_records(ctx);
}
