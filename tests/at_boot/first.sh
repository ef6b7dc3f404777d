#!/bin/sh
# Process 1 of the board's initramfs: fills its card at the first start, and starts the card's init, as a kernel would.
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do insmod $module; done </modules
while [ ! -b /dev/mmcblk0 ]; do sleep 0.1; done
mount -t ext4 /dev/mmcblk0 /mnt
if [ ! -e /mnt/sbin/init ]; then
	cp -a /bin /sbin /lib /usr /etc /root /data /mnt/
	mkdir -p /mnt/proc /mnt/sys /mnt/dev /mnt/run /mnt/tmp /mnt/lib/board
	cp /init.sh /mnt/lib/board/init
	chmod 755 /mnt/lib/board/init
	ln -s ../lib/board/init /mnt/sbin/init
	dd if=/dev/urandom of=/mnt/data/big bs=65536 count=16
	dropbearkey -t ed25519 -f /mnt/etc/hostkey
	sync
fi
mount -o remount,ro /mnt
umount /sys
umount /dev
umount /proc
cd /mnt
mount -o move . /
exec busybox chroot . /sbin/init
