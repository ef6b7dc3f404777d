// SPDX-License-Identifier: Apache-2.0
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "groups.h"
#include "probe_trial.h"
#include "util.h"

/* A file whose device and inode number are known. */
struct known {
	int fd;
	uint64_t device, inode;
};

/*
 * The files are on several file systems: a wrong offset that fits by chance on one does not fit on another. On all of
 * them stat shows the inode's own numbers, unlike on overlayfs and btrfs.
 */
static const char *const places[] = { "/proc/version", "/sys/kernel/uevent_seqnum", "/dev/null" };
#define KNOWN_FILES (ARRAY_SIZE(places) + 1)

#define POSITION 23456
#define LENGTH 12345
#define FILE_PAGES 128u
#define SHORTER 12345 /* than so many pages: another size that the same file has, with that page */
#define MAPPED_PAGE 71u /* of a hole: in the cache it would be mapped around, without a fault of its own */

struct search {
	const struct fs_machine *machine;
	struct fs_probe_trial setup;
	struct known known[KNOWN_FILES];
	size_t count;
	int memory; /* fd of a file in memory, the last of known; -1 */
	uint64_t pointer; /* its struct file */
	struct fs_file_layout *layout;
};

static void missing(struct search *search, const char *what)
{
	struct fs_file_layout *layout = search->layout;
	size_t length = strlen(layout->missing);

	snprintf(layout->missing + length, sizeof(layout->missing) - length, "%s%s", length ? ", " : "", what);
}

/* The kernel's own dev_t: 12 bits major, 20 bits minor (include/linux/kdev_t.h). */
static uint64_t kernel_device(dev_t device)
{
	return (uint64_t)major(device) << 20 | minor(device);
}

static void add_known(struct search *search, int fd)
{
	struct stat st;

	if (fd < 0)
		return;
	if (search->count == KNOWN_FILES || fstat(fd, &st)) {
		close(fd);
		return;
	}
	search->known[search->count++] = (struct known){ fd, kernel_device(st.st_dev), st.st_ino };
}

