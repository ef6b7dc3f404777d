//! The cost of recording for fio on this host: throughput and 99th percentile without a recorder, with `flashscope record`, `perf record`
//! and `trace-cmd record`. Limits: other work on this machine shares its cores and its disk. So each round runs all of them in turn, and
//! medians over rounds are compared; the raw file has every run.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use flashscope_tests::{TempDir, flashscope, output};
use serde_json::{Value, json};

const DEPTHS: [u32; 2] = [1, 32];
const SECONDS: u32 = 5;
/// Largest allowed loss of throughput at depth 1.
const BOUND_PERCENT: f64 = 3.0;

const NOTHING: &str = "nothing";
const RECORDERS: [(&str, &[&str]); 5] = [
    (NOTHING, &[]),
    ("flashscope record", &["flashscope", "record", "--quiet", "-o", "{dir}/f.dat"]),
    (
        "flashscope record --events block",
        &["flashscope", "record", "--quiet", "--events", "block", "-o", "{dir}/b.dat"],
    ),
    ("perf record -e block:*", &["perf", "record", "-q", "-a", "-e", "block:*", "-o", "{dir}/perf.data"]),
    ("trace-cmd record -e block", &["trace-cmd", "record", "-e", "block", "-o", "{dir}/t.dat"]),
];

/// One run of fio.
#[derive(Clone, Copy)]
struct Run {
    iops: f64,
    p99_ns: f64,
}

fn start(words: &[&str], dir: &TempDir) -> Option<Child> {
    let place = |word: &&str| word.replace("{dir}", &dir.path().display().to_string());
    let mut command = match words {
        [] => return None,
        ["flashscope", ..] => flashscope(),
        [program, ..] => Command::new(program),
    };
    command.args(words[1..].iter().map(place)).current_dir(dir.path()).stdout(Stdio::null()).stderr(Stdio::null());
    Some(command.stdin(Stdio::null()).spawn().expect("a recorder"))
}

fn fio(dir: &TempDir, depth: u32) -> Run {
    let mut fio = Command::new("fio");
    fio.args([
        "--name=job", "--direct=1", "--rw=randread", "--bs=4k", "--size=256M", "--ioengine=libaio", "--time_based",
    ]);
    fio.args(["--output-format=json", "--randrepeat=0", "--norandommap", "--group_reporting"]);
    fio.args([
        format!("--filename={}/data", dir.path().display()),
        format!("--iodepth={depth}"),
        format!("--runtime={SECONDS}"),
    ]);
    let said = output(&mut fio);
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let said: Value = serde_json::from_slice(&said.stdout).expect("JSON");
    let read = &said["jobs"][0]["read"];
    Run {
        iops: read["iops"].as_f64().expect("IOPS"),
        p99_ns: read["clat_ns"]["percentile"]["99.000000"].as_f64().expect("a percentile"),
    }
}

/// Runs fio under a recorder; an error says why it could not run.
fn one(words: &[&str], dir: &TempDir, depth: u32) -> Result<Run, String> {
    let mut recorder = start(words, dir);
    std::thread::sleep(Duration::from_secs(2));
    if let Some(child) = &mut recorder
        && let Ok(Some(status)) = child.try_wait()
    {
        return Err(format!("it ended at once with {status}"));
    }
    let run = fio(dir, depth);
    if let Some(child) = &mut recorder {
        output(Command::new("kill").args(["-INT", &child.id().to_string()]));
        child.wait().expect("an end");
    }
    Ok(run)
}

fn median(runs: &[Run], of: fn(&Run) -> f64) -> f64 {
    let mut all: Vec<f64> = runs.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

pub fn run(rounds: usize) -> Value {
    println!("\nfio on this host, 4 KiB random direct reads, {SECONDS} s a run, {rounds} rounds in turns; medians");
    let dir = TempDir::new("overhead");
    fio(&dir, 32);
    let mut runs: Vec<Vec<Result<Vec<Run>, String>>> = vec![vec![Ok(Vec::new()); RECORDERS.len()]; DEPTHS.len()];
    for round in 0..rounds {
        for (at, depth) in DEPTHS.into_iter().enumerate() {
            for turn in 0..RECORDERS.len() {
                // Each round starts with another recorder, so that a disturbance hits all of them.
                let who = (turn + round) % RECORDERS.len();
                let Ok(all) = &mut runs[at][who] else { continue };
                match one(RECORDERS[who].1, &dir, depth) {
                    Ok(run) => all.push(run),
                    Err(why) => runs[at][who] = Err(why),
                }
            }
        }
    }
    let mut depths = Vec::new();
    for (at, depth) in DEPTHS.into_iter().enumerate() {
        println!("  depth {depth:<29} IOPS       %    p99, us       %");
        let Ok(base) = &runs[at][0] else { panic!("fio alone") };
        let (iops, p99) = (median(base, |run| run.iops), median(base, |run| run.p99_ns));
        let mut rows = Vec::new();
        for ((name, _), all) in RECORDERS.iter().zip(&runs[at]) {
            let Ok(all) = all else {
                println!("    {name:<32} refused");
                rows.push(json!({"recorder": name, "refused": all.as_ref().err()}));
                continue;
            };
            let (its_iops, its_p99) = (median(all, |run| run.iops), median(all, |run| run.p99_ns));
            let (less, more) = (100.0 * (iops - its_iops) / iops, 100.0 * (its_p99 - p99) / p99);
            println!("    {name:<32} {its_iops:>7.0} {less:>7.2} {:>10.1} {more:>7.2}", its_p99 / 1e3);
            rows.push(json!({
                "recorder": name, "iops": its_iops, "throughput_lost_percent": less, "p99_ns": its_p99, "p99_more_percent": more,
                "runs": all.iter().map(|run| json!({"iops": run.iops, "p99_ns": run.p99_ns})).collect::<Vec<_>>(),
            }));
        }
        depths.push(json!({"depth": depth, "recorders": rows}));
    }
    json!({
        "method": "medians of runs in turns; each round begins with another recorder. Other work shared this machine's cores and disk",
        "rounds": rounds, "seconds_a_run": SECONDS, "bound_percent_at_depth_1": BOUND_PERCENT, "depths": depths,
    })
}
