// SPDX-License-Identifier: Apache-2.0
/* The flight recorder's watch: CPUs are read one after the other, and their events followed in the order of time. */
#include "test.h"
#include "trigger.h"

#define MS UINT64_C(1000000)
#define ISSUE 1
#define COMPLETE 2
#define SYNC 3
#define DISK (7u << 20)

static void ring(struct fs_watch *watch, struct fs_trigger *trigger, const char *text)
{
	memset(watch, 0, sizeof(*watch));
	CHECK(fs_trigger_parse(text, trigger));
	watch->triggers = trigger;
	watch->count = 1;
	watch->issue_id = ISSUE;
	watch->complete_id = COMPLETE;
}

static void event(struct fs_watch *watch, uint16_t id, uint64_t sector, uint64_t time_ns)
{
	fs_watch_read(watch, &(struct fs_watched){ .time_ns = time_ns, .key_a = DISK, .key_b = sector, .sectors = 8, .id = id });
}

/* As the kernel writes them (block_rq_issue and block_rq_complete of 6.18): device, sector, sectors, error. */
static void raw(struct fs_watch *watch, uint16_t id, uint64_t sector, uint32_t sectors, uint64_t time_ns)
{
	unsigned char event[32] = { 0 };
	uint32_t dev = DISK;

	memcpy(event, &id, 2);
	memcpy(event + 8, &dev, 4);
	memcpy(event + 16, &sector, 8);
	memcpy(event + 24, &sectors, 4);
	fs_watch_event(watch, time_ns, event, sizeof(event));
}

static void flushes(void)
{
	struct fs_trigger trigger;
	struct fs_watch watch;

	ring(&watch, &trigger, "d2c>300ms");
	watch.dev = (struct fs_field){ .known = true, .offset = 8, .size = 4 };
	watch.sector = (struct fs_field){ .known = true, .offset = 16, .size = 8 };
	watch.sectors = (struct fs_field){ .known = true, .offset = 24, .size = 4 };
	/* A commit of a journal: flush, write, flush, and the end of the whole. */
	raw(&watch, ISSUE, 0, 0, 10 * MS);
	raw(&watch, COMPLETE, UINT64_MAX, 0, 11 * MS);
	raw(&watch, ISSUE, 64, 2, 12 * MS);
	raw(&watch, COMPLETE, 64, 2, 13 * MS);
	raw(&watch, ISSUE, 0, 0, 14 * MS);
	raw(&watch, COMPLETE, UINT64_MAX, 0, 15 * MS);
	raw(&watch, COMPLETE, 64, 0, 15 * MS);
	fs_watch_follow(&watch, 900 * MS);
	CHECK(!watch.fired && !watch.request_count);
	/* A write to sector 0 is none, and a flush's end is not its own. */
	raw(&watch, ISSUE, 0, 8, 1000 * MS);
	raw(&watch, ISSUE, 0, 0, 1001 * MS);
	raw(&watch, COMPLETE, UINT64_MAX, 0, 1002 * MS);
	raw(&watch, COMPLETE, 0, 0, 1002 * MS);
	fs_watch_follow(&watch, 1700 * MS);
	CHECK_TEXT(watch.reason, "d2c>300ms: a request to 7:0 at sector 0 has taken 700.0 ms and is not done");
	raw(&watch, COMPLETE, 0, 8, 1701 * MS);
	fs_watch_follow(&watch, 1800 * MS);
	fs_watch_again(&watch);
	/* One that takes long is told. */
	raw(&watch, ISSUE, 0, 0, 2000 * MS);
	raw(&watch, COMPLETE, UINT64_MAX, 0, 2400 * MS);
	fs_watch_follow(&watch, 2500 * MS);
	CHECK_TEXT(watch.reason, "d2c>300ms: a request without sectors (as a flush) to 7:0 took 400.0 ms");
	free(watch.read);
}

