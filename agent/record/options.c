// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"
#include "trigger.h"
#include "util.h"

#define MAX_RING_KIB (1u << 20)
/* Where no size is given: a ring, all rings, and the share of available memory that they have at most. */
#define RING_MOST_KIB (16u << 10)
#define RINGS_MOST_KIB (256u << 10)
#define RINGS_SHARE 64
#define MAX_MTD 4096

static bool plain(const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (!isalnum((unsigned char)text[i]) && !strchr("_-.", text[i]))
			return false;
	return length && text[0] != '.';
}

/* A group, or SYSTEM:EVENT, SYSTEM:* */
static int one_event(struct fs_record_options *options, const char *word)
{
	const char *colon = strchr(word, ':');
	char system[sizeof(((struct fs_event *)0)->system)];
	size_t length = colon ? (size_t)(colon - word) : 0;

	if (!strcmp(word, "flash") || !strcmp(word, "auto")) {
		options->flash |= !strcmp(word, "flash");
		options->automatic |= !strcmp(word, "auto");
		return 0;
	}
	if (!colon) {
		options->groups |= fs_group_of(word);
		return fs_group_of(word) ? 0 :
					   fs_usage("--events %s: no such group; auto, flash, block, syscall, cache, layers, "
						    "or SYSTEM:EVENT as in tracefs",
						    word);
	}
	if (length >= sizeof(system) || !plain(word, length) ||
	    (strcmp(colon + 1, "*") && !plain(colon + 1, strlen(colon + 1))))
		return fs_usage("--events %s: not SYSTEM:EVENT; write it as in tracefs' available_events",
				word);
	memcpy(system, word, length);
	system[length] = '\0';
	fs_events_add(&options->events, system, strcmp(colon + 1, "*") ? colon + 1 : NULL, NULL);
	return 0;
}

static int one_detail(struct fs_record_options *options, const char *word)
{
	if (!strcmp(word, "offset"))
		options->details.offset = true;
	else if (!strcmp(word, "duration"))
		options->details.duration = true;
	else if (!strcmp(word, "chip"))
		options->details.chip = true;
	else
		return fs_usage("--detail %s: no such detail; offset, duration, chip", word);
	return 0;
}

static int words(struct fs_record_options *options, const char *list,
		 int (*one)(struct fs_record_options *, const char *), const char *option)
{
	char *copy = fs_strdup(list);
	char *rest = copy, *word;
	int result = 0;

	while (!result && (word = strsep(&rest, ",")))
		result = *word ? one(options, word) :
				 fs_usage("%s %s: an empty name; separate names by one comma", option, list);
	free(copy);
	return result;
}

static int number(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *value)
{
	if (fs_parse_u64(text, most, value) && *value >= least)
		return 0;
	return fs_usage("%s %s: is not accepted; give a number from %llu to %llu", option, text,
			(unsigned long long)least, (unsigned long long)most);
}

static int add_mtd(struct fs_record_options *options, const char *text)
{
	uint64_t index;
	int result = number("--mtd", text, 0, MAX_MTD, &index);

	if (result)
		return result;
	options->mtd = fs_realloc(options->mtd, (options->mtd_count + 1) * sizeof(*options->mtd));
	options->mtd[options->mtd_count++] = (int)index;
	return 0;
}

static int add_pid(struct fs_record_options *options, const char *text)
{
	uint64_t pid;
	int result = number("--pid", text, 1, 1 << 22, &pid);

	if (result)
		return result;
	options->pids = fs_realloc(options->pids, (options->pid_count + 1) * sizeof(*options->pids));
	options->pids[options->pid_count++] = (int)pid;
	return 0;
}

static int add_text(const char ***list, size_t *count, const char *option, const char *text)
{
	/* It becomes part of a filter of the kernel's, between quotes. */
	if (!*text || strpbrk(text, "\"\n") || *count == 8)
		return fs_usage("%s %s: is not accepted; at most 8 names, none empty, without quotes", option, text);
	*list = fs_realloc(*list, (*count + 1) * sizeof(**list));
	(*list)[(*count)++] = text;
	return 0;
}

static int add_trigger(struct fs_record_options *options, const char *text)
{
	struct fs_trigger trigger;

	if (!fs_trigger_parse(text, &trigger))
		return fs_usage("--trigger %s: is not understood; give one of %s", text, fs_trigger_grammar);
	for (size_t i = 0; i < options->trigger_count; i++)
		if (options->triggers[i].kind == trigger.kind)
			return fs_usage("--trigger %s: there is one of its kind already; leave one out", text);
	options->triggers = fs_realloc(options->triggers, (options->trigger_count + 1) * sizeof(*options->triggers));
	options->triggers[options->trigger_count++] = trigger;
	return 0;
}

