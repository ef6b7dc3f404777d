// SPDX-License-Identifier: Apache-2.0
#include "filter.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "util.h"

/* A task's name in the kernel, without its NUL. */
#define COMM_LENGTH 15

bool fs_filter_any(const struct fs_filter *filter)
{
	return filter->options && (filter->options->device_count || fs_filter_tasks(filter));
}

bool fs_filter_tasks(const struct fs_filter *filter)
{
	return filter->options && (filter->options->pid_count || filter->options->cgroup_count ||
				   filter->options->comm_count);
}

static bool frees_inodes(const char *event)
{
	static const char *const events[] = { "ext4_free_inode", "f2fs_evict_inode", "xfs_iunlink_remove", "xfs_inode_inactivating",
					      "xfs_destroy_inode" };

	for (size_t i = 0; i < ARRAY_SIZE(events); i++)
		if (!strcmp(event, events[i]))
			return true;
	return false;
}

bool fs_filter_any_task(const char *system, const char *event)
{
	if (!event)
		return false;
	if (!strcmp(system, "block"))
		return !strncmp(event, "block_rq_", 9) || !strcmp(event, "block_bio_complete");
	/* Whoever lets an inode go last frees it, or a worker of the kernel; its number may be the next file's of any task. */
	if (frees_inodes(event))
		return true;
	return !strcmp(system, "mmc") || !strcmp(system, "nvme") || !strcmp(system, "ufs") ||
	       !strcmp(system, "irq") || !strcmp(system, "sched");
}

/* --- requested filters -------------------------------------------------- */

/* A directory of a cgroup file system, v1 or v2 (include/uapi/linux/magic.h): `..` and links may lead elsewhere. */
static bool is_cgroup(const char *path)
{
	struct stat st;
	struct statfs fs;

	if (stat(path, &st) || !S_ISDIR(st.st_mode) || statfs(path, &fs))
		return false;
	return fs.f_type == 0x27e0eb || fs.f_type == 0x63677270;
}

static bool has_file(const char *directory, const char *file)
{
	char path[FS_PATH_MAX];

	return snprintf(path, sizeof(path), "%s/%s", directory, file) < (int)sizeof(path) && !access(path, R_OK);
}

/* A cgroup as /proc/PID/cgroup or a path below /sys/fs/cgroup names it; v2 first, then each hierarchy of v1. */
static char *find_cgroup(const char *name)
{
	char path[FS_PATH_MAX];
	struct dirent *entry;
	char *found = NULL;
	DIR *dir;

	while (*name == '/' && strncmp(name, "/sys/", 5))
		name++;
	if (*name == '/')
		return is_cgroup(name) && (has_file(name, "cgroup.procs") || has_file(name, "tasks")) ?
			       fs_strdup(name) :
			       NULL;
	fs_path(path, sizeof(path), "/sys/fs/cgroup/%s", name);
	if (is_cgroup(path) && has_file(path, "cgroup.procs"))
		return fs_strdup(path);
	dir = opendir(fs_path(path, sizeof(path), "/sys/fs/cgroup"));
	while (dir && !found && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		fs_path(path, sizeof(path), "/sys/fs/cgroup/%s/%s", entry->d_name, name);
		if (is_cgroup(path) && has_file(path, "cgroup.procs"))
			found = fs_strdup(path);
	}
	if (dir)
		closedir(dir);
	return found;
}

int fs_filter_check(struct fs_filter *filter, const struct fs_record_options *options, char *error, size_t size)
{
	memset(filter, 0, sizeof(*filter));
	filter->options = options;
	for (size_t i = 0; i < options->device_count; i++)
		if (fs_devices_add(&filter->devices, options->devices[i], error, size))
			return -1;
	for (size_t i = 0; i < options->pid_count; i++)
		if (!fs_starttime(options->pids[i])) {
			snprintf(error, size, "--pid %d: no such process here; it may have ended: see ps", options->pids[i]);
			return -1;
		}
	for (size_t i = 0; i < options->cgroup_count; i++) {
		char *directory = find_cgroup(options->cgroups[i]);

		if (!directory) {
			snprintf(error, size, "--cgroup %.100s: no such cgroup below /sys/fs/cgroup; "
					      "/proc/PID/cgroup shows the one of a process",
				 options->cgroups[i]);
			return -1;
		}
		filter->cgroups[filter->cgroup_count++] = directory;
	}
	return 0;
}

