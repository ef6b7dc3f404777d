// SPDX-License-Identifier: GPL-2.0
/*
 * Work on a mounted file system, each step checked as it is done: `work make DIR`, and after a remount `work verify DIR`, which
 * knows from the seeds alone what has to be there. `work full DIR` fills the device. One line a check; status 1 where one failed.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static int failures;

static void check(bool right, const char *format, ...)
{
	va_list arguments;

	if (right)
		return;
	failures++;
	printf("FAILED: ");
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf(" (errno %d: %s)\n", errno, strerror(errno));
}

static uint32_t next(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

static void pattern(uint8_t *bytes, size_t length, uint32_t seed)
{
	uint32_t state = seed * 2654435761u | 1;

	for (size_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)(next(&state) >> 11);
}

static const size_t sizes[] = { 0,    1,    100,  2031,  2032,  2047,	2048,  2049,   4064,
				4095, 4096, 4097, 6144, 10000, 65536, 131073, 1000003 };
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void put(const char *path, size_t length, uint32_t seed, bool sync)
{
	uint8_t *bytes = malloc(length + 1);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	pattern(bytes, length, seed);
	check(fd >= 0, "create %s", path);
	/* In pieces that end nowhere in particular. */
	for (size_t done = 0; done < length;) {
		size_t piece = 1 + (done * 7 + seed) % 30011;
		ssize_t n = write(fd, bytes + done, piece < length - done ? piece : length - done);

		check(n > 0, "write %s at %zu", path, done);
		if (n <= 0)
			break;
		done += (size_t)n;
	}
	if (sync)
		check(fsync(fd) == 0, "fsync %s", path);
	check(close(fd) == 0, "close %s", path);
	free(bytes);
}

static void expect(const char *path, size_t length, uint32_t seed)
{
	uint8_t *bytes = malloc(length + 1), *found = malloc(length + 1);
	int fd = open(path, O_RDONLY);
	size_t got = 0;

	check(fd >= 0, "open %s", path);
	pattern(bytes, length, seed);
	while (fd >= 0 && got <= length) {
		ssize_t n = read(fd, found + got, length + 1 - got);

		check(n >= 0, "read %s at %zu", path, got);
		if (n <= 0)
			break;
		got += (size_t)n;
	}
	check(got == length, "%s has %zu bytes of %zu", path, got, length);
	check(got != length || memcmp(bytes, found, length) == 0, "%s: other bytes", path);
	close(fd);
	free(bytes);
	free(found);
}

static void in(char *path, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(path, 300, format, arguments);
	va_end(arguments);
}

static int count(const char *path)
{
	DIR *dir = opendir(path);
	int n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n - 2;
}

#define MANY 400

static void make_contents(const char *top)
{
	char path[300];

	in(path, "%s/contents", top);
	check(mkdir(path, 0755) == 0, "mkdir");
	for (size_t i = 0; i < SIZES; i++) {
		in(path, "%s/contents/%zu", top, sizes[i]);
		put(path, sizes[i], 100 + i, i % 2);
		expect(path, sizes[i], 100 + i);
	}
	/* Overwritten in its middle, and grown. */
	in(path, "%s/contents/patched", top);
	put(path, 100000, 1, true);
	int fd = open(path, O_RDWR);
	uint8_t bytes[5000];

	pattern(bytes, sizeof(bytes), 2);
	check(pwrite(fd, bytes, 5000, 33333) == 5000, "pwrite");
	check(pwrite(fd, bytes, 1, 400000) == 1, "pwrite far");
	close(fd);
}

static void verify_contents(const char *top)
{
	static uint8_t wanted[400001], found[400001], patch[5000];
	char path[300];

	in(path, "%s/contents", top);
	check(count(path) == (int)SIZES + 1, "contents has %d files", count(path));
	for (size_t i = 0; i < SIZES; i++) {
		in(path, "%s/contents/%zu", top, sizes[i]);
		expect(path, sizes[i], 100 + i);
	}
	in(path, "%s/contents/patched", top);
	pattern(wanted, 100000, 1);
	pattern(patch, sizeof(patch), 2);
	memcpy(wanted + 33333, patch, 5000);
	wanted[400000] = patch[0];
	int fd = open(path, O_RDONLY);

	check(read(fd, found, sizeof(found)) == (ssize_t)sizeof(found), "patched is short");
	check(memcmp(wanted, found, sizeof(found)) == 0, "patched has other bytes");
	check(read(fd, found, 1) == 0, "patched is long");
	close(fd);
}

