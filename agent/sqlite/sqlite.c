// SPDX-License-Identifier: Apache-2.0
/*
 * flashscope-sqlite: the macro-benchmark of "Revisiting Read-ahead Efficiency for Raw
 * NAND Flash Storage in Embedded Linux", section 3.1.2. One table of contacts, 17
 * fields: 12 integers, the first of them the key, and 5 texts of one length. Runs of
 * SELECTs by key, each run from a cold cache with the database opened anew.
 *
 *   --create         makes the database where there is none: --records of them, in
 *                    order of their keys from 1, --batch of them a transaction
 *   --selects N,…    the runs, each for every --pattern: `sequential` takes keys 1, 2, …;
 *                    `random` the first N of a shuffle of all keys, so none twice
 *
 * All values are functions of the seed: integers of 31 bits from prng.h's generator,
 * texts from contents.h's `printable`; what a SELECT returns is held against them.
 *
 * The page size is 1024 unless told otherwise: the default of SQLite 3.7.15.2, the
 * paper's, and the one that gives the paper's file sizes (518 KB and 1 MB for texts of
 * 64 and 128 bytes: two records and one a page). Pages of 4096, the default since
 * 3.12.0, give 418 and 827 KB. Nothing else is set.
 *
 * Timed is what an application waits for: binding the key, stepping to the record,
 * taking its 17 values, resetting. Opening (with preparing the statement, which reads
 * the schema) is a span of its own; checksums are taken between the SELECTs.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"
#include "contents.h"
#include "frame.h"
#include "json.h"
#include "prng.h"
#include "sweep.h"
#include "util.h"

#define INTEGERS 11u /* beside the key */
#define TEXTS 5u
#define MAX_RECORDS UINT64_C(1000000)
#define MAX_TEXT UINT64_C(65536)
#define MAX_RUNS 64
/* "contact" and "shuffle" in ASCII: texts, integers and order are three streams. */
#define TEXT_SEED UINT64_C(0x00636f6e74616374)
#define ORDER_SEED UINT64_C(0x0073687566666c65)

#define TABLE                                                                                                          \
	"CREATE TABLE contacts(id INTEGER PRIMARY KEY, account INTEGER, source INTEGER, version INTEGER, "              \
	"photo INTEGER, ringtone INTEGER, times_contacted INTEGER, last_contacted INTEGER, starred INTEGER, "           \
	"visible INTEGER, has_phone INTEGER, status INTEGER, name TEXT, phone TEXT, email TEXT, address TEXT, note TEXT)"
#define INSERT "INSERT INTO contacts VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
#define SELECT "SELECT * FROM contacts WHERE id = ?"
#define FIELDS (1 + INTEGERS + TEXTS)

struct options {
	const char *file, *selects, *pattern;
	uint64_t records, text, page, batch, seed;
	bool create, drop_caches;
	/* as meant */
	uint64_t run[MAX_RUNS]; /* selects of each */
	size_t runs;
	bool sequential, random;
};

/* A record as it is written and as it is read. */
struct record {
	int64_t integer[1 + INTEGERS];
	char *text; /* TEXTS of them, one after another */
};

/* The records in their order, made anew. */
struct maker {
	struct prng integers;
	struct contents texts;
	int64_t next;
};

struct run {
	const char *pattern;
	uint64_t selects;
	uint64_t open_begin_ns, open_end_ns, begin_ns, end_ns, total_ns;
	uint64_t *latency_ns;
	uint32_t crc;
};

struct bench {
	const struct options *o;
	const struct bench_readahead *readahead;
	struct record record;
	uint32_t *crc;	 /* of each record, by key - 1 */
	uint32_t *order; /* keys of the random runs */
	uint64_t size, page;
	bool created;
	uint64_t create_begin_ns, create_end_ns;
	struct run run[2 * MAX_RUNS];
	size_t runs;
};

static int parse_list(const char *name, const char *text, uint64_t max, uint64_t *out, size_t *count)
{
	char *words = fs_strdup(text), *rest = words, *word;
	bool good = true;

	while (good && (word = strsep(&rest, ","))) {
		good = *count < MAX_RUNS && fs_parse_u64(word, max, &out[*count]) && out[*count];
		(*count)++;
	}
	free(words);
	if (!good)
		return fs_usage("bench sqlite: %s %s: numbers from 1 to %llu (--records) are wanted, at most %d, with commas", name,
				text, (unsigned long long)max, MAX_RUNS);
	return 0;
}

