//! `predict --layout`: a window's flash reads where the recording lacks the pages that it brings in, compared with the board. On JFFS2,
//! where a page is as many reads of flash as its node lies on.

use std::path::{Path, PathBuf};

use flashscope_tests::{Plan, TempDir, flashscope, nothing_lost, output, work};
use flashscope_trace::dat::write_filtered;
use serde_json::Value;

const KNOB: &str = "/sys/class/bdi/mtd-0/read_ahead_kb";

/// Recordings: the file page by page, another file, and the same reads without read-ahead and with it.
fn record(dir: &Path) -> [PathBuf; 4] {
    let by_page = |file: &str| {
        let read = "--count 512 --request 4096 --pattern sequential --readahead 0 --drop-caches";
        format!("/flashscope/agent bench read --file {file} {read}")
    };
    let some = "/situations strided normal /mnt/data".to_owned();
    let steps = [(0, by_page("/mnt/data")), (0, by_page("/mnt/other")), (0, some.clone()), (128, some)];
    let mut lines = vec!["mkdir /mnt".to_owned(), "device-wait /dev/mtd0 5000".to_owned()];
    lines.push("mount mtd0 /mnt jffs2 -".to_owned());
    lines
        .extend([("data", 1), ("other", 2)].map(|(name, seed)| format!("create /mnt/{name} 2097152 printable {seed}")));
    lines.push("settle jffs2_gcd 200 600000".to_owned());
    for (index, (kib, command)) in steps.iter().enumerate() {
        lines.push(format!("write {KNOB} {kib}"));
        lines.push("write /proc/sys/vm/drop_caches 3".to_owned());
        lines.push("record-start --events flash,cache,syscall,sched:sched_switch --ring 8192".to_owned());
        lines.push(format!("run read-{index} {command}"));
        lines.push("record-stop".to_owned());
    }
    let programs = TempDir::new("laid-out-work");
    let mut plan = Plan::new("armv7", "6.1");
    (plan.modules, plan.parts, plan.lines) = (&["jffs2"], &[64], lines);
    plan.files.push(("/situations", 0o755, work("armv7", "readahead/situations.c", programs.path())));
    let booted = plan.boot();
    [0, 1, 2, 3].map(|index| {
        let trace = booted.recording(index);
        nothing_lost(&trace, "the recording");
        let path = dir.join(format!("{index}.dat"));
        write_filtered(&trace, &path, &|_| true).expect("a trace.dat");
        path
    })
}

fn predict(trace: &Path, layout: Option<&Path>) -> Value {
    let command = &mut flashscope();
    command.arg("predict").arg(trace).args(["--json", "--readahead", "128"]);
    if let Some(layout) = layout {
        command.arg("--layout").arg(layout);
    }
    flashscope_tests::json(command)
}

#[test]
fn pages_that_the_recording_lacks_cost_what_another_shows() {
    let dir = TempDir::new("laid-out");
    let [by_page, of_another, without, with] = record(dir.path());
    let measured = predict(&with, None)["recorded"].clone();
    let told = |layout| {
        let row = predict(&without, layout)["rows"][0].clone();
        let off = |told: &str, measured: &Value| {
            (row[told].as_f64().expect("a prediction") / measured.as_f64().expect("a figure") - 1.0) * 100.0
        };
        [off("flash_reads", &measured["flash_reads"]), off("time_ns", &measured["time_ns"])]
    };
    let [plain, laid_out] = [told(None), told(Some(&by_page))];
    println!("{measured}: flash reads and time off by {plain:+.2?} %, with the layout {laid_out:+.2?} %");
    assert!(laid_out[0].abs() <= 1.0 && laid_out[1].abs() <= 5.0, "{laid_out:?}");
    assert!(laid_out[0].abs() <= plain[0].abs(), "{plain:?} {laid_out:?}");
    for (layout, said) in [(of_another, "it has no page of a file of"), (dir.path().join("none.dat"), "none.dat")] {
        let refused = output(flashscope().arg("predict").arg(&without).arg("--layout").arg(&layout));
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(1) && stderr.contains(said), "{:?}: {stderr}", refused.status);
    }
}