static void listing(const char *top)
{
	static unsigned char seen[MANY], again[MANY];
	char path[300];
	struct dirent *entry;
	int n = 0, number;

	in(path, "%s/many", top);
	check(mkdir(path, 0755) == 0, "mkdir many");
	for (int i = 0; i < MANY; i++) {
		in(path, "%s/many/name-%d", top, i);
		put(path, (size_t)i, (uint32_t)i, false);
	}
	in(path, "%s/many", top);
	check(count(path) == MANY, "%d files listed of %d", count(path), MANY);

	/* While it is listed, a third goes, a third is renamed away and back, and others come. */
	DIR *dir = opendir(path);

	for (; (entry = readdir(dir)); n++) {
		if (sscanf(entry->d_name, "name-%d", &number) == 1)
			seen[number]++;
		if (n != 50)
			continue;
		for (int i = 0; i < MANY; i += 3) {
			in(path, "%s/many/name-%d", top, i);
			check(unlink(path) == 0, "unlink %s", path);
		}
		for (int i = 0; i < 100; i++) {
			in(path, "%s/many/new-%d", top, i);
			put(path, 10, 1, false);
		}
	}
	rewinddir(dir);
	for (n = 0; (entry = readdir(dir)); n++)
		if (sscanf(entry->d_name, "name-%d", &number) == 1)
			again[number]++;
	closedir(dir);
	for (int i = 0; i < MANY; i++) {
		check(seen[i] <= 1 && (i % 3 == 0 || seen[i] == 1), "name-%d listed %d times", i, seen[i]);
		check(again[i] == (i % 3 != 0), "name-%d listed %d times again", i, again[i]);
	}
	check(n == 2 + MANY - (MANY + 2) / 3 + 100, "%d names after", n);
}

static void verify_listing(const char *top)
{
	char path[300];

	in(path, "%s/many", top);
	check(count(path) == MANY - (MANY + 2) / 3 + 100, "%d names in many", count(path));
	for (int i = 0; i < MANY; i++) {
		in(path, "%s/many/name-%d", top, i);
		if (i % 3)
			expect(path, (size_t)i, (uint32_t)i);
		else
			check(access(path, F_OK) < 0 && errno == ENOENT, "%s is there", path);
	}
}

static void names(const char *top)
{
	char a[300], b[300], c[300], long_name[300];
	struct stat st;

	in(a, "%s/names", top);
	check(mkdir(a, 0755) == 0, "mkdir names");
	in(a, "%s/names/a", top);
	in(b, "%s/names/b", top);
	in(c, "%s/names/c", top);
	/* Over another file, which is open. */
	put(a, 5000, 11, false);
	put(b, 7000, 12, true);
	int fd = open(b, O_RDONLY);

	check(rename(a, b) == 0, "rename over");
	check(access(a, F_OK) < 0, "the old name is there");
	expect(b, 5000, 11);
	check(fstat(fd, &st) == 0 && st.st_nlink == 0 && st.st_size == 7000, "what was renamed over");
	uint8_t bytes[7000], wanted[7000];

	pattern(wanted, 7000, 12);
	check(pread(fd, bytes, 7000, 0) == 7000 && !memcmp(bytes, wanted, 7000), "its bytes");
	close(fd);
	/* Links. */
	check(link(b, c) == 0, "link");
	check(stat(c, &st) == 0 && st.st_nlink == 2, "%d links", (int)st.st_nlink);
	check(unlink(b) == 0 && stat(c, &st) == 0 && st.st_nlink == 1, "first name gone");
	expect(c, 5000, 11);
	check(link(c, a) == 0 && rename(a, b) == 0 && stat(b, &st) == 0 && st.st_nlink == 2, "renamed link");
	/* Refused. */
	put(a, 10, 1, false);
	check(renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) < 0 && errno == EINVAL, "exchange");
	check(renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_NOREPLACE) < 0 && errno == EEXIST, "noreplace");
	check(unlink(a) == 0, "unlink a");
	/* Directories. */
	in(a, "%s/names/dir1", top);
	in(c, "%s/names/dir2", top);
	check(mkdir(a, 0700) == 0 && mkdir(c, 0700) == 0, "mkdir");
	in(b, "%s/names/dir2/full", top);
	put(b, 10, 1, false);
	check(rename(a, c) < 0 && errno == ENOTEMPTY, "rename over a full directory");
	check(rmdir(c) < 0 && errno == ENOTEMPTY, "rmdir of a full directory");
	check(rename(c, a) == 0, "rename over an empty directory");
	in(b, "%s/names/dir1/full", top);
	expect(b, 10, 1);
	check(rename(a, b) < 0 && errno == EINVAL, "into itself");
	/* Long names, and links to them. */
	memset(long_name, 'n', 255);
	long_name[255] = 0;
	in(a, "%s/names", top);
	int at = open(a, O_RDONLY | O_DIRECTORY);

	fd = openat(at, long_name, O_CREAT | O_WRONLY, 0600);
	check(fd >= 0 && write(fd, "x", 1) == 1, "a name of 255 bytes");
	close(fd);
	long_name[159] = 0;
	check(symlinkat(long_name, at, "link") == 0, "a link of 159 bytes");
	memset(long_name, 'n', 160);
	long_name[160] = 0;
	check(symlinkat(long_name, at, "link2") < 0 && errno == ENAMETOOLONG, "a link of 160 bytes");
	check(mknodat(at, "null", S_IFCHR | 0666, makedev(1, 3)) == 0, "mknod");
	check(mkfifoat(at, "fifo", 0600) == 0, "mkfifo");
	/* Attributes. */
	put(b, 10, 1, false);
	check(chmod(b, 04751) == 0 && chown(b, 1234, 4321) == 0, "chmod, chown");
	check(chmod(b, 04751) == 0, "chmod again");
	check(utimensat(AT_FDCWD, b, (struct timespec[]){ { 1000000000, 0 }, { 1100000000, 0 } }, 0) == 0, "utimens");
	close(at);
}

