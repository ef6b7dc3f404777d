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

atomic64_t fm_programs_asked, fm_erases_asked;

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
 * of most drivers do not. So a raw program is the inner half of one where the same task has just
 * begun to program the same page by a function that is not raw. The chip is locked meanwhile.
 */
static struct {
	const struct task_struct *task;
	u32 page;
} programming;

static __always_inline bool is_inner_program(bool raw, u32 page)
{
	if (raw && programming.task == current && programming.page == page) {
		programming.task = NULL;
		return true;
	}
	programming.task = raw ? NULL : current;
	programming.page = page;
	return false;
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

static __always_inline u32 task_number(struct fm_ring *ring)
{
	struct task_struct *task = current;
	const u32 *comm = (const u32 *)task->comm;

	BUILD_BUG_ON(offsetof(struct task_struct, comm) % sizeof(u32));
	/* The task that was met last, under the name that it had then: exec and prctl change it. */
	if (likely(READ_ONCE(ring->task) == task && ring->pid == task->pid &&
		   !((ring->comm[0] ^ comm[0]) | (ring->comm[1] ^ comm[1]) |
		     (ring->comm[2] ^ comm[2]) | (ring->comm[3] ^ comm[3]))))
		return ring->number;
	return fm_task_number(ring, task);
}

static __always_inline void put(u32 kind, u32 address, u64 time, bool extended, u32 duration)
{
	struct fm_ring *ring = this_cpu_ptr(&fm_rings);
	const u32 slot = ring->slot;
	struct flashmon_event *event;

	event = ring->entries +
		(size_t)slot * (extended ? FLASHMON_EXTENDED_BYTES : FLASHMON_EVENT_BYTES);
	/* The last head is out before this slot, whose entry it no longer covers, is written over.
	 */
	smp_wmb();
	event->time_ns = time;
	event->address = address;
	event->kind_task = kind << FLASHMON_KIND_SHIFT | (fm.names ? task_number(ring) : 0);
	if (extended) {
		event->duration_ns = duration;
		event->reserved = 0;
	}
	ring->slot = slot + 1 == ring->slots ? 0 : slot + 1;
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
		put(kind, address, extended ? time : ktime_get_mono_fast_ns(), extended, duration);
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

static __always_inline int on_entry(enum fm_shape shape, u32 kind, struct pt_regs *regs,
				    struct kretprobe_instance *instance)
{
	struct fm_call *call = (struct fm_call *)instance->data;

	if (READ_ONCE(fm.state) != FM_RUNNING || !decode(shape, kind, regs, &call->access))
		return 1;
	call->time = ktime_get_mono_fast_ns();
	return 0;
}

static int read_page(struct kprobe *kp, struct pt_regs *regs)
{
	return on_call(FM_PAGE_OP, FLASHMON_READ, regs);
}

static int read_page_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	return on_entry(FM_PAGE_OP, FLASHMON_READ, regs, instance);
}

static int program_page(struct kprobe *kp, struct pt_regs *regs)
{
	return on_call(FM_PAGE_OP, FLASHMON_PROGRAM, regs);
}

static int program_page_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	return on_entry(FM_PAGE_OP, FLASHMON_PROGRAM, regs, instance);
}

static int erase_block(struct kprobe *kp, struct pt_regs *regs)
{
	return on_call(FM_BLOCK_OP, FLASHMON_ERASE, regs);
}

static int erase_block_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	return on_entry(FM_BLOCK_OP, FLASHMON_ERASE, regs, instance);
}

static int ecc_read(struct kprobe *kp, struct pt_regs *regs)
{
	return on_call(FM_ECC_PAGE, FLASHMON_READ, regs);
}

static int ecc_read_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	return on_entry(FM_ECC_PAGE, FLASHMON_READ, regs, instance);
}

static int ecc_program(struct kprobe *kp, struct pt_regs *regs)
{
	return on_call(FM_ECC_PAGE, FLASHMON_PROGRAM, regs);
}

static int ecc_program_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	return on_entry(FM_ECC_PAGE, FLASHMON_PROGRAM, regs, instance);
}

static int ecc_read_raw(struct kprobe *kp, struct pt_regs *regs)
{
	return on_call(FM_ECC_PAGE_RAW, FLASHMON_READ, regs);
}

static int ecc_read_raw_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	return on_entry(FM_ECC_PAGE_RAW, FLASHMON_READ, regs, instance);
}

static int ecc_program_raw(struct kprobe *kp, struct pt_regs *regs)
{
	return on_call(FM_ECC_PAGE_RAW, FLASHMON_PROGRAM, regs);
}

static int ecc_program_raw_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	return on_entry(FM_ECC_PAGE_RAW, FLASHMON_PROGRAM, regs, instance);
}

static int ecc_read_oob(struct kprobe *kp, struct pt_regs *regs)
{
	return on_call(FM_ECC_OOB, FLASHMON_READ, regs);
}

static int ecc_read_oob_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	return on_entry(FM_ECC_OOB, FLASHMON_READ, regs, instance);
}

static int ecc_program_oob(struct kprobe *kp, struct pt_regs *regs)
{
	return on_call(FM_ECC_OOB, FLASHMON_PROGRAM, regs);
}

static int ecc_program_oob_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	return on_entry(FM_ECC_OOB, FLASHMON_PROGRAM, regs, instance);
}

static int ecc_read_oob_raw(struct kprobe *kp, struct pt_regs *regs)
{
	return on_call(FM_ECC_OOB_RAW, FLASHMON_READ, regs);
}

static int ecc_read_oob_raw_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	return on_entry(FM_ECC_OOB_RAW, FLASHMON_READ, regs, instance);
}

