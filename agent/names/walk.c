// SPDX-License-Identifier: Apache-2.0
/* The search of file systems for files without a path. */
#include "paths.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#ifdef SYS_openat2
#include <linux/openat2.h>
#endif

#include "util.h"

#define DEEPEST 128
/* Entries between two looks at the clock. */
#define STRIDE 256

struct walk {
	struct fs_paths *paths;
	uint32_t device;
	bool foreign, over_devices;
	int32_t pid; /* of a process in the mount's namespace; 0: our own */
	size_t wanted; /* files of this device that have no path */
	size_t skip; /* bytes at the beginning of path that are not shown */
	uint64_t count;
	enum fs_walk result;
	char path[PATH_MAX];
};

static bool is_out_of_time(struct walk *walk)
{
	if (fs_now_ns() >= walk->paths->deadline || (walk->paths->stop && *walk->paths->stop))
		walk->result = FS_WALK_TIME;
	return walk->result == FS_WALK_TIME;
}

static bool is_over(struct walk *walk)
{
	if (!walk->wanted || walk->result == FS_WALK_TIME)
		return true;
	return !(++walk->count % STRIDE) && is_out_of_time(walk);
}

static void found(struct walk *walk, int dir, const char *name, struct fs_inode *file)
{
	struct fs_touched *touched = &walk->paths->touched;
	const char *path = walk->path + walk->skip;
	struct statx stx;

	if (strlen(path) > FS_PATH_KEPT)
		path += strlen(path) - FS_PATH_KEPT;
	walk->wanted--;
	if (walk->foreign) {
		if (fs_inode_set_path(touched, &file->path, path))
			file->state = FS_FILE_ELSEWHERE;
		return;
	}
	if (file->path && !file->foreign && strcmp(file->path, path)) {
		file->again = !statx(dir, name, AT_SYMLINK_NOFOLLOW, STATX_BTIME, &stx) && fs_inode_is_another(file, fs_born_ns(&stx));
		fs_inode_keep_was(touched, file);
	}
	if (fs_inode_set_path(touched, &file->path, path))
		file->state = file->was ? FS_FILE_RENAMED : FS_FILE_NAMED;
	file->foreign = false;
}

static void directory(struct walk *walk, int fd, size_t length, dev_t device, int depth);

/* A directory, unless something is mounted on it: even to open that may block, or mount something else (autofs). */
static int open_directory(const struct walk *walk, int parent, const char *name)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
#ifdef SYS_openat2
	struct open_how how = { .flags = (unsigned int)flags, .resolve = RESOLVE_NO_XDEV };
	long fd = syscall(SYS_openat2, parent, name, &how, sizeof(how));

	/* From 5.6 on; sandboxes refuse it with EPERM. */
	if (fd >= 0 || (errno != ENOSYS && errno != EPERM))
		return (int)fd;
#endif
	if (fs_mounts_are_remote(&walk->paths->mounts, walk->pid, walk->path + walk->skip)) {
		errno = EXDEV;
		return -1;
	}
	return openat(parent, name, flags);
}

/* The entry of a subvolume has the subvolume's id where others have an inode number (fs/btrfs/inode.c, btrfs_real_readdir()). */
static bool has_inode(const struct walk *walk, int parent, const char *name, uint64_t inode)
{
	int fd = open_directory(walk, parent, name);
	struct stat st;
	bool result;

	if (fd < 0)
		return false;
	result = !fstat(fd, &st) && st.st_ino == inode;
	close(fd);
	return result;
}

static void enter(struct walk *walk, int parent, const char *name, size_t length, dev_t device, int depth)
{
	int fd = open_directory(walk, parent, name);
	struct stat st;

	if (fd < 0 && (errno == EXDEV || errno == ENOTDIR))
		return;
	if (fd < 0 || fstat(fd, &st)) {
		walk->result = FS_WALK_PART;
		if (fd >= 0)
			close(fd);
		return;
	}
	/* Something is mounted there, unless it is a subvolume. */
	if (st.st_dev != device && (!walk->over_devices || major(st.st_dev))) {
		close(fd);
		return;
	}
	directory(walk, fd, length, st.st_dev, depth + 1);
}

