//! The page in a real browser: the timeline is zoomed and selected in, tables are sorted and filtered, axe looks for barriers.

use std::path::PathBuf;
use std::process::Command;

use flashscope_tests::{TempDir, flashscope, output, skip, stdout, top};
use serde_json::Value;

/// The scripts with what they need from npm, installed below target/; `None` where that cannot be had, which is said.
fn driver() -> Option<PathBuf> {
    let there = |program: &str| Command::new(program).arg("--version").output().is_ok_and(|ran| ran.status.success());
    for program in ["chromium", "node", "npm"] {
        if !there(program) {
            skip(&format!("{program} is not installed: the page was not driven"));
            return None;
        }
    }
    let dir = top().join("target/tmp/page");
    std::fs::create_dir_all(&dir).expect("made");
    for name in ["package.json", "drive.mjs", "paper.mjs"] {
        std::fs::copy(top().join("tests/page").join(name), dir.join(name)).expect("copied");
    }
    let ran =
        output(Command::new("npm").args(["install", "--no-audit", "--no-fund", "--no-package-lock"]).current_dir(&dir));
    if !ran.status.success() {
        skip(&format!("npm cannot install playwright-core: {}", String::from_utf8_lossy(&ran.stderr).trim()));
        return None;
    }
    Some(dir)
}

fn drive(driver: &std::path::Path, page: &std::path::Path) -> Value {
    // Screenshots stay below target/ for whoever looks into a failure.
    let shots = driver.join("screenshots");
    std::fs::create_dir_all(&shots).expect("made");
    let seen = stdout(
        Command::new("node").arg("drive.mjs").arg("/usr/bin/chromium").arg(page).arg(&shots).current_dir(driver),
    );
    serde_json::from_str(&seen).unwrap_or_else(|error| panic!("{error}: {seen}"))
}

/// The number before the word.
fn count(text: &Value, word: &str) -> u64 {
    let text = text.as_str().expect("text");
    let words: Vec<&str> = text.split([' ', '(']).collect();
    let at = words.iter().position(|one| one.starts_with(word)).unwrap_or_else(|| panic!("no {word} in {text}"));
    words[at - 1].parse().expect("a number")
}

#[test]
fn a_reader_explores_it() {
    let Some(driver) = driver() else { return };
    let dir = TempDir::new("page");
    let page = dir.path().join("page.html");
    // 12 fsyncs of ext4: 36 bios in 0.34 s, the last ones after a pause of 0.27 s.
    let input = top().join("tests/cases/emmc-fsync-spike/input");
    stdout(flashscope().arg("report").arg(&input).arg("--html").arg(&page));
    let seen = drive(&driver, &page);
    assert_eq!(seen["errors"], Value::Array(Vec::new()), "{seen:#}");
    assert_eq!(seen["requests"], Value::Array(Vec::new()), "the page asks the network");
    assert_eq!(seen["axe"], Value::Array(Vec::new()), "barriers for readers");
    assert_eq!((seen["explores"].as_bool(), count(&seen["whole"], "bios")), (Some(true), 36));
    // 25 bios are completed in the first half: 8 calls with 3 bios each, and the ninth's first.
    assert_eq!(count(&seen["picked"], "bios"), 25, "{}", seen["picked"]);
    assert!(seen["command"].as_str().is_some_and(|command| command.starts_with("flashscope report input --from 0.")));
    assert_eq!(count(&seen["zoomed"], "bios"), 25);
    assert_eq!(seen["reset"], seen["whole"]);
    assert_ne!(seen["keyboard"], seen["whole"]);
    assert_eq!(seen["by_kind"][1], "36");
    assert_eq!((&seen["sorted"][0], &seen["sorted_back"][0]), (&"descending".into(), &"ascending".into()));
    let mut backwards = seen["sorted"][1].as_array().expect("cells").clone();
    backwards.reverse();
    assert_eq!(Value::Array(backwards), seen["sorted_back"][1]);
    assert!(seen["filtered_all"].as_str().is_some_and(|text| text.contains("0 of ")), "{}", seen["filtered_all"]);
    assert!(seen["narrow_overflow"].as_i64() <= Some(0), "400 pixels are too few for it");
    // Without scripts nothing but the timeline to explore is missing.
    assert_eq!((seen["plain"]["explores"].as_bool(), &seen["plain"]["tables"]), (Some(false), &seen["tables"]));
}

