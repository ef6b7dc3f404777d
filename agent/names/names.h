/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of what a recording's events give as numbers: files, devices, mounts,
 * processes. They leave as FS_NAMES frames, so that a report on another machine
 * shows them (docs/reference/agent-protocol.md).
 */
#ifndef FLASHSCOPE_NAMES_H
#define FLASHSCOPE_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "frame.h"
#include "json.h"
#include "paths.h"
#include "processes.h"

enum fs_names_mode {
	FS_NAMES_AUTO,	  /* what processes have open, then a walk with a time limit; the flight recorder: no walk */
	FS_NAMES_WALK,	  /* the same with a walk without a limit; the flight recorder: with one */
	FS_NAMES_SEEN,	  /* what processes have open alone */
	FS_NAMES_NONE,	  /* no paths, no command lines */
};

struct fs_names {
	enum fs_names_mode mode;
	struct fs_stream *stream;
	struct fs_paths paths;
	struct fs_json json; /* rows that are not sent yet */
	const char *key;     /* of their array; NULL: none is open */
	uint64_t *processes; /* hashes of what was sent */
	size_t process_count;
	uint64_t processes_dropped;
	uint64_t processes_late; /* not read: the time was over */
	uint64_t rounds_busy; /* in which nothing was looked for: events came too fast */
	bool failed; /* the stream is broken */
	bool flight; /* the flight recorder's: it goes on when the names are written */
};

/* "walk", "seen", "none"; false: another word. */
bool fs_names_mode_of(const char *word, enum fs_names_mode *mode);
void fs_names_init(struct fs_names *names, enum fs_names_mode mode, struct fs_stream *stream);
/* At the begin: what is there, as far as it can be read in limit_ns. Nothing is recorded before this is over. */
void fs_names_begin(struct fs_names *names, uint64_t limit_ns);
/* After each draining: processes and files that are new. busy: it took long, and they wait for a later one. */
void fs_names_live(struct fs_names *names, bool busy);
/*
 * At the end, when nothing is traced any more, in limit_ns; FS_NAMES_WALK takes as long as it needs. stop: ends the
 * walk where it becomes non-zero.
 */
void fs_names_end(struct fs_names *names, const volatile int *stop, uint64_t limit_ns);
/* Before a capture's rings are read: what they are read with. */
void fs_names_capture_begin(struct fs_names *names);
/* What a plain recording has from both its begin and its end. */
void fs_names_capture_end(struct fs_names *names, const volatile int *stop);
/* After a capture: the next one is a stream of its own, and the memory is free until then. */
void fs_names_again(struct fs_names *names);
void fs_names_free(struct fs_names *names);

#endif
