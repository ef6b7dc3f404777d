/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another user to run a command as. /etc/passwd and /etc/group are read here:
 * a static program cannot load the C library's name services.
 */
#ifndef FLASHSCOPE_USER_H
#define FLASHSCOPE_USER_H

#include <stddef.h>
#include <sys/types.h>

struct fs_user {
	uid_t uid;
	gid_t gid;
	gid_t *groups; /* of /etc/group, gid first */
	size_t group_count;
	char *name, *home, *shell;
};

/*
 * By name, or by number where /etc/passwd need not know it: then the group has
 * the same number, and the home directory is /. 0, or -1 and why.
 */
int fs_user_find(const char *who, struct fs_user *user, char *error, size_t size);
/* Becomes that user for good: groups, ids, HOME, USER, LOGNAME, SHELL. 0, or -1 with errno. */
int fs_user_become(const struct fs_user *user);
void fs_user_free(struct fs_user *user);

#endif
