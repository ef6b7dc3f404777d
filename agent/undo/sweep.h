/* SPDX-License-Identifier: Apache-2.0 */
/* The undo log: finds what killed runs left behind, and restores or removes it. */
#ifndef FLASHSCOPE_SWEEP_H
#define FLASHSCOPE_SWEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "json.h"
#include "owner.h"

struct fs_swept {
	unsigned int instances;
	unsigned int probes;
	unsigned int knobs;
	unsigned int files;
	unsigned int failed; /* of a dead owner, but could not be undone */
	unsigned int elsewhere; /* of other PID namespaces: not touched */
	struct fs_json *left; /* an object is added for each knob that was changed since; NULL: a warning instead */
};

/* Undoes what dead owners left. Never fails: what cannot be undone is counted, with a warning. */
void fs_sweep(struct fs_swept *swept);

/* Creates the directory of undo notes if needed (/run/flashscope, else one under /tmp). NULL with errno on failure. */
const char *fs_run_dir(void);

/* 1 GiB. The kernel accepts any number; a larger window is a typing error. */
#define FS_MOST_READ_AHEAD_KIB (1ul << 20)

/* True for read_ahead_kb, nr_requests and scheduler under /sys: only these are changed or restored. */
bool fs_is_knob(const char *path);
bool fs_is_scheduler(const char *path);
/* True if the value suits the knob: a number, or a scheduler's name ("mq-deadline"). */
bool fs_knob_takes(const char *path, const char *value);

/*
 * Sets a knob (a file under /sys or /proc) after writing its old and new value to the undo note
 * /run/flashscope/knobs_<namespace>_<pid>_<starttime>. Returns 0, or -1 with errno.
 */
int fs_knob_set(const char *path, const char *value);
/*
 * The same for a setting that stays after this process ends, until it is undone.
 * Undo note: /run/flashscope/advice. The old value is stored in `before`; the
 * caller frees it.
 */
int fs_advice_set(const char *path, const char *value, char **before);
/* The same for a mount option (mount_option.h). */
int fs_advice_mount(const char *target, const char *option, char **before);
/*
 * Restores all settings in the note, whichever process made them. A setting that was changed again since is kept: an object
 * {path, before, now} is added to `left`. Returns 0, or -1 with errno.
 */
int fs_advice_undo(unsigned int *knobs, struct fs_json *left);
/*
 * Writes an undo note for a temporary file, which the next run removes if this
 * one is killed. Its name must be fs_own_name(…, "flashscope") or end with a dot
 * and that name; no other file is removed.
 */
int fs_temp_note(const char *path);
/*
 * Creates DIR/flashscope_<namespace>_<pid>_<starttime> for temporary files and stores its absolute
 * path in `out`. The next run removes the directory and its files if this one is
 * killed. Returns 0, or -1 with errno.
 */
int fs_temp_dir(const char *dir, char *out, size_t size);
/* Removes such a directory and its files. Returns 0, or -1 with errno. */
int fs_temp_dir_remove(const char *path);
/* Restores this process's knobs, last change first, except those that were changed again since; removes the note. */
int fs_knobs_restore(void);

#endif
