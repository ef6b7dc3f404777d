//! The flash monitor of ours (`kernel/flashmon/`) on boards: its counts against what the flash was told to do, its events
//! against the recorder's, its limits, and what it is told wrong.

use std::path::Path;

use flashscope_tests::{Booted, Plan, boards_and_kernels, events, raw, top};
use flashscope_trace::{EventKind, FlashOp, Trace, flashmon};

const PAGE: u64 = 2048;
const PAGES_PER_BLOCK: u64 = 64;
/// Pages of the image that is written: two blocks and a bit.
const IMAGE: u64 = 2 * PAGES_PER_BLOCK + 5;

/// What a step printed; it has to have gone well.
fn said(booted: &Booted, name: &str) -> String {
    let step = booted.step(name);
    let text = String::from_utf8_lossy(&step.stdout).into_owned();
    assert_eq!(step.status, Some(0), "{name}: {text}\n{}", String::from_utf8_lossy(&step.stderr));
    text
}

/// The kernel has to have had nothing to complain of.
fn quiet(booted: &Booted, what: &str) {
    let log = String::from_utf8_lossy(&booted.step("dmesg").stdout).into_owned();
    for sign in ["WARNING:", "BUG:", "Oops", "Call trace", "possible recursive locking", "blocked for more than"] {
        assert!(!log.contains(sign), "{what}: {sign} in the kernel's log:\n{log}");
    }
}

/// A number of `/proc/flashmon_status`.
fn number(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("{name}: {status}")).parse().unwrap_or_else(|_| panic!("{name}: {status}"))
}

fn image() -> Vec<u8> {
    (0..IMAGE * PAGE).map(|n| ((n * 31) >> 3) as u8).collect()
}

/// A boot with busybox's shell, and a script of tests/flashmon.
fn script(plan: &mut Plan<'_>, name: &str) {
    plan.packages = &["busybox"];
    plan.files.push(("/script", 0o755, std::fs::read(top().join("tests/flashmon").join(name)).expect("a script")));
}

/// Operation, page and name of the task, in order.
fn flash(trace: &Trace) -> Vec<(FlashOp, u64, String)> {
    let mut all = Vec::new();
    events(trace, |event| {
        if let EventKind::Flash(access) = &event.kind {
            all.push((access.op, access.page, trace.comm(event.tid, event.time).unwrap_or("?").to_owned()));
        }
    });
    all
}

#[test]
fn counts_and_events_are_those_of_the_flash_and_of_the_recorder_on_every_kernel() {
    for (board, kernel) in boards_and_kernels() {
        let mut plan = Plan::new(&board, &kernel);
        plan.parts = &[64];
        plan.modules = &["flashmon"];
        plan.packages = &["busybox"];
        plan.files = vec![("/data", 0o644, image())];
        plan.lines = [
            "record-start --mode ring",
            "write /proc/flashmon reset",
            "nand-erase 0 0 17",
            "nand-write 0 /data",
            &raw("reads", 300, PAGE, ""),
            &raw("long", 4, 16 * PAGE, ""),
            "write /proc/flashmon_log pause",
            "record-stop",
            "run log cat /proc/flashmon_log",
            "run blocks cat /proc/flashmon",
            "run status cat /proc/flashmon_status",
            "run modes ls -l /proc/flashmon /proc/flashmon_log /proc/flashmon_status /proc/flashmon_stream",
            "run dmesg dmesg",
        ]
        .map(str::to_owned)
        .to_vec();
        let booted = plan.boot();
        let status = said(&booted, "status");
        quiet(&booted, &format!("{board} {kernel}"));

        // Against what the flash was told to do.
        let reads = 300 + 4 * 16;
        for (name, expected) in [
            ("reads", reads),
            ("programs", IMAGE),
            ("erases", 17),
            ("programs_asked", IMAGE),
            ("erases_asked", 17),
            ("logged", reads + IMAGE + 17),
            ("lost", 0),
            ("misses", 0),
            ("names_lost", 0),
        ] {
            assert_eq!(number(&status, name), expected, "{board} {kernel}: {name}: {status}");
        }
        let blocks = flashmon::parse_spatial_view(Path::new("flashmon"), said(&booted, "blocks").as_bytes()).unwrap();
        assert_eq!(blocks.len(), 2048, "{board} {kernel}: a line for each block of the chip");
        assert_eq!(blocks.iter().map(|block| block.reads).sum::<u64>(), reads);
        assert_eq!(blocks.iter().map(|block| block.writes).collect::<Vec<_>>()[..4], [64, 64, 5, 0]);
        assert!(blocks.iter().enumerate().all(|(i, block)| block.erases == u64::from(i < 17)), "{blocks:?}");

        // Against the recorder, event by event.
        let path = booted.outcome.port_file().with_extension("flashmon");
        std::fs::write(&path, &booted.step("log").stdout).unwrap();
        let (ours, theirs) = (flash(&Trace::open(&path).unwrap()), flash(&booted.recording(0)));
        assert_eq!(ours.len() as u64, reads + IMAGE + 17);
        for (index, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            assert_eq!(ours, theirs, "{board} {kernel}: event {index}");
        }
        assert_eq!(ours.len(), theirs.len(), "{board} {kernel}: events");
        let modes = said(&booted, "modes");
        assert_eq!(modes.lines().filter(|line| line.starts_with("-rw-------")).count(), 4, "{modes}");
        println!("{board} {kernel}: 17 erases, {IMAGE} programs, {reads} reads: exact, and event by event the recorder's");
    }
}
