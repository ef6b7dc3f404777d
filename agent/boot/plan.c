// SPDX-License-Identifier: Apache-2.0
#include "plan.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "contents.h"
#include "util.h"

/*
 * What each verb takes, a letter an argument: s text, n a number, a a number or
 * "all", c a kind of contents. '?' makes everything after it optional, but
 * together; '*' any number more.
 */
struct verb {
	const char *name;
	const char *arguments;
	const char *usage;
};

static const struct verb verbs[] = {
	[PLAN_MODULE] = { "module", "s*", "PATH [PARAM…]" },
	[PLAN_MKDIR] = { "mkdir", "s", "PATH" },
	[PLAN_MOUNT] = { "mount", "ssss", "SOURCE DIR TYPE OPTIONS|-" },
	[PLAN_UMOUNT] = { "umount", "s", "DIR" },
	[PLAN_WRITE] = { "write", "ss", "PATH VALUE" },
	[PLAN_HOSTNAME] = { "hostname", "s", "NAME" },
	[PLAN_DEVICE_WAIT] = { "device-wait", "sn", "PATH MS" },
	[PLAN_UBI_ATTACH] = { "ubi-attach", "n", "MTD" },
	[PLAN_UBI_MKVOL] = { "ubi-mkvol", "nsa", "UBI NAME BYTES|all" },
	[PLAN_UBI_WRITE] = { "ubi-write", "ss", "DEVICE FILE" },
	[PLAN_UBI_BLOCK] = { "ubi-block", "s", "DEVICE" },
	[PLAN_UBI_DETACH] = { "ubi-detach", "n", "UBI" },
	[PLAN_NAND_ERASE] = { "nand-erase", "n?nn", "MTD [FIRST_BLOCK COUNT]" },
	[PLAN_NAND_WRITE] = { "nand-write", "ns?n", "MTD FILE [OFFSET]" },
	[PLAN_NAND_MARKBAD] = { "nand-markbad", "nn", "MTD BLOCK" },
	[PLAN_DISK_WRITE] = { "disk-write", "ss?n", "DEVICE FILE [OFFSET]" },
	[PLAN_CREATE] = { "create", "sncn", "PATH BYTES compressible|printable|random|zero SEED" },
	[PLAN_SETTLE] = { "settle", "snn", "THREAD_PREFIX QUIET_MS TIMEOUT_MS" },
	[PLAN_SLEEP] = { "sleep", "n", "MS" },
	[PLAN_RECORD_START] = { "record-start", "*", "OPTIONS…" },
	[PLAN_RECORD_STOP] = { "record-stop", "", "" },
	[PLAN_PHASE_BEGIN] = { "phase-begin", "s", "NAME" },
	[PLAN_PHASE_END] = { "phase-end", "s", "NAME" },
	[PLAN_STDIN] = { "stdin", "s", "FILE" },
	[PLAN_RUN] = { "run", "ss*", "NAME ARGV…" },
	[PLAN_SPAWN] = { "spawn", "ss*", "NAME ARGV…" },
	[PLAN_GET] = { "get", "s", "PATH" },
	[PLAN_NET] = { "net", "ss", "IFACE ADDRESS/PREFIX" },
	[PLAN_SHELL] = { "shell", "", "" },
};