static int parse_patterns(struct options *o)
{
	char *words = fs_strdup(o->pattern), *rest = words, *word;
	bool good = true;

	while (good && (word = strsep(&rest, ","))) {
		bool sequential = !strcmp(word, "sequential");

		good = sequential || !strcmp(word, "random");
		o->sequential |= sequential;
		o->random |= !sequential;
	}
	free(words);
	return good ? 0 : fs_usage("bench sqlite: --pattern %s: it is sequential, random or sequential,random", o->pattern);
}

static int parse(int argc, char **argv, struct options *o, struct bench_readahead *readahead)
{
	const struct bench_option options[] = {
		{ .name = "--file", .text = &o->file },
		{ .name = "--create", .flag = &o->create },
		{ .name = "--records", .number = &o->records, .max = MAX_RECORDS },
		{ .name = "--text", .number = &o->text, .max = MAX_TEXT },
		{ .name = "--page-size", .number = &o->page, .max = 65536 },
		{ .name = "--batch", .number = &o->batch, .max = MAX_RECORDS },
		{ .name = "--seed", .number = &o->seed, .max = UINT64_MAX },
		{ .name = "--selects", .text = &o->selects },
		{ .name = "--pattern", .text = &o->pattern },
		{ .name = "--readahead", .text = &readahead->requested },
		{ .name = "--drop-caches", .flag = &o->drop_caches },
	};
	int usage = bench_options("sqlite", argc, argv, options, ARRAY_SIZE(options));

	if (usage)
		return usage;
	if (!o->file)
		return fs_usage("bench sqlite: --file PATH is missing");
	if (!o->create && !o->selects)
		return fs_usage("bench sqlite: --selects N,… is missing (and --create, where the database is not there yet)");
	if (!o->records || !o->text)
		return fs_usage("bench sqlite: --records and --text are not to be 0");
	if (o->page < 512 || (o->page & (o->page - 1)))
		return fs_usage("bench sqlite: --page-size %llu: a power of two from 512 to 65536 is wanted",
				(unsigned long long)o->page);
	if (o->selects)
		usage = parse_list("--selects", o->selects, o->records, o->run, &o->runs);
	if (!usage)
		usage = parse_patterns(o);
	return usage ? usage : bench_readahead_parse(readahead, "sqlite");
}

/* Prints SQLite's message and the next step. */
static int failed_sqlite(const struct options *o, sqlite3 *db, const char *what)
{
	int code = db ? sqlite3_errcode(db) & 0xff : SQLITE_NOMEM;
	int error = db ? sqlite3_system_errno(db) : 0;
	const char *says = db ? sqlite3_errmsg(db) : "out of memory";

	if (code == SQLITE_FULL || (code == SQLITE_IOERR && error == ENOSPC))
		return fs_fail("%s: %s: no space left on its file system; a larger partition, or fewer --records", o->file, what);
	if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_ERROR)
		return fs_fail("%s: %s: %s; not this benchmark's database, or damaged: remove it, and --create makes it anew",
			       o->file, what, says);
	if (code == SQLITE_CANTOPEN || code == SQLITE_READONLY || code == SQLITE_PERM)
		return fs_fail("%s: %s: %s; name a file that can be read, in a directory that can be written to", o->file, what,
			       error ? strerror(error) : says);
	if (code == SQLITE_IOERR && error)
		return fs_fail("%s: %s: %s: %s", o->file, what, says, strerror(error));
	return fs_fail("%s: %s: %s", o->file, what, says);
}

static void maker_begin(struct maker *m, uint64_t seed)
{
	prng_seed(&m->integers, seed);
	contents_init(&m->texts, CONTENTS_PRINTABLE, seed ^ TEXT_SEED);
	m->next = 1;
}

static void maker_next(struct maker *m, const struct options *o, struct record *record)
{
	record->integer[0] = m->next++;
	for (unsigned int i = 1; i <= INTEGERS; i++)
		record->integer[i] = (int64_t)(prng_next(&m->integers) >> 33);
	contents_fill(&m->texts, record->text, TEXTS * (size_t)o->text);
}

/* Integers as 64 bits, little-endian, then the texts. */
static uint32_t checksum(uint32_t crc, const struct options *o, const struct record *record)
{
	for (unsigned int i = 0; i <= INTEGERS; i++) {
		unsigned char bytes[8];

		for (unsigned int b = 0; b < sizeof(bytes); b++)
			bytes[b] = (unsigned char)((uint64_t)record->integer[i] >> (8 * b));
		crc = fs_crc32(crc, bytes, sizeof(bytes));
	}
	return fs_crc32(crc, record->text, TEXTS * (size_t)o->text);
}

