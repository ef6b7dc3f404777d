// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "names.h"
#include "reader.h"
#include "test.h"
#include "util.h"

/* A file system of one mount, whose file of that inode was touched. */
static void touched_on(struct fs_paths *paths, const char *point, const char *type, uint32_t device, uint64_t inode)
{
	struct fs_mounts *mounts = &paths->mounts;

	memset(paths, 0, sizeof(*paths));
	mounts->items = fs_alloc(sizeof(*mounts->items));
	mounts->items[0] = (struct fs_mount){ .device = device, .root = fs_strdup("/"), .point = fs_strdup(point),
					      .type = fs_strdup(type), .source = fs_strdup("none") };
	mounts->count = 1;
	fs_touched_file(&paths->touched, device, inode, true)->touched = true;
}

static void time_is_over(void)
{
	char name[] = "/tmp/flashscope-unit-XXXXXX", path[64];
	struct fs_paths paths;
	struct fs_inode *file;
	struct stat st;
	int fd;

	CHECK(mkdtemp(name) != NULL);
	snprintf(path, sizeof(path), "%s/file", name);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && !fstat(fd, &st));
	close(fd);
	touched_on(&paths, name, "ext4", (uint32_t)major(st.st_dev) << 20 | (uint32_t)minor(st.st_dev), st.st_ino);
	file = &paths.touched.files[0];

	CHECK_TEXT(fs_paths_why(&paths, file), "not_looked_for");
	/* No process is looked at, and no directory. */
	fs_paths_walk(&paths, fs_now_ns());
	CHECK_NUMBER(paths.directories, 0);
	CHECK_TEXT(fs_paths_why(&paths, file), "out_of_time");
	paths.walked_count = 0;
	fs_paths_walk(&paths, UINT64_MAX);
	CHECK_NUMBER(paths.directories, 1);
	CHECK_TEXT(file->path, path);
	fs_paths_free(&paths);

	touched_on(&paths, name, "ext4", 0, 0);
	fs_paths_seen(&paths, true, 0);
	CHECK(paths.late);
	fs_paths_free(&paths);
	unlink(path);
	rmdir(name);
}

/* While events come too fast nothing is looked for: what waits is looked for later, and else says why it has no name. */
static void under_load(void)
{
	static struct fs_names names;
	struct fs_touched *touched = &names.paths.touched;
	char path[] = "/tmp/flashscope-unit-XXXXXX";
	struct stat st;
	int fd = mkstemp(path);

	CHECK(fd >= 0 && !fstat(fd, &st));
	touched_on(&names.paths, "/tmp", "ext4", (uint32_t)major(st.st_dev) << 20 | (uint32_t)minor(st.st_dev), st.st_ino);
	touched->files[0].tid = (uint32_t)getpid();
	touched->fresh = fs_alloc(sizeof(*touched->fresh));
	touched->fresh[0] = 0;
	touched->fresh_count = touched->fresh_capacity = 1;
	fs_names_live(&names, true, UINT64_MAX);
	CHECK_NUMBER(names.rounds_busy, 1);
	CHECK_NUMBER(touched->fresh_count, 1);
	CHECK_TEXT(fs_paths_why(&names.paths, &touched->files[0]), "busy");
	fs_names_live(&names, false, UINT64_MAX);
	CHECK_NUMBER(names.rounds_busy, 1);
	CHECK_NUMBER(touched->fresh_count, 0);
	CHECK(touched->files[0].path && !strcmp(touched->files[0].path, path));
	CHECK(!fs_paths_why(&names.paths, &touched->files[0]));
	fs_names_free(&names);
	close(fd);
	unlink(path);
}

