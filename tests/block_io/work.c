/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests/block_io.rs runs on boards: I/O whose originators are known.
 *
 *   work writes DEVICE NAME FIRST COUNT   COUNT direct writes of 4 KiB from page FIRST on, one after another, as a task NAME
 *   work files DEVICE NAME FIRST COUNT    the same through the page cache, and read back
 *   work owners DIR PAGES                 known writers and readers in DIR, each of PAGES pages; prints what each did
 *   work old DIR PAGES                    the file that one of them reads and one writes over
 *   work cold DIR PAGES                   reads that file, page by page; writes another, each page synced; prints its number, and
 *                                         the median ns of a read and of a write with its sync
 *   work sync                             writes back what all have left
 *
 * `owners` prints a line a task: NAME BYTES PID, where BYTES are those whose pages no other task dirtied.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096u

static char path[256];

static void die(const char *what)
{
	fprintf(stderr, "work: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void *buffer(void)
{
	void *memory;

	if (posix_memalign(&memory, PAGE, PAGE))
		die("memory");
	memset(memory, 0x5a, PAGE);
	return memory;
}

static int writes(const char *device, const char *name, unsigned int first, unsigned int count)
{
	void *memory = buffer();
	int fd = open(device, O_WRONLY | O_DIRECT | O_CLOEXEC);

	if (fd < 0)
		die(device);
	prctl(PR_SET_NAME, name);
	for (unsigned int i = 0; i < count; i++)
		if (pwrite(fd, memory, PAGE, (off_t)(first + i) * PAGE) != (ssize_t)PAGE)
			die("pwrite");
	return 0;
}

/* Through the page cache: neighbours are merged, and read-ahead reads them back. */
static int through_cache(const char *device, const char *name, unsigned int first, unsigned int count)
{
	void *memory = buffer();
	int fd = open(device, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		die(device);
	prctl(PR_SET_NAME, name);
	for (unsigned int i = 0; i < count; i++)
		if (pwrite(fd, memory, PAGE, (off_t)(first + i) * PAGE) != (ssize_t)PAGE)
			die("pwrite");
	if (fsync(fd))
		die("fsync");
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	for (unsigned int i = 0; i < count; i++)
		if (pread(fd, memory, PAGE, (off_t)(first + i) * PAGE) != (ssize_t)PAGE)
			die("pread");
	return 0;
}

static int file(const char *dir, const char *name, int flags)
{
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, flags | O_CLOEXEC, 0600);
	if (fd < 0)
		die(path);
	return fd;
}

static void put(int fd, unsigned int first, unsigned int pages, unsigned int step)
{
	void *memory = buffer();

	for (unsigned int i = 0; i < pages; i += step)
		if (pwrite(fd, memory, PAGE, (off_t)(first + i) * PAGE) != (ssize_t)PAGE)
			die("pwrite");
}

static void direct(const char *dir, unsigned int pages)
{
	put(file(dir, "direct", O_CREAT | O_RDWR | O_DIRECT), 0, pages, 1);
}

static void synchronous(const char *dir, unsigned int pages)
{
	put(file(dir, "sync", O_CREAT | O_RDWR | O_SYNC), 0, pages, 1);
}

/* Ends before anybody flushes its pages. */
static void buffered(const char *dir, unsigned int pages)
{
	put(file(dir, "buffered", O_CREAT | O_RDWR), 0, pages, 1);
}

static void fsynced(const char *dir, unsigned int pages)
{
	int fd = file(dir, "fsynced", O_CREAT | O_RDWR);

	put(fd, 0, pages, 1);
	if (fsync(fd))
		die("fsync");
}

static void mapped(const char *dir, unsigned int pages)
{
	int fd = file(dir, "mapped", O_CREAT | O_RDWR);
	char *memory;

	if (ftruncate(fd, (off_t)pages * PAGE))
		die("ftruncate");
	memory = mmap(NULL, (size_t)pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		die("mmap");
	for (unsigned int i = 0; i < pages; i++)
		memory[(size_t)i * PAGE] = 1;
}

/* Two tasks in one file: the first half, the second half, and both in the last page. */
static void first_half(const char *dir, unsigned int pages)
{
	int fd = file(dir, "two", O_CREAT | O_RDWR);

	put(fd, 0, pages, 1);
	put(fd, 2 * pages, 1, 1);
}

static void second_half(const char *dir, unsigned int pages)
{
	int fd = file(dir, "two", O_CREAT | O_RDWR);

	put(fd, pages, pages, 1);
	put(fd, 2 * pages, 1, 1);
}

/* Writes what was already there: its blocks are not given out anew. */
static void over(const char *dir, unsigned int pages)
{
	put(file(dir, "old", O_RDWR), 0, pages, 1);
}

static void reader(const char *dir, unsigned int pages)
{
	int fd = file(dir, "old", O_RDONLY);
	void *memory = buffer();

	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	for (unsigned int i = 0; i < pages; i++)
		if (pread(fd, memory, PAGE, (off_t)i * PAGE) != (ssize_t)PAGE)
			die("pread");
}

static const struct {
	const char *name;
	void (*run)(const char *dir, unsigned int pages);
} tasks[] = {
	{ "r-old", reader },	     { "w-over", over },	 { "w-direct", direct },
	{ "w-sync", synchronous },   { "w-buffered", buffered }, { "w-fsync", fsynced },
	{ "w-mapped", mapped },	     { "w-first", first_half },	 { "w-second", second_half },
};

static int owners(const char *dir, unsigned int pages)
{
	for (unsigned int i = 0; i < sizeof(tasks) / sizeof(*tasks); i++) {
		int status = 0;
		pid_t child = fork();

		if (child < 0)
			die("fork");
		if (!child) {
			prctl(PR_SET_NAME, tasks[i].name);
			tasks[i].run(dir, pages);
			_exit(0);
		}
		if (waitpid(child, &status, 0) != child || status)
			die(tasks[i].name);
		printf("%s %u %d\n", tasks[i].name, pages * PAGE, (int)child);
		fflush(stdout);
	}
	return 0;
}

static long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	long long x = *(const long long *)a, y = *(const long long *)b;

	return (x > y) - (x < y);
}

static long long median(long long *times, unsigned int count)
{
	qsort(times, count, sizeof(*times), compare);
	return times[count / 2];
}

/* Reads a file that is not cached, page by page; then writes pages and syncs each. */
static int cold(const char *dir, unsigned int pages)
{
	void *memory = buffer();
	int fd = file(dir, "old", O_RDONLY), out = file(dir, "synced", O_CREAT | O_RDWR);
	long long begin, *reads = calloc(pages, sizeof(*reads)), *writes = calloc(pages, sizeof(*writes));

	if (!pages || !reads || !writes)
		die("memory");
	prctl(PR_SET_NAME, "cold");
	for (unsigned int i = 0; i < pages; i++) {
		begin = now();
		if (pread(fd, memory, PAGE, (off_t)i * PAGE) != (ssize_t)PAGE)
			die("pread");
		reads[i] = now() - begin;
	}
	for (unsigned int i = 0; i < pages; i++) {
		begin = now();
		if (pwrite(out, memory, PAGE, (off_t)i * PAGE) != (ssize_t)PAGE || fsync(out))
			die("pwrite");
		writes[i] = now() - begin;
	}
	printf("%d %lld %lld\n", (int)getpid(), median(reads, pages), median(writes, pages));
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 6 && !strcmp(argv[1], "writes"))
		return writes(argv[2], argv[3], (unsigned int)atoi(argv[4]), (unsigned int)atoi(argv[5]));
	if (argc == 6 && !strcmp(argv[1], "files"))
		return through_cache(argv[2], argv[3], (unsigned int)atoi(argv[4]), (unsigned int)atoi(argv[5]));
	if (argc == 4 && !strcmp(argv[1], "owners"))
		return owners(argv[2], (unsigned int)atoi(argv[3]));
	if (argc == 4 && !strcmp(argv[1], "old")) {
		int fd = file(argv[2], "old", O_CREAT | O_RDWR);

		put(fd, 0, (unsigned int)atoi(argv[3]), 1);
		return fsync(fd) ? 1 : 0;
	}
	if (argc == 4 && !strcmp(argv[1], "cold"))
		return cold(argv[2], (unsigned int)atoi(argv[3]));
	if (argc == 2 && !strcmp(argv[1], "sync")) {
		prctl(PR_SET_NAME, "flusher");
		sync();
		return 0;
	}
	fprintf(stderr, "usage: see the source\n");
	return 2;
}
