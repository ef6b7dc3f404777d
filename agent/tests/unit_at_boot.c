// SPDX-License-Identifier: Apache-2.0
/* boot prepare and undo, with a power cut after each change of the disk. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "at_boot.h"
#include "cmds.h"
#include "test.h"
#include "util.h"

#define CUT 99

/* In a child, because a cut ends it. Its exit status. */
static int boot(const char *what, int cut)
{
	char number[16];
	char *prepare[] = { "boot", "prepare", "--events", "block", NULL };
	char *undo[] = { "boot", "undo", NULL };
	int status;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (!child) {
		int nothing = open("/dev/null", O_WRONLY);

		dup2(nothing, 1);
		dup2(nothing, 2);
		snprintf(number, sizeof(number), "%d", cut);
		setenv("FLASHSCOPE_BOOT_CUT", number, 1);
		_exit(!strcmp(what, "undo") ? cmd_boot(2, undo) : cmd_boot(4, prepare));
	}
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

static bool same_file(const struct stat *a, const char *path)
{
	char name[512];
	struct stat b;

	return !lstat(fs_path(name, sizeof(name), "%s", path), &b) && a->st_ino == b.st_ino && a->st_mode == b.st_mode &&
	       a->st_mtime == b.st_mtime && a->st_size == b.st_size && b.st_nlink == 1;
}

/* The kernel finds an init: the machine's own, or ours with all that it needs. */
static void boots(const char *original)
{
	char *text = test_root_read("/sbin/init");

	if (!strncmp(text, "#!/sbin/" FS_BOOT_FOLDER "/", strlen("#!/sbin/" FS_BOOT_FOLDER "/"))) {
		char *run = test_root_read("/sbin/" FS_BOOT_FOLDER "/run");
		char *options = test_root_read("/sbin/" FS_BOOT_FOLDER "/options");
		char *behind = test_root_read(run);

		CHECK(test_root_has("/sbin/" FS_BOOT_FOLDER "/flashscope-agent"));
		CHECK_TEXT(behind, original);
		CHECK_TEXT(options, "--events");
		free(run);
		free(options);
		free(behind);
	} else {
		CHECK_TEXT(text, original);
	}
	free(text);
}

/* Cut at every point of `what`; then undone to the end. How many points there were. */
static int cut_everywhere(const char *what, const struct stat *before, const char *original)
{
	int cut = 0, status;

	do {
		cut++;
		if (!strcmp(what, "undo"))
			CHECK_NUMBER(boot("prepare", 0), 0);
		status = boot(what, cut);
		CHECK(status == CUT || status == 0);
		boots(original);
		/* Both go on from there. */
		if (cut % 2 && !strcmp(what, "prepare") && status == CUT) {
			int again = boot("prepare", 0);

			CHECK(again == 0 || again == FS_EXIT_FAILURE); /* done already */
			boots(original);
		}
		CHECK_NUMBER(boot("undo", 0), 0);
		CHECK(same_file(before, "/sbin/init"));
		CHECK(!test_root_has("/sbin/" FS_BOOT_FOLDER));
	} while (status == CUT && cut < 40);
	return cut;
}

/* The file that starts the agent was changed, renamed or copied: it is put back there, and a machine boots by every one of them. */
static void changed_in_between(const char *original)
{
	char path[512], other[512], *script, *text;
	struct stat st;

	for (int how = 0; how < 3; how++) {
		unlink(fs_path(path, sizeof(path), "/sbin/init"));
		test_root_file("/sbin/init", original);
		chmod(path, 0755);
		CHECK_NUMBER(boot("prepare", 0), 0);
		script = test_root_read("/sbin/init");
		fs_path(other, sizeof(other), "/sbin/init.real");
		if (how == 0) {
			strcat(strcpy(other, script), "# by hand\n");
			test_root_file("/sbin/init", other);
		} else if (how == 1) {
			CHECK(!rename(path, other));
			test_root_file("/sbin/init", "newer, which runs init.real\n");
		} else {
			test_root_file("/sbin/init.real", script);
		}
		CHECK_NUMBER(boot("prepare", 0), FS_EXIT_FAILURE); /* done already */
		CHECK_NUMBER(boot("undo", 0), 0);
		text = test_root_read("/sbin/init");
		CHECK_TEXT(text, how == 1 ? "newer, which runs init.real\n" : original);
		free(text);
		if (how) {
			text = test_root_read("/sbin/init.real");
			CHECK_TEXT(text, original);
			free(text);
			CHECK(!stat(fs_path(other, sizeof(other), "/sbin/init.real"), &st) && st.st_mode & 0100);
			unlink(other);
		}
		CHECK(!test_root_has("/sbin/" FS_BOOT_FOLDER));
		free(script);
	}
}

static void machine(bool link)
{
	static const char original[] = "#!/bin/sh\nexec true\n";
	char path[512];
	struct stat before;

	test_root_begin();
	test_root_file("/proc/cmdline", "console=ttyS0 root=/dev/mmcblk0p2 quiet\n");
	test_root_file("/proc/self/mounts", "rootfs / rootfs rw 0 0\n/dev/root / ext4 rw,relatime 0 0\n");
	test_root_file(link ? "/lib/real/init" : "/sbin/init", original);
	chmod(fs_path(path, sizeof(path), link ? "/lib/real/init" : "/sbin/init"), 0755);
	if (link) {
		test_root_dir("/sbin");
		test_root_link("/sbin/init", "../lib/real/init");
	}
	CHECK(!lstat(fs_path(path, sizeof(path), "/sbin/init"), &before));
	CHECK(cut_everywhere("prepare", &before, original) > 8);
	CHECK(cut_everywhere("undo", &before, original) > 5);

	/* An update that brought another init meanwhile keeps it. */
	CHECK_NUMBER(boot("prepare", 0), 0);
	unlink(fs_path(path, sizeof(path), "/sbin/init"));
	test_root_file("/sbin/init", "newer\n");
	CHECK_NUMBER(boot("undo", 0), 0);
	boots("newer\n");
	CHECK(!test_root_has("/sbin/" FS_BOOT_FOLDER));

	changed_in_between(original);
	test_root_end();
}

static void refused(const char *mounts, mode_t mode)
{
	char path[512], *init;

	test_root_begin();
	test_root_file("/proc/cmdline", "quiet\n");
	test_root_file("/proc/self/mounts", mounts);
	test_root_file("/sbin/init", "init\n");
	chmod(fs_path(path, sizeof(path), "/sbin/init"), 0755);
	chmod(fs_path(path, sizeof(path), "/sbin"), mode);
	CHECK_NUMBER(boot("prepare", 0), FS_EXIT_FAILURE);
	init = test_root_read("/sbin/init");
	CHECK_TEXT(init, "init\n");
	free(init);
	CHECK(!test_root_has("/sbin/" FS_BOOT_FOLDER));
	CHECK_NUMBER(boot("undo", 0), 0);
	test_root_end();
}

/* A folder of another user, with an init that would be put in the place of the machine's. */
static void planted(uid_t owner, mode_t mode)
{
	char path[512], *init;

	test_root_begin();
	test_root_file("/proc/cmdline", "quiet\n");
	test_root_file("/proc/self/mounts", "/dev/root / ext4 rw,relatime 0 0\n");
	test_root_file("/sbin/init", "#!/sbin/" FS_BOOT_FOLDER "/flashscope-agent " FS_BOOT_WORD "\n");
	chmod(fs_path(path, sizeof(path), "/sbin/init"), 0755);
	test_root_file("/sbin/" FS_BOOT_FOLDER "/original", "theirs\n");
	CHECK(!chmod(fs_path(path, sizeof(path), "/sbin/" FS_BOOT_FOLDER), mode));
	CHECK(!chown(path, owner, owner));
	CHECK_NUMBER(boot("undo", 0), 0);
	CHECK_NUMBER(boot("prepare", 0), FS_EXIT_FAILURE);
	init = test_root_read("/sbin/init");
	CHECK(strncmp(init, "theirs", 6));
	free(init);
	CHECK(test_root_has("/sbin/" FS_BOOT_FOLDER "/original"));
	test_root_end();
}

void test_at_boot(void)
{
	if (geteuid()) /* others are refused */
		return;
	machine(true);
	machine(false);
	planted(65534, 0700);
	planted(0, 0777);
	refused("/dev/root / ext4 ro,relatime 0 0\n", 0755);
	refused("/dev/root / squashfs ro 0 0\n", 0755);
	refused("/dev/root / ext4 rw 0 0\noverlay / overlay rw 0 0\n", 0755);
	refused("rootfs / rootfs rw 0 0\n", 0755);
	refused("/dev/root / ext4 rw 0 0\n", 0777);
}
