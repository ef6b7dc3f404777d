//! The flash monitor of ours (`kernel/flashmon/`) on boards: its counts against what the flash was told to do, its events
//! against the recorder's, its limits, and what it is told wrong.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use flashscope_tests::{Booted, Plan, TempDir, build_modules_like, events, nothing_lost, raw, skip, top, work};
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
/// Of these, where the agent drains the module as well while the recorder's probes see the same.
const DRAINED: [(&str, &str); 2] = [("armv7", "6.1"), ("x86_64", "newest")];

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
    for sign in [
        "WARNING:",
        "BUG:",
        "KASAN",
        "UBSAN",
        "Oops",
        "Call trace",
        "possible recursive locking",
        "blocked for more than",
    ] {
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
        plan.faults = "do_delays=0";
        plan.modules = &["flashmon"];
        plan.packages = &["busybox"];
        plan.files = vec![("/data", 0o644, image()), ("/mixed", 0o755, MIXED.into())];
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
            "run allocations cat /proc/vmallocinfo",
            "run modes ls -l /proc/flashmon /proc/flashmon_log /proc/flashmon_status /proc/flashmon_stream",
        ]
        .map(str::to_owned)
        .to_vec();
        let drained = DRAINED.contains(&(board, kernel));
        if drained {
            plan.lines.extend(drain().map(str::to_owned));
        }
        plan.lines.push("run dmesg dmesg".to_owned());
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
        is_the_models_memory(&status, &said(&booted, "allocations"));
        let modes = said(&booted, "modes");
        assert_eq!(modes.lines().filter(|line| line.starts_with("-rw-------")).count(), 4, "{modes}");
        println!(
            "{board} {kernel}: 17 erases, {IMAGE} programs, {reads} reads: exact, and event by event the recorder's"
        );
        if drained {
            is_the_recorders(&booted, &format!("{board} {kernel}"));
        }
    }
}

/// The model of kernel/flashmon/README.md, against what the module says and what the kernel gave it: whole pages.
fn is_the_models_memory(status: &str, vmallocinfo: &str) {
    let (blocks, log, tasks, buckets) = (2048, 40_000, 1024, 2048);
    let cpus = status.lines().filter(|line| line.starts_with("cpu")).count() as u64;
    let model = 12 * blocks + 16 * (log + cpus) + 24 * tasks + 4 * buckets;
    assert_eq!(number(status, "memory_bytes"), model, "{status}");
    assert_eq!(number(status, "entry_bytes"), 16, "names are on: {status}");
    let areas: Vec<u64> = vmallocinfo
        .lines()
        .filter(|line| line.contains("[flashmon]"))
        .map(|line| {
            let pages = line.split_whitespace().find_map(|word| word.strip_prefix("pages="));
            pages.unwrap_or_else(|| panic!("{line}")).parse::<u64>().expect("a number") * 4096
        })
        .collect();
    // nandsim's table of pages, a pointer each, made by init code that lay where flashmon's lies now (README).
    let tables = [4, 8].map(|pointer| 131_072 * pointer);
    let areas: Vec<u64> = areas.into_iter().filter(|area| !tables.contains(area)).collect();
    let given: u64 = areas.iter().sum();
    assert!(
        model <= given && given < model + 4096 * areas.len() as u64,
        "{given} bytes of {areas:?}, the model {model}"
    );
}

const MIXED: &str = "#!/bin/sh
dd if=/data of=/dev/mtd0 bs=2048
/flashscope/agent bench raw --mtd 0 --count 700 --length 2048
sleep 1
dd if=/dev/mtd0 of=/dev/null bs=4096 count=30
";

/// Both recorders at once: the agent drains the module while the recorder's probes see the same.
fn drain() -> [&'static str; 6] {
    [
        "nand-erase 0 0 17",
        "record-start --mode ring",
        "run flashmon /flashscope/agent record --from flashmon -o /recorded -- /bin/sh /mixed",
        "record-stop",
        "get /recorded",
        "run state cat /proc/flashmon_status",
    ]
}

