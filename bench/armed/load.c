// SPDX-License-Identifier: Apache-2.0
/*
 * load DEVICE RATE SECONDS: reads 4 KiB of DEVICE directly, RATE times a second; DEVICE `-`: reads nothing. A second process of the class
 * idle counts the turns of a loop meanwhile: what the processor has left. One object on stdout: reads and turns.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static int64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * SECOND + time.tv_nsec;
}

static void until(int64_t at)
{
	struct timespec time = { at / SECOND, at % SECOND };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

static void spin(volatile uint64_t *turns)
{
	const struct sched_param none = { 0 };

	if (sched_setscheduler(0, SCHED_IDLE, &none))
		_exit(1);
	for (;;) {
		for (volatile int i = 0; i < 100; i++)
			;
		++*turns;
	}
}

int main(int argc, char **argv)
{
	volatile uint64_t *turns = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const int64_t rate = argc == 4 ? atoi(argv[2]) : 0, seconds = argc == 4 ? atoi(argv[3]) : 0;
	const int fd = rate && strcmp(argv[1], "-") ? open(argv[1], O_RDONLY | O_DIRECT) : -1;
	int64_t begun, reads = 0;
	uint64_t before;
	void *page;
	pid_t child;

	if (rate <= 0 || seconds <= 0 || turns == MAP_FAILED || (fd < 0 && strcmp(argv[1], "-")) ||
	    posix_memalign(&page, 4096, 4096))
		return 2;
	child = fork();
	if (!child)
		spin(turns);
	until(now() + SECOND);
	begun = now();
	before = *turns;
	if (fd < 0)
		until(begun + seconds * SECOND);
	for (; fd >= 0 && reads < rate * seconds; reads++) {
		until(begun + reads * SECOND / rate);
		if (pread(fd, page, 4096, reads % 4096 * 4096) != 4096)
			return 1;
	}
	until(begun + seconds * SECOND);
	printf("{\"reads\": %lld, \"turns\": %llu, \"late_ns\": %lld}\n", (long long)reads,
	       (unsigned long long)(*turns - before), (long long)(now() - begun - seconds * SECOND));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return 0;
}
