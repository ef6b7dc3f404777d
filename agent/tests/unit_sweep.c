// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mount_option.h"
#include "state.h"
#include "sweep.h"
#include "test.h"
#include "util.h"

static void owners(void)
{
	uint64_t start;
	pid_t pid;

	CHECK(fs_owner_of("flashscope_12_345", &pid, &start) && pid == 12 && start == 345);
	CHECK(fs_owner_of("flashscope_12_345.tasks", &pid, &start) && pid == 12 && start == 345);
	CHECK(fs_owner_of("knobs_1_18446744073709551615", &pid, &start) && start == UINT64_MAX);
	CHECK(!fs_owner_of("flashscope", &pid, &start));
	CHECK(!fs_owner_of("flashscope_12", &pid, &start));
	CHECK(!fs_owner_of("flashscope_12_", &pid, &start));
	CHECK(!fs_owner_of("flashscope_0_5", &pid, &start));
	CHECK(!fs_owner_of("flashscope_x_5", &pid, &start));
	CHECK(!fs_owner_of("flashscope_5_x", &pid, &start));
	CHECK(!fs_owner_of("flashscope_99999999999_5", &pid, &start));
	CHECK(!fs_owner_of("", &pid, &start));
}

static void stat_of(int pid, uint64_t start)
{
	char path[64], text[200];

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	snprintf(text, sizeof(text),
		 "%d (agent) S 1 1 1 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 %" PRIu64 " 100\n", pid, start);
	test_root_file(path, text);
}

/*
 * Alive: 500 with start 50. Dead: 600 (no such process), 500 with start 49
 * (its number was given again). Others' things look a little like ours.
 */
static void remains(const char *root)
{
	char note[1400];

	stat_of(500, 50);
	test_root_file("/proc/self/mounts", "nodev /sys/kernel/tracing tracefs rw 0 0\n");
	test_root_file("/sys/kernel/tracing/trace_clock", "[local] mono\n");
	test_root_dir("/sys/kernel/tracing/instances/flashscope_500_50");
	test_root_dir("/sys/kernel/tracing/instances/flashscope_500_49");
	test_root_dir("/sys/kernel/tracing/instances/flashscope_600_7");
	test_root_dir("/sys/kernel/tracing/instances/flashscope_600_7.tasks");
	test_root_dir("/sys/kernel/tracing/instances/other_600_7");
	test_root_dir("/sys/kernel/tracing/instances/flashscope");
	test_root_file("/sys/kernel/tracing/kprobe_events", "p:other_600_7/x y\n"
							    "p:flashscope_500_50/nand_read y\n"
							    "p:flashscope_600_7/nand_read y page=%r1:u32\n"
							    "r64:flashscope_600_7/nand_read_done y\n"
							    "p:flashscope_500_49/nand_erase y\n");
	test_root_file("/sys/class/bdi/mtd-0/read_ahead_kb", "128\n");
	test_root_file("/sys/block/b/queue/read_ahead_kb", "64\n");
	test_root_file("/sys/block/b/queue/scheduler", "[mq-deadline] none bfq\n");
	test_root_file("/sys/block/c/queue/scheduler", "none [mq-deadline] bfq\n");
	test_root_file("/etc/passwd", "untouched\n");
	test_root_file("/run/temporary", "x");
	test_root_file("/run/data.flashscope_600_7", "x");
	test_root_file("/data/flashscope_600_7/s1/2", "x");
	test_root_file("/data/kept_600_7/s1/2", "x");
	test_root_file("/data/flashscope_500_50/s1", "x");
	snprintf(note, sizeof(note),
		 "knob %s/sys/class/bdi/mtd-0/read_ahead_kb 0\n"
		 "knob %s/sys/class/bdi/mtd-0/read_ahead_kb 16\n" /* changed twice: the first value counts */
		 "knob %s/sys/block/b/queue/scheduler none\n"
		 "knob %s/sys/block/c/queue/scheduler none; reboot\n" /* no name of a scheduler */
		 "knob %s/etc/passwd root\n"
		 "knob %s/sys/../etc/passwd root\n"
		 "knob %s/sys/gone/read_ahead_kb 1\n"
		 "temp %s/run/temporary -\n" /* no name that an agent gives */
		 "temp %s/run/temporary/flashscope_600_7 -\n" /* beneath a file */
		 "temp %s/run/data.flashscope_600_7 -\n"
		 "temp %s/data/flashscope_500_50 -\n" /* another's */
		 "temp %s/data/flashscope_600_7 -\n"
		 "temp %s/data/kept_600_7 -\n" /* no name that an agent gives */
		 "knob cut",
		 root, root, root, root, root, root, root, root, root, root, root, root, root);
	test_root_file("/run/flashscope/knobs_600_7", note);
	snprintf(note, sizeof(note), "knob %s/sys/block/b/queue/read_ahead_kb 1\n", root);
	test_root_file("/run/flashscope/knobs_500_50", note); /* its owner lives */
	test_root_file("/run/flashscope/recorder_600_7", "a\nrecording\nflashscope_600_7\n");
	test_root_file("/run/flashscope/recorder_500_50", "b\npaused\nflashscope_500_50\n");
	test_root_file("/run/flashscope/unrelated", "x");
}