static void open_known(struct search *search)
{
	char path[FS_PATH_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		add_known(search, open(fs_path(path, sizeof(path), "%s", places[i]), O_RDONLY | O_CLOEXEC));
	search->memory = memfd_create("flashscope", MFD_CLOEXEC);
	if (search->memory >= 0) {
		char bytes[4096] = { 0 };

		for (int i = 0; i < 10; i++)
			if (write(search->memory, bytes, sizeof(bytes)) < 0)
				break;
		if (ftruncate(search->memory, sysconf(_SC_PAGESIZE) * FILE_PAGES))
			missing(search, "a hole in a file in memory");
		add_known(search, search->memory);
	}
}

static void read_files(void *argument)
{
	const struct search *search = argument;
	char byte;

	for (size_t i = 0; i < search->count; i++)
		if (pread(search->known[i].fd, &byte, 1, 0) < 0) {
			/* The call was made: that is what counts. */
		}
}

static int words(const struct search *search, int count)
{
	return search->machine->long_size * count;
}

static const char *word_type(const struct search *search)
{
	return search->machine->long_size == 8 ? "x64" : "x32";
}

/* One value of an inode: +second(+first(FILE)), or of its super block: +third(…). */
struct place {
	int first, second;
	bool right;
};

static uint64_t as_word(const struct search *search, uint64_t value)
{
	return search->machine->long_size == 8 ? value : (uint32_t)value;
}

/*
 * Keeps those of count offsets that have `device` (else the inode number) for every known file, which is an argument of
 * symbol. False if some read does not pass it exactly once.
 */
static bool keep_right(struct search *search, const char *symbol, int argument, struct place *all, size_t count,
		       bool device)
{
	char fetch[FS_PROBE_TRIAL_FETCHES][48], file[16];
	uint64_t values[KNOWN_FILES * FS_PROBE_TRIAL_FETCHES];

	fs_argument(search->machine, argument, file);
	for (size_t i = 0; i < count; i++) {
		if (device)
			snprintf(fetch[i], sizeof(*fetch), "+%d(+%d(+%d(%s))):x32", all[i].second, all[i].first,
				 search->layout->file_inode, file);
		else
			snprintf(fetch[i], sizeof(*fetch), "+%d(+%d(%s)):%s", all[i].second, all[i].first, file,
				 word_type(search));
	}
	if (fs_probe_trial_ask(&search->setup, symbol, fetch, count, read_files, search, values, KNOWN_FILES) !=
	    (int)search->count)
		return false;
	for (size_t k = 0; k < search->count; k++) {
		uint64_t wanted = device ? search->known[k].device : as_word(search, search->known[k].inode);

		for (size_t i = 0; i < count; i++)
			all[i].right &= values[k * count + i] == wanted;
	}
	return true;
}

/* struct file is up to 40 words long, what is wanted of struct inode lies in its first 20. */
#define FILE_WORDS 40
#define INODE_WORDS 20

/*
 * f_inode and i_ino by trying all: for one place of i_ino after the other, all
 * of f_inode at once. The usual places of i_ino come first.
 */
static bool find_inode(struct search *search, const char *symbol, int argument)
{
	static const int usual32[] = { 40, 32, 28, 36 }, usual64[] = { 64, 48, 40, 56 };
	const int *usual = search->machine->long_size == 8 ? usual64 : usual32;

	for (int step = 0; step < INODE_WORDS + 4; step++) {
		int number = step < 4 ? usual[step] : words(search, step - 4);
		struct place places[FILE_WORDS];

		for (int i = 0; i < FILE_WORDS; i++)
			places[i] = (struct place){ words(search, i), number, true };
		if (!keep_right(search, symbol, argument, places, FILE_WORDS, false))
			return false;
		for (int i = 0; i < FILE_WORDS; i++)
			if (places[i].right) {
				search->layout->file_inode = places[i].first;
				search->layout->inode_number = number;
				return true;
			}
	}
	return false;
}

/* i_sb and s_dev, once f_inode is known. */
static bool find_device(struct search *search, const char *symbol, int argument)
{
	for (int device = 2; device < 8; device++) {
		struct place places[INODE_WORDS];

		/* The first fields of a super block: a list of two pointers, then s_dev. */
		for (int i = 0; i < INODE_WORDS; i++)
			places[i] = (struct place){ words(search, i), words(search, device), true };
		if (!keep_right(search, symbol, argument, places, INODE_WORDS, true))
			return false;
		for (int i = 0; i < INODE_WORDS; i++)
			if (places[i].right) {
				search->layout->inode_super = places[i].first;
				search->layout->super_device = words(search, device);
				return true;
			}
	}
	return false;
}

static bool on_two_file_systems(const struct search *search)
{
	for (size_t i = 1; i < search->count; i++)
		if (search->known[i].device != search->known[0].device)
			return true;
	return false;
}

static void read_memory(void *argument)
{
	char byte;

	if (pread(*(int *)argument, &byte, 1, 0) < 0) {
		/* as above */
	}
}

/* i_size may lie behind what else is wanted of struct inode. */
#define SIZE_WORDS 40

/* i_size, as a file in memory has one size, and then another. What is true of both is no chance. */
static void find_size(struct search *search, const char *symbol, int argument)
{
	const off_t whole = sysconf(_SC_PAGESIZE) * (off_t)FILE_PAGES;
	const off_t sizes[] = { whole, whole - SHORTER };
	char fetch[SIZE_WORDS][48], file[16];
	bool right[SIZE_WORDS];

	memset(right, true, sizeof(right));
	fs_argument(search->machine, argument, file);
	for (int i = 0; i < SIZE_WORDS; i++)
		snprintf(fetch[i], sizeof(fetch[i]), "+%d(+%d(%s)):x64", words(search, i), search->layout->file_inode,
			 file);
	for (size_t k = 0; k < ARRAY_SIZE(sizes); k++) {
		uint64_t values[SIZE_WORDS];

		if (ftruncate(search->memory, sizes[k]) ||
		    fs_probe_trial_ask(&search->setup, symbol, fetch, SIZE_WORDS, read_memory, &search->memory, values,
				  1) != 1)
			return;
		for (int i = 0; i < SIZE_WORDS; i++)
			right[i] &= values[i] == (uint64_t)sizes[k];
	}
	for (int i = SIZE_WORDS - 1; i >= 0; i--)
		if (right[i])
			search->layout->inode_size = words(search, i);
}

static void find_file(struct search *search)
{
	/* fs/read_write.c: ssize_t vfs_read(struct file *, …), int rw_verify_area(int, struct file *, …) */
	static const struct {
		const char *symbol;
		int argument;
	} from[] = { { "vfs_read", 0 }, { "rw_verify_area", 1 } };

	if (!on_two_file_systems(search)) {
		missing(search, "known files on two file systems");
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(from); i++) {
		char fetch[1][48], file[16];
		uint64_t pointers[KNOWN_FILES];

		if (!find_inode(search, from[i].symbol, from[i].argument) ||
		    !find_device(search, from[i].symbol, from[i].argument))
			continue;
		snprintf(fetch[0], sizeof(fetch[0]), "%s:%s", fs_argument(search->machine, from[i].argument, file),
			 word_type(search));
		if (search->memory >= 0 && fs_probe_trial_ask(&search->setup, from[i].symbol, fetch, 1, read_files, search,
							 pointers, KNOWN_FILES) == (int)search->count)
			search->pointer = pointers[search->count - 1];
		if (search->memory >= 0)
			find_size(search, from[i].symbol, from[i].argument);
		return;
	}
	missing(search, "device and inode of an open file");
}

static void read_known(void *argument)
{
	char bytes[LENGTH];

	if (pread(*(int *)argument, bytes, sizeof(bytes), POSITION) < 0) {
		/* as above */
	}
}

static void write_known(void *argument)
{
	char bytes[LENGTH] = { 0 };

	if (pwrite(*(int *)argument, bytes, sizeof(bytes), POSITION) < 0) {
		/* as above */
	}
}

static void touch_known(void *argument)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	volatile char *map;

	map = mmap(NULL, page * FILE_PAGES, PROT_READ, MAP_SHARED, *(int *)argument, 0);
	if (map == MAP_FAILED)
		return;
	(void)map[page * MAPPED_PAGE];
	munmap((void *)map, page * FILE_PAGES);
}

