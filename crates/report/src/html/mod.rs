//! Self-contained pages: no network, at most 2 MB, complete without the script, readable in light and dark mode and on paper.

mod block;
mod boot;
mod comparison;
mod explore;
mod flash;
mod layers;
mod page;
mod prediction;
mod published;
mod replays;
mod runs;
mod studies;
mod study;

#[cfg(test)]
pub(crate) use explore::without_scripts;

pub use block::block;
pub use boot::boot_study;
pub use comparison::comparison;
pub use flash::flash;
pub use layers::{layers, layers_study};
pub use prediction::prediction;
pub(crate) use published::published;
pub use replays::replays_study;
pub use runs::runs_study;
pub use study::study;

use crate::calls_view;
use crate::figures::Figure;
use crate::findings_view;
use crate::readahead_view;
use crate::rows::Rows;
use crate::text::{escape, grouped};
use flashscope_analysis::cache::AccuracyFindings;
use flashscope_analysis::calls::CallsFound;
use flashscope_analysis::findings::Finding;
use flashscope_analysis::{Evidence, NamesFound};
use flashscope_analysis::{LossCount, OwnWear, SystemFacts};
use std::fmt::Write;

/// Largest number of rows in a table of names.
const MAX_ROWS: usize = 100;

/// Number of rows of a table on paper; page.css hides the others there, so that a trace's page has six sheets at most.
const PAPER_ROWS: usize = 6;

/// A part that is not printed: other parts contain it, or a summary.
fn on_screen(markup: &str) -> String {
    if markup.is_empty() { String::new() } else { format!("<div class=\"screen\">\n{markup}</div>\n") }
}

/// A note on the rows that a table of [`MAX_ROWS`] rows leaves out.
fn more(len: usize, what: &str) -> String {
    match len.checked_sub(MAX_ROWS) {
        None | Some(0) => String::new(),
        Some(more) => format!("<p class=\"note\">and {} more {what}: see the JSON</p>\n", grouped(more as u64)),
    }
}

fn figure(figure: &Figure) -> String {
    format!(
        "<figure id=\"{}\">\n<h3>{}</h3>\n<div class=\"scroll\">{}</div>\n<figcaption>{}</figcaption>\n</figure>\n",
        figure.id,
        escape(&figure.title),
        figure.svg,
        escape(&figure.caption)
    )
}

/// The first findings as markup; empty if there are none.
fn findings(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return String::new();
    }
    let mut out = "<ol class=\"findings\">\n".to_owned();
    for finding in findings.iter().take(findings_view::IN_REPORT) {
        let lines = findings_view::lines(finding);
        _ = write!(out, "<li><p class=\"key\">{}</p>", lines[0].markup());
        for line in &lines[1..] {
            _ = write!(out, "<p>{}</p>", line.markup());
        }
        out += "</li>\n";
    }
    out += "</ol>\n";
    if let Some(more) = findings_view::more(findings, findings_view::IN_REPORT) {
        _ = writeln!(out, "<p class=\"note\">{}</p>", escape(&more));
    }
    out
}

/// Durations of calls as markup; empty if the trace has no calls.
fn calls(found: &CallsFound, begin_ns: u64) -> String {
    const MAX_CALLS: usize = 30;
    let notes: String = [calls_view::asynchronous(found), calls_view::unseen(found), calls_view::left_out(found)]
        .iter()
        .flatten()
        .map(|line| format!("<p class=\"note\">{}</p>\n", escape(line)))
        .collect();
    if found.is_empty() {
        return notes;
    }
    rows("By process", &calls_view::by_process(found, MAX_CALLS))
        + &rows("By file", &calls_view::by_file(found, MAX_CALLS))
        + &rows("The slowest", &calls_view::slowest(found, begin_ns, MAX_CALLS))
        + &notes
}

/// A table that scrolls on narrow screens; empty without rows. `head` and `body` are trusted markup.
fn table(caption: &str, head: &str, body: &str) -> String {
    if !body.contains("<tr") {
        return String::new();
    }
    let caption = if caption.is_empty() { String::new() } else { format!("<caption>{}</caption>\n", escape(caption)) };
    format!("<div class=\"scroll\"><table>\n{caption}<thead>\n{head}</thead>\n{body}</table></div>\n")
}

fn body(rows: &str) -> String {
    format!("<tbody>\n{rows}</tbody>\n")
}

/// A table; empty without rows.
fn rows(caption: &str, rows: &Rows) -> String {
    let classes: Vec<&str> = rows.kinds.chars().map(|kind| if kind == 'n' { " class=\"num\"" } else { "" }).collect();
    let mut head = "<tr>".to_owned();
    for (words, class) in rows.heads.iter().zip(&classes) {
        _ = write!(head, "<th{class}>{}</th>", words.replace('\n', "<br>"));
    }
    head.push_str("</tr>\n");
    let mut lines = String::new();
    for row in &rows.rows {
        lines.push_str("<tr>");
        for (cell, class) in row.iter().zip(&classes) {
            _ = write!(lines, "<td{class}>{}</td>", escape(cell));
        }
        lines.push_str("</tr>\n");
    }
    let more = match rows.more {
        0 => String::new(),
        more => format!("<p class=\"note\">and {} more: see the JSON</p>\n", grouped(more as u64)),
    };
    let made = table(caption, &head, &body(&lines)) + &more;
    if rows.rows.len() > PAPER_ROWS { made.replacen("<table>", "<table class=\"long\">", 1) } else { made }
}

