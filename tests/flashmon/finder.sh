#!/bin/sh
# What the finder chooses by itself under drivers that read in ways of their own (driver/), and reads that the NAND core answers
# from the page that it keeps.
module=/flashscope/modules/flashmon.ko
read_pages() { /flashscope/agent bench raw --mtd 0 "$@" >/dev/null; }
status() { sed -n "s/^$1: //p" /proc/flashmon_status | head -n 1; }
same() { [ "$2" = "$3" ] && echo "ok $1: $3" || echo "FAILED: $1: $3, not $2"; }
exact() {
	read_pages --count 100 --length 2048
	dd if=/data of=/dev/mtd0 bs=2048 count=100 2>/dev/null
	same "$1, reads" 100 "$(status reads)"
	same "$1, programs" 100 "$(status programs)"
	same "$1, lines" 200 "$(wc -l </proc/flashmon_log)"
}

rmmod flashmon
insmod /own.ko
insmod $module cache_hits=1
same "a driver that reads by itself" "own_read_page ecc tried" "$(status read)"
exact "level ecc"
dmesg | grep -q "flashmon: what this loses: pages that are read or programmed without ECC" && echo "ok it says what is lost"
echo reset >/proc/flashmon
read_pages --count 40 --length 512
same "parts of pages, lines" "10 30" "$(grep -c ";R;" /proc/flashmon_log) $(grep -c ";C;" /proc/flashmon_log)"
same "parts of pages, reads" 10 "$(status reads)"
rmmod flashmon
rmmod own

insmod /own.ko hidden=1
insmod $module
same "one that cannot be probed" "mtd_read_oob mtd tried" "$(status read)"
exact "level mtd"
dmesg | grep -q "flashmon: what this loses: what the NAND core does by itself" && echo "ok it says what is lost"
rmmod flashmon
rmmod own

insmod $module
same "the kernel's own" "nand_read_page_op command tried" "$(status read)"
exact "level command"
rmmod flashmon
echo done
