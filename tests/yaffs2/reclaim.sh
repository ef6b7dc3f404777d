#!/bin/sh
# Reclaim does not wait for the file system's lock: whoever holds it may be waiting for memory, and then neither would go on.
set -e
mount -t yaffs2 mtd0 /mnt
i=0
while [ $i -lt 200 ]; do echo $i >/mnt/$i; i=$((i + 1)); done
sync
# The lock is held nearly all the time: a page takes the chip some milliseconds.
dd if=/dev/zero of=/mnt/big bs=2048 count=300 conv=fsync 2>/dev/null &
sleep 0.1
before=$(grep -c '' /mnt/7)
echo 2 >/proc/sys/vm/drop_caches
if kill -0 $! 2>/dev/null; then echo "200 inodes were evicted while it was written"; else echo "FAILED: eviction waited"; fi
wait $!
[ "$before" = 1 ] && [ "$(cat /mnt/199)" = 199 ]
# What was evicted is written all the same: times that only the core's memory had.
touch -d '2001-02-03 04:05:06' /mnt/7
echo 3 >/proc/sys/vm/drop_caches
sync
umount /mnt
mount -t yaffs2 -o no-checkpoint mtd0 /mnt
[ "$(stat -c %Y /mnt/7)" = "$(date -u -d '2001-02-03 04:05:06' +%s)" ]
[ "$(stat -c %s /mnt/big)" = 614400 ]
umount /mnt
echo all as it has to be
