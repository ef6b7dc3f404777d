/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes frames (protocol.h). A frame is one write(2); short writes are
 * continued. After a write error nothing is written until fs_stream_again();
 * a regular file is truncated to its last whole frame.
 */
#ifndef FLASHSCOPE_FRAME_H
#define FLASHSCOPE_FRAME_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "protocol.h"

struct fs_stream {
	int fd;
	uint16_t source;
	uint32_t seq;	    /* frames written so far by this source */
	uint32_t max_frame; /* header and payload, of this descriptor */
	bool regular;	    /* a regular file: can be truncated */
	off_t offset;	    /* of the regular file, after the last whole frame */
	int error;	    /* errno of the first failed write; 0: none */
	uint64_t bytes;	    /* written, headers included */
	unsigned char *buffer; /* frames not yet written (FS_BATCH bytes, if max_frame is FS_MAX_FRAME), then the one being built */
	size_t used;	    /* bytes of frames not yet written */
	bool batch;	    /* frames are kept until they have FS_BATCH bytes, or fs_stream_flush() */
	/* Of a regular file; 0: no limit. Nothing is refused beyond them: they set limited. */
	uint64_t max_bytes;  /* written */
	uint64_t least_free; /* bytes of its file system */
	bool limited;
	/* If set and non-zero, a write that a signal interrupts fails with EINTR. */
	const volatile sig_atomic_t *give_up;
};

/*
 * Frames are written together up to this size: each write to a pipe wakes its reader, and on a file system with -o sync
 * it takes several I/Os of the device, whose events are more frames.
 */
#define FS_BATCH 65536u

/*
 * Sets max_frame to FS_MAX_SHARED_FRAME for a character device (a virtio port,
 * which several producers may share), else to FS_MAX_FRAME.
 */
void fs_stream_init(struct fs_stream *stream, int fd, uint16_t source);
void fs_stream_free(struct fs_stream *stream); /* does not close fd */

/*
 * Clears a write error of a regular file, which was truncated to its last whole
 * frame: a small frame may fit where a large one did not. True if frames can be
 * written.
 */
bool fs_stream_again(struct fs_stream *stream);

/* Largest payload that one frame of this stream can hold. */
size_t fs_stream_room(const struct fs_stream *stream);

/*
 * Writes one frame whose payload is head and then body (either may be empty).
 * Returns 0, or -1 with errno: EMSGSIZE if the payload does not fit a frame
 * (nothing is written; later frames can be), else a write error, which is kept
 * in stream->error.
 */
int fs_frame(struct fs_stream *stream, uint16_t type, const void *head, size_t head_length,
	     const void *body, size_t body_length);

/*
 * The same without a copy: the caller builds the payload in fs_frame_payload()
 * (at most fs_stream_room() bytes), then commits it.
 */
unsigned char *fs_frame_payload(struct fs_stream *stream);
int fs_frame_commit(struct fs_stream *stream, uint16_t type, size_t length);

/* Writes what stream->batch kept, and looks at the limits. Returns 0, or -1 as fs_frame() does. */
int fs_stream_flush(struct fs_stream *stream);

/* Frames that several commands write. Return values as of fs_frame(). */
int fs_frame_hello(struct fs_stream *stream, uint8_t long_size, uint32_t subbuf_size);
int fs_frame_phase(struct fs_stream *stream, uint64_t time_ns, enum fs_phase_kind kind,
		   uint32_t pid, const char *name);
int fs_frame_log(struct fs_stream *stream, enum fs_log_level level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
int fs_frame_exit(struct fs_stream *stream, uint64_t begin_ns, uint64_t end_ns, int32_t status);
/* Splits data that does not fit one frame. */
int fs_frame_output(struct fs_stream *stream, uint32_t fd, const void *data, size_t length);
int fs_frame_end(struct fs_stream *stream, enum fs_end_reason reason);

uint32_t fs_crc32(uint32_t crc, const void *data, size_t length); /* start with 0 */
uint32_t fs_crc32_folded(const void *data, size_t length); /* of FS_DATA_FOLDED, see protocol.h */

#endif
