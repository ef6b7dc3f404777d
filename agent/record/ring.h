/* SPDX-License-Identifier: Apache-2.0 */
/* One tracefs instance of a recording: made, drained into frames, counted, removed. */
#ifndef FLASHSCOPE_RING_H
#define FLASHSCOPE_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "crosscheck.h"
#include "frame.h"
#include "json.h"
#include "drain_priority.h"
#include "touched.h"
#include "tracefs.h"

struct fs_ring {
	const struct fs_tracefs *tracefs;
	uint16_t instance; /* enum fs_instance */
	char name[112];	   /* below instances/; empty: not made */
	struct fs_page_layout layout;
	uint64_t kib; /* per CPU, as asked for */
	int *fds;     /* trace_pipe_raw by CPU; -1: no such CPU */
	int cpus;
	struct fs_crosscheck *crosscheck; /* counts while draining; may be NULL */
	struct fs_touched *touched;	  /* collects files and processes while draining; may be NULL */
	struct fs_drain_priority *priority;	  /* of who drains; may be NULL */
	bool flight;	   /* overwriting is no loss: of the flight recorder */
	uint64_t since_ns; /* sub-buffers that end before are not sent */
	uint64_t sub_buffers, empty, malformed;
};

/* Makes it, tracing off, clock mono. 0, or -1 with a text in error. */
int fs_ring_make(struct fs_ring *ring, const struct fs_tracefs *tracefs, const char *name,
		 uint16_t instance, const struct fs_page_layout *layout, uint64_t kib,
		 bool overwrite, char *error, size_t size);
/* Opens every CPU's raw pipe, non-blocking: a blocking read costs several times more an event. */
int fs_ring_open(struct fs_ring *ring, char *error, size_t size);
/* system "*": NULL event enables all of the system. 0, or -1 with errno. */
int fs_ring_enable(struct fs_ring *ring, const char *system, const char *event, const char *filter);
int fs_ring_tracing(struct fs_ring *ring, bool on);
/* All that is there now, as FS_DATA_FOLDED frames; at most the ring's size a CPU. 0, or -1 on a write error. */
int fs_ring_drain(struct fs_ring *ring, struct fs_stream *stream);
/* All that is there now, read and shown to `each` (NULL: thrown away). */
void fs_ring_each(struct fs_ring *ring, fs_event_fn each, void *data);
/* Appends one element of FS_STATS "instances"; returns events lost in it. */
uint64_t fs_ring_stats(const struct fs_ring *ring, struct fs_json *json);
/* Events recorded since it was made, and events lost. */
void fs_ring_counts(const struct fs_ring *ring, uint64_t *events, uint64_t *lost);
/* Closes and removes it. 0, or -1 with errno. */
int fs_ring_remove(struct fs_ring *ring);

#endif