static void verify_names(const char *top)
{
	char path[300], target[300];
	struct stat st;

	in(path, "%s/names", top);
	check(count(path) == 7, "names has %d", count(path));
	in(path, "%s/names/b", top);
	expect(path, 5000, 11);
	check(stat(path, &st) == 0 && st.st_nlink == 2, "%d links of b", (int)st.st_nlink);
	in(path, "%s/names/c", top);
	expect(path, 5000, 11);
	in(path, "%s/names/link", top);
	check(readlink(path, target, sizeof(target)) == 159, "link");
	in(path, "%s/names/null", top);
	check(stat(path, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3), "null");
	in(path, "%s/names/fifo", top);
	check(stat(path, &st) == 0 && S_ISFIFO(st.st_mode), "fifo");
	in(path, "%s/names/dir1/full", top);
	check(stat(path, &st) == 0 && (st.st_mode & 07777) == 04751, "mode %o", st.st_mode);
	check(st.st_uid == 1234 && st.st_gid == 4321, "owner %d:%d", st.st_uid, st.st_gid);
	check(st.st_mtime == 1100000000, "mtime %lld", (long long)st.st_mtime);
	check(st.st_atime == 1000000000, "atime %lld", (long long)st.st_atime);
}

static void open_and_gone(const char *top)
{
	struct statvfs before, after;
	char path[300];
	uint8_t *bytes = malloc(3000000), *found = malloc(3000000);

	in(path, "%s/gone", top);
	sync();
	statvfs(top, &before);
	pattern(bytes, 3000000, 21);
	int fd = open(path, O_RDWR | O_CREAT, 0600);

	check(write(fd, bytes, 1000000) == 1000000, "write");
	check(unlink(path) == 0, "unlink");
	check(write(fd, bytes + 1000000, 2000000) == 2000000, "write after unlink");
	check(fsync(fd) == 0, "fsync after unlink");
	check(ftruncate(fd, 2500000) == 0, "truncate after unlink");
	check(pread(fd, found, 3000000, 0) == 2500000 && !memcmp(bytes, found, 2500000), "bytes after unlink");
	check(access(path, F_OK) < 0, "it is there");
	close(fd);
	sync();
	statvfs(top, &after);
	long lost = (long)before.f_bfree - (long)after.f_bfree;

	check(lost < 64, "%ld chunks are lost", lost);
	free(bytes);
	free(found);
}

static void resized(const char *top)
{
	char path[300];
	static uint8_t zeros[200000], found[200000], bytes[200000];

	in(path, "%s/resized", top);
	put(path, 100000, 31, false);
	pattern(bytes, 100000, 31);
	check(truncate(path, 33333) == 0, "down");
	check(truncate(path, 150000) == 0, "up");
	int fd = open(path, O_RDWR);

	check(pread(fd, found, 200000, 0) == 150000, "size");
	check(!memcmp(found, bytes, 33333) && !memcmp(found + 33333, zeros, 150000 - 33333), "hole");
	check(pwrite(fd, bytes, 10, 199990) == 10, "write far");
	check(pread(fd, found, 200000, 0) == 200000, "size");
	check(!memcmp(found + 33333, zeros, 199990 - 33333) && !memcmp(found + 199990, bytes, 10), "second hole");
	check(ftruncate(fd, 0) == 0 && pread(fd, found, 1, 0) == 0, "to nothing");
	close(fd);
	put(path, 33333, 32, true);
}

