/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flash monitor (kernel/flashmon/) as the source of a recording: where tracefs is absent, or dear. Its events go into the
 * stream as sub-buffers of a ring, in the formats that the agent's own probes have, so that a reader needs to know nothing of it.
 */
#ifndef FLASHSCOPE_MONITOR_H
#define FLASHSCOPE_MONITOR_H

#include <stdbool.h>
#include <stdint.h>

#include "../../kernel/flashmon/flashmon_stream.h"
#include "frame.h"
#include "json.h"
#include "mtd.h"
#include "probe_points.h"
#include "tracefs.h"

struct fs_monitor_task {
	struct flashmon_task task;
	bool current; /* what its thread was called last */
};

struct fs_monitor {
	int fd; /* /proc/flashmon_stream; -1 */
	bool was_stopped;
	struct flashmon_info info;
	struct fs_page_layout layout;
	unsigned char *input;
	struct fs_monitor_task *tasks; /* by number */
	uint32_t task_count;
	uint64_t *lost, *taken; /* by CPU */
	uint64_t sub_buffers, malformed;
	struct {
		char event[16], operation[16], symbol[48], level[16];
	} points[4]; /* what the probes' descriptions point to */
	char loses[160];
};

/* Finds it and takes its stream; the devices' first pages. 0, or -1 with a text in error. */
int fs_monitor_open(struct fs_monitor *monitor, uint8_t long_size, const int *mtd, size_t mtd_count,
		    bool duration, struct fs_mtd_list *list, struct fs_probes *probes, char *error,
		    size_t size);
/* Forgets what it has counted and logged before. 0, or -1 with errno. */
int fs_monitor_begin(struct fs_monitor *monitor);
int fs_monitor_tracing(struct fs_monitor *monitor, bool on);
/* FS_HEADER_PAGE, FS_HEADER_EVENT and FS_FORMAT frames. 0, or -1 on a write error. */
int fs_monitor_formats(struct fs_monitor *monitor, struct fs_stream *stream);
/* All that is there now. 0, or -1 on a write error. */
int fs_monitor_drain(struct fs_monitor *monitor, struct fs_stream *stream);
/* The members of FS_STATS; returns events that were lost, and calls that its probes missed. */
uint64_t fs_monitor_stats(struct fs_monitor *monitor, struct fs_json *json, uint64_t *missed);
/* Leaves it as it was found: running, or stopped. */
void fs_monitor_close(struct fs_monitor *monitor);

#endif
