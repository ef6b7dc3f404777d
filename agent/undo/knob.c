// SPDX-License-Identifier: Apache-2.0
/*
 * flashscope-agent knob: what advice sets, and its undoing.
 *
 *   knob set PATH VALUE [PATH VALUE]...   sets read_ahead_kb (KiB), nr_requests or a queue's scheduler, or mounts PATH again with
 *                                     an option (mount_option.h); notes what they were
 *   knob undo                         puts back what they were before the first `set`; what somebody has set since stays, and is told
 *
 * One JSON object on stdout. Only files named read_ahead_kb, nr_requests or scheduler
 * below /sys are written, and only options that change while a file system is mounted. The note is there before the knob is written, so that a run that is
 * ended in between is undone as well.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmds.h"
#include "json.h"
#include "mount_option.h"
#include "sweep.h"
#include "util.h"

/* 0: it can be mounted again with that option. */
static int look_at_mount(const char *target, const char *option)
{
	char now[32];

	if (strpbrk(target, " \n"))
		return fs_usage("knob set %s: a path with a blank cannot be noted; mount it by hand", target);
	if (!fs_mount_option_now(target, option, now, sizeof(now)))
		return 0;
	switch (errno) {
	case ENOENT:
		return fs_usage("knob set %s: nothing is mounted there; name a mount point", target);
	case EROFS:
		return fs_usage("knob set %s: it is mounted read-only; nothing is changed", target);
	case EOPNOTSUPP:
		return fs_usage("knob set %s %s: this file system does not change that alone while it is mounted; mount it so by hand",
				target, option);
	default:
		return fs_fail("/proc/self/mounts: not read: %s; mount it by hand", strerror(errno));
	}
}

static int set(int pairs, char **words)
{
	struct fs_json json = { 0 };
	int failed = 0;

	/* Everything is looked at before anything is touched. */
	for (int i = 0; i < pairs; i++) {
		const char *path = words[2 * i], *value = words[2 * i + 1];

		if (fs_is_mount_option(value)) {
			int refused = look_at_mount(path, value);

			if (refused)
				return refused;
			continue;
		}
		if (!fs_is_knob(path))
			return fs_usage("knob set %s: not a supported setting; name a file read_ahead_kb, nr_requests or scheduler below /sys, or a mount point and an option",
					path);
		if (fs_knob_takes(path, value))
			continue;
		if (fs_is_scheduler(path))
			return fs_usage("knob set %s: not a scheduler's name", value);
		return fs_usage("knob set %s: not a number from 0 to %lu", value, FS_MOST_READ_AHEAD_KIB);
	}
	fs_json_object(&json, NULL);
	fs_json_array(&json, "knobs");
	for (int i = 0; i < pairs && !failed; i++) {
		const char *path = words[2 * i], *value = words[2 * i + 1];
		bool mounted = fs_is_mount_option(value);
		char *before = NULL;

		if (mounted ? fs_advice_mount(path, value, &before) : fs_advice_set(path, value, &before)) {
			failed = fs_fail("%s: not set: %s; flashscope-agent knob undo restores the old values", path,
					 strerror(errno));
		} else {
			char option[32] = "", *now = mounted ? NULL : fs_read_value(path);

			if (mounted && !fs_mount_option_now(path, value, option, sizeof(option)))
				now = fs_strdup(option);
			fs_json_object(&json, NULL);
			fs_json_string(&json, "path", path);
			fs_json_string(&json, "before", before);
			fs_json_string(&json, "now", now);
			fs_json_object_end(&json);
			free(now);
		}
		free(before);
	}
	fs_json_array_end(&json);
	fs_json_object_end(&json);
	if (!failed)
		puts(json.out.data);
	fs_json_free(&json);
	return failed;
}

static int undo(void)
{
	struct fs_json json = { 0 };
	unsigned int knobs;
	int failed;

	fs_json_object(&json, NULL);
	fs_json_array(&json, "left");
	failed = fs_advice_undo(&knobs, &json);
	fs_json_array_end(&json);
	fs_json_u64(&json, "undone", knobs);
	fs_json_object_end(&json);
	if (!failed)
		puts(json.out.data);
	fs_json_free(&json);
	return failed ? fs_fail("knob undo: not all settings were restored; the others stay noted") : 0;
}

int cmd_knob(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "undo"))
		return undo();
	if (argc >= 4 && argc % 2 == 0 && !strcmp(argv[1], "set"))
		return set(argc / 2 - 1, argv + 2);
	return fs_usage("knob: say `knob set PATH VALUE [PATH VALUE]...` or `knob undo`");
}
