// SPDX-License-Identifier: Apache-2.0
/*
 * A workload that says what it did: many processes that write files of their
 * own, as units, in containers, with threads of other names, and files that are
 * renamed, deleted or written through a bind mount. It prints one JSON object
 * a file on stdout; what `flashscope report` shows has to equal that. An earlier
 * name can be shown only of a file that the recorder looked at while it had it.
 *
 *   workload DIRECTORY COUNT CGROUP|-     CGROUP: a directory below which groups may be made
 *   workload --worker …                   one process (the program runs itself)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A process waits for so long: the recorder looks ten times a second. */
#define WAIT_MS 500
#define AT_ONCE 20

enum kind { PLAIN, UNIT, CONTAINER, THREAD, RENAMED, DELETED, BOUND, KINDS };

static void die(const char *what)
{
	fprintf(stderr, "workload: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		die(path);
	close(fd);
}

static int write_file(const char *path, size_t bytes)
{
	char block[4096];
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0)
		die(path);
	memset(block, 'x', sizeof(block));
	for (size_t done = 0; done < bytes; done += sizeof(block))
		if (write(fd, block, sizeof(block)) != (ssize_t)sizeof(block))
			die(path);
	if (fsync(fd))
		die(path);
	return fd;
}

struct job {
	const char *path;
	size_t bytes;
	char name[16];
};

static void *of_thread(void *argument)
{
	struct job *job = argument;

	prctl(PR_SET_NAME, job->name);
	close(write_file(job->path, job->bytes));
	return NULL;
}

/* --worker KIND NUMBER DIRECTORY */
static int worker(int argc, char **argv)
{
	enum kind kind = (enum kind)atoi(argv[2]);
	int number = atoi(argv[3]), fd = -1;
	size_t bytes = 65536 + (size_t)number % 7 * 4096;
	char path[PATH_MAX], later[PATH_MAX] = "", space[64] = "", process[16];
	const char *state = "", *thread = process;
	struct job job = { .path = path, .bytes = bytes };
	ssize_t got;

	if (argc != 5)
		return 2;
	snprintf(process, sizeof(process), "proc-%d", number);
	prctl(PR_SET_NAME, process);
	snprintf(path, sizeof(path), "%s/%s/file-%d.dat", argv[4], kind == BOUND ? "bound" : "files", number);
	if (kind == THREAD) {
		pthread_t one;

		snprintf(job.name, sizeof(job.name), "thread-%d", number);
		thread = job.name;
		if (pthread_create(&one, NULL, of_thread, &job) || pthread_join(one, NULL))
			die("thread");
	} else {
		fd = write_file(path, bytes);
	}
	if (kind == CONTAINER) {
		got = readlink("/proc/self/ns/pid", space, sizeof(space) - 1);
		space[got > 0 ? got : 0] = '\0';
	}
	if (fd >= 0)
		usleep(WAIT_MS * 1000);
	if (kind == RENAMED) {
		snprintf(later, sizeof(later), "%s/files/new-%d.dat", argv[4], number);
		if (rename(path, later))
			die(path);
		state = "renamed";
	} else if (kind == DELETED) {
		state = "deleted"; /* by the first process, when no new file can have its inode number */
	} else if (kind == BOUND) {
		/* The same file has two paths: any of them is right. */
		snprintf(later, sizeof(later), "%s/source/file-%d.dat", argv[4], number);
		state = "bound";
	}
	if (fd >= 0)
		close(fd);
	printf("{\"number\": %d, \"path\": \"%s\", \"later\": \"%s\", \"state\": \"%s\", \"bytes\": %zu, \"process\": \"%s\", "
	       "\"thread\": \"%s\", \"unit\": %s, \"space\": \"%s\"}\n",
	       number, path, later, state, bytes, process, thread, kind == UNIT ? "true" : "false", space);
	fflush(stdout);
	return 0;
}

static void enter(enum kind kind, int number, const char *cgroup)
{
	char path[PATH_MAX];

	if (kind == UNIT) {
		snprintf(path, sizeof(path), "%s/unit-%d.service", cgroup, number);
		if (mkdir(path, 0755) && errno != EEXIST)
			die(path);
		strcat(path, "/cgroup.procs");
		put(path, "0");
	} else if (kind == CONTAINER) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID))
			die("unshare");
		put("/proc/self/setgroups", "deny");
		put("/proc/self/uid_map", "0 0 1");
		put("/proc/self/gid_map", "0 0 1");
	}
}

static void run(const char *directory, int number, const char *cgroup)
{
	enum kind kind = (enum kind)(number % KINDS);
	char of_kind[8], of_number[16];

	if (kind == UNIT && !strcmp(cgroup, "-"))
		kind = PLAIN;
	enter(kind, number, cgroup);
	snprintf(of_kind, sizeof(of_kind), "%d", kind);
	snprintf(of_number, sizeof(of_number), "%d", number);
	/* The first process of a new PID namespace is a child. */
	if (kind == CONTAINER) {
		pid_t child = fork();

		if (child) {
			int status;

			waitpid(child, &status, 0);
			_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
		}
	}
	execl("/proc/self/exe", "workload", "--worker", of_kind, of_number, directory, NULL);
	die("exec");
}

int main(int argc, char **argv)
{
	int count, running = 0, failed = 0, status;
	char path[PATH_MAX], bound[PATH_MAX];

	if (argc > 1 && !strcmp(argv[1], "--worker"))
		return worker(argc, argv);
	if (argc != 4)
		return 2;
	count = atoi(argv[2]);
	snprintf(path, sizeof(path), "%s/files", argv[1]);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/source", argv[1]);
	mkdir(path, 0755);
	snprintf(bound, sizeof(bound), "%s/bound", argv[1]);
	mkdir(bound, 0755);
	if (mount(path, bound, NULL, MS_BIND, NULL))
		die(bound);
	for (int number = 0; number < count; number++) {
		pid_t child;

		if (running == AT_ONCE) {
			wait(&status);
			failed |= status;
			running--;
		}
		child = fork();
		if (child < 0)
			die("fork");
		if (!child)
			run(argv[1], number, argv[3]);
		running++;
	}
	while (running-- > 0) {
		wait(&status);
		failed |= status;
	}
	for (int number = DELETED; number < count; number += KINDS) {
		snprintf(path, sizeof(path), "%s/files/file-%d.dat", argv[1], number);
		if (unlink(path))
			die(path);
	}
	sync();
	return failed ? 1 : 0;
}
