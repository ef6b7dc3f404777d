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

/* include/linux/exportfs.h: a 32-bit inode number and a 32-bit generation. fs/xfs/xfs_export.h: the same with a 64-bit number. */
#define FILEID_INO32_GEN 1
#define FILEID_INO64_GEN 0x81
#define FILEID_BTRFS 0x4d /* FILEID_BTRFS_WITHOUT_PARENT */

#define GONE_TRIES 20
#define GONE_WAIT_US 50

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

struct long_handle {
	struct file_handle head;
	uint32_t inode[2], generation; /* a handle is not aligned to 8 bytes */
};

/* fs/btrfs/export.h, struct btrfs_fid, without the parent's part. */
struct btrfs_handle {
	struct file_handle head;
	uint32_t inode[2], subvolume[2], transaction;
};

static bool is_of(const struct fs_mount *mount, uint32_t device, bool any)
{
	static const char *const types[] = { "ext2", "ext3", "ext4", "f2fs", "jffs2" };

	if (mount->device != device || any)
		return mount->device == device;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (!strcmp(mount->type, types[i]))
			return true;
	return false;
}

/* A mount that is not covered by another one, and whose handles are as they should be. */
static int open_mount(const struct fs_mount *mount, bool any)
{
	struct {
		struct file_handle head;
		unsigned char bytes[MAX_HANDLE_SZ];
	} root = { .head.handle_bytes = MAX_HANDLE_SZ };
	char path[PATH_MAX];
	struct stat st;
	int id, fd;

	fs_mount_path(mount, path, sizeof(path));
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -1;
	if (any)
		return fd;
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
	*handles = (struct fs_handles){ .device = device, .fd = -1, .open = true, .any = handles->any };
	/* Our own namespace first, and the whole file system before parts of it. */
	for (int pass = 0; pass < 4 && handles->fd < 0; pass++)
		for (size_t i = 0; i < mounts->count && handles->fd < 0; i++) {
			const struct fs_mount *mount = &mounts->items[i];

			if (!is_of(mount, device, handles->any) || (mount->pid != 0) != (pass >= 2) ||
			    !strcmp(mount->root, "/") != !(pass % 2) ||
			    fs_mounts_are_remote(mounts, mount->pid, mount->point))
				continue;
			handles->fd = open_mount(mount, handles->any);
			handles->pid = mount->pid;
			handles->whole = !strcmp(mount->root, "/");
		}
}

/* Whether the path leads to the file now. The path of a file that is not in the cache is "/", whatever its name is. */
static bool is_true(const struct fs_handles *handles, const struct fs_mounts *mounts, const char *path, const struct statx *file)
{
	char whole[PATH_MAX + 32];
	struct statx now;

	/* Something that may never answer was mounted on a directory of the path. */
	if (fs_mounts_are_remote(mounts, handles->pid, path))
		return false;
	if (handles->pid)
		snprintf(whole, sizeof(whole), "/proc/%" PRId32 "/root%s", handles->pid, path);
	else
		snprintf(whole, sizeof(whole), "%s", path);
	return !statx(AT_FDCWD, whole, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, STATX_INO, &now) &&
	       now.stx_ino == file->stx_ino && now.stx_dev_major == file->stx_dev_major &&
	       now.stx_dev_minor == file->stx_dev_minor;
}

static bool named(const struct fs_handles *handles, const struct fs_mounts *mounts, int fd, struct fs_handle_file *file)
{
	size_t tail = strlen(gone);
	struct statx st;
	char link[64];
	ssize_t length;

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO | STATX_NLINK | STATX_BTIME, &st))
		return false;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, file->path, sizeof(file->path) - 1);
	if (length <= 1)
		return false;
	file->path[length] = '\0';
	file->foreign = handles->pid != 0;
	file->born_ns = fs_born_ns(&st);
	file->deleted = !st.stx_nlink;
	file->hidden = !file->deleted && !is_true(handles, mounts, file->path, &st);
	if (!file->deleted)
		/* Of a directory the kernel always has the true path, also below another mount (fs/exportfs/expfs.c, reconnect_path()). */
		return !file->hidden || (handles->whole && !handles->pid && S_ISDIR(st.stx_mode));
	if ((size_t)length <= tail || strcmp(file->path + length - tail, gone))
		return false;
	file->path[(size_t)length - tail] = '\0';
	return true;
}

