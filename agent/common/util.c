// SPDX-License-Identifier: Apache-2.0
#include "util.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void fs_format_message(char *out, size_t size, const char *format, va_list args)
{
	size_t length, head = (size - 4) / 2, tail = size - 4 - head;
	va_list again;
	char *text;

	va_copy(again, args);
	length = (size_t)vsnprintf(out, size, format, args);
	if (length < INT_MAX && length >= size) {
		text = fs_alloc(length + 1);
		vsnprintf(text, length + 1, format, again);
		memcpy(out + head, "...", 3);
		memcpy(out + head + 3, text + length - tail, tail + 1);
		free(text);
	}
	va_end(again);
}

static void say(const char *format, va_list args)
{
	char line[1024];
	int length = snprintf(line, sizeof(line), "flashscope-agent: ");

	fs_format_message(line + length, sizeof(line) - (size_t)length, format, args);
	/* Files and devices may have any name: it is printed on one line, without terminal escapes. */
	for (char *c = line; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	fprintf(stderr, "%s\n", line);
}

void fs_standard_files(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		/* The lowest free number is this one. Without /dev nothing is done: nor is there a file to write to. */
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0)
			return;
}

int fs_fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(format, args);
	va_end(args);
	return FS_EXIT_FAILURE;
}

int fs_usage(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(format, args);
	va_end(args);
	return FS_EXIT_USAGE;
}

void fs_warn(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(format, args);
	va_end(args);
}

void *fs_realloc(void *old, size_t size)
{
	void *p = realloc(old, size ? size : 1);

	if (!p) {
		fs_fail("memory: %zu bytes are not available; free some, or trace less", size);
		_exit(FS_EXIT_FAILURE);
	}
	return p;
}

void *fs_alloc(size_t size)
{
	void *p = fs_realloc(NULL, size);

	memset(p, 0, size);
	return p;
}

uint64_t fs_hash(uint64_t hash, const void *data, size_t length)
{
	for (const unsigned char *byte = data; length--; byte++)
		hash = (hash ^ *byte) * UINT64_C(0x100000001b3);
	return hash;
}

char *fs_strdup(const char *text)
{
	size_t length = strlen(text) + 1;

	return memcpy(fs_alloc(length), text, length);
}

void fs_buf_append(struct fs_buf *buf, const void *data, size_t length)
{
	if (buf->capacity - buf->length < length + 1) {
		size_t capacity = buf->capacity ? buf->capacity : 256;

		while (capacity - buf->length < length + 1)
			capacity *= 2;
		buf->data = fs_realloc(buf->data, capacity);
		buf->capacity = capacity;
	}
	if (length)
		memcpy(buf->data + buf->length, data, length);
	buf->length += length;
	buf->data[buf->length] = '\0';
}

void fs_buf_puts(struct fs_buf *buf, const char *text)
{
	fs_buf_append(buf, text, strlen(text));
}

static void append_formatted(struct fs_buf *buf, const char *format, va_list args)
{
	va_list again;
	char small[256];
	int length;

	va_copy(again, args);
	length = vsnprintf(small, sizeof(small), format, args);
	if (length >= 0 && (size_t)length < sizeof(small)) {
		fs_buf_append(buf, small, (size_t)length);
	} else if (length >= 0) {
		char *large = fs_alloc((size_t)length + 1);

		vsnprintf(large, (size_t)length + 1, format, again);
		fs_buf_append(buf, large, (size_t)length);
		free(large);
	}
	va_end(again);
}

void fs_buf_printf(struct fs_buf *buf, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	append_formatted(buf, format, args);
	va_end(args);
}

void fs_buf_or(struct fs_buf *buf, const char *format, ...)
{
	va_list args;

	if (buf->length)
		fs_buf_puts(buf, " || ");
	va_start(args, format);
	append_formatted(buf, format, args);
	va_end(args);
}

void fs_buf_free(struct fs_buf *buf)
{
	free(buf->data);
	memset(buf, 0, sizeof(*buf));
}

const char *fs_path(char *out, size_t size, const char *format, ...)
{
	size_t length = 0;
	va_list args;

#ifdef FS_TEST_ROOT
	const char *root = getenv("FLASHSCOPE_ROOT");

	if (root)
		length = (size_t)snprintf(out, size, "%s", root);
	if (length >= size)
		length = 0;
#endif
	va_start(args, format);
	vsnprintf(out + length, size - length, format, args);
	va_end(args);
	return out;
}

char *fs_read_fd(int fd, size_t *length)
{
	const size_t limit = 16u << 20;
	struct fs_buf buf = { 0 };
	char chunk[4096];

	for (;;) {
		ssize_t got = read(fd, chunk, sizeof(chunk));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 || buf.length + (size_t)got > limit) {
			int saved = got < 0 ? errno : EFBIG;

			fs_buf_free(&buf);
			errno = saved;
			return NULL;
		}
		fs_buf_append(&buf, chunk, (size_t)got);
		if (!got)
			break;
	}
	if (length)
		*length = buf.length;
	return buf.data;
}

char *fs_read_text(const char *path, size_t *length)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	char *text;
	int saved;

	if (fd < 0)
		return NULL;
	text = fs_read_fd(fd, length);
	saved = errno;
	close(fd);
	errno = saved;
	return text;
}

char *fs_read_value(const char *path)
{
	size_t length;
	char *text = fs_read_text(path, &length);

	if (!text)
		return NULL;
	while (length && strchr(" \t\r\n", text[length - 1]))
		text[--length] = '\0';
	return text;
}

