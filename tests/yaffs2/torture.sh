#!/bin/sh
# torture.sh SOURCE OPTIONS SECONDS SEED
set -e
mount -t yaffs2 -o "$2" "$1" /mnt
/torture run /mnt "$3" "$4"
sync
df -k /mnt | tail -n 1
grep -A 6 'fstype yaffs2' /proc/self/mountstats
for options in "$2" "$2,no-checkpoint"; do
	umount /mnt
	mount -t yaffs2 -o "$options" "$1" /mnt
	/torture verify /mnt
done
umount /mnt
