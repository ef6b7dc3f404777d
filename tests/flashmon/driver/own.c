// SPDX-License-Identifier: GPL-2.0
/*
 * Makes of nandsim's chip one of those whose driver reads pages by itself (mxc, davinci, tegra and others): its ecc.read_page
 * sends the commands, and never calls nand_read_page_op(). Nor does it read parts of pages, so that the NAND core keeps the page
 * that it read last.
 */
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/mtd/mtd.h>
#include <linux/mtd/rawnand.h>

static bool hidden;
module_param(hidden, bool, 0444);
MODULE_PARM_DESC(hidden, "read by a function that cannot be probed");

static bool programs;
module_param(programs, bool, 0444);
MODULE_PARM_DESC(programs, "programs pages by itself, too");

static struct nand_chip *chip;
static struct nand_ecc_ctrl before;
static unsigned int options;

static nokprobe_inline int read(struct nand_chip *chip, u8 *buf, int page)
{
	const u8 address[] = { 0, 0, page, page >> 8, page >> 16 };
	const struct nand_op_instr instructions[] = {
		NAND_OP_CMD(NAND_CMD_READ0, 0),
		NAND_OP_ADDR(sizeof(address), address, 0),
		NAND_OP_CMD(NAND_CMD_READSTART, 0),
		NAND_OP_WAIT_RDY(1000, 0),
		NAND_OP_DATA_IN(nand_to_mtd(chip)->writesize, buf, 0),
	};
	const struct nand_operation operation = NAND_OPERATION(chip->cur_cs, instructions);

	return chip->controller->ops->exec_op(chip, &operation, false);
}

static noinline int own_read_page(struct nand_chip *chip, u8 *buf, int oob, int page)
{
	return read(chip, buf, page);
}

static noinline int own_read_page_hidden(struct nand_chip *chip, u8 *buf, int oob, int page)
{
	return read(chip, buf, page);
}
NOKPROBE_SYMBOL(own_read_page_hidden);

/* The chip's ECC, whichever it is, is none of this one's business: the spare bytes stay as they are. */
static noinline int own_write_page(struct nand_chip *chip, const u8 *buf, int oob, int page)
{
	const u8 address[] = { 0, 0, page, page >> 8, page >> 16 };
	const struct nand_op_instr instructions[] = {
		NAND_OP_CMD(NAND_CMD_SEQIN, 0),
		NAND_OP_ADDR(sizeof(address), address, 0),
		NAND_OP_DATA_OUT(nand_to_mtd(chip)->writesize, buf, 0),
		NAND_OP_CMD(NAND_CMD_PAGEPROG, 0),
		NAND_OP_WAIT_RDY(1000, 0),
	};
	const struct nand_operation operation = NAND_OPERATION(chip->cur_cs, instructions);

	return chip->controller->ops->exec_op(chip, &operation, false);
}

static int __init own_init(void)
{
	struct mtd_info *mtd = get_mtd_device(NULL, 0);

	if (IS_ERR(mtd))
		return PTR_ERR(mtd);
	chip = mtd_to_nand(mtd_get_master(mtd));
	put_mtd_device(mtd);
	before = chip->ecc;
	options = chip->options;
	chip->ecc.read_page = hidden ? own_read_page_hidden : own_read_page;
	if (programs)
		chip->ecc.write_page = own_write_page;
	chip->options &= ~NAND_SUBPAGE_READ;
	return 0;
}

static void __exit own_exit(void)
{
	chip->ecc = before;
	chip->options = options;
}

module_init(own_init);
module_exit(own_exit);
MODULE_DESCRIPTION("A NAND driver that reads pages by itself, for tests");
MODULE_LICENSE("GPL");
