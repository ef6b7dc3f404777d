// SPDX-License-Identifier: GPL-2.0
/*
 * Bits of the flash that flip for good, under a file system that is not mounted: `damage data MTD TEXT` in the pages whose data
 * begins with TEXT, `damage checkpoint MTD` in every page of a YAFFS2 checkpoint. Two bits of one 256-byte step of the ECC go
 * from 1 to 0: more than a Hamming code restores, and few enough that it always sees it. `damage correctable …` takes one bit,
 * `damage last …` two of the last step.
 */
#define _GNU_SOURCE
#include "flash.h"

#include <stdbool.h>

int main(int argc, char **argv)
{
	static uint8_t data[16384], spare[2048];
	const char *text = argc == 4 ? argv[3] : "";
	bool checkpoint, one, last;
	struct flash flash;
	int pages = 0;

	if (argc < 3)
		return 2;
	checkpoint = !strcmp(argv[1], "checkpoint");
	one = !strcmp(argv[1], "correctable");
	last = !strcmp(argv[1], "last");
	flash_open(&flash, atoi(argv[2]));
	for (uint32_t page = 0; page < flash.info.size / flash.info.writesize; page++) {
		uint32_t sequence;
		uint32_t from = last ? flash.info.writesize - 200 : 64;
		int bits = one ? 1 : 2;

		if (flash_read(&flash, page, data, spare))
			continue;
		memcpy(&sequence, spare + FLASH_TAGS, 4);
		if (checkpoint ? sequence != FLASH_CHECKPOINT : memcmp(data, text, strlen(text)))
			continue;
		for (uint32_t at = from; at < from + 180 && bits; at++)
			for (int bit = 0; bit < 8 && bits; bit++)
				if (data[at] & 1 << bit) {
					data[at] &= (uint8_t)~(1 << bit);
					bits--;
				}
		if (bits) {
			printf("page %u has no bits to clear\n", page);
			continue;
		}
		flash_write(&flash, page, data, NULL);
		pages++;
	}
	printf("%d pages\n", pages);
	return pages == 0;
}