/* A look at one process's open files ends with its time, however many there are. */
static void many_open_files(void)
{
	char path[] = "/tmp/flashscope-unit-XXXXXX";
	struct fs_touched *touched;
	struct fs_inode *file;
	struct fs_paths paths;
	int fds[200], fd;
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		CHECK((fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0);
	/* Last in the order of /proc/PID/fd. */
	fd = mkstemp(path);
	CHECK(fd >= 0 && !fstat(fd, &st));
	/* Nothing is at the mount's place: the file is not found by its handle, at once. */
	touched_on(&paths, "/nonexistent", "ext4", (uint32_t)major(st.st_dev) << 20 | (uint32_t)minor(st.st_dev), st.st_ino);
	touched = &paths.touched;
	file = &touched->files[0];
	file->tid = (uint32_t)getpid();
	touched->fresh = fs_alloc(sizeof(*touched->fresh));
	touched->fresh[0] = 0;
	touched->fresh_capacity = 1;
	/* The time is enough to begin, if this process is not stopped just then, and not for 16 files. */
	for (int tries = 0; tries < 1000 && !file->late; tries++) {
		touched->fresh_count = 1;
		paths.mounts_read_ns = fs_now_ns(); /* so that they are not read again */
		fs_paths_live(&paths, 5000);
	}
	CHECK(file->late);
	CHECK(!file->path);
	touched->fresh_count = 1;
	paths.mounts_read_ns = fs_now_ns();
	fs_paths_live(&paths, UINT64_C(60000000000));
	CHECK(file->path && !strcmp(file->path, path));
	fs_paths_free(&paths);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	close(fd);
	unlink(path);
}

/* A file that nobody has open, on a file system that the list of mounts has elsewhere, behind many on devices that no mount has. */
static void mounted_later(void)
{
	enum { DEVICES = 100 };
	char path[] = "/tmp/flashscope-unit-XXXXXX";
	struct fs_handle_file found;
	struct fs_touched *touched;
	struct fs_paths paths;
	struct fs_inode *file;
	struct stat st;
	int fd = mkstemp(path);

	CHECK(fd >= 0 && !fstat(fd, &st));
	close(fd);
	touched_on(&paths, "/nonexistent", "ext4", (uint32_t)major(st.st_dev) << 20 | (uint32_t)minor(st.st_dev), st.st_ino);
	touched = &paths.touched;
	touched->fresh = fs_alloc(sizeof(*touched->fresh));
	touched->fresh_count = touched->fresh_capacity = 1;
	/* Each reading of the mounts is a while ago. */
	for (uint32_t i = 0; i < DEVICES; i++) {
		touched->fresh[0] = (uint32_t)(fs_touched_file(touched, 4000u << 20 | i, 1, true) - touched->files);
		touched->fresh_count = 1;
		paths.mounts_read_ns = 1;
		fs_paths_live(&paths, UINT64_C(60000000000));
		CHECK(paths.mounts_read_ns > 1);
	}
	/* The list is as it was before the file system was mounted. */
	fs_mounts_free(&paths.mounts);
	fs_handles_close(&paths.handles);
	paths.mounts_read_ns = 1;
	touched->fresh[0] = 0;
	touched->fresh_count = 1;
	fs_paths_live(&paths, UINT64_C(60000000000));
	file = &touched->files[0];
	fs_handles_close(&paths.handles);
	if (fs_handle_name(&paths.handles, &paths.mounts, file->device, file->inode, &found) == FS_HANDLE_NAMED) {
		CHECK(file->path && !strcmp(file->path, path));
	} else {
		printf("names: a later mount NOT tested: no file handles in /tmp\n");
	}
	fs_handles_close(&paths.handles);
	fs_paths_free(&paths);
	unlink(path);
}

static void overlays(void)
{
	struct fs_mounts *mounts = fs_alloc(sizeof(*mounts));
	char path[64];
	uint64_t namespace;

	memset(mounts, 0, sizeof(*mounts));
	test_root_begin();
	test_root_file("/proc/self/mountinfo",
		       "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
		       "2 1 0:40 / /merged rw - overlay overlay rw,lowerdir=/low\\040er:/base/,upperdir=/up\\134,per,workdir=/work\n"
		       "3 1 0:41 / /other rw - overlay overlay rw,lowerdir=/base\n");
	fs_mounts_read(mounts);
	test_root_end();
	CHECK_NUMBER(mounts->count, 3);
	CHECK(fs_mounts_in_overlay(mounts, "/up,per/a/b", path, sizeof(path), &namespace));
	CHECK_TEXT(path, "/merged/a/b");
	CHECK_NUMBER(namespace, 0);
	CHECK(fs_mounts_in_overlay(mounts, "/low er/c", path, sizeof(path), &namespace));
	CHECK_TEXT(path, "/merged/c");
	/* Two overlays have this layer. */
	CHECK(!fs_mounts_in_overlay(mounts, "/base/c", path, sizeof(path), &namespace));
	CHECK(!fs_mounts_in_overlay(mounts, "/up,perhaps/c", path, sizeof(path), &namespace));
	CHECK(!fs_mounts_in_overlay(mounts, "/up,per", path, sizeof(path), &namespace));
	/* A container has the same overlay as its root. */
	for (size_t i = 0; i < mounts->count; i++)
		if (mounts->items[i].device == 40) {
			mounts->items = fs_realloc(mounts->items, (mounts->count + 1) * sizeof(*mounts->items));
			mounts->items[mounts->count] = mounts->items[i];
			mounts->items[mounts->count].pid = 77;
			mounts->items[mounts->count].point = fs_strdup("/");
			break;
		}
	mounts->pids[1] = 77;
	mounts->namespaces[1] = 4026532000;
	mounts->namespace_count = 2;
	mounts->count++;
	CHECK(fs_mounts_in_overlay(mounts, "/up,per/a/b", path, sizeof(path), &namespace));
	CHECK_TEXT(path, "/a/b");
	CHECK_NUMBER(namespace, 4026532000);
	mounts->count--;
	free(mounts->items[mounts->count].point);
	fs_mounts_free(mounts);
	free(mounts);
}

/* Where time is short, names are looked for in this order. */
static void most_events_first(void)
{
	static const uint32_t events[] = { 3, 900, 0, 3, 17 };
	static const size_t order[] = { 1, 4, 0, 3 };
	struct fs_touched touched = { 0 };
	size_t count, *most;

	for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
		struct fs_inode *file = fs_touched_file(&touched, 8 << 20, 100 + i, true);

		file->events = events[i];
		file->touched = events[i];
	}
	most = fs_touched_most_first(&touched, &count);
	CHECK_NUMBER(count, ARRAY_SIZE(order));
	for (size_t i = 0; i < count; i++)
		CHECK_NUMBER(most[i], order[i]);
	free(most);
	fs_touched_free(&touched);
}

