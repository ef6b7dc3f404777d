// SPDX-License-Identifier: Apache-2.0
/* bench: timed reads of a file or of a raw device. */
#include "bench.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cmds.h"
#include "sweep.h"
#include "util.h"

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
	(void)number;
	interrupted = 1;
}

bool bench_interrupted(void)
{
	return interrupted;
}

void bench_catch_signals(void)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction action = { .sa_handler = on_signal };

	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		sigaction(signals[i], &action, NULL);
}

int bench_options(const char *name, int argc, char **argv, const struct bench_option *options, size_t count)
{
	for (int i = 1; i < argc; i++) {
		const struct bench_option *option = NULL;

		for (size_t o = 0; o < count && !option; o++)
			if (!strcmp(argv[i], options[o].name))
				option = &options[o];
		if (!option)
			return fs_usage("bench %s: %s: no such option", name, argv[i]);
		if (option->given)
			*option->given = true;
		if (option->flag) {
			*option->flag = true;
			continue;
		}
		if (++i == argc)
			return fs_usage("bench %s: %s: its value is missing", name, option->name);
		if (option->text)
			*option->text = argv[i];
		else if (!fs_parse_u64(argv[i], option->max, option->number))
			return fs_usage("bench %s: %s %s: a whole number up to %llu is wanted", name, option->name, argv[i],
					(unsigned long long)option->max);
	}
	return 0;
}

int cmd_bench(int argc, char **argv)
{
	struct fs_swept swept;

	if (argc >= 2 && !strcmp(argv[1], "read")) {
		fs_sweep(&swept);
		return bench_read(argc - 1, argv + 1);
	}
	if (argc >= 2 && !strcmp(argv[1], "raw")) {
		fs_sweep(&swept);
		return bench_raw(argc - 1, argv + 1);
	}
	return fs_usage("bench: %s; it is `bench read OPTIONS` or `bench raw OPTIONS`",
			argc < 2 ? "what to measure is missing" : "no such benchmark");
}
