// SPDX-License-Identifier: GPL-2.0
/*
 * The log: a ring of entries for each CPU, and a table of the tasks that the entries name. Both are
 * made when the module is loaded and never grow. Probes write without locks (probes.c); what reads
 * holds fm_lock.
 */
#include <linux/hash.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/rcupdate.h>
#include <linux/vmalloc.h>

#include "flashmon.h"

DEFINE_PER_CPU(struct fm_ring, fm_rings);
u32 fm_stride = FLASHMON_EVENT_BYTES;
atomic_t fm_names_lost;
u32 fm_generation;

/* Tasks: entries are only ever added; a bucket holds a task's number, or 0. */
static struct flashmon_task *tasks;
static u32 *buckets;
static unsigned int bucket_bits;
static atomic_t task_count;
static bool tasks_open; /* numbers are given */
unsigned int fm_tasks;

static void *get(size_t count, size_t size)
{
	size_t bytes;

	/* More than half of the memory is a slip of the pen, and would wake the OOM killer before
	 * it fails.
	 */
	if (check_mul_overflow(count, size, &bytes) || bytes >> PAGE_SHIFT > totalram_pages() / 2)
		return NULL;
	return __vmalloc(bytes, GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN);
}

static int tasks_make(unsigned int max)
{
	fm_tasks = max;
	atomic_set(&task_count, 0);
	if (!max)
		return 0;
	if (max > FLASHMON_TASK_MASK / 2)
		return -EINVAL;
	bucket_bits = ilog2(roundup_pow_of_two(max)) + 1;
	tasks = get(max, sizeof(*tasks));
	buckets = get((size_t)1 << bucket_bits, sizeof(*buckets));
	if (!tasks || !buckets)
		return -ENOMEM;
	WRITE_ONCE(tasks_open, true);
	return 0;
}

int fm_rings_make(unsigned int entries, unsigned int max_tasks)
{
	unsigned int each = DIV_ROUND_UP(entries, num_possible_cpus());
	int cpu, error;

	/* Sequence numbers are compared in 32 bits. */
	if (entries > INT_MAX)
		return -EINVAL;
	error = tasks_make(entries ? max_tasks : 0);
	for_each_possible_cpu(cpu) {
		struct fm_ring *ring = per_cpu_ptr(&fm_rings, cpu);

		memset(ring, 0, sizeof(*ring));
		ring->pid = FM_NOBODY;
		if (!entries || error)
			continue;
		/* One more: the one that is being written is no reader's. */
		ring->slots = each + 1;
		ring->entries = get(ring->slots, fm_stride);
		ring->next = ring->entries;
		ring->end = ring->entries + (size_t)ring->slots * fm_stride;
		if (!ring->entries)
			error = -ENOMEM;
	}
	if (error)
		fm_rings_free();
	return error;
}

void fm_rings_free(void)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		vfree(per_cpu_ptr(&fm_rings, cpu)->entries);
		per_cpu_ptr(&fm_rings, cpu)->entries = NULL;
	}
	vfree(tasks);
	vfree(buckets);
	tasks = NULL;
	buckets = NULL;
	fm_tasks = 0;
}

size_t fm_memory(void)
{
	size_t bytes = (size_t)fm_target.blocks * 3 * sizeof(atomic_t);
	int cpu;

	for_each_possible_cpu(cpu)
		bytes += (size_t)per_cpu_ptr(&fm_rings, cpu)->slots * fm_stride;
	if (tasks)
		bytes += fm_tasks * sizeof(*tasks) + (sizeof(*buckets) << bucket_bits);
	return bytes;
}

/* --- tasks ------------------------------------------------------------- */

