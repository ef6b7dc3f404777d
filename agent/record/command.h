/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command under `record`: forked before tracing is on, let run once it is.
 * Its stdin, stdout and stderr are the recorder's own, three descriptors that
 * --stdio names, or (--capture) stdout is kept and sent as FS_OUTPUT.
 */
#ifndef FLASHSCOPE_COMMAND_H
#define FLASHSCOPE_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "frame.h"
#include "options.h"
#include "user.h"

/* What a command that cannot be run ends with, as of env(1) and timeout(1). */
#define FS_EXIT_OWN_FAILURE 125
#define FS_EXIT_CANNOT_RUN 126
#define FS_EXIT_NOT_FOUND 127

struct fs_command {
	const struct fs_record_options *options;
	struct fs_user user; /* with --user */
	pid_t pid;	     /* 0: none, or ended */
	int gate;	     /* a byte lets it run; -1 */
	int captured;	     /* memory that holds its stdout; -1 */
	int failed;	     /* reads the errno of a failed exec; -1 */
	uint64_t begin_ns;
	int status; /* as FS_EXIT; -1: none has ended */
};

void fs_command_init(struct fs_command *command, const struct fs_record_options *options);
/* Finds the user of --user: before anything is armed. 0, or -1 and why. */
int fs_command_check(struct fs_command *command, char *error, size_t size);
/* Forks it; it waits. 0, or -1 and why. */
int fs_command_start(struct fs_command *command, char *error, size_t size);
/* Lets it run. 0, or -1: why, or "" where the stream is broken. */
int fs_command_release(struct fs_command *command, struct fs_stream *stream, char *error, size_t size);
/* True once it has ended (and its frames are written). flags: of waitpid(). */
bool fs_command_ended(struct fs_command *command, struct fs_stream *stream, int flags);
/* SIGTERM, then SIGKILL. `warned`: it got a SIGINT with us and has some time to end by itself first. */
void fs_command_end(struct fs_command *command, struct fs_stream *stream, bool warned);
void fs_command_free(struct fs_command *command);

#endif
