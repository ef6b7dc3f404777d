// SPDX-License-Identifier: Apache-2.0
/* The benchmarks on this host: what they print, and every way they refuse. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "contents.h"
#include "frame.h"
#include "prng.h"
#include "util.h"
#include "check.h"

static char dir[] = "/tmp/fs-bench-XXXXXX";
static char memory_dir[] = "/dev/shm/fs-bench-XXXXXX";
static char file[64], script[64], out_path[64], err_path[64], memory_file[64];

struct ran {
	int status;
	char *out;
	char *err;
};

static void redirect(const char *path, int number)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || dup2(fd, number) < 0)
		_exit(99);
	close(fd);
}

/* Runs a benchmark with words that one space separates, in a process of its own. */
static struct ran run(int (*bench)(int, char **), const char *words)
{
	char *text = strdup(words), *rest = text, *argv[64] = { "bench" }, *word;
	struct ran ran;
	int argc = 1, status;
	pid_t pid;

	while ((word = strsep(&rest, " ")) && argc < 63)
		if (*word)
			argv[argc++] = word;
	fflush(NULL);
	pid = fork();
	if (!pid) {
		redirect(out_path, 1);
		redirect(err_path, 2);
		exit(bench(argc, argv));
	}
	waitpid(pid, &status, 0);
	free(text);
	ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	ran.out = fs_read_text(out_path, NULL);
	ran.err = fs_read_text(err_path, NULL);
	return ran;
}

static void ran_free(struct ran *ran)
{
	free(ran->out);
	free(ran->err);
}

/* The number after "key": of a JSON text; all ones where it has no such key. */
static uint64_t value(const char *json, const char *key)
{
	char quoted[64];
	const char *at;

	snprintf(quoted, sizeof(quoted), "\"%s\":", key);
	at = strstr(json, quoted);
	return at ? strtoull(at + strlen(quoted), NULL, 10) : UINT64_MAX;
}

/* Exit code, nothing on stdout, one line on stderr that holds `words`. */
static void refused(int (*bench)(int, char **), const char *options, int status, const char *words)
{
	struct ran ran = run(bench, options);

	CHECK(ran.status == status);
	CHECK(ran.out && !*ran.out);
	CHECK(ran.err && strstr(ran.err, words));
	CHECK(ran.err && strchr(ran.err, '\n') == ran.err + strlen(ran.err) - 1);
	if (!ran.err || !strstr(ran.err, words))
		fprintf(stderr, "  '%s' for '%s'\n", ran.err ? ran.err : "", options);
	ran_free(&ran);
}

