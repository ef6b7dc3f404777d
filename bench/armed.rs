//! The processor time that armed triggers of the flight recorder cost on a board at 5,000 requests a second, in guest time. A process of
//! the class idle counts the remaining time beside a paced load: without a recorder, with a recorder whose ring is read at its end, and
//! with triggers added. The difference of the last two is the cost of the triggers.

use flashscope_tests::{Booted, Plan, TempDir, work};
use serde_json::{Value, json};

const BOARD: &str = "armv7-blk";
const KERNEL: &str = "6.1";
const RATE: u64 = 5000;
const SECONDS: u64 = 4;
/// Percent of a core.
const BOUND_PERCENT: f64 = 1.0;

/// Name and options of a recorder; empty: no recorder. Each armed one follows the recorder that it is compared with.
const RECORDERS: [(&str, &str); 6] = [
    ("nothing", ""),
    ("block", "--mode ring --events block"),
    ("block, armed d2c", "--events block --trigger d2c>300ms"),
    ("block, armed d2c error fsync", "--events block --trigger d2c>300ms --trigger error --trigger fsync>300ms"),
    ("auto", "--mode ring --events auto"),
    ("auto, armed d2c error", "--events auto --trigger d2c>500ms --trigger error"),
];
/// Index of the recorder that an armed one is compared with.
const BASES: [Option<usize>; RECORDERS.len()] = [None, None, Some(1), Some(1), None, Some(4)];

fn boot() -> Booted {
    let dir = TempDir::new("armed");
    let mut plan = Plan::new(BOARD, KERNEL);
    plan.disk = &[("completion_ns", "50000")];
    plan.files.push(("/load", 0o755, work("armv7", "../bench/armed/load.c", dir.path())));
    let mut lines = vec!["sleep 10000".to_owned(), format!("run alone /load - {RATE} {SECONDS}")];
    for (at, (_, options)) in RECORDERS.iter().enumerate() {
        if !options.is_empty() {
            let out = if options.contains("--trigger") { "--directory /tmp/captures" } else { "-o /tmp/stream" };
            lines.push(format!("spawn recorder{at} /flashscope/agent record --name r{at} {options} {out}"));
            lines.push("sleep 3000".to_owned());
        }
        lines.push(format!("run load{at} /load /dev/nullb0 {RATE} {SECONDS}"));
        if !options.is_empty() {
            lines.push(format!("run stop{at} /flashscope/agent ctl stop r{at}"));
            lines.push("sleep 3000".to_owned());
        }
    }
    plan.lines = lines;
    plan.boot()
}

pub fn run() -> Value {
    println!("\nAn armed trigger at {RATE} reads a second on {BOARD}, Linux {KERNEL}, percent of a core");
    let booted = boot();
    let turns = |step: &str| booted.json(step)["turns"].as_u64().expect("turns") as f64;
    let alone = turns("alone");
    // Remaining processor time, percent of a core.
    let left: Vec<f64> = (0..RECORDERS.len()).map(|at| 100.0 * turns(&format!("load{at}")) / alone).collect();
    let mut rows = Vec::new();
    for (at, (name, options)) in RECORDERS.iter().enumerate() {
        let trigger = BASES[at].map(|base| left[base] - left[at]);
        let own = trigger.map_or(String::new(), |percent| format!("{percent:>8.2} for the triggers"));
        println!("  {name:<32} {:>8.2} {own}", left[0] - left[at]);
        rows.push(json!({
            "name": name, "options": options, "cost_percent_of_a_core": left[0] - left[at], "triggers_percent_of_a_core": trigger,
            "left_percent_of_a_core": left[at], "load": booted.json(&format!("load{at}")),
        }));
    }
    json!({
        "method": "a process of the class idle counts turns of a loop beside a paced load of direct 4 KiB reads; the cost of a recorder is \
                   what is missing from the count without one, and that of triggers what is missing from the count with the same events \
                   and no trigger",
        "board": BOARD, "kernel": KERNEL, "reads_a_second": RATE, "seconds": SECONDS, "bound_percent_of_a_core": BOUND_PERCENT,
        "alone": booted.json("alone"), "recorders": rows,
    })
}
