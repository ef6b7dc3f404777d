// SPDX-License-Identifier: Apache-2.0
#include "sweep.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cgroups.h"
#include "cmds.h"
#include "mount_option.h"
#include "notes.h"
#include "tracefs.h"
#include "util.h"

#define PREFIX "flashscope_"

/* A folder for root's notes must be root's own: others could have us write knobs. */
static bool private_dir(const char *path)
{
	char parent[FS_PATH_MAX];
	struct stat st;

	if (fs_mkdirs(path, 0755))
		return false;
	snprintf(parent, sizeof(parent), "%.*s/", (int)(strrchr(path, '/') - path), path);
	if (!fs_dir_is_safe(parent)) {
		errno = EPERM;
		return false;
	}
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

#define ADVICE "advice" /* settings from advice have no running process: they stay until they are undone */
#define KNOBS "knobs"

static int append_note(const char *name, const char *kind, const char *path, const char *value)
{
	const char *dir = fs_run_dir();
	struct fs_buf line = { 0 };
	int result, saved;

	if (!dir)
		return -1;
	if (strpbrk(path, " \n") || strchr(value, '\n')) {
		errno = EINVAL;
		return -1;
	}
	fs_buf_printf(&line, "%s %s %s\n", kind, path, value);
	result = fs_note_append(dir, name, line.data);
	saved = errno;
	fs_buf_free(&line);
	errno = saved;
	return result;
}

static int note(const char *kind, const char *path, const char *value)
{
	char own[96];

	return append_note(fs_own_name(own, sizeof(own), KNOBS), kind, path, value);
}

static bool named(const char *path, const char *wanted)
{
	const char *name = strrchr(path, '/');

	return name && !strcmp(name + 1, wanted);
}

bool fs_is_scheduler(const char *path)
{
	return named(path, "scheduler");
}

bool fs_is_knob(const char *path)
{
	char sys[FS_PATH_MAX];

	fs_path(sys, sizeof(sys), "/sys/");
	return (named(path, "read_ahead_kb") || named(path, "nr_requests") || fs_is_scheduler(path)) &&
	       !strncmp(path, sys, strlen(sys)) && !strstr(path, "/../");
}

bool fs_knob_takes(const char *path, const char *value)
{
	const char *allowed = fs_is_scheduler(path) ? "abcdefghijklmnopqrstuvwxyz0123456789_-" : "0123456789";
	size_t length = strspn(value, allowed);

	if (!length || length >= 32 || value[length])
		return false;
	return fs_is_scheduler(path) || (length < 10 && strtoul(value, NULL, 10) <= FS_MOST_READ_AHEAD_KIB);
}

/* Of "none [mq-deadline] bfq", the name in brackets: it is written to select it again. */
static void chosen(char *value)
{
	char *begin = strchr(value, '['), *end = begin ? strchr(begin, ']') : NULL;

	if (end) {
		*end = '\0';
		memmove(value, begin + 1, (size_t)(end - begin));
	}
}

/*
 * Notes what a knob is and what it is set to, then sets it. The kernel rounds numbers and schedulers have other names, so what
 * stands there then is noted too: undoing leaves a knob alone that has neither.
 */
static int set_noted(const char *name, const char *path, const char *value, char **before)
{
	char noted[80], *now;

	*before = fs_read_value(path);
	if (!*before)
		return -1;
	chosen(*before);
	snprintf(noted, sizeof(noted), "%.32s %.*s", *before, (int)strcspn(value, "\n"), value);
	if (append_note(name, "knob", path, noted) || fs_write_text(path, value))
		return -1;
	now = fs_read_value(path);
	if (now)
		chosen(now);
	if (now && strcmp(now, strchr(noted, ' ') + 1)) {
		snprintf(noted, sizeof(noted), "%.32s %.32s", *before, now);
		append_note(name, "knob", path, noted);
	}
	free(now);
	return 0;
}

int fs_advice_set(const char *path, const char *value, char **before)
{
	return set_noted(ADVICE, path, value, before);
}

int fs_knob_set(const char *path, const char *value)
{
	char own[96], *before;
	int result = set_noted(fs_own_name(own, sizeof(own), KNOBS), path, value, &before), saved = errno;

	free(before);
	errno = saved;
	return result;
}

int fs_advice_mount(const char *target, const char *option, char **before)
{
	char was[32], now[32], device[32], noted[120];

	*before = NULL;
	if (fs_mount_option_now(target, option, was, sizeof(was)))
		return -1;
	if (!fs_mount_device(target, device, sizeof(device)))
		return -1;
	snprintf(noted, sizeof(noted), "%s %s %s", was, device, option);
	if (append_note(ADVICE, "mount", target, noted))
		return -1;
	*before = fs_strdup(was);
	if (fs_mount_option_set(target, option))
		return -1;
	if (!fs_mount_option_now(target, option, now, sizeof(now)) && strcmp(now, option)) {
		snprintf(noted, sizeof(noted), "%s %s %s", was, device, now);
		append_note(ADVICE, "mount", target, noted);
	}
	return 0;
}

/* A knob or an option that was changed since: it stays. Of several changes, the first has the original value. */
struct left {
	char *path, *before, *now;
};

struct undoing {
	struct fs_swept *swept;
	struct left *left;
	size_t count;
};

static struct left *find_left(const struct undoing *u, const char *path, const char *value)
{
	for (size_t i = 0; i < u->count; i++)
		if (!strcmp(u->left[i].path, path) &&
		    (fs_is_knob(path) || fs_is_same_mount_option(u->left[i].before, value)))
			return &u->left[i];
	return NULL;
}

/* Whether a change stays: `now` stands there, and we wrote `set` (NULL: an older agent's note does not say what). */
static bool stays(struct undoing *u, const char *path, const char *before, const char *set, const char *now)
{
	struct left *left = find_left(u, path, before);

	if (left) {
		free(left->before);
		left->before = fs_strdup(before);
		return true;
	}
	if (!set || !strcmp(now, set))
		return false;
	/* Noted and not set, or put back by hand. */
	if (!strcmp(now, before))
		return true;
	u->left = fs_realloc(u->left, (u->count + 1) * sizeof(*u->left));
	u->left[u->count++] = (struct left){ fs_strdup(path), fs_strdup(before), fs_strdup(now) };
	return true;
}

static void tell_left(struct undoing *u)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._:=-";

	for (size_t i = 0; i < u->count; i++) {
		struct left *left = &u->left[i];
		struct fs_json *json = u->swept->left;

		if (json) {
			fs_json_object(json, NULL);
			fs_json_string(json, "path", left->path);
			fs_json_string(json, "before", left->before);
			fs_json_string(json, "now", left->now);
			fs_json_object_end(json);
		} else if (left->path[strspn(left->path, plain)]) {
			fs_warn("%s: left at %s, which was set by somebody since; it was %s before", left->path, left->now,
				left->before);
		} else if (fs_is_knob(left->path)) {
			fs_warn("%s: left at %s, which was set by somebody since; it was %s before: echo %s > %s", left->path,
				left->now, left->before, left->before, left->path);
		} else {
			fs_warn("%s: left at %s, which was set by somebody since; it was %s before: mount -o remount,%s %s",
				left->path, left->now, left->before, left->before, left->path);
		}
		free(left->path);
		free(left->before);
		free(left->now);
	}
	free(u->left);
}

