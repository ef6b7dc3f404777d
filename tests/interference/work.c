/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests/interference.rs runs on boards: a reader of a device, alone or beside a writer.
 *
 *   work DEVICE READ_BYTES COUNT none|direct|synced WRITE_BYTES START_US
 *
 * The reader reads COUNT times READ_BYTES from the device's first half, O_DIRECT, one after another. The writer writes
 * WRITE_BYTES at a time to the second half from START_US before the first read to the last one: `direct` by O_DIRECT, `synced` through the
 * page cache, 1 MiB and an fdatasync.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define HALF (32ll << 20)
#define AREA (16ll << 20)

static void die(const char *what)
{
	fprintf(stderr, "work: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void *buffer(size_t bytes)
{
	void *memory;

	if (posix_memalign(&memory, 4096, bytes))
		die("memory");
	memset(memory, 0x5a, bytes);
	return memory;
}

static void write_on(const char *device, int direct, size_t bytes)
{
	void *memory = buffer(bytes);
	int fd = open(device, O_WRONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
	long long unsynced = 0;

	if (fd < 0)
		die(device);
	prctl(PR_SET_NAME, "writer");
	for (long long at = 0;; at = (at + (long long)bytes) % AREA) {
		if (pwrite(fd, memory, bytes, HALF + at) != (ssize_t)bytes)
			die("pwrite");
		unsynced += (long long)bytes;
		if (!direct && unsynced >= 1 << 20) {
			if (fdatasync(fd))
				die("fdatasync");
			unsynced = 0;
		}
	}
}

int main(int argc, char **argv)
{
	size_t bytes;
	void *memory;
	int fd;
	pid_t writer = 0;

	if (argc != 7) {
		fprintf(stderr, "usage: see the source\n");
		return 2;
	}
	bytes = (size_t)atoll(argv[2]);
	memory = buffer(bytes);
	fd = open(argv[1], O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (fd < 0)
		die(argv[1]);
	if (strcmp(argv[4], "none")) {
		writer = fork();
		if (writer < 0)
			die("fork");
		if (!writer)
			write_on(argv[1], !strcmp(argv[4], "direct"), (size_t)atoll(argv[5]));
		usleep((useconds_t)atoi(argv[6]));
	}
	prctl(PR_SET_NAME, "reader");
	for (int i = 0; i < atoi(argv[3]); i++)
		if (pread(fd, memory, bytes, (off_t)i * (off_t)bytes % AREA) != (ssize_t)bytes)
			die("pread");
	/* Whoever closes the device last writes back what is left of the writer's pages: that is no read of the reader's. */
	prctl(PR_SET_NAME, "closer");
	if (writer) {
		int status;

		kill(writer, SIGKILL);
		if (waitpid(writer, &status, 0) != writer || !WIFSIGNALED(status))
			die("the writer did not write to the end");
	}
	return 0;
}
