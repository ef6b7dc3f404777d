/* SPDX-License-Identifier: Apache-2.0 */
/* MTD devices as sysfs shows them (Documentation/ABI/testing/sysfs-class-mtd). Sizes in bytes. */
#ifndef FLASHSCOPE_MTD_H
#define FLASHSCOPE_MTD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fs_mtd {
	int index;
	char name[64];
	char type[16]; /* "nand", "mlc-nand", "nor", … */
	uint64_t size, erasesize, writesize, subpagesize, oobsize;
	uint64_t offset; /* within its chip; a kernel without the file leaves has_offset false */
	bool has_offset;
	int parent; /* index of the device that it is a partition of, -1: none told */
	int chip;   /* from 0; partitions of one chip share it */

	/* What a trial found out; 0 where there was none. */
	uint64_t chip_pointer;
	uint64_t mtd_pointer;
	bool has_first_page;
	uint64_t first_page; /* page number, as the NAND core counts, of its byte 0 */
};

struct fs_mtd_list {
	struct fs_mtd *items; /* by index */
	size_t count;
};

void fs_mtd_scan(struct fs_mtd_list *list);
void fs_mtd_free(struct fs_mtd_list *list);
struct fs_mtd *fs_mtd_find(const struct fs_mtd_list *list, int index);
bool fs_mtd_is_nand(const struct fs_mtd *mtd);
/*
 * Corrected errors and bad blocks of the device (drivers/mtd/mtdcore.c), as members of the open JSON object; null if
 * the kernel does not show them.
 */
struct fs_json;
void fs_mtd_health_json(struct fs_json *json, int index);
/* Chips by the pointers of a trial, where there was one. */
void fs_mtd_number_chips(struct fs_mtd_list *list);

#endif
