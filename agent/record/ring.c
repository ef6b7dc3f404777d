// SPDX-License-Identifier: Apache-2.0
#include "ring.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "util.h"

/*
 * Not through options/NAME: its open does not hold the instance (trace_options_core_fops in
 * kernel/trace/trace.c), and where another process removes it meanwhile, the write oopses with the
 * locks of all tracing held (seen on 6.18).
 */
int fs_ring_option(const struct fs_ring *ring, const char *option)
{
	return fs_tracefs_write(ring->tracefs, option, "instances/%s/trace_options", ring->name);
}

int fs_ring_make(struct fs_ring *ring, const struct fs_tracefs *tracefs, const char *name,
		 uint16_t instance, const struct fs_page_layout *layout, uint64_t kib,
		 bool overwrite, char *error, size_t size)
{
	char path[FS_PATH_MAX], number[32];
	uint64_t subbuf_kib;

	memset(ring, 0, sizeof(*ring));
	ring->tracefs = tracefs;
	ring->instance = instance;
	ring->layout = *layout;
	ring->kib = kib;
	fs_tracefs_path(tracefs, path, sizeof(path), "instances/%s", name);
	if (mkdir(path, 0700)) {
		snprintf(error, size, "%s: %s; is memory free, and tracefs writable?", path,
			 strerror(errno));
		return -1;
	}
	snprintf(ring->name, sizeof(ring->name), "%s", name);
	if (fs_tracefs_write(tracefs, "0", "instances/%s/tracing_on", name)) {
		snprintf(error, size, "%s/tracing_on: %s; run as root", path, strerror(errno));
		return -1;
	}
	if (fs_tracefs_write(tracefs, "mono", "instances/%s/trace_clock", name)) {
		snprintf(error, size, "%s/trace_clock: mono is refused: %s; flashscope needs Linux 3.17 or newer",
			 path, strerror(errno));
		return -1;
	}
	snprintf(number, sizeof(number), "%" PRIu64, kib);
	if (fs_tracefs_write(tracefs, number, "instances/%s/buffer_size_kb", name)) {
		snprintf(error, size, "ring: %" PRIu64 " KiB a CPU: %s; ask for less with --ring", kib,
			 strerror(errno));
		return -1;
	}
	if (fs_ring_option(ring, overwrite ? "overwrite" : "nooverwrite")) {
		snprintf(error, size, "%s/trace_options: overwrite is refused: %s; report this kernel",
			 path, strerror(errno));
		return -1;
	}
	/* Since 6.8 each instance has its own size; header_page has the top level's. */
	fs_tracefs_path(tracefs, path, sizeof(path), "instances/%s/buffer_subbuf_size_kb", name);
	if (fs_read_u64(path, &subbuf_kib) && subbuf_kib && subbuf_kib <= 512)
		ring->layout.size = (uint32_t)subbuf_kib * 1024;
	return 0;
}

int fs_ring_open(struct fs_ring *ring, char *error, size_t size)
{
	ring->cpus = fs_cpus_possible();
	ring->fds = fs_alloc((size_t)ring->cpus * sizeof(*ring->fds));
	for (int cpu = 0; cpu < ring->cpus; cpu++)
		ring->fds[cpu] = -1;
	for (int cpu = 0; cpu < ring->cpus; cpu++) {
		char path[FS_PATH_MAX];

		fs_tracefs_path(ring->tracefs, path, sizeof(path),
				"instances/%s/per_cpu/cpu%d/trace_pipe_raw", ring->name, cpu);
		ring->fds[cpu] = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		if (ring->fds[cpu] < 0 && errno != ENOENT && errno != ENODEV && errno != ENXIO) {
			snprintf(error, size, "%s: %s; raise the limit of open files, or report this kernel",
				 path, strerror(errno));
			return -1;
		}
	}
	return 0;
}

