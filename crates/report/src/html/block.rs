//! The page for a block I/O trace: waits behind others first, then the time by stage.

use super::explore::explore;
use super::page::{Header, Page};
use super::{calls, facts, figure, findings, lost, names, on_screen, readahead, rows, summary, system};
use crate::block_view::{self, count};
use crate::figures;
use crate::text::{duration, escape, grouped, size};
use flashscope_analysis::block::{BlockReport, GroupBy, Unit};
use std::fmt::Write;

/// Largest number of rows in a table: as many as fit on a sheet of paper.
const MAX_ROWS: usize = 30;
/// Largest number of groups with a table of their stages.
const MAX_STAGE_TABLES: usize = 12;

/// The whole page.
pub fn block(report: &BlockReport) -> String {
    let report = &crate::names::block_for_people(report);
    let found = &report.found;
    let stages = &found.stages;
    let lasted = duration(stages.end_ns.saturating_sub(stages.begin_ns));
    let question = match block_view::is_empty(found) {
        true => block_view::NOTHING_RECORDED.to_owned(),
        false => format!("{} block events in {lasted}", grouped(stages.events)),
    };
    let mut page = Page::new(&Header {
        title: &report.title,
        question: &question,
        clock: "",
        contents: &[
            ("findings", "Findings"),
            ("calls", "Calls"),
            ("verdict", "Who slows whom down"),
            ("figures", "Where, when, how long"),
            ("stages", "Stages"),
            ("originators", "Originators"),
            ("files", "Files"),
            ("waits", "Waits"),
            ("readahead", "Read-ahead"),
            ("recorded-on", "Recorded on"),
        ],
    });
    // This section is reserved first, because losses decide how reliable the figures are.
    let recorded_on = recorded_on(report);
    page.reserve(recorded_on.len());

    for line in block_view::unknown_counts(found) {
        page.add("what is unknown", &format!("<p class=\"lost\">{}</p>\n", escape(&line)));
    }
    if let Some(line) = block_view::failed(found) {
        page.add("what failed", &format!("<p class=\"lost\">{}</p>\n", escape(&line)));
    }
    page.heading("findings", "Findings");
    page.add("findings", &findings(&report.findings));
    let begin_ns = found.stages.begin_ns;
    page.section("the timeline to explore", &explore(&found.points, &report.title, begin_ns));
    let calls = calls(&report.calls, stages.begin_ns);
    if !calls.is_empty() {
        page.heading("calls", "Calls");
        page.add("latencies of calls", &calls);
    }
    page.heading("verdict", "Who slows whom down");
    page.add("who slows whom down", &verdict(report));
    page.add("the summary", &numbers(report));
    page.heading("figures", "Where, when, how long");
    for drawn in figures::block(report) {
        page.add(&drawn.title, &figure(&drawn));
    }
    page.heading("stages", "Stages");
    if found.groups.iter().any(|group| !group.stages.is_empty()) {
        page.add("what the stages' names mean", &format!("<p>{}</p>\n", escape(block_view::STAGE_NAMES)));
    }
    let tables = found.groups.iter().filter(|g| matches!(g.by, GroupBy::All | GroupBy::Device));
    for group in tables.take(MAX_STAGE_TABLES) {
        let name = if group.by == GroupBy::All { "All devices" } else { &group.name };
        let table = rows(name, &block_view::stages(&group.stages)).replacen("<table class=\"long\">", "<table>", 1);
        let table = if group.by == GroupBy::All { table } else { on_screen(&table) };
        page.add(&format!("stages of {name}"), &table);
    }
    for (by, heading) in block_view::GROUPS {
        if by == GroupBy::Parts && found.groups.iter().all(|group| group.by != by) {
            continue;
        }
        let table = rows(heading, &block_view::groups(found, by, MAX_ROWS));
        let table = if matches!(by, GroupBy::Device | GroupBy::Owner) { table } else { on_screen(&table) };
        page.add(heading, &table);
    }
    special(&mut page, report);
    page.add("what is not in the stages", &on_screen(&rows("Not in the stages", &block_view::unmatched(found))));
    page.heading("originators", "Originators and carriers");
    let originators = rows("", &block_view::originators(found, MAX_ROWS));
    if !originators.is_empty() {
        page.add("what was written for whom", &format!("<p>{}</p>\n", escape(&block_view::written(found))));
        page.add("originators and carriers", &originators);
    }
    page.add(
        "files that were written back",
        &on_screen(&rows("Files that were written back", &block_view::files(found, MAX_ROWS))),
    );
    names(&mut page, &report.names);
    page.heading("waits", "Waits behind others");
    page.add("what each originator waited", &rows("Of a bio, on average", &block_view::owner_loads(found, MAX_ROWS)));
    page.add("who waited behind whom", &rows("Behind whom, in all", &block_view::pairs(found, MAX_ROWS)));
    for note in block_view::wait_notes(found) {
        page.add("what the waits leave out", &format!("<p class=\"lost\">{}</p>\n", escape(&note)));
    }
    if let Some(found) = &report.readahead {
        page.heading("readahead", "Read-ahead");
        page.add("what read-ahead brought in", &readahead(found));
    }
    page.heading("recorded-on", "Recorded on");
    page.release(recorded_on.len());
    page.add("the box with system and losses", &recorded_on);
    page.finish(&format!("Written by flashscope; report schema {}.", report.schema))
}

