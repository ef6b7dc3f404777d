// SPDX-License-Identifier: GPL-2.0
/* Inodes and attributes. An inode's number is its object's; an object that has an inode outlives it. */
#include "yaffs2.h"

static int open_lost(struct inode *inode, struct file *file)
{
	return -EIO;
}

static int setattr_lost(IDMAP_PARAM struct dentry *dentry, struct iattr *attr)
{
	return -EIO;
}

static const struct file_operations lost_operations = {
	.open = open_lost,
};

static const struct inode_operations lost_inode_operations = {
	.setattr = setattr_lost,
};

/* What a name stands for whose file is lost: it can be removed and renamed; all else is EIO. */
static void fill_lost(struct inode *inode, struct yaffs_obj *obj)
{
	inode->i_private = obj;
	inode->i_mode = S_IFREG;
	i_uid_write(inode, 0);
	i_gid_write(inode, 0);
	yaffs2_set_times(inode, obj->yst_atime, obj->yst_mtime, obj->yst_ctime);
	set_nlink(inode, yaffs_get_obj_link_count(obj));
	inode->i_op = &lost_inode_operations;
	inode->i_fop = &lost_operations;
	obj->my_inode = inode;
}

static int fill(struct inode *inode, struct yaffs_obj *obj)
{
	umode_t type = obj->yst_mode & S_IFMT;
	char name[YAFFS_MAX_NAME_LENGTH + 1];

	/* Loads what was only scanned so far. */
	yaffs_get_obj_name(obj, name, sizeof(name));
	/* The object's type decides, whatever a damaged header says of its mode. */
	switch (obj->variant_type) {
	case YAFFS_OBJECT_TYPE_FILE:
		type = S_IFREG;
		break;
	case YAFFS_OBJECT_TYPE_DIRECTORY:
		type = S_IFDIR;
		break;
	case YAFFS_OBJECT_TYPE_SYMLINK:
		type = S_IFLNK;
		break;
	case YAFFS_OBJECT_TYPE_SPECIAL:
		type = obj->yst_mode & S_IFMT;
		if (type != S_IFCHR && type != S_IFBLK && type != S_IFIFO && type != S_IFSOCK)
			return -EUCLEAN;
		break;
	case YAFFS_OBJECT_TYPE_HARDLINK:
		/* Of its attributes nothing is known. */
		fill_lost(inode, obj);
		return 0;
	default:
		return -EUCLEAN;
	}
	inode->i_private = obj;
	inode->i_mode = type | (obj->yst_mode & 07777);
	i_uid_write(inode, obj->yst_uid);
	i_gid_write(inode, obj->yst_gid);
	yaffs2_set_times(inode, obj->yst_atime, obj->yst_mtime, obj->yst_ctime);
	/* 1 for a directory: subdirectories are not counted. */
	set_nlink(inode, yaffs_get_obj_link_count(obj));
	inode->i_size = yaffs_get_obj_length(obj);
	if (inode->i_size < 0 || inode->i_size > inode->i_sb->s_maxbytes)
		return -EUCLEAN;
	inode->i_blocks = type == S_IFREG ? (inode->i_size + 511) >> 9 : 0;
	switch (type) {
	case S_IFREG:
		inode->i_op = &yaffs2_file_inode_operations;
		inode->i_fop = &yaffs2_file_operations;
		inode->i_mapping->a_ops = &yaffs2_aops;
		break;
	case S_IFDIR:
		inode->i_op = &yaffs2_dir_inode_operations;
		inode->i_fop = &yaffs2_dir_operations;
		break;
	case S_IFLNK:
		inode->i_op = &yaffs2_symlink_inode_operations;
		break;
	default:
		inode->i_op = &yaffs2_special_inode_operations;
		init_special_inode(inode, inode->i_mode, old_decode_dev(obj->yst_rdev));
	}
	obj->my_inode = inode;
	return 0;
}

/*
 * Called unlocked, because it may wait for an inode of this number to be dropped, which takes the lock. What keeps the
 * object is the caller's: the directory in which it was found is locked, or it is the root.
 */
