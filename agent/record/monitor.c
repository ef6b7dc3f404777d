// SPDX-License-Identifier: Apache-2.0
#include "monitor.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util.h"

#define STREAM "/proc/flashmon_stream"
#define STATUS "/proc/flashmon_status"
#define INPUT (256u << 10)
#define SUB_BUFFER 4096
/* A module that names more tasks than this is not the module described here. */
#define MAX_TASKS (1u << 20)

/* Event numbers of our own: tracefs has none for them. */
enum { RENAME = 1, FIRST = 10, DONE = 20 };

static const struct {
	const char *system, *event, *field;
} kinds[] = {
	[FLASHMON_READ] = { "flashscope", "nand_read", "page" },
	[FLASHMON_PROGRAM] = { "flashscope", "nand_program", "page" },
	[FLASHMON_ERASE] = { "flashscope", "nand_erase", "block" },
	[FLASHMON_CACHED] = { "flashmon", "mtd_cache_hit", "page" },
};

/* Of every event, as the kernel lays it out (include/linux/trace_events.h, struct trace_entry). */
struct common {
	uint16_t type;
	uint8_t flags, preempt_count;
	int32_t pid;
};

struct access {
	struct common common;
	uint32_t address;
};

struct rename {
	struct common common;
	int32_t pid;
	char old_name[16], new_name[16];
	int16_t oom_score_adj;
	int16_t unused;
};

static const char common_format[] =
	"\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
	"\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
	"\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
	"\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";

/* --- the module's files ------------------------------------------------- */

static int tell(const char *command)
{
	int fd = open(STATUS, O_WRONLY | O_CLOEXEC);
	int result = -1, error;

	if (fd < 0)
		return -1;
	if (write(fd, command, strlen(command)) == (ssize_t)strlen(command))
		result = 0;
	error = errno;
	close(fd);
	errno = error;
	return result;
}

/* The rest of the line that begins with "KEY: ", into value. */
static bool status_text(const char *status, const char *key, char *value, size_t size)
{
	size_t length = strlen(key);

	for (const char *line = status; line && *line;) {
		const char *next = strchr(line, '\n');
		size_t end = next ? (size_t)(next - line) : strlen(line);

		if (end > length + 2 && !strncmp(line, key, length) && !strncmp(line + length, ": ", 2)) {
			snprintf(value, size, "%.*s", (int)(end - length - 2), line + length + 2);
			return true;
		}
		line = next ? next + 1 : NULL;
	}
	return false;
}

static uint64_t status_number(const char *status, const char *key)
{
	char text[32];
	uint64_t value;

	return status_text(status, key, text, sizeof(text)) && fs_parse_u64(text, UINT64_MAX, &value) ? value : 0;
}

/* "read: SYMBOL LEVEL tried" */
static void describe_points(struct fs_monitor *monitor, const char *status, struct fs_probes *probes)
{
	static const char *const keys[] = { "read", "program", "erase" };
	bool loses = status_text(status, "loses", monitor->loses, sizeof(monitor->loses));

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		struct fs_probe *probe = &probes->items[probes->count];
		char line[96];

		if (!status_text(status, keys[i], line, sizeof(line)) &&
		    !status_text(status, "all", line, sizeof(line)))
			continue;
		if (sscanf(line, "%47s %15s", monitor->points[i].symbol, monitor->points[i].level) != 2)
			continue;
		snprintf(monitor->points[i].event, sizeof(monitor->points[i].event), "nand_%s", keys[i]);
		snprintf(monitor->points[i].operation, sizeof(monitor->points[i].operation), "%s", keys[i]);
		memset(probe, 0, sizeof(*probe));
		probe->event = monitor->points[i].event;
		probe->operation = monitor->points[i].operation;
		probe->symbol = monitor->points[i].symbol;
		probe->level = monitor->points[i].level;
		probe->loses = loses ? monitor->loses : NULL;
		snprintf(probe->definition, sizeof(probe->definition), "flashmon.ko");
		probes->count++;
	}
}

