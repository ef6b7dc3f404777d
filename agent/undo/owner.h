/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who owns what an agent leaves. Everything that an agent creates outside its
 * own memory is called <something>_<namespace>_<pid>_<starttime>, where the
 * namespace is the inode number of the process's PID namespace. tracefs and
 * mounted directories are seen in several PID namespaces, a pid in one only.
 * Earlier versions wrote no namespace.
 */
#ifndef FLASHSCOPE_OWNER_H
#define FLASHSCOPE_OWNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum fs_owner {
	FS_OWNER_NONE,	    /* the name is none of ours */
	FS_OWNER_ALIVE,
	FS_OWNER_DEAD,
	FS_OWNER_ELSEWHERE, /* of another PID namespace: whether it lives cannot be seen from here */
};

/* True where name ends in _<pid>_<starttime>[.suffix]; which then are stored. */
bool fs_owner_of(const char *name, pid_t *pid, uint64_t *starttime);
/* The PID namespace in such a name; 0 where it has none. */
uint64_t fs_owner_namespace(const char *name);
bool fs_owner_alive(pid_t pid, uint64_t starttime);
enum fs_owner fs_owner_state(const char *name);

/* "<prefix>_<namespace>_<pid>_<starttime>" of this process. */
const char *fs_own_name(char *out, size_t size, const char *prefix);

/* The running kernel's boot, as /proc/sys/kernel/random/boot_id has it; "" where it is not told. */
const char *fs_boot_id(void);

#endif
