/* The cases of conformance/cases.json: see the README there.
 *
 *	conformance CASES USER COMMAND SOCKET NAME=PID...
 *
 * USER is "root" or "nobody", who runs this. COMMAND is taskdiag. A NAME is that of the zoo. */
#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <unistd.h>

#include <jansson.h>

#include "check.h"

static const char *user, *command, *broker;
static int animal_count;
static char **animals;
static unsigned checks;

/* The process of an animal; 0 if it does not run. */
static uint64_t pid_of(const char *name)
{
	for (int i = 0; i < animal_count; i++) {
		size_t len = strlen(name);
		if (strncmp(animals[i], name, len) == 0 && animals[i][len] == '=')
			return strtoull(animals[i] + len + 1, NULL, 10);
	}
	return 0;
}

/* Bytes as the command's JSON has them. */
static json_t *json_bytes(td_text text)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	json_t *plain = json_stringn(text.data, text.len);

	if (plain != NULL)
		return plain;
	char *encoded = malloc(text.len / 3 * 4 + 5), *at = encoded;
	CHECK(encoded != NULL);
	for (size_t i = 0; i < text.len; i += 3) {
		uint32_t word = 0;
		for (size_t k = 0; k < 3; k++)
			word = word << 8 | (i + k < text.len ? (unsigned char)text.data[i + k] : 0);
		for (int k = 0; k < 4; k++)
			*at++ = i + (size_t)k <= text.len ? digits[word >> (18 - 6 * k) & 63] : '=';
	}
	*at = 0;
	json_t *made = json_object();
	json_object_set_new(made, "base64", json_string(encoded));
	free(encoded);
	return made;
}

static json_t *json_limits(const uint64_t *numbers)
{
	static const char *const names[] = { "cpu", "fsize", "data", "stack", "core", "rss", "nproc", "nofile",
					     "memlock", "as", "locks", "sigpending", "msgqueue", "nice", "rtprio", "rttime" };
	json_t *limits = json_object();

	for (size_t i = 0; i < 16; i++) {
		json_t *both = json_object();
		for (size_t k = 0; k < 2; k++) {
			uint64_t limit = numbers[2 * i + k];
			json_object_set_new(both, k ? "hard" : "soft",
					    limit == UINT64_MAX ? json_string("unlimited") : json_integer((json_int_t)limit));
		}
		json_object_set_new(limits, names[i], both);
	}
	return limits;
}

static json_t *json_value(const td_table *table, size_t row, td_field field)
{
	uint64_t number = td_u64(table, row, field, 0);
	td_text text = td_text_of(table, row, field), item;
	td_ids ids = td_ids_of(table, row, field);
	char written[32], letter = (char)number;
	json_t *list;

	switch (td_field_kind(field)) {
	case TD_KIND_CAPABILITIES:
	case TD_KIND_SIGNALS:
	case TD_KIND_MASK:
	case TD_KIND_ADDRESS:
		snprintf(written, sizeof(written), "0x%" PRIx64, number);
		return json_string(written);
	case TD_KIND_SIGNED:
		return json_integer(td_i64(table, row, field, 0));
	case TD_KIND_PERCENT:
		return json_real(td_f64(table, row, field, 0));
	case TD_KIND_FLAG:
		return json_boolean(number);
	case TD_KIND_LETTER:
		return json_stringn(&letter, 1);
	case TD_KIND_TEXT:
	case TD_KIND_TIME:
	case TD_KIND_CPUS:
		return json_bytes(text);
	case TD_KIND_TEXTS:
		for (list = json_array(); td_text_next(&text, &item);)
			json_array_append_new(list, json_bytes(item));
		return list;
	case TD_KIND_IDS:
		list = json_array();
		for (size_t i = 0; i < ids.len; i++)
			json_array_append_new(list, json_integer(ids.data[i]));
		return list;
	case TD_KIND_LIMITS:
		return json_limits(td_limits_of(table, row, field));
	default:
		return json_integer((json_int_t)number);
	}
}