/* `values`: what it was, and what it was set to. True where nothing is left to do. */
static bool undo_knob(const char *path, char *values, struct undoing *u)
{
	char *set = strchr(values, ' '), *now;
	bool done;

	if (set)
		*set++ = '\0';
	if (!fs_is_knob(path) || !fs_knob_takes(path, values))
		return true;
	now = fs_read_value(path);
	if (!now)
		return errno == ENOENT; /* the device has gone, and its knob */
	chosen(now);
	done = stays(u, path, values, set, now);
	free(now);
	if (done)
		return true;
	if (fs_write_text(path, values))
		return errno == ENOENT;
	u->swept->knobs++;
	return true;
}

/* `values`: the option, the device that was mounted there, and the option that was set. True where nothing is left to do. */
static bool undo_mount(const char *target, char *values, struct undoing *u)
{
	char *of = strchr(values, ' '), *set = of ? strchr(of + 1, ' ') : NULL;
	char device[32], now[32];

	if (!of)
		return true;
	*of++ = '\0';
	if (set)
		*set++ = '\0';
	/* Another file system lies there now, or none. */
	if (!fs_is_mount_option(values) || !fs_mount_device(target, device, sizeof(device)) || strcmp(of, device))
		return true;
	if (fs_mount_option_now(target, values, now, sizeof(now)))
		return errno == ENOENT;
	if (stays(u, target, values, set, now))
		return true;
	if (fs_mount_option_set(target, values))
		return errno == ENOENT;
	u->swept->knobs++;
	return true;
}

