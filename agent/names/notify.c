// SPDX-License-Identifier: Apache-2.0
#include "notify.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/statfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "util.h"

/* include/uapi/linux/fanotify.h of 5.9 and 5.17: older headers lack them. */
#ifndef FAN_REPORT_DFID_NAME
#define FAN_REPORT_DFID_NAME 0x00000c00
#define FAN_EVENT_INFO_TYPE_DFID_NAME 2
#endif
#ifndef FAN_REPORT_TARGET_FID
#define FAN_REPORT_TARGET_FID 0x00001000
#endif

#define INPUT 65536u
#define EVENTS (INPUT / sizeof(struct fanotify_event_metadata))
/* The kernel's queue has 16,384 events (fs.fanotify.max_queued_events): some 30 reads. */
#define READS 64
/* Directories within directories that were deleted together. */
#define DEEPEST 16
/* Bytes of a path that a row of names has room for. */
#define LONGEST 1024
/* Where one directory's path may be kept. */
#define PLACES 8u

/* include/linux/exportfs.h; 0x81 is FILEID_INO64_GEN and XFS's handle of 64 bits, which are alike. */
enum { FILEID_INO32_GEN = 1, FILEID_BTRFS = 0x4d, FILEID_INO64_GEN = 0x81 };

struct event {
	uint64_t mask;
	uint32_t device;
	const unsigned char *directory, *file; /* struct file_handle, not aligned; NULL: not reported */
	const char *name;
};

/* --- marks ------------------------------------------------------------- */

/* Storage is beneath them; what lies in memory has no I/O. */
static bool has_storage(const struct fs_mount *mount)
{
	return mount->device >> 20 || !strcmp(mount->type, "btrfs") || !strcmp(mount->type, "ubifs");
}

static void mark(struct fs_notify *notify, const struct fs_mount *mount, uint64_t mask)
{
	struct fs_notify_mark *marked = &notify->marks[notify->mark_count];
	char path[PATH_MAX];
	struct statfs st;

	if (notify->mark_count == FS_NOTIFY_MARKS)
		return;
	for (size_t i = 0; i < notify->mark_count; i++)
		if (notify->marks[i].device == mount->device)
			return;
	fs_mount_path(mount, path, sizeof(path));
	if (statfs(path, &st))
		return;
	memcpy(marked->fsid, &st.f_fsid, sizeof(marked->fsid));
	marked->device = mount->device;
	/* Copies of one file system have one identity: their events cannot be distinguished. */
	for (size_t i = 0; i < notify->mark_count; i++)
		if (!memcmp(notify->marks[i].fsid, marked->fsid, sizeof(marked->fsid)))
			return;
	notify->mark_count += !fanotify_mark(notify->fd, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, mask, AT_FDCWD, path);
}

struct fs_notify *fs_notify_open(const struct fs_mounts *mounts)
{
	const unsigned int flags = FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK | FAN_REPORT_FID | FAN_REPORT_DFID_NAME;
	uint64_t mask = FAN_CLOSE_WRITE | FAN_DELETE | FAN_MOVED_TO | FAN_ONDIR;
	int fd = fanotify_init(flags | FAN_REPORT_TARGET_FID, O_RDONLY);
	struct fs_notify *notify;

	/* Without the handle of the deleted or renamed file, it is unknown which file such an event is of. */
	if (fd < 0 && errno == EINVAL) {
		mask = FAN_CLOSE_WRITE;
		fd = fanotify_init(flags, O_RDONLY);
	}
	if (fd < 0)
		return NULL;
	notify = fs_alloc(sizeof(*notify));
	memset(notify, 0, sizeof(*notify));
	notify->fd = fd;
	notify->handles.any = true;
	notify->input = fs_alloc(INPUT);
	for (size_t i = 0; i < mounts->count; i++)
		if (has_storage(&mounts->items[i]) &&
		    !fs_mounts_are_remote(mounts, mounts->items[i].pid, mounts->items[i].point))
			mark(notify, &mounts->items[i], mask);
	return notify;
}

