/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * taskdiag.h - asks a Linux kernel about processes, threads, sockets, open files, mappings and the
 * page cache, and tells what starts and ends.
 *
 *	td_handle *handle = td_handle_new();
 *	td_table *table = NULL;
 *	td_processes(handle, "pid,rss_bytes", "rss_bytes > 100M", &table, NULL);
 *	for (size_t row = 0; row < td_table_len(table); row++)
 *		printf("%ju\n", (uintmax_t)td_u64(table, row, TD_FIELD_PID, 0));
 *
 * ERRORS. A function that can fail returns a td_code, which is TD_OK (0) if it did not. Its last
 * argument says where to put a td_error with the text, which says what to do; NULL if the text is
 * not wanted. What was there before is overwritten, by NULL where there is no error. Errors are
 * freed with td_error_free(). No function prints anything or ends the process. (Two cannot be
 * helped: memory that the system refuses ends the process, and a defect of this library is
 * TD_INTERNAL and prints a line to standard error.)
 *
 * MISSING VALUES. A value that cannot be read is not 0. td_absent_of() has the reason, and whoever
 * reads a number says what stands for one that is missing.
 *
 * POINTERS. Objects (handles, queries, tables, events, errors) are made and freed by this library
 * alone. Every function takes NULL for one, does nothing then, and returns an error where it can. An
 * object that was freed must not be used. Texts given to the library end with a NUL. Texts that come
 * from it are a pointer and a length, unless it says "const char *", and may hold any bytes: processes
 * choose their names. What comes out of a table is valid until the table is freed or used for
 * another answer, whatever happens to the handle.
 *
 * THREADS. A handle may be shared: one thread at a time asks, the others wait. For answers at the
 * same time take several handles. Nobody waits for questions about the page cache. A table may be
 * read by any number of threads while none changes or frees it. A query may be used by several
 * threads while none changes it. One thread at a time takes events. Free an object when no other
 * thread uses it. The library starts threads of its own for reads that can be held up, with all
 * signals blocked, and stays in memory after dlclose(3).
 *
 * FORK. A child of fork(2) may use the handles, tables and queries of its parent. It does not share
 * BPF programs or connections with it: a handle begins afresh. Events are the parent's alone:
 * td_events_next() is TD_FORKED in a child. If another thread of the parent was asking at the moment of
 * fork(2), then the child gets TD_FORKED from every question. Descriptors are closed by execve(2).
 *
 * SIGNALS. No handler is installed and none is needed: a broker that has gone is an error, not
 * SIGPIPE. Call no function of this library from a signal handler.
 *
 * ABI. The symbols have a version, and numbers in this file do not change. Later versions add
 * functions, fields, reasons, codes and kinds: expect numbers that are not here.
 */
#ifndef TASKDIAG_H
#define TASKDIAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
/* Without this, numbers that are not here would be outside of the range of an enum. */
#define TD_ENUM : uint32_t
#else
#define TD_ENUM
#endif

typedef struct td_error td_error;
typedef struct td_events td_events;
typedef struct td_handle td_handle;
typedef struct td_query td_query;
typedef struct td_table td_table;

/* What came of a call. */
typedef enum td_code TD_ENUM {
	TD_OK = 0,
	/* There is no such process, or it is hidden from the caller. */
	TD_NO_SUCH_TASK = 1,
	/* The process has no memory of its own: it is a kernel thread or a zombie. */
	TD_NO_MEMORY = 2,
	/* The caller lacks a permission. */
	TD_DENIED = 3,
	/* This kernel or source cannot do it. */
	TD_UNSUPPORTED = 4,
	/* A process kept its reader waiting for longer than the patience. */
	TD_NO_ANSWER = 5,
	/* A source sent something that cannot be right. */
	TD_MALFORMED = 6,
	/* An argument is wrong: a name that no field has, a text that is not a filter, NULL. */
	TD_INVALID_INPUT = 7,
	/* A system call failed for another reason. */
	TD_SYSTEM = 8,
	/* Another thread was asking when this process was forked, or the events are the parent's. */
	TD_FORKED = 9,
	/* A defect of this library. */
	TD_INTERNAL = 10,
	/* No thread or process can be started to read what may wait. */
	TD_NO_THREAD = 11
} td_code;

