/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The generator of everything random here: SplitMix64 (Steele, Lea, Flood:
 * "Fast splittable pseudorandom number generators", OOPSLA 2014, figure 16).
 * One 64-bit word of state, which is the seed. Not for secrets.
 */
#ifndef FLASHSCOPE_PRNG_H
#define FLASHSCOPE_PRNG_H

#include <stdint.h>

struct prng {
	uint64_t state;
};

void prng_seed(struct prng *p, uint64_t seed);
uint64_t prng_next(struct prng *p);

/*
 * Uniform over 0 … n - 1 (n > 0), without bias: numbers are drawn, cut to as
 * many low bits as n - 1 has, until one is below n.
 */
uint64_t prng_below(struct prng *p, uint64_t n);

#endif
