// SPDX-License-Identifier: Apache-2.0
/*
 * bench raw: timed reads of /dev/mtdN, and nothing but reads. A page-aligned
 * transfer of N pages is N array-read commands: the ground truth of event
 * counts, and the workload that the tracer's own cost is measured with.
 */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <mtd/mtd-user.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "frame.h"
#include "json.h"
#include "util.h"

struct options {
	uint64_t mtd, count, length, offset, stride;
	bool has_mtd, has_stride, oob;
};

struct measured {
	uint64_t pages; /* page reads asked for: a page that two reads touch counts twice */
	uint64_t begin_ns, end_ns;
	uint64_t total_ns, min_ns, max_ns;
	uint32_t crc;
};

static int parse(int argc, char **argv, struct options *o)
{
	const struct bench_option options[] = {
		{ .name = "--mtd", .number = &o->mtd, .max = 255, .given = &o->has_mtd },
		{ .name = "--count", .number = &o->count, .max = UINT64_C(1) << 32 },
		{ .name = "--length", .number = &o->length, .max = UINT64_C(1) << 26 },
		{ .name = "--offset", .number = &o->offset, .max = UINT64_C(1) << 46 },
		{ .name = "--stride", .number = &o->stride, .max = UINT64_C(1) << 46, .given = &o->has_stride },
		{ .name = "--oob", .flag = &o->oob },
	};
	int usage = bench_options("raw", argc, argv, options, ARRAY_SIZE(options));

	if (usage)
		return usage;
	if (!o->has_mtd)
		return fs_usage("bench raw: --mtd N is missing");
	if (!o->count || !o->length)
		return fs_usage("bench raw: --count and --length are missing or 0; give both, at least 1");
	if (!o->has_stride)
		o->stride = o->length;
	return 0;
}

/* Reads `o->length` bytes at `at`. 0, or -1 with errno; EUCLEAN and EBADMSG are the kernel's words on ECC. */
static int read_at(int fd, const struct options *o, uint64_t at, unsigned char *buffer)
{
	if (o->oob) {
		struct mtd_oob_buf64 oob = { .start = at, .length = (uint32_t)o->length, .usr_ptr = (uintptr_t)buffer };

		return ioctl(fd, MEMREADOOB64, &oob);
	}
	for (uint64_t done = 0; done < o->length;) {
		ssize_t n = pread(fd, buffer + done, (size_t)(o->length - done), (off_t)(at + done));

		if (n <= 0) {
			if (!n)
				errno = EIO;
			return -1;
		}
		done += (uint64_t)n;
	}
	return 0;
}

static int check(const struct options *o, const struct mtd_info_user *info)
{
	uint64_t size, last;
	char path[48];

	/* mtd_info_user has 32 bits for it; larger devices exist. */
	snprintf(path, sizeof(path), "/sys/class/mtd/mtd%llu/size", (unsigned long long)o->mtd);
	if (!fs_read_u64(path, &size))
		size = info->size;
	if (o->oob && o->length > info->oobsize)
		return fs_fail("mtd%llu: a page has %u spare bytes, the reads ask for %llu", (unsigned long long)o->mtd,
			       info->oobsize, (unsigned long long)o->length);
	if (o->stride && o->count - 1 > (UINT64_MAX / 4) / o->stride)
		return fs_fail("bench raw: count times stride is too large");
	last = o->offset + (o->count - 1) * o->stride + (o->oob ? 1 : o->length);
	if (last > size)
		return fs_fail("mtd%llu: device is %llu bytes, the reads ask for %llu; fewer reads, or a smaller stride",
			       (unsigned long long)o->mtd, (unsigned long long)size, (unsigned long long)last);
	return 0;
}

static int measure(int fd, const struct options *o, uint32_t page, struct measured *m)
{
	unsigned char *buffer = fs_alloc((size_t)o->length);
	int failed = 0;

	memset(buffer, 0xa5, (size_t)o->length);
	m->min_ns = UINT64_MAX;
	m->crc = fs_crc32(0, buffer, 0); /* makes its tables before the first read */
	for (uint64_t i = 0; i < o->count && !failed; i++) {
		uint64_t at = o->offset + i * o->stride;
		uint64_t begin, end;

		if (bench_interrupted()) {
			failed = fs_fail("bench raw: interrupted after %llu of %llu reads", (unsigned long long)i,
					 (unsigned long long)o->count);
			break;
		}
		begin = fs_now_ns();
		failed = read_at(fd, o, at, buffer);
		end = fs_now_ns();
		if (failed) {
			failed = fs_fail("mtd%llu offset %llu: %s", (unsigned long long)o->mtd, (unsigned long long)at,
					 strerror(errno));
			break;
		}
		if (!i)
			m->begin_ns = begin;
		m->end_ns = end;
		m->total_ns += end - begin;
		m->min_ns = end - begin < m->min_ns ? end - begin : m->min_ns;
		m->max_ns = end - begin > m->max_ns ? end - begin : m->max_ns;
		m->pages += o->oob ? 1 : (at + o->length - 1) / page - at / page + 1;
		m->crc = fs_crc32(m->crc, buffer, (size_t)o->length);
	}
	free(buffer);
	return failed;
}

static int print(const struct options *o, const struct mtd_info_user *info, const struct measured *m)
{
	struct fs_json json = { 0 };

	fs_json_object(&json, NULL);
	fs_json_string(&json, "bench", "raw");
	fs_json_u64(&json, "mtd", o->mtd);
	fs_json_u64(&json, "count", o->count);
	fs_json_u64(&json, "length_bytes", o->length);
	fs_json_u64(&json, "offset_bytes", o->offset);
	fs_json_u64(&json, "stride_bytes", o->stride);
	fs_json_bool(&json, "oob", o->oob);
	fs_json_u64(&json, "page_bytes", info->writesize);
	fs_json_u64(&json, "pages_touched", m->pages);
	bench_span_json(&json, "measured", m->begin_ns, m->end_ns);
	fs_json_u64(&json, "total_ns", m->total_ns);
	fs_json_object(&json, "latency");
	fs_json_u64(&json, "min_ns", m->min_ns);
	fs_json_u64(&json, "mean_ns", m->total_ns / o->count);
	fs_json_u64(&json, "max_ns", m->max_ns);
	fs_json_object_end(&json);
	fs_json_u64(&json, "checksum", m->crc);
	fs_json_object_end(&json);
	return bench_print(&json);
}

int bench_raw(int argc, char **argv)
{
	struct mtd_info_user info;
	struct options o = { 0 };
	struct measured m = { 0 };
	char path[32];
	int fd, failed;

	failed = parse(argc, argv, &o);
	if (failed)
		return failed;
	bench_catch_signals();
	snprintf(path, sizeof(path), "/dev/mtd%llu", (unsigned long long)o.mtd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return fs_fail("%s: %s%s", path, strerror(errno),
			       errno == ENOENT ? "; `probe` lists the MTD devices" : "");
	if (ioctl(fd, MEMGETINFO, &info) || !info.writesize)
		failed = fs_fail("%s: not an MTD device; `probe` lists the MTD devices", path);
	if (!failed)
		failed = check(&o, &info);
	if (!failed)
		failed = measure(fd, &o, info.writesize, &m);
	close(fd);
	return failed ? failed : print(&o, &info, &m);
}