static int insert_all(struct bench *b, sqlite3 *db, sqlite3_stmt *insert)
{
	const struct options *o = b->o;
	uint64_t batch = o->batch ? o->batch : o->records;
	struct maker maker;

	maker_begin(&maker, o->seed);
	for (uint64_t i = 0; i < o->records; i++) {
		bool first = !(i % batch), last = i + 1 == o->records || !((i + 1) % batch);
		int bad = 0;

		if (bench_interrupted())
			return fs_fail("bench sqlite: interrupted after %llu of %llu records; the database is removed",
				       (unsigned long long)i, (unsigned long long)o->records);
		maker_next(&maker, o, &b->record);
		bad |= first && sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
		for (unsigned int f = 0; f <= INTEGERS; f++)
			bad |= sqlite3_bind_int64(insert, (int)f + 1, b->record.integer[f]);
		for (unsigned int f = 0; f < TEXTS; f++)
			bad |= sqlite3_bind_text(insert, (int)(1 + INTEGERS + f) + 1, b->record.text + f * o->text, (int)o->text,
						 SQLITE_STATIC);
		bad = bad || sqlite3_step(insert) != SQLITE_DONE;
		if (bad || sqlite3_reset(insert) || (last && sqlite3_exec(db, "COMMIT", NULL, NULL, NULL)))
			return failed_sqlite(o, db, "insert");
	}
	return 0;
}

static int create_at(struct bench *b, const char *path)
{
	sqlite3_stmt *insert = NULL;
	sqlite3 *db = NULL;
	char pragma[64];
	int failed = 0;

	snprintf(pragma, sizeof(pragma), "PRAGMA page_size=%llu", (unsigned long long)b->o->page);
	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) ||
	    sqlite3_exec(db, pragma, NULL, NULL, NULL) || sqlite3_exec(db, TABLE, NULL, NULL, NULL) ||
	    sqlite3_prepare_v2(db, INSERT, -1, &insert, NULL))
		failed = failed_sqlite(b->o, db, "create");
	else
		failed = insert_all(b, db, insert);
	sqlite3_finalize(insert);
	if (sqlite3_close(db) && !failed)
		failed = failed_sqlite(b->o, db, "close");
	return failed;
}

/* Makes the database where it is missing. 0, or an exit code. */
static int create(struct bench *b)
{
	const char *file = b->o->file;
	char part[2 * FS_PATH_MAX], journal[2 * FS_PATH_MAX + 8];
	int failed;

	if (bench_part_begin(file, part, sizeof(part)))
		return errno == EEXIST ? 0 : fs_fail("%s: cannot be made: %s", file, strerror(errno));
	snprintf(journal, sizeof(journal), "%s-journal", part);
	fs_temp_note(journal);
	b->create_begin_ns = fs_now_ns();
	failed = create_at(b, part);
	b->create_end_ns = fs_now_ns();
	b->created = true;
	if (!failed && bench_part_end(file, part))
		failed = fs_fail("%s: cannot be made: %s", file, strerror(errno));
	if (failed) {
		unlink(part);
		unlink(journal);
	}
	return failed;
}

static int learn_size(struct bench *b)
{
	struct stat st;

	if (stat(b->o->file, &st))
		return fs_fail("%s: %s%s", b->o->file, strerror(errno), errno == ENOENT ? "; --create makes it" : "");
	if (!S_ISREG(st.st_mode))
		return fs_fail("%s: not a regular file; name a database", b->o->file);
	b->size = (uint64_t)st.st_size;
	return 0;
}

/* Advice is of an open file, and SQLite's descriptor is its own: it is told by what it is open on. */
static int advise(const struct bench *b)
{
	struct stat file, st;
	struct dirent *entry;
	int failed = 0;
	DIR *dir;

	if (b->readahead->advice < 0)
		return 0;
	dir = opendir("/proc/self/fd");
	if (!dir || stat(b->o->file, &file)) {
		if (dir)
			closedir(dir);
		return fs_fail("%s: its open descriptor is not to be found in /proc/self/fd; mount /proc", b->o->file);
	}
	while (!failed && (entry = readdir(dir))) {
		int fd = atoi(entry->d_name);

		if (*entry->d_name != '.' && fd != dirfd(dir) && !fstat(fd, &st) && st.st_dev == file.st_dev &&
		    st.st_ino == file.st_ino)
			failed = bench_readahead_advise(b->readahead, fd, b->o->file);
	}
	closedir(dir);
	return failed;
}

