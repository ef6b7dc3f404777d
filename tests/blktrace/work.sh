# On a board: records block I/O of a timed null block device with blktrace, and the same events with the agent.
# usage: work.sh COUNT
set -eu
count=$1
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null || true
mkdir -p /out
cd /out

# A device made of RAM with 100 us a request, a write cache (so flushes reach it) and discards.
device() { # NAME SETTING=VALUE...
	at=/sys/kernel/config/nullb/$1
	mkdir "$at"
	shift
	for setting in size=16 memory_backed=1 irqmode=2 completion_nsec=100000 hw_queue_depth=16 "$@" power=1; do
		if [ -e "$at/${setting%%=*}" ]; then echo "${setting#*=}" > "$at/${setting%%=*}"; fi
	done
}

start() { # NAME DEVICE...: files have NAME, or each its device's name where there are two
	name=$1
	shift
	devices=
	for d in "$@"; do devices="$devices -d /dev/$d"; done
	if [ $# = 1 ]; then devices="$devices -o $name"; fi
	blktrace $devices -D /out -b 128 -n 16 > "/tmp/$name.log" 2>&1 &
	recorder=$!
	for d in "$@"; do
		waited=0
		until [ -e "/sys/kernel/debug/block/$d/trace0" ]; do
			waited=$((waited + 1))
			if [ $waited -gt 50 ]; then
				cat "/tmp/$name.log" >&2
				echo "work.sh: blktrace did not begin on $d" >&2
				exit 1
			fi
			sleep 0.1
		done
	done
	# Its threads begin after the file is there.
	sleep 2
}

stop() {
	sleep 0.3
	kill -INT "$recorder"
	wait "$recorder" || { cat "/tmp/$name.log" >&2; exit 1; }
}

mount -t configfs configfs /sys/kernel/config 2>/dev/null || true
device nullb0 cache_size=1 discard=1
echo mq-deadline > /sys/block/nullb0/queue/scheduler
echo 64 > /sys/block/nullb0/queue/max_sectors_kb

start main nullb0
/work io /dev/nullb0 1 "$count"
echo 'a message' > /sys/kernel/debug/block/nullb0/msg
/work same /dev/nullb0
stop

# The records say which control group asked for them.
t=/sys/kernel/tracing
echo blk > $t/current_tracer && echo 1 > $t/options/blk_cgroup && echo nop > $t/current_tracer
mount -t cgroup2 none /mnt 2>/dev/null || true
mkdir -p /mnt/some
echo +io > /mnt/cgroup.subtree_control 2>/dev/null || true
start cgroup nullb0
sh -c 'echo $$ > /mnt/some/cgroup.procs; exec /work same /dev/nullb0'
stop

# A device on top of another one; the lower one's records say what was remapped.
if dmsetup create linear --noudevsync --noudevrules --table '0 16384 linear /dev/nullb0 2048'; then
	dmsetup mknodes linear || true
	echo none > /sys/block/nullb0/queue/scheduler
	start remap nullb0 dm-0
	/work same /dev/mapper/linear
	/work io /dev/nullb0 7 4
	stop
fi

# Records of version 8, where this kernel writes them (BLKTRACESETUP2, Linux 7.0), of a zoned device.
device nullb2 zoned=1 zone_size=4
/work trace8 /dev/nullb2 /out/v8 /tmp/ready 2> /tmp/trace8.log &
recorder=$!
sleep 1
if [ -e /tmp/ready ]; then
	/work zones /dev/nullb2
	sleep 0.3
	kill -TERM $recorder
	wait $recorder
else
	cat /tmp/trace8.log
fi
ls -l /out
