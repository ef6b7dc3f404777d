// SPDX-License-Identifier: GPL-2.0
/* Names: looking them up, making, linking, moving and removing them. */
#include "yaffs2.h"

/* Of a new object, beside its headers: some room so that removing things is always possible. */
#define CHUNKS_FOR_A_NAME 4

static struct dentry *lookup(struct inode *dir, struct dentry *dentry, unsigned int flags)
{
	struct yaffs2_sb *ys = yaffs2_sb(dir->i_sb);
	struct inode *inode = NULL;
	struct yaffs_obj *obj;
	unsigned long number = 0;
	u64 unreadable;

	if (dentry->d_name.len > YAFFS_MAX_NAME_LENGTH)
		return ERR_PTR(-ENAMETOOLONG);
	yaffs2_lock(ys);
	unreadable = ys->unreadable;
	obj = yaffs_find_by_name(yaffs2_obj(dir), dentry->d_name.name);
	if (obj && !yaffs2_is_lost(obj))
		obj = yaffs_get_equivalent_obj(obj);
	if (obj)
		number = obj->obj_id;
	/* A name may be among those that could not be read. */
	unreadable = ys->unreadable - unreadable;
	yaffs2_unlock(ys);
	if (unreadable)
		return ERR_PTR(-EIO);
	/* The directory is locked, so the name stays, and its object with it. */
	if (number)
		inode = yaffs2_iget(dir->i_sb, number);
	return d_splice_alias(inode, dentry);
}

/* What a new object is made of. */
struct recipe {
	enum yaffs_obj_type type;
	umode_t mode;
	dev_t device;
	const char *alias;
};

static int make(struct inode *dir, struct dentry *dentry, const struct recipe *recipe)
{
	struct yaffs2_sb *ys = yaffs2_sb(dir->i_sb);
	struct yaffs_obj *parent = yaffs2_obj(dir);
	const char *name = dentry->d_name.name;
	u32 uid = from_kuid(&init_user_ns, current_fsuid());
	u32 gid = from_kgid(&init_user_ns, dir->i_mode & S_ISGID ? dir->i_gid : current_fsgid());
	umode_t mode = recipe->mode;
	struct yaffs_obj *obj = NULL;
	unsigned long number = 0;
	struct inode *inode;
	int error = 0;

	if (recipe->type == YAFFS_OBJECT_TYPE_DIRECTORY && (dir->i_mode & S_ISGID))
		mode |= S_ISGID;
	yaffs2_lock(ys);
	if (yaffs2_free_chunks(ys) < CHUNKS_FOR_A_NAME || !yaffs2_can_change(ys)) {
		error = -ENOSPC;
	} else {
		switch (recipe->type) {
		case YAFFS_OBJECT_TYPE_FILE:
			obj = yaffs_create_file(parent, name, mode, uid, gid);
			break;
		case YAFFS_OBJECT_TYPE_DIRECTORY:
			obj = yaffs_create_dir(parent, name, mode, uid, gid);
			break;
		case YAFFS_OBJECT_TYPE_SYMLINK:
			obj = yaffs_create_symlink(parent, name, mode, uid, gid, recipe->alias);
			break;
		default:
			obj = yaffs_create_special(parent, name, mode, uid, gid, old_encode_dev(recipe->device));
		}
		if (obj)
			number = obj->obj_id;
		else
			error = -ENOSPC;
	}
	yaffs2_unlock(ys);
	if (error)
		return error;
	inode = yaffs2_iget(dir->i_sb, number);
	if (IS_ERR(inode))
		return PTR_ERR(inode);
	yaffs2_touch(dir);
	d_instantiate(dentry, inode);
	return 0;
}

static int create(IDMAP_PARAM struct inode *dir, struct dentry *dentry, umode_t mode, bool excl)
{
	return make(dir, dentry, &(struct recipe){ .type = YAFFS_OBJECT_TYPE_FILE, .mode = mode | S_IFREG });
}

static MKDIR_RESULT mkdir(IDMAP_PARAM struct inode *dir, struct dentry *dentry, umode_t mode)
{
	return mkdir_result(
		make(dir, dentry, &(struct recipe){ .type = YAFFS_OBJECT_TYPE_DIRECTORY, .mode = mode | S_IFDIR }));
}

static int symlink(IDMAP_PARAM struct inode *dir, struct dentry *dentry, const char *target)
{
	/* The header has so much room for it. */
	if (strlen(target) > YAFFS_MAX_ALIAS_LENGTH)
		return -ENAMETOOLONG;
	return make(dir, dentry,
		    &(struct recipe){ .type = YAFFS_OBJECT_TYPE_SYMLINK, .mode = 0777 | S_IFLNK, .alias = target });
}

static int mknod(IDMAP_PARAM struct inode *dir, struct dentry *dentry, umode_t mode, dev_t device)
{
	struct recipe recipe = { .type = YAFFS_OBJECT_TYPE_SPECIAL, .mode = mode, .device = device };

	if ((mode & S_IFMT) == S_IFREG || !(mode & S_IFMT))
		recipe.type = YAFFS_OBJECT_TYPE_FILE;
	/* The medium has 8 bits for either number. */
	if ((S_ISCHR(mode) || S_ISBLK(mode)) && !old_valid_dev(device))
		return -EINVAL;
	return make(dir, dentry, &recipe);
}

