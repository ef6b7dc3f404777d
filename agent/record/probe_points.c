// SPDX-License-Identifier: Apache-2.0
#include "probe_points.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <mtd/mtd-user.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sweep.h"
#include "probe_trial.h"
#include "util.h"

/*
 * drivers/mtd/nand/raw/nand_base.c, drivers/mtd/mtdcore.c and drivers/spi/spi-mem.c
 * of 5.10, 6.1, 6.12 and 7.2: all global, all with these arguments.
 *   nand_read_page_op(chip, page, offset_in_page, buf, len)
 *   nand_prog_page_op(chip, page, offset_in_page, buf, len)
 *   nand_prog_page_begin_op(chip, page, offset_in_page, buf, len)  with nand_prog_page_end_op(chip)
 *   nand_erase_op(chip, eraseblock)
 *   mtd_read_oob(mtd, loff_t from, ops), mtd_write_oob(mtd, loff_t to, ops), mtd_erase(mtd, instr)
 *   spi_mem_exec_op(mem, op)
 */
const struct fs_candidate fs_candidates[FS_CANDIDATES] = {
	{ "read", "nand_read_page_op", "nand", "nand_read" },
	{ "read", "spi_mem_exec_op", "spi-mem", NULL },
	{ "read", "mtd_read_oob", "mtd", "mtd_read" },
	{ "program", "nand_prog_page_op", "nand", "nand_program" },
	{ "program", "nand_prog_page_begin_op", "nand", "nand_program" },
	{ "program", "mtd_write_oob", "mtd", "mtd_write" },
	{ "erase", "nand_erase_op", "nand", "nand_erase" },
	{ "erase", "mtd_erase", "mtd", "mtd_erase" },
};

enum { NAND_READ = 0, SPI_MEM = 1, MTD_READ = 2 };

struct fs_machine fs_machine_of(const char *uname_machine, uint8_t long_size)
{
	struct fs_machine machine = { FS_REGISTERS_ARGN, long_size };

	/* A 32-bit agent may run on a 64-bit kernel (armv8l, i686): long_size is the kernel's. */
	if (!strncmp(uname_machine, "arm", 3) || !strcmp(uname_machine, "aarch64"))
		machine.registers = long_size == 8 ? FS_REGISTERS_ARM64 : FS_REGISTERS_ARM32;
	else if (!strcmp(uname_machine, "x86_64") ||
		 (long_size == 8 && uname_machine[0] == 'i' && !strcmp(uname_machine + 2, "86")))
		machine.registers = FS_REGISTERS_X86_64;
	return machine;
}

const char *fs_argument(const struct fs_machine *machine, int n, char out[16])
{
	static const char *const x86_64[] = { "%di", "%si", "%dx", "%cx", "%r8", "%r9" };

	switch (machine->registers) {
	case FS_REGISTERS_X86_64:
		snprintf(out, 16, "%s", x86_64[n]);
		break;
	case FS_REGISTERS_ARM64:
		snprintf(out, 16, "%%x%d", n);
		break;
	case FS_REGISTERS_ARM32:
		snprintf(out, 16, n < 4 ? "%%r%d" : "$stack%d", n < 4 ? n : n - 4);
		break;
	case FS_REGISTERS_ARGN:
		snprintf(out, 16, "$arg%d", n + 1);
		break;
	}
	return out;
}

static void fetch_pointer(struct fs_buf *out, const struct fs_machine *machine, const char *name)
{
	char a[16];

	fs_buf_printf(out, " %s=%s:x%d", name, fs_argument(machine, 0, a), machine->long_size * 8);
}

static void fetch_nand(struct fs_buf *out, const struct fs_machine *machine, bool erase, bool chip,
		       bool offset)
{
	char a[16];

	fs_buf_printf(out, " %s=%s:u32", erase ? "block" : "page", fs_argument(machine, 1, a));
	if (chip)
		fetch_pointer(out, machine, "chip");
	if (offset && !erase) {
		fs_buf_printf(out, " offset=%s:u32", fs_argument(machine, 2, a));
		fs_buf_printf(out, " length=%s:u32", fs_argument(machine, 4, a));
	}
}

