// SPDX-License-Identifier: Apache-2.0
/* Processes of a plan: programs that run, wait in the background, record; the shell. */
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util.h"

#define AGENT_PATH "/flashscope/agent"
#define READY_WAIT_MS 120000
/* A recorder writes out what its rings hold before it ends. */
#define RECORDER_END_MS 120000u
#define CHILD_END_MS 2000u
#define POLL_MS 5u
#define OUTPUT_CHUNK 16384u

static char *const environment[] = {
	"PATH=/usr/sbin:/usr/bin:/sbin:/bin:/flashscope", "HOME=/root", "TERM=linux", "LC_ALL=C.UTF-8", NULL,
};

/* A file without a name on /run, so that a runaway output meets that mount's limit. */
static int output_file(void)
{
	int fd = open("/run", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	return fd >= 0 ? fd : memfd_create("flashscope-output", MFD_CLOEXEC);
}

static int child_open(struct child *child, bool keep_out)
{
	memset(child, 0, sizeof(*child));
	child->out = keep_out ? output_file() : -1;
	child->err = output_file();
	if ((keep_out && child->out < 0) || child->err < 0)
		return -1;
	return 0;
}

static void child_close(struct child *child)
{
	if (child->out >= 0)
		close(child->out);
	if (child->err >= 0)
		close(child->err);
	child->out = child->err = -1;
}

static int exit_status(int status)
{
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Reaps one process that has ended: a child, or an orphan that PID 1 inherited. */
static void note_end(struct board *board, struct child *waited, pid_t pid, int status)
{
	struct child *child = NULL;

	if (waited && waited->pid == pid)
		child = waited;
	else if (board->recording && board->recorder.pid == pid)
		child = &board->recorder;
	for (struct spawned *s = board->spawned; s && !child; s = s->next)
		if (s->child.pid == pid)
			child = &s->child;
	if (!child || child->ended)
		return;
	child->end_ns = fs_now_ns();
	child->ended = true;
	child->status = status;
}

static void wait_for(struct board *board, struct child *child)
{
	while (!child->ended) {
		int status;
		pid_t pid = waitpid(-1, &status, 0);

		if (pid > 0)
			note_end(board, child, pid, status);
		else if (errno != EINTR)
			break;
	}
}

static bool wait_until(struct board *board, struct child *child, unsigned int ms)
{
	uint64_t end = fs_now_ns() + ms * UINT64_C(1000000);

	for (;;) {
		int status;
		pid_t pid;

		while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
			note_end(board, child, pid, status);
		if (child->ended || fs_now_ns() >= end)
			return child->ended;
		fs_sleep_ms(POLL_MS);
	}
}

/*
 * In the child: `in`, `out` and `err` become 0, 1 and 2 (`in` -1: /dev/null).
 * Everything else of init's is closed by exec, save `kept` (-1: none).
 */
static void __attribute__((noreturn)) become(char *const argv[], int in, int out, int err, int kept)
{
	int null = open("/dev/null", O_RDONLY);
	sigset_t none;

	setsid();
	for (int s = 1; s < NSIG; s++)
		signal(s, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (in >= 0)
		dup2(in, 0);
	else if (null >= 0)
		dup2(null, 0);
	dup2(out, 1);
	dup2(err, 2);
	if (null > 2)
		close(null);
	if (kept >= 0)
		fcntl(kept, F_SETFD, 0);
	execvpe(argv[0], argv, environment);
	fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
	fflush(stderr);
	_exit(errno == ENOENT ? 127 : 126);
}

static int child_start(struct child *child, char *const argv[], int in, int out, int kept)
{
	/* execvpe() looks along the caller's PATH. */
	setenv("PATH", strchr(environment[0], '=') + 1, 1);
	child->begin_ns = fs_now_ns();
	child->pid = fork();
	if (!child->pid)
		become(argv, in, out, child->err, kept);
	return child->pid < 0 ? -1 : 0;
}

/* Frames what a kept file holds. */
static void send_output(struct fs_stream *stream, uint32_t number, int fd)
{
	static char chunk[OUTPUT_CHUNK];
	off_t at = 0;
	ssize_t n;

	if (fd < 0)
		return;
	while ((n = pread(fd, chunk, sizeof(chunk), at)) > 0) {
		fs_frame_output(stream, number, chunk, (size_t)n);
		at += n;
	}
}

/* The last line that a child wrote to stderr; empty where it wrote nothing. */
static void last_line(int fd, char *out, size_t size)
{
	char tail[300];
	struct stat st;
	off_t at;
	ssize_t n;
	char *line;

	*out = '\0';
	if (fd < 0 || fstat(fd, &st))
		return;
	at = st.st_size > (off_t)sizeof(tail) - 1 ? st.st_size - ((off_t)sizeof(tail) - 1) : 0;
	n = pread(fd, tail, sizeof(tail) - 1, at);
	if (n <= 0)
		return;
	while (n > 0 && (tail[n - 1] == '\n' || tail[n - 1] == '\r'))
		n--;
	tail[n] = '\0';
	line = strrchr(tail, '\n');
	snprintf(out, size, "%s", line ? line + 1 : tail);
}

/* 0 where the child ended well, else -1 and why. */
static int judge(struct step *step, const char *name, const struct child *child)
{
	char line[300];

	step->status = exit_status(child->status);
	if (!step->status)
		return 0;
	last_line(child->err, line, sizeof(line));
	if (WIFSIGNALED(child->status))
		return step_fail(step, "%s: ended by signal %d%s%s", name, WTERMSIG(child->status), *line ? ": " : "",
				 line);
	return step_fail(step, "%s: exit status %d%s%s", name, step->status, *line ? ": " : "", line);
}

static void close_stdin(struct board *board)
{
	if (board->in >= 0)
		close(board->in);
	board->in = -1;
}

int verb_stdin(struct step *step)
{
	const char *path = step->plan->argv[0];

	close_stdin(step->board);
	step->board->in = open(path, O_RDONLY | O_CLOEXEC);
	return step->board->in < 0 ? step_fail(step, "%s: %s", path, strerror(errno)) : 0;
}

int verb_run(struct step *step)
{
	char **argv = step->plan->argv + 1;
	struct child child;
	int failed;

	if (child_open(&child, true) || child_start(&child, argv, step->board->in, child.out, -1)) {
		step_fail(step, "%s: %s", argv[0], strerror(errno));
		child_close(&child);
		close_stdin(step->board);
		return -1;
	}
	close_stdin(step->board);
	wait_for(step->board, &child);
	step->begin_ns = child.begin_ns;
	step->end_ns = child.end_ns;
	send_output(step->stream, 1, child.out);
	send_output(step->stream, 2, child.err);
	failed = judge(step, argv[0], &child);
	child_close(&child);
	return failed;
}

int verb_spawn(struct step *step)
{
	char **argv = step->plan->argv + 1;
	struct child *child = &step->board->spawned->child;

	if (child_open(child, true) || child_start(child, argv, -1, child->out, -1)) {
		step_fail(step, "%s: %s", argv[0], strerror(errno));
		child_close(child);
		return -1;
	}
	return 0;
}

int verb_record_start(struct step *step)
{
	const struct plan_step *plan = step->plan;
	struct board *board = step->board;
	struct child *child = &board->recorder;
	char source[16], ready_fd[16], line[300];
	struct pollfd ready = { .events = POLLIN };
	int pipe_fds[2];
	char **argv;
	char byte;
	int n = 0;

	if (board->recording)
		return step_fail(step, "a recorder runs already; record-stop comes first");
	if (!board->port)
		return step_fail(step, "no virtio port is named flashscope, so there is no way out for a recording");
	if (pipe2(pipe_fds, O_CLOEXEC))
		return step_fail(step, "pipe: %s", strerror(errno));
	if (child_open(child, false)) {
		step_fail(step, "/run: %s", strerror(errno));
		close(pipe_fds[0]);
		close(pipe_fds[1]);
		child_close(child);
		return -1;
	}
	snprintf(source, sizeof(source), "%u", plan->number);
	snprintf(ready_fd, sizeof(ready_fd), "%d", pipe_fds[1]);
	argv = fs_alloc(((size_t)plan->argc + 7) * sizeof(*argv));
	argv[n++] = AGENT_PATH;
	argv[n++] = "record";
	argv[n++] = "--source";
	argv[n++] = source;
	argv[n++] = "--ready-fd";
	argv[n++] = ready_fd;
	for (int i = 0; i < plan->argc; i++)
		argv[n++] = plan->argv[i];
	argv[n] = NULL;
	if (child_start(child, argv, -1, board->out, pipe_fds[1])) {
		step_fail(step, "record: %s", strerror(errno));
		close(pipe_fds[0]);
		close(pipe_fds[1]);
		child_close(child);
		free(argv);
		return -1;
	}
	board->recording = true;
	free(argv);
	close(pipe_fds[1]);
	ready.fd = pipe_fds[0];
	n = poll(&ready, 1, READY_WAIT_MS);
	if (n > 0)
		n = read(pipe_fds[0], &byte, 1) == 1;
	close(pipe_fds[0]);
	if (n > 0)
		return 0;
	if (!wait_until(board, child, RECORDER_END_MS / 4)) {
		kill(child->pid, SIGKILL);
		wait_for(board, child);
	}
	board->recording = false;
	last_line(child->err, line, sizeof(line));
	step_fail(step, "record: not ready, exit status %d%s%s", exit_status(child->status), *line ? ": " : "", line);
	child_close(child);
	return -1;
}

static int stop_recorder(struct step *step)
{
	struct board *board = step->board;
	struct child *child = &board->recorder;
	int failed;

	if (!child->ended)
		kill(child->pid, SIGTERM);
	if (!wait_until(board, child, RECORDER_END_MS)) {
		kill(child->pid, SIGKILL);
		wait_for(board, child);
	}
	board->recording = false;
	if (step->stream)
		send_output(step->stream, 2, child->err);
	failed = judge(step, "record", child);
	child_close(child);
	return failed;
}

int verb_record_stop(struct step *step)
{
	if (!step->board->recording)
		return step_fail(step, "no recorder runs; record-start comes first");
	return stop_recorder(step);
}

/* A busybox package brings no /bin/sh; the program is one when called so. */
static const char *find_shell(void)
{
	static const char *const shells[] = { "/bin/sh", "/usr/bin/sh", "/bin/busybox", "/usr/bin/busybox" };

	for (size_t i = 0; i < ARRAY_SIZE(shells); i++)
		if (!access(shells[i], X_OK))
			return shells[i];
	return NULL;
}

/* The console as the controlling terminal of a session, so that Ctrl-C works. */
static void __attribute__((noreturn)) become_shell(const char *shell)
{
	int fd;

	setsid();
	for (int s = 1; s < NSIG; s++)
		signal(s, SIG_DFL);
	fd = open("/dev/console", O_RDWR);
	if (fd >= 0) {
		ioctl(fd, TIOCSCTTY, 1);
		for (int i = 0; i < 3; i++)
			dup2(fd, i);
		if (fd > 2)
			close(fd);
	}
	if (chdir("/root"))
		fs_warn("/root: %s", strerror(errno));
	execle(shell, "-sh", (char *)NULL, environment);
	fs_warn("%s: %s", shell, strerror(errno));
	_exit(127);
}

int verb_shell(struct step *step)
{
	struct child child = { .out = -1, .err = -1 };
	const char *shell = find_shell();

	if (!shell)
		return step_fail(step, "no /bin/sh and no busybox in the image; add a package that has one (busybox-static)");
	child.begin_ns = fs_now_ns();
	child.pid = fork();
	if (!child.pid)
		become_shell(shell);
	if (child.pid < 0)
		return step_fail(step, "%s: %s", shell, strerror(errno));
	wait_for(step->board, &child);
	/* How a person left the shell is not a failure of the plan. */
	step->status = exit_status(child.status);
	return 0;
}

/* The group as well: a spawned program is the leader of its session, once it has run that far. */
static void signal_group(pid_t pid, int number)
{
	kill(pid, number);
	kill(-pid, number);
}

static void end_spawned(struct board *board, struct spawned *s)
{
	if (!s->child.ended)
		signal_group(s->child.pid, SIGTERM);
	if (!wait_until(board, &s->child, CHILD_END_MS)) {
		signal_group(s->child.pid, SIGKILL);
		wait_for(board, &s->child);
	}
	/* It may have been started before the port was there. */
	s->stream.fd = board->out;
	s->stream.regular = s->stream.regular && !board->port;
	send_output(&s->stream, 1, s->child.out);
	send_output(&s->stream, 2, s->child.err);
	fs_frame_exit(&s->stream, s->child.begin_ns, s->child.end_ns, exit_status(s->child.status));
	fs_frame_end(&s->stream, FS_END_COMPLETE);
	fs_stream_free(&s->stream);
	child_close(&s->child);
}

bool end_children(struct board *board, char *why, size_t size)
{
	struct step step = { .board = board };
	bool good = true;

	if (board->recording && stop_recorder(&step)) {
		good = false;
		snprintf(why, size, "%s", step.why);
		fs_frame_log(&board->self, FS_LOG_ERROR, "%s", step.why);
	}
	while (board->spawned) {
		struct spawned *s = board->spawned;

		end_spawned(board, s);
		board->spawned = s->next;
		free(s);
	}
	/* The remaining ones are grandchildren without a parent. */
	kill(-1, SIGTERM);
	fs_sleep_ms(POLL_MS);
	kill(-1, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0)
		;
	return good;
}
