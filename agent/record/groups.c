// SPDX-License-Identifier: Apache-2.0
#include "groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util.h"

#define BLOCK FS_GROUP_BLOCK
#define SYSCALL FS_GROUP_SYSCALL
#define CACHE FS_GROUP_CACHE
#define LAYERS FS_GROUP_LAYERS
#define SYNCS FS_GROUP_SYNCS

static const struct {
	const char *name;
	unsigned int group;
	const char *lacks; /* next step where a kernel has none of its events */
} groups[] = {
	{ "block", BLOCK, "it was built without CONFIG_BLOCK; raw NAND is recorded by --events flash" },
	{ "syscall", SYSCALL,
	  "it needs CONFIG_FTRACE_SYSCALLS; --events raw_syscalls:sys_enter,raw_syscalls:sys_exit may do" },
	{ "cache", CACHE, "it needs CONFIG_TRACEPOINTS with the page cache's events (filemap), or CONFIG_KPROBE_EVENTS" },
	{ "layers", LAYERS, "it needs CONFIG_KPROBE_EVENTS; --events block,syscall shows the outermost boundaries" },
};

/*
 * Each row is one kind of fact. Where its events have changed names, or an architecture has only one of several, the
 * row lists all of them: those that exist are enabled. It is missing if none exists.
 */
struct wanted {
	unsigned int groups;
	const char *system;
	const char *events; /* "a|b"; of syscalls: both sys_enter_a and sys_exit_a */
	bool own;	    /* the recorder causes such events itself: left out by a filter */
	const char *loses;
};

/*
 * include/trace/events/{block,mmc,ufs,filemap,readahead,writeback,ext4,f2fs,btrfs,jbd2,sched,irq}.h and fs/xfs/xfs_trace.h
 * of 5.10, 6.1, 6.12, 6.18 and 7.2.
 */
