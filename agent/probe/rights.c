// SPDX-License-Identifier: Apache-2.0
#include "rights.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util.h"

#define BIT(capability) (UINT64_C(1) << (capability))

/* In the order of their numbers (include/uapi/linux/capability.h). */
static const char *const names[] = {
	"chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap",
	"linux_immutable", "net_bind_service", "net_broadcast", "net_admin", "net_raw", "ipc_lock", "ipc_owner",
	"sys_module", "sys_rawio", "sys_chroot", "sys_ptrace", "sys_pacct", "sys_admin", "sys_boot", "sys_nice",
	"sys_resource", "sys_time", "sys_tty_config", "mknod", "lease", "audit_write", "audit_control", "setfcap",
	"mac_override", "mac_admin", "syslog", "wake_alarm", "block_suspend", "audit_read", "perfmon", "bpf",
	"checkpoint_restore",
};

static int get(uint64_t *effective, uint64_t *permitted)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };

	if (syscall(SYS_capget, &head, data))
		return -1;
	*effective = data[0].effective | (uint64_t)data[1].effective << 32;
	*permitted = data[0].permitted | (uint64_t)data[1].permitted << 32;
	return 0;
}

static int set(uint64_t capabilities)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = { 0 };

	for (int i = 0; i < 2; i++)
		data[i].effective = data[i].permitted = (uint32_t)(capabilities >> 32 * i);
	return (int)syscall(SYS_capset, &head, data);
}

static bool tracefs_is_anothers(const struct fs_tracefs *tracefs)
{
	char path[FS_PATH_MAX];
	struct stat st;

	return tracefs->path[0] && !stat(fs_tracefs_path(tracefs, path, sizeof(path), "instances"), &st) &&
	       st.st_uid != geteuid();
}

enum when { ALWAYS, WITH_USER, WITH_NAMES, OTHERS_TRACEFS };

/* What a recording agent does not give up, when, and why. */
static const struct {
	int capability;
	enum when when;
	const char *said, *why;
} kept[] = {
	{ CAP_SYS_NICE, ALWAYS, "always", "drain in idle time" },
	{ CAP_KILL, WITH_USER, "with --user", "end a command of another user" },
	{ CAP_SYS_PTRACE, WITH_NAMES, "without --paths none", "read open files and namespaces of other users' processes in /proc" },
	{ CAP_DAC_READ_SEARCH, WITH_NAMES, "without --paths none", "look for file names in directories of other users" },
	{ CAP_DAC_OVERRIDE, OTHERS_TRACEFS, "where tracefs belongs to another user", "write to tracefs" },
};

int fs_rights_drop(const struct fs_tracefs *tracefs, bool others_command, bool names_recorded)
{
	const bool holds[] = { [ALWAYS] = true,
			       [WITH_USER] = others_command,
			       [WITH_NAMES] = names_recorded,
			       [OTHERS_TRACEFS] = tracefs_is_anothers(tracefs) };
	uint64_t effective, permitted, keep = 0;

	if (get(&effective, &permitted))
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
		if (holds[kept[i].when])
			keep |= BIT(kept[i].capability);
	/* Root that executes a program would get all of them back, but for these two. */
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (effective & BIT(CAP_SETPCAP)) {
		prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED, 0, 0, 0);
		for (unsigned long i = 0; i < 64; i++)
			if (!(keep & BIT(i)))
				prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
	}
	return set(permitted & keep);
}

struct need {
	const char *what, *by;
	bool there;
};

static void need_json(struct fs_json *json, const struct need *need)
{
	fs_json_object(json, NULL);
	fs_json_string(json, "what", need->what);
	fs_json_string(json, "by", need->by);
	fs_json_bool(json, "there", need->there);
	fs_json_object_end(json);
}

static bool writable(const char *name)
{
	char path[FS_PATH_MAX];

	return !access(fs_path(path, sizeof(path), "%s", name), W_OK);
}

static void tracefs_json(struct fs_json *json, const struct fs_tracefs *tracefs)
{
	char path[FS_PATH_MAX], mode[8];
	struct stat st;

	if (!tracefs->path[0] || stat(fs_tracefs_path(tracefs, path, sizeof(path), "instances"), &st)) {
		fs_json_null(json, "instances");
		return;
	}
	fs_json_object(json, "instances");
	fs_json_i64(json, "uid", st.st_uid);
	fs_json_i64(json, "gid", st.st_gid);
	snprintf(mode, sizeof(mode), "%03o", st.st_mode & 07777);
	fs_json_string(json, "mode", mode);
	fs_json_object_end(json);
}

static void keeps_json(struct fs_json *json, uint64_t permitted)
{
	char name[32];

	fs_json_array(json, "keeps");
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
		if (!(permitted & BIT(kept[i].capability)))
			continue;
		snprintf(name, sizeof(name), "cap_%s", names[kept[i].capability]);
		fs_json_object(json, NULL);
		fs_json_string(json, "capability", name);
		fs_json_string(json, "when", kept[i].said);
		fs_json_string(json, "why", kept[i].why);
		fs_json_object_end(json);
	}
	fs_json_array_end(json);
}

static void needs_json(struct fs_json *json, const struct fs_tracefs *tracefs, uint64_t effective)
{
	const uint64_t other_user = BIT(CAP_SETUID) | BIT(CAP_SETGID) | BIT(CAP_KILL);
	const struct need needs[] = {
		{ "record: make an instance in tracefs",
		  "root, the owner of instances/ in tracefs, or CAP_DAC_OVERRIDE",
		  tracefs->path[0] && tracefs->instances },
		{ "our own probes (flash, layers, which file)", "write access to kprobe_events in tracefs",
		  tracefs->path[0] && tracefs->kprobe_events },
		{ "mount tracefs where it is not mounted", "CAP_SYS_ADMIN", effective & BIT(CAP_SYS_ADMIN) },
		{ "drain in idle time", "CAP_SYS_NICE", effective & BIT(CAP_SYS_NICE) },
		{ "--user: run the command as another user", "CAP_SETUID, CAP_SETGID, CAP_KILL",
		  (effective & other_user) == other_user },
		{ "--drop-caches", "write access to /proc/sys/vm/drop_caches",
		  writable("/proc/sys/vm/drop_caches") },
	};

	fs_json_array(json, "needs");
	for (size_t i = 0; i < ARRAY_SIZE(needs); i++)
		need_json(json, &needs[i]);
	fs_json_array_end(json);
}

void fs_rights_json(struct fs_json *json, const struct fs_tracefs *tracefs)
{
	uint64_t effective = 0, permitted = 0;

	get(&effective, &permitted);
	fs_json_object(json, "access");
	fs_json_i64(json, "uid", geteuid());
	fs_json_array(json, "capabilities");
	for (size_t i = 0; i < 64; i++) {
		char name[32];

		if (!(effective >> i & 1))
			continue;
		if (i < ARRAY_SIZE(names))
			snprintf(name, sizeof(name), "cap_%s", names[i]);
		else
			snprintf(name, sizeof(name), "cap_%zu", i);
		fs_json_string(json, NULL, name);
	}
	fs_json_array_end(json);
	tracefs_json(json, tracefs);
	needs_json(json, tracefs, effective);
	keeps_json(json, permitted);
	fs_json_object_end(json);
}
