// SPDX-License-Identifier: GPL-2.0
/* Pages with their tags, to and from the flash. What ECC says of them reaches the core, and is counted for readers of data. */
#include <linux/mtd/mtd.h>

#include "yaffs2.h"
#include "yaffs_ecc.h"
#include "yaffs_getblockinfo.h"
#include "yaffs_packedtags2.h"

/*
 * Says in a page's tags that its data was lost before it was moved to where it is now: a bit of a chunk's length that no length
 * reaches, and of a header the core's EXTRA_SPARE_FLAGS (yaffs_packedtags2.c), which nothing uses.
 */
#define LOST_DATA 0x40000000
#define LOST_HEADER 0x10000000
/* The core's EXTRA_HEADER_INFO_FLAG. */
#define EXTRA_HEADER 0x80000000

/*
 * The core writes tnodes into a checkpoint as they lie in memory, at least eight pointers each (yaffs_guts.c, tnode_size), and what
 * reads them where pointers are larger takes the wrong files' chunks and misses names. So a checkpoint's pages say how large, above
 * their length, which the core does not read there. What says nothing, or another size, is none: the chip is scanned.
 */
#define TNODE_SHIFT 16
#define LENGTH_MASK ((1 << TNODE_SHIFT) - 1)

static loff_t address_of(struct yaffs_dev *dev, int chunk)
{
	return (loff_t)chunk * dev->param.total_bytes_per_chunk;
}

/* Numbers of chunks come from the flash, too. */
static bool is_chunk(const struct yaffs_dev *dev, int chunk)
{
	return chunk >= 0 && chunk / dev->param.chunks_per_block <= dev->param.end_block;
}

size_t yaffs2_tags_bytes(const struct yaffs_dev *dev)
{
	return dev->param.no_tags_ecc ? sizeof(struct yaffs_packed_tags2_tags_only) : sizeof(struct yaffs_packed_tags2);
}

static void mark_lost(struct yaffs_packed_tags2_tags_only *tags)
{
	if (tags->chunk_id & EXTRA_HEADER)
		tags->chunk_id |= LOST_HEADER;
	else
		tags->n_bytes |= LOST_DATA;
}

/* Whether it was marked; it is not any more. */
static bool take_mark(struct yaffs_packed_tags2_tags_only *tags)
{
	bool extra = tags->chunk_id & EXTRA_HEADER;
	bool lost = extra ? tags->chunk_id & LOST_HEADER : tags->n_bytes & LOST_DATA;

	/* Nothing is written here. */
	if (tags->seq_number == 0xffffffff || !lost)
		return false;
	if (extra)
		tags->chunk_id &= ~LOST_HEADER;
	else
		tags->n_bytes &= ~LOST_DATA;
	return true;
}

static void pack(struct yaffs_dev *dev, struct yaffs_packed_tags2 *packed, const struct yaffs_ext_tags *tags, bool lost)
{
	memset(packed, 0xff, sizeof(*packed));
	yaffs_pack_tags2_tags_only(&packed->t, tags);
	if (tags->seq_number == YAFFS_SEQUENCE_CHECKPOINT_DATA)
		packed->t.n_bytes |= dev->tnode_size << TNODE_SHIFT;
	if (lost)
		mark_lost(&packed->t);
	if (!dev->param.no_tags_ecc)
		yaffs_ecc_calc_other((unsigned char *)&packed->t, sizeof(packed->t), &packed->ecc);
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

	if (!error || mtd_is_bitflip_or_eccerr(error))
		error = mtd_ooblayout_set_databytes(mtd, (u8 *)packed, ys->oob, 0, yaffs2_tags_bytes(dev));
	/* It cannot be copied so. */
	if (error)
		return -EOPNOTSUPP;
	ops.retlen = 0;
	ops.oobretlen = 0;
	return mtd_write_oob(mtd, address_of(dev, to), &ops);
}

/* Whether this is the page that could not be read when it was to be moved. */
static bool is_damaged(struct yaffs2_sb *ys, const struct yaffs_ext_tags *tags)
{
	return ys->damaged.valid && ys->dev.gc_disable && ys->damaged.obj_id == tags->obj_id &&
	       ys->damaged.chunk_id == tags->chunk_id;
}

