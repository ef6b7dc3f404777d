// SPDX-License-Identifier: GPL-2.0
/*
 * What the flash says is checked before the core believes it. The core takes tags, summaries and headers as they are, and a
 * damaged or forged one makes it use an object of one type as another, or memory that it has freed. Such a page is ignored, as
 * the core ignores pages with impossible tags; a part of a header that makes no sense is replaced.
 */
#include "yaffs2.h"
#include "yaffs_packedtags2.h"
#include "yaffs_summary.h"
#include "yaffs_yaffs2.h"

/* Tags with such a number are those of a page that the core's scan ignores. */
#define IGNORED_OBJECT (YAFFS_MAX_OBJECT_ID + 1)

static bool is_type(unsigned int type)
{
	return type > YAFFS_OBJECT_TYPE_UNKNOWN && type <= YAFFS_OBJECT_TYPE_MAX;
}

static bool is_object(u32 number)
{
	return number && number <= YAFFS_MAX_OBJECT_ID;
}

/* An object that the scan has made because something refers to it, and of which no header was found yet. */
static struct yaffs_obj *awaited(struct yaffs_dev *dev, u32 number)
{
	struct yaffs_obj *obj = yaffs_find_by_number(dev, number);

	return obj && !obj->valid ? obj : NULL;
}

static bool header_is_possible(struct yaffs_dev *dev, const struct yaffs_ext_tags *tags)
{
	const struct yaffs_obj *obj;

	/* These two are on no flash: the core has them in memory only. */
	if (tags->obj_id == YAFFS_OBJECTID_UNLINKED || tags->obj_id == YAFFS_OBJECTID_DELETED)
		return false;
	if (!tags->extra_available)
		return true;
	obj = awaited(dev, tags->obj_id);
	return is_type(tags->extra_obj_type) && (!obj || obj->variant_type == tags->extra_obj_type);
}

/* Tags that the core is about to use in its scan. Called locked. */
static void check_tags(struct yaffs2_sb *ys, struct yaffs_ext_tags *tags)
{
	struct yaffs_dev *dev = &ys->dev;

	ys->scanned = tags->obj_id;
	if (!tags->chunk_used || tags->obj_id == YAFFS_OBJECTID_SUMMARY)
		return;
	if (!is_object(tags->obj_id) || (!tags->chunk_id && !header_is_possible(dev, tags))) {
		tags->obj_id = IGNORED_OBJECT;
		tags->extra_available = 0;
		ys->ignored++;
		return;
	}
	if (!tags->extra_available)
		return;
	if (!is_object(tags->extra_parent_id))
		tags->extra_parent_id = YAFFS_OBJECTID_LOSTNFOUND;
	if (tags->extra_parent_id == YAFFS_OBJECTID_UNLINKED || tags->extra_parent_id == YAFFS_OBJECTID_DELETED)
		tags->extra_file_size = 0;
}

/* A name that a directory can list: no slash, and not one of the two that every directory has. */
static void check_name(char *name)
{
	char *at;

	if (strnlen(name, YAFFS_MAX_NAME_LENGTH) == YAFFS_MAX_NAME_LENGTH)
		name[YAFFS_MAX_NAME_LENGTH] = 0;
	for (at = name; *at; at++)
		if (*at == '/')
			*at = '_';
	if (!strcmp(name, ".") || !strcmp(name, ".."))
		name[0] = '_';
}

/*
 * Strings of a header. One that has an end is left as it is to the last byte: the core reads back what it wrote and compares, and
 * behind a name there is 0xff. Called locked.
 */
static void check_strings(struct yaffs_obj_hdr *header)
{
	check_name(header->name);
	if (header->type == YAFFS_OBJECT_TYPE_SYMLINK &&
	    strnlen(header->alias, YAFFS_MAX_ALIAS_LENGTH) == YAFFS_MAX_ALIAS_LENGTH)
		header->alias[YAFFS_MAX_ALIAS_LENGTH] = 0;
}