int fs_ring_enable(struct fs_ring *ring, const char *system, const char *event, const char *filter)
{
	if (!event)
		return fs_tracefs_write(ring->tracefs, "1", "instances/%s/events/%s/enable",
					ring->name, system);
	if (filter && fs_tracefs_write(ring->tracefs, filter, "instances/%s/events/%s/%s/filter",
				       ring->name, system, event))
		return -1;
	return fs_tracefs_write(ring->tracefs, "1", "instances/%s/events/%s/%s/enable", ring->name,
				system, event);
}

int fs_ring_tracing(struct fs_ring *ring, bool on)
{
	return fs_tracefs_write(ring->tracefs, on ? "1" : "0", "instances/%s/tracing_on",
				ring->name);
}

static void latest(void *data, uint64_t time_ns, const unsigned char *event, size_t length)
{
	uint64_t *last = data;

	(void)event;
	(void)length;
	*last = time_ns;
}

/* Whether a sub-buffer is of a capture's time; without the note of what was overwritten before it. */
static bool of_flight(const struct fs_ring *ring, unsigned char *subbuf, size_t *used)
{
	uint64_t last = 0;

	*used = fs_subbuf_forget_missed(subbuf, *used, &ring->layout);
	if (*used <= ring->layout.data_offset)
		return false;
	fs_subbuf_walk(subbuf, *used, &ring->layout, latest, &last);
	return last >= ring->since_ns;
}

void fs_ring_each(struct fs_ring *ring, fs_event_fn each, void *data)
{
	uint64_t most = ring->cpus ? ring->kib * 1024 / ring->layout.size + 2 : 0;
	unsigned char *subbuf = most ? fs_alloc(ring->layout.size) : NULL;

	for (int cpu = 0; cpu < ring->cpus; cpu++) {
		for (uint64_t i = 0; ring->fds[cpu] >= 0 && i < most; i++) {
			ssize_t got = read(ring->fds[cpu], subbuf, ring->layout.size);
			size_t used;

			if (got < 0 && errno == EINTR)
				continue;
			if (got <= 0)
				break;
			used = fs_subbuf_used(subbuf, (size_t)got, &ring->layout);
			if (each && used && used != (size_t)-1)
				fs_subbuf_walk(subbuf, used, &ring->layout, each, data);
		}
	}
	free(subbuf);
}

/* Writes a frame of length bytes, or keeps it if others are to be written with it. */
static int commit(struct fs_ring *ring, struct fs_stream *stream, size_t length)
{
	int result;

	if (stream->regular && stream->used + sizeof(struct fs_frame) + length >= FS_BATCH)
		fs_drain_priority_lift(ring->priority);
	result = fs_frame_commit(stream, FS_DATA_FOLDED, length);
	fs_drain_priority_lower(ring->priority);
	return result;
}

static int drain_cpus(struct fs_ring *ring, struct fs_stream *stream)
{
	/* A writer that is faster than this loop must not keep it here. */
	uint64_t most = ring->cpus ? ring->kib * 1024 / ring->layout.size + 2 : 0;

	for (int cpu = 0; cpu < ring->cpus; cpu++) {
		struct fs_data head = {
			.cpu = htole16((uint16_t)cpu),
			.instance = htole16(ring->instance),
		};

		if (ring->fds[cpu] < 0)
			continue;
		for (uint64_t i = 0; i < most; i++) {
			unsigned char *payload = fs_frame_payload(stream);
			unsigned char *subbuf = payload + sizeof(head);
			ssize_t got = read(ring->fds[cpu], subbuf, ring->layout.size);
			size_t used;

			if (got < 0 && errno == EINTR)
				continue;
			if (got <= 0)
				break;
			used = fs_subbuf_used(subbuf, (size_t)got, &ring->layout);
			if (!used) {
				ring->empty++;
				continue;
			}
			if (used == (size_t)-1) {
				ring->malformed++;
				continue;
			}
			if (ring->flight && !of_flight(ring, subbuf, &used))
				continue;
			ring->sub_buffers++;
			if (ring->crosscheck)
				fs_crosscheck_subbuf(ring->crosscheck, subbuf, used, &ring->layout);
			if (ring->touched)
				fs_touched_subbuf(ring->touched, subbuf, used, &ring->layout);
			memcpy(payload, &head, sizeof(head));
			if (commit(ring, stream, sizeof(head) + used))
				return -1;
			fs_drain_priority_check(ring->priority);
		}
	}
	return 0;
}

