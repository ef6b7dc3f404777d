// SPDX-License-Identifier: GPL-2.0
/*
 * flashmon: what is done to a NAND flash, kept in RAM. /proc/flashmon has reads, programs and
 * erases of each block, /proc/flashmon_log the events in order, /proc/flashmon_stream the same in
 * binary, /proc/flashmon_status how it is done and what was lost. README.md tells how to use it.
 *
 * This file: parameters, the MTD device coming and going, commands.
 */
#include <linux/init.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/printk.h>
#include <linux/signal.h>
#include <linux/vmalloc.h>

#include "flashmon.h"

static int mtd = -1;
module_param(mtd, int, 0444);
MODULE_PARM_DESC(mtd,
		 "index of the partition to trace, N of mtdN (default: the whole first NAND chip)");

struct fm_settings fm = { .log = 40000, .names = true };

module_param_named(log, fm.log, uint, 0444);
MODULE_PARM_DESC(log,
		 "entries that the log holds, shared among the CPUs; 0: no log (default 40000)");

module_param_named(names, fm.names, bool, 0444);
MODULE_PARM_DESC(names, "log the name of the task (default yes)");

static unsigned int tasks = 1024;
module_param(tasks, uint, 0444);
MODULE_PARM_DESC(tasks, "tasks that can be named until the log is flushed or drained (default 1024)");

module_param_named(extended, fm.extended, bool, 0444);
MODULE_PARM_DESC(extended, "log thread id, duration, CPU and sequence number as well (default no)");

module_param_named(cache_hits, fm.cache_hits, bool, 0444);
MODULE_PARM_DESC(cache_hits,
		 "log reads that the NAND core answers from its buffer, as C (default no)");

static int pid;
module_param(pid, int, 0444);
MODULE_PARM_DESC(pid, "process to signal at each event (default: none)");

static int signal = SIGUSR1;
module_param(signal, int, 0444);
MODULE_PARM_DESC(signal, "the signal's number (default SIGUSR1)");

char *fm_level;
module_param_named(level, fm_level, charp, 0444);
MODULE_PARM_DESC(level,
		 "where to probe: auto, command, ecc, spi-mem or mtd (default auto: the lowest that a trial proves)");

static bool wait = IS_BUILTIN(CONFIG_FLASHMON);
module_param(wait, bool, 0444);
MODULE_PARM_DESC(wait, "wait for a device that is not there (default no; yes where it is built in)");

struct fm_target fm_target;
/* What is not a probe: commands, readers, the device's coming and going. */
DEFINE_MUTEX(fm_lock);

/* Why the device that was there is not traced; 0: none was there. */
static int refused;

/* --- the device comes and goes ------------------------------------------------ */

static bool is_nand(const struct mtd_info *device)
{
	return device->type == MTD_NANDFLASH || device->type == MTD_MLCNANDFLASH;
}

static int describe(struct mtd_info *device)
{
	struct fm_target *target = &fm_target;
	struct mtd_info *master = mtd_get_master(device);
	const bool whole = mtd < 0;
	const u64 from = whole ? 0 : mtd_get_master_ofs(device, 0);
	const u64 size = whole ? master->size : device->size;

	memset(target, 0, sizeof(*target));
	if (!master->writesize || !master->erasesize || master->erasesize % master->writesize)
		return -EINVAL;
	target->page_bytes = master->writesize;
	target->pages_per_block = master->erasesize / master->writesize;
	target->block_shift =
		is_power_of_2(target->pages_per_block) ? ilog2(target->pages_per_block) : 32;
	/* Addresses of the log have 32 bits: pages, not bytes. */
	if (div_u64(master->size, target->page_bytes) > U32_MAX)
		return -EFBIG;
	target->first_page = div_u64(from, target->page_bytes);
	target->pages = div_u64(size, target->page_bytes);
	target->first_block = target->first_page / target->pages_per_block;
	target->blocks = DIV_ROUND_UP(target->pages, target->pages_per_block);
	target->index = whole ? -1 : device->index;
	target->mtd = device;
	target->master = master;
	strscpy(target->name, whole ? (master->name ?: "") : (device->name ?: ""),
		sizeof(target->name));
	return 0;
}

static int attach(struct mtd_info *device)
{
	int error = describe(device);

	if (!error) {
		/* Counts of a device that has gone are kept until another one comes. */
		vfree(fm.counts);
		fm.counts = __vmalloc(array3_size(fm_target.blocks, 3, sizeof(*fm.counts)),
				      GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN);
		error = fm.counts ? fm_find(&fm_target) : -ENOMEM;
	}
	if (!error)
		error = fm_arm();
	if (error) {
		pr_err("flashmon: mtd%d \"%s\" is not traced: error %d\n", device->index,
		       device->name, error);
		fm_target.master = NULL;
		fm_target.blocks = fm.counts ? fm_target.blocks : 0;
		return error;
	}
	fm_target.devices = 1;
	fm_become(FM_RUNNING);
	pr_info("flashmon: tracing %s%d \"%s\": %u blocks of %u pages of %u bytes from page %u; %zu bytes of memory\n",
		mtd < 0 ? "the chip of mtd" : "mtd", device->index, fm_target.name,
		fm_target.blocks, fm_target.pages_per_block, fm_target.page_bytes,
		fm_target.first_page, fm_memory());
	return 0;
}

