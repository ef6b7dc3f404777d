//! What btt counts wrongly, one recording each (data/btt, origin there): what it says, what we say, and what was done. The
//! truth is what the recorded programs said, the raw records read here by hand, and that the device takes 100 µs a request.

use flashscope_analysis::Analysis as _;
use flashscope_analysis::block::{BlockAnalysis, BlockFound, Group, GroupBy, Sizes, Stage, StageStats};
use flashscope_trace::Trace;
use std::path::{Path, PathBuf};

/// `completion_nsec` of the recorded device: no request takes less from issue to completion.
const SERVICE_NS: u64 = 100_000;

fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/btt").join(name)
}

/// Of a control group: four threads, ten direct reads each (crates/trace/tests/data/blktrace/ORIGIN.md).
fn of_cgroup() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data/blktrace/armv7-6.1/cgroup")
}

fn found(base: &Path) -> BlockFound {
    let trace = Trace::open(base).unwrap();
    assert!(trace.losses().is_empty(), "{:?}", trace.losses());
    let mut analysis = BlockAnalysis::new(|tid, time| trace.comm(tid, time), Sizes::default());
    trace.for_each(&mut |event| analysis.event(event)).unwrap();
    analysis.finish()
}

fn stage(found: &BlockFound, stage: Stage) -> StageStats {
    found.stages.all[stage as usize]
}

fn group<'a>(found: &'a BlockFound, by: GroupBy, name: &str) -> &'a Group {
    let of = |group: &&Group| group.by == by && group.name == name;
    found.groups.iter().find(of).unwrap_or_else(|| panic!("no {name}"))
}

/// What a program said it did.
struct Done {
    name: String,
    pid: u32,
    operation: String,
    calls: u64,
    bytes: u64,
}

fn truth(name: &str) -> Vec<Done> {
    let text = std::fs::read_to_string(recorded(&format!("{name}.truth"))).unwrap();
    let line = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
        [name, pid, operation, calls, bytes] => Done {
            name: name.to_owned(),
            pid: pid.parse().unwrap(),
            operation: operation.to_owned(),
            calls: calls.parse().unwrap(),
            bytes: bytes.parse().unwrap(),
        },
        _ => panic!("{line}"),
    };
    text.lines().map(line).collect()
}

/// One record as it lies in the file (include/uapi/linux/blktrace_api.h, struct blk_io_trace; the board is little-endian).
struct Raw {
    time: u64,
    sector: u64,
    /// `Q`, `D`, `C`; of the others nothing is asked.
    action: char,
    write: bool,
    pid: u32,
}

fn raw(name: &str) -> Vec<Raw> {
    let bytes = std::fs::read(recorded(&format!("{name}.blktrace.0"))).unwrap();
    let (mut at, mut records) = (0, Vec::new());
    while at < bytes.len() {
        let u32_at = |offset: usize| u32::from_le_bytes(bytes[at + offset..at + offset + 4].try_into().unwrap());
        let u64_at = |offset: usize| u64::from_le_bytes(bytes[at + offset..at + offset + 8].try_into().unwrap());
        assert_eq!(u32_at(0), 0x6561_7407);
        let action = u32_at(28);
        // BLK_TC_WRITE is bit 1 of the upper half, BLK_TC_NOTIFY bit 10.
        if action >> 16 & 1 << 10 == 0 && u32_at(24) > 0 {
            let letter = match action & 0xffff {
                1 => 'Q',
                7 => 'D',
                8 => 'C',
                _ => ' ',
            };
            let write = action >> 16 & 2 != 0;
            records.push(Raw { time: u64_at(8), sector: u64_at(16), action: letter, write, pid: u32_at(32) });
        }
        at += 48 + usize::from(u16::from_le_bytes(bytes[at + 46..at + 48].try_into().unwrap()));
    }
    records.sort_by_key(|record| record.time);
    records
}

/// Rows of one of btt's tables: the lines that begin with `label`, in words.
fn rows<'a>(tables: &'a str, section: &str, label: &str) -> Vec<Vec<&'a str>> {
    let text = tables.split(section).nth(1).unwrap_or_else(|| panic!("btt has no {section}"));
    let text = text.split("====================").nth(1).unwrap_or_default();
    let words = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    words.filter(|words| words.first() == Some(&label)).collect()
}

/// N of a stage among all devices; 0 where btt has no such row.
fn n_of(tables: &str, stage: &str) -> u64 {
    rows(tables, "All Devices", stage).first().map_or(0, |row| row[4].parse().unwrap())
}

#[test]
fn the_median_of_seeks() {
    let text = std::fs::read_to_string(recorded("jumps.truth")).unwrap();
    let gaps: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert_eq!(gaps.len(), 99);
    let found = found(&recorded("jumps"));
    let seeks = found.over_time.seek_sectors.known().expect("known");
    assert_eq!((seeks.n, seeks.min, seeks.max), (99, gaps[0], gaps[98]));
    // The middle one of 99, as the distribution has it: at most 0.8 % below.
    let middle = gaps[49];
    assert!(seeks.p50 <= middle && seeks.p50 * 1000 >= middle * 992, "{} of {middle}", seeks.p50);

    let Some(btt) = crate::common::btt(&recorded("jumps")) else { return };
    // Device, number, mean, median: it takes none of a hundred distances, each there once, for the middle one.
    let row = &rows(&btt.tables, "Device D2D Seek Information", "(254,")[0];
    assert_eq!((row[3], row[4], row[5]), ("100", "396.0", "0"), "{row:?}");
}

