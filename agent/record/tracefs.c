// SPDX-License-Identifier: Apache-2.0
#include "tracefs.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "helper.h"
#include "notes.h"
#include "owner.h"
#include "sweep.h"

#define USUAL "/sys/kernel/tracing"
#define OLD "/sys/kernel/debug/tracing" /* before 4.1, and automounted since */

/* What a recorder needs that is not root: instances of its own, whose files are then its own, and the formats. */
static bool lent(const char *place)
{
	char instances[FS_PATH_MAX], header[FS_PATH_MAX];

	fs_path(instances, sizeof(instances), "%s/instances", place);
	fs_path(header, sizeof(header), "%s/events/header_page", place);
	return !access(instances, R_OK | W_OK | X_OK) && !access(header, R_OK);
}

/* A lock of tracefs that a task held when it died is held until a reboot, and no signal ends the wait for it. */
#define ANSWERS_MS 5000

/* In a child: nobody waits for the end of a pipe that it would hold open for ever. A path may lead through a directory's number. */
static void close_others(int kept)
{
	struct stat is;

	for (int fd = 0; fd < 256; fd++)
		if (fd != kept && !fstat(fd, &is) && !S_ISDIR(is.st_mode))
			close(fd);
}

/* A process that waits for tracefs, in the directory of notes: its number and its start. While it waits, nobody else has to. */
#define SILENT "tracefs-silent"

static bool is_silent(void)
{
	char path[FS_PATH_MAX];
	const char *dir = access(fs_path(path, sizeof(path), "/run/flashscope/" SILENT), F_OK) ? NULL : fs_run_dir();
	char *text = dir ? fs_note_read(dir, SILENT, NULL) : NULL;
	char *line = text ? strstr(text, "waits ") : NULL;
	unsigned long long start;
	int pid;
	bool waits = line && sscanf(line, "waits %d %llu", &pid, &start) == 2 && fs_owner_alive(pid, start);

	snprintf(path, sizeof(path), "%.400s/" SILENT, dir ? dir : "");
	if (text && !waits)
		unlink(path);
	free(text);
	return waits;
}

static void note_silent(pid_t child)
{
	char line[64];

	snprintf(line, sizeof(line), "waits %d %" PRIu64 "\n", (int)child, fs_starttime(child));
	if (fs_run_dir())
		fs_note_append(fs_run_dir(), SILENT, line);
}

/* Whether `path` can be opened for writing: 0, an errno, or ETIMEDOUT where the kernel does not answer. */
static int can_open(const char *path)
{
	struct fs_helper helper;
	struct pollfd answer = { .events = POLLIN };
	int fd, ready, error = ETIMEDOUT;
	pid_t child;

	if (is_silent())
		return error;
	child = fs_helper_fork(&helper, SOCK_STREAM);
	if (child <= 0) {
		if (!child)
			close_others(helper.fd);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		error = fd < 0 ? errno : 0;
		if (!child)
			_exit(write(helper.fd, &error, sizeof(error)) != sizeof(error));
		if (fd >= 0)
			close(fd);
		return error;
	}
	answer.fd = helper.fd;
	while ((ready = poll(&answer, 1, ANSWERS_MS)) < 0 && errno == EINTR)
		;
	if (ready > 0 && read(helper.fd, &error, sizeof(error)) != sizeof(error))
		error = ESRCH;
	if (error == ETIMEDOUT)
		note_silent(child);
	fs_helper_end(&helper);
	return error;
}

/*
 * Usable: trace_clock can be opened for writing, or an administrator has lent
 * the rest. Mount points that are there but empty (nothing mounted) give ENOENT.
 */
static int try_place(struct fs_tracefs *tracefs, const char *place)
{
	char path[FS_PATH_MAX];
	int error;

	fs_path(path, sizeof(path), "%s/trace_clock", place);
	error = can_open(path);
	if (error == EACCES && lent(place))
		error = 0;
	if (error)
		return error;
	snprintf(tracefs->path, sizeof(tracefs->path), "%s", place);
	snprintf(tracefs->shown, sizeof(tracefs->shown), "%s", place);
	return 0;
}

