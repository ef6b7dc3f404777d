//! `diff` and `--fail-if`: against recordings whose times are known, and a board whose device was slowed down.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use flashscope_tests::{TempDir, flashscope, json, output, stdout};
use serde_json::Value;

/// A recording, as blkparse prints it: writes of 4 KiB by `writer` that the device completes after `d2c_us` each, and one
/// read of 8 KiB by `reader`.
fn recording(dir: &Path, name: &str, d2c_us: &[u64]) -> PathBuf {
    let mut text = String::new();
    let mut sequence = 0;
    let mut step = |us: u64, task: &str, action: &str, rwbs: &str, sector: u64, sectors: u64| {
        sequence += 1;
        let pid = if task == "writer" { 100 } else { 200 };
        let task = if action == "C" { "0".to_owned() } else { task.to_owned() };
        let (seconds, ns) = (us / 1_000_000, us % 1_000_000 * 1000);
        writeln!(
            text,
            "  8,16   0 {sequence:8} {seconds:5}.{ns:09} {pid:5}  {action}  {rwbs:3} {sector} + {sectors} [{task}]"
        )
        .expect("a string takes it");
    };
    let mut at = 1000;
    for (i, &us) in d2c_us.iter().enumerate() {
        let sector = 1000 + 8 * i as u64;
        step(at, "writer", "Q", "WS", sector, 8);
        step(at + 5, "writer", "G", "WS", sector, 8);
        step(at + 10, "writer", "D", "WS", sector, 8);
        step(at + 10 + us, "writer", "C", "WS", sector, 8);
        at += 100_000;
    }
    step(at, "reader", "Q", "R", 90_000, 16);
    step(at + 5, "reader", "D", "R", 90_000, 16);
    step(at + 505, "reader", "C", "R", 90_000, 16);
    let path = dir.join(name);
    std::fs::write(&path, text).expect("written");
    path
}

fn sides(dir: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let before = [[1000; 10], [1020; 10], [980; 10]];
    let after = [[2000; 10], [2030; 10], [1970; 10]];
    let side = |name: &str, runs: &[[u64; 10]; 3]| {
        runs.iter().enumerate().map(|(i, times)| recording(dir, &format!("{name}{i}.txt"), times)).collect()
    };
    (side("a", &before), side("b", &after))
}

fn change<'a>(comparison: &'a Value, figure: &str) -> &'a Value {
    let changes = comparison["changes"].as_array().expect("a list");
    changes.iter().find(|change| change["figure"] == figure).unwrap_or_else(|| panic!("no {figure} in {changes:#?}"))
}

#[test]
fn a_change_is_told_from_what_runs_differ_by() {
    let dir = TempDir::new("diff");
    let (a, b) = sides(dir.path());
    let comparison = json(flashscope().args(["diff", "--json"]).args(&a).arg("--against").args(&b));
    let mean = change(&comparison, "mean(d2c, write, 8:16)");
    // Means of 1000, 1020, 980 and of 2000, 2030, 1970 µs.
    assert_eq!((mean["before"].as_f64(), mean["after"].as_f64()), (Some(1e6), Some(2e6)), "{mean}");
    assert_eq!(mean["percent"].as_f64(), Some(100.0));
    // Welch: squared errors (20² + 30²) / 3 µs², 3.48 degrees of freedom, t = 2.946 (97.5 %).
    let half = 2.946 * ((400.0_f64 + 900.0) / 3.0).sqrt();
    for (bound, expected) in [("from", 1000.0 - half), ("to", 1000.0 + half)] {
        let found = mean["confidence"][bound].as_f64().expect("known") / 1000.0;
        assert!((found - expected).abs() < 0.1, "{bound}: {found} µs instead of {expected}");
    }
    let read = change(&comparison, "mean(d2c, read, 8:16)");
    assert_eq!(
        (read["before"].as_f64(), read["after"].as_f64(), read["percent"].as_f64()),
        (Some(5e5), Some(5e5), Some(0.0))
    );
    assert_eq!(change(&comparison, "bytes(write, app=writer)")["after"], 40960.0);
    let text = stdout(flashscope().arg("diff").args(&a).arg("--against").args(&b));
    let first = text.lines().next().expect("a line");
    assert!(first.contains("beyond run-to-run variation") && first.contains("0 better"), "{text}");
    // One a side: variation is unknown, and what to do about it is said.
    let one = stdout(flashscope().arg("diff").args([&a[0], &b[0]]));
    assert!(one.contains("run-to-run variation unknown") && one.contains("--against B1 B2 B3"), "{one}");
    // A report that was kept is the same as its trace.
    let kept = dir.path().join("kept.json");
    std::fs::write(&kept, stdout(flashscope().args(["report", "--json"]).arg(&a[0]))).expect("written");
    let same = stdout(flashscope().args(["diff", "--json"]).args([&kept, &a[0]]));
    let same: Value = serde_json::from_str(&same).expect("JSON");
    let changes = same["changes"].as_array().expect("a list");
    assert!(changes.len() > 20 && changes.iter().all(|change| change["before"] == change["after"]), "{same}");
}

