/* SPDX-License-Identifier: Apache-2.0 */
/* Options of `record`, read and checked before anything is touched. */
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
	bool monitor; /* --from flashmon: the flash monitor's events, not tracefs' */
	bool flash;
	bool automatic; /* --events auto: what this machine has */
	unsigned int groups;	 /* enum fs_group */
	struct fs_events events; /* named one by one */
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
	bool own_parent; /* who started the recorder is the recorder, too */
	bool progress;	 /* FS_PROGRESS once a second */
	struct fs_trigger *triggers; /* --trigger: the flight recorder */
	size_t trigger_count;
	uint64_t before_s, after_s; /* kept of the time around a trigger */
	uint64_t captures;	    /* at most so many; 0: no end */
	const char *directory;	    /* of captures; NULL: stdout */
	uint64_t ring_kib;	    /* per CPU */
	bool ring_given;
	bool overwrite;	   /* --mode ring */
	uint64_t interval_ms;
	enum fs_names_mode paths; /* how paths of files are looked for */
	bool paths_given;
	bool paused;
	bool capture; /* the command's stdout goes into the stream */
	uint64_t source;
	int ready_fd; /* -1: none */
	const char *output; /* NULL: stdout */
	const char *user;   /* whom the command runs as; NULL: as the recorder */
	int stdio[3];	    /* the command's stdin, stdout, stderr; -1: the recorder's */
	char **command; /* NULL: none */
};

/* 0, or the exit code of an error that it has printed. */
int fs_record_options(int argc, char **argv, struct fs_record_options *options);
void fs_record_options_free(struct fs_record_options *options);

/*
 * KiB of a CPU's ring: what was asked for; else, in a stream, more where there is memory for it. A stream's ring has to hold one
 * interval, and a program that writes to the page cache at 1 GB/s makes more than 4 MiB of events in that.
 */
uint64_t fs_record_ring_kib(const struct fs_record_options *options, uint64_t available_kib, uint64_t rings);

#endif
