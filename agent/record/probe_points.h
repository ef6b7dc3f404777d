/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the kernel's flash operations can be probed, and which of these places
 * sees this machine's devices. A symbol that is present need not be called
 * (some NAND drivers have a page reader of their own): a device's place is
 * chosen by arming every candidate and reading pages through the device.
 */
#ifndef FLASHSCOPE_PROBE_POINTS_H
#define FLASHSCOPE_PROBE_POINTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "json.h"
#include "mtd.h"
#include "tracefs.h"

/* How arguments are named in a probe definition on the running kernel. */
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

/* The n-th (from 0) argument's register or, on 32-bit ARM, stack word. Returns out. */
const char *fs_argument(const struct fs_machine *machine, int n, char out[16]);

/* Which of these functions the kernel and its modules have (kallsyms), in one pass. */
void fs_symbols(const char *const *names, size_t count, bool *found);

struct fs_candidate {
	const char *operation; /* "read", "program", "erase" */
	const char *symbol;
	const char *level; /* "nand", "spi-mem", "mtd": lowest first within an operation */
	const char *event; /* name of the event that it feeds; NULL: only tried, never recorded */
};

#define FS_READ_CANDIDATES 3 /* the first ones: those that can be tried harmlessly */
#define FS_CANDIDATES 8
extern const struct fs_candidate fs_candidates[FS_CANDIDATES];

enum fs_point_status { FS_POINT_UNKNOWN, FS_POINT_PRESENT, FS_POINT_ABSENT, FS_POINT_REFUSED };

/* What one device's trial saw. */
struct fs_trial {
	int mtd;
	unsigned int pages; /* that were read, each alone */
	unsigned int fired[FS_READ_CANDIDATES];	 /* events of the last page at which any fired */
	bool once[FS_READ_CANDIDATES];		 /* exactly one event for at least one page */
	int chosen;	 /* candidate, or -1 */
	char error[160]; /* why nothing could be tried; "" */
};

struct fs_probe_points {
	enum fs_point_status status[FS_CANDIDATES];
	char note[FS_CANDIDATES][120];
	struct fs_trial *trials;
	size_t trial_count;
};

/* Arms each candidate and undoes it. Without a usable kprobe_events: kallsyms only, status unknown. */
void fs_probe_points_check(const struct fs_tracefs *tracefs, const struct fs_machine *machine,
		     struct fs_probe_points *points);
/*
 * Reads up to four pages of every NAND device; fills in points->trials and the
 * devices' chip_pointer, mtd_pointer, first_page and chip. 0, or -1 with a
 * text in error where no trial was possible at all.
 */
int fs_probe_points_try(const struct fs_tracefs *tracefs, const struct fs_machine *machine,
		  struct fs_probe_points *points, struct fs_mtd_list *list, char *error, size_t size);
void fs_probe_points_free(struct fs_probe_points *points);
void fs_probe_points_json(struct fs_json *json, const char *key, const struct fs_probe_points *points);

/* The lowest candidate that fired exactly once for a page; -1. */
int fs_trial_choose(const struct fs_trial *trial);

/*
 * Counts lines of a `trace` text that belong to event, and keeps chip=, mtd=
 * and page= of the first (what a line does not have stays).
 */
struct fs_trial_values {
	uint64_t chip, mtd, page;
	bool has_page;
};
unsigned int fs_trace_count(const char *text, const char *event, struct fs_trial_values *values);

/* What `record` asks for. */
struct fs_details {
	bool offset, duration, chip;
};

struct fs_probe {
	const char *event, *symbol, *operation, *level;
	const char *loses;  /* NULL: nothing known */
	unsigned int group; /* enum fs_group; 0: flash */
	char definition[384];
	char *filter; /* kernel event filter; NULL: none. One for all probes of an event */
};

struct fs_probes {
	struct fs_probe items[192];
	size_t count;
	bool chip; /* the chip pointer is recorded */
};

/*
 * The probes of a recording of the devices in wanted (all NAND where
 * wanted_count is 0), from trials made before. 0, or -1 with a text in error.
 */
int fs_probes_plan(const struct fs_machine *machine, const struct fs_probe_points *points,
		   const struct fs_mtd_list *list, const int *wanted, size_t wanted_count,
		   struct fs_details details, const char *group, struct fs_probes *probes,
		   char *error, size_t size);
void fs_probes_free(struct fs_probes *probes);

#endif
