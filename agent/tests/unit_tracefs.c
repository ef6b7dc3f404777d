// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include "test.h"
#include "tracefs.h"

/* events/header_page of 6.1 armmp, of 6.18 x86-64. */
static const char page32[] = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n"
			     "\tfield: local_t commit;\toffset:8;\tsize:4;\tsigned:1;\n"
			     "\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n"
			     "\tfield: char data;\toffset:12;\tsize:4084;\tsigned:0;\n";
static const char page64[] = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n"
			     "\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n"
			     "\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n"
			     "\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";

static void layouts(void)
{
	struct fs_page_layout layout;

	CHECK(fs_parse_header_page(page32, &layout));
	CHECK(layout.long_size == 4 && layout.data_offset == 12 && layout.size == 4096);
	CHECK(fs_parse_header_page(page64, &layout));
	CHECK(layout.long_size == 8 && layout.data_offset == 16 && layout.size == 4096);
	CHECK(!fs_parse_header_page("", &layout));
	CHECK(!fs_parse_header_page("field: local_t commit; offset:8; size:8;", &layout));
	CHECK(!fs_parse_header_page(" commit;\toffset:8;\tsize:2; x data;\toffset:16;\tsize:4080;",
				    &layout));
	CHECK(!fs_parse_header_page(" commit;\toffset:8;\tsize:8; x data;\toffset:16;\tsize:4294967295;",
				    &layout));
}

static void cutting(void)
{
	const struct fs_page_layout wide = { 8, 16, 4096 }, narrow = { 4, 12, 4096 };
	unsigned char subbuf[4096] = { 0 };
	uint64_t commit = 100;
	uint32_t commit32;

	CHECK_NUMBER(fs_subbuf_used(subbuf, sizeof(subbuf), &wide), 0);
	memcpy(subbuf + 8, &commit, 8);
	CHECK_NUMBER(fs_subbuf_used(subbuf, sizeof(subbuf), &wide), 116);
	CHECK_NUMBER(fs_subbuf_used(subbuf, 115, &wide), (size_t)-1);
	CHECK_NUMBER(fs_subbuf_used(subbuf, 10, &wide), (size_t)-1);
	commit = 100 | 1u << 31; /* events were missed before it */
	memcpy(subbuf + 8, &commit, 8);
	CHECK_NUMBER(fs_subbuf_used(subbuf, sizeof(subbuf), &wide), 116);
	commit |= 1u << 30; /* and their number is stored behind */
	memcpy(subbuf + 8, &commit, 8);
	CHECK_NUMBER(fs_subbuf_used(subbuf, sizeof(subbuf), &wide), 124);
	commit32 = 100 | 3u << 30;
	memcpy(subbuf + 8, &commit32, 4);
	CHECK_NUMBER(fs_subbuf_used(subbuf, sizeof(subbuf), &narrow), 116);
	commit32 = 0xfffff;
	memcpy(subbuf + 8, &commit32, 4);
	CHECK_NUMBER(fs_subbuf_used(subbuf, sizeof(subbuf), &narrow), (size_t)-1);
}

static void statistics(void)
{
	struct fs_cpu_stats stats;
	uint64_t hits, misses;

	fs_parse_cpu_stats("entries: 12\noverrun: 345\ncommit overrun: 6\nbytes: 789\n"
			   "oldest event ts:     1.000000\nnow ts:     2.000000\n"
			   "dropped events: 10\nread events: 11\n",
			   &stats);
	CHECK_NUMBER(stats.entries, 12);
	CHECK_NUMBER(stats.overrun, 345);
	CHECK_NUMBER(stats.commit_overrun, 6);
	CHECK_NUMBER(stats.bytes, 789);
	CHECK_NUMBER(stats.dropped, 10);
	CHECK_NUMBER(stats.read, 11);
	CHECK(stats.has_overrun && stats.has_commit_overrun && stats.has_read);
	fs_parse_cpu_stats("entries: 1\noverrun: x\n", &stats);
	CHECK(stats.has_entries && !stats.has_overrun && !stats.has_dropped);

	/* two recorders with the same event names, and another user */
	static const char events[] = "p:other/nand_read nand_read_page_op page=%r1:u32\n"
				     "p:flashscope_2_2/nand_read nand_read_page_op page=%r1:u32\n"
				     "r64:flashscope_1_1/nand_read_done nand_read_page_op ret=$retval:s32\n"
				     "p:flashscope_1_1/nand_program nand_prog_page_op page=%r1:u32\n"
				     "p:flashscope_1_1/nand_program nand_prog_page_begin_op page=%r1:u32\n";
	static const char profile[] = "  nand_read              1    2\n"
				      "  nand_read             10   20\n"
				      "  nand_read_done         5    6\n"
				      "  nand_program         100    7\n"
				      "  nand_program         200    8\n";

	CHECK(fs_parse_kprobe_profile(events, profile, "flashscope_2_2", "nand_read", &hits, &misses));
	CHECK(hits == 10 && misses == 20);
	CHECK(fs_parse_kprobe_profile(events, profile, "flashscope_1_1", "nand_program", &hits,
				      &misses));
	CHECK(hits == 300 && misses == 15);
	CHECK(!fs_parse_kprobe_profile(events, profile, "flashscope_1_1", "nand_read", &hits, &misses));
	/* the lists differ: one was read after a change */
	CHECK(!fs_parse_kprobe_profile(events, profile + strlen("  nand_read              1    2\n") + 31,
				       "flashscope_2_2", "nand_read", &hits, &misses));
	CHECK(!fs_parse_kprobe_profile("", "", "g", "e", &hits, &misses));
}

