// SPDX-License-Identifier: Apache-2.0
#include "touched.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

/* Files that wait to be looked up, and processes; what is more is looked up at the end. */
#define WAITING_MAX 1024
/* Deleted files that wait to be sent: some 0.8 MiB. */
#define ENDED_MAX 8192
/* Files of which only the deletion is known; the rest of FS_FILES_MAX is for others. */
#define FREED_MAX (FS_FILES_MAX / 4)
/* Inodes of btrfs that left the cache: 256 KiB. */
#define EVICTED_MAX 16384

static size_t slot_of(const struct fs_touched *touched, uint32_t device, uint64_t inode)
{
	uint64_t hash = (inode ^ (uint64_t)device << 40) * UINT64_C(0x9e3779b97f4a7c15);

	return (size_t)(hash >> 32) & (touched->slot_count - 1);
}

static void grow(struct fs_touched *touched)
{
	touched->slot_count = touched->slot_count ? touched->slot_count * 2 : 1024;
	free(touched->slots);
	touched->slots = fs_alloc(touched->slot_count * sizeof(*touched->slots));
	memset(touched->slots, 0, touched->slot_count * sizeof(*touched->slots));
	for (size_t i = 0; i < touched->count; i++) {
		size_t at = slot_of(touched, touched->files[i].device, touched->files[i].inode);

		while (touched->slots[at])
			at = (at + 1) & (touched->slot_count - 1);
		touched->slots[at] = (uint32_t)i + 1;
	}
}

struct fs_inode *fs_touched_file(struct fs_touched *touched, uint32_t device, uint64_t inode, bool add)
{
	struct fs_inode *file;
	size_t at;

	if (touched->count * 2 >= touched->slot_count)
		grow(touched);
	at = slot_of(touched, device, inode);
	for (; touched->slots[at]; at = (at + 1) & (touched->slot_count - 1)) {
		file = &touched->files[touched->slots[at] - 1];
		if (file->inode == inode && file->device == device)
			return file;
	}
	if (!add)
		return NULL;
	if (touched->count == FS_FILES_MAX) {
		touched->dropped++;
		return NULL;
	}
	if (touched->count == touched->capacity) {
		touched->capacity = touched->capacity ? touched->capacity * 2 : 512;
		touched->files = fs_realloc(touched->files, touched->capacity * sizeof(*touched->files));
	}
	file = &touched->files[touched->count++];
	*file = (struct fs_inode){ .device = device, .inode = inode };
	touched->slots[at] = (uint32_t)touched->count;
	return file;
}

bool fs_inode_set_path(struct fs_touched *touched, char **where, const char *path)
{
	size_t length = strlen(path);

	if (*where && !strcmp(*where, path))
		return true;
	if (touched->path_bytes + length > FS_PATHS_MAX)
		return false;
	touched->path_bytes += length;
	if (*where)
		touched->path_bytes -= strlen(*where);
	free(*where);
	*where = fs_strdup(path);
	return true;
}

void fs_inode_forget_paths(struct fs_touched *touched, struct fs_inode *file)
{
	char **const paths[] = { &file->path, &file->was, &file->other };

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		touched->path_bytes -= *paths[i] ? strlen(*paths[i]) : 0;
		free(*paths[i]);
		*paths[i] = NULL;
	}
}

bool fs_inode_settled(const struct fs_inode *file)
{
	return file->state == FS_FILE_NAMED || file->state == FS_FILE_RENAMED || file->state == FS_FILE_DELETED ||
	       file->state == FS_FILE_ELSEWHERE;
}

bool fs_inode_was_nameless(const struct fs_inode *file)
{
	char name[32];

	snprintf(name, sizeof(name), "/#%" PRIu64, file->inode);
	return file->path && !strcmp(file->path + strlen(file->path) - strnlen(file->path, strlen(name)), name);
}

bool fs_inode_keep_was(struct fs_touched *touched, struct fs_inode *file)
{
	return file->was || fs_inode_was_nameless(file) || fs_inode_set_path(touched, &file->was, file->path);
}

