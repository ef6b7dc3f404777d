/* SPDX-License-Identifier: GPL-2.0 */
/* What the YAFFS2 core asks of its surroundings, for a program of this host (tests/yaffs2/core.c): as kernel/yaffs2/include, without a kernel. */
#ifndef YAFFS2_HOST_YPORTENV_H
#define YAFFS2_HOST_YPORTENV_H

#include <dirent.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/xattr.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;

#define YCHAR char
#define YUCHAR unsigned char
#define _Y(x) x
#define yaffs_strcat(a, b) strcat(a, b)
#define yaffs_strcpy(a, b) strcpy(a, b)
#define yaffs_strncpy(a, b, c) strncpy(a, b, c)
#define yaffs_strnlen(s, m) strnlen(s, m)
#define yaffs_strcmp(a, b) strcmp(a, b)
#define yaffs_strncmp(a, b, c) strncmp(a, b, c)

#define YAFFS_LOSTNFOUND_NAME "lost+found"
#define YAFFS_LOSTNFOUND_PREFIX "obj"
#define YAFFS_ROOT_MODE 0755
#define YAFFS_LOSTNFOUND_MODE 0700

extern unsigned int yaffs_trace_mask;
#define yaffs_trace(mask, fmt, ...)                                                                                     \
	do {                                                                                                            \
		if ((mask) & yaffs_trace_mask)                                                                          \
			fprintf(stderr, "yaffs2: " fmt "\n", ##__VA_ARGS__);                                            \
	} while (0)
#define BUG() (fprintf(stderr, "FAILED: inconsistency noticed at %s:%d\n", __FILE__, __LINE__), exit(3))

#define GFP_NOFS 0
#define kmalloc(size, flags) malloc(size)
#define vmalloc(size) malloc(size)
#define kfree(p) free(p)
#define vfree(p) free(p)
#define cond_resched() ((void)0)
#define hweight8(x) ((unsigned int)__builtin_popcount((u8)(x)))
#define hweight32(x) ((unsigned int)__builtin_popcount(x))
#define sort(base, n, size, compare, swap) qsort(base, n, size, compare)

struct list_head {
	struct list_head *next, *prev;
};

#define LIST_HEAD(name) struct list_head name = { &(name), &(name) }
#define list_entry(p, type, member) ((type *)((char *)(p) - offsetof(type, member)))
#define list_for_each(at, head) for ((at) = (head)->next; (at) != (head); (at) = (at)->next)
#define list_for_each_safe(at, then, head)                                                                              \
	for ((at) = (head)->next, (then) = (at)->next; (at) != (head); (at) = (then), (then) = (at)->next)

static inline void INIT_LIST_HEAD(struct list_head *head)
{
	head->next = head->prev = head;
}

static inline int list_empty(const struct list_head *head)
{
	return head->next == head;
}

static inline void list_add(struct list_head *one, struct list_head *after)
{
	one->next = after->next;
	one->prev = after;
	after->next->prev = one;
	after->next = one;
}

static inline void list_add_tail(struct list_head *one, struct list_head *head)
{
	list_add(one, head->prev);
}

static inline void list_del(struct list_head *one)
{
	one->prev->next = one->next;
	one->next->prev = one->prev;
}

static inline void list_del_init(struct list_head *one)
{
	list_del(one);
	INIT_LIST_HEAD(one);
}

/* A clock of the test's own: what is made twice is the same twice. */
#define Y_CURRENT_TIME 1500000000u
#define Y_TIME_CONVERT(x) (x)

/* Used by nothing here. */
struct iattr {
	unsigned int ia_valid, ia_mode, ia_uid, ia_gid, ia_size, ia_atime, ia_mtime, ia_ctime;
};
#define ATTR_MODE 1
#define ATTR_UID 2
#define ATTR_GID 4
#define ATTR_SIZE 8
#define ATTR_ATIME 16
#define ATTR_MTIME 32
#define ATTR_CTIME 64

#endif
