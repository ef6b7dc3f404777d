// SPDX-License-Identifier: Apache-2.0
#include "flight.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "notes.h"
#include "output.h"
#include "util.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

#define SECOND UINT64_C(1000000000)
/* What the task of a sync has open when it fires. */
#define FIRED_NS UINT64_C(5000000)
/* flashscope-0001.stream; what is not whole yet ends with PARTIAL. */
#define CAPTURE "flashscope-"
#define PARTIAL ".partial"

bool fs_flight(const struct fs_recorder *recorder)
{
	return recorder->options.trigger_count > 0;
}

/* Shared with the helper that looks. */
struct captures {
	char directory[FS_PATH_MAX];
	unsigned int there;
	unsigned int number; /* the highest */
	bool taken;	     /* by another recorder */
};

/* Counts captures of earlier runs, and removes what a power cut left of one. Returns the directory, locked. */
static int look_for_captures(void *context)
{
	struct captures *captures = context;
	const char *directory = captures->directory;
	char name[NAME_MAX + 1];
	struct dirent *entry;
	int place, lock;
	DIR *dir;

	/* Where somebody else's link leads, root would remove and write files. */
	place = fs_open_place(directory, name);
	if (place >= 0)
		close(place);
	if ((place < 0 && errno == EPERM) || fs_mkdirs(directory, 0700) || access(directory, W_OK) ||
	    !(dir = opendir(directory)))
		return -1;
	/* Held until the recorder ends. Two of them would remove each other's captures that are not whole yet. */
	lock = fcntl(dirfd(dir), F_DUPFD_CLOEXEC, 3);
	captures->taken = lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
	while (lock >= 0 && !captures->taken && (entry = readdir(dir))) {
		char path[FS_PATH_MAX + 258], end[16] = "";
		unsigned int number;

		if (sscanf(entry->d_name, CAPTURE "%u%15s", &number, end) != 2)
			continue;
		snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
		if (!strcmp(end, ".stream" PARTIAL)) {
			unlink(path);
		} else if (!strcmp(end, ".stream")) {
			captures->there++;
			if (number > captures->number)
				captures->number = number;
		}
	}
	closedir(dir);
	return lock;
}