/* --- by device and name: a filter on each event ------------------------- */

static bool has_field(const char *format, const char *field)
{
	return strstr(format, field) != NULL;
}

/* The host of an eMMC or SD card ("mmc0"), by which the MMC layer's events call it. */
static bool mmc_host(const char *name, char *host, size_t size)
{
	char path[FS_PATH_MAX], target[FS_PATH_MAX];
	ssize_t length;
	char *at;

	if (strncmp(name, "mmcblk", 6))
		return false;
	length = readlink(fs_path(path, sizeof(path), "/sys/class/block/%s/device", name), target, sizeof(target) - 1);
	if (length < 0)
		return false;
	target[length] = '\0';
	at = strrchr(target, '/'); /* …/mmc0:0001 */
	at = at ? at + 1 : target;
	snprintf(host, size, "%.*s", (int)strcspn(at, ":"), at);
	return true;
}

static void request_terms(struct fs_buf *out, const struct fs_device *device)
{
	if (!device->range)
		fs_buf_or(out, "dev == %u", device->number);
	else
		/* A flush has no sectors: it is of the whole disk. */
		fs_buf_or(out, "(dev == %u && ((sector >= %" PRIu64 " && sector < %" PRIu64 ")%s))", device->number,
		     device->begin, device->end, device->flushes ? " || nr_sector == 0" : "");
}

/* Of one event, by its fields; "" where none names a device. */
static void device_terms(const struct fs_devices *devices, const char *system, const char *format, struct fs_buf *out)
{
	bool request = has_field(format, "dev_t dev;") && has_field(format, " sector;") && has_field(format, " nr_sector;");

	for (size_t i = 0; i < devices->count; i++) {
		const struct fs_device *device = &devices->items[i];
		char host[32];

		if (request && !device->file_system)
			request_terms(out, device);
		else if (request || (device->range && strcmp(system, "writeback")))
			continue;
		else if (!request && has_field(format, " s_dev;"))
			fs_buf_or(out, "s_dev == %u", device->number);
		else if (!request && (has_field(format, "dev_t dev;") || has_field(format, " dev;")))
			fs_buf_or(out, "dev == %u", device->number);
		else if (!strcmp(system, "writeback") && has_field(format, " name[32];") && !device->file_system)
			fs_buf_or(out, "name == \"%u:%u\"", device->number >> 20, device->number & 0xfffff);
		else if (!strcmp(system, "mmc") && mmc_host(device->name, host, sizeof(host)))
			fs_buf_or(out, "name == \"%s\"", host);
		else if (!strcmp(system, "nvme") && !strncmp(device->name, "nvme", 4))
			fs_buf_or(out, "disk == \"%s\"", device->name);
	}
}

/* The bdi of a file system without a device has a name of its own (btrfs-1, ubifs_0_0). */
static bool any_file_system(const struct fs_devices *devices)
{
	for (size_t i = 0; i < devices->count; i++)
		if (devices->items[i].file_system)
			return true;
	return false;
}

static void also(char **filter, const char *more)
{
	struct fs_buf both = { 0 };

	if (!*more)
		return;
	if (*filter)
		fs_buf_printf(&both, "(%s) && (%s)", *filter, more);
	else
		fs_buf_puts(&both, more);
	free(*filter);
	*filter = both.data;
}

static void comm_terms(const struct fs_record_options *options, struct fs_buf *out)
{
	for (size_t i = 0; i < options->comm_count; i++)
		fs_buf_or(out, "COMM ~ \"%.*s\"", COMM_LENGTH, options->comms[i]);
}

static bool named(const struct fs_record_options *options, const struct fs_event *event)
{
	for (size_t i = 0; i < options->events.count; i++)
		if (!strcmp(options->events.items[i].system, event->system) && event->event &&
		    options->events.items[i].event && !strcmp(options->events.items[i].event, event->event))
			return true;
	return false;
}

