// SPDX-License-Identifier: Apache-2.0
#include "replay_play.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "frame.h"

/* Time to the first call once all tasks stand ready. */
#define LEAD_NS UINT64_C(10000000)
/* What O_DIRECT wants a buffer to be aligned to at most. */
#define ALIGNMENT 4096
#define IOPRIO_WHO_PROCESS 1

/* What a task's process keeps of a file. */
struct held {
	int fd; /* -1: not open */
	bool writes;
	unsigned char *map;
	size_t mapped;
};

struct player {
	const struct replay_run *r;
	uint32_t task;
	struct held *held;
	unsigned char *buffer, *data;
	bool begun;
	uint64_t returned_ns, last_end_ns; /* the last call: when it returned here, and in the recording */
};

const char *replay_file_path(const struct replay_run *r, uint32_t file, char *out, size_t size)
{
	snprintf(out, size, "%s/%u", r->dir, file);
	return out;
}

static int call_failed(const struct player *p, size_t index, const char *path)
{
	int error = errno;

	return fs_fail("%s: call %zu of task %s: %s%s", path, index, p->r->s->task[p->task].name, strerror(error),
		       error == EMFILE	 ? "; raise the limit of open files (ulimit -n)" :
		       error == ENOSPC	 ? "; a larger partition, or a part of the trace" :
		       error == EINVAL	 ? "; with `direct`, offset and length must be whole blocks" :
					   "");
}

static void drop(struct held *held)
{
	if (held->map)
		munmap(held->map, held->mapped);
	if (held->fd >= 0)
		close(held->fd);
	*held = (struct held){ .fd = -1 };
}

/* 0, or an exit code. */
static int open_file(struct player *p, size_t index, int flags, const char *path)
{
	struct held *held = &p->held[p->r->s->call[index].file];
	uint64_t begin = fs_now_ns();

	drop(held);
	held->fd = open(path, flags | O_CLOEXEC, 0644);
	p->r->task[p->task].open_ns += fs_now_ns() - begin;
	if (held->fd < 0)
		return call_failed(p, index, path);
	held->writes = (flags & O_ACCMODE) != O_RDONLY;
	return bench_readahead_advise(p->r->readahead, held->fd, path);
}

static bool wants_fd(enum replay_verb verb)
{
	return verb == REPLAY_READ || verb == REPLAY_WRITE || verb == REPLAY_FSYNC || verb == REPLAY_FDATASYNC ||
	       verb == REPLAY_FAULT || verb == REPLAY_FAULT_WRITE;
}

/* A file that the script does not open is opened before its first call, which is not timed with it. */
static int ready(struct player *p, size_t index, const char *path)
{
	const struct replay_call *call = &p->r->s->call[index];
	struct held *held = &p->held[call->file];
	bool writes = call->verb == REPLAY_WRITE || call->verb == REPLAY_FAULT_WRITE;
	struct stat st;
	int failed = 0;

	if (!wants_fd(call->verb))
		return 0;
	if (held->fd < 0 || (writes && !held->writes))
		failed = open_file(p, index, writes ? O_RDWR : O_RDONLY, path);
	if (failed || held->map || (call->verb != REPLAY_FAULT && call->verb != REPLAY_FAULT_WRITE))
		return failed;
	if (fstat(held->fd, &st))
		return call_failed(p, index, path);
	held->mapped = (size_t)st.st_size;
	held->map = mmap(NULL, held->mapped, held->writes ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, held->fd, 0);
	if (held->map == MAP_FAILED) {
		held->map = NULL;
		return call_failed(p, index, path);
	}
	return 0;
}

/* Waits until the call is due. */
static void wait_for(struct player *p, size_t index)
{
	const struct replay_call *call = &p->r->s->call[index];
	uint64_t meant = *p->r->start_ns + p->r->s->task[p->task].start_ns + call->time_ns, due = meant, now;
	struct timespec at;

	if (p->r->timing == REPLAY_ASAP)
		return;
	if (p->r->timing == REPLAY_PAUSES && p->begun)
		due = p->returned_ns + (call->time_ns > p->last_end_ns ? call->time_ns - p->last_end_ns : 0);
	at = (struct timespec){ .tv_sec = (time_t)(due / 1000000000), .tv_nsec = (long)(due % 1000000000) };
	/* To sleep until a time that has passed costs tens of microseconds all the same. */
	if (due > fs_now_ns())
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
			;
	now = fs_now_ns();
	p->r->result[index].late_ns = now > meant ? now - meant : 0;
}

