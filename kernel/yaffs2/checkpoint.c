// SPDX-License-Identifier: GPL-2.0
/*
 * A checkpoint is checked while the core reads it. The core takes it for its own memory: numbers of pages that do not exist,
 * objects that are there twice and counts beyond their limits would be used as they are. One that makes no sense is no
 * checkpoint: the core then scans the flash.
 */
#include "yaffs2.h"
#include "yaffs_checkptrw.h"
#include "yaffs_getblockinfo.h"

static u32 blocks_of(const struct yaffs_dev *dev)
{
	return dev->internal_end_block - dev->internal_start_block + 1;
}

static u32 chunks_of(const struct yaffs_dev *dev)
{
	return blocks_of(dev) * dev->param.chunks_per_block;
}

/* A page of the device that the checkpoint says is in use. */
static bool is_in_use(const struct yaffs_dev *dev, u32 chunk)
{
	u32 pages = dev->param.chunks_per_block;
	u32 block = chunk / pages, page = chunk % pages;

	if (block < dev->internal_start_block || block > dev->internal_end_block)
		return false;
	return dev->chunk_bits[(block - dev->internal_start_block) * dev->chunk_bit_stride + page / 8] & BIT(page & 7);
}

/* A page belongs to one object: it is taken once. */
static bool take(struct yaffs2_sb *ys, u32 chunk)
{
	u32 first = ys->dev.internal_start_block * ys->dev.param.chunks_per_block;

	return is_in_use(&ys->dev, chunk) && !__test_and_set_bit(chunk - first, ys->taken);
}

static bool blocks_make_sense(struct yaffs_dev *dev)
{
	int pages = dev->param.chunks_per_block;
	u32 blocks = blocks_of(dev), i;

	for (i = 0; i < blocks; i++) {
		const struct yaffs_block_info *block = &dev->block_info[i];

		switch (block->block_state) {
		case YAFFS_BLOCK_STATE_EMPTY:
		case YAFFS_BLOCK_STATE_ALLOCATING:
		case YAFFS_BLOCK_STATE_FULL:
		case YAFFS_BLOCK_STATE_CHECKPOINT:
		case YAFFS_BLOCK_STATE_DEAD:
			break;
		default:
			return false;
		}
		if (block->pages_in_use < 0 || block->pages_in_use > pages || block->soft_del_pages < 0 ||
		    block->soft_del_pages > block->pages_in_use)
			return false;
	}
	if (dev->n_erased_blocks < 0 || dev->n_erased_blocks > blocks || dev->n_free_chunks < 0 ||
	    dev->n_free_chunks > chunks_of(dev) || dev->seq_number < YAFFS_LOWEST_SEQUENCE_NUMBER ||
	    dev->seq_number >= YAFFS_HIGHEST_SEQUENCE_NUMBER)
		return false;
	if (dev->alloc_block < 0)
		return dev->alloc_block == -1;
	return dev->alloc_block >= dev->internal_start_block && dev->alloc_block <= dev->internal_end_block &&
	       dev->alloc_page < pages &&
	       yaffs_get_block_info(dev, dev->alloc_block)->block_state == YAFFS_BLOCK_STATE_ALLOCATING;
}

/* How many of a block's pages are in use is said twice. */
static bool bits_make_sense(const struct yaffs_dev *dev)
{
	u32 blocks = blocks_of(dev), i;
	int at, count;

	for (i = 0; i < blocks; i++) {
		if (dev->block_info[i].block_state != YAFFS_BLOCK_STATE_FULL &&
		    dev->block_info[i].block_state != YAFFS_BLOCK_STATE_ALLOCATING)
			continue;
		for (count = 0, at = 0; at < dev->chunk_bit_stride; at++)
			count += hweight8(dev->chunk_bits[i * dev->chunk_bit_stride + at]);
		if (count != dev->block_info[i].pages_in_use)
			return false;
	}
	return true;
}

