/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a process's name, command line, user, cgroup and namespaces. */
#ifndef FLASHSCOPE_PROCESSES_H
#define FLASHSCOPE_PROCESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Limit of processes in one recording. */
#define FS_PROCESSES_MAX 8192

struct fs_process {
	int32_t pid, parent;
	uint32_t uid;
	char comm[64];
	char command[256];  /* arguments, separated by spaces; "…" at the end if cut */
	char cgroup[512];   /* in systemd's or the unified hierarchy, else the longest path; "": none */
	uint64_t mount_namespace, pid_namespace; /* inode numbers; 0: unknown */
};

/* False if there is no such process or it is a thread. started: it has just called exec, so no lock of its memory is held. */
bool fs_process_read(struct fs_process *process, int32_t pid, bool started);
/* Selects the cgroup path for `cgroup` above from the text of /proc/PID/cgroup. */
void fs_parse_cgroup(const char *text, char *out, size_t size);
uint64_t fs_process_hash(const struct fs_process *process);

#endif
