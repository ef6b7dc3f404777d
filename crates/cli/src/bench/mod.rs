//! `bench`: runs one benchmark under the tracer, on a virtual board or on your own board.

pub mod agent;

use std::num::NonZeroUsize;
use std::sync::Arc;

use flashscope_analysis::flash::{LatencyNs, OpCounts, Window, WindowCounts};
use flashscope_analysis::{Analysis, LossCount};
use flashscope_study::{Definition, Filesystem, Group, Matrix, Study};
use flashscope_targets::Job;
use flashscope_trace::facts::{self, Mtd};
use flashscope_trace::{Facts, Session, Trace};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::args::{Bench, BenchArgs, BenchReadArgs};
use crate::failure::Failure;
use crate::progress::{StudyLines, Terminal};
use crate::{import_strace, study, target};

pub fn run(args: &BenchArgs, quiet: bool) -> Result<(), Failure> {
    let args = match &args.bench {
        Bench::Read(args) => args,
        Bench::Sqlite(args) => return agent::sqlite(args, quiet),
        Bench::Postmark(args) => return agent::postmark(args, quiet),
        Bench::Replay(args) => return agent::replay(args, quiet),
        Bench::ImportStrace(args) => return import_strace::run(args),
    };
    let terminal = Arc::new(Terminal::new(quiet));
    let result = match args.target.target.strip_prefix("board:") {
        Some(board) => on_virtual_board(args, board, &terminal)?,
        None => on_real_board(args, &terminal)?,
    };
    if args.json {
        outln!("{}", serde_json::to_string(&result).expect("plain data serialises"));
    } else {
        out!("{}", table(&result));
    }
    Ok(())
}

/// The result of one benchmark; one object of `--json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct BenchResult {
    bench: &'static str,
    target: String,
    filesystem: String,
    count: u64,
    request_bytes: u64,
    pattern: String,
    readahead: String,
    /// The effective read-ahead during the reads; null without a knob.
    readahead_kib: Option<u64>,
    interarrival_us: u64,
    seed: u64,
    file_size_bytes: u64,
    /// Sum of the read() times.
    total_ns: u64,
    bytes_read: u64,
    crc32: u32,
    latency_ns: LatencyNs,
    flash_reads: FlashReads,
    /// On a virtual board's disk: read requests to its driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    device_reads: Option<FlashReads>,
    losses: Vec<LossCount>,
    board: Option<String>,
    kernel: Option<String>,
    inputs: BenchInputs,
}

/// The inputs of a result.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum BenchInputs {
    /// For a virtual board.
    Study(Box<flashscope_study::Inputs>),
    Agent {
        #[schemars(with = "facts::complete::Agent")]
        agent: facts::Agent,
    },
    Nothing,
}

impl BenchInputs {
    pub fn agent(facts: &Facts) -> BenchInputs {
        BenchInputs::Agent { agent: facts.agent.clone() }
    }
}

/// Array reads by time.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct FlashReads {
    /// From the first read() to the last; null if the target has no raw NAND.
    measured: Option<u64>,
    open: Option<u64>,
    /// Null on your own board: nothing is mounted there.
    mount: Option<u64>,
}

fn on_virtual_board(args: &BenchReadArgs, board: &str, terminal: &Arc<Terminal>) -> Result<BenchResult, Failure> {
    let filesystem = args.filesystem.ok_or_else(|| {
        Failure::usage("a virtual board starts without a file system; choose one with --filesystem: jffs2, ubifs, squashfs-mtdblock, squashfs-ubiblock or yaffs2 on raw NAND, ext4 or f2fs on a disk")
    })?;
    if args.file.is_some() {
        return Err(Failure::usage(
            "--file is for real machines; on a virtual board the file is created (--file-size, --contents)",
        ));
    }
    let loaded = flashscope_targets::board::load(board)?;
    let definition = Definition {
        name: "bench-read".to_owned(),
        title: "bench read".to_owned(),
        question: String::new(),
        matrix: Matrix {
            workload: flashscope_study::Workload::Read,
            board: vec![board.to_owned()],
            kernel: vec![loaded.default_kernel().name.clone()],
            filesystem: vec![filesystem],
            contents: vec![args.contents.clone()],
            file_size: vec![args.file_size],
            file_seed: args.seed,
            request_size: vec![args.size],
            count: vec![args.count],
            pattern: vec![args.pattern],
            readahead: vec![args.readahead],
            interarrival_us: vec![args.interarrival_us],
            seed: vec![args.seed],
        },
        packages: Vec::new(),
        power: None,
        published: Vec::new(),
    };
    let study = Study::new("bench read", definition)?;
    let options = study::options(Some(NonZeroUsize::MIN), true, &args.target.board)?;
    let measured = study::measure(&study, &options, &StudyLines::new(terminal, None))?;
    let Some(group) = measured.groups.into_iter().next() else {
        return Err(Failure::new("the board returned no result"));
    };
    of_group(args, group)
}

