// SPDX-License-Identifier: Apache-2.0
#include "processes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mounts.h"
#include "reader.h"
#include "util.h"

/* "0::/system.slice/ssh.service" (v2), "1:name=systemd:/…", "4:memory:/docker/…" (v1); cgroups(7). */
void fs_parse_cgroup(const char *text, char *out, size_t size)
{
	size_t best = 0;

	*out = '\0';
	for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		const char *controllers = strchr(line, ':');
		const char *path = controllers ? strchr(controllers + 1, ':') : NULL;
		size_t length, weight;

		if (!path)
			return;
		path++;
		length = strcspn(path, "\n");
		/* The root has no name of its own; systemd and containers use the first two levels. */
		weight = length > 1 ? length : 0;
		if (weight && (!strncmp(controllers, "::", 2) || !strncmp(controllers, ":name=systemd:", 14)))
			weight += 4096;
		if (weight <= best)
			continue;
		best = weight;
		snprintf(out, size, "%.*s", (int)(length < size ? length : size - 1), path);
	}
}

static void read_command(struct fs_process *process, bool started)
{
	static const char more[] = "\xe2\x80\xa6";
	const size_t most = sizeof(process->command) - sizeof(more);
	size_t got = 0;
	char *text = fs_reader_text(process->pid, "cmdline", (uint32_t)most, started, &got);

	process->command[0] = '\0';
	if (!text)
		return;
	for (size_t i = 0; i < got; i++)
		process->command[i] = text[i] ? text[i] : ' ';
	process->command[got] = '\0';
	free(text);
	if (got == most)
		memcpy(process->command + got, more, sizeof(more));
	while (got && process->command[got - 1] == ' ')
		process->command[--got] = '\0';
}

static bool number_of(const char *status, const char *key, uint64_t *value)
{
	const char *line = strstr(status, key);

	return line && sscanf(line + strlen(key), "%" SCNu64, value) == 1;
}

bool fs_process_read(struct fs_process *process, int32_t pid, bool started)
{
	char path[FS_PATH_MAX];
	char *status = fs_read_text(fs_path(path, sizeof(path), "/proc/%" PRId32 "/status", pid), NULL), *cgroup;
	uint64_t parent = 0, uid = 0, tgid = 0;

	memset(process, 0, sizeof(*process));
	process->pid = pid;
	if (!status || strncmp(status, "Name:\t", 6) || !number_of(status, "\nTgid:", &tgid) || tgid != (uint64_t)pid) {
		free(status);
		return false;
	}
	snprintf(process->comm, sizeof(process->comm), "%.*s", (int)strcspn(status + 6, "\n"), status + 6);
	fs_worker_name(process->comm);
	if (number_of(status, "\nPPid:", &parent))
		process->parent = (int32_t)parent;
	if (number_of(status, "\nUid:", &uid))
		process->uid = (uint32_t)uid;
	free(status);
	/* Kernel threads, and kthreadd which makes them. */
	if (parent == 2 || pid == 2)
		return true;
	read_command(process, started);
	cgroup = fs_read_text(fs_path(path, sizeof(path), "/proc/%" PRId32 "/cgroup", pid), NULL);
	fs_parse_cgroup(cgroup, process->cgroup, sizeof(process->cgroup));
	free(cgroup);
	process->mount_namespace = fs_namespace_of(pid, "mnt");
	process->pid_namespace = fs_namespace_of(pid, "pid");
	return true;
}

uint64_t fs_process_hash(const struct fs_process *process)
{
	return fs_hash(FS_HASH_BEGIN, process, sizeof(*process));
}