/* False: it is to be left out. */
static bool apply_to_event(const struct fs_filter *filter, const struct fs_tracefs *tracefs, struct fs_event *event,
			   const char *comm)
{
	struct fs_buf by_device = { 0 };
	bool keep = true;

	if (!event->event)
		return true;
	if (filter->options->device_count) {
		char *format = fs_tracefs_read(tracefs, "events/%s/%s/format", event->system, event->event);
		bool unsure = !strcmp(event->system, "writeback") && any_file_system(&filter->devices);

		if (format && !unsure)
			device_terms(&filter->devices, event->system, format, &by_device);
		keep = by_device.length || unsure || !strcmp(event->system, "ufs") || !strcmp(event->system, "syscalls") ||
		       !strcmp(event->system, "raw_syscalls") || !strcmp(event->system, "btrfs") || named(filter->options, event);
		free(format);
	}
	if (keep && by_device.length)
		also(&event->filter, by_device.data);
	if (keep && comm && !fs_filter_any_task(event->system, event->event))
		also(&event->filter, comm);
	fs_buf_free(&by_device);
	return keep;
}

void fs_filter_apply(struct fs_filter *filter, const struct fs_tracefs *tracefs, struct fs_events *events,
		     struct fs_probes *probes)
{
	struct fs_buf comm = { 0 }, devices = { 0 };
	size_t kept = 0;

	if (!fs_filter_any(filter))
		return;
	comm_terms(filter->options, &comm);
	for (size_t i = 0; i < events->count; i++) {
		struct fs_event *event = &events->items[i];

		if (apply_to_event(filter, tracefs, event, comm.data)) {
			events->items[kept++] = *event;
			continue;
		}
		fs_events_leave_out(events, event);
	}
	events->count = kept;
	for (size_t i = 0; i < filter->devices.count; i++)
		if (!filter->devices.items[i].range)
			fs_buf_or(&devices, "dev == %u", filter->devices.items[i].number);
	for (size_t i = 0; i < probes->count; i++) {
		struct fs_probe *probe = &probes->items[i];

		if (devices.length && strstr(probe->definition, " dev="))
			also(&probe->filter, devices.data);
		if (comm.length && (i == 0 || strcmp(probe->event, probes->items[i - 1].event)))
			also(&probe->filter, comm.data);
	}
	fs_buf_free(&comm);
	fs_buf_free(&devices);
}

/* --- by task: set_event_pid --------------------------------------------- */

static bool known(const struct fs_filter *filter, int task)
{
	for (size_t i = 0; i < filter->task_count; i++)
		if (filter->tasks[i] == task)
			return true;
	return false;
}

static void add_task(struct fs_filter *filter, struct fs_buf *added, int task)
{
	if (known(filter, task))
		return;
	filter->tasks = fs_realloc(filter->tasks, (filter->task_count + 1) * sizeof(*filter->tasks));
	filter->tasks[filter->task_count++] = task;
	fs_buf_printf(added, "%d ", task);
}

static void threads_of(struct fs_filter *filter, struct fs_buf *added, int pid)
{
	char path[FS_PATH_MAX];
	struct dirent *entry;
	uint64_t tid;
	DIR *dir = opendir(fs_path(path, sizeof(path), "/proc/%d/task", pid));

	while (dir && (entry = readdir(dir)))
		if (fs_parse_u64(entry->d_name, INT32_MAX, &tid))
			add_task(filter, added, (int)tid);
	if (dir)
		closedir(dir);
}

/* Its processes' threads, and those of the cgroups in it. */
static void tasks_of_cgroup(struct fs_filter *filter, struct fs_buf *added, const char *directory, int depth)
{
	char path[FS_PATH_MAX];
	struct dirent *entry;
	char *text, *save = NULL;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/cgroup.procs", directory);
	text = fs_read_text(path, NULL);
	for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save))
		threads_of(filter, added, atoi(line));
	free(text);
	dir = depth < 16 ? opendir(directory) : NULL;
	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.' ||
		    snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name) >= (int)sizeof(path))
			continue;
		if (has_file(path, "cgroup.procs"))
			tasks_of_cgroup(filter, added, path, depth + 1);
	}
	if (dir)
		closedir(dir);
}

