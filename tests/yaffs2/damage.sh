#!/bin/sh
# Flash whose bits flip: what ECC restores is read, what it cannot restore is an error and never other data.
set -e
fresh() {
	mount -t yaffs2 mtd0 /mnt
}
unreadable() {
	# Nothing of it may be taken for the file: dd gives what it read before the error.
	if dd if="$1" of=/tmp/read bs=2048 2>/dev/null; then
		echo "FAILED: $1 was read"
		exit 1
	fi
	head -c 4096 /tmp/good.$2 | cmp -n 4096 - /tmp/read
	[ "$(stat -c %s /tmp/read)" = 4096 ]
}
# TIMES FILES BYTES: writes files over until the collector has moved what stays.
churn() {
	i=0
	while [ $i -lt $1 ]; do
		head -c $3 /dev/zero | tr '\0' "$((i % 10))" >/mnt/churn.$((i % $2))
		i=$((i + 1))
	done
	sync
	echo 3 >/proc/sys/vm/drop_caches
	# The collector's thread has its time.
	sleep 30
	pages=$(grep -A 6 'fstype yaffs2' /proc/self/mountstats | sed -n 's/.*pages moved \([0-9]*\),.*/\1/p')
	echo "pages moved by the collector: $pages"
	[ "$pages" -gt 0 ]
}
fresh
for file in one two three; do
	{ yes "$file a" | head -c 4096; yes "$file b" | head -c 4096; yes "$file c" | head -c 100000; } >/tmp/good.$file
	cp /tmp/good.$file /mnt/$file
done
umount /mnt
/damage data 0 'one b'
/damage correctable 0 'two b'
fresh
# The page at 4096 of `one`.
unreadable /mnt/one one
cmp /tmp/good.two /mnt/two
cmp /tmp/good.three /mnt/three
# Where a part of it is to be kept, nothing is made of it.
if truncate -s 5000 /mnt/one 2>/dev/null; then
	echo "FAILED: a page that cannot be read was cut"
	exit 1
fi
unreadable /mnt/one one
churn 60 7 1000000
unreadable /mnt/one one
cmp /tmp/good.two /mnt/two
cmp /tmp/good.three /mnt/three
grep -A 6 'fstype yaffs2' /proc/self/mountstats
umount /mnt
fresh
unreadable /mnt/one one
cmp /tmp/good.three /mnt/three
# Written anew it is whole.
cp /tmp/good.one /mnt/one
sync
echo 3 >/proc/sys/vm/drop_caches
cmp /tmp/good.one /mnt/one
umount /mnt
# A checkpoint that cannot be read: the flash is scanned.
/damage checkpoint 0
fresh
for file in one two three; do cmp /tmp/good.$file /mnt/$file; done
umount /mnt
fresh
for file in one two three; do cmp /tmp/good.$file /mnt/$file; done
umount /mnt
# A checkpoint whose pages can be read, and are not what was written.
/image spoil 0
fresh
for file in one two three; do cmp /tmp/good.$file /mnt/$file; done
grep -A 6 'fstype yaffs2' /proc/self/mountstats | grep checkpoint
umount /mnt
# With tags among the data: a page whose tags ECC can restore though not its data, and one where not even they can be.
in_band() {
	mount -t yaffs2 -o inband-tags$1 mtd1 /mnt
}
lost() {
	for file in in last; do
		if dd if=/mnt/$file of=/tmp/read bs=2032 count=1 2>/dev/null; then echo "FAILED: $file was read"; exit 1; fi
		[ "$(stat -c %s /mnt/$file)" = 10000 ]
		# Pages of memory that have nothing of that chunk.
		dd if=/mnt/$file of=/tmp/read bs=4096 skip=1 2>/dev/null
		yes "$file a" | head -c 10000 | tail -c +4097 | cmp - /tmp/read
	done
	cmp /tmp/good.two /mnt/two
}
in_band
cp /tmp/good.two /mnt/two
# In a block whose other pages the churn replaces.
head -c 150000 /dev/zero >/mnt/churn.0
for file in in last; do yes "$file a" | head -c 10000 >/mnt/$file; done
head -c 150000 /dev/zero >/mnt/churn.1
umount /mnt
/damage data 1 'in a'
/damage last 1 'last a'
for options in '' ,no-checkpoint; do
	in_band $options
	lost
	umount /mnt
done
in_band
churn 20 5 700000
lost
umount /mnt
in_band ,no-checkpoint
lost
umount /mnt
echo all as it has to be
