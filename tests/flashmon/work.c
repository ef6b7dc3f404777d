/*
 * A reader, a writer and an eraser of flash at once, each on a partition of its own: mtd0, mtd1, mtd2. Says what it did.
 *   work READS PROGRAMS ERASES     so many of each
 *   work loop                      until SIGTERM
 *   work at OFFSET PAGES [raw]     erases the block at OFFSET of mtd0, programs pages from there (with `raw` each again, without
 *                                  ECC), reads them back and compares
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mtd/mtd-user.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
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

static void erase(int fd, unsigned long block, unsigned long *count, unsigned long blocks)
{
	struct erase_info_user info = { .start = (block % blocks) * BLOCK, .length = BLOCK };

	if (ioctl(fd, MEMERASE, &info))
		__sync_fetch_and_add(&failures, 1);
	++*count;
}

/* In a loop without an end there is time between: what waits for an idle processor (a grace period, an emulator) comes to it. */
static void rest(unsigned long count)
{
	if (count % 16 == 0 && wanted[0] == ~0ul)
		usleep(1000);
}

static void *reader(void *unused)
{
	int fd = open_mtd(0);
	char page[PAGE];

	(void)unused;
	for (; !ended && reads < wanted[0]; reads++) {
		if (pread(fd, page, PAGE, reads % (BLOCKS * 64) * PAGE) != PAGE)
			__sync_fetch_and_add(&failures, 1);
		rest(reads);
	}
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
			erase(fd, programs / 64, &erases[0], BLOCKS);
		if (pwrite(fd, page, PAGE, programs % (BLOCKS * 64) * PAGE) != PAGE)
			__sync_fetch_and_add(&failures, 1);
		rest(programs);
	}
	return NULL;
}

static void *eraser(void *unused)
{
	int fd = open_mtd(2);

	(void)unused;
	while (!ended && erases[1] < wanted[2]) {
		erase(fd, erases[1], &erases[1], BLOCKS);
		rest(erases[1]);
	}
	return NULL;
}

static int at(off_t offset, unsigned long count, bool raw)
{
	int fd = open_mtd(0);
	char page[PAGE], back[PAGE];

	erase(fd, (unsigned long)(offset / BLOCK), &erases[0], ~0ul);
	for (unsigned long i = 0; i < count; i++) {
		const off_t here = offset + (off_t)(i * PAGE);

		memset(page, (int)(i + 1), sizeof(page));
		if (pwrite(fd, page, PAGE, here) != PAGE)
			failures++;
		if (raw && (ioctl(fd, MTDFILEMODE, MTD_FILE_MODE_RAW) || pwrite(fd, page, PAGE, here) != PAGE ||
			    ioctl(fd, MTDFILEMODE, MTD_FILE_MODE_NORMAL)))
			failures++;
	}
	for (unsigned long i = 0; i < count; i++) {
		memset(page, (int)(i + 1), sizeof(page));
		if (pread(fd, back, PAGE, offset + (off_t)(i * PAGE)) != PAGE || memcmp(page, back, PAGE))
			failures++;
	}
	if (failures)
		printf("failures: %lu\n", failures);
	return failures != 0;
}

int main(int argc, char **argv)
{
	void *(*const all[])(void *) = { reader, writer, eraser };
	pthread_t threads[3];

	if (argc >= 4 && !strcmp(argv[1], "at"))
		return at(strtol(argv[2], NULL, 10), strtoul(argv[3], NULL, 10), argc > 4);
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
