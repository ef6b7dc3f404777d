/* SPDX-License-Identifier: Apache-2.0 */
/* The recorder's capabilities: which it has, which it needs, which it drops after arming its probes. */
#ifndef FLASHSCOPE_RIGHTS_H
#define FLASHSCOPE_RIGHTS_H

#include <stdbool.h>

#include "json.h"
#include "tracefs.h"

/*
 * Drops every capability that draining, naming and undoing do not need. They
 * cannot be regained, not even by a program that this process executes. The
 * table `kept` of rights.c lists what is kept, and why. Returns 0, or -1 with
 * errno.
 */
int fs_rights_drop(const struct fs_tracefs *tracefs, bool others_command, bool names_recorded);

/* Writes "access" of the facts (docs/reference/agent.md). */
void fs_rights_json(struct fs_json *json, const struct fs_tracefs *tracefs);

#endif