/// Exit status, standard error, and number of failures and errors in the JUnit file.
fn limits(dir: &Path, command: &str, files: &[&PathBuf], conditions: &[&str]) -> (i32, String, [String; 2]) {
    let junit = dir.join("junit.xml");
    _ = std::fs::remove_file(&junit);
    let mut run = flashscope();
    run.arg(command).args(files).arg("--junit").arg(&junit);
    conditions.iter().for_each(|condition| _ = run.args(["--fail-if", condition]));
    let ran = output(&mut run);
    let xml = std::fs::read_to_string(&junit).unwrap_or_default();
    let number = |name: &str| {
        let at = xml.split_once("<testsuites name=\"flashscope --fail-if\"").map_or("", |(_, rest)| rest);
        at.split_once(&format!("{name}=\"")).and_then(|(_, rest)| rest.split('"').next()).unwrap_or("").to_owned()
    };
    (
        ran.status.code().expect("ended"),
        String::from_utf8_lossy(&ran.stderr).into_owned(),
        [number("failures"), number("errors")],
    )
}

#[test]
fn limits_end_a_command_with_3() {
    let dir = TempDir::new("limits");
    let (a, b) = sides(dir.path());
    let of = |conditions: &[&str]| limits(dir.path(), "report", &[&a[0]], conditions);
    let counts = |failures: &str, errors: &str| [failures.to_owned(), errors.to_owned()];
    // 10 writes of 4 KiB in 1.0 s are 2.3 MiB/min; each takes the device 1 ms.
    let kept =
        ["max(d2c, write, 8:16) > 1.1ms", "bytes(app=writer) > 3MiB/min", "errors > 0", "bytes(app=logd) > 1MiB/min"];
    let (status, said, junit) = of(&kept);
    // Nobody called logd did I/O: 0 bytes, and the name may be misspelt.
    let note = "the recording has no I/O of anybody called logd; check the spelling";
    assert_eq!((status, junit), (0, counts("0", "0")));
    assert!(said.contains(note) && said.lines().count() == 1, "{said}");
    let (status, said, junit) = of(&["max(d2c,write,8:16)>0.9ms", "bytes(app=writer) > 2MiB/min", "errors > 0"]);
    assert_eq!((status, junit), (3, counts("2", "0")), "{said}");
    assert!(said.contains("max(d2c, write, 8:16) is 1.00 ms"), "{said}");
    // What the trace has no figure for is no pass.
    let (status, said, junit) = of(&["p99(d2c, write, 8:32) > 1s"]);
    assert_eq!((status, junit), (1, counts("0", "1")), "{said}");
    assert!(said.contains("this trace has no figure p99(d2c, write, 8:32); it has"), "{said}");
    let (status, said, _) = of(&["regress > 10%"]);
    assert!(status == 2 && said.contains("flashscope diff BEFORE AFTER"), "{status} {said}");
    for (wrong, why) in [
        ("p99(fsync) > 20lm", "\"lm\" is not a unit"),
        ("p99(fsync)", "a > or < is missing"),
        ("p99(fsync > 1ms", "the ) of"),
        ("regress > 10ms", "percentage"),
        ("errors > 1/fortnight", "is not a rate"),
    ] {
        let (status, said, _) = of(&[wrong]);
        assert!(status == 2 && said.contains(why) && said.contains("Examples:"), "{wrong}: {status} {said}");
    }
    let both = |files: &[&PathBuf], condition: &str| limits(dir.path(), "diff", files, &[condition]).0;
    assert_eq!(both(&[&a[0], &b[0]], "regress > 10%"), 3);
    assert_eq!(both(&[&a[0], &b[0]], "regress > 101%"), 0);
    assert_eq!(both(&[&b[0], &a[0]], "regress > 10%"), 0);
    assert_eq!(both(&[&a[0], &b[0]], "regress(d2c, read) > 1%"), 0);
    assert_eq!(both(&[&a[0], &b[0]], "p50(d2c, write, 8:16) > 1.9ms"), 3);
}