int fs_temp_note(const char *path)
{
	return note("temp", path, "-");
}

int fs_temp_dir(const char *dir, char *out, size_t size)
{
	char own[96];
	char *whole = realpath(dir, NULL);
	struct stat is;
	int length;

	if (!whole)
		return -1;
	/* Refused before a note is written that nobody could undo. */
	if (!stat(whole, &is) && !S_ISDIR(is.st_mode)) {
		free(whole);
		errno = ENOTDIR;
		return -1;
	}
	length = snprintf(out, size, "%s/%s", whole, fs_own_name(own, sizeof(own), "flashscope"));
	free(whole);
	if (length < 0 || (size_t)length >= size) {
		errno = ENAMETOOLONG;
		return -1;
	}
	/* Without a directory for notes the next run cannot find this one; it can go on without it. */
	fs_temp_note(out);
	return mkdir(out, 0700);
}

int fs_temp_dir_remove(const char *path)
{
	char own[96];

	return fs_remove_own(path, fs_own_name(own, sizeof(own), "flashscope"));
}

/* Undoes one line of a note whose owner's things end with `own`. True where nothing is left to do. */
static bool undo(char *line, const char *own, bool this_boot, struct undoing *u)
{
	char *path = strchr(line, ' ');
	char *value = path ? strchr(path + 1, ' ') : NULL;

	if (!value) /* cut by a full disk: what it would have said was not done yet */
		return true;
	*path++ = '\0';
	*value++ = '\0';
	if (!strcmp(line, "knob")) {
		/* A boot has put them back already. */
		return !this_boot || undo_knob(path, value, u);
	} else if (!strcmp(line, "mount")) {
		return !this_boot || undo_mount(path, value, u);
	} else if (!strcmp(line, "temp")) {
		if (fs_remove_own(path, own))
			return errno == ENOENT || errno == ENOTDIR || errno == EPERM;
		u->swept->files++;
	}
	return true;
}

/* Last change first, so that a knob changed twice gets its first value. */
static int undo_note(const char *name, struct fs_swept *swept)
{
	const char *dir = fs_run_dir();
	char own[300], file[FS_PATH_MAX + 258];
	struct undoing undoing = { .swept = swept };
	size_t length;
	char *text;
	bool this_boot;
	int failed = 0;

	if (!dir)
		return 0;
	snprintf(file, sizeof(file), "%s/%s", dir, name);
	text = fs_note_read(dir, name, &length);
	if (!text && errno == EPERM)
		fs_warn("%s: not believed: it is not this user's alone; look at it, then remove it", file);
	if (!text)
		return errno == ENOENT ? 0 : 1;
	snprintf(own, sizeof(own), "flashscope%.280s", name + strcspn(name, "_"));
	this_boot = fs_note_of_this_boot(text);
	/* A line that a full disk cut: its change was not made. */
	while (length && text[length - 1] != '\n')
		text[--length] = '\0';
	while (length) {
		char *line;

		if (text[length - 1] == '\n')
			text[--length] = '\0';
		line = memrchr(text, '\n', length);
		line = line ? line + 1 : text;
		if (*line && !undo(line, own, this_boot, &undoing)) {
			fs_warn("%s: not put back: %s; write it by hand", strchr(line, '\0') + 1,
				strerror(errno));
			failed++;
		}
		length = (size_t)(line - text);
	}
	free(text);
	tell_left(&undoing);
	if (!failed && unlink(file) && errno != ENOENT)
		failed++;
	return failed;
}

