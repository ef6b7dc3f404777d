//! A ring that is far too small: what was recorded is what was delivered and what was lost, by CPU.

use std::collections::BTreeMap;
use std::process::Command;

use flashscope_tests::{TempDir, flashscope, is_root, skip, stdout};
use flashscope_trace::{Loss, Trace};

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
    if !is_root() {
        return skip("recording on this host needs root");
    }
    let events = std::fs::read_to_string("/sys/kernel/tracing/available_events").unwrap_or_default();
    if !events.lines().any(|e| e == "syscalls:sys_enter_chroot") {
        return skip("this host's kernel does not trace system calls");
    }
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get()).min(4);
    let dir = TempDir::new("overrun");
    let file = dir.path().join("t.dat");
    let me = std::env::current_exe().expect("this program");
    let one = |cpu| format!("taskset -c {cpu} '{}' --exact caller --ignored >/dev/null & ", me.display());
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
