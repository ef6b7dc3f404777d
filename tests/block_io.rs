//! Block I/O on a board against ground truth: whose it is, and what one task costs another.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use flashscope_analysis::Analysis as _;
use flashscope_analysis::block::{BlockAnalysis, BlockFound, OwnerLoad};
use flashscope_tests::{Booted, Plan, TempDir, stdout, top};
use flashscope_trace::{Device, Trace};

/// Compiles the workload for a board; static, so that it needs nothing there.
fn work(board: &str, into: &Path) -> Vec<u8> {
    let compiler = if board.starts_with("armv7") { "arm-linux-gnueabihf-gcc" } else { "gcc" };
    let binary = into.join("work");
    stdout(
        Command::new(compiler)
            .args(["-std=c11", "-static", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&binary)
            .arg(top().join("tests/block_io/work.c")),
    );
    std::fs::read(binary).expect("a compiled workload")
}

/// A timed device in RAM: `settings` are null_blk's.
fn null_block(settings: &[&str]) -> Vec<String> {
    let at = "/sys/kernel/config/nullb/nullb0";
    let mut lines = vec!["mount configfs /sys/kernel/config configfs -".to_owned(), format!("mkdir {at}")];
    for setting in settings.iter().chain(&["power=1"]) {
        let (name, value) = setting.split_once('=').expect("a setting");
        lines.push(format!("write {at}/{name} {value}"));
    }
    lines.push("device-wait /dev/nullb0 2000".to_owned());
    lines
}

fn plan<'a>(board: &'a str, kernel: &'a str, dir: &TempDir, modules: &'a [&'a str]) -> Plan<'a> {
    let mut plan = Plan::new(board, kernel);
    plan.no_nand = true;
    plan.modules = modules;
    plan.files = vec![("/work", 0o755, work(board, dir.path()))];
    plan
}

fn found(trace: &Trace) -> BlockFound {
    let sizes: HashMap<Device, u64> = trace.facts()["mounts"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|mount| {
            let (major, minor) = mount["device"].as_str()?.split_once(':')?;
            Some((Device::new(major.parse().ok()?, minor.parse().ok()?), mount["block_bytes"].as_u64()?))
        })
        .collect();
    let mut analysis = BlockAnalysis::new(|tid, time| trace.comm(tid, time), sizes);
    trace.for_each(&mut |event| analysis.event(event)).expect("a readable trace");
    for (loss, count) in trace.losses().iter() {
        assert_eq!(count, 0, "{}", loss.name());
    }
    analysis.finish()
}

fn load<'a>(found: &'a BlockFound, name: &str) -> &'a OwnerLoad {
    let of = |o: &&OwnerLoad| o.owner.starts_with(&format!("{name} ("));
    found.interference.owners.iter().find(of).unwrap_or_else(|| panic!("{name}: {:?}", found.interference.owners))
}

/// Two writers on a device that takes one request at a time and 100 µs for each: what the trace of both says one costs the
/// other is what one gains when it is alone.
#[test]
fn what_a_writer_costs_another_is_what_it_gains_alone() {
    let dir = TempDir::new("interference");
    for (board, kernel, scheduler) in
        [("armv7", "6.1", "none"), ("armv7", "6.1", "mq-deadline"), ("armv7", "newest", "mq-deadline")]
    {
        let mut plan = plan(board, kernel, &dir, &["null_blk nr_devices=0"]);
        plan.lines =
            null_block(&["size=64", "irqmode=2", "completion_nsec=100000", "hw_queue_depth=1", "submit_queues=1"]);
        plan.lines.extend(
            [
                &format!("write /sys/block/nullb0/queue/scheduler {scheduler}"),
                "record-start --mode ring --ring 8192 --events block:*",
                "run alone /work writes /dev/nullb0 player 0 500",
                "record-stop",
                "record-start --mode ring --ring 8192 --events block:*",
                "spawn other /work writes /dev/nullb0 logger 4096 700",
                "run both /work writes /dev/nullb0 player 0 500",
                "record-stop",
            ]
            .map(str::to_owned),
        );
        let booted = plan.boot();
        let alone = found(&booted.recording(0));
        let both = found(&booted.recording(1));
        let (a, b) = (load(&alone, "player"), load(&both, "player"));
        assert_eq!((a.bios, b.bios), (500, 500));
        assert_eq!(a.mean_behind_ns, 0, "nobody else was there: {a:?}");
        let measured = b.mean_q2c_ns as f64 - a.mean_q2c_ns as f64;
        let predicted = b.mean_behind_ns as f64 + b.mean_device_excess_ns.unwrap_or(0) as f64;
        println!(
            "{board} {kernel} {scheduler}: alone {} ns, beside the other {} ns: measured delay {measured} ns, predicted {predicted} ns ({:.2} %); it would take {} alone",
            a.mean_q2c_ns,
            b.mean_q2c_ns,
            (predicted / measured - 1.0) * 100.0,
            b.mean_alone_ns
        );
        for w in &both.interference.pairs {
            println!(
                "  {} behind {} {:?}: served {} ns, hand-over {} ns",
                w.victim, w.behind, w.stage, w.served_ns, w.handover_ns
            );
        }
        assert!(measured > 50_000.0, "the other is in the way");
        assert!((predicted / measured - 1.0).abs() <= 0.02, "predicted {predicted}, measured {measured}");
    }
}

