//! Reads a boot's port file as one group of results.

use std::path::Path;

use flashscope_analysis::Analysis;
use flashscope_analysis::LossCount;
use flashscope_analysis::flash::{
    Blocks, ByTask, Geometry, Health, LatencyNs, OpCounts, Span, TimelineFold, Window, WindowCounts,
};
use flashscope_trace::facts::Mtd;
use flashscope_trace::{
    BlockAction, BlockEvent, Event, EventKind, Facts, FlashAccess, FlashOp, RequestKind, Session, Trace,
};
use serde::Deserialize;

use crate::definition::{Readahead, Workload};
use crate::error::StudyError;
use crate::lab;
use crate::medium::Medium;
use crate::plan::{CellSpec, DISK_BLOCK_BYTES, GroupSpec, STEP_TRACED, STEP_UNTRACED, cell_step};
use crate::result::{Cell, ChipFacts, DefaultReadahead, Group, Inputs, PhaseCounts, ProbeUsed, TracerCost};

/// The fields of the agent's `bench read` object that a study uses.
#[derive(Debug, Deserialize)]
struct BenchRead {
    readahead: BenchReadahead,
    open: Interval,
    measured: Interval,
    total_ns: u64,
    bytes_read: u64,
    latencies_ns: Vec<u64>,
    checksum: u32,
}

/// The fields of `bench sqlite`'s object: one run of SELECTs.
#[derive(Debug, Deserialize)]
struct BenchSqlite {
    text_bytes: u64,
    readahead: BenchReadahead,
    runs: [SqliteRun; 1],
}

#[derive(Debug, Deserialize)]
struct SqliteRun {
    selects: u64,
    open: Interval,
    measured: Interval,
    total_ns: u64,
    checksum: u32,
    latencies_ns: Vec<u64>,
}

/// Number of texts in a record.
const TEXTS: u64 = 5;

impl From<BenchSqlite> for BenchRead {
    fn from(bench: BenchSqlite) -> BenchRead {
        let [run] = bench.runs;
        BenchRead {
            readahead: bench.readahead,
            open: run.open,
            measured: run.measured,
            total_ns: run.total_ns,
            bytes_read: run.selects.saturating_mul(TEXTS).saturating_mul(bench.text_bytes),
            latencies_ns: run.latencies_ns,
            checksum: run.checksum,
        }
    }
}

#[derive(Debug, Deserialize)]
struct BenchReadahead {
    knob: Option<String>,
    before_kib: Option<u64>,
    effective_kib: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Interval {
    begin_ns: u64,
    end_ns: u64,
}

impl Interval {
    fn holds(self, time_ns: u64) -> bool {
        (self.begin_ns..=self.end_ns).contains(&time_ns)
    }

