// SPDX-License-Identifier: Apache-2.0
#include "mount_option.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "mounts.h"
#include "util.h"

#ifndef MS_NOSYMFOLLOW
#define MS_NOSYMFOLLOW 256 /* Linux 5.10 */
#endif
#ifndef MS_LAZYTIME
#define MS_LAZYTIME (1 << 25)
#endif

/* A day: ext4 takes any number, and a longer interval is a slip of the hand. */
#define MOST_COMMIT_S 86400
#define DEFAULT_COMMIT "commit=5" /* JBD2_DEFAULT_MAX_COMMIT_AGE: /proc/self/mounts leaves it out */

/* Options that a remount must repeat, or they are lost. */
static const struct {
	const char *name;
	unsigned long flag;
} flags[] = {
	{ "nosuid", MS_NOSUID },	 { "nodev", MS_NODEV },	      { "noexec", MS_NOEXEC },
	{ "nodiratime", MS_NODIRATIME }, { "noatime", MS_NOATIME },   { "relatime", MS_RELATIME },
	{ "nosymfollow", MS_NOSYMFOLLOW }, { "sync", MS_SYNCHRONOUS }, { "dirsync", MS_DIRSYNC },
	{ "mand", MS_MANDLOCK },	 { "lazytime", MS_LAZYTIME }, { "i_version", MS_I_VERSION },
};

static const char *const atimes[] = { "noatime", "relatime", "strictatime" };

static bool is_one_of(const char *word, const char *const *all, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(word, all[i]))
			return true;
	return false;
}

static bool is_atime(const char *option)
{
	return is_one_of(option, atimes, ARRAY_SIZE(atimes));
}

static bool is_sync(const char *option)
{
	return !strcmp(option, "sync") || !strcmp(option, "async");
}

bool fs_is_mount_option(const char *option)
{
	uint64_t seconds;

	return is_atime(option) || is_sync(option) || !strcmp(option, "discard") || !strcmp(option, "nodiscard") ||
	       (!strncmp(option, "commit=", 7) && strlen(option) < 14 && fs_parse_u64(option + 7, MOST_COMMIT_S, &seconds));
}

bool fs_is_same_mount_option(const char *one, const char *other)
{
	static const char *const discards[] = { "discard", "nodiscard" };

	if (is_atime(one))
		return is_atime(other);
	if (is_sync(one))
		return is_sync(other);
	if (is_one_of(one, discards, ARRAY_SIZE(discards)))
		return is_one_of(other, discards, ARRAY_SIZE(discards));
	return !strncmp(one, "commit=", 7) && !strncmp(other, "commit=", 7);
}

/* The option in "rw,noatime,commit=1" that begins with `name` and ends there, or has a value where `name` ends with "=". */
static const char *find(const char *options, const char *name, size_t *length)
{
	size_t head = strlen(name);

	for (const char *at = options; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
		*length = strcspn(at, ",");
		if (!strncmp(at, name, head) && (*length == head || name[head - 1] == '='))
			return at;
	}
	return NULL;
}

static bool has(const char *options, const char *name)
{
	size_t length;

	return find(options, name, &length) != NULL;
}

/* Type and options of what is mounted there, the last of several. The caller frees `text`. */
static int look(const char *target, char **text, const char **type, const char **options)
{
	char path[FS_PATH_MAX], *rest, *line;

	*type = NULL;
	*text = fs_read_text(fs_path(path, sizeof(path), "/proc/self/mounts"), NULL);
	if (!*text)
		return -1;
	rest = *text;
	while ((line = strsep(&rest, "\n"))) {
		char *source = strsep(&line, " "), *point = strsep(&line, " "), *kind = strsep(&line, " ");

		if (!source || !point || !kind || !line)
			continue;
		fs_unescape(point);
		if (strcmp(point, target))
			continue;
		*type = kind;
		*options = strsep(&line, " ");
	}
	if (*type)
		return 0;
	free(*text);
	errno = ENOENT;
	return -1;
}

/* ext2, ext3 and ext4 leave what a remount does not name as it is; FAT has no options of its own that it changes. */
static bool changes(const char *type, const char *option)
{
	static const char *const ext[] = { "ext2", "ext3", "ext4" }, *const fat[] = { "vfat", "msdos" };
	bool is_ext = is_one_of(type, ext, ARRAY_SIZE(ext));

	if (is_atime(option)) /* of the mount, not of the file system */
		return true;
	if (is_sync(option))
		return is_ext || is_one_of(type, fat, ARRAY_SIZE(fat));
	return is_ext && strcmp(type, "ext2");
}

int fs_mount_option_now(const char *target, const char *option, char *now, size_t size)
{
	const char *type, *options, *found;
	size_t length;
	char *text;
	int error = 0;

	if (look(target, &text, &type, &options))
		return -1;
	if (has(options, "ro"))
		error = EROFS;
	else if (!changes(type, option))
		error = EOPNOTSUPP;
	else if (is_atime(option))
		snprintf(now, size, "%s", has(options, "noatime") ? "noatime" : has(options, "relatime") ? "relatime" : "strictatime");
	else if (is_sync(option))
		snprintf(now, size, "%s", has(options, "sync") ? "sync" : "async");
	else if (strncmp(option, "commit=", 7))
		snprintf(now, size, "%s", has(options, "discard") ? "discard" : "nodiscard");
	else if ((found = find(options, "commit=", &length)))
		snprintf(now, size, "%.*s", (int)length, found);
	else
		snprintf(now, size, DEFAULT_COMMIT);
	free(text);
	errno = error;
	return error ? -1 : 0;
}

int fs_mount_option_set(const char *target, const char *option)
{
	unsigned long set = MS_REMOUNT;
	const char *type, *options, *data = NULL;
	char *text;
	int result, saved;

	if (look(target, &text, &type, &options))
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
		if (has(options, flags[i].name))
			set |= flags[i].flag;
	if (!(set & (MS_NOATIME | MS_RELATIME)))
		set |= MS_STRICTATIME;
	if (is_atime(option)) {
		/* MS_BIND: of this mount alone; nothing of the file system is touched. */
		set &= ~(unsigned long)(MS_NOATIME | MS_RELATIME | MS_STRICTATIME);
		set |= MS_BIND | (!strcmp(option, "noatime") ? MS_NOATIME : !strcmp(option, "relatime") ? MS_RELATIME : MS_STRICTATIME);
	} else if (is_sync(option)) {
		set &= ~(unsigned long)MS_SYNCHRONOUS;
		set |= *option == 's' ? MS_SYNCHRONOUS : 0;
	} else {
		data = option;
	}
	result = has(options, "ro") ? -1 : mount(NULL, target, NULL, set, data);
	saved = has(options, "ro") ? EROFS : errno;
	free(text);
	errno = saved;
	return result;
}

bool fs_mount_device(const char *target, char *device, size_t size)
{
	struct stat st;

	if (stat(target, &st))
		return false;
	snprintf(device, size, "%u:%u", major(st.st_dev), minor(st.st_dev));
	return true;
}