int fs_flight_check(struct fs_recorder *recorder, const volatile sig_atomic_t *stop)
{
	const char *directory = recorder->options.directory;
	struct fs_flight *flight = &recorder->flight;
	struct captures *captures;
	bool taken;
	int lock;

	if (!directory)
		return 0;
	captures = mmap(NULL, sizeof(*captures), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (captures == MAP_FAILED)
		return fs_recorder_broken(recorder, "--directory %s: %s", directory, strerror(errno));
	snprintf(captures->directory, sizeof(captures->directory), "%s", directory);
	lock = fs_output_attempt(directory, look_for_captures, captures, stop);
	flight->there = captures->there;
	flight->number = captures->number;
	taken = captures->taken;
	if (lock < 0 && errno == EINTR)
		fs_recorder_broken(recorder, "--directory %s: ended by a signal while waiting for it; name another", directory);
	else if (lock < 0)
		fs_recorder_broken(recorder, "--directory %s: cannot be written: %s; name another", directory,
				   strerror(errno));
	munmap(captures, sizeof(*captures));
	if (taken)
		return fs_recorder_broken(recorder, "--directory %s: another recorder writes its captures there; name another",
					  directory);
	if (lock < 0)
		return -1;
	if (recorder->options.captures && flight->there >= recorder->options.captures)
		return fs_recorder_broken(recorder, "--captures %" PRIu64 ": %s has %u already; move them away, or ask for more",
					  recorder->options.captures, directory, flight->there);
	return 0;
}

int fs_flight_begin(struct fs_recorder *recorder)
{
	const struct fs_record_options *options = &recorder->options;
	struct fs_flight *flight = &recorder->flight;
	uint64_t cpus = (uint64_t)fs_cpus_possible();
	char name[112], text[300];

	snprintf(name, sizeof(name), "%s.watch", recorder->group);
	if (fs_watch_begin(&flight->watch, options->triggers, options->trigger_count, &recorder->facts.tracefs,
			   &recorder->facts.layout, name, &recorder->filter, recorder->error, sizeof(recorder->error)))
		return -1;
	recorder->main.flight = recorder->tasks.flight = recorder->requests.flight = true;
	flight->memory_kib = cpus * (recorder->main.kib + recorder->tasks.kib + flight->watch.ring.kib +
				     (recorder->requests.name[0] ? recorder->requests.kib : 0));
	snprintf(text, sizeof(text),
		 "flight recorder armed: the rings of %" PRIu64 " CPUs take %" PRIu64 " KiB of memory, and files of tracefs for them %"
		 PRIu64 " KiB; they keep what fits, at most %" PRIu64 " s before a trigger and %" PRIu64 " s after it",
		 cpus, flight->memory_kib, fs_recorder_files_kib(recorder), options->before_s, options->after_s);
	if (options->directory) {
		fprintf(stderr, "flashscope-agent: %s\n", text);
		return 0;
	}
	/* A stream without a recording: for who waits. */
	if (fs_recorder_hello(recorder) || fs_frame_log(&recorder->stream, FS_LOG_INFO, "%s", text) ||
	    fs_frame_end(&recorder->stream, FS_END_COMPLETE))
		return fs_recorder_stream_broken(recorder);
	recorder->streaming = false;
	return 0;
}

void fs_flight_json(struct fs_json *json, const struct fs_recorder *recorder)
{
	const struct fs_flight *flight = &recorder->flight;

	if (!fs_flight(recorder)) {
		fs_json_null(json, "trigger");
		return;
	}
	fs_json_object(json, "trigger");
	fs_json_array(json, "armed");
	for (size_t i = 0; i < recorder->options.trigger_count; i++)
		fs_json_string(json, NULL, recorder->options.triggers[i].text);
	fs_json_array_end(json);
	fs_json_string(json, "reason", flight->watch.reason);
	fs_json_u64(json, "fired_ns", flight->watch.fired_ns);
	fs_json_u64(json, "times", flight->watch.times);
	fs_json_u64(json, "capture", flight->number);
	fs_json_u64(json, "captures_lost", flight->lost);
	fs_json_u64(json, "before_s", recorder->options.before_s);
	fs_json_u64(json, "after_s", recorder->options.after_s);
	fs_json_u64(json, "memory_kib", flight->memory_kib);
	fs_json_object_end(json);
}

static int trace_again(struct fs_recorder *recorder)
{
	if (fs_recorder_tracing(recorder, true) || fs_ring_tracing(&recorder->tasks, true))
		return fs_recorder_broken(recorder, "tracing_on: %s", strerror(errno));
	return 0;
}

/* The frames of one capture. Tracing is off until the rings are read. */
static int write_capture(struct fs_recorder *recorder, const volatile int *stop)
{
	struct fs_ring *const rings[] = { &recorder->main, &recorder->requests, &recorder->tasks };
	const struct fs_watch *watch = &recorder->flight.watch;
	uint64_t before = recorder->options.before_s * SECOND;
	int result;

	recorder->streaming = false;
	if (fs_recorder_describe(recorder))
		return -1;
	fs_ring_tracing(&recorder->tasks, false);
	for (size_t i = 0; i < ARRAY_SIZE(rings); i++) {
		rings[i]->since_ns = watch->began_ns > before ? watch->began_ns - before : 0;
		if (fs_ring_drain(rings[i], &recorder->stream))
			return fs_recorder_stream_broken(recorder);
	}
	if (fs_frame_phase(&recorder->stream, watch->fired_ns, FS_PHASE_MARK, 0, watch->reason))
		return fs_recorder_stream_broken(recorder);
	fs_frame_log(&recorder->stream, FS_LOG_INFO, "trigger: %s (fired %u times until this was written)", watch->reason,
		     watch->times);
	if (trace_again(recorder))
		return -1;
	fs_names_capture_end(&recorder->names, stop);
	fs_recorder_stats(recorder);
	result = fs_frame_end(&recorder->stream, FS_END_COMPLETE);
	recorder->streaming = false;
	return result ? fs_recorder_stream_broken(recorder) : 0;
}

/* What could not be read into a capture must not be the past of the next one. */
static void empty_rings(struct fs_recorder *recorder)
{
	fs_ring_each(&recorder->main, NULL, NULL);
	fs_ring_each(&recorder->requests, NULL, NULL);
	fs_ring_each(&recorder->tasks, NULL, NULL);
}

/* To a name that nothing has: fs/fat and kernels before 3.15 lack the flag. */
static int rename_new(const char *from, const char *to)
{
	if (!syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE))
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -1;
	if (!access(to, F_OK)) {
		errno = EEXIST;
		return -1;
	}
	return rename(from, to);
}

/* Its name survives a power cut too. Some file systems cannot do that: the capture is no worse for it. */
static void sync_directory(const char *directory)
{
	int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return;
	fsync(fd);
	close(fd);
}

