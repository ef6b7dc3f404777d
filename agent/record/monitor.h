/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records from the flash monitor (kernel/flashmon/), for kernels without tracefs or where tracefs costs too much. Its events are
 * written to the stream as ring sub-buffers in the formats of the agent's own probes, so readers need no further decoder.
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
	bool current; /* this is the thread's latest name */
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
	} points[4]; /* texts that the probes' descriptions point to */
	char loses[160];
};

/* Opens its stream and stores the devices' first pages in `list`. Returns 0, or -1 with a message in error. */
int fs_monitor_open(struct fs_monitor *monitor, uint8_t long_size, const int *mtd, size_t mtd_count,
		    bool duration, struct fs_mtd_list *list, struct fs_probes *probes, char *error,
		    size_t size);
/* Resets its counters and its log. Returns 0, or -1 with errno. */
int fs_monitor_begin(struct fs_monitor *monitor);
int fs_monitor_tracing(struct fs_monitor *monitor, bool on);
/* FS_HEADER_PAGE, FS_HEADER_EVENT and FS_FORMAT frames. 0, or -1 on a write error. */
int fs_monitor_formats(struct fs_monitor *monitor, struct fs_stream *stream);
/* Sends the present content of its log. Returns 0, or -1 on a write error. */
int fs_monitor_drain(struct fs_monitor *monitor, struct fs_stream *stream);
/* Writes its members of FS_STATS; returns the number of lost events and stores that of missed probe hits. */
uint64_t fs_monitor_stats(struct fs_monitor *monitor, struct fs_json *json, uint64_t *missed);
/* Closes it and restores its earlier state, running or stopped. */
void fs_monitor_close(struct fs_monitor *monitor);

#endif
