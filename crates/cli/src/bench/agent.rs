//! `bench sqlite`, `bench postmark`, `bench replay`: benchmarks that the agent runs itself, under its own recorder if the target has
//! storage to record.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use flashscope_analysis::LossCount;
use flashscope_study::Filesystem;
use flashscope_study::replays::MAGIC;
use flashscope_targets::board::{self, MOUNT_POINT};
use flashscope_targets::{BESIDE_AGENT, Job, OpenOptions, PutFile, PutSource};
use flashscope_trace::facts::Mtd;
use flashscope_trace::{BlockAction, EventKind, Facts, FlashOp, RequestKind, Session, Trace};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{BenchInputs, mounted, read_json};
use crate::args::{BenchPlaceArgs, BenchPostmarkArgs, BenchReplayArgs, BenchSqliteArgs};
use crate::convert::Way;
use crate::failure::Failure;
use crate::progress::Terminal;
use crate::recover::Pending;
use crate::{replay, target};

const SQLITE: &str = "flashscope-sqlite";
/// Name of a script on the target.
const STAGED_SCRIPT: &str = "replay";
/// Size of the ring: half a million events of 20 bytes.
const RING_KIB: &str = "12288";

/// The work, independent of its place.
struct Work<'a> {
    place: &'a BenchPlaceArgs,
    name: &'static str,
    /// Options of the agent, without those for the place.
    options: Vec<String>,
    /// `--dir`, or `--file` with a name below the directory.
    whereabouts: Whereabouts,
    put: Vec<PutFile>,
    /// A file for the recording, and its events.
    recording: Option<(&'a Path, String)>,
}

enum Whereabouts {
    Dir,
    /// A file with this name; it is created if missing, and kept.
    File(String),
}

/// The result of one benchmark; one object of `--json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Done<R = Value> {
    bench: &'static str,
    target: String,
    filesystem: String,
    /// The agent's output (docs/reference/agent.md, "Benchmark results").
    result: R,
    /// The unit of `operations`: "flash operations", "device requests"; null if nothing was recorded.
    operations_of: Option<&'static str>,
    operations: Vec<Operations>,
    losses: Vec<LossCount>,
    board: Option<String>,
    kernel: Option<String>,
    inputs: BenchInputs,
}

/// Operations during one part of a benchmark.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Operations {
    part: String,
    begin_ns: u64,
    end_ns: u64,
    reads: u64,
    /// Pages programmed; for a disk: write requests.
    writes: u64,
    erases: u64,
}

pub fn sqlite(args: &BenchSqliteArgs, quiet: bool) -> Result<(), Failure> {
    let list = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let patterns: Vec<&str> = args.pattern.iter().map(|pattern| pattern.as_str()).collect();
    let options = words(&[
        ("--selects", list(&args.selects)),
        ("--pattern", patterns.join(",")),
        ("--records", args.records.to_string()),
        ("--text", args.text.to_string()),
        ("--page-size", args.page_size.0.to_string()),
        ("--seed", args.seed.to_string()),
    ]);
    // The name contains the parameters, so that a later run uses the file only if they are equal.
    let name = format!("flashscope-{}x{}-{}-{}.db", args.records, args.text, args.page_size.0, args.seed);
    let whereabouts = Whereabouts::File(name);
    let work = Work::new(&args.place, "sqlite", options, whereabouts, Vec::new());
    finish(&args.place, &work.run(quiet)?, sqlite_table)
}

pub fn postmark(args: &BenchPostmarkArgs, quiet: bool) -> Result<(), Failure> {
    let mut options = words(&[
        ("--config", args.config.clone()),
        ("--contents", args.contents.clone()),
        ("--shares", args.shares.clone()),
        ("--seed", args.seed.to_string()),
    ]);
    for (name, value) in [
        ("--files", args.files),
        ("--transactions", args.transactions),
        ("--subdirectories", args.subdirectories),
        ("--size-min", args.size_min.map(|size| size.0)),
        ("--size-max", args.size_max.map(|size| size.0)),
        ("--read-request", args.read_request.map(|size| size.0)),
        ("--write-request", args.write_request.map(|size| size.0)),
        ("--read-bias", args.read_bias),
        ("--create-bias", args.create_bias),
    ] {
        if let Some(value) = value {
            options.extend([name.to_owned(), value.to_string()]);
        }
    }
    if args.cold_reads {
        options.push("--cold-reads".to_owned());
    }
    let work = Work::new(&args.place, "postmark", options, Whereabouts::Dir, Vec::new());
    finish(&args.place, &work.run(quiet)?, postmark_table)
}

