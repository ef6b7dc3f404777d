// SPDX-License-Identifier: Apache-2.0
#include "devices.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "util.h"

#define UP 1   /* what is stacked on it */
#define DOWN 2 /* what it lies on */
/* Of a loop device's file; the filter of an event takes a page. */
#define MOST_EXTENTS 32

static void add(struct fs_devices *devices, const char *name, int ways);

static bool in_sys(const char *name, const char *file)
{
	char path[FS_PATH_MAX];

	return !access(fs_path(path, sizeof(path), "/sys/class/block/%s%s%s", name, file ? "/" : "", file ? file : ""), F_OK);
}

static uint64_t number_of(const char *name, const char *file)
{
	char path[FS_PATH_MAX];
	uint64_t value = 0;

	fs_read_u64(fs_path(path, sizeof(path), "/sys/class/block/%s/%s", name, file), &value);
	return value;
}

/* "254:0" as the kernel counts. */
static bool device_number(const char *text, uint32_t *number)
{
	unsigned int high, low;

	if (!text || sscanf(text, "%u:%u", &high, &low) != 2)
		return false;
	*number = high << 20 | low;
	return true;
}

static bool read_number(const char *name, uint32_t *number)
{
	char path[FS_PATH_MAX];
	char *text = fs_read_value(fs_path(path, sizeof(path), "/sys/class/block/%s/dev", name));
	bool good = device_number(text, number);

	free(text);
	return good;
}

/* Name of a block device by its number, such as a stat() gives. */
static bool name_of(dev_t device, char *name, size_t size)
{
	char path[FS_PATH_MAX], target[PATH_MAX];
	ssize_t length;
	char *last;

	fs_path(path, sizeof(path), "/sys/dev/block/%u:%u", major(device), minor(device));
	length = readlink(path, target, sizeof(target) - 1);
	if (length < 0)
		return false;
	target[length] = '\0';
	last = strrchr(target, '/');
	snprintf(name, size, "%.63s", last ? last + 1 : target);
	return true;
}

/* The disk of a partition: the directory that holds it in sysfs. */
static bool disk_of(const char *name, char *disk, size_t size)
{
	char path[FS_PATH_MAX], target[PATH_MAX];
	char *last;

	if (!realpath(fs_path(path, sizeof(path), "/sys/class/block/%s", name), target))
		return false;
	last = strrchr(target, '/');
	if (!last)
		return false;
	*last = '\0';
	last = strrchr(target, '/');
	snprintf(disk, size, "%.63s", last ? last + 1 : target);
	return true;
}

static const struct fs_device *find(const struct fs_devices *devices, const char *name)
{
	for (size_t i = 0; i < devices->count; i++)
		if (!devices->items[i].range && !strcmp(devices->items[i].name, name))
			return &devices->items[i];
	return NULL;
}

static struct fs_device *append(struct fs_devices *devices, const char *name, uint32_t number)
{
	struct fs_device *device;

	devices->items = fs_realloc(devices->items, (devices->count + 1) * sizeof(*devices->items));
	device = &devices->items[devices->count++];
	memset(device, 0, sizeof(*device));
	snprintf(device->name, sizeof(device->name), "%s", name);
	device->number = number;
	return device;
}

static struct fs_device *append_range(struct fs_devices *devices, const char *name, uint32_t number, uint64_t begin,
				      uint64_t end)
{
	struct fs_device *device = append(devices, name, number);

	device->range = true;
	device->begin = begin;
	device->end = end;
	return device;
}

static void each_of(struct fs_devices *devices, const char *name, const char *directory, int ways)
{
	char path[FS_PATH_MAX];
	struct dirent *entry;
	DIR *dir = opendir(fs_path(path, sizeof(path), "/sys/class/block/%s/%s", name, directory));

	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			add(devices, entry->d_name, ways);
	if (dir)
		closedir(dir);
}

static void partitions_of(struct fs_devices *devices, const char *name)
{
	char path[FS_PATH_MAX];
	struct dirent *entry;
	DIR *dir = opendir(fs_path(path, sizeof(path), "/sys/class/block/%s", name));

	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.' && !strncmp(entry->d_name, name, strlen(name)) &&
		    in_sys(entry->d_name, "partition"))
			add(devices, entry->d_name, UP);
	if (dir)
		closedir(dir);
}

