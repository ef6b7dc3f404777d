/* SPDX-License-Identifier: GPL-2.0 */
/* The cells of a flash chip that is kept in memory: what is not programmed is ones, and programming clears bits. */
#ifndef CELLS_H
#define CELLS_H

#include <linux/slab.h>
#include <linux/string.h>
#include <linux/xarray.h>

#define CELLS_PAGE 2048
#define CELLS_SPARE 64
#define CELLS_BYTES (CELLS_PAGE + CELLS_SPARE)
#define CELLS_PAGES_PER_BLOCK 64

static inline void cells_read(struct xarray *cells, unsigned long page, u8 *into)
{
	const u8 *have = xa_load(cells, page);

	if (have)
		memcpy(into, have, CELLS_BYTES);
	else
		memset(into, 0xff, CELLS_BYTES);
}

static inline int cells_program(struct xarray *cells, unsigned long page, const u8 *from)
{
	u8 *have = xa_load(cells, page);
	unsigned int i;

	if (!have) {
		have = kmemdup(from, CELLS_BYTES, GFP_KERNEL);
		return have ? xa_err(xa_store(cells, page, have, GFP_KERNEL)) : -ENOMEM;
	}
	for (i = 0; i < CELLS_BYTES; i++)
		have[i] &= from[i];
	return 0;
}

static inline void cells_erase(struct xarray *cells, unsigned long block)
{
	unsigned long page;

	for (page = 0; page < CELLS_PAGES_PER_BLOCK; page++)
		kfree(xa_erase(cells, block * CELLS_PAGES_PER_BLOCK + page));
}

static inline void cells_free(struct xarray *cells)
{
	unsigned long page;
	void *have;

	xa_for_each(cells, page, have)
		kfree(have);
	xa_destroy(cells);
}

#endif