    fn window(self) -> Window {
        Window::new(self.begin_ns, self.end_ns)
    }
}

/// The fields of `bench raw` and `bench read` for the tracer's cost.
#[derive(Debug, Deserialize)]
struct Timed {
    count: u64,
    total_ns: u64,
    measured: Option<Interval>,
}

/// Reads a group's port file. One pass over its events fills all analyses.
pub(crate) fn collect(
    port_file: &Path,
    spec: &GroupSpec,
    inputs: Inputs,
    medium: &Medium,
) -> Result<Group, StudyError> {
    let group = spec.id();
    let session = Session::open(port_file)?;
    let benches = benches(&session, spec, &group)?;
    let untraced: Timed = lab::printed(&session, &group, STEP_UNTRACED)?;
    let traced: Timed = lab::printed(&session, &group, STEP_TRACED)?;

    let trace = session.recording(0)?;
    let facts = trace.facts();
    let missing = |what: &str| StudyError::Missing { group: group.clone(), what: what.to_owned() };
    let mut chip = chip(medium, facts).map_err(missing)?;
    chip.page_read_ns_measured = untraced.total_ns.checked_div(untraced.count).unwrap_or(0);
    let geometry = Geometry { page_bytes: chip.page_bytes, pages_per_block: chip.block_bytes / chip.page_bytes.max(1) };
    let chips = [(0u16, geometry)];

    // Windows: two for each cell, then the named phases.
    let phases = spans(&session);
    let windows = benches
        .iter()
        .flat_map(|bench| [bench.open.window(), bench.measured.window()])
        .chain(phases.iter().map(|span| Window::new(span.begin_ns, span.end_ns)));
    let mut counts = WindowCounts::new(windows);
    let mut by_task = ByTask::new(|tid, time| trace.comm(tid, time));
    let mut blocks = Blocks::new(&chips);
    let mut timeline = TimelineFold::default();
    if let (Some(first), Some(last)) = (benches.first(), benches.last()) {
        timeline.span(Span { name: "cells".to_owned(), begin_ns: first.open.begin_ns, end_ns: last.measured.end_ns });
    }
    let mut calibration = 0;
    trace.for_each(&mut |event| match medium {
        Medium::Chip { .. } => {
            counts.event(event);
            by_task.event(event);
            blocks.event(event);
            timeline.event(event);
        }
        // Any thread may issue a request; the thread that queues it is its originator.
        Medium::Disk { .. } => {
            let EventKind::Block(block) = &event.kind else { return };
            calibration += u64::from(traced.measured.is_some_and(|of| of.holds(event.time.0)));
            let access = Event { kind: EventKind::Flash(on_disk(block)), ..event.clone() };
            match block.action {
                BlockAction::Issue if block.bytes > 0 => {
                    counts.event(&access);
                    timeline.event(&access);
                }
                BlockAction::Queue if block.bytes > 0 => by_task.event(&access),
                _ => {}
            }
        }
    })?;
    let counts = counts.finish();
    let block_map = blocks.finish();

    let cells = spec
        .cells
        .iter()
        .zip(&benches)
        .enumerate()
        .map(|(index, (cell, bench))| measured_cell(cell, bench, counts[2 * index].reads, counts[2 * index + 1].reads))
        .collect();
    let phases = phase_counts(phases, &counts[2 * benches.len()..]);
    let default = benches
        .first()
        .and_then(|bench| default_readahead(&bench.readahead))
        .ok_or_else(|| missing("read-ahead knob of the file system"))?;

    lab::whole(&trace, &group, "how many reads its cells took is not known; measure fewer cells in one study")?;
    let mut losses = losses(&trace);
    losses.push(LossCount {
        name: "operations_not_placed".to_owned(),
        count: block_map.not_placed.sum(),
        meaning: "operations outside every known chip: they are in the totals, not in the block map".to_owned(),
    });
    Ok(Group {
        id: group.clone(),
        inputs: inputs.recorded(facts),
        workload: spec.workload,
        filesystem: spec.filesystem.as_str().to_owned(),
        contents: spec.contents.clone(),
        file_size_bytes: spec.file_size.0,
        default,
        chip,
        probes: probes(facts),
        tracer: tracer_cost(&untraced, &traced, if calibration > 0 { calibration } else { traced.count }),
        phases,
        by_task: by_task.finish(),
        timeline: timeline.finish(),
        blocks: block_map.blocks,
        health: Health::of_recording(facts, trace.stats()),
        losses,
        cells,
    })
}

/// The output of each cell.
fn benches(session: &Session, spec: &GroupSpec, group: &str) -> Result<Vec<BenchRead>, StudyError> {
    let mut benches = Vec::with_capacity(spec.cells.len());
    for index in 0..spec.cells.len() {
        let step = cell_step(index);
        let bench: BenchRead = match spec.workload {
            Workload::Read => lab::printed(session, group, &step)?,
            Workload::Sqlite => lab::printed::<BenchSqlite>(session, group, &step)?.into(),
        };
        if let (Readahead::Kib(asked), Some(got)) = (spec.cells[index].readahead, bench.readahead.effective_kib)
            && got != asked
        {
            return Err(StudyError::Readahead { group: group.to_owned(), cell: step, got, asked });
        }
        benches.push(bench);
    }
    Ok(benches)
}

/// The medium of the group in the recording's facts; an error names a missing fact.
fn chip(medium: &Medium, facts: &Facts) -> Result<ChipFacts, &'static str> {
    Ok(match medium {
        Medium::Chip { name, .. } => {
            let mtd = facts.mtd.first().ok_or("MTD device")?;
            let geometry = geometry(mtd).ok_or("geometry of the chip")?;
            let bytes: u64 = facts.mtd.iter().filter_map(|mtd| mtd.size).sum();
            chip_facts(name, geometry, bytes)
        }
        // In blocks of the file system: a disk has no pages.
        Medium::Disk { name, bytes, .. } => {
            let geometry = Geometry { page_bytes: DISK_BLOCK_BYTES as u32, pages_per_block: 1 };
            chip_facts(name, geometry, *bytes)
        }
    })
}

/// An operation on a disk, with blocks of the file system as pages.
fn on_disk(block: &BlockEvent) -> FlashAccess {
    FlashAccess {
        op: if block.flags.kind() == RequestKind::Read { FlashOp::Read } else { FlashOp::Program },
        page: block.sector / (DISK_BLOCK_BYTES / 512),
        offset_bytes: None,
        length_bytes: u32::try_from(block.bytes).ok(),
        chip: 0,
    }
}

/// The file system's read-ahead before the first cell changed it. `None` also where the knob is no plain path below /sys: it becomes part of
/// a command to type, and the guest of a board is not trusted.
fn default_readahead(before: &BenchReadahead) -> Option<DefaultReadahead> {
    let is_plain = |knob: &String| flashscope_output::quote::sysfs_file(knob).as_ref() == Some(knob);
    Some(DefaultReadahead { knob: before.knob.clone().filter(is_plain)?, kib: before.before_kib? })
}

