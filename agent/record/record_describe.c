// SPDX-License-Identifier: Apache-2.0
/* The frames before the events: facts, formats, names of tasks. */
#include "recorder.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files.h"
#include "flight.h"
#include "groups.h"
#include "layers.h"
#include "util.h"

/* Looking at what processes have open takes no longer before the recording begins. */
#define NAMES_BEGIN_NS UINT64_C(5000000000)

static bool leaves_own_out(const struct fs_event *event)
{
	return event->filter && strstr(event->filter, "common_pid != ");
}

/* The requested groups, the events that this kernel lacks, and how the recorder's own calls are left out. */
static void groups_json(const struct fs_recorder *recorder, struct fs_json *json)
{
	fs_json_array(json, "groups");
	if (recorder->options.flash)
		fs_json_string(json, NULL, "flash");
	for (unsigned int group = 1; group <= recorder->options.groups; group <<= 1)
		if (recorder->options.groups & group)
			fs_json_string(json, NULL, fs_group_name(group));
	fs_json_array_end(json);
	fs_events_json(json, &recorder->wanted);
	if (recorder->options.groups & FS_GROUP_CACHE)
		fs_files_json(json, "layout", &recorder->layout);
	if (recorder->options.groups & FS_GROUP_LAYERS)
		fs_layers_json(json, &recorder->probes, &recorder->wanted);
	fs_filter_json(json, &recorder->filter);
	fs_flight_json(json, recorder);
	fs_json_object(json, "own");
	fs_json_i64(json, "pid", getpid());
	fs_json_array(json, "tasks");
	fs_own_json(json, getpid());
	fs_json_array_end(json);
	fs_json_array(json, "left_out_of");
	for (size_t i = 0; i < recorder->wanted.count; i++) {
		const struct fs_event *event = &recorder->wanted.items[i];
		bool whole = true, first = true;
		char name[160];

		if (!leaves_own_out(event))
			continue;
		for (size_t k = 0; k < recorder->wanted.count; k++) {
			bool same = !strcmp(recorder->wanted.items[k].system, event->system);

			whole &= !same || leaves_own_out(&recorder->wanted.items[k]);
			first &= !same || k >= i;
		}
		/* A system of which all is filtered stands for itself. */
		snprintf(name, sizeof(name), "%s:%s", event->system, event->event ? event->event : "*");
		if (!whole || first)
			fs_json_string(json, NULL, whole ? event->system : name);
	}
	fs_json_array_end(json);
	fs_json_object_end(json);
}

static void recording_json(struct fs_recorder *recorder, struct fs_json *json, bool brief)
{
	const struct fs_record_options *options = &recorder->options;
	char *events = fs_strdup(recorder->events.data ? recorder->events.data : "");
	char *save = NULL;

	fs_json_object(json, "recording");
	fs_json_string(json, "name", recorder->name);
	fs_json_string(json, "source", options->monitor ? "flashmon" : "tracefs");
	fs_json_string(json, "instance", recorder->main.name);
	fs_json_string(json, "group", recorder->group);
	fs_json_string(json, "mode", options->trigger_count ? "flight" : options->overwrite ? "ring" : "stream");
	fs_json_u64(json, "ring_kib", options->ring_kib);
	fs_json_u64(json, "interval_ms", options->interval_ms);
	fs_json_string(json, "clock", "mono");
	fs_json_array(json, "events");
	for (char *event = strtok_r(events, "\n", &save); event; event = strtok_r(NULL, "\n", &save))
		fs_json_string(json, NULL, event);
	fs_json_array_end(json);
	fs_json_array(json, "probes");
	for (size_t i = 0; i < recorder->probes.count; i++) {
		const struct fs_probe *probe = &recorder->probes.items[i];

		fs_json_object(json, NULL);
		fs_json_string(json, "event", probe->event);
		fs_json_string(json, "symbol", probe->symbol);
		fs_json_string(json, "operation", probe->operation);
		fs_json_string(json, "level", probe->level);
		fs_json_string(json, "filter", probe->filter);
		/* Some hundred layers make a frame too large; "boundaries" and the names contain the same. */
		if (!brief || probe->group != FS_GROUP_LAYERS) {
			fs_json_string(json, "definition", probe->definition);
			fs_json_string(json, "loses", probe->loses);
		}
		fs_json_object_end(json);
	}
	fs_json_array_end(json);
	groups_json(recorder, json);
	fs_json_array(json, "mtd_filter");
	for (size_t i = 0; i < options->mtd_count; i++)
		fs_json_i64(json, NULL, options->mtd[i]);
	fs_json_array_end(json);
	fs_json_object_end(json);
	free(events);
}

