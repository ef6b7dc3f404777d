// SPDX-License-Identifier: Apache-2.0
/*
 * flashscope-agent record: events of this machine's flash (or others) as a
 * stream of frames. The order of a recording: options, sweep, tracefs, trial,
 * plan, output, arming, description frames, tracing on, draining by a timer
 * until a signal or the command's end, the rest, statistics, FS_END; and
 * whatever happened, what was changed is undone.
 */
#include <dirent.h>
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
#include "flight.h"
#include "reader.h"
#include "recorder.h"
#include "rights.h"
#include "state.h"
#include "sweep.h"
#include "util.h"

/* A reader that takes nothing for so long after a stop has gone. */
#define STALLED_S 5
/* Names of files and processes take no longer at the end. */
#define NAMES_MOST_S 5
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
	signal(SIGXFSZ, SIG_IGN);
	sigprocmask(SIG_UNBLOCK, &open, NULL);
	return 0;
}

int fs_recorder_broken(struct fs_recorder *recorder, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fs_format_message(recorder->error, sizeof(recorder->error), format, args);
	va_end(args);
	return -1;
}

/* --- recording --------------------------------------------------------- */

int fs_recorder_tracing(struct fs_recorder *recorder, bool on)
{
	if (recorder->requests.name[0] && fs_ring_tracing(&recorder->requests, on))
		return -1;
	return recorder->main.name[0] ? fs_ring_tracing(&recorder->main, on) : 0;
}

static int set_paused(struct fs_recorder *recorder, bool paused, const char *mark)
{
	if (recorder->options.monitor ? fs_monitor_tracing(&recorder->monitor, !paused) : fs_recorder_tracing(recorder, !paused))
		return fs_recorder_broken(recorder, "%s: %s", recorder->options.monitor ? "flashmon" : "tracing_on", strerror(errno));
	if (mark && paused != recorder->paused &&
	    fs_frame_phase(&recorder->stream, fs_now_ns(), FS_PHASE_MARK, 0, mark))
		return fs_recorder_stream_broken(recorder);
	if (recorder->paused && !paused)
		fs_names_resumed(&recorder->names);
	recorder->paused = paused;
	if (fs_state_write(recorder->name, paused ? "paused" : "recording",
			   recorder->options.monitor ? "flashmon" : recorder->main.name))
		fs_warn("ctl: cannot find this recorder: no folder for notes: %s", strerror(errno));
	return 0;
}

static int drain(struct fs_recorder *recorder, bool all)
{
	const uint64_t began = fs_now_ns(), interval = recorder->options.interval_ms * UINT64_C(1000000);

	if (recorder->options.monitor) {
		if ((all || !recorder->options.overwrite) &&
		    fs_monitor_drain(&recorder->monitor, &recorder->stream))
			return fs_recorder_stream_broken(recorder);
		return 0;
	}
	if ((all || !recorder->options.overwrite) &&
	    (fs_ring_drain(&recorder->main, &recorder->stream) ||
	     fs_ring_drain(&recorder->requests, &recorder->stream)))
		return fs_recorder_stream_broken(recorder);
	if (fs_ring_drain(&recorder->tasks, &recorder->stream))
		return fs_recorder_stream_broken(recorder);
	/* Events before names: what a full ring loses is lost, and most names can be found later. */
	fs_names_live(&recorder->names, fs_now_ns() - began > interval / 2, all ? UINT64_MAX : began);
	return recorder->stream.error ? fs_recorder_stream_broken(recorder) : 0;
}

/*
 * After -d SECONDS. A command runs on without being recorded: it belongs to the user. True if the recording ends now.
 */
static bool time_is_over(struct fs_recorder *recorder)
{
	recorder->ends_ns = 0;
	if (!recorder->command.pid)
		return true;
	return set_paused(recorder, true, "end of -d") != 0;
}

