// SPDX-License-Identifier: Apache-2.0
#include "paths.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "reader.h"
#include "subvolumes.h"
#include "util.h"

/* How old the list of mounts may be where a device is not in it: another namespace does not say that its mounts change. */
#define MOUNTS_LAST_NS UINT64_C(1000000000)
/* Open files of a process between two looks at the clock: some 50 us. */
#define FD_STRIDE 16

static const char gone[] = " (deleted)";

static uint64_t real_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* --- what processes have open ------------------------------------------ */

/* The kernel appends it to the path of what is gone. */
static void without_gone(char *path)
{
	size_t length = strlen(path), tail = strlen(gone);

	if (length > tail && !strcmp(path + length - tail, gone))
		path[length - tail] = '\0';
}

static const struct fs_mount *mount_of(const struct fs_paths *paths, uint32_t device)
{
	for (size_t i = 0; i < paths->mounts.count; i++)
		if (paths->mounts.items[i].device == device)
			return &paths->mounts.items[i];
	return NULL;
}

/*
 * subvolume: the device that stat(2) has for it, where that is another one than events have; else 0. born_ns: when the file was
 * made; 0: unknown.
 */
static void sighted(struct fs_paths *paths, struct fs_inode *file, char *path, uint32_t subvolume, uint64_t born_ns,
		    bool foreign, bool deleted)
{
	if (*path != '/')
		return;
	if (strlen(path) > FS_PATH_KEPT)
		path += strlen(path) - FS_PATH_KEPT;
	file->looked_ns = fs_now_ns();
	/* Of another subvolume, with the same inode number: nothing was renamed. */
	if (file->path && subvolume && file->subvolume && subvolume != file->subvolume) {
		if (!file->other)
			fs_inode_set_path(&paths->touched, &file->other, path);
		return;
	}
	file->subvolume = subvolume ? subvolume : file->subvolume;
	if (!file->path) {
		if (!fs_inode_set_path(&paths->touched, &file->path, path))
			return;
		file->foreign = foreign;
		file->seen_ns = real_ns();
		file->born_ns = born_ns;
	} else if (strcmp(file->path, path) && !foreign) {
		if (!file->foreign && !fs_inode_keep_was(&paths->touched, file))
			return;
		if (!fs_inode_set_path(&paths->touched, &file->path, path))
			return;
		file->foreign = false;
	}
	if (file->state < FS_FILE_NAMED)
		file->state = deleted && !fs_inode_was_nameless(file) ? FS_FILE_DELETED : FS_FILE_SEEN;
}

static uint64_t mount_id(int32_t pid, const char *fd)
{
	char path[FS_PATH_MAX], *text, *line;
	uint64_t id = 0;

	text = fs_read_text(fs_path(path, sizeof(path), "/proc/%" PRId32 "/fdinfo/%s", pid, fd), NULL);
	line = text ? strstr(text, "mnt_id:") : NULL;
	if (line)
		id = strtoull(line + strlen("mnt_id:"), NULL, 10);
	free(text);
	return id;
}

/* What lies on a remote mount is not asked for anything: the answer may never come. */
static bool is_remote(const struct fs_paths *paths, int32_t pid, const char *fd)
{
	const struct fs_mount *mount;

	if (!paths->mounts.remote)
		return false;
	/* Pipes, sockets and what was unmounted with force are in no list. */
	mount = fs_mounts_by_id(&paths->mounts, mount_id(pid, fd));
	return !mount || fs_mount_is_remote(mount);
}

/* The device as events have it: a subvolume of btrfs has another for stat(2). */
static uint32_t device_of(const struct fs_paths *paths, dev_t device, int32_t pid, const char *fd)
{
	const struct fs_mount *mount;

	if (major(device))
		return fs_kernel_device(device);
	mount = fs_mounts_by_id(&paths->mounts, mount_id(pid, fd));
	return mount && !strcmp(mount->type, "btrfs") ? mount->device : fs_kernel_device(device);
}

