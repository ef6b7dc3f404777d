/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's stream, version 1: what a board sends to the host.
 *
 * A stream is a sequence of frames. Each frame is a struct fs_frame followed
 * by `length` bytes of payload. A reader that meets the end of input inside a
 * frame keeps everything before it: the stream is "cut", never invalid.
 *
 * Integers of the frame header and of the payload structs below are
 * little-endian on every board. The bytes of ring sub-buffers (FS_DATA) are the
 * kernel's own, in the byte order that FS_HELLO names.
 *
 * Several producers may share one stream (a virtual board has one virtio-serial
 * port): each frame names its `source`, and `seq` counts frames per source from
 * 0, so a gap is a lost frame and is counted. One frame is one write(2) of at
 * most FS_MAX_SHARED_FRAME bytes on a shared descriptor, so that producers never
 * interleave. Source 0 is PID 1 of a virtual board, or the only producer there
 * is (local, ssh).
 *
 * Times are nanoseconds of CLOCK_MONOTONIC, which is also the trace clock
 * ("mono") of every instance that the agent creates: phases and events compare
 * without conversion.
 *
 * Text is UTF-8 as far as the kernel gives it; a reader treats it as untrusted.
 */
#ifndef FLASHSCOPE_PROTOCOL_H
#define FLASHSCOPE_PROTOCOL_H

#include <stdint.h>

#define FS_MAGIC 0x31435346u /* the bytes "FSC1" */
#define FS_PROTOCOL_VERSION 1
#define FS_MAX_FRAME (1u << 20) /* header and payload; a reader refuses more */
#define FS_MAX_SHARED_FRAME 32768u /* where producers share a descriptor: a virtio port's atomic write */

struct fs_frame {
	uint32_t magic;	 /* FS_MAGIC */
	uint16_t type;	 /* enum fs_type; a reader skips types it does not know, and counts them */
	uint16_t source; /* producer of this frame */
	uint32_t seq;	 /* per source, from 0 */
	uint32_t length; /* payload bytes */
	uint32_t crc;	 /* CRC-32 (IEEE 802.3, as zlib's crc32) of the payload; of FS_DATA_FOLDED see there */
};

enum fs_type {
	FS_HELLO = 1,	 /* struct fs_hello, then the agent's version as text. First of every source */
	FS_FACTS = 2,	 /* JSON object: see docs/reference/agent-protocol.md ("probe", "recording") */
	FS_HEADER_PAGE = 3, /* text of events/header_page */
	FS_HEADER_EVENT = 4, /* text of events/header_event */
	FS_FORMAT = 5,	 /* system NUL name NUL text of the event's format file */
	FS_DATA = 6,	 /* struct fs_data, then one ring sub-buffer cut after its last committed byte */
	FS_TASKS = 7,	 /* repeated struct fs_task: names at the time of recording start */
	FS_PHASE = 8,	 /* struct fs_phase, then the phase's name */
	FS_STATS = 9,	 /* JSON object: per-CPU ring statistics, probe hits and misses, losses */
	FS_OUTPUT = 10,	 /* struct fs_output, then bytes of a step's stdout or stderr */
	FS_EXIT = 11,	 /* struct fs_exit: the step of this source has ended */
	FS_LOG = 12,	 /* struct fs_log, then one line of text for people */
	FS_FILE = 13,	 /* struct fs_file, then path NUL, then bytes of that file */
	FS_STEP = 14,	 /* name of the step of this source (virtual board plans) */
	FS_END = 15,	 /* struct fs_end: this source is complete */
	/*
	 * As FS_DATA. A CRC of every byte would be the dearest part of draining.
	 * Here the payload's little-endian 32-bit words go round eight sums, each
	 * turned left by five bits before a word is added to it; what does not fill
	 * all eight at the end stays as it is. `crc` is the CRC-32 of the eight
	 * sums (little-endian) and these last bytes.
	 */
	FS_DATA_FOLDED = 16,
	/*
	 * JSON object of arrays: "processes", "packages", "devices", "volumes",
	 * "mounts", "files", "search" (docs/reference/agent-protocol.md, "Names"). An array of
	 * several frames is one.
	 */
	FS_NAMES = 17,
	FS_PROGRESS = 18, /* struct fs_progress: what a recording has so far; for who waits, no part of the recording */
};

struct fs_hello {
	uint16_t version;    /* FS_PROTOCOL_VERSION; this field never moves */
	uint8_t big_endian;  /* 1 where the kernel's integers are big-endian */
	uint8_t long_size;   /* of the kernel: 4 or 8 */
	uint32_t page_size;  /* of the kernel, bytes */
	uint32_t subbuf_size; /* of the ring, bytes, header included; 0: this source records nothing */
	uint32_t cpus;	     /* possible CPUs: the `cpu` of FS_DATA is below it */
};

enum fs_instance {
	FS_INSTANCE_MAIN = 0,  /* the requested events */
	FS_INSTANCE_TASKS = 1, /* task_newtask, task_rename, sched_process_exec: never overwritten */
	FS_INSTANCE_REQUESTS = 2, /* of a recording by task: requests, whose issue and completion come in anyone's name */
};

struct fs_data {
	uint16_t cpu;
	uint16_t instance; /* enum fs_instance */
};

struct fs_task {
	uint32_t pid;
	uint32_t tgid;
	char comm[16]; /* NUL-padded */
};

enum fs_phase_kind {
	FS_PHASE_BEGIN = 0,
	FS_PHASE_END = 1,
	FS_PHASE_MARK = 2,
};

struct fs_phase {
	uint64_t time_ns;
	uint32_t kind; /* enum fs_phase_kind */
	uint32_t pid;  /* of the task that the phase is about; 0: none */
};

struct fs_output {
	uint32_t fd; /* 1 stdout, 2 stderr */
};

struct fs_exit {
	uint64_t begin_ns;
	uint64_t end_ns;
	int32_t status; /* exit code; 128 + n where signal n ended it */
	uint32_t reserved;
};

enum fs_log_level {
	FS_LOG_ERROR = 0,
	FS_LOG_WARNING = 1,
	FS_LOG_INFO = 2,
};

struct fs_log {
	uint32_t level; /* enum fs_log_level */
};

struct fs_file {
	uint64_t offset;
	uint32_t mode;	/* permission bits */
	uint32_t path_length; /* bytes, NUL not counted */
};

enum fs_end_reason {
	FS_END_COMPLETE = 0,
	FS_END_SIGNAL = 1,  /* SIGINT, SIGTERM, or asked to stop */
	FS_END_FAILURE = 2, /* an FS_LOG error has the reason */
};

struct fs_progress {
	uint64_t time_ns;
	uint64_t events; /* recorded, of all instances but the tasks' */
	uint64_t lost;
};

struct fs_end {
	uint32_t reason; /* enum fs_end_reason */
	uint32_t frames; /* frames of this source before this one */
};

#ifndef __cplusplus
_Static_assert(sizeof(struct fs_frame) == 20, "fs_frame");
_Static_assert(sizeof(struct fs_hello) == 16, "fs_hello");
_Static_assert(sizeof(struct fs_data) == 4, "fs_data");
_Static_assert(sizeof(struct fs_task) == 24, "fs_task");
_Static_assert(sizeof(struct fs_phase) == 16, "fs_phase");
_Static_assert(sizeof(struct fs_exit) == 24, "fs_exit");
_Static_assert(sizeof(struct fs_file) == 16, "fs_file");
_Static_assert(sizeof(struct fs_progress) == 24, "fs_progress");
_Static_assert(sizeof(struct fs_end) == 8, "fs_end");
#endif

#endif
