/* SPDX-License-Identifier: Apache-2.0 */
/* What a recorder may do, what it needs, and what it gives up once its probes are armed. */
#ifndef FLASHSCOPE_RIGHTS_H
#define FLASHSCOPE_RIGHTS_H

#include <stdbool.h>

#include "json.h"
#include "tracefs.h"

/*
 * Gives up every capability that draining and undoing do not need, for good: no
 * program that this process might start gets one back. Kept are CAP_SYS_NICE
 * (draining in idle time); CAP_KILL with `others_command` (a command that runs
 * as another user is ended too); CAP_DAC_OVERRIDE where tracefs belongs to
 * another user than ours. 0, or -1 with errno.
 */
int fs_rights_drop(const struct fs_tracefs *tracefs, bool others_command, bool names);

/* "access" of the facts: see docs/reference/agent.md. */
void fs_rights_json(struct fs_json *json, const struct fs_tracefs *tracefs);

#endif