/* Until end_ns; false where it was over before all were looked at. */
static bool open_files(struct fs_paths *paths, int32_t pid, bool foreign, bool only_touched, uint64_t end_ns)
{
	char path[FS_PATH_MAX], target[PATH_MAX];
	struct dirent *entry;
	DIR *dir = opendir(fs_path(path, sizeof(path), "/proc/%" PRId32 "/fd", pid));
	unsigned int count = 0;
	bool whole = true;

	while (dir && (entry = readdir(dir))) {
		uint32_t device, stat_device;
		struct fs_inode *file;
		struct statx st;
		ssize_t length;

		if (!(++count % FD_STRIDE) && fs_now_ns() >= end_ns) {
			whole = false;
			break;
		}

		/* What the kernel has of it will do: what was unmounted with force may be remote. */
		if (entry->d_name[0] == '.' || is_remote(paths, pid, entry->d_name) ||
		    statx(dirfd(dir), entry->d_name, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT,
			  STATX_TYPE | STATX_INO | STATX_NLINK | STATX_BTIME, &st) ||
		    !(S_ISREG(st.stx_mode) || S_ISDIR(st.stx_mode)))
			continue;
		stat_device = fs_kernel_device(makedev(st.stx_dev_major, st.stx_dev_minor));
		device = device_of(paths, makedev(st.stx_dev_major, st.stx_dev_minor), pid, entry->d_name);
		file = fs_touched_file(&paths->touched, device, st.stx_ino, !only_touched && S_ISREG(st.stx_mode));
		if (!file || (only_touched && !file->touched))
			continue;
		length = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);
		if (length <= 0)
			continue;
		target[length] = '\0';
		if (!st.stx_nlink)
			without_gone(target);
		sighted(paths, file, target, device != stat_device ? stat_device : 0, fs_born_ns(&st), foreign, !st.stx_nlink);
	}
	if (dir)
		closedir(dir);
	return whole;
}

/* "7f0c5a2b1000-7f0c5a2d9000 r-xp 00000000 fe:00 12345   /usr/lib/libc.so.6" (proc(5)). */
static void mapped_files(struct fs_paths *paths, int32_t pid, bool foreign, bool only_touched)
{
	char *text, *rest, *line;
	uint64_t last = 0;
	size_t length;

	text = fs_reader_text(pid, "maps", 0, false, &length);
	rest = text;
	while (rest && (line = strsep(&rest, "\n"))) {
		unsigned int major, minor;
		char *name = strchr(line, '/');
		struct fs_inode *file;
		uint64_t inode;

		if (!name || sscanf(line, "%*s %*s %*s %x:%x %" SCNu64, &major, &minor, &inode) != 3 || !inode ||
		    inode == last)
			continue;
		last = inode;
		file = fs_touched_file(&paths->touched, major << 20 | (minor & 0xfffff), inode, !only_touched);
		if (!file || (only_touched && !file->touched))
			continue;
		fs_unescape(name);
		without_gone(name);
		/* Whether it is gone or was renamed onto, the walk finds out. */
		sighted(paths, file, name, 0, 0, foreign, false);
	}
	free(text);
}

static bool is_foreign(const struct fs_paths *paths, int32_t pid)
{
	return fs_namespace_of(pid, "mnt") != paths->mounts.namespaces[0];
}

/* No page of these ever becomes dirty. */
static bool is_read_only(const char *type)
{
	static const char *const types[] = { "squashfs", "erofs", "cramfs", "romfs", "iso9660" };

	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (!strcmp(type, types[i]))
			return true;
	return false;
}

/* Events that name a disk alone are of the partition that has a file system. */
static void disks(struct fs_paths *paths)
{
	char path[FS_PATH_MAX], *number;
	unsigned int major, minor;

	for (size_t i = 0; i < paths->mounts.count; i++) {
		const struct fs_mount *mount = &paths->mounts.items[i];
		const unsigned int of_mount[] = { mount->device >> 20, mount->device & 0xfffff };

		if (!of_mount[0] || is_read_only(mount->type) ||
		    access(fs_path(path, sizeof(path), "/sys/dev/block/%u:%u/partition", of_mount[0], of_mount[1]), F_OK))
			continue;
		number = fs_read_value(fs_path(path, sizeof(path), "/sys/dev/block/%u:%u/../dev", of_mount[0], of_mount[1]));
		if (number && sscanf(number, "%u:%u", &major, &minor) == 2)
			fs_touched_disk(&paths->touched, major << 20 | (minor & 0xfffff), mount->device);
		free(number);
	}
}

