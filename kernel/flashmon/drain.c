// SPDX-License-Identifier: GPL-2.0
/*
 * /proc/flashmon_stream: the log in binary (flashmon_stream.h). What is read is gone from the log.
 * One reader at a time; it goes on where the last one ended.
 */
#include <linux/fs.h>
#include <linux/proc_fs.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "flashmon.h"

struct reader {
	bool told; /* FLASHMON_INFO is out */
	u32 generation, tasks_told;
};

static atomic_t readers;

struct out {
	char __user *to;
	size_t room, done;
};

static int give(struct out *out, const void *bytes, size_t size)
{
	if (copy_to_user(out->to + out->done, bytes, size))
		return -EFAULT;
	out->done += size;
	return 0;
}

static size_t items(const struct out *out, size_t size)
{
	const size_t left = out->room - out->done;

	return left > sizeof(struct flashmon_block) ?
		       (left - sizeof(struct flashmon_block)) / size :
		       0;
}

static int give_info(struct reader *reader, struct out *out)
{
	const struct flashmon_block block = { .type = FLASHMON_INFO,
					      .count = 1,
					      .item = sizeof(struct flashmon_info) };
	const struct flashmon_info info = {
		.magic = FLASHMON_MAGIC,
		.version = FLASHMON_VERSION,
		.page_bytes = fm_target.page_bytes,
		.pages_per_block = fm_target.pages_per_block,
		.first_page = fm_target.first_page,
		.pages = fm_target.pages,
		.cpus = nr_cpu_ids,
		.mtd = fm_target.index,
		.extended = fm.extended,
	};

	reader->told = true;
	reader->generation = fm_generation;
	return give(out, &block, sizeof(block)) ?: give(out, &info, sizeof(info));
}

static int give_tasks(struct reader *reader, struct out *out)
{
	const u32 count = fm_task_count();
	struct flashmon_block block = { .type = FLASHMON_FORGET,
					.item = sizeof(struct flashmon_task) };
	int error;

	if (reader->generation != fm_generation) {
		reader->generation = fm_generation;
		reader->tasks_told = 0;
		if (!items(out, 1))
			return 0;
		error = give(out, &block, sizeof(block));
		if (error)
			return error;
	}
	if (reader->tasks_told >= count)
		return 0;
	block.type = FLASHMON_TASKS;
	block.count =
		min_t(size_t, count - reader->tasks_told, items(out, sizeof(struct flashmon_task)));
	block.first = reader->tasks_told + 1;
	if (!block.count)
		return 0;
	error = give(out, &block, sizeof(block));
	for (; !error && block.count; block.count--) {
		error = give(out, fm_task(reader->tasks_told + 1), sizeof(struct flashmon_task));
		reader->tasks_told += !error;
	}
	return error;
}

/* Entries up to `head`, which was read before the tasks were given. */
static int give_events(struct fm_ring *ring, u16 cpu, u64 head, struct out *out)
{
	struct flashmon_block block = { .type = FLASHMON_EVENTS, .cpu = cpu, .item = fm_stride };
	const u64 capacity = fm_capacity(ring);
	char __user *to = out->to + out->done;
	u64 from = ring->tail;
	u32 slot, straight;

	if (fm_head(ring) - from > capacity)
		from = fm_head(ring) - capacity;
	if (from >= head)
		return 0;
	block.first = from;
	block.count = min_t(u64, head - from, items(out, fm_stride));
	if (!block.count)
		return 0;
	div_u64_rem(from, ring->slots, &slot);
	straight = min(block.count, ring->slots - slot);
	/* The header last: what it says of the copy is known then. */
	to += sizeof(block);
	if (copy_to_user(to, ring->entries + (size_t)slot * fm_stride,
			 (size_t)straight * fm_stride) ||
	    copy_to_user(to + (size_t)straight * fm_stride, ring->entries,
			 (size_t)(block.count - straight) * fm_stride))
		return -EFAULT;
	/* Pairs with the barrier before an entry is written. */
	smp_rmb();
	if (fm_head(ring) - from > capacity)
		block.skip = min_t(u64, fm_head(ring) - from - capacity, block.count);
	block.lost = ring->lost + (from - ring->tail) + block.skip;
	if (copy_to_user(out->to + out->done, &block, sizeof(block)))
		return -EFAULT;
	ring->lost = block.lost;
	ring->tail = from + block.count;
	out->done += sizeof(block) + (size_t)block.count * fm_stride;
	return 0;
}

/* What is drained names no task any more: a table that is nearly full begins anew. */
static void recycle(void)
{
	int cpu;

	if (!fm_tasks || fm_task_count() < fm_tasks - fm_tasks / 4)
		return;
	for_each_possible_cpu(cpu)
		if (per_cpu_ptr(&fm_rings, cpu)->tail != fm_head(per_cpu_ptr(&fm_rings, cpu)))
			return;
	fm_flush();
}

static ssize_t drain_read(struct file *file, char __user *to, size_t size, loff_t *at)
{
	struct reader *reader = file->private_data;
	struct out out = { .to = to, .room = min_t(size_t, size, INT_MAX & PAGE_MASK) };
	int error = 0, cpu;
	u64 *heads;

	if (size < FLASHMON_MIN_READ)
		return -EINVAL;
	heads = kcalloc(nr_cpu_ids, sizeof(*heads), GFP_KERNEL);
	if (!heads)
		return -ENOMEM;
	mutex_lock(&fm_lock);
	if (!reader->told)
		error = give_info(reader, &out);
	for_each_possible_cpu(cpu)
		heads[cpu] = fm_head(per_cpu_ptr(&fm_rings, cpu));
	if (!error)
		error = give_tasks(reader, &out);
	/* Tasks that did not fit come with the next read, and the events after them. */
	if (!error && reader->tasks_told >= fm_task_count()) {
		for_each_possible_cpu(cpu) {
			error = give_events(per_cpu_ptr(&fm_rings, cpu), cpu, heads[cpu], &out);
			if (error)
				break;
		}
		if (!error)
			recycle();
	}
	mutex_unlock(&fm_lock);
	kfree(heads);
	return out.done ?: error;
}

static int drain_open(struct inode *inode, struct file *file)
{
	struct reader *reader;

	if (atomic_cmpxchg(&readers, 0, 1))
		return -EBUSY;
	reader = kzalloc(sizeof(*reader), GFP_KERNEL);
	if (!reader) {
		atomic_set(&readers, 0);
		return -ENOMEM;
	}
	file->private_data = reader;
	return 0;
}

static int drain_release(struct inode *inode, struct file *file)
{
	kfree(file->private_data);
	atomic_set(&readers, 0);
	return 0;
}

const struct proc_ops fm_stream_ops = {
	.proc_open = drain_open,
	.proc_read = drain_read,
	.proc_write = fm_write_command,
	.proc_release = drain_release,
};
