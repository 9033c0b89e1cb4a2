/* Open files, mappings, the page cache and events are those of the kernel. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* The row of a descriptor of this process; ends the test if there is none. */
static size_t row_of_fd(const td_table *table, int fd)
{
	for (size_t row = 0; row < td_table_len(table); row++)
		if (td_u64(table, row, TD_FILE_PID, 0) == (uint64_t)getpid() && td_u64(table, row, TD_FILE_FD, UINT64_MAX) == (uint64_t)fd)
			return row;
	fprintf(stderr, "descriptor %d is missing\n", fd);
	exit(1);
}

/* A row about a descriptor of this process has what stat(2), lseek(2), readlink(2) and fdinfo say. */
static void check_file(const td_table *table, int fd)
{
	size_t row = row_of_fd(table, fd);
	char path[64], name[4096] = "";
	struct stat is;

	CHECK(fstat(fd, &is) == 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK(readlink(path, name, sizeof(name) - 1) > 0);
	CHECK(is_text(td_text_of(table, row, TD_FILE_NAME), name));
	CHECK(is_text(td_text_of(table, row, TD_FILE_USE), "fd"));
	CHECK(td_u64(table, row, TD_FILE_INODE, 0) == is.st_ino);
	CHECK(td_u64(table, row, TD_FILE_DEV_MAJOR, UINT64_MAX) == major(is.st_dev));
	CHECK(td_u64(table, row, TD_FILE_DEV_MINOR, UINT64_MAX) == minor(is.st_dev));
	CHECK(td_u64(table, row, TD_FILE_SIZE_BYTES, UINT64_MAX) == (uint64_t)is.st_size);
	CHECK(td_u64(table, row, TD_FILE_ALLOCATED_BYTES, UINT64_MAX) == (uint64_t)is.st_blocks * 512);
	CHECK(td_u64(table, row, TD_FILE_NLINK, UINT64_MAX) == is.st_nlink);
	CHECK(td_u64(table, row, TD_FILE_DELETED, 7) == (is.st_nlink == 0));
	off_t at = lseek(fd, 0, SEEK_CUR);
	CHECK(td_i64(table, row, TD_FILE_OFFSET_BYTES, -1) == (at < 0 ? 0 : at));
	int flags = fcntl(fd, F_GETFL), descriptor = fcntl(fd, F_GETFD);
	uint64_t expected = (uint64_t)flags | (descriptor & FD_CLOEXEC ? O_CLOEXEC : 0);
	CHECK(td_u64(table, row, TD_FILE_OPEN_FLAGS, 0) == expected);
}

/* The files of this process are those of the kernel, and are found by path, kind and use. */
static void own_files(const char *source)
{
	static const char fields[] = "pid,comm,use,fd,kind,anon_kind,access,open_flags,offset_bytes,size_bytes,allocated_bytes,"
				     "dev_major,dev_minor,inode,nlink,deleted,mnt_id,name,peer_pids,peer_fds,peer_comms";
	char path[] = "/tmp/taskdiag-test-XXXXXX";
	td_handle *handle = handle_of(source);
	td_query *query = td_query_new(TD_FILES), *by_path = td_query_new(TD_FILES);
	td_table *table = NULL;
	uint32_t self = (uint32_t)getpid();
	int file = mkostemp(path, O_CLOEXEC), deleted = memfd_create("of a test", 0), ends[2], event = eventfd(3, 0);
	size_t len, row;

	CHECK(file >= 0 && deleted >= 0 && event >= 0 && pipe2(ends, O_NONBLOCK) == 0);
	CHECK(write(file, "0123456789", 10) == 10 && lseek(file, 4, SEEK_SET) == 4);
	OK(td_query_fields(query, fields, &error));
	OK(td_query_pids(query, &self, 1, &error));
	for (int turn = 0; turn < 2; turn++) {
		OK(td_ask(handle, query, &table, &error));
		const int fds[] = { file, deleted, ends[0], ends[1] };
		for (size_t i = 0; i < 4; i++)
			check_file(table, fds[i]);
		row = row_of_fd(table, file);
		CHECK(is_text(td_text_of(table, row, TD_FILE_ACCESS), "rw") && is_text(td_text_of(table, row, TD_FILE_KIND), "file"));
		CHECK(td_absent_of(table, row, TD_FILE_ANON_KIND) == TD_ABSENT_NOT_APPLICABLE);
		CHECK(td_absent_of(table, row, TD_FILE_PEER_PIDS) == TD_ABSENT_NOT_APPLICABLE);
		CHECK(td_absent_of(table, row, TD_FILE_DETAIL) == TD_ABSENT_NOT_ASKED);
		row = row_of_fd(table, event);
		CHECK(is_text(td_text_of(table, row, TD_FILE_ANON_KIND), "eventfd"));
		/* What can be written to one end can be read from the other. */
		row = row_of_fd(table, ends[0]);
		td_ids fds_there = td_ids_of(table, row, TD_FILE_PEER_FDS), pids = td_ids_of(table, row, TD_FILE_PEER_PIDS);
		CHECK(fds_there.len == 1 && fds_there.data[0] == (uint32_t)ends[1] && pids.data[0] == self);
		td_text names = td_text_of(table, row, TD_FILE_PEER_COMMS), name;
		CHECK(td_text_next(&names, &name) && name.len > 0 && !td_text_next(&names, &name));
		CHECK(strcmp(td_table_source(table, TD_FILE_NAME), source) == 0 && td_table_source(table, TD_FILE_DETAIL) == NULL);
		CHECK(td_table_counter(table, "files", 0) == td_table_len(table));
		const td_field *all = td_table_fields(table, &len);
		CHECK(len == 21);
		for (size_t i = 0; i < len; i++)
			same_column(table, all[i]);
	}
	/* A file that is not a descriptor has no number. */
	OK(td_query_uses(query, "cwd,exe", &error));
	OK(td_ask(handle, query, &table, &error));
	CHECK(td_table_len(table) == 2 && is_text(td_text_of(table, 0, TD_FILE_USE), "cwd"));
	CHECK(td_absent_of(table, 0, TD_FILE_FD) == TD_ABSENT_NOT_APPLICABLE && td_u64(table, 0, TD_FILE_FD, 77) == 77);

	OK(td_query_fields(by_path, "pid,fd", &error));
	OK(td_query_path(by_path, path, &error));
	OK(td_ask(handle, by_path, &table, &error));
	CHECK(td_table_len(table) == 1);
	row_of_fd(table, file);
	OK(td_query_kinds(by_path, "socket,epoll", &error));
	OK(td_ask(handle, by_path, &table, &error));
	CHECK(td_table_len(table) == 0 && td_table_counter(table, "files", 7) == 0);
	/* The file is gone: the path leads nowhere. */
	unlink(path);
	FAILS(TD_SYSTEM, path, td_ask(handle, by_path, &table, &error));
	CHECK(td_table_len(table) == 0);
	td_query_free(by_path);
	by_path = td_query_new(TD_FILES);
	OK(td_query_fields(by_path, "pid,fd,nlink,deleted", &error));
	OK(td_query_where(by_path, "pid > 0", &error));
	OK(td_query_pids(by_path, (uint32_t[]){ self, INT32_MAX }, 2, &error));
	OK(td_query_deleted(by_path, &error));
	OK(td_ask(handle, by_path, &table, &error));
	CHECK(td_u64(table, row_of_fd(table, file), TD_FILE_NLINK, 7) == 0 && td_u64(table, row_of_fd(table, deleted), TD_FILE_DELETED, 7) == 1);
	const uint32_t *gone = td_table_missing(table, &len);
	CHECK(len == 1 && gone[0] == INT32_MAX);
	close(file), close(deleted), close(event), close(ends[0]), close(ends[1]);
	td_table_free(table);
	td_query_free(query);
	td_query_free(by_path);
	td_handle_free(handle);
}

/* The line of /proc/PID/maps that begins at an address. */
static void line_of_maps(uint64_t start, char *line, size_t size)
{
	FILE *file = fopen("/proc/./self/maps", "r");

	CHECK(file != NULL);
	do
		CHECK(fgets(line, (int)size, file) != NULL);
	while (strtoull(line, NULL, 16) != start);
	fclose(file);
	line[strcspn(line, "\n")] = 0;
}

/* A row about a mapping has what the line of /proc/PID/maps has. */
static void check_mapping(const td_table *table, size_t row)
{
	char line[4096], made[4096];
	td_text name = td_text_of(table, row, TD_MAP_NAME), perms = td_text_of(table, row, TD_MAP_PERMS);
	uint64_t start = td_u64(table, row, TD_MAP_START, 0), end = td_u64(table, row, TD_MAP_END, 0);

	line_of_maps(start, line, sizeof(line));
	int len = snprintf(made, sizeof(made), "%08" PRIx64 "-%08" PRIx64 " %.*s %08" PRIx64 " %02" PRIx64 ":%02" PRIx64 " %" PRIu64, start, end,
			   (int)perms.len, perms.data, td_u64(table, row, TD_MAP_OFFSET_BYTES, 1), td_u64(table, row, TD_MAP_DEV_MAJOR, 99),
			   td_u64(table, row, TD_MAP_DEV_MINOR, 99), td_u64(table, row, TD_MAP_INODE, 1));
	CHECK(strncmp(line, made, (size_t)len) == 0);
	const char *rest = line + len + strspn(line + len, " ");
	CHECK(is_text(name, rest));
	CHECK(td_u64(table, row, TD_MAP_SIZE_BYTES, 0) == end - start);
	CHECK(td_u64(table, row, TD_MAP_PID, 0) == (uint64_t)getpid());
}

static size_t row_of_address(const td_table *table, const void *address)
{
	for (size_t row = 0; row < td_table_len(table); row++)
		if (td_u64(table, row, TD_MAP_START, 0) == (uintptr_t)address)
			return row;
	fprintf(stderr, "mapping %p is missing\n", address);
	exit(1);
}

/* A mapping of a deleted file, of which two of four pages were changed, is among the mappings. */
static void mappings(const char *source)
{
	static const char fields[] = "pid,start,end,size_bytes,perms,offset_bytes,dev_major,dev_minor,inode,name";
	size_t page = (size_t)sysconf(_SC_PAGESIZE), len;
	char path[] = "/tmp/taskdiag-test-XXXXXX";
	td_handle *handle = handle_of(source);
	td_table *table = NULL;
	siginfo_t ended;
	int file = mkstemp(path);

	CHECK(file >= 0 && ftruncate(file, (off_t)(5 * page)) == 0 && unlink(path) == 0);
	char *mapped = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, (off_t)page);
	CHECK(mapped != MAP_FAILED);
	mapped[0] = mapped[page] = 1;
	for (int turn = 0; turn < 2; turn++) {
		OK(td_maps(handle, (uint32_t)getpid(), fields, &table, &error));
		CHECK(td_table_len(table) > 5 && td_table_counter(table, "mappings", 0) == td_table_len(table));
		check_mapping(table, row_of_address(table, mapped));
		const td_field *all = td_table_fields(table, &len);
		for (size_t i = 0; i < len; i++)
			same_column(table, all[i]);
		CHECK(td_table_source(table, TD_MAP_NAME) != NULL && td_table_source(table, TD_MAP_BUILD_ID) == NULL);
	}
	OK(td_maps(handle, (uint32_t)getpid(), "start,build_id,page_size_bytes", &table, &error));
	CHECK(td_absent_of(table, row_of_address(table, mapped), TD_MAP_BUILD_ID) == TD_ABSENT_NOT_APPLICABLE);
	if (strcmp(source, "procfs") == 0) {
		CHECK(strcmp(td_table_source(table, TD_MAP_START), "procfs") == 0);
		OK(td_maps(handle, (uint32_t)getpid(), "all", &table, &error));
		size_t row = row_of_address(table, mapped);
		CHECK(td_u64(table, row, TD_MAP_PAGE_SIZE_BYTES, 0) == page);
		CHECK(td_u64(table, row, TD_MAP_RSS_BYTES, 0) >= 2 * page && td_u64(table, row, TD_MAP_DIRTY_BYTES, 0) == 2 * page);
	}
	FAILS(TD_NO_SUCH_TASK, "2147483647", td_maps(handle, INT32_MAX, fields, &table, &error));
	CHECK(td_table_len(table) == 0);
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	CHECK(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT) == 0);
	FAILS(TD_NO_MEMORY, "", td_maps(handle, (uint32_t)child, fields, &table, &error));
	CHECK(waitpid(child, NULL, 0) == child);
	munmap(mapped, 4 * page);
	close(file);
	td_table_free(table);
	td_handle_free(handle);
}

