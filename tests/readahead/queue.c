/*
 * Reads of a file that lies behind a block queue, each kind a process of its own, the file cold and opened once.
 *
 *   work sequential|think|random|strided|whole FILE
 *   work lay FILE OTHER
 *
 * sequential: one read after the other, of the file's first half. think: the same with a pause of 300 µs after each, asleep. random:
 * single pages far from one another. strided: each third page. whole: one read after the other to the end. lay: makes two files of
 * 3 MiB by turns, so that each lies in pieces of 24 KiB, and prints in how many the first does.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char buffer[4096];

static void get(int fd, off_t at)
{
	if (pread(fd, buffer, sizeof(buffer), at) != sizeof(buffer)) {
		perror("pread");
		exit(1);
	}
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static int lay(char **names)
{
	enum { PIECE = 24 << 10, BYTES = 3 << 20 };
	static char piece[PIECE];
	struct fiemap map = { .fm_length = FIEMAP_MAX_OFFSET, .fm_flags = FIEMAP_FLAG_SYNC };
	int fd[2];

	for (int i = 0; i < 2; i++) {
		fd[i] = open(names[i], O_RDWR | O_CREAT | O_TRUNC, 0644);
		if (fd[i] < 0)
			fail(names[i]);
	}
	for (off_t at = 0; at < BYTES; at += PIECE)
		for (int i = 0; i < 2; i++)
			if (posix_fallocate(fd[i], at, at + PIECE < BYTES ? PIECE : BYTES - at))
				fail("posix_fallocate");
	for (int i = 0; i < 2; i++) {
		for (off_t at = 0; at < BYTES; at += PIECE) {
			ssize_t bytes = at + PIECE < BYTES ? PIECE : BYTES - at;

			memset(piece, 'a' + at / PIECE % 26, sizeof(piece));
			if (pwrite(fd[i], piece, (size_t)bytes, at) != bytes)
				fail("pwrite");
		}
		if (fsync(fd[i]))
			fail("fsync");
	}
	/* How many there are is told where none is asked for. */
	if (ioctl(fd[0], FS_IOC_FIEMAP, &map))
		fail("FS_IOC_FIEMAP");
	printf("%u\n", map.fm_mapped_extents);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc == 3 ? argv[1] : "";
	const struct timespec pause = { .tv_nsec = 300000 };
	uint32_t state = 12345;
	struct stat st;
	off_t pages;
	int fd;

	if (argc == 4 && !strcmp(argv[1], "lay"))
		return lay(argv + 2);
	if (argc != 3)
		return 2;
	fd = open(argv[2], O_RDONLY);
	if (fd < 0 || fstat(fd, &st)) {
		perror(argv[2]);
		return 1;
	}
	pages = st.st_size / 4096;
	if (!strcmp(what, "sequential") || !strcmp(what, "think")) {
		for (off_t page = 0; page < pages / 2; page++) {
			get(fd, page * 4096);
			if (*what == 't')
				nanosleep(&pause, NULL);
		}
	} else if (!strcmp(what, "whole")) {
		for (off_t page = 0; page < pages; page++)
			get(fd, page * 4096);
	} else if (!strcmp(what, "random")) {
		for (int n = 0; n < 200; n++) {
			state = state * 1664525 + 1013904223;
			get(fd, (off_t)(((uint64_t)state * (uint64_t)pages) >> 32) * 4096);
		}
	} else if (!strcmp(what, "strided")) {
		for (off_t page = 1; page < pages / 2; page += 3)
			get(fd, page * 4096);
	} else {
		return 2;
	}
	return 0;
}
