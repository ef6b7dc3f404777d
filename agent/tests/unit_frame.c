// SPDX-License-Identifier: Apache-2.0
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "frame.h"
#include "test.h"
#include "util.h"

/* One bit a step, straight from the polynomial: slow, and obviously the CRC. */
static uint32_t slow_crc(const unsigned char *data, size_t length)
{
	uint32_t crc = ~0u;

	for (size_t i = 0; i < length; i++) {
		crc ^= data[i];
		for (int bit = 0; bit < 8; bit++)
			crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320u : 0);
	}
	return ~crc;
}

static void crc(void)
{
	unsigned char data[300];

	CHECK_NUMBER(fs_crc32(0, "123456789", 9), 0xcbf43926u); /* the check value of CRC-32/ISO-HDLC */
	CHECK_NUMBER(fs_crc32(0, "", 0), 0);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)(i * 131 + (i >> 3));
	for (size_t length = 0; length <= sizeof(data); length++)
		CHECK_NUMBER(fs_crc32(0, data, length), slow_crc(data, length));
	/* unaligned, and in two parts */
	CHECK_NUMBER(fs_crc32(0, data + 1, 200), slow_crc(data + 1, 200));
	CHECK_NUMBER(fs_crc32(fs_crc32(0, data, 77), data + 77, 123), slow_crc(data, 200));
}

/* crates/trace/src/formats/stream/frame.rs holds the same ones. */
static void folded(void)
{
	unsigned char data[100], block[41] = { 0 };

	memcpy(block + 32, "123456789", 9);
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)(i * 7);
	CHECK_NUMBER(fs_crc32_folded("", 0), slow_crc(block, 32));
	CHECK_NUMBER(fs_crc32_folded("123456789", 9), slow_crc(block, 41));
	CHECK_NUMBER(fs_crc32_folded(data, 32), slow_crc(data, 32));
	CHECK_NUMBER(fs_crc32_folded(data, sizeof(data)), 0x96f96f85u);
}

static bool next(int fd, struct fs_frame *frame, unsigned char *payload)
{
	if (read(fd, frame, sizeof(*frame)) != sizeof(*frame))
		return false;
	frame->length = le32toh(frame->length);
	return frame->length <= 65536 &&
	       read(fd, payload, frame->length) == (ssize_t)frame->length &&
	       le32toh(frame->crc) == slow_crc(payload, frame->length);
}

static void frames(void)
{
	static unsigned char payload[65536];
	struct fs_stream stream;
	struct fs_frame frame;
	struct fs_phase phase;
	struct fs_hello hello;
	struct fs_end end;
	int fds[2];

	if (pipe(fds))
		exit(1);
	fs_stream_init(&stream, fds[1], 7);
	CHECK_NUMBER(stream.max_frame, FS_MAX_FRAME);
	CHECK(!stream.regular);
	CHECK(!fs_frame_hello(&stream, 4, 4096));
	CHECK(!fs_frame_phase(&stream, 0x0102030405060708u, FS_PHASE_END, 99, "a b"));
	CHECK(!fs_frame_log(&stream, FS_LOG_WARNING, "%s", "two\nlines"));
	CHECK(!fs_frame(&stream, FS_STEP, "he", 2, "ad", 2));
	CHECK(!fs_frame_end(&stream, FS_END_SIGNAL));

	CHECK(next(fds[0], &frame, payload));
	CHECK_NUMBER(le32toh(frame.magic), FS_MAGIC);
	CHECK(!memcmp(&frame, "FSC1", 4));
	CHECK_NUMBER(le16toh(frame.type), FS_HELLO);
	CHECK_NUMBER(le16toh(frame.source), 7);
	CHECK_NUMBER(frame.seq, 0);
	memcpy(&hello, payload, sizeof(hello));
	CHECK_NUMBER(le16toh(hello.version), FS_PROTOCOL_VERSION);
	CHECK_NUMBER(hello.long_size, 4);
	CHECK_NUMBER(le32toh(hello.subbuf_size), 4096);

	CHECK(next(fds[0], &frame, payload));
	CHECK_NUMBER(le32toh(frame.seq), 1);
	memcpy(&phase, payload, sizeof(phase));
	CHECK_NUMBER(le64toh(phase.time_ns), 0x0102030405060708u);
	CHECK_NUMBER(le32toh(phase.kind), FS_PHASE_END);
	CHECK_NUMBER(le32toh(phase.pid), 99);
	CHECK_NUMBER(frame.length, sizeof(phase) + 3);
	CHECK(!memcmp(payload + sizeof(phase), "a b", 3));

	CHECK(next(fds[0], &frame, payload));
	CHECK(!memcmp(payload + sizeof(struct fs_log), "two lines", 9));
	CHECK(next(fds[0], &frame, payload));
	CHECK_NUMBER(frame.length, 4);
	CHECK(!memcmp(payload, "head", 4));
	CHECK(next(fds[0], &frame, payload));
	memcpy(&end, payload, sizeof(end));
	CHECK_NUMBER(le32toh(end.frames), 4);
	CHECK_NUMBER(le32toh(end.reason), FS_END_SIGNAL);

	/* Too large: nothing is written, the stream goes on. */
	CHECK(!fs_frame(&stream, FS_FILE, payload, 30000, payload, 30000)); /* a pipe holds 64 KiB */
	CHECK(fs_frame_commit(&stream, FS_FILE, fs_stream_room(&stream) + 1) == -1 &&
	      errno == EMSGSIZE && !stream.error);
	CHECK(fs_frame(&stream, FS_FILE, "", SIZE_MAX, "", 1) == -1 && errno == EMSGSIZE);
	CHECK(next(fds[0], &frame, payload));

	/* The reader goes: EPIPE, kept, and not forgotten by fs_stream_again(). */
	close(fds[0]);
	CHECK(fs_frame(&stream, FS_STEP, "x", 1, NULL, 0) == -1 && errno == EPIPE);
	CHECK_NUMBER(stream.error, EPIPE);
	CHECK(!fs_stream_again(&stream));
	CHECK(fs_frame_end(&stream, FS_END_FAILURE) == -1);
	fs_stream_free(&stream);
	close(fds[1]);
}

