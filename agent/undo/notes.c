// SPDX-License-Identifier: Apache-2.0
#include "notes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "owner.h"
#include "util.h"

#define BOOT "boot "
#define DEEPEST 32

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

static bool is_shared(const char *path)
{
	const char *slash = strrchr(path, '/');
	char parent[FS_PATH_MAX];
	struct stat st;

	snprintf(parent, sizeof(parent), "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
	return stat(parent, &st) || (st.st_uid && st.st_uid != geteuid()) || st.st_mode & 022;
}

int fs_open_output(const char *path)
{
	const bool shared = is_shared(path);
	const mode_t mode = geteuid() ? 0666 : 0600;
	struct stat st;
	int fd;

	/* A FIFO of somebody else's would block here. */
	if (shared && !lstat(path, &st) && st.st_uid != geteuid() && !S_ISCHR(st.st_mode)) {
		errno = EPERM;
		return -1;
	}
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | (shared ? O_NOFOLLOW : 0), mode);
	if (fd < 0 || fstat(fd, &st))
		return fd;
	/* A second link to a file of ours is a name that others may have given it. */
	if (shared && S_ISREG(st.st_mode) && (st.st_uid != geteuid() || st.st_nlink != 1))
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
	/* What is mounted there is not ours. */
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
