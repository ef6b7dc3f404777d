// SPDX-License-Identifier: Apache-2.0
/*
 * bench replay: the calls of recorded programs, done again elsewhere: on another file
 * system, another board, or with another setting. The script (replay_script.c) is made by
 * flashscope of a trace or of strace's output, and short enough to be written by hand.
 *
 * Its files are made in a directory of the run's own, filled as told, and removed at the
 * end. Each task is a process with the recorded name and its own open files, so that
 * read-ahead sees each task's pattern as it was, and a trace shows who did what.
 */
#include "bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include "replay_play.h"
#include "sweep.h"

struct options {
	const char *script, *dir, *timing, *contents;
	uint64_t seed;
	bool drop_caches, existing;
};

static int parse(int argc, char **argv, struct options *o, struct replay_run *r, struct bench_readahead *readahead)
{
	const struct bench_option options[] = {
		{ .name = "--script", .text = &o->script },
		{ .name = "--dir", .text = &o->dir },
		{ .name = "--timing", .text = &o->timing },
		{ .name = "--contents", .text = &o->contents },
		{ .name = "--seed", .number = &o->seed, .max = UINT64_MAX },
		{ .name = "--readahead", .text = &readahead->requested },
		{ .name = "--drop-caches", .flag = &o->drop_caches },
		{ .name = "--existing", .flag = &o->existing },
	};
	static const char *const timings[] = { [REPLAY_ASAP] = "asap", [REPLAY_RECORDED] = "recorded", [REPLAY_PAUSES] = "pauses" };
	int usage = bench_options("replay", argc, argv, options, ARRAY_SIZE(options));
	size_t timing = 0;

	if (usage)
		return usage;
	if (!o->script || !o->dir)
		return fs_usage("bench replay: --script FILE and --dir DIR are wanted: what to read, and where");
	while (timing < ARRAY_SIZE(timings) && strcmp(o->timing, timings[timing]))
		timing++;
	if (timing == ARRAY_SIZE(timings))
		return fs_usage("bench replay: --timing %s: it is asap, recorded or pauses", o->timing);
	r->timing = (enum replay_timing)timing;
	if (contents_kind_parse(o->contents, &r->kind))
		return fs_usage("bench replay: --contents %s: it is compressible, printable, random or zero", o->contents);
	r->seed = o->seed;
	return bench_readahead_parse(readahead, "replay");
}

/* include/uapi/linux/magic.h; UBIFS_SUPER_MAGIC is the first. */
static bool compresses(const char *dir)
{
	static const uint32_t types[] = { 0x24051905, 0x72b6 /* JFFS2 */, 0x9123683e /* btrfs */, 0xf2f52010 /* f2fs */ };
	struct statfs fs;

	if (statfs(dir, &fs))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if ((uint32_t)fs.f_type == types[i])
			return true;
	return false;
}

/*
 * A script may write far more than fits. Then it is refused here, before it has filled the file system. Twice its size
 * must be free: UBIFS reports less than fits, since it reserves space for the worst case.
 */
static int check_room(const struct replay_run *r, const struct options *o)
{
	uint64_t wanted = 0, room, least;
	struct statvfs vfs;

	for (uint32_t i = 0; i < r->s->files; i++)
		wanted += r->s->file[i].most;
	if (statvfs(r->dir, &vfs))
		return fs_fail("%s: %s", r->dir, strerror(errno));
	room = (uint64_t)vfs.f_bavail * vfs.f_frsize;
	if (!(r->kind == CONTENTS_ZERO || r->kind == CONTENTS_COMPRESSIBLE) || !compresses(r->dir))
		least = wanted / 2;
	else
		least = wanted / 64;
	if (least > room)
		return fs_fail("%s: its files take %llu bytes and %llu are free there; a larger partition, or a part of the trace",
			       o->script, (unsigned long long)wanted, (unsigned long long)room);
	return 0;
}

static int make_files(const struct replay_run *r, const struct options *o)
{
	char path[FS_PATH_MAX + 16];
	int failed = check_room(r, o);

	if (failed)
		return failed;
	for (uint32_t i = 0; i < r->s->files; i++) {
		const struct replay_file *file = &r->s->file[i];

		if (bench_interrupted())
			return fs_fail("bench replay: interrupted while its files were made; they are removed");
		if (file->absent)
			continue;
		replay_file_path(r, i, path, sizeof(path));
		if (contents_create(path, file->size, r->kind, r->seed + i, bench_interrupted))
			return fs_fail("%s: cannot make a file of %llu bytes: %s%s", path, (unsigned long long)file->size,
				       strerror(errno), errno == ENOSPC ? "; a larger partition, or a part of the trace" : "");
	}
	return 0;
}

