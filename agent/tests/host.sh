#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The sanitized agent against this host's tracefs, in instances of its own:
# block and scheduler events, so no NAND and no kprobes are needed. Needs root
# and a kernel with tracefs; where these are missing it says so and tests the
# refusals alone.
#   host.sh DIR     DIR holds flashscope-agent and check_stream
set -u
bin=$(cd "$1" && pwd)
agent=$bin/flashscope-agent
work=$(mktemp -d)
failed=0
checks=0
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1

# A lock of tracefs that a task held when it died is held until a reboot. What waits for it cannot be killed, so it is left behind; each
# command below would wait for 5 s.
cat /sys/kernel/tracing/trace_clock >/dev/null 2>&1 &
i=0; while kill -0 $! 2>/dev/null && [ $i -lt 100 ]; do sleep 0.05; i=$((i + 1)); done
if kill -0 $! 2>/dev/null; then
	echo "host.sh: NOT tested: tracefs gives no answer in 5 s (dmesg tells of a task that died); reboot"
	exit 0
fi

note() { failed=$((failed + 1)); echo "host.sh: $*" >&2; }
check() { # WHAT CONDITION…
	checks=$((checks + 1))
	what=$1; shift
	"$@" || note "$what"
}
run() { # EXIT-CODE ARGUMENTS…: its exit code, no sanitizer report, one line on stderr at most
	want=$1; shift
	"$agent" "$@" >"$work/out" 2>"$work/err"
	got=$?
	checks=$((checks + 1))
	[ "$got" = "$want" ] || note "$*: exit $got, not $want: $(head -c 300 "$work/err")"
	if grep -q 'Sanitizer\|runtime error' "$work/err"; then note "$*: $(head -c 2000 "$work/err")"; fi
	if [ "$want" != 0 ]; then
		lines=$(wc -l <"$work/err")
		[ "$lines" -eq 1 ] || note "$*: $lines lines of error, not 1: $(head -c 500 "$work/err")"
		grep -q '^flashscope-agent: .*; ' "$work/err" ||
			note "$*: no 'THING: what; next step': $(head -c 300 "$work/err")"
	fi
}
events() { "$bin/check_stream" "$1" | awk -v e="$2" '$1 == "event" && $2 == e { print $3; f = 1 } END { if (!f) print 0 }'; }
frames() { "$bin/check_stream" "$1" | awk -v e="$2" '$1 == "frames" && $2 == e { print $3; f = 1 } END { if (!f) print 0 }'; }
reason() { "$bin/check_stream" "$1" | awk '$1 == "reason" { print $2 }'; }
whole() { ! "$bin/check_stream" "$1" | grep -q '^BAD' && "$bin/check_stream" "$1" | grep -q '^cut 0$'; }
sound() { ! "$bin/check_stream" "$1" | grep -q '^BAD'; }

# energy, on a tree of sysfs of our own: half a watt idle, 0.9 W from when the command has begun: for so long that a
# shell that begins slowly makes no difference. The sensor never reads empty: its file is replaced. Its mean is
# rounded to a microwatt, so that the energy may differ by half a microjoule for each second.
rail=$work/root/sys/class/hwmon/hwmon3
mkdir -p "$rail"
export FLASHSCOPE_ROOT=$work/root
run 1 energy -- true
echo ina219 >"$rail/name"
echo 500000 >"$rail/power1_input"
run 0 energy --list
check "energy lists the sensor" grep -q '"name":"ina219/power1"' "$work/out"
run 1 energy --sensor nosuch -- true
run 0 energy --idle-ms 50 --interval-ms 5 -- \
	sh -c "echo 900000 >$work/power; mv $work/power $rail/power1_input; sleep 3; echo said"
