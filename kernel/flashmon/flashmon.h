/* SPDX-License-Identifier: GPL-2.0 */
#ifndef FLASHMON_H
#define FLASHMON_H

#include <linux/atomic.h>
#include <linux/mtd/mtd.h>
#include <linux/mtd/rawnand.h>
#include <linux/mtd/spinand.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/sched.h>

#include "compat.h"
#include "flashmon_stream.h"

/* From the lowest up. */
enum fm_level { FM_COMMAND, FM_ECC, FM_SPI_MEM, FM_MTD, FM_LEVELS };

/* What is traced: one chip, or one partition of it. Written while no probe is armed. */
struct fm_target {
	struct mtd_info *master; /* NULL: there is none (any more) */
	struct mtd_info *mtd; /* the partition; NULL: the whole chip */
	struct nand_chip *chip; /* of raw NAND, proved */
	struct spi_mem *mem; /* of SPI NAND, proved */
	struct spinand_device *spinand;
	u32 page_bytes, pages_per_block;
	u32 block_shift; /* pages_per_block is 1 << this; 32: it is no power of two */
	u32 target_pages; /* of one of several targets; 0: there is one */
	u32 first_page, pages;
	u32 first_block, blocks;
	int index; /* of the partition, or -1 */
	unsigned int devices; /* registered MTD devices of this chip */
	char name[64];
};

/*
 * The usual case, which the probes of one page's command are made for: a raw NAND chip of one
 * target, whose blocks have 2^n pages, a log with names in the short format, nobody to signal, and
 * it runs.
 */
struct fm_usual {
	const struct nand_chip *chip; /* NULL: it is not that case, or nothing is counted now */
	u32 first_page, pages;
	u32 block_shift;
	atomic_t *counts;
};

#define FM_NOBODY U32_MAX

/* How the log's entries are kept on one CPU. Only that CPU writes what comes first, and no probe
 * interrupts another one's.
 */
struct fm_ring {
	struct fm_usual usual;
	u32 head; /* entries ever written */
	u32 number; /* of the task that was met last: this thread, under this name */
	void *next; /* where the next entry goes */
	void *entries, *end;
	u32 pid; /* FM_NOBODY: none was met */
	u32 comm[TASK_COMM_LEN / sizeof(u32)];
	u32 asked[3]; /* pages to program, blocks to erase, at the MTD layer */
	/* Readers', under fm_lock. */
	u32 slots;
	u32 asked_before[3]; /* as of the last reset */
	u64 seen; /* head with all its bits, as of the last look */
	u64 since; /* head as of the last reset */
	u64 tail; /* first entry that is neither drained nor flushed */
	u64 lost; /* overwritten before they were drained */
};

enum fm_state { FM_NOTHING, FM_RUNNING, FM_PAUSED, FM_STOPPED };

/* What every probe looks at, in one place. */
struct fm_settings {
	enum fm_state state;
	unsigned int log;
	bool names, extended, cache_hits, notifying;
	atomic_t *counts; /* three for each block */
};

/* params and state: main.c */
extern struct fm_settings fm;
extern struct fm_target fm_target;
extern struct mutex fm_lock; /* everything that is not a probe */
extern char *fm_level;
int fm_command(const char *word);

/* finder.c */
int fm_find(struct fm_target *target);
int fm_arm(void);
void fm_disarm(void);
int fm_enable(bool on);
unsigned long fm_misses(void);
void fm_misses_forget(void);
struct seq_file;
void fm_show_points(struct seq_file *m);

/* probes.c */
enum fm_shape {
	FM_PAGE_OP, /* (chip, page, …) */
	FM_BLOCK_OP, /* (chip, eraseblock) */
	FM_PROGRAM_END, /* (chip): ends what FM_PAGE_OP of nand_prog_page_begin_op began */
	FM_ECC_PAGE, /* (chip, buf, oob_required, page) */
	FM_ECC_PAGE_RAW, /* the same, without ECC */
	FM_ECC_OOB, /* (chip, page) */
	FM_ECC_OOB_RAW,
	FM_ECC_READ_PART, /* (chip, offset, length, buf, page) */
	FM_ECC_WRITE_PART, /* (chip, offset, length, buf, oob_required, page) */
	FM_SPI_OP, /* (mem, op) */
	FM_MTD_OOB, /* (mtd, offset, ops) */
	FM_MTD_ERASE, /* (mtd, instr) */
	FM_SHAPES
};

/* What one call does to the flash: `count` pages (or blocks, of an erase) from `first` of the chip.
 */
struct fm_access {
	u32 kind, first, count;
};

void fm_become(enum fm_state state);
bool fm_decode(enum fm_shape shape, u32 kind, struct pt_regs *regs, struct fm_access *access);
kprobe_pre_handler_t fm_handler(enum fm_shape shape, u32 kind);
kretprobe_handler_t fm_entry_handler(enum fm_shape shape, u32 kind);
int fm_return_handler(struct kretprobe_instance *instance, struct pt_regs *regs);
/* Whether the return of a probed function says something, beside its duration. */
bool fm_returns_matter(enum fm_shape shape, u32 kind);
int fm_ask_program(struct kprobe *kp, struct pt_regs *regs);
int fm_ask_erase(struct kprobe *kp, struct pt_regs *regs);
int fm_ask_read(struct kprobe *kp, struct pt_regs *regs);
/* Of one call in the extended format. */
struct fm_call {
	struct fm_access access;
	u64 time;
};

/* ring.c */
DECLARE_PER_CPU(struct fm_ring, fm_rings);
extern u32 fm_stride; /* bytes of an entry */
extern atomic_t fm_names_lost;
extern u32 fm_generation; /* grows when tasks' numbers begin anew */
extern unsigned int fm_tasks;
int fm_rings_make(unsigned int entries, unsigned int tasks);
void fm_rings_free(void);
u32 fm_task_number(struct fm_ring *ring, struct task_struct *task);
const struct flashmon_task *fm_task(u32 number);
u32 fm_task_count(void);
u64 fm_head(struct fm_ring *ring);
u64 fm_capacity(const struct fm_ring *ring);
u64 fm_lost(struct fm_ring *ring);
u32 fm_asked(u32 kind);
bool fm_entry(struct fm_ring *ring, u64 at, struct flashmon_event *event);
void fm_flush(void);
size_t fm_memory(void);

/* notify.c */
extern atomic64_t fm_signals, fm_signals_failed;
int fm_notify_begin(int pid, int signal);
void fm_notify_end(void);
void fm_notify(void);

/* proc.c, drain.c */
int fm_proc_make(void);
void fm_proc_remove(void);
extern const struct proc_ops fm_stream_ops;
ssize_t fm_write_command(struct file *file, const char __user *text, size_t size, loff_t *at);

#endif
