// SPDX-License-Identifier: Apache-2.0
#include "files.h"
#include "groups.h"
#include "test.h"
#include "probe_trial.h"

/* As found on armmp 5.10 and 6.1, and on amd64 6.12. */
static const struct fs_file_layout arm510 = { .file_inode = 16, .inode_number = 40, .inode_super = 28,
					      .inode_size = 56, .super_device = 8, .call_position = 8, .iter_count = 8,
					      .write_by_file = true, .write_known = true, .fault_page = 12,
					      .area_file = 80 };
static const struct fs_file_layout amd612 = { .file_inode = 40, .inode_number = 64, .inode_super = 40,
					      .inode_size = -1, .super_device = 16, .call_position = 8, .iter_count = 24,
					      .write_known = true, .fault_page = 16, .area_file = 112 };

static const struct fs_probe *probe_of(const struct fs_probes *probes, const char *event)
{
	for (size_t i = 0; i < probes->count; i++)
		if (!strcmp(probes->items[i].event, event))
			return &probes->items[i];
	return NULL;
}

static void plan(const struct fs_machine *machine, const struct fs_file_layout *layout, const char *kallsyms,
		 struct fs_probes *probes, struct fs_events *events)
{
	test_root_begin();
	test_root_file("/proc/kallsyms", kallsyms);
	memset(probes, 0, sizeof(*probes));
	memset(events, 0, sizeof(*events));
	fs_files_plan(machine, layout, "g", 7, probes, events);
	test_root_end();
}

static void planning(void)
{
	const struct fs_machine arm = { FS_REGISTERS_ARM32, 4 }, amd = { FS_REGISTERS_X86_64, 8 };
	struct fs_file_layout unknown = amd612;
	static struct fs_probes probes;
	struct fs_events events;

	plan(&arm, &arm510, "c0 T generic_file_buffered_read\nc1 T filemap_faulty\nc2 T filemap_fault\t[m]\n", &probes,
	     &events);
	CHECK_NUMBER(probes.count, 4);
	CHECK_NUMBER(events.absent_count, 0);
	CHECK_TEXT(probe_of(&probes, "file_read")->definition,
		   "p:g/file_read generic_file_buffered_read dev=+8(+28(+16(+0(%r0)))):u32 ino=+40(+16(+0(%r0))):u32 "
		   "size=+56(+16(+0(%r0))):u64 pos=+8(%r0):u64 count=+8(%r1):u32");
	CHECK_TEXT(probe_of(&probes, "file_read")->filter, "common_pid != 7");
	CHECK_TEXT(probe_of(&probes, "file_write")->definition,
		   "p:g/file_write generic_perform_write dev=+8(+28(+16(%r0))):u32 ino=+40(+16(%r0)):u32 "
		   "pos=%r2:u32 pos_high=%r3:u32 count=+8(%r1):u32");
	CHECK_TEXT(probe_of(&probes, "file_fault")->definition,
		   "p:g/file_fault filemap_fault dev=+8(+28(+16(+80(+0(%r0))))):u32 "
		   "ino=+40(+16(+80(+0(%r0)))):u32 size=+56(+16(+80(+0(%r0)))):u64 page=+12(%r0):u32");
	CHECK_TEXT(probe_of(&probes, "file_fault_end")->definition, "r64:g/file_fault_end filemap_fault");
	fs_probes_free(&probes);
	fs_events_free(&events);

	plan(&amd, &amd612, "f0 T filemap_read\nf1 T filemap_fault\nf2 T filemap_splice_read\n", &probes, &events);
	CHECK_NUMBER(probes.count, 5);
	CHECK_TEXT(probe_of(&probes, "file_splice_read")->definition,
		   "p:g/file_splice_read filemap_splice_read dev=+16(+40(+40(%di))):u32 ino=+64(+40(%di)):u64 "
		   "pos=+0(%si):u64 count=%cx:u64");
	CHECK_TEXT(probe_of(&probes, "file_read")->definition,
		   "p:g/file_read filemap_read dev=+16(+40(+40(+0(%di)))):u32 ino=+64(+40(+0(%di))):u64 "
		   "pos=+8(%di):u64 count=+24(%si):u64");
	CHECK_TEXT(probe_of(&probes, "file_write")->definition,
		   "p:g/file_write generic_perform_write dev=+16(+40(+40(+0(%di)))):u32 ino=+64(+40(+0(%di))):u64 "
		   "pos=+8(%di):u64 count=+24(%si):u64");
	fs_probes_free(&probes);
	fs_events_free(&events);

	/* What is not known is named, each for itself. */
	plan(&amd, &amd612, "f0 T vfs_read\n", &probes, &events);
	CHECK_NUMBER(probes.count, 1);
	CHECK_NUMBER(events.absent_count, 2);
	CHECK_TEXT(events.absent[0].event, "flashscope:file_read");
	fs_probes_free(&probes);
	fs_events_free(&events);
	unknown.super_device = -1;
	snprintf(unknown.missing, sizeof(unknown.missing), "device and inode of an open file");
	plan(&amd, &unknown, "f0 T filemap_read\nf1 T filemap_fault\n", &probes, &events);
	CHECK_NUMBER(probes.count, 0);
	CHECK_NUMBER(events.absent_count, 3);
	CHECK_TEXT(events.absent[2].why, "device and inode of an open file");
	fs_events_free(&events);
}

static void parsing(void)
{
	static const char text[] =
		"# tracer: nop\n#  : ask: (comment) v0=9\n"
		"  x-1  [000] .....  3.5: asked: (vfs_read+0x0/0x1f8) v0=5\n"
		"  x-1  [000] .....  3.5: ask: (vfs_read+0x0/0x1f8) v0=0x10 v1=0 v10=0xfe00000 v2=0xffffffff81000000\n"
		"  x-1  [000] .....  3.6: ask: (vfs_read+0x0/0x1f8) v0=0x11 v1=1\n";
	uint64_t values[8] = { 9, 9, 9, 9, 9, 9, 9, 9 };

	CHECK_NUMBER(fs_probe_trial_parse(text, "ask", 4, values, 1), 2);
	CHECK_NUMBER(values[0], 0x10);
	CHECK_NUMBER(values[1], 0);
	CHECK_NUMBER(values[2], 0xffffffff81000000);
	CHECK_NUMBER(values[3], 0);
	CHECK_NUMBER(values[4], 9);
	CHECK_NUMBER(fs_probe_trial_parse(text, "ask", 4, values, 2), 2);
	CHECK_NUMBER(values[4], 0x11);
	CHECK_NUMBER(values[5], 1);
	CHECK_NUMBER(fs_probe_trial_parse("", "ask", 4, values, 2), 0);
}

static void symbols(void)
{
	static const char *const names[] = { "mtd_read", "mtd_read_oob", "absent" };
	bool found[3];

	test_root_begin();
	test_root_file("/proc/kallsyms", "c0000000 T mtd_read_oob\nc0 t mtd_readable\nbf000000 t mtd_read\t[mtd]\nbroken\n");
	fs_symbols(names, 3, found);
	CHECK(found[0] && found[1] && !found[2]);
	test_root_end();
}

void test_files(void)
{
	planning();
	parsing();
	symbols();
}
