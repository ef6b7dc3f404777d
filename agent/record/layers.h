/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boundaries between layers: functions by which a read, a write or an fsync
 * goes from one layer of the kernel to the next, probed where it enters and
 * where it leaves. Of a task, entries and returns nest: the time of a layer is
 * the time between them that no layer below takes.
 */
#ifndef FLASHSCOPE_LAYERS_H
#define FLASHSCOPE_LAYERS_H

#include "groups.h"
#include "json.h"
#include "probe_points.h"

/*
 * Adds enter_SYMBOL and leave_SYMBOL for each function that this kernel has;
 * own's calls are left out where a process makes them. A layer of which nothing
 * was found is named in events.
 */
void fs_layers_plan(const struct fs_tracefs *tracefs, const char *group, long own, struct fs_probes *probes,
		    struct fs_events *events);
/* Array "boundaries": what is recorded of each layer, from user space down to the device and back. */
void fs_layers_json(struct fs_json *json, const struct fs_probes *probes, const struct fs_events *events);

#endif
