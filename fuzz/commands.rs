//! One body for each command that reads a trace, on traces of arbitrary events ([`super::structured`]): what the command analyses,
//! the findings of all rules, and every form that it prints. No panic, no overflow.
//!
//! The libFuzzer targets in `fuzz_targets/` and the bounded run of CI (`crates/report/tests/fuzz.rs`) call the same bodies.

use super::structured;
use flashscope_analysis::block::{BLOCK_REPORT_SCHEMA, BlockAnalysis, BlockReport, Sizes};
use flashscope_analysis::cache::Accuracy;
use flashscope_analysis::flash::UbiRegion;
use flashscope_analysis::layers::{LAYERS_REPORT_SCHEMA, Layers, LayersReport};
use flashscope_analysis::{Analysis, FLASH_REPORT_SCHEMA, FlashAnalysis, FlashReport, OwnWear, SystemFacts};
use flashscope_cachesim::Kernel;
use flashscope_predict::{
    Collector, ErrorPercents, FilesystemOptions, PREDICTION_SCHEMA, Prediction, Predictor, Seen, Storage, Workload,
    advise, silent,
};
use flashscope_report::terminal::{self, Style};
use flashscope_report::{html, json};
use flashscope_trace::{Device, EventKind, FileId, TaskId, TimeNs, Trace, export, flashmon};
use std::hint::black_box;
use std::path::Path;

#[path = "results.rs"]
mod results;
#[path = "rules.rs"]
mod rules;
#[path = "written.rs"]
mod written;
pub use results::{diff, fail_if, replay_script, report_by, report_call};
pub use written::{anonymize, export_merged, export_rows};

pub type Body = fn(&[u8]);

pub const ALL: [(&str, Body); 18] = [
    ("report", report),
    ("report_layers", report_layers),
    ("predict", predict),
    ("advise", advise_on),
    ("export_csv", export_csv),
    ("export_json", export_json),
    ("export_text", export_text),
    ("export_perfetto", export_perfetto),
    ("export_flashmon", export_flashmon),
    ("export_trace_dat", export_trace_dat),
    ("report_call", report_call),
    ("report_by", report_by),
    ("diff", diff),
    ("fail_if", fail_if),
    ("replay_script", replay_script),
    ("export_rows", export_rows),
    ("export_merged", export_merged),
    ("anonymize", anonymize),
];

/// Windows that a recording is compared with, KiB.
const SETTINGS: [u64; 3] = [0, 16, 128];

fn trace(bytes: &[u8]) -> Option<Trace> {
    Trace::from_bytes(Path::new("fuzz"), structured::stream(bytes).into()).ok()
}

/// `report`, of block I/O or of flash, in all its forms.
pub fn report(bytes: &[u8]) {
    let Some(trace) = trace(bytes) else { return };
    if is_of_flash(&trace) {
        let report = flash_report(&trace);
        black_box((
            terminal::flash(&report, &Style::default()),
            json::named(&report, &report.names),
            html::flash(&report),
        ));
        return;
    }
    let report = block_report(&trace, |tid, time| trace.comm(tid, time));
    black_box((terminal::block(&report, &Style::default()), json::named(&report, &report.names), html::block(&report)));
}

/// Rules that have a finding on what an input stands for.
#[allow(dead_code, reason = "the libFuzzer targets count nothing")]
pub fn rules_with_findings(bytes: &[u8]) -> Vec<String> {
    let Some(trace) = trace(bytes) else { return Vec::new() };
    let findings = match is_of_flash(&trace) {
        true => flash_report(&trace).findings,
        false => block_report(&trace, |tid, time| trace.comm(tid, time)).findings,
    };
    findings.iter().map(|finding| format!("{:?}", finding.rule)).collect()
}

fn is_of_flash(trace: &Trace) -> bool {
    trace.schemas().any(|schema| schema.name.starts_with("nand_"))
}