static int fail(struct plan_error *error, unsigned int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int fail(struct plan_error *error, unsigned int line, const char *format, ...)
{
	va_list ap;

	error->line = line;
	va_start(ap, format);
	vsnprintf(error->text, sizeof(error->text), format, ap);
	va_end(ap);
	return -1;
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int plan_unescape(char *word)
{
	char *out = word;

	while (*word) {
		int high, low;

		if (*word != '%') {
			*out++ = *word++;
			continue;
		}
		high = hex(word[1]);
		low = high < 0 ? -1 : hex(word[2]);
		if (low < 0 || high * 16 + low == 0)
			return -1;
		*out++ = (char)(unsigned char)(high * 16 + low);
		word += 3;
	}
	*out = '\0';
	return 0;
}

int plan_number(const char *word, uint64_t *value)
{
	uint64_t n = 0;

	if (!*word)
		return -1;
	for (; *word; word++) {
		unsigned int digit = (unsigned int)(unsigned char)*word - '0';

		if (digit > 9 || n > (UINT64_MAX - digit) / 10)
			return -1;
		n = n * 10 + digit;
	}
	*value = n;
	return 0;
}

static int check_argument(char kind, const char *word)
{
	enum contents_kind contents;
	uint64_t number;

	switch (kind) {
	case 'n':
		return plan_number(word, &number);
	case 'a':
		return strcmp(word, "all") ? plan_number(word, &number) : 0;
	case 'c':
		return contents_kind_parse(word, &contents);
	default:
		return 0;
	}
}

static int check_arguments(const struct plan_step *step, struct plan_error *error)
{
	const struct verb *verb = &verbs[step->verb];
	const char *kind = verb->arguments;
	bool optional = false;
	int i = 0;

	for (; *kind && *kind != '*'; kind++) {
		if (*kind == '?') {
			if (i == step->argc)
				return 0;
			optional = true;
			continue;
		}
		if (i == step->argc)
			return fail(error, step->line, "%s takes %s%s", verb->name, verb->usage,
				    optional ? " (all of the optional ones or none)" : "");
		if (check_argument(*kind, step->argv[i]))
			return fail(error, step->line, "%s: '%.40s' will not do; it takes %s", verb->name,
				    step->argv[i], verb->usage);
		i++;
	}
	if (*kind != '*' && i != step->argc)
		return fail(error, step->line, "%s takes %s%s", verb->name, *verb->usage ? "only " : "no arguments",
			    verb->usage);
	return 0;
}

static void step_free(struct plan_step *step)
{
	for (int i = 0; i < step->argc; i++)
		free(step->argv[i]);
	free(step->argv);
	free(step->text);
	memset(step, 0, sizeof(*step));
}

/* Cut `step->text` into the verb and its arguments. */
static int parse_words(struct plan_step *step, struct plan_error *error)
{
	const char *p = step->text;
	unsigned int words = 1;
	bool is_verb = true;

	for (const char *q = p; *q; q++)
		words += *q == ' ';
	if (words > PLAN_MAX_WORDS)
		return fail(error, step->line, "%u words; a line has at most %u", words, PLAN_MAX_WORDS);
	step->argv = calloc(words, sizeof(*step->argv));
	if (!step->argv)
		return fail(error, step->line, "out of memory");

	for (;;) {
		size_t length = strcspn(p, " ");
		char *word;

		if (!length)
			return fail(error, step->line, "words are separated by one space, and none ends the line");
		word = strndup(p, length);
		if (!word)
			return fail(error, step->line, "out of memory");
		if (is_verb) {
			unsigned int v;

			for (v = 0; v < ARRAY_SIZE(verbs) && strcmp(verbs[v].name, word); v++)
				;
			if (v == ARRAY_SIZE(verbs)) {
				fail(error, step->line, "'%.40s' is not a verb", word);
				free(word);
				return -1;
			}
			free(word);
			step->verb = (enum plan_verb)v;
			step->verb_name = verbs[v].name;
			is_verb = false;
		} else {
			step->argv[step->argc++] = word;
			if (plan_unescape(word))
				return fail(error, step->line, "'%.40s': %% must begin an escape such as %%20", word);
		}
		p += length;
		if (!*p)
			break;
		p++;
	}
	return check_arguments(step, error);
}

static int parse_line(const char *p, size_t length, struct plan_step *step, struct plan_error *error)
{
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)p[i] < ' ')
			return fail(error, step->line, "control character 0x%02x; write it as %%%02x",
				    (unsigned char)p[i], (unsigned char)p[i]);
	if (*p == '-') {
		step->may_fail = true;
		p++;
		length--;
	}
	step->text = strndup(p, length);
	if (!step->text)
		return fail(error, step->line, "out of memory");
	return parse_words(step, error);
}

int plan_parse(const char *text, size_t length, struct plan *plan, struct plan_error *error)
{
	size_t capacity = 0;
	unsigned int line = 0;
	const char *end = text + length;

	memset(plan, 0, sizeof(*plan));
	if (length > PLAN_MAX_BYTES)
		return fail(error, 0, "%zu bytes; a plan has at most %u", length, PLAN_MAX_BYTES);

	while (text < end) {
		const char *newline = memchr(text, '\n', (size_t)(end - text));
		size_t n = (size_t)((newline ? newline : end) - text);
		struct plan_step *step;

		line++;
		if (n && *text != '#') {
			if (plan->count == PLAN_MAX_STEPS) {
				plan_free(plan);
				return fail(error, line, "more than %u steps", PLAN_MAX_STEPS);
			}
			if (plan->count == capacity) {
				struct plan_step *grown;

				capacity = capacity ? capacity * 2 : 64;
				grown = realloc(plan->steps, capacity * sizeof(*grown));
				if (!grown) {
					plan_free(plan);
					return fail(error, line, "out of memory");
				}
				plan->steps = grown;
			}
			step = &plan->steps[plan->count++];
			memset(step, 0, sizeof(*step));
			step->number = (unsigned int)plan->count;
			step->line = line;
			if (parse_line(text, n, step, error)) {
				plan_free(plan);
				return -1;
			}
		}
		text += n + (newline ? 1 : 0);
	}
	return 0;
}

void plan_free(struct plan *plan)
{
	for (size_t i = 0; i < plan->count; i++)
		step_free(&plan->steps[i]);
	free(plan->steps);
	memset(plan, 0, sizeof(*plan));
}
