// SPDX-License-Identifier: Apache-2.0
/*
 * energy: what a command costs by this machine's own sensors. They are read
 * while nothing runs (idle), and then while the command runs; what is above
 * idle is the command's. One JSON object on stdout; the command's own stdout
 * goes to stderr.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cmds.h"
#include "json.h"
#include "sensors.h"
#include "util.h"

#define MAX_WANTED 16

struct options {
	uint64_t interval_ms, idle_ms;
	const char *wanted[MAX_WANTED];
	size_t wanted_count;
	bool list;
	char **command;
};

struct idle {
	bool known;
	double uw;
};

static volatile sig_atomic_t child_ended;

static void on_child(int number)
{
	(void)number;
	child_ended = 1;
}

static int parse(int argc, char **argv, struct options *o)
{
	int i = 1;

	o->interval_ms = 10;
	o->idle_ms = 1000;
	for (; i < argc && strcmp(argv[i], "--"); i++) {
		uint64_t *number = !strcmp(argv[i], "--interval-ms") ? &o->interval_ms :
				   !strcmp(argv[i], "--idle-ms")     ? &o->idle_ms :
								       NULL;

		if (!strcmp(argv[i], "--list")) {
			o->list = true;
			continue;
		}
		if (!number && strcmp(argv[i], "--sensor"))
			return fs_usage("energy %s: no such option; it takes --interval-ms, --idle-ms, --sensor, --list, "
					"then -- and a command",
					argv[i]);
		if (i + 1 == argc || !strcmp(argv[i + 1], "--"))
			return fs_usage("energy %s: its value is missing; give it before the -- of the command", argv[i]);
		if (number && !fs_parse_u64(argv[i + 1], 3600000, number))
			return fs_usage("energy %s %s: a number of milliseconds up to 3600000 is wanted", argv[i],
					argv[i + 1]);
		if (!number) {
			if (o->wanted_count == MAX_WANTED)
				return fs_usage("energy: more than %d --sensor", MAX_WANTED);
			o->wanted[o->wanted_count++] = argv[i + 1];
		}
		i++;
	}
	if (!o->interval_ms)
		return fs_usage("energy --interval-ms 0: a sensor is not read without pause; give 1 or more");
	o->command = i + 1 < argc ? argv + i + 1 : NULL;
	if (!o->list && !o->command)
		return fs_usage("energy: the command is missing; energy [OPTIONS] -- COMMAND …, or energy --list");
	return 0;
}

static void sample_all(struct fs_sensors *sensors)
{
	for (size_t i = 0; i < sensors->count; i++)
		fs_sensor_sample(&sensors->items[i], fs_now_ns());
}

static void pause_ms(uint64_t ms)
{
	struct timespec t = { .tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000 };

	nanosleep(&t, NULL); /* ends early where the command ends */
}

static void measure_idle(struct fs_sensors *sensors, const struct options *o, struct idle *idle)
{
	uint64_t end = fs_now_ns() + o->idle_ms * 1000000;

	for (size_t i = 0; i < sensors->count; i++)
		fs_sensor_begin(&sensors->items[i]);
	while (o->idle_ms) {
		sample_all(sensors);
		if (fs_now_ns() >= end)
			break;
		pause_ms(o->interval_ms);
	}
	for (size_t i = 0; i < sensors->count; i++) {
		idle[i].known = fs_sensor_mean(&sensors->items[i], &idle[i].uw);
		fs_sensor_begin(&sensors->items[i]);
	}
}

static pid_t start(char **command)
{
	pid_t pid = fork();

	if (!pid) {
		dup2(STDERR_FILENO, STDOUT_FILENO);
		signal(SIGPIPE, SIG_DFL);
		signal(SIGCHLD, SIG_DFL);
		execvp(command[0], command);
		fs_fail("%s: %s", command[0], strerror(errno));
		_exit(127);
	}
	return pid;
}

static void real_json(struct fs_json *json, const char *key, bool known, double value)
{
	/* Joules and watts here are far below 2^53 millionths. */
	if (known)
		fs_json_i64(json, key, (int64_t)(value + (value < 0 ? -0.5 : 0.5)));
	else
		fs_json_null(json, key);
}