static void sweeping(void)
{
	struct fs_recorder_state *states;
	struct fs_swept swept;
	char *text;

	remains(test_root_begin());
	CHECK_NUMBER(fs_state_list(&states), 1);
	CHECK_TEXT(states[0].name, "b");
	CHECK_TEXT(states[0].state, "paused");
	CHECK(states[0].pid == 500);
	free(states);
	fs_sweep(&swept);
	CHECK_NUMBER(swept.instances, 3);
	CHECK_NUMBER(swept.probes, 3);
	CHECK_NUMBER(swept.knobs, 3);
	CHECK_NUMBER(swept.files, 3); /* a temporary file, a directory, a state */
	CHECK_NUMBER(swept.failed, 0);
	CHECK(test_root_has("/sys/kernel/tracing/instances/flashscope_500_50"));
	CHECK(test_root_has("/sys/kernel/tracing/instances/other_600_7"));
	CHECK(test_root_has("/sys/kernel/tracing/instances/flashscope"));
	CHECK(!test_root_has("/sys/kernel/tracing/instances/flashscope_500_49"));
	CHECK(!test_root_has("/sys/kernel/tracing/instances/flashscope_600_7"));
	CHECK(!test_root_has("/sys/kernel/tracing/instances/flashscope_600_7.tasks"));
	text = test_root_read("/sys/kernel/tracing/kprobe_events");
	CHECK(strstr(text, "-:flashscope_600_7/nand_read\n") &&
	      strstr(text, "-:flashscope_600_7/nand_read_done\n") &&
	      strstr(text, "-:flashscope_500_49/nand_erase\n"));
	CHECK(!strstr(text, "-:other") && !strstr(text, "-:flashscope_500_50"));
	free(text);
	text = test_root_read("/sys/class/bdi/mtd-0/read_ahead_kb");
	CHECK(!strncmp(text, "0", 1));
	free(text);
	text = test_root_read("/sys/block/b/queue/read_ahead_kb");
	CHECK_TEXT(text, "64\n");
	free(text);
	text = test_root_read("/sys/block/b/queue/scheduler");
	CHECK(!strncmp(text, "none", 4));
	free(text);
	text = test_root_read("/sys/block/c/queue/scheduler");
	CHECK_TEXT(text, "none [mq-deadline] bfq\n");
	free(text);
	text = test_root_read("/etc/passwd");
	CHECK_TEXT(text, "untouched\n");
	free(text);
	CHECK(test_root_has("/run/temporary"));
	CHECK(!test_root_has("/run/data.flashscope_600_7"));
	CHECK(test_root_has("/data/flashscope_500_50/s1"));
	CHECK(!test_root_has("/data/flashscope_600_7"));
	CHECK(test_root_has("/data/kept_600_7/s1/2"));
	CHECK(!test_root_has("/run/flashscope/knobs_600_7"));
	CHECK(!test_root_has("/run/flashscope/recorder_600_7"));
	CHECK(test_root_has("/run/flashscope/knobs_500_50"));
	CHECK(test_root_has("/run/flashscope/unrelated"));
	test_root_end();
}

