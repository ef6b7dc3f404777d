/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How `ctl` finds a recorder: recorder_<pid>_<starttime> in the run folder,
 * three lines: name, state, instance.
 */
#ifndef FLASHSCOPE_STATE_H
#define FLASHSCOPE_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FS_NAME_MAX 63

struct fs_recorder_state {
	pid_t pid;
	uint64_t starttime;
	char name[FS_NAME_MAX + 1];
	char state[16]; /* "arming", "recording", "paused", "stopping" */
	char instance[112];
};

/* Signals that ctl sends; SIGTERM stops. */
#define FS_SIGNAL_PAUSE SIGUSR1
#define FS_SIGNAL_RESUME SIGUSR2

bool fs_name_valid(const char *name);
/* 0, or -1 with errno. */
int fs_state_write(const char *name, const char *state, const char *instance);
void fs_state_remove(void);
/* All running recorders of this user; allocated by malloc. */
size_t fs_state_list(struct fs_recorder_state **states);

#endif
