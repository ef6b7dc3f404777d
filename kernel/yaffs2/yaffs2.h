/* SPDX-License-Identifier: GPL-2.0 */
/* A mounted YAFFS2: what ties the VFS, the core and the flash together. */
#ifndef YAFFS2_H
#define YAFFS2_H

#define YAFFS2_GLUE 1

#include <linux/atomic.h>
#include <linux/fs.h>
#include <linux/fs_context.h>
#include <linux/fs_parser.h>
#include <linux/mtd/mtd.h>
#include <linux/mutex.h>
#include <linux/seq_file.h>
#include <linux/wait.h>

#include "compat.h"
#include "yaffs_guts.h"
#include "yaffs_trace.h"

/* Mount options; what is not said stays as YAFFS2's users know it. */
struct yaffs2_options {
	bool inband_tags;
	bool tags_ecc;
	bool no_cache;
	bool lazy_loading;
	bool empty_lost_and_found;
	bool disable_summary;
	bool skip_checkpoint_read;
	bool skip_checkpoint_write;
	bool background_gc;
	bool write_through;
};

/* A chunk that garbage collection has to move although it cannot be read (chunk.c). */
struct yaffs2_damaged {
	bool valid;
	int chunk;
	unsigned int obj_id;
	unsigned int chunk_id;
};

struct yaffs2_sb {
	struct super_block *sb;
	struct mtd_info *mtd;
	/* The device was found by a block device: the reference to it is ours. */
	bool own_mtd;
	struct yaffs2_options options;

	/* All of the core's state. Taken inside inode and folio locks; nothing under it may wait for those. */
	struct mutex lock;
	unsigned int nofs;
	struct yaffs_dev dev;
	/* Reads whose data the chip's ECC could not restore, since mount. */
	u64 unreadable;
	struct yaffs2_damaged damaged;
	/* The core is finding out what is there; tags were found that are this file system's. */
	bool mounting, ours;
	/* What is read is the core's scan's (check.c): a summary, or the page of the object of this number. */
	bool scanning, in_summary;
	u32 scanned;
	/* Pages that made no sense, and hard links without a file. */
	unsigned int ignored, lost_targets;
	/* A checkpoint while it is read (checkpoint.c): pages that are some object's; the next record is a file's tnode. */
	unsigned long *taken;
	bool in_tnodes;
	/* A read failed otherwise than by ECC. From then on nothing is written. */
	bool dead;
	/* Blocks that the core wanted erased while the file system was mounted read-only. */
	unsigned long *postponed_erases;
	/* The last one that could not be erased. */
	int failed_erase;
	u8 *oob;
	u8 *raw_page;

	/* Chunks that dirty folios will take when they are written. */
	atomic_long_t reserved;
	/* Blocks that are given up once they are empty, and whether there may be others by now. */
	long retiring;
	bool count_retiring;
	/* Times that a block's page had to be restored once too often, and the block was kept for want of spare ones. */
	unsigned int worn_kept;

	struct task_struct *gc_thread;
	wait_queue_head_t gc_wait;
	bool gc_work;
	/* Written to since the thread last looked. */
	bool gc_written;

	/* Since the mount: steps of the thread by phase (gc.c), and pages that are no file's. */
	unsigned int gc_steps[3];
	unsigned int checkpoint_read, checkpoint_written, summary_read, summary_written;
};

static inline struct yaffs2_sb *yaffs2_sb(const struct super_block *sb)
{
	return sb->s_fs_info;
}

static inline struct yaffs2_sb *yaffs2_of(struct yaffs_dev *dev)
{
	return dev->os_context;
}

static inline struct yaffs_obj *yaffs2_obj(const struct inode *inode)
{
	return inode->i_private;
}

/* A hard link whose file is lost. */
static inline bool yaffs2_is_lost(const struct yaffs_obj *obj)
{
	return obj->variant_type == YAFFS_OBJECT_TYPE_HARDLINK && !obj->variant.hardlink_variant.equiv_obj;
}

/* super.c */
void yaffs2_lock(struct yaffs2_sb *ys);
void yaffs2_unlock(struct yaffs2_sb *ys);
long yaffs2_free_chunks(struct yaffs2_sb *ys);
bool yaffs2_can_change(struct yaffs2_sb *ys);
int yaffs2_write_error(struct yaffs2_sb *ys);

/* options.c */
int yaffs2_init_fs_context(struct fs_context *fc);
int yaffs2_show_options(struct seq_file *m, struct dentry *root);
int yaffs2_get_tree(struct fs_context *fc);
int yaffs2_reconfigure(struct fs_context *fc);
extern const struct fs_parameter_spec yaffs2_parameters[];

/* inode.c */
struct inode *yaffs2_iget(struct super_block *sb, unsigned long number);
void yaffs2_evict_inode(struct inode *inode);
int yaffs2_write_inode(struct inode *inode, struct writeback_control *wbc);
void yaffs2_touch(struct inode *inode);
int yaffs2_setattr(IDMAP_PARAM struct dentry *dentry, struct iattr *attr);
extern const struct inode_operations yaffs2_file_inode_operations;
extern const struct inode_operations yaffs2_special_inode_operations;
extern const struct inode_operations yaffs2_symlink_inode_operations;

/* namei.c */
extern const struct inode_operations yaffs2_dir_inode_operations;

/* dir.c */
extern const struct file_operations yaffs2_dir_operations;

/* file.c */
extern const struct file_operations yaffs2_file_operations;
extern const struct address_space_operations yaffs2_aops;
int yaffs2_read_checked(struct yaffs2_sb *ys, struct yaffs_obj *obj, u8 *buffer, loff_t pos, int length);
int yaffs2_fsync(struct file *file, loff_t start, loff_t end, int datasync);

/* chunk.c */
size_t yaffs2_tags_bytes(const struct yaffs_dev *dev);
int yaffs2_read_chunk(struct yaffs_dev *dev, int chunk, u8 *data, struct yaffs_ext_tags *tags);
int yaffs2_write_chunk(struct yaffs_dev *dev, int chunk, const u8 *data, const struct yaffs_ext_tags *tags);
void yaffs2_died(struct yaffs2_sb *ys, int error);

/* check.c */
struct yaffs_summary_tags;
void yaffs2_check_page(struct yaffs2_sb *ys, struct yaffs_ext_tags *tags, u8 *data);
int yaffs2_check_tree(struct yaffs2_sb *ys);
void yaffs2_trim(struct yaffs_obj *obj, loff_t size);
int yaffs2_scan(struct yaffs_dev *dev);
int yaffs2_summary_read(struct yaffs_dev *dev, struct yaffs_summary_tags *tags, int block);
int yaffs2_summary_fetch(struct yaffs_dev *dev, struct yaffs_ext_tags *tags, int chunk);
void yaffs2_link_fixup(struct yaffs_dev *dev, struct list_head *links);

/* checkpoint.c */
int yaffs2_checkpoint_read(struct yaffs_dev *dev, void *data, int bytes);

/* mtd.c */
int yaffs2_mtd_setup(struct yaffs2_sb *ys, struct fs_context *fc);
int yaffs2_mtd_mounted(struct yaffs2_sb *ys, struct fs_context *fc);
void yaffs2_mtd_release(struct yaffs2_sb *ys);
void yaffs2_mtd_writable(struct yaffs2_sb *ys);

/* gc.c */
int yaffs2_gc_start(struct yaffs2_sb *ys);
void yaffs2_gc_stop(struct yaffs2_sb *ys);
void yaffs2_gc_wake(struct yaffs2_sb *ys);

#endif
