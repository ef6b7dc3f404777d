// SPDX-License-Identifier: GPL-2.0
/* Mounting, unmounting and what concerns a file system as a whole. */
#include <linux/blkdev.h>
#include <linux/ctype.h>
#include <linux/major.h>
#include <linux/module.h>
#include <linux/mtd/super.h>
#include <linux/sched/mm.h>
#include <linux/statfs.h>

#include "yaffs2.h"
#include "yaffs_getblockinfo.h"
#include "yaffs_yaffs2.h"

/* Bits of yaffs_trace.h; what is always told is told anyway. */
unsigned int yaffs_trace_mask;
module_param_named(trace_mask, yaffs_trace_mask, uint, 0644);
MODULE_PARM_DESC(trace_mask, "what the YAFFS2 core tells in the kernel log (bits of yaffs_trace.h)");

/* Pages that are tried before a write is given up. */
unsigned int yaffs_wr_attempts = YAFFS_WR_ATTEMPTS;
module_param_named(write_attempts, yaffs_wr_attempts, uint, 0644);
MODULE_PARM_DESC(write_attempts, "blocks in which a page is tried, after the first, before a write is given up (each is retired)");

u32 yaffs2_now(void)
{
	/* The medium has 32 bits for it. */
	return (u32)ktime_get_real_seconds();
}

/* The core allocates while it is locked, and reclaim may come back here to drop an inode: so it must not enter. */
void yaffs2_lock(struct yaffs2_sb *ys)
{
	mutex_lock(&ys->lock);
	ys->nofs = memalloc_nofs_save();
}

void yaffs2_unlock(struct yaffs2_sb *ys)
{
	unsigned int nofs = ys->nofs;

	mutex_unlock(&ys->lock);
	memalloc_nofs_restore(nofs);
}

/* A rename over another name writes four headers, and a block's summary may come between. */
#define CHUNKS_FOR_A_CHANGE 8

/* Blocks that are given up as soon as nothing is left in them. */
static long count_retiring(struct yaffs_dev *dev)
{
	long found = 0;
	int block;

	for (block = dev->internal_start_block; block <= dev->internal_end_block; block++)
		found += yaffs_get_block_info(dev, block)->needs_retiring;
	return found;
}

/*
 * Chunks that may still be written: without those that dirty folios will take, and those of blocks that are about to go, which
 * the core still counts. Called locked.
 */
long yaffs2_free_chunks(struct yaffs2_sb *ys)
{
	if (ys->count_retiring) {
		ys->retiring = count_retiring(&ys->dev);
		ys->count_retiring = false;
	}
	return (long)yaffs_get_n_free_chunks(&ys->dev) - atomic_long_read(&ys->reserved) -
	       ys->retiring * (long)ys->dev.param.chunks_per_block;
}

/*
 * Whether some headers can be written, from the reserve if need be: on a chip whose blocks have failed one after the other even
 * that is gone, and the core would have changed its memory when it notices. Called locked.
 */
bool yaffs2_can_change(struct yaffs2_sb *ys)
{
	const struct yaffs_dev *dev = &ys->dev;
	unsigned int chunks = dev->n_erased_blocks * dev->param.chunks_per_block;

	if (dev->alloc_block > 0)
		chunks += dev->param.chunks_per_block - dev->alloc_page;
	return chunks >= CHUNKS_FOR_A_CHANGE;
}

/*
 * Of the objects of a bucket whose header on the flash is behind, the first after a number; what is on its way out needs none. By
 * their numbers, since writing one may collect garbage and free others.
 */
static struct yaffs_obj *behind(struct yaffs_dev *dev, int bucket, u32 after)
{
	struct yaffs_obj *obj, *first = NULL;

	list_for_each_entry(obj, &dev->obj_bucket[bucket].list, hash_link)
		if (obj->dirty && !obj->fake && !obj->unlinked && !obj->deleted && !obj->defered_free &&
		    obj->obj_id > after && (!first || obj->obj_id < first->obj_id))
			first = obj;
	return first;
}

/* What the core keeps in memory goes to the flash; what cannot does not keep the rest from it. */
static int flush(struct yaffs2_sb *ys)
{
	unsigned int left = 0;
	struct yaffs_obj *obj;
	int bucket;

	yaffs_update_dirty_dirs(&ys->dev);
	yaffs_flush_whole_cache(&ys->dev);
	for (bucket = 0; bucket < YAFFS_NOBJECT_BUCKETS; bucket++) {
		u32 number = 0;

		while ((obj = behind(&ys->dev, bucket, number))) {
			number = obj->obj_id;
			left += yaffs_flush_file(obj, 0, 0) != YAFFS_OK || obj->dirty;
		}
	}
	if (!left)
		return 0;
	pr_err_ratelimited("yaffs2: %s: what is new of %u files could not be written\n", ys->mtd->name, left);
	return yaffs2_write_error(ys);
}

