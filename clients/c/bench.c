/* Measures eight values of all processes: bench PROCESSES SOCKET
 *
 * In turns, in one process: libproc2 of procps-ng, columns and rows of libtaskdiag by BPF, by the broker at SOCKET, and by
 * procfs. bench.sh builds and runs it. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <libproc2/pids.h>
#include <taskdiag.h>

enum { ROUNDS = 9, WAYS = 5 };

static const char fields[] = "pid,ppid,comm,euid,state,rss_bytes,vsize_bytes,utime_ns,stime_ns,start_ns,threads_count";
static td_handle *handle;
static td_query *query;
static td_table *table;
static struct pids_info *procps;
static const char *socket_path;

static double now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static void ask(void)
{
	td_error *error = NULL;

	if (td_ask(handle, query, &table, &error) != TD_OK) {
		fprintf(stderr, "bench: %s\n", td_error_message(error));
		exit(1);
	}
}

/* The resident memory of all, so that the values are looked at. */
static uint64_t by_procps(void)
{
	uint64_t sum = 0;
	struct pids_fetch *fetched = procps_pids_reap(procps, PIDS_FETCH_TASKS_ONLY);

	for (int i = 0; i < fetched->counts->total; i++)
		sum += PIDS_VAL(6, ul_int, fetched->stacks[i], procps) + (uint64_t)PIDS_VAL(0, s_int, fetched->stacks[i], procps) % 1;
	return sum * 1024;
}

static uint64_t by_columns(void)
{
	uint64_t sum = 0;

	ask();
	const uint64_t *resident = td_column_u64(table, TD_FIELD_RSS_BYTES);
	for (size_t row = 0; row < td_table_len(table); row++)
		sum += resident[row];
	return sum;
}

static uint64_t by_rows(void)
{
	size_t len, bytes = 0;
	uint64_t sum = 0;

	ask();
	const td_field *asked = td_table_fields(table, &len);
	for (size_t row = 0; row < td_table_len(table); row++)
		for (size_t i = 0; i < len; i++) {
			if (asked[i] == TD_FIELD_COMM)
				bytes += td_text_of(table, row, asked[i]).len;
			else if (asked[i] == TD_FIELD_RSS_BYTES)
				sum += td_u64(table, row, asked[i], 0);
			else
				bytes += td_u64(table, row, asked[i], 0) & 1;
		}
	return sum + (bytes == 1);
}

static td_handle *handle_of(const char *source)
{
	td_handle *made = td_handle_new();

	td_handle_source(made, source, NULL);
	if (strcmp(source, "broker") == 0)
		td_handle_socket(made, socket_path, NULL);
	return made;
}

static int ascending(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name, *source;
		uint64_t (*measure)(void);
	} ways[WAYS] = {
		{ "libproc2, procps_pids_reap()", "procfs", by_procps },
		{ "BPF, columns", "bpf", by_columns },
		{ "BPF, rows, all values", "bpf", by_rows },
		{ "broker, columns", "broker", by_columns },
		{ "procfs, columns", "procfs", by_columns },
	};
	static enum pids_item items[] = { PIDS_ID_PID, PIDS_ID_PPID, PIDS_CMD, PIDS_ID_EUID, PIDS_STATE, PIDS_VM_SIZE,
					  PIDS_VM_RSS, PIDS_TICS_USER, PIDS_TICS_SYSTEM, PIDS_TICS_BEGAN, PIDS_NLWP };
	double times[WAYS][ROUNDS], processor[WAYS][ROUNDS];
	td_handle *handles[WAYS];

	if (argc != 3 || procps_pids_new(&procps, items, sizeof(items) / sizeof(*items)) < 0)
		return 2;
	socket_path = argv[2];
	query = td_query_new(TD_PROCESSES);
	td_query_fields(query, fields, NULL);
	for (int way = 0; way < WAYS; way++)
		handles[way] = handle_of(ways[way].source);
	/* The first round loads and connects. */
	for (int round = -1; round < ROUNDS; round++) {
		for (int way = 0; way < WAYS; way++) {
			handle = handles[way];
			double began = now(CLOCK_MONOTONIC), used = now(CLOCK_PROCESS_CPUTIME_ID);
			if (ways[way].measure() == 0)
				return 1;
			if (round >= 0) {
				processor[way][round] = now(CLOCK_PROCESS_CPUTIME_ID) - used;
				times[way][round] = now(CLOCK_MONOTONIC) - began;
			}
		}
	}
	for (int way = 0; way < WAYS; way++) {
		td_handle_free(handles[way]);
		qsort(times[way], ROUNDS, sizeof(double), ascending);
		qsort(processor[way], ROUNDS, sizeof(double), ascending);
	}
	printf("%s processes, median of %d, milliseconds:\n\n", argv[1], ROUNDS);
	printf("| | time | fastest | slowest | processor | libproc2's time | libproc2's processor time |\n|---|---|---|---|---|---|---|\n");
	for (int way = 0; way < WAYS; way++)
		printf("| %s | %.2f | %.2f | %.2f | %.2f | %.1fx | %.1fx |\n", ways[way].name, times[way][ROUNDS / 2], times[way][0],
		       times[way][ROUNDS - 1], processor[way][ROUNDS / 2], times[0][ROUNDS / 2] / times[way][ROUNDS / 2],
		       processor[0][ROUNDS / 2] / processor[way][ROUNDS / 2]);
	printf("\n");
	td_table_free(table);
	td_query_free(query);
	procps_pids_unref(&procps);
	return 0;
}
