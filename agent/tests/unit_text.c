// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "json.h"
#include "test.h"
#include "util.h"

static void json(void)
{
	struct fs_json json = { 0 };

	fs_json_object(&json, NULL);
	fs_json_string(&json, "q\"", "a\"b\\c\nd\te\x01\x7f");
	fs_json_string(&json, "utf8", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x92\xbe");
	/* overlong, surrogate, above U+10FFFF, cut, stray */
	fs_json_string(&json, "bad", "\xc0\xaf|\xed\xa0\x80|\xf4\x90\x80\x80|\xe2\x82|\xff");
	fs_json_array(&json, "list");
	fs_json_u64(&json, NULL, UINT64_MAX);
	fs_json_i64(&json, NULL, INT64_MIN);
	fs_json_bool(&json, NULL, false);
	fs_json_array(&json, NULL);
	fs_json_array_end(&json);
	fs_json_object(&json, NULL);
	fs_json_object_end(&json);
	fs_json_null(&json, NULL);
	fs_json_array_end(&json);
	fs_json_string(&json, "none", NULL);
	fs_json_object_end(&json);
#define R "\xef\xbf\xbd"
	CHECK_TEXT(json.out.data,
		   "{\"q\\\"\":\"a\\\"b\\\\c\\nd\\te\\u0001\\u007f\","
		   "\"utf8\":\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x92\xbe\","
		   "\"bad\":\"" R R "|" R R R "|" R R R R "|" R R "|" R "\","
		   "\"list\":[18446744073709551615,-9223372036854775808,false,[],{},null],"
		   "\"none\":null}");
	fs_json_free(&json);
}

static void numbers(void)
{
	uint64_t value;

	CHECK(fs_parse_u64("0", 10, &value) && value == 0);
	CHECK(fs_parse_u64("18446744073709551615", UINT64_MAX, &value) && value == UINT64_MAX);
	CHECK(!fs_parse_u64("18446744073709551616", UINT64_MAX, &value));
	CHECK(!fs_parse_u64("11", 10, &value));
	CHECK(!fs_parse_u64("", 10, &value));
	CHECK(!fs_parse_u64("-1", 10, &value));
	CHECK(!fs_parse_u64(" 1", 10, &value));
	CHECK(!fs_parse_u64("1k", 10, &value));
}

static void format(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void format(char *out, size_t size, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fs_format_message(out, size, format, args);
	va_end(args);
}

/* What does not fit loses its middle: the name and the reason stay. */
static void messages(void)
{
	char out[20];

	format(out, sizeof(out), "%s: too long", "abcdefgh");
	CHECK_TEXT(out, "abcdefgh: too long");
	format(out, sizeof(out), "%s: too long", "abcdefghi");
	CHECK_TEXT(out, "abcdefghi: too long");
	format(out, sizeof(out), "%s: too long", "abcdefghij");
	CHECK_TEXT(out, "abcdefgh...too long");
}

static void workers(void)
{
	static const char *const names[][2] = {
		{ "kworker/u4:0-events_unbound", "kworker/u4:0" },
		{ "kworker/0:1H-kblockd", "kworker/0:1H" },
		{ "kworker/12:3+mm_percpu_wq", "kworker/12:3" },
		{ "kworker/1:2", "kworker/1:2" },
		{ "kworker/R-xfs-sync/sda", "kworker/R-xfs-sync/sda" },
		{ "kworker/u", "kworker/u" },
		{ "kworker/", "kworker/" },
		{ "logger-1", "logger-1" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char name[64];

		snprintf(name, sizeof(name), "%s", names[i][0]);
		fs_worker_name(name);
		CHECK_TEXT(name, names[i][1]);
	}
}

static void buffers(void)
{
	struct fs_buf buf = { 0 };
	char word[400];

	memset(word, 'x', sizeof(word) - 1);
	word[sizeof(word) - 1] = '\0';
	for (int i = 0; i < 10; i++)
		fs_buf_printf(&buf, "%s%d", word, i);
	CHECK_NUMBER(buf.length, 10 * 400);
	CHECK(buf.data[buf.length] == '\0' && buf.data[buf.length - 1] == '9');
	fs_buf_free(&buf);
	CHECK(!buf.data && !buf.length);
}

static void stat_line(const char *text, uint64_t want)
{
	test_root_file("/proc/77/stat", text);
	CHECK_NUMBER(fs_starttime(77), want);
}

static void processes(void)
{
	test_root_begin();
	/* Field 22; the name may hold blanks and brackets. */
	stat_line("77 (a) S 1 77 77 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 100 200\n", 4242);
	stat_line("77 (a) R) x (b) S 1 77 77 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 99 100\n", 99);
	stat_line("77 (gone) Z 1 77 77 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 100\n", 0);
	stat_line("77 (short) S 1 77\n", 0);
	CHECK_NUMBER(fs_starttime(78), 0);
	test_root_file("/sys/devices/system/cpu/possible", "0-3\n");
	CHECK_NUMBER(fs_cpus_possible(), 4);
	test_root_file("/sys/devices/system/cpu/possible", "0,2-5,7\n");
	CHECK_NUMBER(fs_cpus_possible(), 8);
	test_root_file("/sys/devices/system/cpu/possible", "0\n");
	CHECK_NUMBER(fs_cpus_possible(), 1);
	test_root_end();
}

void test_text(void)
{
	json();
	numbers();
	messages();
	workers();
	buffers();
	processes();
}
