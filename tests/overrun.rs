//! A ring that is far too small: what was recorded is what was delivered and what was lost, by CPU.

use std::collections::BTreeMap;
use std::process::Command;

use flashscope_tests::{Plan, TempDir, cannot_record, flashscope, skip, stdout};
use flashscope_trace::{EventKind, FlashOp, Loss, Trace};

/// Calls on each CPU: twenty times what a ring of 64 KiB holds.
const CALLS: u64 = 40_000;

/// The other process: so many calls of a system call that nothing else on a machine makes.
#[test]
#[ignore = "the traced process of the other test"]
fn caller() {
    let Ok(calls) = std::env::var("FLASHSCOPE_OVERRUN_CALLS") else { return };
    for _ in 0..calls.parse().expect("a number") {
        assert!(std::os::unix::fs::chroot("/nonexistent").is_err());
    }
}

#[test]
fn recorded_is_delivered_and_lost_on_every_cpu_of_this_host() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    let events = std::fs::read_to_string("/sys/kernel/tracing/available_events").unwrap_or_default();
    if !events.lines().any(|e| e == "syscalls:sys_enter_chroot") {
        return skip("this host's kernel does not trace system calls");
    }
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get()).min(4);
    let dir = TempDir::new("overrun");
    let file = dir.path().join("t.dat");
    let me = std::env::current_exe().expect("this program");
    let one = |cpu| format!("taskset -c {cpu} '{}' --exact overrun::caller --ignored >/dev/null & ", me.display());
    let script: String = (0..cpus).map(one).chain(["wait".to_owned()]).collect();
    let mut record: Command = flashscope();
    record.env("FLASHSCOPE_OVERRUN_CALLS", CALLS.to_string());
    record.args(["record", "-q", "--events", "syscalls:sys_enter_chroot", "--mode", "ring", "--ring", "64K", "-o"]);
    stdout(record.arg(&file).args(["--", "sh", "-c", &script]));

    let trace = Trace::open(&file).expect("a trace.dat");
    let mut delivered = BTreeMap::<u64, u64>::new();
    trace
        .for_each_record(&mut |r| {
            if r.buffer.is_empty() {
                assert_eq!(r.schema.name, "sys_enter_chroot");
                *delivered.entry(r.cpu.into()).or_default() += 1;
            }
        })
        .expect("readable");
    let mut lost_in_all = 0;
    let counts = trace.stats()["instances"][0]["cpu"].as_array().expect("statistics by CPU").clone();
    for cpu in 0..cpus as u64 {
        let stats = counts.iter().find(|c| c["cpu"] == cpu).expect("this CPU's statistics");
        let n = |key: &str| stats[key].as_u64().unwrap_or(0);
        let lost = n("overrun") + n("dropped") + n("entries");
        let seen = delivered.get(&cpu).copied().unwrap_or(0);
        println!("CPU {cpu}: {CALLS} recorded = {seen} delivered + {lost} lost");
        assert_eq!(seen + lost, CALLS, "CPU {cpu}: {stats}");
        assert!(seen > 0 && lost > CALLS / 2, "CPU {cpu}: a ring of 64 KiB cannot hold {CALLS} events: {stats}");
        assert_eq!(n("read"), seen, "CPU {cpu}: what the kernel gave is what the trace has");
        lost_in_all += lost;
    }
    let losses = trace.losses();
    let named = [Loss::EventsOverwritten, Loss::EventsDropped, Loss::EventsNotDrained].map(|l| losses.get(l));
    // The ring of task names loses nothing here, so the losses by name are those of the CPUs.
    assert_eq!(named.iter().sum::<u64>(), lost_in_all, "{named:?}");
    assert_eq!(losses.get(Loss::EventsNotDelivered), 0);
}

/// Pages that each CPU of a board reads: more than twice what its ring of 8 KiB holds.
const READS: [u64; 2] = [1_500, 2_000];