/*
 * struct mtd_oob_ops { unsigned int mode; size_t len; … } and struct
 * erase_info { uint64_t addr; uint64_t len; … }: include/linux/mtd/mtd.h of
 * 5.10, 6.1, 6.12, 7.2 (erase_info since 4.17; before, mtd came first).
 */
static void fetch_mtd(struct fs_buf *out, const struct fs_machine *machine, bool erase)
{
	int word = machine->long_size;
	char a[16];

	fetch_pointer(out, machine, "mtd");
	if (erase) {
		fs_argument(machine, 1, a);
		fs_buf_printf(out, " address=+0(%s):u64 length=+8(%s):u64", a, a);
	} else if (word == 8) {
		fs_buf_printf(out, " address=%s:u64", fs_argument(machine, 1, a));
		fs_buf_printf(out, " length=+8(%s):u64", fs_argument(machine, 2, a));
	} else if (machine->registers == FS_REGISTERS_ARM32) {
		const bool big = __BYTE_ORDER == __BIG_ENDIAN;

		fs_buf_printf(out, " address=%s:u32", fs_argument(machine, big ? 3 : 2, a));
		fs_buf_printf(out, " address_high=%s:u32", fs_argument(machine, big ? 2 : 3, a));
		fs_buf_printf(out, " length=+4(%s):u32", fs_argument(machine, 4, a));
	}
	/* Other 32-bit machines pass a loff_t in ways not tried here: the device alone. */
}

static void fetch(struct fs_buf *out, const struct fs_machine *machine,
		  const struct fs_candidate *candidate, bool chip, bool offset)
{
	bool erase = !strcmp(candidate->operation, "erase");

	if (!strcmp(candidate->level, "nand"))
		fetch_nand(out, machine, erase, chip, offset);
	else if (!strcmp(candidate->level, "mtd"))
		fetch_mtd(out, machine, erase);
}

void fs_symbols(const char *const *names, size_t count, bool *found)
{
	char path[FS_PATH_MAX], line[512];
	FILE *file = fopen(fs_path(path, sizeof(path), "/proc/kallsyms"), "re");

	memset(found, 0, count * sizeof(*found));
	/* "ADDRESS TYPE NAME", then of a module "\t[MODULE]" */
	while (file && fgets(line, sizeof(line), file)) {
		char *name = strchr(line, ' ');
		size_t length;

		name = name ? strchr(name + 1, ' ') : NULL;
		if (!name)
			continue;
		name++;
		length = strcspn(name, "\t\n");
		for (size_t i = 0; i < count; i++)
			if (*names[i] == *name && strlen(names[i]) == length && !memcmp(names[i], name, length))
				found[i] = true;
	}
	if (file)
		fclose(file);
}

/* Which candidates' symbols are there: read once, where first asked for. */
struct present {
	bool known, found[FS_CANDIDATES];
};

static bool in_kallsyms(struct present *present, size_t candidate)
{
	const char *names[FS_CANDIDATES];

	for (size_t i = 0; i < FS_CANDIDATES; i++)
		names[i] = fs_candidates[i].symbol;
	if (!present->known)
		fs_symbols(names, FS_CANDIDATES, present->found);
	present->known = true;
	return present->found[candidate];
}

static void trial_event(char *out, size_t size, size_t candidate)
{
	snprintf(out, size, "try_%zu", candidate);
}

