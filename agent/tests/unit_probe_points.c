// SPDX-License-Identifier: Apache-2.0
#include "probe_points.h"
#include "test.h"
#include "util.h"

static const struct fs_mtd two[] = {
	{ .index = 0, .type = "nand", .size = 1 << 20, .erasesize = 131072, .writesize = 2048, .parent = -1,
	  .chip_pointer = 0xc1000000, .mtd_pointer = 0xc2000000, .has_first_page = true, .first_page = 0 },
	{ .index = 1, .type = "nand", .size = 1 << 20, .erasesize = 131072, .writesize = 2048, .parent = -1,
	  .chip_pointer = 0xc1000000, .mtd_pointer = 0xc2000100, .has_first_page = true, .first_page = 512 },
	{ .index = 2, .type = "nor", .size = 1 << 20, .erasesize = 65536, .writesize = 1, .parent = -1 },
};

/* The trace text of 6.1. */
static const char trace[] =
	"# tracer: nop\n#\n# : try_0: (comment)\n"
	"  flashscope-agen-72      [000] .....     3.580000: try_2: (mtd_read_oob+0x0/0x1f8) mtd=0xc1cec400 address=0 address_high=0 length=2048\n"
	"  flashscope-agen-72      [000] .....     3.580010: try_0: (nand_read_page_op+0x0/0x200) page=16384 chip=0xc30d4040\n"
	"  flashscope-agen-72      [000] .....     3.580020: try_0: (nand_read_page_op+0x0/0x200) page=7 chip=0xc30d5040\n";

static void machines(void)
{
	CHECK(fs_machine_of("x86_64", 8).registers == FS_REGISTERS_X86_64);
	CHECK(fs_machine_of("i686", 8).registers == FS_REGISTERS_X86_64);
	CHECK(fs_machine_of("i686", 4).registers == FS_REGISTERS_ARGN);
	CHECK(fs_machine_of("armv7l", 4).registers == FS_REGISTERS_ARM32);
	CHECK(fs_machine_of("armv8l", 8).registers == FS_REGISTERS_ARM64);
	CHECK(fs_machine_of("aarch64", 8).registers == FS_REGISTERS_ARM64);
	CHECK(fs_machine_of("riscv64", 8).registers == FS_REGISTERS_ARGN);
}

static void counting(void)
{
	struct fs_trial_values values = { 0 };

	CHECK_NUMBER(fs_trace_count(trace, "try_0", &values), 2);
	CHECK_NUMBER(fs_trace_count(trace, "try_2", &values), 1);
	CHECK_NUMBER(fs_trace_count(trace, "try_1", &values), 0);
	CHECK(values.has_page);
	CHECK_NUMBER(values.page, 16384);
	CHECK_NUMBER(values.chip, 0xc30d4040u);
	CHECK_NUMBER(values.mtd, 0xc1cec400u);
	CHECK_NUMBER(fs_trace_count("", "try_0", &values), 0);
	CHECK_NUMBER(fs_trace_count(": try_0: (", "try_0", &values), 1);
}

static void choosing(void)
{
	struct fs_trial trial = { .chosen = -1 };

	CHECK(fs_trial_choose(&trial) == -1);
	trial.once[2] = true;
	CHECK(fs_trial_choose(&trial) == 2); /* mtd_read_oob: the fallback */
	trial.once[1] = true;
	CHECK(fs_trial_choose(&trial) == 2); /* spi_mem_exec_op is tried, not recorded */
	trial.once[0] = true;
	CHECK(fs_trial_choose(&trial) == 0);
}

static const struct fs_probe *probe_of(const struct fs_probes *probes, const char *symbol,
				       const char *event)
{
	for (size_t i = 0; i < probes->count; i++)
		if (!strcmp(probes->items[i].symbol, symbol) && !strcmp(probes->items[i].event, event))
			return &probes->items[i];
	fprintf(stderr, "no probe %s %s\n", symbol, event);
	exit(1);
}

