// SPDX-License-Identifier: Apache-2.0
#include "patience.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util.h"

#define LOWEST 19
/*
 * Who never gets its turn at the lowest priority gets one in the end: after some
 * 10 ms (CFS), 200 ms (EEVDF, since 6.6). By then this is over, and the pass goes
 * on at the usual one. A ring must hold so much and an interval.
 */
#define PATIENCE_NS UINT64_C(20000000)
/* Who leaves no time idle does so for a while. */
#define HURRIED_PASSES 50

void fs_patience_init(struct fs_patience *patience)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2] = { 0 };

	*patience = (struct fs_patience){ .usual = getpriority(PRIO_PROCESS, 0) };
	patience->able = patience->usual < LOWEST && !syscall(SYS_capget, &head, caps) &&
			 caps[0].effective >> CAP_SYS_NICE & 1;
}

static void set(struct fs_patience *patience, bool low)
{
	if (patience->low != low && !setpriority(PRIO_PROCESS, 0, low ? LOWEST : patience->usual))
		patience->low = low;
}

void fs_patience_begin(struct fs_patience *patience, uint64_t due_ns, uint64_t interval_ns)
{
	if (!patience->able)
		return;
	if (patience->hurried)
		patience->hurried--;
	patience->until = due_ns + (interval_ns / 2 < PATIENCE_NS ? interval_ns / 2 : PATIENCE_NS);
	set(patience, !patience->hurried);
	fs_patience_check(patience);
}

void fs_patience_check(struct fs_patience *patience)
{
	if (!patience || !patience->low || fs_now_ns() < patience->until)
		return;
	patience->hurried = HURRIED_PASSES;
	set(patience, false);
}

void fs_patience_end(struct fs_patience *patience)
{
	set(patience, false);
}
