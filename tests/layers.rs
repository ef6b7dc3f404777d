//! Where the time of a read and of a write and its sync goes, on a board with a timed device.

use std::path::Path;
use std::process::Command;

use flashscope_analysis::Analysis as _;
use flashscope_analysis::layers::{CallKind, CallSum, Layer, Layers, LayersFound};
use flashscope_tests::{Plan, TempDir, stdout, top};
use flashscope_trace::{Crossings, Trace};

fn work(into: &Path) -> Vec<u8> {
    let binary = into.join("work");
    stdout(
        Command::new("arm-linux-gnueabihf-gcc")
            .args(["-std=c11", "-static", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&binary)
            .arg(top().join("tests/block_io/work.c")),
    );
    std::fs::read(binary).expect("a compiled workload")
}

fn found(trace: &Trace, tid: u32) -> LayersFound {
    let crossings = Crossings::new(trace);
    let mut layers = Layers::new(|tid, time| trace.comm(tid, time), crossings.tell_sleep());
    trace
        .for_each_pair(&mut |pair| {
            if let Some(event) = pair.event {
                layers.event(event);
            }
            if let Some(record) = pair.record {
                crossings.read(record, &mut |tid, crossing| layers.crossing(crossing, tid, record.time));
            }
        })
        .expect("a readable trace");
    for (loss, count) in trace.losses().iter() {
        assert_eq!(count, 0, "{}", loss.name());
    }
    let mut found = layers.finish();
    found.calls.retain(|call| tid == 0 || call.tid == tid);
    found.sums = flashscope_analysis::layers::sums(&found.calls);
    found
}

fn print(what: &str, sum: &CallSum) {
    let mean = |ns: u64| ns / sum.n.max(1);
    let layers: Vec<String> = sum.layers.iter().map(|t| format!("{} {}", t.layer.name(), mean(t.ns))).collect();
    println!(
        "{what}: {} of {:?}, {} ns each: {}; unattributed {} ({:.2} %), overlap {}",
        sum.n,
        sum.call,
        mean(sum.total_ns),
        layers.join(", "),
        mean(sum.unattributed_ns),
        sum.unattributed_ns as f64 / sum.total_ns as f64 * 100.0,
        mean(sum.overlap_ns)
    );
}

#[test]
fn a_cold_read_and_a_sync_are_covered_by_layers() {
    let dir = TempDir::new("layers");
    for kernel in ["6.1", "newest"] {
        let mut plan = Plan::new("armv7", kernel);
        plan.no_nand = true;
        plan.modules = &["null_blk nr_devices=0", "ext4"];
        plan.packages = &["e2fsprogs"];
        plan.files = vec![("/work", 0o755, work(dir.path()))];
        let at = "/sys/kernel/config/nullb/nullb0";
        plan.lines = [
            "mount configfs /sys/kernel/config configfs -",
            &format!("mkdir {at}"),
            &format!("write {at}/size 64"),
            &format!("write {at}/memory_backed 1"),
            &format!("write {at}/irqmode 2"),
            &format!("write {at}/completion_nsec 100000"),
            &format!("write {at}/submit_queues 1"),
            &format!("write {at}/power 1"),
            "device-wait /dev/nullb0 2000",
            "write /sys/block/nullb0/queue/read_ahead_kb 0",
            "run mkfs mkfs.ext4 -q -b 4096 -E lazy_itable_init=0,lazy_journal_init=0 /dev/nullb0",
            "mkdir /mnt",
            "mount /dev/nullb0 /mnt ext4 noatime",
            "run old /work old /mnt 32",
            "run sync /work sync",
            "write /proc/sys/vm/drop_caches 3",
            "record-start --mode ring --ring 8192 --events block,layers",
            "run cold /work cold /mnt 32",
            "record-stop",
        ]
        .map(str::to_owned)
        .to_vec();
        let booted = plan.boot();
        let trace = booted.recording(0);
        let pid: u32 = String::from_utf8_lossy(&booted.step("cold").stdout).trim().parse().expect("a number");
        let found = found(&trace, pid);
        for sum in &found.sums {
            print(kernel, sum);
        }
        println!("{:?} {}", found.calls_cut, found.boundaries_unmatched);
        for call in found.calls.iter().filter(|c| c.call != CallKind::Write).take(3) {
            println!("  {call:?}");
        }
        for sum in found.sums.iter().filter(|sum| sum.call != CallKind::Write) {
            let share = sum.unattributed_ns as f64 / sum.total_ns as f64;
            assert!(share <= 0.01, "{kernel} {:?}: {share}", sum.call);
        }
        let reads = found.sums.iter().find(|sum| sum.call == CallKind::Read).expect("reads");
        let device = reads.layers.iter().find(|t| t.layer == Layer::Device).map_or(0, |t| t.ns) / reads.n;
        println!("{kernel}: the device has a read's request for {device} ns, of which 100000 are its timer's");
    }
}