static int open_stream(struct fs_monitor *monitor, char *error, size_t size)
{
	struct flashmon_block block;
	ssize_t got;

	monitor->fd = open(STREAM, O_RDONLY | O_CLOEXEC);
	if (monitor->fd < 0) {
		snprintf(error, size, STREAM ": %s; %s", strerror(errno),
			 errno == EBUSY ? "another recorder drains it: stop that first" : "run as root");
		return -1;
	}
	got = read(monitor->fd, monitor->input, INPUT);
	if (got < (ssize_t)(sizeof(block) + sizeof(monitor->info))) {
		snprintf(error, size, STREAM ": it gives nothing; load another flashmon.ko");
		return -1;
	}
	memcpy(&block, monitor->input, sizeof(block));
	memcpy(&monitor->info, monitor->input + sizeof(block), sizeof(monitor->info));
	if (block.type != FLASHMON_INFO || monitor->info.magic != FLASHMON_MAGIC ||
	    monitor->info.version != FLASHMON_VERSION || !monitor->info.cpus || monitor->info.cpus > UINT16_MAX) {
		snprintf(error, size, STREAM ": is not version %d of the format; load the flashmon.ko of this release",
			 FLASHMON_VERSION);
		return -1;
	}
	return 0;
}

int fs_monitor_open(struct fs_monitor *monitor, uint8_t long_size, const int *mtd, size_t mtd_count,
		    bool duration, struct fs_mtd_list *list, struct fs_probes *probes, char *error,
		    size_t size)
{
	char *status = fs_read_text(STATUS, NULL);
	char state[32] = "";

	memset(monitor, 0, sizeof(*monitor));
	monitor->fd = -1;
	monitor->layout = (struct fs_page_layout){ long_size, 8u + long_size, SUB_BUFFER };
	if (!status) {
		snprintf(error, size, STATUS ": %s; %s", strerror(errno),
			 errno == ENOENT ? "load flashmon.ko (kernel/flashmon/README.md)" : "run as root");
		return -1;
	}
	status_text(status, "state", state, sizeof(state));
	monitor->was_stopped = !strcmp(state, "stopped");
	describe_points(monitor, status, probes);
	free(status);
	if (!strcmp(state, "nothing to trace")) {
		snprintf(error, size, "flashmon: has no device to trace; load its driver, then flashmon.ko");
		return -1;
	}
	monitor->input = fs_alloc(INPUT);
	if (open_stream(monitor, error, size))
		return -1;
	if (mtd_count && (mtd_count != 1 || monitor->info.mtd != mtd[0])) {
		snprintf(error, size, "--mtd: flashmon traces %s; load it with mtd=%d, for one partition",
			 monitor->info.mtd < 0 ? "a whole chip" : "another partition",
			 mtd[0]);
		return -1;
	}
	if (duration && !monitor->info.extended) {
		snprintf(error, size, "--detail duration: flashmon keeps none; load it with extended=1");
		return -1;
	}
	monitor->lost = fs_alloc(monitor->info.cpus * sizeof(*monitor->lost));
	monitor->taken = fs_alloc(monitor->info.cpus * sizeof(*monitor->taken));
	memset(monitor->lost, 0, monitor->info.cpus * sizeof(*monitor->lost));
	memset(monitor->taken, 0, monitor->info.cpus * sizeof(*monitor->taken));
	for (size_t i = 0; i < list->count; i++) {
		struct fs_mtd *device = &list->items[i];

		if (!fs_mtd_is_nand(device) || !device->writesize)
			continue;
		device->has_first_page = true;
		device->first_page = device->has_offset ? device->offset / device->writesize : 0;
	}
	return 0;
}

int fs_monitor_begin(struct fs_monitor *monitor)
{
	return (monitor->was_stopped ? tell("start") : 0) || tell("pause") || tell("reset") ? -1 : 0;
}

int fs_monitor_tracing(struct fs_monitor *monitor, bool on)
{
	(void)monitor;
	return tell(on ? "resume" : "pause");
}

void fs_monitor_close(struct fs_monitor *monitor)
{
	if (monitor->fd >= 0) {
		close(monitor->fd);
		tell(monitor->was_stopped ? "stop" : "start");
	}
	free(monitor->input);
	free(monitor->tasks);
	free(monitor->lost);
	free(monitor->taken);
	memset(monitor, 0, sizeof(*monitor));
	monitor->fd = -1;
}

/* --- formats ---------------------------------------------------------------- */

static int send_format(struct fs_stream *stream, const char *system, const char *event, unsigned int id,
		       const char *fields, const char *print)
{
	struct fs_buf head = { 0 }, text = { 0 };
	int result;

	fs_buf_append(&head, system, strlen(system) + 1);
	fs_buf_append(&head, event, strlen(event) + 1);
	fs_buf_printf(&text, "name: %s\nID: %u\nformat:\n%s%s\nprint fmt: %s\n", event, id, common_format, fields, print);
	result = fs_frame(stream, FS_FORMAT, head.data, head.length, text.data, text.length);
	fs_buf_free(&head);
	fs_buf_free(&text);
	return result;
}

