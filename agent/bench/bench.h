/* SPDX-License-Identifier: Apache-2.0 */
/* What the benchmarks share. */
#ifndef FLASHSCOPE_BENCH_H
#define FLASHSCOPE_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "json.h"

/* One option of a benchmark: its name, and the variable that takes its value. */
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
int bench_sqlite(int argc, char **argv);
int bench_postmark(int argc, char **argv);
int bench_replay(int argc, char **argv);

/* Set by SIGINT, SIGTERM and SIGHUP once bench_catch_signals() was called. */
bool bench_interrupted(void);
void bench_catch_signals(void);

/*
 * The knob (a file with KiB in it) that rules read-ahead of the open file `fd`,
 * as sysfs names it, in `path`. 0, or -1 with one line in `why`.
 */
int bench_readahead_knob(int fd, char *path, size_t path_size, char *why, size_t why_size);

/* --readahead of a benchmark: as typed, as meant, and what came of it. */
struct bench_readahead {
	const char *requested; /* as typed; NULL: keep */
	int advice;	       /* of posix_fadvise(); -1: none */
	bool set_knob;
	char kib[24];
	char knob[128]; /* empty: none */
	uint64_t before_kib, effective_kib;
	bool has_before, has_effective;
};

/* 0, or 2 (usage) with the error on stderr. */
int bench_readahead_parse(struct bench_readahead *r, const char *bench);
/*
 * Finds the knob of the device that `path` lies on and sets it where that was
 * asked for; files opened from then on have it. 0, or an exit code.
 */
int bench_readahead_prepare(struct bench_readahead *r, const char *path);
/* Advises the open file, where that was asked for. 0, or an exit code. */
int bench_readahead_advise(const struct bench_readahead *r, int fd, const char *path);
/* Puts the knob back and forgets noted files; after each run, failed ones too. `failed`, or an exit code. */
int bench_readahead_restore(const struct bench_readahead *r, int failed);
void bench_readahead_json(struct fs_json *json, const struct bench_readahead *r);

/* The page cache, and inodes too, so that every open() is as cold as the first. 0, or an exit code. */
int bench_drop_caches(void);

/*
 * A file that a benchmark makes appears under its name once it is whole: half of
 * one, left by a killed run, would be taken for the user's. begin() gives the name
 * to make it under (EEXIST where the file is there), end() gives it its own and
 * fails where somebody else made it meanwhile. 0, or -1 with errno.
 */
int bench_part_begin(const char *file, char *part, size_t size);
int bench_part_end(const char *file, const char *part);

/* "name":{"begin_ns":…,"end_ns":…} */
void bench_span_json(struct fs_json *json, const char *name, uint64_t begin_ns, uint64_t end_ns);

/* Prints the object as one line and frees it. 0, or an exit code. */
int bench_print(struct fs_json *json);

#endif
