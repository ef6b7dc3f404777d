//! A set of cells, compared with the models: page by page at its own window, and predicted from another one's recording.

use std::collections::HashMap;
use std::path::Path;

use flashscope_cachesim::Kernel;
use flashscope_predict::{Collector, Predictor, Row, Storage, Workload, has_bulk_read, request_bytes};
use flashscope_trace::facts::Mount;
use flashscope_trace::{Device, FileId, Session, Step, Trace};
use serde_json::{Value, json};

use super::cells::{Cell, Set};

/// What is mounted at /mnt, and what is not.
struct Mounted {
    device: Option<Device>,
    others: Vec<Device>,
    /// Where it is squashfs.
    block: Option<u64>,
    bulk_read: bool,
}

fn mounted(trace: &Trace) -> Mounted {
    let mounts = trace.facts().mounts.iter();
    let (ours, others): (Vec<&Mount>, Vec<&Mount>) = mounts.partition(|mount| mount.target.as_deref() == Some("/mnt"));
    let squashfs = ours.first().filter(|mount| mount.is("squashfs"));
    let block = squashfs.and_then(|mount| mount.block_bytes);
    Mounted {
        device: ours.first().and_then(|mount| mount.device()),
        others: others.into_iter().filter_map(|mount| mount.device()).collect(),
        block,
        bulk_read: ours.first().is_some_and(|mount| has_bulk_read(mount)),
    }
}

/// The accesses of every cell, from one pass over the trace, and what was read before the first: the files' pages one by one.
fn workloads(session: &Session, trace: &Trace, cells: &[Cell]) -> (Vec<Workload>, Workload) {
    let Mounted { device: ours, others, block: squashfs, .. } = mounted(trace);
    let spans: Vec<(u64, u64)> = cells
        .iter()
        .map(|cell| {
            let step = step(session, cell);
            assert_eq!(step.status, Some(0), "{}: {}", cell.label, String::from_utf8_lossy(&step.stderr));
            (step.begin_ns.expect("a begin"), step.end_ns.expect("an end"))
        })
        .collect();
    let new = || {
        let mut collector = Collector::new(trace.facts(), others.iter().copied());
        collector.keep_pages();
        if squashfs.is_some() {
            collector.through_block_layer();
        }
        collector
    };
    let mut workloads = Vec::new();
    let mut collector = new();
    let mut before = new();
    trace
        .for_each_pair(&mut |pair| {
            let time = pair.time().0;
            while workloads.len() < cells.len() && time > spans[workloads.len()].1 {
                workloads.push(std::mem::replace(&mut collector, new()).finish());
            }
            if workloads.len() < cells.len() && time >= spans[workloads.len()].0 {
                collector.pair(&pair);
            } else if workloads.is_empty() {
                before.pair(&pair);
            }
        })
        .expect("a readable trace");
    while workloads.len() < cells.len() {
        workloads.push(std::mem::replace(&mut collector, new()).finish());
    }
    for workload in &mut workloads {
        workload.steps.retain(|step| step.file.device == ours);
        workload.pages.retain(|(file, _)| file.device == ours);
        workload.pages_added.retain(|file, _| file.device == ours);
        workload.sizes.retain(|file, _| file.device == ours);
    }
    (workloads, before.finish())
}

/// Reads of flash, or requests of a queue.
fn asked_of_device(row: &Row) -> Option<f64> {
    row.queue.map(|asked| asked.requests as f64).or(row.flash_reads)
}

fn step<'a>(session: &'a Session, cell: &Cell) -> &'a Step {
    session.step(&cell.step).unwrap_or_else(|| panic!("no step {}", cell.step))
}

/// A set's recording, and what it says.
struct Recorded {
    session: Session,
    workloads: Vec<Workload>,
    layout: Workload,
    storage: Storage,
}