/* What rows are about. */
typedef enum td_scope TD_ENUM {
	TD_PROCESSES = 1,
	TD_THREADS = 2,
	TD_SOCKETS = 3,
	/* What processes have open: descriptors, directories, programs, mapped files. */
	TD_FILES = 4,
	/* The mappings of a process. */
	TD_MAPS = 5,
	/* The page cache of files. */
	TD_CACHE = 6,
	/* Processes that start, execute programs and end. */
	TD_EVENTS = 7
} td_scope;

/* What the values of a field are in memory. */
typedef enum td_type TD_ENUM {
	/* uint64_t: numbers, sizes in bytes, times in nanoseconds, bit masks, addresses. */
	TD_TYPE_U64 = 1,
	/* int64_t: numbers that may be negative. */
	TD_TYPE_I64 = 2,
	/* double: percentages. */
	TD_TYPE_F64 = 3,
	/* uint8_t: 0 or 1, or a letter. */
	TD_TYPE_U8 = 4,
	/* Bytes, usually text. In a list of texts each ends with a NUL, the last perhaps without. */
	TD_TYPE_TEXT = 5,
	/* Lists of uint32_t. */
	TD_TYPE_IDS = 6,
	/* 32 of uint64_t: the soft and the hard limit of RLIMIT_CPU (0) to RLIMIT_RTTIME (15), UINT64_MAX
	 * for none. */
	TD_TYPE_LIMITS = 7
} td_type;

/* What the values of a field mean. */
typedef enum td_kind TD_ENUM {
	TD_KIND_NUMBER = 1,
	TD_KIND_USER = 2,
	TD_KIND_GROUP = 3,
	TD_KIND_COUNT = 4,
	TD_KIND_SIGNED = 5,
	TD_KIND_BYTES = 6,
	TD_KIND_NANOSECONDS = 7,
	TD_KIND_PERCENT = 8,
	TD_KIND_FLAG = 9,
	TD_KIND_LETTER = 10,
	TD_KIND_TEXT = 11,
	/* Text as in RFC 3339, in UTC. */
	TD_KIND_TIME = 12,
	TD_KIND_TEXTS = 13,
	/* Bit masks: of capabilities by their numbers, of signal N as bit N - 1, and of others. */
	TD_KIND_CAPABILITIES = 14,
	TD_KIND_SIGNALS = 15,
	TD_KIND_MASK = 16,
	TD_KIND_ADDRESS = 17,
	/* Permission bits. */
	TD_KIND_MODE = 18,
	TD_KIND_IDS = 19,
	/* Text such as 0-3,7. */
	TD_KIND_CPUS = 20,
	TD_KIND_LIMITS = 21
} td_kind;

/* The numbers of reasons and fields: td_absent, td_field. */
#include "taskdiag_gen.h"

/* Bytes; data is never NULL. */
typedef struct td_text {
	const char *data;
	size_t len;
} td_text;

/* Numbers. */
typedef struct td_ids {
	const uint32_t *data;
	size_t len;
} td_ids;

/* The texts of a column: that of a row is from bytes + offsets[row] to bytes + offsets[row + 1]. */
typedef struct td_texts {
	const uint64_t *offsets;
	const char *bytes;
} td_texts;

/* The lists of a column: that of a row is from ids + offsets[row] to ids + offsets[row + 1]. */
typedef struct td_id_lists {
	const uint64_t *offsets;
	const uint32_t *ids;
} td_id_lists;

/* The version of the library that runs, such as "0.1.0". */
const char *td_version(void);

/*
 * Errors
 */

