//! The flash monitor of ours (`kernel/flashmon/`) on boards: its counts against what the flash was told to do, its events
//! against the recorder's, its limits, and what it is told wrong.

use std::path::Path;

use flashscope_tests::{Booted, Plan, TempDir, events, raw, top, work};
use flashscope_trace::{EventKind, FlashOp, Trace, flashmon};

const PAGE: u64 = 2048;
const PAGES_PER_BLOCK: u64 = 64;
/// Pages of the image that is written: two blocks and a bit.
const IMAGE: u64 = 2 * PAGES_PER_BLOCK + 5;

/// Where it is built and run: every kernel on 32-bit ARM, and the default and the newest one on x86-64.
const BOARDS: [(&str, &str); 6] = [
    ("armv7", "5.10"),
    ("armv7", "6.1"),
    ("armv7", "6.12"),
    ("armv7", "newest"),
    ("x86_64", "6.1"),
    ("x86_64", "newest"),
];

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
    for (board, kernel) in BOARDS {
        let mut plan = Plan::new(board, kernel);
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
        println!(
            "{board} {kernel}: 17 erases, {IMAGE} programs, {reads} reads: exact, and event by event the recorder's"
        );
    }
}

/// In one boot: the same page reads untraced, with the recorder's kprobe event, and with the module.
#[test]
fn an_event_costs_at_most_a_third_of_the_recorders() {
    const READS: u64 = 6000;
    let mut plan = Plan::new("armv7", "6.1");
    plan.packages = &["busybox"];
    plan.modules = &["flashmon"];
    plan.lines = [
        &raw("warm", 200, PAGE, ""),
        "settle cryptomgr_test 200 20000",
        "sleep 10000",
        "write /proc/flashmon stop",
        "sleep 1000",
        &raw("untraced", READS, PAGE, ""),
        "record-start --mode ring",
        &raw("recorder", READS, PAGE, ""),
        "record-stop",
        "write /proc/flashmon start",
        "write /proc/flashmon reset",
        "sleep 1000",
        &raw("flashmon", READS, PAGE, ""),
        "run status cat /proc/flashmon_status",
        "write /proc/flashmon stop",
        "sleep 1000",
        &raw("untraced-again", READS, PAGE, ""),
        "run dmesg dmesg",
    ]
    .map(str::to_owned)
    .to_vec();
    let booted = plan.boot();
    quiet(&booted, "cost");
    let interval = |name: &str| {
        let measured = &booted.json(name)["measured"];
        (measured["end_ns"].as_u64().unwrap() - measured["begin_ns"].as_u64().unwrap()) as f64 / READS as f64
    };
    let page = booted.json("untraced")["total_ns"].as_u64().unwrap() as f64 / READS as f64;
    let (untraced, again) = (interval("untraced"), interval("untraced-again"));
    let (recorder, ours) = (interval("recorder") - untraced.min(again), interval("flashmon") - untraced.min(again));
    println!(
        "an event: the recorder's {recorder:.0} ns, flashmon's {ours:.0} ns ({:.2} of it, {:.3} % of a page read of {page:.0} ns); untraced twice: {:.0} ns apart",
        ours / recorder,
        100.0 * ours / page,
        (untraced - again).abs()
    );
    let status = said(&booted, "status");
    for (name, expected) in [("reads", READS), ("logged", READS), ("lost", 0), ("misses", 0), ("names_lost", 0)] {
        assert_eq!(number(&status, name), expected, "{name}: {status}");
    }
    assert!((untraced - again).abs() < 100.0, "untraced {untraced:.0} ns and {again:.0} ns");
    assert!(ours > 0.0 && ours <= recorder / 3.0, "flashmon {ours:.0} ns, the recorder {recorder:.0} ns");
}

/// Cycles of loading and unloading: few here, 1,000 once with `FLASHSCOPE_TEST_CYCLES=1000`.
#[test]
fn under_load_counts_are_exact_and_the_module_comes_and_goes() {
    let cycles = std::env::var("FLASHSCOPE_TEST_CYCLES").unwrap_or_else(|_| "6".to_owned());
    for (board, kernel, cpus) in [("armv7", "6.1", 1), ("x86_64", "newest", 2)] {
        let dir = TempDir::new("flashmon");
        let mut plan = Plan::new(board, kernel);
        plan.cpus = cpus;
        plan.parts = &[32, 32, 32];
        plan.faults = "do_delays=0";
        plan.modules = &["flashmon"];
        plan.files = vec![("/work", 0o755, work(board, "flashmon/work.c", dir.path()))];
        script(&mut plan, "load.sh");
        plan.lines = vec![format!("run script /bin/sh /script {cycles}"), "run dmesg dmesg".to_owned()];
        let booted = plan.boot();
        let text = said(&booted, "script");
        quiet(&booted, &format!("{board} {kernel}: {text}"));
        assert!(!text.contains("FAILED") && text.contains(&format!("cycles: {cycles}\nfailures: 0")), "{text}");
        assert_eq!(text.matches("exact").count(), 16, "{text}");
        println!("{board} {kernel}, {cpus} CPU: {}", text.replace('\n', "; "));
    }
}