static void knobs(void)
{
	const char *root = test_root_begin();
	char knob[128], temporary[228], own[96];
	char *text;

	stat_of(getpid(), 1234);
	test_root_file("/sys/class/bdi/mtd-0/read_ahead_kb", "0\n");
	fs_own_name(own, sizeof(own), "/var/data.flashscope");
	test_root_file(own, "x");
	snprintf(knob, sizeof(knob), "%s/sys/class/bdi/mtd-0/read_ahead_kb", root);
	snprintf(temporary, sizeof(temporary), "%s%s", root, own);
	CHECK(!fs_knob_set(knob, "128"));
	CHECK(!fs_knob_set(knob, "32\n"));
	CHECK(!fs_temp_note(temporary));
	text = test_root_read("/sys/class/bdi/mtd-0/read_ahead_kb");
	CHECK(!strncmp(text, "32", 2));
	free(text);
	CHECK(!fs_knobs_restore());
	text = test_root_read("/sys/class/bdi/mtd-0/read_ahead_kb");
	CHECK(!strncmp(text, "0", 1));
	free(text);
	CHECK(!test_root_has(own));
	CHECK(!fs_knobs_restore()); /* nothing left to do */
	snprintf(knob, sizeof(knob), "%s/sys/nothing", root);
	CHECK(fs_knob_set(knob, "1") == -1);
	CHECK(fs_temp_note("/with blank") == -1);
	test_root_end();
}

/* A knob that somebody has set since stays; an older agent's note does not say what was set, and is put back. */
static void changed_since(void)
{
	static const struct {
		const char *notes, *stands, *after, *left;
	} cases[] = {
		/* All of two digits: a file of the test is not cut when it is written. */
		{ "16 32", "32", "16", "[]" },
		{ "16 32", "51", "51", "[{\"path\":\"%s\",\"before\":\"16\",\"now\":\"51\"}]" },
		{ "16 32", "16", "16", "[]" }, /* noted and not set */
		{ "16", "51", "16", "[]" }, /* an older agent's */
		{ "16 33|16 32", "32", "16", "[]" }, /* rounded by the kernel */
		{ "16 32|32 64", "64", "16", "[]" },
		{ "16 32|32 64", "51", "51", "[{\"path\":\"%s\",\"before\":\"16\",\"now\":\"51\"}]" },
		{ "16 32|32 64", "32", "16", "[]" }, /* the second one was not set */
		{ "16 32; reboot", "51", "51", "[{\"path\":\"%s\",\"before\":\"16\",\"now\":\"51\"}]" },
	};
	const char *root = test_root_begin();
	char knob[128], notes[600], left[300], text[128];

	snprintf(knob, sizeof(knob), "%s/sys/block/b/queue/read_ahead_kb", root);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct fs_json json = { 0 };
		char *all = fs_strdup(cases[i].notes), *rest = all, *one, *now;
		unsigned int undone;
		size_t at = 0;

		while ((one = strsep(&rest, "|")))
			at += (size_t)snprintf(notes + at, sizeof(notes) - at, "knob %s %s\n", knob, one);
		free(all);
		/* A line that a full disk cut is none. */
		snprintf(notes + at, sizeof(notes) - at, "knob %s 9", knob);
		test_root_file("/run/flashscope/advice", notes);
		test_root_file("/sys/block/b/queue/read_ahead_kb", cases[i].stands);
		fs_json_array(&json, NULL);
		CHECK(!fs_advice_undo(&undone, &json));
		fs_json_array_end(&json);
		snprintf(left, sizeof(left), cases[i].left, knob);
		CHECK_TEXT(json.out.data, left);
		fs_json_free(&json);
		now = test_root_read("/sys/block/b/queue/read_ahead_kb");
		snprintf(text, sizeof(text), "%zu: %.*s", i, (int)strlen(cases[i].after), now);
		snprintf(left, sizeof(left), "%zu: %s", i, cases[i].after);
		CHECK_TEXT(text, left);
		free(now);
		CHECK(!test_root_has("/run/flashscope/advice"));
	}
	test_root_end();
}

