/* Wrong arguments are refused with a text that helps, and nothing crashes. */
#include <math.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"

static void names_and_filters(void)
{
	td_handle *handle = td_handle_new();
	td_table *table = NULL;
	td_field field = TD_FIELD_PID;
	char *many = malloc(1 << 20);

	CHECK(many != NULL);
	memset(many, 'x', (1 << 20) - 1);
	many[(1 << 20) - 1] = 0;
	/* A message is one line, whatever is in the arguments. */
	td_error *error = NULL;
	CHECK(td_processes(handle, "pid", "pid\n= 1", &table, &error) == TD_INVALID_INPUT);
	CHECK(strncmp(td_error_message(error), "not a filter: column 5: ", 24) == 0);
	CHECK(strpbrk(td_error_message(error), "\n^") == NULL);
	td_error_free(error);
	FAILS(TD_SYSTEM, "/nonexistent/\\n\\x1b", td_cachestat(handle, "/nonexistent/\n\x1b", "all", &table, &error));
	FAILS(TD_INVALID_INPUT, "rss_bytes", td_processes(handle, "pid,rss", NULL, &table, &error));
	FAILS(TD_INVALID_INPUT, "unknown field", td_processes(handle, "", NULL, &table, &error));
	FAILS(TD_INVALID_INPUT, "unknown field", td_processes(handle, many, NULL, &table, &error));
	FAILS(TD_INVALID_INPUT, "column 5", td_processes(handle, "pid", "pid = 1", &table, &error));
	FAILS(TD_INVALID_INPUT, "not a filter", td_processes(handle, "pid", many, &table, &error));
	FAILS(TD_INVALID_INPUT, "UTF-8", td_processes(handle, "pid,\xff", NULL, &table, &error));
	FAILS(TD_INVALID_INPUT, "UTF-8", td_processes(handle, "pid", "comm == '\xff'", &table, &error));
	FAILS(TD_INVALID_INPUT, "local_port", td_sockets(handle, "port", NULL, &table, &error));
	FAILS(TD_INVALID_INPUT, "anon_kind", td_files(handle, "path", NULL, &table, &error));
	FAILS(TD_INVALID_INPUT, "column 5", td_files(handle, "pid", "pid = 1", &table, &error));
	FAILS(TD_INVALID_INPUT, "rss_bytes", td_field_by_name(TD_THREADS, "rss", &field, &error));
	FAILS(TD_INVALID_INPUT, "td_scope", td_field_by_name((td_scope)9, "pid", &field, &error));
	FAILS(TD_INVALID_INPUT, "known are auto, bpf, procfs, broker", td_handle_source(handle, "proc", &error));
	CHECK(table == NULL && field == TD_FIELD_PID);
	/* Nobody has to want the text. */
	CHECK(td_processes(handle, "rss", NULL, &table, NULL) == TD_INVALID_INPUT);
	free(many);
	td_handle_free(handle);
}

