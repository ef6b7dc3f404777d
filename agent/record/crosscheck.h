/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs and erases cannot be tried harmlessly, so whether their probes see
 * them is checked while recording: each mtd_write and mtd_erase says how many
 * pages and blocks must be programmed and erased, and that is held against the
 * nand_program and nand_erase events of the same ring.
 */
#ifndef FLASHSCOPE_CROSSCHECK_H
#define FLASHSCOPE_CROSSCHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "json.h"
#include "mtd.h"
#include "tracefs.h"

/* A field of an event's format text. */
struct fs_field {
	bool known;
	uint16_t offset, size;
};

bool fs_format_id(const char *format, uint16_t *id);
struct fs_field fs_format_field(const char *format, const char *name);
/* A field's value; false where the event is too short for it. */
bool fs_field_get(const unsigned char *data, size_t length, struct fs_field field, uint64_t *value);

struct fs_crosscheck {
	const struct fs_mtd_list *list;
	bool has_program, has_erase, has_write, has_mtd_erase;
	uint16_t program_id, erase_id, write_id, mtd_erase_id;
	struct fs_field write_mtd, write_address, write_length, erase_mtd, erase_length;
	uint64_t programs_expected, programs_seen, erases_expected, erases_seen;
	uint64_t unknown; /* writes and erases of devices that no trial named */
};

/* An event of the recording, by its name and format; others are ignored. */
void fs_crosscheck_event(struct fs_crosscheck *check, const char *event, const char *format);
void fs_crosscheck_subbuf(struct fs_crosscheck *check, const unsigned char *subbuf, size_t used,
			  const struct fs_page_layout *layout);
/* complete: nothing of the ring was lost; otherwise the counts cannot be compared and are null. */
void fs_crosscheck_json(struct fs_json *json, const struct fs_crosscheck *check, bool complete);
/* Programs and erases that were expected and not seen, or seen and not expected. */
uint64_t fs_crosscheck_mismatch(const struct fs_crosscheck *check);

#endif
