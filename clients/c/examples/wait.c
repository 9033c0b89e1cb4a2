/* Waits until a program with this name is executed, and prints who started it: wait NAME (at most
 * 15 bytes)
 *
 * cc $(pkg-config --cflags taskdiag) wait.c $(pkg-config --libs taskdiag) -o wait */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <taskdiag.h>

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "sh";
	td_query *query = td_query_new(TD_EVENTS);
	td_events *events = NULL;
	td_table *table = NULL;
	td_error *error = NULL;
	unsigned found = 0;

	if (!td_query_kinds(query, "exec", &error) && !td_query_fields(query, "pid,ppid,uid,comm", &error) &&
	    !td_events_open(query, NULL, &events, &error))
		while (found == 0 && td_events_next(events, INFINITY, &table, &error) == TD_OK)
			for (size_t row = 0; row < td_table_len(table); row++) {
				td_text comm = td_text_of(table, row, TD_EVENT_COMM);
				if (comm.len != strlen(name) || memcmp(comm.data, name, comm.len) != 0)
					continue;
				found = (unsigned)td_u64(table, row, TD_EVENT_PID, 0);
				printf("%s: pid %u, started by %u, user %u\n", name, found,
				       (unsigned)td_u64(table, row, TD_EVENT_PPID, 0), (unsigned)td_u64(table, row, TD_EVENT_UID, 0));
			}
	if (error)
		fprintf(stderr, "wait: %s\n", td_error_message(error));
	td_error_free(error);
	td_events_free(events);
	td_table_free(table);
	td_query_free(query);
	return found == 0;
}