/* A table as the command's JSON has it. */
static json_t *json_rows(const td_table *table)
{
	json_t *rows = json_array();
	size_t len;
	const td_field *fields = td_table_fields(table, &len);

	for (size_t row = 0; row < td_table_len(table); row++) {
		json_t *made = json_object(), *absent = json_object();
		for (size_t i = 0; i < len; i++) {
			td_absent reason = td_absent_of(table, row, fields[i]);
			if (reason != TD_PRESENT)
				json_object_set_new(absent, td_field_name(fields[i]), json_string(td_absent_name(reason)));
			else
				json_object_set_new(made, td_field_name(fields[i]), json_value(table, row, fields[i]));
		}
		if (json_object_size(absent) > 0)
			json_object_set_new(made, "absent", absent);
		else
			json_decref(absent);
		json_array_append_new(rows, made);
	}
	return rows;
}

/* A number if the text is one, and otherwise the text. */
static json_t *json_word(const char *word, json_int_t times)
{
	char *end;
	long long number = strtoll(word, &end, 10);

	return *word != 0 && *end == 0 ? json_integer(number * times) : json_string(word);
}

static size_t read_file(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "r");

	CHECK(file != NULL);
	size_t len = fread(text, 1, size - 1, file);
	text[len] = 0;
	fclose(file);
	return len;
}

/* What /proc has, as JSON has it. */
static json_t *of_proc(json_t *relation, uint64_t pid)
{
	static char text[1 << 16];
	const char *line = json_string_value(json_object_get(relation, "line"));
	json_int_t times = json_integer_value(json_object_get(relation, "times"));
	json_int_t stat = json_integer_value(json_object_get(relation, "stat"));
	json_int_t word = json_integer_value(json_object_get(relation, "word"));
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "/proc/%" PRIu64 "/%s", pid, json_string_value(json_object_get(relation, "file")));
	if (json_is_true(json_object_get(relation, "link"))) {
		ssize_t len = readlink(path, text, sizeof(text) - 1);
		CHECK(len > 0);
		return json_bytes((td_text){ text, (size_t)len });
	}
	if (json_is_true(json_object_get(relation, "entries"))) {
		json_int_t count = 0;
		DIR *directory = opendir(path);
		CHECK(directory != NULL);
		for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
			count += entry->d_name[0] != '.';
		closedir(directory);
		return json_integer(count);
	}
	size_t len = read_file(path, text, sizeof(text));
	if (json_is_true(json_object_get(relation, "args"))) {
		json_t *list = json_array();
		for (td_text rest = { text, len }, item; td_text_next(&rest, &item);)
			json_array_append_new(list, json_bytes(item));
		return list;
	}
	if (stat == 0 && line == NULL)
		return json_bytes((td_text){ text, len - (len > 0 && text[len - 1] == '\n') });
	/* The words of a line, or those behind the name, which is the second of stat. */
	char *at = text;
	if (stat > 0)
		at = strrchr(text, ')') + 1;
	else
		while (strncmp(at, line, strlen(line)) != 0 || at[strlen(line)] != ':')
			CHECK((at = strchr(at, '\n')) != NULL && *++at != 0);
	char *found = strtok(stat > 0 ? at : at + strlen(line) + 1, " \t\n");
	for (json_int_t i = stat > 0 ? 3 : 0; i < (stat > 0 ? stat : word); i++)
		found = strtok(NULL, " \t\n");
	CHECK(found != NULL);
	return json_word(found, times > 0 ? times : 1);
}

/* The names in a list with commas between them. */
static void join(char *to, size_t size, json_t *list)
{
	json_t *each;
	size_t i;

	*to = 0;
	json_array_foreach(list, i, each)
		snprintf(to + strlen(to), size - strlen(to), "%s%s", i ? "," : "", json_string_value(each));
}

static void must_be_equal(json_t *is, json_t *expected, const char *of, const char *what)
{
	/* As text, so that the order of keys counts. */
	char *left = json_dumps(is, JSON_ENCODE_ANY), *right = json_dumps(expected, JSON_ENCODE_ANY);

	if (left == NULL || right == NULL || strcmp(left, right) != 0) {
		fprintf(stderr, "%s: %s:\n%s\nand not\n%s\n", of, what, left, right);
		exit(1);
	}
	free(left);
	free(right);
	json_decref(expected);
	checks++;
}

