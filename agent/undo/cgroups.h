/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cgroups of version 2 that a replay makes, and the controllers that it switches on in the root for them: both go with the
 * run, or with the next one where it was killed. The note is /run/flashscope/cgroups_<namespace>_<pid>_<starttime>.
 */
#ifndef FLASHSCOPE_CGROUPS_H
#define FLASHSCOPE_CGROUPS_H

#include <stdbool.h>
#include <stddef.h>

#include "sweep.h"

/*
 * Where cgroup2 is mounted. Where it is mounted nowhere it is mounted for this process alone, in a directory of its own that
 * goes into `own`. 0, or -1 with errno.
 */
int fs_cgroup2_find(char *mount, char *own, size_t size);
/* Ends such a mount; `own` may be empty. */
void fs_cgroup2_leave(char *own);

/* Notes that this run makes cgroups. 0, or -1 with errno. */
int fs_cgroups_note(void);
/* Switches a controller on for the children of the root; noted first. 0, or -1 with errno. */
int fs_cgroup_enable(const char *mount, const char *controller);
/* Switches off what this process has switched on, and removes the note. 0, or -1 with errno. */
int fs_cgroups_restore(const char *mount);

/* What dead runs left of these: fs_sweep() calls it. */
void fs_sweep_cgroups(struct fs_swept *swept);

/* The controllers that scripts may set. */
extern const char *const fs_cgroup_controllers[4];

#endif
