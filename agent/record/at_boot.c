// SPDX-License-Identifier: Apache-2.0
/*
 * boot prepare, collect, undo: a recording of this machine's own boot.
 *
 * `prepare` puts a folder beside init and replaces init by a file that starts the agent first. Each step is on the disk
 * before the next one, and init's name is replaced by one rename: a machine that goes down in between boots as before, or as
 * prepared. The original keeps its inode as a second link, which `undo` renames back: content, mode, owner and times are as
 * they were. Limits: a root file system in memory or read-only is refused, because nothing would be left after a reboot.
 */
#include "at_boot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cmds.h"
#include "notes.h"
#include "util.h"

/* A recorder that was asked to end looks for names for five seconds at most. */
#define END_MS 30000
#define STEP_MS 100

struct boot {
	char init[FS_PATH_MAX];	  /* as the kernel runs it */
	char folder[FS_PATH_MAX]; /* ours, beside it */
	char script[FS_PATH_MAX + 32];
};

#ifdef FS_TEST_ROOT
/* A test's power cut: after so many changes of the disk. */
static void changed(void)
{
	static int changes;
	const char *cut = getenv("FLASHSCOPE_BOOT_CUT");

	if (cut && ++changes == atoi(cut))
		_exit(99);
}
#else
static void changed(void)
{
}
#endif

static const char *in_folder(const struct boot *boot, char *out, const char *name)
{
	return fs_path(out, FS_PATH_MAX, "%s/%s", boot->folder, name);
}

static int sync_path(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), result;

	if (fd < 0)
		return -1;
	result = fsync(fd);
	close(fd);
	return result;
}

/* The directory, and its parent, which has init. */
static int sync_folders(const struct boot *boot, bool own)
{
	char path[FS_PATH_MAX];
	int result = own ? sync_path(fs_path(path, sizeof(path), "%s", boot->folder)) : 0;

	fs_path(path, sizeof(path), "%.*s/", (int)(strrchr(boot->init, '/') - boot->init), boot->init);
	result = sync_path(path) || result ? -1 : 0;
	changed();
	return result;
}

static void name_init(struct boot *boot, const char *init)
{
	snprintf(boot->init, sizeof(boot->init), "%s", init);
	snprintf(boot->folder, sizeof(boot->folder), "%.*s/" FS_BOOT_FOLDER,
		 (int)(strrchr(boot->init, '/') - boot->init), boot->init);
	snprintf(boot->script, sizeof(boot->script), "#!%.400s/flashscope-agent " FS_BOOT_WORD "\n", boot->folder);
}

/* Number `n` of the places where this machine's init can be: kernel_init() of the kernel's init/main.c. */
static bool candidate(struct boot *boot, size_t n)
{
	static const char *const usual[] = { "/sbin/init", "/etc/init", "/bin/init" };
	char path[FS_PATH_MAX], *text, *word, *rest;
	bool named = false;

	if (n > ARRAY_SIZE(usual))
		return false;
	if (n) {
		name_init(boot, usual[n - 1]);
		return true;
	}
	text = fs_read_value(fs_path(path, sizeof(path), "/proc/cmdline"));
	boot->init[0] = '\0';
	for (rest = text; rest && (word = strsep(&rest, " "));)
		if (!strncmp(word, "init=/", 6) && strlen(word) < 200) {
			name_init(boot, word + 5);
			named = true;
		}
	free(text);
	if (!named)
		boot->init[0] = '\0';
	return true;
}

/* The init that this machine runs. */
static bool find_init(struct boot *boot)
{
	char path[FS_PATH_MAX];

	for (size_t n = 0; candidate(boot, n); n++)
		if (boot->init[0] && !access(fs_path(path, sizeof(path), "%s", boot->init), X_OK))
			return true;
	return false;
}

/* A machine that is prepared, or where that was cut short. Nothing is obeyed of a folder that somebody else made or can write to. */
static bool find_prepared(struct boot *boot)
{
	char path[FS_PATH_MAX];
	struct stat st;

	for (size_t n = 0; candidate(boot, n); n++)
		if (boot->init[0] && !lstat(fs_path(path, sizeof(path), "%s", boot->folder), &st) && S_ISDIR(st.st_mode) &&
		    st.st_uid == geteuid() && !(st.st_mode & 022))
			return true;
	return false;
}

