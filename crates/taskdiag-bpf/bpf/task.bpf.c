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
