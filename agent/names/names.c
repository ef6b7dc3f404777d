// SPDX-License-Identifier: Apache-2.0
#include "names.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "reader.h"
#include "util.h"

/* What a look at new files and processes may take: 1 % of a CPU at ten draining rounds a second. */
#define LIVE_NS UINT64_C(1000000)
/* Directories of reported files are looked up for so long: the buffers are not emptied meanwhile. */
#define NOTIFY_NS UINT64_C(100000000)
/*
 * For the names of one capture of the flight recorder. In this time the triggers are not read; their ring holds a third
 * of a second of 5,000 requests each. A walk was requested.
 */
#define CAPTURE_NS UINT64_C(300000000)
#define CAPTURE_WALK_NS UINT64_C(5000000000)
/* The longest row: two paths of 1 KiB, of which each byte may be escaped. */
#define ROW_MAX (16u << 10)

bool fs_names_mode_of(const char *word, enum fs_names_mode *mode)
{
	static const char *const words[] = { "auto", "walk", "seen", "none" };

	for (int i = FS_NAMES_AUTO; i <= FS_NAMES_NONE; i++)
		if (!strcmp(word, words[i])) {
			*mode = (enum fs_names_mode)i;
			return true;
		}
	return false;
}

void fs_names_init(struct fs_names *names, enum fs_names_mode mode, struct fs_stream *stream)
{
	names->mode = mode;
	names->stream = stream;
}

/* --- rows ---------------------------------------------------------------- */

static void flush(struct fs_names *names)
{
	if (!names->key)
		return;
	names->key = NULL;
	fs_json_array_end(&names->json);
	fs_json_object_end(&names->json);
	if (!names->failed &&
	    fs_frame(names->stream, FS_NAMES, names->json.out.data, names->json.out.length, NULL, 0))
		names->failed = true;
	fs_json_free(&names->json);
	memset(&names->json, 0, sizeof(names->json));
}

/* A row of an array of that name. Rows of one frame are of one array. */
static struct fs_json *row(struct fs_names *names, const char *key)
{
	size_t most = fs_stream_room(names->stream);

	if (names->key && (strcmp(names->key, key) || names->json.out.length + ROW_MAX > most))
		flush(names);
	if (!names->key) {
		names->key = key;
		fs_json_object(&names->json, NULL);
		fs_json_array(&names->json, key);
	}
	fs_json_object(&names->json, NULL);
	return &names->json;
}

/* --- processes ------------------------------------------------------------ */

static void send_process(struct fs_names *names, int32_t pid, bool started)
{
	struct fs_process process;
	struct fs_json *json;
	uint64_t hash;

	if (!fs_process_read(&process, pid, started))
		return;
	if (names->mode == FS_NAMES_NONE)
		process.command[0] = '\0';
	hash = fs_process_hash(&process);
	for (size_t i = 0; i < names->process_count; i++)
		if (names->processes[i] == hash)
			return;
	if (names->process_count == FS_PROCESSES_MAX) {
		names->processes_dropped++;
		return;
	}
	if (!(names->process_count % 256))
		names->processes =
			fs_realloc(names->processes, (names->process_count + 256) * sizeof(*names->processes));
	names->processes[names->process_count++] = hash;
	json = row(names, "processes");
	fs_json_u64(json, "at_ns", fs_now_ns());
	fs_json_i64(json, "pid", process.pid);
	fs_json_i64(json, "parent", process.parent);
	fs_json_u64(json, "uid", process.uid);
	fs_json_string(json, "name", process.comm);
	if (process.command[0])
		fs_json_string(json, "command", process.command);
	if (process.cgroup[0])
		fs_json_string(json, "cgroup", process.cgroup);
	if (process.mount_namespace)
		fs_json_u64(json, "mnt_ns", process.mount_namespace);
	if (process.pid_namespace)
		fs_json_u64(json, "pid_ns", process.pid_namespace);
	fs_json_object_end(json);
}

static void send_processes(struct fs_names *names, uint64_t end_ns)
{
	char path[FS_PATH_MAX];
	DIR *proc = opendir(fs_path(path, sizeof(path), "/proc"));
	struct dirent *entry;
	uint64_t pid;

	while (proc && (entry = readdir(proc))) {
		if (!fs_parse_u64(entry->d_name, INT32_MAX, &pid))
			continue;
		if (fs_now_ns() < end_ns)
			send_process(names, (int32_t)pid, false);
		else
			names->processes_late++;
	}
	if (proc)
		closedir(proc);
}

