/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens files of a recording. A file system in user space (FUSE) or of
 * another machine (NFS) may never answer, and then only SIGKILL ends the
 * system call, if anything does. Therefore a helper process opens the file and
 * sends the descriptor. Limit: writes to it may still block.
 */
#ifndef FLASHSCOPE_OUTPUT_H
#define FLASHSCOPE_OUTPUT_H

#include <signal.h>

/*
 * What `attempt` returns, a descriptor or -1 with errno; it runs in a helper, so only shared memory keeps what it writes
 * to `context`. Ends with EINTR once *stop is set; a message says that `path` is waited for.
 */
int fs_output_attempt(const char *path, int (*attempt)(void *context), void *context, const volatile sig_atomic_t *stop);

/* As fs_open_output(), but ends with EINTR once *stop is set; it says that it waits. */
int fs_output_open(const char *path, const volatile sig_atomic_t *stop);

#endif