static void test_read(void)
{
	unsigned char bytes[40960], last;
	struct contents c;
	struct prng prng;
	struct ran ran;
	uint32_t crc = 0;
	uint64_t sum = 0;
	char words[300];
	char *p;

	snprintf(words, sizeof(words),
		 "--file %s --create --size 40961 --contents printable --seed 3 --count 10 --request 4096", file);
	ran = run(bench_read, words);
	CHECK(ran.status == 0);
	CHECK_TEXT(ran.err, "");
	contents_init(&c, CONTENTS_PRINTABLE, 3);
	contents_fill(&c, bytes, sizeof(bytes));
	CHECK(value(ran.out, "checksum") == fs_crc32(0, bytes, sizeof(bytes)));
	CHECK(value(ran.out, "size_bytes") == 40961);
	CHECK(value(ran.out, "count") == 10);
	CHECK(value(ran.out, "request_bytes") == 4096);
	CHECK(value(ran.out, "bytes_read") == 40960);
	CHECK(strstr(ran.out, "\"pattern\":\"sequential\""));
	CHECK(strchr(ran.out, '\n') == ran.out + strlen(ran.out) - 1);
	p = strstr(ran.out, "\"latencies_ns\":[");
	CHECK(p);
	p = p ? p + strlen("\"latencies_ns\":[") : "";
	for (int i = 0; i < 10; i++, p += *p == ',')
		sum += strtoull(p, &p, 10);
	CHECK(*p == ']');
	CHECK(sum == value(ran.out, "total_ns"));
	p = strstr(ran.out, "\"measured\":");
	CHECK(p && value(p, "end_ns") - value(p, "begin_ns") >= sum);
	ran_free(&ran);

	/* random: the offsets are those of the documented generator */
	snprintf(words, sizeof(words), "--file %s --seed 7 --count 25 --request 1000 --pattern random", file);
	ran = run(bench_read, words);
	CHECK(ran.status == 0);
	prng_seed(&prng, 7 ^ UINT64_C(0x7061747465726e));
	for (int i = 0; i < 25; i++)
		crc = fs_crc32(crc, bytes + prng_below(&prng, 40) * 1000, 1000);
	CHECK(value(ran.out, "checksum") == crc);
	CHECK(value(ran.out, "seed") == 7);
	ran_free(&ran);

	/* pages: each of them by itself, the last one, of which the file has one byte, first */
	snprintf(words, sizeof(words), "--file %s --pattern pages", file);
	ran = run(bench_read, words);
	CHECK(ran.status == 0);
	contents_fill(&c, &last, 1);
	crc = fs_crc32(fs_crc32(0, &last, 0), &last, 1);
	for (int i = 9; i >= 0; i--)
		crc = fs_crc32(crc, bytes + i * 4096, 4096);
	CHECK(value(ran.out, "checksum") == crc);
	CHECK(value(ran.out, "count") == 11 && value(ran.out, "request_bytes") == 4096);
	CHECK(value(ran.out, "bytes_read") == 40961);
	ran_free(&ran);

	/* inter-arrival time passes between requests, and is none of their latency */
	snprintf(words, sizeof(words), "--file %s --count 4 --request 512 --interarrival-us 20000", file);
	ran = run(bench_read, words);
	CHECK(ran.status == 0);
	p = strstr(ran.out, "\"measured\":");
	CHECK(p && value(p, "end_ns") - value(p, "begin_ns") >= 60000000 + value(ran.out, "total_ns"));
	ran_free(&ran);

	snprintf(words, sizeof(words), "--file %s --count 1 --request 512 --readahead fadvise-random", file);
	ran = run(bench_read, words);
	CHECK(ran.status == 0 && strstr(ran.out, "\"requested\":\"fadvise-random\""));
	ran_free(&ran);
}

static void test_read_refusals(void)
{
	char words[300];

#define REFUSED(status, says, ...)                                                                                     \
	do {                                                                                                           \
		snprintf(words, sizeof(words), __VA_ARGS__);                                                           \
		refused(bench_read, words, status, says);                                                              \
	} while (0)
	REFUSED(1, "file is 40961 bytes, the reads ask for 45056", "--file %s --count 11 --request 4096", file);
	REFUSED(1, "file is 40961 bytes, the reads ask for 40962", "--file %s --count 1 --request 40962 --pattern random",
		file);
	REFUSED(1, "file is 40961 bytes, --size says 50000", "--file %s --size 50000 --count 1 --request 512", file);
	REFUSED(1, "file is 1024 bytes, the reads ask for 2048", "--file %s --size 1024 --count 2 --request 1024", file);
	REFUSED(1, "No such file", "--file %s/none --count 1 --request 512", dir);
	REFUSED(1, "not a regular file", "--file %s --count 1 --request 512", dir);
	REFUSED(1, "cannot make a file", "--file %s/no/f --create --size 9 --contents zero --count 1 --request 1", dir);
	REFUSED(2, "--file PATH is missing", "--count 1 --request 1");
	REFUSED(2, "--count and --request", "--file %s", file);
	REFUSED(2, "--count and --request", "--file %s --count 0 --request 512", file);
	REFUSED(2, "whole number", "--file %s --count 1k --request 512", file);
	REFUSED(2, "whole number", "--file %s --count 99999999999 --request 512", file);
	REFUSED(2, "its value is missing", "--file %s --count", file);
	REFUSED(2, "no such option", "--file %s --cuont 1", file);
	REFUSED(2, "sequential or random", "--file %s --count 1 --request 1 --pattern zigzag", file);
	REFUSED(2, "no --count and --request", "--file %s --request 4096 --pattern pages", file);
	REFUSED(2, "no --count and --request", "--file %s --count 9 --pattern pages", file);
	REFUSED(1, "0 pages: 1 to 8388608", "--file %s --size 0 --pattern pages", file);
	REFUSED(2, "--readahead much", "--file %s --count 1 --request 1 --readahead much", file);
	REFUSED(2, "--contents noise", "--file %s --count 1 --request 1 --contents noise", file);
	REFUSED(2, "--create needs", "--file %s --create --count 1 --request 1", file);
	/* A tmpfs has no device, and so nothing to set. */
	CHECK(!contents_create(memory_file, 10, CONTENTS_ZERO, 0, NULL));
	REFUSED(1, "no read-ahead setting", "--file %s --count 1 --request 1 --readahead 0", memory_file);
	unlink(memory_file);
#undef REFUSED
	refused(bench_raw, "--count 1 --length 2048", 2, "--mtd N is missing");
	refused(bench_raw, "--mtd 255 --count 1", 2, "--count and --length");
	refused(bench_raw, "--mtd 255 --count 1 --length 2048", 1, "/dev/mtd255");
	refused(bench_raw, "--mtd 256 --count 1 --length 2048", 2, "whole number");
}