/* Whether the kernel would start our agent by this file, also where somebody has added a line to it. */
static bool starts_agent(const struct boot *boot, const char *path)
{
	char begin[sizeof(boot->script)] = "";
	size_t length = strlen(boot->script) - strlen(" " FS_BOOT_WORD "\n");
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : pread(fd, begin, length, 0);

	if (fd >= 0)
		close(fd);
	return got == (ssize_t)length && !memcmp(begin, boot->script, length);
}

/*
 * The file that starts our agent: init. Or another one of its directory: an update may have renamed it there, or the boot
 * loader's init= may have named that one. Without the agent such a file starts nothing, and the machine does not boot.
 */
static bool replaced(const struct boot *boot, char *out)
{
	char folder[FS_PATH_MAX], path[FS_PATH_MAX];
	struct dirent *entry;
	bool found = starts_agent(boot, fs_path(path, sizeof(path), "%s", boot->init));
	DIR *dir;

	if (found && out)
		memcpy(out, path, sizeof(path));
	if (found)
		return true;
	fs_path(folder, sizeof(folder), "%.*s", (int)(strrchr(boot->init, '/') - boot->init), boot->init);
	dir = opendir(*folder ? folder : "/");
	while (dir && !found && (entry = readdir(dir))) {
		if (entry->d_type != DT_REG && entry->d_type != DT_UNKNOWN)
			continue;
		snprintf(path, sizeof(path), "%.200s/%s", folder, entry->d_name); /* init= has 200 bytes at most */
		found = starts_agent(boot, path);
	}
	if (dir)
		closedir(dir);
	if (found && out)
		memcpy(out, path, sizeof(path));
	return found;
}

/* Why what is written now is not there after a reboot; NULL: it is. */
static const char *does_not_last(void)
{
	static const char *const in_memory[] = { "rootfs", "tmpfs", "ramfs", "overlay", "squashfs" };
	char path[FS_PATH_MAX];
	char *text = fs_read_text(fs_path(path, sizeof(path), "/proc/self/mounts"), NULL);
	const char *why = NULL;
	char *rest = text, *line;

	while (rest && (line = strsep(&rest, "\n"))) {
		char where[FS_PATH_MAX], type[64], options[16];

		/* The last one is on top. */
		if (sscanf(line, "%*s %511s %63s %15[^, ]", where, type, options) != 3 || strcmp(where, "/"))
			continue;
		why = strcmp(options, "ro") ? NULL : "it is mounted read-only: mount -o remount,rw / there, and try again";
		for (size_t i = 0; i < ARRAY_SIZE(in_memory); i++)
			if (!strcmp(type, in_memory[i]))
				why = !strcmp(type, "squashfs") ? "squashfs cannot be written; put the agent into its image "
								  "(docs/how-to/record-at-boot.md)" :
								  "it is lost at a reboot; put the agent into the image that "
								  "the machine boots (docs/how-to/record-at-boot.md)";
	}
	free(text);
	return why;
}

static int write_file(const char *path, const char *data, size_t length, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode), saved;

	if (fd < 0)
		return -1;
	/* The caller's umask would keep init from being run. */
	if (fs_write_all(fd, data, length) || fchmod(fd, mode) || fsync(fd)) {
		saved = errno;
		close(fd);
		errno = saved;
		return -1;
	}
	changed();
	return close(fd);
}

/* Files of the agent; those that `undo` needs are removed last. */
static int clear(const struct boot *boot)
{
	static const char *const names[] = { "init", "options", "run", "flashscope-agent", "original" };
	char path[FS_PATH_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (unlink(in_folder(boot, path, names[i])) && errno != ENOENT)
			return -1;
		changed();
	}
	if (rmdir(fs_path(path, sizeof(path), "%s", boot->folder)) && errno != ENOENT)
		return -1;
	return sync_folders(boot, false);
}

/* What the original is, in words: "link to ../bin/busybox", "file, 1024 bytes". */
static const char *kind_of(const char *path, char *out, size_t size)
{
	char target[256];
	struct stat st;
	ssize_t length = readlink(path, target, sizeof(target) - 1);

	if (length > 0)
		snprintf(out, size, "link to %.*s", (int)length, target);
	else if (!lstat(path, &st))
		snprintf(out, size, "file, %llu bytes", (unsigned long long)st.st_size);
	else
		snprintf(out, size, "not there");
	return out;
}

/* What init is behind all links, without a test's root. */
static bool target_of(const struct boot *boot, char *out, size_t size)
{
	char path[FS_PATH_MAX], root[FS_PATH_MAX], *whole = realpath(fs_path(path, sizeof(path), "%s", boot->init), NULL);
	size_t length = strlen(fs_path(root, sizeof(root), "%s", ""));
	struct stat st;

	if (!whole)
		return false;
	/* A plain file is about to lose this name: it is run by its other one. */
	if (lstat(path, &st) || S_ISLNK(st.st_mode))
		snprintf(out, size, "%s", strlen(whole) > length ? whole + length : whole);
	else
		snprintf(out, size, "%.400s/original", boot->folder);
	free(whole);
	return true;
}

