//! The changes between two sides on a terminal: findings first, then figures.

use super::Style;
use super::table::{Table, paragraph};
use crate::comparison_view::{figure_value, head, interval, joined, percent, sides};
use crate::text::{grouped, visible};
use flashscope_analysis::comparison::Comparison;

/// The whole text; ends in a newline.
pub fn comparison(comparison: &Comparison, top: usize, style: &Style) -> String {
    let width = style.width();
    let view = head(comparison);
    let mut out = style.bold(&paragraph(&visible(&view.answer), width, 0, 0));
    for line in &view.notes {
        out += &paragraph(&visible(line), width, 0, 2);
    }
    let shown = view.changed.iter().take(top);
    let mut table = Table::new("tnnnn");
    table.head(["figure", "before", "after", "change", "95 % interval"]);
    for change in shown {
        table.row([
            visible(&change.figure).into_owned(),
            figure_value(change.unit, change.before),
            figure_value(change.unit, change.after),
            percent(change),
            interval(change),
        ]);
    }
    if !comparison.findings.is_empty() {
        out += &style.heading("Findings on both sides");
        for finding in &comparison.findings {
            out += &paragraph(sides(finding), width, 2, 4);
            for (side, sentences) in [("before", &finding.before), ("after", &finding.after)] {
                out += &paragraph(&visible(&format!("{side}: {}", joined(sentences))), width, 4, 6);
            }
        }
    }
    if !table.is_empty() {
        out += &style.heading("What changed, the largest effect first");
        out += &table.render(width);
        let more = view.changed.len().saturating_sub(top);
        if more > 0 {
            out += &format!("  and {} more: --top {} or --json\n", grouped(more as u64), view.changed.len());
        }
    }
    if let Some(next) = view.next {
        out += &paragraph(&format!("Next: {next}"), width, 0, 2);
    }
    out
}
