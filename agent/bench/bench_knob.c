// SPDX-License-Identifier: Apache-2.0
/* Which knob rules read-ahead of a file: by the file system that it lies on. */
#include "bench.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "util.h"

struct mounted {
	char type[64];
	char source[256];
};

/* The number after "mnt_id:" of the descriptor's fdinfo; -1 where the kernel gives none. */
static long mount_id(int fd)
{
	char path[64];
	char *text, *line;
	long id = -1;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	text = fs_read_text(path, NULL);
	line = text ? strstr(text, "mnt_id:") : NULL;
	if (line)
		id = strtol(line + strlen("mnt_id:"), NULL, 10);
	free(text);
	return id;
}

/* mountinfo: ID PARENT MAJ:MIN ROOT TARGET OPTIONS [FIELD…] - TYPE SOURCE … (proc(5)) */
static bool find_mount(long id, struct mounted *out)
{
	char *text = fs_read_text("/proc/self/mountinfo", NULL);
	char *rest = text;
	char *line;
	bool found = false;

	while (!found && (line = strsep(&rest, "\n"))) {
		char *dash = strstr(line, " - ");

		if (strtol(line, NULL, 10) != id || !dash)
			continue;
		found = sscanf(dash + 3, "%63s %255s", out->type, out->source) == 2;
	}
	free(text);
	return found;
}

/*
 * UBIFS names its bdi ubifs_<ubi>_<volume> (fs/ubifs/super.c, 5.10 to 7.2) and
 * is mounted from ubi0:name, ubi0_1, ubi0:1 or a device node of that name.
 */
static bool ubifs_bdi(const char *source, char *out, size_t size)
{
	unsigned int ubi, volume;
	const char *name;
	int end = 0;
	DIR *class;
	struct dirent *entry;
	bool found = false;

	if (!strncmp(source, "/dev/", 5))
		source += 5;
	if (sscanf(source, "ubi%u_%u%n", &ubi, &volume, &end) == 2 && !source[end]) {
		snprintf(out, size, "ubifs_%u_%u", ubi, volume);
		return true;
	}
	end = 0;
	if (sscanf(source, "ubi%u%n", &ubi, &end) != 1)
		return false;
	name = source + end;
	if (*name != ':' && *name != '!')
		return false;
	name++;
	class = opendir("/sys/class/ubi");
	while (class && !found && (entry = readdir(class))) {
		char path[320];
		unsigned int u;
		char *value;

		end = 0;
		if (sscanf(entry->d_name, "ubi%u_%u%n", &u, &volume, &end) != 2 || entry->d_name[end] || u != ubi)
			continue;
		snprintf(path, sizeof(path), "/sys/class/ubi/%s/name", entry->d_name);
		value = fs_read_value(path);
		found = value && !strcmp(value, name);
		free(value);
	}
	if (class)
		closedir(class);
	if (found)
		snprintf(out, size, "ubifs_%u_%u", ubi, volume);
	return found;
}

int bench_readahead_knob(int fd, char *path, size_t path_size, char *why, size_t why_size)
{
	struct mounted mounted;
	struct stat st;
	char bdi[64];

	if (fstat(fd, &st)) {
		snprintf(why, why_size, "%s", strerror(errno));
		return -1;
	}
	if (!find_mount(mount_id(fd), &mounted)) {
		snprintf(why, why_size, "its mount is not in /proc/self/mountinfo");
		return -1;
	}
	if (!strcmp(mounted.type, "ubifs")) {
		if (!ubifs_bdi(mounted.source, bdi, sizeof(bdi))) {
			snprintf(why, why_size, "UBIFS on %.80s: no such volume in /sys/class/ubi", mounted.source);
			return -1;
		}
	} else if (!strcmp(mounted.type, "jffs2") || !strncmp(mounted.source, "mtd", 3)) {
		/*
		 * Mounts of an MTD device itself share one bdi, "mtd-0"
		 * (mtd_bdi_init() of drivers/mtd/mtdcore.c), although st_dev
		 * (31:N) is that of mtdblockN.
		 */
		snprintf(bdi, sizeof(bdi), "mtd-0");
	} else {
		snprintf(bdi, sizeof(bdi), "%u:%u", major(st.st_dev), minor(st.st_dev));
	}
	snprintf(path, path_size, "/sys/class/bdi/%s/read_ahead_kb", bdi);
	if (!access(path, F_OK))
		return 0;
	if (major(st.st_dev)) {
		/* A partition has its disk's queue, and no bdi of its own. */
		static const char *const places[] = { "", "../" };

		for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
			snprintf(path, path_size, "/sys/dev/block/%u:%u/%squeue/read_ahead_kb", major(st.st_dev),
				 minor(st.st_dev), places[i]);
			if (!access(path, F_OK))
				return 0;
		}
	}
	snprintf(why, why_size, "no read-ahead setting is known for %.60s on %.80s", mounted.type, mounted.source);
	*path = '\0';
	return -1;
}