/* --- files ------------------------------------------------------------- */

static size_t slot_of(uint32_t device, uint64_t inode)
{
	return (size_t)(((inode ^ (uint64_t)device << 40) * UINT64_C(0x9e3779b97f4a7c15)) >> 32) % FS_NOTIFY_SLOTS;
}

static struct fs_notify_file *file_at(const struct fs_notify *notify, uint64_t number)
{
	return &notify->files[number % FS_NOTIFY_FILES];
}

static void forget_path(struct fs_notify *notify, struct fs_notify_file *file)
{
	notify->path_bytes -= file->path ? strlen(file->path) : 0;
	free(file->path);
	file->path = NULL;
}

/* The latest file of this inode number before number `before` - 1, as number + 1; 0: none. */
static uint64_t previous(const struct fs_notify *notify, uint64_t before, uint32_t device, uint64_t inode)
{
	for (; before > notify->first; before = file_at(notify, before - 1)->before) {
		const struct fs_notify_file *file = file_at(notify, before - 1);

		if (file->path && file->inode == inode && file->device == device)
			return before;
	}
	return 0;
}

static uint64_t latest(const struct fs_notify *notify, uint32_t device, uint64_t inode)
{
	return previous(notify, notify->slots[slot_of(device, inode)], device, inode);
}

static void keep(struct fs_notify *notify, struct fs_notify_file new, const char *path)
{
	const size_t length = strlen(path), slot = slot_of(new.device, new.inode);
	const uint64_t last = latest(notify, new.device, new.inode);

	if (last && file_at(notify, last - 1)->generation == new.generation &&
	    file_at(notify, last - 1)->directory == new.directory && !strcmp(file_at(notify, last - 1)->path, path))
		return;
	while (notify->next - notify->first == FS_NOTIFY_FILES ||
	       (notify->first < notify->next && notify->path_bytes + length > FS_NOTIFY_BYTES)) {
		notify->has_forgotten |= file_at(notify, notify->first)->path != NULL;
		forget_path(notify, file_at(notify, notify->first++));
	}
	if (notify->next == notify->capacity && notify->capacity < FS_NOTIFY_FILES) {
		notify->capacity = notify->capacity ? notify->capacity * 2 : 128;
		notify->files = fs_realloc(notify->files, notify->capacity * sizeof(*notify->files));
	}
	new.path = fs_strdup(path);
	new.before = notify->slots[slot];
	notify->path_bytes += length;
	notify->slots[slot] = notify->next + 1;
	*file_at(notify, notify->next++) = new;
}

/* --- directories --------------------------------------------------------- */

struct handle {
	struct file_handle head;
	unsigned char bytes[MAX_HANDLE_SZ];
};

static bool handle_of(const unsigned char *at, struct handle *handle)
{
	memcpy(&handle->head, at, sizeof(handle->head));
	if (handle->head.handle_bytes > MAX_HANDLE_SZ)
		return false;
	memcpy(handle->bytes, at + sizeof(handle->head), handle->head.handle_bytes);
	return true;
}

static uint64_t key_of(uint32_t device, const struct handle *handle)
{
	const uint64_t hash = fs_hash(FS_HASH_BEGIN, &device, sizeof(device));

	/* 0 is no key. */
	return fs_hash(hash, handle, sizeof(handle->head) + handle->head.handle_bytes) | 1;
}

static bool join(char path[PATH_MAX], const char *directory, const char *name)
{
	return snprintf(path, PATH_MAX, "%s/%s", strcmp(directory, "/") ? directory : "", name) < PATH_MAX;
}

/* The slot of the directory with this key, or the slot to use for it: the one that was looked up least recently. */
static struct fs_notify_directory *place_of(struct fs_notify *notify, uint64_t key)
{
	struct fs_notify_directory *oldest = NULL;

	for (uint64_t i = 0; i < PLACES; i++) {
		struct fs_notify_directory *place = &notify->directories[((key >> 8) + i) % FS_NOTIFY_DIRECTORIES];

		if (place->key == key)
			return place;
		if (!oldest || place->round < oldest->round)
			oldest = place;
	}
	return oldest;
}

