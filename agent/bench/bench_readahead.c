// SPDX-License-Identifier: Apache-2.0
/* What the benchmarks of files share: read-ahead, cold caches, making files, pieces of their JSON. */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sweep.h"
#include "util.h"

/* The largest that read_ahead_kb takes on a 32-bit kernel without wrapping (pages in 32 bits). */
#define MAX_READAHEAD_KIB UINT64_C(4194303)

int bench_readahead_parse(struct bench_readahead *r, const char *bench)
{
	uint64_t kib;

	if (!r->requested)
		r->requested = "keep";
	r->advice = -1;
	if (!strcmp(r->requested, "fadvise-random")) {
		r->advice = POSIX_FADV_RANDOM;
	} else if (!strcmp(r->requested, "fadvise-sequential")) {
		r->advice = POSIX_FADV_SEQUENTIAL;
	} else if (strcmp(r->requested, "keep")) {
		if (!fs_parse_u64(r->requested, MAX_READAHEAD_KIB, &kib))
			return fs_usage("bench %s: --readahead %s: it is keep, a number of KiB, fadvise-random or "
					"fadvise-sequential",
					bench, r->requested);
		r->set_knob = true;
		snprintf(r->kib, sizeof(r->kib), "%llu", (unsigned long long)kib);
	}
	return 0;
}

int bench_readahead_prepare(struct bench_readahead *r, const char *path)
{
	char why[200];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int none;

	if (fd < 0)
		return fs_fail("%s: %s", path, strerror(errno));
	none = bench_readahead_knob(fd, r->knob, sizeof(r->knob), why, sizeof(why));
	close(fd);
	if (none) {
		*r->knob = '\0';
		return r->set_knob ? fs_fail("%s: %s; use --readahead fadvise-random or keep", path, why) : 0;
	}
	r->has_before = fs_read_u64(r->knob, &r->before_kib);
	if (r->set_knob && fs_knob_set(r->knob, r->kib))
		return fs_fail("%s: %s; setting read-ahead needs root", r->knob, strerror(errno));
	r->has_effective = fs_read_u64(r->knob, &r->effective_kib);
	return 0;
}

int bench_readahead_advise(const struct bench_readahead *r, int fd, const char *path)
{
	int error = r->advice >= 0 ? posix_fadvise(fd, 0, 0, r->advice) : 0;

	return error ? fs_fail("%s: %s: %s", path, r->requested, strerror(error)) : 0;
}

int bench_readahead_restore(const struct bench_readahead *r, int failed)
{
	if (fs_knobs_restore() && !failed)
		return fs_fail("%s: cannot put back %llu: %s", r->knob, (unsigned long long)r->before_kib, strerror(errno));
	return failed;
}

void bench_readahead_json(struct fs_json *json, const struct bench_readahead *r)
{
	fs_json_object(json, "readahead");
	fs_json_string(json, "requested", r->requested);
	fs_json_string(json, "knob", *r->knob ? r->knob : NULL);
	fs_json_known(json, "before_kib", r->has_before, r->before_kib);
	fs_json_known(json, "effective_kib", r->has_effective, r->effective_kib);
	fs_json_object_end(json);
}

int bench_drop_caches(void)
{
	sync();
	if (fs_write_text("/proc/sys/vm/drop_caches", "3"))
		return fs_fail("/proc/sys/vm/drop_caches: %s; --drop-caches needs root", strerror(errno));
	return 0;
}

int bench_part_begin(const char *file, char *part, size_t size)
{
	char own[96], here[FS_PATH_MAX] = "";

	if (!access(file, F_OK)) {
		errno = EEXIST;
		return -1;
	}
	fs_own_name(own, sizeof(own), "flashscope");
	if (*file != '/' && !getcwd(here, sizeof(here)))
		return -1;
	if (snprintf(part, size, "%s%s%s.%s", here, *here ? "/" : "", file, own) >= (int)size) {
		errno = ENAMETOOLONG;
		return -1;
	}
	/* Without a directory for notes the next run cannot find this note; the benchmark can go on without it. */
	fs_temp_note(part);
	return 0;
}

int bench_part_end(const char *file, const char *part)
{
	int failed = 0;

	/* link() never replaces a file; FAT has no links (EPERM). */
	if (link(part, file) && (errno != EPERM || rename(part, file)))
		failed = errno;
	unlink(part);
	errno = failed;
	return failed ? -1 : 0;
}

void bench_span_json(struct fs_json *json, const char *name, uint64_t begin_ns, uint64_t end_ns)
{
	fs_json_object(json, name);
	fs_json_u64(json, "begin_ns", begin_ns);
	fs_json_u64(json, "end_ns", end_ns);
	fs_json_object_end(json);
}

int bench_print(struct fs_json *json)
{
	int failed = 0;

	if (printf("%s\n", json->out.data) < 0 || fflush(stdout))
		failed = fs_fail("stdout: %s", strerror(errno));
	fs_json_free(json);
	return failed;
}