/*
 * Tries each tracefs of the mount table: one below debugfs, which the kernel
 * mounts for whoever looks there, is closed to users to whom another one is
 * lent. 0, or why none is usable and, in `refused`, the last that is closed.
 */
static int try_mounted(struct fs_tracefs *tracefs, char *refused, size_t size)
{
	char path[FS_PATH_MAX];
	char *text = fs_read_text(fs_path(path, sizeof(path), "/proc/self/mounts"), NULL);
	char *save = NULL;
	int error = ENOENT;

	for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line && error && error != ETIMEDOUT;
	     line = strtok_r(NULL, "\n", &save)) {
		char where[128], type[32];
		int denied;

		if (sscanf(line, "%*s %127s %31s", where, type) != 2 || strcmp(type, "tracefs"))
			continue;
		denied = try_place(tracefs, where);
		if (denied != ENOENT)
			error = denied;
		if (denied && denied != ENOENT)
			snprintf(refused, size, "%s", where);
	}
	free(text);
	return error;
}

static bool kernel_knows_tracefs(void)
{
	char path[FS_PATH_MAX];
	char *text = fs_read_text(fs_path(path, sizeof(path), "/proc/filesystems"), NULL);
	bool knows = text && strstr(text, "\ttracefs\n");

	free(text);
	return knows;
}

/* In a child: a namespace with a tracefs, kept until the parent has opened it. 0, or an errno. */
static int hold_private_mount(int ready, int done)
{
	char byte;
	int error = 0;

	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("nodev", USUAL, "tracefs", 0, NULL))
		error = errno;
	if (write(ready, &error, sizeof(error)) == sizeof(error) && !error && read(done, &byte, 1) < 0)
		error = errno;
	return error;
}

/*
 * Mounts tracefs where nobody else sees it. A child's mount namespace holds it
 * only until this process has a descriptor of it, which then keeps it, so that
 * this process and its commands stay in their own namespace: neither their
 * mounts nor those of others are affected. 0, or an errno.
 */
