/*
 * What the kernel itself says of a file's pages in the cache: one line for each that is there,
 *
 *   inode NUMBER
 *   PAGE accessed|untouched FLAGS             FLAGS: /proc/kpageflags, hexadecimal
 *   PAGE beyond                               behind the end of the file, where nothing can be mapped
 *
 * As tools/mm/page-types.c -f does it (walk_file_range): mincore() tells what is there, a touch maps it, /proc/self/pagemap says
 * where it lies. MADV_RANDOM, so that a touch reads nothing ahead; MADV_SEQUENTIAL before the mapping goes, so that its touches do
 * not become accesses (zap_pte_range, mm/memory.c: mark_page_accessed() but for VM_SEQ_READ).
 *
 *   pageflags FILE                            says it
 *   pageflags FILE evict                      takes memory until a third of those pages has left
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/kernel-page-flags.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Documentation/admin-guide/mm/pagemap.rst: bits 0-54 are the page's frame number, where bit 63 says that it is mapped. */
#define FRAME ((1ULL << 55) - 1)
#define PRESENT (1ULL << 63)
/* Bytes that are taken at a time: a small part of the file's pages, which are all that can be reclaimed there. More at once, and no
 * memory is left before anybody looks. */
#define STEP (64 << 10)
/* Pages: before 5.12 a read behind the end of a file brings in an empty page, wherever it is. */
#define BEHIND 256

static unsigned long page_bytes;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t entry(int fd, uint64_t index, const char *what)
{
	uint64_t value;

	if (pread(fd, &value, sizeof(value), (off_t)(index * sizeof(value))) != sizeof(value))
		fail(what);
	return value;
}

static unsigned long cached(void *at, unsigned long pages, unsigned char *there)
{
	unsigned long count = 0;

	if (mincore(at, pages * page_bytes, there))
		fail("mincore");
	for (unsigned long i = 0; i < pages; i++)
		count += there[i] & 1;
	return count;
}

/* In a child, which the kernel ends first where no memory is left. */
static void take(void *at, unsigned long pages, unsigned char *there, unsigned long most)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY);

	if (fd < 0 || write(fd, "1000", 4) != 4)
		fail("/proc/self/oom_score_adj");
	while (cached(at, pages, there) > most) {
		char *more = mmap(NULL, STEP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (more == MAP_FAILED)
			fail("no memory is left");
		memset(more, 1, STEP);
	}
	exit(0);
}

static void evict(void *at, unsigned long pages, unsigned char *there)
{
	const unsigned long first = cached(at, pages, there), most = first * 2 / 3;

	for (int tries = 0; tries < 10 && cached(at, pages, there) > most; tries++) {
		pid_t child = fork();
		int status;

		if (child < 0)
			fail("fork");
		if (!child)
			take(at, pages, there, most);
		if (waitpid(child, &status, 0) != child || (WIFEXITED(status) && WEXITSTATUS(status)))
			fail("a child that takes memory");
	}
	if (cached(at, pages, there) > most) {
		fprintf(stderr, "%lu of %lu pages are still there\n", cached(at, pages, there), first);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	int fd, frames, flags;
	struct stat st;

	if (argc < 2)
		return 2;
	page_bytes = (unsigned long)sysconf(_SC_PAGESIZE);
	fd = open(argv[1], O_RDONLY | O_NOATIME);
	frames = open("/proc/self/pagemap", O_RDONLY);
	flags = open("/proc/kpageflags", O_RDONLY);
	if (fd < 0 || frames < 0 || flags < 0 || fstat(fd, &st))
		fail(argv[1]);

	unsigned long end = ((unsigned long)st.st_size + page_bytes - 1) / page_bytes, pages = end + BEHIND;
	unsigned char *there = malloc(pages);
	char *at = mmap(NULL, pages * page_bytes, PROT_READ, MAP_SHARED, fd, 0);

	if (!there || at == MAP_FAILED)
		fail("mmap");
	if (argc > 2) {
		evict(at, pages, there);
		return 0;
	}
	cached(at, pages, there);
	if (madvise(at, pages * page_bytes, MADV_RANDOM))
		fail("madvise");
	for (unsigned long i = 0; i < end; i++)
		if (there[i] & 1)
			(void)*(volatile char *)(at + i * page_bytes);
	if (madvise(at, pages * page_bytes, MADV_SEQUENTIAL))
		fail("madvise");
	printf("inode %llu\n", (unsigned long long)st.st_ino);
	for (unsigned long i = 0; i < pages; i++) {
		if (!(there[i] & 1))
			continue;
		if (i >= end) {
			printf("%lu beyond\n", i);
			continue;
		}
		uint64_t mapped = entry(frames, (uintptr_t)at / page_bytes + i, "/proc/self/pagemap");
		uint64_t of;

		if (!(mapped & PRESENT) || !(mapped & FRAME)) {
			fprintf(stderr, "page %lu: touched, and not mapped\n", i);
			return 1;
		}
		of = entry(flags, mapped & FRAME, "/proc/kpageflags");
		printf("%lu %s %llx\n", i,
		       of & (1ULL << KPF_REFERENCED | 1ULL << KPF_ACTIVE) ? "accessed" : "untouched", (unsigned long long)of);
	}
	return 0;
}
