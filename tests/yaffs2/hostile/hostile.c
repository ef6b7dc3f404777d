// SPDX-License-Identifier: GPL-2.0
/*
 * The first process of a kernel that checks itself: mounts mutated images of YAFFS2, lists, reads and changes what it finds,
 * unmounts, and mounts what came of it. Whatever an image is, each call has to return. The kernel's command line says which
 * images: first=SEED count=N; an image is made of its seed alone. Ends with "all N images" where nothing stopped it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "mutate.h"

#define BASES 4
/* Of a tree: paths that are kept, and how deep it is followed. */
#define PATHS 500
#define DEPTH 130
#define ERRNOS 150

static const struct {
	const char *made_with, *mounted_with;
	bool inband;
} bases[BASES] = {
	{ "", "", false },
	{ "no-checkpoint", "no-checkpoint", false },
	{ "no-checkpoint,disable-summary", "no-checkpoint", false },
	{ "inband-tags", "inband-tags", true },
};

static uint8_t *base[BASES], *work;
static char *paths[PATHS];
static unsigned int path_count;
static unsigned long names, calls, failed[ERRNOS];
static uint8_t bytes[65536];

static void die(const char *what)
{
	printf("FAILED: %s: %s\n", what, strerror(errno));
	fflush(stdout);
	sync();
	reboot(RB_POWER_OFF);
}

/* Counts a call, and why it failed. */
static long called(long result)
{
	calls++;
	if (result < 0)
		failed[errno < ERRNOS ? errno : 0]++;
	return result;
}

static void flash(uint8_t *image, bool write_it)
{
	int fd = open("/dev/ramnand", O_RDWR);
	size_t done = 0;

	if (fd < 0)
		die("/dev/ramnand");
	while (done < IMAGE) {
		ssize_t n = write_it ? write(fd, image + done, IMAGE - done) : read(fd, image + done, IMAGE - done);

		if (n <= 0)
			die("the image");
		done += (size_t)n;
	}
	close(fd);
}

static int mount_it(const char *options, unsigned long flags)
{
	return mount("mtd0", "/mnt", "yaffs2", flags, options);
}

static void unmount_it(void)
{
	if (umount("/mnt"))
		die("umount");
}

/* --- what the images are made of --- */

static void fill(const char *path, size_t length, int flags)
{
	int fd = open(path, O_RDWR | O_CREAT | flags, 0644);

	for (size_t done = 0; fd >= 0 && done < length;) {
		size_t now = length - done < sizeof(bytes) ? length - done : sizeof(bytes);

		if (called(write(fd, bytes, now)) < 0)
			break;
		done += now;
	}
	if (called(fd) >= 0) {
		called(fsync(fd));
		called(close(fd));
	}
}

static void populate(void)
{
	char path[300], other[400];

	for (int i = 0; i < 12; i++) {
		snprintf(path, sizeof(path), i % 3 ? "/mnt/dir-%d/dir-%d" : "/mnt/dir-%d", i / 3 * 3, i);
		mkdir(path, 0755);
		snprintf(other, sizeof(other), "%s/file-%d", path, i);
		fill(other, (size_t)i * 1500, 0);
		snprintf(path, sizeof(path), "/mnt/link-%d", i);
		/* The name that the object had at first stays for half of them. */
		if (link(other, path))
			die("link");
		if (i % 2)
			unlink(other);
		snprintf(path, sizeof(path), "/mnt/symlink-%d", i);
		if (symlink(other + 5, path))
			die("symlink");
	}
	for (int i = 0; i < 30; i++) {
		snprintf(path, sizeof(path), "/mnt/file-%d", i);
		fill(path, (size_t)i * 700, 0);
		if (i % 5 == 4)
			unlink(path);
		if (i % 5 == 3)
			fill(path, 3000, O_TRUNC);
		snprintf(other, sizeof(other), "/mnt/dir-%d/moved-%d", i % 4 * 3, i);
		if (i % 5 == 2 && rename(path, other))
			die("rename");
	}
	mknod("/mnt/fifo", S_IFIFO | 0600, 0);
	mknod("/mnt/node", S_IFCHR | 0600, makedev(1, 3));
	snprintf(path, sizeof(path), "/mnt/%0250d", 7);
	fill(path, 5000, 0);
	/* Renamed over another: a header that shadows. */
	rename("/mnt/file-1", "/mnt/file-0");
	if (!truncate("/mnt/file-13", 100000))
		fill("/mnt/file-13", 10, 0);
}

/* --- what is done with an image --- */