/* What killed replays have switched on is switched off again; what a living one has stays on. */
static void controllers(void)
{
	struct fs_swept swept;
	char *text, note[300];

	test_root_begin();
	stat_of(500, 50);
	test_root_file("/proc/self/mounts", "none /sys/fs/cgroup cgroup2 rw 0 0\n");
	test_root_file("/sys/fs/cgroup/cgroup.subtree_control", "io memory\n");
	test_root_dir("/sys/fs/cgroup/flashscope_600_7/reader");
	test_root_dir("/sys/fs/cgroup/flashscope_500_50/reader");
	test_root_dir("/sys/fs/cgroup/other_600_7");
	test_root_file("/run/flashscope/cgroups_500_50", "made\non memory\n");
	test_root_file("/run/flashscope/cgroups_600_7", "made\non io\non cpuset\non ../io\non");
	fs_sweep(&swept);
	CHECK_NUMBER(swept.failed, 0);
	CHECK_NUMBER(swept.files, 1);
	CHECK(!test_root_has("/sys/fs/cgroup/flashscope_600_7"));
	CHECK(test_root_has("/sys/fs/cgroup/flashscope_500_50/reader"));
	CHECK(test_root_has("/sys/fs/cgroup/other_600_7"));
	CHECK(!test_root_has("/run/flashscope/cgroups_600_7"));
	CHECK(test_root_has("/run/flashscope/cgroups_500_50"));
	text = test_root_read("/sys/fs/cgroup/cgroup.subtree_control");
	CHECK(!strncmp(text, "-io", 3));
	free(text);
	/* A boot has switched all of them off. */
	test_root_file("/sys/fs/cgroup/cgroup.subtree_control", "untouched\n");
	test_root_file("/proc/sys/kernel/random/boot_id", "now\n");
	snprintf(note, sizeof(note), "boot before\nmade\non io\n");
	test_root_file("/run/flashscope/cgroups_600_8", note);
	fs_sweep(&swept);
	CHECK(!test_root_has("/run/flashscope/cgroups_600_8"));
	text = test_root_read("/sys/fs/cgroup/cgroup.subtree_control");
	CHECK_TEXT(text, "untouched\n");
	free(text);
	test_root_end();
}

#define FIRST "4026531836"
#define OTHER "4026532999"

/* A /proc of the namespace with that number, in which process 500 of it lives and 700 of another one. */
static void namespaces(const char *here, bool other_lives)
{
	char link[32];

	stat_of(500, 50);
	snprintf(link, sizeof(link), "pid:[%s]", here);
	test_root_link("/proc/self/ns/pid", link);
	test_root_link("/proc/500/ns/pid", link);
	if (other_lives) {
		test_root_link("/proc/700/ns/pid", "pid:[" OTHER "]");
		stat_of(700, 9);
	}
	test_root_file("/run/flashscope/recorder_" FIRST "_500_50", "first\nrecording\ni\n");
	test_root_file("/run/flashscope/recorder_" FIRST "_600_7", "dead\nrecording\ni\n");
	test_root_file("/run/flashscope/recorder_" OTHER "_500_50", "other\nrecording\ni\n");
	test_root_file("/run/flashscope/recorder_" OTHER "_600_7", "unseen\nrecording\ni\n");
}

