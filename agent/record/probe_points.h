/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel functions at which flash operations can be probed, and the choice
 * among them. A function may exist without being called (some NAND drivers have
 * their own page reader). Therefore every candidate is armed, pages are read
 * from the device, and the candidate that fires is chosen.
 */
#ifndef FLASHSCOPE_PROBE_POINTS_H
#define FLASHSCOPE_PROBE_POINTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "json.h"
#include "mtd.h"
#include "tracefs.h"

/* Notation of arguments in probe definitions on the running kernel. */
enum fs_registers {
	FS_REGISTERS_X86_64,
	FS_REGISTERS_ARM64,
	FS_REGISTERS_ARM32, /* r0 to r3, then the stack; 64-bit arguments in aligned pairs (AAPCS) */
	FS_REGISTERS_ARGN,  /* $argN: kernels with HAVE_FUNCTION_ARG_ACCESS_API */
};

struct fs_machine {
	enum fs_registers registers;
	uint8_t long_size;
};

struct fs_machine fs_machine_of(const char *uname_machine, uint8_t long_size);

/* Writes the register, or on 32-bit ARM the stack word, of argument n (from 0). Returns out. */
const char *fs_argument(const struct fs_machine *machine, int n, char out[16]);

/* Looks up functions of the kernel and its modules in one pass over kallsyms. */
void fs_symbols(const char *const *names, size_t count, bool *found);

struct fs_candidate {
	const char *operation; /* "read", "program", "erase" */
	const char *symbol;
	const char *level; /* "nand", "spi-mem", "mtd": lowest first within an operation */
	const char *event; /* name of its event; NULL: used in trials only */
};

#define FS_READ_CANDIDATES 3 /* the first ones: those that can be tried without harm */
#define FS_CANDIDATES 8
extern const struct fs_candidate fs_candidates[FS_CANDIDATES];

enum fs_point_status { FS_POINT_UNKNOWN, FS_POINT_PRESENT, FS_POINT_ABSENT, FS_POINT_REFUSED };

/* Result of the trial on one device. */
struct fs_trial {
	int mtd;
	unsigned int pages; /* pages read, one at a time */
	unsigned int fired[FS_READ_CANDIDATES];	 /* events at the last page for which any candidate fired */
	bool once[FS_READ_CANDIDATES];		 /* exactly one event for at least one page */
	int chosen;	 /* candidate, or -1 */
	char error[160]; /* why no trial was possible; "" */
};

struct fs_probe_points {
	enum fs_point_status status[FS_CANDIDATES];
	char note[FS_CANDIDATES][120];
	struct fs_trial *trials;
	size_t trial_count;
};

/* Arms and removes each candidate. Without a usable kprobe_events: reads kallsyms only, status unknown. */
void fs_probe_points_check(const struct fs_tracefs *tracefs, const struct fs_machine *machine,
		     struct fs_probe_points *points);
/*
 * Runs the trials: reads up to four pages of every NAND device and fills in
 * points->trials and the devices' chip_pointer, mtd_pointer, first_page and
 * chip. Returns 0, or -1 with a message in error if no trial was possible.
 */
int fs_probe_points_try(const struct fs_tracefs *tracefs, const struct fs_machine *machine,
		  struct fs_probe_points *points, struct fs_mtd_list *list, char *error, size_t size);
void fs_probe_points_free(struct fs_probe_points *points);
void fs_probe_points_json(struct fs_json *json, const char *key, const struct fs_probe_points *points);

/* The lowest candidate that fired exactly once for a page; -1 if none did. */
int fs_trial_choose(const struct fs_trial *trial);

/*
 * Counts the lines of `event` in the text of a tracefs `trace` file. Stores
 * chip=, mtd= and page= of the first line; absent ones are left unchanged.
 */
struct fs_trial_values {
	uint64_t chip, mtd, page;
	bool has_page;
};
unsigned int fs_trace_count(const char *text, const char *event, struct fs_trial_values *values);

/* Optional fields that `record` requests. */
struct fs_details {
	bool offset, duration, chip;
};

struct fs_probe {
	const char *event, *symbol, *operation, *level;
	const char *loses;  /* NULL: nothing known */
	unsigned int group; /* enum fs_group; 0: flash */
	char definition[384];
	char *filter; /* kernel event filter, the same for all probes of an event; NULL: none */
};

struct fs_probes {
	struct fs_probe items[192];
	size_t count;
	bool chip; /* the chip pointer is recorded */
};

/*
 * Selects the probes for the devices in `wanted` (all NAND devices if
 * wanted_count is 0), based on earlier trials. Returns 0, or -1 with a message
 * in error.
 */
int fs_probes_plan(const struct fs_machine *machine, const struct fs_probe_points *points,
		   const struct fs_mtd_list *list, const int *wanted, size_t wanted_count,
		   struct fs_details details, const char *group, struct fs_probes *probes,
		   char *error, size_t size);
void fs_probes_free(struct fs_probes *probes);

#endif
