/* SPDX-License-Identifier: Apache-2.0 */
/* Tracefs: where it is, instances, kprobe events, ring statistics. */
#ifndef FLASHSCOPE_TRACEFS_H
#define FLASHSCOPE_TRACEFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util.h"

struct fs_tracefs {
	char path[128]; /* empty: there is no usable tracefs */
	char shown[128]; /* for messages: of a private mount, the usual place */
	bool private_mount; /* mounted by this process, seen by nobody else */
	char error[256]; /* why path is empty */
	bool instances;
	bool kprobe_events;
};

enum fs_tracefs_mount {
	FS_MOUNT_NEVER,
	FS_MOUNT_PRIVATE, /* in a mount namespace of its own: other processes do not see it, and it ends with this one */
	FS_MOUNT_HERE,	  /* at /sys/kernel/tracing, for everyone: PID 1 of a virtual board */
};

/*
 * Looks for a mounted tracefs (/proc/self/mounts, then the two usual places).
 * Mounts one if there is none and `mount` allows it.
 */
bool fs_tracefs_find(struct fs_tracefs *tracefs, enum fs_tracefs_mount mount);

/* Writes the path of a file below tracefs into `out`, and returns it. */
const char *fs_tracefs_path(const struct fs_tracefs *tracefs, char *out, size_t size,
			    const char *format, ...) __attribute__((format(printf, 4, 5)));
int fs_tracefs_write(const struct fs_tracefs *tracefs, const char *text, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
char *fs_tracefs_read(const struct fs_tracefs *tracefs, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Adds one definition ("p:group/name symbol …"), or removes one ("-:group/name"). */
int fs_kprobe(const struct fs_tracefs *tracefs, const char *definition);
/* Removes every event of a group. Returns how many were removed; *failed: how many could not be. */
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
 * Returns the used bytes of a sub-buffer: header, committed events and, if the
 * kernel has stored it behind them, the count of missed events. 0: it is empty.
 * (size_t)-1: it is no sub-buffer.
 */
size_t fs_subbuf_used(const unsigned char *subbuf, size_t size, const struct fs_page_layout *layout);

/* True if the kernel lost events between the previous sub-buffer and this one. */
bool fs_subbuf_missed(const unsigned char *subbuf, const struct fs_page_layout *layout);

/* Calls `each` for every event of a sub-buffer: its time, and its bytes from common_type on. */
typedef void (*fs_event_fn)(void *data, uint64_t time_ns, const unsigned char *event, size_t length);
void fs_subbuf_walk(const unsigned char *subbuf, size_t used, const struct fs_page_layout *layout, fs_event_fn each,
		    void *data);
/* Removes the count of missed events: a ring that overwrites the oldest ones loses none by that. Returns the used bytes. */
size_t fs_subbuf_forget_missed(unsigned char *subbuf, size_t used, const struct fs_page_layout *layout);

/* per_cpu/cpuN/stats. has_NAME is false if this kernel does not give the value. */
struct fs_cpu_stats {
	uint64_t entries, overrun, commit_overrun, bytes, dropped, read;
	bool has_entries, has_overrun, has_commit_overrun, has_bytes, has_dropped, has_read;
};
void fs_parse_cpu_stats(const char *text, struct fs_cpu_stats *stats);

/*
 * Adds up hits and misses of all probes of group/event. kprobe_profile has names
 * without groups, so its lines are paired with those of kprobe_events: both
 * follow one list (kernel/trace/trace_kprobe.c). False: the lines do not match,
 * because the list has changed in between (read both again), or the event does
 * not exist.
 */
bool fs_parse_kprobe_profile(const char *events, const char *profile, const char *group,
			     const char *event, uint64_t *hits, uint64_t *misses);

/* Memory that a recording leaves to other programs. */
#define FS_MEMORY_LEFT_KIB 8192
/* Kernel memory for the files of one more instance. Before Linux 6.6 (fs/tracefs/event_inode.c) it holds the files of every event. */
uint64_t fs_instance_files_kib(const struct fs_tracefs *tracefs);

#endif
