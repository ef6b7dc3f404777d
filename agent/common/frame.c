// SPDX-License-Identifier: Apache-2.0
#include "frame.h"

#include <endian.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cmds.h"
#include "util.h"

/*
 * Eight bytes a step: draining must cost little beside what it traces. Table k
 * is the CRC of a byte followed by k zero bytes (polynomial 0xedb88320, the
 * reflected one of IEEE 802.3).
 */
static uint32_t crc_table[8][256];

static void crc_prepare(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;

		for (int bit = 0; bit < 8; bit++)
			c = (c >> 1) ^ (c & 1 ? 0xedb88320u : 0);
		crc_table[0][i] = c;
	}
	for (int k = 1; k < 8; k++)
		for (int i = 0; i < 256; i++)
			crc_table[k][i] = (crc_table[k - 1][i] >> 8) ^
					  crc_table[0][crc_table[k - 1][i] & 0xff];
}

uint32_t fs_crc32(uint32_t crc, const void *data, size_t length)
{
	const unsigned char *p = data;

	if (!crc_table[0][1])
		crc_prepare();
	crc = ~crc;
	for (; length >= 8; length -= 8, p += 8) {
		uint32_t low, high;

		memcpy(&low, p, 4);
		memcpy(&high, p + 4, 4);
		low = le32toh(low) ^ crc;
		high = le32toh(high);
		crc = crc_table[7][low & 0xff] ^ crc_table[6][low >> 8 & 0xff] ^
		      crc_table[5][low >> 16 & 0xff] ^ crc_table[4][low >> 24] ^
		      crc_table[3][high & 0xff] ^ crc_table[2][high >> 8 & 0xff] ^
		      crc_table[1][high >> 16 & 0xff] ^ crc_table[0][high >> 24];
	}
	for (; length; length--, p++)
		crc = crc >> 8 ^ crc_table[0][(crc ^ *p) & 0xff];
	return ~crc;
}

#define LANES 8

uint32_t fs_crc32_folded(const void *data, size_t length)
{
	const unsigned char *p = data;
	uint32_t lanes[LANES] = { 0 };

	for (; length >= sizeof(lanes); length -= sizeof(lanes), p += sizeof(lanes)) {
		uint32_t words[LANES];

		memcpy(words, p, sizeof(words));
#pragma GCC unroll 8
		for (int i = 0; i < LANES; i++)
			lanes[i] = (lanes[i] << 5 | lanes[i] >> 27) + le32toh(words[i]);
	}
	for (int i = 0; i < LANES; i++)
		lanes[i] = htole32(lanes[i]);
	return fs_crc32(fs_crc32(0, lanes, sizeof(lanes)), p, length);
}

void fs_stream_init(struct fs_stream *stream, int fd, uint16_t source)
{
	struct stat st;

	memset(stream, 0, sizeof(*stream));
	stream->fd = fd;
	stream->source = source;
	stream->max_frame = FS_MAX_FRAME;
	if (!fstat(fd, &st)) {
		stream->regular = S_ISREG(st.st_mode);
		if (S_ISCHR(st.st_mode))
			stream->max_frame = FS_MAX_SHARED_FRAME;
	}
	if (stream->regular) {
		stream->offset = lseek(fd, 0, SEEK_CUR);
		if (stream->offset < 0)
			stream->regular = false;
	}
	stream->buffer = fs_alloc(stream->max_frame + (stream->max_frame == FS_MAX_FRAME ? FS_BATCH : 0));
}

void fs_stream_free(struct fs_stream *stream)
{
	free(stream->buffer);
	stream->buffer = NULL;
}

bool fs_stream_again(struct fs_stream *stream)
{
	if (stream->error && stream->regular)
		stream->error = 0;
	return !stream->error;
}

size_t fs_stream_room(const struct fs_stream *stream)
{
	return stream->max_frame - sizeof(struct fs_frame);
}

unsigned char *fs_frame_payload(struct fs_stream *stream)
{
	return stream->buffer + stream->used + sizeof(struct fs_frame);
}

/* Bytes of whole frames among the first ones of the buffer. */
static size_t whole_frames(const struct fs_stream *stream, size_t bytes)
{
	struct fs_frame frame;
	size_t at = 0;

	while (bytes - at >= sizeof(frame)) {
		memcpy(&frame, stream->buffer + at, sizeof(frame));
		if (bytes - at - sizeof(frame) < le32toh(frame.length))
			break;
		at += sizeof(frame) + le32toh(frame.length);
	}
	return at;
}

static void look_at_limits(struct fs_stream *stream)
{
	struct statvfs fs;

	if (!stream->regular || stream->limited)
		return;
	if (stream->max_bytes && stream->bytes >= stream->max_bytes)
		stream->limited = true;
	else if (stream->least_free && !fstatvfs(stream->fd, &fs))
		stream->limited = (uint64_t)(geteuid() ? fs.f_bavail : fs.f_bfree) * fs.f_frsize < stream->least_free;
}

