// SPDX-License-Identifier: GPL-2.0
/*
 * What runs at each flash operation: tell which page or block, count it, log it. Nothing here
 * allocates, formats, takes a lock or waits. Kprobes run with preemption off and never inside one
 * another on a CPU (the inner one is missed, and counted so).
 */
#include <linux/kprobes.h>
#include <linux/spi/spi-mem.h>
#include <linux/timekeeping.h>

#include "flashmon.h"

/* Of nand_prog_page_begin_op, until nand_prog_page_end_op has returned. The chip is locked in
 * between.
 */
static struct fm_call begun;

/* --- which page --------------------------------------------------------- */

/* A row address of SPI NAND (nanddev_pos_to_row(), include/linux/mtd/nand.h) as a page of the chip.
 */
static __always_inline u32 page_of_row(u32 row)
{
	const struct nand_device *nand = &fm_target.spinand->base;
	const struct nand_memory_organization *org = &nand->memorg;
	const unsigned int block_bits = nand->rowconv.eraseblock_addr_shift;
	const unsigned int lun_bits = nand->rowconv.lun_addr_shift;
	u32 page = row & ((1u << block_bits) - 1);
	u32 block = (row & ((1u << lun_bits) - 1)) >> block_bits;
	u32 lun = fm_target.spinand->cur_target * org->luns_per_target + (row >> lun_bits);

	return (lun * org->eraseblocks_per_lun + block) * org->pages_per_eraseblock + page;
}

/* The commands of SPI NAND (drivers/mtd/nand/spi/core.c, include/linux/mtd/spinand.h). */
static __always_inline bool spi_access(const struct spi_mem_op *op, struct fm_access *access)
{
	switch (op->cmd.opcode & 0xff) {
	case 0x13: /* PAGE READ to cache */
		access->kind = FLASHMON_READ;
		break;
	case 0x10: /* PROGRAM EXECUTE */
		access->kind = FLASHMON_PROGRAM;
		break;
	case 0xd8: /* BLOCK ERASE */
		access->kind = FLASHMON_ERASE;
		break;
	default:
		return false;
	}
	access->first = op->addr.val;
	return true;
}

/* The pages, or of an erase the blocks, of a call at the MTD layer; false where it is not for this
 * chip, or is refused.
 */
static __always_inline bool mtd_range(struct mtd_info *mtd, u64 from, u64 length, bool blocks,
				      struct fm_access *access)
{
	const struct fm_target *target = &fm_target;
	u64 first, last;

	if (mtd_get_master(mtd) != target->master || from > mtd->size ||
	    length > mtd->size - from || !length)
		return false;
	from = mtd_get_master_ofs(mtd, from);
	first = from >> target->master->writesize_shift;
	last = (from + length - 1) >> target->master->writesize_shift;
	if (!target->master->writesize_shift) {
		first = div_u64(from, target->page_bytes);
		last = div_u64(from + length - 1, target->page_bytes);
	}
	if (blocks && target->block_shift < 32) {
		first >>= target->block_shift;
		last >>= target->block_shift;
	} else if (blocks) {
		first = div_u64(first, target->pages_per_block);
		last = div_u64(last, target->pages_per_block);
	}
	access->first = first;
	access->count = last - first + 1;
	return true;
}

static __always_inline u64 oob_length(const struct mtd_oob_ops *ops)
{
	/* Spare bytes alone are an operation of their page. */
	return ops->datbuf && ops->len ? ops->len : 1;
}

static __always_inline u32 of_target(u32 page, u32 pages)
{
	const struct fm_target *target = &fm_target;

	return likely(!target->target_pages) ? page : page + target->chip->cur_cs * pages;
}

/*
 * An ECC function may program its page by the raw one: nand_write_page_swecc() does, the functions
 * of most drivers do not. So a raw program is a part of one where the same task is programming the
 * same page by a function that is not raw and has not returned. The chip is locked meanwhile.
 */
