/* SPDX-License-Identifier: Apache-2.0 */
/* What the unit tests share: a fake system tree, and the tests of each file. */
#ifndef FLASHSCOPE_TEST_H
#define FLASHSCOPE_TEST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "check.h"

/* A fake system tree, the root of fs_path() until test_root_end(). */
const char *test_root_begin(void);
void test_root_file(const char *path, const char *text); /* folders are made */
void test_root_dir(const char *path);
void test_root_link(const char *path, const char *target);
char *test_root_read(const char *path); /* "" where it is not there; free it */
bool test_root_has(const char *path);
void test_root_end(void);

/* stderr of what follows goes nowhere: error texts of wanted failures. */
void test_quiet(bool on);

void test_frame(void);
void test_text(void);
void test_options(void);
void test_trigger(void);
void test_groups(void);
void test_files(void);
void test_layers(void);
void test_tracefs(void);
void test_points(void);
void test_mtd(void);
void test_crosscheck(void);
void test_sweep(void);
void test_sensors(void);
void test_user(void);
void test_at_boot(void);
void test_names(void);

#endif