struct inode *yaffs2_iget(struct super_block *sb, unsigned long number)
{
	struct yaffs2_sb *ys = yaffs2_sb(sb);
	struct inode *inode = iget_locked(sb, number);
	struct yaffs_obj *obj;
	u64 unreadable;
	int error;

	if (!inode)
		return ERR_PTR(-ENOMEM);
	if (!inode_is_new(inode))
		return inode;
	yaffs2_lock(ys);
	unreadable = ys->unreadable;
	obj = yaffs_find_by_number(&ys->dev, number);
	error = obj ? fill(inode, obj) : -ESTALE;
	/* Attributes of a header that could not be read are not its attributes. */
	if (!error && ys->unreadable != unreadable) {
		obj->my_inode = NULL;
		error = -EIO;
	}
	if (error == -EUCLEAN)
		pr_err_ratelimited("yaffs2: %s: object %lu has a header that makes no sense\n", sb->s_id, number);
	yaffs2_unlock(ys);
	if (error) {
		inode->i_private = NULL;
		iget_failed(inode);
		return ERR_PTR(error);
	}
	unlock_new_inode(inode);
	return inode;
}

/* The inode's times and owner become the object's. Called locked. */
static void take_over(struct yaffs_obj *obj, struct inode *inode)
{
	u32 atime = yaffs2_atime(inode);
	u32 mtime = yaffs2_mtime(inode);
	u32 ctime = yaffs2_ctime(inode);

	if (obj->yst_atime == atime && obj->yst_mtime == mtime && obj->yst_ctime == ctime)
		return;
	obj->yst_atime = atime;
	obj->yst_mtime = mtime;
	obj->yst_ctime = ctime;
	obj->dirty = 1;
}

/* A name in this directory, or of this inode, changed now. */
void yaffs2_touch(struct inode *inode)
{
	u32 now = yaffs2_now();

	yaffs2_set_times(inode, yaffs2_atime(inode), S_ISDIR(inode->i_mode) ? now : yaffs2_mtime(inode), now);
	mark_inode_dirty(inode);
}

int yaffs2_write_inode(struct inode *inode, struct writeback_control *wbc)
{
	struct yaffs2_sb *ys = yaffs2_sb(inode->i_sb);
	struct yaffs_obj *obj = yaffs2_obj(inode);
	int error = 0;

	/* Of what has no name any more nothing is kept. */
	if (!obj || inode->i_nlink == 0 || yaffs2_is_lost(obj))
		return 0;
	yaffs2_lock(ys);
	take_over(obj, inode);
	if (yaffs_flush_file(obj, 0, 0) != YAFFS_OK)
		error = yaffs2_write_error(ys);
	yaffs2_unlock(ys);
	return error;
}

void yaffs2_evict_inode(struct inode *inode)
{
	struct yaffs2_sb *ys = yaffs2_sb(inode->i_sb);
	struct yaffs_obj *obj = yaffs2_obj(inode);

	if (inode->i_nlink && mapping_tagged(&inode->i_data, PAGECACHE_TAG_DIRTY))
		pr_err_ratelimited("yaffs2: %s: data of object %lu is lost: there was no room for it\n", inode->i_sb->s_id,
				   (unsigned long)inode->i_ino);
	truncate_inode_pages_final(&inode->i_data);
	clear_inode(inode);
	inode->i_private = NULL;
	if (!obj)
		return;
	/*
	 * Reclaim evicts what has names, and must not wait for the lock: who holds it may wait for memory, and without kswapd
	 * there is none. Nothing looks at my_inode of such an object now: whoever would remove a name of it has the inode.
	 */
	if (inode->i_nlink) {
		WRITE_ONCE(obj->my_inode, NULL);
		return;
	}
	yaffs2_lock(ys);
	obj->my_inode = NULL;
	if (obj->defered_free)
		yaffs_handle_defered_free(obj);
	else if (obj->unlinked) {
		yaffs2_trim(obj, 0);
		yaffs_del_obj(obj);
	}
	yaffs2_unlock(ys);
}