/* Whether our namespace's mounts are others than at the last look (fs/proc_namespace.c, mounts_poll()). */
static bool mounts_changed(struct fs_paths *paths)
{
	struct pollfd watched = { .events = POLLPRI };
	char path[FS_PATH_MAX];

	if (!paths->mounts_watched) {
		paths->mounts_fd = open(fs_path(path, sizeof(path), "/proc/self/mountinfo"), O_RDONLY | O_CLOEXEC);
		paths->mounts_watched = paths->mounts_fd >= 0;
	}
	watched.fd = paths->mounts_fd;
	return paths->mounts_watched && poll(&watched, 1, 0) == 1 && watched.revents & (POLLPRI | POLLERR);
}

void fs_paths_mounts(struct fs_paths *paths)
{
	/* Before they are read: what changes meanwhile is seen at the next look. */
	mounts_changed(paths);
	fs_mounts_read(&paths->mounts);
	paths->mounts_read_ns = fs_now_ns();
	disks(paths);
}

bool fs_paths_mounts_again(struct fs_paths *paths)
{
	if (!mounts_changed(paths))
		return false;
	fs_paths_mounts(paths);
	return true;
}

void fs_paths_of_task(struct fs_paths *paths, int32_t tid, uint64_t budget_ns)
{
	fs_paths_mounts(paths);
	open_files(paths, tid, is_foreign(paths, tid), false, fs_now_ns() + budget_ns);
}

void fs_paths_seen(struct fs_paths *paths, bool only_touched, uint64_t end_ns)
{
	char path[FS_PATH_MAX];
	struct dirent *entry;
	DIR *proc;

	fs_paths_mounts(paths);
	proc = opendir(fs_path(path, sizeof(path), "/proc"));
	while (proc && (entry = readdir(proc))) {
		uint64_t pid;
		bool foreign;

		if (!fs_parse_u64(entry->d_name, INT32_MAX, &pid) || (pid_t)pid == getpid())
			continue;
		if (fs_now_ns() >= end_ns) {
			paths->late = true;
			break;
		}
		foreign = is_foreign(paths, (int32_t)pid);
		paths->late |= !open_files(paths, (int32_t)pid, foreign, only_touched, end_ns);
		mapped_files(paths, (int32_t)pid, foreign, only_touched);
	}
	if (proc)
		closedir(proc);
}

static bool is_mounted(const struct fs_paths *paths, uint32_t device)
{
	return !paths->handles.open || paths->handles.device != device || paths->handles.fd >= 0;
}

/* A file system may have been mounted since the mounts were read: they are read again where they have changed, or may have. */
static enum fs_handle_result by_handle(struct fs_paths *paths, const struct fs_inode *file, struct fs_handle_file *found)
{
	enum fs_handle_result result = fs_handle_name(&paths->handles, &paths->mounts, file->device, file->inode, found);

	if (result != FS_HANDLE_UNKNOWN || is_mounted(paths, file->device))
		return result;
	if (paths->mounts_read_ns && !mounts_changed(paths) && fs_now_ns() - paths->mounts_read_ns < MOUNTS_LAST_NS)
		return result;
	fs_paths_mounts(paths);
	fs_handles_close(&paths->handles);
	return fs_handle_name(&paths->handles, &paths->mounts, file->device, file->inode, found);
}

static bool sighted_by_handle(struct fs_paths *paths, struct fs_inode *file)
{
	struct fs_handle_file found;

	if (by_handle(paths, file, &found) != FS_HANDLE_NAMED)
		return false;
	sighted(paths, file, found.path, 0, found.born_ns, found.foreign, found.deleted);
	return file->path != NULL;
}

