//! Every figure that `--fail-if help` lists: a limit that it exceeds, one that it does not, and one that the recording cannot answer.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use flashscope_tests::{TempDir, flashscope, output, top};

/// What the JUnit file says of a condition: it holds (a failure), it does not, or it cannot be checked (an error).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Holds,
    DoesNot,
    Unknown,
}
use Said::{DoesNot, Holds, Unknown};

/// Ten rounds of 100 ms, as ftrace prints them. In each: `writer` syncs 4 KiB, which takes 3 ms, 1 ms of it in the device and 1 ms in a
/// flush; `reader` reads 8 KiB in 500 µs; `trimmer` discards 64 KiB in 2 ms. The last read fails.
fn recording(dir: &Path) -> PathBuf {
    let mut text = "# tracer: nop\n#\n".to_owned();
    let mut step = |us: u64, task: &str, event: &str| {
        writeln!(text, "{task:>16} [000] ..... {}.{:06}: {event}", us / 1_000_000, us % 1_000_000).expect("a string");
    };
    for round in 0..10 {
        let at = 1_000_000 + round * 100_000;
        let sector = 1000 + 8 * round;
        step(at, "writer-100", "sys_fsync(fd: 3)");
        step(at + 1, "writer-100", "ext4_sync_file_enter: dev 8,16 ino 12 parent 2 datasync 0 ");
        step(at + 10, "writer-100", &format!("block_bio_queue: 8,16 WS {sector} + 8 [writer]"));
        step(at + 20, "writer-100", &format!("block_rq_issue: 8,16 WS 4096 () {sector} + 8 [writer]"));
        step(at + 1020, "<idle>-0", &format!("block_rq_complete: 8,16 WS () {sector} + 8 [0]"));
        step(at + 1100, "writer-100", "block_bio_queue: 8,16 FWS 0 + 0 [writer]");
        step(at + 1110, "kworker/0:1H-9", "block_rq_issue: 8,16 FF 0 () 0 + 0 [kworker/0:1H]");
        step(at + 2110, "<idle>-0", "block_rq_complete: 8,16 FF () 18446744073709551615 + 0 [0]");
        step(at + 2112, "<idle>-0", "block_rq_complete: 8,16 WS () 0 + 0 [0]");
        step(at + 2999, "writer-100", "ext4_sync_file_exit: dev 8,16 ino 12 ret 0");
        step(at + 3000, "writer-100", "sys_fsync -> 0x0");
        let (sector, result) = (90_000 + 16 * round, if round == 9 { -5 } else { 0 });
        step(at + 40_000, "reader-200", &format!("block_bio_queue: 8,16 R {sector} + 16 [reader]"));
        step(at + 40_010, "reader-200", &format!("block_rq_issue: 8,16 R 8192 () {sector} + 16 [reader]"));
        step(at + 40_510, "<idle>-0", &format!("block_rq_complete: 8,16 R () {sector} + 16 [{result}]"));
        let sector = 500_000 + 128 * round;
        step(at + 60_000, "trimmer-300", &format!("block_bio_queue: 8,16 D {sector} + 128 [trimmer]"));
        step(at + 60_010, "trimmer-300", &format!("block_rq_issue: 8,16 D 65536 () {sector} + 128 [trimmer]"));
        step(at + 62_010, "<idle>-0", &format!("block_rq_complete: 8,16 D () {sector} + 128 [0]"));
    }
    let path = dir.join("trace.txt");
    std::fs::write(&path, text).expect("written");
    path
}

/// The results of conditions, in their order.
fn results(dir: &Path, command: &[&Path], conditions: &[String]) -> Vec<Said> {
    let junit = dir.join("junit.xml");
    let mut run = flashscope();
    run.args(command).arg("--junit").arg(&junit);
    conditions.iter().for_each(|condition| _ = run.args(["--fail-if", condition]));
    let ran = output(&mut run);
    let xml = std::fs::read_to_string(&junit)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&ran.stderr)));
    let cases: Vec<Said> = xml
        .split("<testcase ")
        .skip(1)
        .map(|case| match case {
            case if case.contains("<failure") => Holds,
            case if case.contains("<error") => Unknown,
            _ => DoesNot,
        })
        .collect();
    assert_eq!(cases.len(), conditions.len(), "{xml}");
    cases
}

/// Each figure: a limit that it exceeds, one that it does not, and the same figure of something that is not in the recording.
type Row = (&'static str, &'static str, &'static str, &'static str);