static const struct wanted wanted[] = {
	{ BLOCK | LAYERS, "block", "block_bio_queue", false, "when a bio was submitted: every stage that begins there" },
	{ BLOCK, "block", "block_getrq", false, "when a request was allocated" },
	{ BLOCK, "block", "block_rq_tag_wait", false, "waits for a free tag by themselves: they are part of queue to get" },
	{ BLOCK, "block", "block_rq_insert", false, "when a request entered the scheduler: time in its queue" },
	{ BLOCK, "block", "block_bio_backmerge", false, "bios that joined a request at its end" },
	{ BLOCK, "block", "block_bio_frontmerge", false, "bios that joined a request at its beginning" },
	{ BLOCK, "block", "block_rq_merge", false, "requests that joined one another" },
	{ BLOCK, "block", "block_split", false, "bios that were too large and were cut" },
	{ BLOCK, "block", "block_bio_remap", false, "from which partition or mapped device a bio came" },
	{ BLOCK, "block", "block_rq_remap", false, "from which mapped device a request came" },
	{ BLOCK, "block", "block_rq_requeue", false, "requests that the driver gave back" },
	{ BLOCK | LAYERS, "block", "block_rq_issue", false, "when the driver got a request: device time" },
	{ BLOCK | LAYERS, "block", "block_rq_complete", false, "when a request was done: device time" },
	{ BLOCK, "block", "block_bio_complete", false, "when a bio was done" },
	{ BLOCK | LAYERS, "mmc", "mmc_request_start", false, "commands to eMMC and SD cards" },
	{ BLOCK | LAYERS, "mmc", "mmc_request_done", false, "responses of eMMC and SD cards" },
	{ BLOCK, "nvme", "nvme_setup_cmd", false, "commands to NVMe devices" },
	{ BLOCK, "nvme", "nvme_complete_rq", false, "responses of NVMe devices" },
	{ BLOCK, "ufs", "ufshcd_command", false, "commands to UFS devices" },

	{ SYSCALL | LAYERS, "syscalls", "read", true, "read()" },
	{ SYSCALL | LAYERS, "syscalls", "pread64", true, "pread()" },
	{ SYSCALL | LAYERS, "syscalls", "readv|preadv|preadv2", true, "readv() and preadv()" },
	{ SYSCALL | LAYERS, "syscalls", "write", true, "write()" },
	{ SYSCALL | LAYERS, "syscalls", "pwrite64", true, "pwrite()" },
	{ SYSCALL | LAYERS, "syscalls", "writev|pwritev|pwritev2", true, "writev() and pwritev()" },
	{ SYSCALL | LAYERS | SYNCS, "syscalls", "fsync", true, "fsync()" },
	{ SYSCALL | LAYERS | SYNCS, "syscalls", "fdatasync", true, "fdatasync()" },
	{ SYSCALL | LAYERS | SYNCS, "syscalls", "sync_file_range|sync_file_range2", true, "sync_file_range()" },
	{ SYSCALL | LAYERS | SYNCS, "syscalls", "sync|syncfs", true, "sync() and syncfs()" },
	{ SYSCALL | LAYERS | SYNCS, "syscalls", "msync", true, "msync()" },
	{ SYSCALL, "syscalls", "open|openat|openat2", true, "open()" },
	{ SYSCALL, "syscalls", "close", true, "close(): which file a number stands for" },
	{ SYSCALL, "syscalls", "unlink|unlinkat", true, "unlink()" },
	{ SYSCALL | SYNCS, "syscalls", "rename|renameat|renameat2", true, "rename()" },
	{ SYSCALL, "syscalls", "truncate|truncate64|ftruncate|ftruncate64", true, "truncate()" },
	{ SYSCALL, "syscalls", "fallocate", true, "fallocate()" },
	{ SYSCALL, "syscalls", "mmap|mmap2|mmap_pgoff", true, "mmap()" },
	{ SYSCALL, "syscalls", "fadvise64|fadvise64_64|arm_fadvise64_64", true, "posix_fadvise()" },
	{ SYSCALL, "syscalls", "readahead", true, "readahead()" },
	{ SYSCALL, "syscalls", "madvise", true, "madvise()" },
	{ SYSCALL, "syscalls", "splice", true, "splice()" },
	{ SYSCALL, "syscalls", "sendfile|sendfile64", true, "sendfile()" },
	{ SYSCALL, "syscalls", "copy_file_range", true, "copy_file_range()" },
	{ SYSCALL, "syscalls", "io_submit|io_getevents|io_getevents_time32|io_pgetevents|io_pgetevents_time32", true,
	  "asynchronous I/O (io_submit)" },
	{ SYSCALL, "syscalls", "io_uring_enter", true, "asynchronous I/O (io_uring)" },

	{ CACHE, "filemap", "mm_filemap_add_to_page_cache", true, "which pages came into the page cache, and when" },
	{ CACHE, "filemap", "mm_filemap_delete_from_page_cache", true, "which pages left the page cache, and when" },
	{ CACHE, "filemap", "mm_filemap_get_pages", true, "reads of files, where the kernel has no kprobe_events" },
	{ CACHE, "filemap", "mm_filemap_fault", true, "faults of mapped files, where file_fault is missing too" },
	{ CACHE, "filemap", "mm_filemap_map_pages", true, "pages that a fault mapped around it" },
	{ CACHE, "readahead", "page_cache_sync_ra", true, "read-ahead decisions: windows follow from what enters the cache" },
	{ CACHE, "readahead", "page_cache_async_ra", true, "read-ahead decisions of the asynchronous kind" },
	{ CACHE, "readahead", "page_cache_ra_order", true, "read-ahead in large folios" },
	{ CACHE, "readahead", "page_cache_ra_unbounded", true, "read-ahead that was asked for" },
	{ CACHE, "writeback", "writeback_dirty_folio|writeback_dirty_page", true, "which pages were made dirty by whom" },
	{ CACHE, "writeback", "writeback_single_inode_start", false, "for which inode the flusher wrote" },
	{ CACHE, "writeback", "writeback_single_inode", false, "for which inode the flusher wrote" },
	{ CACHE, "ext4", "ext4_writepages", false, "for which inode ext4 wrote" },
	{ CACHE, "ext4", "ext4_writepages_result", false, "for which inode ext4 wrote" },
	{ CACHE, "ext4", "ext4_write_begin|ext4_da_write_begin", true, "who wrote to which pages of ext4's files" },
	{ CACHE, "ext4", "ext4_es_insert_extent|ext4_es_cache_extent|ext4_es_lookup_extent_exit", false,
	  "where ext4's files lie: whose a write is follows from the file that is written back" },
	{ CACHE, "ext4", "ext4_ext_map_blocks_exit|ext4_ind_map_blocks_exit", false, "where ext4 puts new blocks" },
	{ CACHE, "ext4", "ext4_free_inode", false, "when a deleted file's inode number became free for another file" },
	{ CACHE, "f2fs", "f2fs_evict_inode", false, "when a deleted file's inode number became free for another file" },
	{ CACHE, "xfs", "xfs_file_buffered_write", true, "who wrote how much to XFS's files" },
	{ CACHE, "xfs", "xfs_file_fsync", true, "which of XFS's files was synced" },
	{ CACHE, "xfs", "xfs_dir_fsync", true, "which of XFS's directories was synced" },
	{ CACHE, "xfs", "xfs_iunlink_remove", false, "when a deleted file's inode number became free for another file" },
	{ CACHE, "xfs", "xfs_inode_inactivating|xfs_destroy_inode", false, "which file xfs_iunlink_remove is of" },
	{ CACHE, "btrfs", "btrfs_inode_evict", false, "of which subvolume a deleted file was" },
	{ CACHE, "f2fs", "f2fs_write_begin", true, "who wrote to which pages of f2fs's files" },
	{ CACHE, "f2fs", "f2fs_submit_page_write|f2fs_submit_folio_write|f2fs_submit_page_bio|f2fs_submit_folio_bio", false,
	  "where f2fs puts the pages of its files" },
	{ CACHE, "jbd2", "jbd2_start_commit", false, "when ext4's journal was written" },
	{ CACHE, "jbd2", "jbd2_end_commit", false, "when ext4's journal was written" },

	{ LAYERS, "sched", "sched_switch", false, "when a task sleeps, and when another task has its CPU" },
	{ LAYERS, "irq", "irq_handler_entry", false, "when an interrupt came" },
	{ LAYERS, "irq", "irq_handler_exit", false, "how long an interrupt's handler ran" },
	{ LAYERS, "irq", "softirq_entry", false, "when completions were taken up behind the interrupt" },
	{ LAYERS, "irq", "softirq_exit", false, "when completions were done behind the interrupt" },
};

