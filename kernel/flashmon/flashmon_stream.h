/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR Apache-2.0 */
/*
 * What /proc/flashmon_stream gives: blocks, each a struct flashmon_block and `count` items.
 * Integers and structs are the kernel's own, in its byte order. A read gives whole blocks; nothing
 * is left to drain where it gives none.
 *
 * An item of FLASHMON_EVENTS names its task by a number; the FLASHMON_TASKS block with that number
 * comes before it. Events of one CPU come in order of their sequence numbers: where the next
 * block's `first` is higher than the end of the one before, what lies between was overwritten, and
 * `lost` counts it.
 */
#ifndef FLASHMON_STREAM_H
#define FLASHMON_STREAM_H

#include <linux/types.h>

#define FLASHMON_MAGIC 0x4e4f4d46u /* the bytes "FMON" on a little-endian kernel */
#define FLASHMON_VERSION 1
/* A read of less is refused: the smallest that every block's header and one item of it fit into. */
#define FLASHMON_MIN_READ 256

enum flashmon_block_type {
	FLASHMON_INFO = 1, /* one struct flashmon_info: the first block after open() */
	FLASHMON_TASKS = 2, /* struct flashmon_task */
	FLASHMON_EVENTS = 3, /* struct flashmon_event, each of `item` bytes */
	FLASHMON_FORGET = 4, /* no items: numbers of tasks begin anew */
};

struct flashmon_block {
	__u16 type; /* enum flashmon_block_type */
	__u16 cpu;
	__u32 count; /* items that follow */
	__u32 item; /* bytes of one */
	/* So many of the first items were overwritten while being copied; `lost` counts them. */
	__u32 skip;
	__u64 first; /* sequence number of the first event, or number of the first task */
	/* Events of this CPU that were overwritten undrained, since load or reset. */
	__u64 lost;
};

struct flashmon_info {
	__u32 magic;
	__u32 version;
	__u32 page_bytes;
	__u32 pages_per_block;
	__u64 first_page; /* of the chip: where the traced range begins */
	__u64 pages; /* of the traced range */
	__u32 cpus; /* possible ones */
	__s32 mtd; /* index of the traced partition; -1: the whole chip */
	__u32 extended; /* events have a duration */
	__u32 reserved;
};

struct flashmon_task {
	__u32 number; /* from 1 */
	__u32 pid; /* of the thread */
	char comm[16]; /* NUL-padded */
};

enum flashmon_kind {
	FLASHMON_READ = 0,
	FLASHMON_PROGRAM = 1,
	FLASHMON_ERASE = 2,
	FLASHMON_CACHED = 3, /* a read that the NAND core answered from the page that it keeps */
};

#define FLASHMON_KIND_SHIFT 28
#define FLASHMON_TASK_MASK 0x0fffffffu

/* One entry of the log: 16 bytes, 24 in the extended format. */
struct flashmon_event {
	__u64 time_ns; /* CLOCK_MONOTONIC when the function was called */
	__u32 address; /* page of the chip; of an erase the block */
	__u32 kind_task; /* kind << 28, number of the task; 0: none, or lost */
	__u32 duration_ns; /* extended: from call to return; 0xffffffff: as much or more */
	__u32 reserved;
};

#define FLASHMON_EVENT_BYTES 16
#define FLASHMON_EXTENDED_BYTES 24

#endif
