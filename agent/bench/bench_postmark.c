// SPDX-License-Identifier: Apache-2.0
/*
 * bench postmark: many short-lived small files, after J. Katcher, "PostMark: A New
 * File System Benchmark", Network Appliance TR3022, 1997. Three phases:
 *
 *   create        --files files, each of a size drawn from --size-min … --size-max,
 *                 each in one of --subdirectories drawn at random
 *   transactions  --transactions times: a file is created (--create-bias of ten) or
 *                 one of those there is deleted; then one of those there is read
 *                 whole (--read-bias of ten) or gets a random number of bytes
 *                 appended, so many at most that it stays within --size-max
 *   delete        what is there
 *
 * All of it is a function of the seed (prng.h) and the settings: the same files,
 * transactions and bytes on every file system. Requests are read() and write() of
 * --read-request and --write-request bytes, unbuffered, and nothing is fsynced.
 *
 * Read throughput "when 25, 50 and 100 % of each file is read" (Olivier, Boukhobza,
 * Senn: "Revisiting Read-ahead Efficiency for Raw NAND Flash Storage in Embedded
 * Linux", section 2.2) is taken after the first request that reaches the share:
 * requests are not cut there, so a file of one request counts whole in each share.
 */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "contents.h"
#include "frame.h"
#include "json.h"
#include "prng.h"
#include "sweep.h"
#include "util.h"

#define MAX_FILES UINT64_C(1000000)
#define MAX_TRANSACTIONS UINT64_C(10000000)
#define MAX_BYTES UINT64_C(67108864)
#define MAX_SHARES 8
/* "postmark" in ASCII: what is done must not follow the stream that the files hold. */
#define ORDER_SEED UINT64_C(0x706f73746d61726b)
/* Data of a file begins this far at most into the pool. */
#define POOL_SPREAD 65536u

/* Parameters in the order of the table of names below. */
enum {
	FILES,
	TRANSACTIONS,
	SUBDIRECTORIES,
	SMALLEST,
	LARGEST,
	READ_REQUEST,
	WRITE_REQUEST,
	READ_BIAS,
	CREATE_BIAS,
	PARAMETERS,
};

static const struct {
	const char *option, *json;
	uint64_t max;
	uint64_t katcher;  /* postmark 1.53 as it starts */
	uint64_t flashmon; /* Flashmon V2, table 1 */
} parameters[PARAMETERS] = {
	[FILES] = { "--files", "files", MAX_FILES, 500, 800 },
	[TRANSACTIONS] = { "--transactions", "transactions", MAX_TRANSACTIONS, 500, 3000 },
	[SUBDIRECTORIES] = { "--subdirectories", "subdirectories", 100000, 0, 10 },
	[SMALLEST] = { "--size-min", "size_min_bytes", MAX_BYTES, 500, 512 },
	[LARGEST] = { "--size-max", "size_max_bytes", MAX_BYTES, 10000, 10240 },
	[READ_REQUEST] = { "--read-request", "read_request_bytes", MAX_BYTES, 512, 4096 },
	[WRITE_REQUEST] = { "--write-request", "write_request_bytes", MAX_BYTES, 512, 4096 },
	[READ_BIAS] = { "--read-bias", "read_bias", 10, 5, 5 },
	[CREATE_BIAS] = { "--create-bias", "create_bias", 10, 5, 5 },
};

struct options {
	const char *dir, *config, *contents, *shares;
	uint64_t value[PARAMETERS];
	uint64_t seed;
	bool drop_caches, cold_reads;
	/* as meant */
	enum contents_kind kind;
	uint64_t share[MAX_SHARES]; /* percent, ascending */
	size_t share_count;
};

struct file {
	uint32_t number, directory, size;
};

struct share {
	uint64_t files, bytes, ns;
	double mean_bytes_per_s; /* of the files' own throughputs */
};

struct span {
	uint64_t begin_ns, end_ns;
};

struct run {
	const struct options *o;
	const struct bench_readahead *readahead;
	struct prng prng;
	int dir; /* of this run, open */
	char path[FS_PATH_MAX];
	unsigned char *pool, *buffer;
	struct file *file; /* existing files, in no order */
	uint64_t there;
	uint32_t next_number;
	struct span phase[3];
	uint64_t created, deleted, created_mixed, deleted_mixed, read, appended, full;
	uint64_t bytes_read, bytes_written;
	uint64_t reads, writes, read_ns, write_ns, read_min_ns, read_max_ns;
	struct share share[MAX_SHARES];
	uint32_t crc;
};

