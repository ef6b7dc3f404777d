// SPDX-License-Identifier: Apache-2.0
#include "facts.h"
#include "mtd.h"
#include "test.h"
#include "util.h"

static void device(int index, const char *place, const char *name, const char *type, const char *size,
		   const char *erasesize, const char *writesize, const char *offset)
{
	const char *const files[][2] = { { "name", name },	     { "type", type },
					 { "size", size },	     { "erasesize", erasesize },
					 { "writesize", writesize }, { "oobsize", "64" },
					 { "subpagesize", "512" },   { "offset", offset } };
	char path[256], target[256];

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		char text[80];

		if (!files[i][1])
			continue;
		snprintf(path, sizeof(path), "/sys/devices/%s/mtd%d/%s", place, index, files[i][0]);
		snprintf(text, sizeof(text), "%s\n", files[i][1]);
		test_root_file(path, text);
	}
	snprintf(path, sizeof(path), "/sys/class/mtd/mtd%d", index);
	snprintf(target, sizeof(target), "../../devices/%s/mtd%d", place, index);
	test_root_link(path, target);
	snprintf(path, sizeof(path), "/sys/class/mtd/mtd%dro", index);
	test_root_link(path, target);
}

static void scan(void)
{
	struct fs_mtd_list list;
	const struct fs_mtd *mtd;

	test_root_begin();
	fs_mtd_scan(&list);
	CHECK_NUMBER(list.count, 0);
	fs_mtd_free(&list);

	/* two partitions of one NAND, a NOR, a second NAND kept whole with its partition below */
	device(0, "platform/a.nand/mtd", "boot", "nand", "1048576", "131072", "2048", "0");
	device(1, "platform/a.nand/mtd", "root", "nand", "3145728", "131072", "2048", "1048576");
	device(2, "platform/spi0/mtd", "nor", "nor", "65536", "4096", "1", "0");
	device(10, "platform/b.nand/mtd", "whole", "mlc-nand", "8388608", "262144", "4096", "0");
	device(11, "platform/b.nand/mtd/mtd10", "part", "mlc-nand", "4194304", "262144", "4096", "0");
	fs_mtd_scan(&list);
	CHECK_NUMBER(list.count, 5);
	mtd = fs_mtd_find(&list, 1);
	CHECK_TEXT(mtd->name, "root");
	CHECK_TEXT(mtd->type, "nand");
	CHECK_NUMBER(mtd->size, 3145728);
	CHECK_NUMBER(mtd->erasesize, 131072);
	CHECK_NUMBER(mtd->writesize, 2048);
	CHECK_NUMBER(mtd->subpagesize, 512);
	CHECK_NUMBER(mtd->oobsize, 64);
	CHECK(mtd->has_offset && mtd->offset == 1048576 && mtd->parent == -1);
	CHECK(fs_mtd_is_nand(mtd) && !fs_mtd_is_nand(fs_mtd_find(&list, 2)));
	CHECK(fs_mtd_find(&list, 11)->parent == 10);
	CHECK(!fs_mtd_find(&list, 3));
	CHECK(fs_mtd_find(&list, 0)->chip == 0 && fs_mtd_find(&list, 1)->chip == 0);
	CHECK(fs_mtd_find(&list, 2)->chip == 1);
	CHECK(fs_mtd_find(&list, 10)->chip == 2 && fs_mtd_find(&list, 11)->chip == 2);

	/* a trial knows better: mtd0 and mtd1 are two chips */
	fs_mtd_find(&list, 0)->chip_pointer = 0x1000;
	fs_mtd_find(&list, 1)->chip_pointer = 0x2000;
	fs_mtd_number_chips(&list); /* not all were tried: the guess stands */
	CHECK(fs_mtd_find(&list, 1)->chip == 0);
	fs_mtd_find(&list, 10)->chip_pointer = 0x3000;
	fs_mtd_find(&list, 11)->chip_pointer = 0x3000;
	fs_mtd_number_chips(&list);
	CHECK(fs_mtd_find(&list, 0)->chip == 0 && fs_mtd_find(&list, 1)->chip == 1);
	CHECK(fs_mtd_find(&list, 10)->chip == 2 && fs_mtd_find(&list, 11)->chip == 2);
	CHECK(fs_mtd_find(&list, 2)->chip == 3);
	fs_mtd_free(&list);
	test_root_end();
}

/* An old kernel: no offset file; a broken file: no number. */
static void gaps(void)
{
	struct fs_mtd_list list;

	test_root_begin();
	device(0, "virtual/mtd", "a \"quoted\"\n name", "nand", "12x", "131072", "2048", NULL);
	test_root_file("/sys/class/mtd/mtdx/name", "not a device\n");
	fs_mtd_scan(&list);
	CHECK_NUMBER(list.count, 1);
	CHECK(!list.items[0].has_offset);
	CHECK_NUMBER(list.items[0].size, 12);
	fs_mtd_free(&list);
	test_root_end();
}

/* Free pages of the contiguous memory allocator are available, and not to the kernel's own rings and files. */
static void memory_of_the_kernel(void)
{
	test_root_begin();
	CHECK_NUMBER(fs_available_to_kernel_kib(), 0);
	test_root_file("/proc/meminfo", "MemTotal: 2048 kB\nMemAvailable: 1024 kB\n");
	CHECK_NUMBER(fs_available_to_kernel_kib(), 1024);
	test_root_file("/proc/meminfo", "MemAvailable:      30108 kB\nCmaTotal:   16384 kB\nCmaFree:    15696 kB\n");
	CHECK_NUMBER(fs_available_to_kernel_kib(), 30108 - 15696);
	CHECK_NUMBER(fs_available_bytes(), 30108u << 10);
	test_root_file("/proc/meminfo", "MemAvailable: 100 kB\nCmaFree: 15696 kB\n");
	CHECK_NUMBER(fs_available_to_kernel_kib(), 1);
	test_root_end();
}

