// SPDX-License-Identifier: Apache-2.0
#include "prng.h"

void prng_seed(struct prng *p, uint64_t seed)
{
	p->state = seed;
}

uint64_t prng_next(struct prng *p)
{
	uint64_t z;

	p->state += UINT64_C(0x9e3779b97f4a7c15);
	z = p->state;
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

uint64_t prng_below(struct prng *p, uint64_t n)
{
	uint64_t mask = n - 1;
	uint64_t x;

	mask |= mask >> 1;
	mask |= mask >> 2;
	mask |= mask >> 4;
	mask |= mask >> 8;
	mask |= mask >> 16;
	mask |= mask >> 32;
	do {
		x = prng_next(p) & mask;
	} while (x >= n);
	return x;
}