static int resize(struct inode *inode, loff_t size)
{
	struct yaffs2_sb *ys = yaffs2_sb(inode->i_sb);
	struct yaffs_obj *obj = yaffs2_obj(inode);
	int chunk = ys->dev.data_bytes_per_chunk;
	u8 *buffer = NULL;
	u32 within;
	int number;
	int error;

	/* What was written before has to lie below the new end first: else the core would fill it with zeros. */
	if (size) {
		error = filemap_write_and_wait(inode->i_mapping);
		if (error)
			return error;
		/* The core reads the last chunk, cuts it and writes it anew, without asking whether it could be read. */
		buffer = kmalloc(chunk, GFP_KERNEL);
		if (!buffer)
			return -ENOMEM;
		yaffs2_lock(ys);
		yaffs_addr_to_chunk(&ys->dev, size, &number, &within);
		error = within && size < obj->variant.file_variant.file_size ?
				yaffs2_read_checked(ys, obj, buffer, size - within, chunk) :
				0;
		yaffs2_unlock(ys);
		kfree(buffer);
		if (error)
			return error;
	}
	if (size > i_size_read(inode)) {
		loff_t old = i_size_read(inode);

		i_size_write(inode, size);
		pagecache_isize_extended(inode, old, size);
	} else {
		truncate_setsize(inode, size);
	}
	yaffs2_lock(ys);
	yaffs2_trim(obj, size);
	yaffs_resize_file(obj, size);
	error = obj->variant.file_variant.file_size == size ? 0 : -ENOSPC;
	yaffs2_unlock(ys);
	inode->i_blocks = (size + 511) >> 9;
	return error;
}

int yaffs2_setattr(IDMAP_PARAM struct dentry *dentry, struct iattr *attr)
{
	struct inode *inode = d_inode(dentry);
	struct yaffs2_sb *ys = yaffs2_sb(inode->i_sb);
	struct yaffs_obj *obj = yaffs2_obj(inode);
	int error = setattr_prepare(IDMAP dentry, attr);

	if (error)
		return error;
	yaffs2_lock(ys);
	error = yaffs2_can_change(ys) ? 0 : -ENOSPC;
	yaffs2_unlock(ys);
	if (error)
		return error;
	if ((attr->ia_valid & ATTR_SIZE) && S_ISREG(inode->i_mode)) {
		error = resize(inode, attr->ia_size);
		if (error)
			return error;
	}
	setattr_copy(IDMAP inode, attr);
	yaffs2_lock(ys);
	take_over(obj, inode);
	obj->yst_mode = inode->i_mode;
	obj->yst_uid = i_uid_read(inode);
	obj->yst_gid = i_gid_read(inode);
	/* It is so now: a header that finds no page is tried again, and fsync() says that it is missing. */
	if (inode->i_nlink && yaffs_update_oh(obj, NULL, 1, 0, 0, NULL) < 0) {
		obj->dirty = 1;
		mark_inode_dirty(inode);
	}
	yaffs2_unlock(ys);
	return 0;
}

static void free_alias(void *alias)
{
	kfree(alias);
}

static const char *get_link(struct dentry *dentry, struct inode *inode, struct delayed_call *done)
{
	struct yaffs2_sb *ys = yaffs2_sb(inode->i_sb);
	u64 unreadable;
	char *alias;

	if (!dentry)
		return ERR_PTR(-ECHILD);
	yaffs2_lock(ys);
	unreadable = ys->unreadable;
	alias = yaffs_get_symlink_alias(yaffs2_obj(inode));
	unreadable = ys->unreadable - unreadable;
	yaffs2_unlock(ys);
	if (!alias)
		return ERR_PTR(-ENOMEM);
	set_delayed_call(done, free_alias, alias);
	return unreadable ? ERR_PTR(-EIO) : alias;
}

const struct inode_operations yaffs2_file_inode_operations = {
	.setattr = yaffs2_setattr,
};

const struct inode_operations yaffs2_special_inode_operations = {
	.setattr = yaffs2_setattr,
};

const struct inode_operations yaffs2_symlink_inode_operations = {
	.get_link = get_link,
	.setattr = yaffs2_setattr,
};
