// SPDX-License-Identifier: Apache-2.0
#include "notes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "owner.h"
#include "util.h"

#define BOOT "boot "
#define DEEPEST 32
#define MOST_LINKS 40 /* MAXSYMLINKS, include/linux/namei.h */

static bool ours(const struct stat *st, mode_t kind)
{
	return (st->st_mode & S_IFMT) == kind && st->st_uid == geteuid() && !(st->st_mode & 022) &&
	       (kind != S_IFREG || st->st_nlink == 1);
}

static int refuse(int fd)
{
	close(fd);
	errno = EPERM;
	return -1;
}

int fs_note_open(const char *dir, const char *name, int flags)
{
	int parent = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	int fd, saved;

	if (parent < 0)
		return -1;
	if (fstat(parent, &st) || !ours(&st, S_IFDIR) || strchr(name, '/'))
		return refuse(parent);
	/* O_NONBLOCK: a FIFO would keep us waiting before it could be refused. */
	fd = openat(parent, name, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
	saved = errno;
	close(parent);
	if (fd < 0) {
		errno = saved == ELOOP ? EPERM : saved;
		return -1;
	}
	return fstat(fd, &st) || !ours(&st, S_IFREG) ? refuse(fd) : fd;
}

char *fs_note_read(const char *dir, const char *name, size_t *length)
{
	int fd = fs_note_open(dir, name, O_RDONLY);
	char *text = fd < 0 ? NULL : fs_read_fd(fd, length);
	int saved = errno;

	if (fd >= 0)
		close(fd);
	errno = saved;
	return text;
}

bool fs_note_of_this_boot(const char *text)
{
	const char *line = strstr(text, BOOT);
	const char *now = fs_boot_id();
	size_t length;

	while (line && line > text && line[-1] != '\n')
		line = strstr(line + 1, BOOT);
	if (!line || !*now)
		return true;
	line += strlen(BOOT);
	length = strcspn(line, "\n");
	return !length || (length == strlen(now) && !strncmp(line, now, length));
}

static int write_line(int fd, const char *line)
{
	size_t length = strlen(line);
	ssize_t put;

	do {
		put = write(fd, line, length);
	} while (put < 0 && errno == EINTR);
	if (put >= 0 && (size_t)put < length)
		errno = ENOSPC;
	return put == (ssize_t)length ? 0 : -1;
}

int fs_note_append(const char *dir, const char *name, const char *line)
{
	int fd = fs_note_open(dir, name, O_RDWR | O_CREAT | O_APPEND);
	char head[80], *text;
	int result = 0, saved;
	off_t end;

	if (fd < 0)
		return -1;
	text = fs_read_fd(fd, NULL);
	if (text && !fs_note_of_this_boot(text))
		result = ftruncate(fd, 0);
	if (!result && (!text || !*text || !fs_note_of_this_boot(text))) {
		snprintf(head, sizeof(head), BOOT "%s\n", fs_boot_id());
		result = write_line(fd, head);
	}
	free(text);
	end = lseek(fd, 0, SEEK_END);
	if (!result)
		result = write_line(fd, line);
	saved = errno;
	/* Or the next line would be part of what a full disk cut. */
	if (result && end >= 0 && ftruncate(fd, end))
		result = -1;
	if (close(fd) && !result)
		return -1;
	errno = saved;
	return result;
}

bool fs_dir_is_safe(const char *path)
{
	struct stat st;

	if (stat(path, &st) || !S_ISDIR(st.st_mode))
		return false;
	if (st.st_uid && st.st_uid != geteuid())
		return false;
	return !(st.st_mode & 022) || (st.st_mode & S_ISVTX);
}

static bool is_shared(int dir)
{
	struct stat st;

	return fstat(dir, &st) || (st.st_uid && st.st_uid != geteuid()) || st.st_mode & 022;
}

/*
 * Whether somebody else can have put a link into a directory, as protected_symlinks of the kernel asks: where the sticky bit is
 * set, a link of ours or of root's stays what it is. With a second name it may have been linked there by others.
 */
static bool is_planted(int dir, const struct stat *link)
{
	struct stat st;

	if (!is_shared(dir))
		return false;
	if (fstat(dir, &st) || !(st.st_mode & S_ISVTX) || (st.st_uid && st.st_uid != geteuid()))
		return true;
	return (link->st_uid && link->st_uid != geteuid()) || link->st_nlink != 1;
}

/* A link of /proc to an open file, which the kernel alone can follow. */
static bool is_magic(int dir)
{
	struct statfs fs;

	return !fstatfs(dir, &fs) && fs.f_type == PROC_SUPER_MAGIC;
}

static int give_up(int dir, int error)
{
	close(dir);
	errno = error;
	return -1;
}

/* The path from the link NAME on, with `rest` behind it. 0, or an errno. */
static int follow(int dir, const char *name, char *rest)
{
	char path[PATH_MAX];
	ssize_t length = readlinkat(dir, name, path, sizeof(path));
	size_t more = strlen(rest);

	if (length <= 0)
		return length ? errno : ENOENT;
	if ((size_t)length + more + 2 > sizeof(path))
		return ENAMETOOLONG;
	path[length] = '/';
	memcpy(path + length + 1, rest, more + 1);
	memcpy(rest, path, (size_t)length + more + 2);
	return 0;
}

int fs_open_place(const char *path, char name[NAME_MAX + 1])
{
	int dir = open(*path == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC), next, error, links = 0;
	char left[PATH_MAX];
	struct stat st;

	if (dir < 0)
		return -1;
	if (snprintf(left, sizeof(left), "%s", path) >= (int)sizeof(left))
		return give_up(dir, ENAMETOOLONG);
	for (;;) {
		char *part = left + strspn(left, "/");
		size_t length = strcspn(part, "/");
		bool is_last = !part[length + strspn(part + length, "/")];

		if (length > NAME_MAX)
			return give_up(dir, ENAMETOOLONG);
		memcpy(name, part, length);
		name[length] = '\0';
		memmove(left, part + length, strlen(part + length) + 1);
		if (!fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISLNK(st.st_mode) && !(is_last && is_magic(dir))) {
			error = is_planted(dir, &st) ? EPERM : ++links > MOST_LINKS ? ELOOP : follow(dir, name, left);
			if (error)
				return give_up(dir, error);
			next = *left == '/' ? open("/", O_PATH | O_DIRECTORY | O_CLOEXEC) : dir;
		} else if (is_last) {
			return dir;
		} else {
			next = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		}
		if (next < 0)
			return give_up(dir, errno);
		if (next != dir)
			close(dir);
		dir = next;
	}
}

int fs_open_output(const char *path)
{
	const mode_t mode = geteuid() ? 0666 : 0600;
	char name[NAME_MAX + 1];
	int dir = fs_open_place(path, name), fd;
	struct stat st;
	bool shared;

	if (dir < 0)
		return -1;
	shared = is_shared(dir);
	/* A FIFO of somebody else's would block here. */
	if (shared && !fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) && st.st_uid != geteuid() && !S_ISCHR(st.st_mode))
		return refuse(dir);
	fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | (is_magic(dir) ? 0 : O_NOFOLLOW), mode);
	if (fd < 0)
		return give_up(dir, errno);
	close(dir);
	if (fstat(fd, &st))
		return fd;
	/* It was put there later. A second link to one of our files may be of another user. */
	if (shared && !S_ISCHR(st.st_mode) && (st.st_uid != geteuid() || (S_ISREG(st.st_mode) && st.st_nlink != 1)))
		return refuse(fd);
	if (S_ISREG(st.st_mode) && ftruncate(fd, 0))
		return refuse(fd);
	return fd;
}

