// SPDX-License-Identifier: Apache-2.0
/*
 * work FILE N: N times 4 KiB behind the file's end and fsync(), then N times the same 4 KiB anew and fdatasync(). Prints how
 * long each call took, in nanoseconds, as one JSON object.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096

static long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int calls(int fd, const char *name, int (*sync)(int), int count, int append)
{
	static char page[PAGE];

	printf("\"%s\": [", name);
	for (int i = 0; i < count; i++) {
		long long begin;

		memset(page, 'a' + i % 26, sizeof(page));
		if (pwrite(fd, page, sizeof(page), append ? (off_t)i * PAGE : 0) != PAGE)
			return -1;
		begin = now();
		if (sync(fd))
			return -1;
		printf("%s%lld", i ? ", " : "", now() - begin);
	}
	printf("]");
	return 0;
}

int main(int argc, char **argv)
{
	int fd = argc == 3 ? open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0644) : -1;
	int count = argc == 3 ? atoi(argv[2]) : 0;

	printf("{\"tid\": %d, ", getpid());
	if (fd < 0 || fsync(fd) || calls(fd, "fsync", fsync, count, 1))
		return 1;
	printf(", ");
	if (calls(fd, "fdatasync", fdatasync, count, 0))
		return 1;
	printf("}\n");
	return 0;
}
