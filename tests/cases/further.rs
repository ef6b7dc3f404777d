//! Further inputs of each kind: devices, names, kernels and line ends differ, the right figures are by hand.

use super::{input, lost, report, rows, stage, text};
use crate::perfetto::{ask, processor};
use flashscope_tests::{TempDir, flashscope, skip, stdout};
use serde_json::{Value, json};

/// Number, least and most of a stage, in nanoseconds.
type Stage = [u64; 3];

/// Number, least and most of what rows have.
fn of_rows(rows: &[Value], column: &str) -> Stage {
    let times: Vec<u64> =
        rows.iter().filter(|row| row["below"] != true).filter_map(|row| row[column].as_u64()).collect();
    [times.len() as u64, *times.iter().min().unwrap_or(&0), *times.iter().max().unwrap_or(&0)]
}

/// Owners with KiB read and written. Without queueing requests have an issuer, and bytes in one sum.
fn owners(report: &Value, of_bios: bool) -> String {
    let all = if of_bios { &report["block"]["originators"]["originators"] } else { &report["block"]["groups"] };
    let all = all.as_array().expect("owners").iter().filter(|one| of_bios || one["by"] == "owner");
    let columns = if of_bios { ["read_bytes", "written_bytes"] } else { ["bytes", "none"] };
    let mut owners: Vec<String> = all
        .map(|one| {
            let [read, written] = columns.map(|moved| one[moved].as_u64().unwrap_or(0) as f64 / 1024.0);
            format!("{} {read}K {written}K", one["name"].as_str().expect("a name"))
        })
        .collect();
    owners.sort_unstable();
    owners.join("; ")
}

/// A case's figures, as a line of `further.txt` has them.
fn figures(case: &str) -> String {
    let report = report(case);
    let stages = &report["block"]["stages"];
    let of_bios = !stages["bios_queued"]["unknown"].is_string();
    let (of, counts): (_, &[&str]) = match of_bios {
        true => ("bios", &["bios_queued", "bios_completed", "bios_below"]),
        false => ("requests", &["requests", "requests_completed"]),
    };
    let counts: Vec<String> = counts.iter().map(|count| stages[count].to_string()).collect();
    let rows = rows(case, of);
    let times = |name: &str, column: &str| {
        let times = stage(&report, name);
        assert_eq!(of_rows(&rows, column), times, "{case}: {name} of rows");
        times.map(|figure| figure.to_string()).join(" ")
    };
    let q2c = if of_bios { times("Q2C", "q2c_ns") } else { "-".to_owned() };
    let losses = Some(lost(&report).join("; ")).filter(|all| !all.is_empty());
    let (counts, d2c, owners) = (counts.join(" "), times("D2C", "d2c_ns"), owners(&report, of_bios));
    format!("{case} | {of} {counts} | {q2c} | {d2c} | {owners} | {}", losses.as_deref().unwrap_or("-"))
}

/// Each case's ORIGIN says what it is made of.
#[test]
fn further_inputs_have_their_figures() {
    for line in include_str!("further.txt").lines().skip(1) {
        let case = line.split(" | ").next().expect("a case");
        assert_eq!(figures(case), line);
    }
}

/// Of those that are tested with Perfetto's trace processor, which takes two seconds each: several requests of a place, flushes, levels.
const IN_PERFETTO: &[&str] = &[
    "lost-two-in-a-row",
    "reads-of-one-sector-end-together",
    "requeue-then-merge",
    "requests-requeued",
    "zone-and-others",
    "flush-vda-5.4",
    "dm-on-md-on-nvme",
    "dump-big-endian-lost",
    "perfetto-issue-only-global",
];

