/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of files that are gone before a lookup finds them: fanotify(7) reports
 * directory, name and file handle of each file that is closed after a write,
 * deleted or renamed. It needs Linux 5.9, CONFIG_FANOTIFY and CAP_SYS_ADMIN.
 * Before Linux 5.17 only closed files are reported (FAN_REPORT_TARGET_FID).
 */
#ifndef FLASHSCOPE_NOTIFY_H
#define FLASHSCOPE_NOTIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "handles.h"
#include "mounts.h"
#include "touched.h"

/* Limits of reported files, bytes in their paths, file systems, and directories with a known path. */
#define FS_NOTIFY_FILES 8192u
#define FS_NOTIFY_BYTES (1u << 20)
#define FS_NOTIFY_MARKS 64
#define FS_NOTIFY_DIRECTORIES 512u
#define FS_NOTIFY_SLOTS 4096u

struct fs_notify {
	int fd;
	struct fs_notify_mark {
		int32_t fsid[2];
		uint32_t device;
	} marks[FS_NOTIFY_MARKS];
	size_t mark_count;
	/* A ring: the file with the number n is at n % FS_NOTIFY_FILES. */
	struct fs_notify_file {
		uint64_t inode, before; /* before: number + 1 of the previous file in the same slot; 0: none */
		uint32_t device, generation;
		uint64_t subvolume;   /* btrfs, and the transaction in which the file was made */
		uint32_t transaction;
		uint64_t directory; /* key of the directory, and `path` is a name alone; 0: it is a path */
		bool foreign;	    /* its path is in another mount namespace */
		char *path;	    /* NULL: no longer needed */
	} *files;
	uint64_t first, next; /* numbers of the oldest file, and of the next one */
	size_t capacity, path_bytes;
	uint64_t slots[FS_NOTIFY_SLOTS]; /* by device and inode: number + 1 of the latest file */
	struct fs_notify_directory {
		uint64_t key;
		uint64_t parent; /* key of the directory above, and `path` is a name alone; 0: it is a path */
		uint32_t round;	 /* in which `path` was looked up */
		bool foreign;
		char *path; /* NULL: unknown */
	} directories[FS_NOTIFY_DIRECTORIES];
	uint32_t round;
	uint64_t end_ns; /* of the lookups of this round */
	struct fs_handles handles;
	uint64_t overflows; /* times that the kernel's queue was full */
	bool has_forgotten; /* reports that were still needed had to go for newer ones */
	unsigned char *input;
};

/* Watches the file systems of these mounts. NULL with errno: this kernel or this user cannot. */
struct fs_notify *fs_notify_open(const struct fs_mounts *mounts);
/* Reads what was reported since the last call. After end_ns (fs_now_ns()) no directory is looked up: that may read from a slow device. */
void fs_notify_read(struct fs_notify *notify, const struct fs_mounts *mounts, uint64_t end_ns);
/*
 * Names the deleted files that wait in `touched`, of deletions before until_ns: all rings were drained up to then. Removes these
 * deletions. whole: none is missing; else a file is named only if all files of its inode number had one path.
 */
void fs_notify_deleted(struct fs_notify *notify, const struct fs_mounts *mounts, struct fs_touched *touched, uint64_t until_ns,
		       bool whole);
/* Forgets all files: from now on, deletions may be of unknown files. */
void fs_notify_forget(struct fs_notify *notify);
/* The latest path reported of the file. NULL: none, or several files had this inode number. */
const char *fs_notify_path(struct fs_notify *notify, uint32_t device, uint64_t inode, bool *foreign);
/* Looks up the file of that path by its handle: for btrfs, where a handle needs more than an inode number. */
enum fs_handle_result fs_notify_find(struct fs_notify *notify, const struct fs_mounts *mounts, uint32_t device, uint64_t inode,
				     struct fs_handle_file *file);
/* Whether the file of the latest path reported is deleted. For file systems on a device with a major number. */
bool fs_notify_is_gone(struct fs_notify *notify, const struct fs_mounts *mounts, uint32_t device, uint64_t inode);
/* Whether several files that had this inode number wait for their deletion. first: the earliest one's path; NULL: unknown. */
bool fs_notify_reused(struct fs_notify *notify, uint32_t device, uint64_t inode, const char **first);
void fs_notify_close(struct fs_notify *notify);

#endif
