/* SPDX-License-Identifier: GPL-2.0 */
/* What a chip of two dies or targets was told to do: its module's parameter `did`, a line of reads, programs and erases for each. */
#ifndef DID_H
#define DID_H

#include <linux/moduleparam.h>
#include <linux/string.h>

static struct {
	unsigned long reads, programs, erases;
} did[2];

static int did_get(char *into, const struct kernel_param *unused)
{
	return scnprintf(into, PAGE_SIZE, "%lu %lu %lu\n%lu %lu %lu\n", did[0].reads, did[0].programs, did[0].erases,
			 did[1].reads, did[1].programs, did[1].erases);
}

/* Whatever is written to it. */
static int did_forget(const char *unused, const struct kernel_param *param)
{
	memset(did, 0, sizeof(did));
	return 0;
}

static const struct kernel_param_ops did_ops = { .get = did_get, .set = did_forget };

module_param_cb(did, &did_ops, NULL, 0644);
MODULE_PARM_DESC(did, "reads, programs and erases of each");

#endif