int yaffs2_write_chunk(struct yaffs_dev *dev, int chunk, const u8 *data, const struct yaffs_ext_tags *tags)
{
	struct yaffs2_sb *ys = yaffs2_of(dev);
	bool damaged = is_damaged(ys, tags);
	struct yaffs_packed_tags2 packed;
	struct mtd_oob_ops ops = {
		.mode = MTD_OPS_AUTO_OOB,
		.len = dev->param.total_bytes_per_chunk,
		.datbuf = (u8 *)data,
	};
	int error = -EOPNOTSUPP;

	/* Nothing that a read-only mount leaves out matters: it is found again by the next scan. */
	if (dev->read_only)
		return YAFFS_OK;
	if (ys->dead || !is_chunk(dev, chunk))
		return YAFFS_FAIL;
	ys->checkpoint_written += tags->seq_number == YAFFS_SEQUENCE_CHECKPOINT_DATA;
	ys->summary_written += tags->obj_id == YAFFS_OBJECTID_SUMMARY;
	pack(dev, &packed, tags, false);
	if (damaged && !dev->param.inband_tags)
		error = copy_damage(dev, ys->damaged.chunk, chunk, &packed);
	if (error == -EOPNOTSUPP) {
		if (damaged)
			pack(dev, &packed, tags, true);
		if (dev->param.inband_tags) {
			/* The core's buffers are whole pages: tags lie behind the data. */
			memcpy(ops.datbuf + dev->data_bytes_per_chunk, &packed.t, sizeof(packed.t));
		} else {
			ops.ooblen = yaffs2_tags_bytes(dev);
			ops.oobbuf = (u8 *)&packed;
		}
		error = mtd_write_oob(ys->mtd, address_of(dev, chunk), &ops);
	}
	if (error) {
		ys->count_retiring = true;
		yaffs_trace(YAFFS_TRACE_MTD, "%s: write of page %d: error %d", ys->mtd->name, chunk, error);
	} else if (damaged)
		ys->damaged.valid = false;
	return error ? YAFFS_FAIL : YAFFS_OK;
}

/*
 * Tags in a page that ECC could not restore as a whole. Read alone they may lie in a part of the page that it could; if not, they
 * are few bits among many. Without them the chunk would be missing where its file is read, and that is zeros; with them it is EIO.
 */
static void reread_tags(struct yaffs_dev *dev, int chunk, struct yaffs_packed_tags2_tags_only *packed)
{
	struct yaffs_packed_tags2_tags_only alone;
	struct mtd_oob_ops ops = { .mode = MTD_OPS_AUTO_OOB, .len = sizeof(alone), .datbuf = (u8 *)&alone };
	int error = mtd_read_oob(yaffs2_of(dev)->mtd, address_of(dev, chunk) + dev->data_bytes_per_chunk, &ops);

	if (!error || mtd_is_bitflip(error))
		*packed = alone;
}

/* The chip does not answer: what is not known to lie there must not be taken for room. */
void yaffs2_died(struct yaffs2_sb *ys, int error)
{
	if (ys->dead)
		return;
	ys->dead = true;
	pr_err("yaffs2: %s does not answer (error %d): nothing is written to it until it is mounted anew\n", ys->mtd->name,
	       error);
	if (!ys->mounting) {
		ys->sb->s_flags |= SB_RDONLY;
		/* A read-only file system is not asked whether it is in sync. */
		errseq_set(&ys->sb->s_wb_err, -EIO);
	}
}

/* Whether what can be read as tags may be some. */
static bool plausible(const struct yaffs_dev *dev, const struct yaffs_ext_tags *tags)
{
	if (!tags->chunk_used)
		return false;
	if (tags->seq_number == YAFFS_SEQUENCE_CHECKPOINT_DATA)
		return tags->n_bytes == dev->data_bytes_per_chunk;
	return tags->seq_number >= YAFFS_LOWEST_SEQUENCE_NUMBER && tags->seq_number < YAFFS_HIGHEST_SEQUENCE_NUMBER &&
	       tags->obj_id && tags->obj_id <= YAFFS_MAX_OBJECT_ID && tags->chunk_id <= YAFFS_MAX_CHUNK_ID &&
	       (!tags->chunk_id || tags->n_bytes <= dev->data_bytes_per_chunk);
}

/* The core expects no page of a checkpoint that has the number 0. */
static void take_checkpoint(struct yaffs_dev *dev, struct yaffs_ext_tags *tags)
{
	if (tags->n_bytes >> TNODE_SHIFT != dev->tnode_size)
		tags->chunk_id = 0;
	tags->n_bytes &= LENGTH_MASK;
}

/* What the tags say, and whether the data behind them was lost before it was moved here. */
static bool unpack(struct yaffs2_sb *ys, struct yaffs_ext_tags *tags, struct yaffs_packed_tags2 *packed, bool with_ecc)
{
	struct yaffs_dev *dev = &ys->dev;
	enum yaffs_ecc_result result;
	bool lost = false;

	if (with_ecc)
		yaffs_unpack_tags2(tags, packed, 1);
	else
		yaffs_unpack_tags2_tags_only(tags, &packed->t);
	result = with_ecc ? tags->ecc_result : YAFFS_ECC_RESULT_NO_ERROR;
	if (result != YAFFS_ECC_RESULT_UNFIXED && take_mark(&packed->t)) {
		yaffs_unpack_tags2_tags_only(tags, &packed->t);
		lost = true;
	}
	tags->ecc_result = result;
	if (tags->seq_number == YAFFS_SEQUENCE_CHECKPOINT_DATA)
		take_checkpoint(dev, tags);
	if (result == YAFFS_ECC_RESULT_FIXED)
		dev->n_tags_ecc_fixed++;
	if (result == YAFFS_ECC_RESULT_UNFIXED)
		dev->n_tags_ecc_unfixed++;
	else if (plausible(dev, tags))
		ys->ours = true;
	return lost;
}