/// A slice for each request's row, with its time, as Perfetto's trace processor has them.
#[test]
fn slices_of_further_inputs_are_their_requests() {
    let processor = match processor() {
        Ok(processor) => processor,
        Err(why) => return skip(&why),
    };
    let dir = TempDir::new("further-perfetto");
    let path = dir.path().join("trace.pftrace");
    for name in IN_PERFETTO {
        stdout(flashscope().arg("export").arg(input(name)).args(["--to", "perfetto", "-o"]).arg(&path));
        let query = "select s.ts, s.dur, extract_arg(s.arg_set_id, 'debug.sector') from slice s join track k on s.track_id = k.id \
                     where k.name = 'requests'";
        let mut slices = ask(&processor, &path, &[query]).remove(0);
        let row = |row: &Value| {
            let d2c = row["d2c_ns"].as_u64().map_or(json!(-1), Value::from);
            vec![row["issued_ns"].clone(), d2c, row["sector"].clone()]
        };
        let rows = rows(name, "requests");
        let mut requests: Vec<_> = rows.iter().filter(|row| row["issued_ns"].is_u64()).map(row).collect();
        // A try that the driver gave back is a slice, too.
        let tries = rows.iter().filter_map(|row| row["requeues"].as_u64()).sum::<u64>() as usize;
        let plain = |rows: &mut Vec<Vec<Value>>| {
            let mut all: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
            all.sort();
            all
        };
        let (slices, requests) = (plain(&mut slices), plain(&mut requests));
        let missing: Vec<_> = requests.iter().filter(|one| !slices.contains(one)).collect();
        assert!(missing.is_empty(), "{}: {missing:?} of {slices:?}", name);
        assert_eq!(slices.len(), requests.len() + tries, "{}: {slices:?} {requests:?}", name);
    }
}

/// Each call with what it waited for, and when the longest one was.
#[test]
fn a_long_sync_has_its_time_and_its_cause() {
    for (case, calls, longest, waits) in [
        ("sync-waits-for-flush", 10, [1_234_592_000_000_000, 91_200_000], [210_000, 0, 90_912_000, 78_000]),
        ("sync-waits-for-data-f2fs", 8, [78_000_000_000, 352_110_000], [352_020_000, 0, 0, 90_000]),
        ("flush-by-f2fs-thread", 8, [500_000_000_000, 4_700_000], [410_000, 0, 4_012_000, 278_000]),
        ("emmc-fua-spike", 6, [904_000_000_000, 180_090_000], [180_010_000, 0, 0, 80_000]),
    ] {
        let report = report(case);
        let syncs = &report["block"]["syncs"];
        assert_eq!(syncs["durations"]["n"], calls, "{case}");
        let call = &syncs["calls"][0];
        assert_eq!(["begin_ns", "duration_ns"].map(|figure| call[figure].as_u64()), longest.map(Some), "{case}");
        let times = ["data_ns", "journal_ns", "flush_ns", "rest_ns"].map(|figure| call["waits"][figure].as_u64());
        assert_eq!(times, waits.map(Some), "{case}");
    }
    let text = text("sync-waits-for-flush").replace("\n     ", " ");
    let says = "but a call waited for them: postgres: wal w (2210) took 91.20 ms in ext4_sync_file, 90.91 ms of it for a flush";
    assert!(text.contains(says) && !text.contains("not the cause of slowness"), "{text}");
}

/// A line that older pages of systrace add at time 0 is no part of the trace.
#[test]
fn an_older_page_of_systrace_begins_with_its_first_event() {
    let text = text("systrace-html-older");
    assert!(text.contains("4 block events in 11.00 ms"), "{text}");
}

/// Percentiles of few times by hand: the nearest ranks 5 and 9 of ten times, and the longest.
#[test]
fn percentiles_of_few_times_are_exact() {
    let dir = TempDir::new("few-times");
    let path = dir.path().join("input");
    let line = |ms: u64, event: &str| format!("  app-321 [001] ..... 10.{ms:06}: {event}\n");
    let request = |i: u64| {
        let (sector, begin) = (4096 + i * 64, i * 50_000);
        line(begin, &format!("block_rq_issue: 8,0 W 4096 () {sector} + 8 [app]"))
            + &line(begin + 1000 * (i + 1), &format!("block_rq_complete: 8,0 W () {sector} + 8 [0]"))
    };
    std::fs::write(&path, (0..10).map(request).collect::<String>()).expect("a file");
    let report = super::report(&path);
    let groups = report["block"]["groups"].as_array().expect("groups");
    let all = groups.iter().find(|group| group["by"] == "all").expect("a group of all");
    let d2c = &all["stages"].as_array().expect("stages").iter().find(|one| one["stage"] == "D2C").expect("D2C")["ns"];
    let found = ["n", "p50", "p90", "p99", "p999"].map(|figure| d2c[figure].as_u64());
    assert_eq!(found, [10, 5_000_000, 9_000_000, 10_000_000, 10_000_000].map(Some));
}

