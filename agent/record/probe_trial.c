// SPDX-License-Identifier: Apache-2.0
#include "probe_trial.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sweep.h"
#include "util.h"

#define EVENT "ask"

void fs_probe_trial_hold(sigset_t *old)
{
	sigset_t hold;

	sigemptyset(&hold);
	sigaddset(&hold, SIGINT);
	sigaddset(&hold, SIGTERM);
	sigaddset(&hold, SIGHUP);
	sigprocmask(SIG_BLOCK, &hold, old);
}

/* Until it is made smaller: an instance begins with the size of the main ring (kernel/trace/trace.c, TRACE_BUF_SIZE_DEFAULT). */
#define TRIAL_RING_KIB 1408

int fs_probe_trial_begin(struct fs_probe_trial *setup, const struct fs_tracefs *tracefs, char *error, size_t size)
{
	const uint64_t available = fs_available_to_kernel_kib();
	const uint64_t needed = fs_instance_files_kib(tracefs) + TRIAL_RING_KIB + FS_MEMORY_LEFT_KIB;
	char path[FS_PATH_MAX];

	memset(setup, 0, sizeof(*setup));
	if (available && available < needed) {
		snprintf(error, size, "memory: %" PRIu64 " KiB are available to the kernel, and a trial of probes takes %" PRIu64
			 " KiB here; end something first", available, needed);
		return -1;
	}
	setup->tracefs = tracefs;
	fs_own_name(setup->group, sizeof(setup->group), "flashscope");
	snprintf(setup->instance, sizeof(setup->instance), "%s.trial", setup->group);
	/* Others do the same at the same time (a file system's garbage collector). */
	snprintf(setup->filter, sizeof(setup->filter), "common_pid == %ld", (long)syscall(SYS_gettid));
	fs_probe_trial_hold(&setup->signals);
	fs_tracefs_path(tracefs, path, sizeof(path), "instances/%s", setup->instance);
	if (mkdir(path, 0700)) {
		snprintf(error, size, "%s: %s; is CONFIG_TRACING's instance support there, and memory free?",
			 path, strerror(errno));
		sigprocmask(SIG_SETMASK, &setup->signals, NULL);
		return -1;
	}
	fs_tracefs_write(tracefs, "0", "instances/%s/tracing_on", setup->instance);
	fs_tracefs_write(tracefs, "64", "instances/%s/buffer_size_kb", setup->instance);
	return 0;
}

int fs_probe_trial_end(struct fs_probe_trial *setup, char *error, size_t size)
{
	char path[FS_PATH_MAX];
	int result = 0;

	fs_tracefs_path(setup->tracefs, path, sizeof(path), "instances/%s", setup->instance);
	if (rmdir(path)) {
		snprintf(error, size, "%s: %s; run sweep", path, strerror(errno));
		result = -1;
	}
	fs_kprobe_remove_group(setup->tracefs, setup->group, NULL);
	sigprocmask(SIG_SETMASK, &setup->signals, NULL);
	return result;
}

char *fs_probe_trial_trace(const struct fs_probe_trial *setup, void (*act)(void *), void *argument)
{
	char path[FS_PATH_MAX];

	/* Opening `trace` with O_TRUNC clears this instance (kernel/trace/trace.c, tracing_open). */
	fs_write_text_flags(fs_tracefs_path(setup->tracefs, path, sizeof(path), "instances/%s/trace",
					    setup->instance),
			    "", O_WRONLY | O_TRUNC);
	fs_tracefs_write(setup->tracefs, "1", "instances/%s/tracing_on", setup->instance);
	act(argument);
	fs_tracefs_write(setup->tracefs, "0", "instances/%s/tracing_on", setup->instance);
	return fs_tracefs_read(setup->tracefs, "instances/%s/trace", setup->instance);
}

int fs_probe_trial_parse(const char *text, const char *event, size_t count, uint64_t *values, size_t calls)
{
	char mark[64];
	int length = snprintf(mark, sizeof(mark), ": %s: (", event);
	size_t events = 0;

	for (const char *line = text; line && *line;) {
		const char *next = strchr(line, '\n');
		size_t size = next ? (size_t)(next - line) : strlen(line);
		const char *hit = *line == '#' ? NULL : memmem(line, size, mark, (size_t)length);

		if (hit && events < calls) {
			for (size_t i = 0; i < count; i++) {
				char name[16];
				int n = snprintf(name, sizeof(name), " v%zu=", i);
				const char *field = memmem(hit, (size_t)(line + size - hit), name, (size_t)n);

				/* A negative number is its two's complement; "(fault)" is 0. */
				values[events * count + i] = field ? strtoull(field + n, NULL, 0) : 0;
			}
		}
		events += hit != NULL;
		line = next ? next + 1 : NULL;
	}
	return (int)events;
}

int fs_probe_trial_ask(const struct fs_probe_trial *setup, const char *symbol, char (*fetch)[48], size_t count,
		  void (*act)(void *), void *argument, uint64_t *values, size_t calls)
{
	const struct fs_tracefs *tracefs = setup->tracefs;
	struct fs_buf definition = { 0 };
	char undo[160];
	int events = -1, error;

	memset(values, 0, calls * count * sizeof(*values));
	fs_buf_printf(&definition, "p:%s/%s %s", setup->group, EVENT, symbol);
	for (size_t i = 0; i < count; i++)
		fs_buf_printf(&definition, " v%zu=%s", i, fetch[i]);
	error = fs_kprobe(tracefs, definition.data) ? errno : 0;
	fs_buf_free(&definition);
	if (error) {
		errno = error;
		return -1;
	}
	if (fs_tracefs_write(tracefs, setup->filter, "instances/%s/events/%s/%s/filter", setup->instance,
			     setup->group, EVENT) ||
	    fs_tracefs_write(tracefs, "1", "instances/%s/events/%s/%s/enable", setup->instance,
			     setup->group, EVENT)) {
		error = errno;
	} else {
		char *text = fs_probe_trial_trace(setup, act, argument);

		events = text ? fs_probe_trial_parse(text, EVENT, count, values, calls) : 0;
		free(text);
		fs_tracefs_write(tracefs, "0", "instances/%s/events/%s/%s/enable", setup->instance,
				 setup->group, EVENT);
	}
	snprintf(undo, sizeof(undo), "-:%s/%s", setup->group, EVENT);
	fs_kprobe(tracefs, undo);
	errno = error;
	return events;
}
