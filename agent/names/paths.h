/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the paths of the files that events name: first among the files that
 * processes have open or mapped (/proc/PID/fd, /proc/PID/maps), then by a walk
 * of the file systems with a time limit.
 */
#ifndef FLASHSCOPE_PATHS_H
#define FLASHSCOPE_PATHS_H

#include <stdbool.h>
#include <stdint.h>

#include "handles.h"
#include "mounts.h"
#include "notify.h"
#include "touched.h"

#define FS_WALKED_MAX 64
/* A path that is longer is kept without its beginning. */
#define FS_PATH_KEPT 1024

enum fs_walk {
	FS_WALK_NONE,	  /* not walked */
	FS_WALK_COMPLETE, /* every directory was read */
	FS_WALK_PART,	  /* parts are not mounted, are hidden by other mounts, or cannot be read */
	FS_WALK_TIME,	  /* the time limit was reached */
};

struct fs_paths {
	struct fs_touched touched;
	struct fs_mounts mounts;
	struct fs_handles handles;
	struct fs_notify *notify; /* NULL: this kernel or this user cannot */
	uint64_t mounts_read_ns; /* fs_now_ns(); 0: never */
	int mounts_fd;		 /* polled for changes of our namespace's mounts */
	bool mounts_watched;
	struct fs_walked {
		uint32_t device;
		enum fs_walk result;
		uint64_t entries; /* estimated number of entries to read; UINT64_MAX: unknown */
	} walked[FS_WALKED_MAX];
	size_t walked_count;
	uint64_t directories, entries; /* read by the walk */
	uint64_t deadline;	       /* fs_now_ns() */
	const volatile int *stop;      /* if set: the walk ends when it becomes non-zero */
	bool late;		       /* the time limit was reached before every process was read */
};

/* Reads the open and mapped files of all processes until end_ns (fs_now_ns()). only_touched: keeps only files that events name. */
void fs_paths_seen(struct fs_paths *paths, bool only_touched, uint64_t end_ns);
/* Reads mounts and disks: they relate an event's device to a file system. */
void fs_paths_mounts(struct fs_paths *paths);
/* The same if mounts of our namespace have changed since they were last read; false if not. */
bool fs_paths_mounts_again(struct fs_paths *paths);
/* Reads the open files of one task for at most budget_ns: for its events that are not drained yet. */
void fs_paths_of_task(struct fs_paths *paths, int32_t tid, uint64_t budget_ns);
/* Reads the open files of tasks with new files in their events, for at most budget_ns. */
void fs_paths_live(struct fs_paths *paths, uint64_t budget_ns);
/* Checks until end_ns which paths are still valid. */
void fs_paths_check(struct fs_paths *paths, uint64_t end_ns);
/* Looks up files without a valid path by file handle (handles.h), until end_ns. */
void fs_paths_by_handle(struct fs_paths *paths, uint64_t end_ns);
/* Finds files on btrfs whose inode number exists in several subvolumes, until end_ns. */
void fs_paths_subvolumes(struct fs_paths *paths, uint64_t end_ns);
/* walk.c: walks file systems for files without a path until end_ns (UINT64_MAX: no limit), the smallest file system first. */
void fs_paths_walk(struct fs_paths *paths, uint64_t end_ns);
/* After the walk: takes the paths that fanotify reported, for files without a path. */
void fs_paths_notified(struct fs_paths *paths);
/* The reason why a file has no path; NULL if it has one. */
const char *fs_paths_why(const struct fs_paths *paths, const struct fs_inode *file);
void fs_paths_free(struct fs_paths *paths);

#endif
