// SPDX-License-Identifier: Apache-2.0
#include "handles.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "util.h"

/* include/linux/exportfs.h: a 32-bit inode number and a 32-bit generation. */
#define FILEID_INO32_GEN 1

static const char gone[] = " (deleted)";

uint64_t fs_born_ns(const struct statx *st)
{
	if (!(st->stx_mask & STATX_BTIME))
		return 0;
	return (uint64_t)st->stx_btime.tv_sec * UINT64_C(1000000000) + st->stx_btime.tv_nsec;
}

struct handle {
	struct file_handle head;
	uint32_t inode, generation;
};

static bool is_of(const struct fs_mount *mount, uint32_t device)
{
	static const char *const types[] = { "ext2", "ext3", "ext4", "f2fs", "jffs2" };

	if (mount->device != device)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (!strcmp(mount->type, types[i]))
			return true;
	return false;
}

/* A mount that is not covered by another one, and whose handles are as they should be. */
static int open_mount(const struct fs_mount *mount)
{
	struct {
		struct file_handle head;
		unsigned char bytes[MAX_HANDLE_SZ];
	} root = { .head.handle_bytes = MAX_HANDLE_SZ };
	char path[PATH_MAX];
	struct stat st;
	int id, fd;

	if (mount->pid)
		snprintf(path, sizeof(path), "/proc/%" PRId32 "/root%s", mount->pid, mount->point);
	else
		snprintf(path, sizeof(path), "%s", mount->point);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -1;
	if (!fstat(fd, &st) && ((uint32_t)major(st.st_dev) << 20 | (minor(st.st_dev) & 0xfffff)) == mount->device &&
	    !name_to_handle_at(fd, "", &root.head, &id, AT_EMPTY_PATH) && root.head.handle_type == FILEID_INO32_GEN &&
	    root.head.handle_bytes == 8)
		return fd;
	close(fd);
	return -1;
}

static void open_device(struct fs_handles *handles, const struct fs_mounts *mounts, uint32_t device)
{
	fs_handles_close(handles);
	*handles = (struct fs_handles){ .device = device, .fd = -1, .open = true };
	/* Our own namespace first, and the whole file system before parts of it. */
	for (int pass = 0; pass < 4 && handles->fd < 0; pass++)
		for (size_t i = 0; i < mounts->count && handles->fd < 0; i++) {
			const struct fs_mount *mount = &mounts->items[i];

			if (!is_of(mount, device) || (mount->pid != 0) != (pass >= 2) ||
			    !strcmp(mount->root, "/") != !(pass % 2))
				continue;
			handles->fd = open_mount(mount);
			handles->pid = mount->pid;
		}
}

/* Whether the path leads to the file now: one that the cache does not hold has the path "/", whatever it is called. */
static bool is_true(const struct fs_handles *handles, const char *path, const struct statx *file)
{
	char whole[PATH_MAX + 32];
	struct statx now;

	if (handles->pid)
		snprintf(whole, sizeof(whole), "/proc/%" PRId32 "/root%s", handles->pid, path);
	else
		snprintf(whole, sizeof(whole), "%s", path);
	return !statx(AT_FDCWD, whole, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, STATX_INO, &now) &&
	       now.stx_ino == file->stx_ino && now.stx_dev_major == file->stx_dev_major &&
	       now.stx_dev_minor == file->stx_dev_minor;
}

static bool named(const struct fs_handles *handles, int fd, struct fs_handle_file *file)
{
	size_t tail = strlen(gone);
	struct statx st;
	char link[64];
	ssize_t length;

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO | STATX_NLINK | STATX_BTIME, &st))
		return false;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, file->path, sizeof(file->path) - 1);
	if (length <= 1)
		return false;
	file->path[length] = '\0';
	file->foreign = handles->pid != 0;
	file->born_ns = fs_born_ns(&st);
	file->deleted = !st.stx_nlink;
	if (!file->deleted)
		return is_true(handles, file->path, &st);
	if ((size_t)length <= tail || strcmp(file->path + length - tail, gone))
		return false;
	file->path[(size_t)length - tail] = '\0';
	return true;
}

enum fs_handle_result fs_handle_name(struct fs_handles *handles, const struct fs_mounts *mounts, uint32_t device, uint64_t inode,
		    struct fs_handle_file *file)
{
	struct handle handle = { .head = { .handle_bytes = 8, .handle_type = FILEID_INO32_GEN } };
	bool result;
	int fd;

	if (!inode || inode > UINT32_MAX)
		return FS_HANDLE_UNKNOWN;
	if (!handles->open || handles->device != device)
		open_device(handles, mounts, device);
	if (handles->fd < 0)
		return FS_HANDLE_UNKNOWN;
	handle.inode = (uint32_t)inode;
	fd = open_by_handle_at(handles->fd, &handle.head, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return errno == ESTALE ? FS_HANDLE_GONE : FS_HANDLE_UNKNOWN;
	result = named(handles, fd, file);
	close(fd);
	return result ? FS_HANDLE_NAMED : FS_HANDLE_UNKNOWN;
}

void fs_handles_close(struct fs_handles *handles)
{
	if (handles->open && handles->fd >= 0)
		close(handles->fd);
	handles->open = false;
}
