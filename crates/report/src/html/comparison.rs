//! The page for a comparison.

use super::page::{Header, Page};
use super::rows;
use crate::comparison_view::{figure_value, head, interval, joined, percent, sides};
use crate::rows::Rows;
use crate::text::escape;
use flashscope_analysis::Evidence;
use flashscope_analysis::comparison::{Checked, Comparison};

/// Largest number of figures in the table.
const MAX_ROWS: usize = 500;

pub fn comparison(comparison: &Comparison, checked: &[Checked]) -> String {
    let view = head(comparison);
    let mut contents = vec![("changes", "Changes")];
    contents.extend((!comparison.findings.is_empty()).then_some(("findings", "Findings")));
    contents.extend((!checked.is_empty()).then_some(("conditions", "Conditions")));
    let mut page = Page::new(&Header { title: "What changed", question: &view.answer, clock: "", contents: &contents });
    let notes: String = view.notes.iter().map(|note| format!("<p class=\"note\">{}</p>\n", escape(note))).collect();
    page.add("notes", &notes);
    page.heading("changes", "Changes, largest first");
    let table = Rows::new(
        "tnnnn",
        &["figure", "before", "after", "change", "95 % interval of the change"],
        view.changed.iter(),
        MAX_ROWS,
        |change| {
            vec![
                change.figure.clone(),
                figure_value(change.unit, change.before),
                figure_value(change.unit, change.after),
                percent(change),
                interval(change),
            ]
        },
    );
    page.add("the table of changes", &rows("Figures on both sides", &table));
    if !comparison.findings.is_empty() {
        page.heading("findings", "Findings on both sides");
        let findings = comparison.findings.iter();
        let table = Rows::new("ttt", &["", "before", "after"], findings, MAX_ROWS, |finding| {
            vec![sides(finding).to_owned(), joined(&finding.before), joined(&finding.after)]
        });
        page.add("the findings of both sides", &rows("What the reports say first", &table));
    }
    if let Some(next) = view.next {
        page.add("what to do next", &format!("<p class=\"note\">Next: <code>{}</code></p>\n", escape(next)));
    }
    if !checked.is_empty() {
        page.heading("conditions", "Conditions");
        let table = Rows::new("tt", &["--fail-if", "result"], checked.iter(), MAX_ROWS, |one| {
            let result = match &one.met {
                Evidence::Known(true) => "holds: failed".to_owned(),
                Evidence::Known(false) => "does not hold: passed".to_owned(),
                Evidence::Unknown(why) => format!("unknown: {}", why.missing),
            };
            vec![one.condition.clone(), result]
        });
        page.add("the table of conditions", &rows("Results of the conditions", &table));
    }
    page.finish(&format!("Written by flashscope; comparison schema {}.", comparison.schema))
}