fn phase_counts(phases: Vec<Span>, counts: &[OpCounts]) -> Vec<PhaseCounts> {
    phases
        .into_iter()
        .zip(counts)
        .map(|(span, counts)| PhaseCounts {
            phase: span.name,
            duration_ns: span.end_ns.saturating_sub(span.begin_ns),
            counts: *counts,
        })
        .collect()
}

fn measured_cell(cell: &CellSpec, bench: &BenchRead, open_reads: u64, reads: u64) -> Cell {
    Cell {
        count: cell.count,
        request_bytes: cell.request_size.0,
        pattern: cell.pattern.as_str().to_owned(),
        readahead: cell.readahead.argument(),
        readahead_kib: bench.readahead.effective_kib.unwrap_or(0),
        crc32: bench.checksum,
        interarrival_us: cell.interarrival_us,
        seed: cell.seed,
        total_ns: bench.total_ns,
        latency: LatencyNs::from_unsorted(bench.latencies_ns.clone()),
        bytes_read: bench.bytes_read,
        flash_reads: reads,
        flash_reads_open: open_reads,
        open_ns: bench.open.end_ns.saturating_sub(bench.open.begin_ns),
        energy: None,
    }
}

/// All loss counters of a trace, zero counts included.
pub fn losses(trace: &Trace) -> Vec<LossCount> {
    trace
        .losses()
        .iter()
        .map(|(loss, count)| LossCount { name: loss.name().to_owned(), count, meaning: loss.meaning().to_owned() })
        .collect()
}

/// Named phases of the plan as spans. A phase without an end is left out (the plan failed then).
fn spans(session: &Session) -> Vec<Span> {
    session
        .phases()
        .iter()
        .filter_map(|phase| Some(Span { name: phase.name.clone(), begin_ns: phase.begin_ns, end_ns: phase.end_ns? }))
        .collect()
}

fn chip_facts(name: &str, geometry: Geometry, bytes: u64) -> ChipFacts {
    let block_bytes = u64::from(geometry.page_bytes) * u64::from(geometry.pages_per_block);
    ChipFacts {
        name: name.to_owned(),
        page_bytes: geometry.page_bytes,
        block_bytes: u32::try_from(block_bytes).unwrap_or(u32::MAX),
        blocks: u32::try_from(bytes.checked_div(block_bytes).unwrap_or(0)).unwrap_or(u32::MAX),
        page_read_ns_measured: 0,
    }
}

fn geometry(mtd: &Mtd) -> Option<Geometry> {
    let page_bytes = u32::try_from(mtd.writesize?).ok().filter(|&bytes| bytes > 0)?;
    let block_bytes = u32::try_from(mtd.erasesize?).ok()?;
    Some(Geometry { page_bytes, pages_per_block: block_bytes / page_bytes })
}

fn probes(facts: &Facts) -> Vec<ProbeUsed> {
    let text = |said: &Option<String>| said.clone().unwrap_or_default();
    let used = facts.recording.probes.iter().map(|probe| ProbeUsed {
        operation: text(&probe.operation),
        symbol: text(&probe.symbol),
        how_chosen: how_chosen(facts, probe.symbol.as_deref()).to_owned(),
        loses: text(&probe.loses),
    });
    used.collect()
}

/// How a probe point was chosen: proved by a read on each device, or (programs, erases) present and checked by comparing counts.
fn how_chosen<'a>(facts: &'a Facts, symbol: Option<&str>) -> &'a str {
    let point = facts.probe_points.iter().find(|point| point.symbol.as_deref() == symbol);
    point.and_then(|point| point.status.as_deref()).unwrap_or("not said")
}

/// The cost of one event: the same reads in the same boot, without and with the tracer, which recorded `events` events.
fn tracer_cost(untraced: &Timed, traced: &Timed, events: u64) -> TracerCost {
    let more = traced.total_ns as f64 - untraced.total_ns as f64;
    TracerCost {
        reads: traced.count,
        untraced_ns: untraced.total_ns,
        traced_ns: traced.total_ns,
        ns_per_event: (more / events.max(1) as f64 * 10.0).round() / 10.0,
        percent_of_page_read: (more / untraced.total_ns.max(1) as f64 * 10_000.0).round() / 100.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guests_knob_is_no_command() {
        let of =
            |knob: &str| BenchReadahead { knob: Some(knob.to_owned()), before_kib: Some(128), effective_kib: None };
        for knob in ["/sys/class/bdi/mtd-0/read_ahead_kb", "/sys/block/mtdblock0/queue/read_ahead_kb"] {
            assert_eq!(default_readahead(&of(knob)).map(|default| default.knob).as_deref(), Some(knob));
        }
        for knob in
            ["/sys/x; curl x | sh", "/sys/$(id)", "/etc/passwd", "/sys/../etc/passwd", "/sys/a b", "/sys/\u{202e}", ""]
        {
            assert!(default_readahead(&of(knob)).is_none(), "{knob}");
        }
    }
}
