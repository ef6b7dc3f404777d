// SPDX-License-Identifier: Apache-2.0
#include "reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util.h"

/* An answer takes some 20 us; a busy machine may stand still for longer. */
#define PATIENCE_MS 200
#define STUCK_MAX 64

struct request {
	char path[60];
	uint32_t most; /* bytes; 0: all */
};

/* One recorder a process: so is its reader. */
static struct {
	pid_t pid; /* 0: none */
	int fd;
	void (*prepare)(void *context);
	void *context;
	int32_t stuck[STUCK_MAX];
	size_t stuck_count;
} reader = { .fd = -1 };

static bool write_all(int fd, const void *data, size_t size)
{
	while (size) {
		ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return false;
		data = (const char *)data + sent;
		size -= (size_t)sent;
	}
	return true;
}

static char *read_file(const char *path, uint32_t most, size_t *length)
{
	char *text;
	ssize_t got;
	int fd;

	if (!most)
		return fs_read_text(path, length);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	text = fs_alloc(most + 1);
	got = read(fd, text, most);
	close(fd);
	*length = got > 0 ? (size_t)got : 0;
	text[*length] = '\0';
	return text;
}

/* The length and the text go back; UINT64_MAX: there is no such file. */
static void serve(int fd)
{
	struct request request;
	ssize_t got;

	while ((got = recv(fd, &request, sizeof(request), MSG_WAITALL)) == sizeof(request) ||
	       (got < 0 && errno == EINTR)) {
		uint64_t header;
		size_t length = 0;
		char *text;

		if (got < 0)
			continue;
		text = read_file(request.path, request.most, &length);
		header = text ? length : UINT64_MAX;
		if (!write_all(fd, &header, sizeof(header)) || (text && !write_all(fd, text, length)))
			_exit(1);
		free(text);
	}
	_exit(0);
}

static int start(void)
{
	const pid_t parent = getpid();
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return -1;
	reader.pid = fork();
	if (!reader.pid) {
		/* Ctrl-C ends the recorder, and its end ends this. */
		static const int ignored[] = { SIGINT, SIGTERM, SIGHUP, SIGALRM, SIGUSR1, SIGUSR2, SIGPIPE, SIGCHLD };

		for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
			signal(ignored[i], SIG_IGN);
		/* An output that is a pipe has to end with the recorder. */
		for (int fd = 0; fd < 1024; fd++)
			if (fd != ends[1])
				close(fd);
		if (reader.prepare)
			reader.prepare(reader.context);
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
			_exit(1);
		serve(ends[1]);
	}
	close(ends[1]);
	if (reader.pid < 0) {
		reader.pid = 0;
		close(ends[0]);
		return -1;
	}
	reader.fd = ends[0];
	return 0;
}

int fs_reader_start(void (*prepare)(void *context), void *context)
{
	reader.prepare = prepare;
	reader.context = context;
	return start() ? -1 : (int)reader.pid;
}

/* On a kernel where even SIGKILL does not end the wait (before 5.8), it is left behind, and ends when it may. */
static void end(void)
{
	if (!reader.pid)
		return;
	close(reader.fd);
	kill(reader.pid, SIGKILL);
	for (int i = 0; i < 50 && waitpid(reader.pid, NULL, WNOHANG) == 0; i++)
		usleep(1000);
	reader.pid = 0;
	reader.fd = -1;
}

void fs_reader_end(void)
{
	end();
	reader.stuck_count = 0;
}

uint64_t fs_reader_stuck(void)
{
	return reader.stuck_count;
}

static bool read_all(void *data, size_t size)
{
	while (size) {
		struct pollfd poll_fd = { .fd = reader.fd, .events = POLLIN };
		ssize_t got = poll(&poll_fd, 1, PATIENCE_MS);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		got = recv(reader.fd, data, size, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		data = (char *)data + got;
		size -= (size_t)got;
	}
	return true;
}

char *fs_reader_text(int32_t pid, const char *file, uint32_t most, bool direct, size_t *length)
{
	struct request request = { .most = most };
	char path[FS_PATH_MAX], *text;
	uint64_t header;

	fs_path(path, sizeof(path), "/proc/%" PRId32 "/%s", pid, file);
	if (direct)
		return read_file(path, most, length);
	if (!reader.pid || strlen(path) >= sizeof(request.path))
		return reader.stuck_count < STUCK_MAX ? read_file(path, most, length) : NULL;
	for (size_t i = 0; i < reader.stuck_count; i++)
		if (reader.stuck[i] == pid)
			return NULL;
	memcpy(request.path, path, strlen(path));
	if (write_all(reader.fd, &request, sizeof(request)) && read_all(&header, sizeof(header))) {
		if (header == UINT64_MAX)
			return NULL;
		text = fs_alloc(header + 1);
		*length = header;
		if (read_all(text, header))
			return text;
		free(text);
	}
	if (reader.stuck_count < STUCK_MAX)
		reader.stuck[reader.stuck_count++] = pid;
	end();
	/*
	 * Each process that hangs costs the time limit. With too many of them, the other processes have no command
	 * line.
	 */
	if (reader.stuck_count < STUCK_MAX)
		start();
	return NULL;
}
