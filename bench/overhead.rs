//! The cost of recording for fio on this host: throughput and 99th percentile without a recorder, with `flashscope record`, `perf record`
//! and `trace-cmd record`. Other work on this machine shares its cores and its disk, and changes throughput from minute to minute by more
//! than a recorder costs. So each run has a run without a recorder before and after it, and is compared with the mean of these two.
//! Recorders take turns, and what one wrote is removed and synced before the next run. The result is the median over rounds, with its
//! range; the raw file has every run.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use flashscope_tests::{TempDir, flashscope, output};
use serde_json::{Value, json};

const DEPTHS: [u32; 2] = [1, 32];
const SECONDS: u32 = 3;
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
    clean(dir);
    Ok(run)
}

/// Removes what a recorder wrote, and waits until the file system has nothing to write. Without it, the kernel writes one recorder's
/// file during a later run.
fn clean(dir: &TempDir) {
    for entry in
        std::fs::read_dir(dir.path()).expect("the directory").flatten().filter(|entry| entry.file_name() != "data")
    {
        std::fs::remove_file(entry.path()).expect("a recorder's file is removed");
    }
    assert!(output(Command::new("sync").arg("-f").arg(dir.path())).status.success());
}

/// A run under a recorder, or without one where `NOTHING` is compared with itself, between two runs without one.
#[derive(Clone, Copy)]
struct Compared {
    before: Run,
    run: Run,
    after: Run,
}

impl Compared {
    /// Percent of the mean of the runs around it.
    fn percent(&self, of: fn(&Run) -> f64) -> f64 {
        200.0 * of(&self.run) / (of(&self.before) + of(&self.after)) - 100.0
    }
}

/// The median of sorted values, and the two values between which the median of all such runs lies with at least 95 % confidence. These
/// are order statistics: the number of values below the true median is binomial, with probability 1/2. None where there are too few.
fn median_and_range(sorted: &[f64]) -> (f64, Option<(f64, f64)>) {
    let count = sorted.len();
    let median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0;
    let mut outside = 0.0;
    let mut probability = 0.5_f64.powi(i32::try_from(count).expect("few rounds"));
    let mut rank = 0;
    for below in 0..count {
        outside += 2.0 * probability;
        if outside > 0.05 {
            break;
        }
        rank = below + 1;
        probability *= (count - below) as f64 / (below + 1) as f64;
    }
    (median, (rank > 0).then(|| (sorted[rank - 1], sorted[count - rank])))
}

fn sorted(all: &[Compared], of: impl Fn(&Compared) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = all.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values
}

fn row(name: &str, all: &[Compared]) -> Value {
    let (iops, _) = median_and_range(&sorted(all, |compared| compared.run.iops));
    let (p99, _) = median_and_range(&sorted(all, |compared| compared.run.p99_ns));
    let (less, less_range) = median_and_range(&sorted(all, |compared| -compared.percent(|run| run.iops)));
    let (more, more_range) = median_and_range(&sorted(all, |compared| compared.percent(|run| run.p99_ns)));
    let range =
        |range: Option<(f64, f64)>| range.map_or_else(String::new, |(from, to)| format!("({from:.1} to {to:.1})"));
    println!(
        "    {name:<32} {iops:>7.0} {less:>6.1} {:<16} {:>8.1} {more:>6.1} {:<16}",
        range(less_range),
        p99 / 1e3,
        range(more_range)
    );
    let run = |run: &Run| json!({"iops": run.iops, "p99_ns": run.p99_ns});
    json!({
        "recorder": name, "iops": iops, "p99_ns": p99,
        "throughput_lost_percent": less, "throughput_lost_range": less_range,
        "p99_more_percent": more, "p99_more_range": more_range,
        "runs": all.iter().map(|c| json!({"before": run(&c.before), "run": run(&c.run), "after": run(&c.after)})).collect::<Vec<_>>(),
    })
}

pub fn run(rounds: usize) -> Value {
    println!(
        "\nfio on this host, 4 KiB random direct reads, {SECONDS} s a run between two without a recorder, {rounds} rounds; \
         medians (95 % range)"
    );
    let dir = TempDir::new("overhead");
    fio(&dir, 32);
    let mut depths = Vec::new();
    for depth in DEPTHS {
        let mut compared: Vec<Result<Vec<Compared>, String>> = vec![Ok(Vec::new()); RECORDERS.len()];
        let mut before = fio(&dir, depth);
        for round in 0..rounds {
            // Each round begins with another recorder.
            for turn in 0..RECORDERS.len() {
                let which = (round + turn) % RECORDERS.len();
                let Ok(done) = &mut compared[which] else { continue };
                match one(RECORDERS[which].1, &dir, depth) {
                    Ok(run) => {
                        let after = fio(&dir, depth);
                        done.push(Compared { before, run, after });
                        before = after;
                    }
                    Err(why) => compared[which] = Err(why),
                }
            }
        }
        println!("  depth {depth:<29} IOPS  less, %                p99, us  more, %");
        let mut rows = Vec::new();
        for ((name, _), all) in RECORDERS.iter().zip(&compared) {
            rows.push(match all {
                Ok(all) => row(name, all),
                Err(why) => {
                    println!("    {name:<32} refused");
                    json!({"recorder": name, "refused": why})
                }
            });
        }
        depths.push(json!({"depth": depth, "recorders": rows}));
    }
    json!({
        "method": "each run is compared with the mean of the runs without a recorder before and after it; median over rounds, and the \
                   order statistics that enclose the true median with 95 % confidence. Other work shared this machine's cores and disk",
        "rounds": rounds, "seconds_a_run": SECONDS, "bound_percent_at_depth_1": BOUND_PERCENT, "depths": depths,
    })
}
