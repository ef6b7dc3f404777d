// SPDX-License-Identifier: GPL-2.0
/* The core's way to the flash. What the chip's ECC says of a page reaches the core, and is counted for readers of data. */
#include <linux/mtd/mtd.h>

#include "yaffs2.h"
#include "yaffs_packedtags2.h"

/* The core counts a block's pages in 10 bits, one of them the sign. */
#define MOST_PAGES_A_BLOCK 511

static loff_t address_of(struct yaffs_dev *dev, int chunk)
{
	return (loff_t)chunk * dev->param.total_bytes_per_chunk;
}

static size_t tags_bytes(const struct yaffs_dev *dev)
{
	return dev->param.no_tags_ecc ? sizeof(struct yaffs_packed_tags2_tags_only) : sizeof(struct yaffs_packed_tags2);
}

static void pack(struct yaffs_dev *dev, struct yaffs_packed_tags2 *packed, const struct yaffs_ext_tags *tags)
{
	memset(packed, 0xff, sizeof(*packed));
	yaffs_pack_tags2(packed, tags, !dev->param.no_tags_ecc);
}

/*
 * A page that cannot be read is to be moved by the garbage collector. Written as usual, what was read of it would get a fresh
 * and valid ECC, and from then on wrong data would read as right. So the page is copied raw, its old ECC with it and only the
 * tags new: the copy is as unreadable as the page was.
 */
static int copy_damage(struct yaffs_dev *dev, int from, int to, struct yaffs_packed_tags2 *packed)
{
	struct yaffs2_sb *ys = yaffs2_of(dev);
	struct mtd_info *mtd = ys->mtd;
	struct mtd_oob_ops ops = {
		.mode = MTD_OPS_RAW,
		.len = mtd->writesize,
		.ooblen = mtd->oobsize,
		.datbuf = ys->raw_page,
		.oobbuf = ys->oob,
	};
	int error = mtd_read_oob(mtd, address_of(dev, from), &ops);

	if (error && !mtd_is_bitflip_or_eccerr(error))
		return error;
	error = mtd_ooblayout_set_databytes(mtd, (u8 *)packed, ys->oob, 0, tags_bytes(dev));
	if (error)
		return error;
	ops.retlen = 0;
	ops.oobretlen = 0;
	return mtd_write_oob(mtd, address_of(dev, to), &ops);
}

static int write_chunk(struct yaffs_dev *dev, int chunk, const u8 *data, const struct yaffs_ext_tags *tags)
{
	struct yaffs2_sb *ys = yaffs2_of(dev);
	struct yaffs_packed_tags2 packed;
	struct mtd_oob_ops ops = {
		.mode = MTD_OPS_AUTO_OOB,
		.len = dev->param.total_bytes_per_chunk,
		.datbuf = (u8 *)data,
	};
	int error;

	/* Nothing that a read-only mount leaves out matters: it is found again by the next scan. */
	if (dev->read_only)
		return YAFFS_OK;
	ys->checkpoint_written += tags->seq_number == YAFFS_SEQUENCE_CHECKPOINT_DATA;
	ys->summary_written += tags->obj_id == YAFFS_OBJECTID_SUMMARY;
	if (dev->param.inband_tags) {
		/* The core's buffers are whole pages: tags lie behind the data. */
		yaffs_pack_tags2_tags_only((struct yaffs_packed_tags2_tags_only *)(ops.datbuf + dev->data_bytes_per_chunk),
					   tags);
	} else {
		pack(dev, &packed, tags);
		if (ys->damaged.valid && dev->gc_disable && ys->damaged.obj_id == tags->obj_id &&
		    ys->damaged.chunk_id == tags->chunk_id) {
			ys->damaged.valid = false;
			error = copy_damage(dev, ys->damaged.chunk, chunk, &packed);
			if (!error)
				return YAFFS_OK;
		}
		ops.ooblen = tags_bytes(dev);
		ops.oobbuf = (u8 *)&packed;
	}
	error = mtd_write_oob(ys->mtd, address_of(dev, chunk), &ops);
	if (error)
		yaffs_trace(YAFFS_TRACE_MTD, "%s: write of page %d: error %d", ys->mtd->name, chunk, error);
	return error ? YAFFS_FAIL : YAFFS_OK;
}

