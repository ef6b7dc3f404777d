// SPDX-License-Identifier: GPL-2.0
/* lost MTD OBJECT: erases what is written of an object, its headers among it, as if those pages had been worn; the rest stays. */
#define _GNU_SOURCE
#include "flash.h"

#define PAGES 64

int main(int argc, char **argv)
{
	static uint8_t data[PAGES][2048], spare[PAGES][64];
	struct flash flash;
	uint32_t wanted, lost = 0;

	if (argc != 3)
		return 2;
	flash_open(&flash, atoi(argv[1]));
	wanted = (uint32_t)atoi(argv[2]);
	for (uint32_t block = 0; block < flash.info.size / flash.info.erasesize; block++) {
		uint32_t found = 0;

		for (uint32_t page = 0; page < PAGES; page++) {
			uint32_t tags[2];

			flash_read(&flash, block * PAGES + page, data[page], spare[page]);
			memcpy(tags, spare[page] + FLASH_TAGS, sizeof(tags));
			/* A sequence number, then the object's, with a header's type in its top bits. */
			if (tags[0] == 0xffffffff || (tags[1] & 0xfffffff) != wanted)
				continue;
			memset(data[page], 0xff, sizeof(data[page]));
			memset(spare[page], 0xff, sizeof(spare[page]));
			found++;
		}
		if (!found)
			continue;
		lost += found;
		flash_erase_block(&flash, block);
		for (uint32_t page = 0; page < PAGES; page++)
			flash_write(&flash, block * PAGES + page, data[page], spare[page]);
	}
	printf("%u pages of object %u are lost\n", lost, wanted);
	return lost == 0;
}