/* "com.android.vending 10057 0 /data/user/0/…": a package and its user (Android). */
static void send_packages(struct fs_names *names)
{
	char path[FS_PATH_MAX];
	char *text = fs_read_text(fs_path(path, sizeof(path), "/data/system/packages.list"), NULL);
	char *rest = text, *line;

	while (rest && (line = strsep(&rest, "\n"))) {
		char *name = strsep(&line, " "), *uid = line ? strsep(&line, " ") : NULL;
		struct fs_json *json;
		uint64_t number;

		if (!uid || !fs_parse_u64(uid, UINT32_MAX, &number) || strlen(name) > 256)
			continue;
		json = row(names, "packages");
		fs_json_string(json, "name", name);
		fs_json_u64(json, "uid", number);
		fs_json_object_end(json);
	}
	free(text);
}

/* --- devices and mounts ---------------------------------------------------- */

static void value_of(struct fs_json *json, const char *key, const char *directory, const char *file)
{
	char path[FS_PATH_MAX];
	char *value = fs_read_value(fs_path(path, sizeof(path), "%s/%s", directory, file));

	if (value && *value)
		fs_json_string(json, key, value);
	free(value);
}

static void below(struct fs_json *json, const char *directory)
{
	char path[FS_PATH_MAX];
	DIR *dir = opendir(fs_path(path, sizeof(path), "%s/slaves", directory));
	struct dirent *entry;
	bool any = false;

	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		if (!any)
			fs_json_array(json, "below");
		any = true;
		fs_json_string(json, NULL, entry->d_name);
	}
	if (any)
		fs_json_array_end(json);
	if (dir)
		closedir(dir);
}

static void send_block_device(struct fs_names *names, const char *number)
{
	char path[FS_PATH_MAX], target[PATH_MAX], *name, *parent;
	struct fs_json *json;
	ssize_t length;

	length = readlink(fs_path(path, sizeof(path), "/sys/dev/block/%s", number), target, sizeof(target) - 1);
	if (length <= 0)
		return;
	target[length] = '\0';
	name = strrchr(target, '/');
	if (!name)
		return;
	*name++ = '\0';
	parent = strrchr(target, '/');
	json = row(names, "devices");
	fs_json_string(json, "device", number);
	fs_json_string(json, "name", name);
	if (!access(fs_path(path, sizeof(path), "/sys/dev/block/%s/partition", number), F_OK) && parent)
		fs_json_string(json, "disk", parent + 1);
	fs_path(path, sizeof(path), "/sys/dev/block/%s", number);
	value_of(json, "dm", path, "dm/name");
	if (names->mode != FS_NAMES_NONE)
		value_of(json, "file", path, "loop/backing_file");
	value_of(json, "model", path, "device/model");
	value_of(json, "card", path, "device/name");
	below(json, path);
	fs_json_object_end(json);
}

/* Loop, RAM and network block devices that are not in use have a size of 0. */
static bool in_use(const char *number)
{
	char path[FS_PATH_MAX];
	uint64_t sectors;

	return fs_read_u64(fs_path(path, sizeof(path), "/sys/dev/block/%s/size", number), &sectors) && sectors;
}

static void send_devices(struct fs_names *names)
{
	char path[FS_PATH_MAX];
	DIR *dir = opendir(fs_path(path, sizeof(path), "/sys/dev/block"));
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.' && in_use(entry->d_name))
			send_block_device(names, entry->d_name);
	if (dir)
		closedir(dir);
	dir = opendir(fs_path(path, sizeof(path), "/sys/class/ubi"));
	while (dir && (entry = readdir(dir))) {
		struct fs_json *json;

		/* ubi0_1: a volume; ubi0: the device. */
		if (strncmp(entry->d_name, "ubi", 3) || !strchr(entry->d_name, '_'))
			continue;
		json = row(names, "volumes");
		fs_json_string(json, "volume", entry->d_name);
		value_of(json, "name", fs_path(path, sizeof(path), "/sys/class/ubi/%s", entry->d_name), "name");
		fs_json_object_end(json);
	}
	if (dir)
		closedir(dir);
}

