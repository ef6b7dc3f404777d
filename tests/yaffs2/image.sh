#!/bin/sh
# /made, an image by the core on the host, is read; then it is worked on, and so is an empty flash.
set -e
/image restore 1 /made
mount -t yaffs2 mtd1 /mnt
/image list /mnt >/made.list
grep -A 6 'fstype yaffs2' /proc/self/mountstats | grep -o 'checkpoint pages read [0-9]*'
cd /mnt
rm dir/file-1 dir/file-2
mv dir/file-3 'second name' .
yes changed | head -c 70000 >size-2048
ln dir/file-5 dir/again
ln -s nowhere dir/link
chmod 611 size-1
sync
cd /
/image list /mnt >/changed.list
umount /mnt
nanddump --oob --bb=padbad -q -f /changed /dev/mtd1
# 205 files of all sizes in nested directories, some replaced, renamed and removed; then the flash with its spare area.
mount -t yaffs2 mtd0 /mnt
cd /mnt
mkdir -p a/b/c
i=0
while [ $i -lt 200 ]; do
	yes "line $i" | head -c $((i * 97)) >a/b/file-$i
	i=$((i + 1))
done
for size in 1 2047 2048 2049 700000; do yes "size $size" | head -c $size >a/size-$size; done
i=0
while [ $i -lt 40 ]; do
	yes "again $i" | head -c $((i * 211)) >a/b/file-$i
	mv a/b/file-$((i + 100)) a/b/c/moved-$i
	echo gone >a/gone-$i
	rm a/gone-$i
	i=$((i + 1))
done
sync
find . -type f | sort | xargs md5sum >/sums
cd /
/image list /mnt >/image.list
umount /mnt
nanddump --oob --bb=padbad -q -f /image /dev/mtd0
