//! What is rare: merges without an event, parts, copies of a device's own, waits for another's flush.

use super::{count, input, report, rows, stage};
use flashscope_tests::{TempDir, flashscope, output};
use serde_json::Value;

/// Bios that were queued and completed, requests that nobody queued, and those that were given back.
fn counts(report: &Value) -> [u64; 4] {
    ["bios_queued", "bios_completed", "requests", "requeues"].map(|what| count(report, what))
}

fn moved(report: &Value, name: &str) -> [u64; 2] {
    let all = report["block"]["originators"]["originators"].as_array().expect("originators");
    let one = all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name}: {all:?}"));
    ["read_bytes", "written_bytes"].map(|figure| one[figure].as_u64().expect("bytes"))
}

/// Each case's ORIGIN has the figures, and how they follow by hand.
#[test]
fn rare_ways_of_a_bio_have_their_times() {
    for (case, of, q2c, d2c) in [
        ("discard-ranges", [18, 18, 0, 0], [18, 507_000, 510_000], [18, 500_000, 500_000]),
        ("discard-ranges-requeued", [18, 18, 0, 1], [18, 507_000, 700_000], [18, 500_000, 500_000]),
        ("discard-ranges-lost-queue", [17, 16, 1, 0], [16, 507_000, 510_000], [16, 500_000, 500_000]),
        ("dm-thin-copy", [24, 24, 0, 0], [24, 106_000, 1_292_000], [24, 100_000, 500_000]),
        ("partial-completions", [8, 8, 0, 0], [8, 305_000, 305_000], [8, 300_000, 300_000]),
        ("partial-requeue-error", [6, 6, 0, 6], [6, 1_210_000, 1_210_000], [6, 100_000, 100_000]),
        ("split-of-splits", [6, 6, 0, 0], [6, 511_000, 511_000], [6, 500_000, 500_000]),
        ("front-merge-host-lost", [23, 23, 1, 0], [23, 118_000, 130_000], [23, 100_000, 100_000]),
        ("request-merge", [24, 24, 0, 0], [24, 114_000, 120_000], [24, 100_000, 100_000]),
        ("split-rest-merges", [16, 16, 0, 0], [16, 212_000, 220_000], [16, 200_000, 215_000]),
        ("external-journal", [24, 24, 6, 0], [24, 105_000, 1_005_000], [24, 100_000, 1_000_000]),
        ("dm-requeue", [6, 6, 0, 0], [6, 106_000, 5_106_000], [6, 100_000, 5_100_000]),
        ("unplug-by-schedule", [12, 12, 6, 0], [12, 207_000, 510_000], [12, 100_000, 100_000]),
        ("flush-three-waiters", [15, 15, 10, 0], [15, 1_006_000, 1_911_000], [15, 1_001_000, 1_002_000]),
        ("oops-dump", [6, 6, 0, 0], [6, 105_000, 105_000], [6, 100_000, 100_000]),
        ("split-lost-completion", [16, 15, 0, 0], [15, 207_000, 207_000], [15, 202_000, 202_000]),
        ("zones-perf", [15, 15, 0, 0], [15, 55_000, 9_005_000], [15, 50_000, 9_000_000]),
        ("discard-parts", [12, 12, 0, 0], [12, 706_000, 706_000], [12, 703_000, 703_000]),
        ("flush-before-fua-shared", [12, 12, 8, 0], [12, 1_111_000, 2_123_000], [12, 1_106_000, 1_115_000]),
        ("raid5-reads-first", [6, 6, 0, 0], [6, 430_000, 430_000], [6, 200_000, 200_000]),
        ("clock-wraps", [10, 10, 0, 0], [10, 405_000, 405_000], [10, 400_000, 400_000]),
        ("requeued-twice", [5, 5, 0, 10], [5, 306_000, 306_000], [5, 100_000, 100_000]),
        ("requeued-and-merged", [10, 10, 0, 10], [10, 203_000, 206_000], [10, 100_000, 100_000]),
        ("removed-and-added", [8, 8, 0, 0], [8, 1_000, 2_002_000], [7, 300_000, 2_000_000]),
    ] {
        let report = report(case);
        assert_eq!((counts(&report), stage(&report, "Q2C"), stage(&report, "D2C")), (of, q2c, d2c), "{case}");
    }
}