fn holds_and_does_not(dir: &Path, trace: &Path, rows: &[Row]) {
    let mut asked: Vec<(String, Said)> = Vec::new();
    for (figure, below, above, absent) in rows {
        asked.push((format!("{figure} > {below}"), Holds));
        asked.push((format!("{figure} > {above}"), DoesNot));
        asked.push((format!("{figure} < {above}"), Holds));
        asked.push((format!("{figure} < {below}"), DoesNot));
        asked.push((format!("{absent} > {below}"), Unknown));
        asked.push((format!("{absent} < {below}"), Unknown));
    }
    let conditions: Vec<String> = asked.iter().map(|(condition, _)| condition.clone()).collect();
    let said = results(dir, &[Path::new("report"), trace], &conditions);
    for ((condition, expected), said) in asked.iter().zip(said) {
        assert_eq!(said, *expected, "{condition}");
    }
}

/// Figures of block I/O. Percentiles are of histograms, and at most 0.8 % too small.
const OF_BLOCK: &[Row] = &[
    ("mean(d2c, write, 8:16)", "990us", "1010us", "mean(d2c, write, 8:32)"),
    ("p50(d2c, read, 8:16)", "490us", "510us", "p50(d2c, read, 8:32)"),
    ("p90(q2c, discard, 8:16)", "1.99ms", "2.02ms", "p90(q2c, discard, 8:32)"),
    ("p99(q2d, write, 8:16)", "9us", "11us", "p99(q2d, zone_append, 8:16)"),
    ("p999(d2c, discard, 8:16)", "1.9ms", "2.1ms", "p999(d2c, secure_erase, 8:16)"),
    ("max(d2c)", "1.9ms", "2.1ms", "max(x2y)"),
    ("max(q2c)", "1.9ms", "2.1ms", "max(g2i)"),
    ("mean(fsync)", "2.9ms", "3.1ms", "mean(msync)"),
    ("p50(fsync)", "2.9ms", "3.1ms", "p50(fsync, 8:16)"),
    ("p90(flush)", "990us", "1010us", "p90(flushes)"),
    ("p99(flush)", "990us", "1010us", "p99(flush, app=writer)"),
    ("p999(fsync)", "2.9ms", "3.1ms", "p999(fdatasync)"),
    ("max(flush)", "990us", "1010us", "max(flush, 8:32)"),
    ("mean(q2c, app=reader)", "500us", "520us", "mean(q2c, app=nobody)"),
    ("p50(d2c, app=reader)", "490us", "510us", "p50(d2c, app=nobody)"),
    ("p90(d2c, app=trimmer)", "1.9ms", "2.1ms", "p90(q2d, app=trimmer)"),
    ("p99(d2c, process=trimmer)", "1.9ms", "2.1ms", "p99(d2c, process=nobody)"),
    ("p999(q2c, app=trimmer)", "1.9ms", "2.1ms", "p999(q2c, app=nobody)"),
    ("max(q2c, app=reader)", "500us", "520us", "max(q2c, app=nobody)"),
    ("time(fsync)", "29ms", "31ms", "time(fdatasync)"),
    ("time(fsync, app=writer)", "29ms", "31ms", "time(fsync, app=reader)"),
    ("bytes(write, 8:16)", "39KiB", "41KiB", "bytes(write, 8:32)"),
    ("bytes(read, 8:16)", "79KiB", "81KiB", "bytes(read, sdz)"),
    ("bios", "29", "41", "bios(8:32)"),
    ("errors", "0", "2", "errors(8:16)"),
];

/// Figures of raw NAND: a log of flashmon with one of each.
const OF_NAND: &[Row] = &[
    ("reads", "0", "2", "bios"),
    ("programs", "0", "2", "errors"),
    ("erases", "0", "2", "retries"),
    ("reads(app=cat)", "0", "2", "reads(app=nobody)"),
    ("programs(app=sync_supers)", "0", "2", "programs(app=cat)"),
    ("erases(app=jffs2_gcd_mtd6)", "0", "2", "erases(app=cat)"),
];

#[test]
fn each_figure_holds_does_not_and_is_unknown() {
    let dir = TempDir::new("conditions");
    let trace = recording(dir.path());
    holds_and_does_not(dir.path(), &trace, OF_BLOCK);
    let nand = top().join("crates/trace/tests/data/flashmon/paper.log");
    holds_and_does_not(dir.path(), &nand, OF_NAND);
    // A total has no variant that is missing, but another kind of trace has none. Who did nothing has 0 bytes.
    let of =
        |path: &Path, condition: &str| results(dir.path(), &[Path::new("report"), path], &[condition.to_owned()])[0];
    for (condition, on_block, on_nand) in [
        ("bytes > 100KiB", Holds, Unknown),
        ("bytes > 1MiB", DoesNot, Unknown),
        ("retries > 0", DoesNot, Unknown),
        ("retries < 1", Holds, Unknown),
        ("bytes(app=writer) > 39KiB", Holds, Unknown),
        ("bytes(app=writer) > 41KiB", DoesNot, Unknown),
        ("bytes(read, app=reader) > 79KiB", Holds, Unknown),
        ("bytes(write, app=reader) > 0B", DoesNot, Unknown),
        ("bytes(app=nobody) > 0B", DoesNot, Unknown),
        // Of another unit than the figure.
        ("errors > 1ms", Unknown, Unknown),
        ("max(d2c) > 1KiB", Unknown, Unknown),
        ("bytes > 1ms", Unknown, Unknown),
    ] {
        assert_eq!([of(&trace, condition), of(&nand, condition)], [on_block, on_nand], "{condition}");
    }
}