int fs_knobs_restore(void)
{
	struct fs_swept swept = { 0 };
	char own[96];

	return undo_note(fs_own_name(own, sizeof(own), KNOBS), &swept) ? -1 : 0;
}

int fs_advice_undo(unsigned int *knobs, struct fs_json *left)
{
	struct fs_swept swept = { .left = left };
	int failed = fs_run_dir() ? undo_note(ADVICE, &swept) : -1;

	*knobs = swept.knobs;
	return failed ? -1 : 0;
}

/* What is of another PID namespace is counted. */
static bool dead(const char *name, struct fs_swept *swept)
{
	enum fs_owner owner = fs_owner_state(name);

	swept->elsewhere += owner == FS_OWNER_ELSEWHERE;
	return owner == FS_OWNER_DEAD;
}

static void sweep_instances(const struct fs_tracefs *tracefs, struct fs_swept *swept)
{
	char path[FS_PATH_MAX];
	struct dirent *entry;
	DIR *dir = opendir(fs_tracefs_path(tracefs, path, sizeof(path), "instances"));

	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) || !dead(entry->d_name, swept))
			continue;
		fs_tracefs_path(tracefs, path, sizeof(path), "instances/%s", entry->d_name);
		if (!rmdir(path)) {
			swept->instances++;
		} else if (geteuid() && (errno == EACCES || errno == EPERM)) {
			continue; /* root's, and so for root to remove */
		} else if (errno != ENOENT && errno != ENODEV) {
			/* Neither is of one that another sweep removed meanwhile (kernel/trace/trace.c, instance_rmdir). */
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
		if (strncmp(group, PREFIX, strlen(PREFIX)) || !strcmp(group, last) || !dead(group, swept))
			continue;
		strcpy(last, group);
		swept->probes += fs_kprobe_remove_group(tracefs, group, &swept->failed);
	}
	free(text);
}

/* A note from before a reboot has no owner. */
static bool of_an_earlier_boot(const char *dir, const char *name)
{
	char *text = fs_owner_state(name) == FS_OWNER_NONE ? NULL : fs_note_read(dir, name, NULL);
	bool earlier = text && !fs_note_of_this_boot(text);

	free(text);
	return earlier;
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

		/* Those of cgroups are undone with these, or stay for a later sweep. */
		if (!of_an_earlier_boot(dir, entry->d_name) && (!strncmp(entry->d_name, "cgroups_", 8) || !dead(entry->d_name, swept)))
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		if (!strncmp(entry->d_name, KNOBS "_", sizeof(KNOBS)))
			swept->failed += (unsigned int)undo_note(entry->d_name, swept);
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
	if (fs_tracefs_find(&tracefs, FS_MOUNT_PRIVATE)) {
		/* Instances first: an event that one of them still enables cannot be removed. */
		sweep_instances(&tracefs, swept);
		if (tracefs.kprobe_events)
			sweep_probes(&tracefs, swept);
	}
	fs_sweep_cgroups(swept);
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
	if (swept.elsewhere)
		printf("left alone: %u of other PID namespaces (containers); run sweep there\n", swept.elsewhere);
	return swept.failed ? FS_EXIT_FAILURE : 0;
}
