//! Studies as one Markdown page: every published statement beside the measured value, and the figures of each study.

use crate::figures::Figure;
use crate::text::{number, published, visible};
use crate::{replays_view, runs_view};
use flashscope_study::replays::ReplaysResult;
use flashscope_study::runs::RunsResult;
use flashscope_study::{How, Inputs, NotMeasurable, Row, StudyResult};
use std::collections::BTreeMap;
use std::fmt::Write;

/// One study on the page.
pub struct Chapter {
    /// The study's name; its figures' file names begin with it.
    pub study: String,
    pub title: String,
    pub question: String,
    pub clock: String,
    /// The study's file, for the command that repeats it.
    pub file: String,
    /// "armv7, Linux 6.1.0-50-armmp (linux-image-6.1.0-50-armmp 6.1.176-1)"
    pub measured_on: Vec<String>,
    pub rows: Vec<Row>,
    /// Further results as Markdown.
    pub more: String,
    pub figures: Vec<Figure>,
}

impl Chapter {
    /// The name of a figure's file in the directory of figures.
    pub fn figure_file(&self, figure: &Figure) -> String {
        format!("{}-{}.svg", self.study, figure.id)
    }
}

/// Boards and kernels of the boots, each once.
pub fn measured_on<'a>(inputs: impl Iterator<Item = &'a Inputs>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for input in inputs {
        let text =
            format!("{}, Linux {} ({}), {}", input.board, input.kernel_release, input.kernel_package, input.qemu);
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all
}

/// `figures`: the directory of figures, for links. `command`: the command that writes this page.
pub fn page(chapters: &[Chapter], not_measured: &[NotMeasurable], figures: &str, command: &str) -> String {
    let mut out = format!(
        "# Published figures and ours\n\nThis document compares published figures about storage on embedded Linux with our measurements, for readers who \
         judge how far flashscope can be trusted. `{command}` writes it. Guest time is exact: the same \
         command on any host writes the same bytes, with [known exceptions](explanation/measurement.md#repeatability). \"Measured\" is the result of a virtual board, in guest time; \"modelled\" is \
         calculated from that and published constants. The last column states how a published value was read, and why ours \
         differs. Publications are listed in [literature.md](reference/literature.md).\n\n"
    );
    out += &summary(chapters, not_measured);
    let mut publications: BTreeMap<String, Vec<(&Chapter, &Row)>> = BTreeMap::new();
    for chapter in chapters {
        for row in &chapter.rows {
            publications.entry(publication(&row.source)).or_default().push((chapter, row));
        }
    }
    for (publication, rows) in &publications {
        _ = writeln!(out, "\n## {}\n", text(publication));
        out += "| statement | published | ours | ratio | ours is | source, study | remarks |\n|---|---|---|---|---|---|---|\n";
        for (chapter, row) in rows {
            out += &statement(chapter, row);
        }
    }
    if !not_measured.is_empty() {
        out += "\n## Not measurable here\n\n| statement | source | why, and what there is instead |\n|---|---|---|\n";
        for one in not_measured {
            _ = writeln!(out, "| {} | {} | {} |", text(&one.statement), text(&one.source), text(&one.reason));
        }
    }
    for chapter in chapters {
        out += &study(chapter, figures);
    }
    out
}

/// Authors and year at the beginning of a source: "Olivier et al. 2014".
fn publication(source: &str) -> String {
    let words: Vec<&str> = source.split([',', ';', ' ']).filter(|word| !word.is_empty()).take(4).collect();
    match words[..] {
        [author, "et", "al.", year] => format!("{author} et al. ({year})"),
        _ => "Others".to_owned(),
    }
}

fn summary(chapters: &[Chapter], not_measured: &[NotMeasurable]) -> String {
    let rows = || chapters.iter().flat_map(|chapter| &chapter.rows);
    let count = |within: Option<bool>| rows().filter(|row| row.within == within).count();
    format!(
        "{} statements: {} within what was published, {} outside, {} not measured by these studies, {} not measurable here.\n",
        rows().count() + not_measured.len(),
        count(Some(true)),
        count(Some(false)),
        count(None),
        not_measured.len()
    )
}

fn statement(chapter: &Chapter, row: &Row) -> String {
    let of = if row.of.is_empty() { String::new() } else { format!(" ({})", text(&row.of)) };
    let is = match (row.within, row.how) {
        (Some(true), How::Measured) => "within, measured",
        (Some(true), How::Modelled) => "within, modelled",
        (Some(false), How::Measured) => "**outside**, measured",
        (Some(false), How::Modelled) => "**outside**, modelled",
        (None, _) => "not measured",
    };
    format!(
        "| {}{of} | {} | {} | {} | {is} | {}; [{}](#{}) | {} |\n",
        text(&row.statement),
        text(&published(row.published_min, row.published_max, &row.unit)),
        row.ours.map_or("–".to_owned(), |ours| format!("{} {}", number(ours, 2), text(&row.unit))),
        row.ratio().map_or("–".to_owned(), |ratio| number(ratio, 2)),
        text(&row.source),
        text(&chapter.study),
        text(&chapter.study),
        text(&row.note),
    )
}

fn study(chapter: &Chapter, figures: &str) -> String {
    let mut out = format!(
        "\n## {}\n\n{}\n\n`flashscope study {}`: {}. Measured on{}\n",
        text(&chapter.study),
        text(&chapter.question),
        code(&chapter.file),
        text(&chapter.clock),
        places(&chapter.measured_on),
    );
    if !chapter.more.is_empty() {
        _ = write!(out, "\n{}", chapter.more);
    }
    for figure in &chapter.figures {
        let file = chapter.figure_file(figure);
        _ = write!(out, "\n![{}]({figures}/{file})\n\n{}\n", text(&figure.title), text(&figure.caption));
    }
    out
}

