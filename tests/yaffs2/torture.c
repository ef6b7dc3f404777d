// SPDX-License-Identifier: GPL-2.0
/*
 * Torture: `torture run DIR SECONDS SEED`. Workers side by side do all that can be done to files, each in a directory of its own
 * where it knows what has to be there, and check what they find; the device is filled on the way, and thousands of files come and
 * go. What has to be there at the end is written to /tmp/torture.N, and `torture verify DIR` checks it after a remount.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORKERS 4
#define FILES 700
#define LARGEST 40000

/* A file as it has to be; a worker's memory of it. */
struct file {
	bool there;
	uint32_t length, links;
	uint8_t *bytes;
};

static struct file files[FILES];
static char top[200];
static int failures;
static unsigned long done, full;
static uint32_t state;

static uint32_t random_below(uint32_t limit)
{
	state ^= state << 13;
	state ^= state >> 17;
	state ^= state << 5;
	return state % limit;
}

static void failed(const char *format, ...)
{
	va_list arguments;

	failures++;
	printf("FAILED: ");
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf(" (errno %d: %s)\n", errno, strerror(errno));
	fflush(stdout);
}

/* A full device is no failure; it is counted. */
static bool went_well(bool right, const char *what, int file)
{
	done++;
	if (right)
		return true;
	if (errno == ENOSPC)
		full++;
	else
		failed("%s of %d in %s", what, file, top);
	return false;
}

static void name_of(char *name, int file)
{
	snprintf(name, 300, "%s/%d/%d", top, file % 5, file);
}

static void link_of(char *name, int file)
{
	snprintf(name, 300, "%s/links/%d", top, file);
}

static void check(int number)
{
	static uint8_t found[LARGEST + 1];
	struct file *file = &files[number];
	struct stat st;
	char name[300];

	name_of(name, number);
	int fd = open(name, O_RDONLY);

	if (!file->there) {
		if (fd >= 0 || errno != ENOENT)
			failed("%s is there", name);
		if (fd >= 0)
			close(fd);
		return;
	}
	ssize_t n = fd < 0 ? -1 : read(fd, found, sizeof(found));

	if (n != (ssize_t)file->length || memcmp(found, file->bytes, file->length))
		failed("%s: %zd bytes of %u, or others", name, n, file->length);
	if (fd >= 0 && (fstat(fd, &st) || st.st_nlink != 1 + file->links || st.st_size != (off_t)file->length))
		failed("%s: %u links of %u", name, (unsigned int)st.st_nlink, 1 + file->links);
	if (fd >= 0)
		close(fd);
}

static void grow(struct file *file, uint32_t length)
{
	if (length > file->length) {
		file->bytes = realloc(file->bytes, length);
		memset(file->bytes + file->length, 0, length - file->length);
	}
	file->length = length;
}

/* A write anywhere, also beyond the end. What was taken is there, the rest is not. */
static void write_some(int number, bool anew)
{
	static uint8_t bytes[LARGEST];
	struct file *file = &files[number];
	uint32_t length = 1 + random_below(random_below(4) ? 3000 : LARGEST / 2), at = anew ? 0 : random_below(LARGEST / 2);
	char name[300];

	name_of(name, number);
	int fd = open(name, O_WRONLY | O_CREAT | (anew ? O_TRUNC : 0), 0644);

	if (!went_well(fd >= 0, "open to write", number))
		return;
	file->there = true;
	if (anew)
		grow(file, 0);
	for (uint32_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)random_below(256);
	ssize_t n = pwrite(fd, bytes, length, at);

	if (went_well(n >= 0, "write", number) && n > 0) {
		if (at + (uint32_t)n > file->length)
			grow(file, at + (uint32_t)n);
		memcpy(file->bytes + at, bytes, (size_t)n);
	}
	if (random_below(4) == 0)
		went_well(fsync(fd) == 0, "fsync", number);
	went_well(close(fd) == 0, "close", number);
}

static sigjmp_buf no_room;

static void on_bus_error(int signal)
{
	siglongjmp(no_room, signal);
}

