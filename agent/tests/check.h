/* SPDX-License-Identifier: Apache-2.0 */
/* What a test of this folder needs: checks that name themselves, and a verdict. */
#ifndef FLASHSCOPE_CHECK_H
#define FLASHSCOPE_CHECK_H

#include <stdio.h>
#include <string.h>

/* One of each in a program, however many files check. */
__attribute__((weak)) unsigned int check_count, check_failures;

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		check_count++;                                                                                         \
		if (!(condition)) {                                                                                    \
			check_failures++;                                                                              \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                        \
		}                                                                                                      \
	} while (0)

#define CHECK_NUMBER(have, want)                                                                                       \
	do {                                                                                                           \
		unsigned long long have_ = (have), want_ = (want);                                                     \
		check_count++;                                                                                         \
		if (have_ != want_) {                                                                                  \
			check_failures++;                                                                              \
			fprintf(stderr, "%s:%d: %s is %llu, wanted %llu\n", __FILE__, __LINE__, #have, have_, want_);  \
		}                                                                                                      \
	} while (0)

#define CHECK_TEXT(have, want)                                                                                         \
	do {                                                                                                           \
		const char *have_ = (have), *want_ = (want);                                                           \
		check_count++;                                                                                         \
		if (!have_ || strcmp(have_, want_)) {                                                                  \
			check_failures++;                                                                              \
			fprintf(stderr, "%s:%d: '%s', wanted '%s'\n", __FILE__, __LINE__, have_ ? have_ : "(null)",    \
				want_);                                                                                \
		}                                                                                                      \
	} while (0)

static inline int check_verdict(const char *name)
{
	printf("%s: %u checks, %u failed\n", name, check_count, check_failures);
	return check_failures || !check_count;
}

#endif