/// Every way to write a file, and who wrote it.
#[test]
fn written_bytes_go_to_the_task_that_dirtied_them() {
    const PAGES: u64 = 64;
    let dir = TempDir::new("owners");
    for (board, kernel, mode) in [
        ("armv7", "6.1", "journal"),
        ("armv7", "5.10", "ordered"),
        ("armv7", "newest", "ordered"),
        ("x86_64", "6.1", "ordered"),
    ] {
        let mut plan = plan(board, kernel, &dir, &["null_blk nr_devices=0", "ext4"]);
        plan.packages = &["e2fsprogs"];
        plan.lines =
            null_block(&["size=64", "memory_backed=1", "irqmode=2", "completion_nsec=100000", "submit_queues=1"]);
        plan.lines.extend(
            [
                "run mkfs mkfs.ext4 -q -b 1024 -E lazy_itable_init=0,lazy_journal_init=0 /dev/nullb0",
                "mkdir /mnt",
                &format!("mount /dev/nullb0 /mnt ext4 data={mode}"),
                &format!("run old /work old /mnt {PAGES}"),
                "run sync /work sync",
                "record-start --mode ring --ring 8192 --events block,cache",
                &format!("run owners /work owners /mnt {PAGES}"),
                // Somebody else flushes what is left; a journal of data comes to its place with the unmount.
                "run flush /work sync",
                "umount /mnt",
                "record-stop",
            ]
            .map(str::to_owned),
        );
        let booted: Booted = plan.boot();
        let trace = booted.recording(0);
        let found = found(&trace);
        let o = &found.originators;
        println!(
            "{board} {kernel} data={mode}: KiB written by who asked {}, for one dirtier {}, shared {}, file system's own {}, unknown {}",
            o.written_direct_bytes / 1024,
            o.written_one_bytes / 1024,
            o.written_shared_bytes / 1024,
            o.written_kernel_bytes / 1024,
            o.written_unknown_bytes / 1024
        );
        let said = String::from_utf8(booted.step("owners").stdout.clone()).expect("text");
        let mut worst = 1.0f64;
        for line in said.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [name, bytes, pid] = words.as_slice() else { panic!("{line}") };
            let bytes: u64 = bytes.parse().expect("a number");
            let one = o.originators.iter().find(|one| one.name == format!("{name} ({pid})"));
            let one = one.unwrap_or_else(|| panic!("{name}: nothing is its own"));
            let got = if name.starts_with("r-") { one.read_bytes } else { one.written_bytes };
            println!("  {name}: {got} of {bytes}");
            worst = worst.min(got as f64 / bytes as f64);
            // What it caused beyond its data (a directory's block, an inode) is little.
            assert!(got <= bytes + bytes / 5, "{name}: {got} of {bytes}");
        }
        assert!(worst >= 0.99, "{board} {kernel} data={mode}: {worst}");
        // One page of two tasks, in blocks of 1 KiB.
        assert_eq!(o.written_shared_bytes, 4096, "{board} {kernel} data={mode}");
        assert_eq!(o.written_unknown_bytes, 0, "{board} {kernel} data={mode}");
    }
}
