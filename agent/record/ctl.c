// SPDX-License-Identifier: Apache-2.0
/* flashscope-agent ctl: from another shell, to a running recorder. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cmds.h"
#include "json.h"
#include "notes.h"
#include "owner.h"
#include "state.h"
#include "sweep.h"
#include "util.h"

#define PREFIX "recorder"
#define WAIT_MS 10000 /* for a recorder to act on a signal, draining included */
#define EXIT_MS 1000  /* for its process to end after that; with a command it waits for that first */

bool fs_name_valid(const char *name)
{
	size_t length = strlen(name);

	if (!length || length > FS_NAME_MAX)
		return false;
	for (size_t i = 0; i < length; i++)
		if (name[i] <= ' ' || name[i] == 0x7f || name[i] == '/')
			return false;
	return true;
}

static const char *own_path(char *out, size_t size)
{
	const char *dir = fs_run_dir();
	char name[96];

	if (!dir)
		return NULL;
	snprintf(out, size, "%.300s/%s", dir, fs_own_name(name, sizeof(name), PREFIX));
	return out;
}

int fs_state_write(const char *name, const char *state, const char *instance)
{
	char path[FS_PATH_MAX], text[320];

	if (!own_path(path, sizeof(path)))
		return -1;
	snprintf(text, sizeof(text), "%s\n%s\n%s\nboot %s\n", name, state, instance, fs_boot_id());
	return fs_write_text_flags(path, text, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW);
}

void fs_state_remove(void)
{
	char path[FS_PATH_MAX];

	if (own_path(path, sizeof(path)))
		unlink(path);
}

static bool read_state(const char *dir, const char *file, struct fs_recorder_state *state)
{
	char *text, *line, *save = NULL;
	char *const fields[] = { state->name, state->state, state->instance };
	const size_t sizes[] = { sizeof(state->name), sizeof(state->state),
				 sizeof(state->instance) };
	size_t i = 0;

	memset(state, 0, sizeof(*state));
	if (strncmp(file, PREFIX "_", sizeof(PREFIX)) ||
	    !fs_owner_of(file, &state->pid, &state->starttime) ||
	    fs_owner_state(file) != FS_OWNER_ALIVE)
		return false;
	text = fs_note_read(dir, file, NULL);
	for (line = text ? strtok_r(text, "\n", &save) : NULL; line && i < ARRAY_SIZE(fields);
	     line = strtok_r(NULL, "\n", &save), i++)
		snprintf(fields[i], sizes[i], "%s", line);
	free(text);
	/* The file is there, but not complete yet. */
	return true;
}

size_t fs_state_list(struct fs_recorder_state **states)
{
	const char *dir = fs_run_dir();
	DIR *open = dir ? opendir(dir) : NULL;
	struct dirent *entry;
	size_t count = 0;

	*states = NULL;
	while (open && (entry = readdir(open))) {
		struct fs_recorder_state state;

		if (!read_state(dir, entry->d_name, &state))
			continue;
		*states = fs_realloc(*states, (count + 1) * sizeof(state));
		(*states)[count++] = state;
	}
	if (open)
		closedir(open);
	return count;
}

/* 0 found, else an exit code. */
static int find(const char *name, struct fs_recorder_state *found)
{
	struct fs_recorder_state *states;
	size_t count = fs_state_list(&states), matches = 0;
	struct fs_buf names = { 0 };
	int result = 0;

	for (size_t i = 0; i < count; i++) {
		fs_buf_printf(&names, "%s%s", i ? ", " : "", states[i].name);
		if (!name || !strcmp(states[i].name, name)) {
			*found = states[i];
			matches++;
		}
	}
	if (!count)
		result = fs_fail("ctl: no recorder is running; start one with flashscope-agent record");
	else if (!matches)
		result = fs_fail("ctl: no recorder is named %s; running: %s", name, names.data);
	else if (matches > 1)
		result = fs_usage("ctl: several recorders are running; name one of: %s", names.data);
	fs_buf_free(&names);
	free(states);
	return result;
}