struct setting {
	struct fs_machine machine;
	struct fs_probe_points points;
	struct fs_trial trials[2];
	struct fs_mtd devices[3];
	struct fs_mtd_list list;
	struct fs_details details;
	int wanted[4];
	size_t wanted_count;
	struct fs_probes probes;
	char error[256];
};

static void set(struct setting *s, const char *machine, uint8_t long_size)
{
	memset(s, 0, sizeof(*s));
	s->machine = fs_machine_of(machine, long_size);
	memcpy(s->devices, two, sizeof(two));
	s->list = (struct fs_mtd_list){ s->devices, 3 };
	for (size_t i = 0; i < FS_CANDIDATES; i++)
		s->points.status[i] = FS_POINT_PRESENT;
	s->trials[0] = (struct fs_trial){ .mtd = 0, .pages = 1, .chosen = 0 };
	s->trials[1] = (struct fs_trial){ .mtd = 1, .pages = 1, .chosen = 0 };
	s->points.trials = s->trials;
	s->points.trial_count = 2;
}

static int plan(struct setting *s)
{
	return fs_probes_plan(&s->machine, &s->points, &s->list, s->wanted, s->wanted_count, s->details,
			      "g", &s->probes, s->error, sizeof(s->error));
}

static void definitions(void)
{
	static const struct {
		const char *machine;
		uint8_t long_size;
		const char *read, *read_detailed, *write, *erase;
	} table[] = {
		{ "armv7l", 4, "p:g/nand_read nand_read_page_op page=%r1:u32",
		  "p:g/nand_read nand_read_page_op page=%r1:u32 chip=%r0:x32 offset=%r2:u32 length=$stack0:u32",
		  "p:g/mtd_write mtd_write_oob mtd=%r0:x32 address=%r2:u32 address_high=%r3:u32 length=+4($stack0):u32",
		  "p:g/mtd_erase mtd_erase mtd=%r0:x32 address=+0(%r1):u64 length=+8(%r1):u64" },
		{ "aarch64", 8, "p:g/nand_read nand_read_page_op page=%x1:u32",
		  "p:g/nand_read nand_read_page_op page=%x1:u32 chip=%x0:x64 offset=%x2:u32 length=%x4:u32",
		  "p:g/mtd_write mtd_write_oob mtd=%x0:x64 address=%x1:u64 length=+8(%x2):u64",
		  "p:g/mtd_erase mtd_erase mtd=%x0:x64 address=+0(%x1):u64 length=+8(%x1):u64" },
		{ "x86_64", 8, "p:g/nand_read nand_read_page_op page=%si:u32",
		  "p:g/nand_read nand_read_page_op page=%si:u32 chip=%di:x64 offset=%dx:u32 length=%r8:u32",
		  "p:g/mtd_write mtd_write_oob mtd=%di:x64 address=%si:u64 length=+8(%dx):u64",
		  "p:g/mtd_erase mtd_erase mtd=%di:x64 address=+0(%si):u64 length=+8(%si):u64" },
		{ "riscv64", 8, "p:g/nand_read nand_read_page_op page=$arg2:u32",
		  "p:g/nand_read nand_read_page_op page=$arg2:u32 chip=$arg1:x64 offset=$arg3:u32 length=$arg5:u32",
		  "p:g/mtd_write mtd_write_oob mtd=$arg1:x64 address=$arg2:u64 length=+8($arg3):u64",
		  "p:g/mtd_erase mtd_erase mtd=$arg1:x64 address=+0($arg2):u64 length=+8($arg2):u64" },
	};
	struct setting s;

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		set(&s, table[i].machine, table[i].long_size);
		CHECK(!plan(&s));
		CHECK_NUMBER(s.probes.count, 6);
		CHECK(!s.probes.chip);
		CHECK_TEXT(probe_of(&s.probes, "nand_read_page_op", "nand_read")->definition, table[i].read);
		CHECK(!probe_of(&s.probes, "nand_read_page_op", "nand_read")->filter);
		CHECK_TEXT(probe_of(&s.probes, "mtd_write_oob", "mtd_write")->definition, table[i].write);
		CHECK_TEXT(probe_of(&s.probes, "mtd_erase", "mtd_erase")->definition, table[i].erase);
		CHECK_TEXT(probe_of(&s.probes, "mtd_erase", "mtd_erase")->filter,
			   "(mtd == 0xc2000000) || (mtd == 0xc2000100)");
		fs_probes_free(&s.probes);
		s.details = (struct fs_details){ .offset = true, .chip = true, .duration = true };
		CHECK(!plan(&s));
		CHECK_NUMBER(s.probes.count, 10);
		CHECK_TEXT(probe_of(&s.probes, "nand_read_page_op", "nand_read")->definition,
			   table[i].read_detailed);
		CHECK_TEXT(probe_of(&s.probes, "nand_read_page_op", "nand_read_done")->definition,
			   "r64:g/nand_read_done nand_read_page_op ret=$retval:s32");
		CHECK_TEXT(probe_of(&s.probes, "nand_prog_page_end_op", "nand_program_done")->definition,
			   "r64:g/nand_program_done nand_prog_page_end_op ret=$retval:s32");
		fs_probes_free(&s.probes);
	}
}