static void null_pointers(void)
{
	td_handle *handle = td_handle_new();
	td_query *query = td_query_new(TD_PROCESSES);
	td_table *table = NULL;
	td_events *watched = NULL;
	td_field field;
	size_t len = 7;

	FAILS(TD_INVALID_INPUT, "handle is NULL", td_processes(NULL, "pid", NULL, &table, &error));
	FAILS(TD_INVALID_INPUT, "fields is NULL", td_threads(handle, NULL, NULL, &table, &error));
	FAILS(TD_INVALID_INPUT, "table is NULL", td_sockets(handle, "uid", NULL, NULL, &error));
	FAILS(TD_INVALID_INPUT, "query is NULL", td_ask(handle, NULL, &table, &error));
	FAILS(TD_INVALID_INPUT, "handle is NULL", td_ask(NULL, query, &table, &error));
	FAILS(TD_INVALID_INPUT, "handle is NULL", td_handle_prepare(NULL, query, &error));
	FAILS(TD_INVALID_INPUT, "path is NULL", td_handle_socket(handle, NULL, &error));
	FAILS(TD_INVALID_INPUT, "source is NULL", td_handle_source(handle, NULL, &error));
	FAILS(TD_INVALID_INPUT, "handle is NULL", td_handle_patience(NULL, 1, &error));
	FAILS(TD_INVALID_INPUT, "query is NULL", td_query_fields(NULL, "pid", &error));
	FAILS(TD_INVALID_INPUT, "query is NULL", td_query_field(NULL, TD_FIELD_PID, &error));
	FAILS(TD_INVALID_INPUT, "where is NULL", td_query_where(query, NULL, &error));
	FAILS(TD_INVALID_INPUT, "pids is NULL", td_query_pids(query, NULL, 3, &error));
	FAILS(TD_INVALID_INPUT, "query is NULL", td_query_pids(NULL, NULL, 0, &error));
	FAILS(TD_INVALID_INPUT, "query is NULL", td_query_only_changed(NULL, &error));
	FAILS(TD_INVALID_INPUT, "handle is NULL", td_maps(NULL, 1, "pid", &table, &error));
	FAILS(TD_INVALID_INPUT, "path is NULL", td_cachestat(handle, NULL, "path", &table, &error));
	FAILS(TD_INVALID_INPUT, "query is NULL", td_events_open(NULL, NULL, &watched, &error));
	FAILS(TD_INVALID_INPUT, "events is NULL", td_events_open(query, NULL, NULL, &error));
	FAILS(TD_INVALID_INPUT, "not of events", td_events_open(query, NULL, &watched, &error));
	FAILS(TD_INVALID_INPUT, "events is NULL", td_events_next(NULL, 1, &table, &error));
	FAILS(TD_INVALID_INPUT, "query is NULL", td_query_threads(NULL, &error));
	CHECK(td_events_fd(NULL) == -1 && watched == NULL);
	td_events_free(NULL);
	FAILS(TD_INVALID_INPUT, "query is NULL", td_query_uses(NULL, "fd", &error));
	FAILS(TD_INVALID_INPUT, "query is NULL", td_query_kinds(NULL, "file", &error));
	FAILS(TD_INVALID_INPUT, "query is NULL", td_query_deleted(NULL, &error));
	FAILS(TD_INVALID_INPUT, "query is NULL", td_query_path(NULL, "/", &error));
	FAILS(TD_INVALID_INPUT, "query is NULL", td_query_budget(NULL, 1, 1, &error));
	FAILS(TD_INVALID_INPUT, "name is NULL", td_field_by_name(TD_PROCESSES, NULL, &field, &error));
	FAILS(TD_INVALID_INPUT, "field is NULL", td_field_by_name(TD_PROCESSES, "pid", NULL, &error));
	CHECK(td_table_len(NULL) == 0 && td_absent_of(NULL, 0, TD_FIELD_PID) == TD_ABSENT_NOT_ASKED);
	CHECK(td_u64(NULL, 0, TD_FIELD_PID, 5) == 5 && td_i64(NULL, 0, TD_FIELD_NICE, -5) == -5);
	CHECK(td_text_of(NULL, 0, TD_FIELD_COMM).data != NULL && td_ids_of(NULL, 0, TD_FIELD_GROUPS).len == 0);
	CHECK(td_limits_of(NULL, 0, TD_FIELD_LIMITS) == NULL && td_column_u64(NULL, TD_FIELD_PID) == NULL);
	CHECK(td_column_absent_count(NULL, TD_FIELD_PID) == 0 && td_column_texts(NULL, TD_FIELD_COMM).bytes == NULL);
	CHECK(td_table_missing(NULL, &len) != NULL && len == 0 && td_table_fields(NULL, NULL) != NULL);
	CHECK(td_table_source(NULL, TD_FIELD_PID) == NULL && td_table_counter(NULL, NULL, 3) == 3);
	CHECK(!td_text_next(NULL, NULL) && td_error_code(NULL) == TD_OK && *td_error_message(NULL) == 0);
	td_handle_free(NULL);
	td_query_free(NULL);
	td_table_free(NULL);
	td_error_free(NULL);
	td_query_free(query);
	td_handle_free(handle);
}