static struct {
	const struct task_struct *task;
	u32 page;
} programming;

static __always_inline bool is_inner_program(bool raw, u32 page)
{
	if (raw)
		return programming.task == current && programming.page == page;
	programming.task = current;
	programming.page = page;
	return false;
}

bool fm_returns_matter(enum fm_shape shape, u32 kind)
{
	return kind == FLASHMON_PROGRAM &&
	       (shape == FM_ECC_PAGE || shape == FM_ECC_WRITE_PART || shape == FM_ECC_OOB);
}

static __always_inline bool decode(enum fm_shape shape, u32 kind, struct pt_regs *regs,
				   struct fm_access *access)
{
	const struct fm_target *target = &fm_target;

	access->kind = kind;
	access->count = 1;
	if (shape == FM_SPI_OP) {
		if ((struct spi_mem *)fm_argument(regs, 0) != target->mem ||
		    !spi_access((const struct spi_mem_op *)fm_argument(regs, 1), access))
			return false;
		access->first = page_of_row(access->first);
		if (access->kind == FLASHMON_ERASE)
			access->first /= target->pages_per_block;
		return true;
	}
	if (shape == FM_MTD_OOB)
		return mtd_range((struct mtd_info *)fm_argument(regs, 0), fm_second_loff(regs),
				 oob_length((const struct mtd_oob_ops *)fm_after_second_loff(regs)),
				 false, access);
	if (shape == FM_MTD_ERASE) {
		const struct erase_info *erase = (const struct erase_info *)fm_argument(regs, 1);

		return mtd_range((struct mtd_info *)fm_argument(regs, 0), erase->addr, erase->len,
				 true, access);
	}
	if ((struct nand_chip *)fm_argument(regs, 0) != target->chip)
		return false;
	switch (shape) {
	case FM_PAGE_OP:
		access->first = of_target(fm_argument(regs, 1), target->target_pages);
		break;
	case FM_BLOCK_OP:
		access->first = of_target(fm_argument(regs, 1),
					  target->target_pages >> target->block_shift);
		break;
	case FM_ECC_OOB:
	case FM_ECC_OOB_RAW:
		access->first = of_target(fm_argument(regs, 1), target->target_pages);
		break;
	case FM_ECC_PAGE:
	case FM_ECC_PAGE_RAW:
		access->first = of_target(fm_argument(regs, 3), target->target_pages);
		break;
	case FM_ECC_READ_PART:
		access->first = of_target(fm_argument(regs, 4), target->target_pages);
		break;
	case FM_ECC_WRITE_PART:
		access->first = of_target(fm_argument(regs, 5), target->target_pages);
		break;
	default:
		return false;
	}
	if (kind == FLASHMON_PROGRAM && shape >= FM_ECC_PAGE)
		return !is_inner_program(shape == FM_ECC_PAGE_RAW || shape == FM_ECC_OOB_RAW,
					 access->first);
	return true;
}

bool fm_decode(enum fm_shape shape, u32 kind, struct pt_regs *regs, struct fm_access *access)
{
	return decode(shape, kind, regs, access);
}

/* --- counting and logging ----------------------------------------------- */

/* The thread that was met last, under the name that it had then: exec and prctl change it. */
static __always_inline bool is_met(const struct fm_ring *ring, const struct task_struct *task)
{
	const u32 *comm = (const u32 *)task->comm;
	u32 differ = 0;
	size_t i;

	BUILD_BUG_ON(offsetof(struct task_struct, comm) % sizeof(u32));
	if (READ_ONCE(ring->pid) != task->pid)
		return false;
	for (i = 0; i < ARRAY_SIZE(ring->comm); i++)
		differ |= ring->comm[i] ^ comm[i];
	return !differ;
}

static __always_inline u32 task_number(struct fm_ring *ring)
{
	return likely(is_met(ring, current)) ? ring->number : fm_task_number(ring, current);
}

