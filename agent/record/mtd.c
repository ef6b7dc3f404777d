// SPDX-License-Identifier: Apache-2.0
#include "mtd.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "util.h"

static bool number(int index, const char *file, uint64_t *value)
{
	char path[FS_PATH_MAX];

	return fs_read_u64(fs_path(path, sizeof(path), "/sys/class/mtd/mtd%d/%s", index, file),
			   value);
}

static void text(int index, const char *file, char *out, size_t size)
{
	char path[FS_PATH_MAX];
	char *value =
		fs_read_value(fs_path(path, sizeof(path), "/sys/class/mtd/mtd%d/%s", index, file));

	snprintf(out, size, "%s", value ? value : "");
	free(value);
}

/* Directory of the parent device; "" if sysfs does not show it. */
static void parent_folder(int index, char *out, size_t size)
{
	char path[FS_PATH_MAX];
	char *real = realpath(fs_path(path, sizeof(path), "/sys/class/mtd/mtd%d", index), NULL);
	char *slash = real ? strrchr(real, '/') : NULL;

	out[0] = '\0';
	if (slash) {
		*slash = '\0';
		snprintf(out, size, "%s", real);
	}
	free(real);
}

static int by_index(const void *a, const void *b)
{
	const struct fs_mtd *one = a, *two = b;

	return (one->index > two->index) - (one->index < two->index);
}

static int parent_index(const char *folder)
{
	const char *base = strrchr(folder, '/');
	int index, used = 0;

	if (base && sscanf(base, "/mtd%d%n", &index, &used) == 1 && !base[used])
		return index;
	return -1;
}

/*
 * One chip's partitions hang under one device and follow one another; a new
 * chip starts where the offset goes back to 0 (include/linux/mtd/partitions.h).
 * Kernels that keep the master (CONFIG_MTD_PARTITIONED_MASTER) name the parent.
 */
static void guess_chips(struct fs_mtd_list *list, char (*folders)[FS_PATH_MAX])
{
	int chips = 0;

	for (size_t i = 0; i < list->count; i++) {
		struct fs_mtd *mtd = &list->items[i];
		struct fs_mtd *parent = fs_mtd_find(list, mtd->parent);

		mtd->chip = -1;
		if (parent && parent < mtd) {
			mtd->chip = parent->chip;
			continue;
		}
		if (mtd->has_offset && mtd->offset)
			for (size_t k = i; k-- && mtd->chip < 0;)
				if (!strcmp(folders[k], folders[i]) &&
				    !strcmp(list->items[k].type, mtd->type) &&
				    list->items[k].erasesize == mtd->erasesize &&
				    list->items[k].writesize == mtd->writesize)
					mtd->chip = list->items[k].chip;
		if (mtd->chip < 0)
			mtd->chip = chips++;
	}
}

void fs_mtd_scan(struct fs_mtd_list *list)
{
	char path[FS_PATH_MAX];
	char(*folders)[FS_PATH_MAX];
	struct dirent *entry;
	DIR *dir = opendir(fs_path(path, sizeof(path), "/sys/class/mtd"));

	memset(list, 0, sizeof(*list));
	if (!dir)
		return;
	while ((entry = readdir(dir))) {
		struct fs_mtd mtd = { .parent = -1 };
		int used = 0;

		/* mtdNro stands beside mtdN */
		if (sscanf(entry->d_name, "mtd%d%n", &mtd.index, &used) != 1 ||
		    entry->d_name[used] || mtd.index < 0)
			continue;
		text(mtd.index, "name", mtd.name, sizeof(mtd.name));
		text(mtd.index, "type", mtd.type, sizeof(mtd.type));
		number(mtd.index, "size", &mtd.size);
		number(mtd.index, "erasesize", &mtd.erasesize);
		number(mtd.index, "writesize", &mtd.writesize);
		number(mtd.index, "subpagesize", &mtd.subpagesize);
		number(mtd.index, "oobsize", &mtd.oobsize);
		mtd.has_offset = number(mtd.index, "offset", &mtd.offset);
		list->items = fs_realloc(list->items, (list->count + 1) * sizeof(mtd));
		list->items[list->count++] = mtd;
	}
	closedir(dir);
	if (!list->count)
		return;
	qsort(list->items, list->count, sizeof(*list->items), by_index);
	folders = fs_alloc(list->count * sizeof(*folders));
	for (size_t i = 0; i < list->count; i++) {
		parent_folder(list->items[i].index, folders[i], sizeof(folders[i]));
		list->items[i].parent = parent_index(folders[i]);
	}
	guess_chips(list, folders);
	free(folders);
}

void fs_mtd_health_json(struct fs_json *json, int index)
{
	static const char *const counters[] = { "corrected_bits", "ecc_failures", "bad_blocks" };
	uint64_t value;

	for (size_t i = 0; i < ARRAY_SIZE(counters); i++)
		fs_json_known(json, counters[i], number(index, counters[i], &value), value);
}

void fs_mtd_number_chips(struct fs_mtd_list *list)
{
	int chips = 0;

	for (size_t i = 0; i < list->count; i++)
		if (fs_mtd_is_nand(&list->items[i]) && !list->items[i].chip_pointer)
			return; /* not all were tried: the guess stands */
	for (size_t i = 0; i < list->count; i++) {
		struct fs_mtd *mtd = &list->items[i];
		size_t k = 0;

		if (!mtd->chip_pointer) {
			/* Not NAND: its guessed group gets a number behind the chips'. */
			mtd->chip = -2 - mtd->chip;
			continue;
		}
		while (k < i && list->items[k].chip_pointer != mtd->chip_pointer)
			k++;
		mtd->chip = k < i ? list->items[k].chip : chips++;
	}
	for (size_t i = 0; i < list->count; i++) {
		int mark = list->items[i].chip;

		if (mark > -2)
			continue;
		for (size_t k = i; k < list->count; k++)
			if (list->items[k].chip == mark)
				list->items[k].chip = chips;
		chips++;
	}
}

void fs_mtd_free(struct fs_mtd_list *list)
{
	free(list->items);
	memset(list, 0, sizeof(*list));
}

struct fs_mtd *fs_mtd_find(const struct fs_mtd_list *list, int index)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->items[i].index == index)
			return &list->items[i];
	return NULL;
}

bool fs_mtd_is_nand(const struct fs_mtd *mtd)
{
	return (!strcmp(mtd->type, "nand") || !strcmp(mtd->type, "mlc-nand")) && mtd->writesize &&
	       mtd->erasesize >= mtd->writesize;
}
