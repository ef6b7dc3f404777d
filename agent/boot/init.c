// SPDX-License-Identifier: Apache-2.0
/* init: runs the plan of a virtual board as its PID 1, then powers the board off. */
#include "init.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "cmds.h"
#include "util.h"

#define PLAN_PATH "/flashscope/plan"
#define PORT_NAME "flashscope"
#define PORT_WAIT_MS 2000u
#define PORT_POLL_MS 10u
/* Where the host takes frames in its own time (KVM), power must not go before it has. */
#define PORT_FLUSH_MS 100u

int step_fail(struct step *step, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(step->why, sizeof(step->why), format, ap);
	va_end(ap);
	return -1;
}

static void mount_one(const char *type, const char *dir, const char *options)
{
	fs_mkdirs(dir, 0755);
	/* EBUSY: the kernel has mounted it already (devtmpfs with CONFIG_DEVTMPFS_MOUNT). */
	if (mount(type, dir, type, 0, options) && errno != EBUSY)
		fs_warn("%s: cannot mount %s: %s", dir, type, strerror(errno));
}

static void mount_all(void)
{
	mount_one("proc", "/proc", NULL);
	mount_one("sysfs", "/sys", NULL);
	mount_one("devtmpfs", "/dev", NULL);
	mount_one("tracefs", "/sys/kernel/tracing", NULL);
	mount_one("tmpfs", "/run", "mode=755");
	mount_one("tmpfs", "/tmp", "mode=1777");
	fs_mkdirs("/root", 0700);
}

static void use_console(void)
{
	int fd = open("/dev/console", O_RDWR | O_NOCTTY);

	if (fd < 0)
		return;
	for (int i = 0; i < 3; i++)
		dup2(fd, i);
	if (fd > 2)
		close(fd);
}

/* Descriptor of the port with our name; -1 before it exists. */
static int open_port(void)
{
	DIR *ports = opendir("/sys/class/virtio-ports");
	struct dirent *entry;
	int fd = -1;

	if (!ports)
		return -1;
	while (fd < 0 && (entry = readdir(ports))) {
		char path[320];
		char *name;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/sys/class/virtio-ports/%s/name", entry->d_name);
		name = fs_read_value(path);
		if (name && !strcmp(name, PORT_NAME)) {
			snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
			fd = open(path, O_WRONLY | O_CLOEXEC);
		}
		free(name);
	}
	closedir(ports);
	return fd;
}

/* Sends what was kept, a frame a write, and makes the port the way out. */
static int switch_to_port(struct board *board, int port)
{
	static unsigned char buffer[FS_MAX_SHARED_FRAME];
	off_t at = 0;

	for (;;) {
		struct fs_frame frame;
		ssize_t n = pread(board->out, &frame, sizeof(frame), at);
		size_t whole;

		if (n != (ssize_t)sizeof(frame))
			break;
		whole = sizeof(frame) + frame.length;
		if (whole > sizeof(buffer) || pread(board->out, buffer, whole, at) != (ssize_t)whole)
			break;
		if (write(port, buffer, whole) != (ssize_t)whole)
			return -1;
		at += (off_t)whole;
	}
	close(board->out);
	board->out = port;
	board->port = true;
	board->self.fd = port;
	board->self.regular = false;
	return 0;
}

static void look_for_port(struct board *board, unsigned int wait_ms)
{
	uint64_t end = fs_now_ns() + wait_ms * UINT64_C(1000000);

	while (!board->port) {
		int port = open_port();

		if (port >= 0) {
			if (switch_to_port(board, port))
				fs_warn("port " PORT_NAME ": %s", strerror(errno));
			return;
		}
		if (fs_now_ns() >= end)
			return;
		fs_sleep_ms(PORT_POLL_MS);
	}
}

static void stream_open(struct board *board, struct fs_stream *stream, unsigned int source)
{
	fs_stream_init(stream, board->out, (uint16_t)source);
	if (stream->max_frame > FS_MAX_SHARED_FRAME)
		stream->max_frame = FS_MAX_SHARED_FRAME;
	fs_frame_hello(stream, sizeof(long), 0);
}

static int run_verb(struct step *step)
{
	switch (step->plan->verb) {
	case PLAN_STDIN:
		return verb_stdin(step);
	case PLAN_RUN:
		return verb_run(step);
	case PLAN_SPAWN:
		return verb_spawn(step);
	case PLAN_RECORD_START:
		return verb_record_start(step);
	case PLAN_RECORD_STOP:
		return verb_record_stop(step);
	case PLAN_SHELL:
		return verb_shell(step);
	default:
		return verb_plain(step);
	}
}

static const char *step_name(const struct plan_step *plan)
{
	bool named = plan->verb == PLAN_RUN || plan->verb == PLAN_SPAWN;

	return named ? plan->argv[0] : plan->verb_name;
}