bool fs_inode_is_another(const struct fs_inode *file, uint64_t born_ns)
{
	return born_ns && (file->born_ns ? born_ns != file->born_ns : born_ns > file->seen_ns);
}

/* "char name[32]" of writeback events (include/trace/events/writeback.h): there it holds the backing device's name. */
#define BACKING_SIZE 32

static uint16_t backing_of(const char *event, const char *format)
{
	static const char field[] = "char name[32];";
	const char *hit = strncmp(event, "writeback_", strlen("writeback_")) ? NULL : strstr(format, field);
	unsigned int offset;

	return hit && sscanf(hit + strlen(field), " offset:%u;", &offset) == 1 && offset < 4096 ? (uint16_t)offset : 0;
}

/*
 * "179:0", the number of a disk. All its partitions have the same; other backing devices ("mtd-0") have none. A device's own page
 * cache is no file: its inode number is its dev_t (block/bdev.c).
 */
static bool by_backing(const struct fs_touched *touched, const unsigned char *data, size_t length, uint16_t offset,
		       uint64_t inode, uint64_t *device)
{
	uint32_t number[2] = { 0 };
	size_t part = 0, digits = 0;

	if ((size_t)offset + BACKING_SIZE > length)
		return false;
	for (size_t i = 0; i < BACKING_SIZE && data[offset + i]; i++) {
		const unsigned char byte = data[offset + i];

		if (byte == ':' && digits && !part) {
			part = 1;
			digits = 0;
		} else if (byte >= '0' && byte <= '9' && ++digits <= 7) {
			number[part] = number[part] * 10 + (byte - '0');
		} else {
			return false;
		}
	}
	if (!part || !digits || number[0] >> 12 || number[1] >> 20)
		return false;
	*device = number[0] << 20 | number[1];
	if (inode == *device)
		return false;
	for (size_t i = 0; i < touched->disk_count; i++)
		if (touched->disks[i].disk == *device)
			*device = touched->disks[i].file_system;
	return *device && inode != *device;
}

void fs_touched_disk(struct fs_touched *touched, uint32_t disk, uint32_t file_system)
{
	for (size_t i = 0; i < touched->disk_count; i++)
		if (touched->disks[i].disk == disk) {
			if (touched->disks[i].file_system != file_system)
				touched->disks[i].file_system = 0;
			return;
		}
	if (touched->disk_count < FS_DISKS_MAX)
		touched->disks[touched->disk_count++] = (struct fs_disk){ disk, file_system };
}

/*
 * fs/xfs/xfs_inode.c, xfs_ifree(): xfs_iunlink_remove says that an inode is freed, by its allocation group and its number there.
 * linkat() of an O_TMPFILE has this event, too. A free comes after the same task's xfs_inode_inactivating, before Linux 5.14 after
 * its xfs_destroy_inode: each has the whole number, also of files that stay.
 */
static void xfs_format(struct fs_touched *touched, const char *event, const char *format, struct fs_touched_event *found)
{
	if (!strcmp(event, "xfs_iunlink_remove")) {
		found->group = fs_format_field(format, "agno");
		found->inode = fs_format_field(format, "agino");
		found->frees = found->group.known;
	}
	found->destroys = !strcmp(event, "xfs_destroy_inode");
	found->leaves = found->destroys || !strcmp(event, "xfs_inode_inactivating");
	touched->inactivates |= found->leaves && !found->destroys;
}

void fs_touched_format(struct fs_touched *touched, const char *event, const char *format)
{
	struct fs_touched_event found = { 0 };
	uint16_t id;

	if (touched->event_count == ARRAY_SIZE(touched->events) || !fs_format_id(format, &id))
		return;
	found.device = fs_format_field(format, "dev");
	if (!found.device.known)
		found.device = fs_format_field(format, "s_dev");
	found.inode = fs_format_field(format, "ino");
	if (!found.inode.known)
		found.inode = fs_format_field(format, "i_ino");
	/* fs/ext4/ialloc.c: at the end of a deletion; fs/f2fs/inode.c: also where an inode leaves the cache, with links then. */
	found.frees = !strcmp(event, "ext4_free_inode") || !strcmp(event, "f2fs_evict_inode");
	if (!strcmp(event, "f2fs_evict_inode"))
		found.links = fs_format_field(format, "nlink");
	if (!strcmp(event, "btrfs_inode_evict"))
		found.subvolume = fs_format_field(format, "root_objectid");
	xfs_format(touched, event, format, &found);
	if (!strcmp(event, "sched_process_exec"))
		found.pid = fs_format_field(format, "pid");
	if (!found.device.known && found.inode.known)
		found.backing = backing_of(event, format);
	if (!((found.device.known || found.backing || found.subvolume.known) && found.inode.known) && !found.pid.known)
		return;
	touched->events[touched->event_count++] = found;
	touched->kinds[id] = (uint8_t)touched->event_count;
}

