// SPDX-License-Identifier: Apache-2.0
#include "trigger.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "groups.h"
#include "util.h"

/* 5,000 requests a second are some 70 KiB in a tenth of one. */
#define WATCH_RING_KIB 256
#define SECOND UINT64_C(1000000000)
/* What is still in flight is believed once two more readings have not shown its end. */
#define LATE_NS UINT64_C(250000000)
/* Clocks of two CPUs of a virtual machine: a completion may be stamped before its issue. */
#define SKEW_NS UINT64_C(1000000)
/* Of events that were read and not followed; two seconds of a fast device. */
#define MOST_READ (1u << 18)

const char fs_trigger_grammar[] =
	"'d2c>TIME' (a request is with its device for longer), 'fsync>TIME' (a sync takes longer), 'error' (a request fails), "
	"'psi-io>N%' (tasks wait for I/O for N % of a second), 'run CMD' (CMD ends with 0; it is run once a second); "
	"TIME is a whole number with us, ms or s, as 50ms; N is 1 to 100";

static bool parse_time(const char *text, uint64_t *ns)
{
	static const struct {
		const char *unit;
		uint64_t ns;
	} units[] = { { "us", 1000 }, { "ms", 1000000 }, { "s", SECOND } };
	char number[16];
	size_t digits = strspn(text, "0123456789");
	uint64_t value;

	if (!digits || digits >= sizeof(number))
		return false;
	memcpy(number, text, digits);
	number[digits] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (!strcmp(text + digits, units[i].unit) && fs_parse_u64(number, 3600 * SECOND / units[i].ns, &value) &&
		    value) {
			*ns = value * units[i].ns;
			return true;
		}
	return false;
}

/* N% of a second. */
static bool parse_percent(const char *text, uint64_t *ns)
{
	char number[4];
	size_t digits = strspn(text, "0123456789");
	uint64_t percent;

	if (!digits || digits >= sizeof(number) || strcmp(text + digits, "%"))
		return false;
	memcpy(number, text, digits);
	number[digits] = '\0';
	if (!fs_parse_u64(number, 100, &percent) || !percent)
		return false;
	*ns = percent * (SECOND / 100);
	return true;
}

bool fs_trigger_parse(const char *text, struct fs_trigger *trigger)
{
	memset(trigger, 0, sizeof(*trigger));
	trigger->text = text;
	if (!strncmp(text, "d2c>", 4)) {
		trigger->kind = FS_TRIGGER_D2C;
		return parse_time(text + 4, &trigger->limit_ns);
	}
	if (!strncmp(text, "fsync>", 6)) {
		trigger->kind = FS_TRIGGER_FSYNC;
		return parse_time(text + 6, &trigger->limit_ns);
	}
	if (!strcmp(text, "error")) {
		trigger->kind = FS_TRIGGER_ERROR;
		return true;
	}
	if (!strncmp(text, "run ", 4)) {
		trigger->kind = FS_TRIGGER_RUN;
		trigger->command = text + 4;
		return trigger->command[strspn(trigger->command, " ")] != '\0';
	}
	trigger->kind = FS_TRIGGER_PSI;
	return !strncmp(text, "psi-io>", 7) && parse_percent(text + 7, &trigger->limit_ns);
}

/* --- firing ------------------------------------------------------------- */

static bool fire(struct fs_watch *watch, uint64_t task, uint64_t began_ns, uint64_t at_ns, const char *format, ...)
	__attribute__((format(printf, 5, 6)));

/* Whether the next capture is of it: only the first one is. */
static bool fire(struct fs_watch *watch, uint64_t task, uint64_t began_ns, uint64_t at_ns, const char *format, ...)
{
	va_list args;

	watch->times++;
	if (watch->fired)
		return false;
	watch->fired = true;
	watch->task = task;
	watch->fired_ns = at_ns;
	watch->began_ns = began_ns;
	va_start(args, format);
	vsnprintf(watch->reason, sizeof(watch->reason), format, args);
	va_end(args);
	return true;
}

