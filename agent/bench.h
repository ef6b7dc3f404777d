/* SPDX-License-Identifier: Apache-2.0 */
/* What the benchmarks share. */
#ifndef FLASHSCOPE_BENCH_H
#define FLASHSCOPE_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One option of a benchmark: its name and where its value goes. */
struct bench_option {
	const char *name;   /* with its dashes */
	const char **text;  /* one of text, number, flag */
	uint64_t *number;
	uint64_t max; /* of number */
	bool *flag;
	bool *given; /* set where the option is there; may be NULL */
};

/* 0, or 2 (usage) with the error on stderr. */
int bench_options(const char *name, int argc, char **argv, const struct bench_option *options, size_t count);

int bench_read(int argc, char **argv);
int bench_raw(int argc, char **argv);

/* Set by SIGINT, SIGTERM and SIGHUP once bench_catch_signals() was called. */
bool bench_interrupted(void);
void bench_catch_signals(void);

/*
 * The knob (a file with KiB in it) that rules read-ahead of the open file `fd`,
 * as sysfs names it, in `path`. 0, or -1 with one line in `why`.
 */
int bench_readahead_knob(int fd, char *path, size_t path_size, char *why, size_t why_size);

#endif