/// The recording from the module, its trace.dat and its report are those of the one from tracefs.
fn is_the_recorders(booted: &Booted, on: &str) {
    said(booted, "flashmon");
    let mut files = booted.session.steps.iter().flat_map(|step| &step.files);
    let file = files.find(|file| file.path == "/recorded").expect("a stream");
    let path = booted.outcome.port_file().with_extension("recorded");
    std::fs::write(&path, booted.session.read_file(file, 64 << 20).expect("its bytes")).unwrap();
    let ours = Trace::open(&path).expect("a trace");
    let theirs = booted.recording(1);
    let (from_module, from_tracefs) = (flash(&ours), flash(&theirs));
    assert_eq!(from_module.len() as u64, IMAGE + 700 + 60, "{on}");
    for (index, (ours, theirs)) in from_module.iter().zip(&from_tracefs).enumerate() {
        assert_eq!(ours, theirs, "{on}: event {index}");
    }
    assert_eq!(from_module.len(), from_tracefs.len(), "{on}");
    nothing_lost(&ours, on);
    assert_eq!(ours.facts_json()["recording"]["source"], "flashmon");
    assert_eq!(ours.stats()["crosscheck"], theirs.stats()["crosscheck"], "{on}");
    assert_eq!(ours.facts_json()["mtd"][0]["first_page"], theirs.facts_json()["mtd"][0]["first_page"]);
    assert!(said(booted, "state").contains("state: running"), "{on}: it is left as it was found");
    // A trace.dat of it holds the same, and its report says the same.
    let reports = [("ours", &ours), ("theirs", &theirs)].map(|(name, trace)| {
        let dat = path.with_extension(format!("{name}.dat"));
        flashscope_trace::dat::write(trace, &dat).expect("a trace.dat");
        assert_eq!(flash(&Trace::open(&dat).unwrap()), from_module, "{on}: {name} as a trace.dat");
        report(&dat)
    });
    let [ours, theirs] = &reports;
    for part in REPORTED {
        assert!(!ours[part].is_null(), "{part}");
        assert_eq!(ours[part], theirs[part], "{on}: {part}");
    }
    println!("{on}: {} events, task by task the recorder's; of the reports {}", from_module.len(), REPORTED.join(", "));
}

/// What a report says of the chip; the rest is of the recording: its probes, its times, which command it ran.
const REPORTED: [&str; 6] = ["counts", "by_task", "activities", "blocks", "wear", "losses"];

