// SPDX-License-Identifier: Apache-2.0
/*
 * What the kernel starts as init after `boot prepare`: it starts a recorder, waits until that records, and becomes the
 * machine's own init. Nothing of it may keep a machine from booting: each failure ends in that init without a recording.
 *
 * The recording lies in memory, in a file without a name that one process holds. The file systems that the agent needs and
 * that are not mounted yet are mounted until it records, and unmounted before init starts: init finds what it always finds.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "at_boot.h"
#include "util.h"

/* Init waits no longer for the recorder. */
#define ARMED_MS 30000
/* So much of the memory that is free may become recording, and at most so much. */
#define MEMORY_PART 4
#define MEMORY_MOST (UINT64_C(64) << 20)
#define READY_FD 3

static volatile sig_atomic_t asked_end;
static volatile pid_t recorder;

static void on_signal(int number)
{
	if (number == SIGTERM)
		asked_end = 1;
	if (recorder > 0)
		kill(recorder, SIGTERM);
}

/*
 * Any process can have this name and command line. The process must be of our user, and must run a file that nobody
 * else can write.
 */
static bool is_holder(uint64_t pid)
{
	char path[FS_PATH_MAX], target[FS_PATH_MAX];
	struct stat process, program;
	ssize_t length;

	length = readlink(fs_path(path, sizeof(path), "/proc/%" PRIu64 "/exe", pid), target, sizeof(target) - 1);
	target[length > 0 ? length : 0] = '\0';
	if (!strstr(target, "/" FS_BOOT_FOLDER "/") || stat(path, &program) ||
	    stat(fs_path(path, sizeof(path), "/proc/%" PRIu64, pid), &process))
		return false;
	/* Without a file after an undo; a second link is how others give a program of root's this path. */
	return process.st_uid == geteuid() && program.st_uid == geteuid() && program.st_nlink < 2 &&
	       !(program.st_mode & (S_ISUID | S_ISGID | 022));
}

pid_t fs_boot_holder(bool *whole)
{
	char path[FS_PATH_MAX];
	struct dirent *entry;
	pid_t found = 0;
	DIR *proc = opendir(fs_path(path, sizeof(path), "/proc"));

	while (proc && !found && (entry = readdir(proc))) {
		bool grows, is_whole;
		uint64_t pid;
		char *name;

		if (!fs_parse_u64(entry->d_name, INT32_MAX, &pid))
			continue;
		name = fs_read_value(fs_path(path, sizeof(path), "/proc/%" PRIu64 "/comm", pid));
		grows = name && !strcmp(name, FS_BOOT_GROWS);
		is_whole = name && !strcmp(name, FS_BOOT_WHOLE);
		free(name);
		if ((!grows && !is_whole) || !is_holder(pid))
			continue;
		found = (pid_t)pid;
		if (whole)
			*whole = is_whole;
	}
	if (proc)
		closedir(proc);
	return found;
}

/* Words of a file, each with a NUL behind it, after the recorder's first ones. */
static char **words_of(const char *folder, const char *agent)
{
	char path[FS_PATH_MAX + 32], *text;
	size_t length, count = 4;
	char **words;

	snprintf(path, sizeof(path), "%s/options", folder);
	text = fs_read_text(path, &length);
	if (!text)
		return NULL;
	words = fs_alloc((length + 5) * sizeof(*words));
	words[0] = fs_strdup(agent);
	words[1] = fs_strdup("record");
	words[2] = fs_strdup("--ready-fd");
	words[3] = fs_strdup("3");
	for (char *word = text; word < text + length; word += strlen(word) + 1)
		words[count++] = word;
	words[count] = NULL;
	return words;
}

/* Descriptors 0 to 2 are in memory, 3 is the pipe. The recorder has the same ones: `collect` opens ours. */
static bool descriptors(int ready)
{
	static const char *const names[] = { "flashscope-nothing", "flashscope-boot", "flashscope-messages" };

	if (ready <= READY_FD)
		ready = fcntl(ready, F_DUPFD, READY_FD + 1);
	if (ready < 0)
		return false;
	for (int fd = 0; fd < 3; fd++) {
		int memory = memfd_create(names[fd], 0);

		if (memory < 0 || (memory != fd && dup2(memory, fd) < 0))
			return false;
		if (memory > 2)
			close(memory);
	}
	if (dup2(ready, READY_FD) < 0)
		return false;
	for (int fd = READY_FD + 1; fd < 64; fd++)
		close(fd);
	return true;
}

