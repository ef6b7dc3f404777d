// SPDX-License-Identifier: Apache-2.0
/*
 * Known I/O on one file, in one way after the other, and the file's numbers as
 * stat tells them.
 *   work write FILE    creates it: 16 write() of 4096 bytes, fsync(); then one byte at 5 GiB
 *   work read FILE     pread() of 512 bytes at byte 100 of pages 3, 0, 7, 12, 5; 64 bytes at 5 GiB - 32
 *   work map FILE      touches pages 9 and 14 of a mapping
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define PAGE 4096
#define FAR ((off_t)5 << 30)

static int writes(int fd)
{
	static char page[PAGE];

	for (int i = 0; i < 16; i++) {
		memset(page, 'a' + i, sizeof(page));
		if (write(fd, page, sizeof(page)) != PAGE)
			return -1;
	}
	if (fsync(fd) || pwrite(fd, "x", 1, FAR) != 1)
		return -1;
	return fsync(fd);
}

static int reads(int fd)
{
	static const int pages[] = { 3, 0, 7, 12, 5 };
	char bytes[512];

	for (unsigned i = 0; i < sizeof(pages) / sizeof(pages[0]); i++)
		if (pread(fd, bytes, sizeof(bytes), pages[i] * PAGE + 100) != sizeof(bytes) || bytes[9] != 'a' + pages[i])
			return -1;
	return pread(fd, bytes, 64, FAR - 32) == 33 && bytes[32] == 'x' ? 0 : -1;
}

static int maps(int fd)
{
	const volatile char *map = mmap(NULL, 16 * PAGE, PROT_READ, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED || madvise((void *)map, 16 * PAGE, MADV_RANDOM))
		return -1;
	return map[9 * PAGE] == 'a' + 9 && map[14 * PAGE] == 'a' + 14 ? 0 : -1;
}

int main(int argc, char **argv)
{
	int (*act)(int) = argc != 3 ? NULL : !strcmp(argv[1], "write") ? writes : !strcmp(argv[1], "read") ? reads : maps;
	int fd = act ? open(argv[2], act == writes ? O_RDWR | O_CREAT | O_EXCL : O_RDONLY, 0644) : -1;
	struct stat st;

	/* A read that reads ahead would be a device's business, not the program's. */
	if (fd < 0 || fstat(fd, &st) || posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM) || act(fd)) {
		perror(argc == 3 ? argv[2] : "usage");
		return 1;
	}
	printf("{\"pid\":%d,\"device\":\"%u:%u\",\"inode\":%llu}\n", getpid(), major(st.st_dev), minor(st.st_dev),
	       (unsigned long long)st.st_ino);
	return 0;
}
