// SPDX-License-Identifier: Apache-2.0
/*
 * bench replay: the file reads of a recorded trace, done again elsewhere: on another
 * file system, another board, or with another setting. A script (made by `flashscope
 * bench replay TRACE`, and short enough to be written by hand) says what was read:
 *
 *   flashscope-replay 1                     its first line
 *   file SIZE [LABEL]                       a file, numbered from 0 in order of the lines
 *   task [LABEL]                            a task, numbered likewise
 *   read TIME_NS TASK FILE OFFSET LENGTH    in order of time, which counts from 0
 *
 * Lines that are empty or begin with # are skipped. The files are made in a directory
 * of the run's own, filled as told, and removed at the end. Each task is a process with
 * its own open files, so that read-ahead sees each task's pattern as it was. `asap`: a
 * task's reads follow each other at once; `recorded`: each begins at its time, or as
 * soon as the one before it is done.
 *
 * Timed is pread() alone. open() happens before a task's first read of a file and is
 * summed up by itself.
 */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "contents.h"
#include "frame.h"
#include "json.h"
#include "sweep.h"
#include "util.h"

#define MAGIC "flashscope-replay 1"
#define MAX_FILES 65536u
#define MAX_TASKS 256u
#define MAX_SIZE (UINT64_C(1) << 46)
#define MAX_REQUEST UINT64_C(268435456)
/* Time to the first read once all tasks stand ready. */
#define LEAD_NS UINT64_C(10000000)

struct options {
	const char *script, *dir, *timing, *contents;
	uint64_t seed;
	bool drop_caches;
	/* as meant */
	enum contents_kind kind;
	bool recorded;
};

struct script_read {
	uint64_t time_ns, offset;
	uint32_t length, task, file;
};

struct script {
	char *text; /* labels point into it */
	uint64_t *file_size;
	uint32_t files;
	const char **task_label;
	uint32_t tasks;
	struct script_read *read;
	size_t reads;
};

/* What the tasks tell; memory that they share. */
struct result {
	uint64_t begin_ns, latency_ns, late_ns;
};

struct task_result {
	uint64_t open_ns, bytes;
	uint32_t crc;
};

struct run {
	const struct options *o;
	const struct bench_readahead *readahead;
	const struct script *s;
	char dir[FS_PATH_MAX];
	uint64_t *start_ns; /* shared */
	struct result *result;
	struct task_result *task;
};

static int parse(int argc, char **argv, struct options *o, struct bench_readahead *readahead)
{
	const struct bench_option options[] = {
		{ .name = "--script", .text = &o->script },
		{ .name = "--dir", .text = &o->dir },
		{ .name = "--timing", .text = &o->timing },
		{ .name = "--contents", .text = &o->contents },
		{ .name = "--seed", .number = &o->seed, .max = UINT64_MAX },
		{ .name = "--readahead", .text = &readahead->requested },
		{ .name = "--drop-caches", .flag = &o->drop_caches },
	};
	int usage = bench_options("replay", argc, argv, options, ARRAY_SIZE(options));

	if (usage)
		return usage;
	if (!o->script || !o->dir)
		return fs_usage("bench replay: --script FILE and --dir DIR are wanted: what to read, and where");
	o->recorded = !strcmp(o->timing, "recorded");
	if (!o->recorded && strcmp(o->timing, "asap"))
		return fs_usage("bench replay: --timing %s: it is asap or recorded", o->timing);
	if (contents_kind_parse(o->contents, &o->kind))
		return fs_usage("bench replay: --contents %s: it is compressible, printable, random or zero", o->contents);
	return bench_readahead_parse(readahead, "replay");
}

static int bad_line(const struct options *o, size_t line, const char *what)
{
	return fs_fail("%s:%zu: %s; make the script anew with `flashscope bench replay TRACE --script FILE`", o->script, line,
		       what);
}

/* Doubles an array that is full, from 16 elements on. */
static void *grown(void *array, size_t count, size_t size)
{
	if (count && (count < 16 || (count & (count - 1))))
		return array;
	return fs_realloc(array, (count < 16 ? 16 : 2 * count) * size);
}

/* The next word as a number of at most max. */
static bool number(char **rest, uint64_t max, uint64_t *out)
{
	char *word = strsep(rest, " ");

	return word && fs_parse_u64(word, max, out);
}