#define CALL_WORDS 12

/* ki_pos and count, as a file in memory is read by (struct kiocb *, struct iov_iter *) like others. */
static void find_call(struct search *search)
{
	char fetch[CALL_WORDS * 2][48], call[16], iter[16];
	uint64_t values[CALL_WORDS * 2];
	const char *symbol = "shmem_file_read_iter";

	fs_argument(search->machine, 0, call);
	fs_argument(search->machine, 1, iter);
	for (int i = 0; i < CALL_WORDS; i++) {
		snprintf(fetch[i], sizeof(fetch[i]), "+%d(%s):x64", words(search, i), call);
		snprintf(fetch[CALL_WORDS + i], sizeof(fetch[i]), "+%d(%s):%s", words(search, i), iter, word_type(search));
	}
	if (fs_probe_trial_ask(&search->setup, symbol, fetch, ARRAY_SIZE(fetch), read_known, &search->memory, values,
			  1) <= 0) {
		missing(search, "position and length of a read");
		return;
	}
	for (int i = CALL_WORDS - 1; i >= 0; i--) {
		if (values[i] == POSITION)
			search->layout->call_position = words(search, i);
		if (values[CALL_WORDS + i] == LENGTH)
			search->layout->iter_count = words(search, i);
	}
}

static void find_write(struct search *search)
{
	char fetch[2][48], first[16];
	uint64_t values[2];

	fs_argument(search->machine, 0, first);
	snprintf(fetch[0], sizeof(fetch[0]), "%s:%s", first, word_type(search));
	snprintf(fetch[1], sizeof(fetch[1]), "+0(%s):%s", first, word_type(search));
	if (fs_probe_trial_ask(&search->setup, "generic_perform_write", fetch, 2, write_known, &search->memory,
			  values, 1) <= 0)
		return;
	search->layout->write_by_file = values[0] == search->pointer;
	search->layout->write_known = values[0] == search->pointer || values[1] == search->pointer;
}

#define FAULT_WORDS 12
#define AREA_WORDS 40

static void find_fault(struct search *search)
{
	char fetch[FAULT_WORDS + AREA_WORDS][48], fault[16];
	uint64_t values[FAULT_WORDS + AREA_WORDS];

	fs_argument(search->machine, 0, fault);
	for (int i = 0; i < FAULT_WORDS; i++)
		snprintf(fetch[i], sizeof(fetch[i]), "+%d(%s):%s", words(search, i), fault, word_type(search));
	/* vma is the first member of struct vm_fault since 4.11. */
	for (int i = 0; i < AREA_WORDS; i++)
		snprintf(fetch[FAULT_WORDS + i], sizeof(fetch[i]), "+%d(+0(%s)):%s", words(search, i), fault,
			 word_type(search));
	if (fs_probe_trial_ask(&search->setup, "shmem_fault", fetch, ARRAY_SIZE(fetch), touch_known, &search->memory,
			  values, 1) <= 0)
		return;
	for (int i = FAULT_WORDS - 1; i > 0; i--)
		if (values[i] == MAPPED_PAGE)
			search->layout->fault_page = words(search, i);
	for (int i = AREA_WORDS - 1; i >= 0; i--)
		if (values[FAULT_WORDS + i] == search->pointer)
			search->layout->area_file = words(search, i);
}

