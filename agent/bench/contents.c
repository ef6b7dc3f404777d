// SPDX-License-Identifier: Apache-2.0
#include "contents.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util.h"

#define WORDS_A_LINE 10u
#define CREATE_CHUNK 65536u

/* Part of the format: changing one changes every compressible file. */
static const char *const words[32] = {
	"address", "array",  "bad",  "block", "buffer", "cache",   "chip",  "column", "command", "data", "device",
	"erase",   "file",   "flash", "free",  "journal", "kernel", "log",   "mount",  "node",	 "offset", "page",
	"plane",   "program", "read", "ready", "sector", "spare",  "status", "time",   "wear",	 "write",
};

static const char *const kind_names[] = {
	[CONTENTS_ZERO] = "zero",
	[CONTENTS_RANDOM] = "random",
	[CONTENTS_PRINTABLE] = "printable",
	[CONTENTS_COMPRESSIBLE] = "compressible",
};

int contents_kind_parse(const char *name, enum contents_kind *kind)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(kind_names); i++) {
		if (!strcmp(name, kind_names[i])) {
			*kind = (enum contents_kind)i;
			return 0;
		}
	}
	return -1;
}

const char *contents_kind_name(enum contents_kind kind)
{
	return kind_names[kind];
}

void contents_init(struct contents *c, enum contents_kind kind, uint64_t seed)
{
	memset(c, 0, sizeof(*c));
	c->kind = kind;
	c->word = "";
	prng_seed(&c->prng, seed);
}

/* The next unit of `width` bits; `units` of them are taken from one number. */
static unsigned int draw(struct contents *c, unsigned int width, unsigned int units)
{
	unsigned int value;

	if (!c->left) {
		c->bits = prng_next(&c->prng);
		c->left = units;
	}
	value = (unsigned int)(c->bits & ((1u << width) - 1));
	c->bits >>= width;
	c->left--;
	return value;
}

/* Whole numbers at once: a byte at a time costs a slow board ten times as much. */
static void fill_random(struct contents *c, unsigned char *out, size_t length)
{
	size_t at = 0;

	while (at < length && c->left)
		out[at++] = (unsigned char)draw(c, 8, 8);
	for (; length - at >= sizeof(uint64_t); at += sizeof(uint64_t)) {
		uint64_t number = htole64(prng_next(&c->prng));

		memcpy(out + at, &number, sizeof(number));
	}
	while (at < length)
		out[at++] = (unsigned char)draw(c, 8, 8);
}

static unsigned char next_text_byte(struct contents *c)
{
	if (!*c->word) {
		if (c->separator) {
			unsigned char separator = (unsigned char)c->separator;

			c->separator = 0;
			return separator;
		}
		c->word = words[draw(c, 5, 12)];
		c->in_line++;
		c->separator = ' ';
		if (c->in_line == WORDS_A_LINE) {
			c->separator = '\n';
			c->in_line = 0;
		}
	}
	return (unsigned char)*c->word++;
}

void contents_fill(struct contents *c, void *buffer, size_t length)
{
	unsigned char *out = buffer;

	switch (c->kind) {
	case CONTENTS_ZERO:
		memset(out, 0, length);
		break;
	case CONTENTS_RANDOM:
		fill_random(c, out, length);
		break;
	case CONTENTS_PRINTABLE:
		for (size_t i = 0; i < length; i++)
			out[i] = (unsigned char)(32 + (draw(c, 16, 4) * 95 >> 16));
		break;
	case CONTENTS_COMPRESSIBLE:
		for (size_t i = 0; i < length; i++)
			out[i] = next_text_byte(c);
		break;
	}
}

static int write_contents(int fd, uint64_t size, struct contents *c, unsigned char *chunk, bool (*stop)(void))
{
	while (size) {
		size_t n = size < CREATE_CHUNK ? (size_t)size : CREATE_CHUNK;

		if (stop && stop()) {
			errno = EINTR;
			return -1;
		}
		contents_fill(c, chunk, n);
		if (fs_write_all(fd, chunk, n))
			return -1;
		size -= n;
	}
	return fsync(fd);
}

int contents_create(const char *path, uint64_t size, enum contents_kind kind, uint64_t seed, bool (*stop)(void))
{
	struct contents c;
	unsigned char *chunk;
	int fd, failed;

	chunk = malloc(CREATE_CHUNK);
	if (!chunk)
		return -1;
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0) {
		free(chunk);
		return -1;
	}
	contents_init(&c, kind, seed);
	failed = write_contents(fd, size, &c, chunk, stop) ? errno : 0;
	free(chunk);
	if (close(fd) && !failed)
		failed = errno;
	if (!failed)
		return 0;
	unlink(path);
	errno = failed;
	return -1;
}