static void other_namespaces(void)
{
	struct fs_recorder_state *states;
	struct fs_swept swept;

	CHECK_NUMBER(fs_owner_namespace("flashscope_" FIRST "_12_345"), UINT64_C(4026531836));
	CHECK_NUMBER(fs_owner_namespace("flashscope_" FIRST "_12_345.tasks"), UINT64_C(4026531836));
	CHECK_NUMBER(fs_owner_namespace("flashscope_12_345"), 0);
	CHECK_NUMBER(fs_owner_namespace("a_flashscope_x1_12_345"), 0);

	/* From the first namespace: the other one's stay as long as a process of it lives. */
	test_root_begin();
	namespaces(FIRST, true);
	CHECK_NUMBER(fs_state_list(&states), 1);
	CHECK_TEXT(states[0].name, "first");
	free(states);
	fs_sweep(&swept);
	CHECK_NUMBER(swept.files, 1);
	CHECK_NUMBER(swept.elsewhere, 2);
	CHECK(test_root_has("/run/flashscope/recorder_" FIRST "_500_50"));
	CHECK(test_root_has("/run/flashscope/recorder_" OTHER "_500_50"));
	CHECK(test_root_has("/run/flashscope/recorder_" OTHER "_600_7"));
	test_root_end();

	/* Of a /proc that hides process 1 nobody knows what else it hides. */
	test_root_begin();
	namespaces(FIRST, false);
	fs_sweep(&swept);
	CHECK_NUMBER(swept.files, 1);
	CHECK(test_root_has("/run/flashscope/recorder_" OTHER "_500_50"));
	test_root_end();

	test_root_begin();
	namespaces(FIRST, false);
	test_root_dir("/proc/1");
	fs_sweep(&swept);
	CHECK_NUMBER(swept.files, 3);
	CHECK(!test_root_has("/run/flashscope/recorder_" OTHER "_500_50"));
	test_root_end();

	/* From a container: nothing is known of the first one, however it looks. */
	test_root_begin();
	namespaces(OTHER, false);
	CHECK_NUMBER(fs_state_list(&states), 1);
	CHECK_TEXT(states[0].name, "other");
	free(states);
	fs_sweep(&swept);
	CHECK_NUMBER(swept.files, 1);
	CHECK_NUMBER(swept.elsewhere, 2);
	CHECK(test_root_has("/run/flashscope/recorder_" FIRST "_600_7"));
	CHECK(!test_root_has("/run/flashscope/recorder_" OTHER "_600_7"));
	test_root_end();
}

/* Notes that somebody else could have written are not acted upon. */
static void planted(void)
{
	char target[160], from[160], to[160];
	struct fs_swept swept;
	const char *root = test_root_begin();

	test_root_file("/data/flashscope_600_7/precious", "x");
	snprintf(target, sizeof(target), "temp %s/data/flashscope_600_7 -\n", root);
	test_quiet(true);

	/* A hard link to a file of ours. */
	test_root_file("/elsewhere", target);
	test_root_dir("/run/flashscope");
	snprintf(from, sizeof(from), "%s/elsewhere", root);
	snprintf(to, sizeof(to), "%s/run/flashscope/knobs_600_7", root);
	CHECK(!link(from, to));
	fs_sweep(&swept);
	CHECK_NUMBER(swept.failed, 1);
	CHECK(test_root_has("/data/flashscope_600_7/precious"));
	unlink(to);

	/* A symbolic one. */
	CHECK(!symlink(from, to));
	fs_sweep(&swept);
	CHECK_NUMBER(swept.failed, 1);
	CHECK(test_root_has("/data/flashscope_600_7/precious"));
	unlink(to);

	/* Written by others too, or another's. */
	test_root_file("/run/flashscope/knobs_600_7", target);
	CHECK(!chmod(to, 0666));
	fs_sweep(&swept);
	CHECK_NUMBER(swept.failed, 1);
	CHECK(test_root_has("/data/flashscope_600_7/precious"));
	CHECK(!chmod(to, 0600));
	if (!geteuid()) {
		CHECK(!chown(to, 65534, 65534));
		fs_sweep(&swept);
		CHECK_NUMBER(swept.failed, 1);
		CHECK(test_root_has("/data/flashscope_600_7/precious"));
		CHECK(!chown(to, 0, 0));
	}

	/* The folder of notes is not ours alone: another one is taken, and these are not read. */
	snprintf(from, sizeof(from), "%s/run/flashscope", root);
	CHECK(!chmod(from, 0777));
	fs_sweep(&swept);
	CHECK(test_root_has("/data/flashscope_600_7/precious"));
	CHECK(!chmod(from, 0755));

	/* A link in the tree leads nowhere. */
	test_root_file("/outside/kept", "x");
	snprintf(from, sizeof(from), "%s/outside", root);
	snprintf(to, sizeof(to), "%s/data/flashscope_600_7/link", root);
	CHECK(!symlink(from, to));
	fs_sweep(&swept);
	test_quiet(false);
	CHECK_NUMBER(swept.failed, 0);
	CHECK(!test_root_has("/data/flashscope_600_7"));
	CHECK(test_root_has("/outside/kept"));
	test_root_end();
}

