//! Whole commands on traces of arbitrary events, within the time that CI has: the bodies of `fuzz/commands.rs`, with inputs from a fixed
//! seed and with all inputs that once found a fault. `FLASHSCOPE_MUTATIONS=N` asks for more. docs/explanation/fuzzing.md describes
//! libFuzzer runs.

#[path = "../../../fuzz/commands.rs"]
mod commands;
#[path = "../../../fuzz/structured.rs"]
#[allow(dead_code, reason = "tests of memory write single events")]
mod structured;

use std::path::Path;
use std::time::{Duration, Instant};

/// Number of inputs per command, and a time limit. At least half of the inputs are tried, however slow the machine is.
const INPUTS: u64 = 400;
const TIME: Duration = Duration::from_secs(10);

/// Bytes from a fixed seed (xorshift64*, Vigna 2016), most of them short. `lengths`: number of powers of two for the length, in words.
fn input_of(seed: u64, lengths: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    };
    let words = 1 << (next() % lengths);
    (0..words).flat_map(|_| next().to_le_bytes()).collect()
}

fn input(seed: u64) -> Vec<u8> {
    input_of(seed, 11)
}

fn run(name: &str) {
    let (_, body) = commands::ALL.iter().find(|(known, _)| *known == name).expect("a command");
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/regressions").join(name);
    let regressions = std::fs::read_dir(top).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found = 0;
    for path in regressions {
        body(&std::fs::read(&path).expect("a regression"));
        found += 1;
    }
    let asked = std::env::var("FLASHSCOPE_MUTATIONS").ok().and_then(|n| n.parse::<u64>().ok());
    let (wanted, begin) = (asked.unwrap_or(INPUTS), Instant::now());
    let mut done = 0;
    while done < wanted && (asked.is_some() || done < INPUTS / 2 || begin.elapsed() < TIME) {
        body(&input(done + 1));
        done += 1;
    }
    println!("{name}: {found} regressions, {done} executions in {:.1} s, 0 findings", begin.elapsed().as_secs_f64());
    assert!(done >= wanted.min(INPUTS / 2));
}

/// Executions of a command so far, their time and their findings.
#[derive(Clone, Default)]
struct Count {
    executions: u64,
    seconds: f64,
    findings: u64,
    slowest_ms: u64,
}

/// Reads and writes the counts of a long run: one line per command.
fn counts(path: &Path) -> Vec<Count> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(','))?;
        let mut cells = line.split(',');
        Some(Count {
            executions: cells.next()?.parse().ok()?,
            seconds: cells.next()?.parse().ok()?,
            findings: cells.next()?.parse().ok()?,
            slowest_ms: cells.next()?.parse().ok()?,
        })
    };
    commands::ALL.iter().map(|(name, _)| of(name).unwrap_or_default()).collect()
}

fn write_counts(path: &Path, counts: &[Count]) {
    let mut text = String::from("command,executions,seconds,findings,slowest_ms\n");
    for ((name, _), count) in commands::ALL.iter().zip(counts) {
        let Count { executions, seconds, findings, slowest_ms } = count;
        text += &format!("{name},{executions},{seconds:.0},{findings},{slowest_ms}\n");
    }
    let partial = path.with_extension("partial");
    std::fs::write(&partial, text).and_then(|()| std::fs::rename(&partial, path)).expect("the counts are written");
}

/// Processor time of this thread in ns, so that other load on the machine is no finding. 0 on kernels that do not tell it.
fn processor_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// A long run, which continues an earlier one. Commands take turns of five seconds until `FLASHSCOPE_SOAK_SECONDS` have passed.
/// `FLASHSCOPE_SOAK` is the file with the counts. Inputs that cause a panic, or take more than two seconds of processor time, are kept
/// beside it.
#[test]
#[ignore = "takes hours; docs/explanation/fuzzing.md has the command"]
fn soak() {
    let path = std::path::PathBuf::from(std::env::var_os("FLASHSCOPE_SOAK").expect("FLASHSCOPE_SOAK=COUNTS.csv"));
    let whole = std::env::var("FLASHSCOPE_SOAK_SECONDS").map_or(60, |n| n.parse().expect("seconds"));
    let only = std::env::var("FLASHSCOPE_SOAK_ONLY").unwrap_or_default();
    let (begin, mut counts) = (Instant::now(), counts(&path));
    while begin.elapsed() < Duration::from_secs(whole) {
        for ((name, body), count) in commands::ALL.iter().zip(&mut counts) {
            if !only.is_empty() && !only.split(',').any(|one| one == *name) {
                continue;
            }
            let turn = Instant::now();
            let (began, mut last) = (processor_time(), processor_time());
            while turn.elapsed() < Duration::from_secs(5) {
                // Up to 512 bytes, about 20 events; one input in 64 has up to 8 KiB.
                let number = count.executions + 1;
                let bytes = input_of(number, if number % 64 == 0 { 11 } else { 7 });
                let ended = std::panic::catch_unwind(|| body(&bytes));
                let now = processor_time();
                let took = (now - last) / 1_000_000;
                last = now;
                if ended.is_err() || took > 2000 {
                    let kept = format!("{name}-{number}");
                    std::fs::write(path.with_file_name(kept), &bytes).expect("an input is kept");
                    count.findings += 1;
                }
                count.slowest_ms = count.slowest_ms.max(took);
                count.executions += 1;
            }
            count.seconds += (last - began) as f64 / 1e9;
        }
        write_counts(&path, &counts);
    }
    let all: u64 = counts.iter().map(|count| count.executions).sum();
    let findings: u64 = counts.iter().map(|count| count.findings).sum();
    println!("{all} executions in all, {findings} findings, in {}", path.display());
    assert_eq!(findings, 0, "their inputs are beside {}", path.display());
}

#[test]
fn every_command_has_a_target() {
    let manifest = include_str!("../../../fuzz/Cargo.toml");
    for (name, _) in commands::ALL {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name} has no libFuzzer target");
    }
}

/// Arbitrary bytes become events that the analyses accept, for both kinds of reports.
#[test]
fn inputs_get_as_far_as_the_analyses() {
    let (mut block, mut flash, mut file) = (0, 0, 0);
    for seed in 1..250 {
        let bytes = structured::stream(&input(seed)).into();
        let trace = flashscope_trace::Trace::from_bytes(Path::new("fuzz"), bytes).expect("a whole stream");
        trace
            .for_each(&mut |event| match event.kind {
                flashscope_trace::EventKind::Block(_) => block += 1,
                flashscope_trace::EventKind::Flash(_) => flash += 1,
                flashscope_trace::EventKind::File(_) => file += 1,
                _ => {}
            })
            .expect("all of it");
    }
    assert!(block > 1000 && flash > 100 && file > 1000, "{block} {flash} {file}");
}

/// Some rules get enough figures for a finding; most need a pattern of many events.
#[test]
fn inputs_get_as_far_as_the_rules() {
    let found: std::collections::BTreeSet<String> =
        (1..250).flat_map(|seed| commands::rules_with_findings(&input(seed))).collect();
    println!("{found:?}");
    assert!(found.len() >= 7, "{found:?}");
}

macro_rules! commands {
    ($($name:ident),*) => { $(#[test] fn $name() { run(stringify!($name)); })* };
}
commands!(
    report, report_layers, predict, advise, export_csv, export_json, export_text, export_perfetto, export_flashmon,
    export_trace_dat, report_call, report_by, diff, fail_if, replay_script, export_rows, export_merged, anonymize
);
