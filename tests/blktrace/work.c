/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests/blktrace.rs runs on boards: block I/O of every kind on a device, and a recorder of blktrace records of
 * version 8, which Debian's blktrace does not ask for.
 *
 *   work io DEVICE SEED COUNT     direct reads and writes of four threads, then splits, merges, flush, FUA, discard
 *   work same DEVICE              four direct reads of one sector at once
 *   work zones DEVICE             what a zoned device knows
 *   work trace8 DEVICE OUT READY  records to OUT.blktrace.N until SIGTERM; READY is created when it is on
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/blkzoned.h>
#include <linux/blktrace_api.h>
#include <linux/fs.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef RWF_DSYNC
#define RWF_DSYNC 2
#endif

static const char *device;
static unsigned int count = 40;
static pthread_barrier_t together;

static void die(const char *what)
{
	fprintf(stderr, "work: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int device_open(int flags)
{
	int fd = open(device, flags | O_CLOEXEC);

	if (fd < 0)
		die(device);
	return fd;
}

static void *buffer(size_t size)
{
	void *memory;

	if (posix_memalign(&memory, 4096, size))
		die("memory");
	memset(memory, 0x5a, size);
	return memory;
}

/* xorshift: the same numbers on every board. */
static uint32_t next(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

static void *direct(void *seed)
{
	uint32_t state = 2654435761u * ((uint32_t)(uintptr_t)seed + 1);
	int fd = device_open(O_RDWR | O_DIRECT);
	char *memory = buffer(65536);

	for (unsigned int i = 0; i < count; i++) {
		size_t size = 4096u << next(&state) % 5;
		off_t at = (off_t)(next(&state) % 3072) * 4096;
		ssize_t n = next(&state) % 2 ? pread(fd, memory, size, at) : pwrite(fd, memory, size, at);

		if (n < 0)
			die("direct");
	}
	free(memory);
	close(fd);
	return NULL;
}

static void *one_sector(void *unused)
{
	int fd = device_open(O_RDONLY | O_DIRECT);
	char *memory = buffer(4096);

	(void)unused;
	for (int i = 0; i < 10; i++) {
		pthread_barrier_wait(&together);
		if (pread(fd, memory, 4096, 8192) < 0)
			die("read");
	}
	free(memory);
	close(fd);
	return NULL;
}

static void threads(void *(*body)(void *), uintptr_t seed)
{
	pthread_t thread[4];

	for (uintptr_t i = 0; i < 4; i++)
		if (pthread_create(&thread[i], NULL, body, (void *)(seed + i)))
			die("thread");
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
}

static void others(void)
{
	const off_t base = 13 << 20;
	uint64_t range[2] = { 14 << 20, 65536 };
	int fd = device_open(O_RDWR | O_DIRECT);
	char *memory = buffer(1 << 18);
	struct iovec one = { memory, 4096 };

	/* Larger than the queue's limit. */
	if (pread(fd, memory, 1 << 18, base) < 0)
		die("large read");
	if (pwritev2(fd, &one, 1, base, RWF_DSYNC) < 0)
		die("FUA write");
	if (ioctl(fd, BLKDISCARD, range))
		perror("work: discard");
	if (ioctl(fd, BLKZEROOUT, range))
		perror("work: zeroes");
	close(fd);

	fd = device_open(O_RDWR);
	for (int i = 0; i < 48; i++)
		if (pwrite(fd, memory, 4096, base + (i ^ 1) * 4096) < 0)
			die("buffered write");
	if (fsync(fd))
		die("fsync");
	for (int i = 0; i < 64; i++)
		if (pread(fd, memory, 4096, (12 << 20) + i * 4096) < 0)
			die("buffered read");
	close(fd);
	free(memory);
}

static void zones(void)
{
	int fd = device_open(O_RDWR | O_DIRECT);
	char *memory = buffer(65536);
	uint32_t sectors = 0;
	struct blk_zone_range range = { 0, 0 };

	if (ioctl(fd, BLKGETZONESZ, &sectors))
		die("zones");
	for (int i = 0; i < 8; i++)
		if (pwrite(fd, memory, 65536, i * 65536) < 0)
			die("sequential write");
	range.nr_sectors = sectors;
	if (ioctl(fd, BLKFINISHZONE, &range))
		perror("work: finish");
	if (ioctl(fd, BLKRESETZONE, &range))
		perror("work: reset");
	range.sector = sectors;
	if (ioctl(fd, BLKOPENZONE, &range))
		perror("work: open");
	if (ioctl(fd, BLKCLOSEZONE, &range))
		perror("work: close");
	close(fd);
}

/* include/uapi/linux/blktrace_api.h and fs.h of Linux 7.2: struct blk_user_trace_setup2, BLKTRACESETUP2. */
struct setup2 {
	char name[64];
	uint64_t act_mask;
	uint32_t buf_size;
	uint32_t buf_nr;
	uint64_t start_lba;
	uint64_t end_lba;
	uint32_t pid;
	uint32_t flags;
	uint64_t reserved[11];
};

static volatile sig_atomic_t stopped;

static void on_term(int unused)
{
	(void)unused;
	stopped = 1;
}

static void trace8(const char *out, const char *ready)
{
	struct setup2 setup = { .act_mask = UINT64_MAX >> 1, .buf_size = 65536, .buf_nr = 16 };
	int fd = device_open(O_RDONLY), in[64], to[64], cpus = 0;
	long possible = sysconf(_SC_NPROCESSORS_CONF);
	char path[300];
	int last = 0;

	signal(SIGTERM, on_term);
	if (ioctl(fd, _IOWR(0x12, 142, struct setup2), &setup))
		die("BLKTRACESETUP2");
	for (; cpus < possible && cpus < 64; cpus++) {
		snprintf(path, sizeof(path), "/sys/kernel/debug/block/%s/trace%d", setup.name, cpus);
		in[cpus] = open(path, O_RDONLY | O_NONBLOCK);
		if (in[cpus] < 0)
			die(path);
		snprintf(path, sizeof(path), "%s.blktrace.%d", out, cpus);
		to[cpus] = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
		if (to[cpus] < 0)
			die(path);
	}
	if (ioctl(fd, BLKTRACESTART))
		die("BLKTRACESTART");
	close(open(ready, O_WRONLY | O_CREAT, 0644));
	while (!last) {
		last = stopped;
		if (last)
			ioctl(fd, BLKTRACESTOP);
		else
			usleep(20000);
		for (int i = 0; i < cpus; i++) {
			char bytes[65536];
			ssize_t n;

			while ((n = read(in[i], bytes, sizeof(bytes))) > 0)
				if (write(to[i], bytes, n) != n)
					die(out);
		}
	}
	ioctl(fd, BLKTRACETEARDOWN);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	device = argv[2];
	if (!strcmp(argv[1], "io") && argc == 5) {
		count = (unsigned int)atoi(argv[4]);
		threads(direct, (uintptr_t)atoi(argv[3]));
		others();
	} else if (!strcmp(argv[1], "same")) {
		pthread_barrier_init(&together, NULL, 4);
		threads(one_sector, 0);
	} else if (!strcmp(argv[1], "zones")) {
		zones();
	} else if (!strcmp(argv[1], "trace8") && argc == 5) {
		trace8(argv[3], argv[4]);
	} else {
		return 2;
	}
	return 0;
}
