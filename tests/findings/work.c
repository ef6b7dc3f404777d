// SPDX-License-Identifier: Apache-2.0
/*
 * Programs with one planted fault each.
 *   work log N EACH FILE      N records of 80 bytes, fsync() after each EACH of them
 *   work write N FILE         N write() of 4096 bytes, no sync
 *   work trickle MS DIR       a new file of 4096 bytes each 50 ms, for so long
 *   work read FILE...         each file from its begin to its end, 4096 bytes a read()
 *   work sector FILE OFFSET   pread() of 4096 bytes past the page cache; a failure is what is wanted
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE 4096
static char page[PAGE] __attribute__((aligned(PAGE)));

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
	if (argc == 4 && !strcmp(argv[1], "sector"))
		return sector(argv[2], atoll(argv[3]));
	return failed("usage");
}