/* Events of writeback name the disk: the file is on the one partition of it that has a file system. */
static void by_backing_device(void)
{
	static const char format[] = "name: writeback_dirty_folio\nID: 1009\nformat:\n"
				     "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
				     "\tfield:char name[32];\toffset:8;\tsize:32;\tsigned:0;\n"
				     "\tfield:ino_t ino;\toffset:40;\tsize:8;\tsigned:0;\n";
	static const struct {
		const char *name;
		uint64_t inode;
		uint32_t device; /* 0: the file is not remembered */
	} cases[] = {
		{ "7:0", 5000, 7 << 20 },
		{ "179:0", 5000, 179 << 20 | 2 },
		{ "8:0", 5000, 0 }, /* two file systems */
		{ "179:0", 179 << 20, 0 }, /* the page cache of the disk, and of its partition */
		{ "179:0", 179 << 20 | 2, 0 },
		{ "mtd-0", 5000, 0 },
		{ "btrfs-1", 5000, 0 },
		{ "", 5000, 0 },
		{ "7:", 5000, 0 },
		{ ":7", 5000, 0 },
		{ "7:0:1", 5000, 0 },
		{ "4096:0", 5000, 0 },
		{ "7:1048576", 5000, 0 },
		{ "99999999999999999:0", 5000, 0 },
	};
	const struct fs_page_layout layout = { .long_size = 8, .data_offset = 16, .size = 4096 };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		unsigned char subbuf[128] = { 0 };
		struct fs_touched *touched = fs_alloc(sizeof(*touched));
		const uint16_t id = 1009;
		/* include/linux/ring_buffer.h: type_len of 4-byte words; 12 of them are the 48 bytes of an event. */
		const uint32_t head = 12;
		const uint64_t commit = sizeof(head) + 48;

		memset(touched, 0, sizeof(*touched));
		fs_touched_format(touched, "writeback_dirty_folio", format);
		fs_touched_format(touched, "other", format);
		CHECK_NUMBER(touched->event_count, 1);
		fs_touched_disk(touched, 179 << 20, 179 << 20 | 2);
		fs_touched_disk(touched, 179 << 20, 179 << 20 | 2);
		fs_touched_disk(touched, 8 << 20, 8 << 20 | 1);
		fs_touched_disk(touched, 8 << 20, 8 << 20 | 2);
		memcpy(subbuf + 8, &commit, sizeof(commit));
		memcpy(subbuf + 16, &head, sizeof(head));
		memcpy(subbuf + 20, &id, sizeof(id));
		memcpy(subbuf + 28, cases[i].name, strlen(cases[i].name));
		memcpy(subbuf + 60, &cases[i].inode, sizeof(cases[i].inode));
		fs_touched_subbuf(touched, subbuf, 16 + (size_t)commit, &layout);
		CHECK_NUMBER(touched->count, cases[i].device != 0);
		if (touched->count) {
			CHECK_NUMBER(touched->files[0].device, cases[i].device);
			CHECK_NUMBER(touched->files[0].inode, cases[i].inode);
		}
		fs_touched_free(touched);
		free(touched);
	}
}

