// SPDX-License-Identifier: GPL-2.0
/*
 * The function finder. It walks from the MTD device down, by the functions that its pointers name,
 * to the lowest ones that name one page; then it reads a page and keeps the lowest level of which
 * exactly one function was called exactly once, with that page. A symbol that is there is not a
 * symbol that is called: ten drivers of 6.1 have an ecc.read_page of their own that never calls
 * nand_read_page_op.
 *
 * Programs and erases cannot be tried without harm. They are taken at the level that was proved for
 * reads, and counted a second time at the MTD layer (fm_ask_program, fm_ask_erase):
 * /proc/flashmon_status shows both.
 */
#include <linux/kallsyms.h>
#include <linux/printk.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/spi/spi-mem.h>

#include "flashmon.h"

struct point {
	const char *symbol;
	enum fm_level level;
	enum fm_shape shape;
	u32 kind;
	void *address; /* of what only a pointer names */
	char name[48]; /* what is said of it */
	int error; /* why it cannot be probed */
	bool chosen;
	unsigned int fired, right; /* in a trial: called, and called with the page that was read */
	unsigned int order; /* of the calls in a trial, from 1 */
	bool inner; /* called by another one of its level */
	bool armed;
	bool returns; /* by a kretprobe */
	struct kretprobe probe; /* of a kprobe alone: its kp */
};

/*
 * drivers/mtd/nand/raw/nand_base.c, drivers/spi/spi-mem.c, drivers/mtd/mtdcore.c of 5.10, 6.1, 6.12
 * and 7.2: all global, all with these arguments. Those without a symbol are struct nand_ecc_ctrl's.
 */
static struct point points[] = {
	{ "nand_read_page_op", FM_COMMAND, FM_PAGE_OP, FLASHMON_READ },
	{ "nand_prog_page_op", FM_COMMAND, FM_PAGE_OP, FLASHMON_PROGRAM },
	{ "nand_prog_page_begin_op", FM_COMMAND, FM_PAGE_OP, FLASHMON_PROGRAM },
	{ "nand_erase_op", FM_COMMAND, FM_BLOCK_OP, FLASHMON_ERASE },
#define FIRST_ECC 4
	{ NULL, FM_ECC, FM_ECC_PAGE, FLASHMON_READ },
	{ NULL, FM_ECC, FM_ECC_PAGE_RAW, FLASHMON_READ },
	{ NULL, FM_ECC, FM_ECC_READ_PART, FLASHMON_READ },
	{ NULL, FM_ECC, FM_ECC_OOB, FLASHMON_READ },
	{ NULL, FM_ECC, FM_ECC_OOB_RAW, FLASHMON_READ },
	{ NULL, FM_ECC, FM_ECC_PAGE, FLASHMON_PROGRAM },
	{ NULL, FM_ECC, FM_ECC_PAGE_RAW, FLASHMON_PROGRAM },
	{ NULL, FM_ECC, FM_ECC_WRITE_PART, FLASHMON_PROGRAM },
	{ NULL, FM_ECC, FM_ECC_OOB, FLASHMON_PROGRAM },
	{ NULL, FM_ECC, FM_ECC_OOB_RAW, FLASHMON_PROGRAM },
#define END_ECC 14
#define ECC_READS 5
	{ "spi_mem_exec_op", FM_SPI_MEM, FM_SPI_OP, FLASHMON_READ },
	{ "mtd_read_oob", FM_MTD, FM_MTD_OOB, FLASHMON_READ },
	{ "mtd_write_oob", FM_MTD, FM_MTD_OOB, FLASHMON_PROGRAM },
	{ "mtd_erase", FM_MTD, FM_MTD_ERASE, FLASHMON_ERASE },
	/* Of the extended format alone: its return ends what nand_prog_page_begin_op began. */
	{ "nand_prog_page_end_op", FM_LEVELS, FM_PROGRAM_END, FLASHMON_PROGRAM },
};