/* Waits until the recorder has this state; "": until it has ended. */
static bool wait_for(const struct fs_recorder_state *recorder, const char *state)
{
	for (unsigned int waited = 0; waited < WAIT_MS; waited += 20) {
		struct fs_recorder_state *states;
		size_t count = fs_state_list(&states);
		bool alive = false, there = false;

		for (size_t i = 0; i < count; i++) {
			if (states[i].pid != recorder->pid)
				continue;
			alive = true;
			there = !strcmp(states[i].state, state);
		}
		free(states);
		if (*state ? there : !alive)
			return true;
		if (!alive)
			return false;
		fs_sleep_ms(20);
	}
	return false;
}

/* A recorder that has removed all that it set up may run for a moment more. A script may look for its process. */
static void wait_for_exit(const struct fs_recorder_state *recorder)
{
	for (unsigned int waited = 0; waited < EXIT_MS && fs_owner_alive(recorder->pid, recorder->starttime);
	     waited += 10)
		fs_sleep_ms(10);
}

static int status(const char *name)
{
	struct fs_recorder_state *states;
	size_t count = fs_state_list(&states), shown = 0;
	struct fs_json json = { 0 };

	fs_json_array(&json, NULL);
	for (size_t i = 0; i < count; i++) {
		if (name && strcmp(name, states[i].name))
			continue;
		fs_json_object(&json, NULL);
		fs_json_string(&json, "name", states[i].name);
		fs_json_i64(&json, "pid", states[i].pid);
		fs_json_string(&json, "state", states[i].state);
		fs_json_string(&json, "instance", states[i].instance);
		fs_json_object_end(&json);
		shown++;
	}
	fs_json_array_end(&json);
	free(states);
	if (name && !shown) {
		fs_json_free(&json);
		return fs_fail("ctl: no recorder is named %s; ctl status lists them", name);
	}
	puts(json.out.data);
	fs_json_free(&json);
	return 0;
}

/* A process that got the number meanwhile would end by most of our signals: a pidfd is of one process only. */
static int send_signal(const struct fs_recorder_state *recorder, int number)
{
	int result, fd = (int)syscall(SYS_pidfd_open, recorder->pid, 0), saved;

	if (!fs_owner_alive(recorder->pid, recorder->starttime)) {
		errno = ESRCH;
		result = -1;
	} else if (fd < 0) { /* Linux before 5.3 */
		result = kill(recorder->pid, number);
	} else {
		result = (int)syscall(SYS_pidfd_send_signal, fd, number, NULL, 0);
	}
	saved = errno;
	if (fd >= 0)
		close(fd);
	errno = saved;
	return result;
}

int cmd_ctl(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";
	const char *name = argc > 2 ? argv[2] : NULL;
	struct fs_recorder_state recorder = { 0 };
	struct fs_swept swept;
	const char *want;
	int signal_number, result;

	if (!strcmp(verb, "start") || !strcmp(verb, "resume")) {
		signal_number = FS_SIGNAL_RESUME;
		want = "recording";
	} else if (!strcmp(verb, "pause")) {
		signal_number = FS_SIGNAL_PAUSE;
		want = "paused";
	} else if (!strcmp(verb, "stop")) {
		signal_number = SIGTERM;
		want = "";
	} else if (!strcmp(verb, "status")) {
		signal_number = 0;
		want = NULL;
	} else {
		return fs_usage("ctl %s: no such verb; start, stop, pause, resume or status", verb);
	}
	if (argc > 3)
		return fs_usage("ctl %s: one recorder at a time; leave %s out", verb, argv[3]);
	fs_sweep(&swept);
	if (!signal_number)
		return status(name);
	result = find(name, &recorder);
	if (result)
		return result;
	if (!strcmp(recorder.state, "arming") && *want && !wait_for(&recorder, "recording") &&
	    !wait_for(&recorder, "paused"))
		return fs_fail("ctl: %s does not finish arming its probes; look at its messages",
			       recorder.name);
	result = send_signal(&recorder, signal_number);
	if (result && errno == ESRCH)
		return *want ? fs_fail("ctl: %s (process %d) has ended", recorder.name, (int)recorder.pid) : 0;
	if (result)
		return fs_fail("ctl: %s (process %d): %s; run as the user who started it",
			       recorder.name, (int)recorder.pid, strerror(errno));
	if (!wait_for(&recorder, want))
		return fs_fail("ctl: %s did not %s within %d s; is the reader of its stream stalled?",
			       recorder.name, verb, WAIT_MS / 1000);
	if (!*want)
		wait_for_exit(&recorder);
	return 0;
}