/* The flight recorder's. -1: it is no such option. */
static int flight_value(struct fs_record_options *options, const char *option, const char *value)
{
	if (!strcmp(option, "--trigger"))
		return add_trigger(options, value);
	if (!strcmp(option, "--before"))
		return number(option, value, 0, 3600, &options->before_s);
	if (!strcmp(option, "--after"))
		return number(option, value, 0, 3600, &options->after_s);
	if (!strcmp(option, "--captures"))
		return number(option, value, 1, 9999, &options->captures);
	if (strcmp(option, "--directory"))
		return -1;
	options->directory = value;
	return *value ? 0 : fs_usage("--directory: no name; give a directory for captures");
}

/* What is to be kept of all that happens. -1: it is no such option. */
static int filter_value(struct fs_record_options *options, const char *option, const char *value)
{
	if (!strcmp(option, "--device"))
		return add_text(&options->devices, &options->device_count, option, value);
	if (!strcmp(option, "--cgroup"))
		return add_text(&options->cgroups, &options->cgroup_count, option, value);
	if (!strcmp(option, "--comm"))
		return add_text(&options->comms, &options->comm_count, option, value);
	if (!strcmp(option, "--pid"))
		return add_pid(options, value);
	if (!strcmp(option, "-d"))
		return number(option, value, 1, 31536000, &options->seconds);
	return flight_value(options, option, value);
}

/* Three, and none of 0 to 2: they are the agent's own. */
static int three_descriptors(struct fs_record_options *options, const char *list)
{
	char *copy = fs_strdup(list);
	char *rest = copy, *word;
	size_t count = 0;
	bool good = true;

	while ((word = strsep(&rest, ","))) {
		uint64_t fd;

		good = good && count < 3 && fs_parse_u64(word, 1023, &fd) && fd > 2;
		if (good)
			options->stdio[count++] = (int)fd;
	}
	free(copy);
	if (good && count == 3 && options->stdio[0] != options->stdio[1] && options->stdio[1] != options->stdio[2] &&
	    options->stdio[0] != options->stdio[2])
		return 0;
	return fs_usage("--stdio %s: is not accepted; give three different descriptors from 3 to 1023", list);
}

static int with_value(struct fs_record_options *options, const char *option, const char *value,
		      bool *events_given)
{
	uint64_t fd;
	int result = filter_value(options, option, value);

	if (result >= 0)
		return result;
	if (!strcmp(option, "--name")) {
		if (!fs_name_valid(value))
			return fs_usage("--name %s: 1 to %d visible characters without a slash", value,
					FS_NAME_MAX);
		options->name = value;
		return 0;
	}
	if (!strcmp(option, "--events")) {
		if (!*events_given)
			options->flash = false;
		*events_given = true;
		return words(options, value, one_event, option);
	}
	if (!strcmp(option, "--from")) {
		options->monitor = !strcmp(value, "flashmon");
		if (!options->monitor && strcmp(value, "tracefs"))
			return fs_usage("--from %s: no such source; tracefs or flashmon", value);
		return 0;
	}
	if (!strcmp(option, "--detail"))
		return words(options, value, one_detail, option);
	if (!strcmp(option, "--mtd"))
		return add_mtd(options, value);
	options->ring_given |= !strcmp(option, "--ring");
	if (!strcmp(option, "--ring"))
		return number(option, value, 8, MAX_RING_KIB, &options->ring_kib);
	if (!strcmp(option, "--interval-ms"))
		return number(option, value, 1, 60000, &options->interval_ms);
	if (!strcmp(option, "--max-bytes"))
		return number(option, value, 1, UINT64_MAX, &options->max_bytes);
	if (!strcmp(option, "--least-free"))
		return number(option, value, 1, UINT64_MAX, &options->least_free);
	if (!strcmp(option, "--source"))
		return number(option, value, 0, 65535, &options->source);
	if (!strcmp(option, "--ready-fd")) {
		result = number(option, value, 3, 1023, &fd);
		if (!result)
			options->ready_fd = (int)fd;
		return result;
	}
	if (!strcmp(option, "--paths")) {
		options->paths_given = true;
		if (fs_names_mode_of(value, &options->paths))
			return 0;
		return fs_usage("--paths %s: no such search; auto, walk, seen or none", value);
	}
	if (!strcmp(option, "--user")) {
		options->user = value;
		return *value ? 0 : fs_usage("--user: no name; give a user's name or number");
	}
	if (!strcmp(option, "--stdio"))
		return three_descriptors(options, value);
	if (!strcmp(option, "-o")) {
		options->output = value;
		return 0;
	}
	if (!strcmp(value, "ring") || !strcmp(value, "stream")) {
		options->overwrite = !strcmp(value, "ring");
		return 0;
	}
	return fs_usage("--mode %s: no such mode; ring or stream", value);
}

