// SPDX-License-Identifier: GPL-2.0
/* The text files: Flashmon's two, and the status. All take commands. */
#include <linux/mm.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "flashmon.h"

ssize_t fm_write_command(struct file *file, const char __user *text, size_t size, loff_t *at)
{
	char word[16];
	int error;

	if (!size || size >= sizeof(word))
		return -EINVAL;
	if (copy_from_user(word, text, size))
		return -EFAULT;
	word[size] = '\0';
	error = fm_command(strim(word));
	return error ?: size;
}

/* --- /proc/flashmon: a line for each block ------------------------------------- */

static void *blocks_start(struct seq_file *m, loff_t *at)
{
	mutex_lock(&fm_lock);
	return *at < fm_target.blocks ? at : NULL;
}

static void *blocks_next(struct seq_file *m, void *v, loff_t *at)
{
	return ++*at < fm_target.blocks ? at : NULL;
}

static void unlock_stop(struct seq_file *m, void *v)
{
	mutex_unlock(&fm_lock);
}

static int blocks_show(struct seq_file *m, void *v)
{
	const atomic_t *counts = &fm.counts[*(loff_t *)v * 3];

	seq_printf(m, "%u %u %u\n", (u32)atomic_read(&counts[FLASHMON_READ]),
		   (u32)atomic_read(&counts[FLASHMON_PROGRAM]),
		   (u32)atomic_read(&counts[FLASHMON_ERASE]));
	return 0;
}

static const struct seq_operations blocks_seq = {
	.start = blocks_start,
	.next = blocks_next,
	.stop = unlock_stop,
	.show = blocks_show,
};

static int blocks_open(struct inode *inode, struct file *file)
{
	return seq_open(file, &blocks_seq);
}

/* --- /proc/flashmon_log: a line for each event, in order of time ----------------- */

struct lane {
	u64 at, end;
	bool have;
	struct flashmon_event event;
};

/* A reader's place. It holds nothing of the log between two reads: what is overwritten meanwhile,
 * it does not see.
 */
struct place {
	loff_t line;
	u32 generation;
	int cpu; /* whose entry comes next; -1: none */
	struct lane lanes[];
};

static void fill(struct lane *lane, struct fm_ring *ring)
{
	lane->have = false;
	for (; lane->at < lane->end; lane->at++) {
		u64 oldest = fm_head(ring);

		oldest -= min(oldest, fm_capacity(ring));
		if (lane->at < oldest)
			lane->at = min(oldest, lane->end);
		if (lane->at < lane->end && fm_entry(ring, lane->at, &lane->event)) {
			lane->have = true;
			return;
		}
	}
}

static void pick(struct place *place)
{
	int cpu;

	place->cpu = -1;
	for_each_possible_cpu(cpu)
		if (place->lanes[cpu].have &&
		    (place->cpu < 0 ||
		     place->lanes[cpu].event.time_ns < place->lanes[place->cpu].event.time_ns))
			place->cpu = cpu;
}

static void rewind(struct place *place)
{
	int cpu;

	place->line = 0;
	place->generation = fm_generation;
	for_each_possible_cpu(cpu) {
		struct fm_ring *ring = per_cpu_ptr(&fm_rings, cpu);
		struct lane *lane = &place->lanes[cpu];

		lane->at = ring->tail;
		lane->end = fm_head(ring);
		fill(lane, ring);
	}
	pick(place);
}

static void advance(struct place *place)
{
	struct lane *lane = &place->lanes[place->cpu];

	lane->at++;
	fill(lane, per_cpu_ptr(&fm_rings, place->cpu));
	place->line++;
	pick(place);
}

static void *log_start(struct seq_file *m, loff_t *at)
{
	struct place *place = m->private;

	mutex_lock(&fm_lock);
	if (!*at || *at < place->line)
		rewind(place);
	if (place->generation != fm_generation)
		return NULL;
	while (place->cpu >= 0 && place->line < *at)
		advance(place);
	return place->cpu >= 0 ? place : NULL;
}

static void *log_next(struct seq_file *m, void *v, loff_t *at)
{
	struct place *place = m->private;

	++*at;
	advance(place);
	return place->cpu >= 0 ? place : NULL;
}

/* A name may hold what would end its field or its line. */
static void show_name(struct seq_file *m, const char *comm, size_t size)
{
	const char *end = comm + strnlen(comm, size);

	for (; comm < end; comm++) {
		if (*comm < ' ' || *comm == ';' || *comm == '\\' || *comm == 0x7f)
			seq_printf(m, "\\%03o", (unsigned char)*comm);
		else
			seq_putc(m, *comm);
	}
}

static const char letters[] = "RWEC";

static int log_show(struct seq_file *m, void *v)
{
	const struct place *place = v;
	const struct lane *lane = &place->lanes[place->cpu];
	const struct flashmon_event *event = &lane->event;
	const struct flashmon_task *task = fm_task(event->kind_task & FLASHMON_TASK_MASK);
	const u32 kind = event->kind_task >> FLASHMON_KIND_SHIFT;
	u32 nanoseconds;
	u64 seconds = div_u64_rem(event->time_ns, NSEC_PER_SEC, &nanoseconds);

	seq_printf(m, "%llu.%09u;%c;%u", seconds, nanoseconds, letters[kind & 3], event->address);
	if (fm.names || fm.extended)
		seq_putc(m, ';');
	if (task)
		show_name(m, task->comm, sizeof(task->comm));
	if (fm.extended)
		seq_printf(m, ";%u;%u;%d;%llu", task ? task->pid : 0, event->duration_ns,
			   place->cpu, lane->at);
	seq_putc(m, '\n');
	return 0;
}