/* Until asked to stop, the command's end, or a failure (-1). */
static int loop(struct fs_recorder *recorder)
{
	uint64_t interval = recorder->options.interval_ms * UINT64_C(1000000);
	uint64_t next = fs_now_ns() + interval;
	struct fs_drain_priority *priority = &recorder->priority;

	/* Not before: the command would inherit it. */
	fs_drain_priority_init(priority);
	recorder->main.priority = priority;
	for (;;) {
		struct pollfd fds[] = {
			{ .fd = wake[0], .events = POLLIN },
			{ .fd = recorder->stream.fd, .events = 0 }, /* errors alone: the reader has gone */
		};
		uint64_t now = fs_now_ns();
		uint64_t due = recorder->ends_ns && recorder->ends_ns < next ? recorder->ends_ns : next;
		int timeout = due > now ? (int)((due - now + 999999) / 1000000) : 0;
		char bytes[64];

		if (poll(fds, ARRAY_SIZE(fds), timeout) > 0) {
			while (read(wake[0], bytes, sizeof(bytes)) > 0)
				;
			if (fds[1].revents & POLLERR && !recorder->stream.regular) {
				recorder->stream.error = EPIPE;
				return fs_recorder_stream_broken(recorder);
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
		if (recorder->ends_ns && now >= recorder->ends_ns && time_is_over(recorder))
			return recorder->command.pid ? -1 : 0;
		if (now >= next) {
			fs_drain_priority_begin(priority, next, interval);
			if (fs_flight(recorder)) {
				int done = fs_flight_look(recorder, &give_up);

				if (done)
					return done < 0 ? -1 : 0;
			} else if (drain(recorder, false)) {
				return -1;
			}
			/* As a request to stop: who started us sees the limit too, and asks a moment later. */
			if (recorder->stream.limited && !asked_stop) {
				asked_at = fs_now_ns();
				asked_stop = 1;
			}
			fs_filter_again(&recorder->filter, &recorder->main);
			if (recorder->options.progress && now >= recorder->progress_ns) {
				recorder->progress_ns = now + UINT64_C(1000000000);
				fs_recorder_progress(recorder);
			}
			next += interval;
			if (next < now)
				next = now + interval;
		}
	}
}

/* The reader of names needs no other rights than the recorder keeps. */
static void reader_rights(void *context)
{
	const struct fs_recorder *recorder = context;

	fs_rights_drop(&recorder->facts.tracefs, false, true);
}

static int record(struct fs_recorder *recorder)
{
	const struct fs_record_options *options = &recorder->options;

	if (fs_filter_check(&recorder->filter, options, recorder->error, sizeof(recorder->error)))
		return -1;
	if (fs_command_check(&recorder->command, recorder->error, sizeof(recorder->error)) ||
	    (!options->monitor && (fs_recorder_check_tracefs(recorder) || fs_recorder_check_memory(recorder) ||
				   fs_recorder_choose(recorder) || fs_recorder_check_events(recorder))) || fs_recorder_check_name(recorder))
		return -1;
	if (fs_state_write(recorder->name, "arming", recorder->group))
		fs_warn("ctl: will not find this recorder: no folder for notes: %s", strerror(errno));
	recorder->state_noted = true;
	if (options->monitor ? fs_recorder_plan_monitor(recorder) : fs_recorder_plan_probes(recorder))
		return -1;
	if (fs_flight(recorder) && fs_flight_check(recorder, &asked_stop))
		return -1;
	fs_filter_apply(&recorder->filter, &recorder->facts.tracefs, &recorder->wanted, &recorder->probes);
	if (fs_recorder_open_output(recorder, &asked_stop))
		return -1;
	recorder->stream.give_up = &give_up;
	recorder->stream.max_bytes = options->max_bytes;
	recorder->stream.least_free = options->least_free;
	fs_names_init(&recorder->names, options->paths, &recorder->stream);
	written = &recorder->stream.seq;
	if ((options->monitor ? fs_recorder_arm_monitor(recorder) : fs_recorder_arm(recorder)) ||
	    (fs_flight(recorder) ? fs_flight_begin(recorder) : fs_recorder_describe(recorder)))
		return -1;
	if (options->command && fs_command_start(&recorder->command, recorder->error, sizeof(recorder->error)))
		return -1;
	if (!options->monitor)
		fs_names_watch(&recorder->names, fs_flight(recorder) || options->overwrite);
	/* The command has been forked: it keeps what it was started with. */
	if (fs_rights_drop(&recorder->facts.tracefs, options->user != NULL,
			   options->paths != FS_NAMES_NONE && !options->monitor))
		fs_warn("capabilities: not given up: %s", strerror(errno));
	if (!options->monitor)
		fs_recorder_profile(recorder, recorder->hits, recorder->misses);
	if (set_paused(recorder, options->paused, NULL))
		return -1;
	if (fs_flight(recorder) && fs_ring_tracing(&recorder->tasks, true))
		return fs_recorder_broken(recorder, "tracing_on: %s", strerror(errno));
	if (options->seconds)
		recorder->ends_ns = fs_now_ns() + options->seconds * UINT64_C(1000000000);
	if (options->ready_fd >= 0) {
		if (write(options->ready_fd, "", 1) < 0)
			fs_warn("--ready-fd %d: %s", options->ready_fd, strerror(errno));
		close(options->ready_fd);
	}
	if (options->command &&
	    fs_command_release(&recorder->command, &recorder->stream, recorder->error, sizeof(recorder->error)))
		return *recorder->error ? -1 : fs_recorder_stream_broken(recorder);
	return loop(recorder);
}

/* Who gave -d counts on the end: names take a fifth of the time at most, but a second; without it as much as they may ever. */
static uint64_t names_limit_ns(uint64_t seconds)
{
	const uint64_t second = UINT64_C(1000000000), limit = seconds * second / 5;

	if (!seconds || limit > NAMES_MOST_S * second)
		return NAMES_MOST_S * second;
	return limit < second ? second : limit;
}

/* Nothing is written while files are looked for: that is no sign of a reader that has gone. */
static void names_frames(struct fs_recorder *recorder)
{
	alarm(0);
	fs_names_end(&recorder->names, &give_up, names_limit_ns(recorder->options.seconds));
	if (asked_stop) {
		written_at_alarm = recorder->stream.seq;
		alarm(STALLED_S);
	}
}

/* The rest of the stream, as far as it can be written. */
static int finish(struct fs_recorder *recorder, int failed)
{
	enum fs_end_reason reason = FS_END_COMPLETE;

	if (recorder->state_noted)
		fs_state_write(recorder->name, "stopping", recorder->main.name);
	fs_drain_priority_end(&recorder->priority);
	if (fs_flight(recorder) && !failed) {
		failed = fs_flight_finish(recorder, &give_up);
		if (!failed)
			return 0;
	}
	if (recorder->streaming) {
		fs_recorder_tracing(recorder, false);
		if (recorder->options.monitor)
			fs_monitor_tracing(&recorder->monitor, false);
		if (!failed || asked_stop)
			fs_command_end(&recorder->command, &recorder->stream, interrupted);
		if (recorder->tasks.name[0])
			fs_ring_tracing(&recorder->tasks, false);
		if (!recorder->stream.error && drain(recorder, true))
			failed = -1;
		if (!recorder->stream.error && !recorder->options.monitor)
			names_frames(recorder);
		/* The statistics have the losses: they are written even to a full disk. */
		if (fs_stream_again(&recorder->stream) && recorder->options.monitor)
			fs_recorder_monitor_stats(recorder);
		else if (fs_stream_again(&recorder->stream))
			fs_recorder_stats(recorder);
	}
	if (!recorder->stream.buffer)
		return failed;
	if (!failed && recorder->stream.error) {
		fs_recorder_stream_broken(recorder);
		failed = -1;
	}
	if (failed) {
		reason = FS_END_FAILURE;
		/* A reader learns why, even where arming failed before the first frame. */
		if ((recorder->streaming || !fs_recorder_hello(recorder)) &&
		    fs_stream_again(&recorder->stream))
			fs_frame_log(&recorder->stream, FS_LOG_ERROR, "%s", recorder->error);
	} else if (asked_stop) {
		reason = FS_END_SIGNAL;
	}
	if (fs_stream_again(&recorder->stream) && fs_frame_end(&recorder->stream, reason) &&
	    !failed) {
		fs_recorder_stream_broken(recorder);
		failed = -1;
	}
	return failed;
}

/* If the recorder fails (a full disk), the command runs on: it is the user's work. */
static void wait_for_command(struct fs_recorder *recorder)
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

static int undo(struct fs_recorder *recorder)
{
	struct fs_ring *const rings[] = { &recorder->main, &recorder->tasks, &recorder->requests };
	int failed = 0;
	unsigned int stuck = 0;

	if (recorder->options.monitor)
		fs_monitor_close(&recorder->monitor);
	/* Instances first: they hold the events enabled. */
	if (fs_flight_end(recorder))
		failed = fs_fail("tracefs: instance %s: %s; run flashscope-agent sweep", recorder->flight.watch.ring.name,
				 strerror(errno));
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

/* The exit status is the command's own. Our own failures have a status that few commands use. */
static int exit_code(const struct fs_recorder *recorder, int result)
{
	const struct fs_command *command = &recorder->command;

	if (!recorder->options.command || recorder->options.capture)
		return result || command->status <= 0 ? result : FS_EXIT_FAILURE;
	if (result)
		return FS_EXIT_OWN_FAILURE;
	return command->status > 0 ? command->status : 0;
}

/* The command that started the recorder writes what is recorded: its threads are the recorder's, too. */
static void own_parent(void)
{
	char path[FS_PATH_MAX];
	struct dirent *entry;
	uint64_t tid;
	DIR *dir = opendir(fs_path(path, sizeof(path), "/proc/%d/task", (int)getppid()));

	while (dir && (entry = readdir(dir)))
		if (fs_parse_u64(entry->d_name, INT32_MAX, &tid))
			fs_own_add((long)tid);
	if (dir)
		closedir(dir);
}

int cmd_record(int argc, char **argv)
{
	struct fs_recorder *recorder = fs_alloc(sizeof(*recorder));
	struct fs_swept swept;
	int result;

	fs_command_init(&recorder->command, &recorder->options);
	recorder->monitor.fd = -1;
	result = fs_record_options(argc, argv, &recorder->options);
	if (result)
		goto out;
	if (!recorder->options.output && !recorder->options.directory && isatty(STDOUT_FILENO)) {
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
	fs_facts_gather(&recorder->facts, FS_MOUNT_PRIVATE);
	if (!recorder->options.monitor)
		fs_own_add(fs_reader_start(&reader_rights, recorder));
	if (recorder->options.own_parent)
		own_parent();
	result = finish(recorder, record(recorder));
	if (result)
		result = fs_fail("%s", recorder->error);
	/* Before undo() reports the end: the kernel takes milliseconds to close the watch of file systems. */
	fs_names_free(&recorder->names);
	fs_reader_end();
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
	fs_filter_free(&recorder->filter);
out:
	result = exit_code(recorder, result);
	fs_record_options_free(&recorder->options);
	free(recorder);
	return result;
}
