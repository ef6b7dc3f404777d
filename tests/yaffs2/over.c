// SPDX-License-Identifier: GPL-2.0
/* `over FILE FROM TO`: rounds in which every fifth page of memory of a file is written again, and then the file system. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PAGE 4096
#define PAGES 1100

int main(int argc, char **argv)
{
	static char bytes[PAGE];
	int fd = argc == 4 ? open(argv[1], O_WRONLY) : -1;

	if (fd < 0)
		return 2;
	for (int round = atoi(argv[2]); round < atoi(argv[3]); round++) {
		for (int at = round % 3; at < PAGES; at += 5) {
			bytes[0] = (char)round;
			if (pwrite(fd, bytes, PAGE, (off_t)at * PAGE) != PAGE) {
				perror(argv[1]);
				return 1;
			}
		}
		if (syncfs(fd)) {
			perror("syncfs");
			return 1;
		}
	}
	return close(fd);
}