/* A header that the core's scan is about to use, of the object of this number. Called locked. */
static void check_header(struct yaffs2_sb *ys, u32 number, struct yaffs_obj_hdr *header)
{
	struct yaffs_obj *obj = awaited(&ys->dev, number);
	u32 parent = header->parent_obj_id;

	if (obj) {
		header->type = obj->variant_type;
	} else if (!is_type(header->type)) {
		/* A special file without a type is one that nobody can open. */
		header->type = YAFFS_OBJECT_TYPE_SPECIAL;
		header->yst_mode = 0;
	}
	check_strings(header);
	if (!is_object(parent))
		header->parent_obj_id = YAFFS_OBJECTID_LOSTNFOUND;
	/* What is on its way out has no data that counts. */
	if (parent == YAFFS_OBJECTID_UNLINKED || parent == YAFFS_OBJECTID_DELETED) {
		header->file_size_low = 0;
		header->file_size_high = 0;
	}
	if (!is_object(header->shadows_obj))
		header->shadows_obj = 0;
	if (!is_object(header->inband_shadowed_obj_id))
		header->inband_shadowed_obj_id = 0;
}

/* What was read of a page: tags, and its data where that was asked for. Called locked. */
void yaffs2_check_page(struct yaffs2_sb *ys, struct yaffs_ext_tags *tags, u8 *data)
{
	if (ys->scanning) {
		/* Data that is no summary's the scan takes for a header, of the number that it had before. */
		if (!data)
			check_tags(ys, tags);
		else if (!ys->in_summary)
			check_header(ys, ys->scanned, (struct yaffs_obj_hdr *)data);
		return;
	}
	if (tags->seq_number == YAFFS_SEQUENCE_CHECKPOINT_DATA) {
		/* Where the checkpoint goes on: a block, or the end. */
		if (tags->obj_id < ys->dev.internal_start_block || tags->obj_id > ys->dev.internal_end_block)
			tags->obj_id = ys->dev.internal_end_block + 1;
	} else if (data && tags->chunk_used && !tags->chunk_id && tags->obj_id != YAFFS_OBJECTID_SUMMARY) {
		check_strings((struct yaffs_obj_hdr *)data);
	}
}

/* In place of the core's functions of these names where it mounts (Kbuild): from here on pages are checked as the scan's. */
int yaffs2_scan(struct yaffs_dev *dev)
{
	struct yaffs2_sb *ys = yaffs2_of(dev);
	int result;

	ys->scanning = true;
	ys->lost_targets = 0;
	result = yaffs2_scan_backwards(dev);
	ys->scanning = false;
	return result;
}

int yaffs2_summary_read(struct yaffs_dev *dev, struct yaffs_summary_tags *tags, int block)
{
	struct yaffs2_sb *ys = yaffs2_of(dev);
	int result;

	ys->in_summary = true;
	result = yaffs_summary_read(dev, tags, block);
	ys->in_summary = false;
	return result;
}

int yaffs2_summary_fetch(struct yaffs_dev *dev, struct yaffs_ext_tags *tags, int chunk)
{
	int result = yaffs_summary_fetch(dev, tags, chunk);

	/* Without a number the core reads the page's own tags. */
	if (result == YAFFS_OK && tags->obj_id)
		check_tags(yaffs2_of(dev), tags);
	return result;
}

/* What a hard link may be a name of. */
static bool can_be_linked(const struct yaffs_dev *dev, const struct yaffs_obj *obj)
{
	if (!obj || obj->fake || obj->parent == dev->unlinked_dir || obj->parent == dev->del_dir)
		return false;
	return obj->variant_type == YAFFS_OBJECT_TYPE_FILE || obj->variant_type == YAFFS_OBJECT_TYPE_SYMLINK ||
	       obj->variant_type == YAFFS_OBJECT_TYPE_SPECIAL;
}

