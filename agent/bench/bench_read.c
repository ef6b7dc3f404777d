// SPDX-License-Identifier: Apache-2.0
/*
 * bench read: the program of "Revisiting Read-ahead Efficiency for Raw NAND
 * Flash Storage in Embedded Linux", section 3.1.1. Reads of one size in a loop
 * over one file; each read() is timed by itself.
 *
 *   sequential  request i begins at byte i × request
 *   random      request i begins at request × r, r uniform over the whole
 *               requests of the file, drawn with replacement: prng_below() of a
 *               generator seeded with seed XOR RANDOM_PATTERN_SEED
 *   pages       each page of the file by itself, the last one first. On UBIFS
 *               with --drop-caches all of them again, upwards: what the file
 *               system reads of its index is how the nodes of it end, and then
 *               how they begin. Pages 1, 0, 3, 2, …: two in a row begin a bulk
 *               read
 *
 * Timed is read() alone (CLOCK_MONOTONIC before and after): not lseek(), not
 * the checksum, which is taken of each request's bytes between the reads, and
 * not the inter-arrival time, which passes after every request but the last.
 */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "contents.h"
#include "frame.h"
#include "json.h"
#include "prng.h"
#include "util.h"

/* "pattern" in ASCII: the pattern must not be the stream that filled the file. */
#define RANDOM_PATTERN_SEED UINT64_C(0x007061747465726e)
#define MAX_COUNT UINT64_C(16777216)
#define MAX_REQUEST UINT64_C(268435456)
#define MAX_SIZE (UINT64_C(1) << 46)
#define UBIFS_SUPER_MAGIC 0x24051905 /* fs/ubifs/ubifs.h */

struct options {
	const char *file, *contents, *pattern;
	uint64_t size, seed, count, request, interarrival_us;
	bool has_size, has_count, has_request, has_seed;
	bool create, drop_caches;
	/* as meant */
	enum contents_kind kind;
	bool random, pages;
};

struct measured {
	uint64_t size, pages; /* pages: of --pattern pages */
	uint64_t open_begin_ns, open_end_ns;
	uint64_t begin_ns, end_ns;
	uint64_t total_ns, bytes;
	uint32_t crc;
	uint64_t *latency_ns;
};

static int parse(int argc, char **argv, struct options *o, struct bench_readahead *readahead)
{
	const struct bench_option options[] = {
		{ .name = "--file", .text = &o->file },
		{ .name = "--create", .flag = &o->create },
		{ .name = "--size", .number = &o->size, .max = MAX_SIZE, .given = &o->has_size },
		{ .name = "--contents", .text = &o->contents },
		{ .name = "--seed", .number = &o->seed, .max = UINT64_MAX, .given = &o->has_seed },
		{ .name = "--count", .number = &o->count, .max = MAX_COUNT, .given = &o->has_count },
		{ .name = "--request", .number = &o->request, .max = MAX_REQUEST, .given = &o->has_request },
		{ .name = "--pattern", .text = &o->pattern },
		{ .name = "--interarrival-us", .number = &o->interarrival_us, .max = UINT64_C(3600000000) },
		{ .name = "--readahead", .text = &readahead->requested },
		{ .name = "--drop-caches", .flag = &o->drop_caches },
	};
	int usage = bench_options("read", argc, argv, options, ARRAY_SIZE(options));

	if (usage)
		return usage;
	if (!o->file)
		return fs_usage("bench read: --file PATH is missing");
	if (!o->pattern)
		o->pattern = "sequential";
	o->random = !strcmp(o->pattern, "random");
	o->pages = !strcmp(o->pattern, "pages");
	if (!o->random && !o->pages && strcmp(o->pattern, "sequential"))
		return fs_usage("bench read: --pattern %s: it is sequential or random, or pages", o->pattern);
	if (o->pages && (o->has_count || o->has_request))
		return fs_usage("bench read: --pattern pages has no --count and --request: it reads each page of the file");
	if (!o->pages && (!o->count || !o->request))
		return fs_usage("bench read: --count and --request are missing or 0; give both, at least 1");
	if (o->create && (!o->has_size || !o->contents))
		return fs_usage("bench read: --create needs --size and --contents of the new file");
	if (o->contents && contents_kind_parse(o->contents, &o->kind))
		return fs_usage("bench read: --contents %s: it is compressible, printable, random or zero", o->contents);

	return bench_readahead_parse(readahead, "read");
}

