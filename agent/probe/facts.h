/* SPDX-License-Identifier: Apache-2.0 */
/* Describes this machine and what can be recorded on it (docs/reference/agent.md, "Facts"). */
#ifndef FLASHSCOPE_FACTS_H
#define FLASHSCOPE_FACTS_H

#include "json.h"
#include "mtd.h"
#include "probe_points.h"
#include "tracefs.h"

struct fs_facts {
	struct fs_tracefs tracefs;
	struct fs_page_layout layout; /* a guess if tracefs cannot be read */
	struct fs_machine machine;
	struct fs_mtd_list mtd;
	struct fs_probe_points points; /* filled by the caller: fs_probe_points_check() or fs_probe_points_try() */
};

void fs_facts_gather(struct fs_facts *facts, enum fs_tracefs_mount mount_tracefs);
void fs_facts_free(struct fs_facts *facts);
/* Writes the members without the enclosing object. brief: without mounts and block devices. */
void fs_facts_json(struct fs_json *json, const struct fs_facts *facts, bool brief);
/* Writes how long tasks have waited for a CPU since boot; null without CONFIG_PSI. FS_STATS repeats it at the end. */
void fs_cpu_pressure_json(struct fs_json *json);

#endif