fn flash_report(trace: &Trace) -> FlashReport {
    let mut accuracy = Accuracy::new();
    let facts = trace.facts();
    let partitions: Vec<(u16, u64, u64)> = (facts.mtd.iter())
        .filter_map(|mtd| {
            let block = mtd.erasesize.filter(|&bytes| bytes > 0)?;
            Some((mtd.chip.unwrap_or(0) as u16, mtd.offset.unwrap_or(0) / block, mtd.size.unwrap_or(0) / block))
        })
        .collect();
    let ubi: Vec<UbiRegion> = UbiRegion::of_facts(facts, 0);
    let mut analysis = FlashAnalysis::new(&[], &partitions, &ubi, |tid, time| trace.comm(tid, time));
    let _ = trace.for_each(&mut |event| {
        accuracy.event(event);
        analysis.event(event);
    });
    let findings = analysis.finish();
    let mut report = FlashReport {
        names: Default::default(),
        schema: FLASH_REPORT_SCHEMA,
        title: "fuzz".into(),
        system: system(trace),
        chips: Vec::new(),
        life: Vec::new(),
        probes: Vec::new(),
        health: Vec::new(),
        losses: Vec::new(),
        readahead: Some(accuracy.finish().into()),
        findings: Vec::new(),
        calls: Default::default(),
        found: findings,
    };
    report.findings = rules::find(trace, rules::Of::Flash(&report));
    report
}

/// With names of tasks as `--by` asks for them.
fn block_report<'t>(trace: &'t Trace, name: impl Fn(TaskId, TimeNs) -> Option<&'t str>) -> BlockReport {
    let mut accuracy = Accuracy::new();
    let sizes = Sizes::of_facts([trace.facts()]);
    let mut analysis = BlockAnalysis::new(name, sizes);
    let _ = trace.for_each(&mut |event| {
        analysis.event(event);
        if matches!(event.kind, EventKind::Block(_) | EventKind::File(_) | EventKind::Other { .. }) {
            accuracy.event(event);
        }
    });
    let mut report = BlockReport {
        names: Default::default(),
        schema: BLOCK_REPORT_SCHEMA,
        title: "fuzz".into(),
        system: system(trace),
        losses: Vec::new(),
        missing: Vec::new(),
        readahead: Some(accuracy.finish().into()),
        findings: Vec::new(),
        calls: Default::default(),
        found: analysis.finish(),
    };
    report.findings = rules::find(trace, rules::Of::Block(&report));
    report
}

fn system(trace: &Trace) -> SystemFacts {
    SystemFacts {
        kernel_release: String::new(),
        machine: String::new(),
        cpus: trace.cpus(),
        agent_version: String::new(),
        clock: trace.clock().to_owned(),
        mounts: Vec::new(),
        wear: OwnWear::of_facts(trace.facts()),
        captured: trace.facts().recording.trigger.iter().filter_map(|trigger| trigger.reason.clone()).collect(),
        limited_to: trace.facts().recording.filter.comm.clone(),
    }
}

/// `report --by layer`.
pub fn report_layers(bytes: &[u8]) {
    let Some(trace) = trace(bytes) else { return };
    let crossings = trace.crossings();
    let mut layers = Layers::new(|tid, time| trace.comm(tid, time), crossings.sleep());
    let _ = trace.for_each_pair(&mut |pair| {
        if let Some(event) = pair.event {
            layers.event(event);
        }
        if let Some(record) = pair.record {
            crossings.read(record, &mut |tid, crossing| layers.crossing(crossing, tid, record.time));
        }
    });
    let findings = layers.finish();
    let losses = findings.losses();
    let report = LayersReport {
        schema: LAYERS_REPORT_SCHEMA,
        title: "fuzz".into(),
        system: system(&trace),
        losses,
        found: findings,
    };
    black_box((terminal::layers(&report, &Style::default()), json::any(&report), html::layers(&report)));
}

/// What a trace says of file reads, and how it was stored.
fn workload(trace: &Trace) -> Option<(Workload, Storage)> {
    let mut collector = Collector::new(trace.facts(), []);
    // What takes time in proportion to that is no finding.
    collector.limit_pages(1 << 12);
    let is_squashfs = trace.facts().mounts.first().is_some_and(|mount| mount.is("squashfs"));
    if is_squashfs {
        collector.through_block_layer();
    }
    trace.for_each_pair(&mut |pair| collector.pair(&pair)).ok()?;
    let workload = collector.finish();
    if workload.calls.is_empty() && workload.faults == 0 || !workload.cache_seen {
        return None;
    }
    let release = trace.facts().kernel.release.as_deref().unwrap_or_default();
    let mut storage = Storage::new(Kernel::nearest(release).map_or(Kernel::V6_1, |choice| choice.kernel));
    if is_squashfs {
        storage.squashfs = [(Device(8 << 20), 128 << 10)].into();
    }
    Some((workload, storage))
}