/* The value after "key": of the object of shares that has this percentage. */
static uint64_t share_value(const char *json, int percent, const char *key)
{
	char object[40];
	const char *at;

	snprintf(object, sizeof(object), "{\"percent\":%d,", percent);
	at = strstr(json, object);
	return at ? value(at, key) : UINT64_MAX;
}

static void test_postmark(void)
{
	struct ran ran, again;
	uint64_t created, read;
	char words[400];

	/* Files of one size: every sum is known from the counts. */
	snprintf(words, sizeof(words),
		 "--dir %s --files 40 --transactions 300 --subdirectories 3 --size-min 1000 --size-max 1000 --seed 5", dir);
	ran = run(bench_postmark, words);
	CHECK(ran.status == 0);
	CHECK_TEXT(ran.err, "");
	created = value(ran.out, "created");
	read = value(ran.out, "read");
	CHECK(created == 40 + value(ran.out, "created_in_transactions"));
	CHECK(value(ran.out, "created_in_transactions") + value(ran.out, "deleted_in_transactions") == 300);
	CHECK(value(ran.out, "deleted") == created);
	CHECK(created > 40 + 90 && created < 40 + 210 && read > 90 && read < 210);
	CHECK(value(ran.out, "bytes_written") == created * 1000);
	CHECK(value(ran.out, "writes") == created * 2);
	CHECK(value(ran.out, "bytes_read") == read * 1000);
	CHECK(value(ran.out, "reads") == read * 2);
	CHECK(value(ran.out, "appended") == 0);
	CHECK(value(ran.out, "appended_nothing") == 300 - read);
	/* A share is reached with the request that reaches it: 512 bytes, 512 bytes, all. */
	CHECK(share_value(ran.out, 25, "bytes") == read * 512);
	CHECK(share_value(ran.out, 50, "bytes") == read * 512);
	CHECK(share_value(ran.out, 100, "bytes") == read * 1000);
	CHECK(share_value(ran.out, 100, "read_ns") == value(ran.out, "read_ns"));
	CHECK(share_value(ran.out, 25, "read_ns") <= share_value(ran.out, 100, "read_ns"));
	/* The same settings do the same, elsewhere and without subdirectories too. */
	snprintf(words, sizeof(words),
		 "--dir %s --files 40 --transactions 300 --subdirectories 3 --size-min 1000 --size-max 1000 --seed 5",
		 memory_dir);
	again = run(bench_postmark, words);
	CHECK(value(again.out, "checksum") == value(ran.out, "checksum"));
	CHECK(value(again.out, "created") == created);
	ran_free(&again);
	ran_free(&ran);

	/* Every file appended to until it is full; nothing is deleted before the end. */
	snprintf(words, sizeof(words),
		 "--dir %s --files 10 --transactions 200 --create-bias 10 --read-bias 0 --size-min 1 --size-max 4000", dir);
	ran = run(bench_postmark, words);
	CHECK(ran.status == 0);
	CHECK(value(ran.out, "created") == 210 && value(ran.out, "deleted") == 210);
	CHECK(value(ran.out, "deleted_in_transactions") == 0 && value(ran.out, "read") == 0);
	CHECK(value(ran.out, "appended") + value(ran.out, "appended_nothing") == 200);
	CHECK(value(ran.out, "bytes_written") > 210 && value(ran.out, "bytes_written") <= 210 * 4000);
	ran_free(&ran);

	/* More deletions than there are files: creations take their place. */
	snprintf(words, sizeof(words), "--dir %s --files 2 --transactions 11 --create-bias 0 --read-bias 10", dir);
	ran = run(bench_postmark, words);
	CHECK(ran.status == 0);
	CHECK(value(ran.out, "created") == value(ran.out, "deleted") && value(ran.out, "created") > 2);
	ran_free(&ran);

	snprintf(words, sizeof(words), "--dir %s --config flashmon --transactions 5", dir);
	ran = run(bench_postmark, words);
	CHECK(value(ran.out, "files") == 800 && value(ran.out, "transactions") == 5);
	CHECK(value(ran.out, "size_max_bytes") == 10240 && value(ran.out, "subdirectories") == 10);
	ran_free(&ran);

#define REFUSED(status, says, ...)                                                                                     \
	do {                                                                                                           \
		snprintf(words, sizeof(words), __VA_ARGS__);                                                           \
		refused(bench_postmark, words, status, says);                                                          \
	} while (0)
	REFUSED(2, "--dir DIR is missing", "--files 3");
	REFUSED(2, "--config dbench", "--dir %s --config dbench", dir);
	REFUSED(2, "files of 0 to 10000 bytes", "--dir %s --size-min 0", dir);
	REFUSED(2, "files of 20000 to 10000 bytes", "--dir %s --size-min 20000", dir);
	REFUSED(2, "not to be 0", "--dir %s --read-request 0", dir);
	REFUSED(2, "whole number", "--dir %s --create-bias 11", dir);
	REFUSED(2, "--shares 50,25", "--dir %s --shares 50,25", dir);
	REFUSED(2, "--shares 0", "--dir %s --shares 0", dir);
	REFUSED(2, "--contents noise", "--dir %s --contents noise", dir);
	REFUSED(2, "--readahead much", "--dir %s --readahead much", dir);
	REFUSED(1, "cannot make a directory there", "--dir %s/none", dir);
	REFUSED(1, "no read-ahead setting", "--dir %s --readahead 0", memory_dir);
#undef REFUSED
}

