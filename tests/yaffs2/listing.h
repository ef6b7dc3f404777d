/* SPDX-License-Identifier: GPL-2.0 */
/* One line for each name of a file system, the same by whichever way it was read. */
#ifndef LISTING_H
#define LISTING_H

#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

/* FNV-1a, of 64 bits. */
#define HASH_BEGIN 0xcbf29ce484222325ull

static inline uint64_t hash_more(uint64_t hash, const uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		hash = (hash ^ bytes[i]) * 0x100000001b3ull;
	return hash;
}

/* `target`: of a symbolic link. Sizes and links of directories are each reader's own idea. */
static inline void list_one(const char *path, const struct stat *st, uint64_t hash, const char *target)
{
	printf("%s %o %u:%u %lld", path, (unsigned int)st->st_mode, (unsigned int)st->st_uid, (unsigned int)st->st_gid,
	       (long long)st->st_mtime);
	if (S_ISREG(st->st_mode))
		printf(" links %u, %lld bytes, %016llx", (unsigned int)st->st_nlink, (long long)st->st_size,
		       (unsigned long long)hash);
	else if (S_ISLNK(st->st_mode))
		printf(" -> %s", target);
	else if (S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode))
		printf(" %u:%u", major(st->st_rdev), minor(st->st_rdev));
	printf("\n");
}

#endif