static int open_partial(void *partial)
{
	/* What a killed recorder left, or others put there: it is removed, not written to. */
	unlink(partial);
	return open(partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* A capture as a file: whole under its name, or not there. */
static int capture_file(struct fs_recorder *recorder, const volatile int *stop)
{
	char path[FS_PATH_MAX], partial[FS_PATH_MAX + sizeof(PARTIAL)];
	int fd, result;

	snprintf(path, sizeof(path), "%s/" CAPTURE "%04u.stream", recorder->options.directory, recorder->flight.number);
	snprintf(partial, sizeof(partial), "%s" PARTIAL, path);
	fd = fs_output_attempt(partial, open_partial, partial, stop);
	if (fd < 0 && errno == EINTR)
		return fs_recorder_broken(recorder, "%s: ended by a signal while waiting for it to open", partial);
	if (fd < 0)
		return fs_recorder_broken(recorder, "%s: %s", partial, strerror(errno));
	fs_stream_init(&recorder->stream, fd, 0);
	result = write_capture(recorder, stop);
	if (!result && fsync(fd))
		result = fs_recorder_broken(recorder, "%s: %s", partial, strerror(errno));
	if (close(fd) && !result)
		result = fs_recorder_broken(recorder, "%s: %s", partial, strerror(errno));
	fs_stream_free(&recorder->stream);
	memset(&recorder->stream, 0, sizeof(recorder->stream));
	recorder->stream.fd = -1;
	if (!result && rename_new(partial, path))
		result = fs_recorder_broken(recorder, "%s: %s", path, strerror(errno));
	if (result) {
		unlink(partial);
		return result;
	}
	sync_directory(recorder->options.directory);
	fprintf(stderr, "flashscope-agent: %s: %s\n", path, recorder->flight.watch.reason);
	return 0;
}

static bool has_all_captures(const struct fs_recorder *recorder)
{
	return recorder->options.captures && recorder->flight.there >= recorder->options.captures;
}

static int capture(struct fs_recorder *recorder, const volatile int *stop)
{
	struct fs_flight *flight = &recorder->flight;
	int result;

	/*
	 * Names of tasks are recorded until all running tasks are described. A task that ends before has its name from
	 * there.
	 */
	fs_recorder_tracing(recorder, false);
	flight->number++;
	if (recorder->options.directory) {
		result = capture_file(recorder, stop);
		if (result) {
			/* A full disk is no reason to stop watching: the next one may fit. */
			fs_warn("capture %u (%s) is lost: %s", flight->number, flight->watch.reason, recorder->error);
			flight->number--;
			flight->lost++;
			empty_rings(recorder);
			result = 0;
		} else {
			flight->there++;
		}
	} else {
		int fd = recorder->stream.fd;
		const volatile sig_atomic_t *give_up = recorder->stream.give_up;

		fs_stream_free(&recorder->stream);
		fs_stream_init(&recorder->stream, fd, (uint16_t)recorder->options.source);
		recorder->stream.give_up = give_up;
		result = write_capture(recorder, stop);
		flight->there += !result;
	}
	fs_names_again(&recorder->names);
	fs_watch_again(&flight->watch);
	if (result || trace_again(recorder))
		return -1;
	return has_all_captures(recorder);
}

int fs_flight_look(struct fs_recorder *recorder, const volatile int *stop)
{
	struct fs_watch *watch = &recorder->flight.watch;
	const bool fired = watch->fired;

	fs_watch_look(watch);
	fs_names_look(&recorder->names);
	/* Its file may be gone when the capture is written, and the task too. */
	if (!fired && watch->fired && watch->task && recorder->options.paths != FS_NAMES_NONE)
		fs_paths_of_task(&recorder->names.paths, (int32_t)watch->task, FIRED_NS);
	if (!watch->fired || fs_now_ns() < watch->fired_ns + recorder->options.after_s * SECOND)
		return 0;
	return capture(recorder, stop);
}

int fs_flight_finish(struct fs_recorder *recorder, const volatile int *stop)
{
	/* What fires while the last capture is written is one too many. */
	if (!recorder->flight.watch.ring.name[0] || has_all_captures(recorder))
		return 0;
	fs_watch_look(&recorder->flight.watch);
	return recorder->flight.watch.fired && capture(recorder, stop) < 0 ? -1 : 0;
}

int fs_flight_end(struct fs_recorder *recorder)
{
	return fs_watch_end(&recorder->flight.watch);
}
