// SPDX-License-Identifier: Apache-2.0
#include "layers.h"

#include <stdio.h>
#include <string.h>

#include "util.h"

enum {
	OWN = 1, /* a process's own call: the recorder's are left out */
	RET = 2, /* what it returns means something: bytes, or an error */
};

struct boundary {
	const char *layer, *symbol, *enter, *leave;
	unsigned int flags;
};

#define B(layer, symbol, flags) { layer, #symbol, "enter_" #symbol, "leave_" #symbol, flags }

/*
 * By layer, downwards; names that changed between 5.10, 6.1, 6.12 and 7.2 stand
 * side by side. None of these is inlined on Debian's armmp and amd64 kernels.
 */
static const struct boundary boundaries[] = {
	/* fs/read_write.c, fs/sync.c */
	B("vfs", vfs_read, OWN | RET),
	B("vfs", vfs_readv, OWN | RET),
	B("vfs", vfs_write, OWN | RET),
	B("vfs", vfs_writev, OWN | RET),
	B("vfs", vfs_fsync_range, OWN | RET),
	/* mm/filemap.c, mm/readahead.c, mm/page-writeback.c */
	B("cache", filemap_read, OWN | RET),
	B("cache", generic_file_buffered_read, OWN | RET),
	B("cache", filemap_fault, OWN),
	B("cache", page_cache_ra_unbounded, OWN),
	B("cache", page_cache_ra_order, OWN),
	B("cache", generic_perform_write, OWN | RET),
	B("cache", file_write_and_wait_range, OWN | RET),
	B("cache", do_writepages, OWN | RET),
	/* kernel/sched/core.c: a task sleeps for a page or other I/O (folio_wait_bit_common itself cannot be probed) */
	B("wait", io_schedule, OWN),
	/* fs/jbd2/journal.c: who syncs sleeps until the journal's thread has committed */
	B("wait", jbd2_log_wait_commit, OWN | RET),
	/* fs/ext4, fs/mpage.c, fs/f2fs, fs/jffs2, fs/ubifs, fs/squashfs */
	B("filesystem", ext4_mpage_readpages, OWN),
	B("filesystem", ext4_writepages, OWN | RET),
	B("filesystem", ext4_sync_file, OWN | RET),
	B("filesystem", mpage_readahead, OWN),
	B("filesystem", f2fs_mpage_readpages, OWN),
	B("filesystem", f2fs_write_data_pages, OWN | RET),
	B("filesystem", f2fs_sync_file, OWN | RET),
	B("filesystem", jffs2_readpage, OWN | RET),
	B("filesystem", jffs2_read_folio, OWN | RET),
	B("filesystem", jffs2_write_inode_range, OWN | RET),
	B("filesystem", ubifs_readpage, OWN | RET),
	B("filesystem", ubifs_read_folio, OWN | RET),
	B("filesystem", ubifs_writepage, OWN | RET),
	B("filesystem", ubifs_writepages, OWN | RET),
	B("filesystem", ubifs_fsync, OWN | RET),
	B("filesystem", squashfs_readpage, OWN | RET),
	B("filesystem", squashfs_read_folio, OWN | RET),
	B("filesystem", squashfs_readahead, OWN),
	/* fs/jbd2/commit.c: the thread that commits */
	B("journal", jbd2_journal_commit_transaction, 0),
	/* block/blk-core.c, block/blk-mq.c, block/blk-flush.c */
	B("block", submit_bio_noacct, 0),
	B("block", blk_mq_submit_bio, 0),
	B("block", blk_flush_plug_list, 0),
	B("block", __blk_flush_plug, 0),
	B("block", blkdev_issue_flush, OWN | RET),
	/* drivers/mtd/ubi */
	B("ubi", ubi_eba_read_leb, OWN | RET),
	B("ubi", ubi_eba_write_leb, OWN | RET),
	/* drivers/mtd/mtdcore.c */
	B("mtd", mtd_read_oob, OWN | RET),
	B("mtd", mtd_write_oob, OWN | RET),
	B("mtd", mtd_erase, OWN | RET),
	/* queue_rq of drivers: drivers/block, drivers/mmc/core, drivers/scsi, drivers/nvme, drivers/mtd */
	B("driver", null_queue_rq, RET),
	B("driver", mmc_blk_mq_issue_rq, RET),
	B("driver", loop_queue_rq, RET),
	B("driver", virtio_queue_rq, RET),
	B("driver", scsi_queue_rq, RET),
	B("driver", nvme_queue_rq, RET),
	B("driver", mtd_queue_rq, RET),
	B("driver", ubiblock_queue_rq, RET),
	/* drivers/mtd/nand/raw/nand_base.c: with its error correction */
	B("driver", nand_read_oob, OWN | RET),
	B("driver", nand_write_oob, OWN | RET),
	B("driver", nand_erase_nand, OWN | RET),
	/* the chip's commands, which the NAND core waits for */
	B("device", nand_read_page_op, RET),
	B("device", nand_read_data_op, RET),
	B("device", nand_change_read_column_op, RET),
	B("device", nand_prog_page_op, RET),
	B("device", nand_prog_page_begin_op, RET),
	B("device", nand_write_data_op, RET),
	B("device", nand_change_write_column_op, RET),
	B("device", nand_prog_page_end_op, RET),
	B("device", nand_erase_op, RET),
	/* drivers/mmc/host/sdhci.c, drivers/block/null_blk/main.c */
	B("interrupt", sdhci_irq, 0),
	B("interrupt", null_cmd_timer_expired, 0),
	/* block/blk-mq.c, block/bio.c */
	B("completion", blk_mq_end_request, 0),
	B("completion", bio_endio, 0),
};