static uint64_t page_size(sqlite3 *db)
{
	sqlite3_stmt *pragma = NULL;
	uint64_t size = 0;

	if (!sqlite3_prepare_v2(db, "PRAGMA page_size", -1, &pragma, NULL) && sqlite3_step(pragma) == SQLITE_ROW)
		size = (uint64_t)sqlite3_column_int64(pragma, 0);
	sqlite3_finalize(pragma);
	return size;
}

/* The row's values go into the record. False where it is not of this table's shape. */
static bool take(const struct options *o, sqlite3_stmt *select, struct record *record)
{
	for (unsigned int f = 0; f <= INTEGERS; f++)
		record->integer[f] = sqlite3_column_int64(select, (int)f);
	for (unsigned int f = 0; f < TEXTS; f++) {
		const unsigned char *text = sqlite3_column_text(select, (int)(1 + INTEGERS + f));

		if (!text || (uint64_t)sqlite3_column_bytes(select, (int)(1 + INTEGERS + f)) != o->text)
			return false;
		memcpy(record->text + f * o->text, text, (size_t)o->text);
	}
	return true;
}

/* One SELECT, timed. 0, or an exit code. */
static int select_one(struct bench *b, sqlite3 *db, sqlite3_stmt *select, uint32_t key, uint64_t *took_ns)
{
	uint64_t begin = fs_now_ns();
	bool shaped = false;
	int code = sqlite3_bind_int64(select, 1, key);

	if (!code)
		code = sqlite3_step(select);
	if (code == SQLITE_ROW)
		shaped = take(b->o, select, &b->record);
	sqlite3_reset(select);
	*took_ns = fs_now_ns() - begin;
	if (code == SQLITE_DONE)
		return fs_fail("%s: there is no record %u; give the --records that it was made with, or make it anew", b->o->file,
			       key);
	if (code != SQLITE_ROW)
		return failed_sqlite(b->o, db, "select");
	if (!shaped || checksum(fs_crc32(0, NULL, 0), b->o, &b->record) != b->crc[key - 1])
		return fs_fail("%s: record %u is not the one that --seed %llu and --text %llu make; give those it was made with, or it is damaged: remove it, and --create makes it anew",
			       b->o->file, key, (unsigned long long)b->o->seed, (unsigned long long)b->o->text);
	return 0;
}

static int run_open(struct bench *b, struct run *r, sqlite3 *db, sqlite3_stmt *select)
{
	bool random = !strcmp(r->pattern, "random");
	int failed = 0;

	r->crc = fs_crc32(0, NULL, 0);
	for (uint64_t i = 0; i < r->selects && !failed; i++) {
		if (bench_interrupted())
			return fs_fail("bench sqlite: interrupted after %llu of %llu selects", (unsigned long long)i,
				       (unsigned long long)r->selects);
		failed = select_one(b, db, select, random ? b->order[i] : (uint32_t)i + 1, &r->latency_ns[i]);
		r->end_ns = fs_now_ns();
		if (!i)
			r->begin_ns = r->end_ns - r->latency_ns[i];
		r->total_ns += r->latency_ns[i];
		r->crc = checksum(r->crc, b->o, &b->record);
	}
	return failed;
}

/* One run from a cold cache. 0, or an exit code. */
static int run(struct bench *b, const char *pattern, uint64_t selects)
{
	struct run *r = &b->run[b->runs++];
	sqlite3_stmt *select = NULL;
	sqlite3 *db = NULL;
	int failed = 0;

	r->pattern = pattern;
	r->selects = selects;
	/* Memory is touched before the clock runs. */
	r->latency_ns = fs_alloc((size_t)selects * sizeof(*r->latency_ns));
	memset(r->latency_ns, 0, (size_t)selects * sizeof(*r->latency_ns));
	if (b->o->drop_caches && (failed = bench_drop_caches()))
		return failed;
	r->open_begin_ns = fs_now_ns();
	if (sqlite3_open_v2(b->o->file, &db, SQLITE_OPEN_READONLY, NULL) ||
	    sqlite3_prepare_v2(db, SELECT, -1, &select, NULL))
		failed = failed_sqlite(b->o, db, "open");
	r->open_end_ns = fs_now_ns();
	if (!failed && sqlite3_column_count(select) != FIELDS)
		failed = fs_fail("%s: its table has %d fields, not %u; not this benchmark's database: name another", b->o->file,
				 sqlite3_column_count(select), FIELDS);
	if (!failed)
		failed = advise(b);
	if (!failed)
		failed = run_open(b, r, db, select);
	if (!failed && !b->page)
		b->page = page_size(db);
	sqlite3_finalize(select);
	sqlite3_close(db);
	return failed;
}