pub fn replay(args: &BenchReplayArgs, quiet: bool) -> Result<(), Failure> {
    let script = replay::with_neighbours(args, &script(args, &Terminal::new(quiet))?)?;
    if let Some(to) = &args.script {
        if to.as_os_str() == "-" {
            out!("{script}");
            return Ok(());
        }
        return crate::output::write(to, script.as_bytes(), &crate::output::inputs(&replay::inputs(args)), "--script");
    }
    let path = format!("{BESIDE_AGENT}{STAGED_SCRIPT}");
    let options = words(&[
        ("--script", path.clone()),
        ("--timing", args.timing.as_str().to_owned()),
        ("--contents", args.contents.clone()),
        ("--seed", args.seed.to_string()),
    ]);
    let put = vec![PutFile { path, mode: 0o644, source: PutSource::Bytes(script.into_bytes()) }];
    let recording = args.output.as_deref().map(|output| (output, args.events.join(",")));
    let whereabouts = Whereabouts::Dir;
    let work = Work { recording, ..Work::new(&args.place, "replay", options, whereabouts, put) };
    let done = work.run(quiet).map_err(|failure| failure.naming(STAGED_SCRIPT, &args.trace.display().to_string()))?;
    finish(&args.place, &done, replay_table)
}

fn words(options: &[(&str, String)]) -> Vec<String> {
    options.iter().flat_map(|(name, value)| [(*name).to_owned(), value.clone()]).collect()
}

/// The script itself, or one made from a trace; prints what is uncertain.
fn script(args: &BenchReplayArgs, terminal: &Terminal) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", args.trace.display()));
    let mut head = vec![0; MAGIC.len()];
    // A pipe can be read only once: it is taken for a trace.
    if args.trace.is_file()
        && std::fs::File::open(&args.trace).map_err(failed)?.read_exact(&mut head).is_ok()
        && head == MAGIC.as_bytes()
    {
        return flashscope_targets::read_text(&args.trace, replay::MAX_SCRIPT_BYTES as u64).map_err(failed);
    }
    let trace = Trace::open(&args.trace)?;
    let wanted =
        replay::Wanted { process: args.process.as_deref(), device: args.device.as_deref(), beyond: args.beyond.0 };
    let script = replay::script(&trace, &wanted)?;
    terminal
        .line(&format!("{} reads; {} at a file's end, which got nothing, are left out", script.reads, script.empty));
    if script.faults > 0 {
        terminal.line(&format!("{} faults of mapped files", script.faults));
    }
    if script.unconfirmed > 0 {
        terminal.line(&format!(
            "{} reads get their requested length, for their calls are not in the trace: a program that starts is read by the kernel, or \
             calls were not recorded (--events cache,syscall)",
            script.unconfirmed
        ));
    }
    if script.open_ended > 0 {
        terminal.line(&format!(
            "{} files have an unknown size: {} bytes (--beyond) are added to the last byte in the trace",
            script.open_ended, args.beyond.0
        ));
    }
    for (loss, count) in trace.losses().iter() {
        if count > 0 {
            terminal.line(&format!("lost: {} {count}: {}", loss.name(), loss.meaning()));
        }
    }
    Ok(script.text)
}

/// The operations counted on a target.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watched {
    Flash,
    Disk,
    Nothing,
}

