// SPDX-License-Identifier: Apache-2.0
/*
 * flashscope-agent knob: what advice sets, and its undoing.
 *
 *   knob set PATH VALUE [PATH VALUE]...   sets read_ahead_kb (KiB) or a queue's scheduler, having noted what they were
 *   knob undo                         puts back what they were before the first `set`
 *
 * One JSON object on stdout. Only files named read_ahead_kb or scheduler
 * below /sys are written. The note is there before the knob is written, so that a run that is
 * ended in between is undone as well.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmds.h"
#include "json.h"
#include "sweep.h"
#include "util.h"

#define KNOB "read_ahead_kb"
#define SCHEDULER "scheduler"
/* 1 GiB: the kernel takes any number, and a larger window is a slip of the hand. */
#define MOST_KIB (1ul << 20)

static bool is_knob(const char *path)
{
	const char *name = strrchr(path, '/');
	char sys[FS_PATH_MAX];

	fs_path(sys, sizeof(sys), "/sys/");
	return name && (!strcmp(name + 1, KNOB) || !strcmp(name + 1, SCHEDULER)) && !strncmp(path, sys, strlen(sys)) &&
	       !strstr(path, "/../");
}

static bool is_scheduler(const char *path)
{
	return !strcmp(strrchr(path, '/') + 1, SCHEDULER);
}

/* A name as kernels have them: "mq-deadline". */
static bool is_name(const char *text)
{
	size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_-");

	return length && length < 32 && !text[length];
}

static bool is_kib(const char *text)
{
	size_t digits = strspn(text, "0123456789");

	return digits && digits < 10 && !text[digits] && strtoul(text, NULL, 10) <= MOST_KIB;
}

static int set(int pairs, char **words)
{
	struct fs_json json = { 0 };
	int failed = 0;

	/* Everything is looked at before anything is touched. */
	for (int i = 0; i < pairs; i++) {
		if (!is_knob(words[2 * i]))
			return fs_usage("knob set %s: no knob of ours; name a file read_ahead_kb or scheduler below /sys",
					words[2 * i]);
		if (is_scheduler(words[2 * i])) {
			if (!is_name(words[2 * i + 1]))
				return fs_usage("knob set %s: not a scheduler's name", words[2 * i + 1]);
		} else if (!is_kib(words[2 * i + 1]))
			return fs_usage("knob set %s: not a number of KiB from 0 to %lu", words[2 * i + 1], MOST_KIB);
	}
	fs_json_object(&json, NULL);
	fs_json_array(&json, "knobs");
	for (int i = 0; i < pairs && !failed; i++) {
		char *before = NULL;

		if (fs_advice_set(words[2 * i], words[2 * i + 1], &before)) {
			failed = fs_fail("%s: not set: %s; flashscope-agent knob undo puts back what was", words[2 * i],
					 strerror(errno));
		} else {
			char *now = fs_read_value(words[2 * i]);

			fs_json_object(&json, NULL);
			fs_json_string(&json, "path", words[2 * i]);
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

int cmd_knob(int argc, char **argv)
{
	unsigned int knobs;

	if (argc == 2 && !strcmp(argv[1], "undo")) {
		if (fs_advice_undo(&knobs))
			return fs_fail("knob undo: not all is put back; what could not be stays noted");
		printf("{\"undone\":%u}\n", knobs);
		return 0;
	}
	if (argc >= 4 && argc % 2 == 0 && !strcmp(argv[1], "set"))
		return set(argc / 2 - 1, argv + 2);
	return fs_usage("knob: say `knob set PATH KIB [PATH KIB]...` or `knob undo`");
}
