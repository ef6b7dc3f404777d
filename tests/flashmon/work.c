/*
 * A reader, a writer and an eraser of flash at once, each on a partition of its own: mtd0, mtd1, mtd2. Says what it did.
 *   work READS PROGRAMS ERASES     so many of each
 *   work loop                      until SIGTERM
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mtd/mtd-user.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define PAGE 2048
#define BLOCK (64 * PAGE)
#define BLOCKS 32

static volatile sig_atomic_t ended;
static unsigned long wanted[3], failures;
static unsigned long reads, programs, erases[2];

static void end(int number)
{
	(void)number;
	ended = 1;
}

static int open_mtd(int index)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/dev/mtd%d", index);
	fd = open(path, O_RDWR);
	if (fd < 0) {
		perror(path);
		exit(1);
	}
	return fd;
}

static void erase(int fd, unsigned long block, unsigned long *count)
{
	struct erase_info_user info = { .start = (block % BLOCKS) * BLOCK, .length = BLOCK };

	if (ioctl(fd, MEMERASE, &info))
		__sync_fetch_and_add(&failures, 1);
	++*count;
}

static void *reader(void *unused)
{
	int fd = open_mtd(0);
	char page[PAGE];

	(void)unused;
	for (; !ended && reads < wanted[0]; reads++)
		if (pread(fd, page, PAGE, reads % (BLOCKS * 64) * PAGE) != PAGE)
			__sync_fetch_and_add(&failures, 1);
	return NULL;
}

static void *writer(void *unused)
{
	int fd = open_mtd(1);
	char page[PAGE];

	(void)unused;
	memset(page, 0x5a, sizeof(page));
	for (; !ended && programs < wanted[1]; programs++) {
		if (programs % 64 == 0)
			erase(fd, programs / 64, &erases[0]);
		if (pwrite(fd, page, PAGE, programs % (BLOCKS * 64) * PAGE) != PAGE)
			__sync_fetch_and_add(&failures, 1);
	}
	return NULL;
}

static void *eraser(void *unused)
{
	int fd = open_mtd(2);

	(void)unused;
	while (!ended && erases[1] < wanted[2])
		erase(fd, erases[1], &erases[1]);
	return NULL;
}

int main(int argc, char **argv)
{
	void *(*const all[])(void *) = { reader, writer, eraser };
	pthread_t threads[3];

	signal(SIGTERM, end);
	for (int i = 0; i < 3; i++)
		wanted[i] = argc == 4 ? strtoul(argv[1 + i], NULL, 10) : ~0ul;
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, all[i], NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	printf("reads: %lu\nprograms: %lu\nerases: %lu\nfailures: %lu\n", reads, programs, erases[0] + erases[1], failures);
	return failures != 0;
}