#[test]
fn a_board_with_a_slower_device() {
    let dir = TempDir::new("diff-board");
    let record = |name: &str, completion_ns: &str| {
        let path = dir.path().join(name);
        let disk = format!("completion_ns={completion_ns}");
        let ran = output(
            flashscope()
                .args([
                    "record", "--on", "board:armv7-blk", "--disk", &disk, "--events", "block", "--packages",
                    "busybox-static", "-o",
                ])
                .arg(&path)
                .args(["--", "busybox", "dd", "if=/dev/nullb0", "of=/dev/null", "bs=4k", "count=200", "iflag=direct"]),
        );
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        path
    };
    let (fast, slow) = (record("fast.dat", "100000"), record("slow.dat", "300000"));
    let comparison = json(flashscope().args(["diff", "--json"]).args([&fast, &slow]));
    let p50 = comparison["changes"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|change| change["figure"].as_str().is_some_and(|name| name.starts_with("p50(d2c, read, ")));
    let p50 = p50.expect("reads of the device");
    let grew = p50["after"].as_f64().expect("known") - p50["before"].as_f64().expect("known");
    // Guest time: the device's timer is 200 µs longer, and a percentile is at most 0.8 % too small.
    assert!((195_000.0..205_000.0).contains(&grew), "{p50}");
}

/// A fault that was there before and is not there after, side by side in text, JSON and page; none of the overview.
#[test]
fn findings_of_both_sides_stand_side_by_side() {
    let dir = TempDir::new("diff-findings");
    let case = |name: &str| flashscope_tests::top().join("tests/cases").join(name).join("input");
    let (bad, good) = (case("io-errors"), case("emmc-fsync-spike"));
    let page = dir.path().join("page.html");
    let found = |a: &Path, b: &Path| -> Value {
        let said = json(flashscope().args(["diff", "--json", "--html"]).arg(&page).args([a, b]));
        flashscope_tests::valid("diff", &said);
        said
    };
    let of_errors = |comparison: &Value| -> Value {
        let all = comparison["findings"].as_array().expect("findings");
        assert!(all.iter().all(|one| one["rule"] != "top_io" && one["rule"] != "where_time_goes"), "{all:#?}");
        all.iter().find(|one| one["rule"] == "errors").cloned().unwrap_or_default()
    };
    let sides = |one: &Value| ["before", "after"].map(|side| one[side].as_array().map_or(9, Vec::len));
    assert_eq!(sides(&of_errors(&found(&bad, &bad))), [1, 1]);
    assert_eq!(sides(&of_errors(&found(&good, &bad))), [0, 1]);
    assert_eq!(of_errors(&found(&good, &good)), Value::Null);
    let gone = of_errors(&found(&bad, &good));
    assert_eq!(sides(&gone), [1, 0]);
    let what = gone["before"][0].as_str().expect("a sentence");
    assert!(what.contains("EIO"), "{what}");
    let text = stdout(flashscope().env("COLUMNS", "200").args(["diff"]).args([&bad, &good]));
    assert!(text.contains("Findings on both sides\n  only before\n    before: ") && text.contains(what), "{text}");
    assert!(std::fs::read_to_string(&page).expect("a page").contains("Findings on both sides"));
}