/// Known and unknown facts about the system.
fn system(s: &SystemFacts) -> Vec<(&'static str, String)> {
    let cpus = if s.cpus == 0 { String::new() } else { s.cpus.to_string() };
    let mut facts = vec![
        ("kernel", s.kernel_release.clone()),
        ("machine", s.machine.clone()),
        ("CPUs", cpus),
        ("clock", s.clock.clone()),
        ("agent", s.agent_version.clone()),
        ("mounts", s.mounts.join("; ")),
    ];
    if !s.captured.is_empty() {
        facts.push(("captured because of", s.captured.join("; ")));
    }
    if !s.limited_to.is_empty() {
        facts.push(("recorded only", s.limited_to.join("; ")));
    }
    if !s.wear.is_empty() {
        facts.push(("wear", s.wear.iter().map(OwnWear::sentence).collect::<Vec<_>>().join(" ")));
    }
    facts
}

fn facts(facts: Vec<(&str, String)>) -> String {
    let mut out = "<dl>\n".to_owned();
    for (label, value) in facts {
        let value = if value.is_empty() { "not recorded".to_owned() } else { escape(&value) };
        _ = writeln!(out, "<dt>{label}</dt><dd>{value}</dd>");
    }
    out + "</dl>\n"
}

/// The numbers at the beginning of a page, each with its label; empty without numbers.
fn summary(numbers: &[(String, &str)]) -> String {
    if numbers.is_empty() {
        return String::new();
    }
    let mut out = "<div class=\"summary\">".to_owned();
    for (number, what) in numbers {
        _ = write!(out, "<div><b>{number}</b>{what}</div>");
    }
    out + "</div>\n"
}

/// Use of files by task, and the stacks of devices.
fn names(page: &mut page::Page, names: &NamesFound) {
    if !names.files.is_empty() {
        page.heading("files", "Files");
        page.add("who used which file", &rows("", &crate::names::files(names, MAX_ROWS)));
        page.add("how many files are named", &format!("<p>{}</p>\n", escape(&crate::names::coverage(names))));
    }
    for line in crate::names::stacks(names) {
        page.add("a device on others", &format!("<p>{}</p>\n", escape(&line)));
    }
}

/// Pages that read-ahead brought in.
fn readahead(found: &Evidence<AccuracyFindings>) -> String {
    let found = match found {
        Evidence::Known(found) => found,
        Evidence::Unknown(why) => return format!("<p>{}</p>\n", escape(&readahead_view::unknown(why))),
    };
    rows("By file", &readahead_view::files(found, MAX_ROWS))
        + &on_screen(&rows("By task", &readahead_view::tasks(found, MAX_ROWS)))
        + &format!("<p>{}</p>\n", escape(&readahead_view::notes(found)))
}

/// Losses by name.
fn lost(all: &[LossCount]) -> String {
    losses(all.iter().map(|l| (l.name.as_str(), l.count, String::new(), l.meaning.as_str())))
}

/// Rows of losses. Zero losses can be unfolded, because "checked, none lost" is an answer.
fn losses<'a>(rows: impl Iterator<Item = (&'a str, u64, String, &'a str)>) -> String {
    let head = "<tr><th>what was not seen</th><th class=\"num\">times</th><th>meaning</th></tr>\n";
    let (mut happened, mut zero, mut zeros) = (String::new(), String::new(), 0);
    for (name, count, places, meaning) in rows {
        let out = if count > 0 { &mut happened } else { &mut zero };
        zeros += u64::from(count == 0);
        let lost = if count > 0 { " lost" } else { "" };
        let places = if places.is_empty() {
            String::new()
        } else {
            format!(" <span class=\"note\">({})</span>", escape(&places))
        };
        _ = writeln!(
            out,
            "<tr><td><code>{}</code></td><td class=\"num{lost}\">{}</td><td>{}{places}</td></tr>",
            escape(name),
            grouped(count),
            escape(meaning)
        );
    }
    if happened.is_empty() && zero.is_empty() {
        return "<p>The recording names no loss counter: whether anything was lost is not known.</p>\n".to_owned();
    }
    let mut out = table("", head, &body(&happened));
    if zeros > 0 {
        let words = if happened.is_empty() { "Nothing was lost: all counters are 0" } else { "Counters that are 0" };
        let zero = table("", head, &body(&zero));
        _ = writeln!(out, "<details>\n<summary>{words} ({zeros})</summary>\n{zero}</details>");
    }
    out
}
