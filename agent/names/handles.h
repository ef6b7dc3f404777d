/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the path of an inode without a search: opens the inode by its number
 * (open_by_handle_at(2)) and asks the kernel's dentry cache for the path. Works
 * where a file handle is an inode number and a generation and the generation 0
 * matches any: fs/ext4/super.c, fs/ext2/super.c, fs/f2fs/super.c, fs/jffs2/fs.c.
 */
#ifndef FLASHSCOPE_HANDLES_H
#define FLASHSCOPE_HANDLES_H

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "mounts.h"

/* An open mount point of one file system. While it is open, it cannot be unmounted. */
struct fs_handles {
	uint32_t device;
	int fd;	     /* of the mount's root; -1: this file system has other handles */
	int32_t pid; /* of a process in the mount's namespace; 0: our own */
	bool open;   /* device and fd are valid */
	bool whole;  /* the mount shows all of the file system */
	bool any;    /* of any file system: for handles that the kernel made */
};

struct fs_handle_file {
	char path[PATH_MAX];
	bool deleted, foreign;
	bool hidden; /* behind something that was mounted on a directory of its path later */
	uint64_t born_ns; /* CLOCK_REALTIME; 0: the file system does not have it */
};

enum fs_handle_result {
	FS_HANDLE_UNKNOWN, /* the kernel has no path, or possibly a wrong one */
	FS_HANDLE_NAMED,
	FS_HANDLE_GONE, /* no inode of this number is in use */
};

enum fs_handle_result fs_handle_name(struct fs_handles *handles, const struct fs_mounts *mounts, uint32_t device, uint64_t inode,
		    struct fs_handle_file *file);
/* The same for a handle of a directory that the kernel made. */
enum fs_handle_result fs_handle_directory(struct fs_handles *handles, const struct fs_mounts *mounts, uint32_t device,
					  struct file_handle *handle, struct fs_handle_file *file);
/* The same for a file of btrfs: its number in a subvolume, and the transaction in which it was made. */
enum fs_handle_result fs_handle_btrfs(struct fs_handles *handles, const struct fs_mounts *mounts, uint32_t device, uint64_t inode,
				      uint64_t subvolume, uint32_t transaction, struct fs_handle_file *file);
/* True if no file with this inode number and generation exists any more. */
bool fs_handle_is_gone(struct fs_handles *handles, const struct fs_mounts *mounts, uint32_t device, uint64_t inode,
		       uint32_t generation);
void fs_handles_close(struct fs_handles *handles);
/* When a file was made, in ns; 0: the file system does not have it. */
uint64_t fs_born_ns(const struct statx *st);

#endif