bool fs_read_u64(const char *path, uint64_t *value)
{
	char *text = fs_read_value(path);
	char *end;
	bool good;

	if (!text)
		return false;
	errno = 0;
	*value = strtoull(text, &end, 10);
	good = *text >= '0' && *text <= '9' && end != text && !errno;
	free(text);
	return good;
}

int fs_write_all(int fd, const void *data, size_t length)
{
	for (size_t done = 0; done < length;) {
		ssize_t put = write(fd, (const char *)data + done, length - done);

		if (put < 0 && errno == EINTR)
			continue;
		if (!put)
			errno = ENOSPC;
		if (put <= 0)
			return -1;
		done += (size_t)put;
	}
	return 0;
}

int fs_write_text_flags(const char *path, const char *text, int flags)
{
	size_t length = strlen(text);
	int fd = open(path, flags | O_CLOEXEC | O_NOCTTY, 0600);
	ssize_t put;
	int saved;

	if (fd < 0)
		return -1;
	do {
		put = write(fd, text, length);
	} while (put < 0 && errno == EINTR);
	saved = errno;
	if (put >= 0 && (size_t)put < length) {
		put = -1;
		saved = ENOSPC;
	}
	if (close(fd) && put >= 0) {
		put = -1;
		saved = errno;
	}
	errno = saved;
	return put < 0 ? -1 : 0;
}

int fs_write_text(const char *path, const char *text)
{
	return fs_write_text_flags(path, text, O_WRONLY);
}

int fs_append_text(const char *path, const char *text)
{
	return fs_write_text_flags(path, text, O_WRONLY | O_APPEND);
}

int fs_mkdirs(const char *path, mode_t mode)
{
	char part[FS_PATH_MAX];

	if (strlen(path) >= sizeof(part)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	for (size_t i = 0;; i++) {
		if (i && (path[i] == '/' || !path[i])) {
			memcpy(part, path, i);
			part[i] = '\0';
			if (mkdir(part, mode) && errno != EEXIST && !(path[i] && errno == EROFS))
				return -1;
		}
		if (!path[i])
			break;
	}
	return 0;
}

bool fs_parse_u64(const char *text, uint64_t max, uint64_t *value)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*value = strtoull(text, &end, 10);
	return !errno && !*end && *value <= max;
}

void fs_worker_name(char *comm)
{
	static const char head[] = "kworker/";
	char *end = comm + strlen(head);

	if (strncmp(comm, head, strlen(head)))
		return;
	end += *end == 'u';
	/* "kworker/R-xfs" is a whole name: only behind numbers there is work. */
	end += strspn(end, "0123456789");
	if (*end != ':')
		return;
	end += 1 + strspn(end + 1, "0123456789");
	end += *end == 'H';
	if (*end == '-' || *end == '+')
		*end = '\0';
}

uint64_t fs_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void fs_sleep_ms(unsigned int ms)
{
	struct timespec left = { ms / 1000, (long)(ms % 1000) * 1000000 };

	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

uint64_t fs_starttime(pid_t pid)
{
	char path[FS_PATH_MAX];
	unsigned long long start = 0;
	char *text;
	char *after;
	char state;

	if (pid)
		fs_path(path, sizeof(path), "/proc/%d/stat", (int)pid);
	else
		fs_path(path, sizeof(path), "/proc/self/stat");
	text = fs_read_text(path, NULL);
	if (!text)
		return 0;
	/* The name, in brackets, may hold anything: the last bracket ends it (proc(5)). */
	after = strrchr(text, ')');
	if (!after || sscanf(after + 1,
			     " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
			     &state, &start) != 2 ||
	    state == 'Z' || state == 'X')
		start = 0;
	free(text);
	return start;
}

int fs_cpus_possible(void)
{
	char path[FS_PATH_MAX];
	char *text = fs_read_value(fs_path(path, sizeof(path), "/sys/devices/system/cpu/possible"));
	long last = -1;
	char *c = text;

	/* "0-3" or "0,2-5": the largest number counts. */
	while (c && *c) {
		char *end;
		long n = strtol(c, &end, 10);

		if (end == c)
			break;
		if (n > last)
			last = n;
		c = *end ? end + 1 : end;
	}
	free(text);
	if (last < 0 || last > 65534) {
		last = sysconf(_SC_NPROCESSORS_CONF) - 1;
		if (last < 0)
			last = 0;
	}
	return (int)last + 1;
}

static uint64_t of_meminfo(const char *text, const char *name)
{
	const char *line = text ? strstr(text, name) : NULL;

	return line ? strtoull(line + strlen(name), NULL, 10) : 0;
}

uint64_t fs_available_bytes(void)
{
	char path[FS_PATH_MAX], *text = fs_read_text(fs_path(path, sizeof(path), "/proc/meminfo"), NULL);
	uint64_t kib = of_meminfo(text, "MemAvailable:");

	free(text);
	return kib << 10;
}

uint64_t fs_available_to_kernel_kib(void)
{
	char path[FS_PATH_MAX], *text = fs_read_text(fs_path(path, sizeof(path), "/proc/meminfo"), NULL);
	uint64_t available = of_meminfo(text, "MemAvailable:"), cma = of_meminfo(text, "CmaFree:");

	free(text);
	/* 0 means unknown. */
	return available > cma ? available - cma : available > 0;
}

const char *fs_next_cgroup2(char **rest)
{
	char *line;

	while (*rest && (line = strsep(rest, "\n"))) {
		char *word = line;
		const char *dir;

		strsep(&word, " ");
		dir = strsep(&word, " ");
		if (dir && word && !strncmp(word, "cgroup2 ", strlen("cgroup2 ")))
			return dir;
	}
	return NULL;
}
