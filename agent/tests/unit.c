// SPDX-License-Identifier: Apache-2.0
/* Runs the unit tests; the last line counts them. */
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"
#include "util.h"

static char root[64];

const char *test_root_begin(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(root, sizeof(root), "%.30s/flashscope-unit-XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(root)) {
		perror(root);
		exit(1);
	}
	setenv("FLASHSCOPE_ROOT", root, 1);
	return root;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

void test_root_end(void)
{
	nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	unsetenv("FLASHSCOPE_ROOT");
}

static void full(char *out, size_t size, const char *path)
{
	snprintf(out, size, "%s%s", root, path);
}

static void make_parent(const char *path)
{
	char parent[512];

	snprintf(parent, sizeof(parent), "%s", path);
	*strrchr(parent, '/') = '\0';
	fs_mkdirs(parent, 0755);
}

void test_root_file(const char *path, const char *text)
{
	char name[512];

	full(name, sizeof(name), path);
	make_parent(name);
	if (fs_write_text_flags(name, text, O_WRONLY | O_CREAT | O_TRUNC)) {
		perror(name);
		exit(1);
	}
}

void test_root_dir(const char *path)
{
	char name[512];

	full(name, sizeof(name), path);
	fs_mkdirs(name, 0755);
}

void test_root_link(const char *path, const char *target)
{
	char name[512];

	full(name, sizeof(name), path);
	make_parent(name);
	if (symlink(target, name)) {
		perror(name);
		exit(1);
	}
}

char *test_root_read(const char *path)
{
	char name[512], *text;

	full(name, sizeof(name), path);
	text = fs_read_text(name, NULL);
	return text ? text : fs_strdup("");
}

bool test_root_has(const char *path)
{
	char name[512];

	full(name, sizeof(name), path);
	return !access(name, F_OK);
}

void test_quiet(bool on)
{
	static int saved = -1;
	int null;

	fflush(stderr);
	if (on && saved < 0) {
		saved = dup(STDERR_FILENO);
		null = open("/dev/null", O_WRONLY);
		dup2(null, STDERR_FILENO);
		close(null);
	} else if (!on && saved >= 0) {
		dup2(saved, STDERR_FILENO);
		close(saved);
		saved = -1;
	}
}

int main(void)
{
	test_frame();
	test_text();
	test_options();
	test_trigger();
	test_groups();
	test_files();
	test_layers();
	test_tracefs();
	test_points();
	test_mtd();
	test_crosscheck();
	test_sweep();
	test_sensors();
	test_user();
	test_at_boot();
	test_names();
	return check_verdict("unit");
}
