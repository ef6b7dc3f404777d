/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes frames of protocol.h. One frame is one write(2); a short write is
 * continued. After a write error nothing more is written until
 * fs_stream_again(); where the output is a regular file it is cut back to the
 * last whole frame.
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
	bool regular;	    /* a file that can be cut back */
	off_t offset;	    /* of the regular file, after the last whole frame */
	int error;	    /* errno of the first failed write; 0: none */
	uint64_t bytes;	    /* written, headers included */
	unsigned char *buffer; /* max_frame bytes: the frame being built */
	/* Where set and non-zero, a write that a signal interrupts is given up (EINTR). */
	const volatile sig_atomic_t *give_up;
};

/*
 * max_frame is FS_MAX_SHARED_FRAME on a character device (a virtio port, which
 * producers may share), else FS_MAX_FRAME.
 */
void fs_stream_init(struct fs_stream *stream, int fd, uint16_t source);
void fs_stream_free(struct fs_stream *stream); /* does not close fd */

/*
 * Forgets a write error where that makes sense: a regular file was cut back to
 * its last whole frame, and a small frame may fit where a large one did not.
 * True where frames can be written.
 */
bool fs_stream_again(struct fs_stream *stream);

/* Largest payload that one frame of this stream can hold. */
size_t fs_stream_room(const struct fs_stream *stream);

/*
 * One frame whose payload is head and then body (either may be empty).
 * 0, or -1 with errno: EMSGSIZE where it does not fit a frame (nothing is
 * written, the stream goes on), else a write error, kept in stream->error.
 */
int fs_frame(struct fs_stream *stream, uint16_t type, const void *head, size_t head_length,
	     const void *body, size_t body_length);

/*
 * The same without a copy: build the payload in fs_frame_payload() (at most
 * fs_stream_room() bytes), then write it.
 */
unsigned char *fs_frame_payload(struct fs_stream *stream);
int fs_frame_commit(struct fs_stream *stream, uint16_t type, size_t length);

/* Frames that more than one command writes. All return as fs_frame(). */
int fs_frame_hello(struct fs_stream *stream, uint8_t long_size, uint32_t subbuf_size);
int fs_frame_phase(struct fs_stream *stream, uint64_t time_ns, enum fs_phase_kind kind,
		   uint32_t pid, const char *name);
int fs_frame_log(struct fs_stream *stream, enum fs_log_level level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
int fs_frame_exit(struct fs_stream *stream, uint64_t begin_ns, uint64_t end_ns, int32_t status);
/* Splits what does not fit one frame. */
int fs_frame_output(struct fs_stream *stream, uint32_t fd, const void *data, size_t length);
int fs_frame_end(struct fs_stream *stream, enum fs_end_reason reason);

uint32_t fs_crc32(uint32_t crc, const void *data, size_t length); /* start with 0 */
uint32_t fs_crc32_folded(const void *data, size_t length); /* of FS_DATA_FOLDED, see protocol.h */

#endif
