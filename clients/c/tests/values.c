/* Values are the kernel's, and rows and columns have the same. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static uint64_t status_line(const char *name)
{
	char line[512];
	unsigned long long number = 0;
	FILE *file = fopen("/proc/self/status", "r");

	CHECK(file != NULL);
	while (fgets(line, sizeof(line), file) != NULL)
		if (strncmp(line, name, strlen(name)) == 0)
			CHECK(sscanf(line + strlen(name), ": %llu", &number) == 1);
	fclose(file);
	return number;
}

/* This process, as the kernel's files and system calls have it. */
static void own_values(const char *source)
{
	static const char fields[] = "pid,ppid,uid,state,comm,cmdline,threads_count,vsize_bytes,nice,limits,affinity,"
				     "groups,kernel_thread,cpu_percent,nspids,start_ns";
	char comm[64] = "", cmdline[4096] = "";
	size_t len;
	FILE *file;
	td_handle *handle = handle_of(source);
	td_query *query = td_query_new(TD_PROCESSES);
	td_table *table = NULL;
	uint32_t self = (uint32_t)getpid();

	OK(td_query_fields(query, fields, &error));
	OK(td_query_pids(query, &self, 1, &error));
	OK(td_ask(handle, query, &table, &error));
	CHECK(td_table_len(table) == 1);
	CHECK(td_u64(table, 0, TD_FIELD_PID, 0) == self);
	CHECK(td_u64(table, 0, TD_FIELD_PPID, 0) == (uint64_t)getppid());
	CHECK(td_u64(table, 0, TD_FIELD_UID, UINT64_MAX) == getuid());
	CHECK(strchr("RSD", (int)td_u64(table, 0, TD_FIELD_STATE, '?')) != NULL);
	CHECK(td_u64(table, 0, TD_FIELD_THREADS_COUNT, 0) == status_line("Threads"));
	CHECK(td_u64(table, 0, TD_FIELD_VSIZE_BYTES, 0) / 1024 > 1000);
	CHECK(td_u64(table, 0, TD_FIELD_KERNEL_THREAD, 7) == 0);
	CHECK(td_i64(table, 0, TD_FIELD_NICE, 99) == getpriority(PRIO_PROCESS, 0));
	CHECK(td_f64(table, 0, TD_FIELD_CPU_PERCENT, -1) >= 0);
	CHECK(td_text_of(table, 0, TD_FIELD_AFFINITY).len > 0);

	file = fopen("/proc/self/comm", "r");
	CHECK(file != NULL && fgets(comm, sizeof(comm), file) != NULL);
	fclose(file);
	comm[strcspn(comm, "\n")] = 0;
	CHECK(is_text(td_text_of(table, 0, TD_FIELD_COMM), comm));

	/* By a path at which valgrind does not put a file of its own. */
	file = fopen("/proc/./self/cmdline", "r");
	CHECK(file != NULL);
	len = fread(cmdline, 1, sizeof(cmdline), file);
	fclose(file);
	td_text rest = td_text_of(table, 0, TD_FIELD_CMDLINE), argument;
	CHECK(rest.len == len && memcmp(rest.data, cmdline, len) == 0);
	for (const char *at = cmdline; at < cmdline + len; at += strlen(at) + 1)
		CHECK(td_text_next(&rest, &argument) && is_text(argument, at));
	CHECK(!td_text_next(&rest, &argument));

	gid_t groups[256];
	int count = getgroups(256, groups);
	td_ids ids = td_ids_of(table, 0, TD_FIELD_GROUPS);
	CHECK(count >= 0 && ids.len == (size_t)count && memcmp(ids.data, groups, ids.len * sizeof(gid_t)) == 0);
	CHECK(td_ids_of(table, 0, TD_FIELD_NSPIDS).len >= 1);

	CHECK(td_limits_of(table, 0, TD_FIELD_LIMITS) == td_column_limits(table, TD_FIELD_LIMITS));
	CHECK(strcmp(td_table_source(table, TD_FIELD_PID), source) == 0);
	/* The second is of the same group as the pid. */
	CHECK(td_table_source(table, TD_FIELD_PSS_BYTES) == NULL && td_table_source(table, TD_FIELD_TID) == NULL);
	CHECK(td_table_counter(table, "tasks", 0) == 1);
	CHECK(td_table_counter(table, "no such", 7) == 7);
	td_table_free(table);
	td_query_free(query);
	td_handle_free(handle);
}

