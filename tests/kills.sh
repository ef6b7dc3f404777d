#!/bin/sh
# Kills agents on a virtual board and looks at what the next command leaves. /rounds has a line a round:
#     NUMBER KIND MICROSECONDS NEXT
# Guest time counts instructions: the same lines give the same moments, to the instruction.
busybox --install -s /usr/bin
T=/sys/kernel/tracing
A=/flashscope/agent
K=/sys/class/bdi/mtd-0/read_ahead_kb

# A neighbour, who must not notice anything.
mkdir $T/instances/neighbour
echo 'p:neighbour/read nand_read_page_op' >>$T/kprobe_events
echo 1 >$T/instances/neighbour/events/neighbour/read/enable
echo 32 >$K

processes() {
	for p in /proc/[0-9]*; do
		# Threads of the kernel have no program; process 1 and this shell are known.
		[ -e $p/exe ] || continue
		case ${p#/proc/} in 1 | $$) continue ;; esac
		tr '\0' ' ' <$p/cmdline
		echo
	done
}

state() {
	echo "probes:" && cat $T/kprobe_events
	echo "instances:" && ls $T/instances
	echo "tracing:" && cat $T/tracing_on $T/current_tracer $T/set_event
	echo "neighbour:" && cat $T/instances/neighbour/events/neighbour/read/enable
	echo "read-ahead:" && cat $K
	echo "files:" && ls -A /run /run/flashscope /tmp
	echo "processes:" && processes
} 2>&1

# Before anything was killed. The notes' folder itself stays.
$A sweep >/dev/null
state >/before

while read -r number kind us next; do
	data="--file /mnt/data --request 4096"
	case $kind in
	stream) exec $A record -o /kept/$number ;;
	command) exec $A record -o /kept/$number --detail offset,duration -- $A bench raw --mtd 0 --count 20000 --length 2048 --stride 0 ;;
	ring) exec $A record -o /kept/$number --mode ring --ring 64 -- sleep 30 ;;
	knob) exec $A bench read $data --count 64 --readahead 128 --interarrival-us 10000 ;;
	probe) exec $A probe ;;
	create) exec $A bench read --file /tmp/made --create --size 2000000 --contents printable --count 1 --request 1 ;;
	sweep)
		# What was killed is swept, and the sweep is killed too.
		$A record -o /kept/$number >/dev/null 2>&1 &
		usleep 1200000
		kill -9 $!
		wait $! 2>/dev/null
		exec $A sweep
		;;
	esac >/dev/null 2>&1 &
	pid=$!
	case $kind in sweep) usleep 1250000 ;; esac
	usleep $us
	kill -9 $pid 2>/dev/null
	wait $pid 2>/dev/null
	status=$?
	state >/killed
	marks=
	cmp -s /before /killed || marks=traces
	case $next in
	probe) $A probe ;;
	status) $A ctl status ;;
	sweep) $A sweep ;;
	record) $A record --events task:task_newtask -- true ;;
	esac >/next 2>/errors || echo "round $number: next command ($next) failed: $(cat /errors)"
	# A file that was made whole is its user's.
	[ "$(stat -c %s /tmp/made 2>/dev/null)" = 2000000 ] && rm /tmp/made
	# What was killed with its recorder may take a moment to go.
	for again in 1 2 3 4 5 6 7 8 9 10; do
		state >/after
		cmp -s /before /after && break
		usleep 100000
	done
	if cmp -s /before /after; then
		echo "round $number $kind $us $next: status $status $marks clean"
	else
		echo "round $number $kind $us $next: status $status LEFT"
		diff /before /after
		# Said once; what the next round leaves is told apart from it.
		cp /after /before
	fi
done </rounds
