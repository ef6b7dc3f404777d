/*
 * Reads that no benchmark makes: odd sizes and offsets, patterns that change, two processes in one file, two descriptors in two
 * processes, mapped files. Each process opens each file once.
 *
 *   work odd|mixed|backward|strided|large|interleave|end|part|again|two|mmap|mmap-random|mmap-sequential|mmap-exec|mmap-willneed|
 *        willneed|fadvise FILE
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

static char buffer[1 << 20];
static uint32_t state = 12345;

static uint32_t below(uint32_t n)
{
	state = state * 1664525 + 1013904223;
	return (uint32_t)(((uint64_t)state * n) >> 32);
}

static void get(int fd, off_t at, size_t length)
{
	if (pread(fd, buffer, length, at) < 0) {
		perror("pread");
		exit(1);
	}
}

static void some_reads(int fd, off_t size, const char *what)
{
	off_t at = 0;

	if (!strcmp(what, "odd")) {
		for (int i = 0; i < 200; i++) {
			size_t length = 1 + below(20000);

			get(fd, at, length);
			at += (off_t)length;
		}
	} else if (!strcmp(what, "mixed")) {
		for (int i = 0; i < 60; i++) {
			at = below((uint32_t)size);
			for (uint32_t n = below(12); n; n--) {
				get(fd, at, 3000);
				at += 3000;
			}
		}
	} else if (!strcmp(what, "backward")) {
		for (at = 300 * 4096; at >= 0; at -= 4096)
			get(fd, at, 4096);
	} else if (!strcmp(what, "strided")) {
		for (at = 0; at < size / 2; at += 3 * 4096)
			get(fd, at, 4096);
		for (at = size / 2; at < size; at += 2 * 4096)
			get(fd, at, 5000);
	} else if (!strcmp(what, "large")) {
		for (at = 12345; at < size; at += 700001)
			get(fd, at, 300000);
		get(fd, 0, sizeof(buffer));
	} else if (!strcmp(what, "interleave")) {
		for (int i = 0; i < 100; i++) {
			get(fd, (off_t)i * 4096, 4096);
			get(fd, size / 3 + (off_t)i * 8192, 8192);
			get(fd, size * 2 / 3 + (off_t)i * 2048, 2048);
		}
	} else if (!strcmp(what, "part")) {
		for (at = 0; at < 50 * 4096; at += 4096)
			get(fd, at, 4096);
	} else if (!strcmp(what, "again")) {
		/* What was read is dropped and brought back, and little of it is read again. */
		get(fd, 0, 40 * 4096);
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		readahead(fd, 0, 20 * 4096);
		get(fd, 3 * 4096, 100);
	} else if (!strcmp(what, "willneed")) {
		/* A middle that is asked for beforehand, and one that is not. */
		readahead(fd, 40 * 4096, 10 * 4096);
		posix_fadvise(fd, 200 * 4096 + 1, 100 * 4096, POSIX_FADV_WILLNEED);
		for (at = 30 * 4096; at < 60 * 4096; at += 4096)
			get(fd, at, 4096);
		for (at = 190 * 4096; at < 290 * 4096; at += 2 * 4096)
			get(fd, at, 4096);
	} else if (!strcmp(what, "fadvise")) {
		posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
		for (at = 0; at < 40 * 4096; at += 3000)
			get(fd, at, 3000);
		posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
		for (at = 100 * 4096; at < 160 * 4096; at += 5000)
			get(fd, at, 5000);
		posix_fadvise(fd, 0, 0, POSIX_FADV_NORMAL);
		for (at = 200 * 4096; at < 240 * 4096; at += 4096)
			get(fd, at, 4096);
	} else if (!strcmp(what, "end")) {
		/* Past the end, at it, and from before it over it. */
		get(fd, size - 5000, 4096);
		get(fd, size - 100, 4096);
		get(fd, size, 4096);
		get(fd, size + 9999, 100);
		for (at = size - 40 * 4096 + 77; at < size; at += 4096)
			get(fd, at, 4096);
	}
}

static void mapped(int fd, off_t size, const char *what)
{
	int executable = strcmp(what, "mmap-exec") ? 0 : PROT_EXEC;
	volatile unsigned char *at = mmap(NULL, (size_t)size, PROT_READ | executable, MAP_SHARED, fd, 0);
	unsigned sum = 0;

	if (at == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	if (!strcmp(what, "mmap-random"))
		madvise((void *)at, (size_t)size, MADV_RANDOM);
	if (!strcmp(what, "mmap-willneed"))
		madvise((void *)(at + 100 * 4096), 60 * 4096, MADV_WILLNEED);
	if (!strcmp(what, "mmap-sequential")) {
		madvise((void *)at, (size_t)size, MADV_SEQUENTIAL);
		for (off_t i = 0; i < size / 2; i += 4096)
			sum += at[i];
	} else {
		for (int i = 0; i < 150; i++)
			sum += at[below((uint32_t)size)];
		for (off_t i = size / 4; i < size / 2; i += 4096)
			sum += at[i];
	}
	buffer[0] = (char)sum;
}

int main(int argc, char **argv)
{
	const char *what = argc == 3 ? argv[1] : "";
	struct stat st;
	int fd;

	if (argc != 3)
		return 2;
	if (!strcmp(what, "two")) {
		for (int child = 0; child < 2; child++) {
			if (fork())
				continue;
			state += (uint32_t)child;
			fd = open(argv[2], O_RDONLY);
			if (fd < 0 || fstat(fd, &st))
				_exit(1);
			for (int i = 0; i < 120; i++) {
				get(fd, child ? below((uint32_t)st.st_size) : (off_t)i * 5000, 5000);
				usleep(500);
			}
			_exit(0);
		}
		int status, failed = 0;

		while (wait(&status) > 0)
			failed |= status;
		return !!failed;
	}
	fd = open(argv[2], O_RDONLY);
	if (fd < 0 || fstat(fd, &st)) {
		perror(argv[2]);
		return 1;
	}
	if (!strncmp(what, "mmap", 4))
		mapped(fd, st.st_size, what);
	else
		some_reads(fd, st.st_size, what);
	return 0;
}
