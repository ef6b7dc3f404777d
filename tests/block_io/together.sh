# On a board: two tasks write and read a device while blktrace records; the agent records beside it.
set -eu
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null || true
mkdir -p /out
blktrace -d /dev/nullb0 -o main -D /out -b 128 -n 16 > /tmp/log 2>&1 &
recorder=$!
waited=0
until [ -e /sys/kernel/debug/block/nullb0/trace0 ]; do
	waited=$((waited + 1))
	[ $waited -le 50 ] || { cat /tmp/log >&2; exit 1; }
	sleep 0.1
done
# Its threads begin after the file is there.
sleep 2
/work writes /dev/nullb0 logger 4096 300 &
/work writes /dev/nullb0 player 0 200
wait $!
/work files /dev/nullb0 player 8192 64
sleep 0.3
kill -INT "$recorder"
wait "$recorder" || { cat /tmp/log >&2; exit 1; }
