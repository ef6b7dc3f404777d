# On a board, beside flashscope's own recording: blktrace, trace-cmd, perf and a tracefs instance record the same run. Leaves
# /out/DEVICE.blktrace.CPU, /out/five.dat, /out/perf.txt and /out/five.trace.
set -eu
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null || true
mkdir -p /out
t=/sys/kernel/tracing

# trace-cmd puts all of /proc/kallsyms (megabytes) into its file: its first lines serve as well.
head -n 40 /proc/kallsyms > /tmp/kallsyms
mount -o bind /tmp/kallsyms /proc/kallsyms

mkdir $t/instances/text
echo mono > $t/instances/text/trace_clock
echo 4096 > $t/instances/text/buffer_size_kb
echo 1 > $t/instances/text/events/block/enable

# An fsync with a flush, buffered and direct I/O of tasks side by side, of several sizes.
cat > /tmp/io.sh <<'IO'
dd if=/bin/busybox of=/mnt/some bs=4k count=40 conv=fsync 2>/dev/null
/work writes /dev/nullb1 logger 4096 150 &
/work writes /dev/nullb1 player 0 150
wait
echo 3 > /proc/sys/vm/drop_caches
dd if=/mnt/some of=/mnt/other bs=16k count=8 2>/dev/null
/work files /dev/nullb1 reader 8192 48
sync
sleep 0.3
IO

blktrace -d /dev/nullb0 -d /dev/nullb1 -D /out -b 128 -n 16 > /tmp/log 2>&1 &
recorder=$!
waited=0
until [ -e /sys/kernel/debug/block/nullb1/trace0 ]; do
	waited=$((waited + 1))
	[ $waited -le 50 ] || { cat /tmp/log >&2; exit 1; }
	sleep 0.1
done
# Its threads begin after the file is there.
sleep 2
# perf starts what trace-cmd records, so that its own start is in no recording but its.
trace-cmd record -C mono -b 4096 -e block -o /out/five.dat perf record -q -a -k mono -m 1024 -e 'block:*' -o /tmp/perf.data sh /tmp/io.sh > /tmp/log2 2>&1 || { cat /tmp/log2 >&2; exit 1; }
kill -INT "$recorder"
wait "$recorder" || { cat /tmp/log >&2; exit 1; }
echo 0 > $t/instances/text/tracing_on
cat $t/instances/text/trace > /out/five.trace
perf script -i /tmp/perf.data --ns > /out/perf.txt 2> /tmp/log3 || { cat /tmp/log3 >&2; exit 1; }
rmdir $t/instances/text
