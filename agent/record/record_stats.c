// SPDX-License-Identifier: Apache-2.0
/* FS_STATS: what the rings and the probes counted, and what was lost. */
#include "recorder.h"

#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

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

/* What may be wrong with filters that match nothing. */
static const char *why_nothing(const struct fs_record_options *options)
{
	for (size_t i = 0; i < options->pid_count; i++)
		if (!fs_starttime(options->pids[i]))
			return "its process has ended";
	return options->comm_count ? "is the name right, and was there any I/O?" : "was there any I/O?";
}

/* Filters that match nothing are reported: otherwise an empty recording would look like an idle system. */
static void matched_json(struct fs_recorder *recorder, struct fs_json *json)
{
	uint64_t events, lost;
	char text[200];

	fs_ring_counts(&recorder->main, &events, &lost);
	fs_json_u64(json, "matched", events);
	if (events)
		return;
	fs_filter_text(&recorder->filter, text, sizeof(text));
	fs_frame_log(&recorder->stream, FS_LOG_WARNING,
		     "no event matched %s while this was recorded; %s", text, why_nothing(&recorder->options));
}

void fs_recorder_progress(struct fs_recorder *recorder)
{
	struct fs_progress progress = { .time_ns = htole64(fs_now_ns()) };
	uint64_t events, lost, more = 0, more_lost = 0;

	if (recorder->options.monitor)
		return;
	fs_ring_counts(&recorder->main, &events, &lost);
	if (recorder->requests.name[0])
		fs_ring_counts(&recorder->requests, &more, &more_lost);
	progress.events = htole64(events + more);
	progress.lost = htole64(lost + more_lost);
	fs_frame(&recorder->stream, FS_PROGRESS, &progress, sizeof(progress), NULL, 0);
}

void fs_recorder_monitor_stats(struct fs_recorder *recorder)
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

void fs_recorder_stats(struct fs_recorder *recorder)
{
	uint64_t hits[ARRAY_SIZE(recorder->hits)], misses[ARRAY_SIZE(recorder->misses)];
	struct fs_json json = { 0 };
	uint64_t lost, tasks_lost;

	fs_recorder_profile(recorder, hits, misses);
	fs_json_object(&json, NULL);
	fs_json_array(&json, "instances");
	lost = fs_ring_stats(&recorder->main, &json);
	tasks_lost = fs_ring_stats(&recorder->tasks, &json);
	if (recorder->requests.name[0])
		lost += fs_ring_stats(&recorder->requests, &json);
	fs_json_array_end(&json);
	if (fs_filter_any(&recorder->filter))
		matched_json(recorder, &json);
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
		}
		fs_json_object_end(&json);
	}
	fs_json_array_end(&json);
	fs_crosscheck_json(&json, &recorder->crosscheck, !lost);
	mtd_health(&json);
	fs_cpu_pressure_json(&json);
	fs_json_object_end(&json);
	/* Lost events and missed calls are in the statistics, and are told from there. */
	if (tasks_lost)
		fs_frame_log(&recorder->stream, FS_LOG_WARNING,
			     "%" PRIu64 " starts and new names of tasks were lost: some tasks have no name; nothing else is lost",
			     tasks_lost);
	if (!lost && fs_crosscheck_mismatch(&recorder->crosscheck))
		fs_frame_log(&recorder->stream, FS_LOG_WARNING,
			     "programs: %" PRIu64 " seen, %" PRIu64 " expected; erases: %" PRIu64
			     " seen, %" PRIu64 " expected",
			     recorder->crosscheck.programs_seen, recorder->crosscheck.programs_expected,
			     recorder->crosscheck.erases_seen, recorder->crosscheck.erases_expected);
	fs_frame(&recorder->stream, FS_STATS, json.out.data, json.out.length, NULL, 0);
	fs_json_free(&json);
}