/* What a task's calls of some verbs come to. */
struct sum {
	uint64_t calls, total_ns, longest_ns;
};

static void add(struct sum *sum, uint64_t ns)
{
	sum->calls++;
	sum->total_ns += ns;
	if (ns > sum->longest_ns)
		sum->longest_ns = ns;
}

static void print_sum(struct fs_json *json, const char *name, const struct sum *sum)
{
	fs_json_object(json, name);
	fs_json_u64(json, "calls", sum->calls);
	fs_json_u64(json, "total_ns", sum->total_ns);
	fs_json_u64(json, "longest_ns", sum->longest_ns);
	fs_json_object_end(json);
}

static void print_task(struct fs_json *json, const struct replay_run *r, uint32_t task)
{
	const struct replay_task_result *t = &r->task[task];
	struct sum reads = { 0 }, writes = { 0 }, syncs = { 0 }, others = { 0 };
	uint64_t late = 0, is_short = 0, end = 0;

	for (size_t i = 0; i < r->s->calls; i++) {
		const struct replay_call *call = &r->s->call[i];
		struct sum *sum = call->verb == REPLAY_READ						  ? &reads :
				  call->verb == REPLAY_WRITE						  ? &writes :
				  call->verb == REPLAY_FSYNC || call->verb == REPLAY_FDATASYNC ? &syncs :
													    &others;

		if (call->task != task)
			continue;
		add(sum, r->result[i].latency_ns);
		is_short += r->result[i].is_short;
		if (r->result[i].begin_ns + r->result[i].latency_ns > end)
			end = r->result[i].begin_ns + r->result[i].latency_ns;
		if (r->result[i].late_ns > late)
			late = r->result[i].late_ns;
	}
	fs_json_object(json, NULL);
	fs_json_string(json, "label", r->s->task[task].label);
	fs_json_u64(json, "reads", reads.calls);
	fs_json_u64(json, "bytes_read", t->bytes_read);
	fs_json_string(json, "name", r->s->task[task].name);
	fs_json_u64(json, "short_reads", is_short);
	fs_json_u64(json, "total_ns", reads.total_ns);
	fs_json_u64(json, "open_ns", t->open_ns);
	fs_json_u64(json, "end_ns", end ? end - *r->start_ns : 0);
	fs_json_u64(json, "bytes_written", t->bytes_written);
	print_sum(json, "writes", &writes);
	print_sum(json, "syncs", &syncs);
	print_sum(json, "others", &others);
	fs_json_known(json, "max_late_ns", r->timing != REPLAY_ASAP, late);
	fs_json_u64(json, "checksum", t->crc);
	fs_json_array(json, "begins_ns");
	for (size_t i = 0; i < r->s->calls; i++)
		if (r->s->call[i].task == task && r->s->call[i].verb == REPLAY_READ)
			fs_json_u64(json, NULL, r->result[i].begin_ns - *r->start_ns);
	fs_json_array_end(json);
	fs_json_array(json, "latencies_ns");
	for (size_t i = 0; i < r->s->calls; i++)
		if (r->s->call[i].task == task && r->s->call[i].verb == REPLAY_READ)
			fs_json_u64(json, NULL, r->result[i].latency_ns);
	fs_json_array_end(json);
	fs_json_object_end(json);
}

static int print(const struct replay_run *r, const struct options *o)
{
	uint64_t begin = UINT64_MAX, end = 0, total = 0, reads = 0, bytes = 0, written = 0, file_bytes = 0;
	struct fs_json json = { 0 };

	for (size_t i = 0; i < r->s->calls; i++) {
		const struct replay_result *result = &r->result[i];

		begin = result->begin_ns < begin ? result->begin_ns : begin;
		end = result->begin_ns + result->latency_ns > end ? result->begin_ns + result->latency_ns : end;
		if (r->s->call[i].verb != REPLAY_READ)
			continue;
		reads++;
		total += result->latency_ns;
	}
	for (uint32_t i = 0; i < r->s->tasks; i++) {
		bytes += r->task[i].bytes_read;
		written += r->task[i].bytes_written;
	}
	for (uint32_t i = 0; i < r->s->files; i++)
		file_bytes += r->s->file[i].size;
	fs_json_object(&json, NULL);
	fs_json_string(&json, "bench", "replay");
	fs_json_string(&json, "script", o->script);
	fs_json_string(&json, "dir", o->dir);
	fs_json_string(&json, "timing", o->timing);
	fs_json_string(&json, "contents", o->contents);
	fs_json_u64(&json, "seed", o->seed);
	fs_json_u64(&json, "files", r->s->files);
	fs_json_u64(&json, "file_bytes", file_bytes);
	fs_json_u64(&json, "calls", r->s->calls);
	fs_json_u64(&json, "reads", reads);
	fs_json_bool(&json, "dropped_caches", o->drop_caches);
	bench_readahead_json(&json, r->readahead);
	fs_json_u64(&json, "start_ns", *r->start_ns);
	bench_span_json(&json, "measured", begin, end);
	fs_json_u64(&json, "total_ns", total);
	fs_json_u64(&json, "bytes_read", bytes);
	fs_json_u64(&json, "bytes_written", written);
	fs_json_array(&json, "tasks");
	for (uint32_t i = 0; i < r->s->tasks; i++)
		print_task(&json, r, i);
	fs_json_array_end(&json);
	fs_json_object_end(&json);
	return bench_print(&json);
}

