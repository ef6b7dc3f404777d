/*
 * Reads of a file that lies behind a block queue, each kind a process of its own, the file cold and opened once.
 *
 *   work sequential|think|random|strided FILE
 *
 * sequential: one read after the other. think: the same with a pause of 300 µs after each, asleep. random: single pages far from
 * one another. strided: each third page.
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

int main(int argc, char **argv)
{
	const char *what = argc == 3 ? argv[1] : "";
	const struct timespec pause = { .tv_nsec = 300000 };
	uint32_t state = 12345;
	struct stat st;
	off_t pages;
	int fd;

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
