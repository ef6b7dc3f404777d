/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --trigger: when the flight recorder writes a capture. Requests and syncs are
 * observed in a small instance of their own, which is read ten times a second.
 * The ring with the last seconds is read only after a trigger has fired.
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
	FS_TRIGGER_D2C,	  /* a request takes longer in the device */
	FS_TRIGGER_FSYNC, /* fsync and its like take longer */
	FS_TRIGGER_ERROR, /* a request fails */
	FS_TRIGGER_PSI,	  /* tasks wait for I/O for more than this part of a second */
	FS_TRIGGER_RUN,	  /* a command exits with status 0 */
};

struct fs_trigger {
	enum fs_trigger_kind kind;
	uint64_t limit_ns;
	const char *text;    /* as on the command line */
	const char *command; /* of FS_TRIGGER_RUN */
};

/* What --trigger accepts, for messages. */
extern const char fs_trigger_grammar[];
bool fs_trigger_parse(const char *text, struct fs_trigger *trigger);

/* The sector of a request without one: a flush, or a command of the driver. */
#define FS_NO_SECTOR UINT64_MAX

struct fs_pending {
	uint64_t key_a, key_b; /* device and sector, or thread */
	uint64_t begin_ns;
	bool counted; /* it was over the limit while an earlier capture was pending, and is part of its `times` */
	bool told;    /* it has fired already, before it completed */
};

/* An event of this instance: device and sector of a request, or the thread of a call. */
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
	/* Events that have been read and not been evaluated yet. */
	struct fs_watched *read;
	size_t read_count, read_room;
	struct fs_field dev, sector, sectors, error;
	uint16_t issue_id, complete_id;
	uint16_t sync_enter[8], sync_exit[8];
	size_t sync_events;
	int psi;
	pid_t command;
	uint64_t command_next_ns;
	/* The first firing without a capture, and how many there have been since. */
	bool fired;
	uint64_t fired_ns;
	uint64_t task;	   /* the thread of the sync; 0: it was a request */
	uint64_t began_ns; /* when the request was issued, or the call began */
	unsigned int times;
	char reason[200];
};

/* Arms the instance `name`. 0, or -1 with the reason in `error`. */
int fs_watch_begin(struct fs_watch *watch, const struct fs_trigger *triggers, size_t count,
		   const struct fs_tracefs *tracefs, const struct fs_page_layout *layout, const char *name,
		   struct fs_filter *filter, char *error, size_t size);
/* Reads and evaluates the events since the last call; sets `fired`. */
void fs_watch_look(struct fs_watch *watch);
/* Reads one event of the ring. */
void fs_watch_event(struct fs_watch *watch, uint64_t time_ns, const unsigned char *event, size_t length);
/* Keeps one event. Events of one CPU come in the order of time; CPUs come in any order. */
void fs_watch_read(struct fs_watch *watch, const struct fs_watched *event);
/* Evaluates the events up to a time by which all CPUs have been read; sets `fired`. */
void fs_watch_follow(struct fs_watch *watch, uint64_t until_ns);
/* After a capture: waits for the next firing. */
void fs_watch_again(struct fs_watch *watch);
/* 0, or -1 with errno if the instance could not be removed. */
int fs_watch_end(struct fs_watch *watch);

#endif
