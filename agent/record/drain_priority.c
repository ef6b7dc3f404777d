// SPDX-License-Identifier: Apache-2.0
#include "drain_priority.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "util.h"

#define LOWEST 19
/*
 * Even at the lowest priority, a thread runs after some 10 ms (CFS) or 200 ms (EEVDF, since 6.6). A pass that takes
 * longer continues at the normal priority. A ring must hold the events of that time and of an interval.
 */
#define LOW_PRIORITY_NS UINT64_C(20000000)
/* Who leaves no time idle does so for a while. */
#define HURRIED_PASSES 50

void fs_drain_priority_init(struct fs_drain_priority *priority)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2] = { 0 };

	*priority = (struct fs_drain_priority){ .usual = getpriority(PRIO_PROCESS, 0) };
	priority->able = priority->usual < LOWEST && !syscall(SYS_capget, &head, caps) &&
			 caps[0].effective >> CAP_SYS_NICE & 1;
}

static void set(struct fs_drain_priority *priority, bool low)
{
	if (priority->low != low && !setpriority(PRIO_PROCESS, 0, low ? LOWEST : priority->usual))
		priority->low = low;
}

void fs_drain_priority_begin(struct fs_drain_priority *priority, uint64_t due_ns, uint64_t interval_ns)
{
	if (!priority->able)
		return;
	if (priority->hurried)
		priority->hurried--;
	priority->until = due_ns + (interval_ns / 2 < LOW_PRIORITY_NS ? interval_ns / 2 : LOW_PRIORITY_NS);
	set(priority, !priority->hurried);
	fs_drain_priority_check(priority);
}

void fs_drain_priority_check(struct fs_drain_priority *priority)
{
	if (!priority || !priority->low || fs_now_ns() < priority->until)
		return;
	priority->hurried = HURRIED_PASSES;
	set(priority, false);
}

void fs_drain_priority_lift(struct fs_drain_priority *priority)
{
	if (priority && priority->low) {
		set(priority, false);
		priority->lifted = true;
	}
}

void fs_drain_priority_lower(struct fs_drain_priority *priority)
{
	if (priority && priority->lifted) {
		set(priority, true);
		priority->lifted = false;
	}
}

void fs_drain_priority_end(struct fs_drain_priority *priority)
{
	set(priority, false);
}
