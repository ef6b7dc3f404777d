/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where kernels differ, and nowhere else. Each difference names the version that brought it. The glue is written for the
 * newest one; older ones get the missing names here.
 */
#ifndef YAFFS2_COMPAT_H
#define YAFFS2_COMPAT_H

#include <linux/fs.h>
#include <linux/pagemap.h>
#include <linux/highmem.h>
#include <linux/version.h>
#include <linux/writeback.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 10, 0)
#error "kernels before 5.10 are not supported"
#endif
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 16, 0) && LINUX_VERSION_CODE < KERNEL_VERSION(5, 19, 0)
#error "5.16 to 5.18 have folios, but not yet in address_space_operations: take 5.10, 5.15, or 5.19 and newer"
#endif

/* 5.12 gives inode operations a user namespace (549c7297717c), 6.3 a mount's idmap in its place (abf08576afe3). */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
#define IDMAP_PARAM struct mnt_idmap *idmap,
#define IDMAP idmap,
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(5, 12, 0)
#define IDMAP_PARAM struct user_namespace *idmap,
#define IDMAP idmap,
#else
#define IDMAP_PARAM
#define IDMAP
#endif

/* 6.15: ->mkdir() gives a dentry (88d5baf69082). */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 15, 0)
#define MKDIR_RESULT struct dentry *
#define mkdir_result(error) ERR_PTR(error)
#else
#define MKDIR_RESULT int
#define mkdir_result(error) (error)
#endif

/*
 * 6.6 brings accessors of ctime (9b6304c1d537), 6.7 those of atime and mtime (077c212f0344). Stable kernels took some of them
 * over, so these have names of their own.
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0)
#define yaffs2_atime(inode) ((u32)inode_get_atime_sec(inode))
#define yaffs2_mtime(inode) ((u32)inode_get_mtime_sec(inode))
#define yaffs2_ctime(inode) ((u32)inode_get_ctime_sec(inode))
static inline void yaffs2_set_times(struct inode *inode, u32 atime, u32 mtime, u32 ctime)
{
	inode_set_atime(inode, atime, 0);
	inode_set_mtime(inode, mtime, 0);
	inode_set_ctime(inode, ctime, 0);
}
#else
#define yaffs2_atime(inode) ((u32)(inode)->i_atime.tv_sec)
#define yaffs2_mtime(inode) ((u32)(inode)->i_mtime.tv_sec)
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 6, 0)
#define yaffs2_ctime(inode) ((u32)inode_get_ctime(inode).tv_sec)
#else
#define yaffs2_ctime(inode) ((u32)(inode)->i_ctime.tv_sec)
#endif
static inline void yaffs2_set_times(struct inode *inode, u32 atime, u32 mtime, u32 ctime)
{
	inode->i_atime = (struct timespec64){ .tv_sec = atime };
	inode->i_mtime = (struct timespec64){ .tv_sec = mtime };
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 6, 0)
	inode_set_ctime(inode, ctime, 0);
#else
	inode->i_ctime = (struct timespec64){ .tv_sec = ctime };
#endif
}
#endif

/* 6.19: i_state is read by an accessor (b4dbfd8653b3 and on). */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 19, 0)
#define inode_is_new(inode) (inode_state_read_once(inode) & I_NEW)
#else
#define inode_is_new(inode) ((inode)->i_state & I_NEW)
#endif

/* 6.5: generic_file_splice_read() became filemap_splice_read() (2cb1e08985e3). */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 5, 0)
#define filemap_splice_read generic_file_splice_read
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 16, 0)
/* Folios came with 5.16 (7b230db3b8d3): before, a page of its own stands for one. */
#define folio page
#define folio_pos(f) page_offset(f)
#define folio_size(f) PAGE_SIZE
#define folio_lock(f) lock_page(f)
#define folio_unlock(f) unlock_page(f)
#define folio_put(f) put_page(f)
#define folio_mapping(f) page_mapping(f)
#define folio_test_uptodate(f) PageUptodate(f)
#define folio_mark_uptodate(f) SetPageUptodate(f)
#define folio_test_dirty(f) PageDirty(f)
#define folio_mark_dirty(f) set_page_dirty(f)
#define folio_wait_writeback(f) wait_on_page_writeback(f)
#define folio_start_writeback(f) set_page_writeback(f)
#define folio_end_writeback(f) end_page_writeback(f)
#define folio_redirty_for_writepage(wbc, f) redirty_page_for_writepage(wbc, f)
#define folio_get_private(f) ((void *)(PagePrivate(f) ? page_private(f) : 0))
#define folio_attach_private(f, data) attach_page_private(f, data)
#define folio_detach_private(f) detach_page_private(f)
#define folio_zero_range(f, start, length) zero_user(f, start, length)
#define flush_dcache_folio(f) flush_dcache_page(f)
#define page_folio(p) (p)
#define folio_page(f, n) (f)
#endif