/* "task 77 (logger)"; without the name where it is gone. */
static const char *task_name(uint64_t task, char *text, size_t size)
{
	char path[FS_PATH_MAX], *name = fs_read_value(fs_path(path, sizeof(path), "/proc/%" PRIu64 "/comm", task));

	if (name && *name)
		snprintf(text, size, "task %" PRIu64 " (%.32s)", task, name);
	else
		snprintf(text, size, "task %" PRIu64, task);
	free(name);
	return text;
}

static const struct fs_trigger *of_kind(const struct fs_watch *watch, enum fs_trigger_kind kind)
{
	for (size_t i = 0; i < watch->count; i++)
		if (watch->triggers[i].kind == kind)
			return &watch->triggers[i];
	return NULL;
}

static double ms(uint64_t ns)
{
	return (double)ns / 1e6;
}

/* "a request to 8:0 at sector 64" */
static const char *request_name(uint64_t dev, uint64_t sector, char *text, size_t size)
{
	unsigned int major = (unsigned int)(dev >> 20), minor = (unsigned int)(dev & 0xfffff);

	if (sector == FS_NO_SECTOR)
		snprintf(text, size, "a request without sectors (as a flush) to %u:%u", major, minor);
	else
		snprintf(text, size, "a request to %u:%u at sector %" PRIu64, major, minor, sector);
	return text;
}

static void request_took(struct fs_watch *watch, uint64_t dev, uint64_t sector, uint64_t begin_ns, uint64_t end_ns)
{
	const struct fs_trigger *trigger = of_kind(watch, FS_TRIGGER_D2C);
	char name[96];

	if (trigger && end_ns > begin_ns && end_ns - begin_ns > trigger->limit_ns)
		fire(watch, 0, begin_ns, end_ns, "%s: %s took %.1f ms", trigger->text,
		     request_name(dev, sector, name, sizeof(name)), ms(end_ns - begin_ns));
}

static void sync_took(struct fs_watch *watch, uint64_t task, uint64_t begin_ns, uint64_t end_ns)
{
	const struct fs_trigger *trigger = of_kind(watch, FS_TRIGGER_FSYNC);
	char name[64];

	if (trigger && end_ns > begin_ns && end_ns - begin_ns > trigger->limit_ns)
		fire(watch, task, begin_ns, end_ns, "%s: a sync of %s took %.1f ms", trigger->text,
		     task_name(task, name, sizeof(name)), ms(end_ns - begin_ns));
}

/* --- pairs -------------------------------------------------------------- */

static struct fs_pending *find(struct fs_pending *items, size_t count, uint64_t a, uint64_t b)
{
	for (size_t i = 0; i < count; i++)
		if (items[i].key_a == a && items[i].key_b == b)
			return &items[i];
	return NULL;
}

static void add(struct fs_pending *items, size_t *count, size_t most, uint64_t a, uint64_t b, uint64_t begin_ns)
{
	struct fs_pending *there = find(items, *count, a, b);

	if (!there && *count == most) {
		/* The oldest makes room: its end was lost. */
		memmove(items, items + 1, (most - 1) * sizeof(*items));
		--*count;
	}
	if (!there)
		there = &items[(*count)++];
	*there = (struct fs_pending){ .key_a = a, .key_b = b, .begin_ns = begin_ns };
}

static void drop(struct fs_pending *items, size_t *count, struct fs_pending *item)
{
	*item = items[--*count];
}

/* Whether its end has not been reported yet. */
static bool ends_untold(const struct fs_watch *watch, const struct fs_pending *item)
{
	return !item->told && !(item->counted && watch->fired);
}

static uint64_t number(const unsigned char *data, size_t length, struct fs_field field)
{
	uint64_t wide = 0;
	uint32_t narrow;

	if (!field.known || (size_t)field.offset + field.size > length)
		return 0;
	if (field.size == 8) {
		memcpy(&wide, data + field.offset, 8);
		return wide;
	}
	memcpy(&narrow, data + field.offset, 4);
	return narrow;
}