static __always_inline void put(struct fm_ring *ring, u32 kind, u32 address, u64 time, bool names,
				bool extended, u32 duration)
{
	struct flashmon_event *event = ring->next;
	void *next = (void *)event +
		     (extended ? FLASHMON_EXTENDED_BYTES : FLASHMON_EVENT_BYTES);

	/* The last head is out before this entry, which it no longer covers, is written over. */
	smp_wmb();
	event->time_ns = extended ? time : ktime_get_mono_fast_ns();
	event->address = address;
	event->kind_task = kind << FLASHMON_KIND_SHIFT | (names ? task_number(ring) : 0);
	if (extended) {
		event->duration_ns = duration;
		event->reserved = 0;
	}
	ring->next = next == ring->end ? ring->entries : next;
	/* Pairs with fm_head(): whoever reads the head finds the entry whole. */
	smp_store_release(&ring->head, ring->head + 1);
}

/* One operation: false where it is outside of what is traced. */
static __always_inline bool count(u32 kind, u32 address)
{
	const struct fm_target *target = &fm_target;
	u32 block;

	if (kind == FLASHMON_ERASE) {
		block = address - target->first_block;
	} else {
		u32 page = address - target->first_page;

		block = likely(target->block_shift < 32) ? page >> target->block_shift :
							   page / target->pages_per_block;
		/* A partition's end need not be a block's: what counts is the page. */
		if (page >= target->pages)
			return false;
	}
	if (block >= target->blocks)
		return false;
	if (kind != FLASHMON_CACHED)
		atomic_inc(&fm.counts[block * 3 + kind]);
	return true;
}

static __always_inline void record_one(u32 kind, u32 address, bool extended, u64 time,
				       u32 duration)
{
	if (!count(kind, address))
		return;
	if (likely(fm.log))
		put(this_cpu_ptr(&fm_rings), kind, address, time, fm.names, extended, duration);
	if (unlikely(fm.notifying))
		fm_notify();
}

static __always_inline void record(const struct fm_access *access, bool extended, u64 time,
				   u32 duration)
{
	u32 i;

	for (i = 0; i < access->count; i++)
		record_one(access->kind, access->first + i, extended, time, duration);
}

void fm_become(enum fm_state state)
{
	const struct fm_target *target = &fm_target;
	const bool usual = state == FM_RUNNING && target->chip && !target->target_pages &&
			   target->block_shift < 32 && fm.log && fm.names && !fm.extended &&
			   !fm.notifying;
	int cpu;

	WRITE_ONCE(fm.state, state);
	/* The probes of a chip are armed before this is told, and off before it is another one. */
	for_each_possible_cpu(cpu) {
		struct fm_usual *at = &per_cpu_ptr(&fm_rings, cpu)->usual;

		at->first_page = target->first_page;
		at->pages = target->pages;
		at->block_shift = target->block_shift;
		at->counts = fm.counts;
		/* Whoever finds the chip finds the rest as it is for that chip. */
		smp_store_release(&at->chip, usual ? target->chip : NULL);
	}
}

/*
 * One handler for each shape and kind, so that nothing is decided at run time that was known when
 * the probe was placed. In the extended format the entry handler of a kretprobe keeps the call, and
 * the return handler logs it.
 */
static __always_inline int on_call(enum fm_shape shape, u32 kind, struct pt_regs *regs)
{
	struct fm_access access;

	if (READ_ONCE(fm.state) != FM_RUNNING || !decode(shape, kind, regs, &access))
		return 0;
	/* A call at the MTD layer may be many pages; the others need no loop. */
	if (shape == FM_MTD_OOB || shape == FM_MTD_ERASE)
		record(&access, false, 0, 0);
	else
		record_one(access.kind, access.first, false, 0, 0);
	return 0;
}

/* A page's command: in the usual case some seventy instructions, beside the clock's. */
static noinline int on_unusual_page(u32 kind, struct pt_regs *regs)
{
	return on_call(FM_PAGE_OP, kind, regs);
}

