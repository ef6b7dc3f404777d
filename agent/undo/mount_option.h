/* SPDX-License-Identifier: Apache-2.0 */
/* Mount options that `advise --apply` changes by a remount, and restores. */
#ifndef FLASHSCOPE_MOUNT_OPTION_H
#define FLASHSCOPE_MOUNT_OPTION_H

#include <stdbool.h>
#include <stddef.h>

/* Only these are changed or restored: noatime, relatime, strictatime, sync, async, discard, nodiscard, commit=N. */
bool fs_is_mount_option(const char *option);
/* True if both are values of the same setting, as noatime and relatime, or commit=1 and commit=5. */
bool fs_is_same_mount_option(const char *one, const char *other);
/*
 * Stores the present value of the option's setting, read from /proc/self/mounts. Returns 0, or -1 with errno:
 * ENOENT: nothing is mounted at target; EROFS: it is mounted read-only; EOPNOTSUPP: a remount of this file system does not
 * change the option, or changes other options too.
 */
int fs_mount_option_now(const char *target, const char *option, char *now, size_t size);
/* Remounts with this option and keeps all others. Returns 0, or -1 with errno. */
int fs_mount_option_set(const char *target, const char *option);
/* Stores the number of the mounted device, "8:1"; false if it is unknown. */
bool fs_mount_device(const char *target, char *device, size_t size);

#endif
