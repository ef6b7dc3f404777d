// SPDX-License-Identifier: Apache-2.0
/*
 * Files whose first name is another file's later. Usage: renames DIRECTORY MICROSECONDS. Each file is open that long. Prints a line
 * for each: inode number, and its last name below the directory.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define COUNT 5

static unsigned int open_us;

static void file(const char *name, const char *last)
{
	static char bytes[4096];
	int fd = open(name, O_WRONLY | O_CREAT, 0600);
	struct stat st;

	memset(bytes, 1, sizeof(bytes));
	if (fd < 0 || write(fd, bytes, sizeof(bytes)) != sizeof(bytes) || fsync(fd) || fstat(fd, &st))
		exit(1);
	usleep(open_us);
	close(fd);
	printf("%lu %s\n", (unsigned long)st.st_ino, last);
}

static void exchange(const char *one, const char *other)
{
	if (syscall(SYS_renameat2, AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE))
		exit(1);
}

/* A name with the number of the round. */
static const char *in(const char *format, int i)
{
	static char names[8][64];
	static int at;
	char *name = names[at++ % 8];

	snprintf(name, sizeof(names[0]), format, i);
	return name;
}

static void files(int i)
{
	file(in("over%d", i), in("over%d", i));
	file(in("over%d.new", i), in("over%d", i));
	rename(in("over%d.new", i), in("over%d", i));

	file(in("one%d", i), in("other%d", i));
	file(in("other%d", i), in("one%d", i));
	exchange(in("one%d", i), in("other%d", i));

	file(in("log%d", i), in("log%d.1", i));
	rename(in("log%d", i), in("log%d.1", i));
	file(in("log%d", i), in("log%d", i));

	file(in("linked%d", i), in("link%d", i));
	link(in("linked%d", i), in("link%d", i));
	unlink(in("linked%d", i));
	file(in("linked%d", i), in("linked%d", i));

	file(in("gone%d", i), in("gone%d.old", i));
	rename(in("gone%d", i), in("gone%d.old", i));
	unlink(in("gone%d.old", i));
	file(in("gone%d", i), in("gone%d", i));
}

static void directories(int i)
{
	mkdir(in("moved%d", i), 0700);
	file(in("moved%d/file", i), in("moved%d.old/file", i));
	rename(in("moved%d", i), in("moved%d.old", i));
	mkdir(in("moved%d", i), 0700);
	file(in("moved%d/file", i), in("moved%d/file", i));

	mkdir(in("a%d", i), 0700);
	mkdir(in("b%d", i), 0700);
	file(in("a%d/file", i), in("b%d/file", i));
	file(in("b%d/file", i), in("a%d/file", i));
	exchange(in("a%d", i), in("b%d", i));

	mkdir(in("removed%d", i), 0700);
	file(in("removed%d/file", i), in("removed%d.old/file", i));
	rename(in("removed%d", i), in("removed%d.old", i));
	unlink(in("removed%d.old/file", i));
	rmdir(in("removed%d.old", i));
	mkdir(in("removed%d", i), 0700);
	file(in("removed%d/file", i), in("removed%d/file", i));
}

int main(int argc, char **argv)
{
	if (argc != 3 || chdir(argv[1]))
		return 2;
	open_us = (unsigned int)atoi(argv[2]);
	for (int i = 0; i < COUNT; i++) {
		files(i);
		directories(i);
	}
	return 0;
}
