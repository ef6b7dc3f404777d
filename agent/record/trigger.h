/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the flight recorder writes: --trigger. Requests and syncs are watched in
 * a small instance of their own that is read ten times a second, so that the
 * ring with the past is not touched until a trigger fires.
 */
#ifndef FLASHSCOPE_TRIGGER_H
#define FLASHSCOPE_TRIGGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "crosscheck.h"
#include "filter.h"
#include "ring.h"

enum fs_trigger_kind {
	FS_TRIGGER_D2C,	  /* a request is with its device for longer */
	FS_TRIGGER_FSYNC, /* a call that syncs takes longer */
	FS_TRIGGER_ERROR, /* a request fails */
	FS_TRIGGER_PSI,	  /* tasks wait for I/O for so much of a second */
	FS_TRIGGER_RUN,	  /* a command ends with 0 */
};

struct fs_trigger {
	enum fs_trigger_kind kind;
	uint64_t limit_ns;
	const char *text;    /* as it was given */
	const char *command; /* of FS_TRIGGER_RUN */
};

/* What --trigger takes, for people. */
extern const char fs_trigger_grammar[];
bool fs_trigger_parse(const char *text, struct fs_trigger *trigger);

/* Of a request that has none: a flush, or a command of the driver's own. */
#define FS_NO_SECTOR UINT64_MAX

struct fs_pending {
	uint64_t key_a, key_b; /* device and sector, or thread */
	uint64_t begin_ns;
	bool counted; /* it was too long already while another one's capture waited, and is one of its `times` */
	bool told;    /* it fired while it was in flight */
};

/* An event of the watch's ring: device and sector of a request, or the thread of a call. */
struct fs_watched {
	uint64_t time_ns, key_a, key_b;
	uint32_t sectors;
	int32_t error;
	uint16_t id;
};

struct fs_watch {
	const struct fs_trigger *triggers;
	size_t count;
	struct fs_ring ring;
	struct fs_pending requests[512], syncs[128], early[64];
	size_t request_count, sync_count, early_at;
	uint64_t early_ns; /* the newest of `early` */
	/* Read, and not followed yet. */
	struct fs_watched *read;
	size_t read_count, read_room;
	struct fs_field dev, sector, sectors, error;
	uint16_t issue_id, complete_id;
	uint16_t sync_enter[8], sync_exit[8];
	size_t sync_events;
	int psi;
	pid_t command;
	uint64_t command_next_ns;
	/* The first firing that no capture has yet, and how many there were since. */
	bool fired;
	uint64_t fired_ns;
	uint64_t task;	   /* whose sync it was; 0: it was none */
	uint64_t began_ns; /* when what fired it began: a request's issue, a sync's call */
	unsigned int times;
	char reason[200];
};

/* Arms the instance `name`. 0, or -1 and why. */
int fs_watch_begin(struct fs_watch *watch, const struct fs_trigger *triggers, size_t count,
		   const struct fs_tracefs *tracefs, const struct fs_page_layout *layout, const char *name,
		   struct fs_filter *filter, char *error, size_t size);
/* Looks at what has happened since; sets fired. */
void fs_watch_look(struct fs_watch *watch);
/* One event as the ring has it. */
void fs_watch_event(struct fs_watch *watch, uint64_t time_ns, const unsigned char *event, size_t length);
/* One event was read: in the order of time of its CPU, and in any order of the CPUs. */
void fs_watch_read(struct fs_watch *watch, const struct fs_watched *event);
/* Follows what was read up to that time, by when all CPUs have been read; sets fired. */
void fs_watch_follow(struct fs_watch *watch, uint64_t until_ns);
/* After a capture. */
void fs_watch_again(struct fs_watch *watch);
/* 0, or -1 with errno where the instance stays. */
int fs_watch_end(struct fs_watch *watch);

#endif
