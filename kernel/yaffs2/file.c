// SPDX-License-Identifier: GPL-2.0
/*
 * Files: through the page cache, written back later. Room for what is dirty is set aside when it becomes dirty, so that a
 * write that was accepted is not lost for lack of room.
 */
#include <linux/mm.h>
#include <linux/uio.h>
#include <linux/backing-dev.h>

#include "yaffs2.h"

/* Reads, and drops from the core's cache what the core would later take for data although it could not be read. */
int yaffs2_read_checked(struct yaffs2_sb *ys, struct yaffs_obj *obj, u8 *buffer, loff_t pos, int length)
{
	u64 unreadable = ys->unreadable;
	int i;

	yaffs_file_rd(obj, buffer, pos, length);
	if (ys->unreadable == unreadable)
		return 0;
	for (i = 0; i < ys->dev.param.n_caches; i++) {
		struct yaffs_cache *cache = &ys->dev.cache[i];

		if (cache->object == obj && !cache->dirty)
			cache->object = NULL;
	}
	return -EIO;
}

/* What of a folio lies in the file. */
static size_t valid_bytes(struct folio *folio, loff_t size)
{
	loff_t pos = folio_pos(folio);

	if (size <= pos)
		return 0;
	return min_t(loff_t, size - pos, folio_size(folio));
}

static int fill_folio(struct inode *inode, struct folio *folio)
{
	struct yaffs2_sb *ys = yaffs2_sb(inode->i_sb);
	size_t size = folio_size(folio);
	size_t valid = valid_bytes(folio, i_size_read(inode));
	u8 *address = yaffs2_map(folio);
	int error = 0;

	if (valid) {
		yaffs2_lock(ys);
		/* Whole chunks: the rest of the last one is no data and is cleared below. */
		error = yaffs2_read_checked(ys, yaffs2_obj(inode), address, folio_pos(folio), size);
		yaffs2_unlock(ys);
	}
	memset(address + valid, 0, size - valid);
	flush_dcache_folio(folio);
	yaffs2_unmap(folio, address);
	if (!error)
		folio_mark_uptodate(folio);
	return error;
}

static int read_folio(struct file *file, struct folio *folio)
{
	int error = fill_folio(folio_mapping(folio)->host, folio);

	folio_unlock(folio);
	return error;
}

/* --- room for what is dirty --- */

static long chunks_of(struct yaffs2_sb *ys, struct folio *folio)
{
	/* Where chunks and pages do not fall together a page touches one chunk more. */
	return DIV_ROUND_UP(folio_size(folio), ys->dev.data_bytes_per_chunk) + (ys->options.inband_tags ? 1 : 0);
}

/* A header, and what the core may need for a file that grows. */
#define CHUNKS_IN_HAND 8

static bool has_room(struct yaffs2_sb *ys, long chunks)
{
	bool room;

	yaffs2_lock(ys);
	room = yaffs2_free_chunks(ys) >= chunks + CHUNKS_IN_HAND;
	if (room)
		atomic_long_add(chunks, &ys->reserved);
	yaffs2_unlock(ys);
	return room;
}

/* A folio's private data says that its room is set aside. Called with the folio locked. */
static int set_aside(struct inode *inode, struct folio *folio)
{
	struct yaffs2_sb *ys = yaffs2_sb(inode->i_sb);

	if (folio_get_private(folio))
		return 0;
	if (!has_room(ys, chunks_of(ys, folio)))
		return -ENOSPC;
	folio_attach_private(folio, (void *)1UL);
	return 0;
}

static void give_back(struct yaffs2_sb *ys, struct folio *folio)
{
	if (folio_get_private(folio)) {
		folio_detach_private(folio);
		atomic_long_sub(chunks_of(ys, folio), &ys->reserved);
	}
}

/* Writing what is dirty turns room set aside for the worst case into room. Called without a folio locked. */
static void make_room(struct inode *inode)
{
	try_to_writeback_inodes_sb(inode->i_sb, WB_REASON_FS_FREE_SPACE);
}

/* --- writing --- */

static int write_begin(WRITE_BEGIN_PARAMS)
{
	struct inode *inode = mapping->host;
	struct folio *folio;
	bool tried = false;
	int error;

again:
	folio = yaffs2_grab(mapping, pos >> PAGE_SHIFT);
	if (IS_ERR(folio))
		return PTR_ERR(folio);
	/* What is on its way to the flash must not change: its ECC is computed before all of it is there. */
	folio_wait_writeback(folio);
	error = set_aside(inode, folio);
	if (error && !tried) {
		folio_unlock(folio);
		folio_put(folio);
		make_room(inode);
		tried = true;
		goto again;
	}
	if (!error && !folio_test_uptodate(folio) && len != folio_size(folio))
		error = fill_folio(inode, folio);
	if (error) {
		if (!folio_test_dirty(folio))
			give_back(yaffs2_sb(inode->i_sb), folio);
		folio_unlock(folio);
		folio_put(folio);
		return error;
	}
#ifdef WRITE_PASSES_PAGES
	*foliop = folio_page(folio, 0);
#else
	*foliop = folio;
#endif
	return 0;
}

