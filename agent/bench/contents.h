/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in a data file. Four kinds, each a stream that is a function of its
 * seed alone, so that the same words make the same bytes on every board:
 *
 *   zero          bytes 0
 *   random        the generator's 64-bit numbers, little-endian: incompressible
 *   printable     each byte 32 + (95 * r >> 16) for the next 16 bits r of the
 *                 generator, lowest first: ' ' to '~', 6.57 bits of entropy a byte
 *   compressible  words of a fixed list of 32, each chosen by the next 5 bits
 *                 (12 of a 64-bit number, lowest first), one space between words
 *                 and a newline after every tenth: about 0.8 bits a byte
 *
 * The generator is prng.h's, seeded with the seed itself.
 */
#ifndef FLASHSCOPE_CONTENTS_H
#define FLASHSCOPE_CONTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prng.h"

enum contents_kind {
	CONTENTS_ZERO,
	CONTENTS_RANDOM,
	CONTENTS_PRINTABLE,
	CONTENTS_COMPRESSIBLE,
};

struct contents {
	enum contents_kind kind;
	struct prng prng;
	uint64_t bits;	      /* drawn and not yet used */
	unsigned int left;    /* draws (bytes, 16-bit or 5-bit units) in `bits` */
	const char *word;     /* the rest of a word that a fill has cut */
	unsigned int in_line; /* words of the present line */
	char separator;	      /* that follows the word; 0: it has been given */
};

/* 0, or -1 where no kind has that name. */
int contents_kind_parse(const char *name, enum contents_kind *kind);
const char *contents_kind_name(enum contents_kind kind);

void contents_init(struct contents *c, enum contents_kind kind, uint64_t seed);

/* The next `length` bytes of the stream: how it is cut into calls changes nothing. */
void contents_fill(struct contents *c, void *buffer, size_t length);

/*
 * Write a new file of `size` bytes and fsync it. An existing file is not
 * touched (EEXIST). `stop` is asked between pieces, and ends it with EINTR; it
 * may be NULL. 0, or -1 with errno; what was written is then removed.
 */
int contents_create(const char *path, uint64_t size, enum contents_kind kind, uint64_t seed, bool (*stop)(void));

#endif
