/* SPDX-License-Identifier: Apache-2.0 */
/* The script of bench replay (docs/reference or docs/reference/replay-script.md: "The replay script"), read and checked. */
#ifndef FLASHSCOPE_REPLAY_SCRIPT_H
#define FLASHSCOPE_REPLAY_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REPLAY_MAX_FILES 65536u
#define REPLAY_MAX_TASKS 256u
#define REPLAY_MAX_CGROUPS 32u
/* Of a task, as the kernel keeps it (TASK_COMM_LEN), with its end. */
#define REPLAY_NAME 16u

enum replay_verb {
	REPLAY_READ,
	REPLAY_WRITE,
	REPLAY_FSYNC,
	REPLAY_FDATASYNC,
	REPLAY_OPEN,
	REPLAY_CREATE,
	REPLAY_CLOSE,
	REPLAY_UNLINK,
	REPLAY_RENAME,
	REPLAY_TRUNCATE,
	REPLAY_FAULT,
	REPLAY_FAULT_WRITE,
	REPLAY_VERBS,
};

struct replay_file {
	uint64_t size; /* that it is made with */
	uint64_t most; /* that any call makes of it */
	bool absent;   /* a call creates it */
};

struct replay_task {
	const char *label;
	char name[REPLAY_NAME];
	uint64_t start_ns;
	bool has_nice;
	int nice;
	int ionice;	/* class and level as ioprio_set() has them; -1: none */
	int cgroup;	/* its number; -1: none */
};

struct replay_setting {
	const char *file, *value;
	uint32_t cgroup;
};

struct replay_call {
	uint64_t time_ns, took_ns;
	uint64_t offset; /* truncate: the new size */
	uint32_t length; /* open, create: flags of open(); rename: the other file */
	uint32_t task, file;
	enum replay_verb verb;
};

struct replay_script {
	char *text; /* labels point into it */
	unsigned int version;
	struct replay_file *file;
	uint32_t files;
	struct replay_task *task;
	uint32_t tasks;
	const char **cgroup; /* names */
	uint32_t cgroups;
	struct replay_setting *setting;
	uint32_t settings;
	struct replay_call *call;
	size_t calls;
};

/* 0; 1 where the file cannot be read; 2 where a line of it cannot be, with the line on stderr. */
int replay_script_load(const char *path, struct replay_script *s);
void replay_script_free(struct replay_script *s);

#endif