/* What rows can be about. */
static const struct rows {
	const char *name;
	td_scope scope;
	/* The command that prints them, up to the processes. */
	const char *command;
	/* Whose they are; TD_FIELD_NONE if they may be several's. */
	td_field pid;
} all_rows[] = {
	{ "processes", TD_PROCESSES, "ps -p", TD_FIELD_PID },
	{ "threads", TD_THREADS, "ps -T -p", TD_FIELD_PID },
	{ "files", TD_FILES, "files -p", TD_FILE_PID },
	{ "sockets", TD_SOCKETS, "sockets -p", TD_FIELD_NONE },
	{ "maps", TD_MAPS, "maps", TD_MAP_PID },
};

static const struct rows *rows_of(json_t *each)
{
	const char *name = json_string_value(json_object_get(each, "rows"));

	for (size_t i = 0; i < sizeof(all_rows) / sizeof(*all_rows); i++)
		if (strcmp(name ? name : "processes", all_rows[i].name) == 0)
			return &all_rows[i];
	fprintf(stderr, "rows of %s are not known\n", name);
	exit(1);
}

/* The rows that the command prints. */
static json_t *of_command(json_t *each, const char *source, const char *fields, const char *pids)
{
	const char *where = json_string_value(json_object_get(each, "where"));
	const struct rows *rows = rows_of(each);
	char line[8192];
	json_error_t error;

	snprintf(line, sizeof(line), "%s %s %s -o %s --json --source %s%s%s %s%s%s", command, rows->command, pids, fields, source,
		 strcmp(source, "broker") == 0 ? " --socket " : "", strcmp(source, "broker") == 0 ? broker : "",
		 where ? "--where \"" : "", where ? where : "", where ? "\"" : "");
	FILE *pipe = popen(line, "r");
	CHECK(pipe != NULL);
	json_t *document = json_loadf(pipe, 0, &error);
	pclose(pipe);
	CHECK(document != NULL);
	json_t *found = json_incref(json_object_get(document, "rows"));
	json_decref(document);
	return found;
}

/* Whether a row has all these values. */
static bool has_values(json_t *row, json_t *values)
{
	const char *name;
	json_t *value;

	json_object_foreach(values, name, value)
		if (!json_equal(json_object_get(row, name), value))
			return false;
	return true;
}

/* The rows of one animal. */
static void check_rows(json_t *each, const char *name, uint64_t pid, json_t *rows)
{
	const char *of = json_string_value(json_object_get(each, "name"));
	const struct rows *about = rows_of(each);
	bool is_task = about->pid == TD_FIELD_PID;
	json_t *expected = json_object_get(json_object_get(each, "rows_expected"), name);
	json_t *reasons = json_object_get(json_object_get(each, "absent"), name), *row, *relation;
	json_int_t count = 0;
	size_t i, k;

	json_array_foreach(rows, i, row) {
		if (about->pid != TD_FIELD_NONE && (uint64_t)json_integer_value(json_object_get(row, "pid")) != pid)
			continue;
		count++;
		if (!is_task && reasons == NULL)
			continue;
		json_t *absent = json_object_get(row, "absent"), *none = json_object();
		must_be_equal(absent ? absent : none, reasons ? json_incref(reasons) : json_object(), of, "what is absent");
		json_decref(none);
	}
	if (is_task || expected != NULL)
		CHECK(count == (expected ? json_integer_value(expected) : 1));
	else
		CHECK(count > 0);
	json_array_foreach(json_object_get(each, "proc"), k, relation) {
		const char *field = json_string_value(json_object_get(relation, "field"));
		json_int_t compared = 0;
		json_array_foreach(rows, i, row) {
			if ((uint64_t)json_integer_value(json_object_get(row, "pid")) != pid || !has_values(row, json_object_get(relation, "row")))
				continue;
			must_be_equal(json_object_get(row, field), of_proc(relation, pid), of, field);
			compared++;
		}
		CHECK(compared > 0 || count == 0);
	}
}

