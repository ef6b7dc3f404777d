// SPDX-License-Identifier: Apache-2.0
/*
 * flashscope-agent record: events of this machine's flash (or others) as a
 * stream of frames. The order of a recording: options, sweep, tracefs, trial,
 * plan, output, arming, description frames, tracing on, draining by a timer
 * until a signal or the command's end, the rest, statistics, FS_END; and
 * whatever happened, what was changed is undone.
 */
#include <ctype.h>
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmds.h"
#include "command.h"
#include "crosscheck.h"
#include "facts.h"
#include "files.h"
#include "frame.h"
#include "groups.h"
#include "layers.h"
#include "monitor.h"
#include "options.h"
#include "patience.h"
#include "rights.h"
#include "ring.h"
#include "state.h"
#include "sweep.h"
#include "util.h"

/* Of the second instance: names of tasks. A fork and its renames take some 150 bytes. */
#define TASKS_RING_KIB 256
/*
 * ARM and x86 turn armed probes into jumps a moment later (kernel/kprobes.c:
 * OPTIMIZE_DELAY is 5 jiffies, then a grace period of RCU tasks).
 */
#define WARM_MS 500
/* A reader that takes nothing for so long after a stop has gone. */
#define STALLED_S 5
/* A second request to stop so much later is a person's: nothing is waited for any more. */
#define IMPATIENT_NS UINT64_C(1000000000)

static volatile sig_atomic_t asked_stop, interrupted, asked_pause, asked_resume, child_changed, give_up;
static int wake[2] = { -1, -1 };
/* Frames written, for the alarm to see whether the reader still takes some. */
static const volatile uint32_t *written;
static uint32_t written_at_alarm;
static uint64_t asked_at;

static void on_signal(int number)
{
	int saved = errno;

	if (number == SIGALRM) {
		if (!written || *written == written_at_alarm)
			give_up = 1;
		written_at_alarm = written ? *written : 0;
		alarm(STALLED_S);
	} else if (number == FS_SIGNAL_PAUSE) {
		asked_pause = 1;
	} else if (number == FS_SIGNAL_RESUME) {
		asked_resume = 1;
	} else if (number == SIGCHLD) {
		child_changed = 1;
	} else {
		/* Ctrl-C reaches the whole group, and then who started us asks once more. */
		if (asked_stop && fs_now_ns() - asked_at > IMPATIENT_NS)
			give_up = 1;
		if (!asked_stop) {
			asked_at = fs_now_ns();
			interrupted = number == SIGINT;
		}
		asked_stop = 1;
		written_at_alarm = written ? *written : 0;
		alarm(STALLED_S);
	}
	if (write(wake[1], "", 1) < 0) {
		/* full: it wakes anyway */
	}
	errno = saved;
}

static int catch_signals(void)
{
	static const int numbers[] = { SIGINT,	SIGTERM,	 SIGHUP,	   SIGALRM,
				       SIGCHLD, FS_SIGNAL_PAUSE, FS_SIGNAL_RESUME };
	struct sigaction action = { .sa_handler = on_signal };
	sigset_t open;

	/* Not restarted: a write to a stalled reader must be interruptible. */
	if (pipe2(wake, O_CLOEXEC | O_NONBLOCK))
		return -1;
	sigemptyset(&open);
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		sigaction(numbers[i], &action, NULL);
		sigaddset(&open, numbers[i]);
	}
	signal(SIGPIPE, SIG_IGN);
	sigprocmask(SIG_UNBLOCK, &open, NULL);
	return 0;
}

struct recorder {
	struct fs_record_options options;
	struct fs_facts facts;
	struct fs_probes probes;
	char group[96]; /* also the name of the main instance */
	char error[320]; /* what ended it */
	struct fs_ring main, tasks;
	struct fs_monitor monitor; /* with --from flashmon, in place of both */
	struct fs_patience patience;
	struct fs_crosscheck crosscheck;
	struct fs_stream stream;
	bool streaming; /* FS_HELLO is written */
	bool close_output;
	bool probes_defined, state_noted;
	char name[FS_NAME_MAX + 1];
	struct fs_events wanted; /* besides our own probes */
	struct fs_file_layout layout;
	struct fs_buf events;	 /* "system:event\n" of every enabled one */
	uint64_t hits[ARRAY_SIZE(((struct fs_probes *)0)->items)];
	uint64_t misses[ARRAY_SIZE(((struct fs_probes *)0)->items)];

	struct fs_command command;
	bool paused;
};

