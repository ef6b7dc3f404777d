// SPDX-License-Identifier: Apache-2.0
#include "cgroups.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "notes.h"
#include "owner.h"
#include "util.h"

#define NOTES "cgroups"
#define PREFIX "flashscope_"

const char *const fs_cgroup_controllers[4] = { "io", "memory", "cpu", "pids" };

static char *mounts(void)
{
	char path[FS_PATH_MAX];

	return fs_read_text(fs_path(path, sizeof(path), "/proc/self/mounts"), NULL);
}

int fs_cgroup2_find(char *mount_dir, char *own, size_t size)
{
	char *text = mounts(), *rest = text;
	const char *mounted = fs_next_cgroup2(&rest);

	*own = '\0';
	if (mounted)
		snprintf(mount_dir, size, "%s", mounted);
	free(text);
	if (mounted)
		return 0;
	if (fs_temp_dir(fs_run_dir() ? fs_run_dir() : "/tmp", own, size))
		return -1;
	/* The mount ends with this process, however that ends. */
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("cgroup2", own, "cgroup2", 0, NULL)) {
		int saved = errno;

		fs_temp_dir_remove(own);
		*own = '\0';
		errno = saved;
		return -1;
	}
	snprintf(mount_dir, size, "%s", own);
	return 0;
}

void fs_cgroup2_leave(char *own)
{
	if (!*own)
		return;
	umount(own);
	fs_temp_dir_remove(own);
	*own = '\0';
}

/* Switches a controller on ("+") or off ("-") for the children of the root. */
static int control(const char *mount_dir, char sign, const char *controller)
{
	char path[FS_PATH_MAX + 64], text[16];

	snprintf(text, sizeof(text), "%c%s", sign, controller);
	return fs_write_text(fs_path(path, sizeof(path), "%s/cgroup.subtree_control", mount_dir), text);
}

static int append(const char *line)
{
	const char *dir = fs_run_dir();
	char own[96];

	return dir ? fs_note_append(dir, fs_own_name(own, sizeof(own), NOTES), line) : -1;
}

int fs_cgroups_note(void)
{
	return append("made\n");
}

int fs_cgroup_enable(const char *mount_dir, const char *controller)
{
	char line[32];

	snprintf(line, sizeof(line), "on %s\n", controller);
	return append(line) ? -1 : control(mount_dir, '+', controller);
}

static bool is_controller(const char *word)
{
	for (size_t i = 0; i < ARRAY_SIZE(fs_cgroup_controllers); i++)
		if (!strcmp(word, fs_cgroup_controllers[i]))
			return true;
	return false;
}

/* Undoes a note and removes it. Controllers that a living run uses stay noted, for a later sweep. */
static int undo_note(const char *mount_dir, const char *name)
{
	const char *dir = fs_run_dir();
	char file[FS_PATH_MAX + 258], *text = dir ? fs_note_read(dir, name, NULL) : NULL, *rest = text, *line;
	bool this_boot = text && fs_note_of_this_boot(text);
	int failed = 0;
	bool later = false;

	if (!text)
		return errno == ENOENT ? 0 : -1;
	while ((line = strsep(&rest, "\n"))) {
		if (!this_boot || strncmp(line, "on ", 3) || !is_controller(line + 3) || !control(mount_dir, '-', line + 3))
			continue;
		if (errno == EBUSY) {
			later = true;
		} else if (errno != ENOENT && errno != EINVAL) { /* not there any more: cgroup v1 has taken it */
			fs_warn("%s/cgroup.subtree_control: -%s: %s; write it by hand", mount_dir, line + 3, strerror(errno));
			failed = -1;
		}
	}
	free(text);
	snprintf(file, sizeof(file), "%s/%s", dir, name);
	if (!failed && !later && unlink(file) && errno != ENOENT)
		failed = -1;
	return failed;
}

int fs_cgroups_restore(const char *mount_dir)
{
	char own[96];

	return undo_note(mount_dir, fs_own_name(own, sizeof(own), NOTES));
}

/* --- what dead runs left ------------------------------------------------ */

/* Empty once its tasks are dead. */
static void sweep_group(const char *path, struct fs_swept *swept)
{
	DIR *dir = opendir(path);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		char child[FS_PATH_MAX + 600];

		snprintf(child, sizeof(child), "%s/%s", path, entry->d_name);
		if (entry->d_type == DT_DIR && *entry->d_name != '.')
			rmdir(child);
	}
	if (dir)
		closedir(dir);
	if (!rmdir(path))
		swept->files++;
	else if (errno != ENOENT && errno != EACCES && errno != EPERM)
		swept->failed++;
}

static bool is_dead(const char *name, struct fs_swept *swept)
{
	enum fs_owner owner = fs_owner_state(name);

	swept->elsewhere += owner == FS_OWNER_ELSEWHERE;
	return owner == FS_OWNER_DEAD;
}

static void sweep_mount(const char *mount_dir, struct fs_swept *swept)
{
	char root[FS_PATH_MAX];
	struct dirent *entry;
	DIR *dir = opendir(fs_path(root, sizeof(root), "%s", mount_dir));

	while (dir && (entry = readdir(dir))) {
		char path[FS_PATH_MAX + 258];

		if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) || !is_dead(entry->d_name, swept))
			continue;
		snprintf(path, sizeof(path), "%.500s/%s", root, entry->d_name);
		sweep_group(path, swept);
	}
	if (dir)
		closedir(dir);
}

/* Whether there are notes of dead runs. `mount_dir` not NULL: they are undone. */
static bool sweep_notes(const char *mount_dir, struct fs_swept *swept)
{
	const char *dir = fs_run_dir();
	struct dirent *entry;
	DIR *open = dir ? opendir(dir) : NULL;
	bool found = false;

	while (open && (entry = readdir(open))) {
		if (strncmp(entry->d_name, NOTES "_", sizeof(NOTES)) || fs_owner_state(entry->d_name) != FS_OWNER_DEAD)
			continue;
		found = true;
		if (mount_dir && undo_note(mount_dir, entry->d_name))
			swept->failed++;
	}
	if (open)
		closedir(open);
	return found;
}

/* In a process of its own: the mount is for it alone, and this one's mounts stay as they are. */
static void sweep_unmounted(struct fs_swept *swept)
{
	struct fs_swept *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char mount_dir[FS_PATH_MAX], own[FS_PATH_MAX];
	pid_t child;

	if (shared == MAP_FAILED)
		return;
	*shared = *swept;
	child = fork();
	if (!child) {
		if (!fs_cgroup2_find(mount_dir, own, sizeof(own))) {
			sweep_mount(mount_dir, shared);
			sweep_notes(mount_dir, shared);
			fs_cgroup2_leave(own);
		}
		fs_knobs_restore();
		_exit(0);
	}
	while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	*swept = *shared;
	munmap(shared, sizeof(*shared));
}

void fs_sweep_cgroups(struct fs_swept *swept)
{
	char *text = mounts(), *rest = text;
	const char *mount_dir = fs_next_cgroup2(&rest);

	if (!mount_dir && sweep_notes(NULL, swept) && !geteuid())
		sweep_unmounted(swept);
	/* Groups first: a controller cannot be switched off while they have it. */
	for (bool first = true; mount_dir; mount_dir = fs_next_cgroup2(&rest), first = false) {
		sweep_mount(mount_dir, swept);
		if (first)
			sweep_notes(mount_dir, swept);
	}
	free(text);
}