static void check_error(json_t *each, td_handle *handle, const char *fields)
{
	json_t *error_of = json_object_get(each, "error"), *part;
	td_table *table = NULL;
	td_error *error = NULL;
	size_t i;

	td_code code = td_processes(handle, fields, json_string_value(json_object_get(each, "where")), &table, &error);
	CHECK(strcmp(td_code_name(code), json_string_value(json_object_get(error_of, "kind"))) == 0);
	json_array_foreach(json_object_get(error_of, "mentions"), i, part)
		CHECK(strstr(td_error_message(error), json_string_value(part)) != NULL);
	td_error_free(error);
	checks++;
}

static void check_case(json_t *each, const char *source)
{
	const char *of, *where;
	td_handle *handle = handle_of(source);
	td_query *query = td_query_new(rows_of(each)->scope);
	td_table *table = NULL;
	char fields[4096], text[4096] = "";
	uint32_t pids[64];
	size_t i, count = 0;
	json_t *name;

	of = json_string_value(json_object_get(each, "name"));
	where = json_string_value(json_object_get(each, "where"));
	join(fields, sizeof(fields), json_object_get(each, "fields"));
	if (json_object_get(each, "error") != NULL) {
		check_error(each, handle, fields);
		td_query_free(query);
		td_handle_free(handle);
		return;
	}
	json_array_foreach(json_object_get(each, "zoo"), i, name) {
		uint64_t pid = pid_of(json_string_value(name));
		if (pid == 0)
			continue;
		CHECK(count < 64);
		pids[count++] = (uint32_t)pid;
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%" PRIu64, count > 1 ? "," : "", pid);
	}
	CHECK(count > 0);
	OK(td_query_fields(query, fields, &error));
	if (where != NULL)
		OK(td_query_where(query, where, &error));
	OK(td_query_pids(query, pids, count, &error));
	OK(td_ask(handle, query, &table, &error));
	json_t *rows = json_rows(table);
	json_array_foreach(json_object_get(each, "zoo"), i, name)
		if (pid_of(json_string_value(name)) != 0)
			check_rows(each, json_string_value(name), pid_of(json_string_value(name)), rows);
	if (json_is_true(json_object_get(each, "command")))
		must_be_equal(rows, of_command(each, source, fields, text), of, "the command's rows");
	json_decref(rows);
	td_table_free(table);
	td_query_free(query);
	td_handle_free(handle);
}

static bool has(json_t *list, const char *wanted)
{
	json_t *each;
	size_t i;

	json_array_foreach(list, i, each)
		if (strcmp(json_string_value(each), wanted) == 0)
			return true;
	return false;
}

const char *sources[3];
size_t source_count;

td_handle *handle_of(const char *source)
{
	td_handle *handle = td_handle_new();

	OK(td_handle_source(handle, source, &error));
	if (strcmp(source, "broker") == 0)
		OK(td_handle_socket(handle, broker, &error));
	return handle;
}

int main(int argc, char **argv)
{
	json_t *each, *source;
	size_t i, k;
	unsigned runs = 0;
	json_error_t error;

	CHECK(argc > 5);
	json_t *cases = json_load_file(argv[1], 0, &error);
	CHECK(json_is_array(cases));
	user = argv[2];
	command = argv[3];
	broker = argv[4];
	animals = argv + 5;
	animal_count = argc - 5;
	json_array_foreach(cases, i, each) {
		if (!has(json_object_get(each, "as"), user))
			continue;
		json_array_foreach(json_object_get(each, "sources"), k, source) {
			const char *name = json_string_value(source);
			/* Nobody can't load programs, and gets from the broker what nobody's processes have. */
			if (strcmp(user, "root") != 0 && strcmp(name, "procfs") != 0)
				continue;
			check_case(each, name);
			runs++;
		}
	}
	json_decref(cases);
	printf("%s: %u cases, %u comparisons\n", user, runs, checks);
	CHECK(runs >= 5 && checks >= 20);
	return 0;
}
