/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads files of /proc whose read(2) may block for ever. /proc/PID/cmdline and
 * /proc/PID/maps wait for the process's memory: for its lock, or for a page
 * that userfaultfd or FUSE does not deliver. Only SIGKILL ends that wait.
 * Therefore a helper process reads them; if it does not answer in time, it is
 * killed and replaced.
 */
#ifndef FLASHSCOPE_READER_H
#define FLASHSCOPE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Starts the helper; if that fails (-1), files are read directly. prepare: called first in the helper, to drop rights; may be NULL. */
int fs_reader_start(void (*prepare)(void *context), void *context);
/*
 * Reads up to `most` bytes (0: all) of /proc/PID/FILE; the caller frees the NUL-terminated text. NULL: no file, or no answer in time.
 * direct: for files that cannot block; they are read here, because on a busy machine the helper's answer takes two context switches.
 */
char *fs_reader_text(int32_t pid, const char *file, uint32_t most, bool direct, size_t *length);
/* Number of reads that did not end in time. */
uint64_t fs_reader_stuck(void);
void fs_reader_end(void);

#endif