static int write_end(WRITE_END_PARAMS)
{
	struct inode *inode = mapping->host;
#ifdef WRITE_PASSES_PAGES
	struct folio *folio = page_folio(written);
#endif

	if (!folio_test_uptodate(folio)) {
		/* A whole folio was to be written and was not: it is not known what the rest is. */
		if (copied < len)
			copied = 0;
		else
			folio_mark_uptodate(folio);
	}
	if (copied) {
		if (pos + copied > i_size_read(inode)) {
			i_size_write(inode, pos + copied);
			inode->i_blocks = (pos + copied + 511) >> 9;
			mark_inode_dirty(inode);
		}
		folio_mark_dirty(folio);
	} else if (!folio_test_dirty(folio)) {
		give_back(yaffs2_sb(inode->i_sb), folio);
	}
	folio_unlock(folio);
	folio_put(folio);
	return copied;
}

/* Whether the core, which reads what it keeps of a chunk that is written in part, can read it. Called locked. */
static int check_kept(struct yaffs2_sb *ys, struct yaffs_obj *obj, loff_t pos, size_t length)
{
	int chunk_bytes = ys->dev.data_bytes_per_chunk;
	loff_t size = obj->variant.file_variant.file_size;
	u32 within, end_within;
	int number, error = 0;
	u8 *buffer;

	yaffs_addr_to_chunk(&ys->dev, pos, &number, &within);
	yaffs_addr_to_chunk(&ys->dev, pos + length, &number, &end_within);
	if ((!within || pos - within >= size) && (!end_within || pos + length >= size))
		return 0;
	buffer = kmalloc(chunk_bytes, GFP_NOFS);
	if (!buffer)
		return -ENOMEM;
	if (within && pos - within < size)
		error = yaffs2_read_checked(ys, obj, buffer, pos - within, chunk_bytes);
	if (!error && end_within && pos + length < size)
		error = yaffs2_read_checked(ys, obj, buffer, pos + length - end_within, chunk_bytes);
	kfree(buffer);
	return error;
}

static int write_folio(struct folio *folio, struct inode *inode, struct writeback_control *wbc)
{
	struct yaffs2_sb *ys = yaffs2_sb(inode->i_sb);
	struct yaffs_obj *obj = yaffs2_obj(inode);
	size_t valid = valid_bytes(folio, i_size_read(inode));
	u8 *address;
	int error = 0;

	/* A mapping may have written beyond the end. Locked: a write that makes the file longer comes before or after. */
	if (valid < folio_size(folio))
		folio_zero_range(folio, valid, folio_size(folio) - valid);
	folio_start_writeback(folio);
	folio_unlock(folio);
	if (valid) {
		address = yaffs2_map(folio);
		yaffs2_lock(ys);
		error = check_kept(ys, obj, folio_pos(folio), valid);
		/*
		 * Where chunks and pages fall together nothing stays behind in the core's cache, and so no error in it. With
		 * tags among the data the neighbours share chunks: those are put together in the cache.
		 */
		if (!error && yaffs_wr_file(obj, address, folio_pos(folio), valid, !ys->options.inband_tags) != (int)valid)
			error = ys->dead ? -EIO : -ENOSPC;
		yaffs2_unlock(ys);
		yaffs2_unmap(folio, address);
	}
	if (error == -ENOSPC) {
		/*
		 * Blocks that failed took the room that was set aside. What was accepted stays, and is written once there is
		 * room again; until then an fsync() says that it is not.
		 */
		folio_redirty_for_writepage(wbc, folio);
		if (wbc->sync_mode == WB_SYNC_ALL)
			mapping_set_error(inode->i_mapping, error);
		else
			error = 0;
	} else {
		give_back(ys, folio);
		if (error)
			mapping_set_error(inode->i_mapping, error);
	}
	folio_end_writeback(folio);
	return error;
}

#ifdef YAFFS2_WRITEBACK_ITER
static int writepages(struct address_space *mapping, struct writeback_control *wbc)
{
	struct folio *folio = NULL;
	int error = 0;

	while ((folio = writeback_iter(mapping, wbc, folio, &error)))
		error = write_folio(folio, mapping->host, wbc);
	return error;
}
#else
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
static int write_one(struct folio *folio, struct writeback_control *wbc, void *data)
{
	return write_folio(folio, data, wbc);
}
#else
static int write_one(struct page *page, struct writeback_control *wbc, void *data)
{
	return write_folio(page_folio(page), data, wbc);
}
#endif

static int writepages(struct address_space *mapping, struct writeback_control *wbc)
{
	return write_cache_pages(mapping, wbc, write_one, mapping->host);
}
#endif

