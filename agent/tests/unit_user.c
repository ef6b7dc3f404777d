// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "test.h"
#include "user.h"

static void found(const char *who, uid_t uid, gid_t gid, const char *name, const char *home, const char *shell)
{
	struct fs_user user;
	char error[160] = "";

	CHECK(!fs_user_find(who, &user, error, sizeof(error)));
	CHECK_NUMBER(user.uid, uid);
	CHECK_NUMBER(user.gid, gid);
	CHECK_TEXT(user.name, name);
	CHECK_TEXT(user.home, home);
	CHECK_TEXT(user.shell, shell);
	fs_user_free(&user);
}

void test_user(void)
{
	struct fs_user user;
	char error[160] = "";

	if (geteuid()) /* others are refused */
		return;
	test_root_begin();
	test_root_file("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\n"
				      "# no entry\n"
				      "short:x:5\n"
				      "big:x:4294967295:1:::\n"
				      "media:x:1000:1001:,,,:/home/media:\n"
				      "77:x:1002:1002::/home/77:/bin/sh\n"
				      "last:x:1003:1003::/home/last:/bin/ash");
	test_root_file("/etc/group", "root:x:0:\nvideo:x:44:x,media\nnomedia:x:45:mediax\nshort:x\nplay:x:46:media\n");
	found("media", 1000, 1001, "media", "/home/media", "/bin/sh");
	found("1000", 1000, 1001, "media", "/home/media", "/bin/sh");
	found("last", 1003, 1003, "last", "/home/last", "/bin/ash");
	found("77", 1002, 1002, "77", "/home/77", "/bin/sh");
	found("4000", 4000, 4000, "4000", "/", "/bin/sh");
	CHECK(fs_user_find("nosuch", &user, error, sizeof(error)) == -1);
	CHECK(strstr(error, "nosuch: no such user") && strstr(error, ";"));
	CHECK(fs_user_find("short", &user, error, sizeof(error)) == -1);
	CHECK(fs_user_find("big", &user, error, sizeof(error)) == -1);
	CHECK(fs_user_find("4294967295", &user, error, sizeof(error)) == -1);
	CHECK(fs_user_find("-1", &user, error, sizeof(error)) == -1);
	CHECK(!fs_user_find("media", &user, error, sizeof(error)));
	CHECK_NUMBER(user.group_count, 3);
	CHECK(user.groups[0] == 1001 && user.groups[1] == 44 && user.groups[2] == 46);
	fs_user_free(&user);
	test_root_end();
}
