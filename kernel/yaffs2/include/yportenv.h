/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the YAFFS2 core asks of its surroundings, in place of U-Boot's header of this name: the core's files say
 * #include "yportenv.h", and the build leaves U-Boot's out of their directory.
 */
#ifndef YAFFS2_YPORTENV_H
#define YAFFS2_YPORTENV_H

#include <linux/errno.h>
#include <linux/fs.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/printk.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/stat.h>
#include <linux/string.h>
#include <linux/types.h>
#include <linux/vmalloc.h>
#include <linux/xattr.h>

#define YCHAR char
#define YUCHAR unsigned char
#define _Y(x) x

#define yaffs_strcat(a, b) strcat(a, b)
#define yaffs_strcpy(a, b) strcpy(a, b)
#define yaffs_strncpy(a, b, c) yaffs2_strncpy(a, b, c)
#define yaffs_strnlen(s, m) strnlen(s, m)
#define yaffs_strcmp(a, b) strcmp(a, b)
#define yaffs_strncmp(a, b, c) strncmp(a, b, c)

#define YAFFS_LOSTNFOUND_NAME "lost+found"
#define YAFFS_LOSTNFOUND_PREFIX "obj"
#define YAFFS_ROOT_MODE 0755
#define YAFFS_LOSTNFOUND_MODE 0700

/* What is always told (YAFFS_TRACE_ALWAYS, errors) is bounded: one bad chip must not fill the log. */
#define yaffs_trace(mask, fmt, ...)                                                                                     \
	do {                                                                                                            \
		if (yaffs_trace_mask & (mask))                                                                          \
			printk_ratelimited(KERN_INFO "yaffs2: " fmt "\n", ##__VA_ARGS__);                               \
	} while (0)

/* The core goes on after it noticed a contradiction, and so may a damaged medium's: it is told, and is no oops. */
#undef BUG
#define BUG() pr_err_ratelimited("yaffs2: inconsistency noticed at %s:%d\n", __FILE__, __LINE__)

/* C's strncpy(), which kernels have no more since 7.2: the core relies on what follows the end being cleared. */
static inline char *yaffs2_strncpy(char *to, const char *from, size_t room)
{
	size_t length = strnlen(from, room);

	memcpy(to, from, length);
	memset(to + length, 0, room - length);
	return to;
}

/* Seconds since 1970 as the medium keeps them. */
u32 yaffs2_now(void);

/*
 * Used in one place, yaffs_load_current_time(obj, do_a, do_c), which then takes atime and ctime from obj->yst_atime
 * instead of from the clock: so the clock's time is put there first.
 */
#define Y_CURRENT_TIME                                                                                                  \
	({                                                                                                              \
		u32 now_ = yaffs2_now();                                                                                \
		if (do_a || do_c)                                                                                       \
			obj->yst_atime = now_;                                                                          \
		now_;                                                                                                   \
	})
#define Y_TIME_CONVERT(x) (x)

#ifndef YAFFS2_GLUE
/* Functions that the core shares with no header of its own. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wmissing-declarations"

/* The core's own idea of attributes to set, under a name that is not the kernel's. Nothing of ours uses it. */
#define iattr yaffs_iattr
struct yaffs_iattr {
	unsigned int ia_valid;
	unsigned int ia_mode;
	unsigned int ia_uid;
	unsigned int ia_gid;
	unsigned int ia_size;
	unsigned int ia_atime;
	unsigned int ia_mtime;
	unsigned int ia_ctime;
};
#endif

#endif