/* The directories that the core has by itself: nothing that a user could rename or remove. */
static bool fake_makes_sense(const struct yaffs_checkpt_obj *record)
{
	u32 parent = record->obj_id == YAFFS_OBJECTID_LOSTNFOUND ? YAFFS_OBJECTID_ROOT : 0;

	return record->variant_type == YAFFS_OBJECT_TYPE_DIRECTORY && record->parent_id == parent &&
	       !record->rename_allowed && !record->unlink_allowed;
}

static bool object_makes_sense(struct yaffs2_sb *ys, const struct yaffs_checkpt_obj *record)
{
	struct yaffs_dev *dev = &ys->dev;
	const struct yaffs_obj *there;

	if (!record->obj_id || record->obj_id > YAFFS_MAX_OBJECT_ID || record->variant_type == YAFFS_OBJECT_TYPE_UNKNOWN ||
	    record->variant_type > YAFFS_OBJECT_TYPE_MAX)
		return false;
	if (record->obj_id <= YAFFS_OBJECTID_DELETED ? !fake_makes_sense(record) :
						       record->fake || !record->parent_id ||
							       record->parent_id > YAFFS_MAX_OBJECT_ID)
		return false;
	/* The core has no such files where it erases at once what is deleted, as it does with YAFFS2. */
	if (record->deleted || record->soft_del)
		return false;
	if (record->hdr_chunk && !take(ys, record->hdr_chunk))
		return false;
	if (record->n_data_chunks < 0 || record->n_data_chunks > chunks_of(dev))
		return false;
	if (record->variant_type == YAFFS_OBJECT_TYPE_FILE &&
	    (record->size_or_equiv_obj < 0 || record->size_or_equiv_obj > yaffs_max_file_size(dev)))
		return false;
	/* Only a directory may be there before its record, as the parent of an earlier one. */
	there = yaffs_find_by_number(dev, record->obj_id);
	return !there || there->variant_type == YAFFS_OBJECT_TYPE_DIRECTORY;
}

static bool tnode_makes_sense(struct yaffs2_sb *ys, struct yaffs_tnode *tnode)
{
	unsigned int i;

	for (i = 0; i < YAFFS_NTNODES_LEVEL0; i++) {
		u32 chunk = yaffs_get_group_base(&ys->dev, tnode, i);

		if (chunk && !take(ys, chunk))
			return false;
	}
	return true;
}

/* Of what the core reads, where it puts it and how much it wants say what it is. */
static bool makes_sense(struct yaffs2_sb *ys, void *data, int bytes)
{
	struct yaffs_dev *dev = &ys->dev;

	if (data == dev->block_info) {
		bitmap_free(ys->taken);
		ys->taken = bitmap_zalloc(chunks_of(dev), GFP_KERNEL);
		ys->in_tnodes = false;
		return ys->taken && blocks_make_sense(dev);
	}
	if (data == dev->chunk_bits)
		return bits_make_sense(dev);
	if (!ys->taken)
		return true;
	if (ys->in_tnodes) {
		if (bytes == sizeof(u32))
			ys->in_tnodes = *(u32 *)data != ~0U;
		else
			return tnode_makes_sense(ys, data);
	} else if (bytes == sizeof(struct yaffs_checkpt_obj)) {
		const struct yaffs_checkpt_obj *record = data;

		if (record->struct_type != sizeof(*record) || record->obj_id == ~0U)
			return true;
		ys->in_tnodes = record->variant_type == YAFFS_OBJECT_TYPE_FILE;
		return object_makes_sense(ys, record);
	}
	return true;
}

/* In place of the core's yaffs2_checkpt_rd() where it restores a checkpoint (Kbuild). Called locked. */
int yaffs2_checkpoint_read(struct yaffs_dev *dev, void *data, int bytes)
{
	struct yaffs2_sb *ys = yaffs2_of(dev);
	int got = yaffs2_checkpt_rd(dev, data, bytes);

	if (got != bytes || makes_sense(ys, data, bytes))
		return got;
	pr_warn("yaffs2: %s: its checkpoint makes no sense: scanning\n", ys->mtd->name);
	/* The core stops at what could not be read. */
	return 0;
}
