//! The page for a study: the verdict first, then the evidence for it.

use super::page::{Header, Page};
use super::{body, figure, losses, rows, table};
use crate::figures;
use crate::flash_view;
use crate::text::{duration, escape, grouped, ms, number, percent, us};
use crate::view::{self, group_words, results};
use flashscope_study::{Group, Row, StudyResult, Verdict};
use std::fmt::Write;

/// Bytes reserved for each of the late parts.
const LATE_ROOM: usize = 400_000;

/// The whole page.
pub fn study(result: &StudyResult) -> String {
    let mut page = Page::new(&Header {
        title: &result.header.title,
        question: &result.header.question,
        clock: &format!("Times are {}.", result.header.clock),
        contents: &[
            ("verdict", "Verdict"),
            ("figures", "Figures"),
            ("published", "Published values"),
            ("results", "Results"),
            ("operations", "Flash operations"),
            ("measured-on", "Measured on"),
        ],
    });
    // Reserves space for the late parts, so that a study with many groups does not crowd them out: they show how reliable the figures are.
    let rows: Vec<Row> = result.comparisons.iter().map(Row::from).collect();
    let compared = super::published(&rows);
    let measured_on = measured_on(result);
    let [compared_room, measured_on_room] = [compared.len(), measured_on.len()].map(|len| len.min(LATE_ROOM));
    page.reserve(compared_room + measured_on_room);

    page.heading("verdict", "Verdict");
    for verdict in &result.verdicts {
        page.add(&format!("verdict on {}", verdict.filesystem), &verdict_card(verdict));
    }
    page.heading("figures", "What read-ahead costs");
    for drawn in figures::study(result) {
        page.add(&drawn.title, &figure(&drawn));
    }
    page.heading("published", "Published values beside ours");
    page.release(compared_room);
    page.add("the table of published values", &compared);
    page.heading("results", "Results");
    for group in &result.groups {
        page.add(&format!("results of {}", group_words(group)), &results_table(group));
    }
    page.heading("operations", "Flash operations, group by group");
    page.add(
        "what a group is",
        "<p>A group is all cells that shared one fresh boot; each cell began with a cold cache.</p>\n",
    );
    for (i, group) in result.groups.iter().enumerate() {
        page.add(&format!("flash operations of {}", group_words(group)), &group_operations(i, group));
    }
    page.heading("measured-on", "Measured on");
    page.release(measured_on_room);
    page.add("the box with board, kernel, probes, losses and the tracer's cost", &measured_on);
    page.finish(&format!(
        "Study {}, written by flashscope {}; result schema {}. All figures and numbers come from the results JSON beside this page.",
        result.header.study, result.header.flashscope, result.header.schema
    ))
}

fn verdict_card(verdict: &Verdict) -> String {
    format!(
        "<section class=\"verdict\">\n<h3>{} on Linux {}</h3>\n<p>{}</p>\n<p class=\"command\"><code>{}</code></p>\n</section>\n",
        escape(&verdict.filesystem),
        escape(&verdict.kernel),
        escape(&verdict.sentence),
        escape(&verdict.command)
    )
}

/// One row per setting. Columns: time and flash reads for each read-ahead, and the savings with read-ahead off.
fn results_table(group: &Group) -> String {
    let results = results(group);
    let varies = |of: fn(&view::Setting<'_>) -> u64| {
        results.rows.windows(2).any(|pair| of(&pair[0].setting) != of(&pair[1].setting))
    };
    let (sizes, gaps, seeds) = (varies(|s| s.request_bytes), varies(|s| s.interarrival_us), varies(|s| s.seed));
    let mut columns = vec![view::counted(group)];
    columns
        .extend([(sizes, "bytes each"), (gaps, "µs apart"), (seeds, "seed")].into_iter().filter(|c| c.0).map(|c| c.1));
    let fixed = columns.len() + 1;

    let mut head = format!("<tr><th colspan=\"{fixed}\"></th>");
    for readahead in &results.readaheads {
        _ = write!(head, "<th class=\"span\" colspan=\"3\">{}</th>", escape(&readahead.words()));
    }
    let (saves, savings) = (results.saves(), results.savings());
    let span = savings.len();
    _ = write!(head, "<th class=\"span\" colspan=\"{span}\">{}</th></tr>\n<tr><th>pattern</th>", escape(&saves));
    for column in &columns {
        _ = write!(head, "<th class=\"num\">{column}</th>");
    }
    for _ in &results.readaheads {
        _ = write!(
            head,
            "<th class=\"num\">time, ms</th><th class=\"num\">p99, ms</th><th class=\"num\">{}</th>",
            group.reads()
        );
    }
    for (what, _) in &savings {
        _ = write!(head, "<th class=\"num\">{}</th>", if *what == "reads" { group.reads() } else { what });
    }
    head.push_str("</tr>\n");

    let mut bodies = String::new();
    for (i, rows) in results.rows.chunk_by(|a, b| a.setting.pattern == b.setting.pattern).enumerate() {
        _ = writeln!(bodies, "<tbody{}>", if i > 0 { " class=\"next\"" } else { "" });
        for row in rows {
            let s = &row.setting;
            _ = write!(bodies, "<tr><td>{}</td>", escape(s.pattern));
            let numbers = [(true, s.count), (sizes, s.request_bytes), (gaps, s.interarrival_us), (seeds, s.seed)];
            for (_, number) in numbers.iter().filter(|n| n.0) {
                _ = write!(bodies, "<td class=\"num\">{}</td>", grouped(*number));
            }
            for cell in &row.cells {
                match cell {
                    Some(c) => {
                        _ = write!(
                            bodies,
                            "<td class=\"num\">{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td>",
                            ms(c.total_ns),
                            ms(c.latency.p99),
                            grouped(c.flash_reads)
                        )
                    }
                    None => bodies.push_str("<td class=\"num\">–</td><td class=\"num\">–</td><td class=\"num\">–</td>"),
                }
            }
            for (_, saved) in &savings {
                let saved = row.gain.as_ref().and_then(saved).map_or("–".to_owned(), percent);
                _ = write!(bodies, "<td class=\"num\">{saved}</td>");
            }
            bodies.push_str("</tr>\n");
        }
        bodies.push_str("</tbody>\n");
    }
    let mut opens: Vec<(u64, u64)> = group.cells.iter().map(|c| (c.flash_reads_open, c.open_ns)).collect();
    opens.sort_unstable();
    let open = match (opens.first(), opens.last()) {
        (Some((least, _)), Some((most, _))) => {
            let reads =
                if least == most { grouped(*most) } else { format!("{} to {}", grouped(*least), grouped(*most)) };
            let longest = duration(opens.iter().map(|o| o.1).max().unwrap_or(0));
            format!(
                "<p class=\"note\">Not in these numbers: each open() of the file, {reads} {}, at most {longest}.</p>\n",
                group.reads()
            )
        }
        _ => String::new(),
    };
    table(&group_words(group), &head, &bodies) + &open
}