/* Memory for the results of the tasks, which they share. */
static int share(struct replay_run *r, size_t *size)
{
	unsigned char *shared;

	*size = sizeof(*r->start_ns) + r->s->calls * sizeof(*r->result) + r->s->tasks * sizeof(*r->task);
	shared = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return fs_fail("memory: %zu bytes are not available; replay a part of the trace", *size);
	/* Pages are there before the first call, whose time a fault would be in. */
	memset(shared, 0, *size);
	r->start_ns = (uint64_t *)shared;
	r->result = (struct replay_result *)(shared + sizeof(*r->start_ns));
	r->task = (struct replay_task_result *)(r->result + r->s->calls);
	return 0;
}

/* Files that are there under the names that make_files() would give them: a read-only file system's. */
static int find_files(struct replay_run *r, const struct options *o)
{
	char path[FS_PATH_MAX + 16];
	struct stat st;

	for (size_t i = 0; i < r->s->calls; i++)
		if (r->s->call[i].verb != REPLAY_READ && r->s->call[i].verb != REPLAY_FAULT && r->s->call[i].verb != REPLAY_OPEN &&
		    r->s->call[i].verb != REPLAY_CLOSE)
			return fs_usage("%s: --existing: it changes files; only reads, faults, open and close are replayed so", o->script);
	snprintf(r->dir, sizeof(r->dir), "%s", o->dir);
	for (uint32_t i = 0; i < r->s->files; i++)
		if (stat(replay_file_path(r, i, path, sizeof(path)), &st) || (uint64_t)st.st_size < r->s->file[i].most)
			return fs_fail("%s: --existing: it is not there with %llu bytes", path, (unsigned long long)r->s->file[i].most);
	return 0;
}

/* With its directory there. */
static int in_directory(struct replay_run *r, const struct options *o, struct bench_readahead *readahead)
{
	struct replay_cgroups cgroups = { 0 };
	int failed = o->existing ? find_files(r, o) : make_files(r, o);

	r->cgroups = &cgroups;
	if (!failed)
		failed = bench_readahead_prepare(readahead, r->dir);
	if (!failed && o->drop_caches)
		failed = bench_drop_caches();
	if (!failed)
		failed = replay_cgroups_make(&cgroups, r->s, r->dir);
	if (!failed)
		failed = replay_play(r);
	return replay_cgroups_remove(&cgroups, r->s, failed);
}

static int replay(struct replay_run *r, const struct options *o, struct bench_readahead *readahead)
{
	size_t size;
	int failed = share(r, &size);

	if (failed)
		return failed;
	if (o->existing) {
		failed = in_directory(r, o, readahead);
	} else if (fs_temp_dir(o->dir, r->dir, sizeof(r->dir))) {
		failed = fs_fail("%s: cannot make a directory there: %s; --dir names a directory that can be written to", o->dir,
				 strerror(errno));
	} else {
		failed = in_directory(r, o, readahead);
		if (fs_temp_dir_remove(r->dir) && !failed)
			failed = fs_fail("%s: cannot be removed: %s; remove it by hand", r->dir, strerror(errno));
	}
	failed = bench_readahead_restore(readahead, failed);
	if (!failed)
		failed = print(r, o);
	munmap(r->start_ns, size);
	return failed;
}

int bench_replay(int argc, char **argv)
{
	struct options o = { .timing = "asap", .contents = "printable", .seed = 1 };
	struct bench_readahead readahead = { 0 };
	struct replay_script s = { 0 };
	struct replay_run r = { .s = &s, .readahead = &readahead };
	int failed = parse(argc, argv, &o, &r, &readahead);

	if (failed)
		return failed;
	bench_catch_signals();
	failed = replay_script_load(o.script, &s);
	if (!failed)
		failed = replay(&r, &o, &readahead);
	replay_script_free(&s);
	return failed;
}