static void numbers(void)
{
	static const double times[] = { -1, NAN, INFINITY, 1e300 };
	td_handle *handle = handle_of("procfs");
	td_query *query = td_query_new(TD_PROCESSES), *threads = td_query_new(TD_THREADS);
	td_query *children = td_query_new(TD_PROCESSES);
	td_query *sockets = td_query_new(TD_SOCKETS), *files = td_query_new(TD_FILES), *maps = td_query_new(TD_MAPS);
	td_query *cache = td_query_new(TD_CACHE), *events = td_query_new(TD_EVENTS);
	td_table *table = NULL;
	uint32_t wrong = UINT32_MAX;
	size_t many = getenv("UNDER_VALGRIND") ? 1000 : 50000, len;
	uint32_t *pids = malloc(many * sizeof(*pids));

	CHECK(pids != NULL && td_query_new((td_scope)0) == NULL && td_query_new((td_scope)77) == NULL);
	for (size_t i = 0; i < sizeof(times) / sizeof(*times); i++) {
		FAILS(TD_INVALID_INPUT, "patience", td_handle_patience(handle, times[i], &error));
		FAILS(TD_INVALID_INPUT, "patience", td_query_patience(query, times[i], &error));
	}
	FAILS(TD_INVALID_INPUT, "budget", td_query_budget(query, NAN, 0, &error));
	OK(td_query_budget(query, INFINITY, UINT64_MAX, &error));
	FAILS(TD_INVALID_INPUT, "4294967295 is not a process id", td_query_pids(query, &wrong, 1, &error));
	FAILS(TD_INVALID_INPUT, "more than memory", td_query_pids(query, &wrong, SIZE_MAX, &error));
	FAILS(TD_INVALID_INPUT, "not a process id", td_query_children_of(query, wrong, &error));
	OK(td_query_children_of(children, 1, &error));
	OK(td_query_children_of(children, 2, &error));
	FAILS(TD_INVALID_INPUT, "only one of", td_query_descendants_of(children, 1, &error));
	FAILS(TD_INVALID_INPUT, "only one of", td_query_pids(children, NULL, 0, &error));
	FAILS(TD_INVALID_INPUT, "of sockets", td_query_only_changed(sockets, &error));
	FAILS(TD_INVALID_INPUT, "threads have no children", td_query_descendants_of(threads, 1, &error));
	FAILS(TD_INVALID_INPUT, "no field with the id 4095", td_query_field(query, (td_field)4095, &error));
	FAILS(TD_INVALID_INPUT, "no field with the id", td_query_field(query, TD_SOCKET_UID, &error));
	FAILS(TD_INVALID_INPUT, "no field with the id", td_query_field(sockets, TD_FIELD_UID, &error));
	FAILS(TD_INVALID_INPUT, "no field with the id", td_query_field(files, TD_FIELD_UID, &error));
	FAILS(TD_INVALID_INPUT, "of sockets", td_query_path(sockets, "/", &error));
	FAILS(TD_INVALID_INPUT, "of processes", td_query_deleted(query, &error));
	FAILS(TD_INVALID_INPUT, "eventfd", td_query_kinds(files, "file,pipe", &error));
	FAILS(TD_INVALID_INPUT, "map", td_query_uses(files, "mem", &error));
	FAILS(TD_INVALID_INPUT, "path is NULL", td_query_path(files, NULL, &error));
	FAILS(TD_INVALID_INPUT, "not a process id", td_maps(handle, wrong, "pid", &table, &error));
	FAILS(TD_INVALID_INPUT, "td_query_pids", td_ask(handle, maps, &table, &error));
	FAILS(TD_INVALID_INPUT, "td_query_path", td_ask(handle, cache, &table, &error));
	FAILS(TD_INVALID_INPUT, "td_events_open", td_ask(handle, events, &table, &error));
	FAILS(TD_INVALID_INPUT, "of mappings", td_query_where(maps, "pid == 1", &error));
	FAILS(TD_INVALID_INPUT, "of cached files", td_query_pids(cache, &wrong, 0, &error));
	FAILS(TD_INVALID_INPUT, "fork, exec, exit", td_query_kinds(events, "start", &error));
	FAILS(TD_INVALID_INPUT, "connector", td_events_open(events, "procfs", &(td_events *){ NULL }, &error));
	CHECK(td_field_name((td_field)4095) == NULL && td_field_kind((td_field)4095) == 0);
	CHECK(strcmp(td_absent_name((td_absent)99), "unknown") == 0 && strcmp(td_code_name((td_code)99), "unknown") == 0);

	/* More processes than there can be, of which one is there. */
	for (size_t i = 0; i < many; i++)
		pids[i] = (uint32_t)(INT32_MAX - i);
	pids[many / 2] = (uint32_t)getpid();
	OK(td_query_pids(query, pids, many, &error));
	OK(td_query_fields(query, "pid", &error));
	OK(td_ask(handle, query, &table, &error));
	CHECK(td_table_len(table) == 1 && td_u64(table, 0, TD_FIELD_PID, 0) == (uint64_t)getpid());
	td_table_missing(table, &len);
	CHECK(len == many - 1);
	/* Rows, fields and types that the table does not have. */
	CHECK(td_absent_of(table, 1, TD_FIELD_PID) == TD_ABSENT_NOT_ASKED && td_u64(table, 1, TD_FIELD_PID, 9) == 9);
	CHECK(td_absent_of(table, SIZE_MAX, TD_FIELD_PID) == TD_ABSENT_NOT_ASKED);
	CHECK(td_u64(table, 0, TD_FIELD_UID, 9) == 9 && td_u64(table, 0, (td_field)5000, 9) == 9);
	CHECK(td_i64(table, 0, TD_FIELD_PID, 9) == 9 && td_text_of(table, 0, TD_FIELD_PID).len == 0);
	CHECK(td_column_i64(table, TD_FIELD_PID) == NULL && td_column_u64(table, TD_FIELD_UID) == NULL);
	CHECK(td_column_absent_count(table, TD_FIELD_UID) == 1 && td_column_absent(table, TD_FIELD_UID) == NULL);
	OK(td_query_pids(query, NULL, 0, &error));
	OK(td_ask(handle, query, &table, &error));
	CHECK(td_table_len(table) == 0);
	free(pids);
	td_query_free(query);
	td_query_free(threads);
	td_query_free(children);
	td_query_free(sockets);
	td_query_free(files);
	td_query_free(maps);
	td_query_free(cache);
	td_query_free(events);
	td_handle_free(handle);
	/* A table outlives its handle. */
	CHECK(td_table_len(table) == 0 && td_column_u64(table, TD_FIELD_PID) != NULL);
	td_table_free(table);
}

