//! A trace's flash operations on a terminal.

use super::table::{Table, paragraph};
use super::{Style, rows};
use crate::boot_view::phases as activities;
use crate::text::{duration, grouped, visible};
use crate::view::kinds;
use crate::wear_view;
use flashscope_analysis::FlashReport;
use flashscope_analysis::flash::{BlockCounts, OpCounts};

/// Rows of a table of names or blocks at most; the JSON has all.
const MAX_ROWS: usize = 20;

/// The whole text; ends in a newline.
pub fn flash(report: &FlashReport, style: &Style) -> String {
    let style = *style;
    let width = style.width();
    let report = &crate::names::flash_for_people(report);
    let found = &report.found;
    let mut out = title(report, width);
    if let Some(line) = wear_view::failed(report) {
        out += &paragraph(&line, width, 0, 2);
    }
    out += &super::findings(&report.findings, &style);
    out += &super::calls(&report.calls, found.begin_ns, &style);
    let mut table = Table::new("tnn");
    table.head(["what a command moved", "reads", "programs"]);
    if let Some(counts) = found.counts.known().filter(|counts| counts.total.sum() > 0) {
        for (name, reads, programs) in kinds(&counts.reads, &counts.programs) {
            table.row([name.to_owned(), grouped(reads), grouped(programs)]);
        }
    }
    out += &style.section("By kind", &table.render(width));
    out += &times(report, &style);
    let tasks = found.by_task.iter().map(|t| (visible(&t.task).into_owned(), None, Some(t.counts)));
    out += &style.section("By task", &operations("task", tasks, width));
    let phases = &found.phases;
    if !phases.phases.is_empty() {
        out += &style.heading("By phase");
        let rows = phases.phases.iter().map(|p| {
            let lasted = duration(p.end_ns.saturating_sub(p.begin_ns)) + if p.ended { "" } else { ", cut" };
            (visible(&p.name).into_owned(), Some(lasted), p.counts.known().copied())
        });
        out += &operations("phase", rows, width);
    }
    if let Some(readahead) = &report.readahead {
        out += &super::readahead(readahead, &style, MAX_ROWS);
    }
    let did = |all| rows(&activities(all, found.begin_ns, None), width);
    out += &style.section("Phases of file systems and UBI, inferred from the operations", &did(&found.activities));
    out += &style.section("YAFFS2's own operations among them", &did(&found.yaffs2));
    let mut blocks: Vec<&BlockCounts> = found.blocks.blocks.iter().collect();
    blocks.sort_by_key(|b| (std::cmp::Reverse(b.counts.sum()), b.chip, b.block));
    let several = report.chips.len() > 1;
    let busiest = blocks.iter().map(|b| {
        let name = if several {
            format!("chip {}, block {}", b.chip, grouped(b.block.into()))
        } else {
            grouped(b.block.into())
        };
        (name, None, Some(b.counts))
    });
    out += &style.section("Busiest blocks", &operations("block", busiest, width));

    out += &wear(report, &style);
    out += &super::names_section(&report.names, &style, MAX_ROWS);
    out += &errors(report, &style, width);
    out += &probes(report, &style);
    out += &losses(report, &style);
    out
}

/// What it is of, how much there was, and what recorded it.
fn title(report: &FlashReport, width: usize) -> String {
    let found = &report.found;
    let mut out = paragraph(&visible(&report.title), width, 0, 0);
    let operations = match found.counts.known().map(|counts| counts.total).filter(|total| total.sum() > 0) {
        None => "no operation of raw flash in the trace".to_owned(),
        Some(total) => format!(
            "{} page reads, {} page programs, {} block erases",
            grouped(total.reads),
            grouped(total.programs),
            grouped(total.erases)
        ),
    };
    out += &paragraph(
        &format!(
            "{operations}; {} events in {}",
            grouped(found.events),
            duration(found.end_ns.saturating_sub(found.begin_ns))
        ),
        width,
        0,
        0,
    );
    let system = &report.system;
    if !system.kernel_release.is_empty() {
        let line = format!(
            "Linux {} on {}, agent {}, clock {}",
            system.kernel_release, system.machine, system.agent_version, system.clock
        );
        out += &paragraph(&visible(&line), width, 0, 0);
    }
    for line in crate::recorded_view::lines(system, &report.calls) {
        out += &paragraph(&visible(&line), width, 0, 2);
    }
    out
}

