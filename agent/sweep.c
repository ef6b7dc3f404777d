// SPDX-License-Identifier: Apache-2.0
#include "sweep.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmds.h"
#include "tracefs.h"
#include "util.h"

#define PREFIX "flashscope_"

bool fs_owner_of(const char *name, pid_t *pid, uint64_t *starttime)
{
	size_t length = strcspn(name, ".");
	const char *second = NULL, *first = NULL;
	char *end;
	unsigned long long start;
	long number;

	for (const char *c = name + length; c > name && !first;) {
		c--;
		if (*c == '_' && !second)
			second = c;
		else if (*c == '_')
			first = c;
	}
	if (!first || !isdigit((unsigned char)first[1]) || !isdigit((unsigned char)second[1]))
		return false;
	errno = 0;
	number = strtol(first + 1, &end, 10);
	if (end != second || number < 1 || number > 0x7fffffff)
		return false;
	start = strtoull(second + 1, &end, 10);
	if (end != name + length || errno)
		return false;
	*pid = (pid_t)number;
	*starttime = start;
	return true;
}

bool fs_owner_alive(pid_t pid, uint64_t starttime)
{
	uint64_t now = fs_starttime(pid);

	return now && now == starttime;
}

const char *fs_own_name(char *out, size_t size, const char *prefix)
{
	pid_t pid = getpid();

	snprintf(out, size, "%s_%d_%" PRIu64, prefix, (int)pid, fs_starttime(pid));
	return out;
}

/* A folder for root's notes must be root's own: others could have us write knobs. */
static bool private_dir(const char *path)
{
	struct stat st;

	if (fs_mkdirs(path, 0755))
		return false;
	if (lstat(path, &st) || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() ||
	    (st.st_mode & 022)) {
		errno = EPERM;
		return false;
	}
	return !access(path, W_OK);
}

static const char *const run_places[] = { "/run/flashscope", "/tmp/flashscope" };

const char *fs_run_dir(void)
{
	static char dir[FS_PATH_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(run_places); i++) {
		/* Another user's recorders are another user's business. */
		if (geteuid() && i)
			fs_path(dir, sizeof(dir), "%s-%u", run_places[i], (unsigned int)geteuid());
		else
			fs_path(dir, sizeof(dir), "%s", run_places[i]);
		if (private_dir(dir))
			return dir;
	}
	return NULL;
}

/* Where this process keeps what it changed. */
static const char *note_path(char *out, size_t size)
{
	const char *dir = fs_run_dir();
	char name[96];

	if (!dir)
		return NULL;
	snprintf(out, size, "%.300s/%s", dir, fs_own_name(name, sizeof(name), "knobs"));
	return out;
}

static int append_note(const char *file, const char *kind, const char *path, const char *value)
{
	struct fs_buf line = { 0 };
	int result, saved;

	if (strpbrk(path, " \n") || strchr(value, '\n')) {
		errno = EINVAL;
		return -1;
	}
	fs_buf_printf(&line, "%s %s %s\n", kind, path, value);
	result = fs_write_text_flags(file, line.data,
				     O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW);
	saved = errno;
	fs_buf_free(&line);
	errno = saved;
	return result;
}

static int note(const char *kind, const char *path, const char *value)
{
	char file[FS_PATH_MAX];

	return note_path(file, sizeof(file)) ? append_note(file, kind, path, value) : -1;
}

/* What advice has set is nobody's that lives: it stays until it is undone. */
static const char *advice_path(char *out, size_t size)
{
	const char *dir = fs_run_dir();

	if (!dir)
		return NULL;
	snprintf(out, size, "%.300s/advice", dir);
	return out;
}

int fs_advice_set(const char *path, const char *value, char **before)
{
	char file[FS_PATH_MAX];

	*before = fs_read_value(path);
	if (!*before || !advice_path(file, sizeof(file)) || append_note(file, "knob", path, *before))
		return -1;
	return fs_write_text(path, value);
}

int fs_knob_set(const char *path, const char *value)
{
	char *old = fs_read_value(path);
	int result;

	if (!old)
		return -1;
	result = note("knob", path, old);
	free(old);
	if (result)
		return -1;
	return fs_write_text(path, value);
}

int fs_temp_note(const char *path)
{
	return note("temp", path, "-");
}

int fs_temp_dir(const char *dir, char *out, size_t size)
{
	char own[96];
	char *whole = realpath(dir, NULL);
	int length;

	if (!whole)
		return -1;
	length = snprintf(out, size, "%s/%s", whole, fs_own_name(own, sizeof(own), "flashscope"));
	free(whole);
	if (length < 0 || (size_t)length >= size) {
		errno = ENAMETOOLONG;
		return -1;
	}
	/* Without a folder for notes the next run does not know of it: no reason not to make it. */
	fs_temp_note(out);
	return mkdir(out, 0700);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

int fs_temp_dir_remove(const char *path)
{
	const char *name = strrchr(path, '/');
	uint64_t starttime;
	pid_t pid;

	/* Whatever a note says: nothing is removed with all it holds that an agent has not named. */
	if (!name || strncmp(name + 1, PREFIX, strlen(PREFIX)) || !fs_owner_of(name + 1, &pid, &starttime)) {
		errno = EINVAL;
		return -1;
	}
	return nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) ? -1 : 0;
}

static bool may_write_knob(const char *path)
{
	char sys[FS_PATH_MAX], proc[FS_PATH_MAX];

	fs_path(sys, sizeof(sys), "/sys/");
	fs_path(proc, sizeof(proc), "/proc/sys/");
	return (!strncmp(path, sys, strlen(sys)) || !strncmp(path, proc, strlen(proc))) &&
	       !strstr(path, "..");
}