/* One event of inode 5000 on 8:1. */
static void event_of_file(struct fs_touched *touched, uint16_t id, uint64_t time_ns)
{
	const struct fs_page_layout layout = { .long_size = 8, .data_offset = 16, .size = 4096 };
	const uint32_t head = 6, device = 8 << 20 | 1;
	const uint64_t commit = sizeof(head) + 24, inode = 5000;
	unsigned char subbuf[64] = { 0 };

	memcpy(subbuf, &time_ns, sizeof(time_ns));
	memcpy(subbuf + 8, &commit, sizeof(commit));
	memcpy(subbuf + 16, &head, sizeof(head));
	memcpy(subbuf + 20, &id, sizeof(id));
	memcpy(subbuf + 28, &device, sizeof(device));
	memcpy(subbuf + 36, &inode, sizeof(inode));
	fs_touched_subbuf(touched, subbuf, 16 + (size_t)commit, &layout);
}

/* The CPU on which a file is deleted is read before the one on which it was written: that is no second file. */
static void deleted_on_another_cpu(void)
{
	static const char format[] = "name: x\nID: %u\nformat:\n"
				     "\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n"
				     "\tfield:ino_t ino;\toffset:16;\tsize:8;\tsigned:0;\n";
	static const char *const events[] = { "ext4_da_write_begin", "ext4_free_inode" };
	struct fs_touched *touched = fs_alloc(sizeof(*touched));

	memset(touched, 0, sizeof(*touched));
	for (unsigned int i = 0; i < ARRAY_SIZE(events); i++) {
		char text[sizeof(format) + 16];

		snprintf(text, sizeof(text), format, 1000 + i);
		fs_touched_format(touched, events[i], text);
	}
	event_of_file(touched, 1000, 400);
	event_of_file(touched, 1001, 500);
	CHECK(touched->ended_count == 1 && touched->ended[0].until_ns == 500);
	event_of_file(touched, 1000, 300);
	event_of_file(touched, 1000, 350);
	CHECK(touched->count == 1 && !touched->files[0].touched);
	event_of_file(touched, 1000, 600);
	CHECK(touched->files[0].touched && touched->files[0].events == 1);
	fs_touched_free(touched);
	free(touched);
}

struct xfs_event {
	uint16_t common_type;
	uint8_t flags, preempt;
	uint32_t common_pid;
	uint32_t device, group; /* agno; of the events with the whole number: padding */
	uint64_t inode;		/* or agino */
};

static void xfs_event(struct fs_touched *touched, uint16_t id, uint32_t tid, uint32_t group, uint64_t inode)
{
	const struct xfs_event event = { id, 0, 0, tid, 8 << 20 | 1, group, inode };
	const struct fs_page_layout layout = { .long_size = 8, .data_offset = 16, .size = 4096 };
	const uint32_t head = sizeof(event) / 4;
	const uint64_t commit = sizeof(head) + sizeof(event), time_ns = 500;
	unsigned char subbuf[64] = { 0 };

	memcpy(subbuf, &time_ns, sizeof(time_ns));
	memcpy(subbuf + 8, &commit, sizeof(commit));
	memcpy(subbuf + 16, &head, sizeof(head));
	memcpy(subbuf + 20, &event, sizeof(event));
	fs_touched_subbuf(touched, subbuf, 16 + (size_t)commit, &layout);
}

/* newer: Linux 5.14 and later. */
static struct fs_touched *xfs_begin(bool newer)
{
	static const char whole[] = "name: x\nID: %u\nformat:\n"
				    "\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n"
				    "\tfield:xfs_ino_t ino;\toffset:16;\tsize:8;\tsigned:0;\n";
	static const char parts[] = "name: x\nID: %u\nformat:\n"
				    "\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n"
				    "\tfield:xfs_agnumber_t agno;\toffset:12;\tsize:4;\tsigned:0;\n"
				    "\tfield:xfs_agino_t agino;\toffset:16;\tsize:4;\tsigned:0;\n";
	static const char *const events[] = { "xfs_iunlink_remove", "xfs_destroy_inode", "xfs_inode_inactivating" };
	struct fs_touched *touched = fs_alloc(sizeof(*touched));