/* Why something could not be written. Called locked. */
int yaffs2_write_error(struct yaffs2_sb *ys)
{
	return ys->dead || yaffs2_can_change(ys) ? -EIO : -ENOSPC;
}

static int sync_fs(struct super_block *sb, int wait)
{
	struct yaffs2_sb *ys = yaffs2_sb(sb);
	int error;

	if (sb_rdonly(sb))
		return ys->dead ? -EIO : 0;
	yaffs2_lock(ys);
	error = flush(ys);
	yaffs2_unlock(ys);
	if (wait)
		mtd_sync(ys->mtd);
	return error;
}

/* Ends all writing: what is in memory, then the checkpoint by which the next mount needs no scan. */
static void settle(struct yaffs2_sb *ys)
{
	yaffs2_gc_stop(ys);
	yaffs2_lock(ys);
	flush(ys);
	/*
	 * Where there is no room for a checkpoint the core closes what it did not open, and writes what its buffer holds: it has
	 * none, but knows how far the last one was read.
	 */
	ys->dev.checkpt_byte_offs = 0;
	if (!ys->dev.param.skip_checkpt_wr && !ys->dead)
		yaffs_checkpoint_save(&ys->dev);
	yaffs2_unlock(ys);
	mtd_sync(ys->mtd);
}

static void put_super(struct super_block *sb)
{
	struct yaffs2_sb *ys = yaffs2_sb(sb);

	if (!sb_rdonly(sb))
		settle(ys);
	yaffs2_gc_stop(ys);
	yaffs2_lock(ys);
	yaffs_deinitialise(&ys->dev);
	yaffs2_unlock(ys);
}

static int statfs(struct dentry *dentry, struct kstatfs *buf)
{
	struct super_block *sb = dentry->d_sb;
	struct yaffs2_sb *ys = yaffs2_sb(sb);
	struct yaffs_dev *dev = &ys->dev;
	u64 id = huge_encode_dev(sb->s_dev);
	long blocks_in_use, nobj;

	buf->f_type = YAFFS_MAGIC;
	buf->f_bsize = dev->data_bytes_per_chunk;
	buf->f_namelen = YAFFS_MAX_NAME_LENGTH;
	buf->f_fsid = u64_to_fsid(id);
	buf->f_blocks = (u64)(dev->param.end_block - dev->param.start_block + 1) * dev->param.chunks_per_block;
	yaffs2_lock(ys);
	blocks_in_use = yaffs2_free_chunks(ys);
	nobj = dev->n_obj;
	yaffs2_unlock(ys);
	buf->f_bfree = blocks_in_use > 0 ? blocks_in_use : 0;
	buf->f_bavail = buf->f_bfree;
	/* An object takes a chunk for its header, and numbers are bounded. */
	buf->f_files = min_t(u64, buf->f_bfree + nobj, YAFFS_MAX_OBJECT_ID);
	buf->f_ffree = buf->f_files - min_t(u64, nobj, buf->f_files);
	return 0;
}

/* Counters of this mount, in /proc/self/mountstats. */
static int show_stats(struct seq_file *m, struct dentry *root)
{
	struct yaffs2_sb *ys = yaffs2_sb(root->d_sb);
	struct yaffs_dev *dev = &ys->dev;

	yaffs2_lock(ys);
	seq_printf(m, "\n\tpages read %u, written %u; blocks erased %u, bad since mount %u, worn and kept %u",
		   dev->n_page_reads, dev->n_page_writes, dev->n_erasures, dev->n_retired_blocks, ys->worn_kept);
	seq_printf(m, "\n\tpages corrected %u, unreadable %llu; tags corrected %u, unreadable %u", dev->n_ecc_fixed,
		   ys->unreadable, dev->n_tags_ecc_fixed, dev->n_tags_ecc_unfixed);
	seq_printf(m, "\n\tcollection: steps %u (of them soft %u; the thread's: idle %u, soft %u, aggressive %u)",
		   dev->all_gcs, dev->passive_gc_count, ys->gc_steps[0], ys->gc_steps[1], ys->gc_steps[2]);
	seq_printf(m, "\n\tblocks collected %u (by the thread %u), pages moved %u, blocks refreshed %u", dev->n_gc_blocks,
		   dev->bg_gcs, dev->n_gc_copies, dev->refresh_count);
	seq_printf(m, "\n\tcheckpoint pages read %u, written %u; summary pages read %u, written %u", ys->checkpoint_read,
		   ys->checkpoint_written, ys->summary_read, ys->summary_written);
	seq_printf(m, "\n\terased blocks %d, free chunks %d, reserved %ld, objects %d, checkpoint %s\n",
		   dev->n_erased_blocks, dev->n_free_chunks, atomic_long_read(&ys->reserved), dev->n_obj,
		   dev->is_checkpointed ? "valid" : "none");
	yaffs2_unlock(ys);
	return 0;
}

