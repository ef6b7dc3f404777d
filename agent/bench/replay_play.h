/* SPDX-License-Identifier: Apache-2.0 */
/* The tasks of bench replay: processes that issue a script's calls. */
#ifndef FLASHSCOPE_REPLAY_PLAY_H
#define FLASHSCOPE_REPLAY_PLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "bench.h"
#include "contents.h"
#include "replay_cgroups.h"
#include "replay_script.h"
#include "util.h"

enum replay_timing {
	REPLAY_ASAP,	 /* a task's calls follow each other at once */
	REPLAY_RECORDED, /* each call begins at its time, or when the previous one has returned */
	REPLAY_PAUSES,	 /* each call begins the recorded pause after the previous one has returned */
};

/* The times of each call, in memory that the tasks share. */
struct replay_result {
	uint64_t begin_ns, latency_ns, late_ns;
	bool is_short; /* a read that got less than it asked for */
};

struct replay_task_result {
	uint64_t open_ns, bytes_read, bytes_written;
	uint32_t crc;
};

struct replay_run {
	const struct replay_script *s;
	const struct bench_readahead *readahead;
	const struct replay_cgroups *cgroups;
	enum replay_timing timing;
	enum contents_kind kind;
	uint64_t seed;
	char dir[FS_PATH_MAX];
	uint64_t *start_ns; /* shared, as the two below */
	struct replay_result *result;
	struct replay_task_result *task;
};

/* Where a file of the script lies. Returns out. */
const char *replay_file_path(const struct replay_run *r, uint32_t file, char *out, size_t size);
/* Starts the tasks together and waits for them. 0, or an exit code. */
int replay_play(const struct replay_run *r);

#endif