impl Recorded {
    fn of(set: &Set, cells: &[Cell], kept: Option<&Path>) -> Recorded {
        let session = set.session(cells, kept);
        let trace = session.recording(0).expect("a recording");
        flashscope_tests::nothing_lost(&trace, &set.id());
        let (mut workloads, layout) = workloads(&session, &trace, cells);
        let mut storage = Storage::new(Kernel::nearest(&set.kernel).expect("a model").kernel);
        let Mounted { device, block, bulk_read, .. } = mounted(&trace);
        if let (Some(device), Some(block)) = (device, block) {
            storage.squashfs.insert(device, block);
        }
        assert_eq!(bulk_read, set.filesystem == "ubifs-bulk", "{}: the mount is the set's", set.id());
        storage.bulk_read.extend(device.filter(|_| bulk_read));
        if let Some(bytes) = device.filter(|_| set.is_queue()).and_then(|device| request_bytes(trace.facts(), device)) {
            (storage.request_bytes, storage.io_pages) = (bytes, bytes / 4096);
        }
        // BLK_SAFE_MAX_SECTORS of a block device that sets no limit of its own.
        if set.filesystem == "yaffs2" || block.is_some() {
            storage.io_pages = 31;
        }
        // Where LEBs end no recording of a bulk read shows.
        if bulk_read {
            for workload in &mut workloads {
                workload.learn(&layout);
            }
        }
        Recorded { session, workloads, layout, storage }
    }

    fn predictor<'a>(&self, workload: &'a Workload) -> Predictor<'a> {
        Predictor::new(workload, self.storage.clone())
    }
}

/// Runs the set, or takes what was kept of it, and holds every cell of it: the rows of the table.
pub fn hold(set: &Set, kept: Option<&Path>) -> Vec<Value> {
    let began = std::time::Instant::now();
    let outcomes = if set.what == "other" { hold_other(set, kept) } else { hold_itself(set, kept) };
    println!("{}: {} cells, {} s", set.id(), outcomes.len(), began.elapsed().as_secs());
    outcomes
}

/// What a cell did on the board, and in the model at its own window.
fn outcome(set: &Set, cell: &Cell, recorded: &Recorded, workload: &Workload) -> Value {
    let mut board = workload.pages.clone();
    let mut model = recorded.predictor(workload).pages(cell.kib);
    let (came, modelled) = (board.len(), model.len());
    board.sort_unstable();
    model.sort_unstable();
    let (differ, alone) = differing(&board, &model);
    let time = recorded.predictor(workload).recorded(&[cell.kib]).time_ns;
    let examples: Vec<String> = alone.iter().map(|(file, page)| format!("{}:{page}", file.inode)).collect();
    json!({
        "kernel": set.kernel, "filesystem": set.filesystem, "study": cell.study, "workload": cell.label,
        "timed": set.is_timed(), "kib": cell.kib, "from_kib": cell.from_kib, "accesses": workload.calls.len(),
        "pages": came, "model_pages": modelled, "differ": differ, "examples": examples,
        "flash": if set.is_queue() { workload.queued.requests } else { workload.flash_reads }, "time_ns": time,
    })
}

fn hold_itself(set: &Set, kept: Option<&Path>) -> Vec<Value> {
    let cells = set.cells();
    let mut recorded = Recorded::of(set, &cells, kept);
    let place: HashMap<(&str, &str, u64), usize> =
        cells.iter().enumerate().map(|(at, cell)| ((cell.study, cell.label.as_str(), cell.kib), at)).collect();
    let from = |cell: &Cell| place[&(cell.study, cell.label.as_str(), cell.from_kib)];
    let mut outcomes = Vec::new();
    for (cell, workload) in cells.iter().zip(&recorded.workloads) {
        let mut outcome = outcome(set, cell, &recorded, workload);
        let predicted = recorded.predictor(&recorded.workloads[from(cell)]).row(cell.kib, &|_| false);
        outcome["predicted_pages"] = json!(predicted.tally.pages());
        outcome["predicted_flash"] = json!(asked_of_device(&predicted));
        outcome["predicted_ns"] = json!(predicted.time_ns);
        let paper = (cell.study == "SQLite" && cell.kib == 0).then(|| papers_kernel(&recorded.session, cell, workload));
        outcome["paper"] = json!(paper);
        outcomes.push(outcome);
    }
    let layout = &recorded.layout;
    let learned: Vec<bool> = recorded.workloads.iter_mut().map(|workload| workload.learn(layout) > 0).collect();
    for (cell, outcome) in cells.iter().zip(&mut outcomes).filter(|(cell, _)| learned[from(cell)]) {
        let predicted = recorded.predictor(&recorded.workloads[from(cell)]).row(cell.kib, &|_| false);
        outcome["learned_flash"] = json!(predicted.flash_reads);
        outcome["learned_ns"] = json!(predicted.time_ns);
    }
    outcomes
}

