// SPDX-License-Identifier: Apache-2.0
/* flashscope-agent probe: the facts, as one JSON object. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cmds.h"
#include "facts.h"
#include "rights.h"
#include "files.h"
#include "groups.h"
#include "layers.h"
#include "mounts.h"
#include "protocol.h"
#include "sweep.h"
#include "util.h"

void fs_facts_gather(struct fs_facts *facts, enum fs_tracefs_mount mount_tracefs)
{
	struct utsname name;
	char *text;

	memset(facts, 0, sizeof(*facts));
	uname(&name);
	facts->layout.long_size = strstr(name.machine, "64") ? 8 : sizeof(long);
	facts->layout.data_offset = 8u + facts->layout.long_size;
	facts->layout.size = (uint32_t)sysconf(_SC_PAGESIZE);
	if (fs_tracefs_find(&facts->tracefs, mount_tracefs)) {
		text = fs_tracefs_read(&facts->tracefs, "events/header_page");
		if (text)
			fs_parse_header_page(text, &facts->layout);
		free(text);
	}
	facts->machine = fs_machine_of(name.machine, facts->layout.long_size);
	fs_mtd_scan(&facts->mtd);
}

void fs_facts_free(struct fs_facts *facts)
{
	fs_mtd_free(&facts->mtd);
	fs_probe_points_free(&facts->points);
}

static void value_json(struct fs_json *json, const char *key, const char *path)
{
	char *value = fs_read_value(path);

	fs_json_string(json, key, value);
	free(value);
}

static void number_json(struct fs_json *json, const char *key, const char *path)
{
	uint64_t value = 0;
	bool known = fs_read_u64(path, &value);

	fs_json_known(json, key, known, value);
}

/*
 * Whether process 1 is this program: a virtual board. Its randomness is seeded, so that every boot of it has one boot_id;
 * and all that one of its boots records is one stream, with one clock.
 */
static bool on_virtual_board(void)
{
	char first[FS_PATH_MAX], self[FS_PATH_MAX];
	ssize_t a = readlink("/proc/1/exe", first, sizeof(first));
	ssize_t b = readlink("/proc/self/exe", self, sizeof(self));

	return a > 0 && a == b && !memcmp(first, self, (size_t)a);
}

static void kernel_json(struct fs_json *json, const struct fs_facts *facts)
{
	char path[FS_PATH_MAX];
	struct utsname name;

	uname(&name);
	fs_json_object(json, "agent");
	fs_json_string(json, "version", FS_AGENT_VERSION);
	fs_json_string(json, "build", FS_AGENT_BUILD);
	fs_json_u64(json, "protocol", FS_PROTOCOL_VERSION);
	fs_json_string(json, "arch", name.machine);
	fs_json_object_end(json);
	fs_json_object(json, "kernel");
	fs_json_string(json, "release", name.release);
	fs_json_string(json, "version", name.version);
	fs_json_string(json, "machine", name.machine);
	fs_json_u64(json, "page_size", (uint64_t)sysconf(_SC_PAGESIZE));
	fs_json_u64(json, "long_size", facts->layout.long_size);
	fs_json_u64(json, "cpus_possible", (uint64_t)fs_cpus_possible());
	value_json(json, "cmdline", fs_path(path, sizeof(path), "/proc/cmdline"));
	if (on_virtual_board())
		fs_json_null(json, "boot_id");
	else
		value_json(json, "boot_id",
			   fs_path(path, sizeof(path), "/proc/sys/kernel/random/boot_id"));
	fs_json_object_end(json);
}

static void clocks_json(struct fs_json *json, const struct fs_facts *facts)
{
	char *text = facts->tracefs.path[0] ? fs_tracefs_read(&facts->tracefs, "trace_clock") : NULL;
	char *save = NULL;

	fs_json_object(json, "clocks");
	if (text) {
		fs_json_array(json, "trace");
		for (char *clock = strtok_r(text, " []\n", &save); clock;
		     clock = strtok_r(NULL, " []\n", &save))
			fs_json_string(json, NULL, clock);
		fs_json_array_end(json);
	} else {
		fs_json_null(json, "trace");
	}
	fs_json_u64(json, "monotonic_ns", fs_now_ns());
	fs_json_object_end(json);
	free(text);
}

