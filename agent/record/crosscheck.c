// SPDX-License-Identifier: Apache-2.0
#include "crosscheck.h"

#include <stdio.h>
#include <string.h>

#include "util.h"

bool fs_format_id(const char *format, uint16_t *id)
{
	const char *line = strstr(format, "ID:");
	unsigned int number;

	if (!line || sscanf(line, "ID: %u", &number) != 1 || number > 0xffff)
		return false;
	*id = (uint16_t)number;
	return true;
}

struct fs_field fs_format_field(const char *format, const char *name)
{
	struct fs_field field = { 0 };
	char mark[64];
	unsigned int offset, size;
	const char *hit;

	snprintf(mark, sizeof(mark), " %s;", name);
	hit = strstr(format, mark);
	if (hit && sscanf(hit + strlen(mark), " offset:%u; size:%u;", &offset, &size) == 2 &&
	    offset < 4096 && (size == 4 || size == 8)) {
		field.known = true;
		field.offset = (uint16_t)offset;
		field.size = (uint16_t)size;
	}
	return field;
}

void fs_crosscheck_event(struct fs_crosscheck *check, const char *event, const char *format)
{
	if (!strcmp(event, "nand_program")) {
		check->has_program = fs_format_id(format, &check->program_id);
	} else if (!strcmp(event, "nand_erase")) {
		check->has_erase = fs_format_id(format, &check->erase_id);
	} else if (!strcmp(event, "mtd_write")) {
		check->write_mtd = fs_format_field(format, "mtd");
		check->write_address = fs_format_field(format, "address");
		check->write_length = fs_format_field(format, "length");
		check->has_write = fs_format_id(format, &check->write_id) &&
				   check->write_mtd.known && check->write_address.known &&
				   check->write_length.known;
	} else if (!strcmp(event, "mtd_erase")) {
		check->erase_mtd = fs_format_field(format, "mtd");
		check->erase_length = fs_format_field(format, "length");
		check->has_mtd_erase = fs_format_id(format, &check->mtd_erase_id) &&
				       check->erase_mtd.known && check->erase_length.known;
	}
}

bool fs_field_get(const unsigned char *data, size_t length, struct fs_field field, uint64_t *value)
{
	if ((size_t)field.offset + field.size > length)
		return false;
	if (field.size == 8) {
		memcpy(value, data + field.offset, 8);
	} else {
		uint32_t narrow;

		memcpy(&narrow, data + field.offset, 4);
		*value = narrow;
	}
	return true;
}

static const struct fs_mtd *device(const struct fs_crosscheck *check, uint64_t pointer)
{
	for (size_t i = 0; i < check->list->count; i++)
		if (pointer && check->list->items[i].mtd_pointer == pointer)
			return &check->list->items[i];
	return NULL;
}

static void count_event(void *argument, uint64_t time_ns, const unsigned char *data, size_t length)
{
	struct fs_crosscheck *check = argument;
	uint64_t pointer, address, bytes;
	const struct fs_mtd *mtd;
	uint16_t id;

	(void)time_ns;
	if (length < 2)
		return;
	memcpy(&id, data, 2); /* common_type */
	if (check->has_program && id == check->program_id) {
		check->programs_seen++;
	} else if (check->has_erase && id == check->erase_id) {
		check->erases_seen++;
	} else if (check->has_write && id == check->write_id &&
		   fs_field_get(data, length, check->write_mtd, &pointer) &&
		   fs_field_get(data, length, check->write_address, &address) &&
		   fs_field_get(data, length, check->write_length, &bytes)) {
		mtd = device(check, pointer);
		if (!mtd) {
			check->unknown++;
			return;
		}
		/* No data: spare bytes alone, which is one program of one page. */
		if (!bytes)
			bytes = 1;
		check->programs_expected += (address % mtd->writesize + bytes + mtd->writesize - 1) /
					    mtd->writesize;
	} else if (check->has_mtd_erase && id == check->mtd_erase_id &&
		   fs_field_get(data, length, check->erase_mtd, &pointer) &&
		   fs_field_get(data, length, check->erase_length, &bytes)) {
		mtd = device(check, pointer);
		if (mtd)
			check->erases_expected += bytes / mtd->erasesize;
		else
			check->unknown++;
	}
}

void fs_crosscheck_subbuf(struct fs_crosscheck *check, const unsigned char *subbuf, size_t used,
			  const struct fs_page_layout *layout)
{
	fs_subbuf_walk(subbuf, used, layout, count_event, check);
}

void fs_crosscheck_json(struct fs_json *json, const struct fs_crosscheck *check, bool complete)
{
	bool programs = complete && check->has_program && check->has_write;
	bool erases = complete && check->has_erase && check->has_mtd_erase;

	fs_json_object(json, "crosscheck");
	fs_json_known(json, "programs_expected", programs, check->programs_expected);
	fs_json_known(json, "programs_seen", programs, check->programs_seen);
	fs_json_known(json, "erases_expected", erases, check->erases_expected);
	fs_json_known(json, "erases_seen", erases, check->erases_seen);
	fs_json_known(json, "unknown_device", programs || erases, check->unknown);
	fs_json_object_end(json);
}

static uint64_t apart(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

uint64_t fs_crosscheck_mismatch(const struct fs_crosscheck *check)
{
	uint64_t mismatch = 0;

	if (check->has_program && check->has_write)
		mismatch += apart(check->programs_expected, check->programs_seen);
	if (check->has_erase && check->has_mtd_erase)
		mismatch += apart(check->erases_expected, check->erases_seen);
	return mismatch;
}