static int broken(struct recorder *recorder, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int broken(struct recorder *recorder, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(recorder->error, sizeof(recorder->error), format, args);
	va_end(args);
	return -1;
}

static int stream_broken(struct recorder *recorder)
{
	const char *where = recorder->options.output ? recorder->options.output : "stdout";
	int error = recorder->stream.error;

	if (error == EPIPE || error == ECONNRESET)
		return broken(recorder, "%s: the reader of the stream has gone; what it got is readable", where);
	if (error == ENOSPC || error == EDQUOT || error == EFBIG)
		return broken(recorder, "%s: %s; what is written is readable: free space and record again",
			      where, strerror(error));
	if (error == EINTR)
		return broken(recorder, "%s: the reader of the stream takes nothing; the rest is lost", where);
	return broken(recorder, "%s: %s; what is written is readable", where, strerror(error));
}

/* --- before the stream ------------------------------------------------- */

static int check_tracefs(struct recorder *recorder)
{
	const struct fs_tracefs *tracefs = &recorder->facts.tracefs;

	if (!tracefs->path[0])
		return broken(recorder, "tracefs: %s", tracefs->error);
	if (!tracefs->instances)
		return broken(recorder, "tracefs: %s has no instances; flashscope needs Linux 3.17 or newer", tracefs->path);
	if (recorder->options.flash && !tracefs->kprobe_events)
		return broken(recorder, "kprobe events: %s/kprobe_events is not there or refused; "
					"the kernel needs CONFIG_KPROBE_EVENTS (other events: --events)",
			      tracefs->path);
	return 0;
}

static bool has_event(struct recorder *recorder, const char *system, const char *event)
{
	char path[FS_PATH_MAX];

	fs_tracefs_path(&recorder->facts.tracefs, path, sizeof(path), "events/%s%s%s/enable", system,
			event ? "/" : "", event ? event : "");
	/* Not whether it is ours to write: it is enabled in an instance. */
	return !access(path, F_OK);
}

/* What is to be enabled: events that were named one by one have to be there, those of a group need not. */
static int check_events(struct recorder *recorder)
{
	struct fs_record_options *options = &recorder->options;
	unsigned int empty;

	for (size_t i = 0; i < options->events.count; i++) {
		const struct fs_event *event = &options->events.items[i];

		if (!has_event(recorder, event->system, event->event))
			return broken(recorder, "--events %s:%s: this kernel has no such event; "
						"see %s/available_events",
				      event->system, event->event ? event->event : "*",
				      recorder->facts.tracefs.path);
		fs_events_add(&recorder->wanted, event->system, event->event, NULL);
	}
	empty = fs_events_of_groups(&recorder->wanted, &recorder->facts.tracefs, &recorder->facts.machine,
				    options->groups, (long)getpid());
	if (empty)
		return broken(recorder, "--events %s: this kernel has none of its events; %s",
			      fs_group_name(empty & -empty), fs_group_lacks(empty & -empty));
	return 0;
}

/*
 * Probes of groups. Where a file's numbers lie is found anew each time: it
 * costs a second or two, and kernels differ.
 */
static void plan_groups(struct recorder *recorder)
{
	const struct fs_facts *facts = &recorder->facts;
	const long own = getpid();

	if (recorder->options.groups & FS_GROUP_CACHE) {
		if (fs_files_calibrate(&facts->tracefs, &facts->machine, &recorder->layout,
				       recorder->layout.missing, sizeof(recorder->layout.missing)))
			fs_warn("file_read, file_write, file_fault: not armed: %s", recorder->layout.missing);
		fs_files_plan(&facts->machine, &recorder->layout, recorder->group, own, &recorder->probes,
			      &recorder->wanted);
	}
	if (recorder->options.groups & FS_GROUP_LAYERS)
		fs_layers_plan(&facts->tracefs, recorder->group, own, &recorder->probes, &recorder->wanted);
}

/* The flash monitor has done the rest by itself when it was loaded. */
static int plan_monitor(struct recorder *recorder)
{
	const struct fs_record_options *options = &recorder->options;

	recorder->main.layout = (struct fs_page_layout){ 0 };
	if (fs_monitor_open(&recorder->monitor, recorder->facts.machine.long_size, options->mtd,
			    options->mtd_count, options->details.duration, &recorder->facts.mtd,
			    &recorder->probes, recorder->error, sizeof(recorder->error)))
		return -1;
	recorder->main.layout = recorder->monitor.layout;
	return 0;
}

static int plan_probes(struct recorder *recorder)
{
	struct fs_facts *facts = &recorder->facts;
	struct fs_record_options *options = &recorder->options;
	size_t nand = 0;

	for (size_t i = 0; i < facts->mtd.count; i++)
		nand += fs_mtd_is_nand(&facts->mtd.items[i]);
	if (!options->flash) {
		fs_points_check(&facts->tracefs, &facts->machine, &facts->points);
		plan_groups(recorder);
		return 0;
	}
	if (!nand)
		return broken(recorder, "NAND: /sys/class/mtd shows none; load its driver (or nandsim), "
					"or record other events with --events");
	if (fs_points_try(&facts->tracefs, &facts->machine, &facts->points, &facts->mtd,
			  recorder->error, sizeof(recorder->error)))
		return -1;
	if (fs_probes_plan(&facts->machine, &facts->points, &facts->mtd, options->mtd,
			   options->mtd_count, options->details, recorder->group,
			   &recorder->probes, recorder->error, sizeof(recorder->error)))
		return -1;
	plan_groups(recorder);
	return 0;
}

static int check_name(struct recorder *recorder)
{
	struct fs_recorder_state *states;
	size_t count = fs_state_list(&states);
	bool taken = false;

	for (size_t i = 0; i < count; i++)
		taken |= states[i].pid != getpid() && !strcmp(states[i].name, recorder->name);
	free(states);
	if (taken)
		return broken(recorder, "--name %s: a running recorder has this name; choose another",
			      recorder->name);
	return 0;
}

static int open_output(struct recorder *recorder)
{
	const char *path = recorder->options.output;
	int fd = STDOUT_FILENO;

	if (path) {
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666);
		if (fd < 0)
			return broken(recorder, "%s: cannot be written: %s; choose another -o", path,
				      strerror(errno));
		recorder->close_output = true;
	}
	fs_stream_init(&recorder->stream, fd, (uint16_t)recorder->options.source);
	recorder->stream.give_up = &give_up;
	written = &recorder->stream.seq;
	return 0;
}

