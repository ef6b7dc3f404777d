/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording that begins before the init of this machine: `boot prepare`, `boot collect`, `boot undo`, and what the
 * kernel starts in place of that init.
 */
#ifndef FLASHSCOPE_AT_BOOT_H
#define FLASHSCOPE_AT_BOOT_H

#include <sys/types.h>

/* The directory of the agent's files, beside init: on the same file system, so that links and renames work. */
#define FS_BOOT_FOLDER "flashscope-boot"
/* The word behind the agent in the file that replaces init. */
#define FS_BOOT_WORD "boot-init"
/* Names of the process that holds a boot's recording: while it grows, and when it is whole. */
#define FS_BOOT_GROWS "flashscope-boot"
#define FS_BOOT_WHOLE "flashscope-kept"

/* argv: the agent, FS_BOOT_WORD, init's path, its arguments. Returns only where no init can be run. */
int fs_boot_init(int argc, char **argv);
/* The process that holds the recording of this boot; 0: there is none. `whole` may be NULL. */
pid_t fs_boot_holder(_Bool *whole);

#endif
