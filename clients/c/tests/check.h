/* What the tests have in common. */
#ifndef CHECK_H
#define CHECK_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <taskdiag.h>

#define CHECK(condition)                                                              \
	do {                                                                          \
		if (!(condition)) {                                                   \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			exit(1);                                                      \
		}                                                                     \
	} while (0)

/* Checks that a call of the library succeeded, and prints its error otherwise. */
#define OK(call)                                                                      \
	do {                                                                          \
		td_error *error = NULL;                                               \
		if ((call) != TD_OK) {                                                \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, td_error_message(error)); \
			exit(1);                                                      \
		}                                                                     \
		CHECK(error == NULL);                                                 \
	} while (0)

/* Checks that a call fails with a code, and that its message has these words. */
#define FAILS(expected, words, call)                                                  \
	do {                                                                          \
		td_error *error = NULL;                                               \
		td_code got = (call);                                                 \
		if (got != (expected) || td_error_code(error) != got ||               \
		    strstr(td_error_message(error), (words)) == NULL) {               \
			fprintf(stderr, "%s:%d: %s: %d: %s\n", __FILE__, __LINE__, #call, (int)got, td_error_message(error)); \
			exit(1);                                                      \
		}                                                                     \
		td_error_free(error);                                                 \
	} while (0)

/* The sources that this test may ask, and how many these are. */
extern const char *sources[3];
extern size_t source_count;

/* A handle that asks one source. */
td_handle *handle_of(const char *source);
/* The row of a process; ends the test if there is none. */
size_t row_of(const td_table *table, uint64_t pid);
/* Checks that the column of a field has what its rows have. */
void same_column(const td_table *table, td_field field);
/* Whether a text is that of C. */
bool is_text(td_text text, const char *expected);

/* Groups of tests: one file each. */
void test_values(void);
void test_tables(void);
void test_input(void);
void test_process(void);
/* Asks so often, and fails if the process grows. */
void soak(unsigned long times);

#endif