/* File systems that no storage is beneath: hardly anything refers to them. */
static bool of_no_interest(const char *type)
{
	static const char *const types[] = { "proc",	"sysfs",   "devpts",	 "cgroup",  "cgroup2", "tracefs",
					     "debugfs", "mqueue",  "securityfs", "pstore",  "bpf",     "configfs",
					     "nsfs",	"autofs",  "hugetlbfs",	 "fusectl", "efivarfs" };

	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (!strcmp(type, types[i]))
			return true;
	return false;
}

static bool is_touched(const struct fs_touched *touched, uint32_t device)
{
	for (size_t i = 0; i < touched->count; i++)
		if (touched->files[i].touched && touched->files[i].device == device)
			return true;
	return false;
}

static uint64_t mount_hash(const struct fs_mount *mount)
{
	const char *const texts[] = { mount->root, mount->point, mount->type, mount->source, mount->options ? mount->options : "" };
	uint64_t hash = fs_hash(FS_HASH_BEGIN, &mount->device, sizeof(mount->device));

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		hash = fs_hash(hash, texts[i], strlen(texts[i]) + 1);
	return hash;
}

/* True for the first of them that is asked about. */
static bool is_new_mount(struct fs_names *names, const struct fs_mount *mount, size_t most)
{
	const uint64_t hash = mount_hash(mount);

	for (size_t i = 0; i < names->mount_count; i++)
		if (names->mounts[i] == hash)
			return false;
	if (names->mount_count >= most) {
		names->mounts_dropped++;
		return false;
	}
	names->mounts[names->mount_count++] = hash;
	return true;
}

/* Those that were not sent before, up to `most` in the whole recording. */
static void send_mounts(struct fs_names *names, size_t most)
{
	const struct fs_mounts *mounts = &names->paths.mounts;

	for (size_t i = 0; i < mounts->count; i++) {
		const struct fs_mount *mount = &mounts->items[i];
		bool before = false;
		struct fs_json *json;

		if (of_no_interest(mount->type) && !is_touched(&names->paths.touched, mount->device))
			continue;
		/* The same file in another namespace adds nothing. */
		for (size_t k = 0; k < i && !before; k++)
			before = mounts->items[k].device == mount->device && mount->pid &&
				 !strcmp(mounts->items[k].point, mount->point);
		if (before || strlen(mount->point) + strlen(mount->root) > 2048 || !is_new_mount(names, mount, most))
			continue;
		json = row(names, "mounts");
		fs_json_device(json, "device", mount->device >> 20, mount->device & 0xfffff);
		fs_json_string(json, "root", mount->root);
		fs_json_string(json, "point", mount->point);
		fs_json_string(json, "type", mount->type);
		fs_json_string(json, "source", mount->source);
		if (mount->options)
			fs_json_string(json, "options", mount->options);
		if (mount->pid)
			fs_json_bool(json, "elsewhere", true);
		fs_json_object_end(json);
	}
}

/* --- files ------------------------------------------------------------------ */

/* The path, and the layer's where the file is one of an overlay. */
static void send_path(struct fs_json *json, const struct fs_mounts *mounts, const struct fs_inode *file)
{
	char path[PATH_MAX];
	uint64_t namespace;

	if (file->foreign || !fs_mounts_in_overlay(mounts, file->path, path, sizeof(path), &namespace)) {
		fs_json_string(json, "path", file->path);
		return;
	}
	fs_json_string(json, "path", path);
	fs_json_string(json, "layer", file->path);
	if (namespace)
		fs_json_u64(json, "mnt_ns", namespace);
}

static void send_file(struct fs_names *names, const struct fs_inode *file)
{
	static const char *const states[] = { "unknown", "seen", "named", "renamed", "deleted", "elsewhere" };
	struct fs_json *json = row(names, "files");

	fs_json_device(json, "device", file->device >> 20, file->device & 0xfffff);
	fs_json_u64(json, "inode", file->inode);
	if (file->until_ns)
		fs_json_u64(json, "until_ns", file->until_ns);
	if (file->path) {
		send_path(json, &names->paths.mounts, file);
		if (file->state != FS_FILE_NAMED)
			fs_json_string(json, "state", file->again ? "again" : states[file->state]);
		if (file->was && strcmp(file->was, file->path))
			fs_json_string(json, "was", file->was);
		if (file->other && strcmp(file->other, file->path))
			fs_json_string(json, "or", file->other);
		if (file->others)
			fs_json_bool(json, "or_others", true);
	} else {
		const char *why = fs_paths_why(&names->paths, file);

		fs_json_string(json, "why", why);
		if (names->paths.notify && names->paths.notify->has_forgotten && !strcmp(why, "deleted"))
			names->reports_forgotten++;
	}
	fs_json_object_end(json);
}

