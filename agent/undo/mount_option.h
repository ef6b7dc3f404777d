/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a mount that advice sets while it is mounted, and puts back. */
#ifndef FLASHSCOPE_MOUNT_OPTION_H
#define FLASHSCOPE_MOUNT_OPTION_H

#include <stdbool.h>
#include <stddef.h>

/* noatime, relatime, strictatime, sync, async, discard, nodiscard or commit=N: nothing else is set, and nothing else put back. */
bool fs_is_mount_option(const char *option);
/* Whether two of them are values of one setting: noatime and relatime, commit=1 and commit=5. */
bool fs_is_same_mount_option(const char *one, const char *other);
/*
 * The option that stands in the place of this one now, as /proc/self/mounts says. -1 with errno: ENOENT: nothing is mounted
 * there; EROFS: it is mounted read-only; EOPNOTSUPP: this file system does not change that option while it is mounted, or
 * changes others with it.
 */
int fs_mount_option_now(const char *target, const char *option, char *now, size_t size);
/* Mounts it again with this option; all others stay. 0, or -1 with errno. */
int fs_mount_option_set(const char *target, const char *option);
/* Number of the device that is mounted there, "8:1"; false where it cannot be told. */
bool fs_mount_device(const char *target, char *device, size_t size);

#endif
