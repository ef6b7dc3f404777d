/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Subvolumes of a btrfs: each numbers its inodes by itself, from 256 on, and events name the file system alone. So several files have
 * the number of an event. Which subvolumes have an inode of that number, their handles say (open_by_handle_at(2), fs/btrfs/export.c).
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
	uint32_t device; /* of the events; 0: nothing is open */
	int mounts[FS_SUBVOLUME_MOUNTS_MAX];
	size_t mount_count;
	struct fs_subvolume {
		uint64_t id;
		uint32_t device; /* that stat(2) has for its files */
		char *path;	 /* of its root */
	} items[FS_SUBVOLUMES_MAX]; /* those that our own mounts show */
	size_t count;
};

/* Those of the file system with this device. Less than two: inode numbers are unique, or nothing is known of them. */
size_t fs_subvolumes_open(struct fs_subvolumes *all, const struct fs_mounts *mounts, uint32_t device);
/*
 * A subvolume other than that whose files have `own` as their device, in which a file has this inode number: the path of that file, or
 * of the subvolume. NULL: there is none.
 */
char *fs_subvolumes_other(const struct fs_subvolumes *all, uint64_t inode, uint32_t own);
/* The path of this subvolume, unless its files have `own` as their device; NULL: no such one. */
const char *fs_subvolumes_path(const struct fs_subvolumes *all, uint64_t id, uint32_t own);
void fs_subvolumes_close(struct fs_subvolumes *all);

#endif