/// Requests that begin where the one before ended; number, least and most of the other distances.
#[test]
fn a_request_moves_the_device_once_and_a_command_never() {
    for (case, sequential, others) in
        [("requeued-twice", 0, [4, 56, 56]), ("requeued-and-merged", 5, [4, 48, 48]), ("commands-alone", 0, [0; 3])]
    {
        let over_time = &report(case)["block"]["over_time"];
        let distances = ["n", "min", "max"].map(|figure| over_time["seek_sectors"][figure].as_u64());
        // No distance has no least one.
        let others_shown = others.map(|figure| Some(figure).filter(|_| others[0] > 0));
        assert_eq!(over_time["sequential"].as_u64(), Some(sequential), "{case}");
        assert_eq!((distances[0], &distances[1..]), (Some(others[0]), &others_shown[1..]), "{case}");
        let windows = over_time["windows"].as_array().expect("windows").iter();
        assert_eq!(windows.map(|one| one["seeks"].as_u64().expect("a number")).sum::<u64>(), others[0], "{case}");
    }
}

/// Two requests that became one are one in the report and in the rows, and belong to the task that issued it first.
#[test]
fn requests_that_are_merged_behind_their_requeue_are_one() {
    let case = "requests-requeued-and-merged";
    let report = report(case);
    let counts = ["requests", "requests_completed", "requeues"].map(|what| count(&report, what));
    assert_eq!((counts, stage(&report, "D2C")), ([5, 5, 10], [5, 100_000, 100_000]));
    let groups = report["block"]["groups"].as_array().expect("groups").iter();
    let issuers = groups.filter(|group| group["by"] == "owner").map(|group| (group["name"].as_str(), &group["bytes"]));
    assert_eq!(issuers.collect::<Vec<_>>(), [(Some("app (730)"), &Value::from(5 * 8192))]);
    let rows = rows(case, "requests");
    assert_eq!(rows.len(), 5);
    for row in &rows {
        assert_eq!(
            [&row["issuer"], &row["bytes"], &row["d2c_ns"]],
            [&"app".into(), &8192.into(), &Value::from(100_000)]
        );
    }
}

/// One I/O may be a bio of both devices, so the lower ones' rows do not say that they are no others'. The report's total is unknown, too.
#[test]
fn rows_of_devices_that_another_may_lie_on_leave_it_open() {
    assert!(report("bcache-hits")["block"]["stages"]["bios_queued"]["unknown"].is_string());
    let below = |of: &str, device: &str| -> Vec<Value> {
        let rows = rows("bcache-hits", of).into_iter().filter(|row| row["device"] == device);
        rows.map(|row| row["below"].clone()).collect()
    };
    assert_eq!(below("bios", "252:0"), vec![Value::from(false); 12]);
    assert_eq!((below("bios", "259:0"), below("bios", "8:0")), (vec![Value::Null; 10], vec![Value::Null; 2]));
    assert_eq!((below("requests", "259:0"), below("requests", "8:0")), (vec![Value::Null; 10], vec![Value::Null; 2]));
}

#[test]
fn a_discards_request_holds_the_bios_that_were_merged_into_it() {
    for case in ["discard-ranges", "discard-ranges-requeued"] {
        let requests = rows(case, "requests");
        assert_eq!(requests.len(), 6, "{case}");
        for request in &requests {
            assert_eq!((&request["bios"], &request["bytes"]), (&3.into(), &(112 * 512).into()), "{case}: {request}");
        }
        let bios = rows(case, "bios");
        assert!(bios.len() == 18 && bios.iter().all(|bio| bio["status"] == "completed"), "{case}");
    }
    let unmatched = &report("discard-ranges")["block"]["stages"]["unmatched"];
    assert!(unmatched.as_object().expect("counts").values().all(|n| n == 0), "{unmatched}");
    // Whose the rest of a request is cannot be told: nothing is made up.
    let bios = rows("discard-ranges-lost-queue", "bios");
    let open: Vec<&Value> = bios.iter().filter(|bio| bio["status"] != "completed").collect();
    assert_eq!(open.len(), 1, "{open:?}");
    assert_eq!((&open[0]["sector"], &open[0]["completed_ns"]), (&43_000.into(), &Value::Null));
}