/* What kernel events show of a layer, without one of our probes. */
static const struct {
	const char *layer, *system, *enter, *leave;
} events_of[] = {
	{ "user", "syscalls", "sys_enter_read", "sys_exit_read" },
	{ "user", "syscalls", "sys_enter_pread64", "sys_exit_pread64" },
	{ "user", "syscalls", "sys_enter_write", "sys_exit_write" },
	{ "user", "syscalls", "sys_enter_pwrite64", "sys_exit_pwrite64" },
	{ "user", "syscalls", "sys_enter_fsync", "sys_exit_fsync" },
	{ "user", "syscalls", "sys_enter_fdatasync", "sys_exit_fdatasync" },
	{ "device", "block", "block_rq_issue", "block_rq_complete" },
	{ "device", "mmc", "mmc_request_start", "mmc_request_done" },
	{ "interrupt", "irq", "irq_handler_entry", "irq_handler_exit" },
	{ "interrupt", "irq", "softirq_entry", "softirq_exit" },
};

/* From user space down and up again. Each has what a recording without it cannot show. */
static const struct {
	const char *name, *loses;
	bool always; /* every kernel has it; of the others a machine has what it uses */
} layers[] = {
	{ "user", NULL, false },
	{ "vfs", "time between the call and the page cache", true },
	{ "cache", "time in the page cache and in read-ahead", true },
	{ "wait", "time that a task sleeps for a page or other I/O", true },
	{ "filesystem", "time in the file system by itself", true },
	{ "journal", NULL, false },
	{ "block", "time in the block layer by itself", true },
	{ "ubi", NULL, false },
	{ "mtd", NULL, false },
	{ "driver", "time in the driver by itself", true },
	{ "device", NULL, false },
	{ "interrupt", NULL, false },
	{ "completion", "time between the interrupt and the end of the bio", true },
};

static void add(struct fs_probes *probes, const struct boundary *boundary, const char *group, const char *filter,
		bool leave)
{
	struct fs_probe *probe;

	if (probes->count == ARRAY_SIZE(probes->items))
		return;
	probe = &probes->items[probes->count++];
	memset(probe, 0, sizeof(*probe));
	probe->event = leave ? boundary->leave : boundary->enter;
	probe->symbol = boundary->symbol;
	probe->operation = leave ? "leave" : "enter";
	probe->level = boundary->layer;
	probe->group = FS_GROUP_LAYERS;
	probe->filter = boundary->flags & OWN ? fs_strdup(filter) : NULL;
	/* Room for as many calls as run at once: as for flash's return probes. */
	snprintf(probe->definition, sizeof(probe->definition), leave ? "r64:%s/%s %s%s" : "p:%s/%s %s%s", group,
		 probe->event, boundary->symbol, leave && boundary->flags & RET ? " ret=$retval:s32" : "");
}