/* --- arming ------------------------------------------------------------ */

static void refused(struct recorder *recorder, const struct fs_probe *probe, const char *error)
{
	char event[96], why[128];

	snprintf(event, sizeof(event), "flashscope:%s", probe->event);
	snprintf(why, sizeof(why), "%.60s cannot be probed: %.40s", probe->symbol, error);
	fs_events_absent(&recorder->wanted, probe->group, event, why,
			 probe->loses ? probe->loses : "what this boundary tells");
}

static int define_probes(struct recorder *recorder)
{
	const struct fs_tracefs *tracefs = &recorder->facts.tracefs;
	size_t kept = 0;

	recorder->probes_defined = true;
	for (size_t i = 0; i < recorder->probes.count; i++) {
		struct fs_probe *probe = &recorder->probes.items[i];

		if (!fs_kprobe(tracefs, probe->definition)) {
			recorder->probes.items[kept++] = *probe;
			continue;
		}
		/* Reads of flash were proved a moment ago; the others are named losses. */
		if ((!probe->group && !strcmp(probe->operation, "read")) || errno == ENOMEM) {
			broken(recorder, "kprobe_events: \"%s\": %s; report this kernel",
			       probe->definition, strerror(errno));
			while (i < recorder->probes.count)
				free(recorder->probes.items[i++].filter);
			recorder->probes.count = kept;
			return -1;
		}
		if (probe->group)
			refused(recorder, probe, strerror(errno));
		else
			fs_warn("%s: not armed: %s; operations that pass it are not seen", probe->symbol,
				strerror(errno));
		free(probe->filter);
	}
	recorder->probes.count = kept;
	return 0;
}

static int enable_probes(struct recorder *recorder)
{
	for (size_t i = 0; i < recorder->probes.count; i++) {
		const struct fs_probe *probe = &recorder->probes.items[i];

		if (i && !strcmp(probe->event, recorder->probes.items[i - 1].event))
			continue; /* a second probe of one event */
		if (fs_ring_enable(&recorder->main, recorder->group, probe->event, probe->filter))
			return broken(recorder, "probe %s (%s): cannot be enabled: %s; filter %s",
				      probe->event, probe->symbol, strerror(errno),
				      probe->filter ? probe->filter : "none");
		fs_buf_printf(&recorder->events, "flashscope:%s\n", probe->event);
	}
	return 0;
}

static int enable_events(struct recorder *recorder)
{
	for (size_t i = 0; i < recorder->wanted.count; i++) {
		const struct fs_event *event = &recorder->wanted.items[i];

		if (fs_ring_enable(&recorder->main, event->system, event->event, event->filter))
			return broken(recorder, "event %s:%s: cannot be enabled: %s", event->system,
				      event->event ? event->event : "*", strerror(errno));
		fs_buf_printf(&recorder->events, "%s:%s\n", event->system, event->event ? event->event : "*");
	}
	return 0;
}

