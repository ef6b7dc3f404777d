/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests/blktrace/defects.sh runs on a board: direct I/O of which all is known, each kind of it something that btt
 * counts wrongly.
 *
 *   defects calls DEVICE read|write NAME FIRST COUNT BYTES   COUNT calls of BYTES, one behind the other, as a task NAME
 *   defects jumps DEVICE                                     100 reads of a page with a gap of its own before each
 *   defects pairs DEVICE same|mixed                          ten times two requests at once: two reads of one sector; a
 *                                                            write and a read of its second half
 *   defects spin NAME MS                                     uses the processor, and does no I/O
 *
 * Each prints what it did, a line: NAME PID OPERATION COUNT BYTES; `jumps` prints its gaps in sectors, sorted.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096u
#define MOST 65536u

static void die(const char *what)
{
	fprintf(stderr, "defects: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int device_open(const char *device)
{
	int fd = open(device, O_RDWR | O_DIRECT | O_CLOEXEC);

	if (fd < 0)
		die(device);
	return fd;
}

static void *buffer(void)
{
	void *memory;

	if (posix_memalign(&memory, PAGE, MOST))
		die("memory");
	memset(memory, 0x5a, MOST);
	return memory;
}

static int calls(const char *device, int write, const char *name, unsigned int first, unsigned int count,
		 unsigned int bytes)
{
	int fd = device_open(device);
	void *memory = buffer();

	prctl(PR_SET_NAME, name);
	for (unsigned int i = 0; i < count; i++) {
		off_t at = (off_t)first + (off_t)i * bytes;
		ssize_t done = write ? pwrite(fd, memory, bytes, at) : pread(fd, memory, bytes, at);

		if (done != (ssize_t)bytes)
			die(name);
	}
	printf("%s %d %s %u %u\n", name, (int)getpid(), write ? "write" : "read", count, bytes);
	return 0;
}

/* Gaps of 1 to 99 pages, each once; 99 and 37 have no common divisor. */
static int jumps(const char *device)
{
	int fd = device_open(device);
	void *memory = buffer();
	off_t at = 0;

	for (unsigned int i = 0; i < 100; i++) {
		if (i)
			at += (off_t)(1 + i * 37 % 99) * PAGE;
		if (pread(fd, memory, PAGE, at) != (ssize_t)PAGE)
			die("jumps");
		at += PAGE;
	}
	for (unsigned int gap = 1; gap <= 99; gap++)
		printf("%u%c", gap * PAGE / 512, gap < 99 ? ' ' : '\n');
	return 0;
}

static int pairs(const char *device, int mixed)
{
	int fd = device_open(device);
	char *memory = buffer();
	aio_context_t context = 0;
	struct iocb first = { .aio_lio_opcode = mixed ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
			      .aio_fildes = (uint32_t)fd,
			      .aio_buf = (uintptr_t)memory,
			      .aio_nbytes = mixed ? 2 * PAGE : PAGE };
	struct iocb second = { .aio_lio_opcode = IOCB_CMD_PREAD,
			       .aio_fildes = (uint32_t)fd,
			       .aio_buf = (uintptr_t)memory + MOST / 2,
			       .aio_nbytes = PAGE,
			       .aio_offset = mixed ? PAGE : 0 };
	struct iocb *both[] = { &first, &second };
	struct io_event events[2];

	if (syscall(SYS_io_setup, 2, &context))
		die("io_setup");
	for (int i = 0; i < 10; i++) {
		/* One by one: as a batch the two would be merged or sorted. */
		for (int k = 0; k < 2; k++)
			if (syscall(SYS_io_submit, context, 1, &both[k]) != 1)
				die("io_submit");
		if (syscall(SYS_io_getevents, context, 2, 2, events, NULL) != 2)
			die("io_getevents");
	}
	if (mixed)
		printf("pairs %d write 10 %u\n", (int)getpid(), 2 * PAGE);
	printf("pairs %d read %u %u\n", (int)getpid(), mixed ? 10u : 20u, PAGE);
	return 0;
}

static int spin(const char *name, unsigned int ms)
{
	struct timespec now, end;

	prctl(PR_SET_NAME, name);
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += ms / 1000;
	end.tv_nsec += ms % 1000 * 1000000;
	do {
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
	printf("%s %d none 0 0\n", name, (int)getpid());
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 8 && !strcmp(argv[1], "calls"))
		return calls(argv[2], !strcmp(argv[3], "write"), argv[4], (unsigned int)atoi(argv[5]),
			     (unsigned int)atoi(argv[6]), (unsigned int)atoi(argv[7]));
	if (argc == 3 && !strcmp(argv[1], "jumps"))
		return jumps(argv[2]);
	if (argc == 4 && !strcmp(argv[1], "pairs"))
		return pairs(argv[2], !strcmp(argv[3], "mixed"));
	if (argc == 4 && !strcmp(argv[1], "spin"))
		return spin(argv[2], (unsigned int)atoi(argv[3]));
	fprintf(stderr, "usage: see the source\n");
	return 2;
}