int fs_monitor_formats(struct fs_monitor *monitor, struct fs_stream *stream)
{
	static const char header_event[] = "# compressed entry header\n\ttype_len    :    5 bits\n"
					   "\ttime_delta  :   27 bits\n\tarray       :   32 bits\n\n"
					   "\tpadding     : type == 29\n\ttime_extend : type == 30\n"
					   "\ttime_stamp : type == 31\n\tdata max type_len  == 28\n";
	static const char rename_fields[] =
		"\tfield:pid_t pid;\toffset:8;\tsize:4;\tsigned:1;\n"
		"\tfield:char oldcomm[16];\toffset:12;\tsize:16;\tsigned:0;\n"
		"\tfield:char newcomm[16];\toffset:28;\tsize:16;\tsigned:0;\n"
		"\tfield:short oom_score_adj;\toffset:44;\tsize:2;\tsigned:1;\n";
	const struct fs_page_layout *layout = &monitor->layout;
	struct fs_buf page = { 0 };
	int result;

	fs_buf_printf(&page,
		      "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n"
		      "\tfield: local_t commit;\toffset:8;\tsize:%u;\tsigned:1;\n"
		      "\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n"
		      "\tfield: char data;\toffset:%u;\tsize:%u;\tsigned:1;\n",
		      layout->long_size, layout->data_offset, layout->size - layout->data_offset);
	result = fs_frame(stream, FS_HEADER_PAGE, page.data, page.length, NULL, 0);
	fs_buf_free(&page);
	if (result || fs_frame(stream, FS_HEADER_EVENT, header_event, strlen(header_event), NULL, 0))
		return -1;
	for (unsigned int i = 0; i < ARRAY_SIZE(kinds); i++) {
		char fields[96], print[64], done[32];

		snprintf(fields, sizeof(fields), "\tfield:u32 %s;\toffset:8;\tsize:4;\tsigned:0;\n", kinds[i].field);
		snprintf(print, sizeof(print), "\"%s=%%u\", REC->%s", kinds[i].field, kinds[i].field);
		if (send_format(stream, kinds[i].system, kinds[i].event, FIRST + i, fields, print))
			return -1;
		snprintf(done, sizeof(done), "%s_done", kinds[i].event);
		if (monitor->info.extended && i != FLASHMON_CACHED &&
		    send_format(stream, kinds[i].system, done, DONE + i, fields, print))
			return -1;
	}
	return send_format(stream, "task", "task_rename", RENAME, rename_fields,
			   "\"pid=%d oldcomm=%s newcomm=%s oom_score_adj=%hd\", REC->pid, REC->oldcomm, REC->newcomm, "
			   "REC->oom_score_adj");
}

/* --- sub-buffers -------------------------------------------------------------- */

/* One that is being filled. */
struct sub_buffer {
	unsigned char bytes[SUB_BUFFER];
	size_t used; /* 0: it is not begun */
	uint64_t last; /* time of its last event */
	uint16_t cpu, instance;
};

static int emit(struct fs_monitor *monitor, struct fs_stream *stream, struct sub_buffer *out)
{
	const struct fs_data head = { .cpu = htole16(out->cpu), .instance = htole16(out->instance) };
	unsigned char *payload = fs_frame_payload(stream);
	size_t length = out->used;

	if (!length)
		return 0;
	if (monitor->layout.long_size == 8) {
		uint64_t commit = length - monitor->layout.data_offset;

		memcpy(out->bytes + 8, &commit, sizeof(commit));
	} else {
		uint32_t commit = (uint32_t)(length - monitor->layout.data_offset);

		memcpy(out->bytes + 8, &commit, sizeof(commit));
	}
	memcpy(payload, &head, sizeof(head));
	memcpy(payload + sizeof(head), out->bytes, length);
	out->used = 0;
	monitor->sub_buffers++;
	return fs_frame_commit(stream, FS_DATA_FOLDED, sizeof(head) + length);
}

/* include/linux/ring_buffer.h: 5 bits type_len, 27 bits time_delta, the first field in the lower bits of a little-endian kernel. */
static void put_header(struct sub_buffer *out, uint32_t type, uint32_t delta)
{
#if __BYTE_ORDER == __LITTLE_ENDIAN
	uint32_t word = type | delta << 5;
#else
	uint32_t word = type << 27 | delta;
#endif

	memcpy(out->bytes + out->used, &word, sizeof(word));
	out->used += sizeof(word);
}

