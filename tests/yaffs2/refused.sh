#!/bin/sh
# What cannot be mounted is refused with a reason, and nothing falls over.
refused() {
	if mount -t yaffs2 "$@" /mnt 2>/tmp/said; then
		echo "FAILED: mount $*: taken"
		umount /mnt
	else
		echo "mount $*: $(tail -n 1 /tmp/said)"
	fi
}
refused /dev/nullb0
refused /dev/ram0
refused mtd77
refused mtd:nosuch
refused mtdx
refused -o no-such-option mtd0
refused mtd3
refused /dev/mtdblock3
# Two mounts of one device.
mount -t yaffs2 mtd0 /mnt && mkdir /tmp/second
mount -t yaffs2 mtd0 /tmp/second && umount /tmp/second
echo kept >/mnt/kept
refused -o remount,inband-tags
umount /mnt
# Tags that lie elsewhere: nothing is found, and it is no reason to fall over.
mount -t yaffs2 -o inband-tags,ro mtd0 /mnt && { ls /mnt; umount /mnt; }
mount -t yaffs2 mtd0 /mnt && { cat /mnt/kept; umount /mnt; }
# Pages full of anything.
nandwrite --input-skip=0 --noecc --oob -q /dev/mtd1 /noise 2>/tmp/said || tail -n 1 /tmp/said
mount -t yaffs2 mtd1 /mnt && { find /mnt | wc -l; echo new >/mnt/new; cat /mnt/new; umount /mnt; }
dmesg | grep yaffs2: | grep -v -e taint -e 'cannot be read'
