/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a recording keeps: --device by a filter on each event, --comm by one
 * too, --pid and --cgroup by the instance's set_event_pid, children included.
 *
 * A driver issues and an interrupt completes a request in the name of whatever
 * task runs then. Such events go into an instance of their own, which no task
 * filters: filtered by device alone.
 */
#ifndef FLASHSCOPE_FILTER_H
#define FLASHSCOPE_FILTER_H

#include <stdbool.h>
#include <stddef.h>

#include "devices.h"
#include "groups.h"
#include "json.h"
#include "options.h"
#include "probe_points.h"
#include "ring.h"

struct fs_filter {
	const struct fs_record_options *options;
	struct fs_devices devices;
	char *cgroups[8]; /* directories */
	size_t cgroup_count;
	int *tasks; /* of --pid and --cgroup, as told to the kernel */
	size_t task_count;
};

/* Finds devices, processes and cgroups. 0, or -1 and why. */
int fs_filter_check(struct fs_filter *filter, const struct fs_record_options *options, char *error, size_t size);
/* Whether anything is filtered; whether tasks are. */
bool fs_filter_any(const struct fs_filter *filter);
bool fs_filter_tasks(const struct fs_filter *filter);
/* An event that is raised in the name of whatever task runs. */
bool fs_filter_any_task(const char *system, const char *event);
/* Adds --device and --comm to the filters of events and probes. What cannot be told by device is left out. */
void fs_filter_apply(struct fs_filter *filter, const struct fs_tracefs *tracefs, struct fs_events *events,
		     struct fs_probes *probes);
/* Tells an instance which tasks it records. 0, or -1 and why. */
int fs_filter_begin(struct fs_filter *filter, const struct fs_ring *ring, char *error, size_t size);
/* Adds tasks that have come into the cgroups. */
void fs_filter_again(struct fs_filter *filter, const struct fs_ring *ring);
/* Member "filter"; null where nothing is filtered. */
void fs_filter_json(struct fs_json *json, const struct fs_filter *filter);
/* The options as they were given, for people. */
void fs_filter_text(const struct fs_filter *filter, char *out, size_t size);
void fs_filter_free(struct fs_filter *filter);

#endif
