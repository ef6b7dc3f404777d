# On a board: Debian's trace-cmd records what a file system on a null block device does. Leaves /out/NAME.dat and beside each
# what `trace-cmd report -R -t` says of it; prints the commands.
# usage: work.sh NAME...    names: io kinds graph lost
set -eu
wanted=" $* "
mkdir -p /out /mnt
t=/sys/kernel/tracing

# trace-cmd puts all of /proc/kallsyms (megabytes) into its file: its first lines serve as well.
head -n 40 /proc/kallsyms > /tmp/kallsyms
mount -o bind /tmp/kallsyms /proc/kallsyms

at=/sys/kernel/config/nullb/nullb0
mount -t configfs configfs /sys/kernel/config 2>/dev/null || true
mkdir $at
for setting in size=16 memory_backed=1 irqmode=2 completion_nsec=100000 power=1; do
	echo "${setting#*=}" > "$at/${setting%%=*}"
done
/sbin/mke2fs -q -t ext4 -m 0 /dev/nullb0
mount -t ext4 /dev/nullb0 /mnt

cat > /tmp/io.sh <<'IO'
echo "it begins" > /sys/kernel/tracing/trace_marker
dd if=/bin/busybox of=/mnt/some bs=4k count=4 conv=fsync 2>/dev/null
echo 3 > /proc/sys/vm/drop_caches
dd if=/mnt/some of=/dev/null bs=4k 2>/dev/null
IO

# Fields of every kind that a probe can have; registers hold what vfs_read was called with.
case $(uname -m) in
armv7l) file=%r0 buffer=%r1 count=%r2 ;;
*) file=%di buffer=%si count=%dx ;;
esac
echo "p:fs_test/fields vfs_read file=$file:x64 b=+0($file):u8[4] w=+0($file):s16[3] q=+0($file):x64[2] text=\$comm \
count=$count:u32 small=$count:s8 bits=$count:b4@2/32 buffer=$buffer" >> $t/kprobe_events
echo 'r:fs_test/back vfs_read value=$retval:s64' >> $t/kprobe_events

record() { # NAME OPTION... COMMAND
	name=$1
	shift
	case $wanted in *" $name "*) ;; *) return ;; esac
	echo "$name: trace-cmd record $*"
	trace-cmd record -o "/out/$name.dat" "$@" > "/tmp/$name.log" 2>&1 || { cat "/tmp/$name.log" >&2; exit 1; }
	trace-cmd report -R -t -i "/out/$name.dat" > "/out/$name.txt"
}

has() { # OPTION: whether this trace-cmd knows it
	trace-cmd record -h 2>&1 | grep -q -e "$1"
}

v6=
v7=
if has --file-version; then v6='--file-version 6'; fi
if has --compression; then v7='--compression zstd'; fi

calls=
for call in openat read write fsync; do
	calls="$calls -e syscalls:sys_enter_$call -e syscalls:sys_exit_$call"
done
block='-e block:block_bio_queue -e block:block_rq_issue -e block:block_rq_complete -e block:block_unplug'
record io $v6 $calls $block sh /tmp/io.sh

# Without compression formats alone fill a file: some of each kind.
kinds='-e block -e ext4 -e jbd2 -e sched -e irq -e timer'
if [ -z "$v7" ]; then
	kinds='-e block:block_rq_* -e ext4:ext4_da_* -e ext4:ext4_sync_* -e sched:sched_switch -e irq:irq_handler_* -e timer:timer_*'
fi
record kinds $v7 -C mono $kinds -e fs_test sh /tmp/io.sh

record graph $v7 -p function_graph --max-graph-depth 3 -g ksys_read -e sched:sched_switch cat /proc/version
# Rings of two pages that are emptied once a second.
record lost $v7 -b 4 -s 1000000 -e raw_syscalls dd if=/dev/zero of=/dev/null bs=1 count=500
umount /mnt