check "energy knows idle" grep -q '"idle_uw":500000,' "$work/out"
check "the command's stdout is not the result's" grep -q '^said$' "$work/err"
check "energy is what is above idle" awk 'match($0, /"mean_uw":[0-9]+/) { mean = substr($0, RSTART + 10, RLENGTH - 10) }
	match($0, /"above_idle_uj":[0-9]+/) { above = substr($0, RSTART + 16, RLENGTH - 16) }
	match($0, /"begin_ns":[0-9]+/) { begin = substr($0, RSTART + 11, RLENGTH - 11) }
	match($0, /"end_ns":[0-9]+/) { end = substr($0, RSTART + 9, RLENGTH - 9) }
	END { lasted = (end - begin) / 1e9; is = (mean - 500000) * lasted; within = 1 + lasted / 2
	      exit !(mean > 800000 && mean <= 900000 && above - is < within && is - above < within) }' "$work/out"
echo 500000 >"$rail/power1_input"
run 0 energy --idle-ms 20 --interval-ms 5 -- sh -c ": >$rail/power1_input; sleep 0.1"
check "a sensor that stops answering gives no energy" grep -q '"above_idle_uj":null' "$work/out"
check "it is said" grep -q 'ina219/power1: did not answer' "$work/err"
echo 500000 >"$rail/power1_input"
"$agent" energy --idle-ms 0 -- sh -c "exit 3" >"$work/out" 2>"$work/err"
check "the command's failure is passed on" [ $? = 1 ]
check "without idle nothing is above it" grep -q '"status":3,.*"idle_uw":null,.*"above_idle_uj":null' "$work/out"
unset FLASHSCOPE_ROOT

# Options and refusals: no privilege is needed.
run 2 record --frob
run 2 record --mode both -o "$work/x"
run 2 record --events nosuch -o "$work/x"
run 2 record --ring 0 -o "$work/x"
run 2 record --events block --mtd 0 -o "$work/x"
run 2 record --
run 2 energy
run 2 energy --frob -- true
run 2 energy --interval-ms 0 -- true
run 2 energy --idle-ms -- true
run 2 ctl frob
run 2 probe --frob
run 2 sweep now
run 2 frob
run 0 --help
run 0 version
run 0 probe
check "probe prints one object" grep -q '^{"agent":{"version":.*"mounts":\[.*"groups":\[.*\]}$' "$work/out"
boot=$(cat /proc/sys/kernel/random/boot_id)
check "probe names the boot" grep -q "\"boot_id\":\"$boot\"" "$work/out"
run 0 probe --trial
check "probe --trial prints one object, wherever it cannot try" grep -q '^{"agent":{.*}$' "$work/out"
check "refused options make no file" test ! -e "$work/x"

tracing=
for place in $(awk '$3 == "tracefs" { print $2 }' /proc/mounts) /sys/kernel/tracing /sys/kernel/debug/tracing; do
	[ -w "$place/instances" ] && [ -w "$place/trace_clock" ] && tracing=$place && break
