// SPDX-License-Identifier: GPL-2.0
/*
 * A raw NAND chip of two targets, each with a chip select of its own, in memory: 2 x 1024 blocks of 64 pages of 2048 bytes, with
 * the kernel's software ECC. The chip counts what it is told to do: /sys/module/own_two/parameters/did has reads, programs and
 * erases of each target.
 */
#include <linux/module.h>
#include <linux/mtd/mtd.h>
#include <linux/mtd/rawnand.h>

#include "cells.h"
#include "did.h"

#define TARGETS 2

static struct target {
	struct xarray cells;
	u8 page[CELLS_BYTES];
	unsigned int column, row;
	u8 command;
} targets[TARGETS];

/* Micron's MT29F1G08, 128 MB: 2 KiB pages, 128 KiB blocks, as the NAND core reads it from the fourth byte. */
static const u8 id[] = { 0x2c, 0xf1, 0x80, 0x95 };
static struct nand_chip chip;
static struct nand_controller controller;

static int command(struct target *target, u8 opcode)
{
	target->command = opcode;
	switch (opcode) {
	case NAND_CMD_SEQIN:
		memset(target->page, 0xff, sizeof(target->page));
		break;
	case NAND_CMD_READSTART:
		did[target - targets].reads++;
		cells_read(&target->cells, target->row, target->page);
		break;
	case NAND_CMD_PAGEPROG:
		did[target - targets].programs++;
		return cells_program(&target->cells, target->row, target->page);
	case NAND_CMD_ERASE2:
		did[target - targets].erases++;
		cells_erase(&target->cells, target->row / CELLS_PAGES_PER_BLOCK);
		break;
	}
	return 0;
}

/* Two cycles of a column, two of a row (a target has 65,536 pages); of ID and erase other ones. */
static void address(struct target *target, const struct nand_op_addr_instr *instr)
{
	const u8 *cycle = instr->addrs;

	if (target->command == NAND_CMD_ERASE1) {
		target->row = cycle[0] | cycle[1] << 8;
		return;
	}
	target->column = cycle[0] | (instr->naddrs > 1 ? cycle[1] << 8 : 0);
	if (instr->naddrs > 2)
		target->row = cycle[2] | cycle[3] << 8;
}

static u8 byte(struct target *target, unsigned int at)
{
	switch (target->command) {
	case NAND_CMD_READID: /* at 0x20 it would be ONFI's, which this one has not */
		return !target->column && at < sizeof(id) ? id[at] : 0;
	case NAND_CMD_STATUS:
		return NAND_STATUS_READY | NAND_STATUS_WP;
	case NAND_CMD_READ0:
	case NAND_CMD_READSTART:
	case NAND_CMD_RNDOUTSTART:
		return target->column + at < CELLS_BYTES ? target->page[target->column + at] : 0;
	default:
		return 0;
	}
}

static int exec_op(struct nand_chip *chip, const struct nand_operation *op, bool check_only)
{
	struct target *target = &targets[op->cs];
	unsigned int i, j;
	int error = 0;

	if (check_only)
		return 0;
	for (i = 0; i < op->ninstrs && !error; i++) {
		const struct nand_op_instr *instr = &op->instrs[i];
		const unsigned int length = instr->ctx.data.len;

		switch (instr->type) {
		case NAND_OP_CMD_INSTR:
			error = command(target, instr->ctx.cmd.opcode);
			break;
		case NAND_OP_ADDR_INSTR:
			address(target, &instr->ctx.addr);
			break;
		case NAND_OP_DATA_IN_INSTR:
			for (j = 0; j < length; j++)
				((u8 *)instr->ctx.data.buf.in)[j] = byte(target, j);
			target->column += length;
			break;
		case NAND_OP_DATA_OUT_INSTR:
			if (target->column + length > CELLS_BYTES)
				return -EINVAL;
			memcpy(target->page + target->column, instr->ctx.data.buf.out, length);
			target->column += length;
			break;
		case NAND_OP_WAITRDY_INSTR:
			break;
		}
	}
	return error;
}

static int attach_chip(struct nand_chip *chip)
{
	chip->ecc.engine_type = NAND_ECC_ENGINE_TYPE_SOFT;
	chip->ecc.algo = NAND_ECC_ALGO_HAMMING;
	return 0;
}

static const struct nand_controller_ops ops = { .attach_chip = attach_chip, .exec_op = exec_op };

static int __init own_two_init(void)
{
	struct mtd_info *mtd = nand_to_mtd(&chip);
	unsigned int i;
	int error;

	for (i = 0; i < TARGETS; i++)
		xa_init(&targets[i].cells);
	nand_controller_init(&controller);
	controller.ops = &ops;
	chip.controller = &controller;
	mtd->owner = THIS_MODULE;
	mtd->name = "own_two";
	error = nand_scan(&chip, TARGETS);
	if (error)
		return error;
	error = mtd_device_register(mtd, NULL, 0);
	if (error)
		nand_cleanup(&chip);
	return error;
}

static void __exit own_two_exit(void)
{
	unsigned int i;

	WARN_ON(mtd_device_unregister(nand_to_mtd(&chip)));
	nand_cleanup(&chip);
	for (i = 0; i < TARGETS; i++)
		cells_free(&targets[i].cells);
}

module_init(own_two_init);
module_exit(own_two_exit);
MODULE_DESCRIPTION("A NAND chip of two targets in memory, for tests");
MODULE_LICENSE("GPL");