fn of_group(args: &BenchReadArgs, group: Group) -> Result<BenchResult, Failure> {
    let Some(cell) = group.cells.into_iter().next() else {
        return Err(Failure::new("the board returned no result"));
    };
    let reads = FlashReads {
        measured: Some(cell.flash_reads),
        open: Some(cell.flash_reads_open),
        mount: group.phases.iter().find(|phase| phase.phase == "mount").map(|phase| phase.counts.reads),
    };
    let (flash_reads, device_reads) = match args.filesystem.is_some_and(Filesystem::on_disk) {
        true => (FlashReads::default(), Some(reads)),
        false => (reads, None),
    };
    Ok(BenchResult {
        bench: "read",
        target: args.target.target.clone(),
        filesystem: group.filesystem,
        count: cell.count,
        request_bytes: cell.request_bytes,
        pattern: cell.pattern,
        readahead: cell.readahead,
        readahead_kib: Some(cell.readahead_kib),
        interarrival_us: cell.interarrival_us,
        seed: cell.seed,
        file_size_bytes: group.file_size_bytes,
        total_ns: cell.total_ns,
        bytes_read: cell.bytes_read,
        crc32: cell.crc32,
        latency_ns: cell.latency,
        flash_reads,
        device_reads,
        losses: group.losses,
        board: Some(group.inputs.board.clone()),
        kernel: Some(group.inputs.kernel_release.clone()),
        inputs: BenchInputs::Study(Box::new(group.inputs)),
    })
}