void fs_paths_live(struct fs_paths *paths, uint64_t budget_ns)
{
	struct fs_touched *touched = &paths->touched;
	uint64_t end = fs_now_ns() + budget_ns;
	uint32_t last = 0;

	/* The newest first: what they have open is most likely open still. The others wait for the next round. */
	while (touched->fresh_count && fs_now_ns() < end) {
		struct fs_inode *file = &touched->files[touched->fresh[--touched->fresh_count]];

		if (file->path || sighted_by_handle(paths, file) || !file->tid || file->tid == last)
			continue;
		last = file->tid;
		if (!open_files(paths, (int32_t)file->tid, is_foreign(paths, (int32_t)file->tid), true, end))
			file->late = true;
	}
	fs_handles_close(&paths->handles);
}

void fs_paths_check(struct fs_paths *paths, uint64_t end_ns)
{
	size_t count, *most = fs_touched_most_first(&paths->touched, &count);

	for (size_t i = 0; i < count && fs_now_ns() < end_ns; i++) {
		struct fs_inode *file = &paths->touched.files[most[i]];
		struct stat st;

		if (!file->path || fs_inode_settled(file) ||
		    fs_mounts_are_remote(&paths->mounts, 0, file->path) || lstat(file->path, &st) ||
		    st.st_ino != file->inode || (major(st.st_dev) && fs_kernel_device(st.st_dev) != file->device) ||
		    (file->subvolume && fs_kernel_device(st.st_dev) != file->subvolume))
			continue;
		file->foreign = false;
		file->state = file->was ? FS_FILE_RENAMED : FS_FILE_NAMED;
	}
	free(most);
}

void fs_paths_by_handle(struct fs_paths *paths, uint64_t end_ns)
{
	struct fs_touched *touched = &paths->touched;
	size_t count, *most = fs_touched_most_first(touched, &count);
	struct fs_handle_file found;

	/* Where the time ends before the files do, those that matter most have names. */
	for (size_t i = 0; i < count && fs_now_ns() < end_ns; i++) {
		struct fs_inode *file = &touched->files[most[i]];
		enum fs_handle_result result;

		if (fs_inode_settled(file))
			continue;
		result = fs_handle_name(&paths->handles, &paths->mounts, file->device, file->inode, &found);
		file->hidden = result == FS_HANDLE_UNKNOWN && found.hidden;
		/* No search will find it. */
		if (result == FS_HANDLE_GONE)
			file->state = FS_FILE_DELETED;
		if (result != FS_HANDLE_NAMED)
			continue;
		if (file->path && !file->foreign && strcmp(file->path, found.path)) {
			file->again = fs_inode_is_another(file, found.born_ns);
			fs_inode_keep_was(touched, file);
		}
		if (strlen(found.path) > FS_PATH_KEPT || !fs_inode_set_path(touched, &file->path, found.path))
			continue;
		file->foreign = found.foreign;
		if (found.foreign)
			file->state = FS_FILE_ELSEWHERE;
		else if (found.deleted)
			file->state = FS_FILE_DELETED;
		else if (found.hidden)
			file->state = FS_FILE_SEEN;
		else
			file->state = file->was ? FS_FILE_RENAMED : FS_FILE_NAMED;
	}
	free(most);
	fs_handles_close(&paths->handles);
}

/* What fs_subvolumes_other() answers, and what it cannot: such a file of another subvolume was there, and is deleted. A copy. */
static char *of_another_subvolume(const struct fs_touched *touched, const struct fs_subvolumes *all, uint64_t inode, uint32_t own,
				  bool *more)
{
	char *other = fs_subvolumes_other(all, inode, own, more);

	for (size_t at = 0; !*more && (at = fs_touched_evicted(touched, inode, at)) != 0;) {
		const char *path = fs_subvolumes_path(all, touched->evicted[at - 1].subvolume, own);

		if (path && other)
			*more = strncmp(other, path, strlen(path)) != 0;
		else if (path)
			other = fs_strdup(path);
	}
	return other;
}

