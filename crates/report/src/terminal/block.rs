//! A trace's block I/O on a terminal: time by stage, owners, and waits behind others.

use super::table::paragraph;
use super::{Style, rows};
use crate::block_view;
use crate::names;
use crate::recorded_view;
use crate::rows::Rows;
use crate::text::{duration, grouped, visible};
use flashscope_analysis::block::{BlockFound, BlockReport, GroupBy};

/// Largest number of rows in a list; the JSON has all.
const MAX_ROWS: usize = 12;

/// `16 bios queued, 16 completed; 80 block events in 90.30 ms`.
fn counts(found: &BlockFound) -> String {
    let stages = &found.stages;
    let counts = block_view::known_counts(found).join(", ");
    let lasted = duration(stages.end_ns.saturating_sub(stages.begin_ns));
    let events = format!("{} block events in {lasted}", grouped(stages.events));
    if counts.is_empty() { events } else { format!("{counts}; {events}") }
}

/// The whole text; ends in a newline.
pub fn block(report: &BlockReport, style: &Style) -> String {
    let style = *style;
    let width = style.width();
    let report = &names::block_for_people(report);
    let found = &report.found;
    let stages = &found.stages;
    let mut out = paragraph(&visible(&report.title), width, 0, 0);
    if block_view::is_empty(found) {
        out += &paragraph(block_view::NOTHING_RECORDED, width, 0, 0);
    } else {
        out += &paragraph(&counts(found), width, 0, 0);
    }
    for line in block_view::unknown_counts(found) {
        out += &paragraph(&visible(&line), width, 0, 2);
    }
    if let Some(line) = block_view::own_recording(found) {
        out += &paragraph(&line, width, 0, 2);
    }
    for line in recorded_view::lines(&report.system, &report.calls) {
        out += &paragraph(&visible(&line), width, 0, 2);
    }
    if let Some(line) = block_view::failed(found) {
        out += &paragraph(&visible(&line), width, 0, 2);
    }
    for said in &report.system.wear {
        out += &paragraph(&visible(&said.sentence()), width, 0, 2);
    }
    out += &super::findings(&report.findings, &style);
    out += &super::calls(&report.calls, stages.begin_ns, &style);
    out += &style.heading("Who slows whom down");
    for sentence in block_view::interference(found) {
        out += &paragraph(&visible(&sentence), width, 2, 4);
    }
    let all = found.groups.iter().find(|group| group.by == GroupBy::All).map_or(&[][..], |all| &all.stages);
    let stages = section("Stages, all devices", &block_view::stages(all), &style);
    if !stages.is_empty() {
        out += &(stages + &paragraph(block_view::STAGE_NAMES, width, 2, 2));
    }
    for (by, heading) in block_view::GROUPS {
        out += &section(heading, &block_view::groups(found, by, style.rows(MAX_ROWS)), &style);
    }
    out += &special(found, &style, width);
    let originators =
        section("Originators and carriers", &block_view::originators(found, style.rows(MAX_ROWS)), &style);
    if !originators.is_empty() {
        out += &(originators + &paragraph(&block_view::written(found), width, 2, 2));
    }
    out += &super::names_section(&report.names, &style, style.rows(MAX_ROWS));
    out += &waits(found, &style);
    if found.stages.events > 0 && !found.over_time.windows.is_empty() {
        out += &style.heading("Load");
        for line in block_view::load(found) {
            out += &paragraph(&line, width, 2, 2);
        }
    }
    if let Some(readahead) = &report.readahead {
        out += &super::readahead(readahead, &style, style.rows(MAX_ROWS));
    }
    out += &section("Not in the stages", &block_view::unmatched(found), &style);
    if !report.missing.is_empty() {
        out += &style.heading(block_view::MISSING);
        for line in block_view::missing(report) {
            out += &paragraph(&visible(&line), width, 2, 4);
        }
    }
    out += &style.heading("Losses");
    out + &super::lost(&report.losses, width)
}

/// Sections that only some traces have: stacked devices, flushes, fsync calls, failures.
fn special(found: &BlockFound, style: &Style, width: usize) -> String {
    let mut out = String::new();
    let loops = block_view::loops(found);
    if !found.stack.is_empty() || !loops.is_empty() {
        out += &style.heading("Stacked devices");
    }
    out += &rows(&block_view::stack(found, style.rows(MAX_ROWS)), width);
    for line in loops {
        out += &paragraph(&visible(&line), width, 2, 4);
    }
    let flushes = block_view::flushes(found);
    if !flushes.is_empty() {
        out += &style.heading("Flushes");
        for line in flushes {
            out += &paragraph(&line, width, 2, 4);
        }
    }
    if let Some(line) = block_view::syncs_line(found) {
        out += &style.heading("What fsync and similar calls waited for");
        out += &paragraph(&visible(&line), width, 2, 4);
        out += &rows(&block_view::syncs(found, style.rows(MAX_ROWS)), width);
    }
    out + &section("Failures", &block_view::failures(found, style.rows(MAX_ROWS)), style)
}

/// A table under its heading; empty without rows.
fn section(heading: &str, table: &Rows, style: &Style) -> String {
    style.section(heading, &rows(table, style.width()))
}

fn waits(found: &BlockFound, style: &Style) -> String {
    let (width, most) = (style.width(), style.rows(MAX_ROWS));
    // If no owner waited, "Who slows whom down" says so: a table of zeros adds nothing.
    let loads = (!block_view::nobody_waited(found)).then(|| block_view::owner_loads(found, most));
    let mut out = loads.map(|loads| section("Waits behind others", &loads, style)).unwrap_or_default();
    let pairs = block_view::pairs(found, most);
    if !pairs.rows.is_empty() {
        out.push('\n');
        out += &rows(&pairs, width);
    }
    let notes = block_view::wait_notes(found);
    if out.is_empty() && !notes.is_empty() {
        out += &style.heading("Waits behind others");
    }
    for note in notes {
        out += &paragraph(&visible(&note), width, 2, 2);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashscope_analysis::block::{BlockAnalysis, MissingEvent, Sizes};
    use flashscope_analysis::{Analysis, LossCount, SystemFacts};

    #[test]
    fn names_are_made_visible_and_nothing_is_said_of_nothing() {
        let report = BlockReport {
            names: Default::default(),
            schema: 1,
            title: "a\u{1b}[2Jb".into(),
            system: SystemFacts::default(),
            losses: vec![LossCount { name: "data_cut".into(), count: 1, meaning: "it was cut".into() }],
            missing: vec![MissingEvent {
                event: "block:block_getrq".into(),
                why: "this kernel has no such event".into(),
                loses: "when a request was allocated\u{1b}[2J".into(),
            }],
            readahead: None,
            findings: Vec::new(),
            calls: Default::default(),
            found: BlockAnalysis::new(|_, _| None::<&str>, Sizes::default()).finish(),
        };
        let text = block(&report, &Style::default());
        assert!(!text.contains('\u{1b}'));
        for empty in ["Stages", "By device", "Originators", "Waits", "Load", "Not in the stages", "Calls", "Findings"] {
            assert!(!text.contains(empty), "{empty}: {text}");
        }
        assert!(text.contains("data_cut"));
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            text.contains("this kernel has no such event. Not known for it: when a request was allocated"),
            "{text}"
        );
        assert!(text.contains("(block:block_getrq)"), "{text}");
    }
}
