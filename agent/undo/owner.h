/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The owner of what an agent creates outside its own memory (tracing instances,
 * probes, files), taken from its name: <prefix>_<namespace>_<pid>_<starttime>.
 * The namespace is the inode number of the process's PID namespace: tracefs and
 * shared directories are visible in several PID namespaces, a pid is valid in
 * one only. Earlier versions wrote no namespace.
 */
#ifndef FLASHSCOPE_OWNER_H
#define FLASHSCOPE_OWNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum fs_owner {
	FS_OWNER_NONE,	    /* the name does not have this form */
	FS_OWNER_ALIVE,
	FS_OWNER_DEAD,
	FS_OWNER_ELSEWHERE, /* in another PID namespace: whether it still runs is unknown */
};

/* True if name ends in _<pid>_<starttime>[.suffix]; stores both. */
bool fs_owner_of(const char *name, pid_t *pid, uint64_t *starttime);
/* The PID namespace in such a name; 0 if there is none. */
uint64_t fs_owner_namespace(const char *name);
bool fs_owner_alive(pid_t pid, uint64_t starttime);
enum fs_owner fs_owner_state(const char *name);

/* "<prefix>_<namespace>_<pid>_<starttime>" of this process. */
const char *fs_own_name(char *out, size_t size, const char *prefix);

/* The boot ID (/proc/sys/kernel/random/boot_id); "" if it is unknown. */
const char *fs_boot_id(void);

#endif