static void set_directory(struct fs_notify *notify, uint64_t key, const char *path, uint64_t parent, bool foreign)
{
	struct fs_notify_directory *directory = place_of(notify, key);

	free(directory->path);
	*directory = (struct fs_notify_directory){ key, parent, notify->round, foreign, path ? fs_strdup(path) : NULL };
}

/* Looked up once in each round: it may have been renamed. One that is gone has its last path. */
static const struct fs_notify_directory *directory_of(struct fs_notify *notify, const struct fs_mounts *mounts, uint32_t device,
						      struct handle *handle)
{
	const uint64_t key = key_of(device, handle);
	const struct fs_notify_directory *directory;
	struct fs_handle_file found;

	directory = place_of(notify, key);
	if (directory->key != key || directory->round != notify->round) {
		enum fs_handle_result result = FS_HANDLE_UNKNOWN;

		if (fs_now_ns() < notify->end_ns)
			result = fs_handle_directory(&notify->handles, mounts, device, &handle->head, &found);
		else
			notify->has_forgotten = true;
		if (result == FS_HANDLE_NAMED)
			set_directory(notify, key, found.path, 0, found.foreign);
		else if (directory->key != key)
			set_directory(notify, key, NULL, 0, false);
	}
	return directory;
}

/* --- events ------------------------------------------------------------ */

static const struct fs_notify_mark *mark_of(const struct fs_notify *notify, const void *fsid)
{
	for (size_t i = 0; i < notify->mark_count; i++)
		if (!memcmp(notify->marks[i].fsid, fsid, sizeof(notify->marks[i].fsid)))
			return &notify->marks[i];
	return NULL;
}

/* The records behind the event: a header, the file system's identity, a file handle, a name. */
static bool parse(const struct fs_notify *notify, uint32_t at, struct event *event)
{
	struct fanotify_event_metadata head;
	const unsigned char *record, *end;

	memcpy(&head, notify->input + at, sizeof(head));
	record = notify->input + at + head.metadata_len;
	end = notify->input + at + head.event_len;
	*event = (struct event){ .mask = head.mask };
	while (end - record >= (ptrdiff_t)(sizeof(struct fanotify_event_info_fid) + sizeof(struct file_handle))) {
		const unsigned char *handle = record + offsetof(struct fanotify_event_info_fid, handle);
		struct fanotify_event_info_fid info;
		const struct fs_notify_mark *mark;
		uint32_t bytes;

		memcpy(&info, record, sizeof(info));
		memcpy(&bytes, handle, sizeof(bytes));
		mark = mark_of(notify, &info.fsid);
		if (info.hdr.len < sizeof(info) + sizeof(struct file_handle) || info.hdr.len > end - record || !mark ||
		    bytes > info.hdr.len - sizeof(info) - sizeof(struct file_handle))
			return false;
		event->device = mark->device;
		if (info.hdr.info_type == FAN_EVENT_INFO_TYPE_DFID_NAME) {
			event->directory = handle;
			event->name = (const char *)handle + sizeof(struct file_handle) + bytes;
		} else if (info.hdr.info_type == FAN_EVENT_INFO_TYPE_FID) {
			event->file = handle;
		}
		record += info.hdr.len;
	}
	return event->directory && event->file;
}

static bool inode_of(const struct handle *handle, struct fs_notify_file *file)
{
	const unsigned char *bytes = handle->bytes;
	const unsigned int size = handle->head.handle_bytes;
	uint32_t low;

	file->generation = 0;
	if (handle->head.handle_type == FILEID_INO32_GEN && size == 8) {
		memcpy(&low, bytes, sizeof(low));
		memcpy(&file->generation, bytes + 4, sizeof(file->generation));
		file->inode = low;
	} else if (handle->head.handle_type == FILEID_INO64_GEN && size >= 12) {
		memcpy(&file->inode, bytes, sizeof(file->inode));
		memcpy(&file->generation, bytes + 8, sizeof(file->generation));
	} else if (handle->head.handle_type == FILEID_BTRFS && size >= 20) {
		/* Subvolumes have files of one number, made in one transaction. */
		memcpy(&file->inode, bytes, sizeof(file->inode));
		memcpy(&file->subvolume, bytes + 8, sizeof(file->subvolume));
		memcpy(&file->transaction, bytes + 16, sizeof(file->transaction));
		file->generation = file->transaction ^ (uint32_t)file->subvolume * UINT32_C(0x9e3779b1);
	} else {
		return false;
	}
	return true;
}

