# On a board: one blktrace recording for each thing that btt counts wrongly. Beside each, in NAME.truth, what the programs say
# they did.
set -eu
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null || true
mkdir -p /out
cd /out

start() { # NAME
	name=$1
	blktrace -d /dev/nullb0 -o "$name" -D /out -b 128 -n 16 > /tmp/log 2>&1 &
	recorder=$!
	waited=0
	until [ -e /sys/kernel/debug/block/nullb0/trace0 ]; do
		waited=$((waited + 1))
		[ $waited -le 50 ] || { cat /tmp/log >&2; exit 1; }
		sleep 0.1
	done
	# Its threads begin after the file is there.
	sleep 2
}

stop() {
	sleep 0.3
	kill -INT "$recorder"
	wait "$recorder" || { cat /tmp/log >&2; exit 1; }
	until [ ! -e /sys/kernel/debug/block/nullb0/trace0 ]; do sleep 0.1; done
}

start jumps
/work jumps /dev/nullb0 > jumps.truth
stop

start same
/work pairs /dev/nullb0 same > same.truth
stop

start mixed
/work pairs /dev/nullb0 mixed > mixed.truth
stop

# Two programs of one name, and one that is interrupted by their completions.
start names
/work spin spinner 1500 > spinner.truth &
spinner=$!
sleep 0.2
/work calls /dev/nullb0 read player 0 20 4096 > reader.truth &
reader=$!
/work calls /dev/nullb0 write player 8388608 30 8192 > writer.truth
wait $reader $spinner
cat reader.truth writer.truth spinner.truth > names.truth
stop

# Larger than what one request may have.
echo 16 > /sys/block/nullb0/queue/max_sectors_kb
start split
/work calls /dev/nullb0 read large 0 10 65536 > split.truth
stop
