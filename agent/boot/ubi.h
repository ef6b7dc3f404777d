/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UBI by ioctl, for the plans of virtual boards only.
 */
#ifndef FLASHSCOPE_UBI_H
#define FLASHSCOPE_UBI_H

#include <stddef.h>
#include <stdint.h>

/* Each function returns 0, or -1 with one line in `why`. */

/* `ubi` gets the number of the new UBI device. */
int ubi_attach(unsigned int mtd, int *ubi, char *why, size_t size);

/* A dynamic volume; `bytes` 0: all that is available. `bytes` gets its size. */
int ubi_mkvol(unsigned int ubi, const char *name, uint64_t *bytes, int *volume, char *why, size_t size);

/* Writes a file into the volume (/dev/ubi0_0); `bytes` gets its size. */
int ubi_write(const char *volume, const char *path, uint64_t *bytes, char *why, size_t size);

/* A read-only block device on the volume: /dev/ubiblock0_0. */
int ubi_block(const char *volume, char *why, size_t size);

/* Detaches as at a power-off: the queue of the background thread is worked off first. */
int ubi_detach(unsigned int ubi, char *why, size_t size);

#endif