/* One step after the other, each on the disk before the next. */
static int put(const struct boot *boot, const char *agent, size_t agent_size, const struct fs_buf *options)
{
	char path[FS_PATH_MAX], init[FS_PATH_MAX], run[FS_PATH_MAX];

	fs_path(init, sizeof(init), "%s", boot->init);
	if (!target_of(boot, run, sizeof(run)))
		return -1;
	if (mkdir(fs_path(path, sizeof(path), "%s", boot->folder), 0700))
		return -1;
	changed();
	if (write_file(in_folder(boot, path, "flashscope-agent"), agent, agent_size, 0700) ||
	    write_file(in_folder(boot, path, "options"), options->data, options->length, 0600) ||
	    write_file(in_folder(boot, path, "run"), run, strlen(run), 0600) ||
	    write_file(in_folder(boot, path, "init"), boot->script, strlen(boot->script), 0755))
		return -1;
	/* No AT_SYMLINK_FOLLOW: a link gets a second name itself. */
	if (linkat(AT_FDCWD, init, AT_FDCWD, in_folder(boot, path, "original"), 0))
		return -1;
	changed();
	if (sync_folders(boot, true))
		return -1;
	return rename(in_folder(boot, path, "init"), init) || sync_folders(boot, true) ? -1 : 0;
}

static int usable(const struct boot *boot, size_t agent_size)
{
	char path[FS_PATH_MAX];
	const char *why = does_not_last();
	struct statvfs disk;
	uint64_t needed = agent_size + (64u << 10);

	if (geteuid())
		return fs_fail("boot prepare: replaces init, which only root may do; name root in the target: ssh://root@HOST");
	if (why)
		return fs_fail("/: files written to the root file system do not survive a reboot: %s", why);
	fs_path(path, sizeof(path), "%.*s/", (int)(strrchr(boot->init, '/') - boot->init), boot->init);
	if (!fs_dir_is_safe(path))
		return fs_fail("%s: other users can write there, and would run as init; take that right away first", path);
	if (!statvfs(path, &disk) && (uint64_t)disk.f_bavail * disk.f_frsize < needed)
		return fs_fail("%s: %" PRIu64 " KiB are needed there for the agent, and %" PRIu64 " KiB are free; free some space",
			       path, needed >> 10, (uint64_t)disk.f_bavail * disk.f_frsize >> 10);
	return 0;
}

static int prepare(int argc, char **argv)
{
	char path[FS_PATH_MAX], kind[300], run[FS_PATH_MAX];
	struct fs_buf options = { 0 };
	struct boot boot;
	size_t agent_size = 0;
	char *agent;
	int result;

	if (find_prepared(&boot) && replaced(&boot, NULL))
		return fs_fail("%s: this machine is prepared already; reboot it and collect, or undo it first", boot.folder);
	if (find_prepared(&boot) && clear(&boot))
		return fs_fail("%s: what an earlier preparation left cannot be removed: %s", boot.folder, strerror(errno));
	if (!find_init(&boot))
		return fs_fail("boot prepare: no init was found (init= of the kernel's command line, /sbin/init, /etc/init, /bin/init)");
	agent = fs_read_text("/proc/self/exe", &agent_size);
	if (!agent)
		return fs_fail("/proc/self/exe: %s; is /proc mounted?", strerror(errno));
	for (int i = 1; i < argc; i++)
		fs_buf_append(&options, argv[i], strlen(argv[i]) + 1);
	result = usable(&boot, agent_size);
	if (result)
		goto out;
	kind_of(fs_path(path, sizeof(path), "%s", boot.init), kind, sizeof(kind));
	target_of(&boot, run, sizeof(run));
	if (put(&boot, agent, agent_size, &options)) {
		int saved = errno;

		if (!replaced(&boot, NULL))
			clear(&boot);
		result = fs_fail("%s: cannot be prepared: %s; %s is as it was", boot.folder, strerror(saved), boot.init);
		goto out;
	}
	printf("made %s: the agent (%zu bytes), its options, and %s as it was (%s)\n", boot.folder, agent_size, boot.init, kind);
	printf("replaced %s: it starts the agent, then runs %s\n", boot.init, run);
out:
	free(agent);
	fs_buf_free(&options);
	return result;
}