/* A "read" line's words. NULL, or what is wrong with it. */
static const char *parse_read(struct script *s, char *rest)
{
	uint64_t time, task, file, offset, length;
	struct script_read *last = s->reads ? &s->read[s->reads - 1] : NULL;

	if (!number(&rest, UINT64_MAX, &time) || !number(&rest, MAX_TASKS, &task) || !number(&rest, MAX_FILES, &file) ||
	    !number(&rest, MAX_SIZE, &offset) || !number(&rest, MAX_REQUEST, &length) || rest)
		return "not `read TIME_NS TASK FILE OFFSET LENGTH`, a length of 256 MiB at most";
	if (task >= s->tasks || file >= s->files)
		return "a read of a task or a file that no line before it has named";
	if (!length || offset + length > s->file_size[file])
		return "a read of nothing, or past the end of its file";
	if (last && time < last->time_ns)
		return "a read that begins before the one above it";
	s->read = grown(s->read, s->reads, sizeof(*s->read));
	s->read[s->reads++] = (struct script_read){ time, offset, (uint32_t)length, (uint32_t)task, (uint32_t)file };
	return NULL;
}

static const char *parse_line(struct script *s, char *line)
{
	char *rest = line;
	const char *verb = strsep(&rest, " ");
	uint64_t size;

	if (!strcmp(verb, "file")) {
		char *word = strsep(&rest, " ");

		if (!word || !fs_parse_u64(word, MAX_SIZE, &size) || !size || s->files == MAX_FILES)
			return "not `file SIZE [LABEL]` with a size above 0, or more than 65536 of them";
		s->file_size = grown(s->file_size, s->files, sizeof(*s->file_size));
		s->file_size[s->files++] = size;
		return NULL;
	}
	if (!strcmp(verb, "task")) {
		if (s->tasks == MAX_TASKS)
			return "more than 256 tasks";
		s->task_label = grown(s->task_label, s->tasks, sizeof(*s->task_label));
		s->task_label[s->tasks++] = rest ? rest : "";
		return NULL;
	}
	if (!strcmp(verb, "read"))
		return parse_read(s, rest);
	return "not a line of a replay script (file, task, read)";
}

static int load(const struct options *o, struct script *s)
{
	size_t length, number = 0;
	char *rest, *line;

	s->text = fs_read_text(o->script, &length);
	if (!s->text)
		return fs_fail("%s: %s; a script of at most 16 MiB is wanted", o->script, strerror(errno));
	rest = s->text;
	while ((line = strsep(&rest, "\n"))) {
		const char *wrong;

		number++;
		if (number == 1 && strcmp(line, MAGIC))
			return bad_line(o, number, "its first line is not `" MAGIC "`");
		if (number == 1 || !*line || *line == '#')
			continue;
		wrong = parse_line(s, line);
		if (wrong)
			return bad_line(o, number, wrong);
	}
	return s->reads ? 0 : fs_fail("%s: no reads are in it; record some with --events cache", o->script);
}

static const char *file_path(const struct run *r, uint32_t file, char *out, size_t size)
{
	snprintf(out, size, "%s/%u", r->dir, file);
	return out;
}

/*
 * A script that asks for far more than there is would fill the file system first.
 * Twice what it says is free: UBIFS says less than fits, by what it may have to keep.
 */
static int check_room(const struct run *r)
{
	uint64_t wanted = 0, room;
	struct statvfs vfs;

	for (uint32_t i = 0; i < r->s->files; i++)
		wanted += r->s->file_size[i];
	if (statvfs(r->dir, &vfs))
		return fs_fail("%s: %s", r->dir, strerror(errno));
	room = (uint64_t)vfs.f_bavail * vfs.f_frsize;
	if (r->o->kind != CONTENTS_ZERO && r->o->kind != CONTENTS_COMPRESSIBLE && wanted / 2 > room)
		return fs_fail("%s: its files take %llu bytes and %llu are free there; a larger partition, or a part of the trace",
			       r->o->script, (unsigned long long)wanted, (unsigned long long)room);
	return 0;
}

static int make_files(const struct run *r)
{
	char path[FS_PATH_MAX + 16];
	int failed = check_room(r);

	if (failed)
		return failed;
	for (uint32_t i = 0; i < r->s->files; i++) {
		if (bench_interrupted())
			return fs_fail("bench replay: interrupted while its files were made; they are removed");
		file_path(r, i, path, sizeof(path));
		if (contents_create(path, r->s->file_size[i], r->o->kind, r->o->seed + i, bench_interrupted))
			return fs_fail("%s: cannot make a file of %llu bytes: %s%s", path,
				       (unsigned long long)r->s->file_size[i], strerror(errno),
				       errno == ENOSPC ? "; a larger partition, or a part of the trace" : "");
	}
	return 0;
}

