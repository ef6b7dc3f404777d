/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The set of files that events name: device and inode of every event that has
 * both, collected while the rings are drained. Names are looked up only for
 * these files.
 */
#ifndef FLASHSCOPE_TOUCHED_H
#define FLASHSCOPE_TOUCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "crosscheck.h"
#include "tracefs.h"

/* Limit of disks with known partitions. */
#define FS_DISKS_MAX 64
/* Tasks that free inodes of XFS at a time: one for each CPU. */
#define FS_LEAVING 64
/* Limits of files and of bytes in their paths: they bound the memory of a recording. */
#define FS_FILES_MAX 65536u
#define FS_PATHS_MAX (8u << 20)

enum fs_inode_state {
	FS_FILE_UNKNOWN,
	FS_FILE_SEEN,	    /* its path was valid when it was looked up */
	FS_FILE_NAMED,	    /* its path is valid at the end */
	FS_FILE_RENAMED,    /* the same, and `was` is an earlier path */
	FS_FILE_DELETED,    /* its path is the last one before it was deleted */
	FS_FILE_ELSEWHERE,  /* its path is in another mount namespace */
};

struct fs_inode {
	uint64_t inode;
	uint32_t device; /* the kernel's dev_t: 12 bits major, 20 bits minor */
	uint32_t tid;	 /* of the first event */
	uint32_t events; /* number of events that name it */
	char *path, *was;
	char *other; /* btrfs: a file, or a subvolume with one, that has the same inode number */
	uint64_t seen_ns; /* CLOCK_REALTIME: when its path was first found */
	uint64_t born_ns; /* when the file that was found then was made; 0: unknown */
	uint64_t looked_ns; /* trace clock: when its path was last looked up */
	uint64_t last_ns;   /* trace clock: its last event, approximately */
	uint64_t from_ns;   /* trace clock: earlier events of this inode number are another file's; 0: unknown */
	uint64_t until_ns;  /* trace clock: later events of this inode number are another file's; 0: none */
	uint32_t subvolume; /* btrfs: st_dev of the file at `path`; 0: unknown */
	uint8_t state; /* enum fs_inode_state */
	bool touched;  /* an event names it */
	bool others;   /* so have files of further subvolumes than that of `other` */
	bool foreign;  /* its path is in another mount namespace */
	bool late;     /* its lookup was delayed: events came too fast */
	bool hidden; /* it is there, behind another mount */
	bool again;    /* the inode number was reused since the lookup */
};

struct fs_touched {
	struct fs_inode *files;
	size_t count, capacity;
	uint32_t *slots; /* hash: index + 1 */
	size_t slot_count;
	size_t path_bytes;
	uint64_t dropped; /* files beyond the limit */
	size_t *fresh;	  /* new since the last lookup, without a path */
	size_t fresh_count, fresh_capacity;
	struct fs_inode *ended; /* deleted since the last lookup: their numbers can be reused */
	size_t ended_count, ended_capacity;
	/* Deletions since the last lookup, also of files that no event names. */
	struct fs_freed {
		uint64_t inode, time_ns;
		uint32_t device;
	} *freed;
	size_t freed_count, freed_capacity;
	bool freed_lost; /* deletions are missing: more than the limit, or the ring was full */
	uint32_t *started; /* processes that called exec since the last lookup */
	size_t started_count, started_capacity;
	uint64_t started_late; /* of these, those beyond the limit */
	/* btrfs: the latest evicted inodes, deleted ones included. */
	struct fs_evicted {
		uint64_t inode, subvolume;
	} *evicted;
	size_t evicted_count, evicted_at;

	uint8_t kinds[65536]; /* by event number: index into `events` + 1; 0: not used */
	/* XFS: the inode that a task let go last, which the same task may free. By task. */
	struct fs_leaving {
		uint64_t inode;
		uint32_t device, tid; /* 0: none */
	} leaving[FS_LEAVING];
	bool inactivates; /* xfs_inode_inactivating is there: Linux 5.14 and later */

	struct fs_touched_event {
		struct fs_field device, inode, pid, links, subvolume, group;
		uint16_t backing; /* without a device field: offset of the backing device's name ("179:0"); 0: none */
		bool frees; /* frees the inode if it has no links, or if the same task let it go */
		bool leaves, destroys; /* XFS: the inode leaves memory */
	} events[250];
	size_t event_count;
	struct fs_disk {
		uint32_t disk;
		uint32_t file_system; /* of its only partition with a writable file system; 0: several */
	} disks[FS_DISKS_MAX];
	size_t disk_count;
	uint32_t last_device;
	uint64_t last_inode;
	size_t last_file; /* its index */
	bool any;
};

/* Reads an event's number and fields from its format file. */
void fs_touched_format(struct fs_touched *touched, const char *event, const char *format);
/* Adds a writable file system on a partition of this disk. */
void fs_touched_disk(struct fs_touched *touched, uint32_t disk, uint32_t file_system);
/* Adds the files of all events of a sub-buffer. */
void fs_touched_subbuf(struct fs_touched *touched, const unsigned char *subbuf, size_t used,
		       const struct fs_page_layout *layout);
/* Finds a file by device and inode. If it is new and `add` is set, adds it. NULL: not found, or too many files. */
struct fs_inode *fs_touched_file(struct fs_touched *touched, uint32_t device, uint64_t inode, bool add);
/* Finds the next evicted inode of this number: index into `evicted` + 1, after `from` (0 at first). 0: no more. */
size_t fs_touched_evicted(const struct fs_touched *touched, uint64_t inode, size_t from);
/* Marks all files that wait for a lookup as late: events come too fast. */
void fs_touched_wait(struct fs_touched *touched);
/* Indices into `files` of the files that events name, most events first; the caller frees them. */
size_t *fs_touched_most_first(const struct fs_touched *touched, size_t *count);
/* Stores a copy of path; false if the limit of path bytes is reached. */
bool fs_inode_set_path(struct fs_touched *touched, char **where, const char *path);
/* Whether its path needs no further lookup. */
bool fs_inode_settled(const struct fs_inode *file);
/* Whether it had no name when it was looked up (fs/dcache.c, d_tmpfile()): linkat(2) may have given it one since. */
bool fs_inode_was_nameless(const struct fs_inode *file);
/* Keeps its path as `was`, before another one is set. False: the limit of bytes is reached. */
bool fs_inode_keep_was(struct fs_touched *touched, struct fs_inode *file);
/*
 * Whether what was made then is another file than the one of this number that was seen. The clock may have been set meanwhile:
 * it is asked only where the first file does not say when it was made.
 */
bool fs_inode_is_another(const struct fs_inode *file, uint64_t born_ns);
void fs_inode_forget_paths(struct fs_touched *touched, struct fs_inode *file);
void fs_touched_free(struct fs_touched *touched);

#endif