/* Takes the descriptor. */
static void directory(struct walk *walk, int fd, size_t length, dev_t device, int depth)
{
	struct dirent *entry;
	DIR *dir = fdopendir(fd);

	/* To read a directory may take long on a slow device. */
	if (is_out_of_time(walk) || !dir || depth > DEEPEST) {
		if (walk->result != FS_WALK_TIME)
			walk->result = FS_WALK_PART;
		if (dir)
			closedir(dir);
		else
			close(fd);
		return;
	}
	walk->paths->directories++;
	while (!is_over(walk) && (entry = readdir(dir))) {
		const char *name = entry->d_name;
		unsigned char type = entry->d_type;
		struct fs_inode *file;
		size_t longer;

		if (!strcmp(name, ".") || !strcmp(name, ".."))
			continue;
		walk->paths->entries++;
		longer = length + 1 + strlen(name);
		if (longer >= sizeof(walk->path)) {
			walk->result = FS_WALK_PART;
			continue;
		}
		file = fs_touched_file(&walk->paths->touched, walk->device, entry->d_ino, false);
		/* Of another subvolume than the file that was seen. */
		if (file && file->subvolume && file->subvolume != fs_kernel_device(device))
			file = NULL;
		if (file && walk->over_devices && type == DT_DIR && !has_inode(walk, dirfd(dir), name, file->inode))
			file = NULL;
		if (!(file && file->touched && !fs_inode_settled(file)) && type != DT_DIR && type != DT_UNKNOWN)
			continue;
		walk->path[length] = '/';
		memcpy(walk->path + length + 1, name, strlen(name) + 1);
		if (file && file->touched && !fs_inode_settled(file))
			found(walk, dirfd(dir), name, file);
		/* What is no directory says so when it is opened as one. */
		if (type == DT_DIR || type == DT_UNKNOWN)
			enter(walk, dirfd(dir), name, longer, device, depth);
	}
	closedir(dir);
}