/* The block device that holds a loop device's file. */
static bool backing(const char *loop, char *name, size_t size)
{
	char path[FS_PATH_MAX];
	char *file = fs_read_value(fs_path(path, sizeof(path), "/sys/class/block/%s/loop/backing_file", loop));
	struct stat st;
	bool found = false;

	if (file && !stat(file, &st))
		found = name_of(S_ISBLK(st.st_mode) ? st.st_rdev : st.st_dev, name, size);
	free(file);
	return found;
}

static void loops_on(struct fs_devices *devices, const char *name)
{
	char path[FS_PATH_MAX], below[64];
	struct dirent *entry;
	DIR *dir = opendir(fs_path(path, sizeof(path), "/sys/class/block"));

	while (dir && (entry = readdir(dir)))
		if (!strncmp(entry->d_name, "loop", 4) && backing(entry->d_name, below, sizeof(below)) &&
		    !strcmp(below, name))
			add(devices, entry->d_name, UP);
	if (dir)
		closedir(dir);
}

/* The blocks of a loop device's file: of its disk all else is other people's. */
static void beneath_loop(struct fs_devices *devices, const char *loop)
{
	char path[FS_PATH_MAX], name[64], disk[64];
	char *file = fs_read_value(fs_path(path, sizeof(path), "/sys/class/block/%s/loop/backing_file", loop));
	struct fiemap *map = fs_alloc(sizeof(*map) + MOST_EXTENTS * sizeof(map->fm_extents[0]));
	uint32_t number, disk_number;
	struct stat st;
	int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;

	memset(map, 0, sizeof(*map));
	map->fm_length = ~UINT64_C(0);
	map->fm_extent_count = MOST_EXTENTS;
	if (fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && name_of(st.st_dev, name, sizeof(name)) &&
	    read_number(name, &number) && !ioctl(fd, FS_IOC_FIEMAP, map)) {
		bool partition = in_sys(name, "partition") && disk_of(name, disk, sizeof(disk)) &&
				 read_number(disk, &disk_number);
		uint64_t start = partition ? number_of(name, "start") : 0;

		for (uint32_t i = 0; i < map->fm_mapped_extents && i < MOST_EXTENTS; i++) {
			const struct fiemap_extent *extent = &map->fm_extents[i];
			uint64_t begin = start + extent->fe_physical / 512, end = begin + extent->fe_length / 512;

			/* Not on the disk yet: it names block 0. */
			if (extent->fe_flags & FIEMAP_EXTENT_UNKNOWN)
				continue;
			append_range(devices, name, number, begin, end);
			if (partition)
				append_range(devices, disk, disk_number, begin, end);
		}
	}
	if (fd >= 0)
		close(fd);
	free(map);
	free(file);
}

static void add(struct fs_devices *devices, const char *name, int ways)
{
	char other[64];
	uint32_t number;
	bool partition = in_sys(name, "partition");

	if (find(devices, name) || !read_number(name, &number))
		return;
	append(devices, name, number);
	if (partition && disk_of(name, other, sizeof(other)) && read_number(other, &number)) {
		uint64_t begin = number_of(name, "start");

		append_range(devices, other, number, begin, begin + number_of(name, "size"))->flushes = true;
	}
	if (ways & UP) {
		each_of(devices, name, "holders", UP);
		loops_on(devices, name);
		if (!partition)
			partitions_of(devices, name);
	}
	if (ways & DOWN) {
		each_of(devices, name, "slaves", DOWN);
		beneath_loop(devices, name);
	}
}

/* The MTD device of a UBI volume's name ("ubi0:rootfs", "ubi0_1"); -1. */
static int mtd_of_ubi(const char *source)
{
	char path[FS_PATH_MAX];
	unsigned int ubi;
	uint64_t mtd;

	if (sscanf(source, "ubi%u", &ubi) != 1 && sscanf(source, "/dev/ubi%u", &ubi) != 1)
		return -1;
	return fs_read_u64(fs_path(path, sizeof(path), "/sys/class/ubi/ubi%u/mtd_num", ubi), &mtd) ? (int)mtd : -1;
}