static const struct super_operations super_operations = {
	.evict_inode = yaffs2_evict_inode,
	.write_inode = yaffs2_write_inode,
	.put_super = put_super,
	.sync_fs = sync_fs,
	.statfs = statfs,
	.show_options = yaffs2_show_options,
	.show_stats = show_stats,
};

/* Bit 0: the core may collect. What it cannot read of a chip that does not answer would be lost. */
static unsigned int gc_control(struct yaffs_dev *dev)
{
	return !yaffs2_of(dev)->dead;
}

static void mark_dirty(struct yaffs_dev *dev)
{
	yaffs2_gc_wake(yaffs2_of(dev));
}

static void set_parameters(struct yaffs2_sb *ys)
{
	const struct yaffs2_options *options = &ys->options;
	struct yaffs_param *param = &ys->dev.param;

	param->name = ys->mtd->name;
	param->is_yaffs2 = 1;
	/* A block fails: one for the garbage collector, one to go on with, and some in hand, as YAFFS2 always had it. */
	param->n_reserved_blocks = 5;
	param->n_caches = options->no_cache ? 0 : 10;
	param->inband_tags = options->inband_tags;
	param->no_tags_ecc = !options->tags_ecc;
	param->disable_lazy_load = !options->lazy_loading;
	param->disable_summary = options->disable_summary;
	param->skip_checkpt_rd = options->skip_checkpoint_read;
	param->skip_checkpt_wr = options->skip_checkpoint_write;
	param->use_nand_ecc = 1;
	param->refresh_period = 500;
	/* Directories' times are written by the collector's thread and on sync, not by every file made in them. */
	param->defered_dir_update = 1;
	param->sb_dirty_fn = mark_dirty;
	param->gc_control = gc_control;
}

static int fill_super(struct super_block *sb, struct fs_context *fc)
{
	struct yaffs2_sb *ys = kzalloc(sizeof(*ys), GFP_KERNEL);
	struct inode *root;
	int error, refused;

	if (!ys)
		return -ENOMEM;
	sb->s_fs_info = ys;
	ys->sb = sb;
	ys->options = *(struct yaffs2_options *)fc->fs_private;
	mutex_init(&ys->lock);
	init_waitqueue_head(&ys->gc_wait);
	ys->dev.os_context = ys;

	if (sb->s_mtd) {
		ys->mtd = sb->s_mtd;
	} else {
		struct mtd_info *mtd;

		if (MAJOR(sb->s_dev) != MTD_BLOCK_MAJOR) {
			errorf(fc, "yaffs2: %s is no MTD device: mount mtdN or /dev/mtdblockN", sb->s_id);
			return -EINVAL;
		}
		mtd = get_mtd_device(NULL, MINOR(sb->s_dev));
		if (IS_ERR(mtd)) {
			errorf(fc, "yaffs2: %s has no MTD device behind it", sb->s_id);
			return PTR_ERR(mtd);
		}
		ys->mtd = mtd;
		ys->own_mtd = true;
	}
	if (!(ys->mtd->flags & MTD_WRITEABLE))
		sb->s_flags |= SB_RDONLY;
	/* A read must not cause a program. */
	sb->s_flags |= SB_NOATIME;
	sb->s_magic = YAFFS_MAGIC;
	sb->s_blocksize = PAGE_SIZE;
	sb->s_blocksize_bits = PAGE_SHIFT;
	sb->s_op = &super_operations;
	sb->s_time_gran = NSEC_PER_SEC;
	sb->s_time_min = 0;
	sb->s_time_max = U32_MAX;

	set_parameters(ys);
	error = yaffs2_mtd_setup(ys, fc);
	if (error)
		return error;
	sb->s_maxbytes = min_t(loff_t, MAX_LFS_FILESIZE,
			       (loff_t)YAFFS_MAX_CHUNK_ID * (ys->mtd->writesize - 16));

	yaffs2_lock(ys);
	/* Until it is known what is there, and that it makes sense, nothing is changed. */
	ys->dev.read_only = 1;
	ys->mounting = true;
	error = yaffs_guts_initialise(&ys->dev) == YAFFS_OK ? 0 : -EIO;
	bitmap_free(ys->taken);
	ys->taken = NULL;
	refused = error ? 0 : yaffs2_mtd_mounted(ys, fc);
	if (!error && !refused)
		refused = yaffs2_check_tree(ys);
	if (refused)
		yaffs_deinitialise(&ys->dev);
	/* The oldest block is moved once in a period, and not at every mount as well. */
	ys->dev.refresh_skip = ys->dev.param.refresh_period;
	yaffs2_unlock(ys);
	if (error) {
		errorf(fc, "yaffs2: %s (%s) could not be mounted; the kernel log says why", sb->s_id, ys->mtd->name);
		/* Refused before anything was allocated: nothing to undo. */
		ys->dev.is_mounted = 0;
		return error;
	}
	if (refused)
		return refused;
	root = yaffs2_iget(sb, YAFFS_OBJECTID_ROOT);
	if (!IS_ERR(root)) {
		sb->s_root = d_make_root(root);
		error = sb->s_root ? 0 : -ENOMEM;
	} else {
		error = PTR_ERR(root);
	}
	if (!error && !sb_rdonly(sb))
		error = yaffs2_gc_start(ys);
	if (error && !sb->s_root)
		yaffs_deinitialise(&ys->dev);
	return error;
}

