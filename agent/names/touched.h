/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of which a recording holds events: device and inode of every event that
 * has both, collected while the ring is drained. Names are looked up for these
 * alone.
 */
#ifndef FLASHSCOPE_TOUCHED_H
#define FLASHSCOPE_TOUCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "crosscheck.h"
#include "tracefs.h"

/* Disks whose partitions are known. */
#define FS_DISKS_MAX 64
/* Files that are remembered, and bytes of their paths: what one recording may cost in memory. */
#define FS_FILES_MAX 65536u
#define FS_PATHS_MAX (8u << 20)

enum fs_inode_state {
	FS_FILE_UNKNOWN,
	FS_FILE_SEEN,	    /* its path was true when it was looked at */
	FS_FILE_NAMED,	    /* its path is true at the end */
	FS_FILE_RENAMED,    /* the same, and `was` is an earlier path */
	FS_FILE_DELETED,    /* its path is where it was */
	FS_FILE_ELSEWHERE,  /* its path is what a process in another mount namespace calls it */
};

struct fs_inode {
	uint64_t inode;
	uint32_t device; /* the kernel's dev_t: 12 bits major, 20 bits minor */
	uint32_t tid;	 /* of the first event */
	uint32_t events; /* that name it */
	char *path, *was;
	char *other; /* btrfs: a file, or a subvolume with one, that has the same inode number */
	uint64_t seen_ns; /* of CLOCK_REALTIME: when it first had its path */
	uint64_t looked_ns; /* of the trace clock: when its path was last looked at */
	uint64_t last_ns;   /* the same of its last event, about */
	uint64_t from_ns;   /* the same: before, its inode number was another file's; 0: not known */
	uint64_t until_ns;  /* the same: from then on its inode number is another file's; 0: it is its own */
	uint32_t subvolume; /* btrfs: the device that stat(2) has for the file at `path`; 0: not known */
	uint8_t state; /* enum fs_inode_state */
	bool touched;  /* an event names it */
	bool foreign;  /* its path is another mount namespace's */
	bool late;     /* not looked for at once: events came too fast */
	bool again;    /* another file has had this inode number since it was seen */
};

struct fs_touched {
	struct fs_inode *files;
	size_t count, capacity;
	uint32_t *slots; /* hash: index + 1 */
	size_t slot_count;
	size_t path_bytes;
	uint64_t dropped; /* files that were too many */
	size_t *fresh;	  /* touched since the last look, without a path */
	size_t fresh_count, fresh_capacity;
	struct fs_inode *ended; /* deleted since the last look: their numbers are free */
	size_t ended_count, ended_capacity;
	uint32_t *started; /* processes that executed a program since the last look */
	size_t started_count, started_capacity;
	uint64_t started_late; /* that were too many */
	/* btrfs: inodes that left the cache, deleted ones among them; the newest ones. */
	struct fs_evicted {
		uint64_t inode, subvolume;
	} *evicted;
	size_t evicted_count, evicted_at;

	uint8_t kinds[65536]; /* of an event's number: index + 1 into events */
	struct fs_touched_event {
		struct fs_field device, inode, pid, links, subvolume;
		uint16_t backing; /* offset of the backing device's name ("179:0"), where there is no device; 0: none */
		bool frees; /* the inode, if it has no links */
	} events[250];
	size_t event_count;
	struct fs_disk {
		uint32_t disk;
		uint32_t file_system; /* the one partition with one that can be written; 0: several */
	} disks[FS_DISKS_MAX];
	size_t disk_count;
	uint32_t last_device;
	uint64_t last_inode;
	size_t last_file; /* its index */
	bool any;
};

/* Learns an event's number and fields from the text of its format. */
void fs_touched_format(struct fs_touched *touched, const char *event, const char *format);
/* A file system that can be written lies on a partition of this disk. */
void fs_touched_disk(struct fs_touched *touched, uint32_t disk, uint32_t file_system);
/* Every event of a sub-buffer. */
void fs_touched_subbuf(struct fs_touched *touched, const unsigned char *subbuf, size_t used,
		       const struct fs_page_layout *layout);
/* The file of this device and inode; added where it is new. NULL: too many. */
struct fs_inode *fs_touched_file(struct fs_touched *touched, uint32_t device, uint64_t inode, bool add);
/* The evicted inodes of this number: a place in `evicted` after `from` (0 at first); 0: no more. */
size_t fs_touched_evicted(const struct fs_touched *touched, uint64_t inode, size_t from);
/* Says of all that wait that they wait: events come too fast to look for them. */
void fs_touched_wait(struct fs_touched *touched);
/* Places in `files` of those that events name, most events first; the caller frees them. */
size_t *fs_touched_most_first(const struct fs_touched *touched, size_t *count);
/* Keeps a copy of path; false where there is no room for it. */
bool fs_inode_set_path(struct fs_touched *touched, char **where, const char *path);
void fs_inode_forget_paths(struct fs_touched *touched, struct fs_inode *file);
void fs_touched_free(struct fs_touched *touched);

#endif
