/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cgroups (version 2) that a replay creates, and the controllers that it enables in the root cgroup for them. Both are removed
 * when the run ends; if the run was killed, the next run removes them.
 * Undo note: /run/flashscope/cgroups_<namespace>_<pid>_<starttime>.
 */
#ifndef FLASHSCOPE_CGROUPS_H
#define FLASHSCOPE_CGROUPS_H

#include <stdbool.h>
#include <stddef.h>

#include "sweep.h"

/*
 * Finds the mount point of cgroup2. If there is none, mounts cgroup2 for this process alone on a new directory, whose path is
 * stored in `own`. Returns 0, or -1 with errno.
 */
int fs_cgroup2_find(char *mount, char *own, size_t size);
/* Unmounts and removes `own`; does nothing where it is empty. */
void fs_cgroup2_leave(char *own);

/* Writes the undo note: this run creates cgroups. Returns 0, or -1 with errno. */
int fs_cgroups_note(void);
/* Enables a controller for the children of the root cgroup, after an undo note. Returns 0, or -1 with errno. */
int fs_cgroup_enable(const char *mount, const char *controller);
/* Disables the controllers that this process enabled and removes the note. Returns 0, or -1 with errno. */
int fs_cgroups_restore(const char *mount);

/* Removes what killed runs left of these; called by fs_sweep(). */
void fs_sweep_cgroups(struct fs_swept *swept);

/* The controllers that scripts may set. */
extern const char *const fs_cgroup_controllers[4];

#endif