static void started(struct fs_touched *touched, uint32_t pid)
{
	if (touched->started_count == WAITING_MAX) {
		touched->started_late++;
		return;
	}
	if (touched->started_count == touched->started_capacity) {
		touched->started_capacity += 64;
		touched->started = fs_realloc(touched->started, touched->started_capacity * sizeof(*touched->started));
	}
	touched->started[touched->started_count++] = pid;
}

static void fresh(struct fs_touched *touched, struct fs_inode *file)
{
	if (touched->fresh_count == WAITING_MAX) {
		file->late = true;
		return;
	}
	if (touched->fresh_count == touched->fresh_capacity) {
		touched->fresh_capacity += 64;
		touched->fresh = fs_realloc(touched->fresh, touched->fresh_capacity * sizeof(*touched->fresh));
	}
	touched->fresh[touched->fresh_count++] = (size_t)(file - touched->files);
}

/* The deleted file of this inode number that was there then. NULL: none. */
static struct fs_inode *ended_at(const struct fs_touched *touched, uint32_t device, uint64_t inode, uint64_t time_ns)
{
	struct fs_inode *first = NULL;

	for (size_t i = touched->ended_count; i-- > 0;) {
		struct fs_inode *file = &touched->ended[i];

		if (file->inode == inode && file->device == device && file->until_ns > time_ns &&
		    (!first || file->until_ns < first->until_ns))
			first = file;
	}
	return first;
}

static bool add_ended(struct fs_touched *touched, const struct fs_inode *file, uint64_t time_ns)
{
	struct fs_inode *ended;

	if (touched->ended_count == ENDED_MAX)
		return false;
	if (touched->ended_count == touched->ended_capacity) {
		touched->ended_capacity += 64;
		touched->ended = fs_realloc(touched->ended, touched->ended_capacity * sizeof(*touched->ended));
	}
	ended = &touched->ended[touched->ended_count++];
	*ended = *file;
	ended->until_ns = time_ns;
	ended->state = FS_FILE_DELETED;
	return true;
}

/* Two files of this number were deleted on two CPUs, and the later deletion was read first. */
static void freed_before(struct fs_touched *touched, const struct fs_inode *file, uint64_t time_ns)
{
	struct fs_inode *later = ended_at(touched, file->device, file->inode, time_ns);
	/* Events that were taken for the later one's may be its own. */
	struct fs_inode earlier = { .device = file->device, .inode = file->inode, .touched = later && later->touched };

	if (later && later->path && later->looked_ns < time_ns) {
		earlier.path = later->path;
		earlier.was = later->was;
		earlier.foreign = later->foreign;
		later->path = later->was = NULL;
	}
	if (!add_ended(touched, &earlier, time_ns))
		fs_inode_forget_paths(touched, &earlier);
}

/*
 * The file is gone, and its number may be given to another one. Events of one CPU come after those of another: what the
 * next file of this number did, or was called, may be known already.
 */