/* What a reboot has put back is not put back again; files are still there. */
static void after_a_boot(void)
{
	const char *root = test_root_begin();
	struct fs_swept swept;
	char note[500];
	char *text;

	stat_of(500, 50);
	test_root_file("/proc/sys/kernel/random/boot_id", "second\n");
	test_root_file("/sys/block/b/queue/read_ahead_kb", "64\n");
	test_root_file("/data/flashscope_500_50/s1", "x");
	snprintf(note, sizeof(note), "boot first\nknob %s/sys/block/b/queue/read_ahead_kb 1\ntemp %s/data/flashscope_500_50 -\n",
		 root, root);
	test_root_file("/run/flashscope/knobs_500_50", note); /* of a process before; another has its numbers */
	test_root_file("/run/flashscope/recorder_500_50", "b\npaused\ni\nboot second\n");
	fs_sweep(&swept);
	CHECK_NUMBER(swept.knobs, 0);
	CHECK_NUMBER(swept.files, 1);
	CHECK(!test_root_has("/data/flashscope_500_50"));
	CHECK(!test_root_has("/run/flashscope/knobs_500_50"));
	CHECK(test_root_has("/run/flashscope/recorder_500_50"));
	text = test_root_read("/sys/block/b/queue/read_ahead_kb");
	CHECK_TEXT(text, "64\n");
	free(text);
	test_root_end();
}

static void mount_options(void)
{
	static const struct {
		const char *target, *option, *now; /* now: NULL: refused */
	} each[] = {
		{ "/data", "noatime", "relatime" },    { "/data", "async", "sync" },
		{ "/data", "commit=5", "commit=30" },  { "/data", "nodiscard", "discard" },
		{ "/a b", "noatime", "strictatime" },  { "/a b", "commit=1", "commit=5" },
		{ "/a b", "discard", "nodiscard" },    { "/card", "async", "sync" },
		{ "/card", "relatime", "noatime" },    { "/card", "commit=5", NULL },
		{ "/flash", "async", NULL },	       { "/flash", "noatime", "relatime" },
		{ "/ro", "noatime", NULL },	       { "/none", "noatime", NULL },
	};

	CHECK(fs_is_mount_option("commit=0") && fs_is_mount_option("commit=86400"));
	CHECK(!fs_is_mount_option("commit=86401") && !fs_is_mount_option("commit=") && !fs_is_mount_option("commit=5,suid"));
	CHECK(!fs_is_mount_option("none") && !fs_is_mount_option("128") && !fs_is_mount_option("ro"));
	test_root_begin();
	test_root_file("/proc/self/mounts", "/dev/a /data ext4 rw,sync,relatime,discard,commit=30 0 0\n"
					    "/dev/x /a\\040b ext4 rw,noatime 0 0\n"
					    "/dev/b /a\\040b ext4 rw 0 0\n" /* over the one before */
					    "/dev/c /card vfat rw,sync,noatime 0 0\n"
					    "ubi0_0 /flash ubifs rw,relatime,ubi=0,vol=0 0 0\n"
					    "/dev/d /ro ext4 ro,relatime 0 0\n"
					    "cut\n");
	for (size_t i = 0; i < ARRAY_SIZE(each); i++) {
		char now[32] = "";
		int result = fs_mount_option_now(each[i].target, each[i].option, now, sizeof(now));

		CHECK_NUMBER((uint64_t)!result, each[i].now != NULL);
		if (each[i].now)
			CHECK_TEXT(now, each[i].now);
	}
	test_root_end();
}

void test_sweep(void)
{
	owners();
	sweeping();
	knobs();
	changed_since();
	controllers();
	other_namespaces();
	planted();
	after_a_boot();
	mount_options();
}