/* 5.11: kmap_local_page() (f3ba3c710ac5); 5.16: kmap_local_folio(). */
static inline void *yaffs2_map(struct folio *folio)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 11, 0)
	return kmap(folio);
#elif LINUX_VERSION_CODE < KERNEL_VERSION(5, 16, 0)
	return kmap_local_page(folio);
#else
	return kmap_local_folio(folio, 0);
#endif
}

static inline void yaffs2_unmap(struct folio *folio, void *address)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 11, 0)
	kunmap(folio);
#else
	kunmap_local(address);
#endif
}

/* A locked folio for a write at index. */
static inline struct folio *yaffs2_grab(struct address_space *mapping, pgoff_t index)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 16, 0)
	struct folio *folio = grab_cache_page_write_begin(mapping, index, 0);

	return folio ? folio : ERR_PTR(-ENOMEM);
#else
	struct folio *folio = __filemap_get_folio(mapping, index, FGP_LOCK | FGP_WRITE | FGP_CREAT,
						  mapping_gfp_mask(mapping));

	/* NULL for no memory until 6.4 (66dabbb65d67). */
	return folio ? folio : ERR_PTR(-ENOMEM);
#endif
}

/*
 * address_space_operations: ->readpage() is ->read_folio() from 5.19 on (7e0a126519b8), ->invalidatepage() and
 * ->set_page_dirty() their folio kin from 5.18 on, ->releasepage() from 5.19 on. ->write_begin() lost its flags in 5.19
 * (9d6b0cd75784), takes folios from 6.12 on (1da86618bdce) and a kiocb from 6.17 on (e9d8e2bf2320).
 */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
#define WRITE_BEGIN_PARAMS                                                                                              \
	const struct kiocb *iocb, struct address_space *mapping, loff_t pos, unsigned int len, struct folio **foliop,   \
		void **fsdata
#define WRITE_END_PARAMS                                                                                                \
	const struct kiocb *iocb, struct address_space *mapping, loff_t pos, unsigned int len, unsigned int copied,     \
		struct folio *folio, void *fsdata
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
#define WRITE_BEGIN_PARAMS                                                                                              \
	struct file *file, struct address_space *mapping, loff_t pos, unsigned int len, struct folio **foliop,          \
		void **fsdata
#define WRITE_END_PARAMS                                                                                                \
	struct file *file, struct address_space *mapping, loff_t pos, unsigned int len, unsigned int copied,            \
		struct folio *folio, void *fsdata
#elif LINUX_VERSION_CODE >= KERNEL_VERSION(5, 19, 0)
#define WRITE_BEGIN_PARAMS                                                                                              \
	struct file *file, struct address_space *mapping, loff_t pos, unsigned int len, struct page **foliop, void **fsdata
#define WRITE_END_PARAMS                                                                                                \
	struct file *file, struct address_space *mapping, loff_t pos, unsigned int len, unsigned int copied,            \
		struct page *written, void *fsdata
#define WRITE_PASSES_PAGES 1
#else
#define WRITE_BEGIN_PARAMS                                                                                              \
	struct file *file, struct address_space *mapping, loff_t pos, unsigned int len, unsigned int flags,             \
		struct page **foliop, void **fsdata
#define WRITE_END_PARAMS                                                                                                \
	struct file *file, struct address_space *mapping, loff_t pos, unsigned int len, unsigned int copied,            \
		struct page *written, void *fsdata
#define WRITE_PASSES_PAGES 1
#endif

/* 6.12: writeback_iter() (added by e6d0ab87c538 in 6.10); write_cache_pages() is gone since 6.18. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
#define YAFFS2_WRITEBACK_ITER 1
#endif

#endif
