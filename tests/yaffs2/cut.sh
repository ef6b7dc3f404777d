#!/bin/sh
set -e
# The copier may have the processor for itself as long as it takes.
echo -1 >/proc/sys/kernel/sched_rt_runtime_us
mount -t yaffs2 mtd0 /mnt
/cut /mnt 0 1 "$1"
