// SPDX-License-Identifier: Apache-2.0
#include "subvolumes.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/btrfs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "util.h"

/* include/linux/exportfs.h: inode number and subvolume, 64 bits each, and a generation of 32 bits, of which 0 is any. */
#define FILEID_BTRFS_WITHOUT_PARENT 0x4d
#define FID_BYTES 20
/* include/uapi/linux/btrfs_tree.h: BTRFS_FS_TREE_OBJECTID, and the inode number of a subvolume's root. */
#define TOP_SUBVOLUME 5
#define ROOT_INODE 256

static uint32_t kernel_device(dev_t device)
{
	return (uint32_t)major(device) << 20 | (minor(device) & 0xfffff);
}

static int open_inode(int mount, uint64_t subvolume, uint64_t inode, int flags)
{
	struct {
		struct file_handle head;
		unsigned char fid[FID_BYTES];
	} handle = { .head = { .handle_bytes = FID_BYTES, .handle_type = FILEID_BTRFS_WITHOUT_PARENT } };

	memcpy(handle.fid, &inode, sizeof(inode));
	memcpy(handle.fid + sizeof(inode), &subvolume, sizeof(subvolume));
	return open_by_handle_at(mount, &handle.head, flags | O_CLOEXEC);
}

/* The path by which this descriptor's mount shows it, where it does and the path is true. A copy. */
static char *shown(int fd)
{
	char path[PATH_MAX], link[64];
	struct stat file, there;
	ssize_t length;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof(path) - 1);
	if (length <= 0 || path[0] != '/')
		return NULL;
	path[length] = '\0';
	/* What the kernel's cache has no name of is called "/". */
	if (fstat(fd, &file) || lstat(path, &there) || file.st_ino != there.st_ino || file.st_dev != there.st_dev)
		return NULL;
	return fs_strdup(path);
}

static void open_mounts(struct fs_subvolumes *all, const struct fs_mounts *mounts, uint32_t device)
{
	for (size_t i = 0; i < mounts->count && all->mount_count < FS_SUBVOLUME_MOUNTS_MAX; i++) {
		const struct fs_mount *mount = &mounts->items[i];
		struct stat st;
		int fd;

		if (mount->device != device || mount->pid || strcmp(mount->type, "btrfs"))
			continue;
		fd = open(mount->point, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
		if (fd < 0)
			continue;
		/* Unless another one is mounted over it. */
		if (fstat(fd, &st) || major(st.st_dev))
			close(fd);
		else
			all->mounts[all->mount_count++] = fd;
	}
}

static void add(struct fs_subvolumes *all, uint64_t id)
{
	if (all->count < FS_SUBVOLUMES_MAX)
		all->items[all->count++] = (struct fs_subvolume){ .id = id };
}

/* Those that lie in a subvolume (4.18 and later). */
static void add_children(struct fs_subvolumes *all, int root)
{
	struct btrfs_ioctl_get_subvol_rootref_args found = { 0 };
	int result;

	do {
		result = ioctl(root, BTRFS_IOC_GET_SUBVOL_ROOTREF, &found);
		for (size_t i = 0; (!result || errno == EOVERFLOW) && i < found.num_items; i++)
			add(all, found.rootref[i].treeid);
	} while (result && errno == EOVERFLOW && found.num_items);
}

size_t fs_subvolumes_open(struct fs_subvolumes *all, const struct fs_mounts *mounts, uint32_t device)
{
	size_t kept = 0;

	if (all->device == device && device)
		return all->count;
	fs_subvolumes_close(all);
	all->device = device;
	open_mounts(all, mounts, device);
	if (all->mount_count)
		add(all, TOP_SUBVOLUME);
	for (size_t i = 0; i < all->count; i++) {
		struct fs_subvolume *one = &all->items[i];

		for (size_t m = 0; m < all->mount_count && !one->path; m++) {
			int root = open_inode(all->mounts[m], one->id, ROOT_INODE, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
			struct stat st;

			if (root < 0)
				continue;
			if (!m)
				add_children(all, root);
			if (!fstat(root, &st))
				one->device = kernel_device(st.st_dev);
			one->path = shown(root);
			close(root);
		}
	}
	/* No process can have a file of a subvolume that is mounted nowhere. */
	for (size_t i = 0; i < all->count; i++)
		if (all->items[i].path)
			all->items[kept++] = all->items[i];
	all->count = kept;
	return all->count;
}

/* The path of subvolume `one`'s file of this number, or else of the subvolume; NULL if it has none. A copy. */
static char *file_of(const struct fs_subvolumes *all, const struct fs_subvolume *one, uint64_t inode)
{
	char *path = NULL;

	for (size_t m = 0; m < all->mount_count && !path; m++) {
		int fd = open_inode(all->mounts[m], one->id, inode, O_PATH);

		if (fd < 0)
			return NULL;
		path = shown(fd);
		close(fd);
	}
	return path || !all->mount_count ? path : fs_strdup(one->path);
}

char *fs_subvolumes_other(const struct fs_subvolumes *all, uint64_t inode, uint32_t own, bool *more)
{
	char *first = NULL;

	*more = false;
	for (size_t i = 0; i < all->count && !*more; i++) {
		char *path = all->items[i].device != own ? file_of(all, &all->items[i], inode) : NULL;

		if (!first) {
			first = path;
			continue;
		}
		*more = path != NULL;
		free(path);
	}
	return first;
}

const char *fs_subvolumes_path(const struct fs_subvolumes *all, uint64_t id, uint32_t own)
{
	for (size_t i = 0; i < all->count; i++)
		if (all->items[i].id == id)
			return all->items[i].device == own ? NULL : all->items[i].path;
	return NULL;
}

void fs_subvolumes_close(struct fs_subvolumes *all)
{
	for (size_t i = 0; i < all->mount_count; i++)
		close(all->mounts[i]);
	for (size_t i = 0; i < all->count; i++)
		free(all->items[i].path);
	memset(all, 0, sizeof(*all));
}
