/* Threads, children of fork(2), and a soak. */
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { THREADS = 4, TURNS = 10 };

static td_handle *shared;
static td_query *query;
static atomic_bool is_ended;

static void *ask_often(void *unused)
{
	td_table *table = NULL;

	for (int turn = 0; turn < TURNS; turn++) {
		OK(td_ask(shared, query, &table, &error));
		row_of(table, (uint64_t)getpid());
	}
	td_table_free(table);
	return unused;
}

static void *read_often(void *table)
{
	for (int turn = 0; turn < TURNS; turn++)
		for (size_t row = 0; row < td_table_len(table); row++)
			CHECK(td_text_of(table, row, TD_FIELD_COMM).len > 0 || td_u64(table, row, TD_FIELD_PID, 0) > 0);
	return NULL;
}

static void in_threads(void *(*work)(void *), void *argument)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, work, argument) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

/* Threads share a handle, and a table. */
static void threads(const char *source)
{
	td_table *table = NULL;

	shared = handle_of(source);
	in_threads(ask_often, NULL);
	OK(td_ask(shared, query, &table, &error));
	in_threads(read_often, table);
	td_table_free(table);
	td_handle_free(shared);
}

/* The exit status of a child that asks; it must end within some seconds. */
static int child_asks(void)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		td_table *table = NULL;
		alarm(20);
		td_code code = td_ask(shared, query, &table, NULL);
		td_handle *own = td_handle_new();
		td_code other = td_ask(own, query, &table, NULL);
		bool has_itself = false;
		for (size_t row = 0; row < td_table_len(table); row++)
			has_itself |= td_u64(table, row, TD_FIELD_PID, 0) == (uint64_t)getpid();
		td_handle_free(own);
		td_handle_free(shared);
		_exit(code != other ? 100 : code == TD_OK && !has_itself ? 101 : (int)code);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void *ask_until_the_end(void *table)
{
	while (!is_ended)
		OK(td_ask(shared, query, (td_table **)table, &error));
	return NULL;
}

/* A child asks like its parent, or says that it was forked at the wrong moment. It never hangs. */
static void forks(const char *source)
{
	td_table *table = NULL;
	pthread_t thread;
	struct timespec pause = { 0, 1000000 };

	shared = handle_of(source);
	OK(td_ask(shared, query, &table, &error));
	CHECK(child_asks() == TD_OK);
	is_ended = false;
	CHECK(pthread_create(&thread, NULL, ask_until_the_end, &table) == 0);
	for (int turn = 0; turn < TURNS; turn++) {
		int code = child_asks();
		CHECK(code == TD_OK || code == TD_FORKED);
		nanosleep(&pause, NULL);
	}
	is_ended = true;
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(child_asks() == TD_OK);
	td_table_free(table);
	td_handle_free(shared);
}

static volatile sig_atomic_t came;

static void count(int signal)
{
	(void)signal;
	came = came + 1;
}

/* Signals interrupt system calls, and no answer. */
static void signals(const char *source)
{
	struct sigaction action = { .sa_handler = count }, before;
	struct itimerval often = { { 0, 1000 }, { 0, 1000 } }, never = { { 0, 0 }, { 0, 0 } };
	td_handle *handle = handle_of(source);
	td_table *table = NULL;
	td_query *files = td_query_new(TD_FILES), *sockets = td_query_new(TD_SOCKETS);
	uint32_t self = (uint32_t)getpid();
	char own[32];

	snprintf(own, sizeof(own), "pid == %" PRIu32, self);
	/* Where the machine is busy, its threads wait, too. */
	OK(td_handle_patience(handle, 10, &error));
	OK(td_query_fields(files, "all", &error));
	OK(td_query_pids(files, &self, 1, &error));
	OK(td_query_fields(sockets, "local_port,owner_pids", &error));
	OK(td_query_pids(sockets, &self, 1, &error));
	CHECK(sigaction(SIGALRM, &action, &before) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (came = 0; came < 50;) {
		OK(td_processes(handle, "all", own, &table, &error));
		CHECK(td_table_len(table) == 1);
		for (size_t i = 0, len; i < (td_table_fields(table, &len), len); i++)
			CHECK(td_absent_of(table, 0, td_table_fields(table, NULL)[i]) != TD_ABSENT_NO_ANSWER);
		OK(td_ask(handle, files, &table, &error));
		CHECK(td_table_len(table) > 0);
		OK(td_ask(handle, sockets, &table, &error));
		OK(td_maps(handle, self, "name,build_id", &table, &error));
		CHECK(td_table_len(table) > 0);
		OK(td_cachestat(handle, "/proc/self/exe", "all", &table, &error));
		CHECK(td_table_len(table) == 1);
	}
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0 && sigaction(SIGALRM, &before, NULL) == 0);
	td_table_free(table);
	td_query_free(files);
	td_query_free(sockets);
	td_handle_free(handle);
}