static void issued(struct fs_watch *watch, uint64_t dev, uint64_t sector, uint64_t time_ns)
{
	struct fs_pending *end = NULL;

	/* Hardly ever is one so near. */
	if (watch->early_ns + SKEW_NS >= time_ns)
		end = find(watch->early, ARRAY_SIZE(watch->early), dev, sector);
	if (end && end->begin_ns + SKEW_NS >= time_ns)
		*end = (struct fs_pending){ 0 };
	else
		add(watch->requests, &watch->request_count, ARRAY_SIZE(watch->requests), dev, sector, time_ns);
}

static void completed(struct fs_watch *watch, uint64_t dev, uint64_t sector, uint64_t time_ns)
{
	struct fs_pending *begin = find(watch->requests, watch->request_count, dev, sector), *end;

	if (begin) {
		if (ends_untold(watch, begin))
			request_took(watch, dev, sector, begin->begin_ns, time_ns);
		drop(watch->requests, &watch->request_count, begin);
		return;
	}
	end = find(watch->early, ARRAY_SIZE(watch->early), dev, sector);
	if (!end)
		end = &watch->early[watch->early_at++ % ARRAY_SIZE(watch->early)];
	*end = (struct fs_pending){ .key_a = dev, .key_b = sector, .begin_ns = time_ns };
	watch->early_ns = time_ns;
}

static void synced(struct fs_watch *watch, uint16_t id, uint64_t task, uint64_t time_ns)
{
	struct fs_pending *begin;

	for (size_t i = 0; i < watch->sync_events; i++) {
		if (id == watch->sync_enter[i])
			add(watch->syncs, &watch->sync_count, ARRAY_SIZE(watch->syncs), task, 0, time_ns);
		if (id != watch->sync_exit[i])
			continue;
		begin = find(watch->syncs, watch->sync_count, task, 0);
		if (begin) {
			if (ends_untold(watch, begin))
				sync_took(watch, task, begin->begin_ns, time_ns);
			drop(watch->syncs, &watch->sync_count, begin);
		}
	}
}

static void follow(struct fs_watch *watch, const struct fs_watched *event)
{
	char name[96];

	if (event->id == watch->issue_id) {
		issued(watch, event->key_a, event->key_b, event->time_ns);
		return;
	}
	if (event->id != watch->complete_id) {
		synced(watch, event->id, event->key_a, event->time_ns);
		return;
	}
	if (of_kind(watch, FS_TRIGGER_ERROR) && event->error)
		fire(watch, 0, event->time_ns, event->time_ns, "error: %s ended with %d",
		     request_name(event->key_a, event->key_b, name, sizeof(name)), event->error);
	/* After its flushes a request that asked for them ends once more, with no sectors. */
	if (of_kind(watch, FS_TRIGGER_D2C) && (event->sectors || event->key_b == FS_NO_SECTOR))
		completed(watch, event->key_a, event->key_b, event->time_ns);
}

void fs_watch_event(struct fs_watch *watch, uint64_t time_ns, const unsigned char *event, size_t length)
{
	struct fs_watched read = { .time_ns = time_ns };
	uint32_t task;

	if (length < 8)
		return;
	memcpy(&read.id, event, 2);
	memcpy(&task, event + 4, 4);
	read.key_a = task;
	if (read.id == watch->issue_id || read.id == watch->complete_id) {
		read.key_a = number(event, length, watch->dev);
		read.key_b = number(event, length, watch->sector);
		read.sectors = (uint32_t)number(event, length, watch->sectors);
	}
	/* A flush is issued at sector 0 and ends at 2^64 - 1 (blk_rq_trace_sector() in include/linux/blktrace_api.h). */
	if (read.id == watch->issue_id && !read.sectors)
		read.key_b = FS_NO_SECTOR;
	if (read.id == watch->complete_id)
		read.error = (int32_t)number(event, length, watch->error);
	fs_watch_read(watch, &read);
}

