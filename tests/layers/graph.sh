# On a board: function_graph, by Debian's trace-cmd, of exactly the functions that a recording of ours probes.
# usage: graph.sh names             while a recorder is running: keeps the names of its boundaries
#        graph.sh record COMMAND    records the command into /graph.dat
set -eu
case $1 in
names)
	for event in /sys/kernel/tracing/events/flashscope_*/enter_*; do
		echo "${event##*/enter_}"
	done > /tmp/names
	;;
record)
	shift
	# trace-cmd puts all of /proc/kallsyms (megabytes) into its file: these lines are what it takes.
	busybox awk 'NR == FNR { wanted[$1]; next } $3 in wanted' /tmp/names /proc/kallsyms > /tmp/kallsyms
	mount -o bind /tmp/kallsyms /proc/kallsyms
	# By their numbers, which the kernel finds at once: with -l for each name, trace-cmd takes most of the boot's time.
	functions=/sys/kernel/tracing/available_filter_functions
	busybox cut -d ' ' -f 1 "$functions" | busybox grep -nxFf /tmp/names | busybox cut -d : -f 1 |
		busybox tr '\n' ' ' > "${functions%/*}/set_ftrace_filter"
	calls=
	for call in pread64 pwrite64 fsync; do
		calls="$calls -e syscalls:sys_enter_$call -e syscalls:sys_exit_$call"
	done
	# Rings that hold all of it, emptied once. Of block's events all but plugs, as a recording of ours has them.
	trace-cmd record -o /graph.dat -C mono -b 16384 -s 1000000000 -p function_graph $calls \
		-e block -e sched:sched_switch -e irq:irq_handler_entry -e irq:irq_handler_exit -e irq:softirq_entry -e irq:softirq_exit \
		-v -e block:block_plug -e block:block_unplug "$@" > /tmp/log || { cat /tmp/log >&2; exit 1; }
	# The command's own line is among trace-cmd's.
	busybox grep '^[0-9]* [0-9]* [0-9]*$' /tmp/log
	umount /proc/kallsyms
	;;
esac