static void shared(void)
{
	struct fs_stream stream;
	char data[70000] = { 0 };
	int fd = open("/dev/null", O_WRONLY);

	fs_stream_init(&stream, fd, 0);
	CHECK_NUMBER(stream.max_frame, FS_MAX_SHARED_FRAME);
	CHECK_NUMBER(fs_stream_room(&stream), FS_MAX_SHARED_FRAME - sizeof(struct fs_frame));
	CHECK(!fs_frame_output(&stream, 1, data, sizeof(data)));
	CHECK_NUMBER(stream.seq, 3); /* 32744 payload bytes a frame */
	CHECK_NUMBER(stream.bytes, sizeof(data) + 3 * (sizeof(struct fs_frame) + 4));
	fs_stream_free(&stream);
	close(fd);
}

static int nameless_file(void)
{
	char name[] = "/tmp/flashscope-frame-XXXXXX";
	int fd = mkstemp(name);

	unlink(name);
	return fd;
}

/* A file that may not grow: it is cut back to whole frames, and a small one still fits. */
static void full_disk(void)
{
	struct rlimit old, limit;
	struct fs_stream stream;
	char data[1000] = { 0 };
	int fd = nameless_file();

	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	limit = old;
	limit.rlim_cur = 2500;
	setrlimit(RLIMIT_FSIZE, &limit);
	fs_stream_init(&stream, fd, 0);
	CHECK(stream.regular);
	CHECK(!fs_frame(&stream, FS_FILE, data, sizeof(data), NULL, 0));
	CHECK(!fs_frame(&stream, FS_FILE, data, sizeof(data), NULL, 0));
	CHECK(fs_frame(&stream, FS_FILE, data, sizeof(data), NULL, 0) == -1);
	CHECK_NUMBER(stream.error, EFBIG);
	CHECK_NUMBER(lseek(fd, 0, SEEK_END), 2 * 1020);
	CHECK(fs_frame(&stream, FS_STEP, "", 0, NULL, 0) == -1); /* not before fs_stream_again() */
	CHECK(fs_stream_again(&stream));
	CHECK(!fs_frame_end(&stream, FS_END_FAILURE));
	CHECK_NUMBER(lseek(fd, 0, SEEK_END), 2 * 1020 + 28);
	CHECK_NUMBER(stream.seq, 3);
	setrlimit(RLIMIT_FSIZE, &old);
	fs_stream_free(&stream);
	close(fd);
}

/* Frames are kept up to a size; what a full disk took of them ends with a whole one. */
static void batches(void)
{
	struct rlimit old, limit;
	struct fs_stream stream;
	char data[1000] = { 0 };
	int fd = nameless_file();

	fs_stream_init(&stream, fd, 0);
	stream.max_bytes = 5 * 1020;
	stream.batch = true;
	for (int i = 0; i < 4; i++)
		CHECK(!fs_frame(&stream, FS_FILE, data, sizeof(data), NULL, 0));
	CHECK_NUMBER(lseek(fd, 0, SEEK_END), 0);
	CHECK(!fs_stream_flush(&stream));
	CHECK_NUMBER(lseek(fd, 0, SEEK_END), 4 * 1020);
	CHECK(!stream.limited);
	for (int i = 0; i < 65; i++)
		CHECK(!fs_frame(&stream, FS_FILE, data, sizeof(data), NULL, 0));
	CHECK_NUMBER(lseek(fd, 0, SEEK_END), 69 * 1020); /* 65 * 1020 is above FS_BATCH, and 64 * 1020 is not */
	CHECK(stream.limited);
	getrlimit(RLIMIT_FSIZE, &old);
	limit = old;
	limit.rlim_cur = 71 * 1020 + 500;
	setrlimit(RLIMIT_FSIZE, &limit);
	for (int i = 0; i < 4; i++)
		CHECK(!fs_frame(&stream, FS_FILE, data, sizeof(data), NULL, 0));
	CHECK(fs_stream_flush(&stream) == -1);
	CHECK_NUMBER(stream.error, EFBIG);
	CHECK_NUMBER(lseek(fd, 0, SEEK_END), 71 * 1020);
	CHECK(fs_stream_again(&stream));
	stream.batch = false;
	CHECK(!fs_frame_end(&stream, FS_END_FAILURE));
	CHECK_NUMBER(lseek(fd, 0, SEEK_END), 71 * 1020 + 28);
	CHECK_NUMBER(stream.bytes, 71 * 1020 + 28);
	CHECK_NUMBER(stream.seq, 72);
	setrlimit(RLIMIT_FSIZE, &old);
	fs_stream_free(&stream);
	close(fd);
}

void test_frame(void)
{
	signal(SIGPIPE, SIG_IGN);
	crc();
	folded();
	frames();
	shared();
	full_disk();
	batches();
}
