// SPDX-License-Identifier: GPL-2.0
/*
 * Listing a directory. The core keeps children in a list without an order that lasts, so a listing walks over their numbers
 * as they were when it began: whatever changes meanwhile, an object that stays is told exactly once, and one that is gone is
 * not told.
 */
#include "yaffs2.h"

/* "." and ".." come first. */
#define DOTS 2

struct listing {
	u32 count;
	u32 numbers[];
};

static u32 count_children(struct yaffs_obj *dir)
{
	struct list_head *link;
	u32 count = 0;

	list_for_each(link, &dir->variant.dir_variant.children)
		count++;
	return count;
}

static struct listing *take(struct yaffs2_sb *ys, struct yaffs_obj *dir)
{
	struct listing *listing;
	struct list_head *link;
	u32 room, count;

	yaffs2_lock(ys);
	room = count_children(dir);
	for (;;) {
		/* Not under the lock: it may be large. */
		yaffs2_unlock(ys);
		listing = kvmalloc(struct_size(listing, numbers, room), GFP_KERNEL);
		if (!listing)
			return NULL;
		yaffs2_lock(ys);
		count = count_children(dir);
		if (count <= room)
			break;
		kvfree(listing);
		room = count;
	}
	listing->count = 0;
	list_for_each(link, &dir->variant.dir_variant.children)
		listing->numbers[listing->count++] = list_entry(link, struct yaffs_obj, siblings)->obj_id;
	yaffs2_unlock(ys);
	return listing;
}

static int iterate(struct file *file, struct dir_context *ctx)
{
	struct inode *inode = file_inode(file);
	struct yaffs2_sb *ys = yaffs2_sb(inode->i_sb);
	struct yaffs_obj *dir = yaffs2_obj(inode);
	struct listing *listing = file->private_data;
	char *name;

	if (ctx->pos == 0 || !listing) {
		kvfree(listing);
		listing = take(ys, dir);
		file->private_data = listing;
		if (!listing)
			return -ENOMEM;
	}
	if (!dir_emit_dots(file, ctx))
		return 0;
	name = kmalloc(YAFFS_MAX_NAME_LENGTH + 1, GFP_KERNEL);
	if (!name)
		return -ENOMEM;
	for (; ctx->pos - DOTS < listing->count; ctx->pos++) {
		u32 number = listing->numbers[ctx->pos - DOTS];
		struct yaffs_obj *obj;
		unsigned int type = DT_UNKNOWN;
		int length = 0;

		yaffs2_lock(ys);
		obj = yaffs_find_by_number(&ys->dev, number);
		if (obj && obj->parent == dir) {
			length = yaffs_get_obj_name(obj, name, YAFFS_MAX_NAME_LENGTH + 1);
			if (!yaffs2_is_lost(obj)) {
				type = yaffs_get_obj_type(obj);
				number = yaffs_get_obj_inode(obj);
			}
		}
		yaffs2_unlock(ys);
		/* Not under the lock: the name goes to user memory, which may lie in a file of ours. */
		if (length && !dir_emit(ctx, name, length, number, type))
			break;
	}
	kfree(name);
	return 0;
}

static int release(struct inode *inode, struct file *file)
{
	kvfree(file->private_data);
	return 0;
}

const struct file_operations yaffs2_dir_operations = {
	.llseek = generic_file_llseek,
	.read = generic_read_dir,
	.iterate_shared = iterate,
	.release = release,
	.fsync = yaffs2_fsync,
};
