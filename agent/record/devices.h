/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `--device NAME`: which devices a recording keeps. NAME, what is stacked on
 * it (partitions, device mapper, md, loop devices on its file systems) and
 * what lies beneath it (slaves; of a partition's disk and of the disk under a
 * loop device's file those sectors alone).
 */
#ifndef FLASHSCOPE_DEVICES_H
#define FLASHSCOPE_DEVICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fs_device {
	char name[64];
	uint32_t number; /* as the kernel's events have it: major << 20 | minor */
	/* Only these sectors of it: a partition on its disk, or the blocks of a loop device's file. */
	bool range;
	uint64_t begin, end;
	bool flushes; /* with those that have no sectors */
	bool file_system; /* no block device: what a mounted file system calls itself (btrfs, UBIFS) */
};

struct fs_devices {
	struct fs_device *items;
	size_t count;
	int *mtd; /* numbers, for the flash probes */
	size_t mtd_count;
};

/* Adds NAME ("mmcblk0", "/dev/sda1", "mtd3") with its stack. 0, or -1 and why. */
int fs_devices_add(struct fs_devices *devices, const char *name, char *error, size_t size);
void fs_devices_free(struct fs_devices *devices);

#endif
