//! Renders text for a terminal of a given width.

mod block;
mod boot;
mod call;
mod comparison;
mod flash;
mod layers;
mod prediction;
mod published;
mod replays;
mod runs;
mod split;
mod study;
mod table;

use crate::calls_view;
use crate::findings_view;
use crate::readahead_view;
use crate::rows::Rows;
use crate::text::{grouped, visible};
use flashscope_analysis::cache::AccuracyFindings;
use flashscope_analysis::calls::CallsFound;
use flashscope_analysis::findings::{Finding, Rule};
use flashscope_analysis::{Evidence, LossCount, NamesFound};
use flashscope_study::Header;

pub use block::block;
pub use boot::boot_study;
pub use call::call;
pub use comparison::comparison;
pub use flash::flash;
pub use layers::{layers, layers_study};
pub use prediction::prediction;
pub(crate) use published::published;
pub use replays::replays_study;
pub use runs::runs_study;
pub use split::{block_by, flash_by};
pub use study::study;

/// Options for rendering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns of the terminal.
    pub width: usize,
    /// Rows of each table; `None`: each table's own limit.
    pub top: Option<usize>,
    /// Emphasis by SGR escape sequences; no escape sequences otherwise.
    pub colour: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self { width: 100, top: None, colour: false }
    }
}

impl Style {
    fn width(self) -> usize {
        self.width.clamp(40, 200)
    }

    fn rows(self, most: usize) -> usize {
        self.top.unwrap_or(most)
    }