/// 40 KiB in 0.96 s, in all units of a limit; and a rate of a recording without a length.
#[test]
fn each_unit_and_rate_is_the_same_limit() {
    let dir = TempDir::new("conditions-units");
    let trace = recording(dir.path());
    let mut asked = Vec::new();
    for (figure, below, above) in [
        ("bytes(app=writer)", "40959B", "40961B"),
        ("bytes(app=writer)", "40.9kB", "41kB"),
        ("bytes(app=writer)", "0.0409MB", "0.041MB"),
        ("bytes(app=writer)", "0.0000409GB", "0.000041GB"),
        ("bytes(app=writer)", "39.9KiB", "40.1KiB"),
        ("bytes(app=writer)", "0.039MiB", "0.0391MiB"),
        ("bytes(app=writer)", "0.000038GiB", "0.0000382GiB"),
        ("bytes(app=writer)", "41KiB/s", "43KiB/s"),
        ("bytes(app=writer)", "2.4MiB/min", "2.5MiB/min"),
        ("bytes(app=writer)", "144MiB/h", "150MiB/h"),
        ("errors", "1/s", "1.1/s"),
        ("max(flush)", "990000ns", "1010000ns"),
        ("max(flush)", "990us", "1010us"),
        ("max(flush)", "0.99ms", "1.01ms"),
        ("max(flush)", "0.00099s", "0.00101s"),
    ] {
        asked.push((format!("{figure} > {below}"), Holds));
        asked.push((format!("{figure} > {above}"), DoesNot));
    }
    let conditions: Vec<String> = asked.iter().map(|(condition, _)| condition.clone()).collect();
    let said = results(dir.path(), &[Path::new("report"), &trace], &conditions);
    for ((condition, expected), said) in asked.iter().zip(said) {
        assert_eq!(said, *expected, "{condition}");
    }
}

#[test]
fn a_change_holds_does_not_and_is_unknown() {
    let dir = TempDir::new("conditions-regress");
    let trace = recording(dir.path());
    let slower = dir.path().join("slower.txt");
    // The reads take 500 µs longer.
    let text = std::fs::read_to_string(&trace).expect("a trace");
    let longer = |line: &str| line.replace("40510: block_rq_complete", "41010: block_rq_complete");
    std::fs::write(&slower, text.lines().map(|line| longer(line) + "\n").collect::<String>()).expect("written");
    let of = |before: &Path, after: &Path, condition: &str| {
        results(dir.path(), &[Path::new("diff"), before, after], &[condition.to_owned()])[0]
    };
    for (condition, forward, back) in [
        ("regress > 10%", Holds, DoesNot),
        ("regress > 150%", DoesNot, DoesNot),
        ("regress(mean, d2c, read, 8:16) > 10%", Holds, DoesNot),
        ("regress(d2c, write) > 10%", DoesNot, DoesNot),
        ("regress(p50, d2c, app=reader) > 10%", Holds, DoesNot),
        ("regress(d2c, write, 8:32) > 10%", Unknown, Unknown),
        ("max(d2c, read, 8:16) > 900us", Holds, DoesNot),
    ] {
        assert_eq!([of(&trace, &slower, condition), of(&slower, &trace, condition)], [forward, back], "{condition}");
    }
}

/// A figure that is added to the grammar has to be added here.
#[test]
fn each_word_of_the_grammar_is_tested() {
    let help = output(flashscope().args(["report", "x", "--fail-if", "help"]));
    let help = String::from_utf8_lossy(&[help.stdout, help.stderr].concat()).into_owned();
    let figures = help.split_once("where FIGURE is").expect("the figures").1;
    let figures = figures.split_once("and VALUE is").expect("the values").0;
    let source = std::fs::read_to_string(top().join("tests/conditions.rs")).expect("this file");
    let mut checked = 0;
    for line in figures.lines() {
        // The text behind two spaces explains.
        let form = line.trim().split("  ").next().unwrap_or_default();
        for word in form.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
            let is_placeholder = word.bytes().all(|b| b.is_ascii_uppercase());
            let is_prose = ["each", "also", "or"].contains(&word);
            checked += u32::from(!is_placeholder && !is_prose);
            let shown = |open: &str| source.contains(&format!("{open}{word}"));
            assert!(
                is_placeholder || is_prose || shown("(\"") || shown("(") || shown(", "),
                "{word} of --fail-if help is in no condition here: {line}"
            );
        }
    }
    assert!(checked > 30, "{help}");
}
