/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds where the kernel keeps a file's device and inode number, and the
 * position and length of a call. The layouts of struct file, inode, super_block,
 * iov_iter and vm_fault depend on kernel version and configuration. They are
 * found by a trial: known files are read, written and mapped, and offsets that
 * always show the known values are taken.
 */
#ifndef FLASHSCOPE_FILES_H
#define FLASHSCOPE_FILES_H

#include <stdbool.h>

#include "json.h"
#include "probe_points.h"
#include "tracefs.h"

/* Offsets in bytes; -1: not found. */
struct fs_file_layout {
	int file_inode;	  /* struct file: f_inode */
	int inode_number; /* struct inode: i_ino */
	int inode_super;  /* struct inode: i_sb */
	int inode_size;	  /* struct inode: i_size; without it, events of reads and faults have no file size */
	int super_device; /* struct super_block: s_dev */
	int call_position; /* struct kiocb: ki_pos */
	int iter_count;	  /* struct iov_iter: count */
	bool write_by_file; /* generic_perform_write() takes (file, iter, pos), not (kiocb, iter): before 5.18 */
	bool write_known;
	int fault_page;	   /* struct vm_fault: pgoff */
	int area_file;	   /* struct vm_area_struct: vm_file */
	char missing[160]; /* why an offset was not found; "": all found */
};

/*
 * Runs the trial: reads /proc/version and a sysfs file; reads, writes and maps a
 * file in memory. Returns 0, or -1 with a message in error if no trial is possible.
 */
int fs_files_calibrate(const struct fs_tracefs *tracefs, const struct fs_machine *machine,
		       struct fs_file_layout *layout, char *error, size_t size);

/*
 * Adds the probes file_read, file_splice_read, file_write, file_fault and file_fault_end, if the
 * layout is known and the kernel has their functions. Calls of the process `own` are not recorded.
 * Missing probes are listed in `events`.
 */
struct fs_events;
void fs_files_plan(const struct fs_machine *machine, const struct fs_file_layout *layout, const char *group,
		   long own, struct fs_probes *probes, struct fs_events *events);

void fs_files_json(struct fs_json *json, const char *key, const struct fs_file_layout *layout);

/* Writes a probe definition without "p:GROUP/", for tests. False if an offset in it is unknown. */
bool fs_file_fetch(char *out, size_t size, const struct fs_machine *machine,
		   const struct fs_file_layout *layout, const char *file);

#endif