#[test]
fn a_request_at_the_sector_of_one_on_its_way() {
    let done = &truth("same")[0];
    let ours = found(&recorded("same"));
    let d2c = stage(&ours, Stage::D2c);
    assert_eq!((d2c.n, stage(&ours, Stage::Q2c).n, ours.stages.unmatched.sum()), (done.calls, done.calls, 0));
    assert!(d2c.min_ns >= SERVICE_NS, "{d2c:?}");

    let Some(btt) = crate::common::btt(&recorded("same")) else { return };
    // Half of them, and those shorter than the device takes: the first one's completion ends the second one's way.
    assert_eq!(n_of(&btt.tables, "D2C"), done.calls / 2);
    let most: f64 = rows(&btt.tables, "All Devices", "D2C")[0][3].parse().unwrap();
    assert!(most * 1e9 < SERVICE_NS as f64, "{most}");
}

#[test]
fn reads_and_writes_of_one_place() {
    let done = truth("mixed");
    let ours = found(&recorded("mixed"));
    for (done, kind) in done.iter().zip(["writes", "reads"]) {
        assert!(kind.starts_with(&done.operation));
        let group = group(&ours, GroupBy::Device, &format!("254:0 {kind}"));
        assert_eq!((group.bios, group.bytes), (done.calls, done.calls * done.bytes), "{kind}");
        let d2c = group.stages.iter().find(|stage| stage.stage == "D2C").unwrap();
        assert_eq!(d2c.ns.n, done.calls, "{kind}");
        // Nobody waits here: each takes what the device takes, and little more.
        assert!(d2c.ns.min >= SERVICE_NS && d2c.ns.max < SERVICE_NS + 10_000, "{kind}: {d2c:?}");
    }

    let Some(btt) = crate::common::btt(&recorded("mixed")) else { return };
    // It takes the read for a part of the write, and loses ten of the twenty between issue and completion.
    assert_eq!((n_of(&btt.tables, "Q2Cdm"), n_of(&btt.tables, "D2C")), (20, 10));
}

#[test]
fn what_is_split() {
    let done = &truth("split")[0];
    let ours = found(&recorded("split"));
    let parts = done.bytes / (16 << 10) - 1;
    assert_eq!(
        (ours.stages.bios_queued.known(), ours.stages.parts.known()),
        (Some(&done.calls), Some(&(done.calls * parts)))
    );
    assert_eq!(ours.stages.bios_completed.known(), Some(&done.calls));
    // A bio that is split is one bio, from its first issue to its last completion; its parts have a table of their own.
    assert_eq!((stage(&ours, Stage::D2c).n, stage(&ours, Stage::Q2c).n), (done.calls, done.calls));
    assert!(stage(&ours, Stage::D2c).min_ns >= SERVICE_NS);
    let of_parts = group(&ours, GroupBy::Parts, "parts of split bios");
    assert_eq!((of_parts.bios, of_parts.bytes), (done.calls * (parts + 1), done.calls * done.bytes));
    let d2c = of_parts.stages.iter().find(|stage| stage.stage == "D2C").unwrap();
    assert!(d2c.ns.n == of_parts.bios && d2c.ns.min >= SERVICE_NS, "{d2c:?}");
    assert_eq!(group(&ours, GroupBy::All, "all").bytes, done.calls * done.bytes);

    let Some(btt) = crate::common::btt(&recorded("split")) else { return };
    // No part has the length of what was queued, so that nothing is ever completed.
    assert_eq!((n_of(&btt.tables, "Q2Cdm"), n_of(&btt.tables, "Q2C"), n_of(&btt.tables, "D2C")), (0, 0, 0));
}

#[test]
fn records_that_name_a_control_group() {
    let ours = found(&of_cgroup());
    assert_eq!((ours.stages.bios_queued.known(), ours.stages.bios_completed.known()), (Some(&40), Some(&40)));
    assert_eq!(stage(&ours, Stage::D2c).n, 40);

    let Some(btt) = crate::common::btt(&of_cgroup()) else { return };
    for stage in ["Q2Q", "Q2Qdm", "Q2G", "D2C", "Q2C", "Q2Cdm"] {
        assert_eq!(n_of(&btt.tables, stage), 0, "{stage}");
    }
}