/* Those that were deleted before until_ns. */
static void send_ended(struct fs_names *names, uint64_t until_ns)
{
	struct fs_touched *touched = &names->paths.touched;
	size_t left = 0;

	for (size_t i = 0; i < touched->ended_count; i++) {
		struct fs_inode *file = &touched->ended[i];

		if (file->until_ns >= until_ns) {
			touched->ended[left++] = *file;
			continue;
		}
		if (names->mode != FS_NAMES_NONE && file->touched)
			send_file(names, file);
		fs_inode_forget_paths(touched, file);
	}
	touched->ended_count = left;
}

/*
 * Names and sends files that were deleted before until_ns. Rings are drained one after another: deletions in one that
 * was drained earlier come with its next drain.
 */
static void end_files(struct fs_names *names, uint64_t until_ns, uint64_t end_ns)
{
	struct fs_touched *touched = &names->paths.touched;
	struct fs_notify *notify = names->paths.notify;

	if (notify) {
		fs_notify_read(notify, &names->paths.mounts, end_ns);
		if (touched->freed_lost)
			until_ns = UINT64_MAX;
		fs_notify_deleted(notify, &names->paths.mounts, touched, until_ns, !names->partial && !touched->freed_lost);
		if (touched->freed_lost)
			fs_notify_forget(notify);
	} else {
		until_ns = UINT64_MAX;
		touched->freed_count = 0;
	}
	touched->freed_lost = false;
	send_ended(names, until_ns);
}

static void send_files(struct fs_names *names)
{
	const struct fs_touched *touched = &names->paths.touched;

	for (size_t i = 0; i < touched->count && !names->failed; i++)
		if (touched->files[i].touched)
			send_file(names, &touched->files[i]);
}

static void send_search(struct fs_names *names, uint64_t begin_ns, uint64_t limit_ns)
{
	static const char *const modes[] = { "default", "walk", "seen", "none" };
	struct fs_json *json = row(names, "search");

	fs_json_string(json, "paths", modes[names->mode]);
	fs_json_u64(json, "directories", names->paths.directories);
	fs_json_u64(json, "entries", names->paths.entries);
	fs_json_u64(json, "files_dropped", names->paths.touched.dropped);
	fs_json_u64(json, "processes_dropped", names->processes_dropped);
	fs_json_u64(json, "processes_late", names->processes_late + names->paths.touched.started_late);
	fs_json_u64(json, "processes_stuck", fs_reader_stuck());
	fs_json_u64(json, "rounds_busy", names->rounds_busy);
	fs_json_u64(json, "notify_overflows", names->paths.notify ? names->paths.notify->overflows : 0);
	fs_json_u64(json, "notify_dropped", names->reports_forgotten);
	fs_json_u64(json, "mounts_dropped", names->paths.mounts.dropped + names->mounts_dropped);
	if (limit_ns != UINT64_MAX)
		fs_json_u64(json, "limit_ms", limit_ns / 1000000);
	fs_json_u64(json, "took_ms", (fs_now_ns() - begin_ns) / 1000000);
	fs_json_object_end(json);
}

void fs_names_begin(struct fs_names *names, uint64_t limit_ns)
{
	const uint64_t begin = fs_now_ns();

	if (names->mode == FS_NAMES_NONE)
		fs_mounts_read(&names->paths.mounts);
	else
		fs_paths_seen(&names->paths, false, begin + limit_ns / 2);
	send_processes(names, begin + limit_ns);
	send_packages(names);
	send_devices(names);
	send_mounts(names, FS_NAMED_MOUNTS_MAX / 2);
	flush(names);
}

void fs_names_watch(struct fs_names *names, bool partial)
{
	names->partial = partial;
	if (names->mode == FS_NAMES_NONE)
		return;
	if (!names->paths.mounts.count)
		fs_paths_mounts(&names->paths);
	names->paths.notify = fs_notify_open(&names->paths.mounts);
}

