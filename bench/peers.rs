//! The cost of recording a block device's stages: flashscope, blktrace and trace-cmd with their defaults, on one board, in guest time. The
//! same fio job runs without a recorder and with each.

use std::collections::BTreeMap;
use std::path::Path;

use flashscope_tests::{Booted, Plan, TempDir, null_block_device, top};
use flashscope_trace::{EventKind, Trace};
use serde_json::{Value, json};

const BOARD: &str = "x86_64";
const KERNEL: &str = "6.1";
/// Repetitions; the median is used.
const ROUNDS: usize = 3;
const UNTRACED: &str = "untraced";
/// Number of requests of 4 KiB.
const REQUESTS: u64 = 20_000;

struct Recorder {
    name: &'static str,
    /// `{device}` is replaced by the job's device.
    command: &'static str,
    /// The recorder's output file.
    file: &'static str,
}

const RECORDERS: [Recorder; 4] = [
    Recorder {
        name: "flashscope",
        command: "/flashscope/agent record --events block -o /tmp/flashscope.stream",
        file: "/tmp/flashscope.stream",
    },
    Recorder {
        name: "flashscope-ring",
        command: "/flashscope/agent record --events block --mode ring --ring 16384 -o /tmp/ring.stream",
        file: "/tmp/ring.stream",
    },
    Recorder { name: "blktrace", command: "blktrace -d /dev/{device} -D /tmp -o peer", file: "/tmp/peer.blktrace.0" },
    Recorder { name: "trace-cmd", command: "trace-cmd record -e block -o /tmp/trace.dat", file: "/tmp/trace.dat" },
];

/// A device and the fio job on it.
struct Job {
    name: &'static str,
    device: &'static str,
    settings: &'static [&'static str],
    fio: &'static str,
}

const JOBS: [Job; 2] = [
    // The usual case: a request waits for the device while the processor is idle.
    Job {
        name: "psync, 100 us a request",
        device: "nullb0",
        settings: &["irqmode=2", "completion_nsec=100000"],
        fio: "--ioengine=psync",
    },
    // The processor is never idle, so a recorder's work makes the job longer.
    Job {
        name: "libaio, depth 8, no device time",
        device: "nullb1",
        settings: &["irqmode=0"],
        fio: "--ioengine=libaio --iodepth=8 --iodepth_batch=8 --iodepth_batch_complete=8",
    },
];

/// One run of fio, or the medians of several.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Time of fio's program, from exec to exit.
    job_ns: u64,
    /// fio's own run time in whole ms, without loading its libraries.
    fio_ms: u64,
    /// Time from the job's end until the recorder has written everything and ended.
    after_ns: u64,
}

/// A recorder's output of the first run.
struct Left {
    events: u64,
    bytes: u64,
    lost: u64,
    /// Number of block events by action.
    actions: BTreeMap<String, u64>,
}

fn fio(job: &Job) -> String {
    format!(
        "fio --name=job --filename=/dev/{} --direct=1 --rw=randrw --rwmixread=50 --bs=4k --io_size={} --norandommap \
         --randseed=1 --thread --clocksource=clock_gettime --disk_util=0 --invalidate=0 --output-format=json {}",
        job.device,
        REQUESTS * 4096,
        job.fio
    )
}

fn step(what: &str, job: usize, recorder: &str, round: usize) -> String {
    format!("{what}-{job}-{recorder}-{round}")
}

fn boot() -> Booted {
    let mut plan = Plan::new(BOARD, KERNEL);
    plan.no_nand = true;
    plan.modules = &["null_blk nr_devices=0"];
    plan.packages = &["fio", "blktrace", "trace-cmd", "busybox-static"];
    // Without Python, which only plotters of fio and blktrace need.
    plan.only_packages = &["fio", "blktrace", "trace-cmd", "busybox", "lib", "zlib1g"];
    for name in ["record.sh", "stop.sh"] {
        let script = std::fs::read(top().join("bench/peers").join(name)).expect("a script");
        plan.files.push((if name == "stop.sh" { "/stop.sh" } else { "/record.sh" }, 0o755, script));
    }
    plan.lines = ["mount debugfs /sys/kernel/debug debugfs -", "mount configfs /sys/kernel/config configfs -"]
        .map(str::to_owned)
        .to_vec();
    for job in &JOBS {
        let settings: Vec<&str> = ["size=256", "submit_queues=1"].iter().chain(job.settings).copied().collect();
        plan.lines.extend(null_block_device(job.device, &settings));
        plan.lines.push(format!("write /sys/block/{}/queue/scheduler none", job.device));
        plan.lines.push(format!("run warm-{} {}", job.device, fio(job)));
    }
    plan.lines.push("sleep 3000".to_owned());
    for (index, job) in JOBS.iter().enumerate() {
        for round in 0..ROUNDS {
            plan.lines.push(format!("run {} {}", step("job", index, UNTRACED, round), fio(job)));
            for recorder in &RECORDERS {
                let command = recorder.command.replace("{device}", job.device);
                plan.lines.push(format!(
                    "spawn {} busybox sh /record.sh {command}",
                    step("rec", index, recorder.name, round)
                ));
                plan.lines.push("sleep 5000".to_owned());
                plan.lines.push(format!("run {} {}", step("job", index, recorder.name, round), fio(job)));
                plan.lines.push(format!("run {} busybox sh /stop.sh", step("stop", index, recorder.name, round)));
                if round == 0 {
                    plan.lines.push(format!("get {}", recorder.file));
                }
                plan.lines.push(format!(
                    "run {} busybox rm {}",
                    step("rm", index, recorder.name, round),
                    recorder.file
                ));
            }
        }
    }
    plan.boot()
}

