// SPDX-License-Identifier: Apache-2.0
#include "nand.h"

#include <errno.h>
#include <fcntl.h>
#include <mtd/mtd-user.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util.h"

#define say(why, size, ...) snprintf(why, size, __VA_ARGS__)

/* mtd_info_user has 32 bits for the size; larger devices exist. */
static uint64_t device_size(unsigned int mtd, const struct mtd_info_user *info)
{
	char path[48];
	uint64_t bytes;

	snprintf(path, sizeof(path), "/sys/class/mtd/mtd%u/size", mtd);
	return fs_read_u64(path, &bytes) ? bytes : info->size;
}

static int open_mtd(unsigned int mtd, int flags, struct mtd_info_user *info, char *why, size_t size)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/dev/mtd%u", mtd);
	fd = open(path, flags | O_CLOEXEC);
	if (fd < 0) {
		say(why, size, "%s: %s", path, strerror(errno));
		return -1;
	}
	if (ioctl(fd, MEMGETINFO, info)) {
		say(why, size, "%s: not an MTD device: %s", path, strerror(errno));
		close(fd);
		return -1;
	}
	if (!info->erasesize || !info->writesize) {
		say(why, size, "%s: has no erase blocks or pages", path);
		close(fd);
		return -1;
	}
	return fd;
}

/* 1 bad, 0 good, -1 with errno. A device without bad blocks has good ones only. */
static int is_bad(int fd, const struct mtd_info_user *info, uint32_t block)
{
	loff_t at = (loff_t)block * info->erasesize;
	int bad = ioctl(fd, MEMGETBADBLOCK, &at);

	if (bad < 0 && errno == EOPNOTSUPP)
		return 0;
	return bad < 0 ? -1 : bad > 0;
}

int nand_erase(unsigned int mtd, uint32_t first_block, uint32_t count, struct nand_done *done, char *why, size_t size)
{
	struct mtd_info_user info;
	uint32_t blocks;
	int fd, failed = -1;

	memset(done, 0, sizeof(*done));
	fd = open_mtd(mtd, O_RDWR, &info, why, size);
	if (fd < 0)
		return -1;
	blocks = (uint32_t)(device_size(mtd, &info) / info.erasesize);
	if (!count && first_block < blocks)
		count = blocks - first_block;
	if (first_block >= blocks || count > blocks - first_block) {
		say(why, size, "mtd%u has %u blocks; %u from block %u are not all there", mtd, blocks, count, first_block);
		goto out;
	}
	for (uint32_t b = first_block; b < first_block + count; b++) {
		struct erase_info_user64 erase = { .start = (uint64_t)b * info.erasesize, .length = info.erasesize };
		int bad = is_bad(fd, &info, b);

		if (bad < 0) {
			say(why, size, "mtd%u block %u: asking whether it is bad: %s", mtd, b, strerror(errno));
			goto out;
		}
		if (bad) {
			done->blocks_bad++;
			continue;
		}
		if (ioctl(fd, MEMERASE64, &erase)) {
			say(why, size, "mtd%u block %u: erase: %s", mtd, b, strerror(errno));
			goto out;
		}
		done->blocks_erased++;
	}
	failed = 0;
out:
	close(fd);
	return failed;
}

/* Up to `length` bytes; fewer only at the end of the file. -1 with errno. */
static ssize_t read_full(int fd, void *buffer, size_t length)
{
	size_t have = 0;

	while (have < length) {
		ssize_t n = read(fd, (char *)buffer + have, length - have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (!n)
			break;
		have += (size_t)n;
	}
	return (ssize_t)have;
}

/* A page a write(2): one program command each, and a failure names its page. */
static int write_pages(int mtd_fd, int file, unsigned int mtd, const char *path, uint64_t at,
		       const struct mtd_info_user *info, unsigned char *page, struct nand_done *done, char *why,
		       size_t size)
{
	uint64_t device = device_size(mtd, info);
	uint32_t checked = UINT32_MAX;

	for (;;) {
		ssize_t n = read_full(file, page, info->writesize);

		if (n < 0) {
			say(why, size, "%s: %s", path, strerror(errno));
			return -1;
		}
		if (!n)
			return 0;
		memset(page + n, 0xff, info->writesize - (size_t)n);

		while (at / info->erasesize != checked) {
			int bad;

			if (at >= device) {
				say(why, size, "%s does not fit into mtd%u: %llu bytes are written, %u bad blocks left out", path, mtd,
				    (unsigned long long)done->bytes, done->blocks_bad);
				return -1;
			}
			checked = (uint32_t)(at / info->erasesize);
			bad = is_bad(mtd_fd, info, checked);
			if (bad < 0) {
				say(why, size, "mtd%u block %u: asking whether it is bad: %s", mtd, checked, strerror(errno));
				return -1;
			}
			if (bad) {
				done->blocks_bad++;
				at = ((uint64_t)checked + 1) * info->erasesize;
			}
		}
		if (pwrite(mtd_fd, page, info->writesize, (off_t)at) != (ssize_t)info->writesize) {
			say(why, size, "mtd%u offset %llu: write: %s", mtd, (unsigned long long)at, strerror(errno));
			return -1;
		}
		done->pages_programmed++;
		done->bytes += (uint64_t)n;
		at += info->writesize;
	}
}

int nand_write(unsigned int mtd, const char *path, uint64_t offset, struct nand_done *done, char *why, size_t size)
{
	struct mtd_info_user info;
	unsigned char *page = NULL;
	int fd, file = -1, failed = -1;

	memset(done, 0, sizeof(*done));
	fd = open_mtd(mtd, O_RDWR, &info, why, size);
	if (fd < 0)
		return -1;
	if (offset % info.writesize) {
		say(why, size, "offset %llu is not a multiple of mtd%u's page (%u bytes)", (unsigned long long)offset, mtd,
		    info.writesize);
		goto out;
	}
	file = open(path, O_RDONLY | O_CLOEXEC);
	page = malloc(info.writesize);
	if (file < 0 || !page) {
		say(why, size, "%s: %s", path, strerror(errno));
		goto out;
	}
	failed = write_pages(fd, file, mtd, path, offset, &info, page, done, why, size);
out:
	free(page);
	if (file >= 0)
		close(file);
	close(fd);
	return failed;
}

int nand_markbad(unsigned int mtd, uint32_t block, char *why, size_t size)
{
	struct mtd_info_user info;
	uint32_t blocks;
	loff_t at;
	int fd, failed = 0;

	fd = open_mtd(mtd, O_RDWR, &info, why, size);
	if (fd < 0)
		return -1;
	at = (loff_t)block * info.erasesize;
	blocks = (uint32_t)(device_size(mtd, &info) / info.erasesize);
	if (block >= blocks) {
		say(why, size, "mtd%u has %u blocks; there is no block %u", mtd, blocks, block);
		failed = -1;
	} else if (ioctl(fd, MEMSETBADBLOCK, &at)) {
		say(why, size, "mtd%u block %u: marking it bad: %s", mtd, block, strerror(errno));
		failed = -1;
	}
	close(fd);
	return failed;
}