static int add_tasks(struct fs_filter *filter, const struct fs_ring *ring)
{
	struct fs_buf added = { 0 };
	char path[FS_PATH_MAX];
	int result = 0, saved;

	for (size_t i = 0; i < filter->options->pid_count && !filter->task_count; i++)
		threads_of(filter, &added, filter->options->pids[i]);
	for (size_t i = 0; i < filter->cgroup_count; i++)
		tasks_of_cgroup(filter, &added, filter->cgroups[i], 0);
	/* An empty list would let everyone through; this is the highest number that a task can have. */
	if (!filter->task_count)
		add_task(filter, &added, (1 << 22) - 1);
	if (added.length)
		result = fs_append_text(fs_tracefs_path(ring->tracefs, path, sizeof(path), "instances/%s/set_event_pid",
							ring->name),
					added.data);
	saved = errno;
	fs_buf_free(&added);
	errno = saved;
	return result;
}

int fs_filter_begin(struct fs_filter *filter, const struct fs_ring *ring, char *error, size_t size)
{
	if (!filter->options->pid_count && !filter->cgroup_count)
		return 0;
	if (fs_ring_option(ring, "event-fork") ||
	    add_tasks(filter, ring)) {
		snprintf(error, size, "--pid, --cgroup: this kernel cannot record by task: set_event_pid: %s; "
				      "use --comm or --device",
			 strerror(errno));
		return -1;
	}
	return 0;
}

void fs_filter_again(struct fs_filter *filter, const struct fs_ring *ring)
{
	if (filter->cgroup_count)
		add_tasks(filter, ring);
}

/* --- for people --------------------------------------------------------- */

void fs_filter_json(struct fs_json *json, const struct fs_filter *filter)
{
	const struct fs_record_options *options = filter->options;

	if (!fs_filter_any(filter)) {
		fs_json_null(json, "filter");
		return;
	}
	fs_json_object(json, "filter");
	fs_json_array(json, "device");
	for (size_t i = 0; i < options->device_count; i++)
		fs_json_string(json, NULL, options->devices[i]);
	fs_json_array_end(json);
	fs_json_array(json, "devices"); /* with their stacks */
	for (size_t i = 0; i < filter->devices.count; i++)
		if (!filter->devices.items[i].range)
			fs_json_string(json, NULL, filter->devices.items[i].name);
	fs_json_array_end(json);
	fs_json_array(json, "pid");
	for (size_t i = 0; i < options->pid_count; i++)
		fs_json_i64(json, NULL, options->pids[i]);
	fs_json_array_end(json);
	fs_json_array(json, "cgroup");
	for (size_t i = 0; i < filter->cgroup_count; i++)
		fs_json_string(json, NULL, filter->cgroups[i]);
	fs_json_array_end(json);
	fs_json_array(json, "comm");
	for (size_t i = 0; i < options->comm_count; i++)
		fs_json_string(json, NULL, options->comms[i]);
	fs_json_array_end(json);
	fs_json_object_end(json);
}

void fs_filter_text(const struct fs_filter *filter, char *out, size_t size)
{
	const struct fs_record_options *options = filter->options;
	struct fs_buf text = { 0 };

	for (size_t i = 0; i < options->device_count; i++)
		fs_buf_printf(&text, " --device %s", options->devices[i]);
	for (size_t i = 0; i < options->pid_count; i++)
		fs_buf_printf(&text, " --pid %d", options->pids[i]);
	for (size_t i = 0; i < options->cgroup_count; i++)
		fs_buf_printf(&text, " --cgroup %s", options->cgroups[i]);
	for (size_t i = 0; i < options->comm_count; i++)
		fs_buf_printf(&text, " --comm %s", options->comms[i]);
	snprintf(out, size, "%s", text.length ? text.data + 1 : "");
	fs_buf_free(&text);
}

void fs_filter_free(struct fs_filter *filter)
{
	fs_devices_free(&filter->devices);
	for (size_t i = 0; i < filter->cgroup_count; i++)
		free(filter->cgroups[i]);
	free(filter->tasks);
	memset(filter, 0, sizeof(*filter));
}
