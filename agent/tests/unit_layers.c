// SPDX-License-Identifier: Apache-2.0
#include "layers.h"
#include "test.h"

void test_layers(void)
{
	struct fs_tracefs tracefs = { .path = "/tracing", .kprobe_events = true };
	static struct fs_probes probes;
	struct fs_events events = { 0 };
	struct fs_json json = { 0 };

	test_root_begin();
	test_root_file("/proc/kallsyms", "c0 T bio_endio\nc1 T vfs_read\nc2 t ext4_sync_file\t[ext4]\nc3 T io_schedule\n"
					 "c4 T io_schedule_timeout\nc5 T jbd2_log_wait_commit\t[jbd2]\n");
	fs_events_add(&events, "block", "block_rq_issue", NULL);
	fs_events_add(&events, "block", "block_rq_complete", NULL);
	fs_layers_plan(&tracefs, "g", 7, &probes, &events);
	/* From user space down, entry and return of each. */
	CHECK_NUMBER(probes.count, 10);
	CHECK_TEXT(probes.items[0].definition, "p:g/enter_vfs_read vfs_read");
	CHECK_TEXT(probes.items[0].filter, "common_pid != 7");
	CHECK_TEXT(probes.items[1].definition, "r64:g/leave_vfs_read vfs_read ret=$retval:s32");
	CHECK_TEXT(probes.items[3].definition, "r64:g/leave_io_schedule io_schedule");
	/* Whoever syncs sleeps in it: the file system is what runs meanwhile. */
	CHECK_TEXT(probes.items[4].event, "enter_jbd2_log_wait_commit");
	CHECK_TEXT(probes.items[4].level, "wait");
	CHECK_TEXT(probes.items[6].level, "filesystem");
	CHECK_TEXT(probes.items[8].event, "enter_bio_endio");
	CHECK(!probes.items[8].filter); /* in anyone's name */
	/* cache, block and driver have nothing: named. */
	CHECK_NUMBER(events.absent_count, 3);
	CHECK_TEXT(events.absent[0].event, "flashscope:enter_* of layer cache");

	fs_json_object(&json, NULL);
	fs_layers_json(&json, &probes, &events);
	fs_json_object_end(&json);
	CHECK(strstr(json.out.data, "{\"boundaries\":[{\"layer\":\"vfs\",\"symbol\":\"vfs_read\",\"enter\":"
				    "\"flashscope:enter_vfs_read\",\"leave\":\"flashscope:leave_vfs_read\"},") != NULL);
	CHECK(strstr(json.out.data, "{\"layer\":\"device\",\"symbol\":null,\"enter\":\"block:block_rq_issue\","
				    "\"leave\":\"block:block_rq_complete\"}") != NULL);
	fs_json_free(&json);
	fs_probes_free(&probes);
	fs_events_free(&events);

	tracefs.kprobe_events = false;
	fs_layers_plan(&tracefs, "g", 7, &probes, &events);
	CHECK_NUMBER(probes.count, 0);
	CHECK_NUMBER(events.absent_count, 7);
	CHECK_TEXT(events.absent[0].why, "this kernel has no kprobe_events");
	fs_events_free(&events);
	test_root_end();
}
