// SPDX-License-Identifier: Apache-2.0
/*
 * Cgroups of a replay: /sys/fs/cgroup/flashscope_<namespace>_<pid>_<starttime>/NAME, by
 * version 2 of the interface. Where that is mounted nowhere it is mounted for this run
 * alone, in a mount namespace of its own.
 */
#include "replay_cgroups.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cgroups.h"
#include "owner.h"

/* The kernel's option without which a file or a controller is not there; the first that begins alike. */
static const struct {
	const char *file, *option;
} options[] = {
	{ "io.max", "CONFIG_BLK_DEV_THROTTLING" },
	{ "io.latency", "CONFIG_BLK_CGROUP_IOLATENCY" },
	{ "io.bfq.", "CONFIG_BFQ_GROUP_IOSCHED and the scheduler bfq" },
	{ "io.weight", "CONFIG_BLK_CGROUP_IOCOST" },
	{ "io.prio.", "CONFIG_BLK_CGROUP_IOPRIO" },
	{ "io.", "CONFIG_BLK_CGROUP" },
	{ "memory.", "CONFIG_MEMCG" },
	{ "cpu.max", "CONFIG_CFS_BANDWIDTH" },
	{ "cpu.", "CONFIG_FAIR_GROUP_SCHED" },
	{ "pids.", "CONFIG_CGROUP_PIDS" },
};

/* Until jiffies, which start at -300 s, have passed 0. */
#define IO_MAX_AFTER_NS (UINT64_C(305) * 1000000000)

static const char *option_of(const char *file)
{
	for (size_t i = 0; i < ARRAY_SIZE(options); i++)
		if (!strncmp(file, options[i].file, strlen(options[i].file)))
			return options[i].option;
	return "another kernel";
}

/* Major and minor number of the whole disk below a directory, as the io controller takes them. */
static int device_of(const char *dir, char *out, size_t size)
{
	char path[128], *text;
	struct stat st;

	if (stat(dir, &st))
		return fs_fail("%s: %s", dir, strerror(errno));
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/partition", major(st.st_dev), minor(st.st_dev));
	snprintf(out, size, "%u:%u", major(st.st_dev), minor(st.st_dev));
	if (access(path, F_OK))
		return 0;
	snprintf(path, sizeof(path), "/sys/dev/block/%s/../dev", out);
	text = fs_read_value(path);
	if (text)
		snprintf(out, size, "%s", text);
	free(text);
	return 0;
}

/*
 * Linux, block/blk-throttle.c, throtl_trim_slice(): on a 32-bit kernel its BUG_ON() meets
 * jiffies that have not passed 0, which they do 300 s after boot (seen on 5.10 to 7.2).
 */
static int check_io_max(void)
{
	uint64_t now = fs_now_ns();
	struct utsname u;

	if (uname(&u) || strstr(u.machine, "64") || now >= IO_MAX_AFTER_NS)
		return 0;
	return fs_fail("io.max: a 32-bit kernel crashes on it in the first 300 s after boot (throtl_trim_slice() and jiffies below 0); "
		       "run this again in %llu s",
		       (unsigned long long)((IO_MAX_AFTER_NS - now) / 1000000000 + 1));
}

/* Switches a controller on for the run's own cgroups. 0, or -1 with errno. */
static int enable(const char *dir, const char *controller)
{
	char path[FS_PATH_MAX + 128], text[16];

	snprintf(path, sizeof(path), "%s/cgroup.subtree_control", dir);
	snprintf(text, sizeof(text), "+%s", controller);
	return fs_write_text(path, text);
}

static bool has_word(const char *file, const char *word)
{
	char *text = fs_read_value(file), *rest = text, *next;
	bool found = false;

	while (rest && (next = strsep(&rest, " ")) && !found)
		found = !strcmp(next, word);
	free(text);
	return found;
}

/* The controller that a file such as io.max is of, on for the run's cgroups. 0, or an exit code. */
static int want(struct replay_cgroups *c, const char *cgroup, const char *file)
{
	char path[FS_PATH_MAX + 128];

	for (size_t i = 0; i < ARRAY_SIZE(fs_cgroup_controllers); i++) {
		const char *controller = fs_cgroup_controllers[i];
		size_t length = strlen(controller);

		if (strncmp(file, controller, length) || file[length] != '.')
			continue;
		snprintf(path, sizeof(path), "%s/cgroup.controllers", c->mount);
		if (!has_word(path, controller))
			return fs_fail("cgroup %s: %s: cgroup2 has no %s controller here (it needs %s, or cgroup v1 holds it); leave it out",
				       cgroup, file, controller, option_of(file));
		snprintf(path, sizeof(path), "%s/cgroup.subtree_control", c->mount);
		if (!has_word(path, controller) && fs_cgroup_enable(c->mount, controller))
			return fs_fail("%s: +%s: %s; is another process in the root cgroup's way?", path, controller,
				       strerror(errno));
		if (enable(c->path, controller))
			return fs_fail("%s: +%s: %s", c->path, controller, strerror(errno));
	}
	return 0;
}

