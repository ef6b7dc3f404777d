// SPDX-License-Identifier: Apache-2.0
#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util.h"

/* Of a captured output; a bench's result takes some 10 bytes a request. */
#define CAPTURE_MAX (16u << 20)
#define CAPTURE_CHUNK 16384
#define GRACE_MS 2000

/* The agent's own commands, whatever the agent's file is called here. */
#define SELF "flashscope-agent"

void fs_command_init(struct fs_command *command, const struct fs_record_options *options)
{
	memset(command, 0, sizeof(*command));
	command->options = options;
	command->gate = command->captured = command->failed = -1;
	command->status = -1;
}

int fs_command_check(struct fs_command *command, char *error, size_t size)
{
	const char *user = command->options->user;

	return user ? fs_user_find(user, &command->user, error, size) : 0;
}

/* In the child: what becomes its 0, 1 and 2. */
static int take_stdio(const struct fs_command *command)
{
	const struct fs_record_options *options = command->options;

	if (options->ready_fd >= 0)
		close(options->ready_fd);
	if (options->stdio[0] >= 0) {
		for (int i = 0; i < 3; i++)
			if (dup2(options->stdio[i], i) < 0)
				return -1;
		for (int i = 0; i < 3; i++)
			close(options->stdio[i]);
	}
	if (command->captured >= 0)
		return dup2(command->captured, STDOUT_FILENO) < 0 ? -1 : 0;
	if (options->stdio[0] < 0 && !options->output) /* stdout is the stream's */
		return dup2(STDERR_FILENO, STDOUT_FILENO) < 0 ? -1 : 0;
	return 0;
}

static void __attribute__((noreturn)) become(struct fs_command *command, pid_t parent, int gate, int failed)
{
	char *const *argv = command->options->command;
	char byte;
	int error;

	for (int number = 1; number < 32; number++)
		signal(number, SIG_DFL);
	if (!take_stdio(command) && (!command->options->user || !fs_user_become(&command->user))) {
		/* Should the recorder be killed, no process of its making stays. Another user's id clears this. */
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != parent || read(gate, &byte, 1) != 1)
			_exit(FS_EXIT_FAILURE);
		if (!strcmp(argv[0], SELF))
			execv("/proc/self/exe", argv);
		else
			execvp(argv[0], argv);
	}
	error = errno;
	if (write(failed, &error, sizeof(error)) < 0)
		_exit(FS_EXIT_CANNOT_RUN);
	_exit(error == ENOENT ? FS_EXIT_NOT_FOUND : FS_EXIT_CANNOT_RUN);
}

int fs_command_start(struct fs_command *command, char *error, size_t size)
{
	pid_t parent = getpid(), pid;
	int gate[2], failed[2];

	if (pipe2(gate, O_CLOEXEC) || pipe2(failed, O_CLOEXEC)) {
		snprintf(error, size, "command: pipe: %s", strerror(errno));
		return -1;
	}
	if (command->options->capture) {
		/* In memory: what the command prints must not cost it a frame, nor touch a disk. */
		command->captured = memfd_create("output", MFD_CLOEXEC);
		if (command->captured < 0) {
			snprintf(error, size, "command: memory for its output: %s", strerror(errno));
			return -1;
		}
	}
	pid = fork();
	if (pid < 0) {
		snprintf(error, size, "command: fork: %s", strerror(errno));
		return -1;
	}
	if (!pid) {
		close(gate[1]);
		close(failed[0]);
		become(command, parent, gate[0], failed[1]);
	}
	close(gate[0]);
	close(failed[1]);
	/* Only the command has it: a reader sees the command's end, not the recorder's. */
	for (int i = 0; i < 3 && command->options->stdio[0] >= 0; i++)
		close(command->options->stdio[i]);
	command->pid = pid;
	command->gate = gate[1];
	command->failed = failed[0];
	return 0;
}

int fs_command_release(struct fs_command *command, struct fs_stream *stream, char *error, size_t size)
{
	int reason;

	*error = '\0';
	command->begin_ns = fs_now_ns();
	if (fs_frame_phase(stream, command->begin_ns, FS_PHASE_BEGIN, (uint32_t)command->pid, "command"))
		return -1;
	if (write(command->gate, "", 1) != 1) {
		snprintf(error, size, "command: cannot be started: %s", strerror(errno));
		return -1;
	}
	close(command->gate);
	command->gate = -1;
	if (read(command->failed, &reason, sizeof(reason)) == sizeof(reason)) {
		const char *program = command->options->command[0];
		struct stat st;
		bool directory = !stat(program, &st) && S_ISDIR(st.st_mode);

		fs_warn("%s: cannot be run: %s; name a program of this machine", program,
			directory && reason == EACCES ? "it is a directory" : strerror(reason));
	}
	close(command->failed);
	command->failed = -1;
	return 0;
}

/* What the command printed, as frames; errors of the stream show at the next frame. */
static void send_captured(struct fs_command *command, struct fs_stream *stream)
{
	char chunk[CAPTURE_CHUNK];
	off_t at = 0;
	ssize_t got;

	if (command->captured < 0)
		return;
	while (at < (off_t)CAPTURE_MAX && (got = pread(command->captured, chunk, sizeof(chunk), at)) > 0) {
		if (fs_frame_output(stream, STDOUT_FILENO, chunk, (size_t)got))
			break;
		at += got;
	}
	if (lseek(command->captured, 0, SEEK_END) > (off_t)CAPTURE_MAX)
		fs_warn("command: only the first %u MiB of its output are kept", CAPTURE_MAX >> 20);
	close(command->captured);
	command->captured = -1;
}

bool fs_command_ended(struct fs_command *command, struct fs_stream *stream, int flags)
{
	uint32_t pid = (uint32_t)command->pid;
	uint64_t end;
	int status;

	if (!command->pid || waitpid(command->pid, &status, flags) != command->pid)
		return false;
	end = fs_now_ns();
	command->pid = 0;
	command->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	fs_frame_phase(stream, end, FS_PHASE_END, pid, "command");
	send_captured(command, stream);
	fs_frame_exit(stream, command->begin_ns, end, command->status);
	return true;
}

static bool ends_in_time(struct fs_command *command, struct fs_stream *stream)
{
	for (int waited = 0; waited < GRACE_MS; waited += 20) {
		if (fs_command_ended(command, stream, WNOHANG))
			return true;
		fs_sleep_ms(20);
	}
	return false;
}

void fs_command_end(struct fs_command *command, struct fs_stream *stream, bool warned)
{
	if (!command->pid || (warned && ends_in_time(command, stream)))
		return;
	kill(command->pid, SIGTERM);
	if (ends_in_time(command, stream))
		return;
	kill(command->pid, SIGKILL);
	fs_command_ended(command, stream, 0);
}

void fs_command_free(struct fs_command *command)
{
	fs_user_free(&command->user);
}
