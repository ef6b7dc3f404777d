/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of one recording, shared by record*.c: record.c has the sequence of
 * a recording, record_plan.c selects events and probes, record_arm.c arms them,
 * record_describe.c writes the description, record_stats.c the statistics.
 */
#ifndef FLASHSCOPE_RECORDER_H
#define FLASHSCOPE_RECORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "command.h"
#include "crosscheck.h"
#include "facts.h"
#include "files.h"
#include "filter.h"
#include "frame.h"
#include "groups.h"
#include "monitor.h"
#include "names.h"
#include "options.h"
#include "drain_priority.h"
#include "ring.h"
#include "state.h"
#include "trigger.h"

/* State of the flight recorder. */
struct fs_flight {
	struct fs_watch watch;
	unsigned int there;  /* captures in the directory, earlier runs included */
	unsigned int number; /* number of the last capture */
	unsigned int lost;   /* captures that could not be written */
	uint64_t memory_kib;
};

struct fs_recorder {
	struct fs_record_options options;
	struct fs_facts facts;
	struct fs_probes probes;
	char group[96]; /* also the name of the main instance */
	char error[320]; /* why the recording ended */
	struct fs_filter filter;
	struct fs_ring main, tasks;
	struct fs_ring requests; /* with task filters: events that occur in the context of any task */
	struct fs_monitor monitor; /* with --from flashmon, instead of the rings */
	struct fs_drain_priority priority;
	struct fs_crosscheck crosscheck;
	struct fs_stream stream;
	bool streaming; /* FS_HELLO is written */
	struct fs_names names;
	bool close_output;
	bool probes_defined, state_noted;
	char name[FS_NAME_MAX + 1];
	struct fs_events wanted; /* in addition to our own probes */
	struct fs_file_layout layout;
	struct fs_buf events;	 /* "system:event\n" of every enabled one */
	uint64_t hits[ARRAY_SIZE(((struct fs_probes *)0)->items)];
	uint64_t misses[ARRAY_SIZE(((struct fs_probes *)0)->items)];

	struct fs_flight flight;
	struct fs_command command;
	bool paused;
	uint64_t ends_ns;     /* with -d; 0: not yet, or no end */
	uint64_t progress_ns; /* when the next FS_PROGRESS is due */
};

/* Events of the second instance: names of tasks and cgroups. */
#define FS_TASK_EVENTS 6
extern const char *const fs_task_events[FS_TASK_EVENTS][2];

/* Stores the reason why the recording ended; returns -1. */
int fs_recorder_broken(struct fs_recorder *recorder, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for a write error of the stream. */
int fs_recorder_stream_broken(struct fs_recorder *recorder);

bool fs_recorder_has_event(struct fs_recorder *recorder, const char *system, const char *event);
/* Each returns 0, or -1 after storing the reason. */
int fs_recorder_check_tracefs(struct fs_recorder *recorder);
int fs_recorder_check_events(struct fs_recorder *recorder);
/* --events auto: selects the groups that this machine has. */
int fs_recorder_choose(struct fs_recorder *recorder);
int fs_recorder_check_name(struct fs_recorder *recorder);
int fs_recorder_plan_monitor(struct fs_recorder *recorder);
int fs_recorder_plan_probes(struct fs_recorder *recorder);
/* Once *stop is set, nothing is waited for. */
int fs_recorder_open_output(struct fs_recorder *recorder, const volatile sig_atomic_t *stop);
int fs_recorder_check_memory(struct fs_recorder *recorder);
int fs_recorder_arm(struct fs_recorder *recorder);
/* Memory that tracefs uses for our instances, without their rings. */
uint64_t fs_recorder_files_kib(const struct fs_recorder *recorder);
int fs_recorder_arm_monitor(struct fs_recorder *recorder);
/* Turns the requested events on or off; names of tasks are always recorded. Returns 0, or -1 with errno. */
int fs_recorder_tracing(struct fs_recorder *recorder, bool on);
int fs_recorder_hello(struct fs_recorder *recorder);
int fs_recorder_describe(struct fs_recorder *recorder);

/* Stores hits and misses of each probe; misses[i] is UINT64_MAX if unknown. */
void fs_recorder_profile(struct fs_recorder *recorder, uint64_t *hits, uint64_t *misses);
/* Writes FS_STATS, and a warning for each kind of loss. */
void fs_recorder_stats(struct fs_recorder *recorder);
/* Writes FS_PROGRESS. */
void fs_recorder_progress(struct fs_recorder *recorder);
void fs_recorder_monitor_stats(struct fs_recorder *recorder);

#endif