/// A single place is added to the sentence; several become a list.
fn places(measured_on: &[String]) -> String {
    match measured_on {
        [one] => format!(" {}.", text(one)),
        several => {
            let lines: Vec<String> = several.iter().map(|on| format!("- {}", text(on))).collect();
            format!(":\n\n{}", lines.join("\n"))
        }
    }
}

/// The tables of a study of runs.
pub fn runs(result: &RunsResult) -> String {
    tables(runs_view::views(result))
}

/// The sentences about levers, and the tables of the replays.
pub fn replays(result: &ReplaysResult) -> String {
    let said: String =
        replays_view::recommendations(&result.levers).iter().map(|said| format!("- {}\n", text(said))).collect();
    let gap = if said.is_empty() { "" } else { "\n" };
    said + gap + &tables(replays_view::views(result))
}

fn tables(views: Vec<runs_view::View>) -> String {
    let mut out = String::new();
    for view in views {
        let rows = &view.rows;
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        _ = write!(out, "**{}**\n\n", view.heading);
        out += &line(rows.heads.iter().map(|head| head.replace('\n', " ")).collect());
        out += &line(rows.kinds.chars().map(|kind| if kind == 'n' { "--:" } else { "---" }.to_owned()).collect());
        for row in &rows.rows {
            out += &line(row.iter().map(|cell| text(cell)).collect());
        }
        out.push('\n');
    }
    out
}

/// The verdicts of a study: one row per group.
pub fn verdicts(result: &StudyResult) -> String {
    let mut out = "| file system | kernel | today | what it means | command |\n|---|---|---|---|---|\n".to_owned();
    for verdict in &result.verdicts {
        let today = if verdict.today_kib == 0 { "off".to_owned() } else { format!("{} KiB", verdict.today_kib) };
        _ = writeln!(
            out,
            "| {} | {} | {today} | {} | `{}` |",
            text(&verdict.filesystem),
            text(&verdict.kernel),
            text(&verdict.sentence),
            code(&verdict.command),
        );
    }
    out
}

/// Escapes text so that it cannot end a cell, open a tag or act as markup.
fn text(untrusted: &str) -> String {
    let mut out = String::with_capacity(untrusted.len());
    for c in visible(&one_line(untrusted)).chars() {
        match c {
            '|' | '`' | '*' | '_' | '[' | ']' | '\\' => out.extend(['\\', c]),
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            c => out.push(c),
        }
    }
    out
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// The same for text in backticks, where only these two characters have a meaning.
fn code(untrusted: &str) -> String {
    visible(&one_line(untrusted)).replace('`', "'").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(source: &str, ours: Option<f64>) -> Row {
        Row {
            id: "id".to_owned(),
            source: source.to_owned(),
            statement: "twice | as <many>".to_owned(),
            of: "jffs2".to_owned(),
            published_min: 1.5,
            published_max: 2.5,
            unit: "×".to_owned(),
            how: How::Modelled,
            ours,
            within: ours.map(|ours| (1.5..=2.5).contains(&ours)),
            note: "a\ncause".to_owned(),
        }
    }

    fn chapter(rows: Vec<Row>) -> Chapter {
        Chapter {
            study: "study".to_owned(),
            title: "Title".to_owned(),
            question: "Why?".to_owned(),
            clock: "guest time".to_owned(),
            file: "studies/study.toml".to_owned(),
            measured_on: vec!["armv7".to_owned()],
            rows,
            more: String::new(),
            figures: Vec::new(),
        }
    }

    #[test]
    fn a_statement_is_a_row_that_nothing_in_it_breaks() {
        let rows = vec![
            row("Writer et al. 2013, section 4", Some(2.2)),
            row("Author et al. 2014, table 1", Some(9.0)),
            row("Author et al. 2014", None),
        ];
        let not_measured = [NotMeasurable {
            id: "rail".to_owned(),
            source: "Author et al. 2014, table 2".to_owned(),
            statement: "a rail".to_owned(),
            reason: "no such board".to_owned(),
        }];
        let page = page(&[chapter(rows)], &not_measured, "reproduction", "flashscope study --all");
        assert!(
            page.contains(
                "4 statements: 1 within what was published, 1 outside, 1 not measured by these studies, 1 not"
            )
        );
        assert!(page.find("## Author et al. (2014)").unwrap() < page.find("## Writer et al. (2013)").unwrap());
        let cells = |line: &&str| line.starts_with("| twice \\| as &lt;many&gt; (jffs2) |");
        assert_eq!(page.lines().filter(cells).count(), 3);
        assert!(page.contains("| 2.2 × | 1.1 | within, modelled |"), "{page}");
        assert!(page.contains("| 9 × | 4.5 | **outside**, modelled |"), "{page}");
        assert!(page.contains("| – | – | not measured |"), "{page}");
        assert!(page.contains("| a cause |"), "{page}");
        assert!(page.contains("`: guest time. Measured on armv7.\n"), "{page}");
    }

    #[test]
    fn several_places_are_a_list() {
        let mut several = chapter(vec![row("Author et al. 2014", None)]);
        several.measured_on.push("apf27".to_owned());
        several.more = "### Table\n".to_owned();
        let page = page(&[several], &[], "reproduction", "flashscope study --all");
        assert!(page.contains("`: guest time. Measured on:\n\n- armv7\n- apf27\n\n### Table\n"), "{page}");
    }
}