fn times(report: &FlashReport, style: &Style) -> String {
    let durations = &report.found.durations;
    if durations.is_empty() {
        return String::new();
    }
    let mut table = Table::new("tnnnnnnn");
    table.head(["operation", "n", "min", "mean", "p50", "p90", "p99", "max"]);
    for d in durations {
        let l = &d.latency_ns;
        let mut cells = vec![d.op.name().to_owned(), grouped(l.n)];
        cells.extend([l.min, l.mean, l.p50, l.p90, l.p99, l.max].map(duration));
        table.row(cells);
    }
    style.heading("Time of a command") + &table.render(style.width())
}

/// What the recording's own events say of the wear; without any, what the device says of itself.
fn wear(report: &FlashReport, style: &Style) -> String {
    let width = style.width();
    let Some(found) = report.found.wear.known().filter(|wear| wear.programmed_pages + wear.erased_blocks > 0) else {
        let said: Vec<String> = report.system.wear.iter().map(|said| said.sentence()).collect();
        let lines: String = said.iter().map(|sentence| paragraph(&visible(sentence), width, 2, 4)).collect();
        return if said.is_empty() { lines } else { style.heading("Wear") + &lines };
    };
    let mut out = style.heading("Wear");
    for sentence in wear_view::sentences(report) {
        out += &paragraph(&visible(&sentence), width, 2, 4);
    }
    out += &rows(&wear_view::tasks(found, MAX_ROWS), width);
    let files = wear_view::files(found, MAX_ROWS);
    if !files.rows.is_empty() {
        out.push('\n');
        out += &rows(&files, width);
    }
    out
}

fn probes(report: &FlashReport, style: &Style) -> String {
    if report.probes.is_empty() {
        return String::new();
    }
    let mut table = Table::new("tttt");
    table.head(["probe for", "level", "function", "does not see"]);
    for p in &report.probes {
        table.row([visible(&p.operation), visible(&p.level), visible(&p.symbol), visible(&p.loses)]);
    }
    style.heading("Probes") + &table.render(style.width())
}

fn losses(report: &FlashReport, style: &Style) -> String {
    let (found, phases, width) = (&report.found, &report.found.phases, style.width());
    let mut out = style.heading("Losses");
    let recorded = report.losses.iter().map(|l| (l.name.as_str(), l.count, l.meaning.as_str()));
    if report.losses.is_empty() {
        out += &super::losses(recorded, width);
    } else {
        let found = [
            (
                "operations_not_placed",
                found.blocks.not_placed.sum(),
                "in the totals, but in no block: their chip's shape is not known, or it has too many blocks",
            ),
            (
                "operations_of_no_phase",
                found.activities.not_told.sum(),
                "not inferred from the operations: their chip's shape is not known, or there were too many blocks or phases",
            ),
            ("phase_ends_without_begin", phases.ends_without_begin, "the recording began inside these phases"),
            ("phases_not_kept", phases.not_kept, "phases beyond the limits on number and nesting"),
        ];
        out += &super::losses(recorded.chain(found), width);
    }
    out
}

/// What the flash's own errors were; nothing where no device had any.
fn errors(report: &FlashReport, style: &Style, width: usize) -> String {
    if report.health.is_empty() {
        return String::new();
    }
    let mut out = style.heading("Errors of the flash") + &rows(&wear_view::errors(report), width);
    for sentence in wear_view::error_notes(report) {
        out += &paragraph(&visible(&sentence), width, 2, 4);
    }
    out
}

/// Rows of a name and its operations, the first ones of many.
pub(super) fn operations(
    what: &str,
    rows: impl ExactSizeIterator<Item = (String, Option<String>, Option<OpCounts>)>,
    width: usize,
) -> String {
    let all = rows.len();
    let rows: Vec<_> = rows.take(MAX_ROWS).collect();
    let timed = rows.iter().any(|row| row.1.is_some());
    let mut table = Table::new(if timed { "tnnnn" } else { "tnnn" });
    let lasted = timed.then_some("lasted");
    table.head([what].into_iter().chain(lasted).chain(["reads", "programs", "erases"]));
    for (name, lasted, c) in rows {
        let numbers =
            c.map_or_else(|| [(); 3].map(|()| "unknown".to_owned()), |c| [c.reads, c.programs, c.erases].map(grouped));
        table.row([name].into_iter().chain(lasted).chain(numbers));
    }
    let mut out = table.render(width);
    if all > MAX_ROWS {
        out += &format!("  and {} more: see --json\n", grouped((all - MAX_ROWS) as u64));
    }
    out
}
