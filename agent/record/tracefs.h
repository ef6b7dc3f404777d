/* SPDX-License-Identifier: Apache-2.0 */
/* Tracefs: where it is, instances, kprobe events, ring statistics. */
#ifndef FLASHSCOPE_TRACEFS_H
#define FLASHSCOPE_TRACEFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util.h"

struct fs_tracefs {
	char path[128]; /* empty: none that can be used */
	char shown[128]; /* the same for people: where it is mounted for us alone, where it would be */
	bool private_mount; /* mounted by this process, seen by nobody else */
	char error[200]; /* why; empty where path is set */
	bool instances;
	bool kprobe_events;
};

enum fs_tracefs_mount {
	FS_MOUNT_NEVER,
	FS_MOUNT_PRIVATE, /* in a mount namespace of its own: nobody else sees it, and it goes with this process */
	FS_MOUNT_HERE,	  /* at /sys/kernel/tracing, for everyone: PID 1 of a virtual board */
};

/*
 * Looks for a mounted tracefs (/proc/self/mounts, then the usual two places),
 * and mounts one where there is none and `mount` says so.
 */
bool fs_tracefs_find(struct fs_tracefs *tracefs, enum fs_tracefs_mount mount);

/* path of a file below tracefs */
const char *fs_tracefs_path(const struct fs_tracefs *tracefs, char *out, size_t size,
			    const char *format, ...) __attribute__((format(printf, 4, 5)));
int fs_tracefs_write(const struct fs_tracefs *tracefs, const char *text, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
char *fs_tracefs_read(const struct fs_tracefs *tracefs, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Adds one definition ("p:group/name symbol …"), or removes one ("-:group/name"). */
int fs_kprobe(const struct fs_tracefs *tracefs, const char *definition);
/* Removes every event of a group. Number removed; *failed counts what stays. */
unsigned int fs_kprobe_remove_group(const struct fs_tracefs *tracefs, const char *group,
				    unsigned int *failed);

/* Layout of a sub-buffer, from events/header_page. */
struct fs_page_layout {
	uint8_t long_size;   /* of the kernel */
	uint32_t data_offset;
	uint32_t size; /* of a sub-buffer, header included */
};
bool fs_parse_header_page(const char *text, struct fs_page_layout *layout);

/*
 * Bytes of a sub-buffer that hold something: header, committed events and,
 * where the kernel stored one behind them, the count of missed events.
 * 0 where it is empty, (size_t)-1 where it is not a sub-buffer.
 */
size_t fs_subbuf_used(const unsigned char *subbuf, size_t size, const struct fs_page_layout *layout);

/* Calls `each` for every event of a sub-buffer: its time, and its bytes from common_type on. */
typedef void (*fs_event_fn)(void *data, uint64_t time_ns, const unsigned char *event, size_t length);
void fs_subbuf_walk(const unsigned char *subbuf, size_t used, const struct fs_page_layout *layout, fs_event_fn each,
		    void *data);
/* Of a ring that overwrites: events were lost before this sub-buffer, and that is no loss. New used bytes. */
size_t fs_subbuf_forget_missed(unsigned char *subbuf, size_t used, const struct fs_page_layout *layout);

/* per_cpu/cpuN/stats; a value that the kernel does not give stays false. */
struct fs_cpu_stats {
	uint64_t entries, overrun, commit_overrun, bytes, dropped, read;
	bool has_entries, has_overrun, has_commit_overrun, has_bytes, has_dropped, has_read;
};
void fs_parse_cpu_stats(const char *text, struct fs_cpu_stats *stats);

/*
 * Sums over the probes of group/event. kprobe_profile tells names without
 * groups, so its lines are paired with those of kprobe_events: both walk one
 * list (kernel/trace/trace_kprobe.c). False where they do not pair (the list
 * changed in between: read both again) or the event is not there.
 */
bool fs_parse_kprobe_profile(const char *events, const char *profile, const char *group,
			     const char *event, uint64_t *hits, uint64_t *misses);

/* What is left to the rest of the machine. */
#define FS_MEMORY_LEFT_KIB 8192
/* KiB that the kernel takes for the files of one more instance: before Linux 6.6 (fs/tracefs/event_inode.c) it keeps those of every event. */
uint64_t fs_instance_files_kib(const struct fs_tracefs *tracefs);

#endif