/// On your own board: the agent's bench and recorder, with your file. Without raw NAND the reads are timed, and the flash counts are null.
fn on_real_board(args: &BenchReadArgs, terminal: &Arc<Terminal>) -> Result<BenchResult, Failure> {
    if args.filesystem.is_some() {
        return Err(Failure::usage(
            "--filesystem is for virtual boards: flashscope never formats or mounts on a real machine; name a file there with --file",
        ));
    }
    let Some(file) = &args.file else {
        return Err(Failure::usage(
            "name the file to read with --file PATH (with --create it is made, if it is not there)",
        ));
    };
    let facts = Facts::of(&target::facts(&args.target, &["probe"], terminal)?);
    let watched = facts.mtd.iter().any(Mtd::is_nand);
    let bench = bench_argv(args, file);
    let (bench, counts, losses): Recorded = if watched {
        recorded(args, bench, terminal)?
    } else {
        terminal.line("no raw NAND on this target: reads are timed, flash reads are not counted");
        let out = target::output(&args.target, bench, terminal)?;
        (read_json(&out)?, None, Vec::new())
    };
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    Ok(BenchResult {
        bench: "read",
        target: args.target.target.clone(),
        filesystem: mounted(&facts, file),
        count: number(&bench["count"]),
        request_bytes: number(&bench["request_bytes"]),
        pattern: args.pattern.as_str().to_owned(),
        readahead: args.readahead.argument(),
        readahead_kib: bench["readahead"]["effective_kib"].as_u64(),
        interarrival_us: args.interarrival_us,
        seed: args.seed,
        file_size_bytes: number(&bench["size_bytes"]),
        total_ns: number(&bench["total_ns"]),
        bytes_read: number(&bench["bytes_read"]),
        crc32: u32::try_from(number(&bench["checksum"])).unwrap_or(0),
        latency_ns: LatencyNs::from_unsorted(
            bench["latencies_ns"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect(),
        ),
        flash_reads: FlashReads {
            measured: counts.map(|[_, measured]| measured.reads),
            open: counts.map(|[open, _]| open.reads),
            mount: None,
        },
        device_reads: None,
        losses,
        inputs: BenchInputs::agent(&facts),
        board: facts.kernel.machine,
        kernel: facts.kernel.release,
    })
}

fn bench_argv(args: &BenchReadArgs, file: &str) -> Vec<String> {
    let mut argv: Vec<String> = ["bench", "read", "--file", file].map(str::to_owned).to_vec();
    let mut option = |name: &str, value: String| argv.extend([name.to_owned(), value]);
    option("--count", args.count.to_string());
    option("--request", args.size.0.to_string());
    option("--pattern", args.pattern.as_str().to_owned());
    option("--seed", args.seed.to_string());
    option("--interarrival-us", args.interarrival_us.to_string());
    option("--readahead", args.readahead.argument());
    if args.create {
        option("--size", args.file_size.0.to_string());
        option("--contents", args.contents.clone());
        argv.push("--create".to_owned());
    }
    if args.drop_caches {
        argv.push("--drop-caches".to_owned());
    }
    argv
}

/// The bench's JSON, the operations during its open and its reads (if recorded), and the losses.
type Recorded = (Value, Option<[OpCounts; 2]>, Vec<LossCount>);

fn recorded(args: &BenchReadArgs, bench: Vec<String>, terminal: &Arc<Terminal>) -> Result<Recorded, Failure> {
    let scratch = flashscope_targets::ScratchDir::new("bench")?;
    let stream = scratch.path().join("stream");
    let mut argv: Vec<String> =
        ["record", "--events", "flash", "--mode", "ring", "--capture", "--", "flashscope-agent"]
            .map(str::to_owned)
            .to_vec();
    argv.extend(bench);
    let target = target::open(&args.target, terminal)?;
    let outcome = {
        let mut out = crate::record::stream_file(&stream)?;
        target.run(&Job { argv, ..Job::default() }, &mut out)?
    };
    if outcome.status != 0 {
        return Err(target::agent_failure(&outcome.stderr, outcome.status));
    }
    let session = Session::open(&stream)?;
    let stdout =
        session.steps.iter().map(|step| step.stdout.as_slice()).find(|out| !out.is_empty()).unwrap_or_default();
    let bench = read_json(stdout)?;
    let trace: Trace = session.recording(0)?;
    let window = |part: &str| {
        Window::new(bench[part]["begin_ns"].as_u64().unwrap_or(0), bench[part]["end_ns"].as_u64().unwrap_or(0))
    };
    let mut counts = WindowCounts::new([window("open"), window("measured")]);
    trace.for_each(&mut |event| counts.event(event))?;
    let counts = counts.finish();
    let losses = flashscope_study::losses(&trace);
    Ok((bench, Some([counts[0], counts[1]]), losses))
}

pub fn read_json(bytes: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(bytes).map_err(|error| Failure::new(format!("the agent's result cannot be read: {error}")))
}

/// The type of a path's file system: the one with the longest mount point above the path.
pub fn mounted(facts: &Facts, file: &str) -> String {
    let mounts = facts.mounts.iter();
    mounts
        .filter_map(|mount| Some((mount.target.as_deref()?, mount.kind.as_deref()?)))
        .filter(|(target, _)| std::path::Path::new(file).starts_with(target))
        .max_by_key(|(target, _)| target.len())
        .map_or_else(|| "unknown".to_owned(), |(_, kind)| kind.to_owned())
}

fn table(result: &BenchResult) -> String {
    use std::fmt::Write as _;
    let mut out = String::new();
    let reads = |count: Option<u64>| count.map_or_else(|| "not counted".to_owned(), |count| count.to_string());
    let us = |ns: u64| ns as f64 / 1e3;
    let latency = &result.latency_ns;
    let _ = writeln!(
        out,
        "{} {} reads of {} bytes on {}, read-ahead {}",
        result.count,
        result.pattern,
        result.request_bytes,
        flashscope_report::visible(&result.filesystem),
        result.readahead
    );
    let _ = writeln!(out, "  total       {:.3} ms", result.total_ns as f64 / 1e6);
    let _ = writeln!(
        out,
        "  read()      mean {:.1} µs, p50 {:.1}, p90 {:.1}, p99 {:.1}, max {:.1}",
        us(latency.mean),
        us(latency.p50),
        us(latency.p90),
        us(latency.p99),
        us(latency.max)
    );
    let (what, flash) = match &result.device_reads {
        Some(reads) => ("device reads", reads),
        None => ("flash reads", &result.flash_reads),
    };
    let _ = writeln!(
        out,
        "  {what:<11} {} in the reads, {} in open(), {} in mount",
        reads(flash.measured),
        reads(flash.open),
        reads(flash.mount)
    );
    for loss in result.losses.iter().filter(|loss| loss.count > 0) {
        let _ = writeln!(out, "  lost        {} {}: {}", loss.name, loss.count, loss.meaning);
    }
    out
}