/* 0, or -1 with errno. */
static int create_file(const struct options *o)
{
	char part[2 * FS_PATH_MAX];

	if (bench_part_begin(o->file, part, sizeof(part)) ||
	    contents_create(part, o->size, o->kind, o->seed, bench_interrupted))
		return -1;
	return bench_part_end(o->file, part);
}

/* How many reads --pattern pages makes. 0, or an exit code. */
static int count_pages(struct options *o, struct measured *m)
{
	struct statfs fs;

	if (statfs(o->file, &fs))
		return fs_fail("%s: %s", o->file, strerror(errno));
	o->request = (uint64_t)sysconf(_SC_PAGESIZE);
	m->pages = m->size / o->request + (m->size % o->request != 0);
	o->count = m->pages;
	if (o->drop_caches && fs.f_type == UBIFS_SUPER_MAGIC)
		o->count *= 2;
	if (!o->count || o->count > MAX_COUNT)
		return fs_fail("%s: %llu pages: 1 to %llu can be read one by one", o->file,
			       (unsigned long long)m->pages, (unsigned long long)MAX_COUNT / 2);
	return 0;
}

/* Makes the file where it is missing, and learns its size. 0, or an exit code. */
static int prepare_file(struct options *o, struct measured *m)
{
	uint64_t wanted, size;
	struct stat st;

	if (o->create && create_file(o) && errno != EEXIST)
		return fs_fail("%s: cannot make a file of %llu bytes: %s", o->file, (unsigned long long)o->size,
			       strerror(errno));
	if (stat(o->file, &st))
		return fs_fail("%s: %s%s", o->file, strerror(errno),
			       errno == ENOENT ? "; --create with --size and --contents makes it" : "");
	if (!S_ISREG(st.st_mode))
		return fs_fail("%s: not a regular file; name one file", o->file);
	size = (uint64_t)st.st_size;
	wanted = o->random ? o->request : o->pages ? 0 : o->count * o->request;
	/* --size limits the part of the file that is read. */
	m->size = o->has_size ? o->size : size;
	if (o->has_size && size < o->size)
		return fs_fail("%s: file is %llu bytes, --size says %llu; make it anew or give its size", o->file,
			       (unsigned long long)size, (unsigned long long)o->size);
	if (m->size < wanted)
		return fs_fail("%s: file is %llu bytes, the reads ask for %llu; fewer or smaller requests, or a larger file",
			       o->file, (unsigned long long)m->size, (unsigned long long)wanted);
	return o->pages ? count_pages(o, m) : 0;
}

static void pause_us(uint64_t us)
{
	struct timespec t = { .tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000 };

	nanosleep(&t, NULL); /* ends early only where a signal ends the run */
}

/* Where request i begins, of a pattern that seeks. */
static uint64_t begin_of(const struct options *o, const struct measured *m, uint64_t i, struct prng *prng)
{
	uint64_t other;

	if (o->random)
		return prng_below(prng, m->size / o->request) * o->request;
	if (i < m->pages)
		return (m->pages - 1 - i) * o->request;
	i -= m->pages;
	other = i ^ 1;
	return (other < m->pages ? other : i) * o->request;
}

/* One request, timed, from byte `at` on. 0, or an exit code. */
static int read_one(const struct options *o, int fd, unsigned char *buffer, uint64_t i, uint64_t at, struct measured *m)
{
	uint64_t wanted = o->pages && m->size - at < o->request ? m->size - at : o->request;
	uint64_t begin, end;
	ssize_t n;

	begin = fs_now_ns();
	n = read(fd, buffer, (size_t)wanted);
	end = fs_now_ns();
	if (n < 0)
		return fs_fail("%s: request %llu: %s", o->file, (unsigned long long)i, strerror(errno));
	if ((uint64_t)n != wanted)
		return fs_fail("%s: request %llu: %zd of %llu bytes were read; the file became shorter, or the run was interrupted",
			       o->file, (unsigned long long)i, n, (unsigned long long)wanted);
	m->latency_ns[i] = end - begin;
	m->total_ns += end - begin;
	m->bytes += wanted;
	m->crc = fs_crc32(m->crc, buffer, (size_t)wanted);
	m->end_ns = end;
	if (!i)
		m->begin_ns = begin;
	return 0;
}

/* The file, with what was advised. A descriptor, or -1 with *failed. */
static int open_file(const struct options *o, const struct bench_readahead *readahead, struct measured *m, int *failed)
{
	uint64_t begin = fs_now_ns();
	int fd = open(o->file, O_RDONLY | O_CLOEXEC);

	if (!m->open_end_ns) {
		m->open_begin_ns = begin;
		m->open_end_ns = fs_now_ns();
	}
	*failed = fd < 0 ? fs_fail("%s: %s", o->file, strerror(errno)) : bench_readahead_advise(readahead, fd, o->file);
	return fd;
}

