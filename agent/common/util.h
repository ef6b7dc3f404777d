/* SPDX-License-Identifier: Apache-2.0 */
/* Small things every command needs: errors, text files, numbers, time. */
#ifndef FLASHSCOPE_UTIL_H
#define FLASHSCOPE_UTIL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FS_EXIT_FAILURE 1
#define FS_EXIT_USAGE 2

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/*
 * Prints one line, "flashscope-agent: " and the text: THING: what is wrong;
 * next step. Control characters of the text are replaced. Returns 1 (fail) or
 * 2 (usage), so that a command can `return fs_fail(...)`.
 */
int fs_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
int fs_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
void fs_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A text that grows. Zero-initialise; always NUL-terminated once appended to. */
struct fs_buf {
	char *data;
	size_t length;
	size_t capacity;
};

void fs_buf_append(struct fs_buf *buf, const void *data, size_t length);
void fs_buf_puts(struct fs_buf *buf, const char *text);
void fs_buf_printf(struct fs_buf *buf, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The same, after " || " where something stands before: a further term of an event filter. */
void fs_buf_or(struct fs_buf *buf, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void fs_buf_free(struct fs_buf *buf);

/* malloc and kin that end the program with an error where memory is out. */
void *fs_alloc(size_t size);
void *fs_realloc(void *old, size_t size);
char *fs_strdup(const char *text);

/*
 * A path of the system, below a test's fake tree in test builds only
 * (FLASHSCOPE_ROOT is read where FS_TEST_ROOT is defined). Returns out.
 */
const char *fs_path(char *out, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
#define FS_PATH_MAX 512

/*
 * Whole text file (at most 16 MiB), NUL-terminated, malloc'ed; NULL with errno
 * set. length may be NULL. No fs_path() is applied.
 */
char *fs_read_text(const char *path, size_t *length);
/* The same of what is still to be read of a descriptor, which stays open. */
char *fs_read_fd(int fd, size_t *length);
/* fs_read_text() without trailing newlines and blanks; for one-value sysfs files. */
char *fs_read_value(const char *path);
/* First unsigned number of a file; false where there is none. */
bool fs_read_u64(const char *path, uint64_t *value);
/* One open(flags), one write, one close. 0, or -1 with errno of what failed. */
int fs_write_text_flags(const char *path, const char *text, int flags);
int fs_write_text(const char *path, const char *text); /* O_WRONLY, neither created nor truncated */
int fs_append_text(const char *path, const char *text); /* O_WRONLY | O_APPEND */
int fs_mkdirs(const char *path, mode_t mode); /* like mkdir -p */

/* Whole decimal number, nothing else around it, at most max. */
bool fs_parse_u64(const char *text, uint64_t max, uint64_t *value);
/* Cuts what /proc adds to a kworker's name: its work (wq_worker_comm() of kernel/workqueue.c). Events have the name without. */
void fs_worker_name(char *comm);

uint64_t fs_now_ns(void); /* CLOCK_MONOTONIC */
void fs_sleep_ms(unsigned int ms);

/* Bytes that programs can still have (/proc/meminfo); 0: not known. */
uint64_t fs_available_bytes(void);
/*
 * The next directory in the text of /proc/self/mounts on which cgroup2 is mounted, cut out of it in place; NULL at its end.
 * `rest` is where the text goes on; it may be NULL.
 */
const char *fs_next_cgroup2(char **rest);

/* Field 22 of /proc/PID/stat (pid 0: this process's); 0 where there is no such process (or a zombie). */
uint64_t fs_starttime(pid_t pid);

int fs_cpus_possible(void);

#endif
