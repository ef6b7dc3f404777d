// SPDX-License-Identifier: Apache-2.0
#include "ubi.h"

#include <errno.h>
#include <fcntl.h>
#include <mtd/ubi-user.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util.h"

#define say(why, size, ...) snprintf(why, size, __VA_ARGS__)

int ubi_attach(unsigned int mtd, int *ubi, char *why, size_t size)
{
	struct ubi_attach_req request = { .ubi_num = UBI_DEV_NUM_AUTO, .mtd_num = (int32_t)mtd };
	int fd, failed = 0;

	fd = open("/dev/ubi_ctrl", O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		say(why, size, "/dev/ubi_ctrl: %s; the module ubi must be loaded first", strerror(errno));
		return -1;
	}
	if (ioctl(fd, UBI_IOCATT, &request)) {
		say(why, size, "mtd%u: UBI will not attach it: %s", mtd, strerror(errno));
		failed = -1;
	}
	*ubi = request.ubi_num;
	close(fd);
	return failed;
}

static bool ubi_attribute(unsigned int ubi, const char *name, uint64_t *value)
{
	char path[80];

	snprintf(path, sizeof(path), "/sys/class/ubi/ubi%u/%s", ubi, name);
	return fs_read_u64(path, value);
}

int ubi_mkvol(unsigned int ubi, const char *name, uint64_t *bytes, int *volume, char *why, size_t size)
{
	struct ubi_mkvol_req request = {
		.vol_id = UBI_VOL_NUM_AUTO,
		.alignment = 1,
		.vol_type = UBI_DYNAMIC_VOLUME,
	};
	uint64_t blocks, block_bytes;
	size_t length = strlen(name);
	char path[32];
	int fd, failed = 0;

	if (!length || length > UBI_MAX_VOLUME_NAME) {
		say(why, size, "a UBI volume's name has 1 to %d bytes", UBI_MAX_VOLUME_NAME);
		return -1;
	}
	if (!ubi_attribute(ubi, "avail_eraseblocks", &blocks) ||
	    !ubi_attribute(ubi, "eraseblock_size", &block_bytes)) {
		say(why, size, "ubi%u: no such UBI device; ubi-attach comes first", ubi);
		return -1;
	}
	if (!*bytes)
		*bytes = blocks * block_bytes;
	memcpy(request.name, name, length + 1);
	request.name_len = (int16_t)length;
	request.bytes = (int64_t)*bytes;
	snprintf(path, sizeof(path), "/dev/ubi%u", ubi);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		say(why, size, "%s: %s", path, strerror(errno));
		return -1;
	}
	if (ioctl(fd, UBI_IOCMKVOL, &request)) {
		say(why, size, "%s: no volume '%s' of %llu bytes: %s (%llu bytes are available)", path, name,
		    (unsigned long long)*bytes, strerror(errno), (unsigned long long)(blocks * block_bytes));
		failed = -1;
	}
	*volume = request.vol_id;
	close(fd);
	return failed;
}

/* Opens a volume to be changed as a whole. */
static int open_volume(const char *volume, char *why, size_t size)
{
	int fd = open(volume, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		say(why, size, "%s: %s; ubi-mkvol comes first", volume, strerror(errno));
	return fd;
}

int ubi_write(const char *volume, const char *path, uint64_t *bytes, char *why, size_t size)
{
	int from, to, failed = 0;
	char chunk[65536];
	struct stat about;
	int64_t length;
	ssize_t got;

	to = open_volume(volume, why, size);
	if (to < 0)
		return -1;
	from = open(path, O_RDONLY | O_CLOEXEC);
	if (from < 0 || fstat(from, &about)) {
		say(why, size, "%s: %s", path, strerror(errno));
		failed = -1;
		goto out;
	}
	/* The update ends with the last of as many bytes as were announced. */
	length = about.st_size;
	if (ioctl(to, UBI_IOCVOLUP, &length)) {
		say(why, size, "%s: no update of %lld bytes: %s", volume, (long long)length, strerror(errno));
		failed = -1;
		goto out;
	}
	*bytes = 0;
	while ((got = read(from, chunk, sizeof(chunk))) > 0) {
		if (fs_write_all(to, chunk, (size_t)got)) {
			say(why, size, "%s: cannot be written at %llu: %s", volume, (unsigned long long)*bytes,
			    strerror(errno));
			failed = -1;
			goto out;
		}
		*bytes += (uint64_t)got;
	}
	if (got < 0 || *bytes != (uint64_t)length) {
		say(why, size, "%s: %s", path, got < 0 ? strerror(errno) : "it changed while it was read");
		failed = -1;
	}
out:
	if (from >= 0)
		close(from);
	close(to);
	return failed;
}

int ubi_block(const char *volume, char *why, size_t size)
{
	struct ubi_blkcreate_req request = { .padding = { 0 } };
	int fd, failed = 0;

	fd = open_volume(volume, why, size);
	if (fd < 0)
		return -1;
	if (ioctl(fd, UBI_IOCVOLCRBLK, &request)) {
		say(why, size, "%s: no block device on it: %s (CONFIG_MTD_UBI_BLOCK)", volume, strerror(errno));
		failed = -1;
	}
	close(fd);
	return failed;
}

int ubi_detach(unsigned int ubi, char *why, size_t size)
{
	int32_t number = (int32_t)ubi;
	int fd, failed = 0;

	fd = open("/dev/ubi_ctrl", O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		say(why, size, "/dev/ubi_ctrl: %s; the module ubi must be loaded first", strerror(errno));
		return -1;
	}
	if (ioctl(fd, UBI_IOCDET, &number)) {
		say(why, size, "ubi%u: UBI will not detach it: %s", ubi, strerror(errno));
		failed = -1;
	}
	close(fd);
	return failed;
}