static void write_mapped(int number)
{
	struct file *file = &files[number];
	char name[300];

	if (!file->there || !file->length)
		return;
	name_of(name, number);
	int fd = open(name, O_RDWR);
	uint32_t at = random_below(file->length);
	volatile uint8_t *map = fd < 0 ? MAP_FAILED :
					 mmap(NULL, file->length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (!went_well(map != MAP_FAILED, "mmap", number))
		return;
	/* A page for which there is no room cannot be written to. */
	if (sigsetjmp(no_room, 1) == 0) {
		map[at] ^= 0x55;
		file->bytes[at] ^= 0x55;
	} else {
		full++;
	}
	if (random_below(2))
		went_well(msync((void *)map, file->length, MS_SYNC) == 0, "msync", number);
	munmap((void *)map, file->length);
	close(fd);
}

static void cut(int number)
{
	struct file *file = &files[number];
	uint32_t length = random_below(LARGEST / 2);
	char name[300];

	if (!file->there)
		return;
	name_of(name, number);
	if (went_well(truncate(name, length) == 0, "truncate", number))
		grow(file, length);
}

static void lose(int number)
{
	struct file *file = &files[number];

	free(file->bytes);
	*file = (struct file){};
}

static void remove_one(int number)
{
	char name[300];

	if (!files[number].there)
		return;
	if (files[number].links) {
		link_of(name, number);
		if (!went_well(unlink(name) == 0, "unlink of a link", number))
			return;
		files[number].links = 0;
	}
	name_of(name, number);
	int fd = random_below(3) ? -1 : open(name, O_RDONLY);

	if (!went_well(unlink(name) == 0, "unlink", number)) {
		if (fd >= 0)
			close(fd);
		return;
	}
	/* What is open stays readable. */
	if (fd >= 0) {
		uint8_t byte = 0;

		if (files[number].length && (pread(fd, &byte, 1, files[number].length - 1) != 1 ||
					     byte != files[number].bytes[files[number].length - 1]))
			failed("%s after its removal", name);
		close(fd);
	}
	lose(number);
}

static void rename_one(int from, int to)
{
	char name[300], other[300];

	if (from == to || !files[from].there || files[from].links || files[to].links)
		return;
	name_of(name, from);
	name_of(other, to);
	if (!went_well(rename(name, other) == 0, "rename", from))
		return;
	free(files[to].bytes);
	files[to] = files[from];
	files[from] = (struct file){};
}

static void link_one(int number)
{
	char name[300], other[300];

	if (!files[number].there || files[number].links)
		return;
	name_of(name, number);
	link_of(other, number);
	if (went_well(link(name, other) == 0, "link", number))
		files[number].links = 1;
}

static void count_names(void)
{
	int wanted[6] = { 0 }, found;
	char path[300];

	for (int i = 0; i < FILES; i++) {
		wanted[i % 5] += files[i].there;
		wanted[5] += (int)files[i].links;
	}
	for (int i = 0; i < 6; i++) {
		if (i < 5)
			snprintf(path, sizeof(path), "%s/%d", top, i);
		else
			snprintf(path, sizeof(path), "%s/links", top);
		DIR *dir = opendir(path);

		found = -2;
		while (dir && readdir(dir))
			found++;
		if (dir)
			closedir(dir);
		if (found != wanted[i])
			failed("%s has %d names of %d", path, found, wanted[i]);
	}
}

static void worker(int number, const char *dir, long seconds, uint32_t seed)
{
	struct timespec begin, now;
	char path[300];

	state = (seed * 97 + (uint32_t)number) * 2654435761u | 1;
	signal(SIGBUS, on_bus_error);
	snprintf(top, sizeof(top), "%s/w%d", dir, number);
	mkdir(top, 0755);
	for (int i = 0; i < 6; i++) {
		if (i < 5)
			snprintf(path, sizeof(path), "%s/%d", top, i);
		else
			snprintf(path, sizeof(path), "%s/links", top);
		if (mkdir(path, 0755))
			failed("mkdir %s", path);
	}
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (unsigned long round = 1;; round++) {
		/* Now many come, now many go: the device is full again and again. */
		bool growing = round / 4000 % 2 == 0;
		int file = (int)random_below(FILES);

		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec - begin.tv_sec >= seconds || failures > 10)
			break;
		switch (random_below(14)) {
		case 0 ... 3:
			write_some(file, true);
			break;
		case 4 ... 5:
			write_some(file, false);
			break;
		case 6:
			write_mapped(file);
			break;
		case 7:
			cut(file);
			break;
		case 8:
			rename_one(file, (int)random_below(FILES));
			break;
		case 9:
			link_one(file);
			break;
		case 10 ... 11:
			if (!growing || random_below(4) == 0)
				remove_one(file);
			break;
		default:
			check(file);
		}
		if (!growing && random_below(2))
			remove_one((int)random_below(FILES));
		if (round % 3000 == 0)
			count_names();
	}
	/* Some room, so that everything can be made good. */
	for (int i = 0; i < FILES; i += 3)
		remove_one(i);
	sync();
	for (int i = 0; i < FILES; i++)
		check(i);
	count_names();
	printf("worker %d: %lu done, %lu without room, %d failures\n", number, done, full, failures);
	fflush(stdout);
	snprintf(path, sizeof(path), "/tmp/torture.%d", number);
	FILE *out = fopen(path, "wb");

	for (int i = 0; out && i < FILES; i++) {
		fwrite(&files[i], sizeof(files[i]), 1, out);
		fwrite(files[i].bytes, 1, files[i].length, out);
	}
	_exit(!out || fclose(out) || failures);
}

static int verify(const char *dir)
{
	for (int number = 0; number < WORKERS; number++) {
		char path[300];

		snprintf(top, sizeof(top), "%s/w%d", dir, number);
		snprintf(path, sizeof(path), "/tmp/torture.%d", number);
		FILE *in = fopen(path, "rb");

		for (int i = 0; i < FILES; i++) {
			if (!in || fread(&files[i], sizeof(files[i]), 1, in) != 1) {
				failed("%s", path);
				return 1;
			}
			files[i].bytes = malloc(files[i].length + 1);
			if (fread(files[i].bytes, 1, files[i].length, in) != files[i].length)
				failed("%s is short", path);
			check(i);
		}
		fclose(in);
		count_names();
	}
	printf("verify: %d failures\n", failures);
	return failures != 0;
}

int main(int argc, char **argv)
{
	int status, all = 0;

	if (argc == 3 && !strcmp(argv[1], "verify"))
		return verify(argv[2]);
	if (argc != 5)
		return 2;
	for (int i = 0; i < WORKERS; i++)
		if (!fork())
			worker(i, argv[2], atol(argv[3]), (uint32_t)atoi(argv[4]));
	while (wait(&status) > 0)
		all |= status;
	printf("torture: %s\n", all ? "FAILED" : "0 failures");
	return all != 0;
}