static const char *const task_events[][2] = {
	{ "task", "task_newtask" },
	{ "task", "task_rename" },
	{ "sched", "sched_process_exec" },
	{ "sched", "sched_process_fork" },
};

static int arm_monitor(struct recorder *recorder)
{
	for (size_t i = 0; i < recorder->probes.count; i++)
		fs_buf_printf(&recorder->events, "flashscope:%s\n", recorder->probes.items[i].event);
	if (fs_monitor_begin(&recorder->monitor))
		return broken(recorder, "flashmon: refuses a command: %s; see /proc/flashmon_status", strerror(errno));
	return 0;
}

static int arm(struct recorder *recorder)
{
	const struct fs_record_options *options = &recorder->options;
	const struct fs_tracefs *tracefs = &recorder->facts.tracefs;
	char *error = recorder->error;
	size_t size = sizeof(recorder->error);
	char tasks[112];

	snprintf(tasks, sizeof(tasks), "%s.tasks", recorder->group);
	if (fs_ring_make(&recorder->main, tracefs, recorder->group, FS_INSTANCE_MAIN,
			 &recorder->facts.layout, options->ring_kib, options->overwrite, error,
			 size) ||
	    fs_ring_make(&recorder->tasks, tracefs, tasks, FS_INSTANCE_TASKS,
			 &recorder->facts.layout, TASKS_RING_KIB, false, error, size))
		return -1;
	if (define_probes(recorder) || enable_probes(recorder) || enable_events(recorder))
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(task_events); i++)
		if (has_event(recorder, task_events[i][0], task_events[i][1]) &&
		    fs_ring_enable(&recorder->tasks, task_events[i][0], task_events[i][1], NULL))
			return broken(recorder, "event %s: cannot be enabled: %s", task_events[i][1],
				      strerror(errno));
	if (fs_ring_open(&recorder->main, error, size) ||
	    fs_ring_open(&recorder->tasks, error, size))
		return -1;
	if (options->flash) {
		recorder->crosscheck.list = &recorder->facts.mtd;
		recorder->main.crosscheck = &recorder->crosscheck;
	}
	if (recorder->probes.count)
		fs_sleep_ms(WARM_MS);
	return 0;
}

/* Hits and misses of each probe; misses[i] is UINT64_MAX where the kernel does not tell. */
static void read_profile(struct recorder *recorder, uint64_t *hits, uint64_t *misses)
{
	const struct fs_tracefs *tracefs = &recorder->facts.tracefs;

	for (int attempt = 0; attempt < 5; attempt++) {
		char *events = fs_tracefs_read(tracefs, "kprobe_events");
		char *profile = fs_tracefs_read(tracefs, "kprobe_profile");
		bool all = true;

		for (size_t i = 0; i < recorder->probes.count; i++) {
			hits[i] = misses[i] = UINT64_MAX;
			if (!events || !profile ||
			    !fs_parse_kprobe_profile(events, profile, recorder->group,
						     recorder->probes.items[i].event, &hits[i],
						     &misses[i])) {
				hits[i] = misses[i] = UINT64_MAX;
				all = false;
			}
		}
		free(events);
		free(profile);
		if (all)
			return;
	}
}

/* --- description frames ------------------------------------------------ */

static bool leaves_own_out(const struct fs_event *event)
{
	return event->filter && strstr(event->filter, "common_pid != ");
}

/* What was asked for by group, what of it this kernel lacks, and how our own calls are kept out. */
static void groups_json(const struct recorder *recorder, struct fs_json *json)
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
	fs_json_object(json, "own");
	fs_json_i64(json, "pid", getpid());
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

static void recording_json(struct recorder *recorder, struct fs_json *json, bool brief)
{
	const struct fs_record_options *options = &recorder->options;
	char *events = fs_strdup(recorder->events.data ? recorder->events.data : "");
	char *save = NULL;

	fs_json_object(json, "recording");
	fs_json_string(json, "name", recorder->name);
	fs_json_string(json, "source", options->monitor ? "flashmon" : "tracefs");
	fs_json_string(json, "instance", recorder->main.name);
	fs_json_string(json, "group", recorder->group);
	fs_json_string(json, "mode", options->overwrite ? "ring" : "stream");
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
		/* Some hundred of layers make a frame too large; "boundaries" and the names say the same. */
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

static int send_facts(struct recorder *recorder)
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
		broken(recorder, "facts: too large for one frame; report this machine");
		return -1;
	}
	return result ? stream_broken(recorder) : 0;
}

