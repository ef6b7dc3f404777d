#!/bin/sh
# The file of a hard link is lost: its name is listed, what it was is an error, and it can be removed.
mount -t yaffs2 -o no-checkpoint,disable-summary mtd0 /mnt || exit 1
echo first >/mnt/first
echo hello >/mnt/file
ln /mnt/file /mnt/link
ln /mnt/file /mnt/other
number=$(stat -c %i /mnt/file)
umount /mnt
/lost 0 "$number" || exit 1
mount -t yaffs2 -o no-checkpoint mtd0 /mnt || exit 1

fails() { # WHAT COMMAND…: with an I/O error
	what=$1; shift
	if "$@" >/out 2>&1; then echo "FAILED: $what went well"; elif ! grep -q 'Input/output error' /out; then echo "FAILED: $what: $(cat /out)"; fi
}
[ "$(ls /mnt | tr '\n' ' ')" = "first link lost+found other " ] || echo "FAILED: listed: $(ls /mnt | tr '\n' ' ')"
ls -l /mnt
[ "$(cat /mnt/first)" = first ] || echo "FAILED: first: $(cat /mnt/first)"
fails "reading" cat /mnt/link
fails "writing" sh -c 'echo more >>/mnt/link'
fails "changing" chmod 600 /mnt/link
fails "linking" ln /mnt/link /mnt/third
mv /mnt/link /mnt/moved || echo "FAILED: it cannot be moved"
rm -f /mnt/moved || echo "FAILED: it cannot be removed"
echo new >/mnt/new
mv /mnt/new /mnt/other || echo "FAILED: nothing can take its name"
umount /mnt
mount -t yaffs2 mtd0 /mnt || exit 1
[ "$(ls /mnt | tr '\n' ' ')" = "first lost+found other " ] || echo "FAILED: left: $(ls /mnt | tr '\n' ' ')"
[ "$(cat /mnt/other)" = new ] || echo "FAILED: other: $(cat /mnt/other)"
umount /mnt
dmesg | grep "links to files that are lost" || echo "FAILED: the log does not say that files are lost"
echo "all as it has to be"