int fs_stream_flush(struct fs_stream *stream)
{
	size_t done = 0, length = stream->used;

	stream->used = 0;
	while (done < length) {
		ssize_t put = write(stream->fd, stream->buffer + done, length - done);

		if (put > 0) {
			done += (size_t)put;
			continue;
		}
		if (put < 0 && errno == EINTR && !(stream->give_up && *stream->give_up))
			continue;
		stream->error = put < 0 ? errno : ENOSPC;
		/* A reader would find the cut anyway; this also gives room for FS_END. */
		if (stream->regular) {
			const size_t whole = whole_frames(stream, done);
			struct fs_frame lost;

			/* The next frame gets the number of the first one that was lost. */
			memcpy(&lost, stream->buffer + whole, sizeof(lost));
			stream->seq = le32toh(lost.seq);
			stream->offset += (off_t)whole;
			stream->bytes += whole;
			if (done && !ftruncate(stream->fd, stream->offset))
				lseek(stream->fd, stream->offset, SEEK_SET);
		}
		errno = stream->error;
		return -1;
	}
	stream->offset += (off_t)length;
	stream->bytes += length;
	look_at_limits(stream);
	return 0;
}

int fs_frame_commit(struct fs_stream *stream, uint16_t type, size_t length)
{
	struct fs_frame frame;

	if (stream->error) {
		errno = stream->error;
		return -1;
	}
	if (length > fs_stream_room(stream)) {
		errno = EMSGSIZE;
		return -1;
	}
	frame.magic = htole32(FS_MAGIC);
	frame.type = htole16(type);
	frame.source = htole16(stream->source);
	frame.seq = htole32(stream->seq);
	frame.length = htole32((uint32_t)length);
	frame.crc = htole32(type == FS_DATA_FOLDED ? fs_crc32_folded(fs_frame_payload(stream), length) :
						     fs_crc32(0, fs_frame_payload(stream), length));
	memcpy(stream->buffer + stream->used, &frame, sizeof(frame));
	stream->used += sizeof(frame) + length;
	if ((!stream->batch || stream->used >= FS_BATCH) && fs_stream_flush(stream))
		return -1;
	stream->seq++;
	return 0;
}

int fs_frame(struct fs_stream *stream, uint16_t type, const void *head, size_t head_length,
	     const void *body, size_t body_length)
{
	size_t room = fs_stream_room(stream);

	if (head_length > room || body_length > room - head_length) {
		errno = EMSGSIZE;
		return -1;
	}
	if (head_length)
		memcpy(fs_frame_payload(stream), head, head_length);
	if (body_length)
		memcpy(fs_frame_payload(stream) + head_length, body, body_length);
	return fs_frame_commit(stream, type, head_length + body_length);
}

int fs_frame_hello(struct fs_stream *stream, uint8_t long_size, uint32_t subbuf_size)
{
	struct fs_hello hello = {
		.version = htole16(FS_PROTOCOL_VERSION),
		.big_endian = __BYTE_ORDER == __BIG_ENDIAN,
		.long_size = long_size,
		.page_size = htole32((uint32_t)sysconf(_SC_PAGESIZE)),
		.subbuf_size = htole32(subbuf_size),
		.cpus = htole32((uint32_t)fs_cpus_possible()),
	};

	return fs_frame(stream, FS_HELLO, &hello, sizeof(hello), FS_AGENT_VERSION,
			strlen(FS_AGENT_VERSION));
}

int fs_frame_phase(struct fs_stream *stream, uint64_t time_ns, enum fs_phase_kind kind,
		   uint32_t pid, const char *name)
{
	struct fs_phase phase = {
		.time_ns = htole64(time_ns),
		.kind = htole32((uint32_t)kind),
		.pid = htole32(pid),
	};

	return fs_frame(stream, FS_PHASE, &phase, sizeof(phase), name, strlen(name));
}

int fs_frame_log(struct fs_stream *stream, enum fs_log_level level, const char *format, ...)
{
	struct fs_log log = { .level = htole32((uint32_t)level) };
	char text[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	for (char *c = text; *c; c++)
		if (*c == '\n')
			*c = ' ';
	return fs_frame(stream, FS_LOG, &log, sizeof(log), text, strlen(text));
}

int fs_frame_exit(struct fs_stream *stream, uint64_t begin_ns, uint64_t end_ns, int32_t status)
{
	struct fs_exit exit = {
		.begin_ns = htole64(begin_ns),
		.end_ns = htole64(end_ns),
		.status = (int32_t)htole32((uint32_t)status),
	};

	return fs_frame(stream, FS_EXIT, &exit, sizeof(exit), NULL, 0);
}

int fs_frame_output(struct fs_stream *stream, uint32_t fd, const void *data, size_t length)
{
	struct fs_output output = { .fd = htole32(fd) };
	size_t room = fs_stream_room(stream) - sizeof(output);
	const char *p = data;

	while (length) {
		size_t part = length < room ? length : room;

		if (fs_frame(stream, FS_OUTPUT, &output, sizeof(output), p, part))
			return -1;
		p += part;
		length -= part;
	}
	return 0;
}

int fs_frame_end(struct fs_stream *stream, enum fs_end_reason reason)
{
	struct fs_end end = {
		.reason = htole32((uint32_t)reason),
		.frames = htole32(stream->seq),
	};

	return fs_frame(stream, FS_END, &end, sizeof(end), NULL, 0);
}
