#!/bin/sh
# A chip that stops to answer: while it is mounted, and while it is worked on. dying.ko (tests/yaffs2/driver) is over mtd0.
set -e
insmod /dying.ko under=0
chip=/sys/module/dying/parameters
dying=mtd$(sed -n 's/^mtd\([0-9]*\):.*"dying"$/\1/p' /proc/mtd)
alive() { echo -1 >$chip/after; }
number_of() { sed -n "s/.* $1 \([0-9]*\).*/\1/p" | head -n 1; }
# What every mount of a chip that is alive has to show.
whole() {
	alive
	mount -t yaffs2 "$@" $dying /mnt
	[ "$(ls /mnt | wc -l)" = 43 ] || { echo "FAILED: $(ls /mnt | wc -l) names"; exit 1; }
	(cd /mnt && md5sum -c /tmp/sums >/dev/null 2>&1) || { echo "FAILED: other files"; exit 1; }
	umount /mnt
}
alive
mount -t yaffs2 $dying /mnt
i=0
while [ $i -lt 40 ]; do
	yes "file $i" | head -c $((i * 701)) >/mnt/$i
	i=$((i + 1))
done
yes large | head -c 400000 >/mnt/large
mkdir /mnt/directory
(cd /mnt && md5sum [0-9]* large) >/tmp/sums
umount /mnt
for options in noatime no-checkpoint no-checkpoint,disable-summary; do
	# How many operations a mount is, and then one that dies after each of some of them.
	echo 0 >$chip/operations
	mount -t yaffs2 -o $options,no-checkpoint-write,ro $dying /mnt
	all=$(cat $chip/operations)
	umount /mnt
	after=0 refused=0
	while [ $after -lt $all ]; do
		echo $after >$chip/after
		if mount -t yaffs2 -o $options $dying /mnt 2>/tmp/said; then
			# What it did not ask for it did not miss.
			umount /mnt
		else
			grep -q 'Input/output error\|does not answer' /tmp/said || { echo "FAILED: $(cat /tmp/said)"; exit 1; }
			refused=$((refused + 1))
		fi
		after=$((after + 1 + all / 24))
	done
	whole -o $options
	echo "$options: $all operations a mount, $refused mounts of a dying chip refused, nothing lost"
	[ $refused -gt 20 ] || [ $refused = $all ] || { echo "FAILED: too few"; exit 1; }
done
# It dies while it is worked on, sooner and later: what was synced is there afterwards.
for after in 0 1 5 40 200; do
	alive
	mount -t yaffs2 $dying /mnt
	echo $after >$chip/after
	i=0
	while [ $i -lt 60 ]; do
		{ head -c 30000 /dev/zero >/mnt/new.$((i % 3)) && rm /mnt/new.$((i % 3)); } 2>/dev/null || true
		i=$((i + 1))
	done
	echo 3 >/proc/sys/vm/drop_caches
	if /syncfs /mnt 2>/dev/null; then echo "FAILED: synced on a chip that does not answer"; exit 1; fi
	if cat /mnt/large >/dev/null 2>&1; then echo "FAILED: read of a chip that does not answer"; exit 1; fi
	if touch /mnt/other 2>/dev/null; then echo "FAILED: a name on a chip that does not answer"; exit 1; fi
	grep -q " /mnt yaffs2 ro" /proc/mounts || { echo "FAILED: $(grep /mnt /proc/mounts)"; exit 1; }
	alive
	if mount -o remount,rw /mnt 2>/dev/null; then echo "FAILED: writable again"; exit 1; fi
	umount /mnt
	mount -t yaffs2 $dying /mnt
	rm -f /mnt/new.*
	umount /mnt
	whole
	echo "died after $after operations of work: what had been written is there"
done
# A file that cannot be written: the others are, and somebody is told.
alive
mount -t yaffs2 $dying /mnt
i=0
while [ $i -lt 40 ]; do printf x >>/mnt/$i; i=$((i + 1)); done
stat -c %i /mnt/7 >$chip/failing_object
echo 3 >/sys/module/yaffs2/parameters/write_attempts
if /syncfs /mnt 2>/tmp/said; then echo "FAILED: synced, and one file could not be written"; exit 1; fi
echo "one file cannot be written: $(tail -n 1 /tmp/said)"
# As the power's end would leave it.
echo 0 >$chip/after
umount /mnt
echo 0 >$chip/failing_object
alive
mount -t yaffs2 $dying /mnt
i=0
while [ $i -lt 40 ]; do
	wanted=$((i * 701 + 1))
	[ $i != 7 ] || wanted=$((7 * 701))
	[ "$(stat -c %s /mnt/$i)" = $wanted ] || { echo "FAILED: size of $i is $(stat -c %s /mnt/$i)"; exit 1; }
	i=$((i + 1))
done
umount /mnt
rmmod dying
# Blocks that can be erased once: it is they that are retired, whatever was to be erased in them.
rmmod nandsim
worn=0:1 i=1
while [ $i -lt 64 ]; do worn=$worn,$i:1 i=$((i + 1)); done
insmod /flashscope/modules/nandsim.ko first_id_byte=0x2c second_id_byte=0xda third_id_byte=0x90 fourth_id_byte=0x95 \
	parts=64 do_delays=0 weakblocks=$worn
worn=mtd$(sed -n 's/^mtd\([0-9]*\):.*"NAND.*/\1/p' /proc/mtd | head -n 1)
mount -t yaffs2 $worn /mnt
i=0
while [ $i -lt 8 ]; do
	yes "worn $i" | head -c 150000 >/mnt/$i
	(cd /mnt && md5sum $i) >>/tmp/worn
	umount /mnt
	mount -t yaffs2 -o ro,no-checkpoint-read $worn /mnt
	(cd /mnt && md5sum -c /tmp/worn >/dev/null 2>&1) || { echo "FAILED: lost by worn blocks: $(cd /mnt && md5sum -c /tmp/worn 2>&1)"; exit 1; }
	umount /mnt
	mount -t yaffs2 $worn /mnt
	i=$((i + 1))
done
umount /mnt
echo "worn blocks: $(dmesg | grep -c 'is retired') retired, 8 files kept"
dmesg | grep -q 'is retired'
echo all as it has to be