static int touch(struct player *p, size_t index, const char *path)
{
	const struct replay_call *call = &p->r->s->call[index];
	struct held *held = &p->held[call->file];
	volatile unsigned char *byte = held->map + call->offset;

	if (call->offset >= held->mapped) {
		errno = EFAULT;
		return call_failed(p, index, path);
	}
	if (call->verb == REPLAY_FAULT_WRITE)
		*byte = (unsigned char)(*byte + 1);
	else
		(void)*byte;
	return 0;
}

/* The call itself; what it returns, negative with errno. */
static ssize_t issue(struct player *p, const struct replay_call *call, const char *path)
{
	struct held *held = &p->held[call->file];
	char other[FS_PATH_MAX + 16];

	switch (call->verb) {
	case REPLAY_READ:
		return pread(held->fd, p->buffer, call->length, (off_t)call->offset);
	case REPLAY_WRITE:
		return pwrite(held->fd, p->data, call->length, (off_t)call->offset);
	case REPLAY_FSYNC:
		return fsync(held->fd);
	case REPLAY_FDATASYNC:
		return fdatasync(held->fd);
	case REPLAY_UNLINK:
		return unlink(path);
	case REPLAY_RENAME:
		return rename(path, replay_file_path(p->r, call->length, other, sizeof(other)));
	case REPLAY_TRUNCATE:
		return truncate(path, (off_t)call->offset);
	case REPLAY_CLOSE:
		drop(held);
		return 0;
	default:
		return 0;
	}
}

/* A descriptor follows its file to the new name. */
static void renamed(struct player *p, const struct replay_call *call)
{
	drop(&p->held[call->length]);
	p->held[call->length] = p->held[call->file];
	p->held[call->file] = (struct held){ .fd = -1 };
}

static int play_call(struct player *p, size_t index)
{
	const struct replay_call *call = &p->r->s->call[index];
	struct replay_task_result *task = &p->r->task[p->task];
	struct replay_result *result = &p->r->result[index];
	char path[FS_PATH_MAX + 16];
	int failed;
	ssize_t n = 0;

	replay_file_path(p->r, call->file, path, sizeof(path));
	failed = ready(p, index, path);
	if (failed)
		return failed;
	wait_for(p, index);
	result->begin_ns = fs_now_ns();
	if (call->verb == REPLAY_FAULT || call->verb == REPLAY_FAULT_WRITE)
		failed = touch(p, index, path);
	else if (call->verb == REPLAY_OPEN || call->verb == REPLAY_CREATE)
		failed = open_file(p, index, (int)call->length | (call->verb == REPLAY_CREATE ? O_CREAT : 0), path);
	else
		n = issue(p, call, path);
	p->returned_ns = fs_now_ns();
	result->latency_ns = p->returned_ns - result->begin_ns;
	p->last_end_ns = call->time_ns + call->took_ns;
	p->begun = true;
	if (failed)
		return failed;
	if (n < 0)
		return call_failed(p, index, path);
	if (call->verb == REPLAY_RENAME)
		renamed(p, call);
	if (call->verb == REPLAY_READ) {
		result->is_short = n != (ssize_t)call->length;
		if (result->is_short && p->r->s->version == 1)
			return fs_fail("%s: read %zu: %zd of %u bytes were read", path, index, n, call->length);
		task->bytes_read += (uint64_t)n;
		task->crc = fs_crc32(task->crc, p->buffer, (size_t)n);
	} else if (call->verb == REPLAY_WRITE) {
		if (n != (ssize_t)call->length) {
			errno = ENOSPC;
			return call_failed(p, index, path);
		}
		task->bytes_written += call->length;
	}
	return 0;
}

static unsigned char *aligned(size_t size)
{
	void *memory;

	if (posix_memalign(&memory, ALIGNMENT, size ? size : ALIGNMENT)) {
		fs_fail("memory: %zu bytes are not available; free some", size);
		_exit(FS_EXIT_FAILURE);
	}
	return memory;
}

/* Buffers of the longest read and the longest write, whose pages are there before the first call. */
static void make_buffers(struct player *p)
{
	const struct replay_script *s = p->r->s;
	uint32_t longest[2] = { 0, 0 };
	struct contents contents;

	for (size_t i = 0; i < s->calls; i++)
		if (s->call[i].task == p->task && s->call[i].verb <= REPLAY_WRITE && s->call[i].length > longest[s->call[i].verb])
			longest[s->call[i].verb] = s->call[i].length;
	p->buffer = aligned(longest[REPLAY_READ]);
	memset(p->buffer, 0xa5, longest[REPLAY_READ]);
	p->data = aligned(longest[REPLAY_WRITE]);
	contents_init(&contents, p->r->kind, p->r->seed + s->files + p->task);
	contents_fill(&contents, p->data, longest[REPLAY_WRITE]);
}

