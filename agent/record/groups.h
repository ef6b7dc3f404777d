/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The groups of --events: which trace events of the kernel belong to a group,
 * which of them this kernel has, and what cannot be analysed without the others.
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
	FS_GROUP_LAYERS = 8,  /* functions at which an I/O enters the next layer */
	/* Not named on the command line: sync and rename calls, few enough to be recorded beside a filter of devices. */
	FS_GROUP_SYNCS = 16,
};

/* The group called "block", …; 0: there is none. */
unsigned int fs_group_of(const char *word);
/* Name of one group. */
const char *fs_group_name(unsigned int group);
/* What to do if a kernel has no event of a group. */
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
	const char *loses; /* what cannot be analysed without it */
};

struct fs_events {
	struct fs_event *items;
	size_t count;
	struct fs_absence *absent;
	size_t absent_count;
	bool registers; /* raw_syscalls:sys_enter is among them */
};

/* Adds an event, if it is not there yet; filter may be NULL. */
void fs_events_add(struct fs_events *events, const char *system, const char *event, const char *filter);
void fs_events_absent(struct fs_events *events, unsigned int group, const char *event,
		      const char *why, const char *loses);
/* Moves an event to the absent ones: a filter cannot select the tasks that it belongs to. */
void fs_events_leave_out(struct fs_events *events, struct fs_event *event);
/* Another task of the recorder besides `own`: its calls are not recorded either. */
void fs_own_add(long task);
#define FS_OWN_FILTER 320
/* Writes the filter that leaves those tasks out. */
void fs_own_filter(char *out, size_t size, long own);
/* Writes those tasks as elements of an array. */
void fs_own_json(struct fs_json *json, long own);
/*
 * Adds the events of these groups that the kernel has, and lists the others as
 * absent. `own` is the process whose calls are not recorded. Returns the groups
 * of which the kernel has no event at all.
 *
 * The recorder's events are left out by a filter on each event that a process
 * causes itself. set_event_notrace_pid of the instance would also drop what
 * happens in an interrupt while that process runs (6.1, one CPU, null_blk with a
 * timer, a busy process excluded: 0 of 1000 completions were recorded).
 */
unsigned int fs_events_of_groups(struct fs_events *events, const struct fs_tracefs *tracefs,
				 const struct fs_machine *machine, unsigned int groups, long own);
void fs_events_free(struct fs_events *events);

/* Members "absent" and, where registers are recorded, "raw_syscalls". */
void fs_events_json(struct fs_json *json, const struct fs_events *events);

#endif