#[test]
fn what_a_device_copies_is_not_the_programs() {
    let report = report("dm-thin-copy");
    assert_eq!(moved(&report, "app (61)"), [0, 6 * 4096]);
    assert_eq!(moved(&report, "kworker/u8:1 (40)"), [6 * 65_536, 6 * 65_536]);
    let levels = report["block"]["stack"].as_array().expect("levels");
    let level = |upper: &str| levels.iter().find(|level| level["upper"] == upper).expect("a level").clone();
    assert_eq!([&level("253:4")["lower_bios"], &level("253:4")["lower_bytes"]], [6, 6 * 4096]);
    assert_eq!([&level("253:2")["lower_bios"], &level("253:3")["lower_bios"]], [18, 6]);
}

#[test]
fn failures_in_a_part_and_below_a_retry() {
    let of = report("partial-requeue-error");
    let errors = &of["block"]["errors"];
    assert_eq!((&errors["failed"], errors["failures"].as_array().map(Vec::len)), (&1.into(), Some(1)));
    let failure = &errors["failures"][0];
    assert_eq!([&failure["sector"], &failure["bytes"], &failure["errno"]], [1208, 8192, -5]);
    let errors = &report("dm-requeue")["block"]["errors"];
    assert_eq!([&errors["failed"], &errors["failed_below"]], [0, 1]);
}

#[test]
fn an_fsync_waits_for_the_disk_of_the_files_and_for_the_one_of_the_journal() {
    let report = report("external-journal");
    let syncs = &report["block"]["syncs"];
    assert_eq!([&syncs["durations"]["n"], &syncs["durations"]["mean"]], [6, 1_500_000]);
    for call in syncs["calls"].as_array().expect("calls") {
        let waits = &call["waits"];
        let of = ["data_ns", "journal_ns", "flush_ns"].map(|part| waits[part].as_u64());
        assert_eq!(of, [105_000, 310_000, 1_000_000].map(Some), "{call}");
    }
}

/// As people paste it: columns with tabs, blanks of a web page, colours of a terminal, times since the event before.
#[test]
fn a_text_with_tabs_blanks_or_colours_is_read() {
    let dir = TempDir::new("rare-pasted");
    let plain = std::fs::read_to_string(input("partial-completions")).expect("the input");
    let tabs = |line: &str| line.splitn(6, char::is_whitespace).collect::<Vec<_>>().join("\t");
    let columns: String = plain
        .lines()
        .map(|line| format!("{}\n", tabs(&line.split_whitespace().collect::<Vec<_>>().join(" "))))
        .collect();
    let coloured = plain.replace("block_rq_issue", "\u{1b}[01;31m\u{1b}[Kblock_rq_issue\u{1b}[m\u{1b}[K");
    // trace-cmd report --ts-diff
    let differences = plain.replace(": block_", ": (+12)  block_");
    let whole = report("partial-completions")["block"].clone();
    for (way, text) in [
        ("tabs", columns),
        ("blanks", plain.replace("  ", "\u{a0} ")),
        ("colours", coloured),
        ("differences", differences),
    ] {
        let path = dir.path().join(way);
        std::fs::write(&path, text).expect("a file");
        assert_eq!(report(&path)["block"], whole, "{way}");
    }
}

