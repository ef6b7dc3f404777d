/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where kernels and architectures differ, and nowhere else. Each difference names the version that
 * brought it. What is used besides is the same from 5.10 to 7.2: struct mtd_info with its
 * partitions in it (46b6889cc2c5, 5.8), proc_ops (d56c0d45f0e2, 5.6), nand_chip's cur_cs and
 * pagecache.
 */
#ifndef FLASHMON_COMPAT_H
#define FLASHMON_COMPAT_H

#include <linux/kprobes.h>
#include <linux/ptrace.h>

/*
 * Arguments of a function that has just been called. A loff_t takes one register of a 64-bit
 * machine, and on 32-bit ARM a pair that begins with an even one (AAPCS): mtd_read_oob(mtd, from,
 * ops) has mtd in r0, from in r2 and r3, ops on the stack.
 */
#if defined(CONFIG_ARM)
static inline unsigned long fm_argument(struct pt_regs *regs, unsigned int n)
{
	return n < 4 ? regs->uregs[n] : ((unsigned long *)regs->ARM_sp)[n - 4];
}

static inline u64 fm_second_loff(struct pt_regs *regs)
{
#ifdef __ARMEB__
	return (u64)regs->ARM_r2 << 32 | regs->ARM_r3;
#else
	return (u64)regs->ARM_r3 << 32 | regs->ARM_r2;
#endif
}

#define fm_after_second_loff(regs) fm_argument(regs, 4)
#elif defined(CONFIG_64BIT) && defined(CONFIG_HAVE_FUNCTION_ARG_ACCESS_API)
#define fm_argument(regs, n) regs_get_kernel_argument(regs, n)
#define fm_second_loff(regs) ((u64)regs_get_kernel_argument(regs, 1))
#define fm_after_second_loff(regs) regs_get_kernel_argument(regs, 2)
#else
#error "how this architecture passes arguments is not known: add it here"
#endif

/*
 * A kretprobe's number of misses: 5.10 to 7.2 keep it beside the kprobe's own. Whatever was probed
 * of a module is gone with it (KPROBE_FLAG_GONE), and then cannot be enabled again.
 */
static inline unsigned long fm_kretprobe_missed(const struct kretprobe *rp)
{
	return rp->kp.nmissed + rp->nmissed;
}

#endif
