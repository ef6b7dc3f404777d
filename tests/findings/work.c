// SPDX-License-Identifier: Apache-2.0
/*
 * Programs with one planted fault each.
 *   work log N EACH FILE      N records of 80 bytes, fsync() after each EACH of them
 *   work write N FILE         N write() of 4096 bytes, no sync
 *   work trickle MS DIR       a new file of 4096 bytes each 50 ms, for so long
 *   work read FILE...         each file from its begin to its end, 4096 bytes a read()
 *   work many N DIR           N files of 3000 bytes
 *   work thumbs N AHEAD DIR   each of them is opened and read; AHEAD of them are asked for before
 *   work direct N SIZE ORDER FILE   N reads of SIZE past the page cache; ORDER: seq or random
 *   work play N FILE          N reads of 32 KiB past the page cache, 10 ms between them
 *   work map N FILE           a byte of each of N pages here and there of a mapped file
 *   work remove N DIR         N files of 64 KiB, synced; of each the one that is four older is removed
 *   work parts N SIZE FILE    N pwrite() of SIZE bytes, each into another block of the file here and there
 *   work sector FILE OFFSET   pread() of 4096 bytes past the page cache; a failure is what is wanted
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096
static char page[PAGE] __attribute__((aligned(PAGE)));
static char buffer[65536] __attribute__((aligned(PAGE)));

static int failed(const char *what)
{
	perror(what);
	return 1;
}

static int records(int n, int each, const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);

	memset(page, 'x', sizeof(page));
	for (int i = 1; fd >= 0 && i <= n; i++)
		if (write(fd, page, 80) != 80 || (i % each == 0 && fsync(fd)))
			return failed(path);
	return fd < 0 ? failed(path) : 0;
}

static int writes(int n, const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	for (int i = 0; fd >= 0 && i < n; i++)
		if (write(fd, page, sizeof(page)) != PAGE)
			return failed(path);
	return fd < 0 ? failed(path) : 0;
}

static int trickle(int ms, const char *dir)
{
	char path[512];

	for (int i = 0; i < ms / 50; i++) {
		snprintf(path, sizeof(path), "%s/file%d", dir, i);
		if (writes(1, path))
			return 1;
		usleep(50000);
	}
	return 0;
}

static int reads(char **paths)
{
	for (; *paths; paths++) {
		int fd = open(*paths, O_RDONLY);

		if (fd < 0)
			return failed(*paths);
		while (read(fd, page, sizeof(page)) > 0)
			;
		close(fd);
	}
	return 0;
}

static int many(int n, const char *dir)
{
	char path[512];

	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/t%d", dir, i);
		int fd = open(path, O_WRONLY | O_CREAT, 0644);

		if (fd < 0 || write(fd, page, 3000) != 3000 || close(fd))
			return failed(path);
	}
	return 0;
}

static int thumbs(int n, int ahead, const char *dir)
{
	char path[512];
	int fds[1024];

	for (int i = 0, next = 0; i < n; i++) {
		for (; next < n && next <= i + ahead; next++) {
			snprintf(path, sizeof(path), "%s/t%d", dir, next);
			fds[next % 1024] = open(path, O_RDONLY);
			if (fds[next % 1024] < 0)
				return failed(path);
			if (ahead)
				posix_fadvise(fds[next % 1024], 0, 0, POSIX_FADV_WILLNEED);
		}
		while (read(fds[i % 1024], page, sizeof(page)) > 0)
			;
		close(fds[i % 1024]);
	}
	return 0;
}

/* A sequence that repeats: Knuth's MMIX generator. */
static unsigned long next_random(void)
{
	static unsigned long long state = 7;

	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return state >> 33;
}

static int direct(int n, int size, int in_order, int pause_us, const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECT);
	long places = fd < 0 ? 0 : lseek(fd, 0, SEEK_END) / size;

	for (int i = 0; places > 0 && i < n; i++) {
		if (pread(fd, buffer, size, (in_order ? i % places : (long)(next_random() % places)) * (off_t)size) != size)
			return failed(path);
		if (pause_us)
			usleep(pause_us);
	}
	return places > 0 ? 0 : failed(path);
}

static int map(int n, const char *path)
{
	int fd = open(path, O_RDONLY);
	off_t length = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
	volatile char *bytes = length > 0 ? mmap(NULL, length, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;

	if (bytes == MAP_FAILED)
		return failed(path);
	for (int i = 0; i < n; i++)
		page[0] = bytes[next_random() % (length / PAGE) * PAGE];
	return 0;
}

static int removed(int n, const char *dir)
{
	char path[512];

	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/d%d", dir, i);
		int fd = open(path, O_WRONLY | O_CREAT, 0644);

		if (fd < 0 || write(fd, buffer, sizeof(buffer)) != sizeof(buffer) || fsync(fd) || close(fd))
			return failed(path);
		snprintf(path, sizeof(path), "%s/d%d", dir, i - 4);
		if (i >= 4 && unlink(path))
			return failed(path);
		usleep(100000);
	}
	return 0;
}

/* 61 is no divisor of a file of a power of two: no block comes twice. */
static int parts(int n, int size, const char *path)
{
	int fd = open(path, O_WRONLY);
	off_t blocks = fd < 0 ? 0 : lseek(fd, 0, SEEK_END) / PAGE;

	for (int i = 0; blocks > 0 && i < n; i++)
		if (pwrite(fd, buffer, size, i * 61L % blocks * PAGE) != size)
			return failed(path);
	return blocks > 0 ? 0 : failed(path);
}

static int sector(const char *path, off_t offset)
{
	int fd = open(path, O_RDONLY | O_DIRECT);

	if (fd < 0)
		return failed(path);
	return pread(fd, page, sizeof(page), offset) < 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "log"))
		return records(atoi(argv[2]), atoi(argv[3]), argv[4]);
	if (argc == 4 && !strcmp(argv[1], "write"))
		return writes(atoi(argv[2]), argv[3]);
	if (argc == 4 && !strcmp(argv[1], "trickle"))
		return trickle(atoi(argv[2]), argv[3]);
	if (argc > 2 && !strcmp(argv[1], "read"))
		return reads(argv + 2);
	if (argc == 4 && !strcmp(argv[1], "many"))
		return many(atoi(argv[2]), argv[3]);
	if (argc == 5 && !strcmp(argv[1], "thumbs"))
		return thumbs(atoi(argv[2]), atoi(argv[3]), argv[4]);
	if (argc == 6 && !strcmp(argv[1], "direct"))
		return direct(atoi(argv[2]), atoi(argv[3]), !strcmp(argv[4], "seq"), 0, argv[5]);
	if (argc == 4 && !strcmp(argv[1], "play"))
		return direct(atoi(argv[2]), 32768, 1, 10000, argv[3]);
	if (argc == 4 && !strcmp(argv[1], "map"))
		return map(atoi(argv[2]), argv[3]);
	if (argc == 5 && !strcmp(argv[1], "parts"))
		return parts(atoi(argv[2]), atoi(argv[3]), argv[4]);
	if (argc == 4 && !strcmp(argv[1], "remove"))
		return removed(atoi(argv[2]), argv[3]);
	if (argc == 4 && !strcmp(argv[1], "sector"))
		return sector(argv[2], atoll(argv[3]));
	return failed("usage");
}