static void look(int dir_fd, const char *path, unsigned int depth)
{
	DIR *dir = fdopendir(dir_fd);
	struct dirent *entry;
	struct stat st;
	char below[4096];

	if (!dir) {
		close(dir_fd);
		return;
	}
	while ((entry = readdir(dir))) {
		int fd;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (++names > 1000000)
			die("a listing without end");
		if (snprintf(below, sizeof(below), "%s/%s", path, entry->d_name) >= (int)sizeof(below))
			continue;
		if (path_count < PATHS)
			paths[path_count++] = strdup(below);
		if (called(fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW)) < 0)
			continue;
		if (S_ISLNK(st.st_mode))
			called(readlinkat(dirfd(dir), entry->d_name, (char *)bytes, sizeof(bytes)));
		if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
			continue;
		fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
		if (called(fd) < 0)
			continue;
		if (S_ISDIR(st.st_mode) && depth < DEPTH) {
			look(fd, below, depth + 1);
			continue;
		}
		if (S_ISREG(st.st_mode)) {
			called(pread(fd, bytes, sizeof(bytes), 0));
			called(pread(fd, bytes, 5000, st.st_size / 2));
			called(pread(fd, bytes, 5000, st.st_size > 3000 ? st.st_size - 3000 : 0));
		}
		close(fd);
	}
	closedir(dir);
}

static void list(void)
{
	struct statfs fs;

	for (unsigned int i = 0; i < path_count; i++)
		free(paths[i]);
	path_count = 0;
	called(statfs("/mnt", &fs));
	look(open("/mnt", O_RDONLY | O_DIRECTORY), "/mnt", 0);
}

static const char *some(uint64_t *state)
{
	return path_count ? paths[random_below(state, path_count)] : "/mnt";
}

static void change_one(uint64_t *state)
{
	const char *path = some(state), *other = some(state);
	char fresh[300];
	struct stat st;

	snprintf(fresh, sizeof(fresh), "/mnt/new-%u", random_below(state, 40));
	switch (random_below(state, 14)) {
	case 0:
		fill(fresh, random_below(state, 20000), 0);
		break;
	case 1:
		if (!lstat(path, &st) && S_ISREG(st.st_mode))
			fill(path, random_below(state, 5000), O_APPEND);
		break;
	case 2:
		if (!lstat(path, &st) && S_ISREG(st.st_mode))
			called(truncate(path, random_below(state, 2) ? 0 : st.st_size / 2));
		break;
	case 3:
		if (!lstat(path, &st) && S_ISREG(st.st_mode))
			called(truncate(path, (off_t)random_below(state, 1 << 20)));
		break;
	case 4:
		called(mkdir(fresh, 0755));
		break;
	case 5:
		called(rename(path, fresh));
		break;
	case 6:
		called(rename(path, other));
		break;
	case 7:
	case 8:
		called(unlink(path));
		break;
	case 9:
		called(rmdir(path));
		break;
	case 10:
		called(link(path, fresh));
		break;
	case 11:
		called(symlink(path, fresh));
		break;
	case 12:
		called(chmod(path, random_below(state, 010000)));
		break;
	default:
		called(mknod(fresh, S_IFIFO | 0600, 0));
	}
}

/* Every file is opened, removed and only then closed, which frees it. */
static void remove_open(uint64_t *state)
{
	for (unsigned int n = 0; n < 5; n++) {
		const char *path = some(state);
		int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);

		if (called(fd) < 0)
			continue;
		called(unlink(path));
		called(pread(fd, bytes, 5000, 0));
		close(fd);
	}
}

static void remove_all(const char *path, unsigned int depth)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	char below[4096];

	while (dir && (entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
		    snprintf(below, sizeof(below), "%s/%s", path, entry->d_name) >= (int)sizeof(below))
			continue;
		if (entry->d_type == DT_DIR && depth < DEPTH) {
			remove_all(below, depth + 1);
			called(rmdir(below));
		} else {
			called(unlink(below));
		}
	}
	if (dir)
		closedir(dir);
}

static void work_on(uint64_t *state)
{
	list();
	for (unsigned int n = random_below(state, 40); n; n--)
		change_one(state);
	remove_open(state);
	/* Blocks have to be collected. */
	if (!random_below(state, 3))
		for (unsigned int n = 0; n < 6; n++)
			fill("/mnt/large", 400000, n % 2 ? O_TRUNC : 0);
	if (!random_below(state, 4))
		remove_all("/mnt", 0);
	sync();
	if (!random_below(state, 4)) {
		called(mount("mtd0", "/mnt", "yaffs2", MS_REMOUNT | MS_RDONLY, ""));
		list();
	}
}