static void one(void *data, uint64_t time_ns, const unsigned char *event, size_t length)
{
	fs_watch_event(data, time_ns, event, length);
}

void fs_watch_read(struct fs_watch *watch, const struct fs_watched *event)
{
	if (watch->read_count == watch->read_room) {
		size_t room = watch->read_room ? 2 * watch->read_room : 1024;
		struct fs_watched *more = room > MOST_READ ? NULL : realloc(watch->read, room * sizeof(*more));

		if (!more) {
			fs_warn("--trigger: %zu events at once are too many: some are not watched", watch->read_count);
			watch->read_count = 0;
		} else {
			watch->read = more;
			watch->read_room = room;
		}
		if (!watch->read)
			return;
	}
	watch->read[watch->read_count++] = *event;
}

static int by_time(const void *a, const void *b)
{
	const struct fs_watched *x = a, *y = b;

	return (x->time_ns > y->time_ns) - (x->time_ns < y->time_ns);
}

/*
 * What has not ended yet and takes too long already: a device that hangs completes nothing. What another one's capture may not
 * hold to its end has one of its own after it.
 */
static void in_flight(struct fs_watch *watch, struct fs_pending *items, size_t count, const struct fs_trigger *trigger,
		      uint64_t now)
{
	for (size_t i = 0; trigger && i < count; i++) {
		struct fs_pending *item = &items[i];
		const bool is_sync = trigger->kind == FS_TRIGGER_FSYNC;
		char what[96], name[64];

		if (!ends_untold(watch, item) || now <= item->begin_ns || now - item->begin_ns <= trigger->limit_ns + LATE_NS)
			continue;
		if (is_sync)
			snprintf(what, sizeof(what), "a sync of %s", task_name(item->key_a, name, sizeof(name)));
		else
			request_name(item->key_a, item->key_b, what, sizeof(what));
		item->counted = true;
		item->told = fire(watch, is_sync ? item->key_a : 0, item->begin_ns, now, "%s: %s has taken %.1f ms and is not done",
				  trigger->text, what, ms(now - item->begin_ns));
	}
}

/* --- pressure and commands ---------------------------------------------- */

static void look_at_pressure(struct fs_watch *watch, uint64_t now)
{
	struct pollfd fd = { .fd = watch->psi, .events = POLLPRI };

	if (watch->psi >= 0 && poll(&fd, 1, 0) > 0 && fd.revents & POLLPRI)
		fire(watch, 0, now, now, "%s: tasks waited for I/O for that much of a second", of_kind(watch, FS_TRIGGER_PSI)->text);
}

static void look_at_command(struct fs_watch *watch, uint64_t now)
{
	const struct fs_trigger *trigger = of_kind(watch, FS_TRIGGER_RUN);
	int status, null;

	if (!trigger)
		return;
	if (watch->command > 0) {
		if (waitpid(watch->command, &status, WNOHANG) != watch->command)
			return;
		watch->command = 0;
		if (WIFEXITED(status) && !WEXITSTATUS(status))
			fire(watch, 0, now, now, "%s: it ended with 0", trigger->text);
	}
	if (now < watch->command_next_ns)
		return;
	watch->command_next_ns = now + SECOND;
	watch->command = fork();
	if (!watch->command) {
		for (int signal_number = 1; signal_number < 32; signal_number++)
			signal(signal_number, SIG_DFL);
		/* It ends with the recorder, like all children of it. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setpgid(0, 0);
		/* stdin and stdout are the stream's. */
		null = open("/dev/null", O_RDONLY);
		if (null >= 0)
			dup2(null, STDIN_FILENO);
		dup2(STDERR_FILENO, STDOUT_FILENO);
		execl("/bin/sh", "sh", "-c", trigger->command, (char *)NULL);
		_exit(127);
	}
}

