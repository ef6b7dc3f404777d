/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan language of a virtual board: what PID 1 runs. Its grammar and its
 * verbs are in docs/reference/boot-plan.md.
 *
 * A plan is parsed as a whole before its first step runs: nothing of a malformed
 * plan is run.
 */
#ifndef FLASHSCOPE_PLAN_H
#define FLASHSCOPE_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum plan_verb {
	PLAN_MODULE,
	PLAN_MKDIR,
	PLAN_MOUNT,
	PLAN_UMOUNT,
	PLAN_WRITE,
	PLAN_HOSTNAME,
	PLAN_DEVICE_WAIT,
	PLAN_UBI_ATTACH,
	PLAN_UBI_MKVOL,
	PLAN_UBI_WRITE,
	PLAN_UBI_BLOCK,
	PLAN_UBI_DETACH,
	PLAN_NAND_ERASE,
	PLAN_NAND_WRITE,
	PLAN_NAND_MARKBAD,
	PLAN_DISK_WRITE,
	PLAN_CREATE,
	PLAN_SETTLE,
	PLAN_SLEEP,
	PLAN_RECORD_START,
	PLAN_RECORD_STOP,
	PLAN_PHASE_BEGIN,
	PLAN_PHASE_END,
	PLAN_STDIN,
	PLAN_RUN,
	PLAN_SPAWN,
	PLAN_GET,
	PLAN_NET,
	PLAN_SHELL,
};

/* Limits of a plan. A larger plan is refused, not cut. */
#define PLAN_MAX_BYTES (1u << 20)
#define PLAN_MAX_WORDS 256u
#define PLAN_MAX_STEPS 65535u /* a step's number is the 16-bit source of its frames */

struct plan_step {
	unsigned int number; /* from 1, counted over verbs: the source of its frames */
	unsigned int line;   /* of the plan's text, from 1 */
	bool may_fail;	     /* the line began with '-' */
	enum plan_verb verb;
	const char *verb_name;
	char *text;  /* the line as written, without its '-' */
	int argc;    /* arguments; the verb is not one of them */
	char **argv; /* percent-unescaped, NULL after the last */
};

struct plan {
	struct plan_step *steps;
	size_t count;
};

struct plan_error {
	unsigned int line;
	char text[160];
};

/* Parse `length` bytes of `text`. 0, or -1 with `error` filled and `plan` empty. */
int plan_parse(const char *text, size_t length, struct plan *plan, struct plan_error *error);
void plan_free(struct plan *plan);

/*
 * Replace %XX escapes of `word` in place. 0, or -1 for an escape that is not two
 * hexadecimal digits or that is %00.
 */
int plan_unescape(char *word);

/* A decimal number without sign that fits. 0, or -1. */
int plan_number(const char *word, uint64_t *value);

#endif
