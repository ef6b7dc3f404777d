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
#include <sys/socket.h>
#include <unistd.h>

#include "helper.h"
#include "util.h"

/* An answer takes some 20 us; a busy machine may stand still for longer. */
#define ANSWER_TIMEOUT_MS 200
#define STUCK_MAX 64

struct request {
	char path[60];
	uint32_t most; /* bytes; 0: all */
};

/* One recorder a process: so is its reader. */
static struct {
	struct fs_helper helper;
	void (*prepare)(void *context);
	void *context;
	int32_t stuck[STUCK_MAX];
	size_t stuck_count;
} reader = { .helper.fd = -1 };

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

	if (fs_helper_fork(&reader.helper, SOCK_STREAM) < 0)
		return -1;
	if (!reader.helper.pid) {
		/* Ctrl-C ends the recorder, and its end ends this. */
		static const int ignored[] = { SIGINT, SIGTERM, SIGHUP, SIGALRM, SIGUSR1, SIGUSR2, SIGPIPE, SIGCHLD };

		for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
			signal(ignored[i], SIG_IGN);
		/* An output that is a pipe has to end with the recorder. */
		for (int fd = 0; fd < 1024; fd++)
			if (fd != reader.helper.fd)
				close(fd);
		if (reader.prepare)
			reader.prepare(reader.context);
		fs_helper_ends_with(parent);
		serve(reader.helper.fd);
	}
	return 0;
}

int fs_reader_start(void (*prepare)(void *context), void *context)
{
	reader.prepare = prepare;
	reader.context = context;
	return start() ? -1 : (int)reader.helper.pid;
}

void fs_reader_end(void)
{
	fs_helper_end(&reader.helper);
	reader.stuck_count = 0;
}

uint64_t fs_reader_stuck(void)
{
	return reader.stuck_count;
}

static bool read_all(void *data, size_t size)
{
	while (size) {
		struct pollfd poll_fd = { .fd = reader.helper.fd, .events = POLLIN };
		ssize_t got = poll(&poll_fd, 1, ANSWER_TIMEOUT_MS);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		got = recv(reader.helper.fd, data, size, 0);
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
	if (!reader.helper.pid || strlen(path) >= sizeof(request.path))
		return reader.stuck_count < STUCK_MAX ? read_file(path, most, length) : NULL;
	for (size_t i = 0; i < reader.stuck_count; i++)
		if (reader.stuck[i] == pid)
			return NULL;
	memcpy(request.path, path, strlen(path));
	if (write_all(reader.helper.fd, &request, sizeof(request)) && read_all(&header, sizeof(header))) {
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
	fs_helper_end(&reader.helper);
	/*
	 * Each process that hangs costs the time limit. With too many of them, the other processes have no command
	 * line.
	 */
	if (reader.stuck_count < STUCK_MAX)
		start();
	return NULL;
}
