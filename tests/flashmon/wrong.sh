#!/bin/sh
# What is told wrong, or goes wrong, is refused or survived; each with a reason.
#   wrong.sh NANDSIM-PARAMETERS…
module=/flashscope/modules/flashmon.ko
read_pages() { /flashscope/agent bench raw --mtd 0 --count "$1" --length 2048 >/dev/null; }
status() { sed -n "s/^$1: //p" /proc/flashmon_status; }
refused() {
	if insmod $module "$@" 2>/tmp/said; then
		echo "FAILED: $*: taken"
		rmmod flashmon
	else
		echo "refused $*: $(dmesg | grep flashmon: | tail -n 1 | sed 's/.*flashmon: //')"
	fi
}
same() { [ "$2" = "$3" ] && echo "ok $1: $3" || echo "FAILED: $1: $3, not $2"; }
tell() { { echo "$1" >/proc/flashmon; } 2>/dev/null && echo "FAILED: '$1' taken" || echo "refused command '$1'"; }

rmmod flashmon
refused mtd=77
refused mtd=3
refused level=nonsense
refused level=spi-mem
refused pid=4000000
refused pid=-3
refused pid=1 signal=99
refused log=4294967295
refused log=99999999999
refused log=-1
refused log=2000000000
refused tasks=4294967295
refused log=many

# No log, and a small one.
insmod $module log=0
read_pages 100
same "no log, reads" 100 "$(status reads)"
same "no log, lines" 0 "$(wc -l </proc/flashmon_log)"
rmmod flashmon
insmod $module log=50 tasks=1 mtd=1
read_pages 100
same "another partition's reads" 0 "$(status reads)"
same "blocks of the partition" 16 "$(wc -l </proc/flashmon)"
rmmod flashmon
insmod $module log=50 tasks=1
read_pages 100
same "small log, lines" $(($(status logged) - $(status lost))) "$(wc -l </proc/flashmon_log)"
same "small log, reads" 100 "$(status reads)"
dd if=/dev/mtd0 of=/dev/null bs=2048 count=5 2>/dev/null
same "a second task has no room" 5 "$(status names_lost)"

# Commands.
for word in nonsense "" startstartstartstartstart "start stop" RESET; do tell "$word"; done
echo stop >/proc/flashmon
tell pause
read_pages 10
same "stopped" 105 "$(status reads)"
echo start >/proc/flashmon_log
echo pause >/proc/flashmon_log
read_pages 10
same "paused" 105 "$(status reads)"
printf resume >/proc/flashmon
read_pages 10
same "resumed" 115 "$(status reads)"
echo flush >/proc/flashmon
same "flushed, lines" 0 "$(wc -l </proc/flashmon_log)"
same "flushed, reads" 115 "$(status reads)"
echo reset >/proc/flashmon
same "reset" "0 0" "$(status reads) $(status lost)"
rmmod flashmon

# Readers: one that stops in the middle, two at once, one whose log is flushed, overwritten and unloaded under it.
# On two processors: each has half of the log.
insmod $module log=6000
read_pages 3000
dd if=/proc/flashmon_log of=/dev/null bs=37 count=3 2>/dev/null
cat /proc/flashmon_log >/tmp/one &
cat /proc/flashmon_log >/tmp/two
wait $!
same "two readers" "$(md5sum </tmp/one)" "$(md5sum </tmp/two)"
same "all lines" 3000 "$(wc -l </tmp/one)"
exec 3</proc/flashmon_log
read -r line <&3
read_pages 8000
cat <&3 >/tmp/rest
echo "ok overwritten under its reader: $(($(wc -l </tmp/rest) + 1)) lines"
exec 3</proc/flashmon_stream
(exec 4</proc/flashmon_stream) 2>/dev/null && echo "FAILED: two drain" || echo "refused a second one that drains"
dd bs=100 count=1 <&3 2>/dev/null | wc -c | grep -qx 0 && echo "refused a small read of the stream"
exec 4</proc/flashmon_log
read -r line <&4
rmmod flashmon && echo "ok unloaded under two readers"
cat <&3 >/dev/null 2>&1
cat <&4 >/dev/null 2>&1
exec 3<&- 4<&-

# A signal at each event, and one whose target has died.
sh -c 'trap : USR1; while :; do sleep 100; done' &
target=$!
insmod $module pid=$target
read_pages 100
same "signals, failed" 0 "$(status signals_failed)"
[ "$(status signals)" -gt 0 ] && echo "ok signals are sent"
kill -9 $target
wait $target 2>/dev/null
read_pages 100
same "a dead target, reads" 200 "$(status reads)"
[ "$(status signals_failed)" -gt 0 ] && echo "ok signals to the dead are counted"
dmesg | grep -q "process to signal has gone" && echo "ok it is said"
rmmod flashmon

# The driver goes while its device is traced, and comes again.
insmod $module wait=1
read_pages 100
rmmod nandsim && echo "ok the driver was removed while its device was traced"
same "its reads are kept" 100 "$(status reads)"
same "state" "nothing to trace" "$(status state)"
tell start
wc -l </proc/flashmon
cat /proc/flashmon_log /proc/flashmon_stream >/dev/null
rmmod flashmon
rmmod mtdram 2>/dev/null
refused mtd=0
refused
insmod $module wait=1 && same "waits" "nothing to trace" "$(status state)"
insmod /flashscope/modules/nandsim.ko "$@"
same "the device came" running "$(status state)"
read_pages 100
same "and is traced" 100 "$(status reads)"
rmmod flashmon
echo done