/* Defines the candidate's trial event; leaves status and note. */
static bool arm_trial(const struct fs_tracefs *tracefs, const struct fs_machine *machine,
		      const char *group, struct fs_probe_points *points, size_t i, struct present *present)
{
	const struct fs_candidate *candidate = &fs_candidates[i];
	struct fs_buf definition = { 0 };
	char event[32];
	int error;

	trial_event(event, sizeof(event), i);
	fs_buf_printf(&definition, "p:%s/%s %s", group, event, candidate->symbol);
	fetch(&definition, machine, candidate, true, false);
	error = fs_kprobe(tracefs, definition.data) ? errno : 0;
	fs_buf_free(&definition);
	points->note[i][0] = '\0';
	if (!error) {
		points->status[i] = FS_POINT_PRESENT;
		return true;
	}
	/* EINVAL stands for an unknown symbol too, on some kernels. */
	if (!in_kallsyms(present, i)) {
		points->status[i] = FS_POINT_ABSENT;
	} else {
		points->status[i] = FS_POINT_REFUSED;
		snprintf(points->note[i], sizeof(points->note[i]), "kprobe_events: %s",
			 strerror(error));
	}
	return false;
}

void fs_probe_points_check(const struct fs_tracefs *tracefs, const struct fs_machine *machine,
		     struct fs_probe_points *points)
{
	struct present present = { 0 };
	char group[96];
	sigset_t old;

	memset(points, 0, sizeof(*points));
	fs_own_name(group, sizeof(group), "flashscope");
	fs_probe_trial_hold(&old);
	for (size_t i = 0; i < FS_CANDIDATES; i++) {
		char undo[160], event[32];

		if (!tracefs->path[0] || !tracefs->kprobe_events) {
			snprintf(points->note[i], sizeof(points->note[i]), "not armed: %s; symbol %s",
				 tracefs->path[0] ? "no kprobe_events" : "no usable tracefs",
				 in_kallsyms(&present, i) ? "present" : "absent");
			continue;
		}
		if (!arm_trial(tracefs, machine, group, points, i, &present))
			continue;
		trial_event(event, sizeof(event), i);
		snprintf(undo, sizeof(undo), "-:%s/%s", group, event);
		if (fs_kprobe(tracefs, undo))
			snprintf(points->note[i], sizeof(points->note[i]), "not removed: %s",
				 strerror(errno));
	}
	sigprocmask(SIG_SETMASK, &old, NULL);
}

unsigned int fs_trace_count(const char *text, const char *event, struct fs_trial_values *values)
{
	unsigned int count = 0;
	char mark[64];
	int length = snprintf(mark, sizeof(mark), ": %s: (", event);

	for (const char *line = text; line && *line;) {
		const char *next = strchr(line, '\n');
		size_t size = next ? (size_t)(next - line) : strlen(line);
		const char *hit = memmem(line, size, mark, (size_t)length);

		if (*line != '#' && hit && !count++) {
			char rest[512];
			const char *field;

			snprintf(rest, sizeof(rest), "%.*s", (int)(line + size - hit), hit);
			if ((field = strstr(rest, " chip=")))
				values->chip = strtoull(field + 6, NULL, 0);
			if ((field = strstr(rest, " mtd=")))
				values->mtd = strtoull(field + 5, NULL, 0);
			if ((field = strstr(rest, " page="))) {
				values->page = strtoull(field + 6, NULL, 0);
				values->has_page = true;
			}
		}
		line = next ? next + 1 : NULL;
	}
	return count;
}

int fs_trial_choose(const struct fs_trial *trial)
{
	for (int i = 0; i < FS_READ_CANDIDATES; i++)
		if (trial->once[i] && fs_candidates[i].event)
			return i;
	return -1;
}

/* First good block at or after block; -1 where there is none. */
static int64_t good_block(int fd, const struct fs_mtd *mtd, uint64_t block)
{
	for (uint64_t blocks = mtd->size / mtd->erasesize; block < blocks; block++) {
		loff_t at = (loff_t)(block * mtd->erasesize);
		int bad = ioctl(fd, MEMGETBADBLOCK, &at);

		if (bad < 0 && errno == EOPNOTSUPP)
			bad = 0;
		if (!bad)
			return (int64_t)block;
	}
	return -1;
}

