/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PID 1 of a virtual board, in three files: init.c (mounts, the port, the steps
 * of the plan, power off), init_run.c (processes: run, spawn, the recorder),
 * init_verbs.c (all other verbs of a plan).
 */
#ifndef FLASHSCOPE_INIT_H
#define FLASHSCOPE_INIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "frame.h"
#include "plan.h"

/* A process that PID 1 has started. Its output is kept in unnamed files in /run. */
struct child {
	pid_t pid;
	int out; /* -1: not kept */
	int err;
	bool ended;
	int status; /* of waitpid, once ended */
	uint64_t begin_ns;
	uint64_t end_ns;
};

struct spawned {
	struct child child;
	struct fs_stream stream;
	struct spawned *next;
};

struct board {
	/*
	 * Where frames are written: first a file in memory, whose frames are sent
	 * when the port exists; then the port. It is opened once (a virtio port
	 * has one reader and writer), and only the recorder inherits it.
	 */
	int out;
	bool port;
	struct fs_stream self; /* source 0 */
	bool recording;
	struct child recorder;
	struct spawned *spawned;
	int in; /* stdin of the next `run`; -1: /dev/null */
};

/* A step that is being run. */
struct step {
	struct board *board;
	const struct plan_step *plan;
	struct fs_stream *stream; /* NULL for record-start: its source is the recorder's */
	uint64_t begin_ns;
	uint64_t end_ns; /* 0: when the verb returns */
	int status;	 /* for FS_EXIT; 0: 0, or 1 where the verb fails */
	char why[480];
};

/* `step->why` gets the text; returns -1. */
int step_fail(struct step *step, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* init_verbs.c */
int verb_plain(struct step *step);

/* init_run.c */
int verb_stdin(struct step *step);
int verb_run(struct step *step);
int verb_spawn(struct step *step);
int verb_record_start(struct step *step);
int verb_record_stop(struct step *step);
int verb_shell(struct step *step);
/* Ends every process, the recorder first, so that its events are kept. False: that failed. */
bool end_children(struct board *board, char *why, size_t size);

#endif
