/* SPDX-License-Identifier: Apache-2.0 */
/* What a run leaves, and how the next one finds and undoes it. */
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
	unsigned int failed; /* found, dead, and could not be undone */
	unsigned int elsewhere; /* of other PID namespaces: left alone */
	struct fs_json *left; /* gets an object for each knob that somebody has set since; NULL: a warning */
};

/* Undoes what dead owners left. Never fails: what it cannot undo is counted and warned of. */
void fs_sweep(struct fs_swept *swept);

/* Folder of notes (/run/flashscope, else one under /tmp), created; NULL with errno where there is none. */
const char *fs_run_dir(void);

/* 1 GiB: the kernel takes any number, and a larger window is a slip of the hand. */
#define FS_MOST_READ_AHEAD_KIB (1ul << 20)

/* A file read_ahead_kb, nr_requests or scheduler below /sys: nothing else is set, and nothing else put back. */
bool fs_is_knob(const char *path);
bool fs_is_scheduler(const char *path);
/* Whether the value is one of such a knob's: KiB, or a name as schedulers have them ("mq-deadline"). */
bool fs_knob_takes(const char *path, const char *value);

/*
 * Writes a knob (a file under /sys or /proc) after noting its old value and the new one in
 * /run/flashscope/knobs_<namespace>_<pid>_<starttime>. 0, or -1 with errno.
 */
int fs_knob_set(const char *path, const char *value);
/*
 * The same for a knob that is to stay as it is set when this process has ended,
 * until it is undone: its note is /run/flashscope/advice. What it was goes into
 * `before`, for the caller to free.
 */
int fs_advice_set(const char *path, const char *value, char **before);
/* The same for an option of a mount (mount_option.h). */
int fs_advice_mount(const char *target, const char *option, char **before);
/*
 * Puts back all that these have set, of whichever process. A knob that no longer has the value that was set stays: `left` gets
 * an object {path, before, now} for it. 0, or -1 with errno.
 */
int fs_advice_undo(unsigned int *knobs, struct fs_json *left);
/*
 * Notes a temporary file that the next run may unlink should this one be killed.
 * Its name is, or ends with a dot and, fs_own_name(…, "flashscope"): nothing else
 * is removed.
 */
int fs_temp_note(const char *path);
/*
 * Makes DIR/flashscope_<namespace>_<pid>_<starttime> for files of this run; its absolute path
 * goes into `out`. The next run removes it with all it holds should this one be
 * killed. 0, or -1 with errno.
 */
int fs_temp_dir(const char *dir, char *out, size_t size);
/* Removes such a directory with all it holds. 0, or -1 with errno. */
int fs_temp_dir_remove(const char *path);
/* Puts back all that this process noted (last change first) but what somebody has set since, and removes the note. */
int fs_knobs_restore(void);

#endif
