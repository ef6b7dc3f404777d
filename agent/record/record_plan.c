// SPDX-License-Identifier: Apache-2.0
/* What a recording is to hold: options held against what this kernel and machine have. */
#include "recorder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files.h"
#include "groups.h"
#include "layers.h"
#include "output.h"
#include "state.h"
#include "util.h"

int fs_recorder_stream_broken(struct fs_recorder *recorder)
{
	const char *where = recorder->options.output ? recorder->options.output : "stdout";
	int error = recorder->stream.error;

	if (error == EPIPE || error == ECONNRESET)
		return fs_recorder_broken(recorder, "%s: the reader of the stream has gone; what it got is readable", where);
	if (error == ENOSPC || error == EDQUOT || error == EFBIG)
		return fs_recorder_broken(recorder, "%s: %s; the data written so far is readable; free space and record again",
			      where, strerror(error));
	if (error == EINTR)
		return fs_recorder_broken(recorder, "%s: the reader of the stream takes nothing; the rest is lost", where);
	return fs_recorder_broken(recorder, "%s: %s; the data written so far is readable", where, strerror(error));
}

int fs_recorder_check_tracefs(struct fs_recorder *recorder)
{
	const struct fs_tracefs *tracefs = &recorder->facts.tracefs;

	if (!tracefs->path[0])
		return fs_recorder_broken(recorder, "tracefs: %s", tracefs->error);
	if (!tracefs->instances)
		return fs_recorder_broken(recorder, "tracefs: %s has no instances; flashscope needs Linux 3.17 or newer", tracefs->shown);
	if (recorder->options.flash && !tracefs->kprobe_events)
		return fs_recorder_broken(recorder, "kprobe events: %s/kprobe_events is not there or refused; "
					"the kernel needs CONFIG_KPROBE_EVENTS (other events: --events)",
			      tracefs->shown);
	return 0;
}

bool fs_recorder_has_event(struct fs_recorder *recorder, const char *system, const char *event)
{
	char path[FS_PATH_MAX];

	fs_tracefs_path(&recorder->facts.tracefs, path, sizeof(path), "events/%s%s%s/enable", system,
			event ? "/" : "", event ? event : "");
	/* It need not be writable: it is enabled in an instance. */
	return !access(path, F_OK);
}

/* What is to be enabled: events that were named one by one have to be there, those of a group need not. */
int fs_recorder_check_events(struct fs_recorder *recorder)
{
	struct fs_record_options *options = &recorder->options;
	unsigned int empty;

	for (size_t i = 0; i < options->events.count; i++) {
		const struct fs_event *event = &options->events.items[i];

		if (!fs_recorder_has_event(recorder, event->system, event->event))
			return fs_recorder_broken(recorder, "--events %s:%s: this kernel has no such event; "
						"see %s/available_events",
				      event->system, event->event ? event->event : "*",
				      recorder->facts.tracefs.shown);
		fs_events_add(&recorder->wanted, event->system, event->event, NULL);
	}
	if (options->device_count && options->flash && !recorder->filter.devices.mtd_count && !options->automatic)
		return fs_recorder_broken(recorder, "--events flash: --device names no raw NAND; name mtdN, or leave flash out");
	empty = fs_events_of_groups(&recorder->wanted, &recorder->facts.tracefs, &recorder->facts.machine,
				    options->groups, (long)getpid());
	if (options->automatic) {
		options->groups &= ~empty;
		empty = 0;
		if (!recorder->wanted.count && !options->flash)
			return fs_recorder_broken(recorder, "--events auto: there is nothing here that can be recorded; "
							    "flashscope doctor -v says what is missing");
	}
	if (empty)
		return fs_recorder_broken(recorder, "--events %s: this kernel has none of its events; %s",
			      fs_group_name(empty & -empty), fs_group_lacks(empty & -empty));
	return 0;
}

static bool has_block_device(void)
{
	char path[FS_PATH_MAX];
	struct dirent *entry;
	bool found = false;
	DIR *dir = opendir(fs_path(path, sizeof(path), "/sys/block"));

	while (dir && !found && (entry = readdir(dir)))
		found = entry->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return found;
}

