// SPDX-License-Identifier: GPL-2.0
/* The flash as a whole: its geometry, its blocks, and whether what is on it can be this file system. */
#include <linux/mtd/mtd.h>

#include "yaffs2.h"
#include "yaffs_getblockinfo.h"
#include "yaffs_packedtags2.h"

/* The core counts a block's pages in 10 bits, one of them the sign. */
#define MOST_PAGES_A_BLOCK 511
#define NO_BLOCK (-1)

static int erase_block(struct yaffs_dev *dev, int block)
{
	struct yaffs2_sb *ys = yaffs2_of(dev);
	struct erase_info erase = {
		.addr = (u64)block * ys->mtd->erasesize,
		.len = ys->mtd->erasesize,
	};
	int error;

	if (dev->read_only || (ys->mounting && !ys->ours)) {
		/*
		 * Done when the file system becomes writable: until then nothing is written to it. And not before it is known to be
		 * one: to the core everything is waste of which it does not know the tags.
		 */
		__set_bit(block, ys->postponed_erases);
		return YAFFS_OK;
	}
	/* Nothing will be written there either. */
	if (ys->dead)
		return YAFFS_OK;
	error = mtd_erase(ys->mtd, &erase);
	ys->failed_erase = error ? block : NO_BLOCK;
	if (error)
		pr_warn_ratelimited("yaffs2: %s: block %d cannot be erased (error %d)\n", ys->mtd->name, block, error);
	return error ? YAFFS_FAIL : YAFFS_OK;
}

static int mark_bad(struct yaffs_dev *dev, int block)
{
	struct yaffs2_sb *ys = yaffs2_of(dev);

	if (dev->read_only || ys->dead)
		return YAFFS_OK;
	/* The core counts blocks from 1. Where a checkpoint cannot be erased it does not count back (yaffs_checkpt_erase()). */
	if (ys->failed_erase != NO_BLOCK && block - dev->block_offset == ys->failed_erase)
		block = ys->failed_erase;
	ys->failed_erase = NO_BLOCK;
	ys->count_retiring = true;
	pr_warn("yaffs2: %s: block %d is retired\n", ys->mtd->name, block);
	return mtd_block_markbad(ys->mtd, (loff_t)block * ys->mtd->erasesize) ? YAFFS_FAIL : YAFFS_OK;
}

static int query_block(struct yaffs_dev *dev, int block, enum yaffs_block_state *state, u32 *sequence)
{
	struct yaffs2_sb *ys = yaffs2_of(dev);
	unsigned int ignored = ys->ignored;
	struct yaffs_ext_tags tags;
	int bad = mtd_block_isbad(ys->mtd, (loff_t)block * ys->mtd->erasesize);

	*sequence = 0;
	if (bad < 0)
		yaffs2_died(ys, bad);
	if (bad) {
		*state = YAFFS_BLOCK_STATE_DEAD;
		return YAFFS_OK;
	}
	yaffs2_read_chunk(dev, block * dev->param.chunks_per_block, NULL, &tags);
	/* It is read again. */
	ys->ignored = ignored;
	if (tags.chunk_used) {
		*sequence = tags.seq_number;
		*state = YAFFS_BLOCK_STATE_NEEDS_SCAN;
	} else {
		*state = YAFFS_BLOCK_STATE_EMPTY;
	}
	return YAFFS_OK;
}

static int nothing_to_do(struct yaffs_dev *dev)
{
	return YAFFS_OK;
}

/* Takes the geometry over; a chip that cannot carry YAFFS2 is refused with the reason. */
int yaffs2_mtd_setup(struct yaffs2_sb *ys, struct fs_context *fc)
{
	struct mtd_info *mtd = ys->mtd;
	struct yaffs_param *param = &ys->dev.param;
	u64 blocks;

	if (mtd->type != MTD_NANDFLASH && mtd->type != MTD_MLCNANDFLASH) {
		errorf(fc, "yaffs2: %s is no NAND flash", mtd->name);
		return -EINVAL;
	}
	if (mtd->writesize < YAFFS_MIN_YAFFS2_CHUNK_SIZE) {
		errorf(fc, "yaffs2: pages of %s have %u bytes, YAFFS2 needs %d", mtd->name, mtd->writesize,
		       YAFFS_MIN_YAFFS2_CHUNK_SIZE);
		return -EINVAL;
	}
	param->total_bytes_per_chunk = mtd->writesize;
	param->spare_bytes_per_chunk = mtd->oobsize;
	param->chunks_per_block = mtd->erasesize / mtd->writesize;
	if (!param->inband_tags && mtd->oobavail < yaffs2_tags_bytes(&ys->dev)) {
		errorf(fc, "yaffs2: %s leaves %u bytes of spare area free, tags need %zu: mount with inband-tags%s", mtd->name,
		       mtd->oobavail, yaffs2_tags_bytes(&ys->dev),
		       mtd->oobavail >= sizeof(struct yaffs_packed_tags2_tags_only) ? " or tags-ecc-off" : "");
		return -EINVAL;
	}
	if (param->chunks_per_block < 2 || param->chunks_per_block > MOST_PAGES_A_BLOCK) {
		errorf(fc, "yaffs2: %s has %d pages a block, YAFFS2 takes up to %d", mtd->name, param->chunks_per_block,
		       MOST_PAGES_A_BLOCK);
		return -EINVAL;
	}
	blocks = mtd_div_by_eb(mtd->size, mtd);
	if (blocks <= param->n_reserved_blocks + 4 || blocks >= INT_MAX / param->chunks_per_block) {
		errorf(fc, "yaffs2: %s has %llu blocks: too few or too many", mtd->name, blocks);
		return -EINVAL;
	}
	param->start_block = 0;
	param->end_block = (int)blocks - 1;
	param->write_chunk_tags_fn = yaffs2_write_chunk;
	param->read_chunk_tags_fn = yaffs2_read_chunk;
	param->erase_fn = erase_block;
	param->bad_block_fn = mark_bad;
	param->query_block_fn = query_block;
	param->initialise_flash_fn = nothing_to_do;

	ys->failed_erase = NO_BLOCK;
	ys->postponed_erases = bitmap_zalloc((unsigned int)blocks, GFP_KERNEL);
	ys->raw_page = kmalloc(mtd->writesize, GFP_KERNEL);
	ys->oob = kmalloc(mtd->oobsize, GFP_KERNEL);
	return ys->postponed_erases && ys->raw_page && ys->oob ? 0 : -ENOMEM;
}