    fn emphasis(self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn bold(self, text: &str) -> String {
        self.emphasis("1", text)
    }

    fn bold_lines(self, text: &str) -> String {
        text.lines().map(|line| self.bold(line) + "\n").collect()
    }

    fn heading(self, text: &str) -> String {
        format!("\n{}\n", self.bold(text))
    }

    /// A heading with the text below it; empty if the text is empty.
    fn section(self, heading: &str, below: &str) -> String {
        if below.is_empty() { String::new() } else { self.heading(heading) + below }
    }
}

/// Number of rows in a table of calls.
const CALL_ROWS: usize = 8;

/// A table; empty without rows. Columns without any value are left out. A device column with one value is left out too: a line below the
/// table names the device.
fn rows(rows: &Rows, width: usize) -> String {
    let columns = rows.heads.len();
    let cell = |row: &[String], c: usize| visible(row.get(c).map_or("", |cell| cell)).into_owned();
    let device = rows.heads.iter().position(|&head| head == "device").filter(|&c| {
        rows.rows.len() > 1 && columns > 2 && rows.rows.windows(2).all(|pair| pair[0].get(c) == pair[1].get(c))
    });
    let shown: Vec<usize> = (0..columns)
        .filter(|&c| Some(c) != device && rows.rows.iter().any(|row| row.get(c).is_some_and(|cell| !cell.is_empty())))
        .collect();
    let kinds: String = shown.iter().filter_map(|&c| rows.kinds.chars().nth(c)).collect();
    let mut lines = table::Table::new(&kinds);
    let two = shown.iter().any(|&c| rows.heads[c].contains('\n'));
    for line in 0..1 + usize::from(two) {
        lines.head(shown.iter().map(|&c| rows.heads[c].split('\n').nth(line).unwrap_or("")));
    }
    for row in &rows.rows {
        lines.row(shown.iter().map(|&c| cell(row, c)));
    }
    let mut out = lines.render(width);
    if let (Some(c), Some(row)) = (device, rows.rows.first()) {
        out += &table::paragraph(&format!("All on {}.", cell(row, c)), width, 2, 2);
    }
    if rows.more > 0 {
        let more = format!("and {} more: --top N shows N, --json has all", grouped(rows.more as u64));
        out += &table::paragraph(&more, width, 2, 2);
    }
    out
}

/// The first findings, each with its evidence and the commands to type.
fn findings(findings: &[Finding], style: &Style) -> String {
    if findings.is_empty() {
        return String::new();
    }
    let width = style.width();
    // Always shown, however many findings are left out, because the other figures may be too low.
    let lost = findings.iter().find(|finding| finding.rule == Rule::LostEvents);
    let mut out =
        lost.map_or(String::new(), |lost| style.bold_lines(&table::paragraph(&visible(&lost.what), width, 0, 2)));
    out += &style.heading("Findings");
    for (number, finding) in findings.iter().take(findings_view::IN_REPORT).enumerate() {
        for (at, line) in findings_view::lines(finding).iter().enumerate() {
            let text = visible(&line.text);
            let typed: Vec<_> = line.typed.iter().map(|step| (visible(&step.text), step.is_code)).collect();
            out += &match at {
                0 => style.bold_lines(&paragraph_numbered(&text, width, number + 1)),
                _ => table::paragraph_with(&text, &typed, width, 5, 7)
                    .unwrap_or_else(|| table::paragraph(&line.without_commands(), width, 5, 7)),
            };
        }
    }
    if let Some(more) = findings_view::more(findings, findings_view::IN_REPORT) {
        out += &table::paragraph(&more, width, 2, 2);
    }
    out
}

/// Use of files by task, and the stacks of devices.
fn names_section(names: &NamesFound, style: &Style, most: usize) -> String {
    let width = style.width();
    let mut out = String::new();
    if !names.files.is_empty() {
        out += &style.heading("Files");
        out += &rows(&crate::names::files(names, most), width);
        out += &table::paragraph(&crate::names::coverage(names), width, 2, 2);
    }
    let stacks = crate::names::stacks(names);
    if !stacks.is_empty() {
        out += &style.heading("Devices");
        for line in stacks {
            out += &table::paragraph(&crate::text::visible(&line), width, 2, 4);
        }
    }
    out
}

/// Text wrapped to the terminal's width, the first line indented by `first`, the others by `rest`.
pub fn text(text: &str, style: &Style, first: usize, rest: usize) -> String {
    table::paragraph(&crate::text::visible(text), style.width(), first, rest)
}

/// "  1. text", further lines below the text.
fn paragraph_numbered(text: &str, width: usize, number: usize) -> String {
    table::paragraph(&format!("{number}. {text}"), width, 2, 5)
}

/// Durations of calls; empty if the trace has none.
fn calls(found: &CallsFound, begin_ns: u64, style: &Style) -> String {
    let width = style.width();
    let notes: String = [calls_view::asynchronous(found), calls_view::unseen(found), calls_view::left_out(found)]
        .iter()
        .flatten()
        .map(|line| table::paragraph(line, width, 2, 2))
        .collect();
    if found.is_empty() {
        return if notes.is_empty() { notes } else { style.heading("Calls") + &notes };
    }
    let most = style.rows(CALL_ROWS);
    let mut out = style.section("Calls, by process", &rows(&calls_view::by_process(found, most), width));
    out += &style.section("Calls, by file", &rows(&calls_view::by_file(found, most), width));
    out += &style.section("The slowest calls", &rows(&calls_view::slowest(found, begin_ns, most), width));
    out += &notes;
    out + &table::paragraph("What one of them waited for: flashscope report TRACE --call NUMBER", width, 2, 2)
}

/// Pages that read-ahead brought in.
fn readahead(found: &Evidence<AccuracyFindings>, style: &Style, most: usize) -> String {
    let width = style.width();
    let found = match found {
        Evidence::Known(found) => found,
        Evidence::Unknown(why) => {
            return style.heading("Read-ahead") + &table::paragraph(&readahead_view::unknown(why), width, 2, 2);
        }
    };
    let (files, tasks) = (readahead_view::files(found, most), readahead_view::tasks(found, most));
    let mut out = style.section("Read-ahead by file: pages read ahead, and their use", &rows(&files, width));
    out += &style.section("Read-ahead by task: pages read ahead, and their use", &rows(&tasks, width));
    out + &table::paragraph(&readahead_view::notes(found), width, 2, 2)
}

/// The beginning of a study's text.
fn head(header: &Header, width: usize) -> String {
    table::paragraph(&visible(&header.title), width, 0, 0) + &table::paragraph(&visible(&header.question), width, 0, 0)
}

fn lost(all: &[LossCount], width: usize) -> String {
    losses(all.iter().map(|loss| (loss.name.as_str(), loss.count, loss.meaning.as_str())), width)
}

/// The losses of a study's group, one per line.
fn lost_of_group(group: &str, all: &[LossCount], width: usize) -> String {
    let line = |loss: &LossCount| format!("{group}: {} {}: {}", loss.name, loss.count, loss.meaning);
    let lost = all.iter().filter(|loss| loss.count > 0);
    lost.map(|loss| table::paragraph(&visible(&line(loss)), width, 2, 2)).collect()
}

/// Losses above zero as a table, and the names of the others, because "checked, none lost" is an answer.
fn losses<'a>(all: impl Iterator<Item = (&'a str, u64, &'a str)>, width: usize) -> String {
    let mut table = table::Table::new("tnt");
    table.head(["not seen", "times", "meaning"]);
    let mut zero: Vec<&str> = Vec::new();
    for (name, count, meaning) in all {
        if count > 0 {
            table.row([&*visible(name), &*grouped(count), &*visible(meaning)]);
        } else {
            zero.push(name);
        }
    }
    match (table.is_empty(), zero.is_empty()) {
        (true, true) => "  no loss counter was recorded: whether anything was lost is not known\n".to_owned(),
        (false, true) => table.render(width),
        (true, false) => format!("  none ({} counters are 0: see --json)\n", zero.len()),
        (false, false) => table.render(width) + &format!("  {} more counters are 0: see --json\n", zero.len()),
    }
}