static int link(struct dentry *old, struct inode *dir, struct dentry *dentry)
{
	struct inode *inode = d_inode(old);
	struct yaffs2_sb *ys = yaffs2_sb(dir->i_sb);
	struct yaffs_obj *obj = NULL;

	if (yaffs2_is_lost(yaffs2_obj(inode)))
		return -EIO;
	yaffs2_lock(ys);
	if (yaffs2_free_chunks(ys) >= CHUNKS_FOR_A_NAME && yaffs2_can_change(ys))
		obj = yaffs_link_obj(yaffs2_obj(dir), dentry->d_name.name, yaffs2_obj(inode));
	if (obj)
		set_nlink(inode, yaffs_get_obj_link_count(obj));
	yaffs2_unlock(ys);
	if (!obj)
		return -ENOSPC;
	yaffs2_touch(dir);
	yaffs2_touch(inode);
	ihold(inode);
	d_instantiate(dentry, inode);
	return 0;
}

/* The object of a name that went away, by its inode: what links are left. Called locked. */
static void lose_name(struct inode *inode)
{
	if (S_ISDIR(inode->i_mode))
		clear_nlink(inode);
	else
		set_nlink(inode, yaffs_get_obj_link_count(yaffs2_obj(inode)));
}

/*
 * The core changes names in memory before it writes headers, and where a header finds no page it says that it failed, with the name
 * changed: what holds is what the directory says then. The object stays dirty and its header is tried again.
 */
static bool removed(struct yaffs_obj *dir, const char *name)
{
	return yaffs_unlinker(dir, name) == YAFFS_OK || !yaffs_find_by_name(dir, name);
}

static bool renamed(struct yaffs_obj *from, const char *name, struct yaffs_obj *to, const char *as)
{
	struct yaffs_obj *obj = yaffs_find_by_name(from, name);

	return yaffs_rename_obj(from, name, to, as) == YAFFS_OK || (obj && yaffs_find_by_name(to, as) == obj);
}

static int unlink(struct inode *dir, struct dentry *dentry)
{
	struct yaffs2_sb *ys = yaffs2_sb(dir->i_sb);
	struct inode *inode = d_inode(dentry);
	int error = 0;

	yaffs2_lock(ys);
	/* An object with an inode is only put aside: its data goes with the inode. */
	if (yaffs2_can_change(ys) && removed(yaffs2_obj(dir), dentry->d_name.name))
		lose_name(inode);
	else
		error = -ENOSPC;
	yaffs2_unlock(ys);
	if (error)
		return error;
	yaffs2_touch(dir);
	yaffs2_touch(inode);
	return 0;
}

static int rmdir(struct inode *dir, struct dentry *dentry)
{
	struct yaffs2_sb *ys = yaffs2_sb(dir->i_sb);
	struct yaffs_obj *obj = yaffs2_obj(d_inode(dentry));
	bool full, kept;

	yaffs2_lock(ys);
	full = yaffs_is_non_empty_dir(obj);
	kept = !obj->unlink_allowed;
	yaffs2_unlock(ys);
	if (full)
		return -ENOTEMPTY;
	/* lost+found */
	return kept ? -EPERM : unlink(dir, dentry);
}

static int rename(IDMAP_PARAM struct inode *old_dir, struct dentry *old, struct inode *new_dir, struct dentry *new,
		  unsigned int flags)
{
	struct yaffs2_sb *ys = yaffs2_sb(old_dir->i_sb);
	struct inode *target = d_inode(new);
	int error = 0;

	/* The medium has no way to swap two names at once. RENAME_NOREPLACE the VFS has checked. */
	if (flags & ~RENAME_NOREPLACE)
		return -EINVAL;
	yaffs2_lock(ys);
	if (!yaffs2_obj(d_inode(old))->rename_allowed)
		error = -EPERM;
	else if (target && S_ISDIR(target->i_mode) && yaffs_is_non_empty_dir(yaffs2_obj(target)))
		error = -ENOTEMPTY;
	else if (target && !yaffs2_obj(target)->unlink_allowed)
		error = -EPERM;
	else if (!yaffs2_can_change(ys) ||
		 !renamed(yaffs2_obj(old_dir), old->d_name.name, yaffs2_obj(new_dir), new->d_name.name))
		error = -ENOSPC;
	if (!error && target)
		lose_name(target);
	yaffs2_unlock(ys);
	if (error)
		return error;
	yaffs2_touch(old_dir);
	if (new_dir != old_dir)
		yaffs2_touch(new_dir);
	yaffs2_touch(d_inode(old));
	if (target)
		yaffs2_touch(target);
	return 0;
}

const struct inode_operations yaffs2_dir_inode_operations = {
	.lookup = lookup,
	.create = create,
	.link = link,
	.unlink = unlink,
	.symlink = symlink,
	.mkdir = mkdir,
	.rmdir = rmdir,
	.mknod = mknod,
	.rename = rename,
	.setattr = yaffs2_setattr,
};