void fs_names_look(struct fs_names *names)
{
	if (names->paths.notify)
		fs_notify_read(names->paths.notify, &names->paths.mounts, fs_now_ns() + NOTIFY_NS);
}

void fs_names_resumed(struct fs_names *names)
{
	/* Of files that were deleted meanwhile there is no event. */
	fs_names_look(names);
	if (names->paths.notify)
		fs_notify_forget(names->paths.notify);
}

void fs_names_live(struct fs_names *names, bool busy, uint64_t drained_ns)
{
	struct fs_touched *touched = &names->paths.touched;
	uint64_t end = fs_now_ns() + LIVE_NS;

	if (busy) {
		names->rounds_busy++;
		fs_touched_wait(touched);
		end_files(names, drained_ns, fs_now_ns() + NOTIFY_NS);
		flush(names);
		return;
	}
	/* Processes first: they end sooner than files go. What is left of either waits for the next round. */
	while (touched->started_count && fs_now_ns() < end)
		send_process(names, (int32_t)touched->started[--touched->started_count], true);
	/* At the end they may be gone; a quarter of the time is left for the others. */
	if (fs_paths_mounts_again(&names->paths))
		send_mounts(names, FS_NAMED_MOUNTS_MAX / 4 * 3);
	end_files(names, drained_ns, fs_now_ns() + NOTIFY_NS);
	if (names->mode != FS_NAMES_NONE && touched->fresh_count)
		fs_paths_live(&names->paths, LIVE_NS);
	flush(names);
}

/* When the n-th of four parts of the time is over. */
static uint64_t part(uint64_t begin_ns, uint64_t limit_ns, unsigned int n)
{
	return limit_ns == UINT64_MAX ? UINT64_MAX : begin_ns + limit_ns / 4 * n;
}

void fs_names_end(struct fs_names *names, const volatile int *stop, uint64_t limit_ns)
{
	const uint64_t begin = fs_now_ns();
	struct fs_paths *paths = &names->paths;

	if (names->mode == FS_NAMES_WALK && !names->flight)
		limit_ns = UINT64_MAX;
	if (names->mode == FS_NAMES_NONE) {
		send_processes(names, part(begin, limit_ns, 3));
		fs_mounts_read(&paths->mounts);
	} else {
		/* Time that one part does not use is added to the next. */
		send_processes(names, part(begin, limit_ns, 1));
		paths->stop = stop;
		end_files(names, UINT64_MAX, part(begin, limit_ns, 2));
		fs_paths_seen(paths, true, part(begin, limit_ns, 2));
		fs_paths_check(paths, part(begin, limit_ns, 3));
		fs_paths_by_handle(paths, part(begin, limit_ns, 4));
		/* A walk reads from the device that is watched: that may be what fires next. */
		if (names->mode == FS_NAMES_WALK || (names->mode == FS_NAMES_AUTO && !names->flight))
			fs_paths_walk(paths, part(begin, limit_ns, 4));
		fs_paths_notified(paths);
		fs_paths_subvolumes(paths, part(begin, limit_ns, 4));
		send_files(names);
	}
	send_devices(names);
	send_mounts(names, FS_NAMED_MOUNTS_MAX);
	send_search(names, begin, limit_ns);
	flush(names);
}

void fs_names_capture_begin(struct fs_names *names)
{
	names->flight = true;
	fs_paths_mounts(&names->paths);
}

void fs_names_capture_end(struct fs_names *names, const volatile int *stop)
{
	send_packages(names);
	fs_names_end(names, stop, names->mode == FS_NAMES_WALK ? CAPTURE_WALK_NS : CAPTURE_NS);
}

void fs_names_again(struct fs_names *names)
{
	const enum fs_names_mode mode = names->mode;
	struct fs_stream *stream = names->stream;
	struct fs_notify *notify = names->paths.notify;
	const bool partial = names->partial;

	names->paths.notify = NULL;
	fs_names_free(names);
	memset(names, 0, sizeof(*names));
	fs_names_init(names, mode, stream);
	names->paths.notify = notify;
	names->partial = partial;
	if (notify)
		fs_paths_mounts(&names->paths);
}

void fs_names_free(struct fs_names *names)
{
	fs_notify_close(names->paths.notify);
	fs_paths_free(&names->paths);
	fs_json_free(&names->json);
	free(names->processes);
}