static bool one_image(uint64_t seed, unsigned long *refused)
{
	uint64_t state = seed;
	unsigned int which = (unsigned int)(random_next(&state) % BASES);
	unsigned long flags = random_below(&state, 8) ? 0 : MS_RDONLY;
	char options[200];

	memcpy(work, base[which], IMAGE);
	mutate(work, bases[which].inband, &state);
	flash(work, true);
	snprintf(options, sizeof(options), "%s%s%s%s", bases[which].mounted_with, which == 0 && random_below(&state, 2) ? ",no-checkpoint-read" : "",
		 random_below(&state, 4) ? "" : ",lazy-loading-off", random_below(&state, 4) ? "" : ",empty-lost-and-found-on");
	if (mount_it(options[0] == ',' ? options + 1 : options, flags)) {
		refused[errno < ERRNOS ? errno : 0]++;
		return false;
	}
	work_on(&state);
	unmount_it();
	/* What came of it, by its checkpoint where it got one. */
	if (mount_it(bases[which].inband ? "inband-tags" : "", 0)) {
		refused[errno < ERRNOS ? errno : 0]++;
		return true;
	}
	list();
	for (unsigned int n = 0; n < 5; n++)
		change_one(&state);
	unmount_it();
	return true;
}

static void wear_out(char worn_out)
{
	int fd = open("/dev/ramnand", O_RDWR);

	if (fd < 0 || pwrite(fd, &worn_out, 1, IMAGE) != 1)
		die("/dev/ramnand");
	close(fd);
}

/* Mounted by its checkpoint, and unmounted with no block left for another. */
static void mount_worn(unsigned int which)
{
	flash(base[which], true);
	if (mount_it(bases[which].mounted_with, 0))
		die("the image cannot be mounted");
	wear_out(1);
	for (unsigned int i = 0; i < 80; i++) {
		char path[300];

		snprintf(path, sizeof(path), "/mnt/worn-%u", i);
		fill(path, 2000, 0);
	}
	unmount_it();
	wear_out(0);
}

static void make_base(unsigned int which)
{
	unsigned int headers, summaries, checkpoint;
	char text[8192];
	ssize_t length;
	int fd;

	memset(work, 0xff, IMAGE);
	flash(work, true);
	if (mount_it(bases[which].made_with, 0))
		die("an empty flash cannot be mounted");
	populate();
	unmount_it();
	base[which] = malloc(IMAGE);
	flash(base[which], false);
	if (!image_is_understood(base[which], bases[which].inband, &headers, &summaries, &checkpoint))
		die("tags, summaries or the checkpoint lie otherwise than the mutations take them to");
	if (mount_it(bases[which].mounted_with, 0))
		die("an unchanged image cannot be mounted");
	names = 0;
	list();
	fd = open("/proc/self/mountstats", O_RDONLY);
	length = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[length > 0 ? length : 0] = 0;
	/* A checkpoint that its own kernel wrote is taken. */
	if (!strstr(text, "checkpoint pages read ") || (strstr(text, "checkpoint pages read 0,") != NULL) != (checkpoint == 0))
		die("the checkpoint of an unchanged image was not taken");
	unmount_it();
	if (checkpoint)
		mount_worn(which);
	printf("base %u (%s): %lu names, %u headers, %u summaries, %u pages of checkpoint\n", which, bases[which].made_with, names,
	       headers, summaries, checkpoint);
}

static void errors_print(const char *what, const unsigned long *count)
{
	printf("%s:", what);
	for (int i = 0; i < ERRNOS; i++)
		if (count[i])
			printf(" %s %lu", strerrorname_np(i) ? strerrorname_np(i) : "?", count[i]);
	printf("\n");
}

static void load(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || syscall(SYS_finit_module, fd, "", 0))
		die(path);
	close(fd);
}

static unsigned long asked(const char *name)
{
	const char *value = getenv(name);

	return value ? strtoul(value, NULL, 0) : 0;
}

int main(void)
{
	static unsigned long refused[ERRNOS];
	unsigned long first, count, mounted = 0;

	mkdir("/proc", 0755);
	mkdir("/dev", 0755);
	mkdir("/mnt", 0755);
	mount("proc", "/proc", "proc", 0, "");
	if (mount("dev", "/dev", "devtmpfs", 0, ""))
		die("devtmpfs");
	load("/ramnand.ko");
	load("/yaffs2.ko");
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7 + i / 251);
	work = malloc(IMAGE);
	for (unsigned int i = 0; i < BASES; i++)
		make_base(i);
	memset(failed, 0, sizeof(failed));
	calls = names = 0;
	first = asked("first");
	count = asked("count");
	for (unsigned long seed = first; seed < first + count; seed++) {
		printf("image %lu\n", seed);
		fflush(stdout);
		mounted += one_image(seed, refused);
	}
	mutations_print();
	printf("mounted %lu of %lu\n", mounted, count);
	errors_print("refused", refused);
	printf("%lu names listed, %lu calls\n", names, calls);
	errors_print("failed", failed);
	printf("all %lu images\n", count);
	fflush(stdout);
	reboot(RB_POWER_OFF);
	return 0;
}