/* Beside the chosen ones. */
static struct kprobe ask_program = { .symbol_name = "mtd_write_oob",
				     .pre_handler = fm_ask_program };
static struct kprobe ask_erase = { .symbol_name = "mtd_erase", .pre_handler = fm_ask_erase };
static struct kprobe ask_read = { .symbol_name = "mtd_read_oob", .pre_handler = fm_ask_read };
static struct kprobe *const asks[] = { &ask_program, &ask_erase, &ask_read };
static bool asking[ARRAY_SIZE(asks)];
static unsigned long misses_before;

static const char *const level_names[] = { "command", "ecc", "spi-mem", "mtd" };
static const char *const kind_names[] = { "read", "program", "erase" };
static const char *const loses[] = {
	"nothing that is known",
	"pages that are read or programmed without ECC, where the driver's own functions use the same; what the driver reads by itself",
	"nothing that is known",
	"what the NAND core does by itself (bad-block tables, retries, parts of a page) is not seen; one call's events have one time",
};

/* --- probes --------------------------------------------------------------- */

static void take(struct point *point, void *address)
{
	point->address = address;
	memset(&point->probe, 0, sizeof(point->probe));
	if (address)
		point->probe.kp.addr = address;
	else
		point->probe.kp.symbol_name = point->symbol;
}

static void name_point(struct point *point)
{
	char name[KSYM_SYMBOL_LEN];

	if (point->symbol) {
		strscpy(point->name, point->symbol, sizeof(point->name));
		return;
	}
	point->name[0] = '\0';
	if (point->address) {
		sprint_symbol_no_offset(name, (unsigned long)point->address);
		/* Of a module's function its name follows: "name [module]". */
		name[strcspn(name, " ")] = '\0';
		strscpy(point->name, name, sizeof(point->name));
	}
}

/* --- the walk --------------------------------------------------------------- */

enum core { RAW_NAND, SPI_NAND, OTHER };

/* Whose function reads this device. Static ones have their names in kallsyms too; compilers add a
 * part after a dot.
 */
static enum core core_of(const struct mtd_info *master)
{
	char name[KSYM_SYMBOL_LEN];

	if (!master->_read_oob)
		return OTHER;
	sprint_symbol_no_offset(name, (unsigned long)master->_read_oob);
	name[strcspn(name, ". ")] = '\0';
	if (!strcmp(name, "nand_read_oob"))
		return RAW_NAND;
	return !strcmp(name, "spinand_mtd_read") ? SPI_NAND : OTHER;
}

static void walk(const struct fm_target *target, enum core core)
{
	size_t i, j;

	for (i = 0; i < ARRAY_SIZE(points); i++) {
		take(&points[i], NULL);
		points[i].chosen = false;
		points[i].inner = false;
		points[i].armed = false;
		points[i].error = 0;
	}
	if (core == RAW_NAND) {
		const struct nand_ecc_ctrl *ecc = &target->chip->ecc;
		void *const functions[END_ECC - FIRST_ECC] = {
			ecc->read_page,	     ecc->read_page_raw, ecc->read_subpage,
			ecc->read_oob,	     ecc->read_oob_raw,	 ecc->write_page,
			ecc->write_page_raw, ecc->write_subpage, ecc->write_oob,
			ecc->write_oob_raw,
		};

		for (i = FIRST_ECC; i < END_ECC; i++) {
			void *function = functions[i - FIRST_ECC];

			/* Two pointers may lead to one function. */
			for (j = FIRST_ECC; j < i; j++)
				if (points[j].address == function)
					function = NULL;
			take(&points[i], function);
		}
	}
	for (i = 0; i < ARRAY_SIZE(points); i++) {
		name_point(&points[i]);
		if ((i >= FIRST_ECC && i < END_ECC && !points[i].address) ||
		    (core != RAW_NAND && points[i].level <= FM_ECC) ||
		    (core != SPI_NAND && points[i].level == FM_SPI_MEM))
			points[i].error = -ENODEV;
	}
}

/* --- the trial ------------------------------------------------------------------ */