int fs_files_calibrate(const struct fs_tracefs *tracefs, const struct fs_machine *machine,
		       struct fs_file_layout *layout, char *error, size_t size)
{
	struct search search = { .machine = machine, .layout = layout };
	int result;

	memset(layout, -1, sizeof(*layout));
	layout->write_by_file = layout->write_known = false;
	layout->missing[0] = '\0';
	if (!tracefs->kprobe_events) {
		snprintf(error, size, "this kernel has no kprobe_events");
		return -1;
	}
	open_known(&search);
	result = fs_probe_trial_begin(&search.setup, tracefs, error, size);
	if (!result) {
		find_file(&search);
		if (search.memory < 0) {
			missing(&search, "a file in memory (CONFIG_MEMFD_CREATE)");
		} else if (search.pointer) {
			find_call(&search);
			find_write(&search);
			find_fault(&search);
		}
		result = fs_probe_trial_end(&search.setup, error, size);
	}
	for (size_t i = 0; i < search.count; i++)
		close(search.known[i].fd);
	return result;
}

/* " dev=… ino=…" of the struct file that `file` is the address of. */
bool fs_file_fetch(char *out, size_t size, const struct fs_machine *machine,
		   const struct fs_file_layout *layout, const char *file)
{
	if (layout->file_inode < 0 || layout->super_device < 0)
		return false;
	snprintf(out, size, " dev=+%d(+%d(+%d(%s))):u32 ino=+%d(+%d(%s)):%s", layout->super_device,
		 layout->inode_super, layout->file_inode, file, layout->inode_number, layout->file_inode, file,
		 machine->long_size == 8 ? "u64" : "u32");
	return true;
}

/* The same with the file's size, where its place is known. */
static bool fetch_sized(char *out, size_t size, const struct fs_machine *machine, const struct fs_file_layout *layout,
			const char *file)
{
	size_t length;

	if (!fs_file_fetch(out, size, machine, layout, file))
		return false;
	length = strlen(out);
	if (layout->inode_size >= 0)
		snprintf(out + length, size - length, " size=+%d(+%d(%s)):u64", layout->inode_size, layout->file_inode,
			 file);
	return true;
}

static struct fs_probe *add(struct fs_probes *probes, const char *event, const char *symbol, long own)
{
	struct fs_probe *probe;
	char filter[FS_OWN_FILTER];

	if (probes->count == ARRAY_SIZE(probes->items))
		return NULL;
	probe = &probes->items[probes->count++];
	memset(probe, 0, sizeof(*probe));
	probe->event = event;
	probe->symbol = symbol;
	probe->operation = "file";
	probe->level = "cache";
	probe->group = FS_GROUP_CACHE;
	fs_own_filter(filter, sizeof(filter), own);
	probe->filter = fs_strdup(filter);
	return probe;
}

static const char direct[] = "direct I/O passes by it";
static const char around[] = "pages that are in the cache already are mapped around, without an event";
static const char of_reads[] = "device, inode, offset, length and file size of reads through the page cache";
static const char of_splices[] = "reads by splice() and sendfile(), whose pages count as read ahead and unused";
static const char of_writes[] = "device, inode, offset and length of writes through the page cache";
static const char of_faults[] = "device, inode, page and file size of faults that had to wait for a mapped file";