static int send_facts(struct fs_recorder *recorder)
{
	int result = -1;

	for (int brief = 0; brief < 2 && result; brief++) {
		struct fs_json json = { 0 };

		fs_json_object(&json, NULL);
		fs_facts_json(&json, &recorder->facts, brief);
		recording_json(recorder, &json, brief);
		fs_json_object_end(&json);
		result = fs_frame(&recorder->stream, FS_FACTS, json.out.data, json.out.length, NULL, 0);
		fs_json_free(&json);
		if (result && errno != EMSGSIZE)
			break;
	}
	if (result && !recorder->stream.error) {
		fs_recorder_broken(recorder, "facts: too large for one frame; report this machine");
		return -1;
	}
	return result ? fs_recorder_stream_broken(recorder) : 0;
}

static int send_format(struct fs_recorder *recorder, const char *system, const char *published,
		       const char *event)
{
	char *format = fs_tracefs_read(&recorder->facts.tracefs, "events/%s/%s/format", system, event);
	struct fs_buf head = { 0 };
	int result = 0;

	if (!format)
		return 0; /* a directory entry that is no event */
	if (!strcmp(published, "flashscope"))
		fs_crosscheck_event(&recorder->crosscheck, event, format);
	fs_touched_format(&recorder->names.paths.touched, event, format);
	fs_buf_append(&head, published, strlen(published) + 1);
	fs_buf_append(&head, event, strlen(event) + 1);
	if (fs_frame(&recorder->stream, FS_FORMAT, head.data, head.length, format, strlen(format)))
		result = fs_recorder_stream_broken(recorder);
	fs_buf_free(&head);
	free(format);
	return result;
}