/* What a reader of data, and the collector, have to know of a page whose data is not to be had. */
static void data_is_lost(struct yaffs2_sb *ys, int chunk, const struct yaffs_ext_tags *tags)
{
	ys->unreadable++;
	if (ys->dev.gc_disable)
		ys->damaged = (struct yaffs2_damaged){
			.valid = true,
			.chunk = chunk,
			.obj_id = tags->obj_id,
			.chunk_id = tags->chunk_id,
		};
}

/* yaffs_handle_chunk_error() gives a block up whose pages had errors more often, however few bits. */
#define MOST_STRIKES 3

/*
 * The block of a page that ECC restored is moved. It is given up as well only while the chip has blocks to spare: on a full one each
 * would come from the core's reserve, and without that nothing could be collected, so not even a header be written again.
 */
static void spare_block(struct yaffs2_sb *ys, int chunk)
{
	struct yaffs_dev *dev = &ys->dev;
	struct yaffs_block_info *bi;

	ys->count_retiring = true;
	if (!dev->block_info)
		return;
	bi = yaffs_get_block_info(dev, chunk / dev->param.chunks_per_block + dev->block_offset);
	if (!bi->gc_prioritise && bi->chunk_error_strikes >= MOST_STRIKES &&
	    yaffs2_free_chunks(ys) < 2 * (long)dev->param.chunks_per_block) {
		bi->chunk_error_strikes = MOST_STRIKES - 1;
		ys->worn_kept++;
	}
}

/* The core gives room for tags always, for data where it wants it. */
int yaffs2_read_chunk(struct yaffs_dev *dev, int chunk, u8 *data, struct yaffs_ext_tags *tags)
{
	struct yaffs2_sb *ys = yaffs2_of(dev);
	bool inband = dev->param.inband_tags, lost;
	struct mtd_oob_ops ops = { .mode = MTD_OPS_AUTO_OOB };
	struct yaffs_packed_tags2 packed;
	u8 *page = data;
	int error;

	memset(&packed, 0xff, sizeof(packed));
	if (!is_chunk(dev, chunk)) {
		memset(tags, 0, sizeof(*tags));
		return YAFFS_FAIL;
	}
	if (inband && !page)
		page = yaffs_get_temp_buffer(dev);
	if (page) {
		ops.len = inband ? dev->param.total_bytes_per_chunk : dev->data_bytes_per_chunk;
		ops.datbuf = page;
	}
	if (!inband) {
		ops.ooblen = yaffs2_tags_bytes(dev);
		ops.oobbuf = (u8 *)&packed;
	}
	error = inband && !page ? -ENOMEM : mtd_read_oob(ys->mtd, address_of(dev, chunk), &ops);
	if (inband && (!error || mtd_is_bitflip_or_eccerr(error))) {
		memcpy(&packed.t, page + dev->data_bytes_per_chunk, sizeof(packed.t));
		if (mtd_is_eccerr(error))
			reread_tags(dev, chunk, &packed.t);
	}
	if (inband && !data)
		yaffs_release_temp_buffer(dev, page);
	lost = unpack(ys, tags, &packed, !inband && !dev->param.no_tags_ecc);
	yaffs2_check_page(ys, tags, data);
	if (data && tags->seq_number == YAFFS_SEQUENCE_CHECKPOINT_DATA) {
		if (tags->chunk_id)
			ys->checkpoint_read++;
		else
			pr_info("yaffs2: %s: its checkpoint is of another word size or another YAFFS2: scanning\n", ys->mtd->name);
	}
	ys->summary_read += data && tags->obj_id == YAFFS_OBJECTID_SUMMARY;
	if (tags->ecc_result == YAFFS_ECC_RESULT_UNFIXED)
		pr_warn_ratelimited("yaffs2: %s: page %d: tags cannot be restored\n", ys->mtd->name, chunk);

	if (error)
		yaffs2_gc_wake(ys);
	if (error && error != -ENOMEM && !mtd_is_bitflip_or_eccerr(error))
		yaffs2_died(ys, error);
	if (mtd_is_bitflip(error)) {
		dev->n_ecc_fixed++;
		if (tags->ecc_result < YAFFS_ECC_RESULT_FIXED)
			tags->ecc_result = YAFFS_ECC_RESULT_FIXED;
	}
	if (tags->ecc_result == YAFFS_ECC_RESULT_FIXED)
		spare_block(ys, chunk);
	/* The tags were asked for, and are there. */
	if (mtd_is_eccerr(error) && inband && !data)
		return YAFFS_OK;
	if (error && !mtd_is_bitflip(error)) {
		dev->n_ecc_unfixed++;
		if (data)
			data_is_lost(ys, chunk, tags);
		tags->ecc_result = YAFFS_ECC_RESULT_UNFIXED;
		pr_warn_ratelimited("yaffs2: %s: page %d cannot be read (error %d)\n", ys->mtd->name, chunk, error);
		return YAFFS_FAIL;
	}
	if (data && lost)
		data_is_lost(ys, chunk, tags);
	else if (data && dev->gc_disable)
		ys->damaged.valid = false;
	return data && lost ? YAFFS_FAIL : YAFFS_OK;
}