static __always_inline int on_page(enum fm_shape shape, u32 kind, struct pt_regs *regs)
{
	struct fm_ring *ring = this_cpu_ptr(&fm_rings);
	const struct fm_usual *usual = &ring->usual;
	const u32 page = fm_argument(regs, 1), at = page - usual->first_page;

	if (unlikely((struct nand_chip *)fm_argument(regs, 0) != READ_ONCE(usual->chip)))
		return on_unusual_page(kind, regs);
	if (unlikely(at >= usual->pages))
		return 0;
	atomic_inc(&usual->counts[(at >> usual->block_shift) * 3 + kind]);
	put(ring, kind, page, 0, true, false, 0);
	return 0;
}

static __always_inline int on_entry(enum fm_shape shape, u32 kind, struct pt_regs *regs,
				    struct kretprobe_instance *instance)
{
	struct fm_call *call = (struct fm_call *)instance->data;

	if (!fm.extended)
		return on_call(shape, kind, regs);
	if (READ_ONCE(fm.state) != FM_RUNNING || !decode(shape, kind, regs, &call->access))
		return 1;
	call->time = ktime_get_mono_fast_ns();
	return 0;
}

#define HANDLER(name, call, shape, kind)                                                          \
	static int name##_call(struct kprobe *kp, struct pt_regs *regs)                           \
	{                                                                                         \
		return call(shape, kind, regs);                                                   \
	}
#define ENTRY(name, shape, kind)                                                                  \
	static int name##_entry(struct kretprobe_instance *instance, struct pt_regs *regs)        \
	{                                                                                         \
		return on_entry(shape, kind, regs, instance);                                     \
	}

HANDLER(read_page, on_page, FM_PAGE_OP, FLASHMON_READ)
HANDLER(program_page, on_page, FM_PAGE_OP, FLASHMON_PROGRAM)
HANDLER(erase_block, on_call, FM_BLOCK_OP, FLASHMON_ERASE)
HANDLER(ecc_read, on_call, FM_ECC_PAGE, FLASHMON_READ)
HANDLER(ecc_program, on_call, FM_ECC_PAGE, FLASHMON_PROGRAM)
HANDLER(ecc_read_raw, on_call, FM_ECC_PAGE_RAW, FLASHMON_READ)
HANDLER(ecc_program_raw, on_call, FM_ECC_PAGE_RAW, FLASHMON_PROGRAM)
HANDLER(ecc_read_oob, on_call, FM_ECC_OOB, FLASHMON_READ)
HANDLER(ecc_program_oob, on_call, FM_ECC_OOB, FLASHMON_PROGRAM)
HANDLER(ecc_read_oob_raw, on_call, FM_ECC_OOB_RAW, FLASHMON_READ)
HANDLER(ecc_program_oob_raw, on_call, FM_ECC_OOB_RAW, FLASHMON_PROGRAM)
HANDLER(ecc_read_part, on_call, FM_ECC_READ_PART, FLASHMON_READ)
HANDLER(ecc_program_part, on_call, FM_ECC_WRITE_PART, FLASHMON_PROGRAM)
HANDLER(spi_op, on_call, FM_SPI_OP, FLASHMON_READ)
HANDLER(mtd_read_pages, on_call, FM_MTD_OOB, FLASHMON_READ)
HANDLER(mtd_program_pages, on_call, FM_MTD_OOB, FLASHMON_PROGRAM)
HANDLER(mtd_erase_blocks, on_call, FM_MTD_ERASE, FLASHMON_ERASE)