void fs_layers_plan(const struct fs_tracefs *tracefs, const char *group, long own, struct fs_probes *probes,
		    struct fs_events *events)
{
	const char *names[ARRAY_SIZE(boundaries)];
	bool found[ARRAY_SIZE(boundaries)] = { false };
	char filter[FS_OWN_FILTER];

	fs_own_filter(filter, sizeof(filter), own);
	for (size_t i = 0; i < ARRAY_SIZE(boundaries); i++)
		names[i] = boundaries[i].symbol;
	if (tracefs->kprobe_events)
		fs_symbols(names, ARRAY_SIZE(names), found);
	for (size_t l = 0; l < ARRAY_SIZE(layers); l++) {
		size_t count = 0;

		for (size_t i = 0; i < ARRAY_SIZE(boundaries); i++) {
			if (!found[i] || strcmp(boundaries[i].layer, layers[l].name))
				continue;
			add(probes, &boundaries[i], group, filter, false);
			add(probes, &boundaries[i], group, filter, true);
			count++;
		}
		if (!count && layers[l].always) {
			char event[96];

			snprintf(event, sizeof(event), "flashscope:enter_* of layer %s", layers[l].name);
			fs_events_absent(events, FS_GROUP_LAYERS, event,
					 tracefs->kprobe_events ? "this kernel has none of the functions that are known here" :
								  "this kernel has no kprobe_events",
					 layers[l].loses);
		}
	}
}

static bool is_recorded(const struct fs_events *events, const char *system, const char *event)
{
	for (size_t i = 0; i < events->count; i++)
		if (!strcmp(events->items[i].system, system) && events->items[i].event &&
		    !strcmp(events->items[i].event, event))
			return true;
	return false;
}

static void boundary_json(struct fs_json *json, const char *layer, const char *symbol, const char *system,
			  const char *enter, const char *leave)
{
	char name[128];

	fs_json_object(json, NULL);
	fs_json_string(json, "layer", layer);
	fs_json_string(json, "symbol", symbol);
	snprintf(name, sizeof(name), "%s:%s", system, enter ? enter : "");
	fs_json_string(json, "enter", enter ? name : NULL);
	snprintf(name, sizeof(name), "%s:%s", system, leave ? leave : "");
	fs_json_string(json, "leave", leave ? name : NULL);
	fs_json_object_end(json);
}

/* The event of a probe that was armed; NULL: it was refused. */
static const char *armed(const struct fs_probes *probes, const char *event)
{
	for (size_t i = 0; i < probes->count; i++)
		if (!strcmp(probes->items[i].event, event))
			return event;
	return NULL;
}

void fs_layers_json(struct fs_json *json, const struct fs_probes *probes, const struct fs_events *events)
{
	fs_json_array(json, "boundaries");
	for (size_t l = 0; l < ARRAY_SIZE(layers); l++) {
		for (size_t i = 0; i < ARRAY_SIZE(events_of); i++)
			if (!strcmp(events_of[i].layer, layers[l].name) &&
			    is_recorded(events, events_of[i].system, events_of[i].enter))
				boundary_json(json, layers[l].name, NULL, events_of[i].system, events_of[i].enter,
					      is_recorded(events, events_of[i].system, events_of[i].leave) ?
						      events_of[i].leave :
						      NULL);
		for (size_t i = 0; i < ARRAY_SIZE(boundaries); i++) {
			const char *enter, *leave;

			if (strcmp(boundaries[i].layer, layers[l].name))
				continue;
			enter = armed(probes, boundaries[i].enter);
			leave = armed(probes, boundaries[i].leave);
			if (enter || leave)
				boundary_json(json, layers[l].name, boundaries[i].symbol, "flashscope", enter, leave);
		}
	}
	fs_json_array_end(json);
}