void fs_paths_subvolumes(struct fs_paths *paths, uint64_t end_ns)
{
	struct fs_touched *touched = &paths->touched;
	size_t count, *most = fs_touched_most_first(touched, &count);
	struct fs_subvolumes *all = fs_alloc(sizeof(*all));

	memset(all, 0, sizeof(*all));
	for (size_t i = 0; i < count && fs_now_ns() < end_ns; i++) {
		struct fs_inode *file = &touched->files[most[i]];
		const struct fs_mount *mount = mount_of(paths, file->device);
		uint32_t own = file->subvolume;
		struct stat st;
		char *other;

		if (!mount || strcmp(mount->type, "btrfs") || !file->path || file->foreign ||
		    fs_subvolumes_open(all, &paths->mounts, file->device) < 2)
			continue;
		if (!own && !lstat(file->path, &st) && st.st_ino == file->inode)
			own = fs_kernel_device(st.st_dev);
		if (!own)
			continue;
		other = of_another_subvolume(touched, all, file->inode, own, &file->others);
		if (other && !file->other)
			fs_inode_set_path(touched, &file->other, other);
		free(other);
	}
	fs_subvolumes_close(all);
	free(all);
	free(most);
}

/* --- why there is none -------------------------------------------------- */

/* Inodes that hold a file system's own data and have no name. */
static bool is_metadata(const char *type, uint64_t inode)
{
	/* fs/ext4/ext4.h: EXT4_FIRST_INO 11, EXT4_ROOT_INO 2. */
	if (!strncmp(type, "ext", 3))
		return inode < 11 && inode != 2;
	/* include/linux/f2fs_fs.h: F2FS_NODE_INO 1, F2FS_META_INO 2, and the compressed pages' above all. */
	if (!strcmp(type, "f2fs"))
		return inode == 1 || inode == 2 || inode > UINT32_MAX - 16;
	/* fs/btrfs/inode.c: BTRFS_BTREE_INODE_OBJECTID 1. */
	if (!strcmp(type, "btrfs"))
		return inode == 1;
	return false;
}

const char *fs_paths_why(const struct fs_paths *paths, const struct fs_inode *file)
{
	const struct fs_mount *mount;
	enum fs_walk result = FS_WALK_NONE;

	if (file->path)
		return NULL;
	if (file->until_ns)
		return file->late ? "busy" : "deleted";
	mount = mount_of(paths, file->device);
	if (!mount && !(file->device >> 20)) {
		char path[FS_PATH_MAX];

		/* block/bdev.c: the inode number of a block device's page cache is its dev_t; before 5.11 it was 0. */
		fs_path(path, sizeof(path), "/sys/dev/block/%u:%u", (unsigned int)(file->inode >> 20),
			(unsigned int)(file->inode & 0xfffff));
		return !file->inode || !access(path, F_OK) ? "metadata" : "no_mount";
	}
	if (!mount)
		return "no_mount";
	if (is_metadata(mount->type, file->inode))
		return "metadata";
	if (fs_mount_is_remote(mount))
		return "remote";
	if (file->state == FS_FILE_DELETED)
		return file->late ? "busy" : "deleted";
	for (size_t i = 0; i < paths->walked_count; i++)
		if (paths->walked[i].device == file->device)
			result = paths->walked[i].result;
	switch (result) {
	case FS_WALK_COMPLETE:
		if (file->hidden)
			return "not_reachable";
		return file->late ? "busy" : "deleted";
	case FS_WALK_TIME:
		return "out_of_time";
	case FS_WALK_PART:
		return "not_reachable";
	default:
		return paths->late ? "out_of_time" : file->late ? "busy" : "not_looked_for";
	}
}

/*
 * The events do not say when a file was deleted and the next one got its number (XFS, where only some tasks are recorded): which of
 * them an event is of is unknown. Files of btrfs and UBIFS have numbers of their own, and devices without a major number.
 */
static void of_several(struct fs_touched *touched, struct fs_inode *file, const char *first)
{
	if (file->state != FS_FILE_NAMED && file->state != FS_FILE_RENAMED) {
		fs_inode_forget_paths(touched, file);
		file->state = FS_FILE_DELETED;
	} else if (!file->again && first && fs_inode_set_path(touched, &file->was, first)) {
		file->again = true;
		file->state = FS_FILE_RENAMED;
	}
}