int fs_ring_drain(struct fs_ring *ring, struct fs_stream *stream)
{
	int result;

	/* Other producers may write between frames to a descriptor that is shared. */
	stream->batch = stream->max_frame == FS_MAX_FRAME;
	result = drain_cpus(ring, stream);
	stream->batch = false;
	if (stream->regular)
		fs_drain_priority_lift(ring->priority);
	if (fs_stream_flush(stream))
		result = -1;
	fs_drain_priority_lower(ring->priority);
	return result;
}

uint64_t fs_ring_stats(const struct fs_ring *ring, struct fs_json *json)
{
	uint64_t lost = ring->malformed;

	fs_json_object(json, NULL);
	fs_json_u64(json, "instance", ring->instance);
	fs_json_array(json, "cpu");
	for (int cpu = 0; cpu < ring->cpus; cpu++) {
		struct fs_cpu_stats stats;
		char *text;

		if (ring->fds[cpu] < 0)
			continue;
		text = fs_tracefs_read(ring->tracefs, "instances/%s/per_cpu/cpu%d/stats",
				       ring->name, cpu);
		fs_parse_cpu_stats(text ? text : "", &stats);
		free(text);
		/* What stays in the ring after the last draining is lost as well. */
		lost += (ring->flight ? 0 : stats.overrun + stats.entries) + stats.commit_overrun + stats.dropped;
		fs_json_object(json, NULL);
		fs_json_u64(json, "cpu", (uint64_t)cpu);
		if (ring->flight) { /* the others count from the arming on, not of this capture */
			fs_json_known(json, "overwritten", stats.has_overrun, stats.overrun);
			fs_json_known(json, "commit_overrun", stats.has_commit_overrun, stats.commit_overrun);
			fs_json_known(json, "dropped", stats.has_dropped, stats.dropped);
			fs_json_object_end(json);
			continue;
		}
		fs_json_known(json, "entries", stats.has_entries, stats.entries);
		fs_json_known(json, "overrun", stats.has_overrun, stats.overrun);
		fs_json_known(json, "commit_overrun", stats.has_commit_overrun, stats.commit_overrun);
		fs_json_known(json, "dropped", stats.has_dropped, stats.dropped);
		fs_json_known(json, "read", stats.has_read, stats.read);
		fs_json_known(json, "bytes", stats.has_bytes, stats.bytes);
		fs_json_object_end(json);
	}
	fs_json_array_end(json);
	fs_json_u64(json, "sub_buffers", ring->sub_buffers);
	fs_json_u64(json, "malformed", ring->malformed);
	fs_json_object_end(json);
	return lost;
}

void fs_ring_counts(const struct fs_ring *ring, uint64_t *events, uint64_t *lost)
{
	*events = *lost = 0;
	for (int cpu = 0; cpu < ring->cpus; cpu++) {
		struct fs_cpu_stats stats;
		char *text;

		if (ring->fds[cpu] < 0)
			continue;
		text = fs_tracefs_read(ring->tracefs, "instances/%s/per_cpu/cpu%d/stats", ring->name, cpu);
		fs_parse_cpu_stats(text ? text : "", &stats);
		free(text);
		*events += stats.entries + stats.read;
		*lost += stats.overrun + stats.commit_overrun + stats.dropped;
	}
}

int fs_ring_remove(struct fs_ring *ring)
{
	char path[FS_PATH_MAX];
	int result = 0;

	for (int cpu = 0; cpu < ring->cpus; cpu++)
		if (ring->fds[cpu] >= 0)
			close(ring->fds[cpu]);
	free(ring->fds);
	ring->fds = NULL;
	ring->cpus = 0;
	if (ring->name[0]) {
		fs_tracefs_path(ring->tracefs, path, sizeof(path), "instances/%s", ring->name);
		result = rmdir(path);
		if (!result || errno == ENOENT)
			ring->name[0] = '\0';
	}
	return result;
}