/* The code of an error; TD_OK of NULL. */
td_code td_error_code(const td_error *error);
/* The text of an error: one line of UTF-8 without control characters; "" of NULL. */
const char *td_error_message(const td_error *error);
void td_error_free(td_error *error);
/* A code in a few words, such as "no such task". */
const char *td_code_name(td_code code);

/*
 * Fields
 */

/* Puts the field with this name into *field. Fails with TD_INVALID_INPUT, and names near ones. */
td_code td_field_by_name(td_scope scope, const char *name, td_field *field, td_error **error);
/* The field behind this one, in the order of numbers; the first of 0, and 0 of the last. */
td_field td_field_next(td_field field);
/* The name and the meaning of a field; NULL if no field has this number. */
const char *td_field_name(td_field field);
const char *td_field_meaning(td_field field);
/* What the values of a field are; 0 if no field has this number. */
td_kind td_field_kind(td_field field);
td_type td_field_type(td_field field);
/* A reason in a few words, such as "no memory". */
const char *td_absent_name(td_absent reason);

/*
 * Handles
 *
 * A handle keeps what it has loaded: keep it. Making one is free.
 */

/* A handle that chooses itself whom it asks. */
td_handle *td_handle_new(void);
void td_handle_free(td_handle *handle);
/* Lets only one source answer: "bpf", "procfs" or "broker". "auto" is as if this was never called. */
td_code td_handle_source(td_handle *handle, const char *source, td_error **error);
/* The path of the broker's socket. Unless td_handle_source() names another source, only the broker
 * answers then. */
td_code td_handle_socket(td_handle *handle, const char *path, td_error **error);
/* How long one process may keep its reader waiting, in seconds: 0.2 if it is not said. */
td_code td_handle_patience(td_handle *handle, double seconds, td_error **error);
/* Loads the BPF programs that can answer a query of tasks, also its conditions and
 * td_query_only_changed(). This takes CAP_BPF and CAP_PERFMON.
 * If only the broker may answer, connects to it.
 * Without this they are loaded when they have become worth it. */
td_code td_handle_prepare(td_handle *handle, const td_query *query, td_error **error);

/*
 * Queries
 *
 * A query can be asked any number of times, with any handle.
 */

/* A query for all rows of a scope, so far without columns; NULL if there is no such scope. */
td_query *td_query_new(td_scope scope);
void td_query_free(td_query *query);
/* Asks for fields, besides those asked for before: names of fields or groups with commas between
 * them, or "all". Only what is asked for is read. */
td_code td_query_fields(td_query *query, const char *names, td_error **error);
/* The same by number. */
td_code td_query_field(td_query *query, td_field field, td_error **error);
/* Only rows for which an expression is true, such as "uid == 0 and rss_bytes > 100M"; of open files
 * only those of processes for which it is. A second one narrows the first; a query of sockets takes
 * one, and one of mappings, cached files or events none. */
td_code td_query_where(td_query *query, const char *expression, td_error **error);
/* Only these processes, or their threads, sockets or files. td_table_missing() has those that are
 * not there. A query of mappings takes one process. Called again, it replaces the processes. */
td_code td_query_pids(td_query *query, const uint32_t *pids, size_t len, td_error **error);
/* Only the children of a process; and theirs, too. Of processes, and of their sockets and files. A
 * query takes only one of td_query_pids() and these two. */
td_code td_query_children_of(td_query *query, uint32_t pid, td_error **error);
td_code td_query_descendants_of(td_query *query, uint32_t pid, td_error **error);
/* For queries of open files: only what processes have for these uses, with commas between them: "fd",
 * "cwd", "root", "exe", "map", or "all". Without this all but mapped files, and these, too, for
 * td_query_deleted() and td_query_path(). */
td_code td_query_uses(td_query *query, const char *names, td_error **error);
/* Only files of these kinds: "file", "dir", "char", "block", "fifo", "socket", "link", "anon", or one
 * of "eventfd", "epoll", "timerfd", "signalfd", "inotify", "pidfd", "bpf", "io_uring", "userfaultfd",
 * "perf", "dmabuf", "other". For queries of events: "fork", "exec", "exit". */