static int send_format(struct recorder *recorder, const char *system, const char *published,
		       const char *event)
{
	char *format = fs_tracefs_read(&recorder->facts.tracefs, "events/%s/%s/format", system, event);
	struct fs_buf head = { 0 };
	int result = 0;

	if (!format)
		return 0; /* a directory entry that is no event */
	if (!strcmp(published, "flashscope"))
		fs_crosscheck_event(&recorder->crosscheck, event, format);
	fs_buf_append(&head, published, strlen(published) + 1);
	fs_buf_append(&head, event, strlen(event) + 1);
	if (fs_frame(&recorder->stream, FS_FORMAT, head.data, head.length, format, strlen(format)))
		result = stream_broken(recorder);
	fs_buf_free(&head);
	free(format);
	return result;
}

static int send_system_formats(struct recorder *recorder, const char *system)
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

static int send_formats(struct recorder *recorder)
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
	for (size_t i = 0; i < ARRAY_SIZE(task_events); i++)
		if (has_event(recorder, task_events[i][0], task_events[i][1]) &&
		    send_format(recorder, task_events[i][0], task_events[i][0], task_events[i][1]))
			return -1;
	return 0;
}

static int add_task(struct recorder *recorder, size_t *used, uint32_t tid, uint32_t tgid,
		    const char *comm)
{
	struct fs_task task = { .pid = htole32(tid), .tgid = htole32(tgid) };

	if (*used + sizeof(task) > fs_stream_room(&recorder->stream)) {
		if (fs_frame_commit(&recorder->stream, FS_TASKS, *used))
			return stream_broken(recorder);
		*used = 0;
	}
	memcpy(task.comm, comm, strnlen(comm, sizeof(task.comm)));
	memcpy(fs_frame_payload(&recorder->stream) + *used, &task, sizeof(task));
	*used += sizeof(task);
	return 0;
}

/* Threads too: an event's common_pid is a thread's. */
static int send_tasks(struct recorder *recorder)
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
			result = add_task(recorder, &used, (uint32_t)tid, (uint32_t)tgid, comm);
			free(comm);
		}
		if (tasks)
			closedir(tasks);
	}
	if (proc)
		closedir(proc);
	if (!result && used && fs_frame_commit(&recorder->stream, FS_TASKS, used))
		result = stream_broken(recorder);
	return result;
}

static int send_hello(struct recorder *recorder)
{
	if (fs_frame_hello(&recorder->stream, recorder->main.layout.long_size,
			   recorder->main.layout.size))
		return stream_broken(recorder);
	recorder->streaming = true;
	return 0;
}

static int describe(struct recorder *recorder)
{
	static const char *const headers[] = { "events/header_page", "events/header_event" };

	if (send_hello(recorder) || send_facts(recorder))
		return -1;
	if (recorder->options.monitor)
		return fs_monitor_formats(&recorder->monitor, &recorder->stream) ? stream_broken(recorder) :
										   send_tasks(recorder);
	for (size_t i = 0; i < ARRAY_SIZE(headers); i++) {
		char *text = fs_tracefs_read(&recorder->facts.tracefs, "%s", headers[i]);
		int result;

		if (!text)
			return broken(recorder, "%s/%s: %s; report this kernel",
				      recorder->facts.tracefs.path, headers[i], strerror(errno));
		result = fs_frame(&recorder->stream, (uint16_t)(FS_HEADER_PAGE + i), text, strlen(text),
				  NULL, 0);
		free(text);
		if (result)
			return stream_broken(recorder);
	}
	if (send_formats(recorder))
		return -1;
	/* On before the snapshot: a task that starts in between is in one of the two. */
	if (fs_ring_tracing(&recorder->tasks, true))
		return broken(recorder, "tracing_on: %s", strerror(errno));
	return send_tasks(recorder);
}

/* --- recording --------------------------------------------------------- */

static int set_paused(struct recorder *recorder, bool paused, const char *mark)
{
	if (recorder->options.monitor ? fs_monitor_tracing(&recorder->monitor, !paused) :
					fs_ring_tracing(&recorder->main, !paused))
		return broken(recorder, "%s: %s", recorder->options.monitor ? "flashmon" : "tracing_on", strerror(errno));
	if (mark && paused != recorder->paused &&
	    fs_frame_phase(&recorder->stream, fs_now_ns(), FS_PHASE_MARK, 0, mark))
		return stream_broken(recorder);
	recorder->paused = paused;
	if (fs_state_write(recorder->name, paused ? "paused" : "recording",
			   recorder->options.monitor ? "flashmon" : recorder->main.name))
		fs_warn("ctl: cannot find this recorder: no folder for notes: %s", strerror(errno));
	return 0;
}