/*
 * CPUs are read one after the other. Taken as they come, the issue and the completion of a sector on the second CPU would follow
 * its next issue on the first one, and end that one: what hangs would not be in flight.
 */
void fs_watch_follow(struct fs_watch *watch, uint64_t until_ns)
{
	size_t i = 1;

	/* Of one CPU they are in order. */
	while (i < watch->read_count && watch->read[i - 1].time_ns <= watch->read[i].time_ns)
		i++;
	if (i < watch->read_count)
		qsort(watch->read, watch->read_count, sizeof(*watch->read), by_time);
	i = 0;
	while (i < watch->read_count && watch->read[i].time_ns <= until_ns)
		follow(watch, &watch->read[i++]);
	if (i)
		memmove(watch->read, watch->read + i, (watch->read_count - i) * sizeof(*watch->read));
	watch->read_count -= i;
	in_flight(watch, watch->requests, watch->request_count, of_kind(watch, FS_TRIGGER_D2C), until_ns);
	in_flight(watch, watch->syncs, watch->sync_count, of_kind(watch, FS_TRIGGER_FSYNC), until_ns);
}

void fs_watch_look(struct fs_watch *watch)
{
	/* What comes while the CPUs are read is followed next time. */
	uint64_t now = fs_now_ns();

	fs_ring_each(&watch->ring, one, watch);
	fs_watch_follow(watch, now);
	now = fs_now_ns();
	look_at_pressure(watch, now);
	look_at_command(watch, now);
}

void fs_watch_again(struct fs_watch *watch)
{
	watch->fired = false;
	watch->times = 0;
	for (size_t i = 0; i < watch->request_count; i++)
		watch->requests[i].counted = false;
	for (size_t i = 0; i < watch->sync_count; i++)
		watch->syncs[i].counted = false;
}

/* --- arming ------------------------------------------------------------- */

static char *format_of(const struct fs_ring *ring, const char *system, const char *event)
{
	return fs_tracefs_read(ring->tracefs, "events/%s/%s/format", system, event);
}

static int watch_requests(struct fs_watch *watch, struct fs_filter *filter, char *error, size_t size)
{
	bool times = of_kind(watch, FS_TRIGGER_D2C), errors = of_kind(watch, FS_TRIGGER_ERROR);
	char *issue = format_of(&watch->ring, "block", "block_rq_issue");
	char *complete = format_of(&watch->ring, "block", "block_rq_complete");
	struct fs_events events = { 0 };
	int result = 0;

	if (!times && !errors)
		goto out;
	if (!issue || !complete || !fs_format_id(issue, &watch->issue_id) || !fs_format_id(complete, &watch->complete_id)) {
		snprintf(error, size, "--trigger: this kernel has no block_rq_issue and block_rq_complete; it needs CONFIG_BLOCK");
		result = -1;
		goto out;
	}
	/* Both have them at the same place (include/trace/events/block.h). */
	watch->dev = fs_format_field(complete, "dev");
	watch->sector = fs_format_field(complete, "sector");
	watch->sectors = fs_format_field(complete, "nr_sector");
	watch->error = fs_format_field(complete, strstr(complete, " error;") ? "error" : "errors");
	if (times)
		fs_events_add(&events, "block", "block_rq_issue", NULL);
	fs_events_add(&events, "block", "block_rq_complete",
		      times ? NULL : strstr(complete, " error;") ? "error != 0" : "errors != 0");
	fs_filter_apply(filter, watch->ring.tracefs, &events, &(struct fs_probes){ .count = 0 });
	for (size_t i = 0; i < events.count && !result; i++) {
		result = fs_ring_enable(&watch->ring, "block", events.items[i].event, events.items[i].filter);
		if (result)
			snprintf(error, size, "--trigger: event %s: %s", events.items[i].event, strerror(errno));
	}
	fs_events_free(&events);
out:
	free(issue);
	free(complete);
	return result;
}