	memset(touched, 0, sizeof(*touched));
	for (unsigned int i = 0; i < (newer ? 3u : 2u); i++) {
		char text[sizeof(parts) + 16];

		snprintf(text, sizeof(text), i ? whole : parts, 1000 + i);
		fs_touched_format(touched, events[i], text);
	}
	return touched;
}

/* An inode of XFS is free when the task that lets it go takes it from its group's list of unlinked ones, not when it gets a name. */
static void deleted_on_xfs(void)
{
	struct fs_touched *touched = xfs_begin(true);

	xfs_event(touched, 1001, 7, 0, 0x4000083);
	xfs_event(touched, 1000, 7, 2, 0x83);
	CHECK_NUMBER(touched->freed_count, 0);
	xfs_event(touched, 1002, 9, 0, 0x2000084);
	xfs_event(touched, 1000, 7, 1, 0x84);
	xfs_event(touched, 1000, 9, 1, 0x85);
	xfs_event(touched, 1000, 9, 3, 0x84);
	CHECK_NUMBER(touched->freed_count, 0);
	xfs_event(touched, 1000, 9, 1, 0x84);
	xfs_event(touched, 1000, 9, 1, 0x84);
	CHECK_NUMBER(touched->freed_count, 1);
	CHECK_NUMBER(touched->freed[0].inode, 0x2000084);
	/* Group 0, whose inodes have no upper bits, and a group number that is no power of two. */
	xfs_event(touched, 1002, 9, 0, 0x84);
	xfs_event(touched, 1000, 9, 0, 0x84);
	xfs_event(touched, 1002, 9, 0, UINT64_C(0x180000000) | 0x84);
	xfs_event(touched, 1000, 9, 3, 0x84);
	CHECK_NUMBER(touched->freed_count, 3);
	CHECK_NUMBER(touched->freed[2].inode, UINT64_C(0x180000084));
	CHECK_NUMBER(touched->count, 3);
	CHECK(!touched->files[0].touched);
	fs_touched_free(touched);
	free(touched);

	touched = xfs_begin(false);
	xfs_event(touched, 1001, 7, 0, 0x4000083);
	xfs_event(touched, 1000, 7, 2, 0x83);
	CHECK_NUMBER(touched->freed_count, 1);
	fs_touched_free(touched);
	free(touched);
}

/* What never answers, as the memory of a process that is stuck, is given up, and others are read. */
static void reader(void)
{
	char path[FS_PATH_MAX], *text;
	const uint64_t begin = fs_now_ns();
	size_t length = 0;

	test_root_begin();
	test_root_file("/proc/8/cmdline", "cat\n");
	test_root_file("/proc/7/status", "");
	CHECK(!mkfifo(fs_path(path, sizeof(path), "/proc/7/cmdline"), 0600));
	CHECK(fs_reader_start(NULL, NULL) > 0);
	CHECK(!fs_reader_text(7, "cmdline", 100, false, &length));
	CHECK_NUMBER(fs_reader_stuck(), 1);
	CHECK(!fs_reader_text(7, "maps", 0, false, &length));
	CHECK_NUMBER(fs_reader_stuck(), 1);
	text = fs_reader_text(8, "cmdline", 2, true, &length);
	CHECK_TEXT(text, "ca");
	CHECK_NUMBER(length, 2);
	free(text);
	text = fs_reader_text(8, "cmdline", 0, false, &length);
	CHECK_TEXT(text, "cat\n");
	free(text);
	CHECK(!fs_reader_text(9, "cmdline", 0, false, &length));
	CHECK_NUMBER(fs_reader_stuck(), 1);
	fs_reader_end();
	CHECK(fs_now_ns() - begin < UINT64_C(5000000000));
	test_root_end();
}

void test_names(void)
{
	most_events_first();
	by_backing_device();
	deleted_on_another_cpu();
	deleted_on_xfs();
	reader();
	overlays();
	time_is_over();
	under_load();
	many_open_files();
	mounted_later();
}