void yaffs2_mtd_release(struct yaffs2_sb *ys)
{
	bitmap_free(ys->postponed_erases);
	kfree(ys->raw_page);
	kfree(ys->oob);
}

/* The core took the block for erased. */
static void give_up(struct yaffs_dev *dev, int block)
{
	struct yaffs_block_info *info = yaffs_get_block_info(dev, block);

	if (info->block_state != YAFFS_BLOCK_STATE_EMPTY)
		return;
	info->block_state = YAFFS_BLOCK_STATE_DEAD;
	dev->n_erased_blocks--;
	dev->n_free_chunks -= dev->param.chunks_per_block;
}

static void erase_postponed(struct yaffs2_sb *ys)
{
	struct yaffs_dev *dev = &ys->dev;
	unsigned int block;

	for_each_set_bit(block, ys->postponed_erases, dev->param.end_block + 1) {
		if (erase_block(dev, block) != YAFFS_OK) {
			mark_bad(dev, block);
			give_up(dev, block + dev->block_offset);
		}
		__clear_bit(block, ys->postponed_erases);
	}
}

/* The file system may be written to from now on. Called locked. */
void yaffs2_mtd_writable(struct yaffs2_sb *ys)
{
	erase_postponed(ys);
	/* Pages of it may have been given out and not written. */
	yaffs_skip_rest_of_block(&ys->dev);
}

/* An erased page may have bits that flip; of what was written more are 0. */
#define ZEROS_OF_AN_ERASED_PAGE 8

static bool is_programmed(struct yaffs2_sb *ys, loff_t page)
{
	struct mtd_info *mtd = ys->mtd;
	unsigned int zeros = 0, i;
	size_t length;
	int error = mtd_read(mtd, page, mtd->writesize, &length, ys->raw_page);

	if (mtd_is_eccerr(error))
		return true;
	if (error && !mtd_is_bitflip(error)) {
		yaffs2_died(ys, error);
		return false;
	}
	for (i = 0; i < mtd->writesize; i++)
		zeros += 8 - hweight8(ys->raw_page[i]);
	return zeros > ZEROS_OF_AN_ERASED_PAGE;
}

/*
 * Blocks with something that is not this file system's. One page alone may be what the end of the power left of the first that
 * was ever written.
 */
static unsigned int foreign_blocks(struct yaffs2_sb *ys)
{
	struct mtd_info *mtd = ys->mtd;
	unsigned int found = 0;
	loff_t at;

	for (at = 0; at < mtd->size && !ys->dead; at += mtd->erasesize)
		found += mtd_block_isbad(mtd, at) == 0 && is_programmed(ys, at) && is_programmed(ys, at + mtd->writesize);
	return found;
}

/* Whether what the core found is taken for the file system. Called locked. */
int yaffs2_mtd_mounted(struct yaffs2_sb *ys, struct fs_context *fc)
{
	unsigned int foreign = ys->ours || ys->dead ? 0 : foreign_blocks(ys);

	if (ys->dead) {
		errorf(fc, "yaffs2: %s does not answer: what was read of it is no file system", ys->mtd->name);
		return -EIO;
	}
	if (foreign) {
		errorf(fc,
		       "yaffs2: %s holds %u blocks of something else: mount with or without inband-tags or tags-ecc-off, or erase it",
		       ys->mtd->name, foreign);
		return -EINVAL;
	}
	ys->mounting = false;
	ys->dev.read_only = sb_rdonly(ys->sb);
	if (!ys->dev.read_only)
		erase_postponed(ys);
	return 0;
}
