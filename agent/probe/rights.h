/* SPDX-License-Identifier: Apache-2.0 */
/* What a recorder may do, what it needs, and what it gives up once its probes are armed. */
#ifndef FLASHSCOPE_RIGHTS_H
#define FLASHSCOPE_RIGHTS_H

#include <stdbool.h>

#include "json.h"
#include "tracefs.h"

/*
 * Gives up every capability that draining, naming and undoing do not need, for
 * good: no program that this process might start gets one back. What is kept,
 * and why, is the table `kept` of rights.c. 0, or -1 with errno.
 */
int fs_rights_drop(const struct fs_tracefs *tracefs, bool others_command, bool names_recorded);

/* "access" of the facts: see docs/reference/agent.md. */
void fs_rights_json(struct fs_json *json, const struct fs_tracefs *tracefs);

#endif