unsigned int fs_group_of(const char *word)
{
	for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
		if (!strcmp(groups[i].name, word))
			return groups[i].group;
	return 0;
}

const char *fs_group_name(unsigned int group)
{
	for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
		if (groups[i].group == group)
			return groups[i].name;
	return "?";
}

void fs_events_add(struct fs_events *events, const char *system, const char *event, const char *filter)
{
	struct fs_event *added;

	for (size_t i = 0; i < events->count; i++) {
		const struct fs_event *there = &events->items[i];

		if (!strcmp(there->system, system) &&
		    (there->event && event ? !strcmp(there->event, event) : there->event == event))
			return;
	}
	events->items = fs_realloc(events->items, (events->count + 1) * sizeof(*events->items));
	added = &events->items[events->count++];
	snprintf(added->system, sizeof(added->system), "%s", system);
	added->event = event ? fs_strdup(event) : NULL;
	added->filter = filter ? fs_strdup(filter) : NULL;
}

void fs_events_absent(struct fs_events *events, unsigned int group, const char *event,
		      const char *why, const char *loses)
{
	struct fs_absence *absence;

	events->absent = fs_realloc(events->absent, (events->absent_count + 1) * sizeof(*events->absent));
	absence = &events->absent[events->absent_count++];
	absence->group = group;
	snprintf(absence->event, sizeof(absence->event), "%s", event);
	snprintf(absence->why, sizeof(absence->why), "%s", why ? why : "");
	absence->loses = loses;
}

void fs_events_leave_out(struct fs_events *events, struct fs_event *event)
{
	char name[96];

	snprintf(name, sizeof(name), "%s:%s", event->system, event->event ? event->event : "*");
	fs_events_absent(events, fs_group_of(!strcmp(event->system, "block") ? "block" : "cache"), name,
			 "it does not name a device, and --device was given", "what it says of this device");
	free(event->event);
	free(event->filter);
}

/* The recorder's own tasks but the recorder itself. */
static long own_tasks[8];
static size_t own_count;