static struct {
	struct task_struct *task;
	u32 page;
	unsigned int calls;
} trial;

/* Of another task it says nothing: a file system may be at work. */
static int try_handler(struct kprobe *kp, struct pt_regs *regs)
{
	struct point *point = container_of(kp, struct point, probe.kp);
	struct fm_access access;

	if (READ_ONCE(trial.task) != current)
		return 0;
	if (point->shape == FM_SPI_OP) {
		const struct spi_mem_op *op = (const struct spi_mem_op *)fm_argument(regs, 1);

		/* Whose memory it is, this call tells. */
		if ((op->cmd.opcode & 0xff) != 0x13)
			return 0;
		if (!fm_target.mem)
			fm_target.mem = (struct spi_mem *)fm_argument(regs, 0);
	}
	if (!fm_decode(point->shape, point->kind, regs, &access))
		return 0;
	point->fired++;
	point->order = ++trial.calls;
	if (access.first == trial.page && access.count == 1)
		point->right++;
	return 0;
}

static bool good(struct mtd_info *mtd, u64 at)
{
	return mtd_block_isbad(mtd, at) <= 0;
}

/* Reads one page, and sees what was called. */
static void try_page(struct fm_target *target, struct mtd_info *mtd, u64 at, u8 *page)
{
	size_t i, got;

	for (i = 0; i < ARRAY_SIZE(points); i++) {
		points[i].fired = 0;
		points[i].right = 0;
	}
	trial.calls = 0;
	trial.page = div_u64(mtd_get_master_ofs(mtd, at), target->page_bytes);
	WRITE_ONCE(trial.task, current);
	/* An error of the flash is none of the trial's: the command was sent. */
	if (mtd_read(mtd, at, target->page_bytes, &got, page) == -EINVAL)
		pr_debug("flashmon: a page could not be read\n");
	WRITE_ONCE(trial.task, NULL);
}

/*
 * ECC functions call one another: nand_read_page_swecc() reads by ecc.read_page_raw. The outermost
 * one stands for the page; what it called is not probed. Programs cannot be tried: see
 * is_inner_program() in probes.c.
 */
static bool proved_ecc(void)
{
	const struct point *first = NULL;
	size_t i;

	for (i = FIRST_ECC; i < END_ECC; i++)
		if (points[i].fired && (!first || points[i].order < first->order))
			first = &points[i];
	if (!first || first->fired != 1 || first->right != 1)
		return false;
	for (i = FIRST_ECC; i < FIRST_ECC + ECC_READS; i++)
		points[i].inner = points[i].fired && &points[i] != first;
	return true;
}

static int proved(int wanted)
{
	int level;
	size_t i;

	for (level = 0; level < FM_LEVELS; level++) {
		unsigned int fired = 0, right = 0;

		if (wanted >= 0 && level != wanted)
			continue;
		if (level == FM_ECC) {
			if (proved_ecc())
				return level;
			continue;
		}
		for (i = 0; i < ARRAY_SIZE(points); i++) {
			if (points[i].level != level || points[i].kind != FLASHMON_READ)
				continue;
			fired += points[i].fired;
			right += points[i].right;
		}
		if (fired == 1 && right == 1)
			return level;
	}
	return -1;
}

/*
 * The NAND core keeps the page that it read last in part and answers from it without a command, so
 * silence is believed only after four pages.
 */
static int try_levels(struct fm_target *target, struct mtd_info *mtd, int wanted)
{
	const u64 block_bytes = (u64)target->page_bytes * target->pages_per_block;
	const u32 step = target->pages_per_block > 8 ? target->pages_per_block / 4 : 1;
	int level = -1, best = -1, i;
	u64 block = 0;
	u8 *page;

	while (block < mtd->size && !good(mtd, block))
		block += block_bytes;
	if (block >= mtd->size) {
		pr_err("flashmon: mtd%d: every block is bad: nothing can be tried\n", mtd->index);
		return -EIO;
	}
	page = kmalloc(target->page_bytes, GFP_KERNEL);
	if (!page)
		return -ENOMEM;
	for (i = 0; i < 4 && level != 0; i++) {
		try_page(target, mtd,
			 block + (u64)(i * step % target->pages_per_block) * target->page_bytes,
			 page);
		level = proved(wanted);
		if (level >= 0 && (best < 0 || level < best))
			best = level;
	}
	kfree(page);
	return best;
}

