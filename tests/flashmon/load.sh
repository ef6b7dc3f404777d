#!/bin/sh
# Counts under a reader, a writer and an eraser at once, between cycles of loading and unloading under the same load.
#   load.sh CYCLES
module=/flashscope/modules/flashmon.ko
rmmod flashmon 2>/dev/null
/work loop >/tmp/loop &
load=$!
cycle=0
while [ $cycle -lt "$1" ]; do
	# Each way of probing, and readers that are in the middle of the log when it goes.
	case $((cycle % 4)) in
	0) options= ;;
	1) options=extended=1 ;;
	2) options="level=mtd cache_hits=1" ;;
	3) options="log=100 tasks=8" ;;
	esac
	insmod $module $options || { echo "FAILED: insmod $options"; break; }
	exec 3</proc/flashmon_log
	read -r line <&3
	[ $((cycle % 3)) = 0 ] && echo reset >/proc/flashmon
	rmmod flashmon || { echo "FAILED: rmmod"; break; }
	exec 3<&-
	cycle=$((cycle + 1))
done
echo "cycles: $cycle"
kill $load
wait $load
grep failures /tmp/loop
for options in log=20000 "log=20000 extended=1" "log=20000 level=ecc" "log=20000 level=mtd"; do
	insmod $module $options
	/work 3000 640 200 >/tmp/told
	echo pause >/proc/flashmon
	for name in reads programs erases; do
		told=$(grep "^$name:" /tmp/told)
		seen=$(grep "^$name:" /proc/flashmon_status)
		[ "$told" = "$seen" ] && echo "exact $options: $seen" || echo "FAILED: $options: told $told, seen $seen"
	done
	lines=$(wc -l </proc/flashmon_log)
	[ "$lines" = 3850 ] && echo "exact $options: $lines lines" || echo "FAILED: $options: $lines lines"
	sort -c -n -t. -k1,1 -k2,2 /proc/flashmon_log || echo "FAILED: not in order of time"
	grep -E "^(lost|misses|names_lost): [^0]" /proc/flashmon_status && echo "FAILED: $options: losses"
	rmmod flashmon
done
