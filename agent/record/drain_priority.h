/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processor is for what is recorded: draining can wait as long as the ring
 * has room. So a recorder drains at the lowest priority, in the time that others
 * leave idle; where they leave none, it takes its usual one after a while.
 */
#ifndef FLASHSCOPE_DRAIN_PRIORITY_H
#define FLASHSCOPE_DRAIN_PRIORITY_H

#include <stdbool.h>
#include <stdint.h>

struct fs_drain_priority {
	bool able;	 /* may come back from the lowest priority */
	bool low;	 /* is at it */
	bool lifted;	 /* is not for now, while it writes to a file */
	int usual;	 /* nice value that it was started with */
	uint64_t until;	 /* CLOCK_MONOTONIC ns at which it ends; of the pass that runs */
	unsigned int hurried; /* passes for which it is not tried again */
};

void fs_drain_priority_init(struct fs_drain_priority *priority);
/* Before a pass that was due at due_ns, of which there is one each interval. */
void fs_drain_priority_begin(struct fs_drain_priority *priority, uint64_t due_ns, uint64_t interval_ns);
/* In a pass, now and then. priority may be NULL. */
void fs_drain_priority_check(struct fs_drain_priority *priority);
/*
 * Around a write to a file: at the lowest priority, a thread that holds a lock of the file system could keep it
 * for as long as others leave no time. priority may be NULL.
 */
void fs_drain_priority_lift(struct fs_drain_priority *priority);
void fs_drain_priority_lower(struct fs_drain_priority *priority);
/* The usual priority from now on. */
void fs_drain_priority_end(struct fs_drain_priority *priority);

#endif
