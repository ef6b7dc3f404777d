// SPDX-License-Identifier: GPL-2.0
/*
 * Power cuts: `cut DIR FROM TO CUTS SEED`. Writers replace files on DIR (of mtd FROM); at random moments the flash is copied
 * page by page, with its spare area, to mtd TO, as if the power had gone right then, and the copy is mounted and checked: every
 * file has its old content or its new one, what an fsync() and a rename() made good is there, and what nobody touches is as it
 * was. The power goes between two commands to the chip, never within one.
 *
 * One processor and a real-time copier that never sleeps: nobody writes while it copies.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "flash.h"

#define WRITERS 3
#define FILES 6
#define LARGEST 60000
/* From a cut to the next at most: some iterations. */
#define LONGEST_NS 120000000
/* Made once, and never touched again. */
#define STILL 30
#define MOST_BLOCKS 4096
/* Every so many cuts the copy is mounted once more. */
#define AGAIN 8

/* What of a file is certain: iteration `done` was made good; `begun` may be there instead. */
struct state {
	volatile uint32_t begun, done;
};

static struct state (*states)[FILES];

static uint32_t next(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

/* The content of a file is a function of its writer, its number and the iteration, which its first bytes name. */
static size_t content(uint8_t *bytes, int writer, int file, uint32_t iteration)
{
	uint32_t state = (iteration * 31 + (uint32_t)file * 7 + (uint32_t)writer) * 2654435761u | 1;
	size_t length = 4 + next(&state) % (LARGEST - 4);

	memcpy(bytes, &iteration, 4);
	for (size_t i = 4; i < length; i++)
		bytes[i] = (uint8_t)(next(&state) >> 9);
	return length;
}

static int sync_of(const char *path)
{
	int fd = open(path, O_RDONLY);

	return fd < 0 || syncfs(fd) || close(fd);
}

static void writer(const char *top, int number)
{
	static uint8_t bytes[LARGEST];
	char name[300], other[300];

	for (uint32_t iteration = 1;; iteration++) {
		for (int file = 0; file < FILES; file++) {
			size_t length = content(bytes, number, file, iteration);

			states[number][file].begun = iteration;
			snprintf(other, sizeof(other), "%s/w%d/new", top, number);
			snprintf(name, sizeof(name), "%s/w%d/f%d", top, number, file);
			int fd = open(other, O_WRONLY | O_CREAT | O_TRUNC, 0644);

			if (fd < 0 || write(fd, bytes, length) != (ssize_t)length || fsync(fd) || close(fd) ||
			    rename(other, name)) {
				perror("writer");
				_exit(1);
			}
			states[number][file].done = iteration;
			/* What is not made good: it may be lost, it must not disturb. */
			snprintf(other, sizeof(other), "%s/w%d/loose%d", top, number, file);
			fd = open(other, O_WRONLY | O_CREAT | O_TRUNC, 0644);
			if (fd >= 0) {
				if (write(fd, bytes, length / 2) < 0)
					perror("loose");
				close(fd);
			}
			if (iteration % 3 == 0)
				unlink(other);
		}
	}
}

/* The spare area as it lies on the flash, where a bit flips in one read of many: two agree. False: nothing is written there. */
static bool read_spare(struct flash *flash, uint32_t page, uint8_t *spare)
{
	static uint8_t again[2048];

	do {
		flash_read_spare(flash, page, spare);
		flash_read_spare(flash, page, again);
	} while (memcmp(spare, again, flash->info.oobsize));
	/* Whatever YAFFS2 writes has tags. */
	for (uint32_t i = 0; i < flash->info.oobsize; i++)
		if (spare[i] != 0xff)
			return true;
	return false;
}

static bool read_written(struct flash *flash, uint32_t page, uint8_t *data, uint8_t *spare)
{
	off_t at = (off_t)page * flash->info.writesize;
	static uint8_t again[16384];

	if (!read_spare(flash, page, spare))
		return false;
	do {
		if (pread(flash->fd, data, flash->info.writesize, at) < 0 ||
		    pread(flash->fd, again, flash->info.writesize, at) < 0) {
			perror("raw read");
			exit(1);
		}
	} while (memcmp(data, again, flash->info.writesize));
	return true;
}

/*
 * What was copied of a block. A block is given a sequence number that no other had, when it is begun, and its pages are written in
 * order: with that number and no more pages it is the same block still.
 */
struct copied {
	uint32_t sequence, pages, target;
};

static struct copied blocks_copied[MOST_BLOCKS];

static uint32_t sequence_of(const uint8_t *spare)
{
	uint32_t sequence;

	memcpy(&sequence, spare + FLASH_TAGS, 4);
	return sequence;
}

static bool is_still(struct flash *flash, uint32_t block, const struct copied *copied)
{
	uint32_t pages = flash->info.erasesize / flash->info.writesize;
	static uint8_t spare[2048];

	return copied->pages && read_spare(flash, block * pages, spare) && sequence_of(spare) == copied->sequence &&
	       (copied->pages == pages || !read_spare(flash, block * pages + copied->pages, spare));
}

/*
 * `to` becomes as `from` is; pages that were written. A block that is bad there is left out, and one that is bad here is stepped
 * over: without a checkpoint, which a file system that is written to does not have, YAFFS2 finds its blocks wherever they are.
 */
static uint32_t copy(struct flash *from, struct flash *to)
{
	uint32_t pages = from->info.erasesize / from->info.writesize, written = 0;
	uint32_t blocks = from->info.size / from->info.erasesize, targets = to->info.size / to->info.erasesize, next = 0;
	static uint8_t data[16384], spare[2048];
	static bool taken[MOST_BLOCKS];

	memset(taken, 0, sizeof(taken));
	for (uint32_t block = 0; block < blocks; block++) {
		struct copied *copied = &blocks_copied[block];

		if (!flash_bad(from, block) && is_still(from, block, copied) && is_still(to, copied->target, copied))
			taken[copied->target] = true;
		else
			copied->pages = 0;
	}
	for (uint32_t target = 0; target < targets; target++)
		if (!taken[target] && flash_bad(to, target))
			taken[target] = true;
		else if (!taken[target])
			flash_erase_block(to, target);
	for (uint32_t block = 0; block < blocks; block++) {
		struct copied *copied = &blocks_copied[block];

		if (copied->pages || flash_bad(from, block))
			continue;
		while (next < targets && taken[next])
			next++;
		for (uint32_t page = 0; page < pages; page++) {
			if (!read_written(from, block * pages + page, data, spare))
				continue;
			if (!copied->pages)
				copied->sequence = sequence_of(spare);
			flash_write(to, next * pages + page, data, spare);
			copied->pages = page + 1;
			written++;
		}
		copied->target = next;
		if (copied->pages)
			taken[next] = true;
	}
	return written;
}

static void still_name(char *path, const char *top, int i)
{
	snprintf(path, 300, "%s/still/%d/%d", top, i % 3, i);
}

static void make_still(const char *top)
{
	static uint8_t bytes[LARGEST];
	char path[300], other[300];

	snprintf(path, sizeof(path), "%s/still", top);
	mkdir(path, 0755);
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/still/%d", top, i);
		mkdir(path, 0755);
	}
	for (int i = 0; i < STILL; i++) {
		size_t length = content(bytes, 100, i, 1) / 4;

		still_name(path, top, i);
		int fd = open(path, O_WRONLY | O_CREAT, 0644);

		if (fd < 0 || write(fd, bytes, length) != (ssize_t)length || fsync(fd) || close(fd)) {
			perror(path);
			exit(1);
		}
	}
	still_name(path, top, 0);
	snprintf(other, sizeof(other), "%s/still/link", top);
	if (link(path, other) || sync_of(top)) {
		perror(other);
		exit(1);
	}
}