static int watch_syncs(struct fs_watch *watch, char *error, size_t size)
{
	static const char *const calls[] = { "fsync", "fdatasync", "syncfs", "sync", "msync", "sync_file_range",
					     "sync_file_range2" };
	char own[FS_OWN_FILTER];

	if (!of_kind(watch, FS_TRIGGER_FSYNC))
		return 0;
	/* A capture's own sync is not the next one's reason. */
	fs_own_filter(own, sizeof(own), getpid());
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		char enter[48], leave[48];
		char *a, *b;
		size_t n = watch->sync_events;

		snprintf(enter, sizeof(enter), "sys_enter_%s", calls[i]);
		snprintf(leave, sizeof(leave), "sys_exit_%s", calls[i]);
		a = format_of(&watch->ring, "syscalls", enter);
		b = format_of(&watch->ring, "syscalls", leave);
		if (a && b && fs_format_id(a, &watch->sync_enter[n]) && fs_format_id(b, &watch->sync_exit[n]) &&
		    !fs_ring_enable(&watch->ring, "syscalls", enter, own) &&
		    !fs_ring_enable(&watch->ring, "syscalls", leave, own))
			watch->sync_events++;
		free(a);
		free(b);
	}
	if (watch->sync_events)
		return 0;
	snprintf(error, size, "--trigger fsync: this kernel has no events of calls; it needs CONFIG_FTRACE_SYSCALLS");
	return -1;
}

static int watch_pressure(struct fs_watch *watch, char *error, size_t size)
{
	const struct fs_trigger *trigger = of_kind(watch, FS_TRIGGER_PSI);
	char path[FS_PATH_MAX], text[64];

	if (!trigger)
		return 0;
	watch->psi = open(fs_path(path, sizeof(path), "/proc/pressure/io"), O_RDWR | O_NONBLOCK | O_CLOEXEC);
	snprintf(text, sizeof(text), "some %" PRIu64 " 1000000", trigger->limit_ns / 1000);
	if (watch->psi >= 0 && write(watch->psi, text, strlen(text) + 1) >= 0)
		return 0;
	/* psi.c, psi_trigger_create() (6.4): without CAP_SYS_RESOURCE a window is a multiple of two seconds. */
	snprintf(text, sizeof(text), "some %" PRIu64 " 2000000", trigger->limit_ns / 500);
	if (watch->psi >= 0 && errno == EINVAL && write(watch->psi, text, strlen(text) + 1) >= 0)
		return 0;
	snprintf(error, size, "--trigger %.40s: %s: %s; the kernel needs CONFIG_PSI (and psi=1 on its command line)",
		 trigger->text, path, strerror(errno));
	return -1;
}

int fs_watch_begin(struct fs_watch *watch, const struct fs_trigger *triggers, size_t count,
		   const struct fs_tracefs *tracefs, const struct fs_page_layout *layout, const char *name,
		   struct fs_filter *filter, char *error, size_t size)
{
	watch->triggers = triggers;
	watch->count = count;
	watch->psi = -1;
	if (fs_ring_make(&watch->ring, tracefs, name, FS_INSTANCE_TASKS, layout, WATCH_RING_KIB, false, error, size) ||
	    watch_requests(watch, filter, error, size) || watch_syncs(watch, error, size) ||
	    watch_pressure(watch, error, size) || fs_ring_open(&watch->ring, error, size))
		return -1;
	if (fs_ring_tracing(&watch->ring, true)) {
		snprintf(error, size, "--trigger: tracing_on: %s", strerror(errno));
		return -1;
	}
	return 0;
}

int fs_watch_end(struct fs_watch *watch)
{
	if (watch->psi > 0)
		close(watch->psi);
	if (watch->command > 0) {
		setpgid(watch->command, watch->command);
		kill(-watch->command, SIGKILL);
		kill(watch->command, SIGKILL);
		waitpid(watch->command, NULL, 0);
	}
	free(watch->read);
	watch->read = NULL;
	watch->read_count = watch->read_room = 0;
	return fs_ring_remove(&watch->ring);
}
