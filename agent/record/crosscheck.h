/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks during a recording that the probes of programs and erases see them: a
 * trial before would change the flash. Each mtd_write and mtd_erase event gives
 * the number of pages and blocks to be programmed and erased, which is compared
 * with the nand_program and nand_erase events of the same ring.
 */
#ifndef FLASHSCOPE_CROSSCHECK_H
#define FLASHSCOPE_CROSSCHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "json.h"
#include "mtd.h"
#include "tracefs.h"

/* A field in an event's format file. */
struct fs_field {
	bool known;
	uint16_t offset, size;
};

bool fs_format_id(const char *format, uint16_t *id);
struct fs_field fs_format_field(const char *format, const char *name);
/* Reads a field's value; false if the event is too short. */
bool fs_field_get(const unsigned char *data, size_t length, struct fs_field field, uint64_t *value);

struct fs_crosscheck {
	const struct fs_mtd_list *list;
	bool has_program, has_erase, has_write, has_mtd_erase;
	uint16_t program_id, erase_id, write_id, mtd_erase_id;
	struct fs_field write_mtd, write_address, write_length, erase_mtd, erase_length;
	uint64_t programs_expected, programs_seen, erases_expected, erases_seen;
	uint64_t unknown; /* writes and erases on devices without a trial */
};

/* Adds an event's format; events that are not needed are ignored. */
void fs_crosscheck_event(struct fs_crosscheck *check, const char *event, const char *format);
void fs_crosscheck_subbuf(struct fs_crosscheck *check, const unsigned char *subbuf, size_t used,
			  const struct fs_page_layout *layout);
/* complete: the ring lost no events. If it did, the counts cannot be compared and are null. */
void fs_crosscheck_json(struct fs_json *json, const struct fs_crosscheck *check, bool complete);
/* Number of programs and erases that were expected but not seen, or seen but not expected. */
uint64_t fs_crosscheck_mismatch(const struct fs_crosscheck *check);

#endif