static void write_script(const char *text)
{
	if (fs_write_text_flags(script, text, O_WRONLY | O_CREAT | O_TRUNC))
		abort();
}

/* Lines of version 2 that cannot be. */
static void test_replay_lines(void)
{
	static const struct {
		const char *says, *lines;
	} wrong[] = {
		{ ":2: not `file SIZE [LABEL]` with SIZE at most 64 TiB, or `file -", "file -1" },
		{ ":4: a read or write of 0 bytes, or a read past", "file -\ntask a\nread 0 0 0 0 1" },
		{ ":4: not a line of a replay script", "file 5\ntask a\nerase 0 0 0" },
		{ ":4: MODES are", "file 5\ntask a\nopen 0 0 0 sync" },
		{ ":4: MODES are", "file 5\ntask a\nopen 0 0 0 fast,read" },
		{ ":4: not `fsync TIME_NS", "file 5\ntask a\nfsync 0 0 0 0" },
		{ ":4: a rename to the file itself", "file 5\ntask a\nrename 0 0 0 0" },
		{ ":4: not `write TIME_NS", "file 5\ntask a\nwrite 0+ 0 0 0 4" },
		{ ":4: a fault past", "file 5\ntask a\nfault 0 0 0 5" },
		{ ":2: nice= needs", "task a nice=20" },
		{ ":2: ionice= needs", "task a ionice=be:8" },
		{ ":2: a word of a task", "task a fast" },
		{ ":2: a word of a task that is none", "task a fast=1" },
		{ ":2: a cgroup that no line", "task a cgroup=b" },
		{ ":2: start= needs", "task a start=-1" },
		{ ":2: not `cgroup NAME", "cgroup ../a" },
		{ ":2: a cgroup's setting that is not", "cgroup a io.max" },
		{ ":2: a cgroup's setting of a file", "cgroup a ../x=1" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		char text[300], words[300];

		snprintf(text, sizeof(text), "flashscope-replay 2\n%s\n", wrong[i].lines);
		write_script(text);
		snprintf(words, sizeof(words), "--script %s --dir %s", script, dir);
		refused(bench_replay, words, 2, wrong[i].says);
	}
}

static void test_replay(void)
{
	unsigned char bytes[20000];
	struct contents c;
	struct ran ran;
	char words[300];
	const char *second;
	uint64_t late;

	write_script("flashscope-replay 1\n# by hand\n\nfile 20000 data\ntask cat 7\nfile 100\ntask\n"
		     "read 0 0 0 0 4096\nread 5 1 1 40 60\nread 5 1 0 10000 1\nread 40000000 0 0 8192 4096\n");
	snprintf(words, sizeof(words), "--script %s --dir %s --seed 9", script, dir);
	ran = run(bench_replay, words);
	CHECK(ran.status == 0);
	CHECK_TEXT(ran.err, "");
	CHECK(value(ran.out, "files") == 2 && value(ran.out, "file_bytes") == 20100);
	CHECK(value(ran.out, "reads") == 4 && value(ran.out, "bytes_read") == 8253);
	/* Each file's contents are those of its own seed, each task's bytes its own. */
	contents_init(&c, CONTENTS_PRINTABLE, 9);
	contents_fill(&c, bytes, sizeof(bytes));
	second = strstr(ran.out, "{\"label\":\"\"");
	CHECK(strstr(ran.out, "{\"label\":\"cat 7\",\"reads\":2,\"bytes_read\":8192,"));
	CHECK(value(strstr(ran.out, "\"tasks\""), "checksum") ==
	      fs_crc32(fs_crc32(fs_crc32(0, bytes, 0), bytes, 4096), bytes + 8192, 4096));
	CHECK(second && value(second, "reads") == 2);
	memmove(bytes, bytes + 10000, 1);
	contents_init(&c, CONTENTS_PRINTABLE, 10);
	contents_fill(&c, bytes + 100, 100);
	CHECK(second && value(second, "checksum") == fs_crc32(fs_crc32(0, bytes + 140, 60), bytes, 1));
	CHECK(strstr(ran.out, "\"max_late_ns\":null"));
	ran_free(&ran);

	snprintf(words, sizeof(words), "--script %s --dir %s --timing recorded", script, memory_dir);
	ran = run(bench_replay, words);
	CHECK(ran.status == 0);
	second = strstr(ran.out, "\"measured\"");
	late = value(strstr(ran.out, "\"tasks\""), "max_late_ns");
	CHECK(late < UINT64_MAX);
	/* The first may have begun late, the last never early. */
	CHECK(second && value(second, "end_ns") - value(second, "begin_ns") + late >= 40000000);
	ran_free(&ran);

#define REFUSED(status, says, text)                                                                                    \
	do {                                                                                                           \
		write_script(text);                                                                                    \
		snprintf(words, sizeof(words), "--script %s --dir %s", script, dir);                                   \
		refused(bench_replay, words, status, says);                                                            \
	} while (0)
	REFUSED(2, ":1: its first line is not", "");
	REFUSED(2, ":1: a replay script of version 3; versions 1 and 2 are known", "flashscope-replay 3\n");
	REFUSED(2, "no calls are in it", "flashscope-replay 1\nfile 5\ntask\n");
	REFUSED(2, ":2: not a line of a replay script of version 1", "flashscope-replay 1\nwrite 1\n");
	REFUSED(2, ":2: not `file SIZE", "flashscope-replay 1\nfile\n");
	REFUSED(2, ":2: not `file SIZE", "flashscope-replay 1\nfile 0\n");
	REFUSED(2, ":2: not `file SIZE", "flashscope-replay 1\nfile 99999999999999999999\n");
	REFUSED(2, ":4: the number of a task or file", "flashscope-replay 1\nfile 5\ntask\nread 0 1 0 0 5\n");
	REFUSED(2, ":4: the number of a task or file", "flashscope-replay 1\nfile 5\ntask\nread 0 0 1 0 5\n");
	REFUSED(2, ":4: a read or write of 0 bytes, or a read past", "flashscope-replay 1\nfile 5\ntask\nread 0 0 0 1 5\n");
	REFUSED(2, ":4: a read or write of 0 bytes, or a read past", "flashscope-replay 1\nfile 5\ntask\nread 0 0 0 1 0\n");
	REFUSED(2, ":4: not `read TIME_NS", "flashscope-replay 1\nfile 5\ntask\nread 0 0 0 1\n");
	REFUSED(2, ":4: not `read TIME_NS", "flashscope-replay 1\nfile 5\ntask\nread 0 0 0 1 1 1\n");
	REFUSED(2, ":4: not `read TIME_NS", "flashscope-replay 1\nfile 5\ntask\nread -1 0 0 1 1\n");
	REFUSED(2, ":4: not `read TIME_NS", "flashscope-replay 1\nfile 5\ntask\nread 0+1 0 0 1 1\n");
	REFUSED(2, ":5: a time before that of the call above",
		"flashscope-replay 1\nfile 5\ntask\nread 9 0 0 1 1\nread 8 0 0 1 1\n");
	REFUSED(1, "its files take 70368744177664 bytes and",
		"flashscope-replay 1\nfile 70368744177664\ntask\nread 9 0 0 1 1\n");
	refused(bench_replay, "--dir /tmp", 2, "--script FILE and --dir DIR");
	snprintf(words, sizeof(words), "--script %s --dir %s --timing slow", script, dir);
	refused(bench_replay, words, 2, "--timing slow");
	snprintf(words, sizeof(words), "--script %s/none --dir %s", dir, dir);
	refused(bench_replay, words, 1, "none: No such file");
	test_replay_lines();
#undef REFUSED
}

/* Every verb of version 2, in each timing. */
static void test_replay_calls(void)
{
	static const char *const timings[] = { "asap", "recorded", "pauses" };

	write_script("flashscope-replay 2\nfile 8192 film\nfile -\nfile -\ntask vlc%20demux nice=5 ionice=be:2\ntask log start=1000000\n"
		     "open 0+10 0 0 read\nread 10+5 0 0 0 4096\nfault 20 0 0 5000\ncreate 20 1 1 read,write,truncate\nwrite 30 1 1 0 10000\n"
		     "fsync 40 1 1\nwrite 41 1 1 10000 500\nfdatasync 45 1 1\nfault-write 46 1 1 3\nread 50 1 1 10400 100\nrename 60 1 1 2\n"
		     "truncate 70 1 2 100\nread 71 1 2 0 4096\nclose 80 1 2\nunlink 90 1 2\nread 500000000 0 0 4096 4096\n");
	for (size_t i = 0; i < ARRAY_SIZE(timings); i++) {
		char words[300];
		struct ran ran;
		const char *second;

		snprintf(words, sizeof(words), "--script %s --dir %s --timing %s", script, dir, timings[i]);
		ran = run(bench_replay, words);
		CHECK_TEXT(ran.err, "");
		CHECK(ran.status == 0 && value(ran.out, "calls") == 16 && value(ran.out, "bytes_written") == 10500);
		CHECK(strstr(ran.out, "\"name\":\"vlc demux\""));
		second = strstr(ran.out, "{\"label\":\"log\"");
		CHECK(second && value(second, "short_reads") == 1 && value(second, "bytes_read") == 200);
		CHECK(second && strstr(second, "\"syncs\":{\"calls\":2,"));
		second = strstr(ran.out, "\"measured\"");
		CHECK(!i == (value(second, "end_ns") - value(second, "begin_ns") < 490000000));
		ran_free(&ran);
	}
}

int main(void)
{
	if (!mkdtemp(dir) || !mkdtemp(memory_dir))
		abort();
	snprintf(file, sizeof(file), "%s/data", dir);
	snprintf(memory_file, sizeof(memory_file), "%s/data", memory_dir);
	snprintf(script, sizeof(script), "%s/script", dir);
	snprintf(out_path, sizeof(out_path), "%s/out", dir);
	snprintf(err_path, sizeof(err_path), "%s/err", dir);
	test_read();
	test_read_refusals();
	test_postmark();
	test_replay();
	test_replay_calls();
	unlink(file);
	unlink(script);
	unlink(out_path);
	unlink(err_path);
	/* Whatever a benchmark made, it removed. */
	CHECK(!rmdir(dir));
	CHECK(!rmdir(memory_dir));
	return check_verdict("bench");
}