#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 19, 0)
static void invalidate_folio(struct folio *folio, size_t offset, size_t length)
{
	if (offset == 0 && length == folio_size(folio))
		give_back(yaffs2_sb(folio->mapping->host->i_sb), folio);
}

static bool release_folio(struct folio *folio, gfp_t gfp)
{
	if (folio_test_dirty(folio))
		return false;
	give_back(yaffs2_sb(folio->mapping->host->i_sb), folio);
	return true;
}
#else
static void invalidate_page(struct page *page, unsigned int offset, unsigned int length)
{
	if (offset == 0 && length == PAGE_SIZE)
		give_back(yaffs2_sb(page->mapping->host->i_sb), page);
}

static int release_page(struct page *page, gfp_t gfp)
{
	if (PageDirty(page))
		return 0;
	give_back(yaffs2_sb(page->mapping->host->i_sb), page);
	return 1;
}
#endif

const struct address_space_operations yaffs2_aops = {
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 19, 0)
	.read_folio = read_folio,
	.dirty_folio = filemap_dirty_folio,
	.invalidate_folio = invalidate_folio,
	.release_folio = release_folio,
#else
	.readpage = read_folio,
	.set_page_dirty = __set_page_dirty_nobuffers,
	.invalidatepage = invalidate_page,
	.releasepage = release_page,
#endif
	.write_begin = write_begin,
	.write_end = write_end,
	.writepages = writepages,
};

/* --- mappings --- */

static vm_fault_t page_mkwrite(struct vm_fault *fault)
{
	struct inode *inode = file_inode(fault->vma->vm_file);
	struct folio *folio = page_folio(fault->page);
	vm_fault_t result = VM_FAULT_LOCKED;
	bool tried = false;
	int error;

	sb_start_pagefault(inode->i_sb);
	file_update_time(fault->vma->vm_file);
again:
	folio_lock(folio);
	if (folio->mapping != inode->i_mapping || folio_pos(folio) >= i_size_read(inode)) {
		folio_unlock(folio);
		result = VM_FAULT_NOPAGE;
		goto out;
	}
	folio_wait_writeback(folio);
	error = set_aside(inode, folio);
	if (error && !tried) {
		folio_unlock(folio);
		make_room(inode);
		tried = true;
		goto again;
	}
	if (error) {
		folio_unlock(folio);
		result = VM_FAULT_SIGBUS;
		goto out;
	}
	folio_mark_dirty(folio);
out:
	sb_end_pagefault(inode->i_sb);
	return result;
}

static const struct vm_operations_struct vm_operations = {
	.fault = filemap_fault,
	.map_pages = filemap_map_pages,
	.page_mkwrite = page_mkwrite,
};

static int mmap(struct file *file, struct vm_area_struct *vma)
{
	file_accessed(file);
	vma->vm_ops = &vm_operations;
	return 0;
}

int yaffs2_fsync(struct file *file, loff_t start, loff_t end, int datasync)
{
	struct inode *inode = file_inode(file);
	struct yaffs2_sb *ys = yaffs2_sb(inode->i_sb);
	int error = file_write_and_wait_range(file, start, end);

	if (error)
		return error;
	/* The header has the size, so the data alone is not enough. */
	error = sync_inode_metadata(inode, 1);
	if (!error && S_ISREG(inode->i_mode)) {
		yaffs2_lock(ys);
		if (yaffs_flush_file(yaffs2_obj(inode), 0, 0) != YAFFS_OK)
			error = yaffs2_write_error(ys);
		yaffs2_unlock(ys);
	}
	mtd_sync(ys->mtd);
	return error;
}

/* With `write-through` as the original: data is on the flash when write() returns, the header when the file is closed. */
static ssize_t write_iter(struct kiocb *iocb, struct iov_iter *from)
{
	struct inode *inode = file_inode(iocb->ki_filp);
	ssize_t written = generic_file_write_iter(iocb, from);
	int error;

	if (written <= 0 || !yaffs2_sb(inode->i_sb)->options.write_through)
		return written;
	error = filemap_write_and_wait_range(inode->i_mapping, iocb->ki_pos - written, iocb->ki_pos - 1);
	return error ? error : written;
}

static int flush(struct file *file, fl_owner_t id)
{
	struct inode *inode = file_inode(file);

	if (!(file->f_mode & FMODE_WRITE) || !yaffs2_sb(inode->i_sb)->options.write_through)
		return 0;
	return sync_inode_metadata(inode, 1);
}

const struct file_operations yaffs2_file_operations = {
	.llseek = generic_file_llseek,
	.read_iter = generic_file_read_iter,
	.write_iter = write_iter,
	.flush = flush,
	.mmap = mmap,
	.fsync = yaffs2_fsync,
	.splice_read = filemap_splice_read,
	.splice_write = iter_file_splice_write,
};
