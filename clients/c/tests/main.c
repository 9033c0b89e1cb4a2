/* Tests the library: main [--soak TIMES]
 *
 * Root asks procfs, BPF and the broker whose socket is $TASKDIAG_SOCKET, others procfs alone. */
#include <unistd.h>

#include "check.h"

const char *sources[3];
size_t source_count;

td_handle *handle_of(const char *source)
{
	td_handle *handle = td_handle_new();
	CHECK(handle != NULL);
	OK(td_handle_source(handle, source, &error));
	if (strcmp(source, "broker") == 0)
		OK(td_handle_socket(handle, getenv("TASKDIAG_SOCKET"), &error));
	return handle;
}

size_t row_of(const td_table *table, uint64_t pid)
{
	for (size_t row = 0; row < td_table_len(table); row++)
		if (td_u64(table, row, TD_FIELD_PID, 0) == pid)
			return row;
	fprintf(stderr, "process %" PRIu64 " is missing\n", pid);
	exit(1);
}

bool is_text(td_text text, const char *expected)
{
	return text.len == strlen(expected) && memcmp(text.data, expected, text.len) == 0;
}

int main(int argc, char **argv)
{
	/* valgrind does not know what BPF programs write. */
	bool has_all = geteuid() == 0 && getenv("TASKDIAG_SOCKET") != NULL && getenv("UNDER_VALGRIND") == NULL;

	sources[source_count++] = "procfs";
	if (has_all) {
		sources[source_count++] = "broker";
		sources[source_count++] = "bpf";
	}
	if (argc == 3 && strcmp(argv[1], "--soak") == 0) {
		soak(strtoul(argv[2], NULL, 10));
		return 0;
	}
	test_values();
	test_tables();
	test_input();
	/* Under valgrind threads take minutes, and a child that was forked at the wrong moment frees nothing. */
	if (getenv("UNDER_VALGRIND") == NULL)
		test_process();
	return 0;
}
