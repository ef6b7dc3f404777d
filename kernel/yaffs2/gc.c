// SPDX-License-Identifier: GPL-2.0
/*
 * The garbage collector's thread. The core collects by itself when a write needs room; this thread does it before, so that
 * writes seldom wait. Nothing of it runs where nothing was written.
 */
#include <linux/freezer.h>
#include <linux/kthread.h>

#include "yaffs2.h"

/* How full of waste the flash is, and so how eagerly to collect. */
enum phase {
	/* At least half of what is free is erased already. */
	PHASE_IDLE,
	/* Below: one step (5 pages) now and then. */
	PHASE_SOFT,
	/* Below a quarter, where writes themselves would begin to collect: a step whenever the lock is free. */
	PHASE_AGGRESSIVE,
};

static const unsigned int pause_ms[] = {
	[PHASE_IDLE] = 2000,
	[PHASE_SOFT] = 500,
	[PHASE_AGGRESSIVE] = 20,
};

/* Directories' times are written so often. */
#define DIRECTORIES_MS 5000

static enum phase phase_of(const struct yaffs_dev *dev)
{
	long erased = (long)dev->n_erased_blocks * dev->param.chunks_per_block;
	long scattered = dev->n_free_chunks - erased;

	/* What is left in the block that is being written cannot be collected. */
	if (scattered < 2 * dev->param.chunks_per_block && !dev->has_pending_prioritised_gc)
		return PHASE_IDLE;
	if (dev->has_pending_prioritised_gc)
		return PHASE_SOFT;
	if (erased < dev->n_free_chunks / 4)
		return PHASE_AGGRESSIVE;
	return erased < dev->n_free_chunks / 2 ? PHASE_SOFT : PHASE_IDLE;
}

static int run(void *data)
{
	struct yaffs2_sb *ys = data;
	struct yaffs_dev *dev = &ys->dev;
	unsigned long directories = jiffies;
	/* The first look comes soon after the first write. */
	enum phase phase = PHASE_AGGRESSIVE;

	set_freezable();
	while (!kthread_should_stop()) {
		unsigned int before;

		/* Without work it sleeps until something is written. */
		wait_event_freezable(ys->gc_wait, READ_ONCE(ys->gc_work) || kthread_should_stop());
		wait_event_freezable_timeout(ys->gc_wait, kthread_should_stop(), msecs_to_jiffies(pause_ms[phase]));
		if (kthread_should_stop())
			break;
		yaffs2_lock(ys);
		WRITE_ONCE(ys->gc_work, false);
		phase = phase_of(dev);
		before = dev->all_gcs;
		if (phase != PHASE_IDLE) {
			yaffs_bg_gc(dev, phase);
			dev->bg_gcs += dev->all_gcs - before;
		}
		if (time_after(jiffies, directories + msecs_to_jiffies(DIRECTORIES_MS))) {
			yaffs_update_dirty_dirs(dev);
			directories = jiffies;
		}
		/* A step that found something may find more; what is left of directories has its time. */
		WRITE_ONCE(ys->gc_work, dev->all_gcs != before || !list_empty(&dev->dirty_dirs));
		yaffs2_unlock(ys);
	}
	return 0;
}

/* Something was written, or read with errors, which the core mends by moving the block. Called locked. */
void yaffs2_gc_wake(struct yaffs2_sb *ys)
{
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
