// SPDX-License-Identifier: Apache-2.0
#include "mounts.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
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

uint32_t fs_kernel_device(dev_t device)
{
	return (uint32_t)major(device) << 20 | (minor(device) & 0xfffff);
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

/* A copy of an overlay's option: "\\," is a comma of the path (fs/overlayfs/params.c). NULL: it is not there. */
static char *option_of(const char *options, const char *name)
{
	size_t length = strlen(name);
	char *copy, *to;

	while (strncmp(options, name, length) || options[length] != '=') {
		options = strchr(options, ',');
		if (!options++)
			return NULL;
	}
	copy = fs_strdup(options + length + 1);
	to = copy;
	for (const char *from = copy; *from && *from != ','; *to++ = *from++)
		if (from[0] == '\\' && from[1] == ',')
			from++;
	*to = '\0';
	return copy;
}

/* As in /proc/self/mounts: with rw or ro of the super block. NULL: they are too long. */
static char *all_options(const struct fs_mount *mount)
{
	const char *more = mount->options ? mount->options : "";
	char text[FS_OPTIONS_MAX];

	if (!strncmp(more, "rw", 2) || !strncmp(more, "ro", 2))
		more += more[2] == ',' ? 3 : more[2] ? 0 : 2;
	if ((size_t)snprintf(text, sizeof(text), "%s%s%s", mount->flags, *more ? "," : "", more) >= sizeof(text))
		return NULL;
	return fs_strdup(text);
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
	mount->flags = words[5];
	mount->type = strsep(&after, " ");
	mount->source = strsep(&after, " ");
	mount->options = after;
	mount->upper = mount->lower = NULL;
	if (!mount->type || !mount->source)
		return false;
	fs_unescape(mount->root);
	fs_unescape(mount->point);
	fs_unescape(mount->source);
	if (mount->options)
		fs_unescape(mount->options);
	return true;
}

bool fs_mount_is_remote(const struct fs_mount *mount)
{
	static const char *const types[] = { "autofs", "nfs",  "nfs4", "cifs",	 "smb3", "9p",	   "virtiofs",
					     "ceph",   "afs",  "coda", "lustre", "gpfs", "beegfs", "vboxsf" };

	/* If our own root does not answer, nothing does. */
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

void fs_mount_path(const struct fs_mount *mount, char *path, size_t size)
{
	if (mount->pid)
		snprintf(path, size, "/proc/%" PRId32 "/root%s", mount->pid, mount->point);
	else
		snprintf(path, size, "%s", mount->point);
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
		if (!strcmp(mount.type, "overlay") && mount.options) {
			mount.upper = option_of(mount.options, "upperdir");
			mount.lower = option_of(mount.options, "lowerdir");
			mount.options = NULL;
		} else {
			mount.options = pid ? NULL : all_options(&mount);
		}
		mount.flags = NULL;
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

/* What follows a layer's directory in the path; NULL: it is not in this layer. */
static const char *behind(const char *path, const char *layer, size_t length)
{
	while (length && layer[length - 1] == '/')
		length--;
	return length && !strncmp(path, layer, length) && path[length] == '/' ? path + length : NULL;
}

static const char *in_layers(const struct fs_mount *mount, const char *path, bool upper)
{
	const char *rest = NULL;

	if (upper)
		return mount->upper ? behind(path, mount->upper, strlen(mount->upper)) : NULL;
	for (const char *layer = mount->lower; layer && !rest; layer = strchr(layer, ':') ? strchr(layer, ':') + 1 : NULL)
		rest = behind(path, layer, strcspn(layer, ":"));
	return rest;
}

bool fs_mounts_in_overlay(const struct fs_mounts *mounts, const char *path, char *out, size_t size, uint64_t *namespace)
{
	const struct fs_mount *found = NULL;
	const char *rest = NULL;

	/* Images are lower layers of many containers; it is unknown which of them read the file. */
	for (int pass = 0; pass < 2 && !found; pass++)
		for (size_t i = 0; i < mounts->count; i++) {
			const struct fs_mount *mount = &mounts->items[i];
			const char *here = in_layers(mount, path, !pass);

			if (!here || strcmp(mount->root, "/"))
				continue;
			if (found && found->device != mount->device)
				return false;
			/*
			 * A container's root is also mounted for the host, elsewhere: the path is the container's. At
			 * the same place the mount is a copy, of a namespace that was made from ours.
			 */
			if (!found || (mount->pid && !found->pid && strcmp(mount->point, found->point))) {
				found = mount;
				rest = here;
			}
		}
	if (!found)
		return false;
	*namespace = 0;
	for (size_t i = 0; found->pid && i < mounts->namespace_count; i++)
		if (mounts->pids[i] == found->pid)
			*namespace = mounts->namespaces[i];
	snprintf(out, size, "%s%s", strcmp(found->point, "/") ? found->point : "", rest);
	return true;
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
		free(mounts->items[i].options);
		free(mounts->items[i].upper);
		free(mounts->items[i].lower);
	}
	free(mounts->items);
	memset(mounts, 0, sizeof(*mounts));
}