/* `size` is a multiple of four, and at most 112. */
static int put_event(struct fs_monitor *monitor, struct fs_stream *stream, struct sub_buffer *out, uint64_t time,
		     const void *event, size_t size)
{
	uint64_t delta;

	if (out->used && (time < out->last || out->used + 12 + size > SUB_BUFFER) && emit(monitor, stream, out))
		return -1;
	if (!out->used) {
		memcpy(out->bytes, &time, sizeof(time));
		out->used = monitor->layout.data_offset;
		out->last = time;
	}
	delta = time - out->last;
	out->last = time;
	if (delta >> 27) {
		const uint32_t high = (uint32_t)(delta >> 27);

		put_header(out, 30, (uint32_t)delta & 0x7ffffff);
		memcpy(out->bytes + out->used, &high, sizeof(high));
		out->used += sizeof(high);
		delta = 0;
	}
	put_header(out, (uint32_t)(size / 4), (uint32_t)delta);
	memcpy(out->bytes + out->used, event, size);
	out->used += size;
	return 0;
}

/* --- blocks of the stream ------------------------------------------------------ */

static bool keep_tasks(struct fs_monitor *monitor, const struct flashmon_block *block, const unsigned char *items)
{
	if (block->item != sizeof(struct flashmon_task) || block->first != monitor->task_count + UINT64_C(1) ||
	    block->count > MAX_TASKS - monitor->task_count)
		return false;
	monitor->tasks = fs_realloc(monitor->tasks, (monitor->task_count + block->count) * sizeof(*monitor->tasks));
	for (uint32_t i = 0; i < block->count; i++) {
		struct fs_monitor_task *task = &monitor->tasks[monitor->task_count++];

		memcpy(&task->task, items + (size_t)i * sizeof(task->task), sizeof(task->task));
		task->current = false;
	}
	return true;
}

/* The thread that an event names; where it is called otherwise than before, that is said first. */
static int task_of(struct fs_monitor *monitor, struct fs_stream *stream, struct sub_buffer *names, uint32_t number,
		   uint64_t time, int32_t *pid)
{
	struct rename rename = { .common = { .type = RENAME } };
	struct fs_monitor_task *task;

	*pid = 0;
	if (!number || number > monitor->task_count)
		return 0;
	task = &monitor->tasks[number - 1];
	*pid = (int32_t)task->task.pid;
	if (task->current)
		return 0;
	rename.common.pid = *pid;
	rename.pid = *pid;
	memcpy(rename.new_name, task->task.comm, sizeof(rename.new_name));
	memcpy(rename.old_name, task->task.comm, sizeof(rename.old_name));
	for (uint32_t i = 0; i < monitor->task_count; i++) {
		struct fs_monitor_task *other = &monitor->tasks[i];

		if (other->task.pid != task->task.pid || !other->current)
			continue;
		memcpy(rename.old_name, other->task.comm, sizeof(rename.old_name));
		other->current = false;
	}
	task->current = true;
	return put_event(monitor, stream, names, time, &rename, sizeof(rename));
}

static int send_events(struct fs_monitor *monitor, struct fs_stream *stream, const struct flashmon_block *block,
		       const unsigned char *items)
{
	struct sub_buffer out = { .cpu = block->cpu, .instance = FS_INSTANCE_MAIN };
	struct sub_buffer names = { .cpu = block->cpu, .instance = FS_INSTANCE_TASKS };

	for (uint32_t i = block->skip; i < block->count; i++) {
		struct flashmon_event event = { 0 };
		struct access access = { 0 };
		uint32_t kind;

		memcpy(&event, items + (size_t)i * block->item, block->item);
		kind = event.kind_task >> FLASHMON_KIND_SHIFT;
		if (kind >= ARRAY_SIZE(kinds)) {
			monitor->malformed++;
			continue;
		}
		if (task_of(monitor, stream, &names, event.kind_task & FLASHMON_TASK_MASK, event.time_ns, &access.common.pid))
			return -1;
		access.common.type = (uint16_t)(FIRST + kind);
		access.address = event.address;
		if (put_event(monitor, stream, &out, event.time_ns, &access, sizeof(access)))
			return -1;
		access.common.type = (uint16_t)(DONE + kind);
		if (block->item == FLASHMON_EXTENDED_BYTES && kind != FLASHMON_CACHED &&
		    put_event(monitor, stream, &out, event.time_ns + event.duration_ns, &access, sizeof(access)))
			return -1;
	}
	monitor->taken[block->cpu] += block->count - block->skip;
	monitor->lost[block->cpu] = block->lost;
	return emit(monitor, stream, &names) || emit(monitor, stream, &out) ? -1 : 0;
}

