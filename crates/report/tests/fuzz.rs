//! Whole commands on traces of arbitrary events, as far as CI has time: the bodies of `fuzz/commands.rs` on inputs from a fixed seed
//! and on all that once found a fault. `FLASHSCOPE_MUTATIONS=N` asks for more. docs/explanation/fuzzing.md says how to run libFuzzer.

#[path = "../../../fuzz/commands.rs"]
mod commands;
#[path = "../../../fuzz/structured.rs"]
#[allow(dead_code, reason = "tests of memory write single events")]
mod structured;

use std::path::Path;
use std::time::{Duration, Instant};

/// Inputs of a command, and the time that is enough for them: half are tried however slow the machine is.
const INPUTS: u64 = 400;
const TIME: Duration = Duration::from_secs(10);

/// Bytes from a fixed seed (xorshift64*, Vigna 2016), many of them short.
fn input(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    };
    let words = 1 << (next() % 11);
    (0..words).flat_map(|_| next().to_le_bytes()).collect()
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

#[test]
fn every_command_has_a_target() {
    let manifest = include_str!("../../../fuzz/Cargo.toml");
    for (name, _) in commands::ALL {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name} has no libFuzzer target");
    }
}

/// Arbitrary bytes become events that analyses take in, of both kinds of report.
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

macro_rules! commands {
    ($($name:ident),*) => { $(#[test] fn $name() { run(stringify!($name)); })* };
}
commands!(
    report,
    report_layers,
    predict,
    advise,
    export_csv,
    export_json,
    export_text,
    export_perfetto,
    export_flashmon,
    export_trace_dat,
    report_call,
    report_by,
    diff,
    fail_if,
    replay_script
);