int fs_recorder_choose(struct fs_recorder *recorder)
{
	struct fs_record_options *options = &recorder->options;
	struct fs_facts *facts = &recorder->facts;
	const bool by_device = options->device_count, nand_asked = recorder->filter.devices.mtd_count;
	char error[256];
	bool nand = false;

	for (size_t i = 0; i < recorder->filter.devices.mtd_count; i++) {
		options->mtd = fs_realloc(options->mtd, (options->mtd_count + 1) * sizeof(*options->mtd));
		options->mtd[options->mtd_count++] = recorder->filter.devices.mtd[i];
	}
	if (!options->automatic)
		return 0;
	for (size_t i = 0; i < facts->mtd.count; i++)
		nand |= fs_mtd_is_nand(&facts->mtd.items[i]);
	if (nand && facts->tracefs.kprobe_events && (!by_device || nand_asked)) {
		/* A chip that no probe sees must not stop the rest. */
		options->flash = !fs_probe_points_try(&facts->tracefs, &facts->machine, &facts->points, &facts->mtd, error,
						sizeof(error));
		if (!options->flash)
			fs_warn("flash: not recorded: %s", error);
	} else if (nand && !facts->tracefs.kprobe_events) {
		fs_warn("flash: not recorded: %s has no kprobe_events; the kernel needs CONFIG_KPROBE_EVENTS",
			facts->tracefs.shown);
	}
	options->groups |= FS_GROUP_CACHE;
	if (has_block_device())
		options->groups |= FS_GROUP_BLOCK;
	/* Calls name no device: they are everyone's. Of one device's recording the few that wait for it longest are worth that. */
	options->groups |= by_device ? FS_GROUP_SYNCS : FS_GROUP_SYSCALL;
	return 0;
}

/*
 * Probes of groups. Where a file's numbers lie is found anew each time: it
 * costs a second or two, and kernels differ.
 */
static void plan_groups(struct fs_recorder *recorder)
{
	const struct fs_facts *facts = &recorder->facts;
	const long own = getpid();

	if (recorder->options.groups & FS_GROUP_CACHE) {
		if (fs_files_calibrate(&facts->tracefs, &facts->machine, &recorder->layout,
				       recorder->layout.missing, sizeof(recorder->layout.missing)))
			fs_warn("file_read, file_write, file_fault: not armed: %s", recorder->layout.missing);
		fs_files_plan(&facts->machine, &recorder->layout, recorder->group, own, &recorder->probes,
			      &recorder->wanted);
	}
	if (recorder->options.groups & FS_GROUP_LAYERS)
		fs_layers_plan(&facts->tracefs, recorder->group, own, &recorder->probes, &recorder->wanted);
}

/* The flash monitor has done the rest by itself when it was loaded. */
int fs_recorder_plan_monitor(struct fs_recorder *recorder)
{
	const struct fs_record_options *options = &recorder->options;

	recorder->main.layout = (struct fs_page_layout){ 0 };
	if (fs_monitor_open(&recorder->monitor, recorder->facts.machine.long_size, options->mtd,
			    options->mtd_count, options->details.duration, &recorder->facts.mtd,
			    &recorder->probes, recorder->error, sizeof(recorder->error)))
		return -1;
	recorder->main.layout = recorder->monitor.layout;
	return 0;
}

int fs_recorder_plan_probes(struct fs_recorder *recorder)
{
	struct fs_facts *facts = &recorder->facts;
	struct fs_record_options *options = &recorder->options;
	size_t nand = 0;

	for (size_t i = 0; i < facts->mtd.count; i++)
		nand += fs_mtd_is_nand(&facts->mtd.items[i]);
	if (!options->flash) {
		fs_probe_points_check(&facts->tracefs, &facts->machine, &facts->points);
		plan_groups(recorder);
		return 0;
	}
	if (options->automatic)
		nand = 1; /* and tried: fs_recorder_choose() */
	if (!nand)
		return fs_recorder_broken(recorder, "NAND: /sys/class/mtd shows none; load its driver (or nandsim), "
					"or record other events with --events");
	if (!options->automatic &&
	    fs_probe_points_try(&facts->tracefs, &facts->machine, &facts->points, &facts->mtd,
			  recorder->error, sizeof(recorder->error)))
		return -1;
	if (fs_probes_plan(&facts->machine, &facts->points, &facts->mtd, options->mtd,
			   options->mtd_count, options->details, recorder->group,
			   &recorder->probes, recorder->error, sizeof(recorder->error)))
		return -1;
	plan_groups(recorder);
	return 0;
}

int fs_recorder_check_name(struct fs_recorder *recorder)
{
	struct fs_recorder_state *states;
	size_t count = fs_state_list(&states);
	bool taken = false;

	for (size_t i = 0; i < count; i++)
		taken |= states[i].pid != getpid() && !strcmp(states[i].name, recorder->name);
	free(states);
	if (taken)
		return fs_recorder_broken(recorder, "--name %s: a running recorder has this name; choose another",
			      recorder->name);
	return 0;
}

int fs_recorder_open_output(struct fs_recorder *recorder, const volatile sig_atomic_t *stop)
{
	const char *path = recorder->options.output;
	int fd = STDOUT_FILENO;

	if (recorder->options.directory) { /* each capture opens its own */
		recorder->stream.fd = -1;
		return 0;
	}
	if (path) {
		fd = fs_output_open(path, stop);
		if (fd < 0 && errno == EINTR)
			return fs_recorder_broken(recorder, "%s: ended by a signal while waiting for it to open; choose another -o",
						  path);
		if (fd < 0)
			return fs_recorder_broken(recorder, "%s: cannot be written: %s; choose another -o", path,
				      strerror(errno));
		recorder->close_output = true;
	}
	fs_stream_init(&recorder->stream, fd, (uint16_t)recorder->options.source);
	return 0;
}