done
# Where nobody has mounted tracefs the agent mounts one that only it sees; here it is mounted for this script alone.
if [ -z "$tracing" ] && [ -z "${FLASHSCOPE_TEST_MOUNTED:-}" ] && [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
	rm -rf "$work"
	FLASHSCOPE_TEST_MOUNTED=1 exec unshare -m sh -c 'mount -t tracefs nodev /sys/kernel/tracing; exec "$0" "$@"' "$0" "$@"
fi
if [ -z "$tracing" ]; then
	echo "host.sh: recording NOT tested: no tracefs that this user may write (root, and mount -t tracefs nodev /sys/kernel/tracing)"
	run 1 record --events sched:sched_switch -o "$work/x"
	echo "host.sh: $checks checks, $failed failed"
	rm -rf "$work"
	[ "$failed" = 0 ]
	exit
fi

# Other recorders may live beside this script; what they own is theirs. Here
# each of ours has ended, so a name whose owner lives is not ours.
dead_owners() { # reads names, or lines that hold one
	while read -r line; do
		owner=$(printf '%s\n' "$line" | sed -n 's/.*_\([0-9]*\)_\([0-9]*\).*/\1 \2/p')
		start=$(sed 's/.*) //' "/proc/${owner% *}/stat" 2>/dev/null | cut -d' ' -f20)
		[ -n "$start" ] && [ "$start" = "${owner#* }" ] || printf '%s\n' "$line"
	done
}
left() {
	{
		ls "$tracing/instances" | grep '^flashscope_'
		[ -e "$tracing/kprobe_events" ] && grep ':flashscope_' "$tracing/kprobe_events"
		ls /run/flashscope 2>/dev/null | grep '^recorder_\|^knobs_'
		true
	} | dead_owners
}
before=$(left)
clean() { [ "$(left)" = "$before" ] || { left >&2; false; }; }
wait_state() { # NAME STATE
	for _ in $(seq 200); do
		"$agent" ctl status 2>/dev/null | grep -q "\"name\":\"$1\",\"pid\":[0-9]*,\"state\":\"$2\"" && return 0
		sleep 0.05
	done
	return 1
}

# A command under trace: exactly its own direct reads. The path's file system
# decides whether a block device is asked; tmpfs has none.
dd if=/dev/urandom of="$work/data" bs=64k count=64 conv=fsync 2>/dev/null
run 0 record --events block:block_rq_issue,block:block_rq_complete,block:block_bio_queue -o "$work/a" -- true
check "a command that does nothing" whole "$work/a"
run 0 record --events block,sched:sched_switch -o "$work/a" -- \
	dd if="$work/data" of=/dev/null bs=4k count=100 iflag=direct
check "recording is whole" whole "$work/a"
check "one HELLO" [ "$(frames "$work/a" HELLO)" = 1 ]
check "one STATS" [ "$(frames "$work/a" STATS)" = 1 ]
check "one EXIT" [ "$(frames "$work/a" EXIT)" = 1 ]
check "two PHASEs" [ "$(frames "$work/a" PHASE)" = 2 ]
check "ended complete" [ "$(reason "$work/a")" = 0 ]
check "task switches are there" [ "$(events "$work/a" sched:sched_switch)" -gt 0 ]
check "dd was named" [ "$(events "$work/a" sched:sched_process_exec)" -gt 0 ]
if [ "$(stat -f -c %T "$work")" != tmpfs ] && [ -n "$(ls /sys/block)" ]; then
	check "100 direct reads gave $(events "$work/a" block:block_bio_queue) bios" \
		[ "$(events "$work/a" block:block_bio_queue)" -ge 100 ]
else
	echo "host.sh: block events NOT counted: $work is not on a block device"
fi
check "after a command" clean

# Groups: what the kernel has of them, and by name what it lacks. Our own calls are not among them.
run 0 record --events block,syscall,cache -o "$work/a" -- sh -c "cat '$work/data' >/dev/null"
check "groups are whole" whole "$work/a"
check "absent events are named" grep -aq '"absent":\[{"group":"' "$work/a"
run 0 record --events syscalls:sys_enter_read -o "$work/b" --paused -- true
check "nothing is recorded while paused" [ "$(events "$work/b" syscalls:sys_enter_read)" = 0 ]
check "after groups" clean

run 1 record --events block -o "$work/a" -- false
check "recorded all the same" whole "$work/a"
run 1 record --events block:nosuch -o "$work/b"
run 1 record --events block -o /nonexistent/b
if [ ! -d /sys/class/mtd ] || [ -z "$(ls /sys/class/mtd)" ]; then
	run 1 record -o "$work/b"
fi
"$agent" record --events block -o "$work/a" -- /nonexistent >/dev/null 2>"$work/err"
check "a command that is not there" [ $? = 127 ]
check "is named" grep -q '^flashscope-agent: /nonexistent: cannot be run' "$work/err"
check "after failures" clean

# What the command reads, writes and ends with is its own.
run 7 record --events sched:sched_switch -o "$work/a" -- sh -c 'exit 7'
"$agent" record --events sched:sched_switch -o "$work/a" -- /etc/passwd >"$work/out" 2>"$work/err"
check "a file that is no program" [ $? = 126 ]
run 137 record --events sched:sched_switch -o "$work/a" -- sh -c 'kill -9 $$'
run 125 record --events block:nosuch -o "$work/b" -- true
run 2 record --events sched:sched_switch -o "$work/b" --stdio 3,4 -- true
run 2 record --events sched:sched_switch -o "$work/b" --stdio 3,4,5
run 125 record --events sched:sched_switch -o "$work/b" --user nosuch -- true
seq 1 200000 >"$work/in"
"$agent" record --events sched:sched_switch --stdio 3,4,5 -- sh -c 'cat; echo told >&2; exit 3' \
	3<"$work/in" 4>"$work/out" 5>"$work/err" </dev/null >"$work/a" 2>"$work/says"
check "the command's status beside a stream on stdout" [ $? = 3 ]
check "the stream beside the command's output" whole "$work/a"
check "stdin and stdout" cmp "$work/in" "$work/out"
check "stderr" [ "$(cat "$work/err")" = told ]
check "our words are not the command's" grep -q 'ended with status 3' "$work/says"
"$agent" record --events sched:sched_switch -o "$work/a" -- sh -c 'sleep 60 & exit 0' >"$work/out" 2>&1 &
pid=$!
i=0; while kill -0 $pid 2>/dev/null && [ $i -lt 200 ]; do sleep 0.05; i=$((i + 1)); done
check "a daemon that keeps stdout open holds nothing up" [ $i -lt 200 ]
wait $pid; check "and its command ended well" [ $? = 0 ]
pkill -x -P 1 sleep 2>/dev/null
setsid "$agent" record --events sched:sched_switch --name host-i -o "$work/a" -- \
	sh -c 'trap "sleep 0.3; echo took leave; exit 9" INT; while :; do sleep 0.05; done' >"$work/out" 2>"$work/err" & pid=$!
check "host-i records" wait_state host-i recording
group=$("$agent" ctl status host-i | grep -o '"pid":[0-9]*' | cut -d: -f2)
kill -INT "-$group"
wait $pid; check "SIGINT to the group: the command's own status" [ $? = 9 ]
check "it had time to take leave" grep -q 'took leave' "$work/out"
check "stream after SIGINT to the group" whole "$work/a"
run 0 record --user nobody --events sched:sched_switch -o "$work/a" -- sh -c 'id -un; id -gn; echo "$HOME $USER $LOGNAME"; grep Groups /proc/self/status'
check "--user is whom the command runs as" [ "$(head -n 1 "$work/out")" = nobody ]
check "its environment" grep -q "^$(getent passwd nobody | cut -d: -f6) nobody nobody\$" "$work/out"
check "and no group of root's" [ "$(sed -n 's/^Groups:[[:space:]]*//p' "$work/out" | tr -d ' ')" = "$(id -g nobody)" ]
run 0 record --user 4321 --events sched:sched_switch -o "$work/a" -- id -u
check "--user takes a number" [ "$(cat "$work/out")" = 4321 ]

# Armed, the recorder gives up what it does not need; its command keeps what it was started with.
caps='sleep 0.2; grep CapEff "/proc/$PPID/status"; grep CapEff /proc/self/status'
run 0 record --paths auto --events sched:sched_switch -o "$work/a" -- sh -c "$caps"
# CAP_DAC_READ_SEARCH and CAP_SYS_PTRACE: it looks for the names of other users' files.
check "with names the recorder has two more" [ "$(sed -n '1s/CapEff:[[:space:]]*0*//p' "$work/out")" = 880004 ]
run 0 record --events sched:sched_switch -o "$work/a" -- sh -c "$caps"
check "the recorder has CAP_SYS_NICE alone" [ "$(sed -n '1s/CapEff:[[:space:]]*0*//p' "$work/out")" = 800000 ]
check "the command has what we have" [ "$(tail -n 1 "$work/out")" = "$(grep CapEff /proc/self/status)" ]
check "after the command's own" clean

# In a PID namespace of its own a recorder is not seen to live, and is left alone; the other way round, too.
if unshare --pid --fork --mount-proc true 2>/dev/null; then
	"$agent" record --events sched:sched_switch --name outside -o "$work/c" & pid=$!
	check "outside records" wait_state outside recording
	mine=$(ls "$tracing/instances" | grep "_${pid}_" | sort)
	unshare --pid --fork --mount-proc "$agent" sweep >"$work/out" 2>&1
	check "a sweep in another namespace leaves it alone" [ "$(ls "$tracing/instances" | grep "_${pid}_" | sort)" = "$mine" ]
	check "and says so" grep -q '^left alone: ' "$work/out"
	run 0 ctl stop outside
	wait $pid; check "outside's exit" [ $? = 0 ]
	check "outside's stream" whole "$work/c"
	unshare --pid --fork --mount-proc "$agent" record --events sched:sched_switch -o "$work/d" -- sleep 1.5 & pid=$!
	i=0; while [ -z "$(ls "$tracing/instances" | grep 'flashscope_[0-9]*_1_')" ] && [ $i -lt 100 ]; do sleep 0.05; i=$((i + 1)); done
	sleep 0.3
	"$agent" sweep >/dev/null
	wait $pid; check "inside's exit" [ $? = 0 ]
	check "inside's stream" whole "$work/d"
	# Killed with its whole namespace, it is nobody's: the first namespace sees that.
	unshare --pid --kill-child --fork --mount-proc "$agent" record --events sched:sched_switch -o "$work/d" -- sleep 60 & pid=$!
	i=0; while [ -z "$(ls "$tracing/instances" | grep 'flashscope_[0-9]*_1_')" ] && [ $i -lt 100 ]; do sleep 0.05; i=$((i + 1)); done
	kill -9 $pid; wait $pid 2>/dev/null; sleep 0.3
	run 0 sweep
	check "what a namespace that has ended left is swept" [ -z "$(ls "$tracing/instances" | grep 'flashscope_[0-9]*_1_')" ]
else
	echo "host.sh: PID namespaces NOT tested: unshare is refused"
fi

# The raw ring counts what it loses: seen and lost are all there were.
"$agent" record --events sched:sched_switch --mode ring --ring 8 -o "$work/r" -- \
	sh -c 'i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i+1)); done' 2>"$work/err"
check "ring mode" whole "$work/r"
lost=$("$bin/check_stream" "$work/r" | sed -n 's/^stats //p' | sed 's/"instance":1.*//' |
	grep -o '"overrun":[0-9]*' | awk -F: '{ s += $2 } END { print s + 0 }')
check "a small ring loses ($lost), and says so" [ "$lost" -gt 0 ]
check "and keeps some" [ "$(events "$work/r" sched:sched_switch)" -gt 0 ]
tasks=$(events "$work/r" task:task_newtask)
check "names of all 300 processes ($tasks) are kept beside an overwriting ring" [ "$tasks" -ge 300 ]

# ctl, and two recorders at once.
"$agent" record --events sched:sched_switch --name host-a --paused -o "$work/c" & a=$!
"$agent" record --events sched:sched_switch --name host-b -o "$work/d" & b=$!
check "host-a waits" wait_state host-a paused
check "host-b records" wait_state host-b recording
run 1 record --events block --name host-a -o "$work/x"
run 2 ctl stop
run 1 ctl stop nosuch
run 0 ctl start host-a
run 0 ctl pause host-a
check "paused" wait_state host-a paused
run 0 ctl resume host-a
run 0 ctl status host-a
check "status" grep -q '"state":"recording"' "$work/out"
run 0 ctl stop host-a
run 0 ctl stop host-b
wait $a; check "host-a's exit" [ $? = 0 ]
wait $b; check "host-b's exit" [ $? = 0 ]
check "host-a's stream" whole "$work/c"
check "host-b's stream" whole "$work/d"
check "marks of start, pause, resume" [ "$(frames "$work/c" PHASE)" = 3 ]
check "asked to stop" [ "$(reason "$work/c")" = 1 ]
check "after ctl" clean

# Signals.
for signal in INT TERM HUP; do
	setsid "$agent" record --events block --name host-s -o "$work/s" &
	check "host-s records" wait_state host-s recording
	pid=$("$agent" ctl status host-s | grep -o '"pid":[0-9]*' | cut -d: -f2)
	# A shell starts background programs with INT ignored; the agent takes it back.
	kill -$signal "$pid"
	wait $!; check "exit after $signal" [ $? = 0 ]
	check "stream after $signal" whole "$work/s"
	check "after $signal" clean
done

# Killed at any moment: the next command undoes it.
i=0
while [ $i -lt "${FS_KILLS:-20}" ]; do
	"$agent" record --events sched:sched_switch -o "$work/k" -- sleep 60 2>/dev/null & pid=$!
	sleep "0.$((i * 7 % 10))$((i % 10))" # 0 to 0.99 s: from its first steps to draining
	kill -9 $pid
	wait $pid 2>/dev/null
	i=$((i + 1))
	[ ! -e "$work/k" ] || sound "$work/k" || note "killed stream $i is unsound"
	rm -f "$work/k"
done
run 0 sweep
check "after kill -9" clean
check "no sleep is left" [ -z "$(pgrep -x -P 1 sleep -a | grep 'sleep 60$')" ]

# A reader that goes, one that stalls, a disk that is full.
"$agent" record --events sched:sched_switch 2>"$work/err" | head -c 3000 >/dev/null
check "reader gone" grep -q 'the reader of the stream has gone' "$work/err"
check "after the reader" clean
mkfifo "$work/fifo"
sleep 600 <"$work/fifo" & reader=$!
"$agent" record --events 'sched:*,irq:*,timer:*' --name host-f --interval-ms 5 >"$work/fifo" 2>"$work/err" & pid=$!
wait_state host-f recording
i=0; while [ $i -lt 400 ]; do /bin/true; i=$((i + 1)); done
kill -TERM $pid
wait $pid; status=$?
check "a stalled reader ends in failure, not in a hang ($status)" [ "$status" = 1 ]
check "which is said" grep -q 'takes nothing' "$work/err"
kill $reader 2>/dev/null; wait $reader 2>/dev/null
check "after the stalled reader" clean
mkdir "$work/small"
if mount -t tmpfs -o size=200k none "$work/small" 2>/dev/null; then
	"$agent" record --events 'sched:*,timer:*' --interval-ms 20 -o "$work/small/f" -- \
		sh -c 'i=0; while [ $i -lt 2000 ]; do /bin/true; i=$((i+1)); done; echo survived' >"$work/out" 2>"$work/err"
	check "a full disk is a failure of ours" [ $? = 125 ]
	check "which is said" grep -q 'No space left' "$work/err"
	check "what is written is whole" whole "$work/small/f"
	check "and has events" [ "$(events "$work/small/f" sched:sched_switch)" -gt 0 ]
	check "the command lived on" grep -q survived "$work/out"
	umount "$work/small"
else
	echo "host.sh: full disk NOT tested: tmpfs cannot be mounted here"
fi
check "after the full disk" clean

# Without privilege: facts with reasons, and a refusal.
if command -v setpriv >/dev/null && [ "$(id -u)" = 0 ]; then
	chmod 755 "$work"
	cp "$agent" "$work/agent" && chmod 755 "$work/agent"
	setpriv --reuid 65534 --regid 65534 --clear-groups "$work/agent" probe >"$work/out" 2>"$work/err"
	check "probe without privilege" [ $? = 0 ]
	check "says why" grep -q '"path":null,"error":"[^"]*permission denied; run as root, or [^"]*"' "$work/out"
	setpriv --reuid 65534 --regid 65534 --clear-groups "$work/agent" record --events block \
		>"$work/out" 2>"$work/err"
	check "record without privilege" [ $? = 1 ]
	check "is refused" grep -q 'permission denied; run as root' "$work/err"
	rm -rf /tmp/flashscope-65534
fi

echo "host.sh: $checks checks, $failed failed"
rm -rf "$work"
[ "$failed" = 0 ]
