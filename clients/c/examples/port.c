/* Prints the processes that use a port: port NUMBER
 *
 * cc $(pkg-config --cflags taskdiag) port.c $(pkg-config --libs taskdiag) -o port */
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
	char where[64];
	int status = 1;
	td_table *table = NULL;
	td_error *error = NULL;

	if (argc != 2) {
		fprintf(stderr, "usage: port NUMBER\n");
		return 2;
	}
	td_handle *handle = td_handle_new();
	snprintf(where, sizeof(where), "local_port == %.20s", argv[1]);
	if (td_sockets(handle, "protocol,state,local_addr,owner_pids,owner_comms", where, &table, &error))
		fprintf(stderr, "port: %s\n", td_error_message(error));
	for (size_t row = 0; row < td_table_len(table); row++) {
		td_absent absent = td_absent_of(table, row, TD_SOCKET_OWNER_PIDS);
		td_ids pids = td_ids_of(table, row, TD_SOCKET_OWNER_PIDS);
		td_text names = td_text_of(table, row, TD_SOCKET_OWNER_COMMS), name;

		print(td_text_of(table, row, TD_SOCKET_PROTOCOL));
		print(td_text_of(table, row, TD_SOCKET_STATE));
		print(td_text_of(table, row, TD_SOCKET_LOCAL_ADDR));
		if (absent)
			printf(" (owners: %s)", td_absent_name(absent));
		for (size_t i = 0; i < pids.len && td_text_next(&names, &name); i++) {
			printf(" %u", (unsigned)pids.data[i]);
			print(name);
		}
		putchar('\n');
		status = 0;
	}
	td_error_free(error);
	td_table_free(table);
	td_handle_free(handle);
	return status;
}