static void filters(void)
{
	struct setting s;

	set(&s, "armv7l", 4);
	s.wanted[0] = 1;
	s.wanted_count = 1;
	CHECK(!plan(&s));
	CHECK_TEXT(probe_of(&s.probes, "nand_read_page_op", "nand_read")->filter,
		   "(page >= 512 && page <= 1023)");
	CHECK_TEXT(probe_of(&s.probes, "nand_erase_op", "nand_erase")->filter,
		   "(block >= 8 && block <= 15)");
	CHECK_TEXT(probe_of(&s.probes, "mtd_erase", "mtd_erase")->filter, "(mtd == 0xc2000100)");
	fs_probes_free(&s.probes);

	/* two chips: their page numbers overlap, so the pointer is recorded and filtered by */
	s.devices[1].chip_pointer = 0xc1000400;
	s.devices[1].first_page = 0;
	CHECK(!plan(&s));
	CHECK(s.probes.chip);
	CHECK_TEXT(probe_of(&s.probes, "nand_prog_page_op", "nand_program")->definition,
		   "p:g/nand_program nand_prog_page_op page=%r1:u32 chip=%r0:x32");
	CHECK_TEXT(probe_of(&s.probes, "nand_prog_page_op", "nand_program")->filter,
		   "(page >= 0 && page <= 511 && chip == 0xc1000400)");
	fs_probes_free(&s.probes);

	/* one device only at the mtd level */
	set(&s, "armv7l", 4);
	s.trials[1].chosen = 2;
	CHECK(!plan(&s));
	CHECK_TEXT(probe_of(&s.probes, "mtd_read_oob", "mtd_read")->filter, "(mtd == 0xc2000100)");
	CHECK(probe_of(&s.probes, "mtd_read_oob", "mtd_read")->loses);
	fs_probes_free(&s.probes);
}

static void refusals(void)
{
	struct setting s;

	set(&s, "armv7l", 4);
	s.trials[1].chosen = -1;
	CHECK(plan(&s));
	CHECK(strstr(s.error, "mtd1: no probe point sees its reads"));
	s.wanted_count = 1; /* mtd0 alone is fine */
	CHECK(!plan(&s));
	fs_probes_free(&s.probes);
	s.wanted[0] = 2;
	CHECK(plan(&s));
	CHECK(strstr(s.error, "mtd2: is nor"));
	s.wanted[0] = 7;
	CHECK(plan(&s));
	CHECK(strstr(s.error, "mtd7: no such device"));
	set(&s, "armv7l", 4);
	snprintf(s.trials[0].error, sizeof(s.trials[0].error), "every block is bad");
	CHECK(plan(&s));
	CHECK(strstr(s.error, "mtd0: every block is bad; "));
	set(&s, "armv7l", 4);
	s.points.trial_count = 0;
	CHECK(plan(&s));
	CHECK(strstr(s.error, "NAND"));
}

void test_points(void)
{
	machines();
	counting();
	choosing();
	definitions();
	filters();
	refusals();
}