/* The limits of the parent: valgrind changes what this process is told of its own. */
static void limits(const char *source)
{
	td_handle *handle = handle_of(source);
	td_table *table = NULL;
	char where[64];

	snprintf(where, sizeof(where), "pid == %d", (int)getppid());
	OK(td_processes(handle, "limits", where, &table, &error));
	const uint64_t *numbers = td_limits_of(table, 0, TD_FIELD_LIMITS);
	for (int i = 0; i < 16; i++) {
		struct rlimit limit;
		CHECK(numbers != NULL && prlimit(getppid(), (__rlimit_resource_t)i, NULL, &limit) == 0);
		CHECK(numbers[2 * i] == limit.rlim_cur && numbers[2 * i + 1] == limit.rlim_max);
	}
	td_table_free(table);
	td_handle_free(handle);
}

/* What is missing has a reason, and what was not asked for, too. */
static void missing_values(const char *source)
{
	td_handle *handle = handle_of(source);
	td_query *query = td_query_new(TD_PROCESSES);
	td_table *table = NULL;
	siginfo_t ended;
	size_t len;
	pid_t child = fork();

	if (child == 0)
		_exit(3);
	/* A zombie from now on, until it is waited for. */
	CHECK(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT) == 0);
	uint32_t pids[] = { (uint32_t)child, INT32_MAX };
	OK(td_query_fields(query, "pid,state,rss_bytes,cmdline,limits", &error));
	OK(td_query_pids(query, pids, 2, &error));
	OK(td_ask(handle, query, &table, &error));
	CHECK(td_table_len(table) == 1);
	CHECK(td_u64(table, 0, TD_FIELD_STATE, '?') == 'Z');
	CHECK(td_absent_of(table, 0, TD_FIELD_STATE) == TD_PRESENT);
	CHECK(td_absent_of(table, 0, TD_FIELD_RSS_BYTES) == TD_ABSENT_NO_MEMORY);
	CHECK(td_u64(table, 0, TD_FIELD_RSS_BYTES, 77) == 77);
	CHECK(td_column_absent(table, TD_FIELD_RSS_BYTES)[0] == TD_ABSENT_NO_MEMORY);
	CHECK(td_column_absent_count(table, TD_FIELD_RSS_BYTES) == 1);
	CHECK(td_absent_of(table, 0, TD_FIELD_CMDLINE) == TD_ABSENT_NO_MEMORY);
	CHECK(td_text_of(table, 0, TD_FIELD_CMDLINE).len == 0);
	CHECK(td_absent_of(table, 0, TD_FIELD_COMM) == TD_ABSENT_NOT_ASKED);
	const uint32_t *gone = td_table_missing(table, &len);
	CHECK(len == 1 && gone[0] == INT32_MAX);
	CHECK(waitpid(child, NULL, 0) == child);
	td_table_free(table);
	td_query_free(query);
	td_handle_free(handle);
}

