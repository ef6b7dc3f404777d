//! `report --by file|device|call`: only the tables that are split so, with the figures of the whole report.

use flashscope_tests::{TempDir, flashscope, output, stdout, top};
use serde_json::Value;

/// A case, or a recording of the formats' tests.
fn path(case: &str) -> std::path::PathBuf {
    match case.ends_with(".dat") {
        true => top().join("crates/trace/tests/data/trace_dat").join(case),
        false => top().join("tests/cases").join(case).join("input"),
    }
}

fn json(case: &str, args: &[&str]) -> Value {
    flashscope_tests::json(flashscope().args(["report", "--json"]).args(args).arg(path(case)))
}

fn text(case: &str, by: &str) -> String {
    let input = path(case);
    stdout(flashscope().env("COLUMNS", "100").args(["report", "--by", by]).arg(input))
}

fn headings(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    lines.windows(2).filter(|pair| pair[0].is_empty()).map(|pair| pair[1]).collect()
}

#[test]
fn by_device_has_the_operations_of_each_device() {
    let whole = json("emmc-fsync-spike", &[]);
    let split = json("emmc-fsync-spike", &["--by", "device"]);
    let groups = whole["block"]["groups"].as_array().expect("groups");
    let of_devices: Vec<&Value> = groups.iter().filter(|group| group["by"] == "device").collect();
    assert!(!of_devices.is_empty());
    assert_eq!(split["block"].as_array().expect("groups").iter().collect::<Vec<_>>(), of_devices);
    assert_eq!(headings(&text("emmc-fsync-spike", "device")), ["By device and operation", "Losses"]);
}

#[test]
fn by_device_has_the_chips_of_raw_flash() {
    let dir = TempDir::new("by-chip");
    let input = dir.path().join("flash.dat");
    let mut export = flashscope();
    export.args(["export", "-q", "--to", "trace.dat", "--recording", "0", "-o"]).arg(&input);
    stdout(export.arg(top().join("crates/trace/tests/data/stream/armv7-6.1.port")));
    let report = |args: &[&str]| stdout(flashscope().arg("report").args(args).arg(&input));
    let of = |args: &[&str]| -> Value { serde_json::from_str(&report(args)).expect("JSON") };
    let (whole, split) = (of(&["--json"]), of(&["--json", "--by", "device"]));
    flashscope_tests::valid("report-by", &split);
    let sum =
        |key: &str| split["chips"].as_array().expect("chips").iter().filter_map(|chip| chip[key].as_u64()).sum::<u64>();
    assert!(sum("reads") > 0);
    for key in ["reads", "programs", "erases"] {
        assert_eq!(whole["counts"]["total"][key], sum(key), "{key}");
    }
    assert_eq!(headings(&report(&["--by", "device"])), ["By chip", "Losses"]);
}

#[test]
fn by_call_adds_up_the_processes() {
    let split = json("x86_64-6.12-io.dat", &["--by", "call"]);
    let calls = split["calls"].as_array().expect("calls");
    assert!(!calls.is_empty() && calls.iter().all(|one| one["name"] == "(all)"));
    let by_process = split["calls_by_process"].as_array().expect("calls");
    for one in calls {
        let sum = |key: &str| {
            by_process.iter().filter(|p| p["call"] == one["call"]).filter_map(|p| p[key].as_u64()).sum::<u64>()
        };
        assert_eq!((one["total_ns"].as_u64(), one["bytes"].as_u64()), (Some(sum("total_ns")), Some(sum("bytes"))));
    }
    let text = text("x86_64-6.12-io.dat", "call");
    assert!(headings(&text).starts_with(&["Calls", "Calls, by process", "The slowest calls"]), "{text}");
}

#[test]
fn by_call_tells_what_syncs_waited_for_without_their_entry_and_return() {
    // Twelve calls of fsync, of which the trace has the events of ext4 alone.
    let split = json("emmc-fsync-spike", &["--by", "call"]);
    assert_eq!(split["syncs"].as_array().map(Vec::len), Some(12));
    let text = text("emmc-fsync-spike", "call");
    assert_eq!(headings(&text), ["What fsync and similar calls waited for", "Losses"]);
}

#[test]
fn by_file_has_the_files_or_says_what_to_record() {
    let split = json("text-buffered-writer", &["--by", "file"]);
    let whole = json("text-buffered-writer", &[]);
    let groups = whole["block"]["groups"].as_array().expect("groups");
    let of_files: Vec<&Value> = groups.iter().filter(|group| group["by"] == "file").collect();
    assert_eq!(split["block"].as_array().expect("groups").iter().collect::<Vec<_>>(), of_files);
    assert_eq!(split["by"], "file");
    let input = top().join("tests/cases/io-errors/input");
    let nothing = output(flashscope().args(["report", "--by", "call"]).arg(input));
    assert_eq!(nothing.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&nothing.stderr)
            .contains("record with `flashscope record --events block,cache,syscall`")
    );
}
