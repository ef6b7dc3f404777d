//! One run on a board, recorded five ways at once: what each recording carries is the same in all.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use flashscope_tests::{Plan, TempDir, flashscope, null_block, null_block_device, skip, stdout, top, work};
use serde_json::Value;

use crate::block_io::{Btt, btt_of_dump};

/// With one, a board's time is that of its instructions, and recorders stamp an event a few µs apart.
const CPUS: u32 = 1;

fn record(dir: &Path) {
    let mut plan = Plan::new("armv7", "6.1");
    plan.no_nand = true;
    plan.cpus = CPUS;
    plan.modules = &["null_blk nr_devices=0", "ext4"];
    plan.packages = &["blktrace", "busybox-static", "trace-cmd", "e2fsprogs", "linux-perf"];
    // blktrace's package depends on Python for a plotter.
    plan.only_packages = &["blktrace", "busybox", "trace-cmd", "e2fsprogs", "linux-perf", "lib", "zlib1g"];
    plan.files = vec![
        ("/work", 0o755, work("armv7", "block_io/work.c", dir)),
        ("/record.sh", 0o755, std::fs::read(top().join("tests/five_ways/record.sh")).expect("the script")),
    ];
    let device = ["memory_backed=1", "irqmode=2", "completion_nsec=100000", "submit_queues=1", "hw_queue_depth=4"];
    let settings: Vec<&str> = device.into_iter().chain(["size=64", "cache_size=1"]).collect();
    plan.lines = null_block(&settings);
    plan.lines.extend(null_block_device("nullb1", &settings));
    plan.lines.extend(
        [
            "run mkfs mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 /dev/nullb0",
            "mkdir /mnt",
            "mount /dev/nullb0 /mnt ext4 noinit_itable,no_prefetch_block_bitmaps",
            "run sync /work sync",
            // What the mount has left to do would be in some recordings and not in others.
            "sleep 2000",
            "record-start --mode ring --ring 8192 --events block",
            "run record busybox sh /record.sh",
            "record-stop",
            "get /out/five.dat",
            "get /out/five.trace",
            "get /out/perf.txt",
        ]
        .map(str::to_owned),
    );
    for device in ["nullb0", "nullb1"] {
        plan.lines.extend((0..CPUS).map(|cpu| format!("get /out/{device}.blktrace.{cpu}")));
    }
    let booted = plan.boot();
    assert_eq!(booted.step("record").status, Some(0), "{}", String::from_utf8_lossy(&booted.step("record").stderr));
    for file in booted.session.steps.iter().flat_map(|step| &step.files) {
        let bytes = booted.session.read_file(file, 64 << 20).expect("a whole file");
        std::fs::write(dir.join(file.path.rsplit('/').next().expect("a name")), bytes).expect("a temporary directory");
    }
    std::fs::copy(booted.outcome.port_file(), dir.join("own.port")).expect("a copy");
}

/// What `report --json` says of these files.
fn report(dir: &Path, files: &[&str]) -> Value {
    let said = flashscope_tests::json(flashscope().current_dir(dir).args(["report", "--json"]).args(files));
    for loss in said["losses"].as_array().expect("losses") {
        assert_eq!(loss["count"], 0, "{files:?}: {loss}");
    }
    said
}

/// A group's name, as all recordings have it: blktrace notes a task's name once, perhaps before the task gives itself another;
/// /proc adds to a worker's name what it does just now. A task is known by its number.
fn group_name(group: &Value) -> String {
    let (by, name) = (group["by"].as_str().expect("a kind"), group["name"].as_str().expect("a name"));
    let tid = name.strip_suffix(')').and_then(|name| name.rsplit_once(" (")).map(|(_, tid)| tid);
    match tid.filter(|tid| by == "owner" && tid.bytes().all(|byte| byte.is_ascii_digit())) {
        Some(tid) => format!("owner {tid}"),
        None => format!("{by} {name}"),
    }
}

/// The names of the tasks among the owners.
fn owners(said: &Value) -> Vec<&str> {
    let groups = said["block"]["groups"].as_array().expect("groups").iter();
    let names = groups.filter(|group| group["by"] == "owner").map(|group| group["name"].as_str().expect("a name"));
    let mut names: Vec<&str> = names.filter(|name| !name.starts_with("kworker/")).collect();
    names.sort_unstable();
    names
}

fn groups(said: &Value) -> BTreeMap<String, &Value> {
    let groups = said["block"]["groups"].as_array().expect("groups");
    groups.iter().map(|group| (group_name(group), group)).collect()
}

/// The same bios, bytes, groups (owners among them) and stages; each mean within `slack` nanoseconds and this share.
fn same(what: &str, ours: &Value, theirs: &Value, slack: u64, share: f64) {
    let counts = ["unit", "bios_queued", "bios_completed", "parts", "requeues", "unfinished", "given_up", "unmatched"];
    for count in counts {
        let of = |said: &Value| said["block"]["stages"][count].clone();
        assert_eq!(of(ours), of(theirs), "{what}: {count}");
    }
    let (ours, theirs) = (groups(ours), groups(theirs));
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "{what}");
    for (name, ours) in &ours {
        let theirs = theirs[name];
        for count in ["bios", "bytes"] {
            assert_eq!(ours[count], theirs[count], "{what}: {name}: {count}");
        }
        let stages = |group: &Value| group["stages"].as_array().expect("stages").clone();
        for (a, b) in stages(ours).iter().zip(stages(theirs)) {
            let what = format!("{what}: {name}: {}", a["stage"]);
            assert_eq!(a["ns"]["n"], b["ns"]["n"], "{what}: n");
            let mean = |stage: &Value| stage["ns"]["mean"].as_u64().expect("a mean");
            let (a, b) = (mean(a), mean(&b));
            let most = slack + (a as f64 * share) as u64;
            // Of two or three, one that a recorder was late for is much.
            if ours["bios"].as_u64() >= Some(20) {
                assert!(a.abs_diff(b) <= most, "{what}: {a} and {b} ns");
            }
        }
    }
}