/* How many bytes of a file are cached, as mincore(2) has it. */
static uint64_t cached(const char *path, size_t size)
{
	unsigned char pages[16];
	size_t page = (size_t)sysconf(_SC_PAGESIZE), count = 0;
	int file = open(path, O_RDWR);
	void *mapped = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);

	CHECK(file >= 0 && mapped != MAP_FAILED && size <= sizeof(pages) * page && mincore(mapped, size, pages) == 0);
	for (size_t i = 0; i < (size + page - 1) / page; i++)
		count += pages[i] & 1;
	munmap(mapped, size);
	close(file);
	return count * page;
}

/* Files that were just written are in the page cache; those of a directory are in the order of paths. */
static void page_cache(void)
{
	char directory[] = "/tmp/taskdiag-test-XXXXXX", paths[2][64];
	td_handle *handle = td_handle_new();
	td_table *table = NULL;
	size_t page = (size_t)sysconf(_SC_PAGESIZE), len;

	CHECK(mkdtemp(directory) != NULL);
	for (size_t i = 0; i < 2; i++) {
		snprintf(paths[i], sizeof(paths[i]), "%s/%c", directory, i ? 'a' : 'b');
		FILE *file = fopen(paths[i], "w");
		CHECK(file != NULL);
		for (size_t byte = 0; byte < (i + 1) * page + 1; byte++)
			CHECK(fputc('x', file) == 'x');
		CHECK(fclose(file) == 0);
	}
	OK(td_cachestat(handle, paths[0], "path,size_bytes,cached_bytes,dirty_bytes", &table, &error));
	CHECK(td_table_len(table) == 1 && is_text(td_text_of(table, 0, TD_CACHE_PATH), paths[0]));
	CHECK(td_u64(table, 0, TD_CACHE_SIZE_BYTES, 0) == page + 1);
	CHECK(td_u64(table, 0, TD_CACHE_CACHED_BYTES, 0) == cached(paths[0], page + 1));
	CHECK(td_u64(table, 0, TD_CACHE_CACHED_BYTES, 0) == 2 * page);
	bool is_mincore = strcmp(td_table_source(table, TD_CACHE_PATH), "mincore") == 0;
	CHECK(td_absent_of(table, 0, TD_CACHE_DIRTY_BYTES) == (is_mincore ? TD_ABSENT_UNSUPPORTED : TD_PRESENT));
	OK(td_cachestat(handle, directory, "all", &table, &error));
	CHECK(td_table_len(table) == 2 && td_table_counter(table, "files", 0) == 2 && td_table_counter(table, "directories", 0) == 1);
	CHECK(is_text(td_text_of(table, 0, TD_CACHE_PATH), paths[1]) && is_text(td_text_of(table, 1, TD_CACHE_PATH), paths[0]));
	CHECK(td_u64(table, 0, TD_CACHE_CACHED_BYTES, 0) == 3 * page);
	const td_field *all = td_table_fields(table, &len);
	CHECK(len == 7);
	for (size_t i = 0; i < len; i++)
		same_column(table, all[i]);
	for (size_t i = 0; i < 2; i++)
		CHECK(unlink(paths[i]) == 0);
	CHECK(rmdir(directory) == 0);
	FAILS(TD_SYSTEM, directory, td_cachestat(handle, directory, "all", &table, &error));
	FAILS(TD_INVALID_INPUT, "/dev/null", td_cachestat(handle, "/dev/null", "all", &table, &error));
	CHECK(td_table_len(table) == 0);
	td_table_free(table);
	td_handle_free(handle);
}

