//! A study's result on a terminal: inputs, published values, numbers, and the verdict last, where a reader looks when the command ends.

use super::Style;
use super::table::{Table, paragraph};
use crate::text::{bytes, grouped, ms, number, percent, us, visible};
use crate::view::{self, group_words, results};
use flashscope_study::{Group, Row, StudyResult};

/// The whole text; ends in a newline.
pub fn study(result: &StudyResult, style: &Style) -> String {
    let style = *style;
    let width = style.width();
    let mut out = super::head(&result.header, width);
    out += &measured_on(result, style);
    if !result.comparisons.is_empty() {
        let rows: Vec<Row> = result.comparisons.iter().map(Row::from).collect();
        out += &super::published(&rows, style);
    }
    for group in &result.groups {
        out += &style.heading(&visible(&group_words(group)));
        out += &numbers(group, width);
    }
    out += &style.heading("Verdict");
    for verdict in &result.verdicts {
        out += &paragraph(&visible(&verdict.sentence), width, 2, 2);
        // A command is not wrapped, so that it can be copied.
        out += &format!("      {}\n", style.bold(&visible(&verdict.command)));
    }
    out
}

fn measured_on(result: &StudyResult, style: Style) -> String {
    let width = style.width();
    let mut out = style.heading("Measured on");
    let mut table = Table::new("tt");
    for view::Fact { label, values } in view::facts(result) {
        for (i, (value, groups)) in values.iter().enumerate() {
            let places = if groups.is_empty() { String::new() } else { format!(" ({groups})") };
            let value = format!("{value}{places}");
            table.row([if i == 0 { label } else { "" }, &*visible(&value)]);
        }
    }
    out += &table.render(width);

    let mut table = Table::new("ttt");
    table.head(["probe for", "function", "does not see"]);
    for (probes, _) in view::by_value(&result.groups, |g| &g.probes) {
        for p in probes {
            let operation = format!("{} ({})", p.operation, p.how_chosen);
            table.row([visible(&operation), visible(&p.symbol), visible(&p.loses)]);
        }
    }
    if !table.is_empty() {
        out += &style.heading("Probes");
        out += &table.render(width);
    }

    out += &style.heading("Losses");
    let losses = view::losses(&result.groups);
    out += &super::losses(losses.iter().map(|l| (l.name, l.count, l.meaning)), width);

    out += &style.heading("The tracer's own cost: full page reads, in µs");
    let mut table = Table::new("tnnnnn");
    table.head(["group", "reads", "untraced", "traced", "an event", "of a read"]);
    for group in &result.groups {
        let t = &group.tracer;
        let each = |total: u64| us(total as f64 / t.reads.max(1) as f64);
        table.row([
            visible(&view::short(&group.id)).into_owned(),
            grouped(t.reads),
            each(t.untraced_ns),
            each(t.traced_ns),
            number(t.ns_per_event / 1e3, 2),
            format!("{} %", number(t.percent_of_page_read, 2)),
        ]);
    }
    out + &table.render(width)
}

fn numbers(group: &Group, width: usize) -> String {
    let results = results(group);
    let varies = |of: fn(&view::Setting<'_>) -> u64| {
        results.rows.windows(2).any(|pair| of(&pair[0].setting) != of(&pair[1].setting))
    };
    let (sizes, gaps, seeds) = (varies(|s| s.request_bytes), varies(|s| s.interarrival_us), varies(|s| s.seed));
    let extra = [(sizes, "each"), (gaps, "µs apart"), (seeds, "seed")];
    let extra = || extra.iter().filter(|e| e.0).map(|e| e.1.to_owned());

    let savings = results.savings();
    let kinds = "tn".to_owned() + &"n".repeat(extra().count() + 2 * results.readaheads.len() + savings.len());
    let mut table = Table::new(&kinds);
    let mut above = vec![String::new(); 2 + extra().count()];
    let mut below: Vec<String> =
        ["pattern", view::counted(group)].into_iter().map(str::to_owned).chain(extra()).collect();
    for readahead in &results.readaheads {
        let name = visible(&readahead.short()).into_owned();
        above.extend([name.clone(), name]);
        below.extend(["time, ms".to_owned(), "reads".to_owned()]);
    }
    for (what, _) in &savings {
        above.push(results.saves());
        below.push((*what).to_owned());
    }
    table.head(above);
    table.head(below);
    for row in &results.rows {
        let s = &row.setting;
        let mut cells = vec![visible(s.pattern).into_owned(), grouped(s.count)];
        if sizes {
            cells.push(bytes(s.request_bytes));
        }
        if gaps {
            cells.push(grouped(s.interarrival_us));
        }
        if seeds {
            cells.push(s.seed.to_string());
        }
        for cell in &row.cells {
            match cell {
                Some(c) => cells.extend([ms(c.total_ns), grouped(c.flash_reads)]),
                None => cells.extend(["–".to_owned(), "–".to_owned()]),
            }
        }
        for (_, of) in &savings {
            cells.push(row.gain.as_ref().and_then(of).map_or("–".to_owned(), percent));
        }
        table.row(cells);
    }
    let reads = match group.reads() {
        "flash reads" => "flash array reads",
        _ => "requests that the disk's driver got,",
    };
    format!("  read-ahead off or in KiB; reads: {reads} from the first read() to the last\n") + &table.render(width)
}