static void finding(void)
{
	struct fs_tracefs tracefs;

	test_root_begin();
	test_root_file("/proc/filesystems", "nodev\tsysfs\n\text4\n");
	CHECK(!fs_tracefs_find(&tracefs, FS_MOUNT_NEVER));
	CHECK(strstr(tracefs.error, "no tracefs"));
	test_root_file("/proc/filesystems", "nodev\tsysfs\nnodev\ttracefs\n");
	CHECK(!fs_tracefs_find(&tracefs, FS_MOUNT_NEVER));
	CHECK(strstr(tracefs.error, "mount -t tracefs"));
	test_root_file("/proc/self/mounts", "proc /proc proc rw 0 0\nnodev /trace tracefs rw 0 0\n");
	test_root_file("/trace/trace_clock", "[local] mono\n");
	CHECK(fs_tracefs_find(&tracefs, FS_MOUNT_NEVER));
	CHECK_TEXT(tracefs.path, "/trace");
	/* The first is not usable, as one below debugfs is for whoever is not root. */
	test_root_file("/proc/self/mounts", "x /closed tracefs rw 0 0\nnodev /trace tracefs rw 0 0\n");
	test_root_dir("/closed/trace_clock");
	CHECK(fs_tracefs_find(&tracefs, FS_MOUNT_NEVER));
	CHECK_TEXT(tracefs.path, "/trace");
	test_root_file("/proc/self/mounts", "x /closed tracefs rw 0 0\n");
	CHECK(!fs_tracefs_find(&tracefs, FS_MOUNT_NEVER));
	CHECK(strstr(tracefs.error, "/closed: "));
	test_root_file("/proc/self/mounts", "proc /proc proc rw 0 0\nnodev /trace tracefs rw 0 0\n");
	CHECK(!tracefs.instances && !tracefs.kprobe_events);
	test_root_file("/trace/kprobe_events", "");
	test_root_dir("/trace/instances");
	CHECK(fs_tracefs_find(&tracefs, FS_MOUNT_NEVER) && tracefs.instances && tracefs.kprobe_events);
	/* kprobe events are appended to, never truncated */
	test_root_file("/trace/kprobe_events", "p:other/x y\np:g/a b\np:g/c d\np:gg/e f\n");
	CHECK_NUMBER(fs_kprobe_remove_group(&tracefs, "g", NULL), 2);
	char *text = test_root_read("/trace/kprobe_events");
	CHECK_TEXT(text, "p:other/x y\np:g/a b\np:g/c d\np:gg/e f\n-:g/a\n-:g/c\n");
	free(text);
	test_root_end();
}

/* The open of a FIFO waits for a reader, as that of a file of tracefs for a lock. */
static void no_answer(void)
{
	struct fs_tracefs tracefs;
	char path[FS_PATH_MAX];

	test_root_begin();
	test_root_file("/proc/filesystems", "nodev\ttracefs\n");
	test_root_file("/proc/self/mounts", "nodev /trace tracefs rw 0 0\n");
	test_root_dir("/trace");
	CHECK(!mkfifo(fs_path(path, sizeof(path), "/trace/trace_clock"), 0600));
	CHECK(!fs_tracefs_find(&tracefs, FS_MOUNT_NEVER));
	CHECK(strstr(tracefs.error, "/trace: no answer in 5 s"));
	test_root_end();
}

void test_tracefs(void)
{
	layouts();
	cutting();
	statistics();
	finding();
	no_answer();
}