static void tracefs_json(struct fs_json *json, const struct fs_tracefs *tracefs)
{
	fs_json_object(json, "tracefs");
	fs_json_string(json, "path", tracefs->path[0] ? tracefs->shown : NULL);
	fs_json_string(json, "error", tracefs->path[0] ? NULL : tracefs->error);
	fs_json_bool(json, "instances", tracefs->instances);
	fs_json_bool(json, "kprobe_events", tracefs->kprobe_events);
	fs_json_bool(json, "private_mount", tracefs->private_mount);
	fs_json_object_end(json);
}

static void mtd_json(struct fs_json *json, const struct fs_mtd_list *list)
{
	fs_json_array(json, "mtd");
	for (size_t i = 0; i < list->count; i++) {
		const struct fs_mtd *mtd = &list->items[i];

		fs_json_object(json, NULL);
		fs_json_i64(json, "index", mtd->index);
		fs_json_string(json, "name", mtd->name);
		fs_json_string(json, "type", mtd->type);
		fs_json_u64(json, "size", mtd->size);
		fs_json_u64(json, "erasesize", mtd->erasesize);
		fs_json_u64(json, "writesize", mtd->writesize);
		fs_json_u64(json, "subpagesize", mtd->subpagesize);
		fs_json_u64(json, "oobsize", mtd->oobsize);
		fs_json_known(json, "offset", mtd->has_offset, mtd->offset);
		fs_json_i64(json, "chip", mtd->chip);
		if (mtd->parent >= 0)
			fs_json_i64(json, "parent", mtd->parent);
		else
			fs_json_null(json, "parent");
		fs_json_known(json, "first_page", mtd->has_first_page, mtd->first_page);
		fs_json_known(json, "chip_pointer", mtd->chip_pointer, mtd->chip_pointer);
		fs_json_known(json, "mtd_pointer", mtd->mtd_pointer, mtd->mtd_pointer);
		if (fs_mtd_is_nand(mtd))
			fs_mtd_health_json(json, mtd->index);
		fs_json_object_end(json);
	}
	fs_json_array_end(json);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int no_dots(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* A list of what `one` writes of each entry of a directory, which may write nothing. */
static void list_json(struct fs_json *json, const char *key, const char *directory,
		      void (*one)(struct fs_json *json, const char *name))
{
	struct dirent **entries;
	char path[FS_PATH_MAX];
	int count = scandir(fs_path(path, sizeof(path), "%s", directory), &entries, no_dots, by_name);

	fs_json_array(json, key);
	for (int i = 0; i < count; i++) {
		one(json, entries[i]->d_name);
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
	fs_json_array_end(json);
}

/*
 * The backing file of a loop device. The kernel adds " (deleted)" to the name of a deleted file; another file with that
 * name is not the backing file (drivers/block/loop.c, loop_attr_backing_file_show).
 */
static void loop_json(struct fs_json *json, const char *disk)
{
	char path[FS_PATH_MAX];
	char *file = fs_read_value(fs_path(path, sizeof(path), "/sys/block/%s/loop/backing_file", disk));
	struct stat where;

	if (!file) {
		fs_json_null(json, "loop");
		return;
	}
	fs_json_object(json, "loop");
	fs_json_string(json, "backing_file", file);
	if (!stat(file, &where)) {
		fs_json_device(json, "device", major(where.st_dev), minor(where.st_dev));
		fs_json_u64(json, "inode", where.st_ino);
	} else {
		fs_json_null(json, "device");
		fs_json_null(json, "inode");
	}
	number_json(json, "offset", fs_path(path, sizeof(path), "/sys/block/%s/loop/offset", disk));
	number_json(json, "direct_io", fs_path(path, sizeof(path), "/sys/block/%s/loop/dio", disk));
	fs_json_object_end(json);
	free(file);
}

static void disk_json(struct fs_json *json, const char *name)
{
	char path[FS_PATH_MAX];
	uint64_t sectors = 0;

	fs_read_u64(fs_path(path, sizeof(path), "/sys/block/%s/size", name), &sectors);
	/* ram0 to ram15 and unused loop devices are left out */
	if (!sectors && (!strncmp(name, "ram", 3) || !strncmp(name, "loop", 4)))
		return;
	fs_json_object(json, NULL);
	fs_json_string(json, "name", name);
	value_json(json, "device", fs_path(path, sizeof(path), "/sys/block/%s/dev", name));
	fs_json_u64(json, "size_bytes", sectors * 512);
	number_json(json, "read_ahead_kb", fs_path(path, sizeof(path), "/sys/block/%s/queue/read_ahead_kb", name));
	/* the longest request: what is read ahead is cut into such */
	number_json(json, "max_sectors_kb", fs_path(path, sizeof(path), "/sys/block/%s/queue/max_sectors_kb", name));
	value_json(json, "scheduler", fs_path(path, sizeof(path), "/sys/block/%s/queue/scheduler", name));
	number_json(json, "nr_requests", fs_path(path, sizeof(path), "/sys/block/%s/queue/nr_requests", name));
	number_json(json, "rotational", fs_path(path, sizeof(path), "/sys/block/%s/queue/rotational", name));
	/* an eMMC's own report of its wear (drivers/mmc/core/mmc.c) */
	value_json(json, "life_time", fs_path(path, sizeof(path), "/sys/block/%s/device/life_time", name));
	value_json(json, "pre_eol_info", fs_path(path, sizeof(path), "/sys/block/%s/device/pre_eol_info", name));
	value_json(json, "write_cache", fs_path(path, sizeof(path), "/sys/block/%s/queue/write_cache", name));
	value_json(json, "dm_name", fs_path(path, sizeof(path), "/sys/block/%s/dm/name", name));
	value_json(json, "dm_uuid", fs_path(path, sizeof(path), "/sys/block/%s/dm/uuid", name));
	loop_json(json, name);
	fs_json_object_end(json);
}

/* Erase counters of UBI devices (drivers/mtd/ubi/build.c); volumes (ubi0_1) and the control device have none. */
static void ubi_json(struct fs_json *json, const char *name)
{
	static const char *const numbers[] = { "mtd_num", "eraseblock_size", "total_eraseblocks",
					       "bad_peb_count", "reserved_for_bad", "max_ec" };
	char path[FS_PATH_MAX];

	if (strncmp(name, "ubi", 3) || !name[3] || name[3 + strspn(name + 3, "0123456789")])
		return;
	fs_json_object(json, NULL);
	fs_json_string(json, "name", name);
	for (size_t n = 0; n < ARRAY_SIZE(numbers); n++)
		number_json(json, numbers[n], fs_path(path, sizeof(path), "/sys/class/ubi/%s/%s", name, numbers[n]));
	fs_json_object_end(json);
}

static void bdi_json(struct fs_json *json, const char *name)
{
	char path[FS_PATH_MAX];

	fs_json_object(json, NULL);
	fs_json_string(json, "name", name);
	number_json(json, "read_ahead_kb", fs_path(path, sizeof(path), "/sys/class/bdi/%s/read_ahead_kb", name));
	fs_json_object_end(json);
}

/* Of this machine's own storage or memory: a file system of a network may not answer. */
static bool is_local(const char *source, const char *type)
{
	static const char *const types[] = { "jffs2", "ubifs", "rootfs", "ramfs", "tmpfs", "devtmpfs" };

	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (!strcmp(type, types[i]))
			return true;
	return !strncmp(source, "/dev/", 5) && strncmp(type, "fuse", 4);
}

/*
 * Device and block size of a file system on a disk or on flash: events name the
 * device, and block addresses of extents count in such blocks.
 */
static void mounted_json(struct fs_json *json, const char *source, const char *target, const char *type)
{
	struct statvfs sizes;
	struct stat where;

	if (source && target && type && is_local(source, type) && !stat(target, &where) &&
	    !statvfs(target, &sizes)) {
		fs_json_device(json, "device", major(where.st_dev), minor(where.st_dev));
		fs_json_u64(json, "block_bytes", sizes.f_frsize);
		fs_json_u64(json, "size_bytes", (uint64_t)sizes.f_blocks * sizes.f_frsize);
		/* what a user may still take: ext4 keeps some for root */
		fs_json_u64(json, "free_bytes", (uint64_t)sizes.f_bavail * sizes.f_frsize);
	} else {
		fs_json_null(json, "device");
		fs_json_null(json, "block_bytes");
		fs_json_null(json, "size_bytes");
		fs_json_null(json, "free_bytes");
	}
}

/* Where memory is written to; a file in a file system has no device of its own. */
static void swaps_json(struct fs_json *json)
{
	char path[FS_PATH_MAX], name[FS_PATH_MAX], kind[16];
	char *text = fs_read_text(fs_path(path, sizeof(path), "/proc/swaps"), NULL);
	char *lines = NULL;

	fs_json_array(json, "swaps");
	for (char *line = text ? strtok_r(text, "\n", &lines) : NULL; line; line = strtok_r(NULL, "\n", &lines)) {
		struct stat where;

		/* the first line names the columns, and its second word is no kind */
		if (strlen(line) >= sizeof(name) || sscanf(line, "%s %15s", name, kind) != 2 ||
		    (strcmp(kind, "partition") && strcmp(kind, "file")))
			continue;
		fs_unescape(name);
		fs_json_object(json, NULL);
		fs_json_string(json, "path", name);
		if (!stat(name, &where) && S_ISBLK(where.st_mode)) {
			fs_json_device(json, "device", major(where.st_rdev), minor(where.st_rdev));
		} else {
			fs_json_null(json, "device");
		}
		fs_json_object_end(json);
	}
	fs_json_array_end(json);
	free(text);
}

static void mounts_json(struct fs_json *json)
{
	static const char *const keys[] = { "source", "target", "type", "options" };
	char path[FS_PATH_MAX];
	char *text = fs_read_text(fs_path(path, sizeof(path), "/proc/self/mounts"), NULL);
	char *lines = NULL;

	fs_json_array(json, "mounts");
	for (char *line = text ? strtok_r(text, "\n", &lines) : NULL; line;
	     line = strtok_r(NULL, "\n", &lines)) {
		char *words = NULL, *values[ARRAY_SIZE(keys)];

		fs_json_object(json, NULL);
		for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
			values[i] = strtok_r(i ? NULL : line, " ", &words);
			if (values[i])
				fs_unescape(values[i]);
			fs_json_string(json, keys[i], values[i]);
		}
		mounted_json(json, values[0], values[1], values[2]);
		fs_json_object_end(json);
	}
	fs_json_array_end(json);
	free(text);
}

/* How much memory programs may change before they wait for the device (mm/page-writeback.c), and how much there is for it. */
static void vm_json(struct fs_json *json)
{
	static const char *const names[] = { "dirty_bytes", "dirty_ratio", "dirty_background_bytes",
					     "dirty_background_ratio" };
	uint64_t available = fs_available_bytes();
	char path[FS_PATH_MAX];

	fs_json_object(json, "vm");
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		number_json(json, names[i], fs_path(path, sizeof(path), "/proc/sys/vm/%s", names[i]));
	fs_json_known(json, "available_bytes", available, available);
	fs_json_object_end(json);
}

void fs_cpu_pressure_json(struct fs_json *json)
{
	char path[FS_PATH_MAX];
	char *text = fs_read_value(fs_path(path, sizeof(path), "/proc/pressure/cpu"));
	uint64_t some_us;

	if (text && sscanf(text, "some %*s %*s %*s total=%" SCNu64, &some_us) == 1) {
		fs_json_object(json, "cpu_pressure");
		fs_json_u64(json, "some_us", some_us);
		fs_json_u64(json, "monotonic_ns", fs_now_ns());
		fs_json_object_end(json);
	} else {
		fs_json_null(json, "cpu_pressure");
	}
	free(text);
}

void fs_facts_json(struct fs_json *json, const struct fs_facts *facts, bool brief)
{
	kernel_json(json, facts);
	clocks_json(json, facts);
	fs_cpu_pressure_json(json);
	tracefs_json(json, &facts->tracefs);
	fs_probe_points_json(json, "probe_points", &facts->points);
	mtd_json(json, &facts->mtd);
	if (brief) {
		fs_json_null(json, "block");
		fs_json_null(json, "ubi");
		fs_json_null(json, "bdi");
		fs_json_null(json, "mounts");
		fs_json_null(json, "swaps");
		fs_json_null(json, "vm");
		return;
	}
	list_json(json, "block", "/sys/block", disk_json);
	list_json(json, "ubi", "/sys/class/ubi", ubi_json);
	list_json(json, "bdi", "/sys/class/bdi", bdi_json);
	mounts_json(json);
	swaps_json(json);
	vm_json(json);
}

/* What a recording of each group would hold here; where a file's numbers lie is tried with --trial alone. */
static void groups_json(struct fs_json *json, const struct fs_facts *facts, bool trial)
{
	fs_json_array(json, "groups");
	for (unsigned int group = 1; facts->tracefs.path[0] && group <= FS_GROUP_LAYERS; group <<= 1) {
		struct fs_probes *probes = fs_alloc(sizeof(*probes));
		struct fs_file_layout layout;
		struct fs_events events = { 0 };
		char error[160] = "";

		memset(probes, 0, sizeof(*probes));
		fs_events_of_groups(&events, &facts->tracefs, &facts->machine, group, (long)getpid());
		if (group == FS_GROUP_CACHE && (trial || !facts->tracefs.kprobe_events)) {
			if (fs_files_calibrate(&facts->tracefs, &facts->machine, &layout, error, sizeof(error)))
				snprintf(layout.missing, sizeof(layout.missing), "%s", error);
			fs_files_plan(&facts->machine, &layout, "flashscope", (long)getpid(), probes, &events);
		}
		if (group == FS_GROUP_LAYERS)
			fs_layers_plan(&facts->tracefs, "flashscope", (long)getpid(), probes, &events);
		fs_json_object(json, NULL);
		fs_json_string(json, "group", fs_group_name(group));
		fs_json_u64(json, "events", events.count);
		fs_json_u64(json, "probes", probes->count);
		fs_json_string(json, "lacks", events.count + probes->count ? NULL : fs_group_lacks(group));
		fs_events_json(json, &events);
		fs_json_object_end(json);
		fs_events_free(&events);
		fs_probes_free(probes);
		free(probes);
	}
	fs_json_array_end(json);
}

int cmd_probe(int argc, char **argv)
{
	struct fs_json json = { 0 };
	struct fs_facts facts;
	struct fs_swept swept;
	bool trial = false;
	int result = 0;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--trial"))
			return fs_usage("probe %s: unknown option; probe takes only --trial", argv[i]);
		trial = true;
	}
	fs_sweep(&swept);
	fs_facts_gather(&facts, getpid() == 1 ? FS_MOUNT_HERE : FS_MOUNT_PRIVATE);
	/* A machine that cannot try is told so, and described without. */
	if (trial && !(facts.tracefs.path[0] && facts.tracefs.kprobe_events && facts.tracefs.instances)) {
		trial = false;
		if (!facts.tracefs.path[0])
			fs_warn("trial: not made: tracefs: %s", facts.tracefs.error);
		else
			fs_warn("trial: not made: %s has no %s; the kernel needs CONFIG_KPROBE_EVENTS", facts.tracefs.shown,
				facts.tracefs.instances ? "kprobe_events" : "instances");
	}
	if (trial) {
		char error[256];

		if (fs_probe_points_try(&facts.tracefs, &facts.machine, &facts.points, &facts.mtd, error, sizeof(error)))
			result = fs_fail("trial: %s", error);
	} else {
		fs_probe_points_check(&facts.tracefs, &facts.machine, &facts.points);
	}
	if (!result) {
		fs_json_object(&json, NULL);
		fs_facts_json(&json, &facts, false);
		fs_rights_json(&json, &facts.tracefs);
		groups_json(&json, &facts, trial);
		fs_json_object_end(&json);
		fs_buf_puts(&json.out, "\n");
		if (fwrite(json.out.data, 1, json.out.length, stdout) != json.out.length ||
		    fflush(stdout))
			result = fs_fail("stdout: %s; is its disk full, or its reader gone?",
					 strerror(errno));
	}
	fs_json_free(&json);
	fs_facts_free(&facts);
	return result;
}