/* Undoes one line of a note. True where nothing is left to do. */
static bool undo(char *line, unsigned int *knobs, unsigned int *files)
{
	char *path = strchr(line, ' ');
	char *value = path ? strchr(path + 1, ' ') : NULL;
	struct stat st;

	if (!value) /* cut by a full disk: what it would have said was not done yet */
		return true;
	*path++ = '\0';
	*value++ = '\0';
	if (!strcmp(line, "knob")) {
		if (!may_write_knob(path))
			return true;
		if (fs_write_text(path, value))
			return errno == ENOENT; /* the device has gone, and its knob */
		(*knobs)++;
		return true;
	}
	if (!strcmp(line, "temp")) {
		if (lstat(path, &st) || st.st_uid != geteuid())
			return true;
		if (S_ISDIR(st.st_mode)) {
			if (fs_temp_dir_remove(path))
				return errno == ENOENT || errno == EINVAL;
		} else if (!S_ISREG(st.st_mode)) {
			return true;
		} else if (unlink(path)) {
			return errno == ENOENT;
		}
		(*files)++;
	}
	return true;
}

/* Last change first, so that a knob changed twice gets its first value. */
static int undo_note(const char *file, unsigned int *knobs, unsigned int *files)
{
	size_t length;
	char *text = fs_read_text(file, &length);
	int failed = 0;

	if (!text)
		return errno == ENOENT ? 0 : 1;
	while (length) {
		char *line;

		if (text[length - 1] == '\n')
			text[--length] = '\0';
		line = memrchr(text, '\n', length);
		line = line ? line + 1 : text;
		if (*line && !undo(line, knobs, files)) {
			fs_warn("%s: not put back: %s; write it by hand", strchr(line, '\0') + 1,
				strerror(errno));
			failed++;
		}
		length = (size_t)(line - text);
	}
	free(text);
	if (!failed && unlink(file) && errno != ENOENT)
		failed++;
	return failed;
}

int fs_knobs_restore(void)
{
	char file[FS_PATH_MAX];
	unsigned int knobs = 0, files = 0;

	if (!note_path(file, sizeof(file)))
		return 0;
	return undo_note(file, &knobs, &files) ? -1 : 0;
}

int fs_advice_undo(unsigned int *knobs)
{
	char file[FS_PATH_MAX];
	unsigned int files = 0;

	*knobs = 0;
	if (!advice_path(file, sizeof(file)))
		return -1;
	return undo_note(file, knobs, &files) ? -1 : 0;
}

static bool dead(const char *name)
{
	uint64_t starttime;
	pid_t pid;

	return fs_owner_of(name, &pid, &starttime) && !fs_owner_alive(pid, starttime);
}

static void sweep_instances(const struct fs_tracefs *tracefs, struct fs_swept *swept)
{
	char path[FS_PATH_MAX];
	struct dirent *entry;
	DIR *dir = opendir(fs_tracefs_path(tracefs, path, sizeof(path), "instances"));

	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) || !dead(entry->d_name))
			continue;
		fs_tracefs_path(tracefs, path, sizeof(path), "instances/%s", entry->d_name);
		if (!rmdir(path)) {
			swept->instances++;
		} else if (errno != ENOENT) {
			fs_warn("%s: not removed: %s; close what reads it, then run sweep", path,
				strerror(errno));
			swept->failed++;
		}
	}
	closedir(dir);
}

static void sweep_probes(const struct fs_tracefs *tracefs, struct fs_swept *swept)
{
	char *text = fs_tracefs_read(tracefs, "kprobe_events");
	char last[128] = "";
	char *save = NULL;

	for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line;
	     line = strtok_r(NULL, "\n", &save)) {
		char *group = strchr(line, ':');
		char *end = group ? strchr(group, '/') : NULL;

		if (!end || end - ++group >= (ptrdiff_t)sizeof(last))
			continue;
		*end = '\0';
		if (strncmp(group, PREFIX, strlen(PREFIX)) || !strcmp(group, last) || !dead(group))
			continue;
		strcpy(last, group);
		swept->probes += fs_kprobe_remove_group(tracefs, group, &swept->failed);
	}
	free(text);
}

static void sweep_notes(struct fs_swept *swept)
{
	const char *dir = fs_run_dir();
	struct dirent *entry;
	DIR *open = dir ? opendir(dir) : NULL;

	if (!open)
		return;
	while ((entry = readdir(open))) {
		char path[FS_PATH_MAX + 258];

		if (!dead(entry->d_name))
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		if (!strncmp(entry->d_name, "knobs_", 6))
			swept->failed += (unsigned int)undo_note(path, &swept->knobs, &swept->files);
		else if (!unlink(path))
			swept->files++;
		else if (errno != ENOENT)
			swept->failed++;
	}
	closedir(open);
}

void fs_sweep(struct fs_swept *swept)
{
	struct fs_tracefs tracefs;

	memset(swept, 0, sizeof(*swept));
	if (fs_tracefs_find(&tracefs, false)) {
		/* Instances first: an event that one of them still enables cannot be removed. */
		sweep_instances(&tracefs, swept);
		if (tracefs.kprobe_events)
			sweep_probes(&tracefs, swept);
	}
	sweep_notes(swept);
}

int cmd_sweep(int argc, char **argv)
{
	struct fs_swept swept;

	if (argc > 1)
		return fs_usage("sweep %s: sweep takes no options; leave it out", argv[1]);
	fs_sweep(&swept);
	printf("removed: %u instances, %u probes, %u files; knobs put back: %u; failed: %u\n",
	       swept.instances, swept.probes, swept.files, swept.knobs, swept.failed);
	return swept.failed ? FS_EXIT_FAILURE : 0;
}