/* In place of the core's yaffs_link_fixup() (Kbuild), which takes any object, the link itself and what is deleted among them. */
void yaffs2_link_fixup(struct yaffs_dev *dev, struct list_head *links)
{
	struct yaffs_obj *link, *next, *target;

	list_for_each_entry_safe(link, next, links, hard_links) {
		target = yaffs_find_by_number(dev, link->variant.hardlink_variant.equiv_id);
		list_del_init(&link->hard_links);
		if (!can_be_linked(dev, target)) {
			link->variant.hardlink_variant.equiv_obj = NULL;
			yaffs2_of(dev)->lost_targets++;
			continue;
		}
		link->variant.hardlink_variant.equiv_obj = target;
		list_add(&link->hard_links, &target->hard_links);
	}
}

/* --- after the mount --- */

/* The last chunk of a file that there is, counted from 1; 0 where there is none. A tree has eight levels at most. */
static u32 last_chunk(struct yaffs_dev *dev, struct yaffs_tnode *tnode, int level)
{
	int i;

	if (!tnode)
		return 0;
	if (!level) {
		for (i = YAFFS_NTNODES_LEVEL0 - 1; i >= 0; i--)
			if (yaffs_get_group_base(dev, tnode, i))
				return i;
		return 0;
	}
	for (i = YAFFS_NTNODES_INTERNAL - 1; i >= 0; i--) {
		u32 found = last_chunk(dev, tnode->internal[i], level - 1);

		if (found || (i && tnode->internal[i]))
			return found | (i << (YAFFS_TNODES_LEVEL0_BITS + (level - 1) * YAFFS_TNODES_INTERNAL_BITS));
	}
	return 0;
}

/*
 * Before a file is made shorter: the core looks for each chunk up to the file's end, and the end that a header claims may be
 * terabytes beyond the last one. Called locked.
 */
void yaffs2_trim(struct yaffs_obj *obj, loff_t size)
{
	struct yaffs_file_var *file = &obj->variant.file_variant;
	loff_t end;
	u32 last;
	int i;

	if (obj->variant_type != YAFFS_OBJECT_TYPE_FILE || (size && file->file_size <= size))
		return;
	last = last_chunk(obj->my_dev, file->top, file->top_level);
	/*
	 * The core writes what it has in its cache before it cuts: such a chunk would be left beyond the end, and once garbage
	 * collection has moved it, it is newer than the header, and the file has its old length after the next mount.
	 */
	for (i = 0; i < obj->my_dev->param.n_caches; i++)
		if (obj->my_dev->cache[i].object == obj)
			last = max_t(u32, last, obj->my_dev->cache[i].chunk_id);
	end = (loff_t)last * obj->my_dev->data_bytes_per_chunk;
	if (!size)
		/* Also what lies beyond the file's end, which the core would leave. */
		file->file_size = max(end, min_t(loff_t, file->file_size, 1));
	else
		/* Still to be made shorter. */
		file->file_size = min(file->file_size, max(end, size + 1));
}

/* Numbers of a directory's children, since removing one may free others. Called locked. */
static u32 *children_of(struct yaffs_obj *dir, u32 *count)
{
	struct list_head *link;
	u32 *numbers;

	*count = 0;
	list_for_each(link, &dir->variant.dir_variant.children)
		++*count;
	numbers = kvmalloc_array(max(*count, 1U), sizeof(*numbers), GFP_KERNEL);
	*count = 0;
	if (!numbers)
		return NULL;
	list_for_each(link, &dir->variant.dir_variant.children)
		numbers[(*count)++] = list_entry(link, struct yaffs_obj, siblings)->obj_id;
	return numbers;
}

/* What was unlinked, and not yet gone when the power went. */
static int remove_unlinked(struct yaffs_dev *dev, struct yaffs_obj *dir)
{
	u32 count, i;
	u32 *numbers = children_of(dir, &count);

	if (!numbers)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		struct yaffs_obj *obj = yaffs_find_by_number(dev, numbers[i]);

		if (!obj || obj->parent != dir)
			continue;
		yaffs2_trim(obj, 0);
		yaffs_del_obj(obj);
	}
	kvfree(numbers);
	return 0;
}