/// One process on each CPU reads whole pages of its own partition, so that every event tells whose it is. `bench raw` says how many
/// it read; the kernel's statistics and the events have to add up to that on each CPU, however the ring is read.
fn board_that_overruns(board: &str, kernel: &str) {
    const BLOCKS: u64 = 128;
    let read = |cpu: usize| {
        let count = READS[cpu];
        format!(
            "busybox taskset {} /flashscope/agent bench raw --mtd {cpu} --count {count} --length 2048 > /tmp/{cpu}",
            1 << cpu
        )
    };
    let script = format!("{} & {} & wait\ncat /tmp/0 /tmp/1\n", read(0), read(1));
    let mut plan = Plan::new(board, kernel);
    plan.cpus = 2;
    plan.parts = &[BLOCKS, BLOCKS];
    plan.packages = &["busybox-static"];
    plan.files.push(("/both.sh", 0o755, script.into_bytes()));
    // The drain timer of a stream comes too late by far, and what it finds is not all there was.
    let modes = ["--mode ring --ring 8", "--mode stream --ring 8 --interval-ms 60000"];
    for (at, mode) in modes.iter().enumerate() {
        plan.lines.push(format!("record-start --events flash {mode}"));
        plan.lines.push(format!("run both{at} busybox sh /both.sh"));
        plan.lines.push("record-stop".to_owned());
    }
    let booted = plan.boot();
    for (at, mode) in modes.iter().enumerate() {
        let step = booted.step(&format!("both{at}"));
        let said: Vec<serde_json::Value> = String::from_utf8_lossy(&step.stdout)
            .lines()
            .map(|line| serde_json::from_str(line).expect("what bench raw prints"))
            .collect();
        let trace = booted.recording(at);
        let mut delivered = BTreeMap::<u64, u64>::new();
        trace
            .for_each(&mut |event| {
                let EventKind::Flash(access) = &event.kind else { return };
                assert_eq!(access.op, FlashOp::Read);
                // Partitions follow one another on the chip; 64 pages a block.
                assert_eq!(access.page / (BLOCKS * 64), u64::from(event.cpu), "a process ran where it was not to");
                *delivered.entry(event.cpu.into()).or_default() += 1;
            })
            .expect("readable");
        let counts = trace.stats()["instances"][0]["cpu"].as_array().expect("statistics by CPU").clone();
        let mut lost_in_all = 0;
        for (cpu, reads) in READS.into_iter().enumerate() {
            assert_eq!(said[cpu]["pages_touched"], reads, "{said:?}");
            let stats = counts.iter().find(|c| c["cpu"] == cpu).expect("this CPU's statistics");
            let n = |key: &str| stats[key].as_u64().unwrap_or(0);
            let lost = n("overrun") + n("dropped") + n("entries");
            let seen = delivered.get(&(cpu as u64)).copied().unwrap_or(0);
            println!("{board}, {kernel}, {mode}, CPU {cpu}: {reads} recorded = {seen} delivered + {lost} lost");
            assert_eq!(seen + lost, reads, "{mode}, CPU {cpu}: {stats}");
            assert!(seen > 0 && lost > reads / 2, "{mode}, CPU {cpu}: a ring of 8 KiB cannot hold {reads}: {stats}");
            lost_in_all += lost;
        }
        let losses = trace.losses();
        let named = [Loss::EventsOverwritten, Loss::EventsDropped, Loss::EventsNotDrained].map(|l| losses.get(l));
        assert_eq!(named.iter().sum::<u64>(), lost_in_all, "{mode}: {named:?}");
        assert_eq!(losses.get(Loss::EventsNotDelivered) + losses.get(Loss::ProbeMisses), 0, "{mode}");
    }
}

#[test]
fn recorded_is_delivered_and_lost_on_every_cpu_of_a_board() {
    board_that_overruns("armv7", "6.1");
    board_that_overruns("x86_64", "6.12");
}
