// SPDX-License-Identifier: Apache-2.0
/*
 * stall DEVICE MOUNT COUNT: a child writes to DEVICE, a loop device whose file lies in the file system at MOUNT, every 20 ms. Every 9 s
 * that file system is frozen for 500 ms: a write to DEVICE stands still for that long. One line a stall on stdout: the
 * times of CLOCK_MONOTONIC, ns, before the freeze and after the thaw.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <linux/fs.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000L

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void wait_ms(long ms)
{
	struct timespec time = { ms / 1000, ms % 1000 * MS };

	nanosleep(&time, NULL);
}

static void writes(const char *device)
{
	int fd = open(device, O_WRONLY | O_DIRECT);
	void *page;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (fd < 0 || posix_memalign(&page, 4096, 4096))
		_exit(1);
	memset(page, 7, 4096);
	for (unsigned int n = 0;; n++) {
		if (pwrite(fd, page, 4096, n % 64 * 4096) != 4096)
			_exit(1);
		wait_ms(20);
	}
}

int main(int argc, char **argv)
{
	int mount = argc == 4 ? open(argv[2], O_RDONLY) : -1;
	pid_t child;

	if (mount < 0)
		return 2;
	child = fork();
	if (!child)
		writes(argv[1]);
	for (int n = atoi(argv[3]); n > 0; n--) {
		uint64_t from;

		wait_ms(9000);
		from = now();
		if (ioctl(mount, FIFREEZE, 0))
			return 1;
		wait_ms(500);
		if (ioctl(mount, FITHAW, 0))
			return 1;
		printf("%llu %llu\n", (unsigned long long)from, (unsigned long long)now());
	}
	wait_ms(4000);
	kill(child, SIGKILL);
	return 0;
}
