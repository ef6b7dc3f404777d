// SPDX-License-Identifier: Apache-2.0
#include "options.h"
#include "test.h"
#include "trigger.h"

static int parse(struct fs_record_options *options, char **words)
{
	int argc = 0, result;

	while (words[argc])
		argc++;
	test_quiet(true);
	result = fs_record_options(argc, words, options);
	test_quiet(false);
	return result;
}

#define PARSE(options, ...) parse(options, (char *[]){ "record", __VA_ARGS__, NULL })
#define REFUSED(...)                                                                      \
	do {                                                                              \
		CHECK_NUMBER(PARSE(&options, __VA_ARGS__), 2);                            \
		fs_record_options_free(&options);                                         \
	} while (0)

static void test_ring(void)
{
	struct fs_record_options options;

	CHECK(!parse(&options, (char *[]){ "record", NULL }));
	/* A board of 256 MB, of 512 MB, a PC, a server with 64 processors; nothing known. */
	CHECK_NUMBER(fs_record_ring_kib(&options, 220 << 10, 1), 4096);
	CHECK_NUMBER(fs_record_ring_kib(&options, 448 << 10, 1), 7168);
	CHECK_NUMBER(fs_record_ring_kib(&options, 448 << 10, 2), 4096);
	CHECK_NUMBER(fs_record_ring_kib(&options, 16 << 20, 4), 16384);
	CHECK_NUMBER(fs_record_ring_kib(&options, 128 << 20, 64), 4096);
	CHECK_NUMBER(fs_record_ring_kib(&options, 0, 2), 4096);
	options.overwrite = true;
	CHECK_NUMBER(fs_record_ring_kib(&options, 16 << 20, 4), 4096);
	fs_record_options_free(&options);

	CHECK(!parse(&options, (char *[]){ "record", "--ring", "64", NULL }));
	CHECK_NUMBER(fs_record_ring_kib(&options, 16 << 20, 4), 64);
	fs_record_options_free(&options);
}

void test_options(void)
{
	static char *full[] = { "record", "--name", "a", "--events",
				"block,sched:sched_switch,ext4:*,flash", "--detail",
				"offset,duration", "--detail", "chip", "--mtd", "1", "--mtd", "0",
				"--ring", "64", "--mode", "ring", "--interval-ms", "20", "--paused",
				"--source", "5", "--ready-fd", "9", "-o", "f", "--", "cmd",
				"--name", NULL };
	struct fs_record_options options;

	test_ring();
	CHECK(!parse(&options, (char *[]){ "record", NULL }));
	CHECK(options.flash && !options.events.count && !options.groups && !options.overwrite && !options.paused);
	CHECK_NUMBER(options.ring_kib, 4096);
	CHECK_NUMBER(options.interval_ms, 100);
	CHECK(options.ready_fd == -1 && !options.name && !options.output && !options.command);
	fs_record_options_free(&options);

	CHECK(!parse(&options, full));
	CHECK_TEXT(options.name, "a");
	CHECK_NUMBER(options.groups, FS_GROUP_BLOCK);
	CHECK_NUMBER(options.events.count, 2);
	CHECK_TEXT(options.events.items[0].system, "sched");
	CHECK_TEXT(options.events.items[0].event, "sched_switch");
	CHECK_TEXT(options.events.items[1].system, "ext4");
	CHECK(!options.events.items[1].event);
	CHECK(options.flash && options.details.offset && options.details.duration &&
	      options.details.chip);
	CHECK_NUMBER(options.mtd_count, 2);
	CHECK(options.mtd[0] == 1 && options.mtd[1] == 0);
	CHECK(options.overwrite && options.paused && options.ring_kib == 64);
	CHECK(options.interval_ms == 20 && options.source == 5 && options.ready_fd == 9);
	CHECK_TEXT(options.output, "f");
	CHECK_TEXT(options.command[0], "cmd");
	CHECK_TEXT(options.command[1], "--name");
	fs_record_options_free(&options);

	CHECK(!PARSE(&options, "--events", "block"));
	CHECK(!options.flash);
	fs_record_options_free(&options);
	CHECK(!PARSE(&options, "--events", "block,syscall,cache,layers,block:*,block:*"));
	CHECK_NUMBER(options.groups, FS_GROUP_BLOCK | FS_GROUP_SYSCALL | FS_GROUP_CACHE | FS_GROUP_LAYERS);
	CHECK_NUMBER(options.events.count, 1);
	fs_record_options_free(&options);

	CHECK(!PARSE(&options, "--events", "auto", "-d", "5", "--device", "mmcblk0", "--pid", "7", "--comm", "sh*"));
	CHECK(options.automatic && !options.flash && options.seconds == 5 && options.pids[0] == 7);
	CHECK_TEXT(options.devices[0], "mmcblk0");
	fs_record_options_free(&options);
	CHECK(!PARSE(&options, "--trigger", "d2c>50ms", "--trigger", "psi-io>20%", "--captures", "3"));
	CHECK(options.trigger_count == 2 && options.captures == 3 && options.before_s == 5 && options.after_s == 2);
	CHECK(options.paths == FS_NAMES_AUTO);
	CHECK_NUMBER(options.triggers[0].limit_ns, 50000000);
	CHECK_NUMBER(options.triggers[1].limit_ns, 200000000);
	fs_record_options_free(&options);
	REFUSED("--trigger", "d2c=50ms");
	REFUSED("--trigger", "d2c>50");
	REFUSED("--trigger", "d2c>0ms");
	REFUSED("--trigger", "fsync>-1s");
	REFUSED("--trigger", "psi-io>20");
	REFUSED("--trigger", "psi-io>0%");
	REFUSED("--trigger", "psi-io>101%");
	REFUSED("--trigger", "run ");
	REFUSED("--trigger", "error", "--trigger", "error");
	REFUSED("--trigger", "error", "--", "true");
	REFUSED("--captures", "3");
	REFUSED("-d", "0");
	REFUSED("--pid", "x");
	REFUSED("--comm", "a\"b");
	REFUSED("--frob");
	REFUSED("stray");
	REFUSED("--");
	REFUSED("--name");
	REFUSED("--name", "");
	REFUSED("--name", "a/b");
	REFUSED("--name", "a b");
	REFUSED("--events", "nosuch");
	REFUSED("--events", "");
	REFUSED("--events", "flash,");
	REFUSED("--events", ":x");
	REFUSED("--events", "a:");
	REFUSED("--events", "../x:y");
	REFUSED("--events", "a/b:c");
	REFUSED("--events", "sched:../../x");
	REFUSED("--detail", "size");
	REFUSED("--mtd", "-1");
	REFUSED("--mtd", "x");
	REFUSED("--mtd", "99999999999");
	REFUSED("--ring", "7");
	REFUSED("--ring", "1048577");
	REFUSED("--mode", "both");
	REFUSED("--interval-ms", "0");
	REFUSED("--source", "65536");
	REFUSED("--ready-fd", "1");
	REFUSED("--events", "block", "--mtd", "0");
	REFUSED("--events", "block", "--detail", "chip");
}
