/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is mounted where, in every mount namespace that a process lives in
 * (/proc/PID/mountinfo). The device of a mount is that of its super block, as
 * events have it: on btrfs stat(2) tells another number for each subvolume.
 */
#ifndef FLASHSCOPE_MOUNTS_H
#define FLASHSCOPE_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FS_MOUNTS_MAX 4096
#define FS_NAMESPACES_MAX 256

struct fs_mount {
	uint32_t device; /* the kernel's dev_t */
	uint64_t id;	 /* mnt_id of /proc/PID/fdinfo */
	int32_t pid;	 /* of a process in its namespace; 0: our own */
	char *root;	 /* what of the file system is mounted: "/" is all */
	char *point, *type, *source;
	char *options;	     /* of the super block, while the line is parsed */
	char *upper, *lower; /* of an overlay: directories of its layers, lower ones with colons between; else NULL */
};

struct fs_mounts {
	struct fs_mount *items;
	size_t count;
	uint64_t namespaces[FS_NAMESPACES_MAX]; /* our own is the first */
	int32_t pids[FS_NAMESPACES_MAX];
	size_t namespace_count;
	uint64_t dropped;
	size_t remote; /* mounts that fs_mount_is_remote() */
};

/* The inode of /proc/PID/ns/KIND (pid 0: our own); 0 where it cannot be read. */
uint64_t fs_namespace_of(int32_t pid, const char *kind);
/* Reads them all. What was there before is freed. */
void fs_mounts_read(struct fs_mounts *mounts);
/* Another machine or a process answers for it, perhaps never; or to look at it mounts something (autofs). */
bool fs_mount_is_remote(const struct fs_mount *mount);
/* Whether a path of that namespace (pid as in struct fs_mount) leads over a remote mount. */
bool fs_mounts_are_remote(const struct fs_mounts *mounts, int32_t pid, const char *path);
/*
 * What a file of a layer is called in the overlay; false where no overlay has it, or several have. namespace: of the
 * mount namespace that has the overlay; 0: our own.
 */
bool fs_mounts_in_overlay(const struct fs_mounts *mounts, const char *path, char *out, size_t size, uint64_t *namespace);
const struct fs_mount *fs_mounts_by_id(const struct fs_mounts *mounts, uint64_t id);
void fs_mounts_free(struct fs_mounts *mounts);
/* In place: blanks and the like of mountinfo and mounts, which are \\ooo there. */
void fs_unescape(char *text);
/* One line of mountinfo, which is changed; false where it is none. The strings point into it. */
bool fs_parse_mountinfo(char *line, struct fs_mount *mount);

#endif