static int drain(struct recorder *recorder, bool all)
{
	if (recorder->options.monitor) {
		if ((all || !recorder->options.overwrite) &&
		    fs_monitor_drain(&recorder->monitor, &recorder->stream))
			return stream_broken(recorder);
		return 0;
	}
	if ((all || !recorder->options.overwrite) &&
	    fs_ring_drain(&recorder->main, &recorder->stream))
		return stream_broken(recorder);
	if (fs_ring_drain(&recorder->tasks, &recorder->stream))
		return stream_broken(recorder);
	return 0;
}

/* Until asked to stop, the command's end, or a failure (-1). */
static int loop(struct recorder *recorder)
{
	uint64_t interval = recorder->options.interval_ms * UINT64_C(1000000);
	uint64_t next = fs_now_ns() + interval;
	struct fs_patience *patience = &recorder->patience;

	/* Not before: the command would inherit it. */
	fs_patience_init(patience);
	recorder->main.patience = patience;
	for (;;) {
		struct pollfd fds[] = {
			{ .fd = wake[0], .events = POLLIN },
			{ .fd = recorder->stream.fd, .events = 0 }, /* errors alone: the reader has gone */
		};
		uint64_t now = fs_now_ns();
		int timeout = next > now ? (int)((next - now + 999999) / 1000000) : 0;
		char bytes[64];

		if (poll(fds, ARRAY_SIZE(fds), timeout) > 0) {
			while (read(wake[0], bytes, sizeof(bytes)) > 0)
				;
			if (fds[1].revents & POLLERR && !recorder->stream.regular) {
				recorder->stream.error = EPIPE;
				return stream_broken(recorder);
			}
		}
		if (asked_pause) {
			asked_pause = 0;
			if (set_paused(recorder, true, "pause"))
				return -1;
		}
		if (asked_resume) {
			asked_resume = 0;
			if (set_paused(recorder, false, "resume"))
				return -1;
		}
		if (asked_stop)
			return 0;
		if (child_changed) {
			child_changed = 0;
			if (fs_command_ended(&recorder->command, &recorder->stream, WNOHANG))
				return 0;
		}
		now = fs_now_ns();
		if (now >= next) {
			fs_patience_begin(patience, next, interval);
			if (drain(recorder, false))
				return -1;
			next += interval;
			if (next < now)
				next = now + interval;
		}
	}
}

/* Of every NAND device that is still there, as FS_FACTS had it at the start. */
static void mtd_health(struct fs_json *json)
{
	struct fs_mtd_list list;

	fs_mtd_scan(&list);
	fs_json_array(json, "mtd");
	for (size_t i = 0; i < list.count; i++) {
		if (!fs_mtd_is_nand(&list.items[i]))
			continue;
		fs_json_object(json, NULL);
		fs_json_i64(json, "index", list.items[i].index);
		fs_mtd_health_json(json, list.items[i].index);
		fs_json_object_end(json);
	}
	fs_json_array_end(json);
	fs_mtd_free(&list);
}

static void monitor_stats_frame(struct recorder *recorder)
{
	struct fs_json json = { 0 };
	uint64_t lost, missed;

	fs_json_object(&json, NULL);
	lost = fs_monitor_stats(&recorder->monitor, &json, &missed);
	mtd_health(&json);
	fs_json_object_end(&json);
	if (lost)
		fs_frame_log(&recorder->stream, FS_LOG_WARNING,
			     "%" PRIu64 " events were overwritten in flashmon's log; load it with a larger log=", lost);
	if (missed)
		fs_frame_log(&recorder->stream, FS_LOG_WARNING,
			     "%" PRIu64 " calls were missed by flashmon's probes", missed);
	fs_frame(&recorder->stream, FS_STATS, json.out.data, json.out.length, NULL, 0);
	fs_json_free(&json);
}