/* The row of an event of a process; SIZE_MAX if there is none. */
static size_t row_of_event(const td_table *table, const char *event, uint64_t pid)
{
	for (size_t row = 0; row < td_table_len(table); row++)
		if (is_text(td_text_of(table, row, TD_EVENT_EVENT), event) && td_u64(table, row, TD_EVENT_PID, 0) == pid)
			return row;
	return SIZE_MAX;
}

/* A child that executes a program and ends is told of, and nobody else has the events. */
static void events(const char *source)
{
	td_query *query = td_query_new(TD_EVENTS);
	td_events *watched = NULL;
	td_table *table = NULL;
	bool has_exec = false, has_exit = false;
	int status;

	OK(td_query_fields(query, "all", &error));
	OK(td_query_kinds(query, "exec,exit", &error));
	OK(td_events_open(query, source, &watched, &error));
	pid_t child = fork();
	if (child == 0) {
		execl("/bin/sh", "sh", "-c", "exit 7", (char *)NULL);
		_exit(1);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	struct pollfd polled = { .fd = td_events_fd(watched), .events = POLLIN };
	CHECK(poll(&polled, 1, 10000) == 1);
	for (int turn = 0; turn < 100 && !(has_exec && has_exit); turn++) {
		OK(td_events_next(watched, 1, &table, &error));
		size_t row = row_of_event(table, "exec", (uint64_t)child);
		if (row != SIZE_MAX) {
			has_exec = true;
			CHECK(is_text(td_text_of(table, row, TD_EVENT_FILENAME), "/bin/sh"));
			CHECK(is_text(td_text_of(table, row, TD_EVENT_COMM), "sh"));
			CHECK(td_u64(table, row, TD_EVENT_PPID, 0) == (uint64_t)getpid());
			CHECK(td_absent_of(table, row, TD_EVENT_EXIT_CODE) == TD_ABSENT_NOT_APPLICABLE);
		}
		row = row_of_event(table, "exit", (uint64_t)child);
		if (row != SIZE_MAX) {
			has_exit = true;
			CHECK(td_u64(table, row, TD_EVENT_EXIT_CODE, 99) == 7);
			CHECK(td_absent_of(table, row, TD_EVENT_FILENAME) == TD_ABSENT_NOT_APPLICABLE);
			CHECK(td_u64(table, row, TD_EVENT_TIME_NS, 0) > td_u64(table, row, TD_EVENT_START_NS, UINT64_MAX));
		}
		CHECK(td_table_counter(table, "events", 0) == td_table_len(table) && td_table_counter(table, "lost", 9) == 0);
	}
	CHECK(has_exec && has_exit);
	CHECK(strcmp(td_table_source(table, TD_EVENT_PID), "bpf") == 0);
	/* What was read is not there for poll(2) any more. Others may cause events at any time. */
	bool is_over = false;
	for (int turn = 0; turn < 1000 && !is_over; turn++) {
		child = fork();
		if (child == 0)
			_exit(0);
		CHECK(waitpid(child, &status, 0) == child);
		OK(td_events_next(watched, 10, &table, &error));
		is_over = td_table_len(table) > 0 && poll(&polled, 1, 0) == 0;
	}
	CHECK(is_over);
	/* A child has none of them. */
	child = fork();
	if (child == 0) {
		td_code code = td_events_next(watched, 0, &table, NULL);
		td_events_free(watched);
		_exit(code == TD_FORKED ? 0 : 1);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	FAILS(TD_INVALID_INPUT, "timeout", td_events_next(watched, NAN, &table, &error));
	OK(td_events_next(watched, 0, &table, &error));
	td_events_free(watched);
	td_table_free(table);
	td_query_free(query);
}

void test_tables(void)
{
	for (size_t i = 0; i < source_count; i++) {
		own_files(sources[i]);
		mappings(sources[i]);
	}
	page_cache();
	/* They take BPF, or the proc connector of the initial namespaces. */
	if (source_count > 1) {
		events(NULL);
		events("bpf");
	}
}
