/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command that `record` runs. It is forked before tracing starts and
 * executed after. Its stdin, stdout and stderr are those of the recorder or the
 * descriptors of --stdio; with --capture its stdout is kept in memory and sent
 * as FS_OUTPUT.
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

/* Exit status if the command cannot be run, as of env(1) and timeout(1). */
#define FS_EXIT_OWN_FAILURE 125
#define FS_EXIT_CANNOT_RUN 126
#define FS_EXIT_NOT_FOUND 127

struct fs_command {
	const struct fs_record_options *options;
	struct fs_user user; /* with --user */
	pid_t pid;	     /* 0: not started, or ended */
	int gate;	     /* pipe: a byte makes it run; -1: none */
	int captured;	     /* memory file with its stdout; -1: none */
	int failed;	     /* pipe with the errno of a failed exec; -1: none */
	uint64_t begin_ns;
	int status; /* as in FS_EXIT; -1: not ended */
};

void fs_command_init(struct fs_command *command, const struct fs_record_options *options);
/* Looks up the user of --user, before anything is armed. Returns 0, or -1 with a message in error. */
int fs_command_check(struct fs_command *command, char *error, size_t size);
/* Forks the command, which then waits. Returns 0, or -1 with a message in error. */
int fs_command_start(struct fs_command *command, char *error, size_t size);
/* Makes it run. Returns 0, or -1 with a message in error ("" after a write error of the stream). */
int fs_command_release(struct fs_command *command, struct fs_stream *stream, char *error, size_t size);
/* True if it has ended; its frames are written then. flags: of waitpid(). */
bool fs_command_ended(struct fs_command *command, struct fs_stream *stream, int flags);
/* Ends it with SIGTERM, then SIGKILL. `warned`: it received the same SIGINT as we and gets time to end first. */
void fs_command_end(struct fs_command *command, struct fs_stream *stream, bool warned);
void fs_command_free(struct fs_command *command);

#endif
