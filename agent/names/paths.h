/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths of the files that a recording touched. First what processes have open
 * or mapped (/proc/PID/fd, /proc/PID/maps), then a walk of the file systems
 * themselves, which takes no longer than it is given.
 */
#ifndef FLASHSCOPE_PATHS_H
#define FLASHSCOPE_PATHS_H

#include <stdbool.h>
#include <stdint.h>

#include "handles.h"
#include "mounts.h"
#include "touched.h"

#define FS_WALKED_MAX 64

enum fs_walk {
	FS_WALK_NONE,	  /* it was not looked through */
	FS_WALK_COMPLETE, /* every directory of the file system was */
	FS_WALK_PART,	  /* it is not all mounted, or some of it is hidden or refused */
	FS_WALK_TIME,	  /* the time was over before */
};

struct fs_paths {
	struct fs_touched touched;
	struct fs_mounts mounts;
	struct fs_handles handles;
	uint64_t mounts_read_ns; /* fs_now_ns(); 0: never */
	int mounts_fd;		 /* says whether our namespace's mounts have changed since */
	bool mounts_watched;
	struct fs_walked {
		uint32_t device;
		enum fs_walk result;
		uint64_t entries; /* about as many as a walk of it reads; UINT64_MAX: not known */
	} walked[FS_WALKED_MAX];
	size_t walked_count;
	uint64_t directories, entries; /* read by the walk */
	uint64_t deadline;	       /* fs_now_ns() */
	const volatile int *stop;      /* ends the walk where set and not 0 */
	bool late;		       /* not every process was looked at: the time was over */
};

/* What all processes have open or mapped now, until end_ns (fs_now_ns()); only_touched: of files that are touched already. */
void fs_paths_seen(struct fs_paths *paths, bool only_touched, uint64_t end_ns);
/* Mounts and disks, which tell whose file an event's device and inode are. */
void fs_paths_mounts(struct fs_paths *paths);
/* What one task has open now, in at most so many nanoseconds: for events of it that are not read yet. */
void fs_paths_of_task(struct fs_paths *paths, int32_t tid, uint64_t budget_ns);
/* What the tasks of newly touched files have open, in at most so many nanoseconds. */
void fs_paths_live(struct fs_paths *paths, uint64_t budget_ns);
/* Which of the paths are still true, until end_ns. */
void fs_paths_check(struct fs_paths *paths, uint64_t end_ns);
/* What the kernel calls those that have no true path yet, until end_ns. */
void fs_paths_by_handle(struct fs_paths *paths, uint64_t end_ns);
/* Which of the files on btrfs are one of several with the same inode number, until end_ns. */
void fs_paths_subvolumes(struct fs_paths *paths, uint64_t end_ns);
/* Looks for what has no path until end_ns (UINT64_MAX: without end). The file systems share the time, the smallest first. */
void fs_paths_walk(struct fs_paths *paths, uint64_t end_ns);
/* Why a file has no path; NULL where it has one. */
const char *fs_paths_why(const struct fs_paths *paths, const struct fs_inode *file);
void fs_paths_free(struct fs_paths *paths);

#endif