void fs_files_plan(const struct fs_machine *machine, const struct fs_file_layout *layout, const char *group,
		   long own, struct fs_probes *probes, struct fs_events *events)
{
	/* mm/filemap.c: the first since 5.12, the second before. */
	static const char *const names[] = { "filemap_read", "generic_file_buffered_read", "filemap_fault",
					     "filemap_splice_read" };
	bool found[ARRAY_SIZE(names)];
	const char *reader;
	char a[4][16], file[32], fetch[192];
	struct fs_probe *probe;

	fs_symbols(names, ARRAY_SIZE(names), found);
	reader = found[0] ? names[0] : found[1] ? names[1] : NULL;
	for (size_t i = 0; i < ARRAY_SIZE(a); i++)
		fs_argument(machine, (int)i, a[i]);
	snprintf(file, sizeof(file), "+0(%s)", a[0]);
	if (fetch_sized(fetch, sizeof(fetch), machine, layout, file) && layout->call_position >= 0 &&
	    layout->iter_count >= 0 && reader &&
	    (probe = add(probes, "file_read", reader, own))) {
		probe->loses = direct;
		snprintf(probe->definition, sizeof(probe->definition), "p:%s/file_read %s%s pos=+%d(%s):u64 count=+%d(%s):%s",
			 group, reader, fetch, layout->call_position, a[0], layout->iter_count, a[1],
			 machine->long_size == 8 ? "u64" : "u32");
	} else {
		fs_events_absent(events, FS_GROUP_CACHE, "flashscope:file_read",
				 layout->missing[0] ? layout->missing : "its function or a layout is not known", of_reads);
	}

	/* splice() and sendfile() since 6.5: (struct file *, loff_t *, struct pipe_inode_info *, size_t, …), mm/filemap.c */
	if (found[3] && fetch_sized(fetch, sizeof(fetch), machine, layout, a[0]) &&
	    (probe = add(probes, "file_splice_read", names[3], own))) {
		probe->loses = direct;
		snprintf(probe->definition, sizeof(probe->definition),
			 "p:%s/file_splice_read %s%s pos=+0(%s):u64 count=%s:%s", group, names[3], fetch, a[1], a[3],
			 machine->long_size == 8 ? "u64" : "u32");
	} else if (found[3]) {
		fs_events_absent(events, FS_GROUP_CACHE, "flashscope:file_splice_read",
				 layout->missing[0] ? layout->missing : "its layout is not known", of_splices);
	}

	snprintf(file, sizeof(file), layout->write_by_file ? "%s" : "+0(%s)", a[0]);
	if (layout->write_known && fs_file_fetch(fetch, sizeof(fetch), machine, layout, file) &&
	    layout->iter_count >= 0 && layout->call_position >= 0 &&
	    (!layout->write_by_file || machine->long_size == 8 || machine->registers == FS_REGISTERS_ARM32) &&
	    (probe = add(probes, "file_write", "generic_perform_write", own))) {
		const bool big = __BYTE_ORDER == __BIG_ENDIAN;
		char pos[64], high[16];

		if (!layout->write_by_file)
			snprintf(pos, sizeof(pos), "+%d(%s):u64", layout->call_position, a[0]);
		else if (machine->long_size == 8)
			snprintf(pos, sizeof(pos), "%s:u64", a[2]);
		else /* r2 and r3, which a probe cannot join */
			snprintf(pos, sizeof(pos), "%s:u32 pos_high=%s:u32", fs_argument(machine, big ? 3 : 2, a[2]),
				 fs_argument(machine, big ? 2 : 3, high));
		probe->loses = direct;
		snprintf(probe->definition, sizeof(probe->definition),
			 "p:%s/file_write generic_perform_write%s pos=%s count=+%d(%s):%s", group, fetch, pos,
			 layout->iter_count, a[1], machine->long_size == 8 ? "u64" : "u32");
	} else {
		fs_events_absent(events, FS_GROUP_CACHE, "flashscope:file_write",
				 layout->missing[0] ? layout->missing : "its function or a layout is not known", of_writes);
	}

	snprintf(file, sizeof(file), "+%d(+0(%s))", layout->area_file, a[0]);
	if (layout->area_file >= 0 && layout->fault_page >= 0 && found[2] &&
	    fetch_sized(fetch, sizeof(fetch), machine, layout, file) &&
	    (probe = add(probes, "file_fault", "filemap_fault", own))) {
		probe->loses = around;
		snprintf(probe->definition, sizeof(probe->definition), "p:%s/file_fault filemap_fault%s page=+%d(%s):%s",
			 group, fetch, layout->fault_page, a[0], machine->long_size == 8 ? "u64" : "u32");
		if ((probe = add(probes, "file_fault_end", "filemap_fault", own)))
			snprintf(probe->definition, sizeof(probe->definition), "r64:%s/file_fault_end filemap_fault", group);
	} else {
		fs_events_absent(events, FS_GROUP_CACHE, "flashscope:file_fault",
				 layout->missing[0] ? layout->missing : "its function or a layout is not known", of_faults);
	}
}

static void offset(struct fs_json *json, const char *key, int value)
{
	if (value < 0)
		fs_json_null(json, key);
	else
		fs_json_i64(json, key, value);
}

void fs_files_json(struct fs_json *json, const char *key, const struct fs_file_layout *layout)
{
	fs_json_object(json, key);
	offset(json, "f_inode", layout->file_inode);
	offset(json, "i_ino", layout->inode_number);
	offset(json, "i_sb", layout->inode_super);
	offset(json, "i_size", layout->inode_size);
	offset(json, "s_dev", layout->super_device);
	offset(json, "ki_pos", layout->call_position);
	offset(json, "iov_iter_count", layout->iter_count);
	offset(json, "vm_fault_pgoff", layout->fault_page);
	offset(json, "vm_file", layout->area_file);
	fs_json_string(json, "missing", layout->missing[0] ? layout->missing : NULL);
	fs_json_object_end(json);
}
