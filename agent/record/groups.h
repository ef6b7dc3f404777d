/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the words of --events stand for: which of the kernel's own trace events
 * a group wants, which of them this kernel has, and what the others cost.
 */
#ifndef FLASHSCOPE_GROUPS_H
#define FLASHSCOPE_GROUPS_H

#include <stdbool.h>
#include <stddef.h>

#include "json.h"
#include "probe_points.h"
#include "tracefs.h"

enum fs_group {
	FS_GROUP_BLOCK = 1,   /* bios and requests, MMC commands */
	FS_GROUP_SYSCALL = 2, /* calls that read, write, sync, open, map */
	FS_GROUP_CACHE = 4,   /* page cache, read-ahead, writeback, file reads */
	FS_GROUP_LAYERS = 8,  /* where a request crosses from one layer to the next */
	/* Without a word of its own: calls that sync and rename, few enough to be recorded beside a filter of devices. */
	FS_GROUP_SYNCS = 16,
};

/* "block", …; 0: no such group. */
unsigned int fs_group_of(const char *word);
/* Name of one group. */
const char *fs_group_name(unsigned int group);
/* What to do where a kernel has nothing of a group. */
const char *fs_group_lacks(unsigned int group);

/* An event of tracefs to enable. */
struct fs_event {
	char system[64];
	char *event;  /* NULL: all of the system */
	char *filter; /* NULL: none */
};

/* An event that a group names and this kernel lacks. */
struct fs_absence {
	unsigned int group;
	char event[96];
	char why[160];	   /* "": the kernel has no such event */
	const char *loses; /* what a recording without it cannot tell */
};

struct fs_events {
	struct fs_event *items;
	size_t count;
	struct fs_absence *absent;
	size_t absent_count;
	bool registers; /* raw_syscalls:sys_enter is among them */
};

/* Adds an event, once; filter may be NULL. */
void fs_events_add(struct fs_events *events, const char *system, const char *event, const char *filter);
void fs_events_absent(struct fs_events *events, unsigned int group, const char *event,
		      const char *why, const char *loses);
/* Moves an event to the absent ones: a filter cannot tell whose it is. */
void fs_events_leave_out(struct fs_events *events, struct fs_event *event);
/* A task that counts as the recorder besides `own`: its calls are not recorded either. */
void fs_own_add(long task);
#define FS_OWN_FILTER 320
/* The filter that keeps them out. */
void fs_own_filter(char *out, size_t size, long own);
/* Elements of an array of those tasks. */
void fs_own_json(struct fs_json *json, long own);
/*
 * Adds what the kernel has of the groups, and names what it lacks. own is the
 * process whose calls are not recorded. Gives the groups of which the kernel
 * has no event at all.
 *
 * Its own events are kept out by a filter on each event that a process can
 * cause by itself. Not by the instance's set_event_notrace_pid: that drops
 * what happens in an interrupt, too, while the process runs. (6.1, one CPU,
 * null_blk with a timer, a busy process excluded: 0 of 1000 completions.)
 */
unsigned int fs_events_of_groups(struct fs_events *events, const struct fs_tracefs *tracefs,
				 const struct fs_machine *machine, unsigned int groups, long own);
void fs_events_free(struct fs_events *events);

/* Members "absent" and, where registers are recorded, "raw_syscalls". */
void fs_events_json(struct fs_json *json, const struct fs_events *events);

#endif
