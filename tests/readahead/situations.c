/*
 * Programs whose best read-ahead is known. `random`: every file is read with POSIX_FADV_RANDOM; `random-second`: the second one.
 *
 *   situations whole|head|random|strided|threes|database|mapped|willneed|two normal|random|random-second FILE…
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096

static char buffer[PAGE];
static uint32_t state = 12345;

static uint32_t below(uint32_t n)
{
	state = state * 1664525 + 1013904223;
	return (uint32_t)(((uint64_t)state * n) >> 32);
}

static ssize_t page(int fd, uint32_t number)
{
	ssize_t got = pread(fd, buffer, PAGE, (off_t)number * PAGE);

	if (got < 0) {
		perror("pread");
		exit(1);
	}
	return got;
}

static void reads(const char *what, int fd, uint32_t pages)
{
	if (!strcmp(what, "whole")) {
		for (uint32_t i = 0; page(fd, i) == PAGE; i++)
			;
	} else if (!strcmp(what, "head")) {
		for (uint32_t i = 0; i < 3; i++)
			page(fd, i);
	} else if (!strcmp(what, "random")) {
		for (int i = 0; i < 60; i++)
			page(fd, below(pages));
	} else if (!strcmp(what, "strided")) {
		/* As far apart as the first window is long: each read is where the last window ended. */
		for (uint32_t i = 0; i < 100; i++)
			page(fd, 4 * i);
	} else if (!strcmp(what, "threes")) {
		/* The third page in a row begins a bulk read of UBIFS. */
		for (uint32_t i = 5; i + 2 < pages; i += 40)
			for (uint32_t n = 0; n < 3; n++)
				page(fd, i + n);
	} else if (!strcmp(what, "database")) {
		/* The root, an inner page of fifteen, a leaf. */
		for (int i = 0; i < 80; i++) {
			page(fd, 0);
			page(fd, 1 + below(15));
			page(fd, 16 + below(pages - 16));
		}
	} else if (!strcmp(what, "willneed")) {
		posix_fadvise(fd, 0, 200 * PAGE, POSIX_FADV_WILLNEED);
		for (uint32_t i = 0; i < 60; i++)
			page(fd, i);
	} else if (!strcmp(what, "mapped")) {
		volatile char *at = mmap(NULL, (size_t)pages * PAGE, PROT_READ, MAP_SHARED, fd, 0);

		if (at == MAP_FAILED) {
			perror("mmap");
			exit(1);
		}
		for (int i = 0; i < 20; i++)
			(void)at[(size_t)below(pages) * PAGE];
	}
}

static int opened(const char *path)
{
	int fd = open(path, O_RDONLY);

	if (fd < 0) {
		perror(path);
		exit(1);
	}
	return fd;
}

static void file(const char *what, int fd, int random)
{
	struct stat st;

	if (fstat(fd, &st)) {
		perror("fstat");
		exit(1);
	}
	if (random)
		posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	reads(what, fd, (uint32_t)(st.st_size / PAGE));
	close(fd);
}

/* Both files are open before either is read: JFFS2 reads every node's header then, which a reader would wait for. */
static int two(char **paths, int all, int second)
{
	int fds[] = { opened(paths[0]), opened(paths[1]) }, status, failed = 0;

	for (int child = 0; child < 2; child++) {
		if (fork())
			continue;
		file(child ? "strided" : "whole", fds[child], all || (child && second));
		_exit(0);
	}
	while (wait(&status) > 0)
		failed |= status;
	return !!failed;
}

int main(int argc, char **argv)
{
	int all = argc > 2 && !strcmp(argv[2], "random"), second = argc > 2 && !strcmp(argv[2], "random-second");

	if (argc < 4)
		return 2;
	if (!strcmp(argv[1], "two"))
		return argc == 5 ? two(argv + 3, all, second) : 2;
	for (int i = 3; i < argc; i++)
		file(argv[1], opened(argv[i]), all || (i == 4 && second));
	return 0;
}