/// `predict`, in all its forms.
pub fn predict(bytes: &[u8]) {
    let Some(trace) = trace(bytes) else { return };
    let Some((workload, storage)) = workload(&trace) else { return };
    let model = storage.kernel;
    let predictor = Predictor::new(&workload, storage);
    let mut rows: Vec<_> = [0, 16, 128].map(|kib| predictor.row(kib, &|_| false)).into();
    rows.push(predictor.row(128, &|_| true));
    if let Some(mounted) = predictor.costs.on_ubifs() {
        rows.push(
            predictor.row_with(16, FilesystemOptions { bulk_read: Some(!mounted), ..FilesystemOptions::default() }),
        );
    }
    let prediction = Prediction {
        schema: PREDICTION_SCHEMA,
        model: model.name(),
        model_source: model.source(),
        model_exact: true,
        recorded: predictor.recorded(&SETTINGS),
        cost: predictor.costs.cost,
        queue: predictor.costs.queue,
        error: None,
        error_other_options: None,
        power: None,
        notes: Vec::new(),
        rows,
    };
    let file = |file: FileId| file.inode.to_string();
    let task = |tid: TaskId| tid.to_string();
    black_box((
        terminal::prediction(&prediction, &file, &task, &Style::default()),
        json::any(&prediction),
        html::prediction(&prediction, "fuzz", &file, &task),
    ));
}

/// `advise`.
pub fn advise_on(bytes: &[u8]) {
    let Some(trace) = trace(bytes) else { return };
    let Some((workload, storage)) = workload(&trace) else { return };
    let (kernel, io_pages) = (storage.kernel, storage.io_pages);
    let predictor = Predictor::new(&workload, storage);
    let recorded = predictor.recorded(&SETTINGS);
    let now = recorded.fits_readahead_kib;
    let off = ErrorPercents { window: Some(5.0), options: Some(20.0) };
    let row = predictor.row(now, &|_| false);
    black_box(advise(&predictor, now, off));
    black_box(silent(&Seen {
        facts: trace.facts(),
        workload: &workload,
        kernel,
        io_pages,
        now: &row,
        recorded,
        page_ns: predictor.costs.cost.map(|cost| cost.page_ns),
        knobs: &["8:0".to_owned(), "mtd-0".to_owned()],
        synchronous: true,
    }));
}

fn exported<T>(bytes: &[u8], write: impl FnOnce(&Trace, &mut Vec<u8>) -> T) {
    if let Some(trace) = trace(bytes) {
        let mut out = Vec::new();
        black_box(write(&trace, &mut out));
        black_box(out);
    }
}

pub fn export_csv(bytes: &[u8]) {
    exported(bytes, |trace, out| export::csv(trace, out).is_ok());
}

pub fn export_json(bytes: &[u8]) {
    exported(bytes, |trace, out| export::json_lines(trace, out).is_ok());
}

pub fn export_text(bytes: &[u8]) {
    exported(bytes, |trace, out| export::text(trace, out).is_ok());
}

pub fn export_perfetto(bytes: &[u8]) {
    exported(bytes, |trace, out| export::perfetto(trace, out).is_ok());
}

pub fn export_flashmon(bytes: &[u8]) {
    exported(bytes, |trace, out| {
        flashmon::write_log(trace, 0, out).is_ok() | flashmon::write_spatial(trace, 0, out).is_ok()
    });
}

/// A file in memory where there is one, for as long as `with` runs.
fn in_memory(name: &str, with: impl FnOnce(&Path)) {
    let dir = if Path::new("/dev/shm").is_dir() { "/dev/shm".into() } else { std::env::temp_dir() };
    let path = dir.join(format!("flashscope-fuzz-{name}-{}-{:?}", std::process::id(), std::thread::current().id()));
    with(&path);
    let _ = std::fs::remove_file(&path);
}

/// Written, and read again: the same records.
pub fn export_trace_dat(bytes: &[u8]) {
    let Some(trace) = trace(bytes) else { return };
    let mut records = [0, 0];
    let _ = trace.for_each_record(&mut |_| records[0] += 1);
    in_memory("dat", |path| {
        if flashscope_trace::dat::write(&trace, path).is_ok() {
            let back = Trace::open(path).expect("what was written can be read");
            back.for_each_record(&mut |_| records[1] += 1).expect("all of it");
            assert_eq!(records[0], records[1], "a trace.dat holds every record");
        }
    });
}