/* Mounted file systems whose number is not a block device's. */
static void file_systems(struct fs_devices *devices)
{
	char path[FS_PATH_MAX];
	char *text = fs_read_text(fs_path(path, sizeof(path), "/proc/self/mountinfo"), NULL);
	char *save = NULL;

	for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
		char device[32], source[256] = "", name[64];
		char *rest = strstr(line, " - ");
		uint32_t number;
		bool ours = false;
		struct stat st;

		if (!rest || sscanf(line, "%*s %*s %31s", device) != 1 || sscanf(rest, " - %*s %255s", source) != 1 ||
		    !device_number(device, &number) || number >> 20)
			continue;
		if (!stat(source, &st) && S_ISBLK(st.st_mode) && name_of(st.st_rdev, name, sizeof(name)))
			ours = find(devices, name) != NULL;
		for (size_t i = 0; i < devices->mtd_count; i++)
			ours |= mtd_of_ubi(source) == devices->mtd[i];
		for (size_t i = 0; i < devices->count && ours; i++)
			ours = devices->items[i].number != number;
		if (ours)
			append(devices, source, number)->file_system = true;
	}
	free(text);
}

static int disk_with_room(const struct dirent *entry)
{
	return entry->d_name[0] != '.' && strncmp(entry->d_name, "ram", 3) && number_of(entry->d_name, "size");
}

static int mtd_partition(const struct dirent *entry)
{
	unsigned int mtd;
	char end;

	return sscanf(entry->d_name, "mtd%u%c", &mtd, &end) == 1;
}

/* Of one class of devices, in the order of their numbers; "..." stands for those that do not fit. */
static void names_of(const char *class, int (*wanted)(const struct dirent *), char *out, size_t size)
{
	char path[FS_PATH_MAX];
	struct dirent **entries;
	size_t used = strlen(out);
	bool full = false;
	int count = scandir(fs_path(path, sizeof(path), "%s", class), &entries, wanted, versionsort);

	for (int i = 0; i < count; i++) {
		const char *name = entries[i]->d_name;

		if (!full && used + strlen(name) + sizeof(", , ...") <= size)
			used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", name);
		else if (!full)
			full = snprintf(out + used, size - used, ", ...") > 0;
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
}

/* Why a name is no device; of a file or directory, on which device it is. */
static void no_device(const char *name, char *error, size_t size)
{
	char names[160] = "", disk[64];
	struct stat st;
	bool there = strchr(name, '/') && !stat(name, &st);

	if (there && (S_ISDIR(st.st_mode) || S_ISREG(st.st_mode)) && name_of(st.st_dev, disk, sizeof(disk))) {
		snprintf(error, size, "--device %.100s: this is a %s on %s: give --device %s", name,
			 S_ISDIR(st.st_mode) ? "directory" : "file", disk, disk);
		return;
	}
	names_of("/sys/block", disk_with_room, names, sizeof(names));
	names_of("/sys/class/mtd", mtd_partition, names, sizeof(names));
	snprintf(error, size, "--device %.60s: no such device; this machine has %s", name,
		 *names ? names : "no block device");
}

/* A device as it is named: its path, a link to it (/dev/mapper/data), its numbers (254:0), or its name in sysfs. */
static void sysfs_name(const char *name, char *out, size_t size)
{
	unsigned int high, low;
	struct stat st;
	char end;

	if (!strncmp(name, "/dev/", 5) && !stat(name, &st) && S_ISBLK(st.st_mode) && name_of(st.st_rdev, out, size))
		return;
	if (sscanf(name, "%u:%u%c", &high, &low, &end) == 2 && name_of(makedev(high, low), out, size))
		return;
	snprintf(out, size, "%.63s", !strncmp(name, "/dev/", 5) ? name + 5 : name);
}

int fs_devices_add(struct fs_devices *devices, const char *name, char *error, size_t size)
{
	char path[FS_PATH_MAX], short_name[64];
	unsigned int mtd;
	char end;

	sysfs_name(name, short_name, sizeof(short_name));
	if (sscanf(short_name, "mtd%u%c", &mtd, &end) == 1 &&
	    !access(fs_path(path, sizeof(path), "/sys/class/mtd/mtd%u", mtd), F_OK)) {
		devices->mtd = fs_realloc(devices->mtd, (devices->mtd_count + 1) * sizeof(*devices->mtd));
		devices->mtd[devices->mtd_count++] = (int)mtd;
		snprintf(short_name, sizeof(short_name), "mtdblock%u", mtd);
		add(devices, short_name, UP);
		file_systems(devices);
		return 0;
	}
	if (strchr(short_name, '/') || short_name[0] == '.' || !short_name[0] || !in_sys(short_name, "dev")) {
		no_device(name, error, size);
		return -1;
	}
	add(devices, short_name, UP | DOWN);
	file_systems(devices);
	return 0;
}

void fs_devices_free(struct fs_devices *devices)
{
	free(devices->items);
	free(devices->mtd);
	memset(devices, 0, sizeof(*devices));
}