/* The facts of a machine that shows nothing are nulls and empty lists, never a crash. */
static void bare_facts(void)
{
	struct fs_json json = { 0 };
	struct fs_facts facts;

	test_root_begin();
	test_root_file("/proc/self/mounts", "a\\040b /mnt\\011x ext4 rw,x=\\134 0 0\nshort\n");
	test_root_file("/sys/block/mtdblock0/size", "2048\n");
	test_root_file("/sys/block/mtdblock0/queue/read_ahead_kb", "128\n");
	test_root_file("/sys/block/mtdblock0/queue/max_sectors_kb", "1280\n");
	test_root_file("/sys/block/mtdblock0/queue/nr_requests", "64\n");
	test_root_file("/proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=123\nfull avg10=0.00\n");
	test_root_file("/proc/swaps", "Filename\tType\tSize\n/dev/none partition\t9\t0\t-2\n/a\\040b file 9 0 -3\nshort\n");
	test_root_file("/proc/sys/vm/dirty_bytes", "0\n");
	test_root_file("/proc/sys/vm/dirty_ratio", "20\n");
	test_root_file("/proc/meminfo", "MemTotal: 2048 kB\nMemAvailable: 1024 kB\n");
	test_root_file("/sys/block/ram0/size", "0\n");
	test_root_file("/sys/block/mmcblk0/size", "8\n");
	test_root_file("/sys/block/mmcblk0/device/life_time", "0x02 0x01\n");
	test_root_file("/sys/block/mmcblk0/device/pre_eol_info", "0x01\n");
	test_root_file("/sys/class/ubi/ubi0/mtd_num", "3\n");
	test_root_file("/sys/class/ubi/ubi0/max_ec", "17\n");
	test_root_file("/sys/class/ubi/ubi0_0/name", "a volume\n");
	test_root_file("/sys/class/ubi/version", "1\n");
	test_root_file("/sys/class/bdi/mtd-0/read_ahead_kb", "0\n");
	fs_facts_gather(&facts, FS_MOUNT_NEVER);
	fs_probe_points_check(&facts.tracefs, &facts.machine, &facts.points);
	fs_json_object(&json, NULL);
	fs_facts_json(&json, &facts, false);
	fs_json_object_end(&json);
	CHECK(strstr(json.out.data, "\"tracefs\":{\"path\":null,\"error\":\"this kernel has no tracefs"));
	CHECK(strstr(json.out.data, "\"mtd\":[]"));
	CHECK(strstr(json.out.data, "\"clocks\":{\"trace\":null,"));
	CHECK(strstr(json.out.data, "\"symbol\":\"nand_erase_op\",\"level\":\"nand\",\"status\":null"));
	CHECK(strstr(json.out.data,
		     "\"block\":[{\"name\":\"mmcblk0\",\"device\":null,\"size_bytes\":4096,\"read_ahead_kb\":null,"
		     "\"max_sectors_kb\":null,\"scheduler\":null,\"nr_requests\":null,\"rotational\":null,\"life_time\":\"0x02 0x01\",\"pre_eol_info\":\"0x01\",\"write_cache\":null,"
		     "\"dm_name\":null,\"dm_uuid\":null,\"loop\":null},"
		     "{\"name\":\"mtdblock0\",\"device\":null,\"size_bytes\":1048576,\"read_ahead_kb\":128,"
		     "\"max_sectors_kb\":1280,\"scheduler\":null,\"nr_requests\":64,\"rotational\":null,\"life_time\":null,\"pre_eol_info\":null,\"write_cache\":null,"
		     "\"dm_name\":null,\"dm_uuid\":null,\"loop\":null}]"));
	CHECK(strstr(json.out.data,
		     "\"ubi\":[{\"name\":\"ubi0\",\"mtd_num\":3,\"eraseblock_size\":null,\"total_eraseblocks\":null,"
		     "\"bad_peb_count\":null,\"reserved_for_bad\":null,\"max_ec\":17}]"));
	CHECK(strstr(json.out.data, "\"bdi\":[{\"name\":\"mtd-0\",\"read_ahead_kb\":0}]"));
	CHECK(strstr(json.out.data, "\"cpu_pressure\":{\"some_us\":123,\"monotonic_ns\":"));
	CHECK(strstr(json.out.data, "\"swaps\":[{\"path\":\"/dev/none\",\"device\":null},{\"path\":\"/a b\",\"device\":null}]"));
	CHECK(strstr(json.out.data, "\"vm\":{\"dirty_bytes\":0,\"dirty_ratio\":20,\"dirty_background_bytes\":null,"
				    "\"dirty_background_ratio\":null,\"available_bytes\":1048576}"));
	CHECK(strstr(json.out.data, "\"mounts\":[{\"source\":\"a b\",\"target\":\"/mnt\\tx\",\"type\":\"ext4\","
				    "\"options\":\"rw,x=\\\\\",\"device\":null,\"block_bytes\":null,\"size_bytes\":null,\"free_bytes\":null},"
				    "{\"source\":\"short\",\"target\":null,\"type\":null,\"options\":null,"
				    "\"device\":null,\"block_bytes\":null,\"size_bytes\":null,\"free_bytes\":null}]"));
	fs_json_free(&json);
	fs_facts_free(&facts);
	test_root_end();
}

void test_mtd(void)
{
	scan();
	gaps();
	bare_facts();
	memory_of_the_kernel();
}