impl<'a> Work<'a> {
    fn new(
        place: &'a BenchPlaceArgs,
        name: &'static str,
        options: Vec<String>,
        whereabouts: Whereabouts,
        put: Vec<PutFile>,
    ) -> Work<'a> {
        Work { place, name, options, whereabouts, put, recording: None }
    }

    fn run(self, quiet: bool) -> Result<Done, Failure> {
        let terminal = Arc::new(Terminal::new(quiet));
        match self.place.target.target.strip_prefix("board:") {
            Some(name) => self.on_virtual_board(name, &terminal),
            None => self.on_real_board(&terminal),
        }
    }

    fn on_virtual_board(mut self, name: &str, terminal: &Arc<Terminal>) -> Result<Done, Failure> {
        let place = self.place;
        if place.dir.is_some() {
            return Err(Failure::usage(
                "--dir is for real machines; for a virtual board, choose a file system with --filesystem",
            ));
        }
        let board = board::load(name)?;
        let on_disk = board.chip().is_none();
        let filesystem = match (place.filesystem, on_disk) {
            (Some(filesystem), _) if filesystem.is_squashfs() => {
                return Err(Failure::usage(
                    "squashfs cannot be written to: take jffs2, ubifs or yaffs2, ext4 or f2fs on a disk",
                ));
            }
            (Some(filesystem), on_disk) if filesystem.on_disk() == on_disk => filesystem,
            (Some(filesystem), _) => {
                return Err(Failure::usage(format!(
                    "{} cannot be made on board {name}: jffs2, ubifs and yaffs2 need raw NAND (armv7), ext4 and f2fs a disk (armv7-blk)",
                    filesystem.as_str()
                )));
            }
            (None, true) => Filesystem::Ext4,
            (None, false) => {
                return Err(Failure::usage("name the file system to make with --filesystem: jffs2, ubifs or yaffs2"));
            }
        };
        let options = match board.chip() {
            Some(chip) => {
                let block_bytes = u64::from(chip.block_bytes());
                OpenOptions {
                    parts: vec![place.partition.0.div_ceil(block_bytes)],
                    modules: flashscope_study::modules(filesystem).iter().map(|&name| name.to_owned()).collect(),
                    before: flashscope_study::on_nand(filesystem),
                    ..OpenOptions::default()
                }
            }
            None => OpenOptions {
                disk: vec![("filesystem".to_owned(), filesystem.as_str().to_owned())],
                ..OpenOptions::default()
            },
        };
        if self.name == "sqlite" {
            let program = flashscope_targets::companion_for(&board.agent, SQLITE).map_err(no_sqlite)?;
            let path = format!("{BESIDE_AGENT}{SQLITE}");
            self.put.push(PutFile { path, mode: 0o755, source: PutSource::Path(program) });
        }
        let watched = if on_disk { Watched::Disk } else { Watched::Flash };
        let argv = self.argv(MOUNT_POINT, true, None);
        let mut done = self.measure(argv, watched, options, terminal)?;
        filesystem.as_str().clone_into(&mut done.filesystem);
        Ok(done)
    }

    fn on_real_board(mut self, terminal: &Arc<Terminal>) -> Result<Done, Failure> {
        let place = self.place;
        if place.filesystem.is_some() {
            return Err(Failure::usage(
                "--filesystem is for virtual boards: flashscope never formats or mounts on a real machine; name a directory there with --dir",
            ));
        }
        let Some(dir) = place.dir.as_deref() else {
            return Err(Failure::usage("name a directory of the file system to measure with --dir"));
        };
        let facts = Facts::of(&target::facts(&place.target, &["probe"], terminal)?);
        let mut program = None;
        if self.name == "sqlite" {
            let machine = facts.kernel.machine.as_deref().unwrap_or_default();
            let source = flashscope_targets::companion_for(machine, SQLITE).map_err(no_sqlite)?;
            // The name begins with flashscope, because the code that ends the agent after a cut connection looks for that.
            let path = format!("{BESIDE_AGENT}{SQLITE}");
            self.put.push(PutFile { path: path.clone(), mode: 0o755, source: PutSource::Path(source) });
            program = Some(path);
        }
        let watched = match facts.mtd.iter().any(Mtd::is_nand) {
            true => Watched::Flash,
            false => {
                terminal.line("no raw NAND on this target: calls are timed, flash operations are not counted");
                Watched::Nothing
            }
        };
        let argv = self.argv(dir, place.drop_caches, program);
        let mut done = self.measure(argv, watched, OpenOptions::default(), terminal)?;
        done.filesystem = mounted(&facts, dir);
        done.inputs = BenchInputs::agent(&facts);
        done.board = facts.kernel.machine;
        done.kernel = facts.kernel.release;
        Ok(done)
    }

    fn argv(&self, dir: &str, drop_caches: bool, program: Option<String>) -> Vec<String> {
        let mut argv = vec!["bench".to_owned(), self.name.to_owned()];
        argv.extend(program.into_iter().flat_map(|path| ["--program".to_owned(), path]));
        match &self.whereabouts {
            Whereabouts::Dir => argv.extend(["--dir".to_owned(), dir.to_owned()]),
            Whereabouts::File(name) => {
                argv.extend(["--create".to_owned(), "--file".to_owned(), format!("{dir}/{name}")]);
            }
        }
        argv.extend(["--readahead".to_owned(), self.place.readahead.argument()]);
        argv.extend(self.options.iter().cloned());
        if drop_caches {
            argv.push("--drop-caches".to_owned());
        }
        argv
    }

    fn measure(
        &self,
        bench: Vec<String>,
        watched: Watched,
        options: OpenOptions,
        terminal: &Arc<Terminal>,
    ) -> Result<Done, Failure> {
        let target = target::open_with(&self.place.target, terminal, options)?;
        let mut done = Done {
            bench: self.name,
            target: self.place.target.target.clone(),
            filesystem: String::new(),
            result: Value::Null,
            operations_of: None,
            operations: Vec::new(),
            losses: Vec::new(),
            board: None,
            kernel: None,
            inputs: BenchInputs::Nothing,
        };
        let events = match (&self.recording, watched) {
            (Some((_, events)), _) if !events.is_empty() => events,
            (Some(_), Watched::Flash) => "flash,block,cache,syscall",
            (Some(_), _) => "block,cache,syscall",
            (None, Watched::Flash) => "flash",
            (None, Watched::Disk) => "block:block_rq_issue",
            (None, Watched::Nothing) => {
                let job = Job { argv: bench, put: self.put.clone(), ..Job::default() };
                done.result = read_json(&target::answer(&*target, &job)?)?;
                return Ok(done);
            }
        };
        let mode = if self.recording.is_some() { "stream" } else { "ring" };
        let mut argv: Vec<String> =
            ["record", "--events", events, "--mode", mode, "--ring", RING_KIB].map(str::to_owned).to_vec();
        // On a virtual board the command is a step of its own, whose output arrives with the stream.
        if !self.place.target.target.starts_with("board:") {
            argv.push("--capture".to_owned());
        }
        argv.extend(["--", "flashscope-agent"].map(str::to_owned));
        argv.extend(bench);
        let job = Job { argv, put: self.put.clone(), ..Job::default() };
        if let Some((output, _)) = &self.recording {
            let mut pending = Pending::begin(output, Way::Convert)?;
            let ran = pending.writer().and_then(|mut stream| Ok(target.run(&job, &mut stream)?));
            let failed = match ran {
                Ok(outcome) if outcome.status == 0 => self.read(pending.stream(), watched, &mut done).err(),
                Ok(outcome) => Some(target::agent_failure(&outcome.stderr, outcome.status)),
                Err(error) => Some(error),
            };
            if let Some(failure) = failed {
                pending.discard();
                return Err(failure);
            }
            pending.finish(crate::convert::End::Asked)?.says.iter().for_each(|line| flashscope_output::note(line));
            return Ok(done);
        }
        let scratch = flashscope_targets::ScratchDir::new("bench")?;
        let stream = scratch.path().join("stream");
        let outcome = {
            let mut out = crate::record::stream_file(&stream)?;
            target.run(&job, &mut out)?
        };
        if outcome.status != 0 {
            return Err(target::agent_failure(&outcome.stderr, outcome.status));
        }
        self.read(&stream, watched, &mut done)?;
        Ok(done)
    }

    /// Reads the result in the stream, and the operations in each part.
    fn read(&self, stream: &Path, watched: Watched, done: &mut Done) -> Result<(), Failure> {
        let session = Session::open(stream)?;
        // Steps that make a file system also print an object.
        let mut results = session.steps.iter().filter_map(|step| serde_json::from_slice::<Value>(&step.stdout).ok());
        done.result = results
            .find(|result| result["bench"] == self.name)
            .ok_or_else(|| Failure::new("the agent's result is not in its stream; run it again"))?;
        let trace = session.recording(0)?;
        done.operations = parts(&done.result);
        trace.for_each(&mut |event| {
            let count: fn(&mut Operations) = match &event.kind {
                EventKind::Flash(access) if watched == Watched::Flash => match access.op {
                    FlashOp::Read => |part| part.reads += 1,
                    FlashOp::Program => |part| part.writes += 1,
                    FlashOp::Erase => |part| part.erases += 1,
                },
                EventKind::Block(block)
                    if watched == Watched::Disk && block.action == BlockAction::Issue && block.bytes > 0 =>
                {
                    match block.flags.kind() {
                        RequestKind::Read => |part| part.reads += 1,
                        RequestKind::Discard | RequestKind::SecureErase => |part| part.erases += 1,
                        _ => |part| part.writes += 1,
                    }
                }
                _ => return,
            };
            let time = event.time.0;
            done.operations.iter_mut().filter(|part| (part.begin_ns..part.end_ns).contains(&time)).for_each(count);
        })?;
        done.operations_of = match watched {
            Watched::Flash => Some("flash operations"),
            Watched::Disk => Some("device requests"),
            Watched::Nothing => None,
        };
        done.losses = flashscope_study::losses(&trace);
        let facts = trace.facts();
        done.board = self.place.target.target.strip_prefix("board:").map(str::to_owned);
        done.kernel = facts.kernel.release.clone();
        done.inputs = BenchInputs::agent(facts);
        Ok(())
    }
}

