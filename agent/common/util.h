/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers of all commands: errors, text buffers, text files, numbers, time. */
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
 * Prints "flashscope-agent: " and the text on one line. The text has the form
 * "THING: what is wrong; next step". Control characters are replaced. Returns
 * 1 (fail) or 2 (usage), so that a command can `return fs_fail(...)`.
 */
int fs_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
int fs_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
void fs_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A message begins with a name and ends with the reason: one that does not fit loses its middle. */
void fs_format_message(char *out, size_t size, const char *format, va_list args) __attribute__((format(printf, 3, 0)));

/*
 * Opens /dev/null for stdin, stdout or stderr that are closed: else the next file, a trace for example, would get their number, and messages
 * would be written into it. It is opened for the other direction, so that what uses it fails with EBADF as before.
 */
void fs_standard_files(void);

/* A growing text buffer. Initialise with zeros; NUL-terminated after the first append. */
struct fs_buf {
	char *data;
	size_t length;
	size_t capacity;
};

void fs_buf_append(struct fs_buf *buf, const void *data, size_t length);
void fs_buf_puts(struct fs_buf *buf, const char *text);
void fs_buf_printf(struct fs_buf *buf, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Appends a term of an event filter: " || " first, unless the buffer is empty. */
void fs_buf_or(struct fs_buf *buf, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void fs_buf_free(struct fs_buf *buf);

/* Allocate, or end the program with an error message. */
void *fs_alloc(size_t size);
void *fs_realloc(void *old, size_t size);
char *fs_strdup(const char *text);
/* FNV-1a of 64 bits; begin with FS_HASH_BEGIN. */
uint64_t fs_hash(uint64_t hash, const void *data, size_t length);
#define FS_HASH_BEGIN UINT64_C(0xcbf29ce484222325)

/* Writes all of it, in as many parts as it takes. -1 with errno; ENOSPC where no byte more is taken. */
int fs_write_all(int fd, const void *data, size_t length);

/*
 * Formats a system path. Test builds (FS_TEST_ROOT) put it below the directory
 * FLASHSCOPE_ROOT, a copy of /sys or /proc made by the test. Returns out.
 */
const char *fs_path(char *out, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
#define FS_PATH_MAX 512

/*
 * Reads a text file of at most 16 MiB; the caller frees the NUL-terminated text.
 * NULL with errno on failure. length may be NULL. fs_path() is not applied.
 */
char *fs_read_text(const char *path, size_t *length);
/* The same from a descriptor's present offset; the descriptor stays open. */
char *fs_read_fd(int fd, size_t *length);
/* fs_read_text() without trailing white space, for sysfs files with one value. */
char *fs_read_value(const char *path);
/* Reads the first unsigned number of a file; false if there is none. */
bool fs_read_u64(const char *path, uint64_t *value);
/* Opens, writes once and closes. Returns 0, or -1 with errno of the call that failed. */
int fs_write_text_flags(const char *path, const char *text, int flags);
int fs_write_text(const char *path, const char *text); /* O_WRONLY, neither created nor truncated */
int fs_append_text(const char *path, const char *text); /* O_WRONLY | O_APPEND */
int fs_mkdirs(const char *path, mode_t mode); /* like mkdir -p */

/* Parses a text that is one decimal number of at most max. */
bool fs_parse_u64(const char *text, uint64_t max, uint64_t *value);
/* Cuts off a kworker's present work, which /proc shows and events do not (wq_worker_comm() of kernel/workqueue.c). */
void fs_worker_name(char *comm);

uint64_t fs_now_ns(void); /* CLOCK_MONOTONIC */
void fs_sleep_ms(unsigned int ms);

/* MemAvailable of /proc/meminfo in bytes; 0 if unknown. */
uint64_t fs_available_bytes(void);

/* KiB of it that the kernel's own rings and files can take: no pages of the contiguous memory allocator. 0: unknown. */
uint64_t fs_available_to_kernel_kib(void);
/*
 * Returns the next mount point of cgroup2 in the text of /proc/self/mounts, or NULL at its end. Changes the text in place;
 * `rest` points to what is still to be searched and may hold NULL.
 */
const char *fs_next_cgroup2(char **rest);

/* Start time of a process (field 22 of /proc/PID/stat); pid 0 is this one. 0 for a zombie or no process. */
uint64_t fs_starttime(pid_t pid);

int fs_cpus_possible(void);

#endif