static int mount_private(struct fs_tracefs *tracefs)
{
	static int kept = -1; /* one mount a process */
	int ready[2], done[2], error = EPIPE;
	char path[FS_PATH_MAX];
	pid_t child;

	if (kept < 0) {
		if (pipe2(ready, O_CLOEXEC))
			return errno;
		if (pipe2(done, O_CLOEXEC)) {
			error = errno;
			close(ready[0]);
			close(ready[1]);
			return error;
		}
		child = fork();
		if (!child) {
			close(ready[0]);
			close(done[1]);
			_exit(hold_private_mount(ready[1], done[0]));
		}
		close(ready[1]);
		close(done[0]);
		if (child < 0 || read(ready[0], &error, sizeof(error)) != sizeof(error))
			error = child < 0 ? errno : EPIPE;
		if (!error) {
			snprintf(path, sizeof(path), "/proc/%d/root" USUAL, (int)child);
			kept = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
			if (kept < 0)
				error = errno;
		}
		close(ready[0]);
		close(done[1]);
		if (child > 0)
			waitpid(child, NULL, 0);
		if (error)
			return error;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", kept);
	error = try_place(tracefs, path);
	if (!error) {
		snprintf(tracefs->shown, sizeof(tracefs->shown), USUAL);
		tracefs->private_mount = true;
	}
	return error;
}

bool fs_tracefs_find(struct fs_tracefs *tracefs, enum fs_tracefs_mount how)
{
	char where[128] = "";
	int error, mount_error = 0;

	memset(tracefs, 0, sizeof(*tracefs));
	error = try_mounted(tracefs, where, sizeof(where));
	if (!tracefs->path[0] && error == ENOENT)
		error = try_place(tracefs, USUAL);
	if (!tracefs->path[0] && error == ENOENT)
		error = try_place(tracefs, OLD);
	if (!tracefs->path[0] && error == ENOENT && how == FS_MOUNT_HERE) {
		char path[FS_PATH_MAX];

		fs_path(path, sizeof(path), USUAL);
		if (mount("nodev", path, "tracefs", 0, NULL))
			error = errno;
		else
			error = try_place(tracefs, USUAL);
	}
	if (!tracefs->path[0] && error == ENOENT && how == FS_MOUNT_PRIVATE && kernel_knows_tracefs())
		mount_error = mount_private(tracefs);
	if (!tracefs->path[0]) {
		if (error == EACCES || error == EPERM)
			snprintf(tracefs->error, sizeof(tracefs->error),
				 geteuid() ? "%s: permission denied; run as root, or let an administrator lend it "
					     "(docs/how-to/record-without-root.md)" :
					     "%s: permission denied even to root; is the kernel locked down, "
					     "or this a container without CAP_SYS_ADMIN?",
				 where[0] ? where : USUAL);
		else if (error == ETIMEDOUT)
			snprintf(tracefs->error, sizeof(tracefs->error),
				 "%s: no answer in %d s: a task died with a lock of it (dmesg tells which); only a "
				 "reboot helps", where[0] ? where : USUAL, ANSWERS_MS / 1000);
		else if (!kernel_knows_tracefs())
			snprintf(tracefs->error, sizeof(tracefs->error),
				 "this kernel has no tracefs; it needs CONFIG_FTRACE");
		else if (mount_error == EPERM)
			snprintf(tracefs->error, sizeof(tracefs->error),
				 geteuid() ? "not mounted, and this user may not mount it; run as root, which mounts it for "
					     "itself, or let an administrator lend it (docs/how-to/record-without-root.md)" :
					     "not mounted, and this root may not mount it: CAP_SYS_ADMIN is missing, as in a "
					     "container; add it, or once outside: mount -t tracefs nodev " USUAL);
		else if (mount_error)
			snprintf(tracefs->error, sizeof(tracefs->error),
				 "not mounted, and mounting it for this process alone failed: %s; "
				 "as root: mount -t tracefs nodev " USUAL,
				 strerror(mount_error));
		else if (error == ENOENT)
			snprintf(tracefs->error, sizeof(tracefs->error),
				 "not mounted; mount -t tracefs nodev " USUAL);
		else
			snprintf(tracefs->error, sizeof(tracefs->error), "%s: %s",
				 where[0] ? where : USUAL, strerror(error));
		return false;
	}
	fs_tracefs_path(tracefs, where, sizeof(where), "instances");
	tracefs->instances = !access(where, W_OK);
	fs_tracefs_path(tracefs, where, sizeof(where), "kprobe_events");
	tracefs->kprobe_events = !access(where, W_OK);
	return true;
}

const char *fs_tracefs_path(const struct fs_tracefs *tracefs, char *out, size_t size,
			    const char *format, ...)
{
	char below[FS_PATH_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(below, sizeof(below), format, args);
	va_end(args);
	return fs_path(out, size, "%s/%s", tracefs->path, below);
}

int fs_tracefs_write(const struct fs_tracefs *tracefs, const char *text, const char *format, ...)
{
	char below[FS_PATH_MAX], path[FS_PATH_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(below, sizeof(below), format, args);
	va_end(args);
	return fs_write_text(fs_tracefs_path(tracefs, path, sizeof(path), "%s", below), text);
}

char *fs_tracefs_read(const struct fs_tracefs *tracefs, const char *format, ...)
{
	char below[FS_PATH_MAX], path[FS_PATH_MAX];
	va_list args;

	va_start(args, format);
	vsnprintf(below, sizeof(below), format, args);
	va_end(args);
	return fs_read_text(fs_tracefs_path(tracefs, path, sizeof(path), "%s", below), NULL);
}

/* Never O_TRUNC: that deletes the probes of everyone (kernel/trace/trace_kprobe.c, probes_open). */
int fs_kprobe(const struct fs_tracefs *tracefs, const char *definition)
{
	char path[FS_PATH_MAX];
	struct fs_buf line = { 0 };
	int result, saved;

	fs_buf_printf(&line, "%s\n", definition);
	result = fs_append_text(fs_tracefs_path(tracefs, path, sizeof(path), "kprobe_events"),
				line.data);
	saved = errno;
	fs_buf_free(&line);
	errno = saved;
	return result;
}

unsigned int fs_kprobe_remove_group(const struct fs_tracefs *tracefs, const char *group,
				    unsigned int *failed)
{
	char *text = fs_tracefs_read(tracefs, "kprobe_events");
	unsigned int removed = 0;
	char *save = NULL;
	size_t length = strlen(group);

	/* Lines look like "p:group/event symbol+0 …" or "r64:group/event …". */
	for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line;
	     line = strtok_r(NULL, "\n", &save)) {
		char definition[256];
		char *name = strchr(line, ':');
		char *end;

		if (!name || strncmp(name + 1, group, length) || name[1 + length] != '/')
			continue;
		name++;
		end = name + strcspn(name, " ");
		*end = '\0';
		snprintf(definition, sizeof(definition), "-:%s", name);
		if (!fs_kprobe(tracefs, definition))
			removed++;
		else if (errno != ENOENT && failed) /* two probes of one event go together */
			(*failed)++;
	}
	free(text);
	return removed;
}

bool fs_parse_header_page(const char *text, struct fs_page_layout *layout)
{
	const char *commit = strstr(text, " commit;");
	const char *data = strstr(text, " data;");
	unsigned int offset, size;

	if (!commit || !data)
		return false;
	if (sscanf(commit, " commit; offset:%u; size:%u;", &offset, &size) != 2 || offset != 8 ||
	    (size != 4 && size != 8))
		return false;
	layout->long_size = (uint8_t)size;
	if (sscanf(data, " data; offset:%u; size:%u;", &offset, &size) != 2 ||
	    offset < 8u + layout->long_size || offset > 64 || size < 64 || size > (1u << 20))
		return false;
	layout->data_offset = offset;
	layout->size = offset + size;
	return true;
}

static uint32_t commit_of(const unsigned char *subbuf, const struct fs_page_layout *layout)
{
	uint32_t commit;

	if (layout->long_size == 8) {
		uint64_t wide;

		memcpy(&wide, subbuf + 8, 8);
		commit = (uint32_t)wide;
	} else {
		memcpy(&commit, subbuf + 8, 4);
	}
	return commit;
}

bool fs_subbuf_missed(const unsigned char *subbuf, const struct fs_page_layout *layout)
{
	/* kernel/trace/ring_buffer.c, RB_MISSED_EVENTS. */
	return commit_of(subbuf, layout) >> 31;
}

size_t fs_subbuf_used(const unsigned char *subbuf, size_t size, const struct fs_page_layout *layout)
{
	/* Flags in the commit word: kernel/trace/ring_buffer.c, RB_MISSED_EVENTS and RB_MISSED_STORED. */
	const uint32_t stored = 1u << 30;
	uint32_t commit;
	size_t used;

	if (size < layout->data_offset)
		return (size_t)-1;
	commit = commit_of(subbuf, layout);
	used = layout->data_offset + (commit & 0xfffffu);
	if (used == layout->data_offset && !(commit & ~0xfffffu))
		return 0;
	if (commit & stored)
		used += layout->long_size;
	return used > size ? (size_t)-1 : used;
}

void fs_subbuf_walk(const unsigned char *subbuf, size_t used, const struct fs_page_layout *layout, fs_event_fn each,
		    void *data)
{
	size_t at = layout->data_offset;
	uint64_t time_ns = 0;

	if (used < at)
		return;
	memcpy(&time_ns, subbuf, 8);

	/* include/linux/ring_buffer.h: 5 bits type_len, 27 bits time_delta, then array[]. */
	while (at + 4 <= used) {
		uint32_t header, type, delta, array = 0;
		size_t begin, length;

		memcpy(&header, subbuf + at, 4);
#if __BYTE_ORDER == __LITTLE_ENDIAN
		type = header & 31;
		delta = header >> 5;
#else
		type = header >> 27;
		delta = header & 0x7ffffff;
#endif
		if (at + 8 <= used)
			memcpy(&array, subbuf + at + 4, 4);
		if (type == 30 || type == 31) { /* time extend, time stamp */
			uint64_t wide = (uint64_t)array << 27 | delta;

			/* A stamp lacks the highest 5 bits (kernel/trace/ring_buffer.c, rb_fix_abs_ts). */
			time_ns = type == 30 ? time_ns + wide : wide | (time_ns & UINT64_C(0xf800000000000000));
			at += 8;
			continue;
		}
		if (type == 29) { /* padding: to the end, or a discarded event */
			if (!delta)
				return;
			time_ns += delta;
			at += 4 + (size_t)array;
			continue;
		}
		if (type) {
			begin = at + 4;
			length = (size_t)type * 4;
		} else {
			if (array < 4)
				return;
			begin = at + 8;
			length = (size_t)array - 4;
		}
		if (length > used || begin > used - length)
			return;
		time_ns += delta;
		each(data, time_ns, subbuf + begin, length);
		at = begin + ((length + 3) & ~(size_t)3);
	}
}

size_t fs_subbuf_forget_missed(unsigned char *subbuf, size_t used, const struct fs_page_layout *layout)
{
	/* kernel/trace/ring_buffer.c, RB_MISSED_EVENTS and RB_MISSED_STORED. */
	const uint32_t flags = 3u << 30, stored = 1u << 30;
	const bool wide = layout->long_size == 8;
	uint32_t commit = commit_of(subbuf, layout);
	uint64_t long_commit;

	if (commit & stored && used >= layout->data_offset + layout->long_size)
		used -= layout->long_size;
	commit &= ~flags;
	long_commit = commit;
	if (wide)
		memcpy(subbuf + 8, &long_commit, 8);
	else
		memcpy(subbuf + 8, &commit, 4);
	return used;
}

static bool stat_line(const char *text, const char *name, uint64_t *value)
{
	size_t length = strlen(name);

	for (const char *line = text; line && *line;) {
		const char *next = strchr(line, '\n');

		if (!strncmp(line, name, length) && line[length] == ':')
			return sscanf(line + length + 1, " %" SCNu64, value) == 1;
		line = next ? next + 1 : NULL;
	}
	return false;
}

void fs_parse_cpu_stats(const char *text, struct fs_cpu_stats *stats)
{
	memset(stats, 0, sizeof(*stats));
	stats->has_entries = stat_line(text, "entries", &stats->entries);
	stats->has_overrun = stat_line(text, "overrun", &stats->overrun);
	stats->has_commit_overrun = stat_line(text, "commit overrun", &stats->commit_overrun);
	stats->has_bytes = stat_line(text, "bytes", &stats->bytes);
	stats->has_dropped = stat_line(text, "dropped events", &stats->dropped);
	stats->has_read = stat_line(text, "read events", &stats->read);
}

static const char *next_line(const char *line)
{
	const char *end = strchr(line, '\n');

	return end ? end + 1 : line + strlen(line);
}

bool fs_parse_kprobe_profile(const char *events, const char *profile, const char *group,
			     const char *event, uint64_t *hits, uint64_t *misses)
{
	bool found = false;

	*hits = *misses = 0;
	for (; *events && *profile; events = next_line(events), profile = next_line(profile)) {
		char its_group[80], its_event[80], name[80];
		uint64_t hit, miss;

		if (sscanf(events, "%*[^:]:%79[^/]/%79s", its_group, its_event) != 2 ||
		    sscanf(profile, " %79s %" SCNu64 " %" SCNu64, name, &hit, &miss) != 3 ||
		    strcmp(its_event, name))
			return false;
		if (strcmp(its_group, group) || strcmp(its_event, event))
			continue;
		*hits += hit;
		*misses += miss;
		found = true;
	}
	return found && !*events && !*profile;
}

/* 4.5 KiB an event were measured on armv7 and 6.6 KiB on x86_64, both 6.1. */
uint64_t fs_instance_files_kib(const struct fs_tracefs *tracefs)
{
	unsigned int major = 0, minor = 0;
	struct utsname name;
	uint64_t events = 0;
	char *list;

	if (uname(&name) || sscanf(name.release, "%u.%u", &major, &minor) != 2 || major > 6 || (major == 6 && minor >= 6))
		return 0;
	list = fs_tracefs_read(tracefs, "available_events");
	for (const char *at = list; at && (at = strchr(at, '\n')) != NULL; at++)
		events++;
	free(list);
	return events * (sizeof(long) == 8 ? 7 : 5);
}