void test_trigger(void)
{
	struct fs_trigger trigger;
	struct fs_watch watch;

	/* Of one sector, the second CPU has an earlier request whole, the first one that which hangs. */
	ring(&watch, &trigger, "d2c>300ms");
	event(&watch, ISSUE, 8, 60 * MS);
	event(&watch, ISSUE, 8, 20 * MS);
	event(&watch, COMPLETE, 8, 21 * MS);
	fs_watch_follow(&watch, 100 * MS);
	CHECK(!watch.fired);
	fs_watch_follow(&watch, 700 * MS);
	CHECK(watch.fired && watch.times == 1 && watch.began_ns == 60 * MS);
	/* Once for each: its end is no second one. */
	fs_watch_again(&watch);
	event(&watch, COMPLETE, 8, 750 * MS);
	fs_watch_follow(&watch, 2000 * MS);
	CHECK(!watch.fired);
	/* And the next of that sector is watched again. */
	event(&watch, ISSUE, 8, 2001 * MS);
	event(&watch, COMPLETE, 8, 2400 * MS);
	fs_watch_follow(&watch, 2500 * MS);
	/* Seconds before it are those before the request, not before its end. */
	CHECK(watch.fired && watch.fired_ns == 2400 * MS && watch.began_ns == 2001 * MS);
	free(watch.read);

	/* The completion is read before its issue: the second CPU was read later. */
	ring(&watch, &trigger, "d2c>300ms");
	event(&watch, COMPLETE, 8, 101 * MS);
	fs_watch_follow(&watch, 100 * MS);
	event(&watch, ISSUE, 8, 99 * MS);
	fs_watch_follow(&watch, 200 * MS);
	fs_watch_follow(&watch, 900 * MS);
	CHECK(!watch.fired);
	/* Stamped before its issue, by another CPU's clock. */
	event(&watch, COMPLETE, 16, 1000 * MS - 5000);
	event(&watch, ISSUE, 16, 1000 * MS);
	fs_watch_follow(&watch, 1100 * MS);
	fs_watch_follow(&watch, 1900 * MS);
	CHECK(!watch.fired);
	free(watch.read);

	/* Whose sync it was, done or not; a request is nobody's. */
	CHECK(!watch.task);
	ring(&watch, &trigger, "fsync>100ms");
	watch.sync_events = 1;
	watch.sync_enter[0] = SYNC;
	watch.sync_exit[0] = SYNC + 1;
	fs_watch_read(&watch, &(struct fs_watched){ .time_ns = 10 * MS, .key_a = 77, .id = SYNC });
	fs_watch_read(&watch, &(struct fs_watched){ .time_ns = 20 * MS, .key_a = 78, .id = SYNC });
	fs_watch_read(&watch, &(struct fs_watched){ .time_ns = 125 * MS, .key_a = 78, .id = SYNC + 1 });
	fs_watch_follow(&watch, 200 * MS);
	CHECK(watch.fired && watch.task == 78);
	fs_watch_again(&watch);
	fs_watch_follow(&watch, 500 * MS);
	CHECK(watch.fired && watch.task == 77);
	free(watch.read);

	/* Two syncs that hang: the second is one of the first one's capture, and has a capture of its own after it, once. */
	ring(&watch, &trigger, "fsync>100ms");
	watch.sync_events = 1;
	watch.sync_enter[0] = SYNC;
	watch.sync_exit[0] = SYNC + 1;
	test_root_begin();
	test_root_file("/proc/78/comm", "logger\n");
	fs_watch_read(&watch, &(struct fs_watched){ .time_ns = 10 * MS, .key_a = 77, .id = SYNC });
	fs_watch_read(&watch, &(struct fs_watched){ .time_ns = 300 * MS, .key_a = 78, .id = SYNC });
	fs_watch_follow(&watch, 500 * MS);
	CHECK(watch.fired && watch.times == 1);
	CHECK_TEXT(watch.reason, "fsync>100ms: a sync of task 77 has taken 490.0 ms and is not done");
	fs_watch_follow(&watch, 700 * MS);
	fs_watch_follow(&watch, 800 * MS);
	CHECK(watch.task == 77 && watch.times == 2);
	fs_watch_again(&watch);
	fs_watch_follow(&watch, 900 * MS);
	CHECK(watch.fired && watch.task == 78 && watch.times == 1 && watch.began_ns == 300 * MS);
	CHECK_TEXT(watch.reason, "fsync>100ms: a sync of task 78 (logger) has taken 600.0 ms and is not done");
	fs_watch_again(&watch);
	fs_watch_read(&watch, &(struct fs_watched){ .time_ns = 950 * MS, .key_a = 78, .id = SYNC + 1 });
	fs_watch_follow(&watch, 1000 * MS);
	CHECK(!watch.fired);
	/* One that ends within the other's capture is in it. */
	fs_watch_read(&watch, &(struct fs_watched){ .time_ns = 1000 * MS, .key_a = 79, .id = SYNC });
	fs_watch_read(&watch, &(struct fs_watched){ .time_ns = 1001 * MS, .key_a = 80, .id = SYNC });
	fs_watch_read(&watch, &(struct fs_watched){ .time_ns = 1500 * MS, .key_a = 80, .id = SYNC + 1 });
	fs_watch_follow(&watch, 1400 * MS);
	fs_watch_follow(&watch, 1600 * MS);
	CHECK(watch.fired && watch.task == 79 && watch.times == 2);
	fs_watch_again(&watch);
	fs_watch_follow(&watch, 1700 * MS);
	CHECK(!watch.fired);
	free(watch.read);
	test_root_end();
	flushes();
}
