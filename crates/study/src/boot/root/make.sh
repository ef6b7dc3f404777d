#!/bin/sh
# usage: make.sh jffs2|ubifs BYTES [KEY…]
# Makes /rootfs into a root file system that boots, and its image of BYTES (or a little less: whole erase blocks; 0: as large as
# it comes out) in /tmp/image; KEYs are the kinds of host keys that its SSH server makes at the first boot.
# Runs on the board itself, whose clock, random numbers and order of directories are the same in each run: mkfs.ubifs takes a
# random UUID and the files' change times from where it runs.
# The shell and its tools are /rootfs's own, what makes images is in /tools.
set -e
type=$1 want=$2
shift 2
keys=$*
root=/rootfs
box=$root/bin/busybox
lib=$(echo /tools/usr/lib/*-linux-gnu*)
loader=$(echo /tools/usr/lib/ld-linux*)
mtd=/sys/class/mtd/mtd1
block=$($box cat $mtd/erasesize) page=$($box cat $mtd/writesize) subpage=$($box cat $mtd/subpagesize)

tool() {
	program=$1
	shift
	"$loader" --library-path "$lib" "/tools/usr/sbin/$program" "$@"
}

for dir in dev etc/default etc/dropbear etc/init.d proc root run sys tmp usr/share var/lib; do
	$box mkdir -p $root/$dir
done
$box ln -sf /run $root/var/run
$box ln -sf /tmp $root/var/log
$box ln -sf /proc/mounts $root/etc/mtab
# By their names, so that they can be told from one another.
$box ln -sf /bin/busybox $root/usr/sbin/syslogd
$box ln -sf /bin/busybox $root/usr/sbin/klogd
$box cp /flashscope/init.d/* $root/etc/init.d/
$box chmod 755 $root/etc/init.d/*
echo flashscope >$root/etc/hostname
echo 'root::0:0:root:/root:/bin/sh' >$root/etc/passwd
echo 'root:x:0:' >$root/etc/group
echo '127.0.0.1 localhost flashscope' >$root/etc/hosts
echo '# <file system> <mount point> <type> <options>' >$root/etc/fstab
echo "KEYS='$keys'" >$root/etc/default/dropbear
echo 'Welcome to a root file system on flash' >$root/etc/issue

image() {
	case $type in
	jffs2)
		# Clean markers lie in the spare area on NAND, where a boot loader writes none.
		tool mkfs.jffs2 --root=$root --output=/tmp/image --no-cleanmarkers --little-endian --eraseblock=$block
		;;
	ubifs)
		# UBI's two headers lie in the first page where the chip has subpages, else in a page each.
		data=$(((subpage + 64 + page - 1) / page * page))
		leb=$((block - data))
		tool mkfs.ubifs --root=$root --output=/tmp/volume --min-io-size=$page --leb-size=$leb \
			--max-leb-cnt=$(($($box cat $mtd/size) / block))
		size=$($box stat -c %s /tmp/volume)
		printf '[root]\nmode=ubi\nimage=/tmp/volume\nvol_id=0\nvol_type=dynamic\nvol_name=root\nvol_size=%s\nvol_flags=autoresize\n' \
			"$size" >/tmp/ubi.ini
		tool ubinize --output=/tmp/image --peb-size=$block --min-io-size=$page --sub-page-size=$subpage --image-seq=1 /tmp/ubi.ini
		$box rm /tmp/volume /tmp/ubi.ini
		;;
	esac
	size=$($box stat -c %s /tmp/image)
}

image
filler=0
rounds=0
# What the last erase block has left takes some of it, and more than that makes the image no larger: hence again.
while [ "$want" -gt 0 ] && [ "$size" -le $((want - block)) ] && [ $rounds -lt 4 ]; do
	# Nodes' headers and what is left at the ends of erase blocks take some 4 in 100; half a block keeps it from running over.
	filler=$((filler + (want - size - block / 2) / 100 * 96))
	rounds=$((rounds + 1))
	$box rm -f $root/usr/share/filler
	/flashscope/agent bench read --file $root/usr/share/filler --create --size $filler --contents random --seed 1 \
		--count 1 --request 1 --pattern sequential --readahead keep >/dev/null
	image
done
files=$($box find $root | $box wc -l)
bytes=$($box du -s $root | { read -r kib rest; echo $((kib * 1024)); })
echo "{\"image_bytes\":$size,\"image_blocks\":$(((size + block - 1) / block)),\"files\":$files,\"files_bytes\":$bytes,\"filler_bytes\":$filler}"
