/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The filters of a recording. --device and --comm become a filter on each
 * event; --pid and --cgroup use the instance's set_event_pid and include child
 * processes.
 *
 * Drivers issue requests, and interrupts complete them, in the context of
 * whatever task runs at that moment. These events are recorded in a separate
 * instance, which is filtered by device but not by task.
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
	int *tasks; /* tasks of --pid and --cgroup, as written to set_event_pid */
	size_t task_count;
};

/* Finds the devices, processes and cgroups. Returns 0, or -1 with a message in error. */
int fs_filter_check(struct fs_filter *filter, const struct fs_record_options *options, char *error, size_t size);
/* True if there is any filter; true if tasks are filtered. */
bool fs_filter_any(const struct fs_filter *filter);
bool fs_filter_tasks(const struct fs_filter *filter);
/* True for events that occur in the context of whatever task runs. */
bool fs_filter_any_task(const char *system, const char *event);
/* Adds --device and --comm to the filters of events and probes. Removes events that cannot be filtered by device. */
void fs_filter_apply(struct fs_filter *filter, const struct fs_tracefs *tracefs, struct fs_events *events,
		     struct fs_probes *probes);
/* Sets which tasks an instance records. Returns 0, or -1 with a message in error. */
int fs_filter_begin(struct fs_filter *filter, const struct fs_ring *ring, char *error, size_t size);
/* Adds tasks that have joined the cgroups since. */
void fs_filter_again(struct fs_filter *filter, const struct fs_ring *ring);
/* Writes the member "filter"; null without a filter. */
void fs_filter_json(struct fs_json *json, const struct fs_filter *filter);
/* Writes the options as the user gave them. */
void fs_filter_text(const struct fs_filter *filter, char *out, size_t size);
void fs_filter_free(struct fs_filter *filter);

#endif
