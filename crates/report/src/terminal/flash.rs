//! A trace's flash operations on a terminal.

use super::table::{Table, paragraph};
use super::{Style, rows};
use crate::boot_view::phases as activities;
use crate::flash_view;
use crate::rows::Rows;
use crate::text::{duration, grouped, visible};
use crate::wear_view;
use flashscope_analysis::FlashReport;
use flashscope_analysis::flash::BlockCounts;

/// Largest number of rows in a table of names or blocks; the JSON has all.
const MAX_ROWS: usize = 20;

/// The whole text; ends in a newline.
pub fn flash(report: &FlashReport, style: &Style) -> String {
    let style = *style;
    let (width, most) = (style.width(), style.rows(MAX_ROWS));
    let report = &crate::names::flash_for_people(report);
    let found = &report.found;
    let mut out = title(report, width);
    if let Some(line) = wear_view::failed(report) {
        out += &paragraph(&line, width, 0, 2);
    }
    out += &super::findings(&report.findings, &style);
    out += &super::calls(&report.calls, found.begin_ns, &style);
    if let Some(counts) = found.counts.known().filter(|counts| counts.total.sum() > 0) {
        out += &style.section("By kind", &rows(&flash_view::kinds(&counts.reads, &counts.programs), width));
    }
    out += &style.section("Time of a command", &rows(&flash_view::times(&found.durations), width));
    out += &style.section("By task", &rows(&flash_view::tasks(&found.by_task, most), width));
    out += &style.section("By phase", &rows(&flash_view::phases(&found.phases.phases, most), width));
    if let Some(readahead) = &report.readahead {
        out += &super::readahead(readahead, &style, most);
    }
    let did = |all| rows(&activities(all, found.begin_ns, None), width);
    out += &style.section("Phases of file systems and UBI, inferred from the operations", &did(&found.activities));
    out += &style.section("YAFFS2's own operations among them", &did(&found.yaffs2));
    let mut blocks: Vec<&BlockCounts> = found.blocks.blocks.iter().collect();
    blocks.sort_by_key(|b| (std::cmp::Reverse(b.counts.sum()), b.chip, b.block));
    let several = report.chips.len() > 1;
    let heads = &["block", "reads", "programs", "erases"];
    let busiest = Rows::new("tnnn", heads, blocks.iter(), most, |b| {
        let block = grouped(b.block.into());
        let name = if several { format!("chip {}, block {block}", b.chip) } else { block };
        flash_view::named(name, Some(&b.counts))
    });
    out += &style.section("Busiest blocks", &rows(&busiest, width));

    out += &wear(report, &style);
    out += &super::names_section(&report.names, &style, most);
    out += &errors(report, &style, width);
    out += &probes(report, &style);
    out += &losses(report, &style);
    out
}

/// The title: subject, amount of events, and recorder.
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

/// Wear in the recording's own events; without such events, wear as the device reports it.
fn wear(report: &FlashReport, style: &Style) -> String {
    let (width, most) = (style.width(), style.rows(MAX_ROWS));
    let Some(found) = report.found.wear.known().filter(|wear| wear.programmed_pages + wear.erased_blocks > 0) else {
        let said: Vec<String> = report.system.wear.iter().map(|said| said.sentence()).collect();
        let lines: String = said.iter().map(|sentence| paragraph(&visible(sentence), width, 2, 4)).collect();
        return if said.is_empty() { lines } else { style.heading("Wear") + &lines };
    };
    let mut out = style.heading("Wear");
    for sentence in wear_view::sentences(report) {
        out += &paragraph(&visible(&sentence), width, 2, 4);
    }
    out += &rows(&wear_view::tasks(found, most), width);
    let files = wear_view::files(found, most);
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

/// Errors of the flash; empty if no device had any.
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
