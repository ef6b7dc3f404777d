// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "contents.h"
#include "frame.h"
#include "prng.h"
#include "check.h"

#define N 100000u

static void test_prng(void)
{
	unsigned int seen[7] = { 0 };
	struct prng p;

	/* SplitMix64's published test vector for the seed 1234567 (Vigna's splitmix64.c, as Rosetta Code prints it). */
	prng_seed(&p, 1234567);
	CHECK(prng_next(&p) == UINT64_C(6457827717110365317));
	CHECK(prng_next(&p) == UINT64_C(3203168211198807973));
	CHECK(prng_next(&p) == UINT64_C(9817491932198370423));

	prng_seed(&p, 1);
	for (unsigned int i = 0; i < 70000; i++) {
		uint64_t x = prng_below(&p, 7);

		CHECK(x < 7);
		if (x < 7)
			seen[x]++;
	}
	/* 10000 expected, standard deviation 93: five of them either way */
	for (unsigned int i = 0; i < 7; i++)
		CHECK(seen[i] > 9535 && seen[i] < 10465);
	CHECK(prng_below(&p, 1) == 0);
	for (unsigned int i = 0; i < 100; i++)
		CHECK(prng_below(&p, UINT64_MAX) < UINT64_MAX);
}

/*
 * However a stream is cut into calls, its bytes are the same; and their CRC is
 * that of a second implementation, in Python, from the words of contents.h.
 */
static void test_stream(enum contents_kind kind, uint32_t crc)
{
	unsigned char *whole = malloc(N), *parts = malloc(N);
	struct contents c;
	size_t at = 0, step = 1;

	if (!whole || !parts)
		abort();
	contents_init(&c, kind, 42);
	contents_fill(&c, whole, N);
	contents_init(&c, kind, 42);
	while (at < N) {
		size_t n = step < N - at ? step : N - at;

		contents_fill(&c, parts + at, n);
		at += n;
		step = step * 3 % 1021 + 1;
	}
	CHECK(!memcmp(whole, parts, N));
	CHECK(fs_crc32(0, whole, N) == crc);
	if (fs_crc32(0, whole, N) != crc)
		fprintf(stderr, "  %s: 0x%08x\n", contents_kind_name(kind), fs_crc32(0, whole, N));
	contents_init(&c, kind, 43);
	contents_fill(&c, parts, N);
	CHECK((memcmp(whole, parts, N) == 0) == (kind == CONTENTS_ZERO));
	free(whole);
	free(parts);
}

static void test_kinds(void)
{
	unsigned char *bytes = malloc(N);
	unsigned int seen[256] = { 0 };
	enum contents_kind kind;
	struct contents c;

	if (!bytes)
		abort();
	contents_init(&c, CONTENTS_PRINTABLE, 5);
	contents_fill(&c, bytes, N);
	for (unsigned int i = 0; i < N; i++)
		seen[bytes[i]]++;
	/* 1053 expected of each of 95, standard deviation 32 */
	for (unsigned int b = 0; b < 256; b++)
		CHECK(b >= ' ' && b <= '~' ? seen[b] > 880 && seen[b] < 1230 : seen[b] == 0);

	contents_init(&c, CONTENTS_COMPRESSIBLE, 5);
	contents_fill(&c, bytes, N);
	for (unsigned int i = 0; i < N; i++)
		CHECK((bytes[i] >= 'a' && bytes[i] <= 'z') || bytes[i] == ' ' || bytes[i] == '\n');

	contents_init(&c, CONTENTS_ZERO, 5);
	contents_fill(&c, bytes, N);
	CHECK(!bytes[0] && !memcmp(bytes, bytes + 1, N - 1));

	CHECK(!contents_kind_parse("random", &kind) && kind == CONTENTS_RANDOM);
	CHECK(!contents_kind_parse("zero", &kind) && kind == CONTENTS_ZERO);
	CHECK(contents_kind_parse("Random", &kind) == -1 && contents_kind_parse("", &kind) == -1);
	free(bytes);
}

/* Stops in the third piece. */
static unsigned int asked;

static bool stop(void)
{
	return ++asked == 3;
}

static void test_create(void)
{
	char dir[] = "/tmp/fs-contents-XXXXXX";
	char path[64];
	struct stat st;

	if (!mkdtemp(dir))
		abort();
	snprintf(path, sizeof(path), "%s/f", dir);
	CHECK(!contents_create(path, 200001, CONTENTS_COMPRESSIBLE, 9, NULL));
	CHECK(!stat(path, &st) && st.st_size == 200001);
	errno = 0;
	CHECK(contents_create(path, 1, CONTENTS_ZERO, 0, NULL) == -1 && errno == EEXIST);
	CHECK(!stat(path, &st) && st.st_size == 200001); /* not touched */
	unlink(path);
	CHECK(contents_create(path, UINT64_C(1) << 46, CONTENTS_ZERO, 0, stop) == -1 && errno == EINTR);
	CHECK(asked == 3 && stat(path, &st)); /* and nothing is left of it */
	snprintf(path, sizeof(path), "%s/no/f", dir);
	CHECK(contents_create(path, 1, CONTENTS_ZERO, 0, NULL) == -1 && errno == ENOENT);
	rmdir(dir);
	/* A full disk: the error is the disk's, and it is said. */
	CHECK(contents_create("/proc/fs-contents", 1, CONTENTS_ZERO, 0, NULL) == -1);
}

int main(void)
{
	test_prng();
	test_stream(CONTENTS_ZERO, 0xd411957d);
	test_stream(CONTENTS_RANDOM, 0x4d66526c);
	test_stream(CONTENTS_PRINTABLE, 0xfd227b69);
	test_stream(CONTENTS_COMPRESSIBLE, 0xe7994c67);
	test_kinds();
	test_create();
	return check_verdict("contents");
}