/* Name, priorities and cgroup of the calling process. 0, or an exit code. */
static int become(const struct replay_run *r, uint32_t number)
{
	const struct replay_task *task = &r->s->task[number];

	if (*task->name)
		prctl(PR_SET_NAME, task->name);
	if (task->has_nice && setpriority(PRIO_PROCESS, 0, task->nice))
		return fs_fail("task %s: nice %d: %s; run as root", task->name, task->nice, strerror(errno));
	if (task->ionice >= 0 && syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, task->ionice))
		return fs_fail("task %s: ionice: %s; the rt class needs root", task->name, strerror(errno));
	return task->cgroup >= 0 ? replay_cgroups_enter(r->cgroups, r->s, (uint32_t)task->cgroup) : 0;
}

/* A task's process; `go` is at its end once all stand ready. Never returns. */
static void play(const struct replay_run *r, uint32_t task, int go)
{
	struct player p = { .r = r, .task = task, .held = fs_alloc(r->s->files * sizeof(*p.held)) };
	int failed = become(r, task);
	char byte;

	for (uint32_t i = 0; i < r->s->files; i++)
		p.held[i].fd = -1;
	make_buffers(&p);
	r->task[task].crc = fs_crc32(0, p.buffer, 0);
	while (read(go, &byte, 1) < 0 && errno == EINTR)
		;
	for (size_t i = 0; i < r->s->calls && !failed; i++)
		if (r->s->call[i].task == task)
			failed = play_call(&p, i);
	_exit(failed);
}

/* Waits for all tasks. If one fails, the others are ended. 0, or an exit code. */
static int await(const pid_t *pid, uint32_t running, int failed)
{
	for (uint32_t left = running; left;) {
		int status;
		pid_t ended = waitpid(-1, &status, 0);
		bool interrupted = bench_interrupted();

		if (ended < 0 && errno != EINTR)
			break;
		if (ended > 0)
			left--;
		if (failed || (!interrupted && (ended < 0 || !status)))
			continue;
		/* A task that failed has printed why; one that a signal ended has not. */
		failed = interrupted		? fs_fail("bench replay: interrupted; its files are removed") :
			 WIFSIGNALED(status)	? fs_fail("a task ended by signal %d; run it again", WTERMSIG(status)) :
						  FS_EXIT_FAILURE;
		for (uint32_t i = 0; i < running; i++)
			if (pid[i] != ended)
				kill(pid[i], SIGTERM);
	}
	return failed;
}

/* Each task keeps a buffer of its longest read and one of its longest write: a short script can ask for all memory. */
static int check_memory(const struct replay_run *r)
{
	const struct replay_script *s = r->s;
	uint64_t wanted = (uint64_t)s->tasks * s->files * sizeof(struct held), there;
	uint32_t(*longest)[2] = fs_alloc(s->tasks * sizeof(*longest));

	memset(longest, 0, s->tasks * sizeof(*longest));
	for (size_t i = 0; i < s->calls; i++) {
		const struct replay_call *call = &s->call[i];

		if (call->verb <= REPLAY_WRITE && call->length > longest[call->task][call->verb])
			longest[call->task][call->verb] = call->length;
	}
	for (uint32_t i = 0; i < s->tasks; i++)
		wanted += (uint64_t)longest[i][0] + longest[i][1];
	free(longest);
	there = fs_available_bytes();
	if (there && wanted > there / 4 * 3)
		return fs_fail("script: its tasks need %llu MiB for parallel reads and writes, and %llu MiB of memory are free; use fewer tasks or shorter calls",
			       (unsigned long long)(wanted >> 20), (unsigned long long)(there >> 20));
	return 0;
}

int replay_play(const struct replay_run *r)
{
	struct rlimit files;
	pid_t *pid = fs_alloc(r->s->tasks * sizeof(*pid));
	uint32_t running = 0;
	int go[2], failed = check_memory(r);

	if (failed) {
		free(pid);
		return failed;
	}
	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	if (pipe(go)) {
		free(pid);
		return fs_fail("pipe: %s", strerror(errno));
	}
	fflush(NULL);
	for (; running < r->s->tasks && !failed; running++) {
		pid[running] = fork();
		if (!pid[running]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			signal(SIGTERM, SIG_DFL);
			signal(SIGINT, SIG_DFL);
			close(go[1]);
			play(r, running, go[0]);
		}
		if (pid[running] < 0) {
			failed = fs_fail("task %u: %s; free some memory, or replay fewer tasks", running, strerror(errno));
			break;
		}
	}
	*r->start_ns = fs_now_ns() + LEAD_NS;
	close(go[0]);
	for (uint32_t i = 0; i < running && failed; i++)
		kill(pid[i], SIGTERM);
	close(go[1]);
	failed = await(pid, running, failed);
	free(pid);
	return failed;
}
