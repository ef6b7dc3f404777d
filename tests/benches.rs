//! The agent's benchmarks on boards, against programs that are not ours: Debian's postmark, Python's sqlite3, and the trace
//! of what was replayed.

use std::path::Path;
use std::process::Command;

use flashscope_analysis::Analysis as _;
use flashscope_analysis::flash::{OpCounts, Window, WindowCounts};
use flashscope_tests::{Booted, Plan, TempDir, events, flashscope, nothing_lost, stdout, top};
use flashscope_trace::{BlockAction, EventKind, RequestKind};
use serde_json::Value;

const AGENT: &str = "/flashscope/agent";

/// Mean and standard deviation.
fn spread(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (values.len() - 1) as f64).sqrt())
}

/// The number before a word of postmark's report; megabytes are its 2^20 bytes.
fn said(report: &str, what: &str) -> f64 {
    let line = report.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("{what}: {report}"));
    line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

/// Flashmon's configuration with several seeds in both: what is done is drawn at random, so means are held within four
/// standard errors of their difference.
#[test]
fn postmark_does_as_many_files_transactions_and_bytes_as_debians() {
    let settings = |at: &str, seed: u64| {
        format!(
            "set location {at}\nset number 800\nset transactions 3000\nset size 512 10240\nset subdirectories 10\n\
             set read 4096\nset write 4096\nset bias read 5\nset bias create 5\nset seed {seed}\nrun\nquit\n"
        )
    };
    let ours: Vec<u64> = (1..=6).collect();
    let theirs: Vec<u64> = vec![42, 1, 2, 3];
    let mut plan = Plan::new("armv7-blk", "6.1");
    plan.packages = &["postmark"];
    let names: Vec<String> = theirs.iter().map(|seed| format!("/seed-{seed}")).collect();
    for (seed, name) in theirs.iter().zip(&names) {
        // One of each on the disk; what is counted does not depend on where the files lie.
        let at = if *seed == 42 { "/mnt" } else { "/tmp" };
        plan.files.push((name, 0o644, settings(at, *seed).into_bytes()));
        plan.lines.push(format!("run theirs-{seed} postmark {name}"));
    }
    for seed in &ours {
        let at = if *seed == 1 { "/mnt" } else { "/tmp" };
        plan.lines.push(format!("run ours-{seed} {AGENT} bench postmark --dir {at} --config flashmon --seed {seed}"));
    }
    let booted = plan.boot();
    let results: Vec<Value> = ours.iter().map(|seed| booted.json(&format!("ours-{seed}"))).collect();
    let reports: Vec<String> = theirs
        .iter()
        .map(|seed| String::from_utf8(booted.step(&format!("theirs-{seed}")).stdout.clone()).expect("text"))
        .collect();
    // The paper's own figures (Flashmon V2, section 4.2.1) are what Debian's postmark does with its default seed.
    assert_eq!((said(&reports[0], "megabytes read"), said(&reports[0], "megabytes written")), (9.25, 14.45));
    for result in &results {
        let number = |name: &str| result[name].as_u64().expect("a number");
        assert_eq!(number("created"), number("deleted"));
        assert_eq!(number("created_in_transactions") + number("deleted_in_transactions"), 3000);
        assert_eq!(number("read") + number("appended") + number("appended_nothing"), 3000);
    }
    for (name, words, unit) in [
        ("created", " created (", 1.0),
        ("deleted", " deleted (", 1.0),
        ("read", " read (", 1.0),
        ("appended", " appended (", 1.0),
        ("bytes_read", "megabytes read", f64::from(1 << 20)),
        ("bytes_written", "megabytes written", f64::from(1 << 20)),
    ] {
        let a: Vec<f64> = results.iter().map(|result| result[name].as_f64().expect("a number") / unit).collect();
        let b: Vec<f64> = reports.iter().map(|report| said(report, words)).collect();
        let ((mean_a, sd_a), (mean_b, sd_b)) = (spread(&a), spread(&b));
        let error = (sd_a.powi(2) / a.len() as f64 + sd_b.powi(2) / b.len() as f64).sqrt();
        let off = (mean_a - mean_b).abs() / error;
        println!(
            "{name}: ours {mean_a:.2} ± {sd_a:.2}, postmark's {mean_b:.2} ± {sd_b:.2}: {off:.1} standard errors apart"
        );
        assert!(off <= 4.0, "{name}: {a:?} {b:?}");
        // Randomness that is wider than that would hide everything.
        assert!(error / mean_b < 0.02, "{name}: {error}");
    }
}

fn flashscope_sqlite() -> Vec<u8> {
    let path = top().join("agent/build/armhf/flashscope-sqlite");
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}: make -C agent sqlite", path.display()))
}

