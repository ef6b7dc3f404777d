//! The page for a flash trace.

use super::page::{Header, Page};
use super::{MAX_ROWS, body, calls, facts, figure, findings, lost, names, readahead, rows, summary, system, table};
use crate::boot_view::phases as activities;
use crate::figures;
use crate::flash_view;
use crate::text::{bytes, duration, escape, grouped};
use crate::wear_view;
use flashscope_analysis::FlashReport;
use std::fmt::Write;

/// The whole page.
pub fn flash(report: &FlashReport) -> String {
    let report = &crate::names::flash_for_people(report);
    let found = &report.found;
    let lasted = duration(found.end_ns.saturating_sub(found.begin_ns));
    let question = format!("{} events in {lasted}", grouped(found.events));
    let mut page = Page::new(&Header {
        title: &report.title,
        question: &question,
        clock: "",
        contents: &[
            ("findings", "Findings"),
            ("calls", "Calls"),
            ("operations", "Operations"),
            ("figures", "Where and when"),
            ("who", "By task and phase"),
            ("wear", "Wear"),
            ("errors", "Errors"),
            ("files", "Files"),
            ("readahead", "Read-ahead"),
            ("recorded-on", "Recorded on"),
        ],
    });
    page.heading("findings", "Findings");
    page.add("findings", &findings(&report.findings));
    let calls = calls(&report.calls, found.begin_ns);
    if !calls.is_empty() {
        page.heading("calls", "Calls");
        page.add("latencies of calls", &calls);
    }
    page.heading("operations", "Flash operations");
    page.add("the counts", &counts(report));
    page.heading("figures", "Where and when");
    for drawn in figures::flash(report) {
        page.add(&drawn.title, &figure(&drawn));
    }
    if found.blocks.not_placed.sum() > 0 {
        page.add(
            "operations that have no place",
            &format!(
                "<p class=\"lost\">{} operations are not in the map of blocks: their chip's shape is not known, or it has too many blocks.</p>\n",
                grouped(found.blocks.not_placed.sum())
            ),
        );
    }
    page.heading("who", "By task and phase");
    page.add("operations by task and phase", &tasks_and_phases(report));
    page.heading("wear", "Wear");
    page.add("wear", &wear(report));
    if !report.health.is_empty() {
        page.heading("errors", "Errors of the flash");
        page.add("errors of the flash", &errors(report));
    }
    names(&mut page, &report.names);
    if let Some(found) = &report.readahead {
        page.heading("readahead", "Read-ahead");
        page.add("what read-ahead brought in", &readahead(found));
    }
    page.heading("recorded-on", "Recorded on");
    page.add("the box with system, probes and losses", &recorded_on(report));
    page.finish(&format!("Written by flashscope; report schema {}.", report.schema))
}

fn counts(report: &FlashReport) -> String {
    // A trace of only the page cache has no counts.
    let Some(counts) = report.found.counts.known() else { return String::new() };
    if counts.total.sum() == 0 && report.found.durations.is_empty() {
        return String::new();
    }
    let mut out = summary(&[
        (grouped(counts.total.reads), "page reads"),
        (grouped(counts.total.programs), "page programs"),
        (grouped(counts.total.erases), "block erases"),
    ]);
    if counts.total.sum() > 0 {
        out += &rows("Commands by what they moved", &flash_view::kinds(&counts.reads, &counts.programs));
    }
    out + &rows(
        "Time of a command (percentiles by nearest rank; of more than 128 times at most 0.8 % below the true value)",
        &flash_view::times(&report.found.durations),
    )
}

fn tasks_and_phases(report: &FlashReport) -> String {
    let found = &report.found;
    let mut out = rows("By task", &flash_view::tasks(&found.by_task, MAX_ROWS));
    let did = activities(&found.activities, found.begin_ns, None);
    out += &rows("Phases of file systems and UBI, inferred from the operations", &did);
    let did = activities(&found.yaffs2, found.begin_ns, None);
    out += &rows("YAFFS2's own operations among them", &did);
    let phases = &found.phases;
    out += &rows("By phase", &flash_view::phases(&phases.phases, MAX_ROWS));
    for (n, what) in [
        (phases.ends_without_begin, "phases ended that had not begun"),
        (phases.not_kept, "phases were too many or too deep to be counted"),
    ] {
        if n > 0 {
            _ = writeln!(out, "<p class=\"lost\">{} {what}.</p>", grouped(n));
        }
    }
    out
}

fn wear(report: &FlashReport) -> String {
    let Some(wear) = report.found.wear.known() else { return String::new() };
    if wear.programmed_pages + wear.erased_blocks == 0 {
        return String::new();
    }
    let mut out = String::new();
    for sentence in wear_view::sentences(report) {
        _ = writeln!(out, "<p>{}</p>", escape(&sentence));
    }
    out + &rows("By task", &wear_view::tasks(wear, MAX_ROWS)) + &rows("By file", &wear_view::files(wear, MAX_ROWS))
}

fn errors(report: &FlashReport) -> String {
    let mut out = rows("By device", &wear_view::errors(report));
    for sentence in wear_view::failed(report).into_iter().chain(wear_view::error_notes(report)) {
        _ = writeln!(out, "<p>{}</p>", escape(&sentence));
    }
    out
}

fn recorded_on(report: &FlashReport) -> String {
    let mut known = system(&report.system);
    for chip in &report.chips {
        let size = if chip.blocks == 0 { String::new() } else { format!("{} blocks of ", grouped(chip.blocks.into())) };
        known.push((
            "chip",
            format!(
                "{}: {}: {size}{} pages, {} a page",
                chip.chip,
                chip.name,
                chip.pages_per_block,
                bytes(chip.page_bytes.into())
            ),
        ));
    }
    let mut out = format!("<div class=\"box\">\n{}", facts(known));
    if !report.probes.is_empty() {
        out += "<h3>Probes, and what they cannot see</h3>\n";
    }
    let mut rows = String::new();
    for p in &report.probes {
        _ = writeln!(
            rows,
            "<tr><td>{}</td><td>{}</td><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
            escape(&p.event),
            escape(&p.operation),
            escape(&p.symbol),
            escape(&p.level),
            escape(&p.loses)
        );
    }
    out += &table(
        "",
        "<tr><th>event</th><th>operation</th><th>kernel function</th><th>level</th><th>does not see</th></tr>\n",
        &body(&rows),
    );
    if let Some(mtd) = report.found.counts.known().map(|counts| counts.mtd_calls).filter(|mtd| mtd.sum() > 0) {
        _ = writeln!(
            out,
            "<p class=\"note\">Cross-count at the MTD layer, where a call may span many pages: {} reads, {} writes, {} erases.</p>",
            grouped(mtd.reads),
            grouped(mtd.programs),
            grouped(mtd.erases)
        );
    }
    out.push_str("<h3>Losses</h3>\n");
    out += &lost(&report.losses);
    out.push_str("</div>\n");
    out
}