static void freed(struct fs_touched *touched, struct fs_inode *file, uint64_t time_ns)
{
	const bool goes_on = file->last_ns > time_ns, looked_later = file->path && file->looked_ns > time_ns;
	struct fs_inode next = { .device = file->device, .inode = file->inode, .tid = file->tid, .from_ns = time_ns };

	if (looked_later) {
		next.path = file->path;
		next.state = file->state;
		next.foreign = file->foreign;
		next.seen_ns = file->seen_ns;
		next.born_ns = file->born_ns;
		next.looked_ns = file->looked_ns;
		file->path = file->was;
		file->was = NULL;
	}
	next.touched = goes_on && file->touched;
	next.last_ns = goes_on ? file->last_ns : 0;
	next.events = goes_on;
	/* Also where no event names it yet: those of another CPU may follow. */
	if (!add_ended(touched, file, time_ns)) {
		touched->dropped += file->touched;
		fs_inode_forget_paths(touched, file);
	}
	*file = next;
	if (next.touched && !next.path)
		fresh(touched, file);
	touched->any = false;
}

static void note_freed(struct fs_touched *touched, struct fs_freed freed)
{
	if (touched->freed_count == ENDED_MAX) {
		touched->freed_lost = true;
		return;
	}
	if (touched->freed_count == touched->freed_capacity) {
		touched->freed_capacity += 64;
		touched->freed = fs_realloc(touched->freed, touched->freed_capacity * sizeof(*touched->freed));
	}
	touched->freed[touched->freed_count++] = freed;
}

static void evicted(struct fs_touched *touched, const unsigned char *data, size_t length, const struct fs_touched_event *event)
{
	struct fs_evicted gone;

	if (!fs_field_get(data, length, event->inode, &gone.inode) ||
	    !fs_field_get(data, length, event->subvolume, &gone.subvolume))
		return;
	if (!touched->evicted)
		touched->evicted = fs_alloc(EVICTED_MAX * sizeof(*touched->evicted));
	touched->evicted[touched->evicted_at] = gone;
	touched->evicted_at = (touched->evicted_at + 1) % EVICTED_MAX;
	touched->evicted_count += touched->evicted_count < EVICTED_MAX;
}

size_t fs_touched_evicted(const struct fs_touched *touched, uint64_t inode, size_t from)
{
	for (size_t i = from; i < touched->evicted_count; i++)
		if (touched->evicted[i].inode == inode)
			return i + 1;
	return 0;
}

/* The number of a group and of an inode in it are the upper and the lower bits of the inode number. */
static bool is_of_group(uint64_t inode, uint64_t group, uint64_t in_group)
{
	for (unsigned int bits = 0; bits <= 32; bits++)
		if (inode == (group << bits | in_group) && in_group >> bits == 0)
			return true;
	return false;
}

/* Whether the event frees an inode. */
static bool frees(struct fs_touched *touched, const unsigned char *data, size_t length, const struct fs_touched_event *event,
		  uint32_t device, uint64_t *inode)
{
	struct fs_leaving *leaving;
	uint64_t value = 0;
	uint32_t tid;

	if (!event->group.known)
		return !event->links.known || (fs_field_get(data, length, event->links, &value) && !value);
	memcpy(&tid, data + 4, sizeof(tid)); /* common_pid */
	leaving = &touched->leaving[tid % FS_LEAVING];
	if (leaving->tid != tid || leaving->device != device || !fs_field_get(data, length, event->group, &value) ||
	    !is_of_group(leaving->inode, value, *inode))
		return false;
	*inode = leaving->inode;
	leaving->tid = 0;
	return true;
}

static void leaves(struct fs_touched *touched, const unsigned char *data, uint32_t device, uint64_t inode)
{
	struct fs_leaving leaving = { inode, device, 0 };

	memcpy(&leaving.tid, data + 4, sizeof(leaving.tid));
	touched->leaving[leaving.tid % FS_LEAVING] = leaving;
}

