// SPDX-License-Identifier: GPL-2.0
/*
 * A NAND chip that stops to answer when it is told to: all that is asked of it goes to another MTD device, until so many
 * operations were done. nandsim knows pages and blocks that fail, and no chip that does.
 */
#include <linux/module.h>
#include <linux/mtd/mtd.h>
#include <asm/unaligned.h>

static int under;
module_param(under, int, 0444);
MODULE_PARM_DESC(under, "the number of the MTD device under it");
static long after = -1;
module_param(after, long, 0644);
MODULE_PARM_DESC(after, "operations until it answers no more (-1: it does not die)");
static unsigned int failing_object;
module_param(failing_object, uint, 0644);
MODULE_PARM_DESC(failing_object, "no page of this object of YAFFS2's can be written (0: all can)");
static unsigned long operations;
module_param(operations, ulong, 0644);
MODULE_PARM_DESC(operations, "operations that were asked for");

static struct mtd_info *chip;
static struct mtd_info dying;

static bool dead(void)
{
	operations++;
	if (after > 0)
		after--;
	return !after;
}

static int read_oob(struct mtd_info *mtd, loff_t from, struct mtd_oob_ops *ops)
{
	return dead() ? -EIO : mtd_read_oob(chip, from, ops);
}

static int write_oob(struct mtd_info *mtd, loff_t to, struct mtd_oob_ops *ops)
{
	if (dead())
		return -EIO;
	/* Tags are a sequence number, the object's, and more; the object's top bits are a header's type. */
	if (failing_object && ops->ooblen >= 16 && (get_unaligned_le32(ops->oobbuf + 4) & 0xfffffff) == failing_object)
		return -EIO;
	return mtd_write_oob(chip, to, ops);
}

static int erase(struct mtd_info *mtd, struct erase_info *info)
{
	return dead() ? -EIO : mtd_erase(chip, info);
}

static int is_bad(struct mtd_info *mtd, loff_t at)
{
	return dead() ? -EIO : mtd_block_isbad(chip, at);
}

/* Of a chip that is alive none is for good: what fails here is the test's. */
static int mark_bad(struct mtd_info *mtd, loff_t at)
{
	return dead() ? -EIO : 0;
}

static int ecc(struct mtd_info *mtd, int section, struct mtd_oob_region *region)
{
	return mtd_ooblayout_ecc(chip, section, region);
}

static int free_bytes(struct mtd_info *mtd, int section, struct mtd_oob_region *region)
{
	return mtd_ooblayout_free(chip, section, region);
}

static const struct mtd_ooblayout_ops layout = { .ecc = ecc, .free = free_bytes };

static int __init dying_init(void)
{
	int error;

	chip = get_mtd_device(NULL, under);
	if (IS_ERR(chip))
		return PTR_ERR(chip);
	dying.name = "dying";
	dying.owner = THIS_MODULE;
	dying.type = chip->type;
	dying.flags = chip->flags;
	dying.size = chip->size;
	dying.erasesize = chip->erasesize;
	dying.writesize = chip->writesize;
	dying.writebufsize = chip->writebufsize;
	dying.oobsize = chip->oobsize;
	dying.oobavail = chip->oobavail;
	dying.subpage_sft = chip->subpage_sft;
	dying.ecc_strength = chip->ecc_strength;
	dying.ecc_step_size = chip->ecc_step_size;
	dying.bitflip_threshold = chip->bitflip_threshold;
	dying._read_oob = read_oob;
	dying._write_oob = write_oob;
	dying._erase = erase;
	dying._block_isbad = is_bad;
	dying._block_markbad = mark_bad;
	mtd_set_ooblayout(&dying, &layout);
	error = mtd_device_register(&dying, NULL, 0);
	if (error)
		put_mtd_device(chip);
	return error;
}

static void __exit dying_exit(void)
{
	mtd_device_unregister(&dying);
	put_mtd_device(chip);
}

module_init(dying_init);
module_exit(dying_exit);
MODULE_DESCRIPTION("A NAND chip that stops to answer, for tests");
MODULE_LICENSE("GPL");
