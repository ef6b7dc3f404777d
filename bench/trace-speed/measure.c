/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What bench/trace-speed/run needs.
 *
 *   measure grow BASE OUT EVENTS   BASE.blktrace.0 and .1 again and again, times, sectors and numbers going on, until there
 *                                  are EVENTS records in OUT.blktrace.0 and .1; the device becomes 8:0, because btt takes
 *                                  a null block device's number for device mapper's
 *   measure flight OUT EVENTS N    eight processes keep N bios of 4 KiB in flight at random sectors of 8:0, each queued, given a
 *                                  request, inserted, issued and completed; completions come in any order
 *   measure time CMD...            runs it, its output thrown away; one JSON object: wall, CPU seconds, peak KiB
 */
#define _GNU_SOURCE
#include <endian.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* struct blk_io_trace, include/uapi/linux/blktrace_api.h (Linux 7.2) */
struct record {
	uint32_t magic, sequence;
	uint64_t time, sector;
	uint32_t bytes, action, pid, device, cpu;
	uint16_t error, pdu_len;
};
_Static_assert(sizeof(struct record) == 48, "struct blk_io_trace");

#define NOTIFY (1u << 26)
#define SECTORS_A_COPY (32 * 2048) /* the device's 16 MiB, twice */
#define CPUS 2
#define SPLIT 13

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* Where a split's second part begins: big-endian on every machine. */
static void split_at(char *to, const char *from, uint64_t shift)
{
	uint64_t sector;

	memcpy(&sector, from, sizeof(sector));
	sector = htobe64(be64toh(sector) + shift);
	memcpy(to, &sector, sizeof(sector));
}

static int grow(const char *base, const char *to, uint64_t events)
{
	char *bytes[CPUS], path[4096];
	size_t size[CPUS];
	uint32_t numbers[CPUS] = { 0 };
	uint64_t first = UINT64_MAX, last = 0, written = 0, copies = 0;
	static char there[65536];
	FILE *out[CPUS];

	for (int c = 0; c < CPUS; c++) {
		FILE *in;

		snprintf(path, sizeof(path), "%s.blktrace.%d", base, c);
		in = fopen(path, "rb");
		if (!in)
			die(path);
		bytes[c] = malloc(1 << 24);
		size[c] = fread(bytes[c], 1, 1 << 24, in);
		fclose(in);
		snprintf(path, sizeof(path), "%s.blktrace.%d", to, c);
		out[c] = fopen(path, "wb");
		if (!out[c])
			die(path);
		for (size_t at = 0; at + sizeof(struct record) <= size[c];) {
			struct record r;

			memcpy(&r, bytes[c] + at, sizeof(r));
			first = r.time < first ? r.time : first;
			last = r.time > last ? r.time : last;
			if (!(r.action & NOTIFY))
				numbers[c] = r.sequence > numbers[c] ? r.sequence : numbers[c];
			at += sizeof(r) + r.pdu_len;
		}
	}
	for (; written < events; copies++) {
		uint64_t shift = copies % 1024 * SECTORS_A_COPY;

		for (int c = 0; c < CPUS; c++) {
			for (size_t at = 0; at + sizeof(struct record) <= size[c];) {
				struct record r;
				size_t pdu;

				memcpy(&r, bytes[c] + at, sizeof(r));
				pdu = r.pdu_len;
				at += sizeof(r);
				if (!(r.action & NOTIFY) || !copies) {
					r.time += copies * (last - first + 1000);
					r.sequence += (uint32_t)(copies * numbers[c]);
					if (r.bytes)
						r.sector += shift;
					if ((r.action & 0xff) == SPLIT)
						split_at(there, bytes[c] + at, shift);
					else
						memcpy(there, bytes[c] + at, pdu);
					r.device = 8 << 20;
					if (fwrite(&r, sizeof(r), 1, out[c]) != 1 ||
					    (pdu && fwrite(there, pdu, 1, out[c]) != 1))
						die(to);
					written++;
				}
				at += pdu;
			}
		}
	}
	for (int c = 0; c < CPUS; c++)
		if (fclose(out[c]))
			die(to);
	printf("{\"records\": %llu, \"copies\": %llu}\n", (unsigned long long)written, (unsigned long long)copies);
	return 0;
}