/* Waits until the recording is whole; 0: there is none. */
static pid_t whole_recording(void)
{
	bool whole = false;
	pid_t holder = fs_boot_holder(&whole);

	if (holder && !whole)
		kill(holder, SIGUSR1);
	for (unsigned int waited = 0; holder && !whole && waited < END_MS; waited += STEP_MS) {
		fs_sleep_ms(STEP_MS);
		holder = fs_boot_holder(&whole);
	}
	return holder;
}

static int copy(int from, int to)
{
	static char buffer[64 << 10];
	ssize_t got;

	while ((got = read(from, buffer, sizeof(buffer))) > 0)
		if (fs_write_all(to, buffer, (size_t)got))
			return -1;
	return got < 0 ? -1 : 0;
}

static int collect(void)
{
	char path[FS_PATH_MAX], *messages, *line;
	struct boot boot;
	pid_t holder = whole_recording();
	int fd, result = 0;

	if (!holder && !find_prepared(&boot))
		return fs_fail("boot collect: this machine is not prepared; type first: flashscope record --boot --on TARGET");
	if (!holder)
		return fs_fail("boot collect: there is no recording of this boot: reboot the machine, then collect (the "
			       "recording is in memory, and lost if the machine is rebooted once more)");
	messages = fs_read_text(fs_path(path, sizeof(path), "/proc/%d/fd/2", (int)holder), NULL);
	fd = open(fs_path(path, sizeof(path), "/proc/%d/fd/1", (int)holder), O_RDONLY | O_CLOEXEC);
	if (fd < 0 || copy(fd, STDOUT_FILENO))
		result = fs_fail("%s: %s", path, strerror(errno));
	else if (!lseek(fd, 0, SEEK_CUR))
		result = fs_fail("boot collect: the recorder of this boot failed: %s",
				 messages && *messages ? messages : "it printed no message");
	else
		for (char *rest = messages; rest && (line = strsep(&rest, "\n"));)
			if (*line)
				fprintf(stderr, "%s\n", line);
	if (fd >= 0)
		close(fd);
	free(messages);
	return result;
}

/* Every file that starts the agent gets the original's content by one rename each: the original stays until all have it. */
static int put_back(const struct boot *boot)
{
	char original[FS_PATH_MAX], link[FS_PATH_MAX], path[FS_PATH_MAX], kind[300];
	struct stat st;
	bool any = false;

	in_folder(boot, original, "original");
	in_folder(boot, link, "init");
	for (; replaced(boot, path); any = true) {
		if (lstat(original, &st))
			return fs_fail("%s: it starts the agent, and its original %s is gone; put the machine's own init there, then undo again",
				       path, original);
		if ((unlink(link) && errno != ENOENT) || linkat(AT_FDCWD, original, AT_FDCWD, link, 0) || rename(link, path) ||
		    sync_folders(boot, true))
			return fs_fail("%s: cannot be put back: %s; it is still in %s", path, strerror(errno), original);
		printf("put back %s (%s)\n", path, kind_of(path, kind, sizeof(kind)));
	}
	fs_path(path, sizeof(path), "%s", boot->init);
	if (!any)
		printf("left %s alone: it does not start the agent (%s)\n", path, kind_of(path, kind, sizeof(kind)));
	return 0;
}

static int undo(void)
{
	pid_t holder = fs_boot_holder(NULL);
	struct boot boot;
	bool prepared = find_prepared(&boot);
	int result;

	if (!holder && !prepared) {
		printf("nothing to undo: this machine is not prepared\n");
		return 0;
	}
	result = prepared ? put_back(&boot) : 0;
	if (result)
		return result;
	if (holder && !kill(holder, SIGTERM)) {
		for (unsigned int waited = 0; waited < END_MS && fs_starttime(holder); waited += STEP_MS)
			fs_sleep_ms(STEP_MS);
		printf("ended the recorder of this boot (process %d)\n", (int)holder);
	}
	if (prepared && clear(&boot))
		return fs_fail("%s: cannot be removed: %s", boot.folder, strerror(errno));
	if (prepared)
		printf("removed %s\n", boot.folder);
	return 0;
}

int cmd_boot(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[1], "prepare"))
		return prepare(argc - 1, argv + 1);
	if (argc == 2 && !strcmp(argv[1], "collect"))
		return collect();
	if (argc == 2 && !strcmp(argv[1], "undo"))
		return undo();
	return fs_usage("boot: takes prepare with options of record, collect, or undo");
}