static const struct seq_operations log_seq = {
	.start = log_start,
	.next = log_next,
	.stop = unlock_stop,
	.show = log_show,
};

static int log_open(struct inode *inode, struct file *file)
{
	struct place *place = kvzalloc(struct_size(place, lanes, nr_cpu_ids), GFP_KERNEL);
	struct seq_file *m;
	int error;

	if (!place)
		return -ENOMEM;
	place->cpu = -1;
	error = seq_open(file, &log_seq);
	if (error) {
		kvfree(place);
		return error;
	}
	m = file->private_data;
	m->private = place;
	return 0;
}

static int log_release(struct inode *inode, struct file *file)
{
	struct seq_file *m = file->private_data;

	kvfree(m->private);
	return seq_release(inode, file);
}

/* --- /proc/flashmon_status -------------------------------------------------------- */

static const char *const state_names[] = { "nothing to trace", "running", "paused", "stopped" };

static int status_show(struct seq_file *m, void *v)
{
	u64 sums[3] = { 0 }, logged = 0, lost = 0;
	size_t i;
	int cpu;

	mutex_lock(&fm_lock);
	for (i = 0; i < (size_t)fm_target.blocks * 3; i++)
		sums[i % 3] += (u32)atomic_read(&fm.counts[i]);
	seq_printf(m, "flashmon: %u\nstate: %s\n", FLASHMON_VERSION, state_names[fm.state]);
	seq_printf(m, "mtd: %d\nname: ", fm_target.index);
	show_name(m, fm_target.name, sizeof(fm_target.name));
	seq_printf(m, "\npage_bytes: %u\npages_per_block: %u\n", fm_target.page_bytes,
		   fm_target.pages_per_block);
	seq_printf(m, "first_page: %u\npages: %u\nblocks: %u\npages_per_target: %u\n",
		   fm_target.first_page, fm_target.pages, fm_target.blocks,
		   fm_target.target_pages);
	fm_show_points(m);
	seq_printf(m, "reads: %llu\nprograms: %llu\nerases: %llu\n", sums[0], sums[1], sums[2]);
	seq_printf(m, "programs_asked: %u\nerases_asked: %u\n", fm_asked(FLASHMON_PROGRAM),
		   fm_asked(FLASHMON_ERASE));
	for_each_possible_cpu(cpu) {
		struct fm_ring *ring = per_cpu_ptr(&fm_rings, cpu);

		seq_printf(m, "cpu%d: logged %llu lost %llu room %llu\n", cpu,
			   fm_head(ring) - ring->since, fm_lost(ring), fm_capacity(ring));
		logged += fm_head(ring) - ring->since;
		lost += fm_lost(ring);
	}
	seq_printf(m, "logged: %llu\nlost: %llu\nmisses: %lu\n", logged, lost, fm_misses());
	seq_printf(m, "tasks: %u of %u\nnames_lost: %u\n", fm_task_count(), fm_tasks,
		   (u32)atomic_read(&fm_names_lost));
	seq_printf(m, "signals: %lld\nsignals_failed: %lld\n", atomic64_read(&fm_signals),
		   atomic64_read(&fm_signals_failed));
	seq_printf(m, "extended: %d\nentry_bytes: %u\nmemory_bytes: %zu\n", fm.extended, fm_stride,
		   fm_memory());
	mutex_unlock(&fm_lock);
	return 0;
}

static int status_open(struct inode *inode, struct file *file)
{
	return single_open(file, status_show, NULL);
}

/* --- the files -------------------------------------------------------------------- */

static const struct proc_ops blocks_ops = {
	.proc_open = blocks_open,
	.proc_read = seq_read,
	.proc_write = fm_write_command,
	.proc_lseek = seq_lseek,
	.proc_release = seq_release,
};

static const struct proc_ops log_ops = {
	.proc_open = log_open,
	.proc_read = seq_read,
	.proc_write = fm_write_command,
	.proc_lseek = seq_lseek,
	.proc_release = log_release,
};

static const struct proc_ops status_ops = {
	.proc_open = status_open,
	.proc_read = seq_read,
	.proc_write = fm_write_command,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

static const struct {
	const char *name;
	const struct proc_ops *ops;
} files[] = {
	{ "flashmon", &blocks_ops },
	{ "flashmon_log", &log_ops },
	{ "flashmon_status", &status_ops },
	{ "flashmon_stream", &fm_stream_ops },
};

int fm_proc_make(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(files); i++) {
		if (proc_create(files[i].name, 0600, NULL, files[i].ops))
			continue;
		while (i--)
			remove_proc_entry(files[i].name, NULL);
		return -ENOMEM;
	}
	return 0;
}

void fm_proc_remove(void)
{
	size_t i;

	/* Waits for whoever is reading, and closes what is open. */
	for (i = 0; i < ARRAY_SIZE(files); i++)
		remove_proc_entry(files[i].name, NULL);
}
