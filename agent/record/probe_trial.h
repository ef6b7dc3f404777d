/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking the kernel by trial: one probe is armed in an instance of its own,
 * filtered to this thread, something is done that must pass it, and what it
 * fetched is read. Signals wait meanwhile, so that all of it is undone.
 */
#ifndef FLASHSCOPE_PROBE_TRIAL_H
#define FLASHSCOPE_PROBE_TRIAL_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#include "tracefs.h"

struct fs_probe_trial {
	const struct fs_tracefs *tracefs;
	char group[96];	    /* of its probes */
	char instance[112]; /* below instances/ */
	char filter[64];    /* this thread alone */
	sigset_t signals;
};

/* A trial takes milliseconds: what it armed is undone before a signal ends the program. */
void fs_probe_trial_hold(sigset_t *old);

/* Makes the instance and holds signals. 0, or -1 with a text in error. */
int fs_probe_trial_begin(struct fs_probe_trial *setup, const struct fs_tracefs *tracefs, char *error, size_t size);
/* Removes it and the group's probes, and lets signals go. 0, or -1 with a text in error. */
int fs_probe_trial_end(struct fs_probe_trial *setup, char *error, size_t size);

/* Clears its ring, calls act with tracing on; the `trace` text since, to be freed; NULL where it cannot be read. */
char *fs_probe_trial_trace(const struct fs_probe_trial *setup, void (*act)(void *), void *argument);

/*
 * Fetches from arguments of calls of symbol: values[c × count + i] is fetch[i]
 * of the c-th one, for the first `calls` of them. Number of calls that act
 * caused; -1 with errno where the probe is refused.
 */
#define FS_PROBE_TRIAL_FETCHES 100 /* the kernel takes 128 for a probe, and 4096 bytes */
int fs_probe_trial_ask(const struct fs_probe_trial *setup, const char *symbol, char (*fetch)[48], size_t count,
		  void (*act)(void *), void *argument, uint64_t *values, size_t calls);

/* Number of events in a text of `trace`; the fields v0=, v1=, … of the first `calls` go to values, as above. */
int fs_probe_trial_parse(const char *text, const char *event, size_t count, uint64_t *values, size_t calls);

#endif
