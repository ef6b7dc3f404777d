/* SPDX-License-Identifier: Apache-2.0 */
/* A tracefs instance of a recording: creates it, drains it into frames, counts its events, removes it. */
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
	char name[112];	   /* directory under instances/; empty: not created */
	struct fs_page_layout layout;
	uint64_t kib; /* requested size per CPU */
	int *fds;     /* trace_pipe_raw by CPU; -1: no such CPU */
	int cpus;
	struct fs_crosscheck *crosscheck; /* counts while draining; may be NULL */
	struct fs_touched *touched;	  /* collects files and processes while draining; may be NULL */
	struct fs_drain_priority *priority;	  /* of the draining thread; may be NULL */
	bool flight;	   /* of the flight recorder: overwritten events are not counted as lost */
	uint64_t since_ns; /* sub-buffers that end before this time are not sent */
	uint64_t sub_buffers, empty, malformed;
};

/* Sets a flag of trace_options: "overwrite", or "nooverwrite" to clear it. 0, or -1 with errno. */
int fs_ring_option(const struct fs_ring *ring, const char *option);
/* Creates it with tracing off and the clock mono. Returns 0, or -1 with a message in error. */
int fs_ring_make(struct fs_ring *ring, const struct fs_tracefs *tracefs, const char *name,
		 uint16_t instance, const struct fs_page_layout *layout, uint64_t kib,
		 bool overwrite, char *error, size_t size);
/* Opens every CPU's raw pipe, non-blocking: a blocking read costs several times more an event. */
int fs_ring_open(struct fs_ring *ring, char *error, size_t size);
/* system "*": NULL event enables all of the system. 0, or -1 with errno. */
int fs_ring_enable(struct fs_ring *ring, const char *system, const char *event, const char *filter);
int fs_ring_tracing(struct fs_ring *ring, bool on);
/* Sends the present content as FS_DATA_FOLDED frames, at most the ring's size per CPU. Returns 0, or -1 on a write error. */
int fs_ring_drain(struct fs_ring *ring, struct fs_stream *stream);
/* Reads the present content and passes each event to `each` (NULL: discards it). */
void fs_ring_each(struct fs_ring *ring, fs_event_fn each, void *data);
/* Appends an element of "instances" in FS_STATS; returns the number of events lost. */
uint64_t fs_ring_stats(const struct fs_ring *ring, struct fs_json *json);
/* Stores the numbers of events recorded and lost since it was created. */
void fs_ring_counts(const struct fs_ring *ring, uint64_t *events, uint64_t *lost);
/* Closes and removes the instance. Returns 0, or -1 with errno. */
int fs_ring_remove(struct fs_ring *ring);

#endif