void same_column(const td_table *table, td_field field)
{
	size_t rows = td_table_len(table), missing = 0;
	const uint8_t *absent = td_column_absent(table, field);

	for (size_t row = 0; row < rows; row++) {
		CHECK(absent[row] == (uint8_t)td_absent_of(table, row, field));
		if (absent[row] != 0) {
			missing++;
			continue;
		}
		td_text text = td_text_of(table, row, field);
		td_ids ids = td_ids_of(table, row, field);
		switch (td_field_type(field)) {
		case TD_TYPE_U64:
			CHECK(td_column_u64(table, field)[row] == td_u64(table, row, field, 1));
			break;
		case TD_TYPE_I64:
			CHECK(td_column_i64(table, field)[row] == td_i64(table, row, field, 1));
			break;
		case TD_TYPE_F64:
			CHECK(td_column_f64(table, field)[row] == td_f64(table, row, field, 1));
			break;
		case TD_TYPE_U8:
			CHECK(td_column_u8(table, field)[row] == td_u64(table, row, field, 1));
			break;
		case TD_TYPE_TEXT: {
			td_texts all = td_column_texts(table, field);
			CHECK(all.offsets[row + 1] - all.offsets[row] == text.len);
			CHECK(text.len == 0 || all.bytes + all.offsets[row] == text.data);
			break;
		}
		case TD_TYPE_IDS: {
			td_id_lists all = td_column_ids(table, field);
			CHECK(all.offsets[row + 1] - all.offsets[row] == ids.len);
			CHECK(all.ids + all.offsets[row] == ids.data);
			break;
		}
		case TD_TYPE_LIMITS:
			CHECK(td_column_limits(table, field) + 32 * row == td_limits_of(table, row, field));
			break;
		}
	}
	CHECK(td_column_absent_count(table, field) == missing);
}

/* Every field of some processes: columns and rows have the same. */
static void whole_tables(const char *source)
{
	td_handle *handle = handle_of(source);
	td_table *table = NULL;
	uint32_t pids[] = { 1, (uint32_t)getpid(), (uint32_t)getppid() };
	size_t len, filled = 0;

	/* The second time with the memory of the first, and rows of threads. */
	for (int turn = 0; turn < 2; turn++) {
		td_query *query = td_query_new(turn ? TD_THREADS : TD_PROCESSES);
		OK(td_query_fields(query, "all", &error));
		OK(td_query_pids(query, pids, 3, &error));
		OK(td_ask(handle, query, &table, &error));
		td_query_free(query);
		const td_field *fields = td_table_fields(table, &len);
		CHECK(len > 100 && td_table_len(table) > 0);
		row_of(table, (uint64_t)getpid());
		for (size_t i = 0; i < len; i++) {
			same_column(table, fields[i]);
			filled += td_column_absent_count(table, fields[i]) < td_table_len(table);
		}
		CHECK(filled > 100);
	}
	td_table_free(table);
	td_handle_free(handle);
}

/* Every number from 1 on is a field with a name that leads back to it. */
static void field_names(void)
{
	unsigned count = 0;

	for (td_field field = td_field_next(TD_FIELD_NONE); field != TD_FIELD_NONE; field = td_field_next(field)) {
		td_field found = TD_FIELD_NONE;
		/* Those of threads are those of processes. */
		static const td_scope scopes[] = { TD_PROCESSES, TD_SOCKETS, TD_FILES, TD_MAPS, TD_CACHE, TD_EVENTS };
		td_scope scope = scopes[field / TD_SOCKET_FAMILY];
		OK(td_field_by_name(scope, td_field_name(field), &found, &error));
		CHECK(found == field);
		CHECK(td_field_kind(field) >= TD_KIND_NUMBER && td_field_kind(field) <= TD_KIND_LIMITS);
		CHECK(td_field_type(field) >= TD_TYPE_U64 && td_field_type(field) <= TD_TYPE_LIMITS);
		CHECK(strlen(td_field_meaning(field)) > 3);
		count++;
	}
	CHECK(count > 200);
	CHECK(strcmp(td_field_name(TD_FIELD_RSS_BYTES), "rss_bytes") == 0);
	CHECK(strcmp(td_field_name(TD_SOCKET_LOCAL_PORT), "local_port") == 0);
	CHECK(strcmp(td_field_name(TD_FILE_PEER_FDS), "peer_fds") == 0);
	CHECK(td_field_kind(TD_FIELD_RSS_BYTES) == TD_KIND_BYTES);
	CHECK(strcmp(td_absent_name(TD_ABSENT_NO_ANSWER), "no answer") == 0);
	CHECK(strcmp(td_code_name(TD_NO_SUCH_TASK), "no such task") == 0);
	CHECK(strchr(td_version(), '.') != NULL);
}

