/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks up the names of what events give as numbers: files, devices, mounts,
 * processes. Writes them as FS_NAMES frames, so that a report on another machine
 * can show them (docs/reference/agent-protocol.md).
 */
#ifndef FLASHSCOPE_NAMES_H
#define FLASHSCOPE_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "frame.h"
#include "json.h"
#include "paths.h"
#include "processes.h"

/* Mounts that one recording names. */
#define FS_NAMED_MOUNTS_MAX 2048

enum fs_names_mode {
	FS_NAMES_AUTO,	  /* files that processes have open, then a walk with a time limit; the flight recorder: no walk */
	FS_NAMES_WALK,	  /* the same, and the walk has no time limit; the flight recorder: a walk with a limit */
	FS_NAMES_SEEN,	  /* only files that processes have open */
	FS_NAMES_NONE,	  /* no paths, no command lines */
};

struct fs_names {
	enum fs_names_mode mode;
	struct fs_stream *stream;
	struct fs_paths paths;
	struct fs_json json; /* rows that are not sent yet */
	const char *key;     /* of the open JSON array; NULL: none is open */
	uint64_t *processes; /* hashes of the processes that were sent */
	size_t process_count;
	uint64_t processes_dropped;
	uint64_t processes_late; /* not read: the time limit was reached */
	uint64_t mounts[FS_NAMED_MOUNTS_MAX]; /* hashes of the mounts that were sent */
	size_t mount_count;
	uint64_t mounts_dropped;
	uint64_t reports_forgotten; /* deleted files without a path, after fanotify's reports of some files had to go */
	uint64_t rounds_busy; /* rounds without lookups, because events came too fast */
	bool failed; /* the stream has a write error */
	bool partial; /* not all deletions of files are recorded */
	bool flight; /* for the flight recorder, which continues after the names are written */
};

/* Parses "walk", "seen" or "none"; false for other words. */
bool fs_names_mode_of(const char *word, enum fs_names_mode *mode);
void fs_names_init(struct fs_names *names, enum fs_names_mode mode, struct fs_stream *stream);
/* Before the recording: reads processes, mounts and open files, for at most limit_ns. */
void fs_names_begin(struct fs_names *names, uint64_t limit_ns);
/* Before tracing begins, with all rights: lets fanotify report closed and deleted files. */
void fs_names_watch(struct fs_names *names, bool partial);
/* Tracing continues after a pause. */
void fs_names_resumed(struct fs_names *names);
/* The flight recorder, whose rings are not drained: reads what fanotify reported. */
void fs_names_look(struct fs_names *names);
/*
 * After each drain of the rings, which began at drained_ns: new processes and files. busy: the drain took long, so lookups wait
 * for a later call.
 */
void fs_names_live(struct fs_names *names, bool busy, uint64_t drained_ns);
/*
 * After tracing has ended: the remaining lookups, for at most limit_ns (FS_NAMES_WALK: without a limit). The walk ends
 * when `stop` becomes non-zero.
 */
void fs_names_end(struct fs_names *names, const volatile int *stop, uint64_t limit_ns);
/* Before the rings of a capture are read: reads the mounts. */
void fs_names_capture_begin(struct fs_names *names);
/* After the rings of a capture are read: packages, then the lookups of fs_names_end() with a limit. */
void fs_names_capture_end(struct fs_names *names, const volatile int *stop);
/* Resets for the next capture, which is a new stream, and frees memory. */
void fs_names_again(struct fs_names *names);
void fs_names_free(struct fs_names *names);

#endif