static int open_mtd(int index)
{
	char path[FS_PATH_MAX];
	int fd = open(fs_path(path, sizeof(path), "/dev/mtd%dro", index), O_RDONLY | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		fd = open(fs_path(path, sizeof(path), "/dev/mtd%d", index), O_RDONLY | O_CLOEXEC);
	return fd;
}

struct page_read {
	int fd;
	struct fs_mtd *mtd;
	uint64_t offset;
	void *page;
	ssize_t got;
	int error;
};

static void read_page(void *argument)
{
	struct page_read *read = argument;

	read->got = pread(read->fd, read->page, read->mtd->writesize, (off_t)read->offset);
	read->error = errno;
}

static void try_page(const struct fs_probe_trial *setup, int fd, struct fs_mtd *mtd, uint64_t offset,
		     void *page, struct fs_trial *trial)
{
	struct page_read read = { fd, mtd, offset, page, 0, 0 };
	unsigned int fired[FS_READ_CANDIDATES], any = 0;
	struct fs_trial_values values = { 0 };
	char *text = fs_probe_trial_trace(setup, read_page, &read);

	trial->pages++;
	for (size_t i = 0; i < FS_READ_CANDIDATES; i++) {
		char event[32];

		trial_event(event, sizeof(event), i);
		fired[i] = text ? fs_trace_count(text, event, &values) : 0;
		any += fired[i];
	}
	free(text);
	if (!any) {
		if (read.got < 0)
			snprintf(trial->error, sizeof(trial->error), "cannot be read: %s",
				 strerror(read.error));
		return;
	}
	trial->error[0] = '\0';
	for (size_t i = 0; i < FS_READ_CANDIDATES; i++) {
		trial->fired[i] = fired[i];
		trial->once[i] |= fired[i] == 1;
	}
	if (values.chip)
		mtd->chip_pointer = values.chip;
	if (values.mtd)
		mtd->mtd_pointer = values.mtd;
	if (values.has_page && fired[NAND_READ] == 1 &&
	    values.page >= offset / mtd->writesize) {
		mtd->has_first_page = true;
		mtd->first_page = values.page - offset / mtd->writesize;
	}
}

static void try_device(const struct fs_probe_trial *setup, struct fs_mtd *mtd, struct fs_trial *trial)
{
	uint64_t pages = mtd->erasesize / mtd->writesize;
	int64_t block;
	void *page;
	int fd;

	memset(trial, 0, sizeof(*trial));
	trial->mtd = mtd->index;
	trial->chosen = -1;
	fd = open_mtd(mtd->index);
	if (fd < 0) {
		snprintf(trial->error, sizeof(trial->error), "/dev/mtd%d: %s%s", mtd->index,
			 strerror(errno), errno == ENOENT ? " (is devtmpfs mounted?)" : "");
		return;
	}
	block = good_block(fd, mtd, 0);
	if (block < 0) {
		snprintf(trial->error, sizeof(trial->error), "every block is bad");
		close(fd);
		return;
	}
	page = fs_alloc(mtd->writesize);
	/*
	 * The NAND core keeps the page it read last and answers from it without
	 * a command (nand_base.c, pagecache), so silence is believed only after
	 * four pages.
	 */
	for (uint64_t i = 0; i < 4 && !trial->once[NAND_READ]; i++) {
		uint64_t at = i % pages * (pages > 8 ? pages / 4 : 1);

		try_page(setup, fd, mtd, (uint64_t)block * mtd->erasesize + at * mtd->writesize,
			 page, trial);
	}
	trial->chosen = fs_trial_choose(trial);
	free(page);
	close(fd);
}

int fs_probe_points_try(const struct fs_tracefs *tracefs, const struct fs_machine *machine,
		  struct fs_probe_points *points, struct fs_mtd_list *list, char *error, size_t size)
{
	struct present present = { 0 };
	struct fs_probe_trial setup;

	memset(points, 0, sizeof(*points));
	if (fs_probe_trial_begin(&setup, tracefs, error, size))
		return -1;
	for (size_t i = 0; i < FS_CANDIDATES; i++) {
		char event[32];

		if (!arm_trial(tracefs, machine, setup.group, points, i, &present) || i >= FS_READ_CANDIDATES)
			continue;
		trial_event(event, sizeof(event), i);
		if (fs_tracefs_write(tracefs, setup.filter, "instances/%s/events/%s/%s/filter",
				     setup.instance, setup.group, event) ||
		    fs_tracefs_write(tracefs, "1", "instances/%s/events/%s/%s/enable", setup.instance,
				     setup.group, event)) {
			points->status[i] = FS_POINT_REFUSED;
			snprintf(points->note[i], sizeof(points->note[i]), "enable: %s",
				 strerror(errno));
		}
	}
	points->trials = fs_alloc(list->count * sizeof(*points->trials));
	for (size_t i = 0; i < list->count; i++)
		if (fs_mtd_is_nand(&list->items[i]))
			try_device(&setup, &list->items[i], &points->trials[points->trial_count++]);
	fs_mtd_number_chips(list);
	return fs_probe_trial_end(&setup, error, size);
}

void fs_probe_points_free(struct fs_probe_points *points)
{
	free(points->trials);
	memset(points, 0, sizeof(*points));
}

/* What an event of a level cannot show. */
static const char modulo[] =
	"page and block numbers are modulo one target (die) of a multi-target chip";
static const char span[] =
	"one event spans many pages; what the NAND core does by itself (bad-block tables, retries) is not seen";
static const char span_blocks[] = "one event spans many blocks";
static const char by_task[] = "pairs with its call by task; unfiltered by --mtd";

static const char *loses_of(const struct fs_candidate *candidate)
{
	if (!strcmp(candidate->level, "nand"))
		return modulo;
	if (!strcmp(candidate->level, "mtd"))
		return strcmp(candidate->operation, "erase") ? span : span_blocks;
	return NULL;
}

static void point_json(struct fs_json *json, const struct fs_probe_points *points, size_t i,
		       const struct fs_trial *trial)
{
	static const char *const names[] = { NULL, "present", "absent", "refused" };
	const struct fs_candidate *candidate = &fs_candidates[i];
	const char *status = names[points->status[i]];
	const char *note = points->note[i];
	char fired[160];

	if (trial && trial->error[0]) {
		note = trial->error;
	} else if (trial && points->status[i] == FS_POINT_PRESENT) {
		if (trial->once[i]) {
			status = "proved";
		} else if (!trial->fired[i]) {
			status = "silent";
		} else {
			snprintf(fired, sizeof(fired), "fires %u times for one page", trial->fired[i]);
			note = fired;
		}
	}
	fs_json_object(json, NULL);
	fs_json_string(json, "operation", candidate->operation);
	fs_json_string(json, "symbol", candidate->symbol);
	fs_json_string(json, "level", candidate->level);
	fs_json_string(json, "status", status);
	fs_json_known(json, "fired", trial && !trial->error[0], trial ? trial->fired[i] : 0);
	if (trial) {
		fs_json_i64(json, "mtd", trial->mtd);
		fs_json_bool(json, "chosen", trial->chosen == (int)i);
	} else {
		fs_json_null(json, "mtd");
	}
	fs_json_string(json, "note", note);
	fs_json_string(json, "loses", loses_of(candidate));
	fs_json_object_end(json);
}

void fs_probe_points_json(struct fs_json *json, const char *key, const struct fs_probe_points *points)
{
	fs_json_array(json, key);
	for (size_t i = 0; i < FS_CANDIDATES; i++) {
		if (i >= FS_READ_CANDIDATES || !points->trial_count)
			point_json(json, points, i, NULL);
		for (size_t t = 0; i < FS_READ_CANDIDATES && t < points->trial_count; t++)
			point_json(json, points, i, &points->trials[t]);
	}
	fs_json_array_end(json);
}

static bool is_wanted(const int *wanted, size_t count, int index)
{
	for (size_t i = 0; i < count; i++)
		if (wanted[i] == index)
			return true;
	return !count;
}

/* What is needed to plan, in one place. */
struct plan {
	const struct fs_machine *machine;
	const struct fs_probe_points *points;
	struct fs_details details;
	const char *group;
	struct fs_probes *probes;
};

static void add_probe(struct plan *plan, size_t candidate_index, bool done, const char *symbol,
		      const char *event, const char *filter)
{
	const struct fs_candidate *candidate = &fs_candidates[candidate_index];
	struct fs_probe *probe;
	struct fs_buf definition = { 0 };

	if (plan->points->status[candidate_index] != FS_POINT_PRESENT ||
	    plan->probes->count == ARRAY_SIZE(plan->probes->items))
		return;
	probe = &plan->probes->items[plan->probes->count++];
	probe->event = event;
	probe->symbol = symbol;
	probe->operation = candidate->operation;
	probe->level = candidate->level;
	probe->loses = done ? by_task : loses_of(candidate);
	probe->group = 0;
	probe->filter = filter ? fs_strdup(filter) : NULL;
	/*
	 * A return probe needs room for as many calls as run at once: the
	 * default caught 1 of 14 on 5.10.
	 */
	fs_buf_printf(&definition, done ? "r64:%s/%s %s ret=$retval:s32" : "p:%s/%s %s",
		      plan->group, event, symbol);
	if (!done)
		fetch(&definition, plan->machine, candidate, plan->probes->chip,
		      plan->details.offset);
	snprintf(probe->definition, sizeof(probe->definition), "%s", definition.data);
	fs_buf_free(&definition);
}

int fs_probes_plan(const struct fs_machine *machine, const struct fs_probe_points *points,
		   const struct fs_mtd_list *list, const int *wanted, size_t wanted_count,
		   struct fs_details details, const char *group, struct fs_probes *probes,
		   char *error, size_t size)
{
	struct fs_buf pages = { 0 }, blocks = { 0 }, writes = { 0 }, reads = { 0 };
	struct plan plan = { machine, points, details, group, probes };
	bool filtered = wanted_count > 0, nand = false, mtd_level = false;
	bool pages_known = true, pointers_known = true;
	uint64_t first_chip = 0;
	int result = -1;

	memset(probes, 0, sizeof(*probes));
	probes->chip = details.chip;
	for (size_t i = 0; i < wanted_count; i++) {
		const struct fs_mtd *mtd = fs_mtd_find(list, wanted[i]);

		if (!mtd || !fs_mtd_is_nand(mtd)) {
			snprintf(error, size, mtd ? "mtd%d: is %s, not NAND; flashscope-agent probe lists the devices" :
						    "mtd%d: no such device%s; flashscope-agent probe lists the devices",
				 wanted[i], mtd ? (mtd->type[0] ? mtd->type : "of no known type") : "");
			goto out;
		}
	}
	if (!points->trial_count) {
		snprintf(error, size, "NAND: this machine shows none in /sys/class/mtd; load its driver (or nandsim), "
				      "or record other events with --events");
		goto out;
	}
	for (size_t i = 0; i < points->trial_count; i++) {
		const struct fs_mtd *mtd = fs_mtd_find(list, points->trials[i].mtd);

		if (mtd && mtd->chip_pointer && first_chip && mtd->chip_pointer != first_chip)
			probes->chip = true;
		if (mtd && mtd->chip_pointer)
			first_chip = mtd->chip_pointer;
	}
	for (size_t i = 0; i < points->trial_count; i++) {
		const struct fs_trial *trial = &points->trials[i];
		const struct fs_mtd *mtd = fs_mtd_find(list, trial->mtd);

		if (!mtd || !is_wanted(wanted, wanted_count, trial->mtd))
			continue;
		if (trial->error[0]) {
			snprintf(error, size, "mtd%d: %s; name the devices to record with --mtd",
				 trial->mtd, trial->error);
			goto out;
		}
		if (trial->chosen < 0) {
			snprintf(error, size, "mtd%d: no probe point sees its reads (%u pages tried); "
					      "flashscope-agent probe --trial shows what was tried",
				 trial->mtd, trial->pages);
			goto out;
		}
		if (trial->chosen == MTD_READ) {
			mtd_level = true;
			fs_buf_or(&reads, "(mtd == 0x%" PRIx64 ")", mtd->mtd_pointer);
		} else {
			uint64_t first = mtd->first_page, count = mtd->size / mtd->writesize;
			uint64_t per_block = mtd->erasesize / mtd->writesize;
			char chip[48] = "";

			nand = true;
			pages_known &= mtd->has_first_page;
			if (probes->chip && mtd->chip_pointer)
				snprintf(chip, sizeof(chip), " && chip == 0x%" PRIx64,
					 mtd->chip_pointer);
			fs_buf_or(&pages, "(page >= %" PRIu64 " && page <= %" PRIu64 "%s)", first, first + count - 1,
				  chip);
			fs_buf_or(&blocks, "(block >= %" PRIu64 " && block <= %" PRIu64 "%s)", first / per_block,
				  (first + count - 1) / per_block, chip);
		}
		pointers_known &= mtd->mtd_pointer != 0;
		if (mtd->mtd_pointer)
			fs_buf_or(&writes, "(mtd == 0x%" PRIx64 ")", mtd->mtd_pointer);
	}
	if (filtered && !pages_known) {
		snprintf(error, size, "--mtd: where these devices begin on their chip is not known; record without --mtd");
		goto out;
	}
	if (nand) {
		const char *by_page = filtered ? pages.data : NULL;
		const char *by_block = filtered ? blocks.data : NULL;

		add_probe(&plan, 0, false, "nand_read_page_op", "nand_read", by_page);
		add_probe(&plan, 3, false, "nand_prog_page_op", "nand_program", by_page);
		add_probe(&plan, 4, false, "nand_prog_page_begin_op", "nand_program", by_page);
		add_probe(&plan, 6, false, "nand_erase_op", "nand_erase", by_block);
		if (details.duration) {
			/* A return has no arguments: it is unfiltered, and pairs with the call by task. */
			add_probe(&plan, 0, true, "nand_read_page_op", "nand_read_done", NULL);
			add_probe(&plan, 3, true, "nand_prog_page_op", "nand_program_done", NULL);
			add_probe(&plan, 4, true, "nand_prog_page_end_op", "nand_program_done",
				  NULL);
			add_probe(&plan, 6, true, "nand_erase_op", "nand_erase_done", NULL);
		}
	}
	if (mtd_level)
		add_probe(&plan, MTD_READ, false, "mtd_read_oob", "mtd_read", reads.data);
	/* Only these devices: NOR and others pass the same functions. */
	add_probe(&plan, 5, false, "mtd_write_oob", "mtd_write",
		  pointers_known ? writes.data : NULL);
	add_probe(&plan, 7, false, "mtd_erase", "mtd_erase", pointers_known ? writes.data : NULL);
	result = 0;
out:
	fs_buf_free(&pages);
	fs_buf_free(&blocks);
	fs_buf_free(&writes);
	fs_buf_free(&reads);
	if (result)
		fs_probes_free(probes);
	return result;
}

void fs_probes_free(struct fs_probes *probes)
{
	for (size_t i = 0; i < probes->count; i++)
		free(probes->items[i].filter);
	memset(probes, 0, sizeof(*probes));
}
