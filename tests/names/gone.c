// SPDX-License-Identifier: Apache-2.0
/*
 * Files that are gone at once. Usage: gone DIRECTORY. Prints a line for each: bytes written, and its last path. Lengths are a power
 * of two of pages: ext4 takes others in several steps.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT 40

static char path[4096], other[4096];
static const char *top;

static void put(int fd, int pages, const char *name)
{
	static char bytes[4 * 4096];

	/* Else the kernel copies nothing at first, and begins the write again. */
	memset(bytes, 1, sizeof(bytes));
	if (fd < 0 || write(fd, bytes, (size_t)pages * 4096) != pages * 4096 || fsync(fd))
		exit(1);
	printf("%d %s\n", pages * 4096, name);
}

static void file(const char *name, int pages)
{
	int fd = open(name, O_WRONLY | O_CREAT, 0600);

	put(fd, pages, name);
	close(fd);
}

static void within_directories(int i)
{
	snprintf(path, sizeof(path), "%s/directory%d", top, i);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/directory%d/sub", top, i);
	mkdir(path, 0700);
	for (int k = 0; k < 3; k++) {
		snprintf(path, sizeof(path), "%s/directory%d/sub/file%d", top, i, k);
		file(path, 1 << k);
	}
	for (int k = 0; k < 3; k++) {
		snprintf(path, sizeof(path), "%s/directory%d/sub/file%d", top, i, k);
		unlink(path);
	}
	snprintf(path, sizeof(path), "%s/directory%d/sub", top, i);
	rmdir(path);
	snprintf(path, sizeof(path), "%s/directory%d", top, i);
	rmdir(path);
}

int main(int argc, char **argv)
{
	int fd;

	if (argc != 2)
		return 2;
	top = argv[1];
	for (int i = 0; i < COUNT; i++) {
		snprintf(path, sizeof(path), "%s/short%d", top, i);
		file(path, 1 << i % 3);
		unlink(path);
	}
	for (int i = 0; i < COUNT; i++)
		within_directories(i);
	snprintf(other, sizeof(other), "%s/replaced", top);
	for (int i = 0; i < COUNT; i++) {
		snprintf(path, sizeof(path), "%s/replaced.new", top);
		fd = open(path, O_WRONLY | O_CREAT, 0600);
		put(fd, 2, other);
		close(fd);
		rename(path, other);
	}
	for (int i = 0; i < COUNT; i++) {
		/* Nothing is ever written to the first. */
		snprintf(path, sizeof(path), "%s/lock%d", top, i);
		close(open(path, O_WRONLY | O_CREAT, 0600));
		unlink(path);
		snprintf(path, sizeof(path), "%s/behind%d", top, i);
		file(path, 4);
		unlink(path);
	}
	for (int i = 0; i < COUNT; i++) {
		snprintf(path, sizeof(path), "%s/open%d", top, i);
		fd = open(path, O_WRONLY | O_CREAT, 0600);
		unlink(path);
		put(fd, 1, path);
		close(fd);
	}
	snprintf(path, sizeof(path), "%s/#", top);
	for (int i = 0; i < COUNT; i++) {
		fd = open(top, O_TMPFILE | O_WRONLY, 0600);
		put(fd, 1, path);
		close(fd);
	}
	return 0;
}
