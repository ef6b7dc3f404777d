/* SPDX-License-Identifier: Apache-2.0 */
/* Options of `record`, checked before the recorder changes anything. */
#ifndef FLASHSCOPE_OPTIONS_H
#define FLASHSCOPE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "groups.h"
#include "names.h"
#include "probe_points.h"

struct fs_trigger;

struct fs_record_options {
	const char *name; /* NULL: the pid */
	bool monitor; /* --from flashmon: events of the flash monitor instead of tracefs */
	bool flash;
	bool automatic; /* --events auto: all groups that this machine has */
	unsigned int groups;	 /* enum fs_group */
	struct fs_events events; /* single events by name */
	struct fs_details details;
	int *mtd;
	size_t mtd_count;
	const char **devices; /* --device */
	size_t device_count;
	int *pids; /* --pid */
	size_t pid_count;
	const char **cgroups; /* --cgroup */
	size_t cgroup_count;
	const char **comms; /* --comm */
	size_t comm_count;
	uint64_t seconds; /* -d; 0: no end */
	uint64_t max_bytes, least_free; /* of a stream that is a file: it ends the recording; 0: no limit */
	bool own_parent; /* events of the recorder's parent are left out, too */
	bool progress;	 /* FS_PROGRESS once a second */
	struct fs_trigger *triggers; /* --trigger: the flight recorder */
	size_t trigger_count;
	uint64_t before_s, after_s; /* seconds kept before and after a trigger */
	uint64_t captures;	    /* limit; 0: none */
	const char *directory;	    /* for captures; NULL: stdout */
	uint64_t ring_kib;	    /* per CPU */
	bool ring_given;
	bool overwrite;	   /* --mode ring */
	uint64_t interval_ms;
	enum fs_names_mode paths; /* how paths of files are found */
	bool paths_given;
	bool paused;
	bool capture; /* the command's stdout is written to the stream */
	uint64_t source;
	int ready_fd; /* -1: none */
	const char *output; /* NULL: stdout */
	const char *user;   /* user of the command; NULL: the recorder's */
	int stdio[3];	    /* the command's stdin, stdout, stderr; -1: the recorder's */
	char **command; /* NULL: none */
};

/* Returns 0, or an exit code after printing an error. */
int fs_record_options(int argc, char **argv, struct fs_record_options *options);
void fs_record_options_free(struct fs_record_options *options);

/*
 * Ring size per CPU in KiB: the requested one; else, in a stream, larger if memory allows. A stream's ring has to hold the events of
 * one interval; a program that writes 1 GB/s to the page cache causes more than 4 MiB of events in that time.
 */
uint64_t fs_record_ring_kib(const struct fs_record_options *options, uint64_t available_kib, uint64_t rings);

#endif