fn counts(booted: &Booted, spans: &[&Value]) -> Vec<OpCounts> {
    let number = |value: &Value| value.as_u64().expect("a time");
    let windows = spans.iter().map(|span| Window::new(number(&span["begin_ns"]), number(&span["end_ns"])));
    let mut counts = WindowCounts::new(windows);
    let trace = booted.recording(0);
    events(&trace, |event| counts.event(event));
    nothing_lost(&trace, "the recording");
    counts.finish()
}

/// The database is read by somebody else's SQLite, which finds the same records; each run reads it from the flash anew; and a
/// partition that is too small is told.
#[test]
fn sqlite_selects_what_others_find_from_a_cold_cache() {
    let mut plan = Plan::new("armv7", "6.1");
    plan.parts = &[160, 8];
    plan.modules = &["jffs2"];
    plan.files = vec![("/flashscope/flashscope-sqlite", 0o755, flashscope_sqlite())];
    let bench = format!("{AGENT} bench sqlite --file /mnt/db --drop-caches");
    plan.lines = [
        "mkdir /mnt",
        "mount mtd0 /mnt jffs2 -",
        "mkdir /small",
        "mount mtd1 /small jffs2 -",
        "record-start --events flash --mode ring --ring 8192",
        &format!("run kernels {bench} --create --selects 1,20,1000 --pattern sequential,random"),
        &format!("run ahead {bench} --selects 20 --readahead 128"),
        "record-stop",
        &format!("-run small {AGENT} bench sqlite --file /small/db --create --records 4000 --selects 1"),
        "get /mnt/db",
    ]
    .map(str::to_owned)
    .into();
    let booted = plan.boot();
    let (result, ahead) = (booted.json("kernels"), booted.json("ahead"));
    assert_eq!(result["size_bytes"], 518_144, "the paper's 518 KB");

    // Somebody else's SQLite.
    let file = booted.session.steps.iter().flat_map(|step| &step.files).find(|file| file.path == "/mnt/db");
    let dir = TempDir::new("sqlite");
    let path = dir.path().join("db");
    std::fs::write(&path, booted.session.read_file(file.expect("the database"), 1 << 20).expect("its bytes")).unwrap();
    let found = stdout(Command::new("python3").arg(top().join("tests/benches/contacts.py")).arg(&path));
    let found: Vec<u64> = found.split_whitespace().map(|word| word.parse().expect("a checksum")).collect();
    let runs = result["runs"].as_array().expect("runs");
    let checksums: Vec<u64> = runs.iter().map(|run| run["checksum"].as_u64().expect("a checksum")).collect();
    assert_eq!(found, checksums[..3], "sequential: 1, 20 and 1000 records in order");
    assert_eq!(ahead["runs"][0]["checksum"], runs[1]["checksum"]);

    let spans: Vec<&Value> = runs.iter().chain([&ahead["runs"][0]]).map(|run| &run["measured"]).collect();
    let reads: Vec<u64> = counts(&booted, &spans).iter().map(|counts| counts.reads).collect();
    println!("flash reads of 1, 20, 1000 sequential; 1, 20, 1000 random; 20 sequential with read-ahead: {reads:?}");
    // All of it, from the flash, twice: no less than the file has pages of flash (its text is printable: 6.6 bits a byte).
    for whole in [reads[2], reads[5]] {
        assert!(whole >= 518_144 * 6 / 8 / 2048, "{whole}");
    }
    assert!(reads[0] < reads[1] && reads[1] < reads[4] && reads[4] < reads[5], "{reads:?}");
    assert!(reads[6] > reads[1], "read-ahead reads more than the first records: {reads:?}");

    let small = booted.step("small");
    let said = String::from_utf8_lossy(&small.stderr);
    assert_eq!(small.status, Some(1), "{said}");
    assert!(
        said.contains("/small/db: ") && said.contains("no space left on its file system; a larger partition"),
        "{said}"
    );
}