static void stats_frame(struct recorder *recorder)
{
	uint64_t hits[ARRAY_SIZE(recorder->hits)], misses[ARRAY_SIZE(recorder->misses)];
	struct fs_json json = { 0 };
	uint64_t lost, tasks_lost, missed = 0;

	read_profile(recorder, hits, misses);
	fs_json_object(&json, NULL);
	fs_json_array(&json, "instances");
	lost = fs_ring_stats(&recorder->main, &json);
	tasks_lost = fs_ring_stats(&recorder->tasks, &json);
	fs_json_array_end(&json);
	fs_json_array(&json, "probes");
	for (size_t i = 0; i < recorder->probes.count; i++) {
		const char *event = recorder->probes.items[i].event;

		if (i && !strcmp(event, recorder->probes.items[i - 1].event))
			continue;
		fs_json_object(&json, NULL);
		fs_json_string(&json, "event", event);
		if (misses[i] == UINT64_MAX || recorder->misses[i] == UINT64_MAX) {
			fs_json_null(&json, "hits");
			fs_json_null(&json, "misses");
		} else {
			fs_json_u64(&json, "hits", hits[i] - recorder->hits[i]);
			fs_json_u64(&json, "misses", misses[i] - recorder->misses[i]);
			missed += misses[i] - recorder->misses[i];
		}
		fs_json_object_end(&json);
	}
	fs_json_array_end(&json);
	fs_crosscheck_json(&json, &recorder->crosscheck, !lost);
	mtd_health(&json);
	fs_json_object_end(&json);
	if (lost)
		fs_frame_log(&recorder->stream, FS_LOG_WARNING,
			     "%" PRIu64 " events were lost in the ring; a larger --ring keeps more", lost);
	if (tasks_lost)
		fs_frame_log(&recorder->stream, FS_LOG_WARNING,
			     "%" PRIu64 " task names were lost", tasks_lost);
	if (missed)
		fs_frame_log(&recorder->stream, FS_LOG_WARNING,
			     "%" PRIu64 " calls were missed by their probes", missed);
	if (!lost && fs_crosscheck_mismatch(&recorder->crosscheck))
		fs_frame_log(&recorder->stream, FS_LOG_WARNING,
			     "programs: %" PRIu64 " seen, %" PRIu64 " expected; erases: %" PRIu64
			     " seen, %" PRIu64 " expected",
			     recorder->crosscheck.programs_seen, recorder->crosscheck.programs_expected,
			     recorder->crosscheck.erases_seen, recorder->crosscheck.erases_expected);
	fs_frame(&recorder->stream, FS_STATS, json.out.data, json.out.length, NULL, 0);
	fs_json_free(&json);
}

static int record(struct recorder *recorder)
{
	const struct fs_record_options *options = &recorder->options;

	if (fs_command_check(&recorder->command, recorder->error, sizeof(recorder->error)) ||
	    (!options->monitor && (check_tracefs(recorder) || check_events(recorder))) || check_name(recorder))
		return -1;
	if (fs_state_write(recorder->name, "arming", recorder->group))
		fs_warn("ctl: will not find this recorder: no folder for notes: %s", strerror(errno));
	recorder->state_noted = true;
	if (options->monitor ? plan_monitor(recorder) : plan_probes(recorder))
		return -1;
	if (open_output(recorder) || (options->monitor ? arm_monitor(recorder) : arm(recorder)) || describe(recorder))
		return -1;
	if (options->command && fs_command_start(&recorder->command, recorder->error, sizeof(recorder->error)))
		return -1;
	/* The command has been forked: it keeps what it was started with. */
	if (fs_rights_drop(&recorder->facts.tracefs, options->user != NULL))
		fs_warn("capabilities: not given up: %s", strerror(errno));
	if (!options->monitor)
		read_profile(recorder, recorder->hits, recorder->misses);
	if (set_paused(recorder, options->paused, NULL))
		return -1;
	if (options->ready_fd >= 0) {
		if (write(options->ready_fd, "", 1) < 0)
			fs_warn("--ready-fd %d: %s", options->ready_fd, strerror(errno));
		close(options->ready_fd);
	}
	if (options->command &&
	    fs_command_release(&recorder->command, &recorder->stream, recorder->error, sizeof(recorder->error)))
		return *recorder->error ? -1 : stream_broken(recorder);
	return loop(recorder);
}

/* The rest of the stream, as far as it can be written. */
static int finish(struct recorder *recorder, int failed)
{
	enum fs_end_reason reason = FS_END_COMPLETE;

	if (recorder->state_noted)
		fs_state_write(recorder->name, "stopping", recorder->main.name);
	fs_patience_end(&recorder->patience);
	if (recorder->streaming) {
		if (recorder->main.name[0])
			fs_ring_tracing(&recorder->main, false);
		if (recorder->options.monitor)
			fs_monitor_tracing(&recorder->monitor, false);
		if (!failed || asked_stop)
			fs_command_end(&recorder->command, &recorder->stream, interrupted);
		if (recorder->tasks.name[0])
			fs_ring_tracing(&recorder->tasks, false);
		if (!recorder->stream.error && drain(recorder, true))
			failed = -1;
		/* The statistics say what is lost: they are tried on a full disk too. */
		if (fs_stream_again(&recorder->stream) && recorder->options.monitor)
			monitor_stats_frame(recorder);
		else if (fs_stream_again(&recorder->stream))
			stats_frame(recorder);
	}
	if (!recorder->stream.buffer)
		return failed;
	if (!failed && recorder->stream.error) {
		stream_broken(recorder);
		failed = -1;
	}
	if (failed) {
		reason = FS_END_FAILURE;
		/* A reader learns why, even where arming failed before the first frame. */
		if ((recorder->streaming || !send_hello(recorder)) &&
		    fs_stream_again(&recorder->stream))
			fs_frame_log(&recorder->stream, FS_LOG_ERROR, "%s", recorder->error);
	} else if (asked_stop) {
		reason = FS_END_SIGNAL;
	}
	if (fs_stream_again(&recorder->stream) && fs_frame_end(&recorder->stream, reason) &&
	    !failed) {
		stream_broken(recorder);
		failed = -1;
	}
	return failed;
}