fn no_sqlite(error: flashscope_targets::Error) -> Failure {
    Failure::new(format!("{error}; `make sqlite` builds it"))
}

/// The parts of a benchmark for which it prints times.
fn parts(result: &Value) -> Vec<Operations> {
    let mut parts = Vec::new();
    let mut part = |name: String, span: &Value| {
        if let (Some(begin_ns), Some(end_ns)) = (span["begin_ns"].as_u64(), span["end_ns"].as_u64()) {
            parts.push(Operations { part: name, begin_ns, end_ns, reads: 0, writes: 0, erases: 0 });
        }
    };
    part("create".to_owned(), &result["create"]);
    for phase in ["create", "transactions", "delete"] {
        part(phase.to_owned(), &result["phases"][phase]);
    }
    for run in result["runs"].as_array().into_iter().flatten() {
        let name = format!("{} {}", run["pattern"].as_str().unwrap_or_default(), run["selects"]);
        part(format!("{name}, open"), &run["open"]);
        part(name, &run["measured"]);
    }
    if result["bench"] == "replay" {
        part("reads".to_owned(), &result["measured"]);
    }
    parts
}

fn finish(place: &BenchPlaceArgs, done: &Done, table: fn(&Done) -> String) -> Result<(), Failure> {
    if place.json {
        outln!("{}", serde_json::to_string(done).expect("plain data serialises"));
        return Ok(());
    }
    out!("{}", table(done));
    for loss in done.losses.iter().filter(|loss| loss.count > 0) {
        outln!("  lost        {} {}: {}", loss.name, loss.count, loss.meaning);
    }
    Ok(())
}