/* Whether the file has the generation 0: such a handle opens any file of its inode number. mkfs gives files that generation. */
static bool is_first(int fd)
{
	struct handle handle = { .head = { .handle_bytes = sizeof(handle) - sizeof(handle.head) } };
	int mount;

	return !name_to_handle_at(fd, "", &handle.head, &mount, AT_EMPTY_PATH) && !handle.generation;
}

/* file: NULL: only whether this very file exists. first: the generation is 0. */
static enum fs_handle_result opened(struct fs_handles *handles, const struct fs_mounts *mounts, uint32_t device,
				    struct file_handle *handle, bool first, struct fs_handle_file *file)
{
	bool result;
	int fd;

	if (file)
		file->hidden = false;
	if (!handles->open || handles->device != device)
		open_device(handles, mounts, device);
	if (handles->fd < 0)
		return FS_HANDLE_UNKNOWN;
	fd = open_by_handle_at(handles->fd, handle, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return errno == ESTALE ? FS_HANDLE_GONE : FS_HANDLE_UNKNOWN;
	if (!file) {
		result = !first || is_first(fd);
		close(fd);
		return result ? FS_HANDLE_NAMED : FS_HANDLE_GONE;
	}
	result = named(handles, mounts, fd, file);
	close(fd);
	return result ? FS_HANDLE_NAMED : FS_HANDLE_UNKNOWN;
}

enum fs_handle_result fs_handle_name(struct fs_handles *handles, const struct fs_mounts *mounts, uint32_t device, uint64_t inode,
		    struct fs_handle_file *file)
{
	struct handle handle = { .head = { .handle_bytes = 8, .handle_type = FILEID_INO32_GEN }, .inode = (uint32_t)inode };

	if (!inode || inode > UINT32_MAX)
		return FS_HANDLE_UNKNOWN;
	return opened(handles, mounts, device, &handle.head, false, file);
}

enum fs_handle_result fs_handle_directory(struct fs_handles *handles, const struct fs_mounts *mounts, uint32_t device,
					  struct file_handle *handle, struct fs_handle_file *file)
{
	return opened(handles, mounts, device, handle, false, file);
}

enum fs_handle_result fs_handle_btrfs(struct fs_handles *handles, const struct fs_mounts *mounts, uint32_t device, uint64_t inode,
				      uint64_t subvolume, uint32_t transaction, struct fs_handle_file *file)
{
	struct btrfs_handle handle = { .head = { .handle_bytes = 20, .handle_type = FILEID_BTRFS }, .transaction = transaction };

	memcpy(handle.inode, &inode, sizeof(inode));
	memcpy(handle.subvolume, &subvolume, sizeof(subvolume));
	return opened(handles, mounts, device, &handle.head, false, file);
}

bool fs_handle_is_gone(struct fs_handles *handles, const struct fs_mounts *mounts, uint32_t device, uint64_t inode,
		       uint32_t generation)
{
	struct handle handle = { .head = { .handle_bytes = 8, .handle_type = FILEID_INO32_GEN },
				 .inode = (uint32_t)inode,
				 .generation = generation };
	struct long_handle large = { .head = { .handle_bytes = 12, .handle_type = FILEID_INO64_GEN }, .generation = generation };
	enum fs_handle_result result = FS_HANDLE_UNKNOWN;

	if (!inode)
		return false;
	memcpy(large.inode, &inode, sizeof(inode));
	/* While another file is made with its number, the answer is ENOMEM (fs/inode.c, I_CREATING; fs/ext4/inode.c). */
	for (int tries = 0; tries < GONE_TRIES && result == FS_HANDLE_UNKNOWN; tries++) {
		if (tries)
			usleep(GONE_WAIT_US);
		result = opened(handles, mounts, device, inode > UINT32_MAX ? &large.head : &handle.head, !generation, NULL);
		if (handles->fd < 0)
			break;
	}
	return result == FS_HANDLE_GONE;
}

void fs_handles_close(struct fs_handles *handles)
{
	if (handles->open && handles->fd >= 0)
		close(handles->fd);
	handles->open = false;
}
