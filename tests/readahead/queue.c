/*
 * Reads of a file that lies behind a block queue, each kind a process of its own, the file cold and opened once.
 *
 *   work sequential|think|random|strided FILE
 *   work split FILE OTHER
 *
 * sequential: one read after the other. think: the same with a pause of 300 µs after each, asleep. random: single pages far from
 * one another. strided: each third page. split: writes both files by turns, so that neither lies in one piece.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* 4 MiB, each piece on the disk before the next one is allocated. */
static int split(const char *const files[2])
{
	int fds[2];

	memset(buffer, 'x', sizeof(buffer));
	for (int i = 0; i < 2; i++) {
		fds[i] = open(files[i], O_WRONLY | O_CREAT | O_TRUNC, 0644);
		if (fds[i] < 0) {
			perror(files[i]);
			return 1;
		}
	}
	/* 20 pages: no window ends with each piece. */
	for (int page = 0; page < 1024; page += 20) {
		for (int i = 0; i < 2; i++) {
			for (int n = page; n < page + 20 && n < 1024; n++) {
				if (write(fds[i], buffer, sizeof(buffer)) != sizeof(buffer)) {
					perror(files[i]);
					return 1;
				}
			}
			if (fsync(fds[i])) {
				perror(files[i]);
				return 1;
			}
		}
	}
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

	if (argc == 4 && !strcmp(argv[1], "split"))
		return split((const char *[2]){ argv[2], argv[3] });
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
