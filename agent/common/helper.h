/* SPDX-License-Identifier: Apache-2.0 */
/* A process that does what may never end, as opening a file on a file system that does not answer: its parent waits with a time limit. */
#ifndef FLASHSCOPE_HELPER_H
#define FLASHSCOPE_HELPER_H

#include <sys/types.h>

struct fs_helper {
	pid_t pid; /* 0: none */
	int fd; /* a socket to the other side */
};

/* As fork(2): 0 in the helper. `type` is that of the socket. */
pid_t fs_helper_fork(struct fs_helper *helper, int type);
/* For the helper, after a change of its user: the kernel ends it with its parent. It exits if that has ended already. */
void fs_helper_ends_with(pid_t parent);
/* For the parent. A helper that even SIGKILL does not end is left behind, and ends when its wait does. */
void fs_helper_end(struct fs_helper *helper);

#endif
