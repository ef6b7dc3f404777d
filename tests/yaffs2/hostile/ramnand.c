// SPDX-License-Identifier: GPL-2.0
/*
 * NAND flash in memory, for images that are written and read back at once by /dev/ramnand (pages with their spare areas, as
 * nanddump --oob has them). Tags lie where the kernel's layout for a Hamming code on large pages has its free bytes. There is no
 * ECC: a page says in its spare area what reading its data gives.
 */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mtd/mtd.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#define PAGE_BYTES 2048
#define SPARE_BYTES 64
#define RAW_BYTES (PAGE_BYTES + SPARE_BYTES)
#define FREE_AT 2
#define FREE_BYTES 38
/* Bytes of the spare area that say so where they are 0. */
#define UNREADABLE 63
#define RESTORED 62

static unsigned int blocks = 64;
module_param(blocks, uint, 0444);
MODULE_PARM_DESC(blocks, "erase blocks");
static unsigned int pages = 16;
module_param(pages, uint, 0444);
MODULE_PARM_DESC(pages, "pages an erase block");

static u8 *flash;
static bool worn_out;
static struct mtd_info chip;

static size_t flash_bytes(void)
{
	return (size_t)blocks * pages * RAW_BYTES;
}

static u8 *page_at(loff_t at)
{
	return flash + div_u64(at, PAGE_BYTES) * RAW_BYTES;
}

/* Where in a page's spare area what was asked for begins. */
static unsigned int spare_at(const struct mtd_oob_ops *ops)
{
	return ops->ooboffs + (ops->mode == MTD_OPS_AUTO_OOB ? FREE_AT : 0);
}

static int read_oob(struct mtd_info *mtd, loff_t from, struct mtd_oob_ops *ops)
{
	int result = 0;

	ops->retlen = 0;
	ops->oobretlen = 0;
	if (ops->ooblen) {
		memcpy(ops->oobbuf, page_at(from) + PAGE_BYTES + spare_at(ops), ops->ooblen);
		ops->oobretlen = ops->ooblen;
	}
	while (ops->retlen < ops->len) {
		u32 within = (u32)from % PAGE_BYTES;
		size_t length = min_t(size_t, PAGE_BYTES - within, ops->len - ops->retlen);
		const u8 *page = page_at(from);

		memcpy(ops->datbuf + ops->retlen, page + within, length);
		if (ops->mode != MTD_OPS_RAW && !page[PAGE_BYTES + UNREADABLE])
			result = -EBADMSG;
		else if (ops->mode != MTD_OPS_RAW && !page[PAGE_BYTES + RESTORED] && !result)
			/* One bit: as many as the threshold. */
			result = 1;
		ops->retlen += length;
		from += length;
	}
	return result;
}

static void program(u8 *to, const u8 *from, size_t length)
{
	while (length--)
		*to++ &= *from++;
}

static int write_oob(struct mtd_info *mtd, loff_t to, struct mtd_oob_ops *ops)
{
	if (worn_out)
		return -EIO;
	if (ops->ooblen)
		program(page_at(to) + PAGE_BYTES + spare_at(ops), ops->oobbuf, ops->ooblen);
	ops->oobretlen = ops->ooblen;
	for (ops->retlen = 0; ops->retlen < ops->len; ops->retlen += PAGE_BYTES)
		program(page_at(to + ops->retlen), ops->datbuf + ops->retlen, PAGE_BYTES);
	return 0;
}

static int erase(struct mtd_info *mtd, struct erase_info *info)
{
	memset(page_at(info->addr), 0xff, div_u64(info->len, PAGE_BYTES) * RAW_BYTES);
	return 0;
}

static int is_bad(struct mtd_info *mtd, loff_t at)
{
	return page_at(at)[PAGE_BYTES] != 0xff;
}

static int mark_bad(struct mtd_info *mtd, loff_t at)
{
	page_at(at)[PAGE_BYTES] = 0;
	return 0;
}

static int ecc(struct mtd_info *mtd, int section, struct mtd_oob_region *region)
{
	if (section)
		return -ERANGE;
	region->offset = FREE_AT + FREE_BYTES;
	region->length = SPARE_BYTES - FREE_AT - FREE_BYTES;
	return 0;
}

static int free_bytes(struct mtd_info *mtd, int section, struct mtd_oob_region *region)
{
	if (section)
		return -ERANGE;
	region->offset = FREE_AT;
	region->length = FREE_BYTES;
	return 0;
}

static const struct mtd_ooblayout_ops layout = { .ecc = ecc, .free = free_bytes };

static ssize_t image_read(struct file *file, char __user *to, size_t length, loff_t *at)
{
	return simple_read_from_buffer(to, length, at, flash, flash_bytes());
}

/* A byte behind the image says whether pages can be written. */
static ssize_t image_write(struct file *file, const char __user *from, size_t length, loff_t *at)
{
	u8 value;

	if (*at == flash_bytes() && length) {
		if (get_user(value, from))
			return -EFAULT;
		worn_out = value;
		return 1;
	}
	return simple_write_to_buffer(flash, flash_bytes(), at, from, length);
}

static const struct file_operations image_operations = {
	.owner = THIS_MODULE,
	.read = image_read,
	.write = image_write,
	.llseek = default_llseek,
};

static struct miscdevice image = { .minor = MISC_DYNAMIC_MINOR, .name = "ramnand", .fops = &image_operations };

static int __init ramnand_init(void)
{
	int error = -ENOMEM;

	flash = vmalloc(flash_bytes());
	if (!flash)
		return -ENOMEM;
	memset(flash, 0xff, flash_bytes());
	chip.name = "ramnand";
	chip.owner = THIS_MODULE;
	chip.type = MTD_NANDFLASH;
	chip.flags = MTD_CAP_NANDFLASH;
	chip.size = (u64)blocks * pages * PAGE_BYTES;
	chip.erasesize = pages * PAGE_BYTES;
	chip.writesize = PAGE_BYTES;
	chip.writebufsize = PAGE_BYTES;
	chip.oobsize = SPARE_BYTES;
	chip.oobavail = FREE_BYTES;
	chip.bitflip_threshold = 1;
	chip.ecc_strength = 1;
	chip.ecc_step_size = 512;
	chip._read_oob = read_oob;
	chip._write_oob = write_oob;
	chip._erase = erase;
	chip._block_isbad = is_bad;
	chip._block_markbad = mark_bad;
	mtd_set_ooblayout(&chip, &layout);
	error = mtd_device_register(&chip, NULL, 0);
	if (error)
		goto free;
	error = misc_register(&image);
	if (!error)
		return 0;
	mtd_device_unregister(&chip);
free:
	vfree(flash);
	return error;
}

static void __exit ramnand_exit(void)
{
	misc_deregister(&image);
	mtd_device_unregister(&chip);
	vfree(flash);
}

module_init(ramnand_init);
module_exit(ramnand_exit);
MODULE_DESCRIPTION("NAND flash in memory, for images");
MODULE_LICENSE("GPL");