static void one(void *argument, uint64_t time_ns, const unsigned char *data, size_t length)
{
	struct fs_touched *touched = argument;
	const struct fs_touched_event *event;
	uint64_t device, inode, pid;
	struct fs_inode *file;
	uint32_t tid;
	uint16_t id;

	if (length < 8)
		return;
	memcpy(&id, data, 2); /* common_type */
	if (!touched->kinds[id])
		return;
	event = &touched->events[touched->kinds[id] - 1];
	if (event->pid.known) {
		if (fs_field_get(data, length, event->pid, &pid))
			started(touched, (uint32_t)pid);
		return;
	}
	if (event->subvolume.known) {
		evicted(touched, data, length, event);
		return;
	}
	if (!fs_field_get(data, length, event->inode, &inode) ||
	    !(event->backing ? by_backing(touched, data, length, event->backing, inode, &device) :
			       fs_field_get(data, length, event->device, &device)))
		return;
	if (event->leaves) {
		if (!event->destroys || !touched->inactivates)
			leaves(touched, data, (uint32_t)device, inode);
		return;
	}
	if (event->frees) {
		if (!frees(touched, data, length, event, (uint32_t)device, &inode))
			return;
		note_freed(touched, (struct fs_freed){ inode, time_ns, (uint32_t)device });
		file = fs_touched_file(touched, (uint32_t)device, inode, touched->count < FREED_MAX);
		if (file && time_ns < file->from_ns)
			freed_before(touched, file, time_ns);
		else if (file)
			freed(touched, file, time_ns);
		return;
	}
	/* Pages of one file come one after the other. */
	if (touched->any && touched->last_inode == inode && touched->last_device == (uint32_t)device) {
		file = &touched->files[touched->last_file];
		file->events++;
		if (file->last_ns < time_ns)
			file->last_ns = time_ns;
		return;
	}
	touched->any = true;
	touched->last_device = (uint32_t)device;
	touched->last_inode = inode;
	file = fs_touched_file(touched, (uint32_t)device, inode, true);
	if (!file) {
		touched->any = false;
		return;
	}
	/* Of a file before, whose deletion another CPU's events told: it has its row. */
	if (time_ns < file->from_ns) {
		struct fs_inode *ended = ended_at(touched, (uint32_t)device, inode, time_ns);

		if (ended)
			ended->touched = true;
		touched->any = false;
		return;
	}
	touched->last_file = (size_t)(file - touched->files);
	file->events++;
	if (file->last_ns < time_ns)
		file->last_ns = time_ns;
	if (file->touched)
		return;
	file->touched = true;
	memcpy(&tid, data + 4, 4); /* common_pid */
	file->tid = tid;
	if (!file->path)
		fresh(touched, file);
}

void fs_touched_subbuf(struct fs_touched *touched, const unsigned char *subbuf, size_t used,
		       const struct fs_page_layout *layout)
{
	touched->freed_lost |= fs_subbuf_missed(subbuf, layout);
	if (touched->event_count)
		fs_subbuf_walk(subbuf, used, layout, one, touched);
}

struct ranked {
	uint32_t events;
	size_t file;
};

static int more_events(const void *a, const void *b)
{
	const struct ranked *one = a, *other = b;

	if (one->events != other->events)
		return one->events < other->events ? 1 : -1;
	return one->file > other->file ? 1 : -1;
}

size_t *fs_touched_most_first(const struct fs_touched *touched, size_t *count)
{
	struct ranked *ranked = fs_realloc(NULL, (touched->count + 1) * sizeof(*ranked));
	size_t *files = fs_realloc(NULL, (touched->count + 1) * sizeof(*files));

	*count = 0;
	for (size_t i = 0; i < touched->count; i++)
		if (touched->files[i].touched)
			ranked[(*count)++] = (struct ranked){ touched->files[i].events, i };
	qsort(ranked, *count, sizeof(*ranked), more_events);
	for (size_t i = 0; i < *count; i++)
		files[i] = ranked[i].file;
	free(ranked);
	return files;
}

void fs_touched_wait(struct fs_touched *touched)
{
	for (size_t i = 0; i < touched->fresh_count; i++)
		touched->files[touched->fresh[i]].late = true;
}

void fs_touched_free(struct fs_touched *touched)
{
	for (size_t i = 0; i < touched->count; i++) {
		free(touched->files[i].path);
		free(touched->files[i].was);
		free(touched->files[i].other);
	}
	for (size_t i = 0; i < touched->ended_count; i++)
		fs_inode_forget_paths(touched, &touched->ended[i]);
	free(touched->ended);
	free(touched->freed);
	free(touched->files);
	free(touched->slots);
	free(touched->fresh);
	free(touched->started);
	free(touched->evicted);
}
