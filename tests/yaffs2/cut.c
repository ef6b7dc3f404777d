// SPDX-License-Identifier: GPL-2.0
/*
 * Power cuts: `cut DIR FROM TO CUTS`. Writers replace files on DIR (of mtd FROM); at random moments the flash is copied page
 * by page, with its spare area, to mtd TO, as if the power had gone right then, and the copy is mounted and checked: every
 * file has its old content or its new one, and what an fsync() and a rename() made good is there.
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

static uint32_t copy(struct flash *from, struct flash *to)
{
	uint32_t pages = from->info.size / from->info.writesize, written = 0;
	static uint8_t data[16384], spare[2048];

	for (uint32_t page = 0; page < pages; page++) {
		bool blank = flash_read(from, page, data, spare) == 0;

		for (uint32_t i = 0; blank && i < from->info.oobsize; i++)
			blank = spare[i] == 0xff;
		for (uint32_t i = 0; blank && i < from->info.writesize; i++)
			blank = data[i] == 0xff;
		if (blank)
			continue;
		flash_write(to, page, data, spare);
		written++;
	}
	return written;
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
	uint32_t random = 12345;

	if (argc != 5)
		return 2;
	cuts = atoi(argv[4]);
	states = mmap(NULL, sizeof(then), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	flash_open(&from, atoi(argv[2]));
	flash_open(&to, atoi(argv[3]));
	snprintf(device, sizeof(device), "mtd%s", argv[3]);
	mkdir("/copy", 0755);
	for (int i = 0; i < WRITERS; i++) {
		snprintf(path, sizeof(path), "%s/w%d", argv[1], i);
		mkdir(path, 0755);
		writers[i] = fork();
		if (!writers[i])
			writer(argv[1], i);
	}
	sync();
	if (sched_setscheduler(0, SCHED_FIFO, &priority))
		perror("sched_setscheduler");
	for (int cut = 0; cut < cuts && !failures; cut++) {
		struct timespec wait = { .tv_nsec = 1000000 + (long)(next(&random) % 700000000) };

		flash_erase(&to);
		nanosleep(&wait, NULL);
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
		failures += verify("/copy", (const struct state(*)[FILES])then);
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
		if (cut % 50 == 0 || failures)
			printf("cut %d: %u pages, iteration %u\n", cut, pages, then[0][0].done);
		for (int i = 0; i < WRITERS; i++)
			kill(writers[i], SIGCONT);
	}
	for (int i = 0; i < WRITERS; i++) {
		kill(writers[i], SIGKILL);
		kill(writers[i], SIGCONT);
		waitpid(writers[i], NULL, 0);
	}
	printf("%d cuts, iteration %u reached, %d failures\n", cuts, then[0][0].done, failures);
	return failures != 0;
}
