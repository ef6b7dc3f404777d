/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests/fidelity.rs runs on boards: a program that reads and changes files through mappings alone.
 *
 *   mapped FILM SETTINGS SEED
 *
 * It maps both whole, touches runs of the film's pages here and there and in order, and changes a byte of some pages of the settings.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#define PAGE 4096

static uint64_t state;

static uint64_t draw(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

static volatile unsigned char *map(const char *path, int protection, uint64_t *pages)
{
	int fd = open(path, protection & PROT_WRITE ? O_RDWR : O_RDONLY);
	struct stat st;
	void *at;

	if (fd < 0 || fstat(fd, &st) || (at = mmap(NULL, (size_t)st.st_size, protection, MAP_SHARED, fd, 0)) == MAP_FAILED) {
		fprintf(stderr, "mapped: %s: %s\n", path, strerror(errno));
		exit(1);
	}
	*pages = (uint64_t)st.st_size / PAGE;
	return at;
}

int main(int argc, char **argv)
{
	uint64_t pages, settings, next = 0;
	volatile unsigned char *film, *own;

	if (argc != 4)
		return 2;
	state = strtoull(argv[3], NULL, 10) * UINT64_C(0x9E3779B97F4A7C15) | 1;
	film = map(argv[1], PROT_READ, &pages);
	own = map(argv[2], PROT_READ | PROT_WRITE, &settings);
	for (int step = 0; step < 30; step++) {
		struct timespec pause = { .tv_nsec = (long)(5000000 + draw(60000000)) };
		uint64_t at = draw(3) ? next : draw(pages), length = 1 + draw(40);

		if (draw(5) == 0) {
			uint64_t page = draw(settings);

			/* Some pages are read first: then the page is there, and only the write is a fault. */
			if (draw(2))
				(void)own[page * PAGE];
			own[page * PAGE] ^= 1;
		} else {
			for (next = at; next < at + length && next < pages; next++)
				(void)film[next * PAGE];
			next %= pages;
		}
		nanosleep(&pause, NULL);
	}
	return 0;
}