/* Children are found by their parent, and a filter leaves others out. */
static void selections(const char *source)
{
	td_handle *handle = handle_of(source);
	td_query *query = td_query_new(TD_PROCESSES), *descendants = td_query_new(TD_PROCESSES);
	td_table *table = NULL;
	char where[64];
	pid_t child = fork();

	if (child == 0) {
		pause();
		_exit(0);
	}
	OK(td_query_field(query, TD_FIELD_PID, &error));
	OK(td_query_children_of(query, (uint32_t)getpid(), &error));
	OK(td_ask(handle, query, &table, &error));
	row_of(table, (uint64_t)child);
	snprintf(where, sizeof(where), "ppid == %d", (int)getpid());
	OK(td_query_where(query, where, &error));
	OK(td_query_where(query, "pid > 0", &error));
	OK(td_ask(handle, query, &table, &error));
	row_of(table, (uint64_t)child);
	OK(td_query_where(query, "pid == 0", &error));
	OK(td_ask(handle, query, &table, &error));
	CHECK(td_table_len(table) == 0);
	OK(td_query_fields(descendants, "pid", &error));
	OK(td_query_descendants_of(descendants, (uint32_t)getppid(), &error));
	OK(td_ask(handle, descendants, &table, &error));
	row_of(table, (uint64_t)child);
	kill(child, SIGKILL);
	CHECK(waitpid(child, NULL, 0) == child);
	OK(td_query_children_of(query, (uint32_t)child, &error));
	FAILS(TD_NO_SUCH_TASK, "no process", td_ask(handle, query, &table, &error));
	CHECK(td_table_len(table) == 0);
	td_table_free(table);
	td_query_free(query);
	td_query_free(descendants);
	td_handle_free(handle);
}

/* A socket of this process has this process as its owner. */
static void own_socket(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	char where[64];
	td_handle *handle = handle_of(sources[0]);
	td_query *query = td_query_new(TD_SOCKETS);
	td_table *table = NULL;

	CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 5) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
	snprintf(where, sizeof(where), "local_port == %d and state == 'LISTEN'", ntohs(address.sin_port));
	OK(td_query_fields(query, "local_addr,local_port,path,owner_pids,owner_fds,owner_comms", &error));
	OK(td_query_where(query, where, &error));
	for (int turn = 0; turn < 2; turn++) {
		OK(td_ask(handle, query, &table, &error));
		CHECK(td_table_len(table) == 1);
		CHECK(td_u64(table, 0, TD_SOCKET_LOCAL_PORT, 0) == ntohs(address.sin_port));
		CHECK(is_text(td_text_of(table, 0, TD_SOCKET_LOCAL_ADDR), "127.0.0.1"));
		CHECK(td_absent_of(table, 0, TD_SOCKET_PATH) == TD_ABSENT_NOT_APPLICABLE);
		CHECK(td_absent_of(table, 0, TD_FIELD_PID) == TD_ABSENT_NOT_ASKED);
		td_ids pids = td_ids_of(table, 0, TD_SOCKET_OWNER_PIDS), fds = td_ids_of(table, 0, TD_SOCKET_OWNER_FDS);
		CHECK(pids.len == 1 && pids.data[0] == (uint32_t)getpid());
		CHECK(fds.len == 1 && fds.data[0] == (uint32_t)listener);
		td_text names = td_text_of(table, 0, TD_SOCKET_OWNER_COMMS), name;
		CHECK(td_text_next(&names, &name) && name.len > 0 && !td_text_next(&names, &name));
		/* And of this process alone. */
		uint32_t self = (uint32_t)getpid();
		OK(td_query_pids(query, &self, 1, &error));
	}
	close(listener);
	td_table_free(table);
	td_query_free(query);
	td_handle_free(handle);
}

void test_values(void)
{
	field_names();
	for (size_t i = 0; i < source_count; i++) {
		own_values(sources[i]);
		limits(sources[i]);
		missing_values(sources[i]);
		whole_tables(sources[i]);
		selections(sources[i]);
	}
	own_socket();
}
