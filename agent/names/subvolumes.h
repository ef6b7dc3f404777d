/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Subvolumes of btrfs. Each has its own inode numbers, from 256 on, but events name only the file system, so several files can match
 * an event. File handles tell which subvolumes have an inode of that number (open_by_handle_at(2), fs/btrfs/export.c).
 */
#ifndef FLASHSCOPE_SUBVOLUMES_H
#define FLASHSCOPE_SUBVOLUMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mounts.h"

#define FS_SUBVOLUMES_MAX 512
#define FS_SUBVOLUME_MOUNTS_MAX 16

struct fs_subvolumes {
	uint32_t device; /* as in events; 0: nothing is open */
	int mounts[FS_SUBVOLUME_MOUNTS_MAX];
	size_t mount_count;
	struct fs_subvolume {
		uint64_t id;
		uint32_t device; /* st_dev of its files */
		char *path;	 /* of its root */
	} items[FS_SUBVOLUMES_MAX]; /* those that are mounted in our namespace */
	size_t count;
};

/* Finds the subvolumes of this file system. Fewer than two: inode numbers are unique, or the subvolumes are unknown. */
size_t fs_subvolumes_open(struct fs_subvolumes *all, const struct fs_mounts *mounts, uint32_t device);
/*
 * Finds a file with this inode number in a subvolume other than the one with st_dev `own`. Returns the path of that file, or else of
 * its subvolume; NULL if there is none. more: a further subvolume has one, too.
 */
char *fs_subvolumes_other(const struct fs_subvolumes *all, uint64_t inode, uint32_t own, bool *more);
/* The path of subvolume `id`; NULL if it is unknown or its st_dev is `own`. */
const char *fs_subvolumes_path(const struct fs_subvolumes *all, uint64_t id, uint32_t own);
void fs_subvolumes_close(struct fs_subvolumes *all);

#endif