/* Chooses among the points that can be probed. */
static void choose(int level)
{
	bool erase = false;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(points); i++) {
		struct point *point = &points[i];

		point->chosen = !point->error && !point->inner && point->level == level;
		/* ECC does not erase: the command's function is called whatever the driver is. */
		if (level == FM_ECC && point->shape == FM_BLOCK_OP && !point->error)
			point->chosen = true;
		erase |= point->chosen &&
			 (point->kind == FLASHMON_ERASE || point->shape == FM_SPI_OP);
	}
	for (i = 0; i < ARRAY_SIZE(points); i++) {
		if (points[i].shape == FM_MTD_ERASE && !erase)
			points[i].chosen = !points[i].error;
		if (points[i].shape == FM_PROGRAM_END)
			points[i].chosen = fm.extended && level == FM_COMMAND && !points[i].error;
	}
}

static int wanted_level(void)
{
	return fm_level ? match_string(level_names, ARRAY_SIZE(level_names), fm_level) : -1;
}

int fm_find(struct fm_target *target)
{
	struct mtd_info *mtd = target->mtd;
	enum core core = core_of(target->master);
	int level, wanted = -1;
	size_t i;

	if (fm_level && strcmp(fm_level, "auto")) {
		wanted = wanted_level();
		if (wanted < 0) {
			pr_err("flashmon: level=%s: no such level; auto, command, ecc, spi-mem or mtd\n",
			       fm_level);
			return -EINVAL;
		}
	}
	target->chip = core == RAW_NAND ? mtd_to_nand(target->master) : NULL;
	target->spinand = core == SPI_NAND ? mtd_to_spinand(target->master) : NULL;
	target->mem = NULL;
	if (target->chip && nanddev_ntargets(&target->chip->base) > 1)
		target->target_pages = target->chip->pagemask + 1;
	fm_target = *target;
	walk(&fm_target, core);
	for (i = 0; i < ARRAY_SIZE(points); i++) {
		struct point *point = &points[i];

		if (point->error)
			continue;
		point->probe.kp.pre_handler = try_handler;
		point->error = register_kprobe(&point->probe.kp);
		point->armed = !point->error;
	}
	level = try_levels(&fm_target, mtd, wanted);
	for (i = 0; i < ARRAY_SIZE(points); i++)
		if (points[i].armed)
			unregister_kprobe(&points[i].probe.kp);
	for (i = 0; i < ARRAY_SIZE(points); i++)
		points[i].armed = false;
	if (level < 0) {
		if (level == -1)
			pr_err("flashmon: mtd%d: reading a page calls none of the functions that are known%s%s\n",
			       mtd->index, wanted >= 0 ? " at the level " : "; report this driver",
			       wanted >= 0 ? fm_level : "");
		return level == -1 ? -EOPNOTSUPP : level;
	}
	choose(level);
	for (i = 0; i < ARRAY_SIZE(points); i++)
		if (points[i].chosen)
			pr_info("flashmon: %s by %s (%s%s)\n",
				points[i].shape == FM_SPI_OP ? "read, program, erase" :
							       kind_names[points[i].kind],
				points[i].name,
				points[i].level < FM_LEVELS ? level_names[points[i].level] :
							      "duration",
				points[i].kind == FLASHMON_READ ? ", tried" : "");
	pr_info("flashmon: what this loses: %s\n", loses[level]);
	return 0;
}

/* --- arming --------------------------------------------------------------------- */

/* Calls of one function that are under way at once: a chip is locked, but at the MTD layer tasks
 * wait inside.
 */
#define CALLS 64

