// SPDX-License-Identifier: Apache-2.0
/*
 * check_stream FILE: walks a stream by protocol.h, refuses any frame that breaks
 * it, and prints one line a frame type and one an event: what host.sh compares.
 */
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frame.h"
#include "util.h"

static const char *const names[] = { "?",     "HELLO", "FACTS", "HEADER_PAGE", "HEADER_EVENT", "FORMAT",
				     "DATA",  "TASKS", "PHASE", "STATS",       "OUTPUT",       "EXIT",
				     "LOG",   "FILE",  "STEP",  "END",	 "DATA_FOLDED",  "NAMES",
				     "PROGRESS" };

static char *events[65536];
static uint64_t seen[65536];

static void bad(const char *what, size_t at)
{
	printf("BAD at %zu: %s\n", at, what);
	exit(1);
}

static void format(const char *payload, size_t length)
{
	const char *name = memchr(payload, 0, length);
	const char *text = name ? memchr(name + 1, 0, length - (size_t)(name + 1 - payload)) : NULL;
	char *copy, *id;

	if (!text)
		bad("FORMAT", 0);
	copy = strndup(text + 1, length - (size_t)(text + 1 - payload));
	id = strstr(copy, "ID: ");
	if (!id)
		bad("FORMAT without ID", 0);
	free(events[atoi(id + 4) & 65535]); /* sched:* and the names' own events overlap */
	if (asprintf(&events[atoi(id + 4) & 65535], "%s:%s", payload, name + 1) < 0)
		exit(1);
	free(copy);
}

static void data(const unsigned char *payload, size_t length, unsigned int long_size)
{
	size_t at = 4 + 8 + long_size, end;
	uint32_t commit;

	if (length < at)
		bad("DATA too short", 0);
	memcpy(&commit, payload + 12, 4);
	end = at + (commit & 0xfffff);
	if (end + (commit >> 30 & 1) * long_size != length)
		bad("DATA not cut at its commit", 0);
	while (at + 4 <= end) {
		uint32_t header, array = 0;
		size_t body, size;
		uint16_t id;

		memcpy(&header, payload + at, 4);
		if (at + 8 <= end)
			memcpy(&array, payload + at + 4, 4);
		if ((header & 31) >= 30) {
			at += 8;
			continue;
		}
		if ((header & 31) == 29) {
			if (!(header >> 5))
				return;
			at += 4 + (size_t)array;
			continue;
		}
		body = header & 31 ? at + 4 : at + 8;
		size = header & 31 ? (header & 31) * 4 : (size_t)array - 4;
		if (size > end || body > end - size)
			bad("event beyond its sub-buffer", at);
		memcpy(&id, payload + body, 2);
		if (!events[id])
			bad("event without FORMAT", at);
		seen[id]++;
		at = body + ((size + 3) & ~(size_t)3);
	}
}

int main(int argc, char **argv)
{
	uint64_t types[FS_PROGRESS + 1] = { 0 };
	unsigned int long_size = 0;
	uint32_t next = 0;
	size_t length, at = 0;
	char *stream = argc == 2 ? fs_read_text(argv[1], &length) : NULL;

	if (!stream) {
		fprintf(stderr, "usage: check_stream FILE\n");
		return 2;
	}
	while (at < length) {
		struct fs_frame frame;
		const char *payload = stream + at + sizeof(frame);

		if (length - at < sizeof(frame))
			break;
		memcpy(&frame, stream + at, sizeof(frame));
		if (le32toh(frame.magic) != FS_MAGIC)
			bad("magic", at);
		if (le32toh(frame.length) > length - at - sizeof(frame))
			break;
		if (le32toh(frame.crc) != (le16toh(frame.type) == FS_DATA_FOLDED ?
						   fs_crc32_folded(payload, le32toh(frame.length)) :
						   fs_crc32(0, payload, le32toh(frame.length))))
			bad("crc", at);
		if (le32toh(frame.seq) != next++)
			bad("seq", at);
		if (le16toh(frame.type) < 1 || le16toh(frame.type) > FS_PROGRESS)
			bad("type", at);
		types[le16toh(frame.type)]++;
		if (le16toh(frame.type) == FS_HELLO)
			long_size = ((const struct fs_hello *)(const void *)payload)->long_size;
		if (le16toh(frame.type) == FS_FORMAT)
			format(payload, le32toh(frame.length));
		if (le16toh(frame.type) == FS_DATA_FOLDED)
			data((const unsigned char *)payload, le32toh(frame.length), long_size);
		if (le16toh(frame.type) == FS_STATS)
			printf("stats %.*s\n", (int)le32toh(frame.length), payload);
		if (le16toh(frame.type) == FS_PHASE)
			printf("phase %u %.*s\n", (unsigned int)(unsigned char)payload[8],
			       (int)le32toh(frame.length) - 16, payload + 16);
		if (le16toh(frame.type) == FS_END)
			printf("reason %u\n", (unsigned int)(unsigned char)payload[0]);
		at += sizeof(frame) + le32toh(frame.length);
	}
	for (size_t i = 1; i <= FS_PROGRESS; i++)
		if (types[i])
			printf("frames %s %" PRIu64 "\n", names[i], types[i]);
	for (size_t i = 0; i < 65536; i++) {
		if (seen[i])
			printf("event %s %" PRIu64 "\n", events[i], seen[i]);
		free(events[i]);
	}
	printf("cut %zu\n", length - at);
	free(stream);
	return 0;
}