static int take(struct fs_monitor *monitor, struct fs_stream *stream, size_t length)
{
	for (size_t at = 0; at < length;) {
		struct flashmon_block block;
		const unsigned char *items = monitor->input + at + sizeof(block);

		if (length - at < sizeof(block))
			goto malformed;
		memcpy(&block, monitor->input + at, sizeof(block));
		if (block.item > SUB_BUFFER || (uint64_t)block.count * block.item > length - at - sizeof(block))
			goto malformed;
		at += sizeof(block) + (size_t)block.count * block.item;
		switch (block.type) {
		case FLASHMON_FORGET:
			monitor->task_count = 0;
			break;
		case FLASHMON_TASKS:
			if (!keep_tasks(monitor, &block, items))
				goto malformed;
			break;
		case FLASHMON_EVENTS:
			if ((block.item != FLASHMON_EVENT_BYTES && block.item != FLASHMON_EXTENDED_BYTES) ||
			    block.skip > block.count || block.cpu >= monitor->info.cpus)
				goto malformed;
			if (send_events(monitor, stream, &block, items))
				return -1;
			break;
		default: /* of a later version, or the description again */
			break;
		}
	}
	return 0;
malformed:
	monitor->malformed++;
	return 0;
}

int fs_monitor_drain(struct fs_monitor *monitor, struct fs_stream *stream)
{
	/* A writer that is faster than this loop must not keep it here. */
	for (int i = 0; i < 4096; i++) {
		ssize_t got = read(monitor->fd, monitor->input, INPUT);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return 0;
		if (take(monitor, stream, (size_t)got))
			return -1;
	}
	return 0;
}

/* --- statistics ------------------------------------------------------------------ */

static void instance_json(struct fs_json *json, uint64_t instance, const struct fs_monitor *monitor, bool events)
{
	fs_json_object(json, NULL);
	fs_json_u64(json, "instance", instance);
	fs_json_array(json, "cpu");
	for (uint32_t cpu = 0; events && cpu < monitor->info.cpus; cpu++) {
		fs_json_object(json, NULL);
		fs_json_u64(json, "cpu", cpu);
		fs_json_u64(json, "entries", 0);
		fs_json_u64(json, "overrun", monitor->lost[cpu]);
		fs_json_u64(json, "commit_overrun", 0);
		fs_json_u64(json, "dropped", 0);
		fs_json_u64(json, "read", monitor->taken[cpu]);
		fs_json_null(json, "bytes");
		fs_json_object_end(json);
	}
	fs_json_array_end(json);
	fs_json_u64(json, "sub_buffers", events ? monitor->sub_buffers : 0);
	fs_json_u64(json, "malformed", events ? monitor->malformed : 0);
	fs_json_object_end(json);
}

uint64_t fs_monitor_stats(struct fs_monitor *monitor, struct fs_json *json, uint64_t *missed)
{
	static const char *const keys[] = { "reads", "programs", "erases" };
	char *status = fs_read_text(STATUS, NULL);
	const char *text = status ? status : "";
	uint64_t lost = monitor->malformed;

	for (uint32_t cpu = 0; cpu < monitor->info.cpus; cpu++)
		lost += monitor->lost[cpu];
	*missed = status_number(text, "misses");
	fs_json_array(json, "instances");
	instance_json(json, FS_INSTANCE_MAIN, monitor, true);
	instance_json(json, FS_INSTANCE_TASKS, monitor, false);
	fs_json_array_end(json);
	fs_json_array(json, "probes");
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		fs_json_object(json, NULL);
		fs_json_string(json, "event", kinds[i].event);
		fs_json_u64(json, "hits", status_number(text, keys[i]));
		/* The module counts those of all its probes together. */
		fs_json_u64(json, "misses", i ? 0 : *missed);
		fs_json_object_end(json);
	}
	fs_json_array_end(json);
	fs_json_object(json, "crosscheck");
	fs_json_u64(json, "programs_expected", status_number(text, "programs_asked"));
	fs_json_u64(json, "programs_seen", status_number(text, "programs"));
	fs_json_u64(json, "erases_expected", status_number(text, "erases_asked"));
	fs_json_u64(json, "erases_seen", status_number(text, "erases"));
	fs_json_u64(json, "unknown_device", 0);
	fs_json_object_end(json);
	fs_json_object(json, "flashmon");
	fs_json_u64(json, "names_lost", status_number(text, "names_lost"));
	fs_json_u64(json, "memory_bytes", status_number(text, "memory_bytes"));
	fs_json_object_end(json);
	free(status);
	return lost;
}
