// SPDX-License-Identifier: Apache-2.0
#include "groups.h"
#include "test.h"

static struct fs_tracefs tracefs;

static void there(const char *system, const char *event)
{
	char path[256];

	snprintf(path, sizeof(path), "/tracing/events/%s/%s/enable", system, event);
	test_root_file(path, "0\n");
}

static const struct fs_event *event_of(const struct fs_events *events, const char *system, const char *event)
{
	for (size_t i = 0; i < events->count; i++)
		if (!strcmp(events->items[i].system, system) && !strcmp(events->items[i].event, event))
			return &events->items[i];
	return NULL;
}

static const struct fs_absence *absence_of(const struct fs_events *events, const char *event)
{
	const struct fs_absence *found = NULL;

	for (size_t i = 0; i < events->absent_count; i++)
		if (!strcmp(events->absent[i].event, event)) {
			CHECK(!found); /* named once, whatever the number of groups that want it */
			found = &events->absent[i];
		}
	return found;
}

void test_groups(void)
{
	const struct fs_machine wide = { FS_REGISTERS_X86_64, 8 }, narrow = { FS_REGISTERS_ARM32, 4 };
	struct fs_events events = { 0 };
	const struct fs_event *event;
	struct fs_json json = { 0 };

	CHECK_NUMBER(fs_group_of("block"), FS_GROUP_BLOCK);
	CHECK_NUMBER(fs_group_of("flash"), 0);
	CHECK_NUMBER(fs_group_of(""), 0);
	for (unsigned int group = 1; group <= FS_GROUP_LAYERS; group <<= 1)
		CHECK_NUMBER(fs_group_of(fs_group_name(group)), group);

	test_root_begin();
	snprintf(tracefs.path, sizeof(tracefs.path), "/tracing");
	there("block", "block_bio_queue");
	there("block", "block_rq_issue");
	there("writeback", "writeback_dirty_page");
	there("syscalls", "sys_enter_openat");
	there("syscalls", "sys_exit_openat");
	there("syscalls", "sys_enter_openat2");
	there("syscalls", "sys_exit_openat2");

	/* One that was named comes first, unfiltered, and is not added again by its group. */
	fs_events_add(&events, "block", "block_rq_issue", NULL);
	CHECK(!fs_events_of_groups(&events, &tracefs, &wide,
				   FS_GROUP_BLOCK | FS_GROUP_SYSCALL | FS_GROUP_CACHE | FS_GROUP_LAYERS, 77));
	CHECK_NUMBER(events.count, 7);
	event = event_of(&events, "block", "block_bio_queue");
	CHECK(event && !event->filter); /* completions come in anyone's name */
	event = event_of(&events, "syscalls", "sys_exit_openat2");
	CHECK(event);
	CHECK_TEXT(event ? event->filter : "", "common_pid != 77");
	event = event_of(&events, "writeback", "writeback_dirty_page");
	CHECK_TEXT(event ? event->filter : "", "common_pid != 77");
	CHECK(!absence_of(&events, "writeback:writeback_dirty_folio|writeback_dirty_page"));
	CHECK(absence_of(&events, "block:block_rq_complete") != NULL);
	CHECK(absence_of(&events, "syscalls:read") != NULL);
	CHECK(!absence_of(&events, "syscalls:open|openat|openat2"));
	CHECK(absence_of(&events, "ext4:ext4_writepages") &&
	      strstr(absence_of(&events, "ext4:ext4_writepages")->why, "module"));
	fs_json_object(&json, NULL);
	fs_events_json(&json, &events);
	fs_json_object_end(&json);
	CHECK(strstr(json.out.data, "{\"group\":\"block\",\"event\":\"block:block_rq_complete\",\"why\":"
				    "\"this kernel has no such event\",\"loses\":") != NULL);
	fs_json_free(&json);
	fs_events_free(&events);

	/* A group of which there is nothing is told; the others are not touched by it. */
	CHECK_NUMBER(fs_events_of_groups(&events, &tracefs, &narrow, FS_GROUP_CACHE | FS_GROUP_BLOCK, 1), 0);
	fs_events_free(&events);
	test_root_end();
	test_root_begin();
	there("block", "block_rq_issue");
	CHECK_NUMBER(fs_events_of_groups(&events, &tracefs, &narrow, FS_GROUP_CACHE | FS_GROUP_BLOCK, 1),
		     FS_GROUP_CACHE);
	fs_events_free(&events);
	test_root_end();
}
