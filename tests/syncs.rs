//! What the report says of `fsync` and `fdatasync`, against ext4's own events and the times that the program took: on a loop device
//! of this host, and on a board's timed disk.

use std::path::Path;

use flashscope_tests::{LoopDisk, Plan, TempDir, cannot_record, flashscope, skip, work};
use flashscope_trace::Trace;
use flashscope_trace::dat::write_filtered;
use serde_json::Value;

const EVENTS: &str = "block,cache,syscall,ext4:ext4_sync_file_enter,ext4:ext4_sync_file_exit";
/// Of each call; the report lists the 64 longest of all tasks, and the loop device's worker syncs too.
const CALLS: usize = 10;
/// What the events of two sources may differ by, in the middle: two events and the call's way through the kernel.
const APART_NS: u64 = 20_000;
/// Of waits: a share, or nanoseconds.
const WAITS: (f64, u64) = (0.02, 20_000);

/// One call: what it waited for, and how long it took.
#[derive(Debug)]
struct Call {
    duration: u64,
    data: u64,
    journal: u64,
    flush: u64,
}

/// The calls of this name and task, in order of time.
fn calls(trace: &Path, name: &str, tid: u64) -> Vec<Call> {
    let said = flashscope_tests::report(trace);
    let mut found: Vec<_> = said["block"]["syncs"]["calls"].as_array().expect("calls").iter().collect();
    found.retain(|one| {
        one["call"] == name && one["task"].as_str().is_some_and(|task| task.ends_with(&format!("({tid})")))
    });
    found.sort_by_key(|one| one["begin_ns"].as_u64());
    let call = |one: &&Value| {
        let ns = |name: &str| one["waits"][name].as_u64().unwrap_or_else(|| panic!("{name} of {one}"));
        let [data, journal, flush, rest] = ["data_ns", "journal_ns", "flush_ns", "rest_ns"].map(ns);
        let duration = one["duration_ns"].as_u64().expect("a duration");
        assert_eq!(data + journal + flush + rest, duration, "each moment counts once: {one}");
        Call { duration, data, journal, flush }
    };
    found.iter().map(call).collect()
}

fn median(mut of: Vec<u64>) -> u64 {
    of.sort_unstable();
    of[of.len() / 2]
}

/// `flushes`: the disk has a cache that is flushed.
fn check(what: &str, trace: &Trace, program: &Value, flushes: bool, dir: &Path) {
    let (all, own) = (dir.join("all.dat"), dir.join("ext4.dat"));
    write_filtered(trace, &all, &|_| true).expect("a trace.dat");
    write_filtered(trace, &own, &|record| !record.schema.system.contains("syscalls")).expect("a trace.dat");
    let tid = program["tid"].as_u64().expect("a number");
    let ext4s = calls(&own, "ext4_sync_file", tid);
    // The first one is of the empty file.
    assert_eq!(ext4s.len(), 2 * CALLS + 1, "{what}: ext4's calls");
    let (of_fsync, of_fdatasync) = ext4s[1..].split_at(CALLS);
    for (name, ext4s) in [("fsync", of_fsync), ("fdatasync", of_fdatasync)] {
        let mut ours = calls(&all, name, tid);
        if name == "fsync" {
            ours.remove(0);
        }
        let programs: Vec<u64> =
            program[name].as_array().expect("times").iter().map(|ns| ns.as_u64().expect("ns")).collect();
        assert_eq!((ours.len(), programs.len()), (CALLS, CALLS), "{what}: calls of {name}");
        let (mut above, mut below) = (Vec::new(), Vec::new());
        for ((one, ext4), &program) in ours.iter().zip(ext4s).zip(&programs) {
            assert!(
                ext4.duration <= one.duration && one.duration <= program,
                "{what} {name}: {ext4:?} {one:?} {program}"
            );
            below.push(one.duration - ext4.duration);
            above.push(program - one.duration);
            for (ours, ext4) in [(one.data, ext4.data), (one.journal, ext4.journal), (one.flush, ext4.flush)] {
                let off = ours.abs_diff(ext4);
                assert!(off <= WAITS.1 || off as f64 <= ours as f64 * WAITS.0, "{what} {name}: {one:?}, ext4 {ext4}");
            }
            // A block that is written anew changes nothing that the journal keeps.
            let journal = name == "fsync";
            assert_eq!(
                [one.data > 0, one.journal > 0, one.flush > 0],
                [true, journal, flushes],
                "{what} {name}: {one:?}"
            );
        }
        let apart = [median(below), median(above)];
        let of = |part: fn(&Call) -> u64| median(ours.iter().map(part).collect());
        let parts = [of(|one| one.duration), of(|one| one.data), of(|one| one.journal), of(|one| one.flush)];
        println!(
            "{what} {name}: ext4's {} ns less, the program's {} ns more; median, data, journal, flush {parts:?}",
            apart[0], apart[1]
        );
        assert!(apart.iter().all(|&ns| ns <= APART_NS), "{what} {name}: {apart:?}");
    }
}

#[test]
fn calls_of_fsync_agree_with_ext4s_own_events_on_this_host() {
    if let Some(why) = cannot_record() {
        return skip(why);
    }
    // The journal commits for the calls alone: a commit of its own, each five seconds, is one that fdatasync waits for.
    let Some(disk) = LoopDisk::ext4("syncs", 64, "", &["--direct-io=on"], "commit=3000") else { return };
    let dir = disk.path();
    work("", "syncs/work.c", dir);
    let ready = disk.sh("./work m/f 2; sync -f m");
    assert!(ready.status.success(), "{ready:?}");
    let mut record = flashscope();
    record.current_dir(dir).args([
        "record",
        "--events",
        EVENTS,
        "-o",
        "t.dat",
        "--",
        "./work",
        "m/f",
        &CALLS.to_string(),
    ]);
    let program = flashscope_tests::json(&mut record);
    let trace = Trace::open(&dir.join("t.dat")).expect("a trace");
    check("loop", &trace, &program, true, dir);
}

#[test]
fn calls_of_fsync_agree_with_ext4s_own_events_on_a_board() {
    let dir = TempDir::new("syncs-board");
    let mut plan = Plan::new("armv7-blk", "6.1");
    plan.files.push(("/work", 0o755, work("armv7-blk", "syncs/work.c", dir.path())));
    plan.lines = vec![
        "run warm /work /mnt/f 2".to_owned(),
        format!("record-start --events {EVENTS} --mode ring --ring 8192"),
        format!("run work /work /mnt/f {CALLS}"),
        "record-stop".to_owned(),
    ];
    let booted = plan.boot();
    check("board", &booted.recording(0), &booted.json("work"), false, dir.path());
}