static void sensor_json(struct fs_json *json, const struct fs_sensor *sensor, const struct idle *idle, uint64_t lasted_ns)
{
	double mean = 0, above;
	bool known = fs_sensor_mean(sensor, &mean);

	fs_json_object(json, NULL);
	fs_json_string(json, "name", sensor->name);
	fs_json_string(json, "source", sensor->source);
	fs_json_string(json, "path", sensor->path);
	if (!idle) {
		fs_json_object_end(json);
		return;
	}
	/* A sensor that stopped answering has seen a part of the run only: its mean holds for that part. */
	above = (mean - idle->uw) * (double)lasted_ns / 1e9;
	fs_json_string(json, "basis", "measured");
	fs_json_u64(json, "samples", sensor->samples);
	fs_json_u64(json, "failed", sensor->failed);
	fs_json_string(json, "problem", sensor->failed ? strerror(sensor->error) : NULL);
	fs_json_u64(json, "seen_ns", sensor->last_ns - sensor->first_ns);
	real_json(json, "idle_uw", idle->known, idle->uw);
	real_json(json, "mean_uw", known, mean);
	if (sensor->kind == FS_SENSOR_POWER) {
		real_json(json, "lowest_uw", sensor->samples > 0, sensor->low);
		real_json(json, "highest_uw", sensor->samples > 0, sensor->high);
	}
	real_json(json, "total_uj", known && !sensor->failed, mean * (double)lasted_ns / 1e9);
	real_json(json, "above_idle_uj", known && idle->known && !sensor->failed, above);
	fs_json_object_end(json);
}

static int print(struct fs_json *json)
{
	int failed = printf("%s\n", json->out.data) < 0 || fflush(stdout) ? fs_fail("stdout: %s", strerror(errno)) : 0;

	fs_json_free(json);
	return failed;
}

static int list(const struct fs_sensors *sensors)
{
	struct fs_json json = { 0 };

	fs_json_object(&json, NULL);
	fs_json_array(&json, "sensors");
	for (size_t i = 0; i < sensors->count; i++)
		sensor_json(&json, &sensors->items[i], NULL, 0);
	fs_json_array_end(&json);
	fs_json_u64(&json, "left_out", sensors->left_out);
	fs_json_object_end(&json);
	return print(&json);
}

static int measure(struct fs_sensors *sensors, const struct options *o)
{
	struct sigaction action = { .sa_handler = on_child };
	struct idle idle[FS_MAX_SENSORS] = { 0 };
	struct fs_json json = { 0 };
	uint64_t begin, end;
	int status = 0;
	pid_t pid;

	measure_idle(sensors, o, idle);
	sigaction(SIGCHLD, &action, NULL);
	begin = fs_now_ns();
	sample_all(sensors);
	pid = start(o->command);
	if (pid < 0)
		return fs_fail("fork: %s", strerror(errno));
	while (!child_ended) {
		pause_ms(o->interval_ms);
		if (!child_ended)
			sample_all(sensors);
	}
	waitpid(pid, &status, 0);
	sample_all(sensors);
	end = fs_now_ns();

	fs_json_object(&json, NULL);
	fs_json_array(&json, "command");
	for (char **word = o->command; *word; word++)
		fs_json_string(&json, NULL, *word);
	fs_json_array_end(&json);
	fs_json_i64(&json, "status", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	fs_json_object(&json, "measured");
	fs_json_u64(&json, "begin_ns", begin);
	fs_json_u64(&json, "end_ns", end);
	fs_json_object_end(&json);
	fs_json_u64(&json, "interval_ms", o->interval_ms);
	fs_json_u64(&json, "idle_ms", o->idle_ms);
	fs_json_array(&json, "sensors");
	for (size_t i = 0; i < sensors->count; i++) {
		const struct fs_sensor *sensor = &sensors->items[i];

		sensor_json(&json, sensor, &idle[i], end - begin);
		if (sensor->failed)
			fs_warn("%s: did not answer %llu of %llu times (%s): its energy is not known", sensor->name,
				(unsigned long long)sensor->failed,
				(unsigned long long)(sensor->failed + sensor->samples), strerror(sensor->error));
	}
	fs_json_array_end(&json);
	fs_json_u64(&json, "left_out", sensors->left_out);
	fs_json_object_end(&json);
	return print(&json) || !WIFEXITED(status) || WEXITSTATUS(status) ? FS_EXIT_FAILURE : 0;
}

int cmd_energy(int argc, char **argv)
{
	struct options o = { 0 };
	struct fs_sensors sensors;
	int failed = parse(argc, argv, &o);

	if (failed)
		return failed;
	fs_sensors_find(&sensors, o.wanted, o.wanted_count);
	if (o.list)
		return list(&sensors);
	if (!sensors.count)
		return fs_fail("energy: this machine shows no sensor of power or energy%s (hwmon, IIO, powercap); model it "
			       "with a study's power profile instead",
			       o.wanted_count ? " with such a name" : "");
	return measure(&sensors, &o);
}