/* directories: keeps the paths of deleted directories; else the files, directories included. */
static void take_event(struct fs_notify *notify, const struct fs_mounts *mounts, const struct event *event, bool directories)
{
	struct fs_notify_file file = { .device = event->device };
	const struct fs_notify_directory *directory;
	struct handle parent, handle;
	char path[PATH_MAX];

	if (!handle_of(event->file, &handle) || !handle_of(event->directory, &parent))
		return;
	directory = directory_of(notify, mounts, event->device, &parent);
	if (directory->path && !directory->parent) {
		if (!join(path, directory->path, event->name))
			return;
		file.foreign = directory->foreign;
	} else {
		/* The directory has just been deleted: an event that has not been read yet has its path. */
		snprintf(path, sizeof(path), "%s", event->name);
		file.directory = directory->key;
	}
	/* A directory has an inode number, too, which the next file may get. */
	if (!directories && inode_of(&handle, &file))
		keep(notify, file, path);
	else if (directories && event->mask & FAN_DELETE)
		set_directory(notify, key_of(event->device, &handle), path, file.directory, file.foreign);
}

void fs_notify_forget(struct fs_notify *notify)
{
	while (notify->first < notify->next)
		forget_path(notify, file_at(notify, notify->first++));
}

static void take(struct fs_notify *notify, const struct fs_mounts *mounts, size_t length)
{
	struct fanotify_event_metadata head;
	uint32_t events[EVENTS];
	size_t count = 0;
	struct event event;

	/* An event is aligned to four bytes alone. */
	for (size_t at = 0; length - at >= sizeof(head) && count < EVENTS; at += head.event_len) {
		memcpy(&head, notify->input + at, sizeof(head));
		if (head.event_len < sizeof(head) || head.event_len > length - at || head.metadata_len > head.event_len ||
		    head.vers != FANOTIFY_METADATA_VERSION)
			break;
		if (head.mask & FAN_Q_OVERFLOW) {
			/* Between the known files with one inode number, others may be missing. */
			notify->overflows++;
			fs_notify_forget(notify);
			count = 0;
			continue;
		}
		events[count++] = (uint32_t)at;
	}
	/* A directory is deleted after what is in it, and before its parent: the last one's path is known. */
	for (size_t i = count; i-- > 0;)
		if (parse(notify, events[i], &event) && event.mask & FAN_ONDIR)
			take_event(notify, mounts, &event, true);
	for (size_t i = 0; i < count; i++)
		if (parse(notify, events[i], &event))
			take_event(notify, mounts, &event, false);
}

void fs_notify_read(struct fs_notify *notify, const struct fs_mounts *mounts, uint64_t end_ns)
{
	notify->end_ns = end_ns;
	notify->round++;
	for (int i = 0; i < READS; i++) {
		ssize_t got = read(notify->fd, notify->input, INPUT);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		take(notify, mounts, (size_t)got);
	}
	fs_handles_close(&notify->handles);
}

/* --- which file of an inode number -------------------------------------- */