#[cfg(test)]
mod finding_tests {
    use super::*;
    use flashscope_analysis::Evidence;
    use flashscope_analysis::findings::{Remedy, Step, Weight};

    fn finding(rule: Rule, what: &str) -> Finding {
        Finding {
            rule,
            weight: Weight::Overview,
            processes: Vec::new(),
            what: what.to_owned(),
            cause: String::new(),
            evidence: Vec::new(),
            lost_ns: Evidence::unknown("an overview", ""),
            lost_bytes: None,
            advice: Vec::new(),
            uncertain: None,
        }
    }

    /// A backslash in it would be an error of the language.
    #[test]
    fn a_long_line_of_code_breaks_without_a_backslash() {
        let steps = vec![Step::Code { line: "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;".to_owned() }];
        let gain = Evidence::unknown("it was not tried", "");
        let what = "Keep a write-ahead log".to_owned();
        let advice = vec![Remedy { what, steps, gain, risk: String::new() }];
        let finding = Finding { advice, ..finding(Rule::TopIo, "a writes most.") };
        let text = findings(&[finding], &Style { width: 40, ..Style::default() });
        assert!(text.contains("PRAGMA\n       synchronous=NORMAL;") && !text.contains('\\'), "{text}");
    }

    /// A line break would make a command of its second half, or change the name that is quoted there.
    #[test]
    fn what_is_to_be_typed_is_never_broken() {
        let run = |name: &str| Step::Run { command: "umount".to_owned(), names: vec![name.to_owned()] };
        let of = |steps: Vec<Step>| {
            let what = "Unmount what is not used, and mount it again".to_owned();
            let gain = Evidence::unknown("it was not tried", "");
            let advice = vec![Remedy { what, steps, gain, risk: String::new() }];
            findings(
                &[Finding { advice, ..finding(Rule::TopIo, "a writes most.") }],
                &Style { width: 40, ..Style::default() },
            )
        };
        let code = "a(b, c);".repeat(3);
        for name in ["/mnt/a  b", "/mnt/it's; reboot", "reboot", "/mnt/' a"] {
            let text = of(vec![run(name), run("x"), Step::Code { line: code.clone() }, run(name)]);
            assert!(text.lines().all(|line| line.len() <= 40), "{text}");
            let typed = findings_view::step(&run(name));
            let unbroken = text.replace(" \\\n       ", " ");
            for end in [";", "\n"] {
                assert!(unbroken.contains(&format!("{typed}{end}")), "{text}");
            }
        }
        // A name that needs more than a line is not printed at all.
        let text = of(vec![run(&format!("/mnt/{}", "a b ".repeat(10)))]);
        assert!(text.contains("The commands are") && !text.contains("umount"), "{text}");
        // What is cut may be cut within a quotation.
        let text = of((0..9).map(|n| run(&format!("/mnt/{n}{}", "' ".repeat(80)))).collect());
        assert!(text.contains("The commands are") && !text.contains("umount"), "{text}");
    }

    #[test]
    fn lost_events_are_told_before_the_findings() {
        let mut all = vec![finding(Rule::TopIo, "a writes most."); findings_view::IN_REPORT];
        assert!(findings(&all, &Style::default()).trim_start().starts_with("Findings"));
        all.push(finding(Rule::LostEvents, "The recording is not complete: events_overwritten 12."));
        let text = findings(&all, &Style::default());
        assert!(text.starts_with("The recording is not complete: events_overwritten 12.\n"), "{text}");
    }
}
