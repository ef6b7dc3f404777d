// SPDX-License-Identifier: Apache-2.0
/* A file without a name that gets one when it was seen without. Usage: linked_later DIRECTORY. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	static char bytes[8192];
	char from[64], to[4096];
	int fd;

	if (argc != 2)
		return 2;
	/* Else the kernel copies nothing at first, and begins the write again. */
	memset(bytes, 1, sizeof(bytes));
	fd = open(argv[1], O_TMPFILE | O_WRONLY, 0600);
	if (fd < 0 || write(fd, bytes, sizeof(bytes)) != (ssize_t)sizeof(bytes) || fsync(fd))
		return 1;
	sleep(1);
	snprintf(from, sizeof(from), "/proc/self/fd/%d", fd);
	snprintf(to, sizeof(to), "%s/linked", argv[1]);
	return linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW) ? 1 : 0;
}
