#!/bin/sh
# 205 files of all sizes in nested directories, some replaced, renamed and removed; then the flash with its spare area.
set -e
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
umount /mnt
nanddump --oob --bb=padbad -q -f /image /dev/mtd0
