// SPDX-License-Identifier: Apache-2.0
#include "json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/*
 * Length of the UTF-8 sequence at p (RFC 3629: no overlong forms, no
 * surrogates, nothing above U+10FFFF), 0 where there is none.
 */
static size_t utf8_length(const unsigned char *p, size_t left)
{
	size_t length;
	uint32_t code;

	if (p[0] < 0x80)
		return 1;
	if (p[0] >= 0xc2 && p[0] <= 0xdf) {
		length = 2;
		code = p[0] & 0x1f;
	} else if ((p[0] & 0xf0) == 0xe0) {
		length = 3;
		code = p[0] & 0x0f;
	} else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
		length = 4;
		code = p[0] & 0x07;
	} else {
		return 0;
	}
	if (left < length)
		return 0;
	for (size_t i = 1; i < length; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (p[i] & 0x3f);
	}
	if ((length == 3 && (code < 0x800 || (code >= 0xd800 && code <= 0xdfff))) ||
	    (length == 4 && (code < 0x10000 || code > 0x10ffff)))
		return 0;
	return length;
}

static void quoted(struct fs_buf *out, const char *text)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t left = strlen(text);

	fs_buf_append(out, "\"", 1);
	while (left) {
		size_t length = utf8_length(p, left);

		if (!length) {
			fs_buf_puts(out, "\xef\xbf\xbd");
			length = 1;
		} else if (*p == '"' || *p == '\\') {
			fs_buf_printf(out, "\\%c", *p);
		} else if (*p == '\n') {
			fs_buf_puts(out, "\\n");
		} else if (*p == '\t') {
			fs_buf_puts(out, "\\t");
		} else if (*p < 0x20 || *p == 0x7f) {
			fs_buf_printf(out, "\\u%04x", *p);
		} else {
			fs_buf_append(out, p, length);
		}
		p += length;
		left -= length;
	}
	fs_buf_append(out, "\"", 1);
}

static void before(struct fs_json *json, const char *key)
{
	if (json->comma)
		fs_buf_append(&json->out, ",", 1);
	json->comma = true;
	if (key) {
		quoted(&json->out, key);
		fs_buf_append(&json->out, ":", 1);
	}
}

static void open_bracket(struct fs_json *json, const char *key, const char *bracket)
{
	before(json, key);
	fs_buf_append(&json->out, bracket, 1);
	json->comma = false;
}

static void close_bracket(struct fs_json *json, const char *bracket)
{
	fs_buf_append(&json->out, bracket, 1);
	json->comma = true;
}

void fs_json_object(struct fs_json *json, const char *key)
{
	open_bracket(json, key, "{");
}

void fs_json_object_end(struct fs_json *json)
{
	close_bracket(json, "}");
}

void fs_json_array(struct fs_json *json, const char *key)
{
	open_bracket(json, key, "[");
}

void fs_json_array_end(struct fs_json *json)
{
	close_bracket(json, "]");
}

void fs_json_string(struct fs_json *json, const char *key, const char *text)
{
	before(json, key);
	if (text)
		quoted(&json->out, text);
	else
		fs_buf_puts(&json->out, "null");
}

void fs_json_u64(struct fs_json *json, const char *key, uint64_t value)
{
	before(json, key);
	fs_buf_printf(&json->out, "%" PRIu64, value);
}

void fs_json_i64(struct fs_json *json, const char *key, int64_t value)
{
	before(json, key);
	fs_buf_printf(&json->out, "%" PRId64, value);
}

void fs_json_bool(struct fs_json *json, const char *key, bool value)
{
	before(json, key);
	fs_buf_puts(&json->out, value ? "true" : "false");
}

void fs_json_null(struct fs_json *json, const char *key)
{
	fs_json_string(json, key, NULL);
}

void fs_json_known(struct fs_json *json, const char *key, bool known, uint64_t value)
{
	if (known)
		fs_json_u64(json, key, value);
	else
		fs_json_null(json, key);
}

void fs_json_device(struct fs_json *json, const char *key, unsigned int major, unsigned int minor)
{
	char text[32];

	snprintf(text, sizeof(text), "%u:%u", major, minor);
	fs_json_string(json, key, text);
}

void fs_json_free(struct fs_json *json)
{
	fs_buf_free(&json->out);
	json->comma = false;
}