static int arm_point(struct point *point)
{
	void *address = point->address;

	take(point, address);
	point->returns = fm.extended || fm_returns_matter(point->shape, point->kind);
	if (!point->returns) {
		point->probe.kp.pre_handler = fm_handler(point->shape, point->kind);
		return register_kprobe(&point->probe.kp);
	}
	point->probe.entry_handler = fm_entry_handler(point->shape, point->kind);
	if (point->symbol && !strcmp(point->symbol, "nand_prog_page_begin_op"))
		point->probe.entry_handler = fm_entry_handler(FM_PROGRAM_END, FLASHMON_READ);
	point->probe.handler = fm_return_handler;
	point->probe.data_size = sizeof(struct fm_call);
	point->probe.maxactive = CALLS;
	return register_kretprobe(&point->probe);
}

int fm_arm(void)
{
	bool mtd_level = false;
	size_t i;
	int error;

	for (i = 0; i < ARRAY_SIZE(points); i++) {
		if (!points[i].chosen)
			continue;
		error = arm_point(&points[i]);
		points[i].armed = !error;
		if (error) {
			pr_err("flashmon: %s cannot be probed: %d\n", points[i].name, error);
			fm_disarm();
			return error;
		}
		mtd_level |= points[i].shape == FM_MTD_OOB;
	}
	for (i = 0; i < ARRAY_SIZE(asks); i++) {
		const char *symbol = asks[i]->symbol_name;
		kprobe_pre_handler_t handler = asks[i]->pre_handler;

		if ((asks[i] == &ask_read && !fm.cache_hits) || mtd_level)
			continue;
		memset(asks[i], 0, sizeof(*asks[i]));
		asks[i]->symbol_name = symbol;
		asks[i]->pre_handler = handler;
		asking[i] = !register_kprobe(asks[i]);
		if (!asking[i])
			pr_notice("flashmon: %s cannot be probed: nothing is counted there\n",
				  symbol);
	}
	misses_before = 0;
	return 0;
}

void fm_disarm(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(points); i++) {
		if (points[i].armed && points[i].returns)
			unregister_kretprobe(&points[i].probe);
		else if (points[i].armed)
			unregister_kprobe(&points[i].probe.kp);
		points[i].armed = false;
	}
	for (i = 0; i < ARRAY_SIZE(asks); i++) {
		if (asking[i])
			unregister_kprobe(asks[i]);
		asking[i] = false;
	}
}

/* Probes that are not enabled cost nothing. */
int fm_enable(bool on)
{
	int error = 0;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(points) && !error; i++)
		if (points[i].armed)
			error = on ? enable_kprobe(&points[i].probe.kp) :
				     disable_kprobe(&points[i].probe.kp);
	for (i = 0; i < ARRAY_SIZE(asks) && !error; i++)
		if (asking[i])
			error = on ? enable_kprobe(asks[i]) : disable_kprobe(asks[i]);
	return error;
}

static unsigned long all_misses(void)
{
	unsigned long misses = 0;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(points); i++)
		if (points[i].armed)
			misses += fm_kretprobe_missed(&points[i].probe);
	return misses;
}

unsigned long fm_misses(void)
{
	return all_misses() - misses_before;
}

void fm_misses_forget(void)
{
	misses_before = all_misses();
}

void fm_show_points(struct seq_file *m)
{
	const char *lost = NULL;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(points); i++) {
		const struct point *point = &points[i];

		if (!point->chosen)
			continue;
		if (point->level == FM_LEVELS) {
			seq_printf(m, "program_end: %s\n", point->name);
			continue;
		}
		seq_printf(m, "%s: %s %s %s\n",
			   point->shape == FM_SPI_OP ? "all" : kind_names[point->kind], point->name,
			   level_names[point->level],
			   point->kind == FLASHMON_READ ? "tried" : "by-level");
		if (point->kind == FLASHMON_READ)
			lost = loses[point->level];
	}
	if (lost)
		seq_printf(m, "loses: %s\n", lost);
}
