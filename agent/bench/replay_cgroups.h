/* SPDX-License-Identifier: Apache-2.0 */
/* The cgroups of a replay script: made before its tasks start, removed when they have ended. */
#ifndef FLASHSCOPE_REPLAY_CGROUPS_H
#define FLASHSCOPE_REPLAY_CGROUPS_H

#include <stdbool.h>
#include <stdint.h>

#include "replay_script.h"
#include "util.h"

struct replay_cgroups {
	char mount[FS_PATH_MAX];     /* of cgroup2 */
	char path[FS_PATH_MAX + 64]; /* that holds the run's; empty: none was made */
	char own_mount[FS_PATH_MAX]; /* a directory of this run's, where cgroup2 was not mounted; else empty */
	uint32_t made;
};

/* For files below `dir`. 0, or an exit code; what was made is for replay_cgroups_remove(), then too. */
int replay_cgroups_make(struct replay_cgroups *c, const struct replay_script *s, const char *dir);
/* Moves the calling process there. 0, or an exit code. */
int replay_cgroups_enter(const struct replay_cgroups *c, const struct replay_script *s, uint32_t cgroup);
/* `failed`, or an exit code. */
int replay_cgroups_remove(struct replay_cgroups *c, const struct replay_script *s, int failed);

#endif