td_code td_query_kinds(td_query *query, const char *names, td_error **error);
/* Only files that have no name any more. */
td_code td_query_deleted(td_query *query, td_error **error);
/* Only the file that a path leads to, by whatever name; of a directory also what is below it; of one
 * where a file system is mounted all that is on that. Several calls let each of these through. The
 * path is looked up when the query is asked, which fails if it leads nowhere. A query of the page cache
 * takes paths, too: of files, and of directories for all regular files below them. */
td_code td_query_path(td_query *query, const char *path, td_error **error);
/* For queries of events: those of single threads, too. */
td_code td_query_threads(td_query *query, td_error **error);
/* Only tasks that have used processor time or started since the handle was last asked for such, or
 * the files of such processes; not for sockets. */
td_code td_query_only_changed(td_query *query, td_error **error);
/* How long one process may keep its reader waiting, in seconds. */
td_code td_query_patience(td_query *query, double seconds, td_error **error);
/* What sums of page tables (pss_bytes, uss_bytes ...) may cost: at most so many seconds (5 if it is
 * not said, INFINITY for no end), and none of processes with more memory than this (16 GiB,
 * UINT64_MAX for no limit). What does not fit is TD_ABSENT_OVER_BUDGET. Whatever the budget, a process
 * that shows no sign of change may have sums that the handle read up to 10 seconds ago: ask for
 * rollup_age_ns, or a new handle, which has none. */
td_code td_query_budget(td_query *query, double seconds, uint64_t max_rss_bytes, td_error **error);

/*
 * Asking
 *
 * If *table is NULL, a table is made for the answer. Otherwise it is a table whose memory is used
 * again; what it had is lost, also after an error, and then it has no rows.
 */

td_code td_ask(td_handle *handle, const td_query *query, td_table **table, td_error **error);
/* A query of fields, and of a condition unless that is NULL, asked once. */
td_code td_processes(td_handle *handle, const char *fields, const char *where, td_table **table, td_error **error);
td_code td_threads(td_handle *handle, const char *fields, const char *where, td_table **table, td_error **error);
td_code td_sockets(td_handle *handle, const char *fields, const char *where, td_table **table, td_error **error);
td_code td_files(td_handle *handle, const char *fields, const char *where, td_table **table, td_error **error);
/* The mappings of a process. Fails with TD_NO_SUCH_TASK, TD_DENIED, TD_NO_ANSWER, and TD_NO_MEMORY for
 * kernel threads and zombies. */
td_code td_maps(td_handle *handle, uint32_t pid, const char *fields, td_table **table, td_error **error);
/* The page cache of a file, or of all regular files below a directory. It waits for the file system,
 * however long that takes: patience is about processes. */
td_code td_cachestat(td_handle *handle, const char *path, const char *fields, td_table **table, td_error **error);

/*
 * Events
 *
 *	td_query *query = td_query_new(TD_EVENTS);
 *	td_query_kinds(query, "exec", NULL);
 *	td_query_fields(query, "pid,comm,filename", NULL);
 *	if (td_events_open(query, NULL, &events, &error) == TD_OK)
 *		while (td_events_next(events, INFINITY, &table, &error) == TD_OK)
 *			...
 */

/* Begins to watch for the events of a query, in the caller's pid namespace and those below, without
 * td_query_kinds() of all kinds. The source is "bpf" (CAP_BPF and CAP_PERFMON), "connector" (the proc
 * connector, CAP_NET_ADMIN before Linux 6.6), or NULL or "auto" for what works. */
td_code td_events_open(const td_query *query, const char *source, td_events **events, td_error **error);
/* Puts the events that have come since the last call into a table, as td_ask() does. If there are none
 * it waits, at most so many seconds or with INFINITY without end. It may wake up early: then, and in
 * the end, the table has no rows. Signals do not end the wait. The counter "lost" of the table says
 * how many events were lost since the beginning, at least. */