static void mapped(const char *top)
{
	char path[300];
	static uint8_t bytes[20000], found[20000];

	in(path, "%s/mapped", top);
	put(path, 20000, 41, true);
	pattern(bytes, 20000, 41);
	int fd = open(path, O_RDWR);
	uint8_t *shared = mmap(NULL, 20000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	uint8_t *private = mmap(NULL, 20000, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);

	check(shared != MAP_FAILED && private != MAP_FAILED, "mmap");
	check(!memcmp(shared, bytes, 20000) && !memcmp(private, bytes, 20000), "mapped bytes");
	memset(private + 8192, 'p', 4096);
	check(pread(fd, found, 20000, 0) == 20000 && !memcmp(found, bytes, 20000), "private stays private");
	memset(shared + 5000, 's', 9000);
	memset(bytes + 5000, 's', 9000);
	/* Beyond the end nothing is kept. */
	memset(shared + 20000, 'e', 100);
	check(pread(fd, found, 20000, 0) == 20000 && !memcmp(found, bytes, 20000), "shared is seen");
	check(msync(shared, 20000, MS_SYNC) == 0, "msync");
	munmap(shared, 20000);
	munmap(private, 20000);
	check(ftruncate(fd, 20100) == 0, "grow");
	check(pread(fd, found, 100, 20000) == 100, "grown");
	for (int i = 0; i < 100; i++)
		check(found[i] == 0, "byte %d beyond the old end", i);
	check(ftruncate(fd, 20000) == 0, "shrink");
	close(fd);
}

static void verify_mapped(const char *top)
{
	char path[300];
	static uint8_t bytes[20000], found[20001];

	in(path, "%s/mapped", top);
	pattern(bytes, 20000, 41);
	memset(bytes + 5000, 's', 9000);
	int fd = open(path, O_RDONLY);

	check(read(fd, found, 20001) == 20000 && !memcmp(found, bytes, 20000), "mapped after a remount");
	close(fd);
	in(path, "%s/resized", top);
	expect(path, 33333, 32);
}

/* Fills the device twice over. What write() took has to be there. */
static void full(const char *top)
{
	static uint8_t block[64 * 1024];
	char path[300];

	for (int round = 0; round < 2; round++) {
		int files = 0;
		bool ended = false;

		while (!ended && files < 100000) {
			in(path, "%s/fill-%d", top, files);
			int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);

			if (fd < 0) {
				check(errno == ENOSPC, "create ends with %s", strerror(errno));
				break;
			}
			files++;
			for (int i = 0; i < 16; i++) {
				pattern(block, sizeof(block), (uint32_t)(round * 100000 + files * 100 + i));
				ssize_t n = write(fd, block, sizeof(block));

				if (n != (ssize_t)sizeof(block)) {
					check(n >= 0 || errno == ENOSPC, "write ends");
					ended = true;
					break;
				}
			}
			check(fsync(fd) == 0, "fsync of what was accepted");
			close(fd);
		}
		check(ended || files > 0, "it was filled");
		printf("round %d: %d files of up to 1 MiB\n", round, files);
		for (int file = 1; file <= files; file++) {
			static uint8_t found[64 * 1024];

			in(path, "%s/fill-%d", top, file - 1);
			int fd = open(path, O_RDONLY);
			ssize_t n = 1;

			for (int i = 0; i < 16 && n > 0; i++) {
				n = read(fd, found, sizeof(found));
				pattern(block, sizeof(block), (uint32_t)(round * 100000 + file * 100 + i));
				check(n >= 0 && !memcmp(block, found, (size_t)n), "%s at %d", path, i);
				check(file == files || n == (ssize_t)sizeof(found), "%s is short", path);
			}
			close(fd);
			check(unlink(path) == 0, "unlink %s", path);
		}
		sync();
	}
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	const char *top = argv[2];

	if (!strcmp(argv[1], "make")) {
		make_contents(top);
		listing(top);
		names(top);
		open_and_gone(top);
		resized(top);
		mapped(top);
	}
	if (!strcmp(argv[1], "make") || !strcmp(argv[1], "verify")) {
		verify_contents(top);
		verify_listing(top);
		verify_names(top);
		verify_mapped(top);
	}
	if (!strcmp(argv[1], "full"))
		full(top);
	printf("%s: %d failures\n", argv[1], failures);
	return failures != 0;
}
