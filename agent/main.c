// SPDX-License-Identifier: Apache-2.0
/* flashscope-agent: finds the command and runs it. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "at_boot.h"
#include "cmds.h"
#include "protocol.h"
#include "util.h"

/* Weak so that a build without these files still links. */
int cmd_bench(int argc, char **argv) __attribute__((weak));
int cmd_init(int argc, char **argv) __attribute__((weak));

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *summary;
} commands[] = {
	{ "probe", cmd_probe, "what this machine can record, as JSON" },
	{ "record", cmd_record, "record events; the stream goes to stdout or to -o FILE" },
	{ "ctl", cmd_ctl, "start, stop, pause, resume or show a running recorder" },
	{ "boot", cmd_boot, "record the next boot: prepare OPTIONS, collect, undo" },
	{ "sweep", cmd_sweep, "undo what killed runs left" },
	{ "bench", cmd_bench, "a benchmark: read, raw, postmark, sqlite, replay; its result as JSON" },
	{ "knob", cmd_knob, "set knobs of read-ahead until they are undone: set PATH VALUE, undo" },
	{ "energy", cmd_energy, "a command's energy by this machine's sensors, as JSON" },
	{ "exec", cmd_exec, "run a command as another user" },
	{ "init", cmd_init, "PID 1 of a virtual board" },
};

static int help(FILE *out)
{
	fprintf(out, "usage: flashscope-agent COMMAND [OPTIONS]\n");
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (commands[i].run)
			fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].summary);
	fprintf(out, "  %-8s %s\n", "version", "version of agent and stream");
	return 0;
}

/* Messages that are still in memory may not fit on the disk. A reader that has gone wants no more of them. */
static int written(int status)
{
	if (!fflush(stdout) || errno == EPIPE || status)
		return status;
	return fs_fail("stdout: %s", strerror(errno));
}

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	/* The boot image starts this program as its PID 1. */
	if (argc == 1 && getpid() == 1 && cmd_init)
		return cmd_init(1, (char *[]){ "init", NULL });
	fs_standard_files();
	if (argc < 2) {
		help(stderr);
		return FS_EXIT_USAGE;
	}
	if (!strcmp(argv[1], FS_BOOT_WORD))
		return fs_boot_init(argc, argv);
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
		return written(help(stdout));
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version")) {
		/* flashscope looks for this text in the program: crates/targets/src/agents/build.rs. */
		puts("flashscope-agent " FS_AGENT_VERSION ", stream version " TEXT(FS_PROTOCOL_VERSION) ", build " FS_AGENT_BUILD);
		return written(0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (commands[i].run && !strcmp(argv[1], commands[i].name))
			return written(commands[i].run(argc - 1, argv + 1));
	return fs_usage("%s: no such command; flashscope-agent --help lists them", argv[1]);
}