ENTRY(read_page, FM_PAGE_OP, FLASHMON_READ)
ENTRY(program_page, FM_PAGE_OP, FLASHMON_PROGRAM)
ENTRY(erase_block, FM_BLOCK_OP, FLASHMON_ERASE)
ENTRY(ecc_read, FM_ECC_PAGE, FLASHMON_READ)
ENTRY(ecc_program, FM_ECC_PAGE, FLASHMON_PROGRAM)
ENTRY(ecc_read_raw, FM_ECC_PAGE_RAW, FLASHMON_READ)
ENTRY(ecc_program_raw, FM_ECC_PAGE_RAW, FLASHMON_PROGRAM)
ENTRY(ecc_read_oob, FM_ECC_OOB, FLASHMON_READ)
ENTRY(ecc_program_oob, FM_ECC_OOB, FLASHMON_PROGRAM)
ENTRY(ecc_read_oob_raw, FM_ECC_OOB_RAW, FLASHMON_READ)
ENTRY(ecc_program_oob_raw, FM_ECC_OOB_RAW, FLASHMON_PROGRAM)
ENTRY(ecc_read_part, FM_ECC_READ_PART, FLASHMON_READ)
ENTRY(ecc_program_part, FM_ECC_WRITE_PART, FLASHMON_PROGRAM)
ENTRY(spi_op, FM_SPI_OP, FLASHMON_READ)
ENTRY(mtd_read_pages, FM_MTD_OOB, FLASHMON_READ)
ENTRY(mtd_program_pages, FM_MTD_OOB, FLASHMON_PROGRAM)
ENTRY(mtd_erase_blocks, FM_MTD_ERASE, FLASHMON_ERASE)

static const struct {
	enum fm_shape shape;
	u32 kind;
	kprobe_pre_handler_t handler;
	kretprobe_handler_t entry;
} handlers[] = {
	{ FM_PAGE_OP, FLASHMON_READ, read_page_call, read_page_entry },
	{ FM_PAGE_OP, FLASHMON_PROGRAM, program_page_call, program_page_entry },
	{ FM_BLOCK_OP, FLASHMON_ERASE, erase_block_call, erase_block_entry },
	{ FM_ECC_PAGE, FLASHMON_READ, ecc_read_call, ecc_read_entry },
	{ FM_ECC_PAGE, FLASHMON_PROGRAM, ecc_program_call, ecc_program_entry },
	{ FM_ECC_PAGE_RAW, FLASHMON_READ, ecc_read_raw_call, ecc_read_raw_entry },
	{ FM_ECC_PAGE_RAW, FLASHMON_PROGRAM, ecc_program_raw_call, ecc_program_raw_entry },
	{ FM_ECC_OOB, FLASHMON_READ, ecc_read_oob_call, ecc_read_oob_entry },
	{ FM_ECC_OOB, FLASHMON_PROGRAM, ecc_program_oob_call, ecc_program_oob_entry },
	{ FM_ECC_OOB_RAW, FLASHMON_READ, ecc_read_oob_raw_call, ecc_read_oob_raw_entry },
	{ FM_ECC_OOB_RAW, FLASHMON_PROGRAM, ecc_program_oob_raw_call, ecc_program_oob_raw_entry },
	{ FM_ECC_READ_PART, FLASHMON_READ, ecc_read_part_call, ecc_read_part_entry },
	{ FM_ECC_WRITE_PART, FLASHMON_PROGRAM, ecc_program_part_call, ecc_program_part_entry },
	{ FM_SPI_OP, FLASHMON_READ, spi_op_call, spi_op_entry },
	{ FM_MTD_OOB, FLASHMON_READ, mtd_read_pages_call, mtd_read_pages_entry },
	{ FM_MTD_OOB, FLASHMON_PROGRAM, mtd_program_pages_call, mtd_program_pages_entry },
	{ FM_MTD_ERASE, FLASHMON_ERASE, mtd_erase_blocks_call, mtd_erase_blocks_entry },
};

kprobe_pre_handler_t fm_handler(enum fm_shape shape, u32 kind)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(handlers); i++)
		if (handlers[i].shape == shape && handlers[i].kind == kind)
			return handlers[i].handler;
	return NULL;
}

/* nand_prog_page_begin_op sends the data; the chip programs them when nand_prog_page_end_op is
 * called.
 */