td_code td_events_next(td_events *events, double timeout, td_table **table, td_error **error);
/* A descriptor that poll(2) finds readable while there are events that td_events_next() has not
 * returned; for nothing else. The kernel may still be writing one: an event loop passes that the
 * timeout 0. -1 of NULL. */
int td_events_fd(const td_events *events);
void td_events_free(td_events *events);

/*
 * Tables
 *
 * Processes are in the order of their ids, threads and files of processes too; mappings in that of
 * addresses, cached files in that of paths, and the events of a process as they happened. Sockets of a network namespace are together.
 */

void td_table_free(td_table *table);
/* The number of rows. */
size_t td_table_len(const td_table *table);
/* The fields, in the order in which they were asked for, and how many these are. */
const td_field *td_table_fields(const td_table *table, size_t *len);
/* Processes that the query named and that are not there. */
const uint32_t *td_table_missing(const td_table *table, size_t *len);
/* Who answered for a field: "bpf", "procfs", "broker", "smaps_rollup" or "smaps"; about mappings
 * "procmap", too, about the page cache "cachestat" or "mincore", about events "bpf" or "connector".
 * NULL if nobody could, it was not asked for, or rows are sockets. */
const char *td_table_source(const td_table *table, td_field field);
/* A number that says what happened on the way, such as "hidden" or "deferred" (docs/output.md has the
 * names); `otherwise` if there is none of this name. */
uint64_t td_table_counter(const td_table *table, const char *name, uint64_t otherwise);

/*
 * Values of rows
 *
 * A row or a field that the table does not have is TD_ABSENT_NOT_ASKED. Whoever asks for a value of
 * another type than the field's gets what stands for a missing one.
 */

/* Why a value is missing; TD_PRESENT if it is not. */
td_absent td_absent_of(const td_table *table, size_t row, td_field field);
/* The number; `otherwise` if it is missing. td_u64() takes flags and letters, too. */
uint64_t td_u64(const td_table *table, size_t row, td_field field, uint64_t otherwise);
int64_t td_i64(const td_table *table, size_t row, td_field field, int64_t otherwise);
double td_f64(const td_table *table, size_t row, td_field field, double otherwise);
/* The bytes; none if it is missing, so look at td_absent_of(). */
td_text td_text_of(const td_table *table, size_t row, td_field field);
/* The list; empty if it is missing. */
td_ids td_ids_of(const td_table *table, size_t row, td_field field);
/* The 32 numbers of resource limits; NULL if they are missing. */
const uint64_t *td_limits_of(const td_table *table, size_t row, td_field field);
/* Takes the first text off a list of texts (cmdline, environ): puts it into *item and leaves the
 * others in *rest. False if there is none. */
bool td_text_next(td_text *rest, td_text *item);

/*
 * Columns
 *
 * A column has as many values as the table has rows. Those of rows without a value are 0 or empty
 * and mean nothing. NULL if the table has no such column, or one of another type.
 */

/* The reason of each row, as td_absent; 0 where there is a value. */
const uint8_t *td_column_absent(const td_table *table, td_field field);
/* How many values are missing. */
size_t td_column_absent_count(const td_table *table, td_field field);
const uint64_t *td_column_u64(const td_table *table, td_field field);
const int64_t *td_column_i64(const td_table *table, td_field field);
const double *td_column_f64(const td_table *table, td_field field);
const uint8_t *td_column_u8(const td_table *table, td_field field);
/* There is one offset more than there are rows. */
td_texts td_column_texts(const td_table *table, td_field field);
td_id_lists td_column_ids(const td_table *table, td_field field);
/* 32 numbers for each row. */
const uint64_t *td_column_limits(const td_table *table, td_field field);

#undef TD_ENUM
#ifdef __cplusplus
}
#endif

#endif