static int parse_shares(struct options *o)
{
	const char *text = o->shares ? o->shares : "25,50,100";
	char *words = fs_strdup(text), *rest = words, *word;
	bool good = true;

	while (good && (word = strsep(&rest, ","))) {
		good = o->share_count < MAX_SHARES && fs_parse_u64(word, 100, &o->share[o->share_count]) &&
		       o->share[o->share_count] > (o->share_count ? o->share[o->share_count - 1] : 0);
		o->share_count++;
	}
	free(words);
	if (!good)
		return fs_usage("bench postmark: --shares %s: percentages from 1 to 100 are wanted, ascending, at most %d of them",
				text, MAX_SHARES);
	return 0;
}

static int parse(int argc, char **argv, struct options *o, struct bench_readahead *readahead)
{
	bool given[PARAMETERS] = { false };
	struct bench_option options[PARAMETERS + 8] = {
		{ .name = "--dir", .text = &o->dir },
		{ .name = "--config", .text = &o->config },
		{ .name = "--contents", .text = &o->contents },
		{ .name = "--seed", .number = &o->seed, .max = UINT64_MAX },
		{ .name = "--shares", .text = &o->shares },
		{ .name = "--readahead", .text = &readahead->requested },
		{ .name = "--drop-caches", .flag = &o->drop_caches },
		{ .name = "--cold-reads", .flag = &o->cold_reads },
	};
	const uint64_t *value = o->value;
	bool flashmon;
	int usage;

	for (size_t i = 0; i < PARAMETERS; i++)
		options[8 + i] = (struct bench_option){
			.name = parameters[i].option,
			.number = &o->value[i],
			.max = parameters[i].max,
			.given = &given[i],
		};
	usage = bench_options("postmark", argc, argv, options, ARRAY_SIZE(options));
	if (usage)
		return usage;
	if (!o->dir)
		return fs_usage("bench postmark: --dir DIR is missing; name a directory of the file system to measure");
	if (!o->config)
		o->config = "katcher";
	flashmon = !strcmp(o->config, "flashmon");
	if (!flashmon && strcmp(o->config, "katcher"))
		return fs_usage("bench postmark: --config %s: it is katcher or flashmon", o->config);
	for (size_t i = 0; i < PARAMETERS; i++)
		if (!given[i])
			o->value[i] = flashmon ? parameters[i].flashmon : parameters[i].katcher;
	if (!value[SMALLEST] || value[SMALLEST] > value[LARGEST])
		return fs_usage("bench postmark: files of %llu to %llu bytes: --size-min is 1 at least, and --size-max no less",
				(unsigned long long)value[SMALLEST], (unsigned long long)value[LARGEST]);
	if (!value[FILES] || !value[READ_REQUEST] || !value[WRITE_REQUEST])
		return fs_usage("bench postmark: --files, --read-request and --write-request are not to be 0");
	if (!o->contents)
		o->contents = "printable";
	if (contents_kind_parse(o->contents, &o->kind))
		return fs_usage("bench postmark: --contents %s: it is compressible, printable, random or zero", o->contents);
	usage = parse_shares(o);
	return usage ? usage : bench_readahead_parse(readahead, "postmark");
}

/* The file's name below the run's directory. */
static const char *name_of(const struct run *r, const struct file *file, char *out, size_t size)
{
	if (r->o->value[SUBDIRECTORIES])
		snprintf(out, size, "s%u/%u", file->directory, file->number);
	else
		snprintf(out, size, "%u", file->number);
	return out;
}

static int failed_at(const struct run *r, const char *name, const char *what)
{
	int error = errno;

	return fs_fail("%s/%s: %s: %s%s", r->path, name, what, strerror(error),
		       error == ENOSPC ? "; a larger partition, or fewer and smaller files (--files, --size-max)" : "");
}