/* Whether another file of its file system has this path now. */
static bool is_taken(const struct fs_paths *paths, const struct fs_inode *file, const char *path)
{
	struct stat st;

	return !fs_mounts_are_remote(&paths->mounts, 0, path) && !lstat(path, &st) && st.st_ino != file->inode &&
	       (!file->subvolume || fs_kernel_device(st.st_dev) == file->subvolume);
}

/*
 * btrfs has no lookup by inode number: a file is looked up by the handle that fanotify reported. A path of before may be another
 * file's now: then it is none.
 */
static void of_btrfs(struct fs_paths *paths, struct fs_inode *file, struct fs_subvolumes *all)
{
	enum fs_handle_result result = FS_HANDLE_UNKNOWN;
	const char *path;
	struct fs_handle_file found;
	bool foreign = false, deleted;

	if (file->state == FS_FILE_NAMED || file->state == FS_FILE_RENAMED || file->state == FS_FILE_ELSEWHERE)
		return;
	path = fs_notify_path(paths->notify, file->device, file->inode, &foreign);
	/* What was reported may be of one subvolume, and what was seen of another. */
	if (path && file->path && fs_subvolumes_open(all, &paths->mounts, file->device) > 1)
		path = NULL;
	if (path)
		result = fs_notify_find(paths->notify, &paths->mounts, file->device, file->inode, &found);
	deleted = file->state == FS_FILE_DELETED || result == FS_HANDLE_GONE || (result == FS_HANDLE_NAMED && found.deleted);
	if (path && result == FS_HANDLE_NAMED && !deleted) {
		path = found.path;
		foreign = found.foreign;
		if (file->path && strcmp(file->path, path))
			fs_inode_keep_was(&paths->touched, file);
	} else if (path && !deleted && is_taken(paths, file, path)) {
		path = NULL;
	}
	if (path && strlen(path) <= FS_PATH_KEPT && fs_inode_set_path(&paths->touched, &file->path, path)) {
		file->foreign = foreign;
		file->state = deleted			 ? FS_FILE_DELETED :
			      result != FS_HANDLE_NAMED ? FS_FILE_SEEN :
			      file->was			 ? FS_FILE_RENAMED :
							   FS_FILE_NAMED;
	}
	if (file->path && !deleted && !file->foreign && file->state == FS_FILE_SEEN && is_taken(paths, file, file->path))
		fs_inode_forget_paths(&paths->touched, file);
}

static bool is_btrfs(const struct fs_paths *paths, uint32_t device)
{
	const struct fs_mount *mount = device >> 20 ? NULL : mount_of(paths, device);

	return mount && !strcmp(mount->type, "btrfs");
}

void fs_paths_notified(struct fs_paths *paths)
{
	struct fs_subvolumes *all = fs_alloc(sizeof(*all));

	memset(all, 0, sizeof(*all));
	for (size_t i = 0; paths->notify && i < paths->touched.count; i++) {
		struct fs_inode *file = &paths->touched.files[i];
		const char *path;
		bool foreign;

		if (!file->touched)
			continue;
		if (is_btrfs(paths, file->device)) {
			of_btrfs(paths, file, all);
			continue;
		}
		if (file->device >> 20 && fs_notify_reused(paths->notify, file->device, file->inode, &path)) {
			of_several(&paths->touched, file, path);
			continue;
		}
		if ((file->path && (fs_inode_settled(file) || !fs_inode_was_nameless(file))) ||
		    !(path = fs_notify_path(paths->notify, file->device, file->inode, &foreign)) ||
		    strlen(path) > FS_PATH_KEPT || !fs_inode_set_path(&paths->touched, &file->path, path))
			continue;
		file->foreign = foreign;
		file->state = fs_notify_is_gone(paths->notify, &paths->mounts, file->device, file->inode) ? FS_FILE_DELETED :
													    FS_FILE_SEEN;
	}
	if (paths->notify)
		fs_handles_close(&paths->notify->handles);
	fs_subvolumes_close(all);
	free(all);
}

void fs_paths_free(struct fs_paths *paths)
{
	fs_touched_free(&paths->touched);
	fs_mounts_free(&paths->mounts);
	if (paths->mounts_watched)
		close(paths->mounts_fd);
	paths->mounts_watched = false;
}