static int begin_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	if (READ_ONCE(fm.state) != FM_RUNNING ||
	    !decode(FM_PAGE_OP, FLASHMON_PROGRAM, regs, &begun.access))
		return 1;
	begun.time = ktime_get_mono_fast_ns();
	return 1;
}

static int end_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	if ((struct nand_chip *)fm_argument(regs, 0) != fm_target.chip || !begun.time)
		return 1;
	*(struct fm_call *)instance->data = begun;
	begun.time = 0;
	return 0;
}

kretprobe_handler_t fm_entry_handler(enum fm_shape shape, u32 kind)
{
	size_t i;

	if (shape == FM_PROGRAM_END)
		return kind == FLASHMON_PROGRAM ? end_entry : begin_entry;
	for (i = 0; i < ARRAY_SIZE(handlers); i++)
		if (handlers[i].shape == shape && handlers[i].kind == kind)
			return handlers[i].entry;
	return NULL;
}

int fm_return_handler(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	const struct fm_call *call = (const struct fm_call *)instance->data;
	u64 duration;

	/* The chip is still locked, whichever function this was. */
	programming.task = NULL;
	if (!fm.extended)
		return 0;
	duration = ktime_get_mono_fast_ns() - call->time;
	record(&call->access, true, call->time, min_t(u64, duration, U32_MAX));
	return 0;
}

/* --- the MTD layer: what was asked for ---------------------------------- */

static __always_inline u32 inside(const struct fm_access *access, u32 first, u32 count)
{
	u32 from = max(access->first, first),
	    to = min(access->first + access->count, first + count);

	return from < to ? to - from : 0;
}

static __always_inline int ask(enum fm_shape shape, u32 kind, u32 first, u32 count,
			       struct pt_regs *regs)
{
	const struct mtd_info *mtd = (const struct mtd_info *)fm_argument(regs, 0);
	struct fm_access access;

	if (READ_ONCE(fm.state) == FM_RUNNING && decode(shape, kind, regs, &access) &&
	    mtd->flags & MTD_WRITEABLE)
		this_cpu_ptr(&fm_rings)->asked[kind] += inside(&access, first, count);
	return 0;
}

int fm_ask_program(struct kprobe *kp, struct pt_regs *regs)
{
	return ask(FM_MTD_OOB, FLASHMON_PROGRAM, fm_target.first_page, fm_target.pages, regs);
}

int fm_ask_erase(struct kprobe *kp, struct pt_regs *regs)
{
	return ask(FM_MTD_ERASE, FLASHMON_ERASE, fm_target.first_block, fm_target.blocks, regs);
}

/*
 * A read that finds its page in the NAND core's buffer, as nand_do_read_ops() decides
 * (drivers/mtd/nand/raw/nand_base.c, the same from 5.10 to 7.2): the page is the kept one and no
 * spare bytes are wanted. A page before it that is read in part takes its place in the buffer
 * first.
 */
int fm_ask_read(struct kprobe *kp, struct pt_regs *regs)
{
	const struct mtd_oob_ops *ops = (const struct mtd_oob_ops *)fm_after_second_loff(regs);
	struct fm_access access, kept = { FLASHMON_CACHED, 0, 1 };

	if (READ_ONCE(fm.state) != FM_RUNNING || !fm_target.chip || !ops->datbuf || ops->oobbuf ||
	    !decode(FM_MTD_OOB, FLASHMON_CACHED, regs, &access) ||
	    READ_ONCE(fm_target.chip->pagecache.page) < 0)
		return 0;
	kept.first = fm_target.chip->pagecache.page;
	if (kept.first - access.first >= access.count)
		return 0;
	if (kept.first != access.first && (u32)fm_second_loff(regs) & (fm_target.page_bytes - 1))
		return 0;
	record(&kept, fm.extended, fm.extended ? ktime_get_mono_fast_ns() : 0, 0);
	return 0;
}