/// Predicted from the counterpart's recording at the same window.
fn hold_other(set: &Set, kept: Option<&Path>) -> Vec<Value> {
    let counterpart = set.counterpart();
    let (all, others) = (set.reads().cells(), counterpart.cells());
    let ours = Recorded::of(&set.reads(), &all, kept);
    let mut theirs = Recorded::of(&counterpart, &others, kept);
    let cells = set.cells();
    let place = |of: &[Cell], cell: &Cell| {
        let same = |one: &Cell| one.study == "own" && one.label == cell.label && one.kib == cell.kib;
        of.iter().position(same).expect("a cell of both")
    };
    let mut outcomes = Vec::new();
    for cell in &cells {
        let at = place(&others, cell);
        let mut outcome = outcome(set, cell, &ours, &ours.workloads[place(&all, cell)]);
        let predicted = theirs.predictor(&theirs.workloads[at]).row_with(cell.kib, set.options());
        outcome["predicted_pages"] = json!(predicted.tally.pages());
        outcome["predicted_flash"] = json!(predicted.flash_reads);
        outcome["predicted_ns"] = json!(predicted.time_ns);
        if theirs.workloads[at].learn(&theirs.layout) > 0 {
            let predicted = theirs.predictor(&theirs.workloads[at]).row_with(cell.kib, set.options());
            outcome["learned_flash"] = json!(predicted.flash_reads);
            outcome["learned_ns"] = json!(predicted.time_ns);
        }
        outcomes.push(outcome);
    }
    outcomes
}

/// What SELECTs that were recorded without read-ahead would read and take under the rules of the paper's kernel. Without
/// read-ahead each page comes alone on every kernel, so the measured time is the paper's kernel's too; with it, what the pages
/// beyond cost is added.
fn papers_kernel(session: &Session, cell: &Cell, workload: &Workload) -> Value {
    let printed: Value = serde_json::from_slice(&step(session, cell).stdout).expect("JSON");
    let selects = &printed["runs"][0];
    let saved = |kernel: Kernel| {
        let predictor = Predictor::new(workload, Storage::new(kernel));
        let (off, on) = (predictor.row(0, &|_| false), predictor.row(128, &|_| false));
        let (without, more) = (selects["total_ns"].as_f64()?, on.time_ns? - off.time_ns?);
        Some(json!({
            "pages_without": off.tally.pages(), "pages_with": on.tally.pages(),
            "time_saved_percent": more / (without + more) * 100.0,
        }))
    };
    json!({"2.6.37": saved(Kernel::V2_6_37), "6.1": saved(Kernel::V6_1)})
}

/// How many pages of two sorted lists have no partner in the other, and the first of them.
fn differing(a: &[(FileId, u64)], b: &[(FileId, u64)]) -> (usize, Vec<(FileId, u64)>) {
    let (mut i, mut k, mut alone) = (0, 0, Vec::new());
    while i < a.len() || k < b.len() {
        match (a.get(i), b.get(k)) {
            (Some(x), Some(y)) if x == y => (i, k) = (i + 1, k + 1),
            (Some(x), y) if y.is_none_or(|y| x < y) => {
                alone.push(*x);
                i += 1;
            }
            (_, Some(y)) => {
                alone.push(*y);
                k += 1;
            }
            _ => unreachable!("one of them is there"),
        }
    }
    let count = alone.len();
    alone.truncate(6);
    (count, alone)
}
