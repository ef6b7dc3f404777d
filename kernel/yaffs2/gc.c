// SPDX-License-Identifier: GPL-2.0
/*
 * The garbage collector's thread. The core collects by itself when a write needs room; this thread does it before, so that
 * writes seldom wait. Nothing of it runs where nothing was written.
 */
#include <linux/freezer.h>
#include <linux/kthread.h>

#include "yaffs2.h"

/*
 * How eagerly to collect. Shares and pauses are those of the original glue's thread (yaffs2's yaffs_vfs_multi.c, 2010 to today:
 * yaffs_bg_gc_urgency() and yaffs_bg_thread_fn()), which does a step in every phase.
 */
enum phase {
	/* Half of what is free is erased already, or hardly anything is waste. */
	PHASE_IDLE,
	/* Below half. */
	PHASE_SOFT,
	/* Below a quarter, where writes themselves begin to collect. */
	PHASE_AGGRESSIVE,
};

static const unsigned int pause_ms[] = {
	[PHASE_IDLE] = 2000,
	[PHASE_SOFT] = 100,
	[PHASE_AGGRESSIVE] = 50,
};

/* Directories' times are written so often. */
#define DIRECTORIES_MS 1000
/*
 * So many steps that find nothing are the end until something is written. Each looks at a part of the blocks and takes one that
 * is more full than the last would; from the tenth on the core takes any block with waste (yaffs_find_gc_block()).
 */
#define STEPS_IN_VAIN 12

static enum phase phase_of(const struct yaffs_dev *dev)
{
	long erased = (long)dev->n_erased_blocks * dev->param.chunks_per_block;
	long scattered = dev->n_free_chunks - erased;

	/* What is left in the block that is being written cannot be collected. */
	if (scattered < 2 * dev->param.chunks_per_block)
		return PHASE_IDLE;
	if (erased > dev->n_free_chunks / 2)
		return PHASE_IDLE;
	return erased > dev->n_free_chunks / 4 ? PHASE_SOFT : PHASE_AGGRESSIVE;
}

/* A step, unless that would cost a checkpoint; true where it found a block. Called locked. */
static bool collect(struct yaffs2_sb *ys, enum phase phase)
{
	struct yaffs_dev *dev = &ys->dev;
	unsigned int before = dev->all_gcs;

	/* What ECC had to restore is moved all the same. */
	if (dev->is_checkpointed && !dev->has_pending_prioritised_gc)
		return false;
	yaffs_bg_gc(dev, phase);
	ys->gc_steps[phase] += dev->all_gcs - before;
	return dev->all_gcs != before;
}

static int run(void *data)
{
	struct yaffs2_sb *ys = data;
	struct yaffs_dev *dev = &ys->dev;
	unsigned long directories = jiffies, next = jiffies;
	unsigned int in_vain = 0;

	set_freezable();
	while (!kthread_should_stop()) {
		unsigned long now, until;

		/* Without work it sleeps until something is written. */
		wait_event_freezable(ys->gc_wait, READ_ONCE(ys->gc_work) || kthread_should_stop());
		until = time_before(next, directories) ? next : directories;
		now = jiffies;
		if (time_after(until, now))
			wait_event_freezable_timeout(ys->gc_wait, kthread_should_stop(), until - now);
		if (kthread_should_stop())
			break;
		yaffs2_lock(ys);
		/* Whoever writes from here on says so again. */
		if (ys->gc_written)
			in_vain = 0;
		ys->gc_written = false;
		now = jiffies;
		if (!time_before(now, next)) {
			enum phase phase = phase_of(dev);

			in_vain = collect(ys, phase) ? 0 : in_vain + 1;
			next = now + msecs_to_jiffies(pause_ms[phase]);
		}
		if (!time_before(now, directories)) {
			yaffs_update_dirty_dirs(dev);
			directories = now + msecs_to_jiffies(DIRECTORIES_MS);
		}
		WRITE_ONCE(ys->gc_work, ys->gc_written || in_vain < STEPS_IN_VAIN || !list_empty(&dev->dirty_dirs));
		yaffs2_unlock(ys);
	}
	return 0;
}

/* Something was written, or read with errors, which the core mends by moving the block. Called locked. */
void yaffs2_gc_wake(struct yaffs2_sb *ys)
{
	ys->gc_written = true;
	if (ys->gc_thread && !READ_ONCE(ys->gc_work)) {
		WRITE_ONCE(ys->gc_work, true);
		wake_up(&ys->gc_wait);
	}
}

int yaffs2_gc_start(struct yaffs2_sb *ys)
{
	struct task_struct *thread;

	if (!ys->options.background_gc)
		return 0;
	/* A mount alone is no reason to write: the core would move a block, and the checkpoint would be gone. */
	ys->gc_work = false;
	ys->gc_written = false;
	thread = kthread_run(run, ys, "yaffs2_gc_mtd%d", ys->mtd->index);
	if (IS_ERR(thread))
		return PTR_ERR(thread);
	ys->gc_thread = thread;
	return 0;
}

void yaffs2_gc_stop(struct yaffs2_sb *ys)
{
	struct task_struct *thread = ys->gc_thread;

	if (!thread)
		return;
	ys->gc_thread = NULL;
	kthread_stop(thread);
}
