#!/bin/sh
# Kills replays with cgroups on a virtual board, with cgroup2 mounted and not, and looks at what the next sweep leaves.
# A line a round: MOUNTED MICROSECONDS killed: WHAT WAS LEFT; swept: WHAT IS LEFT
busybox --install -s /usr/bin
A=/flashscope/agent
mkdir -p /cg /look /data
cat >/script <<'END'
flashscope-replay 2
cgroup x memory.high=16777216 cpu.weight=50 pids.max=20
cgroup y memory.high=16777216
file 4096 a
task t cgroup=x
task u cgroup=y
read 0 0 0 0 4096
read 20000000000 1 0 0 4096
END

# Seen through a mount of its own, so that it is seen where it is mounted nowhere too.
state() {
	mount -t cgroup2 none /look
	echo $(cat /look/cgroup.subtree_control) $(ls /look | grep -c '^flashscope_') $(ls /run/flashscope | grep -c cgroups_)
	umount /look
}

for mounted in no yes; do
	[ $mounted = no ] || mount -t cgroup2 none /cg
	for us in 20000 60000 100000 200000 400000 1000000; do
		$A bench replay --script /script --dir /data --timing recorded >/dev/null 2>&1 &
		pid=$!
		usleep $us
		kill -9 $pid
		wait $pid 2>/dev/null
		usleep 300000
		killed=$(state)
		$A sweep >/dev/null 2>/errors || cat /errors
		echo "$mounted $us killed: $killed; swept: $(state)"
	done
	# One that lives keeps what it has; a sweep beside it takes what a dead one left.
	$A bench replay --script /script --dir /data --timing recorded >/dev/null 2>&1 &
	dead=$!
	usleep 1000000
	$A bench replay --script /script --dir /data --timing recorded >/dev/null 2>&1 &
	alive=$!
	usleep 1000000
	kill -9 $dead
	wait $dead 2>/dev/null
	usleep 300000
	$A sweep >/dev/null 2>/errors || cat /errors
	echo "$mounted beside: $(state)"
	kill -INT $alive
	wait $alive
	$A sweep >/dev/null 2>/errors || cat /errors
	echo "$mounted after: $(state)"
done