/* With the MTD table's mutex held: for each device that is there, and each that comes. */
static void comes(struct mtd_info *device)
{
	mutex_lock(&fm_lock);
	if (fm_target.master) {
		fm_target.devices += mtd < 0 && mtd_get_master(device) == fm_target.master;
	} else if (mtd < 0 ? is_nand(device) : device->index == mtd) {
		if (!is_nand(device)) {
			pr_err("flashmon: mtd%d \"%s\" is no NAND flash\n", device->index,
			       device->name);
			refused = -EINVAL;
		} else if (!refused || wait) {
			refused = attach(device);
		}
	}
	mutex_unlock(&fm_lock);
}

/* The device is not held: its driver can be removed. What was counted and logged stays. */
static void goes(struct mtd_info *device)
{
	mutex_lock(&fm_lock);
	if (fm_target.master &&
	    (mtd < 0 ? mtd_get_master(device) == fm_target.master && !--fm_target.devices :
		       device == fm_target.mtd)) {
		fm_become(FM_NOTHING);
		fm_disarm();
		fm_target.master = NULL;
		fm_target.mtd = NULL;
		fm_target.chip = NULL;
		fm_target.mem = NULL;
		fm_target.spinand = NULL;
		pr_notice("flashmon: \"%s\" has gone: nothing is traced any more\n",
			  fm_target.name);
	}
	mutex_unlock(&fm_lock);
}

static struct mtd_notifier notifier = { .add = comes, .remove = goes };

/* --- commands ----------------------------------------------------------------- */

static int set(enum fm_state state)
{
	const bool on = state != FM_STOPPED, was_on = fm.state != FM_STOPPED;
	int error = 0;

	if (fm.state == FM_NOTHING)
		return -ENODEV;
	/* Stopped, the probes themselves are off; paused, they are there and do nothing. */
	if (on != was_on)
		error = fm_enable(on);
	if (!error)
		fm_become(state);
	return error;
}

static void forget(void)
{
	size_t i;
	int cpu;

	fm_flush();
	for_each_possible_cpu(cpu) {
		struct fm_ring *ring = per_cpu_ptr(&fm_rings, cpu);

		ring->since = ring->tail;
		ring->lost = 0;
		memcpy(ring->asked_before, ring->asked, sizeof(ring->asked));
	}
	for (i = 0; i < (size_t)fm_target.blocks * 3; i++)
		atomic_set(&fm.counts[i], 0);
	atomic_set(&fm_names_lost, 0);
	atomic64_set(&fm_signals, 0);
	atomic64_set(&fm_signals_failed, 0);
	fm_misses_forget();
}

int fm_command(const char *word)
{
	int error = 0;

	mutex_lock(&fm_lock);
	if (!strcmp(word, "start"))
		error = set(FM_RUNNING);
	else if (!strcmp(word, "stop"))
		error = set(FM_STOPPED);
	else if (!strcmp(word, "pause"))
		error = fm.state == FM_STOPPED ? -EINVAL : set(FM_PAUSED);
	else if (!strcmp(word, "resume"))
		error = fm.state == FM_STOPPED ? -EINVAL : set(FM_RUNNING);
	else if (!strcmp(word, "reset"))
		forget();
	else if (!strcmp(word, "flush"))
		fm_flush();
	else
		error = -EINVAL;
	mutex_unlock(&fm_lock);
	return error;
}

/* --- load and unload ---------------------------------------------------------- */

static int __init fm_init(void)
{
	int error;

	fm_stride = fm.extended ? FLASHMON_EXTENDED_BYTES : FLASHMON_EVENT_BYTES;
	error = fm_rings_make(fm.log, fm.names ? tasks : 0);
	if (error) {
		pr_err("flashmon: log=%u tasks=%u: %s\n", fm.log, tasks,
		       error == -ENOMEM ? "so much memory is not free" : "too many");
		return error;
	}
	if (!tasks)
		fm.names = false;
	error = fm_notify_begin(pid, signal);
	if (error)
		goto no_signal;
	error = fm_proc_make();
	if (error)
		goto no_proc;
	register_mtd_user(&notifier);
	if (fm.state != FM_NOTHING || (wait && (!refused || refused == -EINVAL)))
		return 0;
	error = refused;
	if (!error) {
		error = -ENODEV;
		if (mtd < 0)
			pr_err("flashmon: no NAND flash is there; load its driver first, or wait=1\n");
		else
			pr_err("flashmon: there is no mtd%d; see /proc/mtd, or wait=1\n", mtd);
	}
	fm_proc_remove();
	unregister_mtd_user(&notifier);
	vfree(fm.counts);
no_proc:
	fm_notify_end();
no_signal:
	fm_rings_free();
	return error;
}

static void __exit fm_exit(void)
{
	fm_proc_remove();
	/* Takes leave of every device, and with the traced one of every probe. */
	unregister_mtd_user(&notifier);
	fm_notify_end();
	fm_rings_free();
	vfree(fm.counts);
}

module_init(fm_init);
module_exit(fm_exit);

MODULE_DESCRIPTION("Monitor of NAND flash operations");
MODULE_AUTHOR("flashscope");
MODULE_LICENSE("GPL");
