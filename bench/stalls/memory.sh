# What an armed flight recorder takes, KiB: its rings, by tracefs, and the resident memory of its processes.
cd /sys/kernel/tracing/instances
rings=0
for file in */buffer_total_size_kb; do
	read -r kib rest <$file
	rings=$((rings + kib))
done
resident=0
for pid in $(pidof agent); do
	kib=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' /proc/$pid/status)
	case $(tr '\0' ' ' </proc/$pid/cmdline) in *--trigger*) resident=$((resident + kib));; esac
done
echo "{\"rings_kib\": $rings, \"resident_kib\": $resident}"
