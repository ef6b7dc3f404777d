//! A hundred stalls of a device on a board, and the flight recorder's capture of each: the stall, the five seconds before it, and no
//! losses. Guest time. `stalls/stall.c` makes the stalls and logs their times.

use flashscope_tests::{Booted, Plan, TempDir, work};
use flashscope_trace::{Trace, Value as Field};
use serde_json::{Value, json};

const BOARD: &str = "armv7-blk";
const KERNEL: &str = "6.1";
const STALLS: usize = 100;
const BEFORE_NS: u64 = 5_000_000_000;
const FROZEN_NS: u64 = 500_000_000;
const DIRECTORY: &str = "/tmp/captures";

/// The contents of one capture.
struct Capture {
    bytes: u64,
    lost: u64,
    first_ns: u64,
    last_ns: u64,
    /// Issue time and duration of the device's longest request.
    issued_ns: u64,
    took_ns: u64,
    memory_kib: u64,
}

fn boot() -> Booted {
    let dir = TempDir::new("stalls");
    let mut plan = Plan::new(BOARD, KERNEL);
    plan.modules = &["loop"];
    plan.packages = &["busybox-static"];
    plan.only_packages = &["busybox"];
    plan.files.push(("/stall", 0o755, work("armv7", "../bench/stalls/stall.c", dir.path())));
    plan.files.push(("/memory.sh", 0o755, include_bytes!("stalls/memory.sh").to_vec()));
    let record = format!(
        "/flashscope/agent record --name flight --events block --device loop0 --before 5 --after 2 --trigger d2c>300ms \
         --captures {} --directory {DIRECTORY}",
        2 * STALLS
    );
    plan.lines = [
        "create /mnt/upper 4194304 zero 1",
        "run loop busybox losetup /dev/loop0 /mnt/upper",
        &format!("spawn flight {record}"),
        "sleep 10000",
        "run memory busybox sh /memory.sh",
        &format!("run stalls /stall /dev/loop0 /mnt {STALLS}"),
        "run memory-after busybox sh /memory.sh",
        "run stop /flashscope/agent ctl stop flight",
        &format!("run pack busybox tar -cf /tmp/captures.tar -C {DIRECTORY} ."),
        "get /tmp/captures.tar",
    ]
    .map(str::to_owned)
    .to_vec();
    plan.boot()
}

fn look(path: &std::path::Path) -> Capture {
    let trace = Trace::open(path).unwrap_or_else(|error| panic!("{error}"));
    let loop0 = 7 << 20;
    let (mut first, mut last, mut longest) = (u64::MAX, 0, (0, 0));
    let mut open = std::collections::BTreeMap::new();
    let mut each = |record: &flashscope_trace::Record| {
        let (Some(Field::Unsigned(dev)), Some(Field::Unsigned(sector))) = (record.get("dev"), record.get("sector"))
        else {
            return;
        };
        if dev != loop0 {
            return;
        }
        first = first.min(record.time.0);
        last = last.max(record.time.0);
        match &*record.schema.name {
            "block_rq_issue" => drop(open.insert(sector, record.time.0)),
            "block_rq_complete" => {
                if let Some(issued) = open.remove(&sector) {
                    longest = longest.max((record.time.0 - issued, issued));
                }
            }
            _ => {}
        }
    };
    trace.for_each_record(&mut each).expect("a readable capture");
    Capture {
        bytes: std::fs::metadata(path).expect("a capture").len(),
        lost: trace.losses().iter().map(|(_, count)| count).sum(),
        first_ns: first,
        last_ns: last,
        issued_ns: longest.1,
        took_ns: longest.0,
        memory_kib: trace.facts_json()["recording"]["trigger"]["memory_kib"].as_u64().expect("memory"),
    }
}

pub fn run() -> Value {
    println!(
        "\n{STALLS} stalls of {} ms on {BOARD}, Linux {KERNEL}, and the flight recorder's captures",
        FROZEN_NS / 1_000_000
    );
    let booted = boot();
    let text = String::from_utf8_lossy(&booted.step("stalls").stdout).into_owned();
    let numbers = |line: &str| -> Vec<u64> { line.split(' ').map(|word| word.parse().expect("a time")).collect() };
    let stalls: Vec<Vec<u64>> = text.lines().map(numbers).collect();
    let file = booted.session.steps.iter().flat_map(|step| &step.files).find(|file| file.path.ends_with(".tar"));
    let dir = TempDir::new("captures");
    let tar = dir.path().join("captures.tar");
    let bytes = booted.session.read_file(file.expect("captures"), 512 << 20).expect("a whole file");
    std::fs::write(&tar, bytes).expect("a file");
    flashscope_tests::stdout(std::process::Command::new("tar").arg("-xf").arg(&tar).arg("-C").arg(dir.path()));
    let mut paths: Vec<_> =
        std::fs::read_dir(dir.path()).expect("captures").flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "stream"));
    paths.sort();
    let captures: Vec<Capture> = paths.iter().map(|path| look(path)).collect();
    let of = |stall: &[u64]| {
        captures
            .iter()
            .filter(|one| (stall[0]..stall[1]).contains(&(one.issued_ns + one.took_ns / 2)))
            .collect::<Vec<_>>()
    };
    let (mut with, mut whole) = (0, 0);
    for stall in &stalls {
        let found = of(stall);
        let good = |one: &&Capture| one.took_ns + 25_000_000 >= FROZEN_NS;
        with += usize::from(found.len() == 1 && found.iter().all(good));
        // The writer writes every 20 ms, so the first kept write may be this much later.
        whole += usize::from(found.iter().any(|one| one.first_ns <= one.issued_ns - BEFORE_NS + 25_000_000));
    }
    let lost: u64 = captures.iter().map(|one| one.lost).sum();
    let (armed, after) = (booted.json("memory"), booted.json("memory-after"));
    let told = captures.first().map_or(0, |one| one.memory_kib);
    println!(
        "  {} captures: {with} stalls in one capture each, {whole} with 5 s before; {lost} losses",
        captures.len()
    );
    println!(
        "  memory: {told} KiB told; rings {} KiB, processes {} KiB, {} KiB after",
        armed["rings_kib"], armed["resident_kib"], after["resident_kib"]
    );
    json!({
        "method": "a loop device's file system is frozen for 500 ms every 9 s while a program writes 4 KiB to the device every 20 ms; a stall \
                   counts where exactly one capture has a request of that length in it",
        "board": BOARD, "kernel": KERNEL, "stalls": stalls.len(), "captured": with, "with_5_s_before": whole, "losses": lost,
        "memory": {"told_kib": told, "armed": armed, "after": after},
        "captures": captures.iter().map(|one| json!({
            "bytes": one.bytes, "first_ns": one.first_ns, "issued_ns": one.issued_ns, "took_ns": one.took_ns,
            "last_ns": one.last_ns, "lost": one.lost,
        })).collect::<Vec<_>>(),
        "frozen_and_thawed_ns": stalls,
    })
}