/* The files that had this inode number, oldest first, as numbers of their last paths; the caller frees them. */
static uint64_t *lives_of(const struct fs_notify *notify, uint32_t device, uint64_t inode, size_t *count)
{
	uint64_t *lives = NULL;
	size_t capacity = 0;

	*count = 0;
	for (uint64_t at = latest(notify, device, inode); at;
	     at = previous(notify, file_at(notify, at - 1)->before, device, inode)) {
		if (*count && file_at(notify, lives[*count - 1])->generation == file_at(notify, at - 1)->generation)
			continue;
		if (*count == capacity) {
			capacity = capacity ? capacity * 2 : 16;
			lives = fs_realloc(lives, capacity * sizeof(*lives));
		}
		lives[(*count)++] = at - 1;
	}
	for (size_t i = 0; i < *count / 2; i++) {
		const uint64_t swapped = lives[i];

		lives[i] = lives[*count - 1 - i];
		lives[*count - 1 - i] = swapped;
	}
	return lives;
}

/* The directory with this key, if its path is known. */
static struct fs_notify_directory *known_directory(struct fs_notify *notify, uint64_t key, int depth)
{
	struct fs_notify_directory *directory = place_of(notify, key), *parent;
	char path[PATH_MAX];

	if (directory->key != key || !directory->path)
		return NULL;
	if (!directory->parent)
		return directory;
	if (depth == DEEPEST || !(parent = known_directory(notify, directory->parent, depth + 1)) ||
	    !join(path, parent->path, directory->path))
		return NULL;
	set_directory(notify, key, path, 0, parent->foreign);
	return directory;
}

/* Whether the file's path is known. */
static bool resolve(struct fs_notify *notify, struct fs_notify_file *file)
{
	const struct fs_notify_directory *directory;
	char path[PATH_MAX];

	if (!file->directory)
		return true;
	directory = known_directory(notify, file->directory, 0);
	if (!directory || !join(path, directory->path, file->path))
		return false;
	forget_path(notify, file);
	file->path = fs_strdup(path);
	notify->path_bytes += strlen(path);
	file->directory = 0;
	file->foreign = directory->foreign;
	return true;
}

/* All files of this inode number up to this one. */
static void forget(struct fs_notify *notify, uint32_t device, uint64_t inode, uint64_t number)
{
	for (uint64_t at = latest(notify, device, inode); at;
	     at = previous(notify, file_at(notify, at - 1)->before, device, inode))
		if (at - 1 <= number)
			forget_path(notify, file_at(notify, at - 1));
}

const char *fs_notify_path(struct fs_notify *notify, uint32_t device, uint64_t inode, bool *foreign)
{
	const uint64_t last = notify ? latest(notify, device, inode) : 0;
	struct fs_notify_file *file;

	if (!last)
		return NULL;
	file = file_at(notify, last - 1);
	for (uint64_t at = last; at; at = previous(notify, file_at(notify, at - 1)->before, device, inode))
		if (file_at(notify, at - 1)->generation != file->generation)
			return NULL;
	if (!resolve(notify, file))
		return NULL;
	*foreign = file->foreign;
	return file->path;
}

enum fs_handle_result fs_notify_find(struct fs_notify *notify, const struct fs_mounts *mounts, uint32_t device, uint64_t inode,
				     struct fs_handle_file *file)
{
	const uint64_t last = latest(notify, device, inode);
	const struct fs_notify_file *reported = last ? file_at(notify, last - 1) : NULL;

	if (!reported || !reported->subvolume)
		return FS_HANDLE_UNKNOWN;
	return fs_handle_btrfs(&notify->handles, mounts, device, inode, reported->subvolume, reported->transaction, file);
}

bool fs_notify_is_gone(struct fs_notify *notify, const struct fs_mounts *mounts, uint32_t device, uint64_t inode)
{
	const uint64_t last = latest(notify, device, inode);

	return last && fs_handle_is_gone(&notify->handles, mounts, device, inode, file_at(notify, last - 1)->generation);
}

bool fs_notify_reused(struct fs_notify *notify, uint32_t device, uint64_t inode, const char **first)
{
	size_t count;
	uint64_t *lives = lives_of(notify, device, inode, &count);

	if (count > 1)
		*first = resolve(notify, file_at(notify, lives[0])) ? file_at(notify, lives[0])->path : NULL;
	free(lives);
	return count > 1;
}

