/* Lists processes, or those of one user: ps [UID] */
#include <inttypes.h>
#include <stdio.h>
#include <taskdiag.h>

/* Processes choose their names. Control characters must not reach the terminal. */
static void print(td_text text)
{
	putchar(' ');
	for (size_t i = 0; i < text.len; i++)
		putchar((unsigned char)text.data[i] < ' ' || text.data[i] == 127 ? '?' : text.data[i]);
}

int main(int argc, char **argv)
{
	char where[64] = "not kernel_thread";
	td_handle *handle = td_handle_new();
	td_table *table = NULL;
	td_error *error = NULL;
	if (argc > 1)
		snprintf(where, sizeof(where), "uid == %.40s", argv[1]);
	if (td_processes(handle, "pid,state,rss_bytes,comm,cmdline", where, &table, &error) != TD_OK)
		fprintf(stderr, "ps: %s\n", td_error_message(error));
	for (size_t row = 0; row < td_table_len(table); row++) {
		td_text arguments = td_text_of(table, row, TD_FIELD_CMDLINE), argument;
		td_absent absent = td_absent_of(table, row, TD_FIELD_RSS_BYTES);
		printf("%7" PRIu64 " %c ", td_u64(table, row, TD_FIELD_PID, 0),
		       (char)td_u64(table, row, TD_FIELD_STATE, '?'));
		if (absent)
			printf("%12s", td_absent_name(absent));
		else
			printf("%12" PRIu64, td_u64(table, row, TD_FIELD_RSS_BYTES, 0));
		if (arguments.len == 0)
			print(td_text_of(table, row, TD_FIELD_COMM));
		while (td_text_next(&arguments, &argument))
			print(argument);
		putchar('\n');
	}
	int status = error != NULL;
	td_error_free(error);
	td_table_free(table);
	td_handle_free(handle);
	return status;
}