/* From the root of one mount. */
static void mounted(struct walk *walk, const struct fs_mount *mount)
{
	struct fs_inode *file;
	struct stat st;
	int fd;

	walk->foreign = mount->pid != 0;
	walk->pid = mount->pid;
	walk->over_devices = !strcmp(mount->type, "btrfs");
	walk->skip = 0;
	if (mount->pid)
		walk->skip = (size_t)snprintf(walk->path, sizeof(walk->path), "/proc/%" PRId32 "/root", mount->pid);
	snprintf(walk->path + walk->skip, sizeof(walk->path) - walk->skip, "%s",
		 strcmp(mount->point, "/") ? mount->point : "");
	fd = open(walk->path[0] ? walk->path : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
	/* Another may be mounted over it. */
	if (fd < 0 || fstat(fd, &st) || (major(st.st_dev) && fs_kernel_device(st.st_dev) != walk->device)) {
		/* A file may be a mount too. */
		if (fd < 0 && !lstat(walk->path, &st) && S_ISREG(st.st_mode)) {
			file = fs_touched_file(&walk->paths->touched, walk->device, st.st_ino, false);
			if (file && file->touched && !fs_inode_settled(file))
				found(walk, AT_FDCWD, walk->path, file);
		}
		walk->result = FS_WALK_PART;
		if (fd >= 0)
			close(fd);
		return;
	}
	file = fs_touched_file(&walk->paths->touched, walk->device, st.st_ino, false);
	if (file && file->touched && !fs_inode_settled(file))
		found(walk, fd, ".", file);
	directory(walk, fd, strlen(walk->path), st.st_dev, 0);
}

static size_t wanted_of(const struct fs_paths *paths, uint32_t device)
{
	size_t count = 0;

	for (size_t i = 0; i < paths->touched.count; i++) {
		const struct fs_inode *file = &paths->touched.files[i];

		count += file->touched && file->device == device && !fs_inode_settled(file);
	}
	return count;
}

/* The whole file system where it is mounted; else the parts of it that are. Our own namespace first. */
static enum fs_walk device_walk(struct fs_paths *paths, uint32_t device)
{
	struct walk *walk = fs_alloc(sizeof(*walk));
	const struct fs_mounts *mounts = &paths->mounts;
	enum fs_walk result = FS_WALK_NONE;

	memset(walk, 0, sizeof(*walk));
	walk->paths = paths;
	walk->device = device;
	walk->wanted = wanted_of(paths, device);
	for (int pass = 0; pass < 4 && result != FS_WALK_COMPLETE && result != FS_WALK_TIME && walk->wanted; pass++)
		for (size_t i = 0; i < mounts->count && walk->wanted; i++) {
			const struct fs_mount *mount = &mounts->items[i];
			const bool whole = !strcmp(mount->root, "/");

			if (mount->device != device || (mount->pid != 0) != (pass >= 2) || whole != !(pass % 2) ||
			    fs_mounts_are_remote(mounts, mount->pid, mount->point))
				continue;
			walk->result = FS_WALK_COMPLETE;
			mounted(walk, mount);
			result = walk->result;
			if (result == FS_WALK_TIME)
				break;
			if (!whole)
				result = FS_WALK_PART;
			if (result == FS_WALK_COMPLETE)
				break;
		}
	free(walk);
	return result;
}

static struct fs_walked *walked(struct fs_paths *paths, uint32_t device)
{
	for (size_t i = 0; i < paths->walked_count; i++)
		if (paths->walked[i].device == device)
			return &paths->walked[i];
	return NULL;
}

/* Entries of a file system, as far as it says: inodes in use; without such a count (btrfs) blocks in use. */
static uint64_t entries_of(const struct fs_paths *paths, uint32_t device)
{
	for (size_t i = 0; i < paths->mounts.count; i++) {
		const struct fs_mount *mount = &paths->mounts.items[i];
		struct statvfs st;

		if (mount->device != device || mount->pid || fs_mounts_are_remote(&paths->mounts, 0, mount->point) ||
		    statvfs(mount->point, &st))
			continue;
		return st.f_files > st.f_ffree ? st.f_files - st.f_ffree : st.f_blocks - st.f_bfree;
	}
	return UINT64_MAX;
}

static int smallest_first(const void *a, const void *b)
{
	const struct fs_walked *left = a, *right = b;

	return (left->entries > right->entries) - (left->entries < right->entries);
}

/* The file systems that hold files without a path, the smallest first. */
static void to_walk(struct fs_paths *paths)
{
	for (size_t i = 0; i < paths->touched.count && paths->walked_count < FS_WALKED_MAX; i++) {
		const struct fs_inode *file = &paths->touched.files[i];

		if (!file->touched || fs_inode_settled(file) || walked(paths, file->device))
			continue;
		paths->walked[paths->walked_count++] =
			(struct fs_walked){ .device = file->device, .entries = entries_of(paths, file->device) };
	}
	qsort(paths->walked, paths->walked_count, sizeof(*paths->walked), smallest_first);
}

void fs_paths_walk(struct fs_paths *paths, uint64_t end_ns)
{
	to_walk(paths);
	for (size_t i = 0; i < paths->walked_count; i++) {
		/* Each may take its share of what is left: a small one leaves the rest of its share to the larger. */
		uint64_t now = fs_now_ns();

		if (end_ns == UINT64_MAX)
			paths->deadline = UINT64_MAX;
		else
			paths->deadline = now >= end_ns ? now : now + (end_ns - now) / (paths->walked_count - i);
		paths->walked[i].result = device_walk(paths, paths->walked[i].device);
	}
	for (size_t i = 0; i < paths->touched.count; i++) {
		struct fs_inode *file = &paths->touched.files[i];
		const struct fs_walked *done;

		if (!file->touched || fs_inode_settled(file))
			continue;
		done = walked(paths, file->device);
		/* Gone from where it was, and nowhere else. */
		if (done && done->result == FS_WALK_COMPLETE && file->path && !fs_inode_settled(file))
			file->state = file->foreign ? FS_FILE_ELSEWHERE : FS_FILE_DELETED;
	}
}