/* The flight recorder watches by itself, for as long as it is let. */
static int check_flight(const struct fs_record_options *options)
{
	if (!options->trigger_count)
		return options->directory || options->captures ?
			       fs_usage("--directory, --captures: belong to --trigger; give one of %s", fs_trigger_grammar) :
			       0;
	if (options->command)
		return fs_usage("--trigger: watches until it is stopped; run the command beside it");
	if (options->monitor || options->overwrite || options->paused || (options->output && options->directory))
		return fs_usage("--trigger: does not go with --from flashmon, --mode ring, --paused, nor -o with --directory");
	return 0;
}

/* Options that do not go together. */
static int check(const struct fs_record_options *options)
{
	int result = check_flight(options);

	if (result)
		return result;
	if (options->capture && !options->command)
		return fs_usage("--capture: keeps a command's output; name the command behind --");
	if (!options->command && (options->user || options->stdio[0] >= 0))
		return fs_usage("--user, --stdio: are of a command; name the command behind --");
	if (options->capture && options->stdio[0] >= 0)
		return fs_usage("--capture and --stdio: exclude each other; leave one out");
	if (!options->flash && !options->automatic && (options->mtd_count || options->details.offset ||
				options->details.duration || options->details.chip))
		return fs_usage("--mtd, --detail: belong to flash events; add flash to --events");
	if (options->monitor && (options->groups || options->events.count || !options->flash ||
				 options->details.offset || options->details.chip))
		return fs_usage("--from flashmon: knows flash events alone, and no detail but duration; leave out the others");
	if (options->monitor && (options->device_count || options->pid_count || options->cgroup_count || options->comm_count))
		return fs_usage("--from flashmon: cannot filter; leave out --device, --pid, --cgroup and --comm");
	return 0;
}

int fs_record_options(int argc, char **argv, struct fs_record_options *options)
{
	static const char *const valued[] = { "--name", "--events",	 "--detail", "--mtd",	   "--ring",
					      "--mode", "--interval-ms", "--source", "--max-bytes", "--least-free", "--ready-fd", "-o",
					      "--from", "--user",	 "--stdio",  "--device",   "--pid",
					      "--cgroup", "--comm",	 "-d",	     "--trigger",  "--before",
					      "--after",  "--captures",	 "--directory", "--paths" };
	const struct {
		const char *option;
		bool *value;
	} flags[] = { { "--paused", &options->paused },
		      { "--capture", &options->capture },
		      { "--own-parent", &options->own_parent },
		      { "--progress", &options->progress } };
	bool events_given = false;

	memset(options, 0, sizeof(*options));
	options->flash = true;
	options->ring_kib = 4096;
	options->before_s = 5;
	options->after_s = 2;
	options->interval_ms = 100;
	/* who measures with it alone wants no look at files beside it */
	options->paths = FS_NAMES_NONE;
	options->ready_fd = -1;
	for (size_t i = 0; i < ARRAY_SIZE(options->stdio); i++)
		options->stdio[i] = -1;
	for (int i = 1; i < argc; i++) {
		size_t k = 0, f = 0;
		int result;

		if (!strcmp(argv[i], "--")) {
			if (!argv[i + 1])
				return fs_usage("--: no command follows; name a program to run");
			options->command = argv + i + 1;
			break;
		}
		while (f < ARRAY_SIZE(flags) && strcmp(argv[i], flags[f].option))
			f++;
		if (f < ARRAY_SIZE(flags)) {
			*flags[f].value = true;
			continue;
		}
		while (k < ARRAY_SIZE(valued) && strcmp(argv[i], valued[k]))
			k++;
		if (k == ARRAY_SIZE(valued))
			return fs_usage("record %s: unknown option; a command to run follows --", argv[i]);
		if (++i == argc)
			return fs_usage("%s: no value follows; give it one", valued[k]);
		result = with_value(options, valued[k], argv[i], &events_given);
		if (result)
			return result;
	}
	/* A capture lies there until somebody has time for it: what its numbers were called is gone by then. */
	if (options->trigger_count && !options->paths_given)
		options->paths = FS_NAMES_AUTO;
	return check(options);
}

void fs_record_options_free(struct fs_record_options *options)
{
	fs_events_free(&options->events);
	free(options->mtd);
	free(options->devices);
	free(options->pids);
	free(options->cgroups);
	free(options->comms);
	free(options->triggers);
	memset(options, 0, sizeof(*options));
}

uint64_t fs_record_ring_kib(const struct fs_record_options *options, uint64_t available_kib, uint64_t rings)
{
	uint64_t kib = available_kib / RINGS_SHARE < RINGS_MOST_KIB ? available_kib / RINGS_SHARE : RINGS_MOST_KIB;

	kib /= rings;
	if (options->ring_given || options->overwrite || options->trigger_count || kib < options->ring_kib)
		return options->ring_kib;
	return kib < RING_MOST_KIB ? kib : RING_MOST_KIB;
}
