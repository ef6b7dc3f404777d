#!/bin/sh
# work.sh SOURCE OPTIONS WHAT…: each WHAT of tests/yaffs2/work.c, then a remount by the checkpoint, and one that scans.
set -e
source=$1 options=$2
shift 2
again() {
	umount /mnt
	mount -t yaffs2 -o "$1" "$source" /mnt
	/work verify /mnt
}
mount -t yaffs2 -o "$options" "$source" /mnt
for what; do /work "$what" /mnt; done
sync
again "$options"
grep -A 6 'fstype yaffs2' /proc/self/mountstats
again "$options,no-checkpoint"
# Not written to by a mount that reads only; writable again.
mount -o remount,ro /mnt
! touch /mnt/refused 2>/dev/null
/work verify /mnt
mount -o remount,rw /mnt
touch /mnt/taken
rm /mnt/taken
umount /mnt
mount -t yaffs2 -o "ro,$options" "$source" /mnt
/work verify /mnt
umount /mnt