/* Failures among what nobody touched. */
static int verify_still(const char *top)
{
	static uint8_t found[LARGEST], wanted[LARGEST];
	struct stat one, two;
	int failures = 0;
	char path[300];

	for (int i = 0; i < STILL; i++) {
		size_t length = content(wanted, 100, i, 1) / 4;

		still_name(path, top, i);
		int fd = open(path, O_RDONLY);
		ssize_t n = fd < 0 ? -1 : read(fd, found, sizeof(found));

		if (n != (ssize_t)length || memcmp(wanted, found, length)) {
			printf("FAILED: %s: %zd bytes of %zu, or others: %s\n", path, n, length, strerror(errno));
			failures++;
		}
		if (fd >= 0)
			close(fd);
	}
	still_name(path, top, 0);
	if (stat(path, &one))
		one.st_ino = 0;
	snprintf(path, sizeof(path), "%s/still/link", top);
	if (stat(path, &two) || one.st_ino != two.st_ino || two.st_nlink != 2) {
		printf("FAILED: %s is no second name\n", path);
		failures++;
	}
	return failures;
}

/* Failures among a mounted copy's files. */
static int verify(const char *top, const struct state (*then)[FILES])
{
	static uint8_t found[LARGEST + 1], wanted[LARGEST];
	int failures = 0;
	char path[300];

	for (int number = 0; number < WRITERS; number++)
		for (int file = 0; file < FILES; file++) {
			uint32_t done = then[number][file].done, begun = then[number][file].begun, iteration = 0;

			snprintf(path, sizeof(path), "%s/w%d/f%d", top, number, file);
			int fd = open(path, O_RDONLY);

			if (fd < 0) {
				if (done) {
					printf("FAILED: %s: %s, iteration %u was made good\n", path, strerror(errno), done);
					failures++;
				}
				continue;
			}
			ssize_t length = read(fd, found, sizeof(found));

			close(fd);
			if (length >= 4)
				memcpy(&iteration, found, 4);
			if (length < 4 || iteration < done || iteration > begun ||
			    content(wanted, number, file, iteration) != (size_t)length ||
			    memcmp(wanted, found, (size_t)length)) {
				printf("FAILED: %s: %zd bytes of iteration %u, and %u to %u were to be there\n", path, length,
				       iteration, done, begun);
				failures++;
			}
		}
	return failures;
}