/// Each by what it is, in one line, with nothing on standard output.
#[test]
fn output_of_other_tools_is_called_by_its_name() {
    let dir = TempDir::new("rare-refused");
    for (name, text, says) in [
        (
            "two-files",
            "a.dat: cpus=1\nb.dat: cpus=1\na.dat:   cat-7  [000]  5.000000: block_bio_queue:   8,0 R 96 + 8 [cat]\n\
             b.dat:   cat-7  [000]  5.000100: block_bio_queue:   8,0 R 96 + 8 [cat]\n",
            "several files",
        ),
        ("fatrace", "12:00:01.5 app(12): RCO /home/u/x\napp(12): W /home/u/y\n", "fatrace's output"),
        (
            "block_dump",
            "[  100.1] kjournald(1062): WRITE block 12345 on sda1 (8 sectors)\n[  100.2] bash(22): READ block 9 on sda1 (8 sectors)\n",
            "block_dump",
        ),
        ("stacks", "fio;entry_SYSCALL_64;vfs_read 123\nfio;entry_SYSCALL_64;vfs_write 3\n", "stacks with counts"),
        ("perf-report", "# Samples: 1K of event 'block:block_rq_issue'\n#\n    90.00%  fio\n", "perf report's output"),
        (
            "funccount",
            "Tracing 3 functions for \"submit_bio*\"... Hit Ctrl-C to end.\nFUNC   COUNT\nsubmit_bio 20\n",
            "counts of a function's arguments (argdist, funccount)",
        ),
        (
            "dd",
            "10+0 records in\n10+0 records out\n10485760 bytes (10 MB, 10 MiB) copied, 0.1 s, 104 MB/s\n",
            "a benchmark's output",
        ),
        ("iotop", "   12 be/4 root        0.00 B/s    7.84 K/s  0.00 %  0.00 % fio\n", "iotop's table"),
        (
            "strace-c",
            "% time     seconds  usecs/call     calls    errors syscall\n 99.0    0.100000       10000        10           fsync\n",
            "strace's output",
        ),
        (
            "recorder",
            "=== sda ===\n  CPU  0:                    2 events,        1 KiB data\n  Total:                     2 events (dropped 0),        1 KiB data\n",
            "what blktrace prints",
        ),
        (
            "packed-page",
            "<!DOCTYPE html>\n<html>\n<script id=\"viewer-data\" type=\"text/plain\">\nH4sIAAAAAAAAA6tWSq0oSM0rVrKKjo6NrQUA\n</script>\n</html>\n",
            "packed alone",
        ),
        ("page", "<html><body><pre>app-1 [000] 5.0: block_bio_queue</pre></body></html>\n", "a web page"),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("a file");
        let output = output(flashscope().arg("report").arg(&path));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{name}: {stderr}");
        assert!(output.stdout.is_empty() && stderr.contains(says), "{says:?} is not in: {stderr}");
    }
}

/// I/O that must not wait ended without reaching the device: nothing failed there.
#[test]
fn a_refusal_to_wait_is_no_failing_device() {
    let report = report("nowait");
    let errors = &report["block"]["errors"];
    assert_eq!([&errors["failed"], &errors["no_fault"], &errors["recovered"]], [1, 1, 1]);
    assert_eq!(errors["failures"][0]["error"], "EAGAIN");
    let findings = report["findings"].as_array().or_else(|| report["block"]["findings"].as_array()).expect("findings");
    assert!(!findings.is_empty() && findings.iter().all(|one| one["rule"] != "errors"), "{findings:?}");
    let d2c = &report["block"]["stages"]["all"][6];
    assert_eq!([&d2c["n"], &d2c["mean_ns"]], [1, 100_000]);
}

/// Bios of 400 us each: in jiffies of 10 ms their steps have one time, and no duration follows.
#[test]
fn a_text_in_jiffies_is_refused() {
    let dir = TempDir::new("cases-jiffies");
    let path = dir.path().join("input");
    let text = |jiffies: bool| -> String {
        let mut text = String::new();
        for n in 0..5 {
            let steps = ["bio_queue: 8,0 R", "getrq: 8,0 R", "rq_issue: 8,0 R 4096 ()", "rq_complete: 8,0 R ()"];
            for (step, us) in steps.iter().zip([0, 10, 20, 400]) {
                let us = 20_000 * n + if jiffies { 0 } else { us };
                let by = if step.starts_with("rq_complete") { "[0]" } else { "[dd]" };
                text += &format!("  dd-512 [000] ..... 5.{us:06}: block_{step} {} + 8 {by}\n", 800 + 8 * n);
            }
        }
        text
    };
    std::fs::write(&path, text(true)).expect("written");
    let refused = output(flashscope().args(["report", "--json"]).arg(&path));
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("in whole jiffies"), "{refused:?}");
    std::fs::write(&path, text(false)).expect("written");
    let json = flashscope_tests::json(flashscope().args(["report", "--json"]).arg(&path));
    assert_eq!(count(&json, "bios_queued"), 5);
}