/*
 * A recorder that fails (a full disk) does not take the command with it: it
 * was the user's work before it was ours to watch.
 */
static void wait_for_command(struct recorder *recorder)
{
	struct fs_command *command = &recorder->command;

	if (!command->pid)
		return;
	if (command->gate >= 0) { /* never let run: end of file ends it */
		close(command->gate);
		command->gate = -1;
	}
	while (command->pid && !asked_stop) {
		int status;

		if (waitpid(command->pid, &status, 0) == command->pid)
			command->pid = 0;
		else if (errno != EINTR)
			break;
	}
	fs_command_end(command, &recorder->stream, interrupted);
}

static int undo(struct recorder *recorder)
{
	struct fs_ring *const rings[] = { &recorder->main, &recorder->tasks };
	int failed = 0;
	unsigned int stuck = 0;

	if (recorder->options.monitor)
		fs_monitor_close(&recorder->monitor);
	/* Instances first: they hold the events enabled. */
	for (size_t i = 0; i < ARRAY_SIZE(rings); i++)
		if (fs_ring_remove(rings[i]))
			failed = fs_fail("tracefs: instance %s: %s; run flashscope-agent sweep",
					 rings[i]->name, strerror(errno));
	if (recorder->probes_defined)
		fs_kprobe_remove_group(&recorder->facts.tracefs, recorder->group, &stuck);
	if (stuck)
		failed = fs_fail("kprobe_events: %u probes of %s stay; run flashscope-agent sweep", stuck,
				 recorder->group);
	if (recorder->state_noted)
		fs_state_remove();
	return failed;
}

/* How a command under trace ends is told by the exit status, so our own failures have one that few commands use. */
static int exit_code(const struct recorder *recorder, int result)
{
	const struct fs_command *command = &recorder->command;

	if (!recorder->options.command || recorder->options.capture)
		return result || command->status <= 0 ? result : FS_EXIT_FAILURE;
	if (result)
		return FS_EXIT_OWN_FAILURE;
	return command->status > 0 ? command->status : 0;
}

int cmd_record(int argc, char **argv)
{
	struct recorder *recorder = fs_alloc(sizeof(*recorder));
	struct fs_swept swept;
	int result;

	fs_command_init(&recorder->command, &recorder->options);
	recorder->monitor.fd = -1;
	result = fs_record_options(argc, argv, &recorder->options);
	if (result)
		goto out;
	if (!recorder->options.output && isatty(STDOUT_FILENO)) {
		result = fs_usage("stdout: is a terminal, and the stream is binary; use -o FILE");
		goto out;
	}
	if (catch_signals()) {
		result = fs_fail("signals: %s", strerror(errno));
		goto out;
	}
	fs_sweep(&swept);
	fs_own_name(recorder->group, sizeof(recorder->group), "flashscope");
	if (recorder->options.name)
		snprintf(recorder->name, sizeof(recorder->name), "%s", recorder->options.name);
	else
		snprintf(recorder->name, sizeof(recorder->name), "%d", (int)getpid());
	fs_facts_gather(&recorder->facts, false);
	result = finish(recorder, record(recorder));
	if (result)
		result = fs_fail("%s", recorder->error);
	if (undo(recorder))
		result = FS_EXIT_FAILURE;
	wait_for_command(recorder);
	if (recorder->close_output && close(recorder->stream.fd) && !result)
		result = fs_fail("%s: %s; the end of the stream may be missing",
				 recorder->options.output, strerror(errno));
	if (!result && recorder->command.status > 0)
		fs_fail("%s: ended with status %d; its events are recorded", recorder->options.command[0],
			recorder->command.status);
	fs_stream_free(&recorder->stream);
	fs_buf_free(&recorder->events);
	fs_events_free(&recorder->wanted);
	fs_probes_free(&recorder->probes);
	fs_facts_free(&recorder->facts);
	fs_command_free(&recorder->command);
out:
	result = exit_code(recorder, result);
	fs_record_options_free(&recorder->options);
	free(recorder);
	return result;
}
