// SPDX-License-Identifier: Apache-2.0
#include "output.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "helper.h"
#include "notes.h"
#include "util.h"

/* After waiting this long for a file, a message is printed. */
#define SAID_AFTER_MS 1000
/* The signal may come between the check and poll(2). */
#define LOOK_MS 100

/* What the helper sends: an errno, or 0 and the descriptor beside it. */
union control {
	struct cmsghdr header;
	char space[CMSG_SPACE(sizeof(int))];
};

static struct msghdr message(struct iovec *part, union control *control)
{
	return (struct msghdr){ .msg_iov = part, .msg_iovlen = 1, .msg_control = control->space,
				.msg_controllen = sizeof(control->space) };
}

static void serve(int socket, int (*attempt)(void *context), void *context, pid_t parent)
{
	static const int ignored[] = { SIGALRM, SIGUSR1, SIGUSR2 };
	static const int plain[] = { SIGINT, SIGTERM, SIGHUP };
	union control control = { .space = { 0 } };
	int error = 0, fd;
	struct iovec part = { &error, sizeof(error) };
	struct msghdr sent = message(&part, &control);

	for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
		signal(ignored[i], SIG_IGN);
	for (size_t i = 0; i < ARRAY_SIZE(plain); i++)
		signal(plain[i], SIG_DFL);
	fs_helper_ends_with(parent);
	fd = attempt(context);
	if (fd < 0) {
		error = errno;
		sent.msg_control = NULL;
		sent.msg_controllen = 0;
	} else {
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(fd));
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	}
	_exit(sendmsg(socket, &sent, MSG_NOSIGNAL) == sizeof(error) ? 0 : 1);
}

/* The helper's answer: a descriptor, or -1 with errno. */
static int answer(int socket)
{
	union control control = { .space = { 0 } };
	int error = EINTR, fd;
	struct iovec part = { &error, sizeof(error) };
	struct msghdr got = message(&part, &control);
	ssize_t length;

	do
		length = recvmsg(socket, &got, MSG_CMSG_CLOEXEC);
	while (length < 0 && errno == EINTR);
	if (length == sizeof(error) && !error) {
		if (CMSG_FIRSTHDR(&got) && CMSG_FIRSTHDR(&got)->cmsg_type == SCM_RIGHTS) {
			memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&got)), sizeof(fd));
			return fd;
		}
		error = EMFILE; /* the kernel drops what does not fit */
	}
	/* Without an answer (length 0) a signal ended the helper. */
	errno = error;
	return -1;
}

static bool answers(int socket, const char *path, const volatile sig_atomic_t *stop)
{
	const uint64_t said_at = fs_now_ns() + SAID_AFTER_MS * UINT64_C(1000000);
	struct pollfd poll_fd = { .fd = socket, .events = POLLIN };
	bool said = false;

	while (!*stop) {
		if (poll(&poll_fd, 1, LOOK_MS) > 0)
			return true;
		if (!said && fs_now_ns() > said_at) {
			fs_warn("%s: waiting for its file system, or for the reader of a FIFO", path);
			said = true;
		}
	}
	return false;
}

int fs_output_attempt(const char *path, int (*attempt)(void *context), void *context, const volatile sig_atomic_t *stop)
{
	const pid_t parent = getpid();
	struct fs_helper helper;
	int fd = -1, error = EINTR;

	if (fs_helper_fork(&helper, SOCK_SEQPACKET) < 0)
		return attempt(context);
	if (!helper.pid)
		serve(helper.fd, attempt, context, parent);
	if (answers(helper.fd, path, stop)) {
		fd = answer(helper.fd);
		error = errno;
	}
	fs_helper_end(&helper);
	errno = error;
	return fd;
}

static int open_output(void *path)
{
	return fs_open_output(path);
}

int fs_output_open(const char *path, const volatile sig_atomic_t *stop)
{
	/* It is only read. */
	return fs_output_attempt(path, open_output, (void *)(uintptr_t)path, stop);
}
