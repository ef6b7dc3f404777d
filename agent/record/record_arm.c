// SPDX-License-Identifier: Apache-2.0
/* Instances, probes and events of a recording: makes and enables them, and reads their counts. */
#include "recorder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

/* KiB a CPU: with less a recording is holes. */
#define SMALLEST_RING_KIB 64

/* Of the second instance: names of tasks. A fork and its renames take some 150 bytes. */
#define TASKS_RING_KIB 256
/*
 * ARM and x86 turn armed probes into jumps a moment later (kernel/kprobes.c:
 * OPTIMIZE_DELAY is 5 jiffies, then a grace period of RCU tasks).
 */
#define WARM_MS 500

static void refused(struct fs_recorder *recorder, const struct fs_probe *probe, const char *error)
{
	char event[96], why[128];

	snprintf(event, sizeof(event), "flashscope:%s", probe->event);
	snprintf(why, sizeof(why), "%.60s cannot be probed: %.40s", probe->symbol, error);
	fs_events_absent(&recorder->wanted, probe->group, event, why,
			 probe->loses ? probe->loses : "what this boundary tells");
}

static int define_probes(struct fs_recorder *recorder)
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
			fs_recorder_broken(recorder, "kprobe_events: \"%s\": %s; report this kernel",
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

static int enable_probes(struct fs_recorder *recorder)
{
	for (size_t i = 0; i < recorder->probes.count; i++) {
		const struct fs_probe *probe = &recorder->probes.items[i];

		if (i && !strcmp(probe->event, recorder->probes.items[i - 1].event))
			continue; /* a second probe of one event */
		if (fs_ring_enable(&recorder->main, recorder->group, probe->event, probe->filter))
			return fs_recorder_broken(recorder, "probe %s (%s): cannot be enabled: %s; filter %s",
				      probe->event, probe->symbol, strerror(errno),
				      probe->filter ? probe->filter : "none");
		fs_buf_printf(&recorder->events, "flashscope:%s\n", probe->event);
	}
	return 0;
}

/* In which instance an event is recorded. */
static struct fs_ring *ring_of(struct fs_recorder *recorder, const struct fs_event *event)
{
	return recorder->requests.name[0] && fs_filter_any_task(event->system, event->event) ? &recorder->requests :
											       &recorder->main;
}

static int enable_events(struct fs_recorder *recorder)
{
	for (size_t i = 0; i < recorder->wanted.count; i++) {
		const struct fs_event *event = &recorder->wanted.items[i];

		if (fs_ring_enable(ring_of(recorder, event), event->system, event->event, event->filter))
			return fs_recorder_broken(recorder, "event %s:%s: cannot be enabled: %s%s%.120s", event->system,
						  event->event ? event->event : "*", strerror(errno),
						  event->filter ? "; filter " : "", event->filter ? event->filter : "");
		fs_buf_printf(&recorder->events, "%s:%s\n", event->system, event->event ? event->event : "*");
	}
	return 0;
}

const char *const fs_task_events[FS_TASK_EVENTS][2] = {
	{ "task", "task_newtask" },
	{ "task", "task_rename" },
	{ "sched", "sched_process_exec" },
	{ "sched", "sched_process_fork" },
	{ "sched", "sched_process_exit" },
	{ "cgroup", "cgroup_attach_task" },
};

int fs_recorder_arm_monitor(struct fs_recorder *recorder)
{
	for (size_t i = 0; i < recorder->probes.count; i++)
		fs_buf_printf(&recorder->events, "flashscope:%s\n", recorder->probes.items[i].event);
	if (fs_monitor_begin(&recorder->monitor))
		return fs_recorder_broken(recorder, "flashmon: refuses a command: %s; see /proc/flashmon_status", strerror(errno));
	return 0;
}

uint64_t fs_recorder_files_kib(const struct fs_recorder *recorder)
{
	return (2u + fs_filter_tasks(&recorder->filter) + (recorder->options.trigger_count > 0)) *
	       fs_instance_files_kib(&recorder->facts.tracefs);
}

static uint64_t rings_of(const struct fs_recorder *recorder)
{
	return (uint64_t)fs_cpus_possible() * (fs_filter_tasks(&recorder->filter) ? 2 : 1);
}

/* Before the first instance: where memory ends, the kernel ends what others run. */
int fs_recorder_check_memory(struct fs_recorder *recorder)
{
	const uint64_t available = fs_available_to_kernel_kib();
	/* One more for the trial of probes, whose files the kernel gives back only after a while. */
	const uint64_t files = fs_recorder_files_kib(recorder) + fs_instance_files_kib(&recorder->facts.tracefs);
	const uint64_t needed = files + rings_of(recorder) * SMALLEST_RING_KIB + FS_MEMORY_LEFT_KIB;

	if (!available || available >= needed)
		return 0;
	return fs_recorder_broken(recorder,
				  "memory: %" PRIu64 " KiB are available to the kernel, and a recording takes %" PRIu64 " KiB here, %" PRIu64
				  " of them for files of tracefs (fewer from Linux 6.6 on); end something first",
				  available, needed, files);
}

/* KiB a CPU: the requested size, or a size that fits a small board. */
static int ring_size(struct fs_recorder *recorder, uint64_t *kib)
{
	const struct fs_record_options *options = &recorder->options;
	uint64_t rings = rings_of(recorder);
	uint64_t files = fs_recorder_files_kib(recorder) + FS_MEMORY_LEFT_KIB;
	uint64_t available = fs_available_bytes() >> 10, kernel = fs_available_to_kernel_kib(), most;

	*kib = fs_record_ring_kib(options, available, rings);
	if (!available)
		return 0;
	available = available > files ? available - files : 1;
	kernel = kernel > files ? kernel - files : 1;
	/* Half of what there is, and no more than rings can lie in. */
	most = available / 2 < kernel ? available / 2 : kernel;
	if (*kib * rings <= most)
		return 0;
	if (options->ring_given)
		return fs_recorder_broken(recorder,
					  "--ring: %" PRIu64 " KiB a CPU are %" PRIu64 " KiB, and this machine has %" PRIu64
					  " KiB available; ask for at most --ring %" PRIu64 "K",
					  *kib, *kib * rings, available, most / rings);
	*kib = most / 2 / rings < SMALLEST_RING_KIB ? SMALLEST_RING_KIB : most / 2 / rings;
	fs_warn("ring: %" PRIu64 " KiB a CPU instead of %" PRIu64 ": this machine has %" PRIu64 " KiB of memory available", *kib,
		options->ring_kib, available);
	return 0;
}

int fs_recorder_arm(struct fs_recorder *recorder)
{
	const struct fs_record_options *options = &recorder->options;
	const struct fs_tracefs *tracefs = &recorder->facts.tracefs;
	char *error = recorder->error;
	size_t size = sizeof(recorder->error);
	char tasks[112];

	const bool overwrite = options->overwrite || options->trigger_count;
	uint64_t kib;

	if (ring_size(recorder, &kib))
		return -1;
	recorder->options.ring_kib = kib;
	snprintf(tasks, sizeof(tasks), "%s.tasks", recorder->group);
	if (fs_ring_make(&recorder->main, tracefs, recorder->group, FS_INSTANCE_MAIN,
			 &recorder->facts.layout, kib, overwrite, error,
			 size) ||
	    fs_ring_make(&recorder->tasks, tracefs, tasks, FS_INSTANCE_TASKS,
			 &recorder->facts.layout, TASKS_RING_KIB, options->trigger_count > 0, error, size))
		return -1;
	if (fs_filter_tasks(&recorder->filter)) {
		char requests[112];

		snprintf(requests, sizeof(requests), "%s.requests", recorder->group);
		if (fs_ring_make(&recorder->requests, tracefs, requests, FS_INSTANCE_REQUESTS,
				 &recorder->facts.layout, kib, overwrite, error, size))
			return -1;
	}
	if (fs_filter_begin(&recorder->filter, &recorder->main, error, size))
		return -1;
	if (define_probes(recorder) || enable_probes(recorder) || enable_events(recorder))
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(fs_task_events); i++)
		if (fs_recorder_has_event(recorder, fs_task_events[i][0], fs_task_events[i][1]) &&
		    fs_ring_enable(&recorder->tasks, fs_task_events[i][0], fs_task_events[i][1], NULL))
			return fs_recorder_broken(recorder, "event %s: cannot be enabled: %s", fs_task_events[i][1],
				      strerror(errno));
	if (fs_ring_open(&recorder->main, error, size) ||
	    fs_ring_open(&recorder->tasks, error, size) ||
	    (recorder->requests.name[0] && fs_ring_open(&recorder->requests, error, size)))
		return -1;
	recorder->main.touched = recorder->requests.touched = recorder->tasks.touched = &recorder->names.paths.touched;
	if (options->flash) {
		recorder->crosscheck.list = &recorder->facts.mtd;
		recorder->main.crosscheck = &recorder->crosscheck;
	}
	if (recorder->probes.count)
		fs_sleep_ms(WARM_MS);
	return 0;
}

/* Hits and misses of each probe; misses[i] is UINT64_MAX if the kernel does not count them. */
void fs_recorder_profile(struct fs_recorder *recorder, uint64_t *hits, uint64_t *misses)
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
