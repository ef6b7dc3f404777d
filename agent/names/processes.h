/* SPDX-License-Identifier: Apache-2.0 */
/* Who a process is: its name, command line, user, control group and namespaces. */
#ifndef FLASHSCOPE_PROCESSES_H
#define FLASHSCOPE_PROCESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rows of processes in one recording. */
#define FS_PROCESSES_MAX 8192

struct fs_process {
	int32_t pid, parent;
	uint32_t uid;
	char comm[64];
	char command[256];  /* arguments, separated by blanks; longer ones end with "…" */
	char cgroup[512];   /* of systemd's or the unified hierarchy, else the longest; "" */
	uint64_t mount_namespace, pid_namespace; /* inodes; 0: not told */
};

/* False where there is no such process, or it is a thread. started: it has just executed a program, so nobody holds its memory. */
bool fs_process_read(struct fs_process *process, int32_t pid, bool started);
/* The control group that says most, of the text of /proc/PID/cgroup. */
void fs_parse_cgroup(const char *text, char *out, size_t size);
uint64_t fs_process_hash(const struct fs_process *process);

#endif
