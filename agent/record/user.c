// SPDX-License-Identifier: Apache-2.0
#include "user.h"

#include <errno.h>
#include <grp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmds.h"
#include "command.h"
#include "util.h"

#define PASSWD_FIELDS 7
#define GROUP_FIELDS 4
/* (uid_t)-1 means "leave as it is" to the kernel. */
#define HIGHEST_ID (UINT32_MAX - 1)

/* Splits a line at colons into exactly `count` fields. */
static bool split(char *line, char **fields, size_t count)
{
	size_t found = 0;
	char *field;

	while (found < count && (field = strsep(&line, ":")))
		fields[found++] = field;
	return found == count && !line;
}

static void add_group(struct fs_user *user, gid_t gid)
{
	for (size_t i = 0; i < user->group_count; i++)
		if (user->groups[i] == gid)
			return;
	user->groups = fs_realloc(user->groups, (user->group_count + 1) * sizeof(*user->groups));
	user->groups[user->group_count++] = gid;
}

static bool find_passwd(const char *who, bool numeric, uint64_t number, struct fs_user *user)
{
	char path[FS_PATH_MAX], *fields[PASSWD_FIELDS];
	char *text = fs_read_text(fs_path(path, sizeof(path), "/etc/passwd"), NULL);
	char *rest = text, *line;
	bool found = false;

	while (!found && (line = strsep(&rest, "\n"))) {
		uint64_t uid, gid;

		if (!split(line, fields, PASSWD_FIELDS) || !fs_parse_u64(fields[2], HIGHEST_ID, &uid) ||
		    !fs_parse_u64(fields[3], HIGHEST_ID, &gid))
			continue;
		if (numeric ? uid != number : strcmp(fields[0], who) != 0)
			continue;
		user->uid = (uid_t)uid;
		user->gid = (gid_t)gid;
		user->name = fs_strdup(fields[0]);
		user->home = fs_strdup(*fields[5] ? fields[5] : "/");
		user->shell = fs_strdup(*fields[6] ? fields[6] : "/bin/sh");
		found = true;
	}
	free(text);
	return found;
}

static bool is_member(char *members, const char *name)
{
	char *member;

	while ((member = strsep(&members, ",")))
		if (!strcmp(member, name))
			return true;
	return false;
}

static void find_groups(struct fs_user *user)
{
	char path[FS_PATH_MAX], *fields[GROUP_FIELDS];
	char *text = fs_read_text(fs_path(path, sizeof(path), "/etc/group"), NULL);
	char *rest = text, *line;

	add_group(user, user->gid);
	while ((line = strsep(&rest, "\n"))) {
		uint64_t gid;

		if (split(line, fields, GROUP_FIELDS) && fs_parse_u64(fields[2], HIGHEST_ID, &gid) &&
		    is_member(fields[3], user->name))
			add_group(user, (gid_t)gid);
	}
	free(text);
}

int fs_user_find(const char *who, struct fs_user *user, char *error, size_t size)
{
	uint64_t number = 0;
	bool numeric;

	memset(user, 0, sizeof(*user));
	/* A name of digits alone is that user's, as in chown. */
	if (find_passwd(who, false, 0, user)) {
		find_groups(user);
	} else {
		numeric = fs_parse_u64(who, HIGHEST_ID, &number);
		if (!numeric) {
			snprintf(error, size,
				 "--user %.64s: no such user in /etc/passwd; name another, or give a user's number", who);
			return -1;
		}
		if (find_passwd(who, true, number, user)) {
			find_groups(user);
		} else {
			user->uid = (uid_t)number;
			user->gid = (gid_t)number;
			user->name = fs_strdup(who);
			user->home = fs_strdup("/");
			user->shell = fs_strdup("/bin/sh");
			add_group(user, user->gid);
		}
	}
	if (geteuid() && geteuid() != user->uid) {
		snprintf(error, size, "--user %.64s: only root can run a command as another user; run as root", who);
		fs_user_free(user);
		return -1;
	}
	return 0;
}

int fs_user_become(const struct fs_user *user)
{
	/* A recorder that is that user already has no right to set groups. */
	if (!geteuid() && setgroups(user->group_count, user->groups))
		return -1;
	if (!geteuid() && (setresgid(user->gid, user->gid, user->gid) || setresuid(user->uid, user->uid, user->uid)))
		return -1;
	return setenv("HOME", user->home, 1) || setenv("USER", user->name, 1) || setenv("LOGNAME", user->name, 1) ||
			       setenv("SHELL", user->shell, 1) ?
		       -1 :
		       0;
}

int cmd_exec(int argc, char **argv)
{
	struct fs_user user;
	char error[160];
	int reason;

	if (argc < 5 || strcmp(argv[1], "--user") || strcmp(argv[3], "--"))
		return fs_usage("exec: say `exec --user NAME -- CMD...`");
	if (fs_user_find(argv[2], &user, error, sizeof(error))) {
		fs_fail("%s", error);
		return FS_EXIT_OWN_FAILURE;
	}
	if (fs_user_become(&user)) {
		fs_fail("--user %s: %s; run as root", argv[2], strerror(errno));
		return FS_EXIT_OWN_FAILURE;
	}
	execvp(argv[4], argv + 4);
	reason = errno;
	fs_fail("%s: cannot be run: %s; name a program of this machine", argv[4], strerror(reason));
	return reason == ENOENT ? FS_EXIT_NOT_FOUND : FS_EXIT_CANNOT_RUN;
}

void fs_user_free(struct fs_user *user)
{
	free(user->groups);
	free(user->name);
	free(user->home);
	free(user->shell);
	memset(user, 0, sizeof(*user));
}
