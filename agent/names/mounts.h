/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mounts of every mount namespace that a process uses (/proc/PID/mountinfo).
 * The device of a mount is its super block's, as in events; on btrfs stat(2)
 * returns a different number for each subvolume.
 */
#ifndef FLASHSCOPE_MOUNTS_H
#define FLASHSCOPE_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FS_MOUNTS_MAX 4096
#define FS_NAMESPACES_MAX 256
#define FS_OPTIONS_MAX 1024

struct fs_mount {
	uint32_t device; /* the kernel's dev_t */
	uint64_t id;	 /* mnt_id of /proc/PID/fdinfo */
	int32_t pid;	 /* of a process in its namespace; 0: our own */
	char *root;	 /* the mounted directory of the file system: "/" is its root */
	char *point, *type, *source;
	char *flags;	     /* of the mount, while the line is parsed: rw,noatime */
	char *options;	     /* of the super block, while the line is parsed; then both, of our own mounts but overlays; else NULL */
	char *upper, *lower; /* directories of an overlay's layers, lower ones separated by colons; else NULL */
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

/* The kernel's own dev_t: 12 bits major, 20 bits minor (include/linux/kdev_t.h). */
uint32_t fs_kernel_device(dev_t device);
/* The inode of /proc/PID/ns/KIND (pid 0: of this process); 0 if it cannot be read. */
uint64_t fs_namespace_of(int32_t pid, const char *kind);
/* Reads all mounts again and frees the earlier list. */
void fs_mounts_read(struct fs_mounts *mounts);
/* True for mounts that a lookup may wait on for ever (network, FUSE), and for those where a lookup mounts something (autofs). */
bool fs_mount_is_remote(const struct fs_mount *mount);
/* The mount point as a path of our own namespace. */
void fs_mount_path(const struct fs_mount *mount, char *path, size_t size);
/* True if a path in that namespace (pid as in struct fs_mount) crosses a remote mount. */
bool fs_mounts_are_remote(const struct fs_mounts *mounts, int32_t pid, const char *path);
/*
 * Converts the path of a file in an overlay's layer to its path in the overlay; false if no overlay or several contain it.
 * Stores the mount namespace of the overlay; 0: our own.
 */
bool fs_mounts_in_overlay(const struct fs_mounts *mounts, const char *path, char *out, size_t size, uint64_t *namespace);
const struct fs_mount *fs_mounts_by_id(const struct fs_mounts *mounts, uint64_t id);
void fs_mounts_free(struct fs_mounts *mounts);
/* Replaces the escapes of mountinfo and mounts (\\ooo for a space and others) in place. */
void fs_unescape(char *text);
/* Parses a line of mountinfo in place; the strings point into it. False if it is malformed. */
bool fs_parse_mountinfo(char *line, struct fs_mount *mount);

#endif