/// A driver's command that blkparse prints as a read has its completion, and its own size.
#[test]
fn commands_in_blkparses_text_have_their_completions() {
    for case in ["blkparse-commands", "blkparse-commands-5.x"] {
        let rows = rows(case, "requests");
        let figures = |row: &Value| ["bytes", "d2c_ns"].map(|figure| row[figure].as_u64());
        assert_eq!(rows.iter().map(figures).collect::<Vec<_>>(), [[Some(512), Some(400_000)]; 4], "{case}");
        assert!(rows.iter().all(|row| row["kind"] == "other"), "{case}: {rows:?}");
    }
}

/// INQUIRY answers in 36 bytes: four of them are 144 bytes, no four sectors.
#[test]
fn a_command_of_less_than_a_sector_has_its_bytes() {
    let dir = TempDir::new("case-short-commands");
    let input = std::fs::read_to_string(input("blkparse-commands")).expect("a case");
    let path = dir.path().join("input");
    std::fs::write(&path, input.replace(" 512 ", " 36 ")).expect("a file");
    let report = super::report(&path);
    let groups = report["block"]["groups"].as_array().expect("groups");
    let all = groups.iter().find(|group| group["by"] == "all").expect("a group of all");
    assert_eq!([&all["bios"], &all["bytes"]], [4, 144]);
}

/// Hardware partitions of one eMMC are devices side by side.
#[test]
fn a_boot_partition_is_no_level_of_the_disk() {
    let report = report("boot-partition");
    assert_eq!(report["block"]["stack"], Value::Array(Vec::new()));
    let devices = report["block"]["stages"]["devices"].as_array().expect("devices").iter();
    let d2c = devices.map(|one| (one["device"].as_str().expect("a name"), one["all"][6]["mean_ns"].as_u64()));
    assert_eq!(d2c.collect::<Vec<_>>(), [("179:0", Some(3_000_000)), ("179:8", Some(12_000_000))]);
    let failures = &super::report("boot-partition-error")["block"]["errors"]["failures"];
    let failure = &failures[0];
    assert_eq!(failures.as_array().map(Vec::len), Some(1));
    assert_eq!(
        [&failure["device"], &failure["sector"], &failure["error"], &failure["owner"], &failure["took_ns"]],
        [&Value::from("179:16"), &2048.into(), &"EIO".into(), &"dd (700)".into(), &2_030_000.into()]
    );
}

#[test]
fn rescuers_carry_or_do_their_own() {
    let report = report("kernel-carriers-rescuers");
    let found = &report["block"]["originators"];
    let kib = ["direct", "one", "kernel", "unknown"]
        .map(|kind| found[format!("written_{kind}_bytes")].as_u64().expect("bytes") >> 10);
    assert_eq!(kib, [0, 0, 12, 24]);
    assert!(found.to_string().contains("kworker/u16:3-flush-8:0 (301)"), "{found}");
}

#[test]
fn pages_read_ahead_of_which_part_is_used() {
    let total = &report("readahead-part-used")["readahead"]["total"];
    let counts = ["requested", "ahead", "ahead_used", "mapped", "ahead_left_unused"].map(|count| total[count].as_u64());
    assert_eq!(counts, [2, 15, 9, 6, 0].map(Some));
    assert!(total["ahead_evicted_unused"].is_null());
}

/// Whether a device above queued a request is known from its bios only. 2.000 and 5.000 ms of flushes: 7.000 ms.
#[test]
fn requests_without_their_bios_do_not_say_whether_a_device_above_queued_them() {
    for (case, requests) in [("issue-complete-only", 4), ("dm-flush-of-two-disks", 2)] {
        let rows = rows(case, "requests");
        assert_eq!(rows.len(), requests, "{case}");
        assert!(rows.iter().all(|row| row["below"].is_null()), "{case}: {rows:?}");
    }
    assert!(rows("dm-flush-of-two-disks", "bios").iter().all(|row| row["below"] == false));
    let text = text("dm-flush-of-two-disks");
    assert!(text.contains("2 flush requests for 7.00 ms in all"), "{text}");
    assert!(text.contains("no issued request beside flushes of devices"), "{text}");
}