static int send_system_formats(struct fs_recorder *recorder, const char *system)
{
	char path[FS_PATH_MAX];
	struct dirent *entry;
	int result = 0;
	DIR *dir = opendir(fs_tracefs_path(&recorder->facts.tracefs, path, sizeof(path), "events/%s",
					   system));

	while (dir && !result && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			result = send_format(recorder, system, system, entry->d_name);
	if (dir)
		closedir(dir);
	return result;
}

static int send_formats(struct fs_recorder *recorder)
{
	for (size_t i = 0; i < recorder->probes.count; i++) {
		const char *event = recorder->probes.items[i].event;

		if (i && !strcmp(event, recorder->probes.items[i - 1].event))
			continue;
		if (send_format(recorder, recorder->group, "flashscope", event))
			return -1;
	}
	for (size_t i = 0; i < recorder->wanted.count; i++) {
		const struct fs_event *event = &recorder->wanted.items[i];

		if (event->event ? send_format(recorder, event->system, event->system, event->event) :
				   send_system_formats(recorder, event->system))
			return -1;
	}
	for (size_t i = 0; i < ARRAY_SIZE(fs_task_events); i++)
		if (fs_recorder_has_event(recorder, fs_task_events[i][0], fs_task_events[i][1]) &&
		    send_format(recorder, fs_task_events[i][0], fs_task_events[i][0], fs_task_events[i][1]))
			return -1;
	return 0;
}

static int add_task(struct fs_recorder *recorder, size_t *used, uint32_t tid, uint32_t tgid,
		    const char *comm)
{
	struct fs_task task = { .pid = htole32(tid), .tgid = htole32(tgid) };

	if (*used + sizeof(task) > fs_stream_room(&recorder->stream)) {
		if (fs_frame_commit(&recorder->stream, FS_TASKS, *used))
			return fs_recorder_stream_broken(recorder);
		*used = 0;
	}
	memcpy(task.comm, comm, strnlen(comm, sizeof(task.comm)));
	memcpy(fs_frame_payload(&recorder->stream) + *used, &task, sizeof(task));
	*used += sizeof(task);
	return 0;
}

/* Threads too: an event's common_pid is a thread's. */
static int send_tasks(struct fs_recorder *recorder)
{
	char path[FS_PATH_MAX];
	struct dirent *process, *thread;
	size_t used = 0;
	int result = 0;
	DIR *proc = opendir(fs_path(path, sizeof(path), "/proc"));

	while (proc && !result && (process = readdir(proc))) {
		uint64_t tgid, tid;
		DIR *tasks;

		if (!fs_parse_u64(process->d_name, INT32_MAX, &tgid))
			continue;
		tasks = opendir(fs_path(path, sizeof(path), "/proc/%" PRIu64 "/task", tgid));
		while (tasks && !result && (thread = readdir(tasks))) {
			char *comm;

			if (!fs_parse_u64(thread->d_name, INT32_MAX, &tid))
				continue;
			comm = fs_read_text(fs_path(path, sizeof(path),
						    "/proc/%" PRIu64 "/task/%" PRIu64 "/comm", tgid, tid),
					    NULL);
			if (!comm)
				continue; /* ended meanwhile */
			comm[strcspn(comm, "\n")] = '\0';
			fs_worker_name(comm);
			result = add_task(recorder, &used, (uint32_t)tid, (uint32_t)tgid, comm);
			free(comm);
		}
		if (tasks)
			closedir(tasks);
	}
	if (proc)
		closedir(proc);
	if (!result && used && fs_frame_commit(&recorder->stream, FS_TASKS, used))
		result = fs_recorder_stream_broken(recorder);
	return result;
}

int fs_recorder_hello(struct fs_recorder *recorder)
{
	if (fs_frame_hello(&recorder->stream, recorder->main.layout.long_size,
			   recorder->main.layout.size))
		return fs_recorder_stream_broken(recorder);
	recorder->streaming = true;
	return 0;
}

int fs_recorder_describe(struct fs_recorder *recorder)
{
	static const char *const headers[] = { "events/header_page", "events/header_event" };

	if (fs_recorder_hello(recorder) || send_facts(recorder))
		return -1;
	if (recorder->options.monitor)
		return fs_monitor_formats(&recorder->monitor, &recorder->stream) ? fs_recorder_stream_broken(recorder) :
										   send_tasks(recorder);
	for (size_t i = 0; i < ARRAY_SIZE(headers); i++) {
		char *text = fs_tracefs_read(&recorder->facts.tracefs, "%s", headers[i]);
		int result;

		if (!text)
			return fs_recorder_broken(recorder, "%s/%s: %s; report this kernel",
				      recorder->facts.tracefs.shown, headers[i], strerror(errno));
		result = fs_frame(&recorder->stream, (uint16_t)(FS_HEADER_PAGE + i), text, strlen(text),
				  NULL, 0);
		free(text);
		if (result)
			return fs_recorder_stream_broken(recorder);
	}
	if (send_formats(recorder))
		return -1;
	/* On before the snapshot: a task that starts in between is in one of the two. */
	if (fs_ring_tracing(&recorder->tasks, true))
		return fs_recorder_broken(recorder, "tracing_on: %s", strerror(errno));
	if (send_tasks(recorder))
		return -1;
	if (fs_flight(recorder))
		fs_names_capture_begin(&recorder->names);
	else
		fs_names_begin(&recorder->names, NAMES_BEGIN_NS);
	return recorder->stream.error ? fs_recorder_stream_broken(recorder) : 0;
}