int main(int argc, char **argv)
{
	struct sched_param priority = { .sched_priority = 50 };
	static struct state then[WRITERS][FILES];
	pid_t writers[WRITERS];
	struct flash from, to;
	int failures = 0, cuts;
	char path[300], device[40];
	uint32_t random;

	if (argc != 6)
		return 2;
	cuts = atoi(argv[4]);
	random = (uint32_t)atoi(argv[5]) * 2654435761u | 1;
	states = mmap(NULL, sizeof(then), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	flash_open(&from, atoi(argv[2]));
	flash_open(&to, atoi(argv[3]));
	flash_erase(&to);
	if (ioctl(from.fd, MTDFILEMODE, MTD_FILE_MODE_RAW)) {
		perror("MTDFILEMODE");
		return 1;
	}
	snprintf(device, sizeof(device), "mtd%s", argv[3]);
	mkdir("/copy", 0755);
	make_still(argv[1]);
	for (int i = 0; i < WRITERS; i++) {
		snprintf(path, sizeof(path), "%s/w%d", argv[1], i);
		mkdir(path, 0755);
		writers[i] = fork();
		if (!writers[i])
			writer(argv[1], i);
	}
	if (sched_setscheduler(0, SCHED_FIFO, &priority))
		perror("sched_setscheduler");
	for (int cut = 0; cut < cuts && !failures; cut++) {
		struct timespec wait = { .tv_nsec = 1000000 + (long)(next(&random) % LONGEST_NS) };

		nanosleep(&wait, NULL);
		/* Whoever has the chip ends its command first; from then on nobody has it. */
		flash_bad(&from, 0);
		memcpy(then, states, sizeof(then));
		uint32_t pages = copy(&from, &to);

		/*
		 * Until the one that was in the flash driver had left it, others may have gone on in their heads, as far as a new
		 * iteration; none of them came to write.
		 */
		for (int i = 0; i < WRITERS; i++)
			for (int file = 0; file < FILES; file++) {
				then[i][file].begun = states[i][file].begun;
				if (then[i][file].done != states[i][file].done) {
					printf("FAILED: somebody wrote during the copy\n");
					failures++;
				}
			}
		for (int i = 0; i < WRITERS; i++)
			kill(writers[i], SIGSTOP);
		if (mount(device, "/copy", "yaffs2", 0, NULL)) {
			printf("FAILED: cut %d: mount: %s\n", cut, strerror(errno));
			failures++;
			break;
		}
		failures += verify("/copy", (const struct state(*)[FILES])then) + verify_still("/copy");
		/* It can be written to. */
		int fd = open("/copy/after", O_WRONLY | O_CREAT, 0644);

		if (fd < 0 || write(fd, "after", 5) != 5 || fsync(fd) || close(fd)) {
			printf("FAILED: cut %d: write after: %s\n", cut, strerror(errno));
			failures++;
		}
		if (umount("/copy")) {
			printf("FAILED: cut %d: umount: %s\n", cut, strerror(errno));
			failures++;
		}
		if (cut % AGAIN == 0) {
			if (mount(device, "/copy", "yaffs2", 0, NULL)) {
				printf("FAILED: cut %d: second mount: %s\n", cut, strerror(errno));
				failures++;
				break;
			}
			failures += verify("/copy", (const struct state(*)[FILES])then) + verify_still("/copy");
			umount("/copy");
		}
		if (cut % 50 == 0 || failures) {
			printf("cut %d: %u pages, iteration %u\n", cut, pages, then[0][0].done);
			fflush(stdout);
		}
		for (int i = 0; i < WRITERS; i++)
			kill(writers[i], SIGCONT);
	}
	for (int i = 0; i < WRITERS; i++) {
		kill(writers[i], SIGKILL);
		kill(writers[i], SIGCONT);
		waitpid(writers[i], NULL, 0);
	}
	failures += verify_still(argv[1]);
	printf("%d cuts of seed %s, iteration %u reached, %d failures\n", cuts, argv[5], then[0][0].done, failures);
	return failures != 0;
}
