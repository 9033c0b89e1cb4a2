/*
 * What other loaders take to bring the task iterator into the kernel: open, relocate, load, attach. Each run is a process of
 * its own, as a command's start is.
 *
 *   loader-bench RUNS OBJECT             prints a line for libbpf and one for the light skeleton made of the same object
 *   loader-bench --instructions OBJECT   prints what libbpf makes of the object's programs, to compare with our loader
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <bpf/libbpf.h>

#include "task.lskel.h"

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static int silent(enum libbpf_print_level level, const char *format, va_list args)
{
	return level == LIBBPF_WARN ? vfprintf(stderr, format, args) : 0;
}

static int load_by_libbpf(const char *path)
{
	struct bpf_object *object = bpf_object__open_file(path, NULL);
	struct bpf_program *program;

	if (!object || bpf_object__load(object))
		return -1;
	program = bpf_object__next_program(object, NULL);
	return bpf_program__attach_iter(program, NULL) ? 0 : -1;
}

static int load_by_light_skeleton(const char *path)
{
	struct task_bpf *skeleton = task_bpf__open();

	(void)path;
	if (!skeleton || task_bpf__load(skeleton))
		return -1;
	return skel_link_create(skeleton->progs.task_record.prog_fd, 0, BPF_TRACE_ITER) < 0 ? -1 : 0;
}

/* Descriptors of maps differ from run to run: they are printed as 0. */
static int print_instructions(const char *path)
{
	struct bpf_object *object = bpf_object__open_file(path, NULL);
	struct bpf_program *program;

	if (!object || bpf_object__load(object))
		return 1;
	bpf_object__for_each_program(program, object) {
		const struct bpf_insn *code = bpf_program__insns(program);

		printf("%s\n", bpf_program__name(program));
		for (size_t i = 0; i < bpf_program__insn_cnt(program); i++) {
			struct bpf_insn insn = code[i];

			if (insn.code == (BPF_LD | BPF_DW | BPF_IMM) &&
			    (insn.src_reg == BPF_PSEUDO_MAP_FD || insn.src_reg == BPF_PSEUDO_MAP_VALUE))
				insn.imm = 0;
			printf("%zu %016llx\n", i, *(unsigned long long *)&insn);
		}
	}
	return 0;
}

struct loader {
	const char *name;
	int (*load)(const char *path);
};

static const struct loader loaders[] = {
	{ "libbpf", load_by_libbpf },
	{ "light-skeleton", load_by_light_skeleton },
};

/* Times one run in the process that was started for it, and prints that. */
static int run_once(const struct loader *loader, const char *path)
{
	double start = now_ms();

	if (loader->load(path)) {
		fprintf(stderr, "%s: %s\n", loader->name, strerror(errno));
		return 1;
	}
	printf("%f\n", now_ms() - start);
	return 0;
}

static double time_of_child(const char *self, const struct loader *loader, const char *path)
{
	char command[4096];
	double time = -1;
	FILE *child;

	snprintf(command, sizeof(command), "'%s' --once %s '%s'", self, loader->name, path);
	child = popen(command, "r");
	if (!child || fscanf(child, "%lf", &time) != 1)
		time = -1;
	if (child)
		pclose(child);
	return time;
}

static int compare(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

static int measure(const char *self, const struct loader *loader, int runs, const char *path)
{
	double *times = calloc(runs, sizeof(*times));

	for (int run = 0; run < runs; run++) {
		times[run] = time_of_child(self, loader, path);
		if (times[run] < 0)
			return 1;
	}
	qsort(times, runs, sizeof(*times), compare);
	printf("%-16s %-12s median %7.3f  min %7.3f  max %7.3f ms\n", loader->name, "total", times[runs / 2], times[0],
	       times[runs - 1]);
	free(times);
	return 0;
}

int main(int argc, char **argv)
{
	int count = sizeof(loaders) / sizeof(loaders[0]), failed = 0;

	libbpf_set_print(silent);
	if (argc == 3 && !strcmp(argv[1], "--instructions"))
		return print_instructions(argv[2]);
	if (argc == 4 && !strcmp(argv[1], "--once")) {
		for (int i = 0; i < count; i++)
			if (!strcmp(argv[2], loaders[i].name))
				return run_once(&loaders[i], argv[3]);
	}
	if (argc != 3 || atoi(argv[1]) < 1) {
		fprintf(stderr, "usage: loader-bench RUNS OBJECT | --instructions OBJECT\n");
		return 2;
	}
	for (int i = 0; i < count; i++)
		failed |= measure(argv[0], &loaders[i], atoi(argv[1]), argv[2]);
	return failed;
}
