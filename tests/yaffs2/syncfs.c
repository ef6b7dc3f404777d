// SPDX-License-Identifier: GPL-2.0
/* `syncfs DIR`: what the kernel says of a file system that was to be in sync (BusyBox's sync does not ask). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int fd = argc == 2 ? open(argv[1], O_RDONLY) : -1;

	if (fd >= 0 && !syncfs(fd))
		return 0;
	perror("syncfs");
	return 1;
}