/* The number of a task, in a probe: its own, a new one, or 0 where there is no room. */
u32 fm_task_number(struct fm_ring *ring, struct task_struct *task)
{
	const u32 pid = task->pid;
	const u32 mask = (1u << bucket_bits) - 1;
	u32 comm[ARRAY_SIZE(ring->comm)], at, number = 0, mine = 0;

	/* Pairs with fm_flush(). */
	if (!smp_load_acquire(&tasks_open))
		goto lost;
	/* Another thread may write it (/proc/PID/comm): one copy serves all that follows. */
	memcpy(comm, task->comm, sizeof(comm));
	for (at = hash_32(pid, bucket_bits);; at = (at + 1) & mask) {
		struct flashmon_task *entry;

		/* Pairs with the cmpxchg below. */
		number = smp_load_acquire(&buckets[at]);
		if (!number && !mine) {
			mine = atomic_fetch_add_unless(&task_count, 1, fm_tasks) + 1;
			if (mine > fm_tasks)
				goto lost;
			entry = &tasks[mine - 1];
			entry->pid = pid;
			memcpy(entry->comm, comm, sizeof(comm));
			/* Pairs with fm_task(), which waits for it. */
			smp_store_release(&entry->number, mine);
		}
		if (!number) {
			/* A full barrier: whoever finds the number finds the entry whole. */
			number = cmpxchg(&buckets[at], 0, mine);
			if (!number) {
				number = mine;
				break;
			}
		}
		entry = &tasks[number - 1];
		if (entry->pid == pid && !memcmp(entry->comm, comm, sizeof(comm)))
			break;
	}
	ring->pid = pid;
	memcpy(ring->comm, comm, sizeof(comm));
	ring->number = number;
	return number;
lost:
	atomic_inc(&fm_names_lost);
	return 0;
}

u32 fm_task_count(void)
{
	return atomic_read(&task_count);
}

/* A task by its number, for readers; NULL where there is none. */
const struct flashmon_task *fm_task(u32 number)
{
	struct flashmon_task *entry;

	if (!number || number > fm_task_count())
		return NULL;
	entry = &tasks[number - 1];
	/* Pairs with fm_task_number(): a probe on another CPU is between taking the number and
	 * filling its entry: some ten instructions.
	 */
	while (smp_load_acquire(&entry->number) != number)
		cpu_relax();
	return entry;
}

/* --- readers of the rings, under fm_lock -------------------------------- */

/* How many entries were ever written. Whoever looks less often than every 2^32 entries miscounts.
 */
u64 fm_head(struct fm_ring *ring)
{
	/* Pairs with what a probe stores last (put() in probes.c). */
	ring->seen += (u32)(smp_load_acquire(&ring->head) - (u32)ring->seen);
	return ring->seen;
}

u64 fm_capacity(const struct fm_ring *ring)
{
	return ring->slots ? ring->slots - 1 : 0;
}

/* Entries that nobody drained before they were overwritten. */
u64 fm_lost(struct fm_ring *ring)
{
	u64 waiting = fm_head(ring) - ring->tail, capacity = fm_capacity(ring);

	return ring->lost + (waiting > capacity ? waiting - capacity : 0);
}

/* Since the last reset; counts of blocks have as many bits. */
u32 fm_asked(u32 kind)
{
	u32 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu) {
		const struct fm_ring *ring = per_cpu_ptr(&fm_rings, cpu);

		sum += READ_ONCE(ring->asked[kind]) - ring->asked_before[kind];
	}
	return sum;
}

/* Copies an entry; false where it is, or was meanwhile, overwritten. */
bool fm_entry(struct fm_ring *ring, u64 at, struct flashmon_event *event)
{
	u32 slot;

	if (fm_head(ring) - at > fm_capacity(ring))
		return false;
	div_u64_rem(at, ring->slots, &slot);
	memset(event, 0, sizeof(*event));
	memcpy(event, ring->entries + (size_t)slot * fm_stride, fm_stride);
	/* Pairs with the barrier before an entry is written. */
	smp_rmb();
	return fm_head(ring) - at <= fm_capacity(ring);
}

/*
 * Forgets the log and the tasks. Probes go on: what they log while the table is emptied has no
 * name, which is counted.
 */
void fm_flush(void)
{
	int cpu;

	if (tasks) {
		WRITE_ONCE(tasks_open, false);
		for_each_possible_cpu(cpu)
			WRITE_ONCE(per_cpu_ptr(&fm_rings, cpu)->pid, FM_NOBODY);
		/* A probe that had looked before is done: they run with preemption off. It may have
		 * put its task back.
		 */
		synchronize_rcu();
		for_each_possible_cpu(cpu)
			WRITE_ONCE(per_cpu_ptr(&fm_rings, cpu)->pid, FM_NOBODY);
		synchronize_rcu();
	}
	for_each_possible_cpu(cpu) {
		struct fm_ring *ring = per_cpu_ptr(&fm_rings, cpu);

		ring->lost = fm_lost(ring);
		ring->tail = fm_head(ring);
	}
	fm_generation++;
	if (tasks) {
		memset(tasks, 0, fm_tasks * sizeof(*tasks));
		memset(buckets, 0, sizeof(*buckets) << bucket_bits);
		atomic_set(&task_count, 0);
		/* Pairs with fm_task_number(), which looks at this first. */
		smp_store_release(&tasks_open, true);
	}
}