/* A table has no rows of an earlier answer after an error, wherever it comes from. */
static void errors_empty_tables(void)
{
	td_handle *handle = handle_of("procfs");
	td_query *maps = td_query_new(TD_MAPS);
	td_table *table = NULL;

#define EMPTIES(words, call)                                             \
	do {                                                             \
		OK(td_processes(handle, "pid", NULL, &table, &error));   \
		CHECK(td_table_len(table) > 0);                          \
		FAILS(TD_INVALID_INPUT, words, call);                    \
		CHECK(td_table_len(table) == 0);                         \
		CHECK(td_column_absent_count(table, TD_FIELD_PID) == 0); \
	} while (0)
	EMPTIES("rss_bytes", td_processes(handle, "rss", NULL, &table, &error));
	EMPTIES("column 5", td_threads(handle, "pid", "pid = 1", &table, &error));
	EMPTIES("local_port", td_sockets(handle, "port", NULL, &table, &error));
	EMPTIES("handle is NULL", td_files(NULL, "pid", NULL, &table, &error));
	EMPTIES("not a process id", td_maps(handle, UINT32_MAX, "pid", &table, &error));
	EMPTIES("path is NULL", td_cachestat(handle, NULL, "path", &table, &error));
	EMPTIES("query is NULL", td_ask(handle, NULL, &table, &error));
	EMPTIES("td_query_pids", td_ask(handle, maps, &table, &error));
	EMPTIES("events is NULL", td_events_next(NULL, 1, &table, &error));
#undef EMPTIES
	td_table_free(table);
	td_query_free(maps);
	td_handle_free(handle);
}