fn group_operations(index: usize, group: &Group) -> String {
    let mut out = format!("<h3>{}</h3>\n", escape(&group_words(group)));
    for drawn in figures::group(index, group) {
        out.push_str(&figure(&drawn));
    }
    out += &rows("By phase", &flash_view::study_phases(&group.phases, super::MAX_ROWS));
    out += &rows("By task", &flash_view::tasks(&group.by_task, super::MAX_ROWS));
    out
}

fn measured_on(result: &StudyResult) -> String {
    let mut out = "<div class=\"box\">\n<dl>\n".to_owned();
    for view::Fact { label, values } in view::facts(result) {
        _ = write!(out, "<dt>{label}</dt><dd>");
        for (i, (value, groups)) in values.iter().enumerate() {
            let br = if i > 0 { "<br>" } else { "" };
            let hash = label.starts_with("SHA");
            let value = if hash { format!("<code>{}</code>", escape(value)) } else { escape(value) };
            _ = write!(out, "{br}{value}{}", in_groups(groups));
        }
        out.push_str("</dd>\n");
    }
    out.push_str("</dl>\n<h3>Probes, and what they cannot see</h3>\n");
    let mut rows = String::new();
    for (probes, groups) in view::by_value(&result.groups, |g| &g.probes) {
        let everywhere = groups.len() == result.groups.len();
        let groups = if everywhere { String::new() } else { view::places(groups.into_iter().map(str::to_owned)) };
        for probe in probes {
            _ = writeln!(
                rows,
                "<tr><td>{}{}</td><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
                escape(&probe.operation),
                in_groups(&groups),
                escape(&probe.symbol),
                escape(&probe.how_chosen),
                escape(&probe.loses)
            );
        }
    }
    out += &table(
        "",
        "<tr><th>operation</th><th>kernel function</th><th>how it was chosen</th><th>does not see</th></tr>\n",
        &body(&rows),
    );
    out.push_str("<h3>Losses</h3>\n");
    let summed = view::losses(&result.groups);
    out += &losses(summed.iter().map(|l| {
        let places = view::places(l.groups.iter().map(|(id, count)| format!("{} in {id}", grouped(*count))));
        (l.name, l.count, places, l.meaning)
    }));
    out.push_str("<h3>The tracer's own cost</h3>\n");
    let mut rows = String::new();
    for group in result.groups.iter().take(super::MAX_ROWS) {
        let t = &group.tracer;
        let each = |total: u64| us(total as f64 / t.reads.max(1) as f64);
        _ = writeln!(
            rows,
            "<tr><td>{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td><td class=\"num\">{}</td></tr>",
            escape(&view::short(&group.id)),
            grouped(t.reads),
            each(t.untraced_ns),
            each(t.traced_ns),
            number(t.ns_per_event / 1e3, 2),
            format_args!("{} %", number(t.percent_of_page_read, 2))
        );
    }
    out += &table(
        "Full page reads through the raw device on the same boot, without and with tracing; times in µs",
        "<tr><th>group</th><th class=\"num\">reads</th><th class=\"num\">untraced, each</th><th class=\"num\">traced, each</th><th class=\"num\">an event costs</th><th class=\"num\">of a page read</th></tr>\n",
        &body(&rows),
    );
    out += &super::more(result.groups.len(), "groups");
    out.push_str("</div>\n");
    out
}

/// The groups of a line; empty if it is about all groups.
fn in_groups(groups: &str) -> String {
    if groups.is_empty() { String::new() } else { format!(" <span class=\"note\">({})</span>", escape(groups)) }
}