/// Bios and bytes; flushes without data are no bios of btt's.
fn same_as_btt(said: &Value, btt: &Btt) {
    let groups = groups(said);
    let sum = |wanted: &dyn Fn(&str) -> bool| {
        let groups = groups.iter().filter(|(name, _)| wanted(name));
        let of = |group: &Value, key: &str| group[key].as_u64().expect(key);
        groups.fold((0, 0), |sum, (_, group)| (sum.0 + of(group, "bios"), sum.1 + of(group, "bytes")))
    };
    let (all, flushes) =
        (sum(&|name| name == "all all"), sum(&|name| name.starts_with("device ") && name.ends_with(" flushes")));
    println!("all {all:?}, flushes {flushes:?}; btt: {} bios, {} sectors", btt.queued, btt.sectors);
    assert_eq!((btt.queued, btt.sectors * 512), (all.0 - flushes.0, all.1));
}

#[test]
fn one_run_recorded_five_ways_is_one_run() {
    for tool in ["blkparse", "btt", "trace-cmd"] {
        if Command::new(tool).arg("-V").output().is_err() {
            assert!(std::env::var_os("CI").is_none(), "{tool} is missing");
            return skip(&format!("{tool} is missing: apt-get install blktrace trace-cmd"));
        }
    }
    let dir = TempDir::new("five-ways");
    let dir = dir.path();
    record(dir);
    let text = stdout(Command::new("trace-cmd").current_dir(dir).args(["report", "-i", "five.dat"]));
    std::fs::write(dir.join("five.txt"), text).expect("a temporary directory");
    let both = ["-i", "nullb0", "-i", "nullb1"];
    stdout(Command::new("blkparse").current_dir(dir).args(["-q", "-O", "-d", "both.bin"]).args(both));
    let text = stdout(Command::new("blkparse").current_dir(dir).args(both));
    std::fs::write(dir.join("both.txt"), text).expect("a temporary directory");
    stdout(flashscope().current_dir(dir).args(["export", "own.port", "--to", "trace.dat", "-o", "own.dat"]));

    let own = report(dir, &["own.dat"]);
    assert!(own["block"]["stages"]["bios_completed"].as_u64() >= Some(350), "{}", own["block"]["stages"]);
    for owner in ["player", "logger", "reader", "dd"] {
        assert!(owners(&own).iter().any(|name| name.starts_with(&format!("{owner} ("))), "{owner}: {:?}", owners(&own));
    }
    let by_trace_cmd = report(dir, &["five.dat"]);
    let by_blktrace = report(dir, &["nullb0", "nullb1"]);
    // Each recorder takes its own times, one after the other.
    same("trace-cmd", &own, &by_trace_cmd, 20_000, 0.01);
    same("blktrace", &own, &by_blktrace, 20_000, 0.01);
    let by_text = report(dir, &["five.trace"]);
    same("tracefs' text", &own, &by_text, 20_000, 0.01);
    let by_perf = report(dir, &["perf.txt"]);
    same("perf script", &own, &by_perf, 20_000, 0.01);
    let begin = |said: &Value| said["block"]["stages"]["begin_ns"].as_u64().expect("a time");
    assert!(begin(&own).abs_diff(begin(&by_perf)) < 100_000, "{} and {}", begin(&own), begin(&by_perf));
    assert_eq!(owners(&own), owners(&by_perf));
    assert_eq!(owners(&own), owners(&by_trace_cmd));
    assert_eq!(owners(&own), owners(&by_text));
    // The same times in another form; text has microseconds, its mean is off by less.
    same("trace-cmd's text", &by_trace_cmd, &report(dir, &["five.txt"]), 1_000, 0.0);
    let dump = report(dir, &["both.bin"]);
    same("blkparse -d", &by_blktrace, &dump, 0, 0.0);
    same_as_btt(&own, &btt_of_dump(&dir.join("both.bin")));
    assert_eq!(owners(&by_blktrace), owners(&dump));
    same("blkparse's text", &by_blktrace, &report(dir, &["both.txt"]), 0, 0.0);

    // Who dirtied what a worker wrote is in none of them; the clock's name is in the recordings and in no text or dump.
    for said in [&own, &by_trace_cmd, &by_blktrace, &dump] {
        let written = &said["block"]["originators"];
        assert!(written["written_unknown_bytes"].as_u64() > Some(0), "{written}");
        assert_eq!(written["written_one_bytes"], 0, "{written}");
    }
    let clock = |said: &Value| said["system"]["clock"].clone();
    assert_eq!([&own, &by_trace_cmd, &by_blktrace, &dump].map(clock), ["mono", "mono", "mono", "blkparse"]);
}