/* One read of a task's. 0, or an exit code. */
static int read_one(const struct run *r, size_t index, int *fds, unsigned char *buffer)
{
	const struct script_read *read = &r->s->read[index];
	struct task_result *task = &r->task[read->task];
	struct result *result = &r->result[index];
	char path[FS_PATH_MAX + 16];
	uint64_t begin;
	ssize_t n;

	file_path(r, read->file, path, sizeof(path));
	if (fds[read->file] < 0) {
		int failed;

		begin = fs_now_ns();
		fds[read->file] = open(path, O_RDONLY | O_CLOEXEC);
		task->open_ns += fs_now_ns() - begin;
		if (fds[read->file] < 0)
			return fs_fail("%s: %s%s", path, strerror(errno),
				       errno == EMFILE ? "; raise the limit of open files (ulimit -n)" : "");
		failed = bench_readahead_advise(r->readahead, fds[read->file], path);
		if (failed)
			return failed;
	}
	if (r->o->recorded) {
		uint64_t due = *r->start_ns + read->time_ns;
		struct timespec at = { .tv_sec = (time_t)(due / 1000000000), .tv_nsec = (long)(due % 1000000000) };

		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
			;
		begin = fs_now_ns();
		result->late_ns = begin > due ? begin - due : 0;
	}
	begin = fs_now_ns();
	n = pread(fds[read->file], buffer, read->length, (off_t)read->offset);
	result->latency_ns = fs_now_ns() - begin;
	result->begin_ns = begin;
	if (n != (ssize_t)read->length)
		return fs_fail("%s: read %zu: %zd of %u bytes came%s%s", path, index, n, read->length, n < 0 ? ": " : "",
			       n < 0 ? strerror(errno) : "");
	task->bytes += read->length;
	task->crc = fs_crc32(task->crc, buffer, read->length);
	return 0;
}

/* A task's process; `go` is at its end once all stand ready. Never returns. */
static void play(const struct run *r, uint32_t task, int go)
{
	const struct script *s = r->s;
	unsigned char *buffer;
	uint32_t longest = 0;
	int *fds = fs_alloc(s->files * sizeof(*fds));
	int failed = 0;
	char byte;

	for (uint32_t i = 0; i < s->files; i++)
		fds[i] = -1;
	for (size_t i = 0; i < s->reads; i++)
		if (s->read[i].task == task && s->read[i].length > longest)
			longest = s->read[i].length;
	buffer = fs_alloc(longest);
	memset(buffer, 0xa5, longest);
	r->task[task].crc = fs_crc32(0, buffer, 0);
	while (read(go, &byte, 1) < 0 && errno == EINTR)
		;
	for (size_t i = 0; i < s->reads && !failed; i++)
		if (s->read[i].task == task)
			failed = read_one(r, i, fds, buffer);
	_exit(failed);
}

/* The tasks' processes, started together and awaited. 0, or an exit code. */
static int play_all(const struct run *r)
{
	struct rlimit files;
	pid_t *pid = fs_alloc(r->s->tasks * sizeof(*pid));
	uint32_t running = 0;
	int go[2], failed = 0;

	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	if (pipe(go)) {
		free(pid);
		return fs_fail("pipe: %s", strerror(errno));
	}
	fflush(NULL);
	for (; running < r->s->tasks && !failed; running++) {
		pid[running] = fork();
		if (!pid[running]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			signal(SIGTERM, SIG_DFL);
			signal(SIGINT, SIG_DFL);
			close(go[1]);
			play(r, running, go[0]);
		}
		if (pid[running] < 0) {
			failed = fs_fail("task %u: %s; free some memory, or replay fewer tasks", running, strerror(errno));
			break;
		}
	}
	*r->start_ns = fs_now_ns() + LEAD_NS;
	close(go[0]);
	for (uint32_t i = 0; i < running && failed; i++)
		kill(pid[i], SIGTERM);
	close(go[1]);
	for (uint32_t left = running; left;) {
		int status;
		pid_t ended = waitpid(-1, &status, 0);
		bool interrupted = bench_interrupted();

		if (ended < 0 && errno != EINTR)
			break;
		if (ended > 0)
			left--;
		if (failed || (!interrupted && (ended < 0 || !status)))
			continue;
		/* The one that failed has said why; a signal has not. */
		failed = interrupted		? fs_fail("bench replay: interrupted; its files are removed") :
			 WIFSIGNALED(status)	? fs_fail("a task ended by signal %d; run it again", WTERMSIG(status)) :
						  FS_EXIT_FAILURE;
		for (uint32_t i = 0; i < running; i++)
			if (pid[i] != ended)
				kill(pid[i], SIGTERM);
	}
	free(pid);
	return failed;
}