static int by_inode(uint32_t a_device, uint64_t a_inode, uint64_t a_ns, uint32_t b_device, uint64_t b_inode, uint64_t b_ns)
{
	if (a_device != b_device)
		return a_device < b_device ? -1 : 1;
	if (a_inode != b_inode)
		return a_inode < b_inode ? -1 : 1;
	return (a_ns > b_ns) - (a_ns < b_ns);
}

static int freed_order(const void *a, const void *b)
{
	const struct fs_freed *x = a, *y = b;

	return by_inode(x->device, x->inode, x->time_ns, y->device, y->inode, y->time_ns);
}

static int ended_order(const void *a, const void *b)
{
	const struct fs_inode *x = a, *y = b;

	return by_inode(x->device, x->inode, x->until_ns, y->device, y->inode, y->until_ns);
}

static void set_name(struct fs_touched *touched, const struct fs_freed *freed, const struct fs_notify_file *file)
{
	const struct fs_inode wanted = { .device = freed->device, .inode = freed->inode, .until_ns = freed->time_ns };
	struct fs_inode *ended;

	if (!touched->ended_count || strlen(file->path) > LONGEST)
		return;
	ended = bsearch(&wanted, touched->ended, touched->ended_count, sizeof(*touched->ended), ended_order);
	if (ended && fs_inode_set_path(touched, &ended->path, file->path))
		ended->foreign = file->foreign;
}

/* `count` files of one inode number were deleted. */
static void deleted(struct fs_notify *notify, const struct fs_mounts *mounts, struct fs_touched *touched,
		    const struct fs_freed *freed, size_t count, bool whole)
{
	size_t known, gone = 0;
	uint64_t *lives = lives_of(notify, freed->device, freed->inode, &known);
	bool same = true;

	for (; gone < known && (gone < count || !whole); gone++) {
		struct fs_notify_file *file = file_at(notify, lives[gone]);

		if (!fs_handle_is_gone(&notify->handles, mounts, file->device, file->inode, file->generation))
			break;
		same &= resolve(notify, file) && !strcmp(file->path, file_at(notify, lives[0])->path);
	}
	/*
	 * If fewer files are known than were deleted, it is unknown which. If more are known, their deletion is still
	 * in a ring.
	 */
	if (gone >= count && (whole || same))
		for (size_t i = 0; i < count; i++)
			if (!file_at(notify, lives[i])->directory)
				set_name(touched, &freed[i], file_at(notify, lives[i]));
	if (gone)
		forget(notify, freed->device, freed->inode, lives[gone - 1]);
	free(lives);
}

void fs_notify_deleted(struct fs_notify *notify, const struct fs_mounts *mounts, struct fs_touched *touched, uint64_t until_ns,
		       bool whole)
{
	struct fs_freed *freed = touched->freed;
	size_t count = 0, same;

	/* Those to be named come first. */
	for (size_t i = 0; i < touched->freed_count; i++)
		if (freed[i].time_ns < until_ns) {
			const struct fs_freed swapped = freed[count];

			freed[count++] = freed[i];
			freed[i] = swapped;
		}
	if (!count)
		return;
	qsort(freed, count, sizeof(*freed), freed_order);
	if (touched->ended_count)
		qsort(touched->ended, touched->ended_count, sizeof(*touched->ended), ended_order);
	for (size_t i = 0; i < count; i += same) {
		for (same = 1; i + same < count && freed[i + same].device == freed[i].device &&
			       freed[i + same].inode == freed[i].inode;
		     same++)
			;
		deleted(notify, mounts, touched, &freed[i], same, whole);
	}
	touched->freed_count -= count;
	memmove(freed, freed + count, touched->freed_count * sizeof(*freed));
	fs_handles_close(&notify->handles);
}

void fs_notify_close(struct fs_notify *notify)
{
	if (!notify)
		return;
	close(notify->fd);
	fs_notify_forget(notify);
	for (size_t i = 0; i < FS_NOTIFY_DIRECTORIES; i++)
		free(notify->directories[i].path);
	free(notify->files);
	free(notify->input);
	free(notify);
}
