/* SPDX-License-Identifier: GPL-2.0 */
/* Images of flash that a YAFFS2 wrote, changed so that most of what reads them still believes them. */
#ifndef MUTATE_H
#define MUTATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAGE 2048
#define SPARE 64
#define RAW (PAGE + SPARE)
#define PAGES 16
#define BLOCKS 64
#define IMAGE ((size_t)BLOCKS * PAGES * RAW)

uint64_t random_next(uint64_t *state);
/* Below a limit. */
uint32_t random_below(uint64_t *state, uint32_t limit);

/* Changes an image by what a seed says; `inband`: tags lie in the data. Counts what was done by kind. */
void mutate(uint8_t *image, bool inband, uint64_t *state);
void mutations_print(void);
/* Whether tags, summaries and the checkpoint of an image are where this file looks for them; counts them. */
bool image_is_understood(uint8_t *image, bool inband, unsigned int *headers, unsigned int *summaries, unsigned int *checkpoint);

#endif