static void print_task(struct fs_json *json, const struct run *r, uint32_t task)
{
	const struct task_result *t = &r->task[task];
	uint64_t reads = 0, total = 0, late = 0;

	for (size_t i = 0; i < r->s->reads; i++) {
		if (r->s->read[i].task != task)
			continue;
		reads++;
		total += r->result[i].latency_ns;
		if (r->result[i].late_ns > late)
			late = r->result[i].late_ns;
	}
	fs_json_object(json, NULL);
	fs_json_string(json, "label", r->s->task_label[task]);
	fs_json_u64(json, "reads", reads);
	fs_json_u64(json, "bytes_read", t->bytes);
	fs_json_u64(json, "total_ns", total);
	fs_json_u64(json, "open_ns", t->open_ns);
	if (r->o->recorded)
		fs_json_u64(json, "max_late_ns", late);
	else
		fs_json_null(json, "max_late_ns");
	fs_json_u64(json, "checksum", t->crc);
	fs_json_array(json, "latencies_ns");
	for (size_t i = 0; i < r->s->reads; i++)
		if (r->s->read[i].task == task)
			fs_json_u64(json, NULL, r->result[i].latency_ns);
	fs_json_array_end(json);
	fs_json_object_end(json);
}

static int print(const struct run *r)
{
	uint64_t begin = UINT64_MAX, end = 0, total = 0, bytes = 0, file_bytes = 0;
	const struct options *o = r->o;
	struct fs_json json = { 0 };

	for (size_t i = 0; i < r->s->reads; i++) {
		const struct result *result = &r->result[i];

		begin = result->begin_ns < begin ? result->begin_ns : begin;
		end = result->begin_ns + result->latency_ns > end ? result->begin_ns + result->latency_ns : end;
		total += result->latency_ns;
	}
	for (uint32_t i = 0; i < r->s->tasks; i++)
		bytes += r->task[i].bytes;
	for (uint32_t i = 0; i < r->s->files; i++)
		file_bytes += r->s->file_size[i];
	fs_json_object(&json, NULL);
	fs_json_string(&json, "bench", "replay");
	fs_json_string(&json, "script", o->script);
	fs_json_string(&json, "dir", o->dir);
	fs_json_string(&json, "timing", o->timing);
	fs_json_string(&json, "contents", o->contents);
	fs_json_u64(&json, "seed", o->seed);
	fs_json_u64(&json, "files", r->s->files);
	fs_json_u64(&json, "file_bytes", file_bytes);
	fs_json_u64(&json, "reads", r->s->reads);
	fs_json_bool(&json, "dropped_caches", o->drop_caches);
	bench_readahead_json(&json, r->readahead);
	bench_span_json(&json, "measured", begin, end);
	fs_json_u64(&json, "total_ns", total);
	fs_json_u64(&json, "bytes_read", bytes);
	fs_json_array(&json, "tasks");
	for (uint32_t i = 0; i < r->s->tasks; i++)
		print_task(&json, r, i);
	fs_json_array_end(&json);
	fs_json_object_end(&json);
	return bench_print(&json);
}

/* One mapping: the moment of the start, a result for each read, one for each task. */
static int share(struct run *r, size_t *size)
{
	unsigned char *shared;

	*size = sizeof(*r->start_ns) + r->s->reads * sizeof(*r->result) + r->s->tasks * sizeof(*r->task);
	shared = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (shared == MAP_FAILED)
		return fs_fail("memory: %s; replay a part of the trace", strerror(errno));
	r->start_ns = (uint64_t *)shared;
	r->result = (struct result *)(shared + sizeof(*r->start_ns));
	r->task = (struct task_result *)(r->result + r->s->reads);
	return 0;
}

static int replay(struct run *r, struct bench_readahead *readahead)
{
	size_t size;
	int failed = share(r, &size);

	if (failed)
		return failed;
	if (fs_temp_dir(r->o->dir, r->dir, sizeof(r->dir))) {
		failed = fs_fail("%s: cannot make a directory there: %s; --dir names a directory that can be written to", r->o->dir,
				 strerror(errno));
	} else {
		failed = make_files(r);
		if (!failed)
			failed = bench_readahead_prepare(readahead, r->dir);
		if (!failed && r->o->drop_caches)
			failed = bench_drop_caches();
		if (!failed)
			failed = play_all(r);
		if (fs_temp_dir_remove(r->dir) && !failed)
			failed = fs_fail("%s: cannot be removed: %s; remove it by hand", r->dir, strerror(errno));
	}
	failed = bench_readahead_restore(readahead, failed);
	if (!failed)
		failed = print(r);
	munmap(r->start_ns, size);
	return failed;
}

int bench_replay(int argc, char **argv)
{
	struct options o = { .timing = "asap", .contents = "printable", .seed = 1 };
	struct bench_readahead readahead = { 0 };
	struct script s = { 0 };
	struct run r = { .o = &o, .readahead = &readahead, .s = &s };
	int failed = parse(argc, argv, &o, &readahead);

	if (failed)
		return failed;
	bench_catch_signals();
	failed = load(&o, &s);
	if (!failed)
		failed = replay(&r, &readahead);
	free(s.text);
	free(s.file_size);
	free(s.task_label);
	free(s.read);
	return failed;
}
