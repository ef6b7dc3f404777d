#!/bin/sh
# What a YAFFS2 does of its own, with the mount's own counters after each part: they are the truth that the trace is held against.
set -e
begin() { mount -t yaffs2 -o "noatime$1" mtd0 /mnt; }
# Writes the checkpoint, and leaves the counters to be read.
end() {
	mount -o remount,ro /mnt
	echo "part $1"
	grep -A 6 'fstype yaffs2' /proc/self/mountstats
	umount /mnt
	# Longer than what belongs to one phase stands still.
	sleep 5
}
begin
head -c 4505600 /dev/zero >/mnt/large
for i in 1 2 3 4 5 6 7 8; do head -c 20000 /bin/busybox >/mnt/$i; done
sync
end new
begin
head -c 40960 /bin/busybox >/mnt/9
sync
end checkpoint
begin ,no-checkpoint-read
head -c 40960 /bin/busybox >/mnt/10
sync
end scan
begin ,no-background-gc
/over /mnt/large 0 4
end writers
begin
/over /mnt/large 0 4
sleep 3
sync
end thread
# What a write() without a sync has put on the flash when the file is closed.
written() {
	at=$(grep -A 6 'fstype yaffs2' /proc/self/mountstats | sed -n 's/.*pages read [0-9]*, written \([0-9]*\).*/\1/p' | head -n 1)
	printf x | dd of=/mnt/9 conv=notrunc 2>/dev/null
	grep -A 6 'fstype yaffs2' /proc/self/mountstats | sed -n "s/.*pages read [0-9]*, written \([0-9]*\).*/\1 - $at/p" | head -n 1
}
begin
back=$(($(written)))
sync
end back
begin ,write-through
through=$(($(written)))
echo "programs when a file is closed: $back, written through $through"
[ "$back" = 0 ]
[ "$through" -ge 2 ]
end through
begin ,ro
echo part last
grep -A 6 'fstype yaffs2' /proc/self/mountstats
umount /mnt
echo all as it has to be