/* 0, or -1 with the reason in `why`. */
static int run_step(struct board *board, const struct plan_step *plan, char *why, size_t size)
{
	struct step step = { .board = board, .plan = plan };
	struct spawned *spawned = NULL;
	struct fs_stream stream;
	const char *name = step_name(plan);
	int failed;

	if (plan->verb == PLAN_SPAWN) {
		/* Its source ends with the plan. */
		spawned = fs_alloc(sizeof(*spawned));
		memset(spawned, 0, sizeof(*spawned));
		step.stream = &spawned->stream;
		spawned->next = board->spawned;
		board->spawned = spawned;
	} else if (plan->verb != PLAN_RECORD_START) {
		step.stream = &stream;
	}
	if (step.stream) {
		stream_open(board, step.stream, plan->number);
		fs_frame(step.stream, FS_STEP, name, strlen(name), NULL, 0);
	}
	step.begin_ns = fs_now_ns();
	failed = run_verb(&step);
	if (!step.end_ns)
		step.end_ns = fs_now_ns();
	if (failed) {
		if (!step.status)
			step.status = 1;
		snprintf(why, size, "%s", step.why);
		fs_frame_log(step.stream ? step.stream : &board->self,
			     plan->may_fail ? FS_LOG_WARNING : FS_LOG_ERROR, "step %u (%s): %s", plan->number,
			     plan->text, step.why);
	}
	if (spawned && failed)
		board->spawned = spawned->next;
	if (step.stream && (!spawned || failed)) {
		fs_frame_exit(step.stream, step.begin_ns, step.end_ns, step.status);
		fs_frame_end(step.stream, failed ? FS_END_FAILURE : FS_END_COMPLETE);
		fs_stream_free(step.stream);
	}
	if (spawned && failed)
		free(spawned);
	return failed;
}

static int run_plan(struct board *board, char *why, size_t size)
{
	struct plan_error error;
	struct plan plan;
	char step_why[480];
	size_t length;
	char *text;
	int failed = 0;

	text = fs_read_text(PLAN_PATH, &length);
	if (!text) {
		snprintf(why, size, "step 0 (): %s: %s", PLAN_PATH, strerror(errno));
		return -1;
	}
	failed = plan_parse(text, length, &plan, &error);
	free(text);
	if (failed) {
		snprintf(why, size, "step 0 (): %s:%u: %s", PLAN_PATH, error.line, error.text);
		return -1;
	}
	for (size_t i = 0; i < plan.count && !failed; i++) {
		const struct plan_step *step = &plan.steps[i];

		/* Modules come first, and with them the port; what follows may need it. */
		if (!board->port)
			look_for_port(board, step->verb == PLAN_MODULE ? 0 : PORT_WAIT_MS);
		if (!run_step(board, step, step_why, sizeof(step_why)) || step->may_fail)
			continue;
		snprintf(why, size, "step %u (%s): %s", step->number, step->text, step_why);
		failed = -1;
	}
	plan_free(&plan);
	return failed;
}

/* One line: control characters would let a step's words forge another. */
static void say_last(const char *text)
{
	char line[1400];
	int n = snprintf(line, sizeof(line), "flashscope: %s", text);

	if (n >= (int)sizeof(line))
		n = sizeof(line) - 1;
	for (int i = 0; i < n; i++)
		if ((unsigned char)line[i] < ' ' || line[i] == 127)
			line[i] = '?';
	line[n] = '\n';
	/* Level 0: the kernel prints nothing after our last line, "reboot: Power down" (KERN_EMERG) included. */
	fs_write_text("/proc/sys/kernel/printk", "0");
	if (write(1, line, (size_t)n + 1) < 0)
		return;
	tcdrain(1);
}

int cmd_init(int argc, char **argv)
{
	struct board board = { .out = -1, .in = -1 };
	char why[1200], ended[400];
	char text[1300];
	int failed;

	(void)argv;
	if (getpid() != 1)
		return fs_fail("init: this is process %d; init runs only as process 1 of a virtual board, because it "
			       "mounts, formats and powers off",
			       (int)getpid());
	if (argc > 1)
		fs_warn("init: takes no arguments; they are ignored");

	mount_all();
	use_console();
	board.out = memfd_create("flashscope-early", MFD_CLOEXEC);
	if (board.out < 0)
		fs_warn("init: no memory file: %s", strerror(errno));
	stream_open(&board, &board.self, 0);
	failed = run_plan(&board, why, sizeof(why));
	if (!end_children(&board, ended, sizeof(ended)) && !failed) {
		failed = -1;
		snprintf(why, sizeof(why), "step 0 (): %s", ended);
	}
	look_for_port(&board, PORT_WAIT_MS);
	if (!board.port && !failed) {
		failed = -1;
		snprintf(why, sizeof(why),
			 "step 0 (): no virtio port is named " PORT_NAME "; give the board one and load its modules "
			 "(virtio_console and its bus) first in the plan");
	}
	if (failed)
		fs_frame_log(&board.self, FS_LOG_ERROR, "plan failed: %s", why);
	fs_frame_end(&board.self, failed ? FS_END_FAILURE : FS_END_COMPLETE);
	if (board.self.error && !failed) {
		failed = -1;
		snprintf(why, sizeof(why), "step 0 (): port " PORT_NAME ": %s", strerror(board.self.error));
	}
	if (failed)
		snprintf(text, sizeof(text), "plan failed: %s", why);
	else
		snprintf(text, sizeof(text), "plan complete");
	sync();
	fs_sleep_ms(PORT_FLUSH_MS);
	say_last(text);
	reboot(RB_POWER_OFF);
	/* Only where the kernel refuses; a PID 1 that returns is a panic. */
	for (;;)
		pause();
}
