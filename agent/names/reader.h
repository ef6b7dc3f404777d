/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads files of /proc that may never answer. /proc/PID/cmdline and
 * /proc/PID/maps wait for the process's memory: for its lock, or for a page
 * that its owner (userfaultfd, FUSE) does not deliver. No signal but SIGKILL
 * ends that wait. So a process of our own reads them; one that does not answer
 * in time is killed, and a new one goes on.
 */
#ifndef FLASHSCOPE_READER_H
#define FLASHSCOPE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Starts the reader; without it (-1) files are read directly. prepare: what it does first, as giving up rights; may be NULL. */
int fs_reader_start(void (*prepare)(void *context), void *context);
/*
 * Up to `most` bytes (0: all) of /proc/PID/FILE, with a NUL behind them, to be freed; NULL: there is none, or it did not come in time.
 * direct: it cannot wait, and is read here: on a busy machine an answer of the reader takes two turns of the scheduler.
 */
char *fs_reader_text(int32_t pid, const char *file, uint32_t most, bool direct, size_t *length);
/* Processes that did not answer. */
uint64_t fs_reader_stuck(void);
void fs_reader_end(void);

#endif