/* The requests. 0, or an exit code. */
static int read_all(const struct options *o, const struct bench_readahead *readahead, unsigned char *buffer,
		    struct measured *m)
{
	struct prng prng;
	int failed, fd = open_file(o, readahead, m, &failed);

	prng_seed(&prng, o->seed ^ RANDOM_PATTERN_SEED);
	for (uint64_t i = 0; i < o->count && !failed; i++) {
		uint64_t at = i * o->request;

		if (bench_interrupted()) {
			failed = fs_fail("bench read: interrupted after %llu of %llu requests", (unsigned long long)i,
					 (unsigned long long)o->count);
			break;
		}
		if (o->pages && i && i == m->pages) {
			/* The part of the index in memory is freed with the open file's inode. */
			close(fd);
			fd = -1;
			failed = bench_drop_caches();
			if (!failed)
				fd = open_file(o, readahead, m, &failed);
			if (failed)
				break;
		}
		if (o->random || o->pages) {
			at = begin_of(o, m, i, &prng);
			if (lseek(fd, (off_t)at, SEEK_SET) < 0) {
				failed = fs_fail("%s: seek: %s", o->file, strerror(errno));
				break;
			}
		}
		failed = read_one(o, fd, buffer, i, at, m);
		if (!failed && o->interarrival_us && i + 1 < o->count)
			pause_us(o->interarrival_us);
	}
	if (fd >= 0)
		close(fd);
	return failed;
}

static int measure(const struct options *o, const struct bench_readahead *readahead, struct measured *m)
{
	unsigned char *buffer = fs_alloc((size_t)o->request);
	int failed;

	/* Memory is touched before the clock runs: no page fault falls into a read. */
	memset(buffer, 0xa5, (size_t)o->request);
	m->latency_ns = fs_alloc((size_t)o->count * sizeof(*m->latency_ns));
	memset(m->latency_ns, 0, (size_t)o->count * sizeof(*m->latency_ns));
	m->crc = fs_crc32(0, buffer, 0);
	failed = read_all(o, readahead, buffer, m);
	free(buffer);
	return failed;
}

static int print(const struct options *o, const struct bench_readahead *readahead, const struct measured *m)
{
	struct fs_json json = { 0 };

	fs_json_object(&json, NULL);
	fs_json_string(&json, "bench", "read");
	fs_json_string(&json, "file", o->file);
	fs_json_u64(&json, "size_bytes", m->size);
	fs_json_string(&json, "contents", o->contents);
	fs_json_u64(&json, "seed", o->seed);
	fs_json_u64(&json, "count", o->count);
	fs_json_u64(&json, "request_bytes", o->request);
	fs_json_string(&json, "pattern", o->pattern);
	fs_json_u64(&json, "interarrival_us", o->interarrival_us);
	fs_json_bool(&json, "dropped_caches", o->drop_caches);
	bench_readahead_json(&json, readahead);
	bench_span_json(&json, "open", m->open_begin_ns, m->open_end_ns);
	bench_span_json(&json, "measured", m->begin_ns, m->end_ns);
	fs_json_u64(&json, "total_ns", m->total_ns);
	fs_json_u64(&json, "bytes_read", m->bytes);
	fs_json_u64(&json, "checksum", m->crc);
	fs_json_array(&json, "latencies_ns");
	for (uint64_t i = 0; i < o->count; i++)
		fs_json_u64(&json, NULL, m->latency_ns[i]);
	fs_json_array_end(&json);
	fs_json_object_end(&json);
	return bench_print(&json);
}

int bench_read(int argc, char **argv)
{
	struct options o = { 0 };
	struct bench_readahead readahead = { 0 };
	struct measured m = { 0 };
	int failed = parse(argc, argv, &o, &readahead);

	if (failed)
		return failed;
	bench_catch_signals();
	failed = prepare_file(&o, &m);
	if (!failed)
		failed = bench_readahead_prepare(&readahead, o.file);
	if (!failed && o.drop_caches)
		failed = bench_drop_caches();
	if (!failed)
		failed = measure(&o, &readahead, &m);
	/* Also where something failed: the knob may have been changed, a file noted. */
	if (readahead.set_knob || o.create)
		failed = bench_readahead_restore(&readahead, failed);
	if (!failed)
		failed = print(&o, &readahead, &m);
	free(m.latency_ns);
	return failed;
}
