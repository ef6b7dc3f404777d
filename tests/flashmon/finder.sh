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

# A driver that programs pages by itself, too: the same page without ECC right after is another program, as it is after the
# kernel's function, which programs by the one without ECC.
for programs in 1 0; do
	insmod /own.ko programs=$programs
	insmod $module
	/work at 0 10 raw
	same "with and without ECC, programs" "20 1" "$(status programs) $(status erases)"
	rmmod flashmon
	rmmod own
done

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
rmmod nandsim

# Chips of two targets of 1,024 blocks: block 3 is on the first, block 1029 on the second.
on_two() {
	/work at $((3 * 131072)) 10
	/work at $((1029 * 131072)) 20
}
targets() { # MODULE LEVEL CHOSEN
	insmod $module level=$2
	same "$1 $2, reads" "$3" "$(grep -E '^(read|all): ' /proc/flashmon_status | head -n 1)"
	# Once for the marks of bad blocks, which are read where they are not known yet.
	on_two
	echo 0 >/sys/module/$1/parameters/did
	echo reset >/proc/flashmon
	on_two
	echo pause >/proc/flashmon
	same "$1 $2, block 3" "10 10 1" "$(sed -n 4p /proc/flashmon)"
	same "$1 $2, block 1029" "20 20 1" "$(sed -n 1030p /proc/flashmon)"
	same "$1 $2, all blocks" "2048 30 30 2" "$(awk '{ r += $1; p += $2; e += $3 } END { print NR, r, p, e }' /proc/flashmon)"
	same "$1 $2, as the chip counts" "10 10 1 20 20 1" "$(cat /sys/module/$1/parameters/did | xargs)"
	same "$1 $2, sums of addresses" "1319275 1319275 1032" \
		"$(awk -F';' '{ s[$2] += $3 } END { print s["R"], s["W"], s["E"] }' /proc/flashmon_log)"
	rmmod flashmon
}
insmod /own_two.ko
targets own_two auto "read: nand_read_page_op command tried"
targets own_two ecc "read: nand_read_page_swecc ecc tried"
targets own_two mtd "read: mtd_read_oob mtd tried"
rmmod own_two
if [ -f /spinand.ko ]; then
	insmod /spinand.ko
	insmod /own_spi.ko
	targets own_spi auto "all: spi_mem_exec_op spi-mem tried"
	targets own_spi mtd "read: mtd_read_oob mtd tried"
	rmmod own_spi
	rmmod spinand
fi
echo done