fn ms(ns: &Value) -> f64 {
    ns.as_u64().unwrap_or(0) as f64 / 1e6
}

/// "12 reads, 3 writes, 0 erases", or a note that nothing was counted.
fn operations(done: &Done, part: &str) -> String {
    match done.operations.iter().find(|operations| operations.part == part) {
        Some(of) if done.operations_of.is_some() => {
            format!("{} reads, {} writes, {} erases", of.reads, of.writes, of.erases)
        }
        _ => "not counted".to_owned(),
    }
}

fn head(done: &Done, what: &str) -> String {
    let result = &done.result;
    format!(
        "{what} on {}, read-ahead {}; {}\n",
        flashscope_report::visible(&done.filesystem),
        result["readahead"]["requested"].as_str().unwrap_or("keep"),
        done.operations_of.map_or("nothing below the file system is counted", |of| of)
    )
}

fn sqlite_table(done: &Done) -> String {
    let result = &done.result;
    let what = format!("{} records in a database of {} bytes", result["records"], result["size_bytes"]);
    let mut out = head(done, &what);
    for run in result["runs"].as_array().into_iter().flatten() {
        let name = format!("{} {}", run["pattern"].as_str().unwrap_or_default(), run["selects"]);
        out += &format!("  {name:<16} {:>10.3} ms   {}\n", ms(&run["total_ns"]), operations(done, &name));
    }
    out
}

fn postmark_table(done: &Done) -> String {
    let result = &done.result;
    let what = format!("PostMark, {} files and {} transactions", result["files"], result["transactions"]);
    let mut out = head(done, &what);
    for phase in ["create", "transactions", "delete"] {
        let span = &result["phases"][phase];
        let ns = span["end_ns"].as_u64().unwrap_or(0).saturating_sub(span["begin_ns"].as_u64().unwrap_or(0));
        out += &format!("  {phase:<16} {:>10.3} ms   {}\n", ns as f64 / 1e6, operations(done, phase));
    }
    out += &format!(
        "  {} files created and deleted, {} read, {} appended to; {} bytes read, {} written\n",
        result["created"], result["read"], result["appended"], result["bytes_read"], result["bytes_written"]
    );
    for share in result["shares"].as_array().into_iter().flatten() {
        let rate = share["bytes_per_s"].as_u64().unwrap_or(0) as f64 / (1 << 20) as f64;
        out += &format!("  when {:>3} % of a file is read: {rate:.2} MiB/s of read()\n", share["percent"]);
    }
    out
}

fn replay_table(done: &Done) -> String {
    let result = &done.result;
    let what = format!("{} reads of {} files", result["reads"], result["files"]);
    let mut out = head(done, &what);
    out += &format!("  {:<16} {:>10.3} ms   {}\n", "all", ms(&result["total_ns"]), operations(done, "reads"));
    for task in result["tasks"].as_array().into_iter().flatten() {
        let label = flashscope_report::visible(task["label"].as_str().unwrap_or("?"));
        let late = task["max_late_ns"]
            .as_u64()
            .map_or_else(String::new, |ns| format!(", {:.3} ms late at most", ns as f64 / 1e6));
        out += &format!("  {label:<16} {:>10.3} ms   {} reads{late}\n", ms(&task["total_ns"]), task["reads"]);
    }
    out
}