/* Writes `length` bytes of the pool in requests. 0, or an exit code. */
static int write_some(struct run *r, int fd, const char *name, uint64_t length)
{
	const unsigned char *data = r->pool + prng_below(&r->prng, POOL_SPREAD);
	uint64_t done = 0;

	while (done < length) {
		uint64_t wanted = r->o->value[WRITE_REQUEST], begin, end;
		ssize_t n;

		if (wanted > length - done)
			wanted = length - done;
		begin = fs_now_ns();
		n = write(fd, data + done, (size_t)wanted);
		end = fs_now_ns();
		if (n < 0 && errno == EINTR && !bench_interrupted())
			continue;
		if (n < 0)
			return failed_at(r, name, "write");
		r->writes++;
		r->write_ns += end - begin;
		r->bytes_written += (uint64_t)n;
		done += (uint64_t)n;
	}
	return 0;
}

static int create_one(struct run *r)
{
	const uint64_t *value = r->o->value;
	struct file file = { .number = r->next_number++ };
	char name[32];
	int fd, failed;

	file.size = (uint32_t)(value[SMALLEST] + prng_below(&r->prng, value[LARGEST] - value[SMALLEST] + 1));
	if (value[SUBDIRECTORIES])
		file.directory = (uint32_t)prng_below(&r->prng, value[SUBDIRECTORIES]);
	name_of(r, &file, name, sizeof(name));
	fd = openat(r->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return failed_at(r, name, "create");
	failed = write_some(r, fd, name, file.size);
	/* Some file systems report a full chip only here. */
	if (close(fd) && !failed)
		failed = failed_at(r, name, "close");
	if (failed)
		return failed;
	r->file[r->there++] = file;
	r->created++;
	return 0;
}

static int delete_one(struct run *r, uint64_t index)
{
	char name[32];

	name_of(r, &r->file[index], name, sizeof(name));
	if (unlinkat(r->dir, name, 0))
		return failed_at(r, name, "delete");
	r->file[index] = r->file[--r->there];
	r->deleted++;
	return 0;
}

static int append_one(struct run *r, struct file *file)
{
	uint64_t room = r->o->value[LARGEST] - file->size;
	uint64_t length;
	char name[32];
	int fd, failed;

	/* As large as a file may get: the transaction has nothing to append. */
	if (!room) {
		r->full++;
		return 0;
	}
	r->appended++;
	length = 1 + prng_below(&r->prng, room);
	name_of(r, file, name, sizeof(name));
	fd = openat(r->dir, name, O_WRONLY | O_APPEND | O_CLOEXEC);
	if (fd < 0)
		return failed_at(r, name, "open");
	failed = write_some(r, fd, name, length);
	if (close(fd) && !failed)
		failed = failed_at(r, name, "close");
	file->size += (uint32_t)length;
	return failed;
}

/* The shares that `done` bytes of the file have reached since the last call. */
static void reached(struct run *r, const struct file *file, uint64_t done, uint64_t ns, size_t *next)
{
	while (*next < r->o->share_count && done * 100 >= (uint64_t)file->size * r->o->share[*next]) {
		struct share *share = &r->share[(*next)++];

		share->files++;
		share->bytes += done;
		share->ns += ns;
		share->mean_bytes_per_s += ((double)done * 1e9 / (double)(ns ? ns : 1) - share->mean_bytes_per_s) /
					   (double)share->files;
	}
}

static int read_one(struct run *r, const struct file *file)
{
	uint64_t done = 0, ns = 0;
	size_t next_share = 0;
	char name[32];
	int fd, failed = 0;

	name_of(r, file, name, sizeof(name));
	if (r->o->cold_reads && (failed = bench_drop_caches()))
		return failed;
	fd = openat(r->dir, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return failed_at(r, name, "open");
	failed = bench_readahead_advise(r->readahead, fd, name);
	while (done < file->size && !failed) {
		uint64_t begin = fs_now_ns(), took;
		ssize_t n = read(fd, r->buffer, (size_t)r->o->value[READ_REQUEST]);

		took = fs_now_ns() - begin;
		if (n < 0 && errno == EINTR && !bench_interrupted())
			continue;
		if (n < 0)
			failed = failed_at(r, name, "read");
		else if (!n)
			failed = fs_fail("%s/%s: it ended after %llu of %u bytes; another program changed it, or the file system lost data",
					 r->path, name, (unsigned long long)done, file->size);
		if (failed)
			break;
		done += (uint64_t)n;
		ns += took;
		if (!r->reads++ || took < r->read_min_ns)
			r->read_min_ns = took;
		if (took > r->read_max_ns)
			r->read_max_ns = took;
		reached(r, file, done, ns, &next_share);
		r->crc = fs_crc32(r->crc, r->buffer, (size_t)n);
	}
	close(fd);
	r->bytes_read += done;
	r->read_ns += ns;
	r->read++;
	return failed;
}

static int transaction(struct run *r)
{
	const uint64_t *value = r->o->value;
	bool create = prng_below(&r->prng, 10) < value[CREATE_BIAS];
	int failed;

	/* Nothing is there to be deleted: a file is created. */
	if (create || !r->there) {
		failed = create_one(r);
		r->created_mixed++;
	} else {
		failed = delete_one(r, prng_below(&r->prng, r->there));
		r->deleted_mixed++;
	}
	if (failed || !r->there)
		return failed;
	struct file *file = &r->file[prng_below(&r->prng, r->there)];

	return prng_below(&r->prng, 10) < value[READ_BIAS] ? read_one(r, file) : append_one(r, file);
}

static int interrupted(const char *phase, uint64_t done)
{
	return fs_fail("bench postmark: interrupted after %llu files or transactions of the phase %s; its files are removed",
		       (unsigned long long)done, phase);
}

static int run_phases(struct run *r)
{
	const uint64_t *value = r->o->value;
	int failed = 0;

	r->phase[0].begin_ns = fs_now_ns();
	for (uint64_t i = 0; i < value[FILES] && !failed; i++)
		failed = bench_interrupted() ? interrupted("create", i) : create_one(r);
	r->phase[0].end_ns = fs_now_ns();
	if (!failed && r->o->drop_caches)
		failed = bench_drop_caches();
	r->phase[1].begin_ns = fs_now_ns();
	for (uint64_t i = 0; i < value[TRANSACTIONS] && !failed; i++)
		failed = bench_interrupted() ? interrupted("transactions", i) : transaction(r);
	r->phase[1].end_ns = fs_now_ns();
	r->phase[2].begin_ns = fs_now_ns();
	while (r->there && !failed)
		failed = bench_interrupted() ? interrupted("delete", r->deleted) : delete_one(r, r->there - 1);
	r->phase[2].end_ns = fs_now_ns();
	return failed;
}

static int make_directories(struct run *r)
{
	char name[32];

	for (uint64_t i = 0; i < r->o->value[SUBDIRECTORIES]; i++) {
		snprintf(name, sizeof(name), "s%u", (unsigned int)i);
		if (mkdirat(r->dir, name, 0755))
			return failed_at(r, name, "mkdir");
	}
	return 0;
}

static int print(const struct run *r)
{
	static const char *const phases[] = { "create", "transactions", "delete" };
	const struct options *o = r->o;
	struct fs_json json = { 0 };
	uint64_t total_ns = 0;

	fs_json_object(&json, NULL);
	fs_json_string(&json, "bench", "postmark");
	fs_json_string(&json, "dir", o->dir);
	fs_json_string(&json, "config", o->config);
	fs_json_string(&json, "contents", o->contents);
	fs_json_u64(&json, "seed", o->seed);
	for (size_t i = 0; i < PARAMETERS; i++)
		fs_json_u64(&json, parameters[i].json, o->value[i]);
	fs_json_bool(&json, "dropped_caches", o->drop_caches);
	fs_json_bool(&json, "cold_reads", o->cold_reads);
	bench_readahead_json(&json, r->readahead);
	bench_span_json(&json, "measured", r->phase[0].begin_ns, r->phase[2].end_ns);
	fs_json_object(&json, "phases");
	for (size_t i = 0; i < ARRAY_SIZE(phases); i++) {
		bench_span_json(&json, phases[i], r->phase[i].begin_ns, r->phase[i].end_ns);
		total_ns += r->phase[i].end_ns - r->phase[i].begin_ns;
	}
	fs_json_object_end(&json);
	fs_json_u64(&json, "total_ns", total_ns);
	fs_json_u64(&json, "created", r->created);
	fs_json_u64(&json, "created_in_transactions", r->created_mixed);
	fs_json_u64(&json, "deleted", r->deleted);
	fs_json_u64(&json, "deleted_in_transactions", r->deleted_mixed);
	fs_json_u64(&json, "read", r->read);
	fs_json_u64(&json, "appended", r->appended);
	fs_json_u64(&json, "appended_nothing", r->full);
	fs_json_u64(&json, "bytes_read", r->bytes_read);
	fs_json_u64(&json, "bytes_written", r->bytes_written);
	fs_json_u64(&json, "reads", r->reads);
	fs_json_u64(&json, "read_ns", r->read_ns);
	fs_json_u64(&json, "writes", r->writes);
	fs_json_u64(&json, "write_ns", r->write_ns);
	fs_json_object(&json, "read_latency");
	fs_json_u64(&json, "min_ns", r->read_min_ns);
	fs_json_u64(&json, "mean_ns", r->reads ? r->read_ns / r->reads : 0);
	fs_json_u64(&json, "max_ns", r->read_max_ns);
	fs_json_object_end(&json);
	fs_json_array(&json, "shares");
	for (size_t i = 0; i < o->share_count; i++) {
		const struct share *share = &r->share[i];

		fs_json_object(&json, NULL);
		fs_json_u64(&json, "percent", o->share[i]);
		fs_json_u64(&json, "files", share->files);
		fs_json_u64(&json, "bytes", share->bytes);
		fs_json_u64(&json, "read_ns", share->ns);
		fs_json_u64(&json, "bytes_per_s",
			    share->ns ? (uint64_t)((double)share->bytes * 1e9 / (double)share->ns) : 0);
		fs_json_u64(&json, "mean_of_files_bytes_per_s", (uint64_t)share->mean_bytes_per_s);
		fs_json_object_end(&json);
	}
	fs_json_array_end(&json);
	fs_json_u64(&json, "checksum", r->crc);
	fs_json_object_end(&json);
	return bench_print(&json);
}

/* Memory is had and touched before a clock runs: no page fault falls into a request. */
static void prepare_memory(struct run *r)
{
	const uint64_t *value = r->o->value;
	size_t pool = (size_t)value[LARGEST] + POOL_SPREAD;
	struct contents contents;

	r->pool = fs_alloc(pool);
	contents_init(&contents, r->o->kind, r->o->seed);
	contents_fill(&contents, r->pool, pool);
	r->buffer = fs_alloc((size_t)value[READ_REQUEST]);
	memset(r->buffer, 0xa5, (size_t)value[READ_REQUEST]);
	r->file = fs_alloc((size_t)(value[FILES] + value[TRANSACTIONS]) * sizeof(*r->file));
	memset(r->file, 0, (size_t)(value[FILES] + value[TRANSACTIONS]) * sizeof(*r->file));
	prng_seed(&r->prng, r->o->seed ^ ORDER_SEED);
	r->crc = fs_crc32(0, r->buffer, 0);
}

int bench_postmark(int argc, char **argv)
{
	struct options o = { .seed = 42 };
	struct bench_readahead readahead = { 0 };
	struct run r = { .o = &o, .readahead = &readahead, .dir = -1 };
	int failed = parse(argc, argv, &o, &readahead);

	if (failed)
		return failed;
	bench_catch_signals();
	if (fs_temp_dir(o.dir, r.path, sizeof(r.path))) {
		int error = errno;

		fs_knobs_restore();
		return fs_fail("%s: cannot make a directory there: %s; --dir names a directory that can be written to", o.dir,
			       strerror(error));
	}
	prepare_memory(&r);
	r.dir = open(r.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r.dir < 0)
		failed = fs_fail("%s: %s", r.path, strerror(errno));
	if (!failed)
		failed = bench_readahead_prepare(&readahead, r.path);
	if (!failed)
		failed = make_directories(&r);
	if (!failed)
		failed = run_phases(&r);
	if (r.dir >= 0)
		close(r.dir);
	if (fs_temp_dir_remove(r.path) && !failed)
		failed = fs_fail("%s: cannot be removed: %s; remove it by hand", r.path, strerror(errno));
	failed = bench_readahead_restore(&readahead, failed);
	if (!failed)
		failed = print(&r);
	free(r.pool);
	free(r.buffer);
	free(r.file);
	return failed;
}
