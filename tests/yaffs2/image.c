// SPDX-License-Identifier: GPL-2.0
/*
 * `image list DIR`: every name below a directory (listing.h). `image restore MTD FILE`: pages and spare areas of a file, ECC by the
 * kernel. `image spoil MTD`: a byte of each page of a YAFFS2 checkpoint becomes another, its ECC right.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdbool.h>

#include "flash.h"
#include "listing.h"

static void list(int dir_fd, const char *path)
{
	DIR *dir = fdopendir(dir_fd);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		char below[4096], target[4096] = "";
		uint64_t hash = HASH_BEGIN;
		struct stat st;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		snprintf(below, sizeof(below), "%s/%s", path, entry->d_name);
		if (fstatat(dir_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW)) {
			perror(below);
			exit(1);
		}
		if (S_ISLNK(st.st_mode) && readlinkat(dir_fd, entry->d_name, target, sizeof(target) - 1) < 0)
			perror(below);
		if (S_ISREG(st.st_mode)) {
			int fd = openat(dir_fd, entry->d_name, O_RDONLY);
			uint8_t bytes[16384];
			ssize_t n;

			while ((n = read(fd, bytes, sizeof(bytes))) > 0)
				hash = hash_more(hash, bytes, (size_t)n);
			if (fd < 0 || n < 0) {
				perror(below);
				exit(1);
			}
			close(fd);
		}
		list_one(below, &st, hash, target);
		if (S_ISDIR(st.st_mode))
			list(openat(dir_fd, entry->d_name, O_RDONLY | O_DIRECTORY), below);
	}
	closedir(dir);
}

static void write_placed(struct flash *flash, uint32_t page, const uint8_t *data, const uint8_t *spare)
{
	struct mtd_write_req request = {
		.start = (uint64_t)page * flash->info.writesize,
		.len = flash->info.writesize,
		.ooblen = flash->info.oobsize,
		.usr_data = (uintptr_t)data,
		.usr_oob = (uintptr_t)spare,
		.mode = MTD_OPS_PLACE_OOB,
	};
	uint32_t i;

	for (i = 0; i < flash->info.oobsize && spare[i] == 0xff; i++)
		;
	if (i < flash->info.oobsize && ioctl(flash->fd, MEMWRITE, &request) < 0) {
		perror("MEMWRITE");
		exit(1);
	}
}

static int spoil(int number)
{
	static uint8_t data[64][2048], spare[64][64];
	struct flash flash;
	int spoiled = 0;

	flash_open(&flash, number);
	for (uint32_t block = 0; block < flash.info.size / flash.info.erasesize; block++) {
		uint32_t sequence;

		for (uint32_t page = 0; page < 64; page++)
			flash_read(&flash, block * 64 + page, data[page], spare[page]);
		memcpy(&sequence, spare[0] + FLASH_TAGS, 4);
		if (sequence != FLASH_CHECKPOINT)
			continue;
		flash_erase_block(&flash, block);
		for (uint32_t page = 0; page < 64; page++) {
			data[page][1000] ^= 0x10;
			write_placed(&flash, block * 64 + page, data[page], spare[page]);
		}
		spoiled++;
	}
	return spoiled == 0;
}

static void restore(int number, const char *path)
{
	static uint8_t data[16384], spare[2048];
	struct flash flash;
	FILE *file = fopen(path, "rb");

	flash_open(&flash, number);
	if (!file) {
		perror(path);
		exit(1);
	}
	for (uint32_t page = 0; fread(data, flash.info.writesize, 1, file) == 1; page++) {
		if (fread(spare, flash.info.oobsize, 1, file) != 1)
			break;
		write_placed(&flash, page, data, spare);
	}
	fclose(file);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "list"))
		list(open(argv[2], O_RDONLY | O_DIRECTORY), "");
	else if (argc == 4 && !strcmp(argv[1], "restore"))
		restore(atoi(argv[2]), argv[3]);
	else if (argc == 3 && !strcmp(argv[1], "spoil"))
		return spoil(atoi(argv[2]));
	else
		return 2;
	return 0;
}
