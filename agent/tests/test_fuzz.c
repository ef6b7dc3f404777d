// SPDX-License-Identifier: Apache-2.0
/*
 * What the agent reads of a user's text, on mutations of texts that are right: scripts of bench replay, triggers, options, lines
 * of mountinfo and of /proc/PID/cgroup, formats of events. Under sanitizers any access or sum that is wrong ends the program.
 * FLASHSCOPE_MUTATIONS=N asks for more than the 20,000 of each.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "frame.h"
#include "mounts.h"
#include "options.h"
#include "prng.h"
#include "processes.h"
#include "replay_script.h"
#include "trigger.h"
#include "util.h"

static const char script[] = "flashscope-replay 2\nfile 8192 a\nfile - b\ncgroup x io.max={device}%20wbps=1 memory.max=4096\n"
			     "task one start=5 nice=-3 ionice=rt:2 cgroup=x\ntask t%20w\nopen 0 0 0 read,write\nread 0+5 0 0 0 4096\n"
			     "write 10 1 0 4096 512\ncreate 11 1 1 write,sync\nfsync 12+9 0 0\nrename 13 1 1 0\ntruncate 14 0 0 99\n"
			     "fault 15 1 0 4000\nfault-write 16 0 0 1\nclose 17 0 0\nunlink 18 0 0\n";
static const char trigger[] = "d2c>50ms\nfsync>100us\nerror\npsi-io>20%\nrun true";
static const char mount[] = "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw";
static const char cgroup[] = "12:memory:/docker/abc\n1:name=systemd:/user.slice\n0::/system.slice/ssh.service\n";
static const char *const words[] = { "18446744073709551615", "18446744073709551616", "-1", "0", " ", "=", "%", "%00", "\n",  ":",
				     "cgroup.kill=1",	     "70368744177664",	     "..", "/", "+", ",", "\\", "\\400", "\x1b", "" };

/* A mutation of a text, of at most size bytes with its end. */
static void mutate(struct prng *p, const char *from, char *out, size_t size)
{
	snprintf(out, size, "%s", from);
	for (uint64_t n = prng_below(p, 6) + 1; n; n--) {
		size_t length = strlen(out), at = prng_below(p, length + 1), cut = prng_below(p, 8);
		const char *word = words[prng_below(p, ARRAY_SIZE(words))];
		char *copy = fs_strdup(out);

		if (cut > length - at)
			cut = length - at;
		snprintf(out, size, "%.*s%s%s", (int)at, copy, word, copy + at + cut);
		if (prng_below(p, 4) == 0 && *out)
			out[prng_below(p, strlen(out))] = (char)(prng_below(p, 255) + 1);
		free(copy);
	}
}

static bool one_script(const char *text, int memory)
{
	struct replay_script s = { 0 };
	char path[64];
	int failed;

	if (ftruncate(memory, 0) || pwrite(memory, text, strlen(text), 0) != (ssize_t)strlen(text))
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", memory);
	failed = replay_script_load(path, &s);
	for (size_t i = 0; i < s.calls && !failed; i++)
		CHECK(s.call[i].task < s.tasks && s.call[i].file < s.files);
	for (uint32_t i = 0; i < s.settings && !failed; i++)
		CHECK(strncmp(s.setting[i].file, "cgroup.", 7) && !strchr(s.setting[i].file, '/'));
	replay_script_free(&s);
	return !failed;
}

static bool one_option(const char *text)
{
	struct fs_record_options options;
	struct fs_trigger parsed;
	char *argv[] = { (char *)"record", (char *)"--trigger", (char *)text, NULL };
	bool right = fs_trigger_parse(text, &parsed);

	fs_record_options(3, argv, &options);
	fs_record_options_free(&options);
	for (size_t i = 0; i < 3; i++) {
		static const char *const names[] = { "--events", "--comm", "--pid" };

		argv[1] = (char *)names[i];
		fs_record_options(3, argv, &options);
		fs_record_options_free(&options);
	}
	return right;
}

int main(void)
{
	const char *asked = getenv("FLASHSCOPE_MUTATIONS");
	unsigned long long count = asked ? strtoull(asked, NULL, 10) : 20000, right[4] = { 0 };
	int memory = memfd_create("script", MFD_CLOEXEC), null = open("/dev/null", O_WRONLY | O_CLOEXEC), err = dup(2);
	char text[2048], out[128];
	struct prng p;

	if (memory < 0 || null < 0 || err < 0)
		return 1;
	/* Each refusal prints a line. */
	dup2(null, 2);
	prng_seed(&p, 1);
	for (unsigned long long i = 0; i < count; i++) {
		struct fs_mount parsed;

		mutate(&p, script, text, sizeof(text));
		right[0] += one_script(text, memory);
		mutate(&p, trigger, text, sizeof(text));
		for (char *rest = text, *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n"))
			right[1] += one_option(line);
		mutate(&p, mount, text, sizeof(text));
		right[2] += fs_parse_mountinfo(text, &parsed);
		mutate(&p, cgroup, text, sizeof(text));
		fs_parse_cgroup(text, out, 16 + i % 100);
		right[3] += *out != '\0';
	}
	dup2(err, 2);
	/* Mutations that were refused at once would show nothing. */
	for (size_t i = 0; i < ARRAY_SIZE(right); i++)
		CHECK(right[i] > count / (i ? 20 : 200));
	printf("fuzz: %llu executions each of scripts, triggers and options, mountinfo, cgroups (%llu, %llu, %llu, %llu of them taken), 0 findings\n",
	       count, right[0], right[1], right[2], right[3]);
	return check_verdict("fuzz");
}