static int remove_tree(int parent, const char *name, dev_t device, int depth)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct dirent *entry;
	struct stat st;
	int result = 0;
	DIR *dir;

	if (fd < 0)
		return -1;
	/* A mount there is not of the agent. */
	if (fstat(fd, &st) || st.st_dev != device || depth > DEEPEST)
		return refuse(fd);
	dir = fdopendir(fd);
	if (!dir)
		return refuse(fd);
	while (!result && (entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		result = unlinkat(fd, entry->d_name, 0);
		if (result && (errno == EISDIR || errno == EPERM))
			result = remove_tree(fd, entry->d_name, device, depth + 1);
	}
	closedir(dir);
	return result ? result : unlinkat(parent, name, AT_REMOVEDIR);
}

static bool named_so(const char *name, const char *own)
{
	size_t length = strlen(name), tail = strlen(own);

	if (!tail || length < tail || strcmp(name + length - tail, own))
		return false;
	return length == tail || name[length - tail - 1] == '.';
}

int fs_remove_own(const char *path, const char *own)
{
	const char *name = strrchr(path, '/');
	char dir[FS_PATH_MAX];
	int parent, result, saved;
	struct stat st;

	if (*path != '/' || !name || !named_so(name + 1, own) || (size_t)(name - path) >= sizeof(dir)) {
		errno = EPERM;
		return -1;
	}
	snprintf(dir, sizeof(dir), "%.*s/", (int)(name - path), path);
	parent = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (parent < 0)
		return -1;
	result = fstatat(parent, name + 1, &st, AT_SYMLINK_NOFOLLOW);
	if (!result && st.st_uid != geteuid()) {
		errno = EPERM;
		result = -1;
	} else if (!result && S_ISDIR(st.st_mode)) {
		result = remove_tree(parent, name + 1, st.st_dev, 0);
	} else if (!result && S_ISREG(st.st_mode)) {
		result = unlinkat(parent, name + 1, 0);
	} else if (!result) {
		errno = EPERM;
		result = -1;
	}
	saved = errno;
	close(parent);
	errno = saved;
	return result;
}
