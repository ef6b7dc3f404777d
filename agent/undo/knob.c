// SPDX-License-Identifier: Apache-2.0
/*
 * flashscope-agent knob: what advice sets, and its undoing.
 *
 *   knob set PATH VALUE [PATH VALUE]...   sets read_ahead_kb (KiB), nr_requests or a queue's scheduler; notes what they were
 *   knob undo                         puts back what they were before the first `set`
 *
 * One JSON object on stdout. Only files named read_ahead_kb, nr_requests or scheduler
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

static int set(int pairs, char **words)
{
	struct fs_json json = { 0 };
	int failed = 0;

	/* Everything is looked at before anything is touched. */
	for (int i = 0; i < pairs; i++) {
		const char *path = words[2 * i], *value = words[2 * i + 1];

		if (!fs_is_knob(path))
			return fs_usage("knob set %s: no knob of ours; name a file read_ahead_kb, nr_requests or scheduler below /sys",
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
	return fs_usage("knob: say `knob set PATH VALUE [PATH VALUE]...` or `knob undo`");
}
