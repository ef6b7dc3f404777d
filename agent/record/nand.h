/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flash by ioctl, for the plans of virtual boards only: nothing here is
 * reachable from a command that runs on a target of the user's.
 */
#ifndef FLASHSCOPE_NAND_H
#define FLASHSCOPE_NAND_H

#include <stddef.h>
#include <stdint.h>

/* What was done, exactly: one program and one erase command each. */
struct nand_done {
	uint32_t pages_programmed;
	uint32_t blocks_erased;
	uint32_t blocks_bad; /* met and left out */
	uint64_t bytes;	     /* of the caller's data that were written, padding apart */
};

/* Each returns 0, or -1 with one line in `why`. */

/* `count` 0: to the end of the device. */
int nand_erase(unsigned int mtd, uint32_t first_block, uint32_t count, struct nand_done *done, char *why, size_t size);

/*
 * Write `path` from byte `offset` of the device (page-aligned), the last page
 * padded with 0xff. Bad blocks are stepped over, so what follows one lies a
 * block further, as nandwrite(8) and boot loaders do.
 */
int nand_write(unsigned int mtd, const char *path, uint64_t offset, struct nand_done *done, char *why, size_t size);

int nand_markbad(unsigned int mtd, uint32_t block, char *why, size_t size);

#endif