/* The threads of the library are there, and leave all signals to those of the program. */
static void signals_are_ours(const char *source)
{
	/* The first 31 without SIGKILL and SIGSTOP. */
	static const unsigned long all = 0x7ffbfeff;
	td_handle *handle = handle_of(source);
	td_table *table = NULL;
	struct dirent *entry;
	int found = 0;

	/* Command lines and names of users can keep a reader waiting. */
	OK(td_processes(handle, "cmdline,environ,user", NULL, &table, &error));
	OK(td_files(handle, "name", NULL, &table, &error));
	DIR *directory = opendir("/proc/self/task");
	CHECK(directory != NULL);
	while ((entry = readdir(directory)) != NULL) {
		char path[300], line[512];
		bool is_ours = false;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
		FILE *file = fopen(path, "r");
		while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
			unsigned long blocked;
			is_ours |= strncmp(line, "Name:\ttaskdiag-", 15) == 0;
			if (is_ours && sscanf(line, "SigBlk: %lx", &blocked) == 1) {
				CHECK((blocked & all) == all);
				found++;
			}
		}
		if (file != NULL)
			fclose(file);
	}
	CHECK(closedir(directory) == 0 && found > 0);
	td_table_free(table);
	td_handle_free(handle);
}

/* Where no thread can be started, what needs none is there, and the rest has that reason. */
static void without_threads(const char *source)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };
	int status;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		td_table *table = NULL;
		td_handle *handle = handle_of(source);
		char own[32];

		CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
		CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0);
		snprintf(own, sizeof(own), "pid == %d", (int)getpid());
		OK(td_processes(handle, "all,environ,user,pss_bytes", own, &table, &error));
		CHECK(td_table_len(table) == 1 && td_text_of(table, 0, TD_FIELD_USER).len > 0);
		CHECK(td_absent_of(table, 0, TD_FIELD_COMM) == TD_PRESENT);
		CHECK(td_absent_of(table, 0, TD_FIELD_ENVIRON) == TD_ABSENT_NO_THREAD);
		CHECK(td_absent_of(table, 0, TD_FIELD_PSS_BYTES) == TD_ABSENT_NO_THREAD);
		OK(td_cachestat(handle, "/proc/self/exe", "all", &table, &error));
		/* These may need a thread, and then say so. */
		td_maps(handle, (uint32_t)getpid(), "name,build_id", &table, NULL);
		td_files(handle, "name", NULL, &table, NULL);
		td_sockets(handle, "local_port,owner_pids", NULL, &table, NULL);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* The largest number of a BPF program that this process has. */
static unsigned last_program(void)
{
	unsigned last = 0;
	struct dirent *entry;
	DIR *directory = opendir("/proc/self/fdinfo");

	CHECK(directory != NULL);
	while ((entry = readdir(directory)) != NULL) {
		char path[300], line[512];
		unsigned number;

		snprintf(path, sizeof(path), "/proc/self/fdinfo/%s", entry->d_name);
		FILE *file = fopen(path, "r");
		while (file != NULL && fgets(line, sizeof(line), file) != NULL)
			if (sscanf(line, "prog_id: %u", &number) == 1 && number > last)
				last = number;
		if (file != NULL)
			fclose(file);
	}
	closedir(directory);
	return last;
}

/* A query that was prepared loads no other program, also if the program decides its condition. */
static void prepared(void)
{
	td_handle *handle = handle_of("bpf");
	td_query *asked = td_query_new(TD_PROCESSES);
	td_table *table = NULL;

	OK(td_query_fields(asked, "pid", &error));
	OK(td_query_where(asked, "uid == 12345 and utime_ns > 1h", &error));
	OK(td_query_only_changed(asked, &error));
	OK(td_handle_prepare(handle, asked, &error));
	unsigned loaded = last_program();
	CHECK(loaded > 0);
	OK(td_ask(handle, asked, &table, &error));
	CHECK(last_program() == loaded);
	td_table_free(table);
	td_query_free(asked);
	td_handle_free(handle);
}

/* A million processes, of which few are there; and one, a million times. */
static void many_processes(const char *source)
{
	enum { MANY = 1000000 };
	uint32_t *pids = malloc(MANY * sizeof(*pids));
	td_handle *handle = handle_of(source);
	td_query *asked = td_query_new(TD_PROCESSES);
	td_table *table = NULL;
	size_t missing;

	CHECK(pids != NULL);
	for (uint32_t i = 0; i < MANY; i++)
		pids[i] = i + 1;
	/* Ids can be larger. */
	if (getpid() > MANY)
		pids[0] = (uint32_t)getpid();
	OK(td_query_fields(asked, "pid", &error));
	OK(td_query_pids(asked, pids, MANY, &error));
	OK(td_ask(handle, asked, &table, &error));
	row_of(table, (uint64_t)getpid());
	td_table_missing(table, &missing);
	CHECK(td_table_len(table) + missing == MANY);
	for (uint32_t i = 0; i < MANY; i++)
		pids[i] = (uint32_t)getpid();
	OK(td_query_pids(asked, pids, MANY, &error));
	OK(td_ask(handle, asked, &table, &error));
	td_table_missing(table, &missing);
	CHECK(td_table_len(table) == 1 && missing == 0);
	td_table_free(table);
	td_query_free(asked);
	td_handle_free(handle);
	free(pids);
}