int yaffs2_get_tree(struct fs_context *fc)
{
	const char *source = fc->source;

	/* "mtd0", "mtd:name": no block device between, and read-ahead is the MTD layer's. */
	if (source && strncmp(source, "mtd", 3) == 0 && (source[3] == ':' || isdigit(source[3])))
		return get_tree_mtd(fc, fill_super);
	/* "/dev/mtdblock0": read-ahead is the block device's. */
	return get_tree_bdev(fc, fill_super);
}

int yaffs2_reconfigure(struct fs_context *fc)
{
	struct super_block *sb = fc->root->d_sb;
	struct yaffs2_sb *ys = yaffs2_sb(sb);
	const struct yaffs2_options *options = fc->fs_private;
	bool read_only = fc->sb_flags & SB_RDONLY;
	int error = 0;

	if (options->inband_tags != ys->options.inband_tags || options->tags_ecc != ys->options.tags_ecc ||
	    options->no_cache != ys->options.no_cache || options->disable_summary != ys->options.disable_summary) {
		errorf(fc, "yaffs2: how tags lie, the cache and summaries are fixed while mounted: unmount first");
		return -EINVAL;
	}
	if (ys->dead && !read_only) {
		errorf(fc, "yaffs2: %s did not answer: unmount first", ys->mtd->name);
		return -EIO;
	}
	sync_filesystem(sb);
	ys->dev.param.skip_checkpt_wr = options->skip_checkpoint_write;
	ys->options.skip_checkpoint_write = options->skip_checkpoint_write;
	ys->options.background_gc = options->background_gc;
	if (read_only && !sb_rdonly(sb)) {
		settle(ys);
		ys->dev.read_only = 1;
	} else if (!read_only && sb_rdonly(sb)) {
		if (!(ys->mtd->flags & MTD_WRITEABLE)) {
			errorf(fc, "yaffs2: %s cannot be written to", ys->mtd->name);
			return -EROFS;
		}
		yaffs2_lock(ys);
		ys->dev.read_only = 0;
		yaffs2_mtd_writable(ys);
		yaffs2_unlock(ys);
		error = yaffs2_gc_start(ys);
	} else if (!read_only) {
		yaffs2_gc_stop(ys);
		error = yaffs2_gc_start(ys);
	}
	return error;
}

static void kill_sb(struct super_block *sb)
{
	struct yaffs2_sb *ys = yaffs2_sb(sb);

	if (sb->s_mtd)
		kill_mtd_super(sb);
	else if (sb->s_bdev)
		kill_block_super(sb);
	else
		kill_anon_super(sb);
	if (!ys)
		return;
	yaffs2_mtd_release(ys);
	if (ys->own_mtd)
		put_mtd_device(ys->mtd);
	kfree(ys);
}

static struct file_system_type yaffs2_type = {
	.owner = THIS_MODULE,
	.name = "yaffs2",
	.init_fs_context = yaffs2_init_fs_context,
	.parameters = yaffs2_parameters,
	.kill_sb = kill_sb,
};
MODULE_ALIAS_FS("yaffs2");

static int __init yaffs2_init(void)
{
	return register_filesystem(&yaffs2_type);
}

static void __exit yaffs2_exit(void)
{
	unregister_filesystem(&yaffs2_type);
	/* Inodes are freed after a grace period. */
	rcu_barrier();
}

module_init(yaffs2_init);
module_exit(yaffs2_exit);

MODULE_DESCRIPTION("YAFFS2 on raw NAND: a glue for current kernels under the YAFFS2 core");
MODULE_LICENSE("GPL v2");
