// SPDX-License-Identifier: Apache-2.0
#include "plan.h"

#include <stdlib.h>

#include "check.h"

static int parse(const char *text, struct plan *plan, struct plan_error *error)
{
	memset(error, 0, sizeof(*error));
	return plan_parse(text, strlen(text), plan, error);
}

/* The text is refused at `line`, in words that contain `words`; nothing of it is kept. */
static void refused(const char *text, unsigned int line, const char *words)
{
	struct plan_error error;
	struct plan plan;

	CHECK(parse(text, &plan, &error) == -1);
	CHECK(plan.count == 0 && !plan.steps);
	CHECK(error.line == line);
	CHECK(strstr(error.text, words));
	if (!strstr(error.text, words))
		fprintf(stderr, "  '%s' for '%s'\n", error.text, text);
	plan_free(&plan);
}

static void accepted(const char *text)
{
	struct plan_error error;
	struct plan plan;

	CHECK(!parse(text, &plan, &error));
	if (*error.text)
		fprintf(stderr, "  '%s' for '%s'\n", error.text, text);
	CHECK(plan.count == 1);
	plan_free(&plan);
}

static void test_steps(void)
{
	struct plan_error error;
	struct plan plan;

	CHECK(!parse("# modules\nmodule /m/a.ko x=1 y=2\n\n-mount mtd0 /mnt jffs2 -\nrun cell%201 /bin/true a%25b %c3%a4\n"
		     "record-start",
		     &plan, &error));
	CHECK(plan.count == 4);
	if (plan.count != 4)
		return;
	CHECK(plan.steps[0].number == 1 && plan.steps[0].line == 2 && !plan.steps[0].may_fail);
	CHECK(plan.steps[0].verb == PLAN_MODULE && plan.steps[0].argc == 3);
	CHECK_TEXT(plan.steps[0].argv[2], "y=2");
	CHECK(!plan.steps[0].argv[3]);
	CHECK(plan.steps[1].number == 2 && plan.steps[1].line == 4 && plan.steps[1].may_fail);
	CHECK_TEXT(plan.steps[1].text, "mount mtd0 /mnt jffs2 -");
	CHECK_TEXT(plan.steps[1].argv[3], "-");
	CHECK_TEXT(plan.steps[2].verb_name, "run");
	CHECK_TEXT(plan.steps[2].argv[0], "cell 1");
	CHECK_TEXT(plan.steps[2].argv[2], "a%b");
	CHECK_TEXT(plan.steps[2].argv[3], "\xc3\xa4");
	CHECK(plan.steps[3].verb == PLAN_RECORD_START && plan.steps[3].argc == 0 && plan.steps[3].argv[0] == NULL);
	plan_free(&plan);

	CHECK(!parse("", &plan, &error) && plan.count == 0);
	plan_free(&plan);
	CHECK(!parse("#\n\n\n", &plan, &error) && plan.count == 0);
	plan_free(&plan);
}

static void test_verbs(void)
{
	accepted("ubi-mkvol 0 data all");
	accepted("ubi-mkvol 0 data 1048576\n");
	accepted("ubi-write /dev/ubi0_0 /data.squashfs");
	accepted("ubi-block /dev/ubi0_0");
	accepted("ubi-detach 0");
	accepted("nand-erase 1");
	accepted("nand-erase 1 0 4");
	accepted("nand-write 1 /f");
	accepted("nand-write 1 /f 2048");
	accepted("create /f 100 printable 18446744073709551615");
	accepted("settle jffs2_gcd 200 60000");
	accepted("hostname board");
	accepted("shell");
	accepted("stdin /flashscope/stdin");

	refused("mkdir /a\nfly\n", 2, "'fly' is not a verb");
	refused("mkdir", 1, "mkdir takes PATH");
	refused("mkdir /a /b", 1, "mkdir takes only PATH");
	refused("record-stop now", 1, "no arguments");
	refused("mount a b c", 1, "mount takes SOURCE");
	refused("nand-erase 1 0", 1, "all of the optional ones or none");
	refused("nand-erase 1 0 4 5", 1, "takes only");
	refused("nand-erase mtd0", 1, "'mtd0' will not do");
	refused("ubi-write /dev/ubi0_0", 1, "ubi-write");
	refused("ubi-mkvol 0 data half", 1, "'half' will not do");
	refused("ubi-detach", 1, "ubi-detach takes UBI");
	refused("create /f 100 noise 1", 1, "'noise' will not do");
	refused("create /f -1 zero 1", 1, "'-1' will not do");
	refused("sleep 18446744073709551616", 1, "will not do");
	refused("stdin", 1, "stdin takes FILE");
	refused("run name-only", 1, "run takes NAME ARGV");
}