/// All runs of one recorder, in order of rounds.
fn runs(booted: &Booted, job: usize, recorder: &str) -> Vec<Run> {
    let one = |round| {
        let name = step("job", job, recorder, round);
        let said = booted.json(&name);
        let (begin, end) = times(booted, &name);
        let after_ns = match recorder {
            UNTRACED => 0,
            _ => times(booted, &step("stop", job, recorder, round)).1 - end,
        };
        let fio_ms = said["jobs"][0]["job_runtime"].as_u64().expect("a run time");
        assert_eq!(said["jobs"][0]["error"], 0, "{name}");
        Run { job_ns: end - begin, fio_ms, after_ns }
    };
    (0..ROUNDS).map(one).collect()
}

/// Begin and end of a step that must succeed.
fn times(booted: &Booted, name: &str) -> (u64, u64) {
    let step = booted.step(name);
    assert_eq!(step.status, Some(0), "{name}: {}", String::from_utf8_lossy(&step.stderr));
    (step.begin_ns.expect("a begin"), step.end_ns.expect("an end"))
}

/// The median of each figure.
fn middle(runs: &[Run]) -> Run {
    let of = |figure: fn(&Run) -> u64| {
        let mut all: Vec<u64> = runs.iter().map(figure).collect();
        all.sort_unstable();
        all[all.len() / 2]
    };
    Run { job_ns: of(|run| run.job_ns), fio_ms: of(|run| run.fio_ms), after_ns: of(|run| run.after_ns) }
}

/// Reads a recorder's output with flashscope's reader, which counts the losses of each format.
fn left(booted: &Booted, job: usize, recorder: &Recorder) -> Left {
    let get = step("get", job, recorder.name, 0);
    // The file is fetched in the step after the one that ended the recorder.
    let after = booted.step(&step("stop", job, recorder.name, 0)).source;
    let mut files = booted.session.steps.iter().filter(|step| step.source > after).flat_map(|step| &step.files);
    let file = files.find(|file| file.path == recorder.file).unwrap_or_else(|| panic!("{get}: no {}", recorder.file));
    let dir = TempDir::new(&get);
    let path = dir.path().join(Path::new(&file.path).file_name().expect("a name"));
    std::fs::write(&path, booted.session.read_file(file, 256 << 20).expect("a whole file")).expect("a directory");
    // The name of blktrace's recording, without the CPU.
    let base = match recorder.name {
        "blktrace" => dir.path().join("peer"),
        _ => path,
    };
    let trace = Trace::open(&base).unwrap_or_else(|error| panic!("{error}"));
    let mut actions = BTreeMap::new();
    flashscope_tests::events(&trace, |event| {
        if let EventKind::Block(block) = &event.kind {
            *actions.entry(format!("{:?}", block.action)).or_default() += 1;
        }
    });
    let lost = trace.losses().iter().map(|(_, count)| count).sum();
    Left { events: actions.values().sum(), bytes: file.size, lost, actions }
}

fn percent(part: i64, whole: u64) -> f64 {
    100.0 * part as f64 / whole as f64
}

pub fn run() -> Value {
    println!(
        "\nRecording block stages on {BOARD}, Linux {KERNEL}: the same fio job of {REQUESTS} requests of 4 KiB, guest time"
    );
    let booted = boot();
    let mut jobs = Vec::new();
    for (index, job) in JOBS.iter().enumerate() {
        let untraced = runs(&booted, index, UNTRACED);
        let base = middle(&untraced);
        println!("  {}: {:.1} ms untraced", job.name, base.fio_ms as f64);
        println!("    recorder          while it runs     %   ns an event   then, ms    events      bytes   lost");
        let mut results = Vec::new();
        for recorder in &RECORDERS {
            let all = runs(&booted, index, recorder.name);
            let (run, left) = (middle(&all), left(&booted, index, recorder));
            let more = run.job_ns as i64 - base.job_ns as i64;
            let cost = percent(more, base.fio_ms * 1_000_000);
            println!(
                "    {:<16} {:>11.1} ms {:>7.2} {:>11.0} {:>10.1} {:>9} {:>10} {:>6}",
                recorder.name,
                more as f64 / 1e6,
                cost,
                more as f64 / left.events as f64,
                run.after_ns as f64 / 1e6,
                left.events,
                left.bytes,
                left.lost
            );
            results.push(json!({
                "recorder": recorder.name, "command": recorder.command, "cost_ns": more, "cost_percent": cost,
                "cost_ns_an_event": more as f64 / left.events as f64, "after_ns": run.after_ns,
                "events": left.events, "events_by_action": left.actions, "lost": left.lost, "bytes": left.bytes,
                "runs": all.iter().map(to_json).collect::<Vec<_>>(),
            }));
        }
        jobs.push(json!({
            "job": job.name, "command": fio(job), "device": job.settings,
            "untraced": untraced.iter().map(to_json).collect::<Vec<_>>(), "recorders": results,
        }));
    }
    json!({
        "method": "medians; cost is fio's program (exec to exit) recorded less untraced, percent of fio's own run time; \
                   what a recorder does after the job is in after_ns",
        "board": BOARD, "kernel": KERNEL, "requests": REQUESTS, "rounds": ROUNDS, "jobs": jobs,
    })
}

fn to_json(run: &Run) -> Value {
    json!({ "job_ns": run.job_ns, "fio_ms": run.fio_ms, "after_ns": run.after_ns })
}