#[test]
fn a_disk_with_the_number_of_a_device_mapper() {
    let done = truth("names");
    let ours = found(&recorded("names"));
    let calls: u64 = done.iter().map(|done| done.calls).sum();
    assert_eq!(ours.stages.devices.len(), 1);
    assert_eq!(ours.stages.devices[0].device, "254:0");
    assert_eq!((stage(&ours, Stage::Q2q).n, stage(&ours, Stage::Q2c).n), (calls - 1, calls));
    let shares: f64 = group(&ours, GroupBy::All, "all")
        .stages
        .iter()
        .filter(|stage| ["Q2D", "D2C"].contains(&stage.stage.as_str()))
        .filter_map(|stage| stage.share_percent)
        .sum();
    assert!((shares - 100.0).abs() < 0.02, "the wait and the device are the whole: {shares}");

    let Some(btt) = crate::common::btt(&recorded("names")) else { return };
    // 254 is "dm" to it: no Q2Q and Q2C of a disk, and no shares of the stages.
    assert_eq!((n_of(&btt.tables, "Q2Q"), n_of(&btt.tables, "Q2C")), (0, 0));
    assert_eq!((n_of(&btt.tables, "Q2Qdm"), n_of(&btt.tables, "Q2Cdm")), (calls - 1, calls));
    assert!(rows(&btt.tables, "Device Overhead", "(254,").is_empty());
}

#[test]
fn two_processes_of_one_name() {
    let done = truth("names");
    let ours = found(&recorded("names"));
    for one in done.iter().filter(|one| one.calls > 0) {
        let group = group(&ours, GroupBy::Owner, &format!("{} ({})", one.name, one.pid));
        assert_eq!((group.bios, group.bytes), (one.calls, one.calls * one.bytes), "{}", one.pid);
        // And these are the records' own: queued by that process.
        let queued = raw("names").iter().filter(|r| r.action == 'Q' && r.pid == one.pid).count() as u64;
        assert_eq!(queued, one.calls);
    }

    let Some(btt) = crate::common::btt(&recorded("names")) else { return };
    let players = rows(&btt.tables, "Per Process", "player");
    let all: u64 = done.iter().map(|done| done.calls).sum();
    // One row of each stage, for both.
    assert!(players.iter().all(|row| row.len() == 5));
    assert_eq!(players.iter().filter(|row| row[4] == all.to_string()).count(), 3, "Q2Cdm, Q2G, D2C: {players:?}");
}

#[test]
fn reads_and_writes_apart_and_percentiles() {
    let ours = found(&recorded("names"));
    let records = raw("names");
    for (kind, write) in [("reads", false), ("writes", true)] {
        // Every sector is used once: from a Q to the C of the same sector.
        let mut times: Vec<u64> = records
            .iter()
            .filter(|r| r.action == 'Q' && r.write == write)
            .map(|q| {
                let c = records.iter().find(|c| c.action == 'C' && c.write == write && c.sector == q.sector).unwrap();
                c.time - q.time
            })
            .collect();
        times.sort_unstable();
        let group = group(&ours, GroupBy::Device, &format!("254:0 {kind}"));
        let q2c = &group.stages.iter().find(|stage| stage.stage == "Q2C").unwrap();
        assert_eq!((q2c.ns.n, q2c.total_ns), (times.len() as u64, times.iter().sum()), "{kind}");
        assert_eq!((q2c.ns.min, q2c.ns.max), (times[0], times[times.len() - 1]), "{kind}");
        for (permille, ours) in [(500, q2c.ns.p50), (900, q2c.ns.p90), (990, q2c.ns.p99), (999, q2c.ns.p999)] {
            let right = times[(times.len() * permille).div_ceil(1000) - 1];
            assert!(ours <= right && ours * 1000 >= right * 992, "{kind} {permille}: {ours}, {right}");
        }
    }

    let Some(btt) = crate::common::btt(&recorded("names")) else { return };
    let text = btt.tables.split("All Devices").nth(1).unwrap();
    let head = text.lines().find(|line| line.contains("ALL")).unwrap();
    assert_eq!(head.split_whitespace().collect::<Vec<_>>(), ["ALL", "MIN", "AVG", "MAX", "N"]);
    assert_eq!(rows(&btt.tables, "All Devices", "Q2Cdm").len(), 1, "reads and writes in one row");
}

#[test]
fn completions_in_the_name_of_whoever_was_interrupted() {
    let done = truth("names");
    let spinner = done.iter().find(|one| one.name == "spinner").unwrap();
    assert_eq!((spinner.operation.as_str(), spinner.calls), ("none", 0));
    // The records say so: completions came while it ran.
    let completions = raw("names").iter().filter(|r| r.action == 'C' && r.pid == spinner.pid).count();
    assert!(completions > 10, "{completions}");
    let ours = found(&recorded("names"));
    let owners: Vec<&str> =
        ours.groups.iter().filter(|group| group.by == GroupBy::Owner).map(|group| group.name.as_str()).collect();
    let players: Vec<String> =
        done.iter().filter(|one| one.calls > 0).map(|one| format!("{} ({})", one.name, one.pid)).collect();
    assert_eq!(owners.len(), 2, "{owners:?}");
    assert!(players.iter().all(|player| owners.contains(&player.as_str())), "{owners:?}");

    let Some(btt) = crate::common::btt(&recorded("names")) else { return };
    // When each process's I/O was completed, in btt's own words: a process without any is among them.
    let after = btt.activity.split("spinner : c activity").nth(1).expect("btt has it");
    let lines = after.lines().skip(1).take_while(|line| !line.is_empty()).count();
    assert!(lines >= 4, "{after}");
}