/* Objects whose way up does not end in the root directory, because of a loop or of a directory that was removed: to lost+found. */
static void root_one(struct yaffs_dev *dev, struct yaffs_obj *obj, unsigned long *rooted, unsigned long *passed)
{
	struct yaffs_obj *at, *below = obj;

	for (at = obj; at != dev->root_dir && !test_bit(at->obj_id, rooted); below = at, at = at->parent) {
		if (!at->parent || __test_and_set_bit(at->obj_id, passed)) {
			yaffs_add_obj_to_dir(dev->lost_n_found, at);
			break;
		}
		/* A directory that is removed and has children. */
		if (at->parent == dev->unlinked_dir || at->parent == dev->del_dir) {
			yaffs_add_obj_to_dir(dev->lost_n_found, below);
			break;
		}
	}
	for (at = obj; at != dev->root_dir && !__test_and_set_bit(at->obj_id, rooted);)
		at = at->parent;
}

static int root_hanging(struct yaffs_dev *dev)
{
	unsigned long *rooted = bitmap_zalloc(YAFFS_OBJECT_SPACE, GFP_KERNEL);
	unsigned long *passed = bitmap_zalloc(YAFFS_OBJECT_SPACE, GFP_KERNEL);
	int error = rooted && passed ? 0 : -ENOMEM;
	struct yaffs_obj *obj;
	int bucket;

	for (bucket = 0; !error && bucket < YAFFS_NOBJECT_BUCKETS; bucket++)
		list_for_each_entry(obj, &dev->obj_bucket[bucket].list, hash_link)
			if (obj != dev->unlinked_dir && obj != dev->del_dir && obj->parent != dev->unlinked_dir &&
			    obj->parent != dev->del_dir && !obj->defered_free)
				root_one(dev, obj, rooted, passed);
	bitmap_free(passed);
	bitmap_free(rooted);
	return error;
}

/* The option empty-lost-and-found-on. The core's own way frees what it will look at next where that is another name of a file. */
static void empty_lost_and_found(struct yaffs_dev *dev)
{
	struct yaffs_obj *dir = dev->lost_n_found;
	char name[YAFFS_MAX_NAME_LENGTH + 1];
	int left = dev->n_obj;

	while (left-- > 0 && !list_empty(&dir->variant.dir_variant.children)) {
		struct yaffs_obj *obj = dir;

		while (yaffs_is_non_empty_dir(obj))
			obj = list_first_entry(&obj->variant.dir_variant.children, struct yaffs_obj, siblings);
		yaffs_get_obj_name(obj, name, sizeof(name));
		yaffs2_trim(obj, 0);
		if (yaffs_unlinker(obj->parent, name) != YAFFS_OK)
			break;
	}
}

/*
 * The core does the like in yaffs_guts_initialise(), where it is not told that the file system is read-only: then it walks
 * lists of what it removes, and looks for each chunk of files however long they claim to be. Called locked.
 */
int yaffs2_check_tree(struct yaffs2_sb *ys)
{
	struct yaffs_dev *dev = &ys->dev;
	int error = 0;

	if (!dev->read_only) {
		error = remove_unlinked(dev, dev->unlinked_dir);
		if (!error)
			error = remove_unlinked(dev, dev->del_dir);
	}
	if (!error)
		error = root_hanging(dev);
	if (!error && !dev->read_only && ys->options.empty_lost_and_found)
		empty_lost_and_found(dev);
	if (ys->ignored || ys->lost_targets)
		pr_warn("yaffs2: %s: ignored %u pages that make no sense; %u links to files that are lost\n", ys->mtd->name,
			ys->ignored, ys->lost_targets);
	return error;
}