#[test]
fn what_is_told_wrong_is_refused_and_what_goes_wrong_is_survived() {
    for (board, kernel) in [("armv7", "6.1"), ("x86_64", "newest")] {
        let mut plan = Plan::new(board, kernel);
        plan.parts = &[64, 16];
        plan.faults = "do_delays=0";
        // A device that is no NAND, where the kernel has one.
        let modules: &[&str] = &["flashmon", "mtdram total_size=1024 erase_size=64"];
        plan.modules = if board == "x86_64" { modules } else { &modules[..1] };
        script(&mut plan, "wrong.sh");
        let chip =
            "first_id_byte=0x2c second_id_byte=0xda third_id_byte=0x90 fourth_id_byte=0x95 parts=64,16 do_delays=0";
        plan.lines = vec![format!("run script /bin/sh /script {chip}"), "run dmesg dmesg".to_owned()];
        let booted = plan.boot();
        let text = said(&booted, "script");
        println!("{board} {kernel}:\n{text}");
        quiet(&booted, &format!("{board} {kernel}"));
        assert!(!text.contains("FAILED") && text.ends_with("done\n"), "{text}");
        assert_eq!(text.matches("refused ").count(), 24, "{text}");
        assert_eq!(text.matches("ok ").count(), 28, "{text}");
    }
}

/// One boot, both recorders: the agent drains the module while the recorder's probes see the same.
#[test]
fn a_recording_from_the_module_is_the_one_from_tracefs() {
    for (board, kernel) in [("armv7", "6.1"), ("x86_64", "newest")] {
        let mut plan = Plan::new(board, kernel);
        plan.parts = &[64];
        plan.faults = "do_delays=0";
        plan.packages = &["busybox"];
        plan.modules = &["flashmon"];
        plan.files = vec![
            ("/data", 0o644, image()),
            (
                "/mixed",
                0o755,
                b"#!/bin/sh\ndd if=/data of=/dev/mtd0 bs=2048\n/flashscope/agent bench raw --mtd 0 --count 700 --length 2048\nsleep 1\ndd if=/dev/mtd0 of=/dev/null bs=4096 count=30\n".to_vec(),
            ),
        ];
        plan.lines = [
            "nand-erase 0 0 17",
            "record-start --mode ring",
            "run flashmon /flashscope/agent record --from flashmon -o /recorded -- /bin/sh /mixed",
            "record-stop",
            "get /recorded",
            "run state cat /proc/flashmon_status",
            "run dmesg dmesg",
        ]
        .map(str::to_owned)
        .to_vec();
        let booted = plan.boot();
        quiet(&booted, "recording");
        said(&booted, "flashmon");
        let mut files = booted.session.steps.iter().flat_map(|step| &step.files);
        let file = files.find(|file| file.path == "/recorded").expect("a stream");
        let path = booted.outcome.port_file().with_extension("recorded");
        std::fs::write(&path, booted.session.read_file(file, 64 << 20).expect("its bytes")).unwrap();
        let ours = Trace::open(&path).expect("a trace");
        let theirs = booted.recording(0);
        let (from_module, from_tracefs) = (flash(&ours), flash(&theirs));
        assert_eq!(from_module.len() as u64, IMAGE + 700 + 60, "{board} {kernel}");
        for (index, (ours, theirs)) in from_module.iter().zip(&from_tracefs).enumerate() {
            assert_eq!(ours, theirs, "{board} {kernel}: event {index}");
        }
        assert_eq!(from_module.len(), from_tracefs.len(), "{board} {kernel}");
        for (loss, count) in ours.losses().iter() {
            assert_eq!(count, 0, "{board} {kernel}: {}", loss.name());
        }
        assert_eq!(ours.facts()["recording"]["source"], "flashmon");
        assert_eq!(ours.stats()["crosscheck"], theirs.stats()["crosscheck"], "{board} {kernel}");
        assert_eq!(ours.facts()["mtd"][0]["first_page"], theirs.facts()["mtd"][0]["first_page"]);
        // A trace.dat of it holds the same.
        let dat = path.with_extension("dat");
        flashscope_trace::dat::write(&ours, &dat).expect("a trace.dat");
        assert_eq!(flash(&Trace::open(&dat).unwrap()), from_module, "{board} {kernel}: as a trace.dat");
        assert!(said(&booted, "state").contains("state: running"), "it is left as it was found");
        println!("{board} {kernel}: {} events, task by task the recorder's", from_module.len());
    }
}
