// SPDX-License-Identifier: GPL-2.0
/*
 * An SPI controller with a SPI NAND chip of two dies on it, in memory: Winbond's W25M02GV, 2 x 1024 blocks of 64 pages of 2048
 * bytes (drivers/mtd/nand/spi/winbond.c of Linux 6.1; its datasheet's commands). The kernel's own spi-nand driver binds to it.
 * The chip counts what it is told to do: /sys/module/own_spi/parameters/did has reads, programs and erases of each die.
 */
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/spi/spi-mem.h>
#include <linux/spi/spi.h>

#include "cells.h"
#include "did.h"

#define DIES 2
#define DIE_BLOCKS 1024

static struct {
	struct xarray cells;
	u8 cache[CELLS_BYTES];
	u8 features[256];
} dies[DIES];

static unsigned int selected;
static struct platform_device *parent;
static struct spi_controller *controller;
static const u8 id[] = { 0xef, 0xab, 0x21 };

static int exec_op(struct spi_mem *mem, const struct spi_mem_op *op)
{
	const unsigned int row = op->addr.val, size = op->data.nbytes;
	u8 *in = op->data.buf.in;
	const u8 *out = op->data.buf.out;
	unsigned int i;

	switch (op->cmd.opcode) {
	case 0xff: /* reset */
	case 0x06: /* write enable */
	case 0x04:
		return 0;
	case 0xc2: /* select a die */
		selected = out[0] % DIES;
		return 0;
	case 0x9f: /* ID, after a dummy byte */
		for (i = 0; i < size; i++)
			in[i] = op->addr.nbytes + op->dummy.nbytes ? (i < 3 ? id[i] : 0xff) : (i && i < 4 ? id[i - 1] : 0xff);
		return 0;
	case 0x0f: /* features; 0xc0, the status, stays 0: ready, no failure, no bit flipped */
		in[0] = dies[selected].features[op->addr.val & 0xff];
		return 0;
	case 0x1f:
		if ((op->addr.val & 0xff) != 0xc0)
			dies[selected].features[op->addr.val & 0xff] = out[0];
		return 0;
	case 0x13: /* a page into the cache */
		did[selected].reads++;
		cells_read(&dies[selected].cells, row, dies[selected].cache);
		return 0;
	case 0x03: /* out of the cache */
	case 0x0b:
		if (op->addr.val + size > CELLS_BYTES)
			return -EINVAL;
		memcpy(in, dies[selected].cache + op->addr.val, size);
		return 0;
	case 0x02: /* into the cache */
		memset(dies[selected].cache, 0xff, CELLS_BYTES);
		fallthrough;
	case 0x84:
		if (op->addr.val + size > CELLS_BYTES)
			return -EINVAL;
		memcpy(dies[selected].cache + op->addr.val, out, size);
		return 0;
	case 0x10: /* program */
		did[selected].programs++;
		return cells_program(&dies[selected].cells, row, dies[selected].cache);
	case 0xd8: /* erase; the row is the block's first page */
		did[selected].erases++;
		cells_erase(&dies[selected].cells, row / CELLS_PAGES_PER_BLOCK);
		return 0;
	default:
		pr_err("own_spi: command %02x is not known\n", op->cmd.opcode);
		return -EOPNOTSUPP;
	}
}

static const struct spi_controller_mem_ops mem_ops = { .exec_op = exec_op };

static int __init own_spi_init(void)
{
	struct spi_board_info chip = { .modalias = "spi-nand", .max_speed_hz = 50000000 };
	unsigned int i;
	int error;

	for (i = 0; i < DIES; i++)
		xa_init(&dies[i].cells);
	parent = platform_device_register_simple("flashmon-spi", PLATFORM_DEVID_NONE, NULL, 0);
	if (IS_ERR(parent))
		return PTR_ERR(parent);
	controller = __spi_alloc_controller(&parent->dev, 0, false);
	if (!controller) {
		error = -ENOMEM;
		goto no_controller;
	}
	controller->bus_num = -1;
	controller->num_chipselect = 1;
	controller->mem_ops = &mem_ops;
	error = spi_register_controller(controller);
	if (error) {
		spi_controller_put(controller);
		goto no_controller;
	}
	if (spi_new_device(controller, &chip))
		return 0;
	error = -ENODEV;
	spi_unregister_controller(controller);
no_controller:
	platform_device_unregister(parent);
	return error;
}

static void __exit own_spi_exit(void)
{
	unsigned int i;

	spi_unregister_controller(controller);
	platform_device_unregister(parent);
	for (i = 0; i < DIES; i++)
		cells_free(&dies[i].cells);
}

module_init(own_spi_init);
module_exit(own_spi_exit);
MODULE_DESCRIPTION("A SPI NAND chip in memory, for tests");
MODULE_LICENSE("GPL");