static void test_words(void)
{
	char hundred[] = "a%20b%25%7e";
	char cut[] = "a%2", plain[] = "", nul[] = "a%00b", bad[] = "%g0";
	uint64_t n;

	CHECK(!plan_unescape(hundred));
	CHECK_TEXT(hundred, "a b%~");
	CHECK(!plan_unescape(plain));
	CHECK(plan_unescape(cut) == -1);
	CHECK(plan_unescape(nul) == -1);
	CHECK(plan_unescape(bad) == -1);
	CHECK(!plan_number("18446744073709551615", &n) && n == UINT64_MAX);
	CHECK(plan_number("18446744073709551616", &n) == -1);
	CHECK(plan_number("", &n) == -1 && plan_number("+1", &n) == -1 && plan_number("0x1", &n) == -1);

	refused("mkdir  /a", 1, "one space");
	refused("mkdir /a ", 1, "one space");
	refused(" mkdir /a", 1, "one space");
	refused("-", 1, "one space");
	refused("mkdir /a\r\n", 1, "control character 0x0d");
	refused("mkdir /a%zz", 1, "escape");
	refused("mkdir /a%", 1, "escape");
}

static void test_bounds(void)
{
	size_t length = PLAN_MAX_BYTES + 1;
	char *text = malloc(length + 1);
	struct plan_error error;
	struct plan plan;

	if (!text)
		abort();
	memset(text, '\n', length);
	text[length] = '\0';
	CHECK(plan_parse(text, length, &plan, &error) == -1 && strstr(error.text, "at most"));
	memset(text, 'x', length);
	CHECK(plan_parse(text, PLAN_MAX_BYTES, &plan, &error) == -1); /* one word, no verb */

	strcpy(text, "module /m");
	for (unsigned int i = 0; i < PLAN_MAX_WORDS - 2; i++)
		strcat(text, " p");
	CHECK(!plan_parse(text, strlen(text), &plan, &error) && plan.steps[0].argc == (int)PLAN_MAX_WORDS - 1);
	plan_free(&plan);
	strcat(text, " p");
	CHECK(plan_parse(text, strlen(text), &plan, &error) == -1 && strstr(error.text, "words"));

	length = 0;
	for (unsigned int i = 0; i <= PLAN_MAX_STEPS; i++, length += 6)
		memcpy(text + length, "shell\n", 6);
	CHECK(plan_parse(text, length - 6, &plan, &error) == 0 && plan.count == PLAN_MAX_STEPS);
	CHECK(plan.steps[PLAN_MAX_STEPS - 1].number == PLAN_MAX_STEPS);
	plan_free(&plan);
	CHECK(plan_parse(text, length, &plan, &error) == -1 && strstr(error.text, "steps"));
	CHECK(error.line == PLAN_MAX_STEPS + 1);

	/* A NUL is a control character like any other; it does not end the text. */
	CHECK(plan_parse("shell\0x", 7, &plan, &error) == -1 && strstr(error.text, "0x00"));
	free(text);
}

/* Any cut and any single changed byte of a plan parses or is refused, and leaks nothing (AddressSanitizer's part). */
static void test_damage(void)
{
	static const char good[] = "module /a.ko p=%41\n-mount m /m t ro,x\ncreate /f 1 zero 2\nrun a b c\n#x\nnand-erase 1 2 3\n";
	char text[sizeof(good)];
	struct plan_error error;
	struct plan plan;
	unsigned int parsed = 0;

	for (size_t n = 0; n < sizeof(good); n++) {
		parsed += !plan_parse(good, n, &plan, &error);
		plan_free(&plan);
	}
	for (size_t i = 0; i < sizeof(good) - 1; i++) {
		for (int byte = 0; byte < 256; byte++) {
			memcpy(text, good, sizeof(good));
			text[i] = (char)byte;
			parsed += !plan_parse(text, sizeof(good) - 1, &plan, &error);
			plan_free(&plan);
		}
	}
	CHECK(parsed > 100);
}

int main(void)
{
	test_steps();
	test_verbs();
	test_words();
	test_bounds();
	test_damage();
	return check_verdict("plan");
}