void fs_own_add(long task)
{
	if (task > 0 && own_count < ARRAY_SIZE(own_tasks))
		own_tasks[own_count++] = task;
}

void fs_own_filter(char *out, size_t size, long own)
{
	int used = snprintf(out, size, "common_pid != %ld", own);

	for (size_t i = 0; i < own_count; i++)
		used += snprintf(out + used, size - (size_t)used, " && common_pid != %ld", own_tasks[i]);
}

void fs_own_json(struct fs_json *json, long own)
{
	fs_json_i64(json, NULL, own);
	for (size_t i = 0; i < own_count; i++)
		fs_json_i64(json, NULL, own_tasks[i]);
}

const char *fs_group_lacks(unsigned int group)
{
	for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
		if (groups[i].group == group)
			return groups[i].lacks;
	return "";
}

static bool has(const struct fs_tracefs *tracefs, const char *system, const char *event)
{
	char path[FS_PATH_MAX];

	return !access(fs_tracefs_path(tracefs, path, sizeof(path), "events/%s/%s/enable", system, event), F_OK);
}

/* Systems whose events come with a module, on most kernels. */
static bool of_module(const char *system)
{
	static const char *const modules[] = { "ext4", "jbd2", "mmc", "f2fs", "xfs", "btrfs" };
	size_t i = 0;

	while (i < ARRAY_SIZE(modules) && strcmp(modules[i], system))
		i++;
	return i < ARRAY_SIZE(modules);
}

/* Drivers of hardware that a machine without it does not miss. */
static bool only_with_hardware(const char *system)
{
	return !strcmp(system, "nvme") || !strcmp(system, "ufs");
}

/* The block layer's, of all (include/linux/interrupt.h: HI, TIMER, NET_TX, NET_RX, BLOCK). */
#define BLOCK_SOFTIRQ "vec == 4"

/* Adds what there is of one row; how many. */
static size_t add_row(struct fs_events *events, const struct fs_tracefs *tracefs, const struct wanted *row,
		      const char *own)
{
	const bool calls = !strcmp(row->system, "syscalls");
	char *names = fs_strdup(row->events);
	char *rest = names, *name;
	size_t added = 0;

	while ((name = strsep(&rest, "|"))) {
		for (int exit = 0; exit <= calls; exit++) {
			char event[64];

			snprintf(event, sizeof(event), "%s%s", !calls ? "" : exit ? "sys_exit_" : "sys_enter_", name);
			if (!has(tracefs, row->system, event))
				continue;
			fs_events_add(events, row->system, event,
				      !strncmp(event, "softirq_", 8) ? BLOCK_SOFTIRQ : row->own ? own : NULL);
			added++;
		}
		/* The second event is of kernels without the first; later it comes with each inode that leaves memory. */
		if (added && !strcmp(row->system, "xfs"))
			break;
	}
	free(names);
	return added;
}

/*
 * A 64-bit argument takes two registers of a 32-bit machine, and on ARM they
 * are an even and the next odd one (AAPCS). The kernel's events of calls know
 * neither: they show one register for each of the call's arguments, so that
 * pread64's `pos` is the one left out for alignment. raw_syscalls:sys_enter has
 * the registers as they are. (6.1 armmp: sys_pread64(…, pos: 0) beside NR 180
 * (3, …, a, 0, 5, 0) for a read at 5.)
 */
#if defined(__arm__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
static const struct {
	long number;
	const char *name;
	const char *arguments[6];
} registers[] = {
	{ __NR_pread64, "pread64", { "fd", "buf", "count", NULL, "pos_low", "pos_high" } },
	{ __NR_pwrite64, "pwrite64", { "fd", "buf", "count", NULL, "pos_low", "pos_high" } },
	{ __NR_readahead, "readahead", { "fd", NULL, "offset_low", "offset_high", "count", NULL } },
	{ __NR_arm_fadvise64_64, "fadvise64_64", { "fd", "advice", "offset_low", "offset_high", "len_low", "len_high" } },
	{ __NR_arm_sync_file_range, "sync_file_range2",
	  { "fd", "flags", "offset_low", "offset_high", "nbytes_low", "nbytes_high" } },
};

