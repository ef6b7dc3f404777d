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
# Tags that lie elsewhere, or have no ECC of their own: what is there stays there.
refused -o inband-tags,ro mtd0
refused -o inband-tags mtd0
mount -t yaffs2 mtd0 /mnt && { cat /mnt/kept; umount /mnt; }
kept_otherwise() {
	flash_erase -q /dev/mtd1 0 0
	mount -t yaffs2 -o $1 mtd1 /mnt && { head -c 20000 /dev/zero >/mnt/zeros; umount /mnt; }
	refused mtd1
	mount -t yaffs2 -o $1 mtd1 /mnt && { stat -c "$1: %s bytes are there" /mnt/zeros; umount /mnt; }
}
kept_otherwise tags-ecc-off
kept_otherwise inband-tags
log() {
	dmesg | grep yaffs2: | grep -v -e taint -e 'cannot be read' -e 'cannot be restored'
}
# Before others fill the log.
log
# Pages full of anything.
flash_erase -q /dev/mtd1 0 0
nandwrite --input-skip=0 --noecc --oob -q /dev/mtd1 /noise 2>/tmp/said || tail -n 1 /tmp/said
refused mtd1
refused -o inband-tags mtd1
refused -o tags-ecc-off mtd1
# Erased it is taken.
flash_erase -q /dev/mtd1 0 0
mount -t yaffs2 mtd1 /mnt && { echo new >/mnt/new; cat /mnt/new; umount /mnt; }
# A chip of pages of 512 bytes.
rmmod nandsim
insmod /flashscope/modules/nandsim.ko first_id_byte=0x20 second_id_byte=0x33
refused mtd$(sed -n 's/^mtd\([0-9]*\):.*"NAND.*/\1/p' /proc/mtd | head -n 1)
log