#define TASKS 8
#define PROCESS_NOTE 0
/* enum blktrace_act and enum blktrace_cat, include/uapi/linux/blktrace_api.h (Linux 7.2) */
#define QUEUE 1
#define GET_RQ 4
#define ISSUE 7
#define COMPLETE 8
#define INSERT 12
#define READ_CATEGORY 1u
#define MAX_FLIGHT 4096

static uint64_t state = 88172645463325252ull;

/* xorshift64 (Marsaglia, Journal of Statistical Software 8/14, 2003) */
static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static uint64_t put(FILE *out, uint32_t action, uint32_t pid, uint64_t sector, uint64_t time)
{
	static uint32_t sequence;
	struct record r = { .magic = 0x65617407, .sequence = ++sequence, .time = time, .sector = sector, .bytes = 4096,
			    .action = action | READ_CATEGORY << 16, .pid = pid, .device = 8 << 20 };

	if (fwrite(&r, sizeof(r), 1, out) != 1)
		die("write");
	return 1;
}

static void name(FILE *out, uint32_t pid)
{
	char comm[16] = "";
	struct record r = { .magic = 0x65617407, .action = NOTIFY | PROCESS_NOTE, .pid = pid, .device = 0, .pdu_len = sizeof(comm) };

	snprintf(comm, sizeof(comm), "task-%u", pid);
	if (fwrite(&r, sizeof(r), 1, out) != 1 || fwrite(comm, sizeof(comm), 1, out) != 1)
		die("write");
}

static int flight(const char *to, uint64_t events, unsigned int depth)
{
	static struct {
		uint64_t sector;
		uint32_t pid;
	} flying[MAX_FLIGHT];
	static const uint32_t steps[] = { QUEUE, GET_RQ, INSERT, ISSUE };
	uint64_t written = 0, time = 1000000;
	char path[4096];
	FILE *out;

	if (!depth || depth > MAX_FLIGHT)
		return 2;
	snprintf(path, sizeof(path), "%s.blktrace.0", to);
	out = fopen(path, "wb");
	if (!out)
		die(path);
	for (uint32_t pid = 1; pid <= TASKS; pid++)
		name(out, 1000 + pid);
	for (unsigned int n = 0; written < events; n++) {
		unsigned int at = n < depth ? n : (unsigned int)(next_random() % depth);

		if (n >= depth)
			written += put(out, COMPLETE, 0, flying[at].sector, time += 2000);
		/* No two of one sector are in flight at one time: the place is part of it. */
		flying[at].sector = (next_random() % (1 << 20) * MAX_FLIGHT + at) * 8;
		flying[at].pid = 1001 + (uint32_t)(next_random() % TASKS);
		for (size_t step = 0; step < sizeof(steps) / sizeof(*steps); step++)
			written += put(out, steps[step], flying[at].pid, flying[at].sector, time += 1000);
	}
	if (fclose(out))
		die(path);
	printf("{\"records\": %llu, \"in_flight\": %u}\n", (unsigned long long)written, depth);
	return 0;
}

static double seconds(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

static int timed(char **argv)
{
	struct timespec begin, end;
	struct rusage used;
	int status;
	pid_t child;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	child = fork();
	if (child < 0)
		die("fork");
	if (!child) {
		int null = open("/dev/null", O_WRONLY);

		dup2(null, 1);
		execvp(argv[0], argv);
		die(argv[0]);
	}
	if (wait4(child, &status, 0, &used) < 0)
		die("wait4");
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("{\"wall_s\": %.3f, \"cpu_s\": %.3f, \"peak_rss_kib\": %ld, \"status\": %d}\n",
	       (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9,
	       seconds(used.ru_utime) + seconds(used.ru_stime), used.ru_maxrss, status);
	return status ? 1 : 0;
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "grow"))
		return grow(argv[2], argv[3], strtoull(argv[4], NULL, 10));
	if (argc == 5 && !strcmp(argv[1], "flight"))
		return flight(argv[2], strtoull(argv[3], NULL, 10), (unsigned int)atoi(argv[4]));
	if (argc > 2 && !strcmp(argv[1], "time"))
		return timed(argv + 2);
	return 2;
}