static const char *path_of(const struct replay_cgroups *c, const struct replay_script *s, uint32_t cgroup, const char *file, char *out,
			   size_t size)
{
	snprintf(out, size, "%s/%s/%s", c->path, s->cgroup[cgroup], file);
	return out;
}

static int set(const struct replay_cgroups *c, const struct replay_script *s, const struct replay_setting *setting, const char *device)
{
	const char *at = strstr(setting->value, "{device}");
	char path[2 * FS_PATH_MAX];
	struct fs_buf value = { 0 };
	int failed = !strcmp(setting->file, "io.max") ? check_io_max() : 0;

	if (failed)
		return failed;
	if (at)
		fs_buf_printf(&value, "%.*s%s%s", (int)(at - setting->value), setting->value, device, at + strlen("{device}"));
	else
		fs_buf_puts(&value, setting->value);
	path_of(c, s, setting->cgroup, setting->file, path, sizeof(path));
	if (fs_write_text(path, value.data))
		failed = errno == ENOENT || errno == EOPNOTSUPP ?
				 fs_fail("cgroup %s: %s=%s: %s: it needs %s; leave it out, or take another kernel",
					 s->cgroup[setting->cgroup], setting->file, value.data, strerror(errno), option_of(setting->file)) :
				 fs_fail("cgroup %s: %s=%s: %s", s->cgroup[setting->cgroup], setting->file, value.data, strerror(errno));
	fs_buf_free(&value);
	return failed;
}

int replay_cgroups_make(struct replay_cgroups *c, const struct replay_script *s, const char *dir)
{
	char own[96], path[2 * FS_PATH_MAX], device[32];
	int failed;

	if (!s->cgroups)
		return 0;
	if (fs_cgroup2_find(c->mount, c->own_mount, sizeof(c->mount)))
		return fs_fail("cgroup: cgroup2 cannot be mounted: %s; mount it on /sys/fs/cgroup, as root on a kernel with CONFIG_CGROUPS",
			       strerror(errno));
	if (fs_cgroups_note())
		return fs_fail("cgroup: the note for the removal cannot be written: %s; make /run writable", strerror(errno));
	failed = device_of(dir, device, sizeof(device));
	if (failed)
		return failed;
	snprintf(c->path, sizeof(c->path), "%s/%s", c->mount, fs_own_name(own, sizeof(own), "flashscope"));
	if (mkdir(c->path, 0755)) {
		failed = fs_fail("%s: %s; cgroups need root", c->path, strerror(errno));
		c->path[0] = '\0';
		return failed;
	}
	for (uint32_t i = 0; i < s->settings && !failed; i++)
		failed = want(c, s->cgroup[s->setting[i].cgroup], s->setting[i].file);
	for (uint32_t i = 0; i < s->cgroups && !failed; i++) {
		if (mkdir(path_of(c, s, i, "", path, sizeof(path)), 0755))
			failed = fs_fail("%s: %s", path, strerror(errno));
		else
			c->made = i + 1;
	}
	for (uint32_t i = 0; i < s->settings && !failed; i++)
		failed = set(c, s, &s->setting[i], device);
	return failed;
}

int replay_cgroups_enter(const struct replay_cgroups *c, const struct replay_script *s, uint32_t cgroup)
{
	char path[2 * FS_PATH_MAX];

	if (fs_write_text(path_of(c, s, cgroup, "cgroup.procs", path, sizeof(path)), "0"))
		return fs_fail("%s: %s", path, strerror(errno));
	return 0;
}

int replay_cgroups_remove(struct replay_cgroups *c, const struct replay_script *s, int failed)
{
	char path[2 * FS_PATH_MAX];

	for (uint32_t i = 0; i < c->made; i++)
		if (rmdir(path_of(c, s, i, "", path, sizeof(path))) && !failed)
			failed = fs_fail("%s: not removed: %s; remove it by hand", path, strerror(errno));
	if (*c->path && rmdir(c->path) && !failed)
		failed = fs_fail("%s: not removed: %s; remove it by hand", c->path, strerror(errno));
	if (*c->mount && fs_cgroups_restore(c->mount) && !failed)
		failed = FS_EXIT_FAILURE;
	fs_cgroup2_leave(c->own_mount);
	return failed;
}
