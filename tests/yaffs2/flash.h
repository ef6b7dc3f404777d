/* SPDX-License-Identifier: GPL-2.0 */
/* Pages of an MTD device with their spare area, past any file system. */
#ifndef FLASH_H
#define FLASH_H

#include <fcntl.h>
#include <mtd/mtd-user.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Where the kernel's layout for a Hamming code on large pages has its free bytes, and YAFFS2 its tags. */
#define FLASH_TAGS 2
/* What YAFFS2's core gives checkpoints in place of a block's sequence number (YAFFS_SEQUENCE_CHECKPOINT_DATA). */
#define FLASH_CHECKPOINT 0x21

struct flash {
	int fd;
	struct mtd_info_user info;
};

static inline void flash_open(struct flash *flash, int number)
{
	char path[40];

	snprintf(path, sizeof(path), "/dev/mtd%d", number);
	flash->fd = open(path, O_RDWR);
	if (flash->fd < 0 || ioctl(flash->fd, MEMGETINFO, &flash->info)) {
		perror(path);
		exit(1);
	}
}

static inline int flash_bad(struct flash *flash, uint32_t block)
{
	__kernel_loff_t at = (__kernel_loff_t)block * flash->info.erasesize;

	return ioctl(flash->fd, MEMGETBADBLOCK, &at) != 0;
}

static inline void flash_read_spare(struct flash *flash, uint32_t page, uint8_t *spare)
{
	struct mtd_oob_buf64 oob = {
		.start = (uint64_t)page * flash->info.writesize,
		.length = flash->info.oobsize,
		.usr_ptr = (uintptr_t)spare,
	};

	if (ioctl(flash->fd, MEMREADOOB64, &oob) < 0) {
		perror("MEMREADOOB64");
		exit(1);
	}
}

/* The page's data as ECC gives it (-1: it cannot), and its spare area as it is. */
static inline int flash_read(struct flash *flash, uint32_t page, uint8_t *data, uint8_t *spare)
{
	flash_read_spare(flash, page, spare);
	return pread(flash->fd, data, flash->info.writesize, (off_t)page * flash->info.writesize) ==
			       (ssize_t)flash->info.writesize ?
		       0 :
		       -1;
}

/* As it is: no ECC is computed. Without a spare area, that of the page stays (nandsim wants whole pages, and 1 bits change nothing). */
static inline void flash_write(struct flash *flash, uint32_t page, const uint8_t *data, const uint8_t *spare)
{
	uint8_t ones[2048];
	struct mtd_write_req request = {
		.start = (uint64_t)page * flash->info.writesize,
		.len = flash->info.writesize,
		.ooblen = flash->info.oobsize,
		.usr_data = (uintptr_t)data,
		.usr_oob = (uintptr_t)(spare ? spare : ones),
		.mode = MTD_OPS_RAW,
	};

	memset(ones, 0xff, sizeof(ones));
	if (ioctl(flash->fd, MEMWRITE, &request) < 0) {
		perror("MEMWRITE");
		exit(1);
	}
}

static inline void flash_erase_block(struct flash *flash, uint32_t block)
{
	struct erase_info_user64 erase = {
		.start = (uint64_t)block * flash->info.erasesize,
		.length = flash->info.erasesize,
	};

	if (ioctl(flash->fd, MEMERASE64, &erase) < 0) {
		perror("MEMERASE64");
		exit(1);
	}
}

static inline void flash_erase(struct flash *flash)
{
	for (uint32_t block = 0; block < flash->info.size / flash->info.erasesize; block++)
		if (!flash_bad(flash, block))
			flash_erase_block(flash, block);
}

#endif