/* Keeps the recording until it is collected, or until the machine shuts down. */
static void hold(const char *folder, const char *agent, int ready)
{
	struct sigaction action = { .sa_handler = on_signal };
	uint64_t most = fs_available_bytes() / MEMORY_PART;
	struct rlimit limit;
	char **words;

	if (!most || most > MEMORY_MOST)
		most = MEMORY_MOST;
	limit = (struct rlimit){ most, most };
	setsid();
	prctl(PR_SET_NAME, FS_BOOT_GROWS);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGUSR1, &action, NULL);
	words = words_of(folder, agent);
	if (!words || !descriptors(ready))
		_exit(1);
	recorder = fork();
	if (!recorder) {
		signal(SIGXFSZ, SIG_IGN);
		setrlimit(RLIMIT_FSIZE, &limit);
		execv(agent, words);
		_exit(127);
	}
	close(READY_FD);
	while (recorder > 0 && waitpid(recorder, NULL, 0) < 0 && errno == EINTR)
		;
	recorder = 0;
	prctl(PR_SET_NAME, FS_BOOT_WHOLE);
	while (!asked_end)
		pause();
	_exit(0);
}

static bool is_mount(const char *path)
{
	struct stat root, st;

	return !stat("/", &root) && !stat(path, &st) && st.st_dev != root.st_dev;
}

/* Those that init has not got yet, in one place for all of them: the notes of a recorder would lie on the disk. */
static const char *const wanted[][2] = { { "proc", "/proc" }, { "sysfs", "/sys" }, { "tmpfs", "/run" } };

static unsigned int mount_missing(void)
{
	unsigned int mounted = 0;

	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		if (!is_mount(wanted[i][1]) && !mount(wanted[i][0], wanted[i][1], wanted[i][0], 0, NULL))
			mounted |= 1u << i;
	return mounted;
}

static void unmount(unsigned int mounted)
{
	for (size_t i = ARRAY_SIZE(wanted); i-- > 0;)
		if (mounted & 1u << i)
			umount2(wanted[i][1], MNT_DETACH);
}

/* `flashscope.boot=0` of the boot loader boots without us. */
static bool declined(void)
{
	char *text = fs_read_text("/proc/cmdline", NULL);
	bool found = text && strstr(text, "flashscope.boot=0");

	free(text);
	return found;
}

static void start(const char *folder, const char *agent)
{
	int ready[2];
	pid_t child;

	/* A second time: init has been told to start itself again. */
	if (declined() || fs_boot_holder(NULL) || pipe(ready))
		return;
	child = fork();
	if (!child) {
		close(ready[0]);
		hold(folder, agent, ready[1]);
	}
	close(ready[1]);
	if (child > 0) {
		struct pollfd armed = { .fd = ready[0], .events = POLLIN };

		poll(&armed, 1, ARMED_MS);
	}
	close(ready[0]);
}

int fs_boot_init(int argc, char **argv)
{
	static const char *const last[] = { "/etc/init", "/bin/init", "/bin/sh" };
	char path[FS_PATH_MAX + 32], folder[FS_PATH_MAX];
	const char *slash = strrchr(argv[0], '/');
	char *run;

	if (argc < 3 || !slash)
		return fs_usage(FS_BOOT_WORD ": is started by the kernel in place of init");
	snprintf(folder, sizeof(folder), "%.*s", (int)(slash - argv[0]), argv[0]);
	if (getpid() == 1) {
		unsigned int mounted = mount_missing();

		start(folder, argv[0]);
		unmount(mounted);
	}
	signal(SIGPIPE, SIG_DFL);
	snprintf(path, sizeof(path), "%s/run", folder);
	run = fs_read_value(path);
	if (run)
		execv(run, argv + 2);
	snprintf(path, sizeof(path), "%s/original", folder);
	execv(path, argv + 2);
	for (size_t i = 0; i < ARRAY_SIZE(last); i++)
		execv(last[i], (char *[]){ (char *)last[i], NULL });
	return fs_fail("%s: cannot be run: %s", run ? run : path, strerror(errno));
}
