// SPDX-License-Identifier: Apache-2.0
#include "mounts.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util.h"

/* The kernel writes blank, tab, newline and backslash as \ooo (fs/proc_namespace.c, mangle). */
void fs_unescape(char *text)
{
	char *to = text;

	for (char *from = text; *from;) {
		if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' &&
		    from[2] <= '7' && from[3] >= '0' && from[3] <= '7') {
			*to++ = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + from[3] - '0');
			from += 4;
		} else {
			*to++ = *from++;
		}
	}
	*to = '\0';
}

uint64_t fs_namespace_of(int32_t pid, const char *kind)
{
	char path[FS_PATH_MAX];
	struct stat st;

	if (pid)
		fs_path(path, sizeof(path), "/proc/%" PRId32 "/ns/%s", pid, kind);
	else
		fs_path(path, sizeof(path), "/proc/self/ns/%s", kind);
	return stat(path, &st) ? 0 : (uint64_t)st.st_ino;
}

/* "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw" (proc(5)). */
bool fs_parse_mountinfo(char *line, struct fs_mount *mount)
{
	unsigned int major, minor;
	char *words[6], *rest = line, *after;

	after = strstr(line, " - ");
	if (!after)
		return false;
	*after = '\0';
	after += 3;
	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		words[i] = strsep(&rest, " ");
		if (!words[i])
			return false;
	}
	if (!fs_parse_u64(words[0], UINT64_MAX, &mount->id) || sscanf(words[2], "%u:%u", &major, &minor) != 2)
		return false;
	mount->device = major << 20 | (minor & 0xfffff);
	mount->root = words[3];
	mount->point = words[4];
	mount->type = strsep(&after, " ");
	mount->source = strsep(&after, " ");
	if (!mount->type || !mount->source)
		return false;
	fs_unescape(mount->root);
	fs_unescape(mount->point);
	fs_unescape(mount->source);
	return true;
}

bool fs_mount_is_remote(const struct fs_mount *mount)
{
	static const char *const types[] = { "autofs", "nfs",  "nfs4", "cifs",	 "smb3", "9p",	   "virtiofs",
					     "ceph",   "afs",  "coda", "lustre", "gpfs", "beegfs", "vboxsf" };

	/* Where our own root does not answer, nothing does. */
	if (!mount->pid && !strcmp(mount->point, "/"))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (!strcmp(mount->type, types[i]))
			return true;
	/* fuse, fuseblk, fuse.sshfs; fusectl is the kernel's own. */
	return !strncmp(mount->type, "fuse", 4) && strcmp(mount->type, "fusectl");
}

bool fs_mounts_are_remote(const struct fs_mounts *mounts, int32_t pid, const char *path)
{
	for (size_t i = 0; mounts->remote && i < mounts->count; i++) {
		const struct fs_mount *mount = &mounts->items[i];
		size_t length = strlen(mount->point);

		if (mount->pid == pid && fs_mount_is_remote(mount) && !strncmp(path, mount->point, length) &&
		    (path[length] == '/' || !path[length] || length == 1))
			return true;
	}
	return false;
}

static void read_namespace(struct fs_mounts *mounts, int32_t pid)
{
	char path[FS_PATH_MAX], *text, *rest, *line;

	if (pid)
		fs_path(path, sizeof(path), "/proc/%" PRId32 "/mountinfo", pid);
	else
		fs_path(path, sizeof(path), "/proc/self/mountinfo");
	text = fs_read_text(path, NULL);
	rest = text;
	while (rest && (line = strsep(&rest, "\n"))) {
		struct fs_mount mount;

		if (!fs_parse_mountinfo(line, &mount))
			continue;
		if (mounts->count == FS_MOUNTS_MAX) {
			mounts->dropped++;
			continue;
		}
		mount.pid = pid;
		mount.root = fs_strdup(mount.root);
		mount.point = fs_strdup(mount.point);
		mount.type = fs_strdup(mount.type);
		mount.source = fs_strdup(mount.source);
		mounts->items = fs_realloc(mounts->items, (mounts->count + 1) * sizeof(*mounts->items));
		mounts->items[mounts->count++] = mount;
		mounts->remote += fs_mount_is_remote(&mount);
	}
	free(text);
}

static bool known(const struct fs_mounts *mounts, uint64_t namespace)
{
	for (size_t i = 0; i < mounts->namespace_count; i++)
		if (mounts->namespaces[i] == namespace)
			return true;
	return false;
}

void fs_mounts_read(struct fs_mounts *mounts)
{
	char path[FS_PATH_MAX];
	struct dirent *entry;
	DIR *proc;

	fs_mounts_free(mounts);
	mounts->namespaces[mounts->namespace_count++] = fs_namespace_of(0, "mnt");
	read_namespace(mounts, 0);
	proc = opendir(fs_path(path, sizeof(path), "/proc"));
	while (proc && (entry = readdir(proc))) {
		uint64_t pid, namespace;

		if (!fs_parse_u64(entry->d_name, INT32_MAX, &pid))
			continue;
		namespace = fs_namespace_of((int32_t)pid, "mnt");
		if (!namespace || known(mounts, namespace))
			continue;
		if (mounts->namespace_count == FS_NAMESPACES_MAX) {
			mounts->dropped++;
			continue;
		}
		mounts->pids[mounts->namespace_count] = (int32_t)pid;
		mounts->namespaces[mounts->namespace_count++] = namespace;
		read_namespace(mounts, (int32_t)pid);
	}
	if (proc)
		closedir(proc);
}

const struct fs_mount *fs_mounts_by_id(const struct fs_mounts *mounts, uint64_t id)
{
	for (size_t i = 0; i < mounts->count; i++)
		if (mounts->items[i].id == id)
			return &mounts->items[i];
	return NULL;
}

void fs_mounts_free(struct fs_mounts *mounts)
{
	for (size_t i = 0; i < mounts->count; i++) {
		free(mounts->items[i].root);
		free(mounts->items[i].point);
		free(mounts->items[i].type);
		free(mounts->items[i].source);
	}
	free(mounts->items);
	memset(mounts, 0, sizeof(*mounts));
}