static int ecc_program_oob_raw(struct kprobe *kp, struct pt_regs *regs)
{
	return on_call(FM_ECC_OOB_RAW, FLASHMON_PROGRAM, regs);
}

static int ecc_program_oob_raw_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	return on_entry(FM_ECC_OOB_RAW, FLASHMON_PROGRAM, regs, instance);
}

static int ecc_read_part(struct kprobe *kp, struct pt_regs *regs)
{
	return on_call(FM_ECC_READ_PART, FLASHMON_READ, regs);
}

static int ecc_read_part_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	return on_entry(FM_ECC_READ_PART, FLASHMON_READ, regs, instance);
}

static int ecc_program_part(struct kprobe *kp, struct pt_regs *regs)
{
	return on_call(FM_ECC_WRITE_PART, FLASHMON_PROGRAM, regs);
}

static int ecc_program_part_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	return on_entry(FM_ECC_WRITE_PART, FLASHMON_PROGRAM, regs, instance);
}

static int spi_op(struct kprobe *kp, struct pt_regs *regs)
{
	return on_call(FM_SPI_OP, FLASHMON_READ, regs);
}

static int spi_op_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	return on_entry(FM_SPI_OP, FLASHMON_READ, regs, instance);
}

static int mtd_read_pages(struct kprobe *kp, struct pt_regs *regs)
{
	return on_call(FM_MTD_OOB, FLASHMON_READ, regs);
}

static int mtd_read_pages_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	return on_entry(FM_MTD_OOB, FLASHMON_READ, regs, instance);
}

static int mtd_program_pages(struct kprobe *kp, struct pt_regs *regs)
{
	return on_call(FM_MTD_OOB, FLASHMON_PROGRAM, regs);
}

static int mtd_program_pages_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	return on_entry(FM_MTD_OOB, FLASHMON_PROGRAM, regs, instance);
}

static int mtd_erase_blocks(struct kprobe *kp, struct pt_regs *regs)
{
	return on_call(FM_MTD_ERASE, FLASHMON_ERASE, regs);
}

static int mtd_erase_blocks_entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	return on_entry(FM_MTD_ERASE, FLASHMON_ERASE, regs, instance);
}

static const struct {
	enum fm_shape shape;
	u32 kind;
	kprobe_pre_handler_t handler;
	kretprobe_handler_t entry;
} handlers[] = {
	{ FM_PAGE_OP, FLASHMON_READ, read_page, read_page_entry },
	{ FM_PAGE_OP, FLASHMON_PROGRAM, program_page, program_page_entry },
	{ FM_BLOCK_OP, FLASHMON_ERASE, erase_block, erase_block_entry },
	{ FM_ECC_PAGE, FLASHMON_READ, ecc_read, ecc_read_entry },
	{ FM_ECC_PAGE, FLASHMON_PROGRAM, ecc_program, ecc_program_entry },
	{ FM_ECC_PAGE_RAW, FLASHMON_READ, ecc_read_raw, ecc_read_raw_entry },
	{ FM_ECC_PAGE_RAW, FLASHMON_PROGRAM, ecc_program_raw, ecc_program_raw_entry },
	{ FM_ECC_OOB, FLASHMON_READ, ecc_read_oob, ecc_read_oob_entry },
	{ FM_ECC_OOB, FLASHMON_PROGRAM, ecc_program_oob, ecc_program_oob_entry },
	{ FM_ECC_OOB_RAW, FLASHMON_READ, ecc_read_oob_raw, ecc_read_oob_raw_entry },
	{ FM_ECC_OOB_RAW, FLASHMON_PROGRAM, ecc_program_oob_raw, ecc_program_oob_raw_entry },
	{ FM_ECC_READ_PART, FLASHMON_READ, ecc_read_part, ecc_read_part_entry },
	{ FM_ECC_WRITE_PART, FLASHMON_PROGRAM, ecc_program_part, ecc_program_part_entry },
	{ FM_SPI_OP, FLASHMON_READ, spi_op, spi_op_entry },
	{ FM_MTD_OOB, FLASHMON_READ, mtd_read_pages, mtd_read_pages_entry },
	{ FM_MTD_OOB, FLASHMON_PROGRAM, mtd_program_pages, mtd_program_pages_entry },
	{ FM_MTD_ERASE, FLASHMON_ERASE, mtd_erase_blocks, mtd_erase_blocks_entry },
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
	u64 duration = ktime_get_mono_fast_ns() - call->time;

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

int fm_ask_program(struct kprobe *kp, struct pt_regs *regs)
{
	const struct mtd_info *mtd = (const struct mtd_info *)fm_argument(regs, 0);
	struct fm_access access;

	if (READ_ONCE(fm.state) == FM_RUNNING &&
	    decode(FM_MTD_OOB, FLASHMON_PROGRAM, regs, &access) && mtd->flags & MTD_WRITEABLE)
		atomic64_add(inside(&access, fm_target.first_page, fm_target.pages),
			     &fm_programs_asked);
	return 0;
}

int fm_ask_erase(struct kprobe *kp, struct pt_regs *regs)
{
	const struct mtd_info *mtd = (const struct mtd_info *)fm_argument(regs, 0);
	struct fm_access access;

	if (READ_ONCE(fm.state) == FM_RUNNING &&
	    decode(FM_MTD_ERASE, FLASHMON_ERASE, regs, &access) && mtd->flags & MTD_WRITEABLE)
		atomic64_add(inside(&access, fm_target.first_block, fm_target.blocks),
			     &fm_erases_asked);
	return 0;
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