/// A report without times, which are those of two probes one after the other, and calls of MTD, which the module does not log.
fn report(dat: &Path) -> serde_json::Value {
    fn strip(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Object(fields) => {
                fields.retain(|name, _| !name.ends_with("_ns") && name != "mtd_calls");
                fields.values_mut().for_each(strip);
            }
            serde_json::Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut report = flashscope_tests::report(dat);
    strip(&mut report);
    report
}

/// Page reads of each part of the cost.
const READS: u64 = 6000;

/// The modules of tests/flashmon/driver: drivers of our own, and the kernel's SPI NAND, where its sources can be had.
fn own_drivers(dir: &Path) -> Vec<(&'static str, Vec<u8>)> {
    let copy = |from: &Path, into: &Path| {
        std::fs::create_dir_all(into).expect("a directory");
        for entry in std::fs::read_dir(from).expect("sources").flatten().filter(|e| e.path().is_file()) {
            let text = std::fs::read_to_string(entry.path()).expect("text");
            // For udev; modpost of another machine's word size does not know how large an entry is.
            let lines = text.lines().filter(|line| !line.starts_with("MODULE_DEVICE_TABLE"));
            std::fs::write(into.join(entry.file_name()), lines.map(|l| format!("{l}\n")).collect::<String>())
                .expect("a copy");
        }
    };
    copy(&top().join("tests/flashmon/driver"), dir);
    let mut modules = vec![("/own.ko", "own.ko"), ("/own_two.ko", "own_two.ko"), ("/own_spi.ko", "own_spi.ko")];
    let sources = Command::new(top().join("tools/linux-source")).output().expect("tools/linux-source");
    if sources.status.success() {
        let tree = PathBuf::from(String::from_utf8(sources.stdout).expect("a path").trim());
        copy(&tree.join("drivers/mtd/nand/spi"), &dir.join("spinand"));
        std::fs::remove_file(dir.join("spinand/Makefile")).expect("the kernel's Makefile");
        modules.push(("/spinand.ko", "spinand.ko"));
    } else {
        skip(&format!("SPI NAND: {}", String::from_utf8_lossy(&sources.stderr).trim_end()));
    }
    build_modules_like("flashmon", dir);
    modules.into_iter().map(|(path, name)| (path, std::fs::read(dir.join(name)).expect("a module"))).collect()
}

/// One boot with the chip's delays: the cost of an event, durations, and what the finder chooses.
static TIMED: LazyLock<Booted> = LazyLock::new(|| {
    let dir = TempDir::new("driver");
    let mut plan = Plan::new("armv7", "6.1");
    plan.modules = &["flashmon"];
    script(&mut plan, "finder.sh");
    for (path, module) in own_drivers(dir.path()) {
        plan.files.push((path, 0o644, module));
    }
    plan.files.push(("/work", 0o755, work("armv7", "flashmon/work.c", dir.path())));
    plan.files.push(("/data", 0o644, image()));
    plan.lines = [
        &raw("warm", 200, PAGE, ""),
        "sleep 10000",
        // The same page reads untraced, with the recorder's kprobe event, and with the module.
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
        // Durations of both.
        "run unload rmmod flashmon",
        // Each of the two reads a page to choose where it probes, which the other would count.
        "run load insmod /flashscope/modules/flashmon.ko extended=1",
        "record-start --mode ring --detail duration",
        "write /proc/flashmon reset",
        "nand-erase 0 0 17",
        "nand-write 0 /data",
        &raw("timed", 50, PAGE, ""),
        "write /proc/flashmon pause",
        "record-stop",
        "run log cat /proc/flashmon_log",
        "run finder /bin/sh /script",
        "run dmesg dmesg",
    ]
    .map(str::to_owned)
    .to_vec();
    let booted = plan.boot();
    quiet(&booted, "timed");
    booted
});

#[test]
fn an_event_costs_at_most_a_third_of_the_recorders() {
    let booted = &*TIMED;
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
    let status = said(booted, "status");
    for (name, expected) in [("reads", READS), ("logged", READS), ("lost", 0), ("misses", 0), ("names_lost", 0)] {
        assert_eq!(number(&status, name), expected, "{name}: {status}");
    }
    assert!((untraced - again).abs() < 100.0, "untraced {untraced:.0} ns and {again:.0} ns");
    assert!(ours > 0.0 && ours <= recorder / 3.0, "flashmon {ours:.0} ns, the recorder {recorder:.0} ns");
}

#[test]
fn durations_are_the_recorders() {
    let booted = &*TIMED;
    let path = booted.outcome.port_file().with_extension("extended");
    std::fs::write(&path, &booted.step("log").stdout).unwrap();
    let durations = |trace: &Trace| {
        let mut all: BTreeMap<FlashOp, Vec<u64>> = BTreeMap::new();
        events(trace, |event| {
            if let EventKind::FlashDone { op, duration_ns } = event.kind {
                all.entry(op).or_default().push(duration_ns);
            }
        });
        all
    };
    let (ours, theirs) = (durations(&Trace::open(&path).unwrap()), durations(&booted.recording(1)));
    for (op, count) in [(FlashOp::Read, 50), (FlashOp::Program, IMAGE), (FlashOp::Erase, 17)] {
        let empty = Vec::new();
        let (ours, theirs) = (ours.get(&op).unwrap_or(&empty), theirs.get(&op).unwrap_or(&empty));
        println!("{op:?}: {} and {}, first {:?} and {:?} ns", ours.len(), theirs.len(), ours.first(), theirs.first());
        assert_eq!((ours.len() as u64, theirs.len() as u64), (count, count), "{op:?}");
        for (ours, theirs) in ours.iter().zip(theirs) {
            // One's probes are inside the other's, or beside them.
            assert!(ours.abs_diff(*theirs) < 12_000, "{op:?}: {ours} and {theirs} ns");
        }
    }
}

#[test]
fn the_finder_falls_back_by_itself_and_knows_spi_nand_and_chips_of_two_targets() {
    let text = said(&TIMED, "finder");
    println!("{text}");
    assert!(!text.contains("FAILED") && text.ends_with("done\n"), "{text}");
    let spi_nand = text.contains("ok own_spi auto, all blocks");
    assert_eq!(text.matches("ok ").count(), if spi_nand { 48 } else { 36 }, "{text}");
}

/// Cycles of loading and unloading: few here, 1,000 once with `FLASHSCOPE_TEST_CYCLES=1000`, then on `armv7` too, and with
/// `FLASHSCOPE_TEST_BOARD` on one of them alone. And with `FLASHSCOPE_TEST_KERNEL=DIR` on a kernel of one's own for x86-64 alone, such
/// as kernel/debug-kernel makes.
#[test]
fn what_is_told_wrong_is_refused_and_under_load_counts_are_exact_and_the_module_comes_and_goes() {
    let asked = std::env::var("FLASHSCOPE_TEST_CYCLES").ok();
    let own = std::env::var("FLASHSCOPE_TEST_KERNEL").ok();
    let cycles = asked.clone().unwrap_or_else(|| "6".to_owned());
    // One's own kernel runs in host time, where two emulated processors are two threads: QEMU then executes breakpoints of x86-64
    // that the kernel has replaced already, with any patching of code (LKML 2023-07-05, "qemu-x86_64 … still see int3").
    let mut boards = vec![("x86_64", own.as_deref().unwrap_or("newest"), if own.is_some() { 1 } else { 2 })];
    if asked.is_some() && own.is_none() {
        boards.push(("armv7", "6.1", 1));
    }
    if let Ok(only) = std::env::var("FLASHSCOPE_TEST_BOARD") {
        boards.retain(|(board, ..)| *board == only);
        assert!(!boards.is_empty(), "FLASHSCOPE_TEST_BOARD={only}: x86_64, or armv7 with FLASHSCOPE_TEST_CYCLES");
    }
    for (board, kernel, cpus) in boards {
        let dir = TempDir::new("flashmon");
        let mut plan = Plan::new(board, kernel);
        plan.cpus = cpus;
        plan.in_host_time = own.is_some();
        plan.parts = &[64, 16];
        plan.faults = "do_delays=0";
        // A kernel that checks itself does all of it many times slower.
        let boot = if own.is_some() { 3600 } else { 600 };
        plan.timeout = Duration::from_secs(boot + cycles.parse::<u64>().expect("a number of cycles") * 30);
        // A device that is no NAND, where the kernel has one.
        let modules: &[&str] = &["flashmon", "mtdram total_size=1024 erase_size=64"];
        plan.modules = if board == "x86_64" { modules } else { &modules[..1] };
        plan.files = vec![("/work", 0o755, work(board, "flashmon/work.c", dir.path()))];
        script(&mut plan, "wrong.sh");
        let load = std::fs::read(top().join("tests/flashmon/load.sh")).expect("a script");
        plan.files.push(("/load", 0o755, load));
        let chip =
            "first_id_byte=0x2c second_id_byte=0xda third_id_byte=0x90 fourth_id_byte=0x95 parts=32,32,32 do_delays=0";
        plan.lines = vec![
            format!("run wrong /bin/sh /script {chip}"),
            format!("run load /bin/sh /load {cycles}"),
            "run dmesg dmesg".to_owned(),
        ];
        let booted = plan.boot();
        let text = said(&booted, "wrong");
        println!("{board} {kernel}:\n{text}");
        assert!(!text.contains("FAILED") && text.ends_with("done\n"), "{text}");
        assert_eq!(text.matches("refused ").count(), 24, "{text}");
        assert_eq!(text.matches("ok ").count(), 28, "{text}");
        let text = said(&booted, "load");
        assert!(!text.contains("FAILED") && text.contains(&format!("cycles: {cycles}\nfailures: 0")), "{text}");
        assert_eq!(text.matches("exact").count(), 16, "{text}");
        quiet(&booted, &format!("{board} {kernel}: {text}"));
        println!("{board} {kernel}, {cpus} CPU: {}", text.replace('\n', "; "));
    }
}

/// The kernel's own probes on its command line, from before the chip is there. Without `ftrace=` the buffer has its smallest size
/// until somebody opens tracefs (kernel/trace/trace.c, ring_buffer_expanded).
const BOOT_PROBES: &str = "kprobe_event=p:boot/read,nand_read_page_op,page=%si:u32;\
                           p:boot/program,nand_prog_page_op,page=%si:u32;\
                           p:boot/program_begin,nand_prog_page_begin_op,page=%si:u32;\
                           p:boot/erase,nand_erase_op,page=%si:u32 ftrace=nop trace_buf_size=8M trace_clock=mono";

/// Operation and address of each event, from lines of a probe's name and a page.
fn boot_trace(text: &str) -> Vec<(char, u64)> {
    let events = text.lines().map(|line| {
        let (name, page) = line.split_once(' ').unwrap_or_else(|| panic!("{line}"));
        let letter = match name {
            "read" => 'R',
            "erase" => 'E',
            _ => 'W',
        };
        (letter, page.parse().unwrap_or_else(|_| panic!("{line}")))
    });
    events.collect()
}

/// On a kernel that has flashmon and nandsim built in, which `kernel/debug-kernel DIR --flashmon` makes: once, with
/// `FLASHSCOPE_TEST_BOOT_KERNEL=DIR/boot`. UBI attaches the chip before there is a process, and UBIFS is mounted on it.
#[test]
fn built_in_it_records_from_the_first_access_of_the_boot() {
    let Ok(kernel) = std::env::var("FLASHSCOPE_TEST_BOOT_KERNEL") else {
        return skip(
            "FLASHSCOPE_TEST_BOOT_KERNEL is not set: a kernel with flashmon built in is made in some 20 minutes",
        );
    };
    let mut plan = Plan::new("x86_64", &kernel);
    plan.no_nand = true;
    plan.packages = &["busybox"];
    script(&mut plan, "boot_trace.sh");
    plan.cmdline =
        format!("nandsim.id_bytes=0x2c,0xda,0x90,0x95 nandsim.do_delays=0 ubi.mtd=0 flashmon.log=200000 {BOOT_PROBES}");
    plan.lines = [
        "ubi-mkvol 0 data 8388608",
        "mkdir /mnt",
        "mount ubi0:data /mnt ubifs -",
        "create /mnt/file 400000 random 1",
        "umount /mnt",
        "mount ubi0:data /mnt ubifs -",
        "run read dd if=/mnt/file of=/dev/null",
        // Both are to have the same end.
        "settle ubi_bgt 1000 60000",
        "write /proc/flashmon pause",
        "write /sys/kernel/tracing/tracing_on 0",
        "run log cat /proc/flashmon_log",
        "run status cat /proc/flashmon_status",
        "run trace /bin/sh /script",
        "run probes cat /sys/kernel/tracing/kprobe_profile",
        "run dmesg dmesg",
    ]
    .map(str::to_owned)
    .to_vec();
    let booted = plan.boot();
    let (log, status, dmesg) = (said(&booted, "log"), said(&booted, "status"), said(&booted, "dmesg"));
    println!(
        "{}",
        dmesg.lines().filter(|l| l.contains("flashmon:") || l.contains("ubi0: attach")).collect::<Vec<_>>().join("\n")
    );
    quiet(&booted, "built in");
    let mut first = None;
    let ours: Vec<(char, u64)> = log
        .lines()
        .map(|line| {
            let fields: Vec<&str> = line.split(';').collect();
            first.get_or_insert_with(|| (fields[0].parse::<f64>().expect("a time"), fields[3].to_owned()));
            (fields[1].chars().next().expect("a letter"), fields[2].parse().expect("an address"))
        })
        .collect();
    let theirs = boot_trace(&said(&booted, "trace"));
    let each = |events: &[(char, u64)]| ['R', 'W', 'E'].map(|l| events.iter().filter(|event| event.0 == l).count());
    println!("{:?} of flashmon, {:?} of the kernel's trace\n{}", each(&ours), each(&theirs), said(&booted, "probes"));
    assert!(ours.len() <= theirs.len(), "flashmon saw more than the kernel's own probes");
    let before = theirs.len() - ours.len();
    assert_eq!(ours, theirs[before..], "the kernel's own boot trace");
    // What came before: nand_scan() looks at two pages of each block before there is an MTD device, and the finder tries its probes.
    assert!((4096..=4100).contains(&before) && theirs[..before].iter().all(|(letter, _)| *letter == 'R'), "{before}");
    assert_eq!(number(&status, "lost"), 0, "{status}");
    let (time, task) = first.expect("events");
    let user_space = booted.step("read").begin_ns.expect("a begin");
    assert!(task.starts_with("swapper") && time < user_space as f64 / 1e9, "{task} {time}");
    let [reads, programs, erases] = each(&ours);
    println!(
        "{} events from {time:.6} s on ({task}), {before} reads of nand_scan() and the trial before: {reads} reads, {programs} programs, {erases} erases, as the kernel's own trace has them",
        ours.len()
    );
}
