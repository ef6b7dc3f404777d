/* SPDX-License-Identifier: Apache-2.0 */
/* Writes JSON into a growing buffer and adds commas, quotes and escapes. */
#ifndef FLASHSCOPE_JSON_H
#define FLASHSCOPE_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "util.h"

struct fs_json {
	struct fs_buf out;
	bool comma; /* the next value needs a comma before it */
};

/* key is NULL inside arrays and at the top. */
void fs_json_object(struct fs_json *json, const char *key);
void fs_json_object_end(struct fs_json *json);
void fs_json_array(struct fs_json *json, const char *key);
void fs_json_array_end(struct fs_json *json);
/* NULL text gives null. Bytes that are not UTF-8 become U+FFFD. */
void fs_json_string(struct fs_json *json, const char *key, const char *text);
void fs_json_u64(struct fs_json *json, const char *key, uint64_t value);
/* The number, or null if it is not known. */
void fs_json_known(struct fs_json *json, const char *key, bool known, uint64_t value);
/* A device number as the string "MAJOR:MINOR". */
void fs_json_device(struct fs_json *json, const char *key, unsigned int major, unsigned int minor);
void fs_json_i64(struct fs_json *json, const char *key, int64_t value);
void fs_json_bool(struct fs_json *json, const char *key, bool value);
void fs_json_null(struct fs_json *json, const char *key);
void fs_json_free(struct fs_json *json);

#endif