/// Sections that only some traces have: stacked devices, flushes, fsync calls, failures.
fn special(page: &mut Page, report: &BlockReport) {
    let found = &report.found;
    let mut table = |heading: &str, of: crate::rows::Rows| page.add(heading, &rows(heading, &of));
    table("Stacked devices", block_view::stack(found, MAX_ROWS));
    table("Failures", block_view::failures(found, MAX_ROWS));
    table("What fsync and similar calls waited for", block_view::syncs(found, MAX_ROWS));
    let lines =
        block_view::syncs_line(found).into_iter().chain(block_view::flushes(found)).chain(block_view::loops(found));
    for line in lines {
        page.add("syncs and flushes", &format!("<p>{}</p>\n", escape(&line)));
    }
}

fn verdict(report: &BlockReport) -> String {
    let mut out = "<section class=\"verdict\">\n".to_owned();
    for sentence in block_view::interference(&report.found) {
        _ = writeln!(out, "<p>{}</p>", escape(&tied(&sentence)));
    }
    out + "</section>\n"
}

/// Joins numbers and their units by non-breaking spaces.
fn tied(sentence: &str) -> String {
    let mut out = String::with_capacity(sentence.len());
    for word in sentence.split(' ') {
        let unit = matches!(word.trim_end_matches([',', ';', '.', ')', ':']), "%" | "ns" | "µs" | "ms" | "s");
        if !out.is_empty() {
            out.push(if unit && out.ends_with(|c: char| c.is_ascii_digit()) { '\u{a0}' } else { ' ' });
        }
        out.push_str(word);
    }
    out
}

fn numbers(report: &BlockReport) -> String {
    let found = &report.found;
    let stages = &found.stages;
    let known = stages.unit == Unit::Request || stages.bios_queued.known().is_some();
    let q2c = found
        .groups
        .iter()
        .find(|group| group.by == GroupBy::All)
        .and_then(|all| all.stages.iter().find(|s| s.stage == "Q2C"));
    let sum = |of: fn(&flashscope_analysis::block::BlockWindow) -> Option<u64>| {
        let mut windows = found.over_time.windows.iter();
        let all = windows.try_fold(0u64, |sum, w| Some(sum.saturating_add(of(w)?)));
        // Without any window it is unknown which I/O is counted twice.
        all.filter(|_| known).map_or_else(|| "unknown".to_owned(), size)
    };
    let (begun, done) = match stages.unit {
        Unit::Bio => ((count(&stages.bios_queued), "bios queued"), (count(&stages.bios_completed), "bios completed")),
        Unit::Request => {
            ((count(&stages.requests), "requests issued"), (count(&stages.requests_completed), "requests completed"))
        }
    };
    let time = |ns: Option<u64>| ns.map_or("–".to_owned(), duration);
    summary(&[
        begun,
        done,
        (sum(|w| w.read_bytes), "read"),
        (sum(|w| w.written_bytes), "written"),
        (time(q2c.map(|s| s.ns.mean)), "mean Q2C"),
        (time(q2c.map(|s| s.ns.p99)), "p99 of Q2C"),
    ])
}

fn recorded_on(report: &BlockReport) -> String {
    let mut out = format!("<div class=\"box\">\n{}<h3>Losses</h3>\n", facts(system(&report.system)));
    out += &lost(&report.losses);
    if !report.missing.is_empty() {
        let lines: String =
            block_view::missing(report).iter().map(|line| format!("<li>{}</li>\n", escape(line))).collect();
        out += &on_screen(&format!("<h3>{}</h3>\n<ul>\n{lines}</ul>\n", block_view::MISSING));
    }
    out + "</div>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stays_with_its_unit() {
        assert_eq!(
            tied("of 1.66 ms a bio, 12 µs (19.3 %) of s 5"),
            "of 1.66\u{a0}ms a bio, 12\u{a0}µs (19.3\u{a0}%) of s 5"
        );
    }
}
