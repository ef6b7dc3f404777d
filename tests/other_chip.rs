//! `predict --chip`: what a workload takes on another chip, compared with a board that has it. On YAFFS2, which reads whole pages: for
//! a part of a page the kernel changes the column (`NAND_CMD_RNDOUT`), and its simulated chip (drivers/mtd/nand/raw/nandsim.c, the
//! states of `STATE_CMD_RNDOUT | ACTION_CPY`) takes the array's time for that once more, which no chip does.

use std::path::{Path, PathBuf};

use flashscope_tests::{Booted, Plan, TempDir, flashscope, nothing_lost, output, top, work};
use flashscope_trace::dat::write_filtered;
use serde_json::Value;

const KNOB: &str = "/sys/block/mtdblock0/queue/read_ahead_kb";
/// What is read, and with which window.
const READ: [(&str, u64); 3] = [("whole", 0), ("whole", 128), ("strided", 0)];

/// A recording for each.
fn boot(board: &str) -> Booted {
    let dir = TempDir::new("other-chip-work");
    let mut plan = Plan::new(board, "6.1");
    let there = "device-wait /dev/mtdblock0 5000".to_owned();
    let mut lines = vec!["mkdir /mnt".to_owned(), there, "mount /dev/mtdblock0 /mnt yaffs2 -".to_owned()];
    lines.push("create /mnt/data 2097152 printable 1".to_owned());
    lines.push("settle yaffs2_gc 200 600000".to_owned());
    for (index, (program, kib)) in READ.into_iter().enumerate() {
        lines.push(format!("write {KNOB} {kib}"));
        lines.push("write /proc/sys/vm/drop_caches 3".to_owned());
        lines.push("record-start --events flash,cache,syscall --ring 8192".to_owned());
        lines.push(format!("run read-{index} /situations {program} normal /mnt/data"));
        lines.push("record-stop".to_owned());
    }
    (plan.modules, plan.parts, plan.lines) = (&["mtdblock", "yaffs2"], &[64], lines);
    plan.files.push(("/situations", 0o755, work("armv7", "readahead/situations.c", dir.path())));
    plan.boot()
}

fn traces(booted: &Booted, dir: &Path, name: &str) -> Vec<PathBuf> {
    let of = |index: usize| {
        let trace = booted.recording(index);
        nothing_lost(&trace, "the recording");
        let path = dir.join(format!("{name}-{index}.dat"));
        write_filtered(&trace, &path, &|_| true).expect("a trace.dat");
        path
    };
    (0..READ.len()).map(of).collect()
}

fn predict(trace: &Path, kib: u64, more: &[&str]) -> Value {
    let kib = kib.to_string();
    let command = &mut flashscope();
    command.arg("predict").arg(trace).args(["--json", "--readahead", &kib]).args(more);
    flashscope_tests::json(command)
}

#[test]
fn times_on_another_chip_are_those_of_a_board_that_has_it() {
    let dir = TempDir::new("other-chip");
    let path = |name: &str| dir.path().join(name);
    let chip = std::fs::read_to_string(top().join("chips/micron-slc-256m.toml")).expect("the chip");
    let other = |from: &str, to: &str| {
        assert!(chip.contains(from), "{from}");
        chip.replace(from, to)
    };
    std::fs::write(path("slow.toml"), other("read_array_us = 25", "read_array_us = 100")).expect("a chip");
    std::fs::write(path("large.toml"), other("page_bytes = 2048", "page_bytes = 4096")).expect("a chip");
    let slow = path("slow.toml").display().to_string();
    let board =
        format!("name = \"slow\"\ninherits = \"armv7\"\ndescription = \"armv7 with a slow chip\"\nchip = \"{slow}\"\n");
    std::fs::write(path("board.toml"), board).expect("a board");
    let usual = traces(&boot("armv7"), dir.path(), "usual");
    let slower = traces(&boot(&path("board.toml").display().to_string()), dir.path(), "slower");
    for (index, (program, kib)) in READ.into_iter().enumerate() {
        let measured = predict(&slower[index], kib, &[])["recorded"]["time_ns"].as_f64().expect("a time");
        let before = predict(&usual[index], kib, &[])["recorded"]["time_ns"].as_f64().expect("a time");
        let told = predict(&usual[index], kib, &["--chip", &slow, "--recorded-chip", "micron-slc-256m"]);
        let told = told["rows"][0]["time_ns"].as_f64().expect("a time");
        let off = (told / measured - 1.0) * 100.0;
        println!(
            "{program}, {kib} KiB: {:.2} ms on the chip, {:.2} on the slower one, predicted {:.2}, {off:+.2} %",
            before / 1e6,
            measured / 1e6,
            told / 1e6
        );
        assert!(measured > 1.2 * before, "the chip is slower");
        assert!(off.abs() <= 2.0, "{program}, {kib} KiB: {off:+.2} %");
    }
    let large = path("large.toml").display().to_string();
    for (chips, said) in [
        (["--chip", &large, "--recorded-chip", "micron-slc-256m"], "its pages have 4096 bytes"),
        (["--chip", "micron-slc-256m", "--recorded-chip", &slow], "it was recorded on another chip"),
    ] {
        let refused = output(flashscope().arg("predict").arg(&usual[0]).args(chips));
        let stderr = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(2) && stderr.contains(said), "{:?}: {stderr}", refused.status);
    }
}