static int read_chunk(struct yaffs_dev *dev, int chunk, u8 *data, struct yaffs_ext_tags *tags)
{
	struct yaffs2_sb *ys = yaffs2_of(dev);
	bool inband = dev->param.inband_tags;
	struct yaffs_packed_tags2 packed;
	struct mtd_oob_ops ops = { .mode = MTD_OPS_AUTO_OOB };
	u8 *page = data;
	int error;

	if (inband && !page)
		page = yaffs_get_temp_buffer(dev);
	if (page) {
		ops.len = inband ? dev->param.total_bytes_per_chunk : dev->data_bytes_per_chunk;
		ops.datbuf = page;
	}
	if (!inband && tags) {
		memset(&packed, 0xff, sizeof(packed));
		ops.ooblen = tags_bytes(dev);
		ops.oobbuf = (u8 *)&packed;
	}
	error = mtd_read_oob(ys->mtd, address_of(dev, chunk), &ops);
	if (tags) {
		if (inband)
			yaffs_unpack_tags2_tags_only(
				tags, (struct yaffs_packed_tags2_tags_only *)(page + dev->data_bytes_per_chunk));
		else
			yaffs_unpack_tags2(tags, &packed, !dev->param.no_tags_ecc);
		if (inband)
			tags->ecc_result = YAFFS_ECC_RESULT_NO_ERROR;
		ys->checkpoint_read += data && tags->seq_number == YAFFS_SEQUENCE_CHECKPOINT_DATA;
		ys->summary_read += data && tags->obj_id == YAFFS_OBJECTID_SUMMARY;
		if (tags->ecc_result == YAFFS_ECC_RESULT_FIXED)
			dev->n_tags_ecc_fixed++;
		if (tags->ecc_result == YAFFS_ECC_RESULT_UNFIXED)
			dev->n_tags_ecc_unfixed++;
	}
	if (inband && !data)
		yaffs_release_temp_buffer(dev, page);

	if (error)
		yaffs2_gc_wake(ys);
	if (mtd_is_bitflip(error)) {
		dev->n_ecc_fixed++;
		if (tags && tags->ecc_result < YAFFS_ECC_RESULT_FIXED)
			tags->ecc_result = YAFFS_ECC_RESULT_FIXED;
		return YAFFS_OK;
	}
	if (error) {
		dev->n_ecc_unfixed++;
		if (data) {
			ys->unreadable++;
			if (dev->gc_disable && tags) {
				ys->damaged = (struct yaffs2_damaged){
					.valid = true,
					.chunk = chunk,
					.obj_id = tags->obj_id,
					.chunk_id = tags->chunk_id,
				};
			}
		}
		if (tags)
			tags->ecc_result = YAFFS_ECC_RESULT_UNFIXED;
		pr_warn_ratelimited("yaffs2: %s: page %d cannot be read (error %d)\n", ys->mtd->name, chunk, error);
		return YAFFS_FAIL;
	}
	return YAFFS_OK;
}

static int erase_block(struct yaffs_dev *dev, int block)
{
	struct yaffs2_sb *ys = yaffs2_of(dev);
	struct erase_info erase = {
		.addr = (u64)block * ys->mtd->erasesize,
		.len = ys->mtd->erasesize,
	};
	int error;

	if (dev->read_only) {
		/* Done when the file system becomes writable: until then nothing is written to it. */
		__set_bit(block, ys->postponed_erases);
		return YAFFS_OK;
	}
	error = mtd_erase(ys->mtd, &erase);
	if (error)
		pr_warn_ratelimited("yaffs2: %s: block %d cannot be erased (error %d)\n", ys->mtd->name, block, error);
	return error ? YAFFS_FAIL : YAFFS_OK;
}

static int mark_bad(struct yaffs_dev *dev, int block)
{
	struct yaffs2_sb *ys = yaffs2_of(dev);

	if (dev->read_only)
		return YAFFS_OK;
	pr_warn("yaffs2: %s: block %d is retired\n", ys->mtd->name, block);
	return mtd_block_markbad(ys->mtd, (loff_t)block * ys->mtd->erasesize) ? YAFFS_FAIL : YAFFS_OK;
}

static int query_block(struct yaffs_dev *dev, int block, enum yaffs_block_state *state, u32 *sequence)
{
	struct yaffs2_sb *ys = yaffs2_of(dev);
	struct yaffs_ext_tags tags;

	*sequence = 0;
	if (mtd_block_isbad(ys->mtd, (loff_t)block * ys->mtd->erasesize)) {
		*state = YAFFS_BLOCK_STATE_DEAD;
		return YAFFS_OK;
	}
	read_chunk(dev, block * dev->param.chunks_per_block, NULL, &tags);
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
	if (!param->inband_tags && mtd->oobavail < tags_bytes(&ys->dev)) {
		errorf(fc, "yaffs2: %s leaves %u bytes of spare area free, tags need %zu: mount with inband-tags%s", mtd->name,
		       mtd->oobavail, tags_bytes(&ys->dev),
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
	param->write_chunk_tags_fn = write_chunk;
	param->read_chunk_tags_fn = read_chunk;
	param->erase_fn = erase_block;
	param->bad_block_fn = mark_bad;
	param->query_block_fn = query_block;
	param->initialise_flash_fn = nothing_to_do;

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

/* The file system may be written to from now on. Called locked. */
void yaffs2_mtd_writable(struct yaffs2_sb *ys)
{
	struct yaffs_dev *dev = &ys->dev;
	unsigned int block;

	for_each_set_bit(block, ys->postponed_erases, dev->param.end_block + 1) {
		if (erase_block(dev, block) != YAFFS_OK)
			mark_bad(dev, block);
		__clear_bit(block, ys->postponed_erases);
	}
	/* Pages of it may have been given out and not written. */
	yaffs_skip_rest_of_block(dev);
}
