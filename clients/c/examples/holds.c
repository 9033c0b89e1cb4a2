/* Prints the processes that use a file, a directory or anything below it, or a file system:
 * holds PATH
 *
 * cc $(pkg-config --cflags taskdiag) holds.c $(pkg-config --libs taskdiag) -o holds */
#include <stdio.h>
#include <taskdiag.h>

/* Control characters in names of processes and files must not reach the terminal. */
static void print(td_text text)
{
	putchar(' ');
	for (size_t i = 0; i < text.len; i++)
		putchar((unsigned char)text.data[i] < ' ' || text.data[i] == 127 ? '?' : text.data[i]);
}

int main(int argc, char **argv)
{
	td_handle *handle = td_handle_new();
	td_query *query = td_query_new(TD_FILES);
	td_table *table = NULL;
	td_error *error = NULL;

	if (td_query_path(query, argc > 1 ? argv[1] : ".", &error) || td_query_fields(query, "pid,comm,use,fd,access,name", &error) ||
	    td_ask(handle, query, &table, &error))
		fprintf(stderr, "holds: %s\n", td_error_message(error));
	for (size_t row = 0; row < td_table_len(table); row++) {
		printf("%7u", (unsigned)td_u64(table, row, TD_FILE_PID, 0));
		print(td_text_of(table, row, TD_FILE_COMM));
		print(td_text_of(table, row, TD_FILE_USE));
		if (!td_absent_of(table, row, TD_FILE_FD))
			printf(" %u", (unsigned)td_u64(table, row, TD_FILE_FD, 0));
		print(td_text_of(table, row, TD_FILE_ACCESS));
		print(td_text_of(table, row, TD_FILE_NAME));
		putchar('\n');
	}
	if (td_table_counter(table, "denied", 0) > 0)
		fprintf(stderr, "holds: some processes do not show their files: ask as root\n");
	int status = td_table_len(table) == 0;
	td_error_free(error);
	td_table_free(table);
	td_query_free(query);
	td_handle_free(handle);
	return status;
}