static void add_registers(struct fs_events *events, const struct fs_tracefs *tracefs, const char *own)
{
	struct fs_buf filter = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(registers); i++)
		fs_buf_printf(&filter, "%s id == %ld", i ? " ||" : "(", registers[i].number);
	fs_buf_printf(&filter, " ) && %s", own);
	if (has(tracefs, "raw_syscalls", "sys_enter")) {
		fs_events_add(events, "raw_syscalls", "sys_enter", filter.data);
		events->registers = true;
	}
	fs_buf_free(&filter);
}

static void registers_json(struct fs_json *json, bool recorded)
{
	fs_json_array(json, "raw_syscalls");
	for (size_t i = 0; recorded && i < ARRAY_SIZE(registers); i++) {
		fs_json_object(json, NULL);
		fs_json_i64(json, "id", registers[i].number);
		fs_json_string(json, "name", registers[i].name);
		fs_json_array(json, "arguments");
		for (size_t k = 0; k < ARRAY_SIZE(registers[i].arguments); k++)
			fs_json_string(json, NULL, registers[i].arguments[k]);
		fs_json_array_end(json);
		fs_json_object_end(json);
	}
	fs_json_array_end(json);
}
#else
static void add_registers(struct fs_events *events, const struct fs_tracefs *tracefs, const char *own)
{
	(void)tracefs;
	(void)own;
	if (sizeof(long) == 4)
		fs_events_absent(events, SYSCALL, "raw_syscalls:sys_enter", "this machine's registers are not known here",
				 "offsets of pread(), pwrite() and the like: their events show half of a 64-bit argument");
}

static void registers_json(struct fs_json *json, bool recorded)
{
	(void)recorded;
	fs_json_array(json, "raw_syscalls");
	fs_json_array_end(json);
}
#endif

unsigned int fs_events_of_groups(struct fs_events *events, const struct fs_tracefs *tracefs,
				 const struct fs_machine *machine, unsigned int asked, long own)
{
	unsigned int found = 0;
	char filter[FS_OWN_FILTER];

	fs_own_filter(filter, sizeof(filter), own);
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		const struct wanted *row = &wanted[i];
		char path[FS_PATH_MAX], name[96], why[96] = "";

		if (!(asked & row->groups))
			continue;
		if (add_row(events, tracefs, row, filter)) {
			found |= asked & row->groups;
			continue;
		}
		if (only_with_hardware(row->system))
			continue;
		snprintf(name, sizeof(name), "%s:%s", row->system, row->events);
		if (of_module(row->system) &&
		    access(fs_tracefs_path(tracefs, path, sizeof(path), "events/%s", row->system), F_OK))
			snprintf(why, sizeof(why), "no module with %s events is loaded", row->system);
		for (unsigned int group = 1; group <= FS_GROUP_LAYERS; group <<= 1)
			if (asked & row->groups & group) {
				fs_events_absent(events, group, name, why, row->loses);
				break;
			}
	}
	/* kernel/trace/trace_syscalls.c, trace_get_syscall_nr(): -1 for a compat task. */
	if (found & SYSCALL && machine->long_size == 8)
		fs_events_absent(events, SYSCALL, "syscalls of 32-bit programs",
				 "a 64-bit kernel leaves them out of its events of calls",
				 "calls of 32-bit programs: raw_syscalls:sys_enter has them by number");
	else if (found & SYSCALL)
		add_registers(events, tracefs, filter);
	return asked & ~found;
}

void fs_events_free(struct fs_events *events)
{
	for (size_t i = 0; i < events->count; i++) {
		free(events->items[i].event);
		free(events->items[i].filter);
	}
	free(events->items);
	free(events->absent);
	memset(events, 0, sizeof(*events));
}

void fs_events_json(struct fs_json *json, const struct fs_events *events)
{
	fs_json_array(json, "absent");
	for (size_t i = 0; i < events->absent_count; i++) {
		const struct fs_absence *absence = &events->absent[i];

		fs_json_object(json, NULL);
		fs_json_string(json, "group", fs_group_name(absence->group));
		fs_json_string(json, "event", absence->event);
		fs_json_string(json, "why", absence->why[0] ? absence->why : "this kernel has no such event");
		fs_json_string(json, "loses", absence->loses);
		fs_json_object_end(json);
	}
	fs_json_array_end(json);
	registers_json(json, events->registers);
}