void test_process(void)
{
	query = td_query_new(TD_PROCESSES);
	OK(td_query_fields(query, "pid,comm,rss_bytes", &error));
	for (size_t i = 0; i < source_count; i++) {
		threads(sources[i]);
		forks(sources[i]);
		signals(sources[i]);
		signals_are_ours(sources[i]);
		without_threads(sources[i]);
		/* Each is a file of /proc there, which takes some microseconds. */
		if (strcmp(sources[i], "procfs") != 0)
			many_processes(sources[i]);
		if (strcmp(sources[i], "bpf") == 0)
			prepared();
	}
	td_query_free(query);
}

/* The memory that this process has in use, in KiB. */
static long resident(void)
{
	long size, pages;
	FILE *file = fopen("/proc/self/statm", "r");

	CHECK(file != NULL && fscanf(file, "%ld %ld", &size, &pages) == 2);
	fclose(file);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* How many descriptors this process has. */
static int descriptors(void)
{
	int number = 0;
	DIR *directory = opendir("/proc/self/fd");

	CHECK(directory != NULL);
	while (readdir(directory) != NULL)
		number++;
	closedir(directory);
	return number;
}

static void ask_everything(td_handle *handle, unsigned long turn)
{
	td_table *table = NULL, *other = NULL;
	td_query *own = td_query_new(TD_THREADS), *files = td_query_new(TD_FILES);
	uint32_t self = (uint32_t)getpid();

	OK(td_query_fields(own, turn % 2 ? "all" : "pid,cmdline", &error));
	OK(td_query_pids(own, &self, 1, &error));
	OK(td_ask(handle, own, &table, &error));
	CHECK(td_table_len(table) > 0);
	OK(td_processes(handle, "pid,comm,environ,cmdline", "pid < 100 and state != 'X'", &table, &error));
	OK(td_query_fields(files, turn % 50 ? "pid,fd,name" : "all", &error));
	OK(td_query_pids(files, &self, 1, &error));
	OK(td_query_path(files, "/", &error));
	OK(td_ask(handle, files, &table, &error));
	CHECK(td_table_len(table) > 0);
	OK(td_maps(handle, self, "start,end,perms,inode,name,build_id", &table, &error));
	CHECK(td_table_len(table) > 0);
	OK(td_cachestat(handle, "/proc/self/exe", "all", &table, &error));
	CHECK(td_table_len(table) == 1);
	if (turn % 10 == 0)
		OK(td_sockets(handle, "protocol,local_addr,path,owner_pids,peer_comms", NULL, &table, &error));
	FAILS(TD_INVALID_INPUT, "rss_bytes", td_processes(handle, "rss", NULL, &other, &error));
	CHECK(td_processes(handle, "pid", "pid = 1", &other, NULL) == TD_INVALID_INPUT);
	td_table_free(table);
	td_query_free(own);
	td_query_free(files);
}

static void watch_events(void)
{
	td_query *query = td_query_new(TD_EVENTS);
	td_events *events = NULL;
	td_table *table = NULL;

	OK(td_query_fields(query, "all", &error));
	OK(td_events_open(query, NULL, &events, &error));
	CHECK(system("true") == 0);
	OK(td_events_next(events, 10, &table, &error));
	CHECK(td_table_len(table) > 0);
	td_events_free(events);
	td_table_free(table);
	td_query_free(query);
}

void soak(unsigned long times)
{
	for (size_t i = 0; i < source_count; i++) {
		td_handle *handle = handle_of(sources[i]);
		long before = 0;
		int open = 0;

		for (unsigned long turn = 0; turn < times; turn++) {
			if (turn % 50 == 49) {
				td_handle_free(handle);
				handle = handle_of(sources[i]);
				if (strcmp(sources[i], "bpf") == 0)
					watch_events();
			}
			ask_everything(handle, turn);
			/* What is kept for the next query is there by then. */
			if (turn == times / 5) {
				before = resident();
				open = descriptors();
			}
		}
		long after = resident();
		int still = descriptors();
		printf("%s: %lu turns; %ld KiB and %d descriptors after a fifth of them, %ld and %d at the end\n", sources[i],
		       times, before, open, after, still);
		CHECK(after <= before + 2048 && still <= open);
		td_handle_free(handle);
	}
}
