// SPDX-License-Identifier: Apache-2.0
#include "crosscheck.h"
#include "test.h"

/* Formats of 6.1 armmp, shortened to what is read. */
#define FORMAT(id, fields) "name: x\nID: " id "\nformat:\n" fields
#define FIELD(type, name, offset, size) \
	"\tfield:" type " " name ";\toffset:" offset ";\tsize:" size ";\tsigned:0;\n"

static struct fs_mtd devices[2];

static struct fs_crosscheck prepare(void)
{
	static struct fs_mtd_list list = { devices, 2 };
	struct fs_crosscheck check = { .list = &list };

	devices[0] = (struct fs_mtd){ .mtd_pointer = 0xc1, .writesize = 2048, .erasesize = 131072 };
	devices[1] = (struct fs_mtd){ .mtd_pointer = 0xc2, .writesize = 4096, .erasesize = 262144 };
	fs_crosscheck_event(&check, "nand_program", FORMAT("10", FIELD("u32", "page", "12", "4")));
	fs_crosscheck_event(&check, "nand_erase", FORMAT("11", FIELD("u32", "block", "12", "4")));
	fs_crosscheck_event(&check, "mtd_write",
			    FORMAT("12", FIELD("u32", "mtd", "12", "4") FIELD("u32", "address", "16", "4")
						 FIELD("u32", "length", "20", "4")));
	fs_crosscheck_event(&check, "mtd_erase",
			    FORMAT("13", FIELD("u32", "mtd", "12", "4") FIELD("u64", "address", "16", "8")
						 FIELD("u64", "length", "24", "8")));
	fs_crosscheck_event(&check, "nand_read", "ID: 14\n");
	return check;
}

static size_t put(unsigned char *subbuf, size_t at, uint16_t id, const uint32_t *words, uint32_t count)
{
	uint32_t header = (count + 3) | 5u << 5; /* type_len in words, a time delta */

	memcpy(subbuf + at, &header, 4);
	memset(subbuf + at + 4, 0, 12);
	memcpy(subbuf + at + 4, &id, 2);
	memcpy(subbuf + at + 16, words, (size_t)count * 4);
	return at + 16 + (size_t)count * 4;
}

void test_crosscheck(void)
{
	const struct fs_page_layout layout = { 4, 12, 4096 };
	struct fs_crosscheck check = prepare();
	unsigned char subbuf[4096] = { 0 };
	struct fs_json json = { 0 };
	uint32_t word;
	size_t at = 12;

	CHECK(check.has_program && check.has_erase && check.has_write && check.has_mtd_erase);
	at = put(subbuf, at, 10, (uint32_t[]){ 5 }, 1);
	word = 30; /* time extend: 8 bytes */
	memcpy(subbuf + at, &word, 4);
	at += 8;
	at = put(subbuf, at, 10, (uint32_t[]){ 6 }, 1);
	at = put(subbuf, at, 12, (uint32_t[]){ 0xc1, 2048, 4096 }, 3); /* two whole pages */
	at = put(subbuf, at, 12, (uint32_t[]){ 0xc1, 2047, 2 }, 3);    /* crosses into a second page */
	at = put(subbuf, at, 12, (uint32_t[]){ 0xc2, 0, 0 }, 3);	      /* spare bytes alone */
	at = put(subbuf, at, 12, (uint32_t[]){ 0xc9, 0, 2048 }, 3);    /* nobody's */
	word = 29 | 1u << 5; /* a discarded event: its length stands in array[0] */
	memcpy(subbuf + at, &word, 4);
	word = 12;
	memcpy(subbuf + at + 4, &word, 4);
	at += 4 + 12;
	at = put(subbuf, at, 11, (uint32_t[]){ 3 }, 1);
	at = put(subbuf, at, 13, (uint32_t[]){ 0xc2, 0, 0, 524288, 0 }, 5);
	/* a long event: type_len 0, length (its own word counted) in array[0] */
	word = 0;
	memcpy(subbuf + at, &word, 4);
	word = 4 + 16;
	memcpy(subbuf + at + 4, &word, 4);
	memset(subbuf + at + 8, 0, 16);
	word = 10;
	memcpy(subbuf + at + 8, &word, 2);
	at += 8 + 16;
	fs_crosscheck_subbuf(&check, subbuf, at, &layout);
	CHECK_NUMBER(check.programs_seen, 3);
	CHECK_NUMBER(check.programs_expected, 2 + 2 + 1);
	CHECK_NUMBER(check.erases_seen, 1);
	CHECK_NUMBER(check.erases_expected, 2);
	CHECK_NUMBER(check.unknown, 1);
	CHECK_NUMBER(fs_crosscheck_mismatch(&check), 3);
	fs_json_object(&json, NULL);
	fs_crosscheck_json(&json, &check, true);
	fs_crosscheck_json(&json, &check, false);
	fs_json_object_end(&json);
	CHECK_TEXT(json.out.data,
		   "{\"crosscheck\":{\"programs_expected\":5,\"programs_seen\":3,\"erases_expected\":2,"
		   "\"erases_seen\":1,\"unknown_device\":1},\"crosscheck\":{\"programs_expected\":null,"
		   "\"programs_seen\":null,\"erases_expected\":null,\"erases_seen\":null,"
		   "\"unknown_device\":null}}");
	fs_json_free(&json);

	/* any bytes: no read outside (ASan), no endless loop */
	for (uint32_t seed = 1; seed < 20000; seed++) {
		uint32_t random = seed * 2654435761u;
		size_t used = 12 + seed % 200;
		unsigned char *exact = malloc(used);

		for (size_t i = 0; i < used; i++) {
			random = random * 1664525u + 1013904223u;
			exact[i] = (unsigned char)(random >> 24);
		}
		fs_crosscheck_subbuf(&check, exact, used, &layout);
		free(exact);
	}
	CHECK(true);
}