/* Accepts connections, and answers each with what is no answer, or ends it. */
static void *no_broker(void *argument)
{
	int listener = *(int *)argument;
	char packet[4096], nonsense[64];

	memset(nonsense, 0x5a, sizeof(nonsense));
	for (int turn = 0; turn < 6; turn++) {
		int client = accept(listener, NULL, NULL);
		if (client < 0)
			break;
		if (turn % 2 == 1 && recv(client, packet, sizeof(packet), 0) > 0)
			(void)!send(client, nonsense, sizeof(nonsense), MSG_NOSIGNAL);
		close(client);
	}
	close(listener);
	return NULL;
}

static void brokers(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	td_handle *handle = td_handle_new();
	td_table *table = NULL;
	pthread_t thread;
	int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	char long_path[4096];

	OK(td_handle_socket(handle, "/nonexistent/taskdiag.sock", &error));
	FAILS(TD_UNSUPPORTED, "(start it as root: taskdiagd --socket /nonexistent/taskdiag.sock)",
	      td_processes(handle, "pid", NULL, &table, &error));
	memset(long_path, '/', sizeof(long_path) - 1);
	long_path[sizeof(long_path) - 1] = 0;
	OK(td_handle_socket(handle, long_path, &error));
	CHECK(td_processes(handle, "pid", NULL, &table, NULL) != TD_OK);

	/* Nobody catches SIGPIPE here: the library must not cause one. */
	snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/taskdiag-test-%d.sock", (int)getpid());
	CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(listener, 9) == 0);
	CHECK(pthread_create(&thread, NULL, no_broker, &listener) == 0);
	OK(td_handle_socket(handle, address.sun_path, &error));
	for (int turn = 0; turn < 2; turn++) {
		FAILS(TD_UNSUPPORTED, "ended the connection", td_processes(handle, "pid", NULL, &table, &error));
		FAILS(TD_MALFORMED, address.sun_path, td_processes(handle, "pid", NULL, &table, &error));
	}
	FAILS(TD_SYSTEM, "ended the connection", td_maps(handle, 1, "name", &table, &error));
	FAILS(TD_MALFORMED, address.sun_path, td_maps(handle, 1, "name", &table, &error));
	/* Ends the thread, wherever it is. */
	shutdown(listener, SHUT_RDWR);
	CHECK(pthread_join(thread, NULL) == 0);
	/* It has a socket that nobody listens at any more, as a broker that was killed leaves behind. */
	for (int turn = 0; turn < 2; turn++) {
		FAILS(TD_UNSUPPORTED, "no broker answers at /tmp/", td_processes(handle, "pid", NULL, &table, &error));
		FAILS(TD_UNSUPPORTED, "refused (os error 111) (start it as root: taskdiagd --socket /tmp/",
		      td_maps(handle, 1, "name", &table, &error));
	}
	unlink(address.sun_path);
	/* The handle works again when somebody answers. */
	OK(td_handle_source(handle, "procfs", &error));
	OK(td_processes(handle, "pid", NULL, &table, &error));
	CHECK(td_table_len(table) > 0);
	td_table_free(table);
	td_handle_free(handle);
}

void test_input(void)
{
	names_and_filters();
	null_pointers();
	numbers();
	errors_empty_tables();
	brokers();
}
