// SPDX-License-Identifier: Apache-2.0
#include "owner.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util.h"

/* PROC_PID_INIT_INO (include/linux/proc_ns.h): the namespace in which all processes are seen. */
#define FIRST_NAMESPACE UINT64_C(0xeffffffc)

/* The last underscore before `end`; NULL where there is none. */
static const char *underscore(const char *name, const char *end)
{
	while (end > name)
		if (*--end == '_')
			return end;
	return NULL;
}

bool fs_owner_of(const char *name, pid_t *pid, uint64_t *starttime)
{
	const char *stop = name + strcspn(name, ".");
	const char *second = underscore(name, stop);
	const char *first = second ? underscore(name, second) : NULL;
	unsigned long long start;
	char *end;
	long number;

	if (!first || !isdigit((unsigned char)first[1]) || !isdigit((unsigned char)second[1]))
		return false;
	errno = 0;
	number = strtol(first + 1, &end, 10);
	if (end != second || number < 1 || number > 0x7fffffff)
		return false;
	start = strtoull(second + 1, &end, 10);
	if (end != stop || errno)
		return false;
	*pid = (pid_t)number;
	*starttime = start;
	return true;
}

uint64_t fs_owner_namespace(const char *name)
{
	const char *at = name + strcspn(name, ".");
	unsigned long long number;
	char *end;

	for (int fields = 0; fields < 3 && at; fields++) {
		const char *next = underscore(name, at);

		if (fields == 2 && next && isdigit((unsigned char)next[1])) {
			number = strtoull(next + 1, &end, 10);
			return end == at ? number : 0;
		}
		at = next;
	}
	return 0;
}

bool fs_owner_alive(pid_t pid, uint64_t starttime)
{
	uint64_t now = fs_starttime(pid);

	/* /proc may hide another user's process (hidepid); a signal shows that it exists. */
	if (!now && kill(pid, 0) && errno == EPERM)
		return true;
	return now && now == starttime;
}

/* Of /proc/WHO/ns/pid; 0 with errno where it is not told. */
static uint64_t namespace_of(const char *who)
{
	char path[FS_PATH_MAX], link[64];
	ssize_t length = readlink(fs_path(path, sizeof(path), "/proc/%s/ns/pid", who), link, sizeof(link) - 1);
	unsigned long long number = 0;

	if (length < 0)
		return 0;
	link[length] = '\0';
	errno = EINVAL;
	return sscanf(link, "pid:[%llu]", &number) == 1 ? number : 0;
}

/* Whether /proc shows this process's PID namespace, and not the one around it. */
static bool proc_is_ours(void)
{
	char path[FS_PATH_MAX], link[32];
	ssize_t length = readlink(fs_path(path, sizeof(path), "/proc/self"), link, sizeof(link) - 1);

	if (length < 0)
		return true;
	link[length] = '\0';
	return strtol(link, NULL, 10) == (long)getpid();
}

/* No process of that namespace is left. Told by root of the first namespace alone, who sees all. */
static bool namespace_ended(uint64_t namespace)
{
	char path[FS_PATH_MAX];
	struct dirent *entry;
	bool ended = true, sees_first = false;
	DIR *proc = opendir(fs_path(path, sizeof(path), "/proc"));

	if (!proc)
		return false;
	while (ended && (entry = readdir(proc))) {
		uint64_t found;

		/* Process 1 is of the namespace that /proc shows, and not everywhere to be looked at. */
		sees_first |= !strcmp(entry->d_name, "1");
		if (!isdigit((unsigned char)entry->d_name[0]) || !strcmp(entry->d_name, "1"))
			continue;
		found = namespace_of(entry->d_name);
		if (!found)
			ended = errno == ENOENT || errno == ESRCH;
		else if (found == namespace) /* a dead process that is not reaped owns nothing */
			ended = !fs_starttime((pid_t)strtol(entry->d_name, NULL, 10));
	}
	closedir(proc);
	/* Where process 1 is hidden (hidepid), others may be. */
	return ended && sees_first;
}

enum fs_owner fs_owner_state(const char *name)
{
	uint64_t starttime, namespace, here;
	pid_t pid;

	if (!fs_owner_of(name, &pid, &starttime))
		return FS_OWNER_NONE;
	namespace = fs_owner_namespace(name);
	here = namespace_of("self");
	if (!namespace && (!here || here == FIRST_NAMESPACE))
		namespace = here;
	if (!proc_is_ours())
		return FS_OWNER_ELSEWHERE;
	if (namespace != here)
		return here == FIRST_NAMESPACE && namespace && namespace_ended(namespace) ? FS_OWNER_DEAD :
											     FS_OWNER_ELSEWHERE;
	return fs_owner_alive(pid, starttime) ? FS_OWNER_ALIVE : FS_OWNER_DEAD;
}

const char *fs_own_name(char *out, size_t size, const char *prefix)
{
	uint64_t namespace = namespace_of("self");
	/* In a /proc of the outer namespace, our number is another process's. */
	uint64_t start = proc_is_ours() ? fs_starttime(getpid()) : fs_starttime(0);

	if (namespace)
		snprintf(out, size, "%s_%" PRIu64 "_%d_%" PRIu64, prefix, namespace, (int)getpid(), start);
	else
		snprintf(out, size, "%s_%d_%" PRIu64, prefix, (int)getpid(), start);
	return out;
}

const char *fs_boot_id(void)
{
	static char id[64];
	char path[FS_PATH_MAX];
	char *text = fs_read_value(fs_path(path, sizeof(path), "/proc/sys/kernel/random/boot_id"));

	snprintf(id, sizeof(id), "%s", text ? text : "");
	id[strcspn(id, " \n")] = '\0';
	free(text);
	return id;
}