/* What each record has to be, and the order of the random runs. */
static void prepare(struct bench *b)
{
	const struct options *o = b->o;
	struct maker maker;
	struct prng prng;

	b->record.text = fs_alloc(TEXTS * (size_t)o->text);
	b->crc = fs_alloc((size_t)o->records * sizeof(*b->crc));
	b->order = fs_alloc((size_t)o->records * sizeof(*b->order));
	maker_begin(&maker, o->seed);
	for (uint64_t i = 0; i < o->records; i++) {
		maker_next(&maker, o, &b->record);
		b->crc[i] = checksum(fs_crc32(0, NULL, 0), o, &b->record);
	}
	/* Fisher and Yates, from the front. */
	prng_seed(&prng, o->seed ^ ORDER_SEED);
	for (uint64_t i = 0; i < o->records; i++)
		b->order[i] = (uint32_t)i + 1;
	for (uint64_t i = 0; i + 1 < o->records; i++) {
		uint64_t other = i + prng_below(&prng, o->records - i);
		uint32_t key = b->order[i];

		b->order[i] = b->order[other];
		b->order[other] = key;
	}
}

static int print(const struct bench *b)
{
	const struct options *o = b->o;
	struct fs_json json = { 0 };

	fs_json_object(&json, NULL);
	fs_json_string(&json, "bench", "sqlite");
	fs_json_string(&json, "sqlite", sqlite3_libversion());
	fs_json_string(&json, "file", o->file);
	fs_json_u64(&json, "size_bytes", b->size);
	fs_json_known(&json, "page_bytes", b->page, b->page);
	fs_json_u64(&json, "records", o->records);
	fs_json_u64(&json, "text_bytes", o->text);
	fs_json_u64(&json, "seed", o->seed);
	if (b->created)
		bench_span_json(&json, "create", b->create_begin_ns, b->create_end_ns);
	else
		fs_json_null(&json, "create");
	fs_json_bool(&json, "dropped_caches", o->drop_caches);
	bench_readahead_json(&json, b->readahead);
	fs_json_array(&json, "runs");
	for (size_t i = 0; i < b->runs; i++) {
		const struct run *r = &b->run[i];

		fs_json_object(&json, NULL);
		fs_json_string(&json, "pattern", r->pattern);
		fs_json_u64(&json, "selects", r->selects);
		bench_span_json(&json, "open", r->open_begin_ns, r->open_end_ns);
		bench_span_json(&json, "measured", r->begin_ns, r->end_ns);
		fs_json_u64(&json, "total_ns", r->total_ns);
		fs_json_u64(&json, "checksum", r->crc);
		fs_json_array(&json, "latencies_ns");
		for (uint64_t s = 0; s < r->selects; s++)
			fs_json_u64(&json, NULL, r->latency_ns[s]);
		fs_json_array_end(&json);
		fs_json_object_end(&json);
	}
	fs_json_array_end(&json);
	fs_json_object_end(&json);
	return bench_print(&json);
}

static int bench(const struct options *o, struct bench_readahead *readahead)
{
	struct bench *b = fs_alloc(sizeof(*b));
	int failed = 0;

	memset(b, 0, sizeof(*b));
	b->o = o;
	b->readahead = readahead;
	bench_catch_signals();
	prepare(b);
	if (o->create)
		failed = create(b);
	if (!failed)
		failed = learn_size(b);
	if (!failed)
		failed = bench_readahead_prepare(readahead, o->file);
	for (size_t i = 0; i < o->runs && !failed && o->sequential; i++)
		failed = run(b, "sequential", o->run[i]);
	for (size_t i = 0; i < o->runs && !failed && o->random; i++)
		failed = run(b, "random", o->run[i]);
	/* Also where something failed: the knob may have been changed, a file noted. */
	if (readahead->set_knob || o->create)
		failed = bench_readahead_restore(readahead, failed);
	if (!failed)
		failed = print(b);
	for (size_t i = 0; i < b->runs; i++)
		free(b->run[i].latency_ns);
	free(b->record.text);
	free(b->crc);
	free(b->order);
	free(b);
	return failed;
}

int main(int argc, char **argv)
{
	struct options o = { .pattern = "sequential", .records = 1000, .text = 64, .page = 1024, .seed = 1 };
	struct bench_readahead readahead = { 0 };
	struct fs_swept swept;
	int failed;

	signal(SIGPIPE, SIG_IGN);
	fs_standard_files();
	fs_sweep(&swept);
	failed = parse(argc, argv, &o, &readahead);
	return failed ? failed : bench(&o, &readahead);
}