#[test]
fn hostile_names_stay_names() {
    let Some(driver) = driver() else { return };
    let dir = TempDir::new("page-hostile");
    let input = dir.path().join("hostile.txt");
    let line = |at: u32, step: &str, task: &str| {
        format!("  8,16   0 {at:8}     0.00{at}000000   100  {step}  W   8 + 8 [{task}]\n")
    };
    let name = "</script><b>";
    // A completion has its error there.
    std::fs::write(&input, line(1, "Q", name) + &line(2, "D", name) + &line(3, "C", "0")).expect("written");
    let page = dir.path().join("page.html");
    stdout(flashscope().arg("report").arg(&input).arg("--html").arg(&page));
    let seen = drive(&driver, &page);
    assert_eq!((&seen["errors"], &seen["requests"]), (&Value::Array(Vec::new()), &Value::Array(Vec::new())));
    assert!(seen["whole_rows"][0].as_str().is_some_and(|name| name.contains("</script><b>")), "{}", seen["whole_rows"]);
}

/// A program that waits for each write of 4 KiB: the advice has a line of C with signs that a page escapes.
#[test]
fn what_is_typed_is_in_monospace() {
    let Some(driver) = driver() else { return };
    let dir = TempDir::new("page-typed");
    let (text, page) = (dir.path().join("writes.txt"), dir.path().join("page.html"));
    let mut steps = String::new();
    for i in 0..100 {
        for (step, after) in [("Q", 0), ("D", 1), ("C", 5)] {
            let who = if step == "C" { "0" } else { "logger" };
            let at = i * 3 + after.min(2) + 1;
            let ms = i * 6 + after;
            let time = format!("{}.{:03}000000", ms / 1000, ms % 1000);
            steps += &format!("  8,0   0 {at:8} {time:>14}   100  {step}  WS   {} + 8 [{who}]\n", i * 8);
        }
    }
    std::fs::write(&text, steps).expect("written");
    stdout(flashscope().arg("report").arg(&text).arg("--html").arg(&page));
    let seen = drive(&driver, &page);
    assert_eq!((&seen["errors"], &seen["axe"]), (&Value::Array(Vec::new()), &Value::Array(Vec::new())));
    let typed = seen["typed"].as_array().expect("a list");
    let is_line =
        |one: &&Value| one[0].as_str().is_some_and(|text| text.starts_with("setvbuf(file, NULL, _IOFBF, 1 << 16);"));
    let line = typed.iter().find(is_line).unwrap_or_else(|| panic!("{typed:?}"));
    assert_eq!(line[1], "ui-monospace");
    assert!(seen["narrow_overflow"].as_i64() <= Some(0), "400 pixels are too few for it");
}

/// Text as of blkparse: 40 tasks on four devices, so that every table is longer than a sheet allows.
fn much() -> String {
    let mut text = String::new();
    let mut at = 0u64;
    for i in 0..2_000u64 {
        let (device, task, kind) = (i % 4 * 16, i % 40, ["R", "W", "WS", "RA"][(i % 4) as usize]);
        let (sector, begin) = (i * 7919 % 900_000 * 8, i * 300_000);
        for (step, after) in
            [("Q", 0), ("G", 2_000), ("I", 5_000), ("D", 900_000 + i % 7 * 40_000), ("C", 2_500_000 + i % 11 * 90_000)]
        {
            let time = begin + after;
            let who = if step == "C" { "0".to_owned() } else { format!("a-program-{task}") };
            let (seconds, ns) = (time / 1_000_000_000, time % 1_000_000_000);
            at += 1;
            text += &format!(
                "  8,{device}   0 {at:8} {seconds:5}.{ns:09} {:5}  {step}  {kind}   {sector} + {} [{who}]\n",
                100 + task,
                8 << (i % 5)
            );
        }
    }
    text
}

#[test]
fn on_paper_it_has_six_sheets_at_most() {
    let Some(driver) = driver() else { return };
    let dir = TempDir::new("page-paper");
    let text = dir.path().join("much.txt");
    std::fs::write(&text, much()).expect("written");
    let recorded = |name: &str| top().join("crates/trace/tests/data/trace_dat").join(name);
    for input in [
        text,
        recorded("x86_64-6.12-io.dat"),
        recorded("armv7-6.1-v6.dat"),
        top().join("tests/cases/emmc-fsync-spike/input"),
    ] {
        let page = dir.path().join("page.html");
        stdout(flashscope().arg("report").arg(&input).arg("--html").arg(&page));
        let sheets =
            stdout(Command::new("node").arg("paper.mjs").arg("/usr/bin/chromium").arg(&page).current_dir(&driver));
        let sheets: u64 = sheets.trim().parse().expect("a number");
        assert!((1..=6).contains(&sheets), "{}: {sheets}", input.display());
    }
}