/// The reads of one program, recorded, and done again by a script of the trace: the disk gets the same requests.
#[test]
fn a_replay_reads_what_the_traced_program_reads() {
    let reads = "--size 1048576 --contents printable --seed 3 --count 24 --request 4096 --pattern random";
    let mut plan = Plan::new("armv7-blk", "6.1");
    plan.lines = vec![
        format!("create /mnt/data 1048576 printable 3"),
        "record-start --events cache,syscall --mode ring --ring 8192".to_owned(),
        format!("run bench {AGENT} bench read --file /mnt/data {reads} --drop-caches"),
        "record-stop".to_owned(),
    ];
    let recorded = plan.boot();
    let dir = TempDir::new("replay");
    let script = dir.path().join("script");
    stdout(
        flashscope()
            .args(["bench", "replay", "--quiet", "--process", "agent", "--beyond", "0", "--script"])
            .arg(&script)
            .arg(recorded.outcome.port_file()),
    );
    let text = std::fs::read_to_string(&script).expect("a script");
    let offsets: Vec<u64> = text.lines().filter(|line| line.starts_with("read ")).map(offset).collect();
    let slots = flashscope_study::random_slots(3, 24, 256);
    assert_eq!(offsets, slots.iter().map(|slot| slot * 4096).collect::<Vec<_>>(), "{text}");
    // Its size is known from what came into the cache at least.
    let size: u64 =
        text.lines().find_map(|line| line.strip_prefix("file ")?.split(' ').next()?.parse().ok()).expect("a file");
    assert!(size <= 1 << 20 && size > *offsets.iter().max().expect("reads"), "{text}");

    let mut plan = Plan::new("armv7-blk", "6.1");
    let whole = text.replace(&format!("file {size} "), "file 1048576 ");
    plan.files = vec![("/script", 0o644, whole.into_bytes())];
    let bench =
        |step: &str| format!("run {step} {AGENT} bench read --file /mnt/data {reads} --drop-caches --readahead 128");
    let replay = |step: &str| {
        format!("run {step} {AGENT} bench replay --script /script --dir /mnt --seed 3 --drop-caches --readahead 128")
    };
    plan.lines = [
        "create /mnt/data 1048576 printable 3",
        "record-start --events block:block_rq_issue --mode ring --ring 8192",
        &bench("bench"),
        &bench("bench-again"),
        &replay("replay"),
        &replay("replay-again"),
        &format!("run off {AGENT} bench replay --script /script --dir /mnt --seed 3 --drop-caches --timing recorded"),
        "record-stop",
    ]
    .map(str::to_owned)
    .into();
    let booted = plan.boot();
    let (bench, replay, off) = (booted.json("bench"), booted.json("replay"), booted.json("off"));
    assert_eq!(replay["tasks"][0]["checksum"], bench["checksum"], "the same bytes in the same order");
    assert_eq!(off["tasks"][0]["checksum"], bench["checksum"]);
    let requests = |result: &Value| read_requests(&booted, &result["measured"]);
    let time = |result: &Value| result["total_ns"].as_u64().expect("a time");
    println!(
        "requests and bytes: bench read {:?}, replay {:?}, at recorded times {:?}; {} and {} and {} ns",
        requests(&bench),
        requests(&replay),
        requests(&off),
        time(&bench),
        time(&replay),
        time(&off)
    );
    assert!(requests(&bench).0 >= 20, "a cold cache");
    assert_eq!(requests(&replay), requests(&bench));
    // The quicker of two: what the kernel frees after the caches were dropped takes half a millisecond in the midst of some.
    let quicker = |one: &Value, again: &str| time(one).min(time(&booted.json(again))) as f64;
    let (of_replay, of_bench) = (quicker(&replay, "replay-again"), quicker(&bench, "bench-again"));
    assert!((of_replay / of_bench - 1.0).abs() <= 0.05, "{of_replay} and {of_bench} ns");
}

/// Requests that read the device within a span, and their bytes.
fn read_requests(booted: &Booted, span: &Value) -> (u64, u64) {
    let (begin, end) = (span["begin_ns"].as_u64().expect("a time"), span["end_ns"].as_u64().expect("a time"));
    let mut found = (0, 0);
    events(&booted.recording(0), |event| {
        if let EventKind::Block(block) = &event.kind
            && (begin..end).contains(&event.time.0)
            && block.action == BlockAction::Issue
            && block.flags.kind() == RequestKind::Read
        {
            found = (found.0 + 1, found.1 + block.bytes);
        }
    });
    found
}

fn offset(line: &str) -> u64 {
    let words: Vec<&str> = line.split(' ').collect();
    let [_, _, _, _, offset, "4096"] = words.as_slice() else { panic!("{line}") };
    offset.parse().expect("an offset")
}

/// What a benchmark was told wrongly is said in one line, and nothing is booted.
#[test]
fn wrong_words_are_told_before_anything_boots() {
    for (args, says) in [
        (vec!["postmark", "--on", "board:armv7"], "name the file system to make with --filesystem"),
        (vec!["postmark", "--on", "board:armv7", "--filesystem", "ext4"], "ext4 cannot be made on board armv7"),
        (vec!["postmark", "--on", "board:armv7", "--filesystem", "squashfs-mtdblock"], "cannot be written to"),
        (vec!["sqlite", "--on", "board:armv7", "--filesystem", "jffs2", "--dir", "/x"], "--dir is for real machines"),
        (vec!["postmark"], "name a directory of the file system to measure with --dir"),
        (vec!["postmark", "--filesystem", "jffs2"], "--filesystem is for virtual boards"),
    ] {
        let output = flashscope().arg("bench").args(&args).output().expect("flashscope");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.lines().count() == 1 && stderr.contains(says), "{args:?}: {stderr}");
    }
    let nothing = Path::new("/nonexistent/trace.dat");
    let output = flashscope().args(["bench", "replay"]).arg(nothing).output().expect("flashscope");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nonexistent/trace.dat"));
}
