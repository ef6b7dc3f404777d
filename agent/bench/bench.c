// SPDX-License-Identifier: Apache-2.0
/* bench: the benchmarks, and what they share of options and signals. */
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

static const struct benchmark {
	const char *name;
	int (*run)(int argc, char **argv);
} benchmarks[] = {
	{ "read", bench_read },
	{ "raw", bench_raw },
	{ "postmark", bench_postmark },
	{ "sqlite", bench_sqlite },
	{ "replay", bench_replay },
};

int cmd_bench(int argc, char **argv)
{
	struct fs_swept swept;

	for (size_t i = 0; i < ARRAY_SIZE(benchmarks) && argc >= 2; i++) {
		if (strcmp(argv[1], benchmarks[i].name))
			continue;
		fs_sweep(&swept);
		return benchmarks[i].run(argc - 1, argv + 1);
	}
	return fs_usage("bench: %s; it is `bench BENCHMARK OPTIONS`, and the benchmarks are read, raw, postmark, sqlite, replay",
			argc < 2 ? "what to measure is missing" : "no such benchmark");
}
