// SPDX-License-Identifier: GPL-2.0
/*
 * A signal at each event. Sending one allocates and takes locks, so the probe only says that there
 * is one to send: it leaves in an interrupt of its own, right after. Real-time signals queue and
 * come once for each event; of the others the kernel keeps one.
 */
#include <linux/irq_work.h>
#include <linux/pid.h>
#include <linux/printk.h>
#include <linux/sched/signal.h>

#include "flashmon.h"

atomic64_t fm_signals, fm_signals_failed;

static struct pid *whom;
static int which;
static atomic_t due;
static struct irq_work work;

/* Its number may be another process's by now: struct pid knows the difference. */
static bool has_gone(void)
{
	bool gone;

	rcu_read_lock();
	gone = !pid_task(whom, PIDTYPE_PID);
	rcu_read_unlock();
	return gone;
}

static void send(struct irq_work *unused)
{
	int count = atomic_xchg(&due, 0);

	if (which < SIGRTMIN)
		count = min(count, 1);
	for (; count > 0; count--) {
		if (!kill_pid(whom, which, 1)) {
			atomic64_inc(&fm_signals);
			continue;
		}
		atomic64_inc(&fm_signals_failed);
		if (fm.notifying && has_gone()) {
			WRITE_ONCE(fm.notifying, false);
			pr_notice("flashmon: the process to signal has gone: no more signals\n");
			return;
		}
	}
}

int fm_notify_begin(int pid, int signal)
{
	if (!pid)
		return 0;
	if (pid < 0 || !valid_signal(signal) || !signal) {
		pr_err("flashmon: pid=%d signal=%d: no process, or no signal; name a running one and 1 to %d\n",
		       pid, signal, _NSIG);
		return -EINVAL;
	}
	whom = find_get_pid(pid);
	if (!whom) {
		pr_err("flashmon: pid=%d: there is no such process\n", pid);
		return -ESRCH;
	}
	which = signal;
	init_irq_work(&work, send);
	WRITE_ONCE(fm.notifying, true);
	return 0;
}

/* When no probe is armed any more. */
void fm_notify_end(void)
{
	if (!whom)
		return;
	WRITE_ONCE(fm.notifying, false);
	irq_work_sync(&work);
	put_pid(whom);
	whom = NULL;
}

/* In a probe. */
void fm_notify(void)
{
	atomic_inc(&due);
	irq_work_queue(&work);
}
